//! Copies of boxes of tensors, which tensor maps describe: the copy engine computes addresses, permutes chunks and cuts
//! off what lies outside.

use super::mbarrier::{MBarrier, address, check_barrier, if_first_thread, mbarriers};
use super::shared::shared;
use super::{Effect, Family, OpDef, Signature, Space, fence};
use crate::cost::Cost;
use crate::cuda::{Cx, Emit, Helper};
use crate::dtype::Dtype;
use crate::handles::{Argument, Element, Handle, Scalar, SharedTile, TensorMap, bf16};
use crate::ir::{self, Attrs, Phase, Swizzle, Type};
use crate::loc::Loc;
use crate::trace::{emit_stmt, with};

/// The ops of this file.
pub static FAMILY: Family = Family { name: "tensor", source: include_str!("tensor.rs"), ops: &[&LOAD] };

/// Dimensions a tensor map may have.
const MOST_DIMENSIONS: usize = 5;
/// Most elements of a box along a dimension.
const MOST_ELEMENTS: u32 = 256;
/// Bytes whose chunks `xor16` permutes: rows of other sizes are beyond what the copy engine does.
const PERMUTED_ROW: u32 = 128;

/// Starts a copy of a box.
pub static LOAD: OpDef = OpDef {
    name: "tensor.load",
    doc: "Starts copying a box of a tensor into a tile; an mbarrier counts the tile's bytes when they have arrived. The \
          operands behind the mbarrier's index are the coordinates of the box's first element, outermost first; what lies \
          outside the tensor is zero. Each lane that comes here starts a copy: one thread should.",
    signature: |s| {
        let Some(Type::TensorMap { dtype, rank }) = s.operands.get(1).copied() else {
            return Err("expected a tensor map behind the tile".to_owned());
        };
        s.count(4 + usize::from(rank))?;
        boxed(s, dtype, rank)?;
        check_barrier(s, 2)?;
        match s.operands[4..].iter().find(|&&c| c != Type::Scalar(Dtype::I32)) {
            None => Ok(vec![]),
            Some(other) => Err(format!("coordinates are i32, not {other}")),
        }
    },
    min_capability: 90,
    effects: &[Effect::AsyncCopy, Effect::Read(Space::Global), Effect::Write(Space::Shared)],
    emit: Emit::Stmt(print),
    cost: |c| {
        let Type::Shared { tile, .. } = c.operand(0) else { return Cost::NONE };
        let bytes = u64::from(c.kernel.tiles[tile.index()].stage_bytes());
        Cost { issue: 1, global_read: bytes, shared_written: bytes, ..Cost::NONE }
    },
    example: || {
        let keys = shared::<bf16>([64, 64]).swizzle(Swizzle::Xor16);
        let full = mbarriers(1);
        let pages = TensorMap::<bf16, 3>::declare("pages", Phase::AfterWait, Loc::caller());
        if_first_thread(|| {
            full.init(1);
            fence::mbarrier_init();
            full.at(0).arrive_expect_tx(keys.bytes());
            keys.copy_tensor(pages, [super::index::cta_x(), 0.into(), 64.into()], full.at(0));
        });
        super::barrier::cta_sync();
        full.at(0).wait(0);
    },
};

/// Refuses a tile, operand 0, that is no box of a tensor of `rank` dimensions.
fn boxed(s: &Signature<'_>, dtype: Dtype, rank: u8) -> Result<(), String> {
    let tile = s.tile(0)?;
    if dtype != tile.dtype {
        return Err(format!("a tile of {} is not copied from a tensor of {dtype}", tile.dtype));
    }
    if rank == 1 && tile.rows > 1 {
        return Err(format!("a tensor of one dimension has boxes of one row, not {}", tile.rows));
    }
    if tile.rows > MOST_ELEMENTS || tile.cols > MOST_ELEMENTS {
        let (rows, cols) = (tile.rows, tile.cols);
        return Err(format!("a box has up to {MOST_ELEMENTS} elements along each dimension, not {rows} x {cols}"));
    }
    match (tile.swizzle, tile.row_bytes()) {
        (Swizzle::None, bytes) if bytes % 16 != 0 => {
            return Err(format!("a box's rows are a multiple of 16 bytes, not {bytes}"));
        }
        (Swizzle::Xor16, bytes) if bytes != PERMUTED_ROW => {
            return Err(format!(
                "a tensor copy permutes rows of {PERMUTED_ROW} bytes, and this tile's have {bytes}: copy tiles of {} columns",
                PERMUTED_ROW / tile.dtype.size() as u32
            ));
        }
        _ => {}
    }
    let unit = if tile.swizzle == Swizzle::None { 128 } else { 8 * PERMUTED_ROW };
    let several = tile.copies * tile.stages_or_one() > 1;
    if several && tile.stage_bytes() % unit != 0 {
        let bytes = tile.stage_bytes();
        return Err(format!("the copies of a tile begin at multiples of {unit} bytes, and one has {bytes}"));
    }
    Ok(())
}

