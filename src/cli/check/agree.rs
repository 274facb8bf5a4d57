//! Whether the emulator and a device leave the same bytes: the proof that what holds on one holds on the other.

use half::bf16;
use lathe_codegen::contract::{Buffer, Case};
use lathe_codegen::dtype::Dtype;
use lathe_runtime::backend::{Loaded, RunError, Schedule};
use serde::Serialize;

/// How two backends compare over some cases.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Agreement {
    /// Cases run on both.
    pub cases: usize,
    /// Cases in which every buffer is equal, bit for bit.
    pub identical: usize,
    /// The largest difference of two elements, relative to the largest magnitude in their segment; infinite where
    /// elements differ that are no floats, or only one of the two is finite.
    pub largest_difference: f64,
}

/// Runs each of `cases` on both and compares what they leave.
pub fn compare(emulated: &dyn Loaded, real: &dyn Loaded, cases: &[Case]) -> Result<Agreement, RunError> {
    let mut agreement = Agreement { cases: cases.len(), ..Agreement::default() };
    for case in cases {
        let schedule = Schedule::default();
        let (emulated, real) = (emulated.run(case, schedule)?.buffers, real.run(case, schedule)?.buffers);
        agreement.identical += usize::from(emulated == real);
        let differences = emulated.iter().zip(&real).map(|(a, b)| difference(a, b));
        agreement.largest_difference = differences.fold(agreement.largest_difference, f64::max);
    }
    Ok(agreement)
}

fn difference(a: &Buffer, b: &Buffer) -> f64 {
    let segments = a.segments.iter().zip(&b.segments).filter(|(a, b)| a.bytes != b.bytes);
    segments.map(|(x, y)| difference_of_bytes(a.dtype, &x.bytes, &y.bytes)).fold(0.0, f64::max)
}

fn difference_of_bytes(dtype: Dtype, a: &[u8], b: &[u8]) -> f64 {
    let (Some(a), Some(b)) = (floats(dtype, a), floats(dtype, b)) else { return f64::INFINITY };
    // What the kernel did not write is a NaN on both sides.
    let magnitude = a.iter().chain(&b).filter(|v| v.is_finite()).fold(0.0, |most: f64, v| most.max(v.abs()));
    let pairs = a.iter().zip(&b).filter(|(a, b)| a != b && !(a.is_nan() && b.is_nan()));
    pairs
        .map(|(a, b)| if a.is_finite() && b.is_finite() { (a - b).abs() / magnitude } else { f64::INFINITY })
        .fold(0.0, f64::max)
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

    fn buffer(dtype: Dtype, values: &[f32]) -> Buffer {
        Buffer::from_bytes("out", dtype, values.iter().flat_map(|v| v.to_le_bytes()).collect())
    }

    #[test]
    fn differences_are_relative_to_the_largest_magnitude() {
        let (a, b) = (buffer(Dtype::F32, &[1.0, -4.0, f32::NAN]), buffer(Dtype::F32, &[1.5, -4.0, f32::NAN]));
        assert_eq!(difference(&a, &a), 0.0);
        assert_eq!(difference(&a, &b), 0.125);
    }

    #[test]
    fn a_number_against_a_nan_or_a_changed_integer_is_infinitely_far() {
        let (a, b) = (buffer(Dtype::F32, &[1.0]), buffer(Dtype::F32, &[f32::NAN]));
        assert_eq!(difference(&a, &b), f64::INFINITY);
        let (a, b) = (buffer(Dtype::I32, &[1.0]), buffer(Dtype::I32, &[2.0]));
        assert_eq!(difference(&a, &b), f64::INFINITY);
    }
}
