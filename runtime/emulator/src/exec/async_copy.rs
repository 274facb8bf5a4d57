//! cp.async: copies that a lane starts, commits in groups, and waits for. Nobody else's wait says anything about them.

use std::collections::VecDeque;

use super::access::{Target, WORDS, undefined_bytes};
use super::lanes::LANES;
use super::{CpAsync, Cx};
use crate::finding::FindingKind;
use crate::memory::{Cursor, byte_mask};

/// A copy of up to 16 bytes from global to shared memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Copy {
    pub lane: u8,
    /// Bytes written to shared memory.
    pub size: u8,
    /// Bytes read; the rest of `size` is zero.
    pub source_size: u8,
    /// Shared address.
    pub destination: u32,
    pub source: u64,
    pub pc: u32,
}

/// The copies of a warp that have not been waited for, by commit group. Lanes count their groups separately.
#[derive(Default)]
pub(crate) struct Pending {
    /// Group `base + i` of the lanes.
    groups: VecDeque<Vec<Copy>>,
    base: u32,
    committed: [u32; LANES],
    spare: Vec<Vec<Copy>>,
}

impl Pending {
    pub fn clear(&mut self) {
        while let Some(mut group) = self.groups.pop_front() {
            group.clear();
            self.spare.push(group);
        }
        self.base = 0;
        self.committed = [0; LANES];
    }

    pub fn start(&mut self, copy: Copy) {
        let at = (self.committed[copy.lane as usize] - self.base) as usize;
        while self.groups.len() <= at {
            self.groups.push_back(self.spare.pop().unwrap_or_default());
        }
        self.groups[at].push(copy);
    }

    pub fn commit(&mut self, lanes: u32) {
        for (lane, committed) in self.committed.iter_mut().enumerate() {
            *committed += lanes >> lane & 1;
        }
    }

    /// Takes out the copies that `lanes` have waited for: all groups but each lane's last `allowed` committed ones; with `None`
    /// also the copies not yet committed.
    pub fn finish(&mut self, lanes: u32, allowed: Option<u32>, done: &mut Vec<Copy>) {
        let limit: [u32; LANES] = std::array::from_fn(|lane| match allowed {
            _ if lanes >> lane & 1 == 0 => 0,
            Some(n) => self.committed[lane].saturating_sub(n),
            None => u32::MAX,
        });
        for (i, group) in self.groups.iter_mut().enumerate() {
            let index = self.base + i as u32;
            if limit.iter().all(|&l| l <= index) {
                break;
            }
            group.retain(|copy| {
                let finished = index < limit[copy.lane as usize];
                if finished {
                    done.push(*copy);
                }
                !finished
            });
        }
        let oldest_open = self.committed.iter().copied().min().unwrap_or(0);
        while self.base < oldest_open && self.groups.front().is_some_and(Vec::is_empty) {
            self.spare.extend(self.groups.pop_front());
            self.base += 1;
        }
        if self.groups.is_empty() {
            self.base = oldest_open;
        }
    }
}

/// Which way a bulk copy goes, and how its end is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Global to shared: completes its bytes at the mbarrier at this shared offset.
    Load { barrier: u32 },
    /// Shared to global, in the issuing lane's bulk group of this number.
    Store { group: u32 },
}

/// cp.async.bulk, of a run of bytes or of a box of a tensor.
#[derive(Debug, Clone)]
pub(crate) struct BulkCopy {
    pub warp: u32,
    pub lane: u32,
    /// Shared offset of the first byte.
    pub shared: u32,
    /// Bytes of shared memory.
    pub size: u32,
    /// What lies where; together `size` bytes.
    pub runs: Vec<Run>,
    pub direction: Direction,
    pub pc: u32,
}

/// Bytes of a bulk copy that lie one behind the other on both sides, a multiple of 4.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Run {
    /// Shared offset.
    pub shared: u32,
    /// Global address.
    pub global: u64,
    pub bytes: u32,
    /// The bytes that exist in global memory: others are loaded as zeros, and not stored.
    pub valid: std::ops::Range<u32>,
}

/// The arrival of cp.async.mbarrier.arrive, due when the lane's earlier copies are done.
#[derive(Debug, Clone)]
pub(crate) struct LateArrival {
    pub warp: u32,
    pub lane: u32,
    pub barrier: u32,
    pub copies: Vec<Copy>,
}

