//! Races in global memory between the CTAs of a launch. CTAs run in any order, so two of them may touch the same bytes only if neither
//! writes, both update atomically, or one has seen an atomic that the other did after its access.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use crate::exec::Cx;
use crate::exec::access::Intent;
use crate::finding::{Access, FindingKind};
use crate::memory::Allocation;

/// Who last wrote and who read a word, packed; 0 is nobody.
#[derive(Default)]
pub(crate) struct Owners {
    write: AtomicU64,
    read: AtomicU64,
}

/// CTA + 1 (24 bits), pc (20), thread (10), bytes (4), and flags.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Owner(u64);

const ATOMIC: u64 = 1 << 58;
/// More than one CTA has read the word.
const MANY: u64 = 1 << 59;
/// CTAs past this are not told apart.
const MOST_CTAS: u64 = (1 << 24) - 2;

impl Owner {
    fn new(cta: u64, pc: u32, thread: u32, bytes: u8) -> Self {
        Self((cta + 1) | u64::from(pc & 0xf_ffff) << 24 | u64::from(thread) << 44 | u64::from(bytes) << 54)
    }
    /// Which other CTA this is, if it is one.
    fn other(self, me: u64) -> Option<u64> {
        let cta = self.0 & 0xff_ffff;
        (cta != 0 && cta - 1 != me).then(|| cta - 1)
    }
    fn pc(self) -> u32 {
        (self.0 >> 24 & 0xf_ffff) as u32
    }
    fn thread(self) -> u32 {
        (self.0 >> 44 & 0x3ff) as u32
    }
    fn overlaps(self, bytes: u8) -> bool {
        (self.0 >> 54 & 0xf) as u8 & bytes != 0
    }
}

/// Which CTAs' work is visible to whom, through atomics. CTAs that use them run on one thread, so the lock is free.
#[derive(Default)]
pub(crate) struct AtomicOrder(Mutex<Order>);

#[derive(Default)]
struct Order {
    /// CTAs that have updated an address.
    released: HashMap<u64, HashSet<u64>>,
    /// CTAs whose earlier work a CTA has seen.
    known: HashMap<u64, HashSet<u64>>,
}

impl AtomicOrder {
    /// `cta` updates `address` atomically. Every earlier access of a CTA counts as visible to those who later see its update: what is
    /// not fenced may be missed, nothing is invented.
    fn update(&self, cta: u64, address: u64) {
        let Ok(mut order) = self.0.lock() else { return };
        let Order { released, known } = &mut *order;
        let at = released.entry(address).or_default();
        let mine = known.entry(cta).or_default();
        mine.extend(at.iter().copied());
        at.extend(mine.iter().copied());
        at.insert(cta);
    }

    fn knows(&self, cta: u64, other: u64) -> bool {
        self.0.lock().is_ok_and(|order| order.known.get(&cta).is_some_and(|k| k.contains(&other)))
    }
}

impl<'a> Cx<'a> {
    /// Notes a global access for the race check.
    #[inline]
    pub fn global_touched(&mut self, allocation: &'a Allocation, offset: u64, bytes: u32, intent: Intent, lane: u32) {
        if !self.env.options.checks.global_races || self.env.ctas == 1 || self.env.ctas > MOST_CTAS {
            return;
        }
        let address = allocation.base + offset;
        if intent == Intent::Atomic {
            self.env.order.update(self.cta.index, address);
        }
        if allocation.is_read_only() || self.env.declared.race_free(address) {
            return;
        }
        for word in offset / 4..(offset + u64::from(bytes)).div_ceil(4) {
            let mask = if bytes < 4 { (((1u32 << bytes) - 1) << (offset & 3)) as u8 } else { 0xf };
            if let Some((other, read)) = self.touch_word(allocation.owners(word), mask, intent, lane) {
                self.global_race(allocation, word * 4, intent, lane, other, read);
            }
        }
    }

    fn touch_word(&self, owners: &Owners, bytes: u8, intent: Intent, lane: u32) -> Option<(Owner, bool)> {
        let me = self.cta.index;
        let mut mine = Owner::new(me, self.pc, self.warp.id * 32 + lane, bytes);
        let conflicts =
            |owner: Owner| owner.other(me).is_some_and(|o| owner.overlaps(bytes) && !self.env.order.knows(me, o));
        if intent == Intent::Read {
            let before = Owner(owners.read.load(SeqCst));
            if before.other(me).is_none() {
                owners.read.store(mine.0 | before.0 & MANY, SeqCst);
            } else if before.0 & MANY == 0 {
                owners.read.fetch_or(MANY, SeqCst);
            }
            let write = Owner(owners.write.load(SeqCst));
            return conflicts(write).then_some((write, false));
        }
        if intent == Intent::Atomic {
            mine.0 |= ATOMIC;
        }
        let write = Owner(owners.write.swap(mine.0, SeqCst));
        let both_atomic = intent == Intent::Atomic && write.0 & ATOMIC != 0;
        if !both_atomic && conflicts(write) {
            return Some((write, false));
        }
        let read = Owner(owners.read.load(SeqCst));
        (conflicts(read)).then_some((read, true))
    }

    #[cold]
    fn global_race(
        &mut self,
        allocation: &Allocation,
        offset: u64,
        intent: Intent,
        lane: u32,
        other: Owner,
        other_reads: bool,
    ) {
        let cta = other.other(self.cta.index).unwrap_or(0);
        let place = self.global_address(allocation.base + offset);
        let access =
            Access::new(self.env.code, other.pc(), self.env.cta_id(cta), other.thread() / 32, other.thread() % 32);
        let verb = |reads: bool| if reads { "reads" } else { "writes" };
        let detail = format!(
            "this CTA {} bytes that another {}, and nothing orders the two",
            verb(intent == Intent::Read),
            verb(other_reads)
        );
        self.report(FindingKind::GlobalRace, lane, Some(place), Some(access), detail);
    }
}
