//! Shared memory: tiles, rings of tiles, and where their elements lie.

use super::cp_async::wait_all_but;
use super::example::rows;
use super::{Family, OpDef};
use crate::cost::Cost;
use crate::cuda::{Cx, Emit, Expr, prec};
use crate::dtype::Dtype;
use crate::handles::{Element, Handle, Read, Ring, Scalar, SharedTile, bf16};
use crate::ir::{self, Attrs, Swizzle, Type, ValueId};
use crate::loc::Loc;
use crate::trace::control::{RunTimeLoop, RunTimeRange};
use crate::trace::{self, Builder, Unroll, emit};

/// The ops of this file.
pub static FAMILY: Family = Family { name: "shared", source: include_str!("shared.rs"), ops: &[&TILE, &STAGE] };

/// A tile in shared memory.
pub static TILE: OpDef = OpDef {
    name: "shared.tile",
    doc: "The shared-memory tile numbered `tile`: this warp's copy, if each warp has one.",
    signature: |s| {
        s.count(0)?;
        let index = s.attrs.int("tile");
        let tile = usize::try_from(index).ok().and_then(|i| s.tiles.get(i));
        let tile = tile.ok_or_else(|| format!("there is no tile {index}"))?;
        Ok(vec![Type::Shared { tile: ir::TileId(index as u16), staged: tile.stages.is_some() }])
    },
    min_capability: 0,
    effects: &[],
    emit: Emit::Stmt(print_tile),
    cost: |_| Cost::NONE,
    example: show_ring,
};

/// One stage of a ring.
pub static STAGE: OpDef = OpDef {
    name: "shared.stage",
    doc: "The stage of a ring that has this index, 0 up to the number of stages.",
    signature: |s| {
        s.count(2)?;
        match *s.operands {
            [Type::Shared { tile, staged: true }, Type::Scalar(Dtype::I32)] => {
                Ok(vec![Type::Shared { tile, staged: false }])
            }
            [ring, index] => Err(format!("a ring and an i32, not {ring} and {index}")),
            _ => unreachable!("counted above"),
        }
    },
    min_capability: 0,
    effects: &[],
    emit: Emit::Expr(|cx| {
        let bytes = Expr::primary(cx.tile(0).stage_bytes().to_string());
        let (ring, index) = (cx.operand(0), cx.operand(1));
        match index.to_string().parse::<u32>() {
            Ok(0) => ring,
            Ok(index) => plus(&ring, &Expr::primary((index * cx.tile(0).stage_bytes()).to_string())),
            Err(_) => plus(&ring, &Expr::binary(prec::PRODUCT, "*", &index, &bytes)),
        }
    }),
    cost: |_| Cost::issue(1),
    example: show_ring,
};

/// Each warp fills the stages of its ring in turn.
fn show_ring() {
    let ring = shared::<bf16>([16, 128]).stages(2).per_warp().swizzle(Swizzle::Xor16);
    for (i, stage) in ring.turns(4) {
        stage.copy_async(rows::<bf16, Read>("k").row(i));
    }
    wait_all_but(0);
}

fn print_tile(cx: &mut Cx<'_, '_>) {
    let Type::Shared { tile, .. } = cx.result_type(0) else { return };
    let tile = &cx.kernel().tiles[tile.index()];
    let stages = tile.stages.map_or_else(String::new, |n| format!("[{n} stages]"));
    print_declaration(cx, &format!("{} {stages}[{}][{}]", tile.dtype, tile.rows, tile.cols));
}

/// Prints the address of the shared memory that result 0 names, and `what` lies there.
pub(super) fn print_declaration(cx: &mut Cx<'_, '_>, what: &str) {
    let Type::Shared { tile, .. } = cx.result_type(0) else { return };
    let tile = &cx.kernel().tiles[tile.index()];
    let of = if tile.copies > 1 { " of each warp" } else { "" };
    let swizzle = match tile.swizzle {
        Swizzle::None => String::new(),
        swizzle => format!(", {swizzle}"),
    };
    let name = cx.result(0, &tile.name);
    let mut address = Expr::primary("shared");
    if tile.offset > 0 {
        address = plus(&address, &Expr::primary(tile.offset.to_string()));
    }
    if tile.copies > 1 {
        let bytes = Expr::primary(tile.copy_bytes().to_string());
        address = plus(&address, &Expr::binary(prec::PRODUCT, "*", &cx.warp(), &bytes));
    }
    cx.line(&format!("const unsigned {name} = {address};  // {what}{of}{swizzle}"));
}

