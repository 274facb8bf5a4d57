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
    #[read] keys: Rows<bf16>,
    #[read] slots: Slice<S>,
    #[write_part] k_pages: Rows<bf16>,
    rows: Scalar<i32>,
) {
    // Half a warp a row, 16 bytes a lane.
    let row = cta::x() * 8 + thread::id() / 16;
    let chunk = thread::id() % 16 * 8;

    pdl::launch_dependents();
    pdl::wait();
    if row < rows {
        let slot = slots.at(row).load().to::<i64>();
        let key = keys.row(row).at(chunk).load_vector(8);
        if slot >= 0 {
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
            let variant = |kernel, slots: Dtype| Variant {
                label: format!("slots={slots}"),
                kernel,
                cases: Box::new(move |scale: Scale| scatter_cases(KeyFormat::Bf16, slots, false, scale)),
            };
            vec![variant(bf16_index_k_store::<i32>(), Dtype::I32), variant(bf16_index_k_store::<i64>(), Dtype::I64)]
        },
        benchmark: Some(Benchmark {
            axes: store::AXES,
            sizes: store::sizes,
            configurations: |size, _| store::configurations(size, bf16_index_k_store::<i64>()),
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
        let cuda = bf16_index_k_store::<i64>().unwrap().cuda(Target::Sm120a).unwrap();
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
              const int row = (int)blockIdx.x * 8 + thread / 16;
              const int chunk = thread % 16 * 8;
              launch_dependents();
              grid_dependency_wait();
              if (row < rows) {
                const long long slot = load(slots + row);
                unsigned key[4];
                load_x4(key, keys + (unsigned)row * keys_stride + chunk);
                if (slot >= 0) {
                  const unsigned long long place = (unsigned long long)slot;
                  store_x4(k_pages + place / 64 * k_pages_stride + place % 64 * 128 + chunk, key);
                }
              }
            }
        "#]]
        .assert_eq(kernel);
    }
}
