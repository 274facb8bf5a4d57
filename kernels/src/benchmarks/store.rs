//! Timing the stores. The rows of a size are its keys; the batch is 1.

use lathe_codegen::benchmark::{Axis, Configuration, Machine, Size, SizeError, Work, Workload};
use lathe_codegen::dtype::Dtype;
use lathe_codegen::ir::Kernel;
use lathe_codegen::trace::TraceErrors;

use super::within;
use crate::cases::Noise;
use crate::cases::fused::FusedSpec;
use crate::cases::store::ScatterSpec;
use crate::contract::rules::{MAIN_PAGE_SLOTS, RATIO_4};
use crate::contract::{HEAD_DIM, KeyFormat, PAGE_SLOTS, ROPE_DIMS};
use crate::launch::{store_grid, store_rows_a_thread};

/// What a size of a store is made of.
pub const AXES: &[Axis] = &[Axis::Keys];

/// Rows of decode steps and of prefill chunks.
pub fn sizes() -> Vec<Size> {
    [1, 64, 1_024, 16_384, 262_144].map(|rows| Size::new(1, rows)).into()
}

/// The kernel with as many rows a thread as the launch rule says, then with the other number.
pub fn configurations(
    size: &Size,
    machine: Machine,
    kernel: impl Fn(i32) -> Result<Kernel, TraceErrors>,
) -> Vec<Configuration> {
    let mut choices = [1, 2];
    if store_rows_a_thread(size.keys as usize, machine.sms) == 2 {
        choices.reverse();
    }
    let with = |rows_a_thread: i32| Configuration {
        parameters: vec![("rows_a_thread", rows_a_thread as u32)],
        kernel: kernel(rows_a_thread),
        grid: store_grid(size.keys as usize, rows_a_thread),
    };
    choices.map(with).into()
}

/// Most rows: their bf16 keys fill a quarter of a gigabyte.
const MAX_ROWS: u64 = 1 << 20;

/// Memory, arguments and judge of a scatter with i64 slots; the arguments are those of [`ScatterSpec::case`].
///
/// Whole pages are filled, in random order, as a prefill chunk fills them.
pub fn scatter(format: KeyFormat, size: &Size) -> Result<Workload, SizeError> {
    within("keys", size.keys.into(), 1, MAX_ROWS)?;
    let mut spec = ScatterSpec::new(format, slots(size.keys, PAGE_SLOTS as i64));
    spec.slot_dtype = Dtype::I64;
    Ok(Workload::of_case(spec.case()))
}

/// Each key and slot read once, each stored key written once.
pub fn scatter_work(format: KeyFormat, size: &Size) -> Result<Work, SizeError> {
    within("keys", size.keys.into(), 1, MAX_ROWS)?;
    let rows = u64::from(size.keys);
    let read = rows * (HEAD_DIM as u64 * 2 + 8);
    let written = rows * stored_bytes(format);
    Ok(Work { read, written, streamed: read + written, chain: 1, ..Work::default() })
}

/// Tokens of decode steps and of prefill chunks.
pub fn fused_sizes() -> Vec<Size> {
    [4, 64, 1_024, 16_384, 65_536].map(|rows| Size::new(1, rows)).into()
}

/// Most tokens of a fused store: the judge transforms one in 4 on the host.
const MAX_TOKENS: u64 = 1 << 18;

/// Memory, arguments and judge of a fused store, with i32 slots, of tokens that follow each other; the arguments are those of
/// [`FusedSpec::case`]. A token in 4 completes a group, and only its row has to be read.
pub fn fused(format: KeyFormat, size: &Size) -> Result<Workload, SizeError> {
    within("keys", size.keys.into(), 1, MAX_TOKENS)?;
    let spec = FusedSpec::new(format, slots(size.keys, MAIN_PAGE_SLOTS).into_iter().zip(1..).collect());
    Ok(Workload::of_case(spec.case()))
}

/// Slot and length of every token read once, row and rotation of those that store, each stored key written once.
pub fn fused_work(format: KeyFormat, size: &Size) -> Result<Work, SizeError> {
    within("keys", size.keys.into(), 1, MAX_TOKENS)?;
    let rows = u64::from(size.keys);
    let stored = rows / RATIO_4 as u64;
    let read = rows * (4 + 4) + stored * (HEAD_DIM * 2 + ROPE_DIMS * 4) as u64 + HEAD_DIM as u64 * 4;
    let written = stored * stored_bytes(format);
    Ok(Work { read, written, streamed: read + written, chain: 2, ..Work::default() })
}

fn stored_bytes(format: KeyFormat) -> u64 {
    (format.page_bytes() / PAGE_SLOTS) as u64
}

/// Slots of `rows` rows that fill pages of `page_slots` slots, one page after the other, the pages in random order.
fn slots(rows: u32, page_slots: i64) -> Vec<i64> {
    let mut pages: Vec<i64> = (1..=i64::from(rows.div_ceil(page_slots as u32))).collect();
    Noise::new(6).shuffle(&mut pages);
    pages.iter().flat_map(|page| (0..page_slots).map(move |i| page * page_slots + i)).take(rows as usize).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_filled_whole_and_in_random_order() {
        let slots = slots(64 * 5 - 3, 64);
        assert_eq!(slots.len(), 317);
        let mut pages: Vec<i64> = slots.iter().map(|slot| slot / 64).collect();
        pages.dedup();
        assert_ne!(pages, [1, 2, 3, 4, 5]);
        pages.sort_unstable();
        assert_eq!(pages, [1, 2, 3, 4, 5]);
    }

    #[test]
    fn every_format_makes_a_workload() {
        for format in [KeyFormat::Bf16, KeyFormat::Fp8] {
            let size = Size::new(1, 100);
            assert_eq!(scatter(format, &size).unwrap().memory.len(), 3);
            assert_eq!(scatter_work(format, &size).unwrap().written, 100 * stored_bytes(format));
            assert_eq!(fused(format, &size).unwrap().memory.len(), 6);
            assert_eq!(fused_work(format, &size).unwrap().written, 25 * stored_bytes(format));
        }
        let error = scatter(KeyFormat::Bf16, &Size::new(1, 0)).err().unwrap();
        assert_eq!(error.to_string(), "keys is 0, accepted: 1 to 1048576");
    }
}
