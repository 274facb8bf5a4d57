//! The launches that a paged MQA logits kernel must survive: the contract's edges, then the peers' grids.

use lathe_codegen::contract::{Case, Scale};

use super::Noise;
use super::logits::{Data, LogitsSpec, Pages, TableTail};
use crate::contract::KeyFormat;
use crate::contract::rules::{lens_ratio_1, lens_ratio_4};

/// All cases of a kernel for this format and head count, launched to fill the device so often.
pub fn logits_cases(format: KeyFormat, heads: usize, waves: i32, scale: Scale) -> Vec<Case> {
    logits_specs(format, heads, waves, scale).iter().map(LogitsSpec::case).collect()
}

/// What [`logits_cases`] are made from.
pub fn logits_specs(format: KeyFormat, heads: usize, waves: i32, scale: Scale) -> Vec<LogitsSpec> {
    let mut list = List { format, heads, waves, specs: Vec::new() };
    list.lengths();
    list.rows_of_a_request();
    list.addresses();
    list.clean_logits();
    list.contents();
    match scale {
        Scale::Emulator => list.peers_scaled(),
        Scale::Gpu => list.peers(),
    }
    list.specs
}

/// Lengths on both sides of every edge of 64, 128 and 256, and zeros between them.
pub const EDGE_LENS: [i32; 16] = [1, 0, 63, 64, 65, 0, 127, 128, 129, 0, 255, 256, 257, 0, 320, 2];

/// Page strides seen where layers are packed into larger records, in bytes.
pub const PACKED_PAGE_STRIDES: [u64; 2] = [1_077_120, 1_435_968];

/// With [`PACKED_PAGE_STRIDES`], pages from this id on lie past 2^31 elements, of whatever size they are counted in.
pub(super) const FIRST_FAR_PAGE: i32 = 8_000;

/// SMs that a launch of many waves fills where a case does not say.
const FEW_SMS: u32 = 6;

struct List {
    format: KeyFormat,
    heads: usize,
    waves: i32,
    specs: Vec<LogitsSpec>,
}

impl List {
    /// Adds a launch; the seed is its place in the list.
    fn add(&mut self, label: &str, next_n: usize, lens: Vec<i32>, change: impl FnOnce(&mut LogitsSpec)) {
        let mut spec = LogitsSpec::new(self.format, self.heads, next_n, lens);
        (spec.label, spec.waves) = (label.to_owned(), self.waves);
        if self.waves > 1 {
            spec.sms = FEW_SMS; // every CTA of the launch looks at all lengths
        }
        spec.seed = self.specs.len() as u64 + 1;
        change(&mut spec);
        self.specs.push(spec);
    }

    fn lengths(&mut self) {
        let edges = EDGE_LENS.to_vec();
        self.add("lengths at every edge, a page a CTA", 1, edges.clone(), |s| s.tail = TableTail::IntMax);
        self.add("lengths at every edge, one CTA a row", 1, edges, |s| s.sms = 1);
        for batch in [32, 33, 64] {
            self.add("all lengths zero", 1, vec![0; batch], |s| s.max_len = 100);
        }
        self.add("nothing but zeros, no capacity", 1, vec![0; 3], |_| {});
        self.add("empty batch", 1, vec![], |s| s.max_len = 64);
        self.add("zero rows between long ones", 1, vec![0, 700, 0, 0, 650, 0], |s| s.sms = 1);
        self.add("a long row between short ones and none", 1, vec![2, 0, 3_000, 64, 0, 65], |s| s.sms = 1);
        // Who walks which page has nothing to do with the heads.
        if self.heads == 16 {
            let lens = (0..70).map(|request| request * 37 % 200).collect();
            self.add("more requests than a warp has lanes", 1, lens, |s| s.sms = 4);
            let lens = (0..260).map(|request| request % 3 * 40).collect();
            self.add("more requests than share their rows", 1, lens, |_| {});
            // 13 walks: the first wave does not take the same number each.
            self.add("several walks a CTA", 1, vec![4_000, 4_100, 0, 3_100], |s| s.sms = 1);
        }
        self.add("one long row, many pages a CTA", 1, vec![2_500], |s| s.sms = 1);
        self.add("whole pages, fewer than the table has", 1, vec![64 * 32], |s| {
            (s.max_len, s.sms, s.tail) = (64 * 34, 1, TableTail::IntMax);
        });
        self.add("32 pages a CTA", 1, vec![64 * 33 - 5], |s| (s.max_len, s.sms) = (64 * 64, 1));
        self.add("captured for 8,192, replayed for 100", 1, vec![100, 65], |s| (s.max_len, s.sms) = (8_192, 16));
        self.add("planned for 64, launched with more", 1, vec![300, 0, 65, 129], |s| s.planned_len = Some(64));
        self.add("planned for 4,096, launched with less", 1, vec![1, 130, 0], |s| s.planned_len = Some(4_096));
        self.add("exactly S * 64", 1, vec![256, 256], |s| s.max_len = 256);
    }

    fn rows_of_a_request(&mut self) {
        for next_n in 1..=6 {
            let lens = [lens_ratio_1(131, next_n), lens_ratio_1(next_n / 2, next_n)].concat();
            self.add("ratio 1", next_n as usize, lens, |s| s.tail = TableTail::Stale);
        }
        for next_n in [2, 3, 4, 5] {
            let lens = [lens_ratio_4(2, next_n), lens_ratio_4(510, next_n), lens_ratio_4(0, next_n)].concat();
            self.add("ratio 4", next_n as usize, lens, |s| s.sms = 2);
        }
        self.add("unrelated lengths", 3, vec![64, 0, 129, 1, 200, 63], |_| {});
    }

