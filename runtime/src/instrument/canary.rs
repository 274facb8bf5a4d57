//! The canary: did a replay change bytes of a persistent buffer that nothing in it may write?

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hasher};
use std::ops::Range;

use lathe_graph::model::{BufferId, NodeId, Pool};

use super::Paged;
use crate::replay::Inspect;

/// Watches persistent buffers around replays, bit for bit, so that NaN and -0 are values like others.
#[derive(Clone, Debug)]
pub struct Canary {
    watched: Vec<BufferId>,
    chunk: u64,
}

/// What the watched buffers held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    bytes: BTreeMap<BufferId, Vec<u8>>,
}

/// The bytes that a replay may write.
#[derive(Clone, Debug, Default)]
pub struct Expected {
    ranges: BTreeMap<BufferId, Vec<Range<u64>>>,
}

/// A chunk that changed though nothing may write it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intrusion {
    /// The buffer.
    pub buffer: BufferId,
    /// Its chunk.
    pub chunk: Range<u64>,
    /// The first byte of it that changed.
    pub first: u64,
    /// How many bytes of it changed.
    pub bytes: u64,
    /// The nodes that declare to write bytes of the chunk, at the addresses where they lie.
    pub writers: Vec<NodeId>,
}

impl Canary {
    /// Watches `buffers` in chunks of `chunk` bytes: 256 for the slots of a bf16 index K, 16,384 for its pages.
    pub fn new(buffers: impl IntoIterator<Item = BufferId>, chunk: u64) -> Self {
        Canary { watched: buffers.into_iter().collect(), chunk: chunk.max(1) }
    }

    /// What the watched buffers hold now.
    ///
    /// # Errors
    /// The world's.
    pub fn snapshot<W: Inspect>(&self, world: &mut W) -> Result<Snapshot, W::Error> {
        let bytes = self.watched.iter().map(|&id| Ok((id, world.bytes(id)?)));
        Ok(Snapshot { bytes: bytes.collect::<Result<_, _>>()? })
    }

    /// The chunks that changed outside `expected`.
    pub fn compare(&self, pool: &Pool, before: &Snapshot, after: &Snapshot, expected: &Expected) -> Vec<Intrusion> {
        let mut intrusions = Vec::new();
        for (&buffer, old) in &before.bytes {
            let Some(new) = after.bytes.get(&buffer) else { continue };
            let changed = |at: &u64| old[*at as usize] != new[*at as usize] && !expected.covers(buffer, *at);
            let size = old.len().min(new.len()) as u64;
            for start in (0..size).step_by(self.chunk as usize) {
                let chunk = start..(start + self.chunk).min(size);
                let bytes = chunk.start as usize..chunk.end as usize;
                if old[bytes.clone()] == new[bytes] {
                    continue;
                }
                let mut bytes = chunk.clone().filter(changed);
                let Some(first) = bytes.next() else { continue };
                let bytes = 1 + bytes.count() as u64;
                let writers = writers(pool, buffer, &chunk);
                intrusions.push(Intrusion { buffer, chunk, first, bytes, writers });
            }
        }
        intrusions
    }
}

impl Snapshot {
    /// One hash of each buffer, for steps in which nothing at all may change.
    pub fn digests(&self) -> Vec<(BufferId, u64)> {
        let digest = |(id, bytes): (&BufferId, &Vec<u8>)| {
            let mut hasher = DefaultHasher::new();
            hasher.write(bytes);
            (*id, hasher.finish())
        };
        self.bytes.iter().map(digest).collect()
    }
}

impl Expected {
    /// Nothing may change.
    pub fn nothing() -> Self {
        Self::default()
    }

    /// Bytes that a writer of the step, or the lease of one outside it, covers.
    #[must_use]
    pub fn range(mut self, buffer: BufferId, range: Range<u64>) -> Self {
        self.ranges.entry(buffer).or_default().push(range);
        self
    }

    /// The slots that a store writes, `slot_bytes` each, page after page of `page_slots`, pages `page_bytes` apart.
    /// Negative slots store nothing.
    #[must_use]
    pub fn slots(
        mut self,
        buffer: BufferId,
        slots: impl IntoIterator<Item = i64>,
        slot_bytes: u64,
        page_slots: u64,
        page_bytes: u64,
    ) -> Self {
        for slot in slots.into_iter().filter_map(|slot| u64::try_from(slot).ok()) {
            let start = slot / page_slots * page_bytes + slot % page_slots * slot_bytes;
            self = self.range(buffer, start..start + slot_bytes);
        }
        self
    }

    /// The whole pages that these slots are in, and page 0, where padded rows store: the coarse mode.
    #[must_use]
    pub fn pages(mut self, cache: Paged, slots: impl IntoIterator<Item = i64>) -> Self {
        let slots = slots.into_iter().filter_map(|slot| u64::try_from(slot).ok());
        let pages: BTreeSet<u64> = slots.map(|slot| slot / cache.page_slots).chain([0]).collect();
        for page in pages {
            self = self.range(cache.buffer, cache.page(page));
        }
        self
    }

    fn covers(&self, buffer: BufferId, byte: u64) -> bool {
        self.ranges.get(&buffer).is_some_and(|ranges| ranges.iter().any(|range| range.contains(&byte)))
    }
}

fn writers(pool: &Pool, buffer: BufferId, chunk: &Range<u64>) -> Vec<NodeId> {
    let reaches = |id: &NodeId| {
        let mut accesses = pool.node(*id).accesses.iter();
        accesses.any(|access| {
            let overlaps = access.range.start < chunk.end && chunk.start < access.range.end;
            access.buffer == buffer && access.effect.writes() && overlaps
        })
    };
    pool.node_ids().filter(reaches).collect()
}
