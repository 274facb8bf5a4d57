//! Where buffers lie.

use super::{BufferId, Pool};
use std::ops::Range;

/// An address for each placed buffer of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    addresses: Vec<Option<u64>>,
}

impl Placement {
    /// Nothing placed.
    pub fn empty(pool: &Pool) -> Self {
        Self { addresses: vec![None; pool.buffers().len()] }
    }

    /// The addresses that the buffers themselves give.
    pub fn given(pool: &Pool) -> Self {
        Self { addresses: pool.buffers().iter().map(|b| b.address).collect() }
    }

    /// Is any buffer placed?
    pub fn is_empty(&self) -> bool {
        self.addresses.iter().all(Option::is_none)
    }

    /// Puts `buffer` at `address`.
    pub fn set(&mut self, buffer: BufferId, address: u64) {
        if self.addresses.len() <= buffer.index() {
            self.addresses.resize(buffer.index() + 1, None);
        }
        self.addresses[buffer.index()] = Some(address);
    }

    /// The address of `buffer`, if it is placed.
    pub fn address(&self, buffer: BufferId) -> Option<u64> {
        self.addresses.get(buffer.index()).copied().flatten()
    }

    /// The bytes of `buffer`, if it is placed.
    pub fn range(&self, pool: &Pool, buffer: BufferId) -> Option<Range<u64>> {
        let start = self.address(buffer)?;
        Some(start..start.saturating_add(pool.buffer(buffer).size))
    }

    /// Every placed buffer with its address, by id.
    pub fn iter(&self) -> impl Iterator<Item = (BufferId, u64)> + '_ {
        let placed = |(i, a): (usize, &Option<u64>)| a.map(|a| (BufferId::at(i), a));
        self.addresses.iter().enumerate().filter_map(placed)
    }
}
