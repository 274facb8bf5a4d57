//! Launches that reach the edges of the contract, each with its judge.

use std::sync::Arc;

use lathe::benchmark::Size;
use lathe::contract::{Arg, Buffer, Case, ScalarValue, Scale, Verdict};
use lathe::dtype::Dtype;
use lathe::prelude::bf16;

use crate::reference::Problem;

/// Every case of the kernel with so many heads.
pub fn all(heads: usize, scale: Scale) -> Vec<Case> {
    let mut cases = vec![
        case("lengths at the edges of pages and warps", heads, 1, &[1, 15, 16, 17, 63, 64, 65, 128, 129, 300]),
        case("zero lengths between others", heads, 1, &[0, 70, 0, 0, 64, 0]),
        case("rows of different lengths in a request", heads, 4, &[0, 1, 1, 1, 190, 191, 192, 193]),
    ];
    if scale == Scale::Gpu {
        cases.push(case("long rows", heads, 2, &[40_000, 40_001, 65_536, 1, 131_071, 131_072]));
    }
    cases
}

/// The launch that a size is timed with.
pub fn of_size(size: &Size) -> Case {
    let lens: Vec<i32> = size.lengths().into_iter().map(|len| len as i32).collect();
    case("timed", size.heads as usize, 1, &lens)
}

/// A launch over random data: row r is query `r % next_n` of request `r / next_n`.
fn case(label: &str, heads: usize, next_n: usize, lens: &[i32]) -> Case {
    let problem = Arc::new(problem(heads, next_n, lens));
    let longest = lens.iter().copied().max().unwrap_or(0) as usize;
    let columns = longest.div_ceil(64).max(1);
    let rows = lens.len();
    Case {
        name: format!("H={heads} next_n={next_n}: {label}"),
        // Three CTAs share the pages of a row, so that most rows have pages for some of them and not for others.
        grid: [3, rows as u32, 1],
        buffers: vec![
            floats("q", &problem.q),
            floats("k_pages", &problem.keys),
            buffer("weights", Dtype::F32, &problem.weights, f32::to_le_bytes),
            buffer("context_lens", Dtype::I32, &problem.lens, i32::to_le_bytes),
            buffer("block_table", Dtype::I32, &problem.table, i32::to_le_bytes),
            Buffer::poisoned("page_max", Dtype::F32, rows * columns * 4),
        ],
        args: vec![
            pointer(0, &[]),
            pointer(1, &[64 * 128]),
            pointer(2, &[]),
            pointer(3, &[]),
            pointer(4, &[problem.table_width as i64]),
            pointer(5, &[columns as i64]),
            Arg::Scalar(ScalarValue::I32(next_n as i32)),
        ],
        verify: Box::new(move |after| judge(&problem, columns, &after[5])),
    }
}

/// Compares what is defined, and requires the poison everywhere else.
fn judge(problem: &Problem, columns: usize, page_max: &Buffer) -> Verdict {
    let mut verdict = Verdict::default();
    for (row, &len) in problem.lens.iter().enumerate() {
        let (mut error, mut scale) = (0.0, 0.0);
        for page in 0..columns {
            let at = (row * columns + page) as u64 * 4;
            let bytes = page_max.slice(at, 4).and_then(|bytes| bytes.try_into().ok()).expect("the buffer is mapped");
            let found = f32::from_le_bytes(bytes);
            if page * 64 >= len as usize {
                if found.to_bits() != u32::MAX {
                    verdict.failures.push(format!("page_max[{row}][{page}] = {found}, past the row's length {len}"));
                }
                continue;
            }
            let expected = problem.page_max(row, page);
            let (found, value) = (f64::from(found), expected.value);
            let distance = (found - value).abs();
            if distance.is_nan() || distance > expected.bound {
                verdict.failures.push(format!("page_max[{row}][{page}] = {found}, expected {value}"));
            }
            error += 2.0 * found * value;
            scale += found * found + value * value;
        }
        if scale > 0.0 {
            verdict.worst_row_diff = verdict.worst_row_diff.max(1.0 - error / scale);
        }
    }
    verdict
}

