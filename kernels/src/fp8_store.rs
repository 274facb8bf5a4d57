//! The index-K store of keys quantised to e4m3.

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
    #[read] keys: Rows<bf16>,
    #[read] slots: Slice<S>,
    #[write_part] k_pages: Rows<e4m3>,
    #[write_part] k_scales: Rows<f32>,
    rows: Scalar<i32>,
) {
    // Half a warp a row, 8 values a lane.
    let row = cta::x() * 8 + thread::id() / 16;
    let part = thread::id() % 16;

    pdl::launch_dependents();
    pdl::wait();
    // Every lane takes part in the reduction: those without a row repeat the last.
    let source = row.min(rows - 1);
    let slot = slots.at(source).load().to::<i64>();
    let key = keys.row(source).at(part * 8).load_vector(8).elements::<8>();
    let (payload, scale) = quantise(key.map(|x| x.to::<f32>()), power_of_two);

    if row < rows && slot >= 0 {
        let place = slot.to::<u64>();
        k_pages.row(place / 64).at(place % 64 * 128).at(part * 8).store_vector(payload);
        if part == 0 {
            k_scales.row(place / 64).at(place % 64).store(scale);
        }
    }
}

/// Quantises a key that half a warp holds, 8 values a lane: `scale = max(1e-4, amax) / 448`, or the next power of two,
/// and each value times `1 / scale` in e4m3.
#[track_caller]
pub(crate) fn quantise(key: [Scalar<f32>; 8], power_of_two: bool) -> (Vector<e4m3>, Scalar<f32>) {
    let largest = key.iter().fold(Scalar::from(1e-4f32), |amax, x| amax.max(x.abs()));
    let exact = half_warp(largest, |a, b| a.max(b)) / 448.0;
    let scale = if power_of_two { next_power_of_two(exact) } else { exact };
    let inverse = 1.0 / scale;
    (Vector::saturating(&key.map(|x| x * inverse)), scale)
}

/// Combines a value of each of the 16 lanes of half a warp; every lane gets the result.
#[track_caller]
pub(crate) fn half_warp(x: Scalar<f32>, combine: impl Fn(Scalar<f32>, Scalar<f32>) -> Scalar<f32>) -> Scalar<f32> {
    [8, 4, 2, 1].into_iter().fold(x, |x, mask| combine(x, x.shuffle_xor(mask)))
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
            let variant = |kernel, slots: Dtype, power_of_two: bool| Variant {
                label: format!("slots={slots}{}", if power_of_two { " power-of-two scales" } else { "" }),
                kernel,
                cases: Box::new(move |scale: Scale| scatter_cases(KeyFormat::Fp8, slots, power_of_two, scale)),
            };
            vec![
                variant(fp8_index_k_store::<i32>(false), Dtype::I32, false),
                variant(fp8_index_k_store::<i64>(false), Dtype::I64, false),
                variant(fp8_index_k_store::<i64>(true), Dtype::I64, true),
            ]
        },
        benchmark: Some(Benchmark {
            axes: store::AXES,
            sizes: store::sizes,
            configurations: |size, _| store::configurations(size, fp8_index_k_store::<i64>(false)),
            work: |size| store::scatter_work(KeyFormat::Fp8, size),
            workload: |size| store::scatter(KeyFormat::Fp8, size),
        }),
    }
}
