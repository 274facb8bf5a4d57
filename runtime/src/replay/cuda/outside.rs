//! What someone outside the step does to its buffers, on a stream of their own.

use std::ops::Range;

use lathe_graph::model::BufferId;

use super::CudaStep;
use crate::device::{Allocation, Stream};
use crate::replay::StepError;

/// Nothing orders these but what the caller does with streams and events: that is what they are for.
impl CudaStep<'_> {
    /// Copies bytes of `buffer` to the start of `to`, on `stream`.
    ///
    /// # Errors
    /// [`StepError::Update`] if the range is not in both, [`StepError::Freed`], or the device's.
    pub fn save(&self, stream: &Stream, buffer: BufferId, range: Range<u64>, to: &Allocation) -> Result<(), StepError> {
        let start = self.outside(buffer, &range, Some(to))?;
        // SAFETY: both ranges were compared with their memory, which the step and the caller keep.
        unsafe { self.device.copy_on(stream, to.address(), start, range.end - range.start) }.map_err(StepError::from)
    }

    /// Copies the start of `from` to bytes of `buffer`, on `stream`.
    ///
    /// # Errors
    /// As [`CudaStep::save`].
    pub fn load(
        &self,
        stream: &Stream,
        buffer: BufferId,
        range: Range<u64>,
        from: &Allocation,
    ) -> Result<(), StepError> {
        let start = self.outside(buffer, &range, Some(from))?;
        // SAFETY: as in `save`.
        unsafe { self.device.copy_on(stream, start, from.address(), range.end - range.start) }.map_err(StepError::from)
    }

    /// Fills bytes of `buffer`, on `stream`.
    ///
    /// # Errors
    /// As [`CudaStep::save`].
    pub fn fill(&self, stream: &Stream, buffer: BufferId, range: Range<u64>, byte: u8) -> Result<(), StepError> {
        let start = self.outside(buffer, &range, None)?;
        // SAFETY: as in `save`.
        unsafe { self.device.fill_on(stream, start, byte, range.end - range.start) }.map_err(StepError::from)
    }

    /// The address of the range, if it lies in the buffer and is no longer than `other`.
    fn outside(&self, buffer: BufferId, range: &Range<u64>, other: Option<&Allocation>) -> Result<u64, StepError> {
        if self.arena.is_none() {
            return Err(StepError::Freed);
        }
        let of = self.pool.buffer(buffer);
        let room = other.map_or(u64::MAX, |memory| memory.len() as u64);
        if range.start > range.end || range.end > of.size || range.end - range.start > room {
            let (name, size) = (&of.name, of.size);
            return Err(StepError::Update(format!(
                "bytes {range:?} of `{name}`: it has {size}, and the memory on the other side {room}"
            )));
        }
        let start = self.placement.address(buffer).ok_or_else(|| StepError::Unplaced(of.name.clone()))?;
        Ok(start + range.start)
    }
}
