//! A decode step of the indexer: the new keys are stored, the logits of all keys computed, the largest selected. Three
//! kernels over one memory, each reading what the one before wrote.

use std::sync::{Arc, OnceLock};

use lathe_codegen::benchmark::{
    Benchmark, Configuration, Content, Machine, Memory, Role, Size, SizeError, Work, Workload,
};
use lathe_codegen::contract::{Arg, ScalarValue, Verdict};
use lathe_codegen::dtype::Dtype;
use lathe_codegen::entry::Entry;
use rayon::prelude::*;

use super::logits::Problem;
use super::{logits, topk};
use crate::cases::Noise;
use crate::contract::{HEAD_DIM, KeyFormat, PAGE_SLOTS, SCALES_OFFSET};
use crate::reference::convert::f64_to_bf16;
use crate::reference::store::quantise;
use crate::reference::topk::judge;
use crate::{bf16_logits, bf16_store, fp8_logits, fp8_store, topk as topk_kernel};

/// A step at a size: memory with a judge, and the launches in order.
pub struct Step {
    /// Memory and judge; its arguments are those of the logits.
    pub workload: Workload,
    /// What the three kernels must do together.
    pub work: Work,
    /// The kernels, as the launch rules choose them, with their arguments.
    pub launches: Vec<Launch>,
}

/// One kernel of a step.
pub struct Launch {
    /// The kernel's name.
    pub kernel: &'static str,
    /// What the launch rule chooses.
    pub configuration: Configuration,
    /// Over the step's memory.
    pub args: Vec<Arg>,
}

/// Decode steps from one request to a full batch.
pub fn sizes() -> Vec<Size> {
    [(1, 4_096), (1, 65_536), (16, 16_384), (64, 16_384), (64, 65_536)]
        .map(|(batch, keys)| Size::new(batch, keys))
        .into()
}

/// Places in the step's memory, behind those of the logits.
const LENS: usize = 3;
const TABLE: usize = 4;
const LOGITS: usize = 5;
const POOL: usize = 1;
const NEW_KEYS: usize = 6;
const SLOTS: usize = 7;
const INDICES: usize = 8;

/// The step in this format at this size. Each row's new key is the last it attends to.
pub fn step(format: KeyFormat, size: &Size, machine: Machine) -> Result<Step, SizeError> {
    let logits_work = logits::work(format, size)?;
    let topk_work = topk::work(size)?;
    let mut problem = Problem::new(format, *size);
    let rows = problem.lens.len();
    let keys = new_keys(rows);
    problem.stored = keys.iter().map(|key| stored(format, key)).collect();
    let slots: Vec<i64> = (0..rows).map(|row| slot(&problem, row)).collect();
    let problem = Arc::new(problem);

    let mut memory = problem.memory();
    memory[POOL].role = Role::Updated;
    let bytes = |name: &str, dtype, bytes: Vec<u8>| Memory {
        name: name.to_owned(),
        dtype,
        len: bytes.len() as u64,
        content: Content::Bytes(bytes.into()),
        role: Role::Input,
    };
    memory.push(bytes("keys", Dtype::Bf16, keys.iter().flatten().flat_map(|bits| bits.to_le_bytes()).collect()));
    memory.push(bytes("slots", Dtype::I64, slots.iter().flat_map(|slot| slot.to_le_bytes()).collect()));
    let indices_len = (rows * size.top_k as usize * 4) as u64;
    memory.push(Memory {
        name: "indices".to_owned(),
        dtype: Dtype::I32,
        len: indices_len,
        content: Content::Poison,
        role: Role::Output,
    });

    let (store, scores) = match format {
        KeyFormat::Bf16 => (bf16_store::entry(), bf16_logits::entry()),
        KeyFormat::Fp8 => (fp8_store::entry(), fp8_logits::entry()),
    };
    let launches = vec![
        launch(&store, &Size::new(1, rows as u32), machine, store_args(format, rows)),
        launch(&scores, size, machine, problem.args()),
        launch(&topk_kernel::entry(), size, machine, topk_args(&problem)),
    ];
    let key_bytes = (format.page_bytes() / PAGE_SLOTS) as u64;
    let work = Work {
        read: logits_work.read + topk_work.read + rows as u64 * (HEAD_DIM as u64 * 2 + 8),
        written: logits_work.written + topk_work.written + rows as u64 * key_bytes,
        ..logits_work
    };
    let (expected, args) = (OnceLock::new(), problem.args());
    let judge = move |after: &[Vec<u8>]| {
        let mut verdict = problem.judge(&after[0], expected.get_or_init(|| problem.expected()));
        verdict.failures.extend(judge_selection(&problem, &after[0], &after[1]).failures);
        verdict
    };
    Ok(Step { workload: Workload { memory, args, judge: Box::new(judge) }, work, launches })
}

