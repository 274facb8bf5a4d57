//! Execution: a launch is a grid of CTAs, a CTA a set of warps, a warp 32 lanes in lock step.

pub(crate) mod access;
pub(crate) mod async_copy;
pub(crate) mod barrier;
pub(crate) mod cta;
pub(crate) mod lanes;
mod launch;
mod rng;
mod traffic;
pub(crate) mod warp;

pub use launch::{Checks, CpAsync, Launch, Options, Report, Stats};
pub(crate) use traffic::Tally;
pub use traffic::{Counts, Traffic};

use crate::check::{AtomicOrder, Declared};
use crate::decode::{Code, Inst, NO_GUARD};
use crate::finding::{Access, Address, Finding, FindingKind};
use crate::memory::GlobalMemory;
use cta::CtaState;
use warp::Warp;

/// What a launch keeps the same for all its CTAs.
pub(crate) struct Env<'a> {
    pub code: &'a Code,
    pub memory: &'a GlobalMemory,
    pub options: &'a Options,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub threads: u32,
    /// Bytes of shared memory of a CTA, static and dynamic.
    pub shared_bytes: u32,
    pub dynamic_shared: u32,
    pub params: Vec<u32>,
    /// CTAs of the grid.
    pub ctas: u64,
    pub declared: Declared,
    pub order: AtomicOrder,
}

impl Env<'_> {
    /// The index of a CTA along x, y, z.
    pub fn cta_id(&self, index: u64) -> [u32; 3] {
        let (x, y) = (u64::from(self.grid[0]), u64::from(self.grid[1]));
        [(index % x) as u32, (index / x % y) as u32, (index / x / y) as u32]
    }
}

/// What an instruction sees.
pub(crate) struct Cx<'a> {
    pub warp: &'a mut Warp,
    pub cta: &'a mut CtaState,
    pub env: &'a Env<'a>,
    /// Lanes that execute the instruction.
    pub mask: u32,
    pub pc: u32,
}

/// What happens after an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    Next,
    /// The active lanes go on at the instruction's target.
    Jump,
    /// The executing lanes go to the target, the rest of the active ones to the next instruction.
    Split,
    /// The executing lanes end; the rest go on.
    Exit,
    /// The executing lanes stay here until others join them.
    Park,
    /// The executing lanes go on, once the barrier they arrived at is complete.
    Block,
    /// As `Block`, and then execute this instruction again.
    BlockHere,
    /// Go on, but let other warps run first: the lanes poll something.
    Yield,
}

impl Cx<'_> {
    /// Writes the executing lanes of a predicate.
    #[inline(always)]
    pub fn set_pred(&mut self, slot: u16, value: u32) {
        let p = &mut self.warp.preds[slot as usize];
        *p = *p & !self.mask | value & self.mask;
    }

    /// Writes the result of a comparison: to operand 0, and its complement to operand 1, combined with operand 4 as `aux` says.
    #[inline(always)]
    pub fn set_compared(&mut self, inst: &Inst, value: u32) {
        let (mut p, mut q) = (value, !value);
        if inst.aux != 0 {
            let c = self.warp.preds[inst.ops[4] as usize] ^ inst.negate(4);
            let combine = |x: u32| match inst.aux {
                1 => x & c,
                2 => x | c,
                _ => x ^ c,
            };
            (p, q) = (combine(p), combine(q));
        }
        self.set_pred(inst.ops[1], q);
        self.set_pred(inst.ops[0], p);
    }

    pub fn pred(&self, inst: &Inst, operand: usize) -> u32 {
        self.warp.preds[inst.ops[operand] as usize] ^ inst.negate(operand)
    }

    /// Notes a finding about this instruction.
    #[cold]
    #[inline(never)]
    pub fn report(
        &mut self,
        kind: FindingKind,
        lane: u32,
        address: Option<Address>,
        other: Option<Access>,
        detail: String,
    ) {
        let access = self.access(lane);
        self.cta.findings.add(self.env.code, kind, access, address, other, detail);
    }

    pub fn access(&self, lane: u32) -> Access {
        Access::new(self.env.code, self.pc, self.cta.id, self.warp.id, lane)
    }

    /// Those of `members` that an operation of the whole warp must wait for.
    pub fn needed(&self, members: u32) -> u32 {
        members & if self.env.options.early_exit { self.warp.live() } else { self.warp.launched }
    }

    /// For operations that need all of `lanes` at once: true when they are here, or when the wait for them is over.
    pub fn converged(&mut self, lanes: u32) -> bool {
        let missing = lanes & !self.mask;
        if missing == 0 {
            return true;
        }
        if !self.warp.forced {
            return false;
        }
        self.warp.forced = false;
        let lane = self.mask.trailing_zeros();
        let gone = missing & !self.warp.live();
        let detail = format!(
            "lanes {:#010x} execute it, lanes {missing:#010x} should too{}",
            self.mask,
            if gone == missing { " but have ended" } else { " but are elsewhere" }
        );
        self.report(FindingKind::DivergentCollective, lane, None, None, detail);
        true
    }
}