fn problem(heads: usize, next_n: usize, lens: &[i32]) -> Problem {
    let requests = lens.len() / next_n;
    let longest = lens.iter().copied().max().unwrap_or(0) as usize;
    let table_width = longest.div_ceil(64) + 1;
    let (mut table, mut pages) = (Vec::new(), 1);
    for request in 0..requests {
        let len = lens[request * next_n..][..next_n].iter().copied().max().unwrap_or(0) as usize;
        let used = len.div_ceil(64);
        table.extend((pages..pages + used).rev().map(|page| page as i32));
        // What lies past a row's pages must not be looked at.
        table.extend(std::iter::repeat_n(i32::MAX, table_width - used));
        pages += used;
    }
    let noise = |stream: u64, count: usize| -> Vec<f32> { (0..count).map(|at| noise(stream, at)).collect() };
    let rounded = |values: Vec<f32>| values.into_iter().map(|x| bf16::from_f32(x).to_f32()).collect();
    Problem {
        heads,
        next_n,
        q: rounded(noise(1, lens.len() * heads * 128)),
        keys: rounded(noise(2, pages * 64 * 128)),
        weights: noise(3, lens.len() * heads),
        lens: lens.to_vec(),
        table,
        table_width,
    }
}

/// A number in -1..1 that depends on nothing but its arguments.
fn noise(stream: u64, at: usize) -> f32 {
    let mut bits = (stream << 40 | at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    ((bits >> 40) as f32 / (1 << 23) as f32) - 1.0
}

fn floats(name: &str, values: &[f32]) -> Buffer {
    buffer(name, Dtype::Bf16, values, |value| bf16::from_f32(value).to_le_bytes())
}

fn buffer<T: Copy, const N: usize>(name: &str, dtype: Dtype, values: &[T], bytes: fn(T) -> [u8; N]) -> Buffer {
    Buffer::from_bytes(name, dtype, values.iter().flat_map(|&value| bytes(value)).collect())
}

fn pointer(buffer: usize, strides: &[i64]) -> Arg {
    Arg::Pointer { buffer, offset: 0, strides: strides.to_vec() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a right kernel leaves.
    fn solved(case: &Case, problem: &Problem, columns: usize) -> Vec<Buffer> {
        let mut after = case.buffers.clone();
        for (row, &len) in problem.lens.iter().enumerate() {
            for page in 0..(len as usize).div_ceil(64) {
                let value = problem.page_max(row, page).value as f32;
                let at = (row * columns + page) * 4;
                after[5].segments[0].bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
            }
        }
        after
    }

    #[test]
    fn the_judge_accepts_the_reference_and_nothing_near_it() {
        let lens = [0, 70, 64, 130];
        let (case, problem) = (case("", 16, 2, &lens), problem(16, 2, &lens));
        let after = solved(&case, &problem, 3);
        let verdict = (case.verify)(&after);
        assert_eq!(verdict.failures, Vec::<String>::new());
        assert!(verdict.worst_row_diff < 1e-12);

        for (at, what) in [(0, "page_max[0][0]"), (3, "page_max[1][0]"), (11, "page_max[3][2]")] {
            let mut wrong = after.clone();
            let bytes = &mut wrong[5].segments[0].bytes[at * 4..at * 4 + 4];
            let value = f32::from_le_bytes(bytes.try_into().unwrap());
            bytes.copy_from_slice(&(if value.is_nan() { 0.0 } else { value * 1.001 }).to_le_bytes());
            let failures = (case.verify)(&wrong).failures;
            assert!(failures.len() == 1 && failures[0].starts_with(what), "{failures:?}");
        }
    }

    #[test]
    fn a_page_past_the_length_does_not_count() {
        let problem = problem(16, 1, &[65]);
        let first_key_only = problem.page_max(0, 1);
        assert!(first_key_only.value.is_finite());
        assert!(problem.page_max(0, 2).value == f64::NEG_INFINITY);
    }
}
