//! Building buffers, and finding what changed in them.

use lathe_codegen::contract::{Buffer, Segment};
use lathe_codegen::dtype::Dtype;

/// A fully mapped, defined buffer of little-endian elements.
pub(super) fn buffer<T: Copy, const N: usize>(
    name: &str,
    dtype: Dtype,
    elements: &[T],
    to_bytes: impl Fn(T) -> [u8; N],
) -> Buffer {
    Buffer::from_bytes(name, dtype, elements.iter().flat_map(|&e| to_bytes(e)).collect())
}

/// Appends `bytes` at `offset`, growing the last segment where they continue it.
pub(super) fn append(segments: &mut Vec<Segment>, offset: u64, bytes: &[u8], defined: bool) {
    if bytes.is_empty() {
        return;
    }
    match segments.last_mut() {
        Some(last) if last.offset + last.bytes.len() as u64 == offset && last.defined == defined => {
            last.bytes.extend_from_slice(bytes);
        }
        _ => segments.push(Segment { offset, bytes: bytes.to_vec(), defined }),
    }
}

/// A list of failures that stays readable: the first few in full, the rest counted.
#[derive(Default)]
pub(super) struct Failures {
    shown: Vec<String>,
    more: usize,
}

impl Failures {
    const SHOWN: usize = 8;

    pub(super) fn push(&mut self, failure: impl FnOnce() -> String) {
        if self.shown.len() < Self::SHOWN {
            self.shown.push(failure());
        } else {
            self.more += 1;
        }
    }

    pub(super) fn extend(&mut self, other: Failures) {
        let others = other.shown.len();
        let room = Self::SHOWN - self.shown.len();
        self.shown.extend(other.shown.into_iter().take(room));
        self.more += other.more + others.saturating_sub(room);
    }

    pub(super) fn into_lines(mut self) -> Vec<String> {
        if self.more > 0 {
            self.shown.push(format!("and {} more", self.more));
        }
        self.shown
    }
}

/// Reports every run of bytes in which `after` differs from `before`.
pub(super) fn expect_unchanged(before: &Buffer, after: &Buffer, failures: &mut Failures) {
    if before.segments.len() != after.segments.len() {
        failures.push(|| format!("`{}` came back with other segments", before.name));
        return;
    }
    for (before_segment, after_segment) in before.segments.iter().zip(&after.segments) {
        let (old, new) = (&before_segment.bytes, &after_segment.bytes);
        if old == new {
            continue;
        }
        let mut at = 0;
        while let Some(first) = (at..old.len().min(new.len())).find(|&i| old[i] != new[i]) {
            let end = (first..old.len().min(new.len())).find(|&i| old[i] == new[i]).unwrap_or(old.len());
            failures.push(|| {
                let from = before_segment.offset + first as u64;
                format!(
                    "`{}` must not change, but bytes {from}..{} did ({:#04x} became {:#04x})",
                    before.name,
                    from + (end - first) as u64,
                    old[first],
                    new[first]
                )
            });
            at = end;
        }
        if old.len() != new.len() {
            failures.push(|| format!("`{}` came back with another size", before.name));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn appending_joins_what_continues_and_keeps_gaps() {
        let mut segments = Vec::new();
        append(&mut segments, 0, &[1, 2], true);
        append(&mut segments, 2, &[3], true);
        append(&mut segments, 3, &[4], false);
        append(&mut segments, 100, &[5], false);
        let shape: Vec<_> = segments.iter().map(|s| (s.offset, s.bytes.clone(), s.defined)).collect();
        assert_eq!(shape, [(0, vec![1, 2, 3], true), (3, vec![4], false), (100, vec![5], false)]);
    }

    #[test]
    fn changes_are_reported_as_ranges() {
        let before = Buffer::from_bytes("k", Dtype::U8, vec![0; 10]);
        let mut after = before.clone();
        after.segments[0].bytes[2..4].fill(7);
        after.segments[0].bytes[9] = 1;
        let mut failures = Failures::default();
        expect_unchanged(&before, &after, &mut failures);
        let lines = failures.into_lines();
        assert_eq!(lines.len(), 2);
        assert!(lines[0].contains("bytes 2..4 did (0x00 became 0x07)"), "{}", lines[0]);
        assert!(lines[1].contains("bytes 9..10"), "{}", lines[1]);
    }
}
