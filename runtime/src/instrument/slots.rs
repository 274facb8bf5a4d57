//! Canaries that know how a cache of keys is laid out: pages nobody owns, and slots that keep what was stored in them.

use std::collections::BTreeMap;
use std::ops::Range;

use lathe_graph::model::BufferId;

use crate::replay::Inspect;

/// Where a cache's slots lie in its buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paged {
    /// The buffer.
    pub buffer: BufferId,
    /// Bytes of a slot: 256 of bf16 index keys.
    pub slot_bytes: u64,
    /// Slots of a page.
    pub page_slots: u64,
    /// Bytes from one page to the next.
    pub page_bytes: u64,
}

impl Paged {
    /// The bytes of a slot.
    pub fn slot(&self, slot: u64) -> Range<u64> {
        let start = slot / self.page_slots * self.page_bytes + slot % self.page_slots * self.slot_bytes;
        start..start + self.slot_bytes
    }

    /// The bytes of a page.
    pub fn page(&self, page: u64) -> Range<u64> {
        page * self.page_bytes..(page + 1) * self.page_bytes
    }
}

/// Pages that no request owns, filled with a pattern: whatever writes there is a stray.
#[derive(Clone, Debug)]
pub struct Sentinels {
    cache: Paged,
    pages: Vec<u64>,
}

impl Sentinels {
    /// Watches `pages` of `cache`.
    pub fn new(cache: Paged, pages: impl IntoIterator<Item = u64>) -> Self {
        Self { cache, pages: pages.into_iter().collect() }
    }

    /// Writes the pattern into what the cache holds before the replays. Pages past its end are none of it.
    pub fn fill(&self, content: &mut [u8]) {
        for &page in &self.pages {
            let range = self.cache.page(page);
            let bytes = content.iter_mut().enumerate().skip(range.start as usize).take(self.cache.page_bytes as usize);
            bytes.for_each(|(at, byte)| *byte = pattern(at as u64));
        }
    }

    /// The pages that no longer hold the pattern, each with its first wrong byte.
    ///
    /// # Errors
    /// The world's.
    pub fn broken<W: Inspect>(&self, world: &mut W) -> Result<Vec<(u64, u64)>, W::Error> {
        let content = world.bytes(self.cache.buffer)?;
        let is_wrong = |at: &u64| content.get(*at as usize).is_some_and(|byte| *byte != pattern(*at));
        let first = |&page: &u64| Some((page, self.cache.page(page).find(is_wrong)?));
        Ok(self.pages.iter().filter_map(first).collect())
    }
}

