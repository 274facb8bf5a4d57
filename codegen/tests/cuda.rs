//! CUDA text of whole kernels.

use expect_test::expect;
use lathe_codegen::handles::{Argument, Handle};
use lathe_codegen::ir::{Kernel, Phase};
use lathe_codegen::loc::Loc;
use lathe_codegen::prelude::*;
use lathe_codegen::target::Target;
use lathe_codegen::trace::{self, KernelSpec, trace};

fn argument<A: Argument>(name: &str) -> A {
    A::declare(name, Phase::AfterWait, Loc::caller())
}

fn named<H: Handle>(name: &str, handle: H) -> H {
    trace::with(|b| b.name(handle.id(), name));
    handle
}

fn when(cond: Mask, body: impl FnOnce()) {
    let loc = Loc::caller();
    trace::with(|b| b.begin_if(cond.id(), loc));
    body();
    trace::with(|b| b.end_if(loc));
}

/// Half a warp copies one key of 128 bf16 to its slot.
fn store() -> Kernel {
    let spec = KernelSpec {
        name: "store",
        doc: "Copies key i to slot slots[i].",
        warps: 4,
        ctas_per_sm: 8,
        loc: Loc::caller(),
    };
    trace(spec, || {
        let keys: Rows<bf16> = argument("keys");
        let slots: Slice<i64> = argument("slots");
        let pages: Rows<bf16, WritePart> = argument("pages");
        let count: Scalar<i32> = argument("count");
        let i = named("i", cta::x() * 8 + thread::id() / 16);
        let part = named("part", thread::id() % 16 * 8);
        pdl::launch_dependents();
        pdl::wait();
        when(i.lt(count), || {
            let slot = named("slot", slots.at(i).load());
            when(slot.ge(0i64), || {
                let key = named("key", keys.row(i).at(part).load_vector(8));
                pages.row(slot / 64i64).at(slot % 64i64 * 128i64).at(part).store_vector(key);
            });
        });
    })
    .expect("traces")
}

#[test]
fn the_store_kernel() {
    expect![[r#"
        typedef unsigned short bf16;

        __device__ __forceinline__ void launch_dependents() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

        __device__ __forceinline__ void grid_dependency_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

        __device__ __forceinline__ long long load(const long long* p) {
          long long v;
          asm volatile("ld.global.s64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
          return v;
        }

        __device__ __forceinline__ void load_x4(unsigned (&v)[4], const void* p) {
          asm volatile("ld.global.v4.b32 {%0, %1, %2, %3}, [%4];"
                       : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]) : "l"(p) : "memory");
        }

        __device__ __forceinline__ void store_x4(void* p, const unsigned (&v)[4]) {
          asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};"
                       :: "l"(p), "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3]) : "memory");
        }

        // Copies key i to slot slots[i].
        extern "C" __global__ void __launch_bounds__(128, 8)
        store(const bf16* keys,
              long long keys_stride,
              const long long* slots,
              bf16* pages,
              long long pages_stride,
              int count) {
          const int thread = threadIdx.x;
          const int i = (int)blockIdx.x * 8 + thread / 16;
          const int part = thread % 16 * 8;
          launch_dependents();
          grid_dependency_wait();
          if (i < count) {
            const long long slot = load(slots + i);
            if (slot >= 0) {
              unsigned key[4];
              load_x4(key, keys + (long long)i * keys_stride + part);
              store_x4(pages + slot / 64 * pages_stride + slot % 64 * 128 + part, key);
            }
          }
        }
    "#]].assert_eq(&store().cuda(Target::Sm120a).expect("prints").source);
}
