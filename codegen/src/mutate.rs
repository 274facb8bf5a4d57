//! Small faults, planted one at a time: what checks and tests of a kernel are themselves tested with.
//!
//! A mutant differs from its kernel by one edit that an author could have got wrong: a barrier left out, a wait too
//! lax, an index off by one, a mask too weak. A check that lets one pass has a hole, or the mutant is equivalent.

use std::collections::HashSet;
use std::fmt;

use crate::dtype::Dtype;
use crate::ir::{Attr, Inst, Kernel, Path, Type, ValueId};
use crate::loc::Loc;
use crate::ops::{OpDef, arith};

/// A kernel with one fault.
#[derive(Clone, Debug)]
pub struct Mutant {
    /// What kind of fault it is.
    pub rule: Rule,
    /// What was done to which instruction, e.g. "drop `barrier.cta`".
    pub edit: String,
    /// Where the author wrote that instruction.
    pub loc: Loc,
    /// The faulty kernel.
    pub kernel: Kernel,
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.loc, self.edit)
    }
}

/// A fault that no caller could see: a mutant that is right not to be caught.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Equivalent {
    /// Text that the instruction's source line holds.
    pub line: &'static str,
    /// The mutant's edit.
    pub edit: &'static str,
    /// Why nothing changes.
    pub reason: &'static str,
}

impl Equivalent {
    /// Whether this is `mutant`, whose instruction stands on the source line `line`.
    pub fn covers(&self, mutant: &Mutant, line: &str) -> bool {
        line.contains(self.line) && mutant.edit == self.edit
    }
}

/// The kinds of faults.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Rule {
    /// A barrier is left out.
    DropBarrier,
    /// A wait, for copies or for earlier kernels, is left out.
    DropWait,
    /// A wait lets one more group of copies be in flight.
    LaxWait,
    /// A group of copies is not ended.
    DropCommit,
    /// A store is left out.
    DropStore,
    /// A ring has one stage less than its loop believes.
    ShortRing,
    /// A comparison includes its bound, or no longer does.
    MoveBound,
    /// An integer constant is one more.
    ShiftConstant,
    /// A float constant is one hundredth more.
    ScaleConstant,
    /// The operands of an operation that has an order are swapped.
    SwapOperands,
    /// An operation becomes its neighbour: a sum a difference, a maximum a minimum.
    ReplaceOperation,
}

impl Rule {
    /// Every kind, in the order of tables.
    pub const ALL: [Rule; 11] = [
        Rule::DropBarrier,
        Rule::DropWait,
        Rule::LaxWait,
        Rule::DropCommit,
        Rule::DropStore,
        Rule::ShortRing,
        Rule::MoveBound,
        Rule::ShiftConstant,
        Rule::ScaleConstant,
        Rule::SwapOperands,
        Rule::ReplaceOperation,
    ];