fn print(cx: &mut Cx<'_, '_>) {
    let Type::TensorMap { rank, .. } = cx.operand_type(1) else { return };
    let helper = HELPERS[usize::from(rank) - 1];
    cx.require(helper);
    let (to, map, barrier) = (cx.operand(0), cx.operand(1), address(cx, 2));
    // CUDA counts dimensions from the innermost.
    let coordinates: Vec<String> = (0..usize::from(rank)).rev().map(|i| cx.operand(4 + i).to_string()).collect();
    cx.line(&format!("{}({to}, {map}, {}, {barrier});", helper.name, coordinates.join(", ")));
}

macro_rules! helpers {
    ($($helper:ident $name:literal $declared:literal $dimensions:literal $list:literal $barrier:literal $inputs:literal;)*) => {
        $(static $helper: Helper = Helper {
            name: $name,
            text: concat!(
                "__device__ __forceinline__ void ", $name, "(unsigned to, const TensorMap& map, ", $declared, ", unsigned barrier) {\n",
                "  asm volatile(\"cp.async.bulk.tensor.", $dimensions, ".shared::cta.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {", $list, "}], [", $barrier, "];\"\n",
                "               :: \"r\"(to), \"l\"(&map), ", $inputs, ", \"r\"(barrier) : \"memory\");\n",
                "}"
            ),
        };)*
        static HELPERS: [&Helper; MOST_DIMENSIONS] = [$(&$helper),*];
    };
}

helpers! {
    LOAD_1D "tensor_load_1d" "int x" "1d" "%2" "%3" "\"r\"(x)";
    LOAD_2D "tensor_load_2d" "int x, int y" "2d" "%2, %3" "%4" "\"r\"(x), \"r\"(y)";
    LOAD_3D "tensor_load_3d" "int x, int y, int z" "3d" "%2, %3, %4" "%5" "\"r\"(x), \"r\"(y), \"r\"(z)";
    LOAD_4D "tensor_load_4d" "int x, int y, int z, int u" "4d" "%2, %3, %4, %5" "%6"
        "\"r\"(x), \"r\"(y), \"r\"(z), \"r\"(u)";
    LOAD_5D "tensor_load_5d" "int x, int y, int z, int u, int v" "5d" "%2, %3, %4, %5, %6" "%7"
        "\"r\"(x), \"r\"(y), \"r\"(z), \"r\"(u), \"r\"(v)";
}

