//! A CTA: its warps, shared memory and barriers, and the scheduler that interleaves its warps.

use super::async_copy::{BulkCopy, Copy, LateArrival};
use super::barrier::{BARRIERS, Barrier, MBarriers};
use super::rng::Rng;
use super::warp::Warp;
use super::{CpAsync, Cx, Env, Findings, Stop, Tally, run_warp};
use crate::check::Races;
use crate::decode::Code;
use crate::error::{Error, Result};
use crate::finding::{Access, FindingKind};

/// What the warps of a CTA share.
pub(crate) struct CtaState {
    pub id: [u32; 3],
    /// Linear index in the grid.
    pub index: u64,
    /// A thread has executed griddepcontrol.wait.
    pub waited: bool,
    pub traffic: Tally,
    /// Shared memory, by word.
    pub shared: Vec<u32>,
    /// Undefined bits of shared memory, by word; empty unless definedness is tracked.
    pub shared_shadow: Vec<u32>,
    pub barriers: [Barrier; BARRIERS],
    /// How often each barrier has completed.
    pub generations: [u32; BARRIERS],
    pub mbarriers: MBarriers,
    /// Bulk copies that have not happened yet.
    pub bulk: Vec<BulkCopy>,
    pub late_arrivals: Vec<LateArrival>,
    /// Scratch for copies that a wait finishes.
    pub finished: Vec<Copy>,
    pub live_threads: u32,
    /// Lanes of each warp that have not ended.
    pub live: Vec<u32>,
    /// The race check, if it is on.
    pub races: Option<Races>,
    pub findings: Findings,
    pub instructions: u64,
    pub lane_instructions: u64,
    /// Changes whenever something happened that another warp may be polling for.
    pub progress: u64,
}

pub(crate) struct Cta {
    pub state: CtaState,
    warps: Vec<Warp>,
    rng: Rng,
    seeded: bool,
    next: usize,
    /// Rounds in which every warp only polled.
    idle_rounds: u32,
}

/// Instructions a warp runs before another gets its turn, at seed 0.
const QUANTUM: u32 = 20_000;
/// Rounds in which all warps only polled mbarriers before a CTA counts as hung: only its own warps could still complete them.
const IDLE_ROUNDS: u32 = 2_000;

impl Cta {
    pub fn new() -> Self {
        Self {
            state: CtaState {
                id: [0; 3],
                index: 0,
                waited: false,
                traffic: Tally::new(),
                shared: Vec::new(),
                shared_shadow: Vec::new(),
                barriers: Default::default(),
                generations: [0; BARRIERS],
                mbarriers: MBarriers::new(),
                bulk: Vec::new(),
                late_arrivals: Vec::new(),
                finished: Vec::new(),
                live_threads: 0,
                live: Vec::new(),
                races: None,
                findings: Findings::default(),
                instructions: 0,
                lane_instructions: 0,
                progress: 0,
            },
            warps: Vec::new(),
            rng: Rng::new(0),
            seeded: false,
            next: 0,
            idle_rounds: 0,
        }
    }

