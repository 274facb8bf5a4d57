//! Paged MQA logits: `out[r][p] = kscale * sum over h of w[r][h] * max(0, q[r][h] . k[p])`.

use super::convert::{bf16_to_f64, e4m3_to_f64};
use crate::contract::{HEAD_DIM, KeyFormat, PAGE_SLOTS, SCALES_OFFSET};

/// One logit with what its tolerance is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Logit {
    /// The value. A dot that is NaN counts as 0, which is what `max(0, NaN)` is to IEEE and to CUDA.
    pub value: f64,
    /// `kscale * sum over h of |w_h| * sum over d of |q_hd * k_d|`: the scale of the rounding errors.
    pub magnitude: f64,
    /// Whether a NaN is among the inputs: then the kernel may also return NaN.
    pub tainted: bool,
}

/// One query row, decoded: `heads` x 128 of q, and the head weights.
pub struct QueryRow {
    q: Vec<f64>,
    weights: Vec<f64>,
    /// For each d, the sum over h of |w_h * q_hd|: the magnitude of a logit is its dot with |k|.
    magnitude: Vec<f64>,
}

impl QueryRow {
    /// Decodes a row of q (`heads * 128` elements in memory order) and its weights.
    pub fn new(format: KeyFormat, q: &[u8], weights: &[f32]) -> Self {
        let q: Vec<f64> = decode(format, q);
        let weights: Vec<f64> = weights.iter().map(|&w| f64::from(w)).collect();
        assert_eq!(q.len(), weights.len() * HEAD_DIM, "a row of q is heads x 128");
        let mut magnitude = vec![0.0; HEAD_DIM];
        for (head, w) in q.chunks_exact(HEAD_DIM).zip(&weights) {
            for (m, q) in magnitude.iter_mut().zip(head) {
                *m += (w * q).abs();
            }
        }
        QueryRow { q, weights, magnitude }
    }

    /// The logit of one key.
    pub fn logit(&self, key: &Key) -> Logit {
        let mut sum = 0.0;
        let mut tainted = key.scale.is_nan();
        for (head, weight) in self.q.chunks_exact(HEAD_DIM).zip(&self.weights) {
            let dot = dot(head, &key.values);
            tainted |= dot.is_nan() || weight.is_nan();
            sum += weight * dot.max(0.0);
        }
        let magnitude: f64 = self.magnitude.iter().zip(&key.values).map(|(m, k)| m * k.abs()).sum();
        Logit { value: key.scale * sum, magnitude: key.scale.abs() * magnitude, tainted }
    }
}

/// One index key, decoded.
pub struct Key {
    values: Vec<f64>,
    scale: f64,
}

impl Key {
    /// Slot `slot` of a page, given the page's bytes.
    pub fn of_page(format: KeyFormat, page: &[u8], slot: usize) -> Self {
        assert!(slot < PAGE_SLOTS);
        let bytes = HEAD_DIM * format.element_bytes();
        let values = decode(format, &page[slot * bytes..(slot + 1) * bytes]);
        let scale = match format {
            KeyFormat::Bf16 => 1.0,
            KeyFormat::Fp8 => {
                let at = SCALES_OFFSET + 4 * slot;
                f64::from(f32::from_le_bytes(page[at..at + 4].try_into().expect("4 bytes")))
            }
        };
        Key { values, scale }
    }
}

fn decode(format: KeyFormat, bytes: &[u8]) -> Vec<f64> {
    match format {
        KeyFormat::Bf16 => bytes.chunks_exact(2).map(|b| bf16_to_f64(u16::from_le_bytes([b[0], b[1]]))).collect(),
        KeyFormat::Fp8 => bytes.iter().map(|&b| e4m3_to_f64(b)).collect(),
    }
}