impl<'a> Cx<'a> {
    /// Moves the bytes of a copy; `source` is `None` for a copy of zeros.
    pub fn land_copy(&mut self, copy: &Copy, source: Option<Target<'a>>, cursor: &mut Cursor<'a>) {
        let size = u32::from(copy.source_size);
        let at = copy.destination as usize / 4;
        let n = copy.size as usize / 4;
        // Zeros past the source's size.
        let kept = |i: usize| byte_mask(((1u16 << (size as usize).saturating_sub(4 * i).min(4)) - 1) as u8);
        let words = source.map_or([0; WORDS], |s| self.read(s, size.next_multiple_of(4), 0, cursor));
        for i in 0..n {
            self.cta.shared[at + i] = words[i] & kept(i);
        }
        if self.tracks() {
            let undefined = source.map_or([0; WORDS], |s| self.read_shadow(s, size.next_multiple_of(4), 0, cursor));
            for i in 0..n {
                self.cta.shared_shadow[at + i] = undefined[i] & kept(i);
            }
        }
    }

    /// The executing lanes wait for their copies: see [`Pending::finish`].
    pub fn finish_copies(&mut self, allowed: Option<u32>) {
        let mut done = std::mem::take(&mut self.cta.finished);
        self.warp.pending.finish(self.mask, allowed, &mut done);
        self.land_copies(&done);
        for copy in &done {
            self.copy_waited_for(copy);
        }
        done.clear();
        self.cta.finished = done;
    }

    /// Moves the bytes of copies that were put off.
    fn land_copies(&mut self, copies: &[Copy]) {
        if self.env.options.cp_async == CpAsync::Eager {
            return;
        }
        let mut cursor = Cursor::default();
        for copy in copies {
            // It was checked when the copy started.
            let source = match copy.source_size {
                0 => None,
                _ => self
                    .env
                    .memory
                    .find(copy.source)
                    .and_then(|i| self.env.memory.get(i))
                    .map(|a| Target::Global(a, copy.source - a.base)),
            };
            self.land_copy(copy, source, &mut cursor);
        }
    }

    /// cp.async.mbarrier.arrive: at once if copies are eager, else when nothing else can move.
    pub fn arrive_after_copies(&mut self, barrier: u32, lane: u32) {
        let mut copies = Vec::new();
        self.warp.pending.finish(1 << lane, None, &mut copies);
        self.copies_handed_over(barrier, lane, &copies);
        let arrival = LateArrival { warp: self.warp.id, lane, barrier, copies };
        if self.env.options.cp_async == CpAsync::Eager {
            self.deliver_arrival(&arrival);
        } else {
            self.cta.late_arrivals.push(arrival);
        }
    }

    /// Carries out an arrival for the lane's copies.
    pub fn deliver_arrival(&mut self, arrival: &LateArrival) {
        self.land_copies(&arrival.copies);
        if let Some(barrier) = self.cta.mbarriers.get_mut(&arrival.barrier) {
            barrier.pending = barrier.pending.saturating_sub(1);
        }
        self.settle(arrival.barrier);
    }

    /// Completes the phase of an mbarrier if everything has arrived.
    pub fn settle(&mut self, barrier: u32) {
        let Some(b) = self.cta.mbarriers.get_mut(&barrier) else { return };
        if b.settle() {
            self.mbarrier_completed(barrier);
            self.report_unexpected(barrier);
        } else if b.pending == 0 && b.transactions < 0 {
            let (phase, more) = (b.phase, -b.transactions);
            let detail = format!(
                "all arrivals of phase {phase} are in, and copies have brought {more} bytes more than it expects: it can \
                 never complete"
            );
            let place = self.shared_address(barrier);
            self.report(FindingKind::BarrierMisuse, self.mask.trailing_zeros(), Some(place), None, detail);
        }
        self.cta.progress += 1;
    }

    /// A phase has completed: copies that were to complete on it and have not landed were not expected.
    fn report_unexpected(&mut self, barrier: u32) {
        let left = |copy: &&BulkCopy| copy.direction == Direction::Load { barrier };
        let Some(copy) = self.cta.bulk.iter().find(left).cloned() else { return };
        let phase = self.cta.mbarriers.get(&barrier).map_or(0, |b| b.phase.wrapping_sub(1));
        let detail = format!(
            "phase {phase} is complete before the {} bytes of a copy that was started in it: no `expect_tx` announced them",
            copy.size
        );
        let mut other = self.access(copy.lane);
        other.warp = copy.warp;
        other.at(self.env.code, copy.pc);
        let place = self.shared_address(barrier);
        self.report(FindingKind::BarrierMisuse, self.mask.trailing_zeros(), Some(place), Some(other), detail);
    }