fn plus(a: &Expr, b: &Expr) -> Expr {
    Expr::binary(prec::SUM, "+", a, b)
}

/// The address of 16-byte chunk `chunk` of row `row` of a tile at address `base`. `phase` is `row % 8`, as short as the
/// caller can write it.
pub(super) fn chunk_address(base: &Expr, tile: &ir::SharedTile, row: &Expr, phase: &Expr, chunk: &Expr) -> Expr {
    let times = |e: &Expr, n: u32| Expr::binary(prec::PRODUCT, "*", e, &Expr::primary(n.to_string()));
    let chunk = match tile.swizzle {
        Swizzle::None => chunk.clone(),
        Swizzle::Xor16 => Expr::binary(prec::XOR, "^", chunk, phase),
    };
    plus(&plus(base, &times(row, tile.row_bytes())), &times(&chunk, 16))
}

/// Declares a tile of `[rows, cols]` elements in shared memory, row-major, one for the CTA.
#[track_caller]
pub fn shared<T: Element>([rows, cols]: [i32; 2]) -> SharedTile<T> {
    let loc = Loc::caller();
    SharedTile::from_id(trace::with(|b| b.shared_memory(&TILE, T::DTYPE, rows, cols, loc)))
}

#[track_caller]
fn swizzled(id: ValueId, swizzle: Swizzle) {
    let loc = Loc::caller();
    trace::with(|b| {
        if let Some(tile) = b.tile(id)
            && swizzle == Swizzle::Xor16
            && !tile.row_bytes().is_multiple_of(128)
        {
            let message = format!(
                "`Xor16` permutes chunks of 16 bytes by 8: rows must be a multiple of 128 bytes, not {} ({} x {})",
                tile.row_bytes(),
                tile.cols,
                tile.dtype
            );
            b.error(loc, message, None);
        }
        b.alter_tile(id, |tile| tile.swizzle = swizzle);
    });
}

impl<T: Element> SharedTile<T> {
    /// Permutes the elements, so that accesses by column are as fast as by row.
    #[track_caller]
    pub fn swizzle(self, swizzle: Swizzle) -> Self {
        swizzled(self.id(), swizzle);
        self
    }

    /// One for each warp instead of one for the CTA.
    #[track_caller]
    pub fn per_warp(self) -> Self {
        trace::with(|b| {
            let warps = b.warps();
            b.alter_tile(self.id(), |tile| tile.copies = warps);
        });
        self
    }

    /// `stages` of it, one after the other.
    #[track_caller]
    pub fn stages(self, stages: i32) -> Ring<T> {
        let loc = Loc::caller();
        trace::with(|b| match u32::try_from(stages) {
            Ok(stages) if stages > 0 => b.alter_tile(self.id(), |tile| tile.stages = Some(stages)),
            _ => b.error(loc, format!("a ring has at least one stage, not {stages}"), None),
        });
        Ring::from_id(self.id())
    }
}

impl<T: Element> Ring<T> {
    /// Permutes the elements of each stage, so that accesses by column are as fast as by row.
    #[track_caller]
    pub fn swizzle(self, swizzle: Swizzle) -> Self {
        swizzled(self.id(), swizzle);
        self
    }

    /// One ring for each warp instead of one for the CTA.
    #[track_caller]
    pub fn per_warp(self) -> Self {
        SharedTile::<T>::from_id(self.id()).per_warp();
        self
    }

    /// The stage of this index, 0 up to the number of stages.
    #[track_caller]
    pub fn stage(self, index: impl Into<Scalar<i32>>) -> SharedTile<T> {
        let (index, loc) = (index.into().id(), Loc::caller());
        trace::with(|b| b.check_index(index, stages(b, self), self.id(), "stage", loc));
        SharedTile::from_id(emit(&STAGE, &[self.id(), index], Attrs::none()))
    }

