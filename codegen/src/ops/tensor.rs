//! Copies of boxes of tensors, which tensor maps describe: the copy engine computes addresses, permutes chunks and cuts
//! off what lies outside. Loads complete on an mbarrier, stores in groups that their thread waits for.

use super::bulk::{commit_bulk, wait_bulk_all_but};
use super::mbarrier::{MBarrier, address, check_barrier, if_first_thread, mbarriers};
use super::shared::shared;
use super::{Effect, Family, OpDef, Signature, Space, fence};
use crate::cost::{Cost, Costing};
use crate::cuda::{Cx, Emit, Helper};
use crate::dtype::Dtype;
use crate::handles::{
    AccessMode, Argument, Element, Handle, Read, Readable, Scalar, SharedTile, TensorMap, Writable, WritePart, bf16,
};
use crate::ir::{self, Attrs, Phase, Swizzle, Type, ValueId};
use crate::loc::Loc;
use crate::trace::{emit_stmt, with};

/// The ops of this file.
pub static FAMILY: Family = Family { name: "tensor", source: include_str!("tensor.rs"), ops: &[&LOAD, &STORE] };

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
        boxed(s, LOAD_COORDINATES)?;
        check_barrier(s, 2).map(|()| vec![])
    },
    min_capability: 90,
    effects: &[Effect::AsyncCopy, Effect::Read(Space::Global), Effect::Write(Space::Shared)],
    emit: Emit::Stmt(|cx| {
        let (helper, coordinates) = helper_and_coordinates(cx, &LOAD_HELPERS, LOAD_COORDINATES);
        let (to, map, barrier) = (cx.operand(0), cx.operand(1), address(cx, 2));
        cx.line(&format!("{helper}({to}, {map}, {coordinates}, {barrier});"));
    }),
    cost: |c| {
        let bytes = box_bytes(c);
        Cost { issue: 1, global_read: bytes, shared_written: bytes, ..Cost::NONE }
    },
    example: || {
        let keys = shared::<bf16>([64, 64]).swizzle(Swizzle::Xor16);
        let full = mbarriers(1);
        let pages = TensorMap::<bf16, 3, Read>::declare("pages", Phase::AfterWait, Loc::caller());
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

/// Where the coordinates of a load begin among its operands: behind tile, map, mbarriers and index.
const LOAD_COORDINATES: usize = 4;

/// Starts a copy of a box to global memory.
pub static STORE: OpDef = OpDef {
    name: "tensor.store",
    doc: "Starts copying a tile to a box of a tensor. The operands behind the map are the coordinates of the box's first \
          element, outermost first; what lies outside the tensor is not written. The copy joins the thread's group of bulk \
          stores: `bulk.commit` ends the group, and after `bulk.wait` the tile may change. Each lane that comes here starts \
          a copy: one thread should. What other instructions have stored in the tile needs `fence.async_proxy` first.",
    signature: |s| boxed(s, STORE_COORDINATES).map(|()| vec![]),
    min_capability: 90,
    effects: &[Effect::AsyncCopy, Effect::Read(Space::Shared), Effect::Write(Space::Global)],
    emit: Emit::Stmt(|cx| {
        let (helper, coordinates) = helper_and_coordinates(cx, &STORE_HELPERS, STORE_COORDINATES);
        let (from, map) = (cx.operand(0), cx.operand(1));
        cx.line(&format!("{helper}({map}, {coordinates}, {from});"));
    }),
    cost: |c| {
        let bytes = box_bytes(c);
        Cost { issue: 1, global_written: bytes, shared_read: bytes, ..Cost::NONE }
    },
    example: || {
        let tile = shared::<f32>([4, 32]).swizzle(Swizzle::Xor16);
        let out = TensorMap::<f32, 2, WritePart>::declare("out", Phase::AfterWait, Loc::caller());
        tile.at(super::index::warp_id(), super::index::lane_id()).store(1.0f32);
        fence::async_proxy();
        super::barrier::cta_sync();
        if_first_thread(|| {
            tile.store_tensor(out, [super::index::cta_x() * 4, 0.into()]);
            commit_bulk();
            wait_bulk_all_but(0);
        });
    },
};

/// The same of a store: behind tile and map.
const STORE_COORDINATES: usize = 2;

/// Refuses a tile, operand 0, that is no box of the tensor at operand 1, or other coordinates from operand `at` on than
/// the tensor has.
fn boxed(s: &Signature<'_>, at: usize) -> Result<(), String> {
    let Some(Type::TensorMap { dtype, rank }) = s.operands.get(1).copied() else {
        return Err("expected a tensor map behind the tile".to_owned());
    };
    s.count(at + usize::from(rank))?;
    if let Some(other) = s.operands[at..].iter().find(|&&c| c != Type::Scalar(Dtype::I32)) {
        return Err(format!("coordinates are i32, not {other}"));
    }
    let tile = s.tile(0)?;
    if dtype != tile.dtype {
        return Err(format!("a tile of {} and a tensor of {dtype} do not match", tile.dtype));
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

fn box_bytes(c: &Costing<'_>) -> u64 {
    match c.operand(0) {
        Type::Shared { tile, .. } => c.kernel.tiles[tile.index()].stage_bytes().into(),
        _ => 0,
    }
}

/// The name of the helper for as many dimensions as the map has, and the coordinates from operand `at` on as CUDA takes
/// them: from the innermost.
fn helper_and_coordinates(
    cx: &mut Cx<'_, '_>,
    helpers: &[&'static Helper; MOST_DIMENSIONS],
    at: usize,
) -> (&'static str, String) {
    let rank = match cx.operand_type(1) {
        Type::TensorMap { rank, .. } => usize::from(rank),
        _ => 1,
    };
    let helper = helpers[rank - 1];
    cx.require(helper);
    let coordinates: Vec<String> = (0..rank).rev().map(|i| cx.operand(at + i).to_string()).collect();
    (helper.name, coordinates.join(", "))
}

macro_rules! helpers {
    ($($load:ident $store:ident $rank:literal $declared:literal $inputs:literal
       $of_load:literal $barrier:literal $of_store:literal $from:literal;)*) => {
        $(static $load: Helper = Helper {
            name: concat!("tensor_load_", $rank),
            text: concat!(
                "__device__ __forceinline__ void tensor_load_", $rank, "(unsigned to, const TensorMap& map, ", $declared, ", unsigned barrier) {\n",
                "  asm volatile(\"cp.async.bulk.tensor.", $rank, ".shared::cta.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {", $of_load, "}], [", $barrier, "];\"\n",
                "               :: \"r\"(to), \"l\"(&map), ", $inputs, ", \"r\"(barrier) : \"memory\");\n",
                "}"
            ),
        };
        static $store: Helper = Helper {
            name: concat!("tensor_store_", $rank),
            text: concat!(
                "__device__ __forceinline__ void tensor_store_", $rank, "(const TensorMap& map, ", $declared, ", unsigned from) {\n",
                "  asm volatile(\"cp.async.bulk.tensor.", $rank, ".global.shared::cta.tile.bulk_group [%0, {", $of_store, "}], [", $from, "];\"\n",
                "               :: \"l\"(&map), ", $inputs, ", \"r\"(from) : \"memory\");\n",
                "}"
            ),
        };)*
        static LOAD_HELPERS: [&Helper; MOST_DIMENSIONS] = [$(&$load),*];
        static STORE_HELPERS: [&Helper; MOST_DIMENSIONS] = [$(&$store),*];
    };
}

helpers! {
    LOAD_1D STORE_1D "1d" "int x" "\"r\"(x)" "%2" "%3" "%1" "%2";
    LOAD_2D STORE_2D "2d" "int x, int y" "\"r\"(x), \"r\"(y)" "%2, %3" "%4" "%1, %2" "%3";
    LOAD_3D STORE_3D "3d" "int x, int y, int z" "\"r\"(x), \"r\"(y), \"r\"(z)" "%2, %3, %4" "%5" "%1, %2, %3" "%4";
    LOAD_4D STORE_4D "4d" "int x, int y, int z, int u" "\"r\"(x), \"r\"(y), \"r\"(z), \"r\"(u)"
        "%2, %3, %4, %5" "%6" "%1, %2, %3, %4" "%5";
    LOAD_5D STORE_5D "5d" "int x, int y, int z, int u, int v" "\"r\"(x), \"r\"(y), \"r\"(z), \"r\"(u), \"r\"(v)"
        "%2, %3, %4, %5, %6" "%7" "%1, %2, %3, %4, %5" "%6";
}

impl<T: Element> SharedTile<T> {
    /// Starts copying the box of the tensor that begins at these coordinates, outermost first: the tile's columns lie
    /// along the innermost dimension, its rows along the one before, and the box has one element along any others. What
    /// lies outside the tensor becomes zero. `full` counts the tile's bytes as they arrive, and must be told to expect
    /// them. Each lane that comes here starts a copy.
    ///
    /// All copies of one map move tiles of one shape: it is part of the map.
    #[track_caller]
    pub fn copy_tensor<const RANK: usize, A: AccessMode + Readable>(
        self,
        map: TensorMap<T, RANK, A>,
        at: [Scalar<i32>; RANK],
        full: MBarrier,
    ) {
        self.set_box_of(map.id());
        let [array, index] = full.operands();
        let mut operands = vec![self.id(), map.id(), array, index];
        operands.extend(at.map(Handle::id));
        emit_stmt(&LOAD, &operands, Attrs::none());
    }

    /// Starts copying the tile to the box of the tensor that begins at these coordinates, outermost first. What lies
    /// outside the tensor is not written. The copy joins this thread's group of bulk stores, which
    /// [`commit_bulk`](super::bulk::commit_bulk) ends; after [`wait_bulk_all_but`](super::bulk::wait_bulk_all_but) the
    /// tile may change. Each lane that comes here starts a copy. [`fence::async_proxy`](super::fence::async_proxy) goes
    /// before it where the tile was filled by other instructions.
    #[track_caller]
    pub fn store_tensor<const RANK: usize, A: AccessMode + Writable>(
        self,
        map: TensorMap<T, RANK, A>,
        at: [Scalar<i32>; RANK],
    ) {
        self.set_box_of(map.id());
        let mut operands = vec![self.id(), map.id()];
        operands.extend(at.map(Handle::id));
        emit_stmt(&STORE, &operands, Attrs::none());
    }

    /// The tile is a box of the map.
    #[track_caller]
    fn set_box_of(self, map: ValueId) {
        let loc = Loc::caller();
        with(|b| {
            if let Some(tile) = b.tile(self.id()).cloned() {
                b.set_box(map, ir::TensorBox { tile: [tile.rows, tile.cols], swizzle: tile.swizzle }, loc);
            }
        });
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
                    tensor_load_3d(tile0, pages, 64, 0, (int)blockIdx.x, tile1);
                tensor.store
                    tensor_store_2d(out, 0, (int)blockIdx.x * 4, tile0);
            "#]],
        );
    }

    fn map<T: Element, const RANK: usize>() -> TensorMap<T, RANK> {
        TensorMap::declare("map", Phase::AfterWait, Loc::caller())
    }

    fn out<const RANK: usize>() -> TensorMap<f32, RANK, ReadWrite> {
        TensorMap::declare("out", Phase::AfterWait, Loc::caller())
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
    fn a_map_that_is_read_and_written_has_one_box_for_both() {
        let both = || {
            let (map, full) = (out::<2>(), mbarriers(1));
            shared::<f32>([4, 32]).copy_tensor(map, [0.into(), 0.into()], full.at(0));
            shared::<f32>([4, 32]).swizzle(Xor16).store_tensor(map, [0.into(), 0.into()]);
        };
        refused(both, "`out` has boxes of 4 x 32, and this tile is one of 4 x 32, xor16: use a map for each");
    }

    #[test]
    fn a_copy_before_the_wait_is_refused() {
        let early = || {
            copy::<f32>(4, 32);
            pdl::wait();
        };
        refused(early, "`map` is touched before `pdl::wait()`");
        let early = || {
            shared::<f32>([4, 32]).store_tensor(out::<2>(), [0.into(), 0.into()]);
            pdl::wait();
        };
        refused(early, "`out` is touched before `pdl::wait()`");
    }

    #[test]
    fn a_store_to_what_is_only_read_is_refused() {
        let mut kernel = kernel("k", || shared::<f32>([4, 32]).store_tensor(out::<2>(), [0.into(), 0.into()])).unwrap();
        let crate::ir::ParamKind::Tensor { access, .. } = &mut kernel.params[0].kind else { panic!("a tensor map") };
        *access = crate::ir::Access::Read;
        let errors = kernel.verify().unwrap_err();
        assert!(errors[0].message.contains("`out` is declared `read`: the kernel may not store to it"), "{errors:?}");
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
            tile.store_tensor(TensorMap::<f32, 1, WritePart>::declare("c", Phase::AfterWait, declare), [at(1)]);
            tile.store_tensor(
                TensorMap::<f32, 4, WritePart>::declare("d", Phase::AfterWait, declare),
                [at(1), at(2), at(3), at(4)],
            );
        });
        let cuda = kernel.unwrap().cuda(Target::Sm90a).unwrap().source;
        assert!(cuda.contains("tensor_load_1d(tile0, a, 1, tile1);"), "{cuda}");
        assert!(cuda.contains("tensor_load_5d(tile0, b, 5, 4, 3, 2, 1, tile1);"), "{cuda}");
        assert!(cuda.contains("tensor_store_1d(c, 1, tile0);"), "{cuda}");
        assert!(cuda.contains("tensor_store_4d(d, 4, 3, 2, 1, tile0);"), "{cuda}");
        assert!(cuda.contains("[%0, {%1, %2, %3, %4}], [%5];"), "{cuda}");
    }
}
