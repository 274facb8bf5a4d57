//! Static cost: what each instruction asks of the machine every time a warp executes it, and the sums by loop.
//!
//! The figures are a model read off the IR: a bound from below for memory and tensor work, an estimate for issue slots
//! (address arithmetic that the compiler folds or hoists is counted as written). The SASS has the last word.

use std::ops::{Add, AddAssign, Mul};

use crate::cuda::axes;
use crate::dtype::Dtype;
use crate::ir::{Block, Inst, Kernel, Origin, Type, ValueId};
use crate::loc::Loc;
use crate::ops::{arith, control};

/// What an instruction costs each time a warp executes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cost {
    /// Instructions that the warp issues.
    pub issue: u64,
    /// Tensor-core instructions among them.
    pub mma: u64,
    /// Floating-point operations of all lanes, tensor cores included; a fused multiply-add counts 2.
    pub flops: u64,
    /// Bytes read from global memory.
    pub global_read: u64,
    /// Bytes written to global memory.
    pub global_written: u64,
    /// Bytes read from shared memory.
    pub shared_read: u64,
    /// Bytes written to shared memory.
    pub shared_written: u64,
}

impl Cost {
    /// Nothing.
    pub const NONE: Cost =
        Cost { issue: 0, mma: 0, flops: 0, global_read: 0, global_written: 0, shared_read: 0, shared_written: 0 };

    /// `n` instructions and nothing else.
    pub const fn issue(n: u64) -> Cost {
        Cost { issue: n, ..Cost::NONE }
    }
}

impl Add for Cost {
    type Output = Cost;

    fn add(self, other: Cost) -> Cost {
        Cost {
            issue: self.issue + other.issue,
            mma: self.mma + other.mma,
            flops: self.flops + other.flops,
            global_read: self.global_read + other.global_read,
            global_written: self.global_written + other.global_written,
            shared_read: self.shared_read + other.shared_read,
            shared_written: self.shared_written + other.shared_written,
        }
    }
}

impl AddAssign for Cost {
    fn add_assign(&mut self, other: Cost) {
        *self = *self + other;
    }
}

impl Mul<u64> for Cost {
    type Output = Cost;

    fn mul(self, n: u64) -> Cost {
        Cost {
            issue: self.issue * n,
            mma: self.mma * n,
            flops: self.flops * n,
            global_read: self.global_read * n,
            global_written: self.global_written * n,
            shared_read: self.shared_read * n,
            shared_written: self.shared_written * n,
        }
    }
}

/// What an op's cost function sees.
pub struct Costing<'a> {
    /// The kernel.
    pub kernel: &'a Kernel,
    /// The instruction.
    pub inst: &'a Inst,
}

impl Costing<'_> {
    /// The type of operand `i`.
    pub fn operand(&self, i: usize) -> Type {
        self.kernel.ty(self.inst.operands[i])
    }

    /// The type of result `i`.
    pub fn result(&self, i: usize) -> Type {
        self.kernel.ty(self.inst.results[i])
    }

    /// Registers a lane that hold a value of type `ty`; an element each.
    pub fn registers(&self, ty: Type) -> u64 {
        axes(ty).iter().map(|&n| u64::from(n)).product()
    }

    /// Bytes that a warp's lanes hold of a value of type `ty`, each lane its own.
    pub fn bytes(&self, ty: Type) -> u64 {
        let lane = match ty {
            Type::Scalar(dtype) => dtype.size() as u64,
            Type::Vector { dtype, len } => u64::from(len) * dtype.size() as u64,
            other => 4 * self.registers(other),
        };
        32 * lane
    }
}

/// The cost of an op that computes each element of its result by itself: an instruction, and for f32 `flops` operations
/// a lane.
pub fn elementwise(c: &Costing<'_>, flops: u64) -> Cost {
    let ty = c.result(0);
    let elements = c.registers(ty);
    let flops = if ty.dtype() == Some(Dtype::F32) { 32 * flops * elements } else { 0 };
    Cost { issue: elements, flops, ..Cost::NONE }
}

/// The costs of a kernel, or of one of its loops, for one warp.
#[derive(Clone, PartialEq, Debug)]
pub struct Region {
    /// Where the kernel or the loop stands.
    pub loc: Loc,
    /// How often it runs each time it is entered, if that is known: 1 for the kernel.
    pub turns: Option<u64>,
    /// Cost of one turn without its inner loops; both sides of an `if` are counted.
    pub cost: Cost,
    /// Inner loops, in order.
    pub loops: Vec<Region>,
}

impl Region {
    /// Cost of one turn, inner loops included where the number of their turns is known; those of the others count once.
    pub fn total(&self) -> Cost {
        self.loops.iter().fold(self.cost, |sum, inner| sum + inner.total() * inner.turns.unwrap_or(1))
    }
}

impl Kernel {
    /// The cost of the kernel for one warp.
    pub fn cost(&self) -> Region {
        let mut region = Region { loc: self.loc, turns: Some(1), cost: Cost::NONE, loops: Vec::new() };
        self.add_block(&self.body, &mut region);
        region
    }

    fn add_block(&self, block: &Block, region: &mut Region) {
        for inst in &block.insts {
            let cost = (inst.op.cost)(&Costing { kernel: self, inst });
            region.cost += cost;
            if std::ptr::eq(inst.op, &control::FOR) {
                let mut inner =
                    Region { loc: inst.loc, turns: self.turns(inst), cost: Cost::issue(2), loops: Vec::new() };
                inst.blocks.iter().for_each(|block| self.add_block(block, &mut inner));
                region.loops.push(inner);
            } else {
                inst.blocks.iter().for_each(|block| self.add_block(block, region));
            }
        }
    }

    fn turns(&self, inst: &Inst) -> Option<u64> {
        let literal = |id: ValueId| self.literal(id);
        let (start, end, step) = (literal(inst.operands[0])?, literal(inst.operands[1])?, literal(inst.operands[2])?);
        Some(u64::try_from((end - start).max(0)).ok()?.div_ceil(u64::try_from(step).ok()?.max(1)))
    }

    /// The integer that `id` is, if it is a literal.
    fn literal(&self, id: ValueId) -> Option<i64> {
        if self.value(id).origin != Origin::Result {
            return None;
        }
        let insts = self.insts();
        let (_, inst) = insts.iter().find(|(_, inst)| inst.results.contains(&id))?;
        (std::ptr::eq(inst.op, &arith::CONST)).then(|| inst.attrs.int("value"))
    }
}
