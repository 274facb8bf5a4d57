//! What the kernel is timed with: sizes, the ways to launch it, the work that a size asks for, and its data.

use lathe::benchmark::{Axis, Benchmark, Configuration, Machine, Size, SizeError, Work, Workload};
use lathe::dtype::Dtype;

use crate::cases;
use crate::page_max::page_max_logits;

/// Decode steps, from launch-bound to bandwidth-bound.
pub const BENCHMARK: Benchmark = Benchmark {
    axes: &[Axis::Batch, Axis::Keys, Axis::Heads],
    sizes: || [(1, 4_096), (1, 65_536), (16, 4_096), (16, 16_384)].map(|(b, keys)| Size::new(b, keys)).into(),
    configurations,
    work,
    workload: |size| accept(size).map(|()| Workload::of_case(cases::of_size(size))),
};

/// CTAs share the pages of a row: as many as fill the machine once, and fewer, and more.
fn configurations(size: &Size, machine: Machine) -> Vec<Configuration> {
    let pages = size.max_len().div_ceil(64).max(1);
    let one_wave = (2 * machine.sms / size.batch.max(1)).clamp(1, pages);
    let mut choices = vec![one_wave, one_wave / 2, (one_wave * 4).min(pages), pages];
    choices.retain(|&ctas| ctas > 0);
    let mut seen = Vec::new();
    choices.retain(|ctas| {
        !seen.contains(ctas) && {
            seen.push(*ctas);
            true
        }
    });
    let configuration = |ctas| Configuration {
        parameters: vec![("ctas_per_row", ctas)],
        kernel: page_max_logits(size.heads as i32),
        grid: [ctas, size.batch, 1],
    };
    choices.into_iter().map(configuration).collect()
}

/// Each input read once, a value a page written, every key multiplied with every query of its request.
fn work(size: &Size) -> Result<Work, SizeError> {
    accept(size)?;
    let (rows, heads) = (u64::from(size.batch), u64::from(size.heads));
    let keys: u64 = size.lengths().into_iter().map(u64::from).sum();
    let pages: u64 = size.lengths().into_iter().map(|len| u64::from(len.div_ceil(64))).sum();
    Ok(Work {
        read: keys * 256 + rows * heads * (256 + 4) + rows * 4 + pages * 4,
        written: pages * 4,
        streamed: keys * 256,
        flops: 2 * keys * heads * 128,
        multiplies: Some(Dtype::Bf16),
        chain: 2,
        turns: pages * 4, // four warps a page
    })
}

/// The reference compares every page, in f64: sizes stay small enough for that.
fn accept(size: &Size) -> Result<(), SizeError> {
    let refuse = |name, given, accepted: &str| Err(SizeError { name, given, accepted: accepted.to_owned() });
    let positions = u64::from(size.batch) * u64::from(size.max_len());
    match size.heads {
        16 | 32 | 64 if (1..=1 << 20).contains(&positions) => Ok(()),
        16 | 32 | 64 => refuse("batch * keys", positions, "1 to 1048576"),
        heads => refuse("heads", heads.into(), "16, 32 or 64"),
    }
}
