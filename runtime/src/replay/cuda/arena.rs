//! The memory of a step.

use lathe_graph::model::{Placement, Pool};

use crate::device::{Allocation, Device, DeviceError};

/// One allocation that holds every placed buffer.
pub(super) struct Arena {
    memory: Allocation,
    /// Device address minus address of the placement.
    offset: u64,
    bytes: u64,
}

impl Arena {
    /// Allocates what `placement` spans.
    pub fn of(device: &Device, pool: &Pool, placement: &Placement) -> Result<Self, DeviceError> {
        let ranges = || pool.buffer_ids().filter_map(|id| placement.range(pool, id));
        let align = pool.buffers().iter().map(|buffer| buffer.align).max().unwrap_or(1);
        let start = ranges().map(|range| range.start).min().unwrap_or(0) / align * align;
        let bytes = ranges().map(|range| range.end).max().unwrap_or(0) - start;
        let memory = device.allocate("arena", bytes.saturating_add(align))?;
        let first = memory.address().next_multiple_of(align);
        Ok(Arena { memory, offset: first.wrapping_sub(start), bytes })
    }

    /// The placement in device addresses.
    pub fn place(&self, placement: &Placement) -> Placement {
        let mut placed = placement.clone();
        for (id, address) in placement.iter() {
            placed.set(id, address.wrapping_add(self.offset));
        }
        placed
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Everything between the guard zones.
    pub fn fill(&mut self, byte: u8) -> Result<(), DeviceError> {
        self.memory.fill(0, byte, self.memory.len())
    }

    /// Writes to a device address of the arena.
    pub fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.memory.write((address - self.memory.address()) as usize, bytes)
    }

    /// Reads from a device address of the arena.
    pub fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), DeviceError> {
        self.memory.read((address - self.memory.address()) as i64, bytes)
    }
}
