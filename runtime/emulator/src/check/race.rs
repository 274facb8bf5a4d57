//! Shared-memory races: two accesses to a byte, one of them a write, that nothing orders. Order comes from barriers, named barriers,
//! warp barriers and mbarriers, and from waits for asynchronous copies; lock step, shuffles and matrix instructions give none.

use std::collections::HashMap;

use super::clock::{Clock, WarpClock};
use super::shadow::{Conflict, IN_FLIGHT, Kind, Shadow, Touch};
use super::within::GlobalWords;
use crate::exec::Cx;
use crate::exec::async_copy::{BulkCopy, Copy, Direction};
use crate::exec::barrier::{BARRIERS, Participant};
use crate::exec::cta::CtaState;
use crate::exec::lanes::LANES;
use crate::finding::FindingKind;

/// mbarriers of a CTA that are told apart.
const MBARRIERS: usize = 90;

/// The state of the race check of a CTA.
#[derive(Default)]
pub(crate) struct Races {
    pub(super) warps: Vec<WarpClock>,
    shadow: Shadow,
    pub(super) global: GlobalWords,
    mbarriers: HashMap<u32, MBarrierClock>,
    /// What the named barriers have gathered from those who arrived.
    barriers: [Clock; BARRIERS],
    /// First agent that is an mbarrier.
    first_mbarrier: u32,
}

/// What an mbarrier passes on from those who arrive to those who wait.
#[derive(Default)]
struct MBarrierClock {
    /// Released into the phase that is under way.
    gathering: Clock,
    /// Of the last complete phase.
    complete: Clock,
    /// Agent of the copies that complete on it.
    agent: u32,
    phases: u32,
    /// Its initialisation, or its end.
    written: Option<Touch>,
    /// The same, while nothing made it visible to bulk copies.
    unfenced: Option<Touch>,
}

impl Races {
    pub fn start(&mut self, warps: u32, words: usize) {
        self.first_mbarrier = warps * LANES as u32;
        self.warps.clear();
        self.warps.extend((0..warps).map(|w| WarpClock::new(w, warps as usize * LANES)));
        self.shadow.reset(words);
        self.global.clear();
        self.mbarriers.clear();
        self.barriers.iter_mut().for_each(Clock::clear);
    }

    fn mbarrier(&mut self, offset: u32) -> &mut MBarrierClock {
        // More mbarriers than can be told apart share agents: a race may then be missed, never invented.
        let agent = self.first_mbarrier + (self.mbarriers.len() % MBARRIERS * LANES) as u32;
        self.mbarriers.entry(offset).or_insert_with(|| MBarrierClock { agent, ..MBarrierClock::default() })
    }
}

impl CtaState {
    /// A barrier has completed: those who waited know what all participants knew, and did before they arrived.
    pub fn barrier_synchronised(&mut self, barrier: usize, participants: &[Participant]) {
        let Some(races) = &mut self.races else { return };
        let mut all = std::mem::take(&mut races.barriers[barrier]);
        for &Participant { warp, lanes, waits, .. } in participants {
            if waits {
                races.warps[warp as usize].set(lanes, self.live[warp as usize], &all);
            }
        }
        all.clear();
        races.barriers[barrier] = all;
    }
}

