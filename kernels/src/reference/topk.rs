//! Top-k of a row of logits, as slots of the index-K pool.

use std::cmp::Ordering;

use crate::contract::PAGE_SLOTS;

/// The pool slot of position `index` of a row: `(table[index / 64] * 64) | (index % 64)`.
pub fn page_transform(table: &[i32], index: usize) -> i32 {
    (table[index / PAGE_SLOTS] * PAGE_SLOTS as i32) | (index % PAGE_SLOTS) as i32
}

/// Orders logits; NaN is smaller than everything, and the two zeros are equal.
pub fn by_value(a: f32, b: f32) -> Ordering {
    match (a.is_nan(), b.is_nan()) {
        (false, false) => a.partial_cmp(&b).expect("neither is NaN"),
        (a_nan, b_nan) => b_nan.cmp(&a_nan),
    }
}

/// Judges `got`, the `k` entries a kernel wrote for a row with `logits` (its valid positions only) and block table
/// `table`. Pages must not repeat within the row, or a slot would not say which position was meant.
///
/// A row no longer than `k` must be every position in order, then -1. A longer row must be `k` different positions
/// that no other position beats; among equal values any choice is right, and so is any order.
pub fn judge(logits: &[f32], table: &[i32], k: usize, got: &[i32]) -> Result<(), String> {
    if got.len() != k {
        return Err(format!("{} entries, expected {k}", got.len()));
    }
    let len = logits.len();
    if len <= k {
        for (i, &slot) in got.iter().enumerate() {
            let expected = if i < len { page_transform(table, i) } else { -1 };
            if slot != expected {
                return Err(format!(
                    "entry {i} is {slot}, expected {expected} (a row of {len} <= {k} keeps its order)"
                ));
            }
        }
        return Ok(());
    }

    let mut sorted = logits.to_vec();
    sorted.sort_by(|a, b| by_value(*b, *a));
    let smallest = sorted[k - 1];
    let pages: std::collections::HashMap<i32, usize> =
        table[..len.div_ceil(PAGE_SLOTS)].iter().enumerate().map(|(i, &page)| (page, i)).collect();
    let mut taken = vec![false; len];
    for (i, &slot) in got.iter().enumerate() {
        let page = pages.get(&slot.div_euclid(PAGE_SLOTS as i32));
        let index = page.map(|page| page * PAGE_SLOTS + slot.rem_euclid(PAGE_SLOTS as i32) as usize);
        let Some(index) = index.filter(|&index| index < len) else {
            return Err(format!("entry {i} is slot {slot}, which is no position of the row"));
        };
        if std::mem::replace(&mut taken[index], true) {
            return Err(format!("entry {i} repeats position {index}"));
        }
        if by_value(logits[index], smallest) == Ordering::Less {
            let value = logits[index];
            return Err(format!("entry {i} is position {index} with {value}, but the {k} largest end at {smallest}"));
        }
    }
    // k different positions, none below the k-th largest: what is left to miss is one above it.
    match (0..len).find(|&i| !taken[i] && by_value(logits[i], smallest) == Ordering::Greater) {
        Some(i) => Err(format!("position {i} with {} is missing, the {k} largest end at {smallest}", logits[i])),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: [i32; 2] = [7, 3];

    #[test]
    fn short_rows_keep_their_order_and_end_in_minus_one() {
        assert!(judge(&[1.0, 9.0], &TABLE, 4, &[448, 449, -1, -1]).is_ok());
        assert!(judge(&[1.0, 9.0], &TABLE, 4, &[449, 448, -1, -1]).is_err());
        assert!(judge(&[], &TABLE, 2, &[-1, -1]).is_ok());
        assert!(judge(&[], &TABLE, 2, &[448, -1]).is_err());
    }

    #[test]
    fn slots_of_the_second_page_come_from_the_second_table_entry() {
        let mut logits = vec![0.0; 70];
        logits[66] = 5.0;
        assert_eq!(page_transform(&TABLE, 66), 3 * 64 + 2);
        assert!(judge(&logits, &TABLE, 1, &[3 * 64 + 2]).is_ok());
        assert!(judge(&logits, &TABLE, 1, &[7 * 64 + 2]).is_err());
    }

    #[test]
    fn any_choice_among_equals_is_right_but_nothing_larger_may_be_left() {
        let logits = [0.0, 3.0, 0.0, 0.0];
        for other in [448, 450, 451] {
            assert!(judge(&logits, &TABLE, 2, &[other, 449]).is_ok());
        }
        assert!(judge(&logits, &TABLE, 2, &[448, 450]).unwrap_err().contains("position 1 with 3 is missing"));
        assert!(judge(&logits, &TABLE, 2, &[449, 449]).unwrap_err().contains("repeats"));
        assert!(judge(&logits, &TABLE, 2, &[449, 452]).unwrap_err().contains("no position"));
    }

    #[test]
    fn nan_is_smaller_than_everything_and_the_zeros_are_equal() {
        let logits = [f32::NAN, f32::NEG_INFINITY, -0.0, 0.0];
        assert!(judge(&logits, &TABLE, 1, &[450]).is_ok());
        assert!(judge(&logits, &TABLE, 3, &[451, 450, 449]).is_ok());
        assert!(judge(&logits, &TABLE, 3, &[451, 450, 448]).is_err());
    }
}
