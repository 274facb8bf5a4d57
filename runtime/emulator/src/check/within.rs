//! Races in global memory between the threads of one CTA. What orders them is what orders accesses to shared memory; besides,
//! atomics and strong accesses pass on what a thread knows to whoever later touches their address the same way.

use std::collections::HashMap;

use super::clock::Clock;
use super::shadow::{Kind, Shadow, Touch};
use crate::exec::Cx;
use crate::exec::access::{Target, WORDS};
use crate::exec::lanes::LANES;
use crate::finding::{Access, FindingKind};
use crate::memory::{Allocation, Cursor, byte_mask};

/// Words that are looked up together.
const PAGE: u64 = 64;

/// Which thread of the CTA last touched each word of global memory.
#[derive(Default)]
pub(crate) struct GlobalWords {
    /// First word, in `shadow`, of each page of addresses that was touched.
    pages: HashMap<u64, usize>,
    shadow: Shadow,
    words: usize,
    /// What threads knew when they last updated an address atomically.
    published: HashMap<u64, Clock>,
}

impl GlobalWords {
    pub fn clear(&mut self) {
        self.pages.clear();
        self.shadow.reset(0);
        self.words = 0;
        self.published.clear();
    }

    /// The place in `shadow` of the word at an address.
    fn word(&mut self, address: u64) -> usize {
        let at = address / 4;
        let first = *self.pages.entry(at / PAGE).or_insert_with(|| {
            let first = self.words;
            self.words += PAGE as usize;
            self.shadow.grow(self.words);
            first
        });
        first + (at % PAGE) as usize
    }
}

impl<'a> Cx<'a> {
    /// Notes that a lane reads `bytes` bytes, or has an asynchronous copy read or write them.
    #[inline(always)]
    pub fn touched_within(&mut self, target: Target<'a>, bytes: u32, kind: Kind, lane: u32) {
        if let Target::Global(allocation, offset) = target {
            self.note_within(allocation, offset, bytes, kind, lane, None);
        }
    }

    /// Before a store: lanes that store the same value by the same instruction do not race.
    #[inline(always)]
    pub fn stored_within(&mut self, target: Target<'a>, bytes: u32, values: &[u32; WORDS], lane: u32) {
        if let Target::Global(allocation, offset) = target {
            self.note_within(allocation, offset, bytes, Kind::Write, lane, Some(values));
        }
    }

    /// Notes an atomic update.
    pub fn updated_within(&mut self, target: Target<'a>, bytes: u32, lane: u32) {
        if let Target::Global(allocation, offset) = target {
            self.passed_on(allocation.base + offset, lane, |cx| {
                cx.note_within(allocation, offset, bytes, Kind::Atomic, lane, None);
            });
        }
    }

    /// Notes a load or store with an order of its own: `.acquire`, `.release`, `.relaxed`, `.volatile`.
    pub fn ordered_within(&mut self, target: Target<'a>, lane: u32) {
        if let Target::Global(allocation, offset) = target {
            self.passed_on(allocation.base + offset, lane, |_| ());
        }
    }

    /// The lane learns what others knew at such an access of the address, does `access`, and lets others know. That no fence
    /// is asked for may miss a race; it invents none.
    fn passed_on(&mut self, address: u64, lane: u32, access: impl FnOnce(&mut Self)) {
        let (warp, live) = (self.warp.id as usize, self.warp.live());
        let Some(races) = &mut self.cta.races else { return };
        let mut published = races.global.published.remove(&address).unwrap_or_default();
        races.warps[warp].acquire(1 << lane, live, &published);
        access(self);
        let Some(races) = &mut self.cta.races else { return };
        races.warps[warp].release(1 << lane, &mut published);
        races.global.published.insert(address, published);
    }

    fn note_within(
        &mut self,
        allocation: &'a Allocation,
        offset: u64,
        bytes: u32,
        kind: Kind,
        lane: u32,
        values: Option<&[u32; WORDS]>,
    ) {
        if !self.env.options.checks.global_races
            || allocation.is_read_only()
            || self.env.declared.race_free(allocation.base + offset)
        {
            return;
        }
        let Some(races) = &mut self.cta.races else { return };
        let clock = &races.warps[self.warp.id as usize];
        let mask = if bytes < 4 { (((1u32 << bytes) - 1) << (offset & 3)) as u8 } else { 0xf };
        let touch =
            Touch { agent: self.warp.id * LANES as u32 + lane, epoch: clock.epoch, pc: self.pc, bytes: mask, kind };
        let mut conflict = None;
        for (i, word) in (offset / 4..(offset + u64::from(bytes)).div_ceil(4)).enumerate() {
            let place = races.global.word(allocation.base + word * 4);
            let Some(found) = races.global.shadow.touch(place, touch, clock.of(lane)) else { continue };
            let together = found.earlier.pc == self.pc && found.earlier.kind == Kind::Write;
            let agrees = together
                && values.is_some_and(|values| {
                    let value = if bytes < 4 { values[0] << (8 * (offset & 3)) } else { values[i] };
                    (Cursor::default().load(allocation, word * 4) ^ value) & byte_mask(mask) == 0
                });
            if !agrees {
                conflict.get_or_insert((found.earlier, word));
            }
        }
        if let Some((earlier, word)) = conflict {
            self.race_within(allocation.base + word * 4, kind, lane, earlier);
        }
    }

    #[cold]
    fn race_within(&mut self, address: u64, kind: Kind, lane: u32, earlier: Touch) {
        let place = self.global_address(address);
        let (warp, other_lane) = (earlier.agent / LANES as u32, earlier.agent % LANES as u32);
        let other = Access::new(self.env.code, earlier.pc, self.env.cta_id(self.cta.index), warp, other_lane);
        let verb = |kind| match kind {
            Kind::Read => "a read",
            Kind::Write => "a write",
            Kind::Atomic => "an atomic update",
        };
        let detail = format!(
            "{} that nothing orders after {} of the same bytes by another thread",
            verb(kind),
            verb(earlier.kind)
        );
        self.report(FindingKind::GlobalRace, lane, Some(place), Some(other), detail);
    }
}