fn launch(entry: &Entry, size: &Size, machine: Machine, args: Vec<Arg>) -> Launch {
    let Benchmark { configurations, .. } = entry.benchmark.expect("the kernels of a step are timed");
    let configuration = configurations(size, machine).into_iter().next().expect("a launch rule chooses");
    Launch { kernel: entry.name, configuration, args }
}

fn pointer(buffer: usize, strides: Vec<i64>) -> Arg {
    Arg::Pointer { buffer, offset: 0, strides }
}

/// The arguments of [`ScatterSpec::case`](crate::cases::store::ScatterSpec::case), over the step's memory.
fn store_args(format: KeyFormat, rows: usize) -> Vec<Arg> {
    let page_bytes = format.page_bytes() as i64;
    let mut args = vec![
        pointer(NEW_KEYS, vec![HEAD_DIM as i64]),
        pointer(SLOTS, vec![]),
        pointer(POOL, vec![page_bytes / format.element_bytes() as i64]),
    ];
    if format == KeyFormat::Fp8 {
        args.push(Arg::Pointer { buffer: POOL, offset: SCALES_OFFSET as u64, strides: vec![page_bytes / 4] });
    }
    args.push(Arg::Scalar(ScalarValue::I32(rows as i32)));
    args
}

/// The arguments of [`TopkSpec::case`](crate::cases::topk::TopkSpec::case), over the step's memory.
fn topk_args(problem: &Problem) -> Vec<Arg> {
    vec![
        pointer(LOGITS, vec![problem.logits_stride as i64]),
        pointer(LENS, vec![]),
        pointer(TABLE, vec![problem.table_stride as i64]),
        pointer(INDICES, vec![]),
        Arg::Scalar(ScalarValue::I32(problem.size.next_n as i32)),
    ]
}

/// bf16 bits of the keys that the step brings.
fn new_keys(rows: usize) -> Vec<[u16; HEAD_DIM]> {
    let noise = Noise::new(7);
    let key = |row: usize| std::array::from_fn(|d| f64_to_bf16(noise.bell((row * HEAD_DIM + d) as u64).into()));
    (0..rows).map(key).collect()
}

/// A page with the key in slot 0, as the store leaves it.
fn stored(format: KeyFormat, key: &[u16; HEAD_DIM]) -> Vec<u8> {
    let mut page = vec![0; format.page_bytes()];
    match format {
        KeyFormat::Bf16 => {
            for (bytes, bits) in page.as_chunks_mut::<2>().0.iter_mut().zip(key) {
                *bytes = bits.to_le_bytes();
            }
        }
        KeyFormat::Fp8 => {
            let quantised = quantise(&key.map(|bits| f32::from_bits(u32::from(bits) << 16)), false);
            page[..HEAD_DIM].copy_from_slice(&quantised.payload);
            page[SCALES_OFFSET..SCALES_OFFSET + 4].copy_from_slice(&quantised.scale.to_le_bytes());
        }
    }
    page
}

/// Where the last key of a row lies in the pool.
fn slot(problem: &Problem, row: usize) -> i64 {
    let position = problem.lens[row] as usize - 1;
    let table = &problem.table[row / problem.size.next_n as usize * problem.table_stride..];
    i64::from(table[position / PAGE_SLOTS]) * PAGE_SLOTS as i64 + (position % PAGE_SLOTS) as i64
}

