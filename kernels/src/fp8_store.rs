//! The index-K store of keys quantised to e4m3.

use std::array::from_fn;

use lathe_codegen::benchmark::Benchmark;
use lathe_codegen::contract::Scale;
use lathe_codegen::dtype::Dtype;
use lathe_codegen::entry::{Entry, Variant};
use lathe_codegen::prelude::*;
use lathe_dsl::kernel;

use crate::benchmarks::store;
use crate::cases::store::scatter_cases;
use crate::contract::KeyFormat;
use crate::equivalents;

/// Stores row i of `keys` in slot `slots[i]` of the pool as e4m3, its scale beside it. A negative slot stores nothing.
#[kernel(warps = 4)]
pub fn fp8_index_k_store<S: Element>(
    #[comptime] power_of_two: bool,
    #[comptime] rows_a_thread: i32,
    #[read] keys: Rows<bf16>,
    #[read] slots: Slice<S>,
    #[write_part] k_pages: Rows<e4m3>,
    #[write_part] k_scales: Rows<f32>,
    rows: Scalar<i32>,
) {
    // Half a warp a row, 8 values a lane.
    let first = cta::x() * (8 * rows_a_thread) + thread::id() / 16;
    let part = thread::id() % 16;

    pdl::launch_dependents();
    pdl::wait();
    // Every lane takes part in the reduction: rows past the end repeat the last.
    let mut fetched = Vec::new();
    for i in 0..rows_a_thread {
        let row = first + i * 8;
        let source = row.min(rows - 1);
        let slot = slots.at(source).load().to::<i64>();
        fetched.push((row, slot, keys.row(source).at(part * 8).load_vector(8)));
    }
    for (row, slot, key) in fetched {
        let (payload, scale) = quantise(key.elements::<8>().map(|x| x.to::<f32>()), power_of_two);
        if row < rows && slot >= 0 {
            let place = slot.to::<u64>();
            k_pages.row(place / 64).at(place % 64 * 128).at(part * 8).store_vector(payload);
            if part == 0 {
                k_scales.row(place / 64).at(place % 64).store(scale);
            }
        }
    }
}

/// Quantises a key that half a warp holds, 8 values a lane: `scale = max(1e-4, amax) / 448`, or the next power of two,
/// and each value times `1 / scale` in e4m3.
#[track_caller]
pub(crate) fn quantise(key: [Scalar<f32>; 8], power_of_two: bool) -> (Vector<e4m3>, Scalar<f32>) {
    let [a, b, c, d] = from_fn(|i| key[2 * i].abs().max(key[2 * i + 1].abs()));
    let largest = a.max(b).max(c.max(d)).max(1e-4);
    let exact = divided_by_448(half_warp_max(largest));
    let scale = if power_of_two { next_power_of_two(exact) } else { exact };
    let inverse = 1.0 / scale;
    (Vector::saturating(&key.map(|x| x * inverse)), scale)
}

/// The largest of the values that the 16 lanes of half a warp hold, positive ones: their bits have their order, and a warp
/// finds its largest integer in one instruction.
#[track_caller]
fn half_warp_max(x: Scalar<f32>) -> Scalar<f32> {
    let is_low = lane::id().lt(16);
    let [low, high] = [is_low.select(x.bits(), 0), is_low.select(0, x.bits())].map(Scalar::<u32>::warp_max);
    is_low.select(low, high).as_float()
}

const BY_448: f32 = 1.0 / 448.0;

/// The quotient, correctly rounded, of a number whose quotient is normal: corrected once by what it lacks, without the cases
/// that a division looks out for.
#[track_caller]
fn divided_by_448(x: Scalar<f32>) -> Scalar<f32> {
    let near = x * BY_448;
    near.mul_add(-448.0, x).mul_add(BY_448, near)
}

/// `2^ceil(log2(x))` of a normal positive number: its exponent, one more unless its mantissa is zero.
fn next_power_of_two(x: Scalar<f32>) -> Scalar<f32> {
    const MANTISSA: u32 = (1 << 23) - 1;
    ((x.bits() + MANTISSA) & !MANTISSA).as_float()
}

/// The kernel as the program knows it.
pub fn entry() -> Entry {
    Entry {
        name: "fp8_index_k_store",
        about: "quantises index keys to e4m3 and scatters them to their slots, each with its scale",
        file: file!(),
        source: include_str!("fp8_store.rs"),
        equivalents: equivalents::FP8_STORE,
        variants: |_| {
            let variant = |kernel, slots: Dtype, power_of_two: bool, how: &str| Variant {
                label: format!("slots={slots}{how}"),
                kernel,
                cases: Box::new(move |scale: Scale| scatter_cases(KeyFormat::Fp8, slots, power_of_two, scale)),
            };
            vec![
                variant(fp8_index_k_store::<i32>(false, 1), Dtype::I32, false, ""),
                variant(fp8_index_k_store::<i64>(false, 1), Dtype::I64, false, ""),
                variant(fp8_index_k_store::<i64>(true, 1), Dtype::I64, true, " power-of-two scales"),
                variant(fp8_index_k_store::<i64>(false, 2), Dtype::I64, false, " two rows a thread"),
            ]
        },
        benchmark: Some(Benchmark {
            axes: store::AXES,
            sizes: store::sizes,
            configurations: |size, machine| {
                store::configurations(size, machine, |rows_a_thread| fp8_index_k_store::<i64>(false, rows_a_thread))
            },
            work: |size| store::scatter_work(KeyFormat::Fp8, size),
            workload: |size| store::scatter(KeyFormat::Fp8, size),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::BY_448;

    #[test]
    fn a_product_corrected_once_is_the_quotient_by_448_whatever_the_mantissa() {
        for bits in 1f32.to_bits()..2f32.to_bits() {
            let x = f32::from_bits(bits);
            let near = x * BY_448;
            assert_eq!(near.mul_add(-448.0, x).mul_add(BY_448, near), x / 448.0, "{x}");
        }
    }
}
