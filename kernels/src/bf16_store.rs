//! The index-K store of bf16 keys.

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

/// Copies row i of `keys` to slot `slots[i]` of the pool, bit for bit. A negative slot stores nothing.
#[kernel(warps = 4)]
pub fn bf16_index_k_store<S: Element>(
    #[comptime] rows_a_thread: i32,
    #[read] keys: Rows<bf16>,
    #[read] slots: Slice<S>,
    #[write_part] k_pages: Rows<bf16>,
    rows: Scalar<i32>,
) {
    // Half a warp a row, 16 bytes a lane.
    let first = cta::x() * (8 * rows_a_thread) + thread::id() / 16;
    let chunk = thread::id() % 16 * 8;

    pdl::launch_dependents();
    pdl::wait();
    // Rows past the end repeat the last.
    let mut fetched = Vec::new();
    for i in 0..rows_a_thread {
        let row = first + i * 8;
        let source = row.min(rows - 1);
        let slot = slots.at(source).load().to::<i64>();
        fetched.push((row, slot, keys.row(source).at(chunk).load_vector(8)));
    }
    warp::sync(); // or the compiler fetches a key only where its slot has come and is not negative
    for (row, slot, key) in fetched {
        if row < rows && slot >= 0 {
            let place = slot.to::<u64>();
            k_pages.row(place / 64).at(place % 64 * 128).at(chunk).store_vector(key);
        }
    }
}

/// The kernel as the program knows it.
pub fn entry() -> Entry {
    Entry {
        name: "bf16_index_k_store",
        about: "scatters bf16 index keys to their slots, bit for bit",
        file: file!(),
        source: include_str!("bf16_store.rs"),
        equivalents: equivalents::BF16_STORE,
        variants: |_| {
            let variant = |kernel, slots: Dtype, rows: &str| Variant {
                label: format!("slots={slots}{rows}"),
                kernel,
                cases: Box::new(move |scale: Scale| scatter_cases(KeyFormat::Bf16, slots, false, scale)),
            };
            vec![
                variant(bf16_index_k_store::<i32>(1), Dtype::I32, ""),
                variant(bf16_index_k_store::<i64>(1), Dtype::I64, ""),
                variant(bf16_index_k_store::<i64>(2), Dtype::I64, " two rows a thread"),
            ]
        },
        benchmark: Some(Benchmark {
            axes: store::AXES,
            sizes: store::sizes,
            configurations: |size, machine| store::configurations(size, machine, bf16_index_k_store::<i64>),
            work: |size| store::scatter_work(KeyFormat::Bf16, size),
            workload: |size| store::scatter(KeyFormat::Bf16, size),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use lathe_codegen::target::Target;

    #[test]
    fn the_cuda_reads_as_one_would_write_it() {
        let cuda = bf16_index_k_store::<i64>(1).unwrap().cuda(Target::Sm120a).unwrap();
        let kernel = &cuda.source[cuda.source.find("// Copies").unwrap()..];
        expect![[r#"
            // Copies row i of `keys` to slot `slots[i]` of the pool, bit for bit. A negative slot stores nothing.
            extern "C" __global__ void __launch_bounds__(128, 1)
            bf16_index_k_store(const bf16* keys,
                               long long keys_stride,
                               const long long* slots,
                               bf16* k_pages,
                               long long k_pages_stride,
                               int rows) {
              const int thread = threadIdx.x;
              const int first = (int)blockIdx.x * 8 + thread / 16;
              const int chunk = thread % 16 * 8;
              launch_dependents();
              grid_dependency_wait();
              const int source = min(first, rows - 1);
              const long long slot = load(slots + source);
              unsigned key[4];
              load_x4(key, keys + (unsigned)source * keys_stride + chunk);
              __syncwarp();
              if (first < rows && slot >= 0) {
                const unsigned long long place = (unsigned long long)slot;
                store_x4(k_pages + place / 64 * k_pages_stride + place % 64 * 128 + chunk, key);
              }
            }
        "#]]
        .assert_eq(kernel);
    }
}
