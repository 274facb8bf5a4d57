//! The fused stores of DeepSeek-V4: norm, rotation and transform of a token's key, then either scatter.

use std::array::from_fn;

use lathe_codegen::benchmark::Benchmark;
use lathe_codegen::contract::Scale;
use lathe_codegen::dtype::Dtype;
use lathe_codegen::entry::{Entry, Variant};
use lathe_codegen::prelude::*;
use lathe_dsl::{device, kernel};

use crate::benchmarks::store;
use crate::cases::fused::fused_cases;
use crate::contract::KeyFormat;
use crate::equivalents;
use crate::fp8_store::quantise;

/// Normalises, rotates and transforms row i of `x`, and stores it as bf16 in the index slot of main slot `slots[i]`.
/// Only a token that completes a group of 4 stores.
#[kernel(warps = 4)]
pub fn bf16_fused_index_k_store<S: Element>(
    #[comptime] rows_a_thread: i32,
    #[read] x: Rows<bf16>,
    #[read] norm_weight: Slice<f32>,
    #[read] cos_sin: Slice<f32>,
    #[read] slots: Slice<S>,
    #[read] seq_lens: Slice<i32>,
    #[write_part] k_pages: Rows<bf16>,
    eps: Scalar<f32>,
    rows: Scalar<i32>,
) {
    let part = thread::id() % 16;

    pdl::launch_dependents();
    pdl::wait();
    for token in fetch(rows_a_thread, x, slots, seq_lens, rows) {
        let stored = token.stores.ballot();
        if stored != 0 {
            let key = key(part, token, norm_weight, cos_sin, eps);
            if token.stores {
                let rounded = Vector::of(&key.map(|x| x.to::<bf16>()));
                k_pages.row(token.place / 64).at(token.place % 64 * 128).at(part * 8).store_vector(rounded);
            }
        }
    }
}

/// Normalises, rotates and transforms row i of `x`, and stores it as e4m3 with its scale in the index slot of main
/// slot `slots[i]`. Only a token that completes a group of 4 stores.
#[kernel(warps = 4)]
pub fn fp8_fused_index_k_store<S: Element>(
    #[comptime] power_of_two: bool,
    #[comptime] rows_a_thread: i32,
    #[read] x: Rows<bf16>,
    #[read] norm_weight: Slice<f32>,
    #[read] cos_sin: Slice<f32>,
    #[read] slots: Slice<S>,
    #[read] seq_lens: Slice<i32>,
    #[write_part] k_pages: Rows<e4m3>,
    #[write_part] k_scales: Rows<f32>,
    eps: Scalar<f32>,
    rows: Scalar<i32>,
) {
    let part = thread::id() % 16;

    pdl::launch_dependents();
    pdl::wait();
    for token in fetch(rows_a_thread, x, slots, seq_lens, rows) {
        let stored = token.stores.ballot();
        if stored != 0 {
            let (payload, scale) = quantise(key(part, token, norm_weight, cos_sin, eps), power_of_two);
            if token.stores {
                k_pages.row(token.place / 64).at(token.place % 64 * 128).at(part * 8).store_vector(payload);
                if part == 0 {
                    k_scales.row(token.place / 64).at(token.place % 64).store(scale);
                }
            }
        }
    }
}

/// A token, of which a lane of half a warp has 8 values.
#[derive(Clone, Copy)]
struct Token {
    /// Whether its key is stored, and where.
    stores: Mask,
    place: Scalar<u64>,
    /// By what it turns.
    position: Scalar<i32>,
    x: Vector<bf16>,
}