impl Cx<'_> {
    /// Notes that a lane accesses `bytes` bytes at a shared offset.
    #[inline(always)]
    pub fn shared_touched(&mut self, lane: u32, offset: u32, bytes: u32, kind: Kind) {
        let Some(races) = &mut self.cta.races else {
            return;
        };
        let clock = &races.warps[self.warp.id as usize];
        let mask = if bytes < 4 { (((1u32 << bytes) - 1) << (offset & 3)) as u8 } else { 0xf };
        let touch =
            Touch { agent: self.warp.id * LANES as u32 + lane, epoch: clock.epoch, pc: self.pc, bytes: mask, kind };
        let mut conflict = None;
        for word in offset / 4..(offset + bytes).div_ceil(4) {
            if let Some(c) = races.shadow.touch(word as usize, touch, clock.of(lane)) {
                conflict.get_or_insert((c, word));
            }
        }
        if let Some((conflict, word)) = conflict {
            self.race(conflict, lane, word * 4, kind);
        }
    }

    /// Before a store: whether the bytes there already hold the value, so that two lanes of one instruction which agree are no race.
    #[inline(always)]
    pub fn shared_stored(&mut self, lane: u32, offset: u32, bytes: u32, values: &[u32; 8]) {
        let Some(races) = &mut self.cta.races else {
            return;
        };
        let clock = &races.warps[self.warp.id as usize];
        let mask = if bytes < 4 { (((1u32 << bytes) - 1) << (offset & 3)) as u8 } else { 0xf };
        let touch = Touch {
            agent: self.warp.id * LANES as u32 + lane,
            epoch: clock.epoch,
            pc: self.pc,
            bytes: mask,
            kind: Kind::Write,
        };
        let mut conflict = None;
        for (i, word) in (offset / 4..(offset + bytes).div_ceil(4)).enumerate() {
            if let Some(c) = races.shadow.touch(word as usize, touch, clock.of(lane)) {
                let value = if bytes < 4 { values[0] << (8 * (offset & 3)) } else { values[i] };
                let bits = crate::memory::byte_mask(mask);
                let agrees = (self.cta.shared[word as usize] ^ value) & bits == 0;
                if !(agrees && c.earlier.pc == self.pc && c.earlier.kind == Kind::Write && c.earlier.epoch != IN_FLIGHT)
                {
                    conflict.get_or_insert((c, word));
                }
            }
        }
        if let Some((conflict, word)) = conflict {
            self.race(conflict, lane, word * 4, Kind::Write);
        }
    }

    #[cold]
    #[inline(never)]
    fn race(&mut self, conflict: Conflict, lane: u32, offset: u32, kind: Kind) {
        let Touch { agent, epoch, pc, kind: earlier, .. } = conflict.earlier;
        let first_mbarrier = self.cta.races.as_ref().map_or(0, |r| r.first_mbarrier);
        let copy = epoch == IN_FLIGHT || agent >= first_mbarrier;
        let place = self.shared_address(offset);
        let mut other = self.access(lane);
        if agent < first_mbarrier {
            (other.warp, other.lane) = (agent / LANES as u32, agent % LANES as u32);
        }
        other.at(self.env.code, pc);
        let verb = |kind| match kind {
            Kind::Read => "a read",
            Kind::Write => "a write",
            Kind::Atomic => "an atomic update",
        };
        let detail = if copy && earlier == Kind::Read {
            format!("{} of bytes that an asynchronous store, not waited for, still reads", verb(kind))
        } else if copy {
            format!(
                "{} of bytes that an asynchronous copy, not waited for by this lane or not passed on to it, writes",
                verb(kind)
            )
        } else {
            let same_warp = agent / LANES as u32 == self.warp.id;
            let cure = if same_warp {
                "a warp barrier (__syncwarp) or a CTA barrier"
            } else {
                "a barrier of the CTA or an mbarrier"
            };
            format!(
                "{} that nothing orders after {} of the same bytes; {cure} between the two would",
                verb(kind),
                verb(earlier)
            )
        };
        let finding = if copy { FindingKind::CopyInFlight } else { FindingKind::SharedRace };
        self.report(finding, lane, Some(place), Some(other), detail);
    }

    /// Lane 4 * row + i receives (or gives) word i of a matrix row; transposed, the words go to the lanes of column pairs.
    #[inline(always)]
    pub fn shared_row(&mut self, offset: u32, row: u32, transposed: bool, kind: Kind) {
        if self.cta.races.is_none() {
            return;
        }
        for i in 0..4 {
            // Transposed, word i holds columns 2i and 2i + 1, whose lanes are 8i + row / 2 and 8i + 4 + row / 2.
            let lane = if transposed { 8 * i + row / 2 } else { 4 * row + i };
            self.shared_touched(lane, offset + 4 * i, 4, kind);
        }
    }

    /// The executing lanes arrive at a named barrier.
    pub fn barrier_released(&mut self, barrier: usize) {
        let (warp, lanes) = (self.warp.id as usize, self.mask);
        if let Some(races) = &mut self.cta.races {
            races.warps[warp].release(lanes, &mut races.barriers[barrier]);
        }
    }

    /// bar.warp.sync.
    pub fn warp_synchronised(&mut self, lanes: u32) {
        if let Some(races) = &mut self.cta.races {
            races.warps[self.warp.id as usize].synchronise(lanes, self.warp.live());
        }
    }

    /// A cp.async has been issued.
    #[inline(always)]
    pub fn copy_started(&mut self, copy: &Copy) {
        self.in_flight(copy.lane.into(), copy.destination, copy.size.into(), Kind::Write);
    }

    /// Checks an access that starts now and goes on until someone waits for it.
    #[inline(always)]
    fn in_flight(&mut self, lane: u32, offset: u32, bytes: u32, kind: Kind) {
        let Some(races) = &mut self.cta.races else {
            return;
        };
        let clock = races.warps[self.warp.id as usize].of(lane);
        let touch =
            Touch { agent: self.warp.id * LANES as u32 + lane, epoch: IN_FLIGHT, pc: self.pc, bytes: 0xf, kind };
        let mut conflict = None;
        for word in offset / 4..(offset + bytes) / 4 {
            if let Some(c) = races.shadow.touch(word as usize, touch, clock) {
                conflict.get_or_insert((c, word));
            }
        }
        if let Some((conflict, word)) = conflict {
            self.race(conflict, lane, word * 4, kind);
        }
    }

    /// The lane has waited for its copy.
    #[inline(always)]
    pub fn copy_waited_for(&mut self, copy: &Copy) {
        let Some(races) = &mut self.cta.races else {
            return;
        };
        let epoch = races.warps[self.warp.id as usize].epoch;
        let agent = self.warp.id * LANES as u32 + u32::from(copy.lane);
        for word in copy.destination / 4..(copy.destination + u32::from(copy.size)) / 4 {
            races.shadow.land(word as usize, agent, copy.pc, Kind::Write, epoch);
        }
    }

    /// The lane's copies complete on an mbarrier: who waits for its current phase may use them.
    pub fn copies_handed_over(&mut self, barrier: u32, lane: u32, copies: &[Copy]) {
        let Some(races) = &mut self.cta.races else {
            return;
        };
        let agent = self.warp.id * LANES as u32 + lane;
        let (to, epoch) = {
            let b = races.mbarrier(barrier);
            (b.agent, b.phases + 1)
        };
        for copy in copies {
            for word in copy.destination / 4..(copy.destination + u32::from(copy.size)) / 4 {
                races.shadow.hand_over(word as usize, agent, copy.pc, to, epoch);
            }
        }
    }

    /// An mbarrier is initialised or invalidated.
    pub fn mbarrier_written(&mut self, offset: u32, lane: u32) {
        self.shared_touched(lane, offset, 8, Kind::Write);
        let (agent, pc) = (self.warp.id * LANES as u32 + lane, self.pc);
        if let Some(races) = &mut self.cta.races {
            let epoch = races.warps[self.warp.id as usize].epoch;
            let b = races.mbarrier(offset);
            b.gathering.clear();
            b.complete.clear();
            b.written = Some(Touch { agent, epoch, pc, bytes: 0xf, kind: Kind::Write });
            b.unfenced = b.written;
        }
    }

    /// fence.mbarrier_init: what the executing lanes initialised is visible to bulk copies.
    pub fn mbarriers_fenced(&mut self) {
        let (first, mask) = (self.warp.id * LANES as u32, self.mask);
        if let Some(races) = &mut self.cta.races {
            let by_these = |touch: &Touch| {
                touch.agent.checked_sub(first).is_some_and(|lane| lane < LANES as u32 && mask >> lane & 1 != 0)
            };
            races.mbarriers.values_mut().for_each(|b| b.unfenced = b.unfenced.filter(|touch| !by_these(touch)));
        }
    }

    /// fence.proxy.async.
    pub fn proxy_fenced(&mut self) {
        let (lanes, live) = (self.mask, self.warp.live());
        if let Some(races) = &mut self.cta.races {
            races.warps[self.warp.id as usize].fence(lanes, live);
        }
    }

    /// Before the async proxy reads or writes `bytes` bytes of shared memory for `lane`: what was written there through
    /// registers needs a proxy fence on the way here.
    pub fn async_proxy_touches(&mut self, lane: u32, offset: u32, bytes: u32) {
        let Some(races) = &self.cta.races else { return };
        let clock = races.warps[self.warp.id as usize].of(lane);
        let mut words = offset / 4..(offset + bytes).div_ceil(4);
        let unfenced = words
            .find_map(|word| Some((races.shadow.unfenced_write(word as usize, races.first_mbarrier, clock)?, word)));
        if let Some((write, word)) = unfenced {
            let detail = "bytes that were stored through registers are accessed through the async proxy without a \
                          `fence.proxy.async` between the two";
            self.unfenced(write, lane, word * 4, detail.to_owned());
        }
    }

    /// A bulk copy is to complete on an mbarrier: its initialisation must be visible to it.
    fn mbarrier_seen_by_copy(&mut self, barrier: u32, lane: u32) {
        let Some(races) = &mut self.cta.races else { return };
        let Some(init) = races.mbarrier(barrier).unfenced else { return };
        if init.epoch > races.warps[self.warp.id as usize].of(lane).fenced(init.agent) {
            let detail = "a bulk copy completes on an mbarrier whose initialisation no `fence.mbarrier_init` (or \
                          `fence.proxy.async`) made visible to it";
            self.unfenced(init, lane, barrier, detail.to_owned());
        }
    }

    #[cold]
    fn unfenced(&mut self, earlier: Touch, lane: u32, offset: u32, detail: String) {
        let place = self.shared_address(offset);
        let mut other = self.access(lane);
        (other.warp, other.lane) = (earlier.agent / LANES as u32, earlier.agent % LANES as u32);
        other.at(self.env.code, earlier.pc);
        self.report(FindingKind::ProxyFence, lane, Some(place), Some(other), detail);
    }

    /// A lane arrives at an mbarrier, or looks at its phase: after its initialisation, whoever used it in between.
    pub fn mbarrier_used(&mut self, offset: u32, lane: u32) {
        self.shared_touched(lane, offset, 8, Kind::Atomic);
        let Some(races) = &self.cta.races else { return };
        let Some(written) = races.mbarriers.get(&offset).and_then(|b| b.written) else { return };
        let own = written.agent == self.warp.id * LANES as u32 + lane;
        if !own && written.epoch > races.warps[self.warp.id as usize].of(lane).of(written.agent) {
            self.race(Conflict { earlier: written }, lane, offset, Kind::Atomic);
        }
    }

    /// Lanes arrive at an mbarrier.
    pub fn mbarrier_released(&mut self, offset: u32, lane: u32) {
        self.mbarrier_used(offset, lane);
        let warp = self.warp.id as usize;
        if let Some(races) = &mut self.cta.races {
            let mut gathering = std::mem::take(&mut races.mbarrier(offset).gathering);
            races.warps[warp].release(1 << lane, &mut gathering);
            races.mbarrier(offset).gathering = gathering;
        }
    }

    /// Lanes have seen a phase of an mbarrier complete.
    pub fn mbarrier_acquired(&mut self, offset: u32, lanes: u32) {
        let live = self.warp.live();
        let warp = self.warp.id as usize;
        if let Some(races) = &mut self.cta.races {
            let complete = std::mem::take(&mut races.mbarrier(offset).complete);
            races.warps[warp].acquire(lanes, live, &complete);
            races.mbarrier(offset).complete = complete;
        }
    }

    /// A phase of an mbarrier is complete.
    pub fn mbarrier_completed(&mut self, offset: u32) {
        if let Some(races) = &mut self.cta.races {
            let b = races.mbarrier(offset);
            b.phases += 1;
            b.complete.join(&b.gathering);
            b.complete.set(b.agent, b.phases);
        }
    }

    /// A bulk copy has been issued: until its mbarrier or group says so, its shared bytes belong to it.
    pub fn bulk_started(&mut self, copy: &BulkCopy) {
        self.async_proxy_touches(copy.lane, copy.shared, copy.size);
        match copy.direction {
            Direction::Store { .. } => self.in_flight(copy.lane, copy.shared, copy.size, Kind::Read),
            Direction::Load { barrier } => {
                self.mbarrier_seen_by_copy(barrier, copy.lane);
                self.in_flight(copy.lane, copy.shared, copy.size, Kind::Write);
                let pseudo = |at: u32| Copy {
                    lane: copy.lane as u8,
                    size: 16,
                    source_size: 16,
                    destination: at,
                    source: 0,
                    pc: copy.pc,
                };
                let copies: Vec<Copy> = (copy.shared..copy.shared + copy.size).step_by(16).map(pseudo).collect();
                self.copies_handed_over(barrier, copy.lane, &copies);
            }
        }
    }

    /// The lane has waited for a bulk store of its own.
    pub fn bulk_store_waited_for(&mut self, copy: &BulkCopy) {
        let Some(races) = &mut self.cta.races else {
            return;
        };
        let epoch = races.warps[self.warp.id as usize].epoch;
        let agent = self.warp.id * LANES as u32 + copy.lane;
        for word in copy.shared / 4..(copy.shared + copy.size) / 4 {
            races.shadow.land(word as usize, agent, copy.pc, Kind::Read, epoch);
        }
    }
}
