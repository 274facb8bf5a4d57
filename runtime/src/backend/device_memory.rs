//! Buffers of a launch in the memory of a device, and what a kernel wrote beside them.

use std::ops::Range;

use lathe_codegen::contract::{Buffer, POISON, Segment};

use crate::device::{Allocation, Device, DeviceError, GUARD, GUARD_BYTE};

/// What lies in the memory of a launch besides its buffers' defined bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// Guard zones around a buffer, poison where it is undefined.
    Guarded,
    /// Nothing around it, for compute-sanitizer to watch; poison where it is undefined.
    Bare,
    /// Nothing around it, and what is undefined was never written.
    BareAndUnwritten,
}

/// Device memory with the contents of `buffer`.
pub(crate) fn upload(device: &Device, buffer: &Buffer, rest: Rest) -> Result<Allocation, DeviceError> {
    let mut allocation = match rest {
        Rest::Guarded => device.allocate(&buffer.name, buffer.len)?,
        Rest::Bare | Rest::BareAndUnwritten => device.allocate_bare(&buffer.name, buffer.len)?,
    };
    for segment in buffer.segments.iter().filter(|segment| rest.writes(segment)) {
        let offset = segment.offset as usize;
        if segment.bytes.iter().all(|byte| *byte == POISON) {
            allocation.fill(offset, POISON, segment.bytes.len())?;
        } else {
            allocation.write(offset, &segment.bytes)?;
        }
    }
    Ok(allocation)
}

impl Rest {
    /// What `bare` memory holds where a buffer is undefined: poison, whose change a judge sees, if the kernel may write
    /// it; else nothing, so that initcheck sees who reads it.
    pub(crate) fn of(bare: bool, may_write: bool) -> Self {
        match (bare, may_write) {
            (false, _) => Rest::Guarded,
            (true, true) => Rest::Bare,
            (true, false) => Rest::BareAndUnwritten,
        }
    }

    /// Whether a segment is written before the launch, and so can be read back after it.
    pub(crate) fn writes(self, segment: &Segment) -> bool {
        segment.defined || self != Rest::BareAndUnwritten
    }
}

/// Looks at the guard zones and at the edges of the gaps between segments for bytes that the kernel changed.
pub(crate) fn stray_write(allocation: &Allocation, buffer: &Buffer) -> Result<Option<String>, DeviceError> {
    let mut bytes = vec![0; GUARD];
    for range in unmapped_edges(buffer) {
        let bytes = &mut bytes[..(range.end - range.start) as usize];
        allocation.read(range.start, bytes)?;
        if let Some(at) = bytes.iter().position(|byte| *byte != GUARD_BYTE) {
            let offset = range.start + at as i64;
            return Ok(Some(format!(
                "byte {offset} of `{}`, which no segment maps, was written: it holds {:#04x}",
                buffer.name, bytes[at]
            )));
        }
    }
    Ok(None)
}

/// The bytes next to every segment that belong to no segment, at most [`GUARD`] on each side; both guard zones included.
fn unmapped_edges(buffer: &Buffer) -> Vec<Range<i64>> {
    let guard = GUARD as i64;
    let mut edges = Vec::new();
    let mut end = -guard;
    let starts = buffer.segments.iter().map(|s| (s.offset as i64, s.offset as i64 + s.bytes.len() as i64));
    let past = buffer.len as i64 + guard;
    for (start, next_end) in starts.chain([(past, past)]) {
        match start - end {
            gap if gap <= 0 => {}
            gap if gap <= guard => edges.push(end..start),
            gap => {
                edges.push(end..end + guard.min(gap));
                edges.push(start - guard..start);
            }
        }
        end = next_end;
    }
    edges
}

#[cfg(test)]
mod tests {
    use lathe_codegen::dtype::Dtype;

    use super::*;

    fn edges(len: u64, segments: &[(u64, usize)]) -> Vec<Range<i64>> {
        let segments =
            segments.iter().map(|(offset, n)| Segment { offset: *offset, bytes: vec![0; *n], defined: true });
        unmapped_edges(&Buffer { name: String::new(), dtype: Dtype::U8, len, segments: segments.collect(), racy: 0..0 })
    }

    const G: i64 = GUARD as i64;

    #[test]
    fn a_dense_buffer_has_its_two_guard_zones() {
        assert_eq!(edges(100, &[(0, 100)]), [-G..0, 100..100 + G]);
    }

    #[test]
    fn gaps_are_watched_at_both_ends() {
        assert_eq!(edges(1 << 20, &[(0, 16), (20, 12), (1 << 19, 16)]).len(), 2 + 1 + 2 + 1);
        assert!(edges(1 << 20, &[(0, 16), (20, 12), (1 << 19, 16)]).contains(&(16..20)));
        assert!(edges(1 << 20, &[(0, 16), (20, 12), (1 << 19, 16)]).contains(&(32..32 + G)));
    }

    #[test]
    fn adjacent_segments_have_no_gap() {
        assert_eq!(edges(8, &[(0, 4), (4, 4)]), [-G..0, 8..8 + G]);
    }

    #[test]
    fn only_what_a_kernel_cannot_write_stays_unwritten() {
        let segment = |defined| Segment { offset: 0, bytes: vec![POISON; 4], defined };
        for (bare, may_write, undefined_is_written) in
            [(false, false, true), (false, true, true), (true, true, true), (true, false, false)]
        {
            let rest = Rest::of(bare, may_write);
            assert!(rest.writes(&segment(true)));
            assert_eq!(rest.writes(&segment(false)), undefined_is_written, "{rest:?}");
        }
    }
}