    fn addresses(&mut self) {
        self.add("repeated pages", 1, vec![320, 300, 64, 320], |s| (s.pages, s.sms) = (Pages::Repeated { pool: 3 }, 2));
        self.add("one page everywhere", 2, vec![190, 192], |s| s.pages = Pages::Repeated { pool: 1 });
        for stride in PACKED_PAGE_STRIDES {
            self.add(&format!("packed pages {stride} B apart, past 2^31 elements"), 1, vec![130, 65], |s| {
                s.page_stride = stride;
                s.pages = Pages::Shuffled { first: FIRST_FAR_PAGE };
                s.tail = TableTail::IntMax;
            });
        }
        self.add("packed pages past 2^31 elements, one CTA a row", 1, vec![64 * 32 - 10], |s| {
            (s.page_stride, s.pages, s.sms) = (PACKED_PAGE_STRIDES[0], Pages::Shuffled { first: FIRST_FAR_PAGE }, 1);
        });
        self.add("gaps between rows of table and logits", 2, vec![100, 101, 40, 41], |s| {
            (s.table_gap, s.logits_gap) = (5, 37);
        });
        self.add("logits rows past 2^31 bytes", 1, vec![70, 64, 1, 129], |s| s.logits_gap = 300_000_000);
        self.add("logits rows past 2^31 elements", 1, vec![70, 64, 1, 129], |s| s.logits_gap = 900_000_000);
        self.add("cleaned rows past 2^31 elements", 1, vec![70, 0, 1, 65], |s| {
            (s.clean, s.max_len, s.logits_gap) = (true, 130, 900_000_000);
        });
        self.add("table rows past 2^31 entries", 2, vec![64, 65, 0, 1, 129, 130], |s| s.table_gap = 1 << 30);
    }

    fn clean_logits(&mut self) {
        for sms in [188, 1] {
            self.add("clean", 1, vec![0, 5, 64, 200, 300], |s| {
                (s.clean, s.max_len, s.sms, s.logits_gap) = (true, 300, sms, 20);
            });
        }
        self.add("clean, all zero", 2, vec![0; 4], |s| (s.clean, s.max_len) = (true, 130));
        self.add("clean, captured for 4,096", 1, vec![70], |s| (s.clean, s.max_len, s.sms) = (true, 4_096, 2));
    }

    fn contents(&mut self) {
        for (label, data) in [
            ("negative weights", Data::NegativeWeights),
            ("all dots negative", Data::NegativeDots),
            ("zero keys", Data::ZeroKeys),
            ("one-hot keys", Data::OneHot),
            ("saturated", Data::Saturated),
            ("NaN in one slot", Data::NanKey),
            ("NaN in one query row", Data::NanQuery),
        ] {
            self.add(label, 2, vec![129, 130], |s| s.data = data);
        }
    }

    /// Lengths uniform in 0.7..1.3 of the mean.
    fn around(&self, mean: u64, batch: usize, next_n: usize) -> Vec<i32> {
        let noise = Noise::new(mean ^ batch as u64);
        let len = |request| (mean * 7 / 10 + noise.below(request, mean * 6 / 10)) as i32;
        (0..batch as u64).flat_map(|request| lens_ratio_1(len(request), next_n as i32)).collect()
    }

    fn peers_scaled(&mut self) {
        if self.heads != 16 {
            for next_n in [1, 3, 6] {
                self.add("DeepGEMM, scaled", next_n, self.around(256, 4, next_n), |s| s.sms = 4);
            }
            for next_n in 2..=6 {
                let stride = self.format.page_bytes() as u64 * if next_n % 2 == 0 { 1 } else { 2 };
                self.add("vLLM, scaled", next_n, self.around(96, 2, next_n), |s| s.page_stride = stride);
            }
        }
        for (batch, len) in [(1, 512), (2, 512), (4, 1_024)] {
            for next_n in [1, 2] {
                self.add("SGLang, scaled", next_n, vec![len; batch * next_n], |s| s.sms = 8);
            }
        }
        if self.heads == 64 {
            self.add("bf16 forks, scaled", 1, self.around(256, 32, 1), |s| s.sms = 16);
        }
    }

    fn peers(&mut self) {
        for (batch, len) in [(8, 2_048), (32, 2_048), (128, 8_192)] {
            for next_n in [1, 2] {
                self.add("SGLang", next_n, vec![len; batch * next_n], |s| s.sms = GPU_SMS);
            }
        }
        if self.heads != 16 {
            for (batch, next_n, mean) in [(256, 1, 8_192), (256, 2, 32_768), (256, 5, 8_192), (4_096, 1, 8_192)] {
                // Every case of a kernel lies in host memory at once: large pools repeat half a gigabyte of pages.
                let pages = if batch * mean > 256 * 8_192 { Pages::Repeated { pool: 1 << 15 } } else { SHUFFLED };
                self.add("DeepGEMM", next_n, self.around(mean as u64, batch, next_n), |s| {
                    (s.sms, s.pages) = (GPU_SMS, pages);
                });
            }
            for next_n in 1..=6 {
                let (batch, layers) = if next_n == 1 { (4, 1) } else { (2, 1 + next_n as u64 % 2) };
                let stride = self.format.page_bytes() as u64 * layers;
                self.add("vLLM", next_n, self.around(2_048, batch, next_n), |s| {
                    (s.sms, s.page_stride) = (GPU_SMS, stride);
                });
            }
        }
        if self.heads == 64 {
            for (batch, mean) in [(32, 8_192), (64, 8_192), (128, 32_768)] {
                self.add("bf16 forks", 1, self.around(mean, batch, 1), |s| s.sms = GPU_SMS);
            }
        }
    }
}

const SHUFFLED: Pages = Pages::Shuffled { first: 1 };

/// SMs of the GPU that the peers' own sizes are run on (H200).
const GPU_SMS: u32 = 132;