/// Judges the selection against the logits that it was made from.
fn judge_selection(problem: &Problem, logits: &[u8], indices: &[u8]) -> Verdict {
    let k = problem.size.top_k as usize;
    let row = |row: usize| {
        let len = problem.lens[row] as usize;
        let words = logits[row * problem.logits_stride * 4..][..len * 4].as_chunks::<4>().0;
        let values: Vec<f32> = words.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        let got = indices[row * k * 4..][..k * 4].as_chunks::<4>().0;
        let got: Vec<i32> = got.iter().map(|bytes| i32::from_le_bytes(*bytes)).collect();
        let table = &problem.table[row / problem.size.next_n as usize * problem.table_stride..][..problem.table_stride];
        judge(&values, table, k, &got).err().map(|reason| format!("top-k of row {row} (length {len}): {reason}"))
    };
    let failures: Vec<String> = (0..problem.lens.len()).into_par_iter().filter_map(row).collect();
    Verdict { failures: failures.into_iter().take(8).collect(), ..Verdict::default() }
}

#[cfg(test)]
mod tests {
    use lathe_codegen::target::Target;

    use super::*;
    use crate::reference::topk::{by_value, page_transform};

    const SIZE: Size = Size { next_n: 2, heads: 16, top_k: 512, ..Size::new(2, 700) };

    /// What three right kernels leave: logits and indices.
    fn right(problem: &Problem) -> Vec<Vec<u8>> {
        let mut logits = vec![0xff; problem.lens.len() * problem.logits_stride * 4];
        let mut indices = Vec::new();
        for (row, expected) in problem.expected().into_iter().enumerate() {
            let mut values = vec![0f32; problem.lens[row] as usize];
            for (p, logit) in expected {
                values[p] = logit.value as f32;
                let at = (row * problem.logits_stride + p) * 4;
                logits[at..at + 4].copy_from_slice(&values[p].to_le_bytes());
            }
            let mut order: Vec<usize> = (0..values.len()).collect();
            order.sort_by(|&a, &b| by_value(values[b], values[a]));
            let table = &problem.table[row / 2 * problem.table_stride..];
            indices.extend(order[..512].iter().flat_map(|&i| page_transform(table, i).to_le_bytes()));
        }
        vec![logits, indices]
    }

    #[test]
    fn a_step_without_its_store_or_with_a_stale_selection_is_found() {
        let machine = Machine { target: Target::Sm120a, sms: 188 };
        let step = step(KeyFormat::Bf16, &SIZE, machine).unwrap();
        let mut problem = Problem::new(KeyFormat::Bf16, SIZE);
        let without_store = right(&problem);
        problem.stored = new_keys(4).iter().map(|key| stored(KeyFormat::Bf16, key)).collect();
        let after = right(&problem);
        assert_eq!((step.workload.judge)(&after).failures, Vec::<String>::new());

        let failures = (step.workload.judge)(&without_store).failures.join("; ");
        assert!(failures.contains("row 0 position 698: got"), "{failures}");
        let mut stale = after.clone();
        stale[1][..4].copy_from_slice(&(1i32 << 20).to_le_bytes());
        let failures = (step.workload.judge)(&stale).failures.join("; ");
        assert!(failures.contains("top-k of row 0 (length 699): entry 0 is slot 1048576"), "{failures}");
    }

    #[test]
    fn the_arguments_of_each_launch_fit_its_kernel() {
        for format in [KeyFormat::Bf16, KeyFormat::Fp8] {
            let step = step(format, &SIZE, Machine { target: Target::Sm90a, sms: 132 }).unwrap();
            for launch in step.launches {
                let kernel = launch.configuration.kernel.unwrap();
                assert_eq!(kernel.params.len(), launch.args.len(), "{}", launch.kernel);
                assert_eq!(kernel.name, launch.kernel);
            }
        }
    }
}
