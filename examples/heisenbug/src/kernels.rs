//! Stand-ins for the layer's other kernels. They move as many bytes as the real ones, from and to the same places, and
//! do next to no arithmetic.

use lathe::prelude::*;

/// Width of the hidden state.
pub const HIDDEN: i32 = 7168;
/// Columns of the split projection's workspace.
pub const SPLIT: i32 = 240;
/// Entries that the top-k selects.
pub const TOP_K: i32 = 512;
/// Width of the compressed keys and values.
pub const LATENT: i32 = 576;

const THREADS: i32 = 128;

/// Elements `shift` further on in row `row` of `x`, scaled: a projection without its matrix.
#[track_caller]
fn gather<const N: usize>(
    x: Rows<bf16>,
    row: Scalar<i32>,
    column: Scalar<i32>,
    shift: Scalar<i32>,
    factor: Scalar<f32>,
) -> [Scalar<f32>; N] {
    let place = x.row(row).at((column + shift) % HIDDEN);
    place.load_vector(N as i32).elements::<N>().map(|x| x.to::<f32>() * factor)
}

/// out[r, c] = factor * x[r, (c + shift) % 7168], in bf16.
#[kernel(warps = 4)]
pub fn project_bf16(
    #[read] x: Rows<bf16>,
    #[write_part] out: Rows<bf16>,
    columns: Scalar<i32>,
    shift: Scalar<i32>,
    factor: Scalar<f32>,
) {
    let row = cta::y();
    let column = (cta::x() * THREADS + thread::id()) * 8;
    pdl::wait();
    if column < columns {
        let values = gather::<8>(x, row, column, shift, factor);
        out.row(row).at(column).store_vector(Vector::of(&values.map(|x| x.to::<bf16>())));
    }
}

/// The same in e4m3.
#[kernel(warps = 4)]
pub fn project_e4m3(
    #[read] x: Rows<bf16>,
    #[write_part] out: Rows<e4m3>,
    columns: Scalar<i32>,
    shift: Scalar<i32>,
    factor: Scalar<f32>,
) {
    let row = cta::y();
    let column = (cta::x() * THREADS + thread::id()) * 8;
    pdl::wait();
    if column < columns {
        let values = gather::<8>(x, row, column, shift, factor);
        out.row(row).at(column).store_vector(Vector::saturating(&values));
    }
}

/// The same in f32.
#[kernel(warps = 4)]
pub fn project_f32(
    #[read] x: Rows<bf16>,
    #[write_part] out: Rows<f32>,
    columns: Scalar<i32>,
    shift: Scalar<i32>,
    factor: Scalar<f32>,
) {
    let row = cta::y();
    let column = (cta::x() * THREADS + thread::id()) * 4;
    pdl::wait();
    if column < columns {
        out.row(row).at(column).store_vector(Vector::of(&gather::<4>(x, row, column, shift, factor)));
    }
}

/// out[r, c] = partials[r, c % 240]: the second half of a split projection.
#[kernel(warps = 4)]
pub fn sum_partials(#[read] partials: Rows<f32>, #[write_part] out: Rows<bf16>, columns: Scalar<i32>) {
    let row = cta::y();
    let column = (cta::x() * THREADS + thread::id()) * 4;
    pdl::wait();
    if column < columns {
        let values = partials.row(row).at(column % SPLIT).load_vector(4).elements::<4>();
        out.row(row).at(column).store_vector(Vector::of(&values.map(|x| x.to::<bf16>())));
    }
}

/// out[r, s] = q[r, s] + kv[r, s % 576] for the slots s that row r selected, 0 for all others: whatever order they were
/// selected in, the same result.
#[kernel(warps = 4)]
pub fn attend(
    #[read] selected: Slice<i32>,
    #[read] q: Rows<bf16>,
    #[read] kv: Rows<bf16>,
    #[write_part] out: Rows<f32>,
    slots: Scalar<i32>,
) {
    let row = cta::x();
    pdl::wait();
    for slot in (thread::id()..slots).step_by(THREADS) {
        out.row(row).at(slot).store(0.0f32);
    }
    cta::sync();
    for i in (thread::id()..TOP_K).step_by(THREADS) {
        let slot = selected.at(row * TOP_K + i).load();
        if slot >= 0 {
            let sum = q.row(row).at(slot).load().to::<f32>() + kv.row(row).at(slot % LATENT).load().to::<f32>();
            out.row(row).at(slot).store(sum);
        }
    }
}

/// out = a + b, row by row.
#[kernel(warps = 4)]
pub fn add(#[read] a: Rows<bf16>, #[read] b: Rows<bf16>, #[write_part] out: Rows<bf16>, columns: Scalar<i32>) {
    let row = cta::y();
    let column = (cta::x() * THREADS + thread::id()) * 8;
    pdl::wait();
    if column < columns {
        let [a, b] = [a, b].map(|of| of.row(row).at(column).load_vector(8).elements::<8>());
        let sums: [Scalar<bf16>; 8] = std::array::from_fn(|i| (a[i].to::<f32>() + b[i].to::<f32>()).to::<bf16>());
        out.row(row).at(column).store_vector(Vector::of(&sums));
    }
}

/// differing[t] = how many of the elements t, t + 128, ... differ: what a cloning instrument runs.
#[kernel(warps = 4)]
pub fn compare(
    #[read] a: Slice<bf16>,
    #[read] b: Slice<bf16>,
    #[write_part] differing: Slice<i32>,
    count: Scalar<i32>,
) {
    let mut found = Scalar::from(0);
    pdl::wait();
    for i in (thread::id()..count).step_by(THREADS) {
        if a.at(i).load().to::<f32>() != b.at(i).load().to::<f32>() {
            found += 1;
        }
    }
    differing.at(thread::id()).store(found);
}

/// Other work of the alternate stream, which takes its time: `loads` loads, each after the one before. `zeros` holds zeros.
#[kernel(warps = 1)]
pub fn other_work(#[read] zeros: Slice<i32>, #[write_part] out: Slice<i32>, loads: Scalar<i32>) {
    pdl::wait();
    let mut at = Scalar::from(0);
    for _ in Scalar::from(0)..loads {
        at = zeros.at(at).load();
    }
    out.at(thread::id()).store(at);
}