/// The tokens of a thread, all asked for together. The two that a warp holds at a time lie 4 rows apart: of tokens that
/// follow each other both complete a group, or none does and there is nothing to compute.
#[device]
fn fetch<S: Element>(
    rows_a_thread: i32,
    x: Rows<bf16>,
    slots: Slice<S>,
    seq_lens: Slice<i32>,
    rows: Scalar<i32>,
) -> Vec<Token> {
    let first = cta::x() * (8 * rows_a_thread) + warp::id() + lane::id() / 16 * 4;
    let mut tokens = Vec::new();
    for i in 0..rows_a_thread {
        let row = first + i * 8;
        let source = row.min(rows - 1); // rows past the end repeat the last
        let main_slot = slots.at(source).load().to::<i64>();
        let seq_len = seq_lens.at(source).load();
        let completes = seq_len > 0 && seq_len % 4 == 0;
        let stores = row < rows && main_slot >= 0 && completes;
        let place = main_slot.to::<u64>() / 4;
        let position = completes.select(seq_len - 4, 0);
        let x = x.row(source).at(thread::id() % 16 * 8).load_vector(8);
        tokens.push(Token { stores, place, position, x });
    }
    warp::sync(); // or the compiler fetches values only of tokens that complete a group
    tokens
}

/// The key of a token, before it is rounded.
#[device]
fn key(part: Scalar<i32>, token: Token, norm_weight: Slice<f32>, cos_sin: Slice<f32>, eps: Scalar<f32>) -> Values {
    let turn = Turn::load(part, token.position, cos_sin);
    let x = token.x.elements::<8>().map(|x| x.to::<f32>());
    transform(part, turn.rotate(normalise(part, x, norm_weight, eps)))
}

/// 8 of the 128 values of a key, on each lane of half a warp.
type Values = [Scalar<f32>; 8];

/// RMSNorm: `x * rsqrt(mean(x^2) + eps) * weight`.
#[device]
fn normalise(part: Scalar<i32>, x: Values, weight: Slice<f32>, eps: Scalar<f32>) -> Values {
    let squares = x.iter().fold(Scalar::from(0.0f32), |sum, x| x.mul_add(*x, sum));
    let norm = (half_warp_sum(squares) / 128.0 + eps).rsqrt();
    let place = weight.at(part * 8);
    let [low, high] = [0, 4].map(|at| place.at(at).load_vector(4).elements::<4>());
    let normal: Values = from_fn(|i| x[i] * norm * if i < 4 { low[i] } else { high[i - 4] });
    normal
}

/// The sum of a value of each of the 16 lanes of half a warp; every lane gets it.
#[track_caller]
fn half_warp_sum(x: Scalar<f32>) -> Scalar<f32> {
    [8, 4, 2, 1].into_iter().fold(x, |sum, mask| sum + sum.shuffle_xor(mask))
}

/// The rotation of a position: RoPE on dims 64 and up, pairs `(2i, 2i + 1)`. Lanes 8 to 15 hold them, four pairs each; the
/// others turn by nothing.
struct Turn {
    cos: [Scalar<f32>; 4],
    sin: [Scalar<f32>; 4],
}

impl Turn {
    #[device]
    fn load(part: Scalar<i32>, position: Scalar<i32>, cos_sin: Slice<f32>) -> Self {
        let turns = part >= 8;
        let angles = cos_sin.at(position * 64 + (part - 8).max(0) * 4);
        let cos = angles.load_vector(4).elements::<4>().map(|cos| turns.select(cos, 1.0f32));
        let sin = angles.at(32).load_vector(4).elements::<4>().map(|sin| turns.select(sin, 0.0f32));
        Turn { cos, sin }
    }

    #[device]
    fn rotate(&self, x: Values) -> Values {
        let turned: Values = from_fn(|i| {
            let (cos, sin, even, odd) = (self.cos[i / 2], self.sin[i / 2], x[i & !1], x[i | 1]);
            if i % 2 == 0 { even * cos - odd * sin } else { even * sin + odd * cos }
        });
        turned
    }
}

