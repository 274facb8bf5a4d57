//! Device memory with guard zones, so that a write past a buffer is seen rather than lost in a neighbour.

use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaStream, result, sys};

use super::error::During;
use super::{Device, DeviceError};

/// Bytes before and behind an allocation that no kernel may touch.
pub const GUARD: usize = 64 << 10;

/// What guard zones, and the gaps between the segments of a buffer, hold.
pub const GUARD_BYTE: u8 = 0xa5;

/// Device memory of a fixed size, mostly between two guard zones; freed when dropped.
pub struct Allocation {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    /// Start of the leading guard zone.
    start: sys::CUdeviceptr,
    len: usize,
    /// Bytes of each guard zone; 0 for none.
    guard: usize,
}

impl Device {
    /// Allocates `len` bytes for `buffer`, 256-byte aligned, filled with [`GUARD_BYTE`] as its guard zones are.
    pub fn allocate(&self, buffer: &str, len: u64) -> Result<Allocation, DeviceError> {
        let allocation = self.allocate_with(buffer, len, GUARD)?;
        let bytes = allocation.len + 2 * GUARD;
        // SAFETY: the range was allocated just now.
        unsafe { result::memset_d8_async(allocation.start, GUARD_BYTE, bytes, self.stream.cu_stream()) }
            .during("cuMemsetD8")?;
        Ok(allocation)
    }

    /// The same without guard zones, and never written: what stands around `len` bytes, and in them, is for a tool such as
    /// compute-sanitizer to watch.
    pub fn allocate_bare(&self, buffer: &str, len: u64) -> Result<Allocation, DeviceError> {
        self.allocate_with(buffer, len, 0)
    }

    fn allocate_with(&self, buffer: &str, len: u64, guard: usize) -> Result<Allocation, DeviceError> {
        let needed = len.saturating_add(2 * guard as u64);
        let (free, _) = self.memory()?;
        let out_of_memory = || DeviceError::OutOfMemory { buffer: buffer.to_owned(), needed, free: free as u64 };
        let bytes = usize::try_from(needed).ok().filter(|bytes| *bytes <= free).ok_or_else(out_of_memory)?;
        self.context.bind_to_thread().during("cuCtxSetCurrent")?;
        // The driver does not allocate nothing.
        // SAFETY: freed once, by `Allocation`'s drop.
        let start = unsafe { result::malloc_sync(bytes.max(1)) }.during("cuMemAlloc")?;
        let (context, stream) = (self.context.clone(), self.stream.clone());
        Ok(Allocation { context, stream, start, len: bytes - 2 * guard, guard })
    }
}

impl Allocation {
    /// The address that kernels see.
    pub fn address(&self) -> u64 {
        self.start + self.guard as u64
    }

    /// Bytes of it, without guard zones.
    pub fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_of(&self, context: &CudaContext) -> bool {
        self.context.cu_ctx() == context.cu_ctx()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies `bytes` to `offset`, in the order of the device's stream.
    ///
    /// # Panics
    /// If they do not fit.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) -> Result<(), DeviceError> {
        self.within(offset as i64, bytes.len(), 0);
        self.context.bind_to_thread().during("cuCtxSetCurrent")?;
        let to = self.address() + offset as u64;
        // SAFETY: the range is inside the allocation, and pageable memory is copied before the call returns.
        unsafe { result::memcpy_htod_async(to, bytes, self.stream.cu_stream()) }.during("cuMemcpyHtoD")
    }

    /// Fills `len` bytes at `offset`, in the order of the device's stream.
    ///
    /// # Panics
    /// If they reach past the allocation.
    pub fn fill(&mut self, offset: usize, byte: u8, len: usize) -> Result<(), DeviceError> {
        self.within(offset as i64, len, 0);
        self.context.bind_to_thread().during("cuCtxSetCurrent")?;
        let to = self.address() + offset as u64;
        // SAFETY: the range is inside the allocation.
        unsafe { result::memset_d8_async(to, byte, len, self.stream.cu_stream()) }.during("cuMemsetD8")
    }

    /// Fills the allocation with `block` over and over, in the order of the device's stream.
    ///
    /// # Panics
    /// If the block is empty and the allocation is not.
    pub fn repeat(&mut self, block: &[u8]) -> Result<(), DeviceError> {
        let mut filled = block.len().min(self.len);
        assert!(filled > 0 || self.len == 0, "an empty block fills nothing");
        self.write(0, &block[..filled])?;
        // What is filled is a whole number of blocks until the last copy, so each copy continues it.
        while filled < self.len {
            let more = filled.min(self.len - filled);
            let (from, to) = (self.address(), self.address() + filled as u64);
            // SAFETY: both ranges are inside the allocation, and the second starts where the first ends.
            unsafe { result::memcpy_dtod_async(to, from, more, self.stream.cu_stream()) }.during("cuMemcpyDtoD")?;
            filled += more;
        }
        Ok(())
    }

    /// Copies all of `from`, in the order of the device's stream.
    ///
    /// # Panics
    /// If the two are of different lengths.
    pub fn copy(&mut self, from: &Allocation) -> Result<(), DeviceError> {
        assert_eq!(self.len, from.len, "both are of one length");
        self.context.bind_to_thread().during("cuCtxSetCurrent")?;
        let (to, from) = (self.address(), from.address());
        // SAFETY: both ranges are whole allocations, and `self` is borrowed mutably, so they are different ones.
        unsafe { result::memcpy_dtod_async(to, from, self.len, self.stream.cu_stream()) }.during("cuMemcpyDtoD")
    }

    /// Copies `out.len()` bytes back from `offset`, after everything on the stream; a negative offset reaches into the
    /// leading guard zone.
    ///
    /// # Panics
    /// If they reach past the guard zones.
    pub fn read(&self, offset: i64, out: &mut [u8]) -> Result<(), DeviceError> {
        self.within(offset, out.len(), self.guard);
        self.context.bind_to_thread().during("cuCtxSetCurrent")?;
        let from = self.address().wrapping_add_signed(offset);
        // SAFETY: the range is inside the allocation with its guard zones, and the synchronisation below keeps `out`
        // borrowed until the copy has ended.
        unsafe { result::memcpy_dtoh_async(out, from, self.stream.cu_stream()) }.during("cuMemcpyDtoH")?;
        self.stream.synchronize().during("cuStreamSynchronize")
    }

    fn within(&self, offset: i64, len: usize, slack: usize) {
        let (start, end) = (i128::from(offset), i128::from(offset) + len as i128);
        let slack = slack as i128;
        assert!(
            -slack <= start && end <= self.len as i128 + slack,
            "bytes {start}..{end} of an allocation of {} bytes",
            self.len
        );
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        self.context.record_err(self.context.bind_to_thread());
        // SAFETY: allocated by `cuMemAlloc`, freed once; `cuMemFree` waits for the device.
        self.context.record_err(unsafe { result::free_sync(self.start) });
    }
}