/// A byte that depends on its place, so that a page copied elsewhere shows too.
fn pattern(at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// What steps have stored so far: a slot keeps its bytes until a later step stores there.
#[derive(Clone, Debug)]
pub struct OldSlots {
    cache: Paged,
    stored: BTreeMap<u64, Vec<u8>>,
}

impl OldSlots {
    /// Nothing stored yet.
    pub fn new(cache: Paged) -> Self {
        Self { cache, stored: BTreeMap::new() }
    }

    /// Looks after a step that stored to `slots` (negative ones store nothing): the earlier slots that changed. From here on
    /// the step's own are watched too.
    ///
    /// # Errors
    /// The world's.
    pub fn after_step<W: Inspect>(
        &mut self,
        world: &mut W,
        slots: impl IntoIterator<Item = i64>,
    ) -> Result<Vec<u64>, W::Error> {
        let content = world.bytes(self.cache.buffer)?;
        let held = |slot: u64| {
            let Range { start, end } = self.cache.slot(slot);
            content.get(start as usize..end as usize)
        };
        let own: Vec<u64> = slots.into_iter().filter_map(|slot| u64::try_from(slot).ok()).collect();
        let changed = |(slot, bytes): (&u64, &Vec<u8>)| {
            (!own.contains(slot) && held(*slot) != Some(bytes.as_slice())).then_some(*slot)
        };
        let changed: Vec<u64> = self.stored.iter().filter_map(changed).collect();
        let new: Vec<(u64, Vec<u8>)> = own.iter().filter_map(|&slot| Some((slot, held(slot)?.to_vec()))).collect();
        self.stored.extend(new);
        Ok(changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instrument::{Canary, Expected};
    use lathe_graph::explore::World;
    use lathe_graph::finding::Step;
    use lathe_graph::model::Pool;
    use std::convert::Infallible;

    const CACHE: Paged = Paged { buffer: BufferId(0), slot_bytes: 8, page_slots: 4, page_bytes: 40 };

    /// Memory that the test writes itself.
    struct Bytes(Vec<u8>);

    impl World for Bytes {
        type Error = Infallible;

        fn reset(&mut self) -> Result<(), Infallible> {
            Ok(())
        }

        fn run(&mut self, _: Step) -> Result<(), Infallible> {
            Ok(())
        }

        fn observe(&mut self) -> Result<Vec<(BufferId, u64)>, Infallible> {
            Ok(Vec::new())
        }
    }

    impl Inspect for Bytes {
        fn bytes(&mut self, _: BufferId) -> Result<Vec<u8>, Infallible> {
            Ok(self.0.clone())
        }
    }

    #[test]
    fn a_stray_write_breaks_a_sentinel_and_no_other() {
        let mut memory = Bytes(vec![0; 160]);
        let sentinels = Sentinels::new(CACHE, [1, 3]);
        sentinels.fill(&mut memory.0);
        assert_eq!(sentinels.broken(&mut memory), Ok(vec![]));
        memory.0[85] ^= 1;
        assert_eq!(sentinels.broken(&mut memory), Ok(vec![]), "page 2 has an owner");
        memory.0[79] ^= 1;
        assert_eq!(sentinels.broken(&mut memory), Ok(vec![(1, 79)]));
        // Page 1 copied over page 3 is no pattern of page 3.
        memory.0.copy_within(40..80, 120);
        assert_eq!(sentinels.broken(&mut memory).map(|broken| broken.len()), Ok(2));
    }

    #[test]
    fn a_slot_may_change_only_by_the_step_that_stores_there() {
        let mut memory = Bytes(vec![0; 160]);
        let mut old = OldSlots::new(CACHE);
        memory.0[CACHE.slot(5).start as usize] = 7;
        assert_eq!(old.after_step(&mut memory, [5, -1]), Ok(vec![]));
        memory.0[CACHE.slot(6).start as usize] = 8;
        assert_eq!(old.after_step(&mut memory, [6]), Ok(vec![]));
        memory.0[CACHE.slot(5).start as usize] = 9;
        assert_eq!(old.after_step(&mut memory, [2]), Ok(vec![5]), "nobody stored to slot 5");
        memory.0[CACHE.slot(6).start as usize] = 10;
        assert_eq!(old.after_step(&mut memory, [6, 5]), Ok(vec![]), "slots stored to again");
    }

    #[test]
    fn pages_are_the_coarse_mode_and_a_digest_the_coarsest() {
        let pool = Pool::new();
        let mut memory = Bytes(vec![0; 160]);
        let pages = Canary::new([CACHE.buffer], CACHE.page_bytes);
        let before = pages.snapshot(&mut memory).unwrap();
        assert_eq!(before.digests(), pages.snapshot(&mut memory).unwrap().digests());
        // The dummy page, a page that a slot of the step is in, and one that is nobody's.
        for byte in [3, 45, 130] {
            memory.0[byte] = 1;
        }
        let after = pages.snapshot(&mut memory).unwrap();
        assert_ne!(before.digests(), after.digests());
        let expected = Expected::nothing().pages(CACHE, [6, -1]);
        let found = pages.compare(&pool, &before, &after, &expected);
        assert_eq!(found.iter().map(|i| (i.chunk.clone(), i.first)).collect::<Vec<_>>(), [(120..160, 130)]);
    }
}