    pub fn start_bulk(&mut self, copy: BulkCopy) {
        self.bulk_started(&copy);
        let eager = self.env.options.cp_async == CpAsync::Eager;
        if eager {
            self.deliver_bulk(&copy);
        }
        // A store stays on the list until its group is waited for, since its source must not change before.
        if !eager || matches!(copy.direction, Direction::Store { .. }) {
            self.cta.bulk.push(copy);
        }
    }

    /// Moves the bytes of a bulk copy and tells its mbarrier.
    pub fn deliver_bulk(&mut self, copy: &BulkCopy) {
        let mut cursor = Cursor::default();
        for run in &copy.runs {
            for at in (0..run.bytes).step_by(4) {
                let word = (run.shared + at) as usize / 4;
                let exists = (0..4).fold(0u8, |m, i| m | u8::from(run.valid.contains(&(at + i))) << i);
                let address = run.global.wrapping_add(at.into());
                match copy.direction {
                    Direction::Load { .. } => {
                        let (value, undefined) = self.gather(address, exists, &mut cursor);
                        self.cta.shared[word] = value;
                        if self.tracks() {
                            self.cta.shared_shadow[word] = byte_mask(undefined);
                        }
                    }
                    Direction::Store { .. } => {
                        let undefined = if self.tracks() { undefined_bytes(self.cta.shared_shadow[word]) } else { 0 };
                        self.scatter(address, exists, self.cta.shared[word], undefined, &mut cursor);
                    }
                }
            }
        }
        if let Direction::Load { barrier } = copy.direction {
            if let Some(b) = self.cta.mbarriers.get_mut(&barrier) {
                b.transactions -= i64::from(copy.size);
            }
            self.settle(barrier);
        }
    }

    /// Four bytes of global memory, zero where `exists` has no bit, and which of them are undefined.
    fn gather(&self, address: u64, exists: u8, cursor: &mut Cursor<'a>) -> (u32, u8) {
        let memory = self.env.memory;
        let found = |address| memory.find(address).and_then(|i| memory.get(i));
        if exists == 0xf && address.is_multiple_of(4) {
            let Some(allocation) = found(address) else { return (0, 0) };
            let offset = address - allocation.base;
            let undefined = if self.tracks() { cursor.undefined(allocation, offset) } else { 0 };
            return (cursor.load(allocation, offset), undefined);
        }
        let (mut value, mut undefined) = (0, 0);
        for i in (0..4).filter(|i| exists >> i & 1 != 0) {
            let byte = address.wrapping_add(i);
            let Some(allocation) = found(byte) else { continue };
            let (word, part) = ((byte - allocation.base) & !3, (byte - allocation.base) & 3);
            value |= (cursor.load(allocation, word) >> (8 * part) & 0xff) << (8 * i);
            undefined |= (cursor.undefined(allocation, word) >> part & 1) << i;
        }
        (value, undefined)
    }

    /// Stores the bytes of `value` that `exists` has a bit for.
    fn scatter(&self, address: u64, exists: u8, value: u32, undefined: u8, cursor: &mut Cursor<'a>) {
        let memory = self.env.memory;
        for i in (0..4).filter(|i| exists >> i & 1 != 0) {
            let byte = address.wrapping_add(i);
            let Some(allocation) = memory.find(byte).and_then(|i| memory.get(i)) else { continue };
            let (word, part) = ((byte - allocation.base) & !3, (byte - allocation.base) & 3);
            let (shift, bit) = (8 * part, 1u8 << part);
            let undefined = if undefined >> i & 1 != 0 { bit } else { 0 };
            cursor.store(allocation, word, (value >> (8 * i) & 0xff) << shift, bit, undefined);
        }
    }

    /// The executing lanes wait for all but their last `allowed` bulk groups.
    pub fn finish_bulk_stores(&mut self, allowed: u32) {
        let pending = std::mem::take(&mut self.cta.bulk);
        for copy in pending {
            let waited = match copy.direction {
                Direction::Store { group } if copy.warp == self.warp.id && self.mask >> copy.lane & 1 != 0 => {
                    group < self.warp.bulk_groups[copy.lane as usize].saturating_sub(allowed)
                }
                _ => false,
            };
            if waited {
                if self.env.options.cp_async == CpAsync::Late {
                    self.deliver_bulk(&copy);
                }
                self.bulk_store_waited_for(&copy);
            } else {
                self.cta.bulk.push(copy);
            }
        }
    }
}