/// Walsh-Hadamard of 128 points in natural order, times 128^-0.5. Dim `8 * part + i`: the low 3 bits of the index lie
/// inside a lane, the upper 4 across the half-warp.
#[track_caller]
fn transform(part: Scalar<i32>, x: Values) -> Values {
    let inside = [1, 2, 4].into_iter().fold(x, butterfly);
    let across = [1, 2, 4, 8].into_iter().fold(inside, |x, bit| butterfly_across(part, x, bit));
    across.map(|x| x * 128f32.powf(-0.5))
}

/// Sums and differences of values whose indices differ in `bit`.
#[device]
fn butterfly(x: Values, bit: usize) -> Values {
    let sum: Values = from_fn(|i| if i & bit == 0 { x[i] + x[i ^ bit] } else { x[i ^ bit] - x[i] });
    sum
}

/// The same of lanes whose `part` differs in `bit`.
#[device]
fn butterfly_across(part: Scalar<i32>, x: Values, bit: i32) -> Values {
    let sign = ((part & bit) == 0).select(1.0f32, -1.0f32);
    let other = x.map(|x| x.shuffle_xor(bit));
    let sum: Values = from_fn(|i| x[i].mul_add(sign, other[i]));
    sum
}

/// The kernel that stores bf16, as the program knows it.
pub fn bf16_entry() -> Entry {
    Entry {
        name: "bf16_fused_index_k_store",
        about: "normalises, rotates, transforms and scatters the index keys of tokens that complete a group of 4",
        file: file!(),
        source: include_str!("fused_store.rs"),
        equivalents: equivalents::FUSED_STORE,
        variants: |_| {
            let variant = |kernel, slots: Dtype, how: &str| Variant {
                label: format!("slots={slots}{how}"),
                kernel,
                cases: Box::new(move |scale: Scale| fused_cases(KeyFormat::Bf16, slots, false, scale)),
            };
            vec![
                variant(bf16_fused_index_k_store::<i32>(1), Dtype::I32, ""),
                variant(bf16_fused_index_k_store::<i64>(1), Dtype::I64, ""),
                variant(bf16_fused_index_k_store::<i32>(2), Dtype::I32, " two rows a thread"),
            ]
        },
        benchmark: Some(Benchmark {
            axes: store::AXES,
            sizes: store::fused_sizes,
            configurations: |size, machine| store::configurations(size, machine, bf16_fused_index_k_store::<i32>),
            work: |size| store::fused_work(KeyFormat::Bf16, size),
            workload: |size| store::fused(KeyFormat::Bf16, size),
        }),
    }
}

/// The kernel that stores e4m3, as the program knows it.
pub fn fp8_entry() -> Entry {
    Entry {
        name: "fp8_fused_index_k_store",
        about: "the same, quantised to e4m3 with a scale a key",
        file: file!(),
        source: include_str!("fused_store.rs"),
        equivalents: equivalents::FUSED_STORE,
        variants: |_| {
            let variant = |kernel, slots: Dtype, power_of_two: bool, how: &str| Variant {
                label: format!("slots={slots}{how}"),
                kernel,
                cases: Box::new(move |scale: Scale| fused_cases(KeyFormat::Fp8, slots, power_of_two, scale)),
            };
            vec![
                variant(fp8_fused_index_k_store::<i32>(false, 1), Dtype::I32, false, ""),
                variant(fp8_fused_index_k_store::<i64>(true, 1), Dtype::I64, true, " power-of-two scales"),
                variant(fp8_fused_index_k_store::<i32>(false, 2), Dtype::I32, false, " two rows a thread"),
            ]
        },
        benchmark: Some(Benchmark {
            axes: store::AXES,
            sizes: store::fused_sizes,
            configurations: |size, machine| {
                store::configurations(size, machine, |rows_a_thread| {
                    fp8_fused_index_k_store::<i32>(false, rows_a_thread)
                })
            },
            work: |size| store::fused_work(KeyFormat::Fp8, size),
            workload: |size| store::fused(KeyFormat::Fp8, size),
        }),
    }
}