impl<T: Element> SharedTile<T> {
    /// Starts copying the box of the tensor that begins at these coordinates, outermost first: the tile's columns lie
    /// along the innermost dimension, its rows along the one before, and the box has one element along any others. What
    /// lies outside the tensor becomes zero. `full` counts the tile's bytes as they arrive, and must be told to expect
    /// them. Each lane that comes here starts a copy.
    ///
    /// All copies from one map fill tiles of one shape: it is part of the map.
    #[track_caller]
    pub fn copy_tensor<const RANK: usize>(self, map: TensorMap<T, RANK>, at: [Scalar<i32>; RANK], full: MBarrier) {
        let loc = Loc::caller();
        with(|b| {
            if let Some(tile) = b.tile(self.id()).cloned() {
                b.set_box(map.id(), ir::TensorBox { tile: [tile.rows, tile.cols], swizzle: tile.swizzle }, loc);
            }
        });
        let [array, index] = full.operands();
        let mut operands = vec![self.id(), map.id(), array, index];
        operands.extend(at.map(Handle::id));
        emit_stmt(&LOAD, &operands, Attrs::none());
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::ops::example::kernel;
    use crate::prelude::*;
    use crate::target::Target;

    #[test]
    fn examples() {
        super::super::example::check(
            &super::FAMILY,
            expect![[r#"
            tensor.load
              extern __shared__ __align__(1024) unsigned char shared_memory[];
              const unsigned shared = (unsigned)__cvta_generic_to_shared(shared_memory);
              const int thread = threadIdx.x;
              const unsigned tile0 = shared;  // bf16 [64][64], xor16
              const unsigned tile1 = shared + 8192;  // 1 mbarrier
              if (thread == 0) {
                mbarrier_init(tile1, 1);
                fence_mbarrier_init();
                mbarrier_arrive_expect_tx(tile1, 8192);
                tensor_load_3d(tile0, pages, 64, 0, (int)blockIdx.x, tile1);
              }
              __syncthreads();
              mbarrier_wait(tile1, 0);
        "#]],
        );
    }

    fn map<T: Element, const RANK: usize>() -> TensorMap<T, RANK> {
        TensorMap::declare("map", Phase::AfterWait, Loc::caller())
    }

    #[track_caller]
    fn refused(body: impl FnOnce(), message: &str) {
        let errors = kernel("k", body).expect_err("must be refused").to_string();
        assert!(errors.contains(message), "{errors}");
    }

    fn copy<T: Element>(rows: i32, cols: i32) {
        shared::<T>([rows, cols]).copy_tensor(map::<T, 2>(), [0.into(), 0.into()], mbarriers(1).at(0));
    }

    #[test]
    fn boxes_that_the_copy_engine_does_not_know_are_refused() {
        refused(|| copy::<bf16>(257, 64), "a box has up to 256 elements along each dimension, not 257 x 64");
        refused(|| copy::<bf16>(4, 4), "a box's rows are a multiple of 16 bytes, not 8");
        let wide = || {
            let tile = shared::<bf16>([8, 128]).swizzle(Xor16);
            tile.copy_tensor(map::<bf16, 2>(), [0.into(), 0.into()], mbarriers(1).at(0));
        };
        refused(wide, "a tensor copy permutes rows of 128 bytes, and this tile's have 256: copy tiles of 64 columns");
        let flat = || shared::<f32>([2, 32]).copy_tensor(map::<f32, 1>(), [0.into()], mbarriers(1).at(0));
        refused(flat, "a tensor of one dimension has boxes of one row, not 2");
        let ring = || {
            let ring = shared::<e4m3>([4, 128]).stages(2).swizzle(Xor16);
            ring.stage(0).copy_tensor(map::<e4m3, 2>(), [0.into(), 0.into()], mbarriers(1).at(0));
        };
        refused(ring, "the copies of a tile begin at multiples of 1024 bytes, and one has 512");
    }

    #[test]
    fn a_map_has_one_box() {
        let two = || {
            let (map, full) = (map::<f32, 2>(), mbarriers(1));
            for rows in [4, 8] {
                shared::<f32>([rows, 32]).copy_tensor(map, [0.into(), 0.into()], full.at(0));
            }
        };
        refused(two, "`map` has boxes of 4 x 32, and this tile is one of 8 x 32: use a map for each");
        refused(
            || {
                map::<f32, 2>();
            },
            "no copy uses the tensor map `map`, so that its box is not known",
        );
    }

    #[test]
    fn a_copy_before_the_wait_is_refused() {
        let early = || {
            copy::<f32>(4, 32);
            pdl::wait();
        };
        refused(early, "`map` is touched before `pdl::wait()`");
    }

    #[test]
    fn every_number_of_dimensions_prints() {
        let kernel = kernel("k", || {
            let (tile, full) = (shared::<f32>([1, 32]), mbarriers(1));
            let at = |i: i32| Scalar::from(i);
            let declare = Loc::caller();
            tile.copy_tensor(TensorMap::<f32, 1>::declare("a", Phase::AfterWait, declare), [at(1)], full.at(0));
            tile.copy_tensor(
                TensorMap::<f32, 5>::declare("b", Phase::AfterWait, declare),
                [at(1), at(2), at(3), at(4), at(5)],
                full.at(0),
            );
        });
        let cuda = kernel.unwrap().cuda(Target::Sm90a).unwrap().source;
        assert!(cuda.contains("tensor_load_1d(tile0, a, 1, tile1);"), "{cuda}");
        assert!(cuda.contains("tensor_load_5d(tile0, b, 5, 4, 3, 2, 1, tile1);"), "{cuda}");
    }
}
