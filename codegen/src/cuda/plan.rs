//! Which values get a statement of their own, and which are written where they are used.

use std::collections::HashMap;

use super::Emit;
use crate::ir::{Block, Inst, Kernel, Origin, ValueId};
use crate::ops::{arith, control, index};

/// How each value is printed, and what defines it.
pub struct Plan<'k> {
    uses: Vec<u32>,
    inlined: Vec<bool>,
    defs: HashMap<ValueId, &'k Inst>,
}

/// An instruction with its place in program order.
struct Place<'k> {
    inst: &'k Inst,
    block: usize,
    at: usize,
    /// Place after everything nested in it.
    end: usize,
}

impl<'k> Plan<'k> {
    pub fn new(kernel: &'k Kernel) -> Self {
        let mut places = Vec::new();
        let mut blocks = 0;
        flatten(&kernel.body, &mut places, &mut blocks, &mut 0);

        let mut uses = vec![0u32; kernel.values.len()];
        let mut sets: HashMap<ValueId, Vec<usize>> = HashMap::new();
        let mut defs = HashMap::new();
        for place in &places {
            for &operand in &place.inst.operands {
                uses[operand.index()] += 1;
            }
            for &result in &place.inst.results {
                defs.insert(result, place.inst);
            }
            if std::ptr::eq(place.inst.op, &control::SET) {
                sets.entry(place.inst.operands[0]).or_default().push(place.at);
            }
        }

        // A pure instruction that nothing uses is not printed, and neither are those that only it uses.
        for place in places.iter().rev() {
            let inst = place.inst;
            if removable(inst) && inst.results.iter().all(|r| uses[r.index()] == 0) {
                for &operand in &inst.operands {
                    uses[operand.index()] -= 1;
                }
            }
        }

        // Backwards, so that where a user is printed is known before what it uses is placed.
        let mut inlined = vec![false; kernel.values.len()];
        let mut user: HashMap<ValueId, (usize, usize, usize)> = HashMap::new();
        for place in places.iter().rev() {
            let inst = place.inst;
            if removable(inst) && inst.results.iter().all(|r| uses[r.index()] == 0) {
                continue;
            }
            let mut printed = (place.block, place.at, if inst.blocks.is_empty() { place.at } else { place.end });
            if let [result] = inst.results[..] {
                let wanted = matches!(inst.op.emit, Emit::Expr(_))
                    && removable(inst)
                    && kernel.value(result).origin == Origin::Result
                    && kernel.value(result).name.is_none();
                // Literals and names of indices are as short as any name for them.
                let atom = std::ptr::eq(inst.op, &arith::CONST) || std::ptr::eq(inst.op, &index::INDEX);
                if wanted && atom {
                    inlined[result.index()] = true;
                } else if wanted && uses[result.index()] == 1 {
                    let (block, at, end) = user[&result];
                    let changed = std::ptr::eq(inst.op, &control::GET)
                        && sets
                            .get(&inst.operands[0])
                            .is_some_and(|s| s.iter().any(|&s| place.at < s && s < end.max(at)));
                    if block == place.block && !changed {
                        inlined[result.index()] = true;
                        printed = (block, at, end);
                    }
                }
            }
            for &operand in &inst.operands {
                user.insert(operand, printed);
            }
        }
        Plan { uses, inlined, defs }
    }

    /// Whether `id` is written where it is used.
    pub fn is_inlined(&self, id: ValueId) -> bool {
        self.inlined[id.index()]
    }

    /// Whether `inst` is printed at all.
    pub fn is_dead(&self, inst: &Inst) -> bool {
        removable(inst) && inst.results.iter().all(|r| self.uses[r.index()] == 0)
    }

    /// What computes `id`.
    pub fn def(&self, id: ValueId) -> Option<&'k Inst> {
        self.defs.get(&id).copied()
    }
}

fn removable(inst: &Inst) -> bool {
    !inst.results.is_empty() && (inst.op.is_pure() || std::ptr::eq(inst.op, &control::GET))
}

fn flatten<'k>(block: &'k Block, places: &mut Vec<Place<'k>>, blocks: &mut usize, clock: &mut usize) {
    let this = *blocks;
    *blocks += 1;
    for inst in &block.insts {
        let (at, slot) = (*clock, places.len());
        *clock += 1;
        places.push(Place { inst, block: this, at, end: at });
        for nested in &inst.blocks {
            flatten(nested, places, blocks, clock);
        }
        places[slot].end = *clock;
    }
}