/// Eight running sums, only to keep the processor busy: in f64 the order does not matter here.
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut sums = [0.0; 8];
    for (a, b) in a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0) {
        for lane in 0..8 {
            sums[lane] += a[lane] * b[lane];
        }
    }
    sums.iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page that holds `value(slot, d)` in bf16.
    fn bf16_page(value: impl Fn(usize, usize) -> f32) -> Vec<u8> {
        (0..PAGE_SLOTS * HEAD_DIM)
            .flat_map(|i| half::bf16::from_f32(value(i / HEAD_DIM, i % HEAD_DIM)).to_le_bytes())
            .collect()
    }

    fn bf16_row(heads: usize, value: impl Fn(usize, usize) -> f32) -> Vec<u8> {
        (0..heads * HEAD_DIM)
            .flat_map(|i| half::bf16::from_f32(value(i / HEAD_DIM, i % HEAD_DIM)).to_le_bytes())
            .collect()
    }

    #[test]
    fn relu_comes_before_the_weight_and_per_head() {
        // Head 0 sees +1, head 1 sees -1: only head 0 may count, whatever the sign of its weight.
        let q = bf16_row(16, |h, d| {
            if d != 0 {
                0.0
            } else if h == 0 {
                1.0
            } else {
                -1.0
            }
        });
        let mut weights = vec![10.0; 16];
        weights[0] = -3.0;
        let row = QueryRow::new(KeyFormat::Bf16, &q, &weights);
        let page = bf16_page(|slot, d| if d == 0 { slot as f32 } else { 0.0 });
        let logit = row.logit(&Key::of_page(KeyFormat::Bf16, &page, 5));
        assert_eq!(logit.value, -15.0);
        assert_eq!(logit.magnitude, 5.0 * (3.0 + 15.0 * 10.0));
        assert!(!logit.tainted);
    }

    #[test]
    fn a_one_hot_key_reads_one_element_of_q_at_each_slot_and_dim() {
        let q = bf16_row(16, |h, d| if h == 3 { 1.0 + d as f32 } else { 0.0 });
        let mut weights = vec![0.0; 16];
        weights[3] = 2.0;
        let row = QueryRow::new(KeyFormat::Bf16, &q, &weights);
        let page = bf16_page(|slot, d| if d == 2 * slot { 1.0 } else { 0.0 });
        for slot in 0..PAGE_SLOTS {
            let logit = row.logit(&Key::of_page(KeyFormat::Bf16, &page, slot));
            assert_eq!(logit.value, 2.0 * (1.0 + 2.0 * slot as f64));
        }
    }

    #[test]
    fn fp8_pages_are_planar_keys_first_then_a_scale_a_slot() {
        let q: Vec<u8> = [vec![0x38; 128], vec![0; 15 * 128]].concat(); // 1.0 is 0x38
        let mut weights = vec![0.0; 16];
        weights[0] = 1.0;
        let row = QueryRow::new(KeyFormat::Fp8, &q, &weights);
        let mut page = vec![0u8; KeyFormat::Fp8.page_bytes()];
        page[7 * 128 + 9] = 0x40; // slot 7, dim 9: 2.0
        page[8192 + 4 * 7..8192 + 4 * 8].copy_from_slice(&0.25f32.to_le_bytes());
        assert_eq!(row.logit(&Key::of_page(KeyFormat::Fp8, &page, 7)).value, 0.5);
        assert_eq!(row.logit(&Key::of_page(KeyFormat::Fp8, &page, 6)).value, 0.0);
    }

    #[test]
    fn a_nan_key_taints_its_own_logit_and_no_other() {
        let q = bf16_row(16, |_, _| 1.0);
        let row = QueryRow::new(KeyFormat::Bf16, &q, &[1.0; 16]);
        let page = bf16_page(|slot, d| if (slot, d) == (4, 77) { f32::NAN } else { 1.0 });
        assert!(row.logit(&Key::of_page(KeyFormat::Bf16, &page, 4)).tainted);
        let clean = row.logit(&Key::of_page(KeyFormat::Bf16, &page, 3));
        assert_eq!((clean.value, clean.tainted), (16.0 * 128.0, false));
    }
}
