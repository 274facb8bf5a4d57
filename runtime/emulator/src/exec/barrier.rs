//! The sixteen named barriers of a CTA, and its mbarriers.

use std::collections::HashMap;

use super::cta::CtaState;
use super::{Cx, Env};
use crate::finding::{Access, FindingKind};

/// Barriers of a CTA.
pub(crate) const BARRIERS: usize = 16;

/// One `bar` barrier.
#[derive(Debug, Clone)]
pub(crate) struct Barrier {
    /// Threads that must arrive; 0 for all threads of the CTA that have not ended.
    pub expected: u32,
    pub arrived: u32,
    /// Who arrived in this generation.
    pub participants: Vec<Participant>,
    /// bar.red so far, and of the last complete generation.
    pub all: bool,
    pub any: bool,
    pub count: u32,
    pub result: Reduction,
}

/// Lanes of a warp that have arrived at a barrier.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Participant {
    pub warp: u32,
    pub lanes: u32,
    /// Whether they wait for the others.
    pub waits: bool,
    /// Where they arrived.
    pub pc: u32,
}

/// What bar.red gives.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Reduction {
    pub all: bool,
    pub any: bool,
    pub count: u32,
}

impl Default for Barrier {
    fn default() -> Self {
        Self {
            expected: 0,
            arrived: 0,
            participants: Vec::new(),
            all: true,
            any: false,
            count: 0,
            result: Reduction::default(),
        }
    }
}

impl Cx<'_> {
    /// The executing lanes arrive at a barrier, to wait (`sync`) or not; true if that completes it.
    pub fn arrive(&mut self, barrier: usize, count: u32, sync: bool) -> bool {
        let state = &self.cta.barriers[barrier];
        if state.arrived > 0 && state.expected != count {
            let name = |n: u32| {
                if n == 0 { "all threads".to_string() } else { format!("{n} threads") }
            };
            let detail = format!(
                "barrier {barrier} waits for {} here, but others wait for {}",
                name(count),
                name(state.expected)
            );
            self.report(FindingKind::BarrierMisuse, self.mask.trailing_zeros(), None, None, detail);
        }
        let me = self.warp.id;
        let arrived = &self.cta.barriers[barrier].participants;
        if arrived.iter().any(|p| p.warp == me && p.lanes & self.mask != 0) {
            let detail = format!("these lanes arrive at barrier {barrier} twice before it completes");
            self.report(FindingKind::BarrierMisuse, self.mask.trailing_zeros(), None, None, detail);
        }
        self.barrier_released(barrier);
        self.warp.arrived = (barrier as u8, self.cta.generations[barrier]);
        let state = &mut self.cta.barriers[barrier];
        state.expected = count;
        // With a count, hardware counts whole warps; without one, every thread that has not ended.
        state.arrived += if count == 0 { self.mask.count_ones() } else { 32 };
        state.participants.push(Participant { warp: me, lanes: self.mask, waits: sync, pc: self.pc });
        self.cta.complete_barrier(self.env, barrier)
    }
}

impl CtaState {
    /// Completes a barrier if everyone has arrived.
    pub fn complete_barrier(&mut self, env: &Env<'_>, barrier: usize) -> bool {
        let state = &self.barriers[barrier];
        let needed = if state.expected == 0 { self.live_threads } else { state.expected };
        if state.participants.is_empty() || state.arrived < needed {
            return false;
        }
        if state.expected == 0 && !env.options.early_exit {
            self.miss_ended_warps(env, barrier);
        }
        let state = &mut self.barriers[barrier];
        state.arrived = 0;
        state.expected = 0;
        state.result = Reduction { all: state.all, any: state.any, count: state.count };
        (state.all, state.any, state.count) = (true, false, 0);
        let mut participants = std::mem::take(&mut state.participants);
        self.barrier_synchronised(barrier, &participants);
        participants.clear();
        self.barriers[barrier].participants = participants;
        self.generations[barrier] += 1;
        self.progress += 1;
        true
    }

    /// Warps have ended without the barrier that all threads should reach.
    fn miss_ended_warps(&mut self, env: &Env<'_>, barrier: usize) {
        let ended = self.live.iter().filter(|lanes| **lanes == 0).count();
        let Some(first) = self.barriers[barrier].participants.first().filter(|_| ended > 0) else { return };
        let detail = format!(
            "{ended} of the CTA's {} warps have ended without it; every thread must reach a barrier equally often",
            self.live.len()
        );
        let access = Access::new(env.code, first.pc, self.id, first.warp, first.lanes.trailing_zeros());
        self.findings.add(env.code, FindingKind::BarrierMisuse, access, None, None, detail);
    }

    /// The first mbarrier whose phase has begun and cannot end, and what it waits for.
    pub fn waiting_mbarrier(&self) -> Option<(u32, String)> {
        let begun = self.mbarriers.iter().filter(|(_, b)| b.pending < b.expected || b.transactions != 0);
        let (&offset, b) = begun.min_by_key(|(offset, _)| **offset)?;
        let (phase, pending, bytes) = (b.phase, b.pending, b.transactions);
        let arrivals = format!("waits, in phase {phase}, for {pending} more of {} arrivals", b.expected);
        Some(match (pending, bytes) {
            (0, _) => {
                (offset, format!("has all arrivals of phase {phase} and waits for {bytes} bytes that nothing copies"))
            }
            (_, ..=0) => (offset, arrivals),
            _ => (offset, format!("{arrivals} and for {bytes} bytes")),
        })
    }

    /// Lanes have ended; barriers that wait for all threads no longer wait for them.
    pub fn lanes_end(&mut self, env: &Env<'_>, warp: u32, lanes: u32) {
        self.live_threads -= lanes.count_ones();
        self.live[warp as usize] &= !lanes;
        for barrier in 0..BARRIERS {
            if self.barriers[barrier].expected == 0 {
                self.complete_barrier(env, barrier);
            }
        }
        self.progress += 1;
    }
}

/// One mbarrier object.
#[derive(Debug, Clone)]
pub(crate) struct MBarrier {
    pub expected: u32,
    /// Arrivals still missing in this phase.
    pub pending: u32,
    /// Bytes still to be copied in this phase.
    pub transactions: i64,
    pub phase: u32,
}

impl MBarrier {
    pub fn new(expected: u32) -> Self {
        Self { expected, pending: expected, transactions: 0, phase: 0 }
    }

    /// Goes to the next phase if this one is complete.
    pub fn settle(&mut self) -> bool {
        let complete = self.pending == 0 && self.transactions == 0;
        if complete {
            self.phase = self.phase.wrapping_add(1);
            self.pending = self.expected;
        }
        complete
    }
}

/// mbarriers by shared offset.
pub(crate) type MBarriers = HashMap<u32, MBarrier>;