    /// A few words for tables.
    pub const fn name(self) -> &'static str {
        match self {
            Rule::DropBarrier => "barrier left out",
            Rule::DropWait => "wait left out",
            Rule::LaxWait => "wait too lax",
            Rule::DropCommit => "group not ended",
            Rule::DropStore => "store left out",
            Rule::ShortRing => "ring one stage short",
            Rule::MoveBound => "bound off by one",
            Rule::ShiftConstant => "constant off by one",
            Rule::ScaleConstant => "constant off by 1 %",
            Rule::SwapOperands => "operands swapped",
            Rule::ReplaceOperation => "operation replaced",
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Every mutant of `kernel`, in the order of its instructions. What no check could see, such as an earlier or later
/// release of dependent kernels, is not among them.
pub fn mutants(kernel: &Kernel) -> Vec<Mutant> {
    let mut mutants = Vec::new();
    let used: HashSet<ValueId> = kernel.insts().iter().flat_map(|(_, inst)| inst.operands.iter().copied()).collect();
    for (path, inst) in kernel.insts() {
        // What folded into something else is not printed.
        if !inst.results.is_empty() && inst.results.iter().all(|result| !used.contains(result)) {
            continue;
        }
        for (rule, edit, change) in edits(kernel, inst) {
            let mut mutant = kernel.clone();
            change.apply(&mut mutant, &path);
            mutants.push(Mutant { rule, edit, loc: inst.loc, kernel: mutant });
        }
    }
    for (index, tile) in kernel.tiles.iter().enumerate() {
        if let Some(stages) = tile.stages.filter(|&stages| stages > 1) {
            let mut mutant = kernel.clone();
            mutant.tiles[index].stages = Some(stages - 1);
            let edit = format!("`{}` has {} stages, not {stages}", tile.name, stages - 1);
            mutants.push(Mutant { rule: Rule::ShortRing, edit, loc: tile.loc, kernel: mutant });
        }
    }
    mutants
}

/// One edit of one instruction.
enum Change {
    Drop,
    Replace(&'static OpDef),
    Swap(usize, usize),
    Set(&'static str, Attr),
}

impl Change {
    fn apply(self, kernel: &mut Kernel, path: &Path) {
        if let Change::Drop = self {
            kernel.remove(path);
            return;
        }
        let Some(inst) = kernel.inst_mut(path) else { return };
        match self {
            Change::Drop => {}
            Change::Replace(op) => inst.op = op,
            Change::Swap(a, b) => inst.operands.swap(a, b),
            Change::Set(name, value) => inst.attrs.set(name, value),
        }
    }
}

fn edits(kernel: &Kernel, inst: &Inst) -> Vec<(Rule, String, Change)> {
    let name = inst.op.name;
    let drop = |rule| vec![(rule, format!("drop `{name}`"), Change::Drop)];
    let replace = |rule, op: &'static OpDef| (rule, format!("`{name}` becomes `{}`", op.name), Change::Replace(op));
    let swap = |a, b| (Rule::SwapOperands, format!("swap the operands of `{name}`"), Change::Swap(a, b));
    match name {
        "barrier.cta" | "barrier.warp" | "barrier.named" => drop(Rule::DropBarrier),
        "pdl.wait" => drop(Rule::DropWait),
        "cp_async.commit" => drop(Rule::DropCommit),
        "global.store" | "shared.store" | "reduce.store_rows" => drop(Rule::DropStore),
        "cp_async.wait" => {
            let lax = inst.attrs.int("pending") + 1;
            let edit = format!("wait for all but {lax} groups, not {}", lax - 1);
            let mut edits = drop(Rule::DropWait);
            edits.push((Rule::LaxWait, edit, Change::Set("pending", lax.into())));
            edits
        }
        "lt" => vec![replace(Rule::MoveBound, &arith::LE)],
        "le" => vec![replace(Rule::MoveBound, &arith::LT)],
        "gt" => vec![replace(Rule::MoveBound, &arith::GE)],
        "ge" => vec![replace(Rule::MoveBound, &arith::GT)],
        "eq" => vec![replace(Rule::ReplaceOperation, &arith::NE)],
        "ne" => vec![replace(Rule::ReplaceOperation, &arith::EQ)],
        "add" => vec![replace(Rule::ReplaceOperation, &arith::SUB)],
        "sub" | "div" | "shl" | "shr" => vec![swap(0, 1)],
        "select" => vec![swap(1, 2)],
        "max" => vec![replace(Rule::ReplaceOperation, &arith::MIN)],
        "min" => vec![replace(Rule::ReplaceOperation, &arith::MAX)],
        "const" => constant(kernel, inst),
        _ => Vec::new(),
    }
}

fn constant(kernel: &Kernel, inst: &Inst) -> Vec<(Rule, String, Change)> {
    let ty = inst.results.first().map(|&result| kernel.ty(result));
    match (inst.attrs.get("value"), ty) {
        (Some(&Attr::Int(value)), Some(Type::Scalar(Dtype::I32 | Dtype::U32 | Dtype::I64 | Dtype::U64))) => {
            let shifted = value.wrapping_add(1);
            vec![(Rule::ShiftConstant, format!("{value} becomes {shifted}"), Change::Set("value", shifted.into()))]
        }
        (Some(&Attr::Float(value)), _) if value.is_finite() && value != 0.0 => {
            let scaled = value * 1.01;
            vec![(Rule::ScaleConstant, format!("{value} becomes {scaled}"), Change::Set("value", scaled.into()))]
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::example::{kernel, memory, output};
    use crate::prelude::*;

    fn original() -> Kernel {
        let traced = kernel("k", || {
            let ring = shared::<f32>([1, 32]).stages(2);
            let x = memory::<f32, Read>("x");
            pdl::wait();
            ring.stage(0).copy_async(x.at(0));
            commit();
            wait_all_but(0);
            cta::sync();
            let lane = lane::id();
            output(ring.stage(0).at(0, lane).load().max(2.0f32));
        });
        traced.expect("traces")
    }

    #[test]
    fn each_mutant_differs_by_its_edit_and_names_it() {
        let original = original();
        let mutants = mutants(&original);
        let text = original.to_string();
        for mutant in &mutants {
            let changed = mutant.kernel.to_string() != text || mutant.rule == Rule::ShortRing;
            assert!(changed, "{mutant} changes nothing");
            assert_eq!(mutant.loc.file, file!());
        }
        let count = |rule| mutants.iter().filter(|mutant| mutant.rule == rule).count();
        for (rule, expected) in [
            (Rule::DropBarrier, 1),
            (Rule::DropWait, 2),
            (Rule::LaxWait, 1),
            (Rule::DropCommit, 1),
            (Rule::DropStore, 1),
            (Rule::ShortRing, 1),
            (Rule::ScaleConstant, 1),
            (Rule::ReplaceOperation, 1),
        ] {
            assert_eq!(count(rule), expected, "{rule}");
        }
    }

    #[test]
    fn a_short_ring_has_less_memory_than_its_loop_uses() {
        let original = original();
        let short = mutants(&original).into_iter().find(|mutant| mutant.rule == Rule::ShortRing).unwrap();
        assert_eq!(short.kernel.shared_bytes() * 2, original.shared_bytes());
    }
}