/// Runs a warp until it blocks, ends, polls, or has executed `fuel` instructions.
pub(crate) fn run_warp(cx: &mut Cx<'_>, mut fuel: u32) -> Stop {
    let code = cx.env.code;
    let insts = code.insts.as_slice();
    loop {
        let Some((mut pc, active)) = cx.warp.select() else {
            return if cx.warp.is_done() { Stop::Done } else { Stop::Blocked };
        };
        let mut merge_at = cx.warp.merge_at(pc);
        loop {
            if fuel == 0 {
                cx.warp.suspend(pc, active);
                return Stop::OutOfFuel;
            }
            fuel -= 1;
            let inst = &insts[pc as usize];
            let mut mask = active;
            if inst.guard != NO_GUARD {
                let p = cx.warp.preds[inst.guard as usize];
                if cx.warp.tainted {
                    cx.check_guard(inst, active, pc);
                }
                mask &= if inst.guard_negated { !p } else { p };
            }
            cx.cta.instructions += 1;
            let mut flow = Flow::Next;
            if mask != 0 {
                cx.cta.lane_instructions += u64::from(mask.count_ones());
                cx.mask = mask;
                cx.pc = pc;
                cx.warp.active = active;
                if cx.warp.tainted {
                    cx.propagate(inst);
                }
                // SAFETY: `lanes::pick` chose the function for this machine when the kernel was decoded.
                flow = unsafe { (inst.run)(cx, inst) };
            }
            match flow {
                Flow::Next => pc += 1,
                Flow::Jump => {
                    let backward = inst.aux <= pc;
                    pc = inst.aux;
                    if backward && cx.warp.tainted && cx.warp.fragments.len() == 1 {
                        cx.forget_dead(pc);
                    }
                    if cx.warp.fragments.len() > 1 {
                        cx.warp.jumped(backward);
                        cx.warp.suspend(pc, active);
                        break;
                    }
                    continue;
                }
                Flow::Split => {
                    cx.warp.jumped(inst.aux <= pc);
                    cx.warp.split(inst.aux, mask, pc + 1, active & !mask);
                    break;
                }
                Flow::Exit => {
                    cx.warp.exit(mask, pc + 1, active & !mask);
                    break;
                }
                Flow::Park => {
                    cx.warp.park(pc, mask, active & !mask);
                    break;
                }
                Flow::Block => {
                    cx.warp.running = pc;
                    cx.warp.block(pc + 1, mask, active & !mask);
                    break;
                }
                Flow::BlockHere => {
                    cx.warp.running = pc;
                    cx.warp.block(pc, mask, active & !mask);
                    break;
                }
                Flow::Yield => {
                    cx.warp.suspend(pc + 1, active);
                    return Stop::Polls;
                }
            }
            if pc == merge_at {
                cx.warp.suspend(pc, active);
                break;
            }
            if pc > merge_at {
                merge_at = cx.warp.merge_at(pc);
            }
        }
    }
}

/// Why a warp stopped running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    Done,
    /// Waits for other warps.
    Blocked,
    OutOfFuel,
    Polls,
}

/// The details of a finding as the executor knows them.
impl Access {
    pub(crate) fn new(code: &Code, pc: u32, cta: [u32; 3], warp: u32, lane: u32) -> Self {
        Self {
            cta,
            warp,
            lane,
            ptx_line: code.lines[pc as usize],
            opcode: code.opcodes[pc as usize].clone(),
            sources: code.sources(pc),
        }
    }

    /// Moves the access to another instruction.
    pub(crate) fn at(&mut self, code: &Code, pc: u32) {
        self.ptx_line = code.lines[pc as usize];
        self.opcode.clone_from(&code.opcodes[pc as usize]);
        self.sources = code.sources(pc);
    }
}

/// Findings of one CTA, one for each cause.
#[derive(Default)]
pub(crate) struct Findings {
    pub list: Vec<Finding>,
    seen: std::collections::HashMap<(FindingKind, u32, u32), usize>,
}

impl Findings {
    pub fn add(
        &mut self,
        code: &Code,
        kind: FindingKind,
        access: Access,
        address: Option<Address>,
        other: Option<Access>,
        detail: String,
    ) {
        let key = (kind, access.ptx_line, other.as_ref().map_or(0, |o| o.ptx_line));
        if let Some(&at) = self.seen.get(&key) {
            self.list[at].count += 1;
            return;
        }
        self.seen.insert(key, self.list.len());
        self.list.push(Finding { kind, kernel: code.name.clone(), access, address, other, detail, count: 1 });
    }
}
