//! Whether the emulator and a device leave the same bytes: the proof that what holds on one holds on the other.

use std::borrow::Cow;

use half::bf16;
use lathe_codegen::contract::{Buffer, Case};
use lathe_codegen::dtype::Dtype;
use lathe_runtime::backend::{Loaded, RunError, Schedule};
use lathe_runtime::device::DeviceError;
use serde::Serialize;

/// How two backends compare over some cases.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Agreement {
    /// Cases run on both.
    pub cases: usize,
    /// Cases in which every buffer is equal, bit for bit, but for bytes that CTAs may write without order.
    pub identical: usize,
    /// The buffers that are not.
    pub different: Vec<Difference>,
    /// Cases that only the emulator can hold, whose address spaces are sparse.
    pub too_large: Vec<String>,
}

/// A buffer that the backends leave different.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    pub case: String,
    pub buffer: String,
    /// Elements that differ.
    pub elements: usize,
    /// Elements in all.
    pub of: usize,
    /// The largest difference of two numbers, relative to the largest magnitude in their segment; nothing where an
    /// element is no floating-point number, or only one of two is finite.
    pub largest: Option<f64>,
}

impl Agreement {
    /// The largest difference of numbers, over all cases.
    pub fn largest(&self) -> f64 {
        self.different.iter().filter_map(|difference| difference.largest).fold(0.0, f64::max)
    }

    /// Buffers whose elements cannot be compared as numbers.
    pub fn incomparable(&self) -> usize {
        self.different.iter().filter(|difference| difference.largest.is_none()).count()
    }
}

/// Runs each of `cases` on both and compares what they leave.
pub fn compare(emulated: &dyn Loaded, real: &dyn Loaded, cases: &[Case]) -> Result<Agreement, RunError> {
    let mut agreement = Agreement::default();
    let schedule = Schedule::default();
    for case in cases {
        let real = match real.run(case, schedule) {
            Ok(run) => run.buffers,
            Err(RunError::Device(DeviceError::OutOfMemory { .. })) => {
                agreement.too_large.push(case.name.clone());
                continue;
            }
            Err(error) => return Err(error),
        };
        let emulated = emulated.run(case, schedule)?.buffers;
        let different: Vec<_> = emulated.iter().zip(&real).filter_map(|(a, b)| difference(&case.name, a, b)).collect();
        agreement.cases += 1;
        agreement.identical += usize::from(different.is_empty());
        agreement.different.extend(different);
    }
    Ok(agreement)
}

fn difference(case: &str, a: &Buffer, b: &Buffer) -> Option<Difference> {
    let size = a.dtype.size();
    let (a, b) = (ordered(a), ordered(b));
    let segments = || a.segments.iter().zip(&b.segments).map(|(a, b)| (&*a.bytes, &*b.bytes));
    let elements: usize =
        segments().map(|(a, b)| a.chunks(size).zip(b.chunks(size)).filter(|(a, b)| a != b).count()).sum();
    (elements > 0).then(|| Difference {
        case: case.to_owned(),
        buffer: a.name.clone(),
        elements,
        of: segments().map(|(a, _)| a.len() / size).sum(),
        largest: segments()
            .filter(|(a, b)| a != b)
            .try_fold(0.0_f64, |most, (x, y)| Some(most.max(largest_difference(a.dtype, x, y)?))),
    })
}

/// The buffer with its bytes that CTAs may write without order set to one value.
fn ordered(buffer: &Buffer) -> Cow<'_, Buffer> {
    if buffer.racy.is_empty() {
        return Cow::Borrowed(buffer);
    }
    let mut buffer = buffer.clone();
    for segment in &mut buffer.segments {
        let len = segment.bytes.len() as u64;
        let inside = |byte: u64| byte.saturating_sub(segment.offset).min(len) as usize;
        segment.bytes[inside(buffer.racy.start)..inside(buffer.racy.end)].fill(0);
    }
    Cow::Owned(buffer)
}

fn largest_difference(dtype: Dtype, a: &[u8], b: &[u8]) -> Option<f64> {
    let (a, b) = (floats(dtype, a)?, floats(dtype, b)?);
    let magnitude = a.iter().chain(&b).filter(|v| v.is_finite()).fold(0.0, |most: f64, v| most.max(v.abs()));
    // What the kernel did not write is a NaN on both sides.
    let mut pairs = a.iter().zip(&b).filter(|(a, b)| a != b && !(a.is_nan() && b.is_nan()));
    pairs
        .try_fold(0.0_f64, |most, (a, b)| (a.is_finite() && b.is_finite()).then(|| most.max((a - b).abs() / magnitude)))
}

fn floats(dtype: Dtype, bytes: &[u8]) -> Option<Vec<f64>> {
    match dtype {
        Dtype::F32 => Some(bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b).into()).collect()),
        Dtype::Bf16 => Some(bytes.as_chunks().0.iter().map(|b| bf16::from_le_bytes(*b).into()).collect()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compared(dtype: Dtype, a: &[f32], b: &[f32]) -> Option<Difference> {
        let buffer =
            |values: &[f32]| Buffer::from_bytes("out", dtype, values.iter().flat_map(|v| v.to_le_bytes()).collect());
        difference("a case", &buffer(a), &buffer(b))
    }

    #[test]
    fn equal_buffers_do_not_differ() {
        assert_eq!(compared(Dtype::F32, &[1.0, f32::NAN], &[1.0, f32::NAN]), None);
    }

    #[test]
    fn bytes_that_may_be_raced_for_are_not_compared() {
        let buffer = |byte: u8| {
            let mut buffer = Buffer::from_bytes("out", Dtype::U8, vec![1, byte, byte, 4]);
            buffer.racy = 1..3;
            buffer
        };
        assert_eq!(difference("a case", &buffer(2), &buffer(3)), None);
        let mut other = buffer(3);
        other.segments[0].bytes[3] = 5;
        assert_eq!(difference("a case", &buffer(2), &other).unwrap().elements, 1);
    }

    #[test]
    fn differences_are_relative_to_the_largest_magnitude() {
        let found = compared(Dtype::F32, &[1.0, -4.0, f32::NAN], &[1.5, -4.0, f32::NAN]).unwrap();
        assert_eq!((found.elements, found.of, found.largest), (1, 3, Some(0.125)));
    }

    #[test]
    fn a_number_against_a_nan_and_a_changed_integer_have_no_distance() {
        assert_eq!(compared(Dtype::F32, &[1.0], &[f32::NAN]).unwrap().largest, None);
        assert_eq!(compared(Dtype::I32, &[1.0], &[2.0]).unwrap().largest, None);
    }
}