    /// Makes this the CTA with linear index `index`, at the kernel's start.
    pub fn start(&mut self, env: &Env<'_>, index: u64) {
        let id = env.cta_id(index);
        let s = &mut self.state;
        (s.id, s.index, s.waited) = (id, index, false);
        s.traffic.clear();
        s.shared.clear();
        s.shared.resize(env.shared_bytes.div_ceil(4) as usize, 0xcbcb_cbcb);
        s.shared_shadow.clear();
        if env.options.checks.definedness {
            s.shared_shadow.resize(s.shared.len(), !0);
        }
        s.barriers = Default::default();
        s.generations = [0; BARRIERS];
        s.mbarriers.clear();
        s.bulk.clear();
        s.late_arrivals.clear();
        s.live_threads = env.threads;
        s.findings = Findings::default();
        (s.instructions, s.lane_instructions, s.progress) = (0, 0, 0);
        let warps = Code::warps(env.threads) as usize;
        self.warps.truncate(warps);
        self.warps.resize_with(warps, Warp::new);
        for (i, warp) in self.warps.iter_mut().enumerate() {
            warp.start(env, i as u32, id);
        }
        let s = &mut self.state;
        s.live.clear();
        s.live.extend(self.warps.iter().map(Warp::live));
        if env.options.checks.races {
            s.races.get_or_insert_default().start(warps as u32, env.shared_bytes.div_ceil(4) as usize);
        }
        for warp in &mut self.warps {
            Cx { warp, cta: &mut self.state, env, mask: 0, pc: 0 }.taint_unwritten();
        }
        self.rng = Rng::new(env.options.seed ^ index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        self.seeded = env.options.seed != 0;
        self.next = 0;
        self.idle_rounds = 0;
    }

    /// Runs for about `slices` turns of warps; true when the CTA has ended.
    pub fn run(&mut self, env: &Env<'_>, slices: u64) -> Result<bool> {
        for _ in 0..slices {
            match self.turn(env)? {
                Turn::Ran => {}
                Turn::Ended => return Ok(true),
            }
        }
        Ok(false)
    }

    fn turn(&mut self, env: &Env<'_>) -> Result<Turn> {
        for warp in &mut self.warps {
            warp.release(&self.state.generations);
        }
        let count = self.warps.len();
        let first = if self.seeded { self.rng.below(count as u64) as usize } else { self.next };
        let fuel = if self.seeded { 1 + self.rng.below(256) as u32 } else { QUANTUM };
        let mut polled = 0;
        for i in 0..count {
            let at = (first + i) % count;
            let warp = &mut self.warps[at];
            if warp.is_done() {
                continue;
            }
            let before = (self.state.instructions, self.state.progress);
            let mut cx = Cx { warp, cta: &mut self.state, env, mask: 0, pc: 0 };
            let stop = run_warp(&mut cx, fuel);
            if self.state.instructions > env.options.step_limit {
                let pc = self.warps[at].position();
                return Err(Error::StepLimit {
                    kernel: env.code.name.clone(),
                    cta: self.state.id,
                    limit: env.options.step_limit,
                    line: env.code.lines[pc as usize],
                    sources: env.code.sources(pc),
                });
            }
            let moved = self.state.progress != before.1;
            let warp = &mut self.warps[at];
            match stop {
                Stop::Blocked if self.state.instructions == before.0 => continue,
                // A warp that polls may be cut off between two polls; that is no progress either.
                Stop::Polls | Stop::OutOfFuel if !moved && (stop == Stop::Polls || warp.polling) => {
                    warp.polling = true;
                    polled += 1;
                    continue;
                }
                _ => {}
            }
            if moved {
                self.warps.iter_mut().for_each(|w| w.polling = false);
            }
            self.next = if matches!(stop, Stop::Done | Stop::Blocked) { at } else { (at + 1) % count };
            self.idle_rounds = 0;
            return Ok(Turn::Ran);
        }
        if self.warps.iter().all(Warp::is_done) {
            // Stores to global memory happen even if nobody waits for them.
            while self.deliver_one(env) {}
            return Ok(Turn::Ended);
        }
        if self.deliver_one(env) {
            return Ok(Turn::Ran);
        }
        if polled > 0 {
            return self.idle(env);
        }
        // Nobody can run. Collectives that wait for lanes elsewhere go ahead, with a finding; else it is a deadlock.
        if let Some(warp) = self.warps.iter_mut().find(|w| w.is_parked()) {
            warp.forced = true;
            return Ok(Turn::Ran);
        }
        self.deadlock(env);
        Ok(Turn::Ended)
    }

    /// Nothing moves: one of the asynchronous operations that were put off happens now. False if there is none.
    fn deliver_one(&mut self, env: &Env<'_>) -> bool {
        if env.options.cp_async == CpAsync::Eager {
            return false;
        }
        let state = &mut self.state;
        let waiting = state.bulk.len() + state.late_arrivals.len();
        if waiting == 0 {
            return false;
        }
        let at = if self.seeded { self.rng.below(waiting as u64) as usize } else { 0 };
        if let Some(i) = at.checked_sub(state.bulk.len()) {
            let arrival = state.late_arrivals.remove(i);
            let warp = &mut self.warps[arrival.warp as usize];
            Cx { warp, cta: &mut self.state, env, mask: 1 << arrival.lane, pc: 0 }.deliver_arrival(&arrival);
        } else {
            let copy = state.bulk.remove(at);
            let warp = &mut self.warps[copy.warp as usize];
            Cx { warp, cta: &mut self.state, env, mask: 1 << copy.lane, pc: copy.pc }.deliver_bulk(&copy);
        }
        true
    }

    /// Every warp that is not blocked polls.
    fn idle(&mut self, env: &Env<'_>) -> Result<Turn> {
        self.idle_rounds += 1;
        if self.idle_rounds < IDLE_ROUNDS {
            return Ok(Turn::Ran);
        }
        let Some(warp) = self.warps.iter().find(|w| !w.is_done()) else {
            return Ok(Turn::Ended);
        };
        let pc = warp.position().saturating_sub(1);
        let access = Access::new(env.code, pc, self.state.id, warp.id, 0);
        let mut detail = "every warp polls, and nothing is left that could end it".to_string();
        let waiting = self.state.waiting_mbarrier();
        let cx = Cx { warp: &mut self.warps[0], cta: &mut self.state, env, mask: 0, pc };
        let place = waiting.as_ref().map(|(offset, _)| cx.shared_address(*offset));
        if let Some((_, missing)) = &waiting {
            detail += &format!(": the mbarrier here {missing}");
        }
        self.state.findings.add(env.code, FindingKind::Deadlock, access, place, None, detail);
        Ok(Turn::Ended)
    }

    fn deadlock(&mut self, env: &Env<'_>) {
        for warp in &self.warps {
            let Some((pc, mask, barrier)) = warp.blocked_at() else {
                continue;
            };
            let state = &self.state.barriers[barrier as usize];
            let expected = if state.expected == 0 { self.state.live_threads } else { state.expected };
            let access = Access::new(env.code, pc - 1, self.state.id, warp.id, mask.trailing_zeros());
            let detail = format!(
                "barrier {barrier} waits for {expected} threads and {} have arrived; the others have ended or wait elsewhere",
                state.arrived
            );
            self.state.findings.add(env.code, FindingKind::Deadlock, access, None, None, detail);
        }
    }
}

enum Turn {
    Ran,
    Ended,
}
