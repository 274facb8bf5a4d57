//! `&&` and `||` whose right side must not run where the left one decides.

use super::Builder;
use super::blocks::{Frame, FrameKind};
use crate::cuda::Emit;
use crate::dtype::Dtype;
use crate::ir::{Attr, Attrs, Block, Inst, ValueId};
use crate::loc::Loc;
use crate::ops::{Effect, arith, control};

impl Builder {
    /// Opens the block of the right side of `left && right` (`short` is false) or `left || right` (`short` is true).
    pub fn begin_short_circuit(&mut self, left: ValueId, loc: Loc) -> ValueId {
        let left = self.read(left, loc);
        self.open(FrameKind::Then { cond: left, loc });
        left
    }

    /// Ends the right side: one logical operation if that keeps it from running where it must not, else an `if` around
    /// it.
    pub fn end_short_circuit(&mut self, left: ValueId, right: ValueId, short: bool, loc: Loc) -> ValueId {
        let right = self.read(right, loc);
        let Some(frame) = self.close() else { return left };
        if let Some(guarded) = self.guarded_by_an_operator(&frame.block, right) {
            let inside = frame.id;
            self.absorb(frame);
            let op = if short { &arith::OR } else { &arith::AND };
            let result = self.emit(op, &[left, right], Attrs::none(), loc);
            // A second use would take them out of the expression, and so out from behind the left side.
            guarded.iter().for_each(|id| self.homes[id.index()] = inside);
            return result;
        }
        let result = self.declare_var(left, loc);
        let cond = self.runs_right_side(left, short, loc);
        self.frames.push(frame);
        self.assign(result, right, loc);
        if let Some(frame) = self.close() {
            self.record(&control::IF, &[cond], Attrs::none(), vec![frame.block], loc);
        }
        self.read(result, loc)
    }

    /// Ends a right side that is known while tracing: what it did besides stays inside an `if`.
    pub fn end_comptime_short_circuit(&mut self, left: ValueId, right: bool, short: bool, loc: Loc) -> ValueId {
        let Some(frame) = self.close() else { return left };
        if frame.block.insts.iter().all(|inst| self.runs_anywhere(inst)) {
            self.absorb(frame);
        } else {
            let cond = self.runs_right_side(left, short, loc);
            self.record(&control::IF, &[cond], Attrs::none(), vec![frame.block], loc);
        }
        if right == short { self.constant(Dtype::Bool, Attr::Bool(short), loc) } else { left }
    }

    fn runs_right_side(&mut self, left: ValueId, short: bool, loc: Loc) -> ValueId {
        if short { self.emit(&arith::NOT, &[left], Attrs::none(), loc) } else { left }
    }

    /// Whether what `block` computes for `right` does no harm where the left side forbids it, once `right` is an operand
    /// of C++'s own `&&` or `||`: because it may be computed anywhere, or because it is certain to be written inside
    /// that operand and nowhere else. The latter are returned.
    fn guarded_by_an_operator(&self, block: &Block, right: ValueId) -> Option<Vec<ValueId>> {
        let mut guarded = Vec::new();
        for inst in &block.insts {
            if !self.runs_anywhere(inst) {
                guarded.extend(self.written_inside(block, inst, right)?);
            }
        }
        Some(guarded)
    }

    /// Whether an instruction has a meaning, and none but its results, wherever it stands.
    fn runs_anywhere(&self, inst: &Inst) -> bool {
        inst.op.effects.iter().all(|effect| match (effect, inst.operands.last()) {
            (Effect::ReadVariable, _) => true,
            (Effect::Partial(domain), Some(&last)) => {
                self.ty(last).dtype().is_some_and(|dtype| domain.holds(dtype, self.literal(last)))
            }
            _ => false,
        })
    }

    /// The values from the result of `inst` to `right`, if each is written where the next one is computed: an unnamed
    /// expression with one use.
    fn written_inside<'b>(&self, block: &'b Block, mut inst: &'b Inst, right: ValueId) -> Option<Vec<ValueId>> {
        let mut values = Vec::new();
        loop {
            let [result] = inst.results[..] else { return None };
            let expression = inst.op.is_pure() && matches!(inst.op.emit, Emit::Expr(_));
            if !expression || self.kernel.value(result).name.is_some() {
                return None;
            }
            values.push(result);
            let mut uses =
                block.insts.iter().flat_map(|user| user.operands.iter().filter(|&&o| o == result).map(move |_| user));
            match (uses.next(), uses.next()) {
                (None, None) if result == right => return Some(values),
                (Some(user), None) if result != right => inst = user,
                _ => return None,
            }
        }
    }

    /// Moves the instructions of a closed block to the end of the innermost open one.
    fn absorb(&mut self, closed: Frame) {
        let home = self.frame().id;
        self.homes.iter_mut().filter(|of| **of == closed.id).for_each(|of| *of = home);
        self.frame().block.insts.extend(closed.block.insts);
    }
}