    /// The stage after the one of this index, round and round.
    #[track_caller]
    pub fn next(self, index: impl Into<Scalar<i32>>) -> Scalar<i32> {
        let (index, loc) = (index.into().id(), Loc::caller());
        Scalar::from_id(trace::with(|b| next_stage(b, self, index, loc)))
    }

    /// Loops over a range, or over `0..n` for a count, with the stage that each turn uses, round and round:
    /// `for (i, stage) in ring.turns(n)`, `for (page, stage) in ring.turns(first..pages).step_by(splits)`.
    #[track_caller]
    pub fn turns(self, range: impl Into<RunTimeRange<i32>>) -> Turns<T> {
        let range = range.into().unroll(Unroll::Never);
        Turns { ring: self, range, turn: None, stage: None, loc: Loc::caller() }
    }
}

/// The loop of [`Ring::turns`]: yields one symbolic turn.
pub struct Turns<T> {
    ring: Ring<T>,
    range: RunTimeRange<i32>,
    turn: Option<RunTimeLoop<i32>>,
    stage: Option<ValueId>,
    loc: Loc,
}

impl<T: Element> Turns<T> {
    /// A turn for every `step`-th index, from the first; `step` is positive.
    #[track_caller]
    pub fn step_by(self, step: impl Into<Scalar<i32>>) -> Self {
        Turns { range: self.range.step_by(step), ..self }
    }
}

impl<T: Element> Turns<T> {
    /// The variable that says which stage a turn uses; a ring of one stage needs none.
    fn declare_stage(&mut self) -> ValueId {
        let loc = self.loc;
        trace::with(|b| {
            let zero = b.constant(Dtype::I32, 0.into(), loc);
            if stages(b, self.ring) == 1 {
                return zero;
            }
            let stage = b.declare_var(zero, loc);
            b.name(stage, "stage_index");
            self.stage = Some(stage);
            stage
        })
    }

    fn advance_stage(&mut self) {
        let loc = self.loc;
        let Some(stage) = self.stage.take() else { return };
        trace::with(|b| {
            let present = b.read(stage, loc);
            let next = next_stage(b, self.ring, present, loc);
            b.assign(stage, next, loc);
        });
    }
}

/// Two stages alternate: the compiler does not see that a wrap-around says no more.
fn next_stage<T: Element>(b: &mut Builder, ring: Ring<T>, index: ValueId, loc: Loc) -> ValueId {
    let stages = i64::from(stages(b, ring));
    let [zero, one, all] = [0, 1, stages].map(|n| b.constant(Dtype::I32, n.into(), loc));
    if stages == 2 {
        return b.emit(&super::arith::SUB, &[one, index], Attrs::none(), loc);
    }
    let next = b.emit(&super::arith::ADD, &[index, one], Attrs::none(), loc);
    b.name(next, "next_stage");
    let wraps = b.emit(&super::compare::EQ, &[next, all], Attrs::none(), loc);
    b.emit(&super::compare::SELECT, &[wraps, zero, next], Attrs::none(), loc)
}

fn stages<T: Element>(b: &Builder, ring: Ring<T>) -> u32 {
    b.tile(ring.id()).map_or(1, |tile| tile.stages_or_one())
}

impl<T: Element> Iterator for Turns<T> {
    type Item = (Scalar<i32>, SharedTile<T>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.turn.as_ref().is_some_and(RunTimeLoop::is_open) {
            self.advance_stage();
        }
        if let Some(turn) = &mut self.turn {
            return turn.next().and(None);
        }
        let stage = self.declare_stage();
        let i = self.turn.insert(self.range.into_iter()).next()?;
        let stage = trace::with(|b| {
            let stage = b.read(stage, self.loc);
            b.emit(&STAGE, &[self.ring.id(), stage], Attrs::none(), self.loc)
        });
        Some((i, SharedTile::from_id(stage)))
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    #[test]
    fn examples() {
        super::super::example::check(
            &super::FAMILY,
            expect![[r#"
                shared.tile
                  const unsigned tile0 = shared + warp * 8192;  // bf16 [2 stages][16][128] of each warp, xor16
                shared.stage
                  int stage_index = 0;
                  #pragma unroll 1
                  for (int i = 0; i < 4; ++i) {
                    stage_index = 1 - stage_index;
                  }
            "#]],
        );
    }
}
