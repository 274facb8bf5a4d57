//! Timing top-k.

use lathe_codegen::benchmark::{Axis, Size, SizeError, Work, Workload};

use super::{one_of, within};
use crate::cases::topk::TopkSpec;
use crate::contract::logits::MAX_ROWS;
use crate::contract::rules::lens_ratio_1;
use crate::contract::topk::{MAX_ROW, TOP_K};
use crate::contract::{MAX_NEXT_N, PAGE_SLOTS};

/// What a size of top-k is made of.
pub const AXES: &[Axis] = &[Axis::Batch, Axis::Keys, Axis::NextN, Axis::TopK];

/// Batches and lengths of decode steps.
pub fn sizes() -> Vec<Size> {
    let sizes = [(1, 4_096), (1, 65_536), (16, 16_384), (64, 16_384), (64, 65_536), (128, 65_536)];
    sizes.map(|(batch, keys)| Size::new(batch, keys)).into()
}

/// Refuses sizes that no kernel computes; the lengths of the rows of the others.
fn lengths(size: &Size) -> Result<Vec<i32>, SizeError> {
    one_of("top_k", size.top_k.into(), &TOP_K)?;
    within("next_n", size.next_n.into(), 1, MAX_NEXT_N as u64)?;
    within("batch", size.batch.into(), 1, MAX_ROWS as u64 / u64::from(size.next_n))?;
    within("keys", size.max_len().into(), 1, MAX_ROW)?;
    Ok(size.lengths().iter().flat_map(|&len| lens_ratio_1(len as i32, size.next_n as i32)).collect())
}

/// Each logit read once, and of the block table at most an entry for each selected.
pub fn work(size: &Size) -> Result<Work, SizeError> {
    let lens = lengths(size)?;
    let rows = lens.len() as u64;
    let logits: u64 = lens.iter().map(|&len| len as u64 * 4).sum();
    let pages: u64 =
        lens.iter().map(|&len| u64::from(size.top_k).min((len as u64).div_ceil(PAGE_SLOTS as u64)) * 4).sum();
    let written = rows * u64::from(size.top_k) * 4;
    Ok(Work { read: logits + pages + rows * 4, written, streamed: logits, chain: 2, ..Work::default() })
}

/// Memory, arguments and judge; the arguments are those of [`TopkSpec::case`].
pub fn workload(size: &Size) -> Result<Workload, SizeError> {
    Ok(Workload::of_case(TopkSpec::new(size.top_k as usize, size.next_n as usize, lengths(size)?).case()))
}
