//! What the kernel must compute, in plain loops over f64 that share nothing with it.

/// The data of a launch, on the host.
pub struct Problem {
    /// Heads.
    pub heads: usize,
    /// Query tokens a request.
    pub next_n: usize,
    /// `[rows, heads, 128]`
    pub q: Vec<f32>,
    /// `[pages, 64, 128]`
    pub keys: Vec<f32>,
    /// `[rows, heads]`
    pub weights: Vec<f32>,
    /// `[rows]`
    pub lens: Vec<i32>,
    /// `[requests, table_width]`
    pub table: Vec<i32>,
    /// Entries a row of the table.
    pub table_width: usize,
}

/// A value and how far from it a right kernel may be.
pub struct Expected {
    /// The value.
    pub value: f64,
    /// The bound.
    pub bound: f64,
}

impl Problem {
    /// The largest logit of page `page` of row `row`, the row's length respected.
    pub fn page_max(&self, row: usize, page: usize) -> Expected {
        let mut expected = Expected { value: f64::NEG_INFINITY, bound: 0.0 };
        for position in page * 64..(page * 64 + 64).min(self.lens[row] as usize) {
            let logit = self.logit(row, position);
            expected.value = expected.value.max(logit.value);
            // The largest of inexact values is off by no more than the most inexact of them.
            expected.bound = expected.bound.max(logit.bound);
        }
        expected
    }

    fn logit(&self, row: usize, position: usize) -> Expected {
        let page = self.table[row / self.next_n * self.table_width + position / 64] as usize;
        let key = &self.keys[(page * 64 + position % 64) * 128..][..128];
        let (mut value, mut magnitude) = (0.0, 0.0);
        for head in 0..self.heads {
            let query = &self.q[(row * self.heads + head) * 128..][..128];
            let weight = f64::from(self.weights[row * self.heads + head]);
            let products = query.iter().zip(key).map(|(q, k)| f64::from(*q) * f64::from(*k));
            value += weight * products.clone().sum::<f64>().max(0.0);
            magnitude += weight.abs() * products.map(f64::abs).sum::<f64>();
        }
        // f32 accumulation over 128 products and up to 64 heads: a few units in the last place of what is summed.
        Expected { value, bound: 1e-6 * magnitude }
    }
}
