//! The sizes of a sweep.

use lathe_codegen::benchmark::{Axis, Benchmark, Size};

/// Which sizes to time; what is left out is the kernel's own.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Sizes {
    /// Requests of the batch
    #[arg(long, value_delimiter = ',', value_name = "N,..")]
    batch: Vec<u32>,

    /// Keys of each request; of a store, the rows stored
    #[arg(long, value_delimiter = ',', value_name = "N,..")]
    keys: Vec<u32>,

    /// Query tokens a request, 1 to 6
    #[arg(long, value_delimiter = ',', value_name = "N,..", default_value = "1")]
    next_n: Vec<u32>,

    /// Query heads: 16, 32, 64
    #[arg(long, value_delimiter = ',', value_name = "N,..", default_value = "64")]
    heads: Vec<u32>,

    /// Entries that top-k selects a row: 512, 1024, 2048
    #[arg(long, value_delimiter = ',', value_name = "K,..", default_value = "2048")]
    top_k: Vec<u32>,

    /// Give the first request of every batch so many keys
    #[arg(long, value_name = "N")]
    long_row: Option<u32>,

    /// Choose the launch for so many keys, as a graph captured early does, whatever the lengths are
    #[arg(long, value_name = "N")]
    captured_for: Option<u32>,
}

impl Sizes {
    /// The sizes of `benchmark`, each once.
    pub fn of(&self, benchmark: &Benchmark) -> Vec<Size> {
        self.of_axes(benchmark.axes, (benchmark.sizes)())
    }

    /// Sizes with these axes, each once; where nothing else is asked for, `own`.
    pub fn of_axes(&self, axes: &[Axis], own: Vec<Size>) -> Vec<Size> {
        let has = |axis| axes.contains(&axis);
        let batch: &[u32] = if has(Axis::Batch) { &self.batch } else { &[] };
        let pairs: Vec<(u32, u32)> = match (batch.is_empty(), self.keys.is_empty()) {
            (true, true) => own.iter().map(|size| (size.batch, size.keys)).collect(),
            (no_batch, no_keys) => {
                let batches = if no_batch { distinct(own.iter().map(|size| size.batch)) } else { batch.to_vec() };
                let keys = if no_keys { distinct(own.iter().map(|size| size.keys)) } else { self.keys.clone() };
                batches.iter().flat_map(|&batch| keys.iter().map(move |&keys| (batch, keys))).collect()
            }
        };
        let mut sizes: Vec<Size> = pairs.into_iter().map(|(batch, keys)| Size::new(batch, keys)).collect();
        let mut vary = |axis, values: &[u32], set: fn(&mut Size, u32)| {
            if has(axis) {
                sizes = values
                    .iter()
                    .flat_map(|&value| sizes.iter().map(move |size| (value, *size)))
                    .map(|(value, mut size)| {
                        set(&mut size, value);
                        size
                    })
                    .collect();
            }
        };
        vary(Axis::NextN, &self.next_n, |size, value| size.next_n = value);
        vary(Axis::Heads, &self.heads, |size, value| size.heads = value);
        vary(Axis::TopK, &self.top_k, |size, value| size.top_k = value);
        if has(Axis::Batch) {
            for size in &mut sizes {
                (size.long_row, size.captured_for) = (self.long_row, self.captured_for);
            }
        }
        distinct(sizes.into_iter())
    }
}

/// Each item once, in the order of its first appearance.
fn distinct<T: PartialEq>(items: impl Iterator<Item = T>) -> Vec<T> {
    items.fold(Vec::new(), |mut seen, item| {
        if !seen.contains(&item) {
            seen.push(item);
        }
        seen
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn benchmark(axes: &'static [Axis]) -> Benchmark {
        Benchmark {
            axes,
            sizes: || vec![Size::new(1, 1_024), Size::new(64, 1_024), Size::new(64, 4_096)],
            configurations: |_, _| Vec::new(),
            work: |_| unreachable!("sizes are no work"),
            workload: |_| unreachable!("sizes need no memory"),
        }
    }

    const LOGITS: Benchmark = benchmark(&[Axis::Batch, Axis::Keys, Axis::NextN, Axis::Heads]);

    fn named(sizes: &Sizes, benchmark: &Benchmark) -> Vec<String> {
        sizes.of(benchmark).iter().map(Size::to_string).collect()
    }

    fn plain() -> Sizes {
        Sizes { next_n: vec![1], heads: vec![64], top_k: vec![2_048], ..Sizes::default() }
    }

    #[test]
    fn without_a_word_the_sizes_are_the_kernels_own() {
        assert_eq!(named(&plain(), &LOGITS), ["B=1 keys=1024", "B=64 keys=1024", "B=64 keys=4096"]);
    }

    #[test]
    fn lists_multiply_and_fill_in_for_each_other() {
        let sizes = Sizes { batch: vec![2], next_n: vec![1, 2], ..plain() };
        let expected = ["B=2 keys=1024", "B=2 keys=4096", "B=2 keys=1024 next_n=2", "B=2 keys=4096 next_n=2"];
        assert_eq!(named(&sizes, &LOGITS), expected);
    }

    #[test]
    fn what_a_kernel_does_not_have_multiplies_nothing() {
        let sizes = Sizes { batch: vec![7, 8], keys: vec![10], heads: vec![16, 32], long_row: Some(9), ..plain() };
        let store = Benchmark { sizes: || vec![Size::new(1, 64), Size::new(1, 128)], ..benchmark(&[Axis::Keys]) };
        assert_eq!(named(&sizes, &store), ["B=1 keys=10"]);
    }
}
