//! Timing top-k.

use lathe_codegen::benchmark::{Axis, Size, SizeError, Work, Workload};

use super::{one_of, within};
use crate::cases::topk::TopkSpec;
use crate::contract::MAX_NEXT_N;
use crate::contract::logits::MAX_ROWS;
use crate::contract::rules::lens_ratio_1;
use crate::contract::topk::{MAX_ROW, TOP_K};

/// What a size of top-k is made of.
pub const AXES: &[Axis] = &[Axis::Batch, Axis::Keys, Axis::NextN, Axis::TopK];

/// Batches and lengths of decode steps.
pub fn sizes() -> Vec<Size> {
    let sizes = [(1, 4_096), (1, 65_536), (16, 16_384), (64, 16_384), (64, 65_536), (128, 65_536)];
    sizes.map(|(batch, keys)| Size::new(batch, keys)).into()
}

/// Memory, arguments and judge; the arguments are those of [`TopkSpec::case`].
pub fn workload(size: &Size) -> Result<Workload, SizeError> {
    one_of("top_k", size.top_k.into(), &TOP_K)?;
    within("next_n", size.next_n.into(), 1, MAX_NEXT_N as u64)?;
    within("batch", size.batch.into(), 1, MAX_ROWS as u64 / u64::from(size.next_n))?;
    within("keys", size.max_len().into(), 1, MAX_ROW)?;
    let lens: Vec<i32> = size.lengths().iter().flat_map(|&len| lens_ratio_1(len as i32, size.next_n as i32)).collect();
    let logits: u64 = lens.iter().map(|&len| len as u64 * 4).sum();
    let rows = lens.len() as u64;
    // Of a row's pages, at most one an entry is looked up.
    let pages: u64 = lens.iter().map(|&len| u64::from(size.top_k).min((len as u64).div_ceil(64)) * 4).sum();
    let work = Work {
        read: logits + pages + rows * 4,
        written: rows * u64::from(size.top_k) * 4,
        streamed: logits,
        ..Work::default()
    };
    let case = TopkSpec::new(size.top_k as usize, size.next_n as usize, lens).case();
    Ok(Workload::of_case(case, work))
}
