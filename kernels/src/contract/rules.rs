//! How callers compute lengths and slots: facts of the serving engines, not of the kernels.

use super::PAGE_SLOTS;

/// Main-pool slots that one index-K page stands for at ratio 4.
pub const MAIN_PAGE_SLOTS: i64 = 256;

/// Tokens that one index key stands for at ratio 4.
pub const RATIO_4: i32 = 4;

/// Ratio 1: what each of the `next_n` rows of a request of `total` tokens (the new ones included) attends to,
/// `total - next_n + j + 1`, never below 0.
pub fn lens_ratio_1(total: i32, next_n: i32) -> Vec<i32> {
    (0..next_n).map(|j| (total - next_n + j + 1).max(0)).collect()
}

/// Ratio 4: rows at positions `committed .. committed + next_n` attend to the groups of 4 tokens completed by then,
/// `(position + 1) / 4`. Neighbours may share a length.
pub fn lens_ratio_4(committed: i32, next_n: i32) -> Vec<i32> {
    (0..next_n).map(|j| (committed + j + 1) / RATIO_4).collect()
}

/// The index-K slot of a main-pool slot at ratio 4. A negative slot (store nothing) stays negative.
pub fn slot_of_main(main_slot: i64) -> i64 {
    main_slot.div_euclid(RATIO_4.into())
}

/// The index-K page of a main-pool slot at ratio 4: the main page's own number.
pub fn page_of_main(main_slot: i64) -> i64 {
    main_slot.div_euclid(MAIN_PAGE_SLOTS)
}

/// Page and offset of an index-K slot.
pub fn page_and_offset(slot: u64) -> (u64, usize) {
    (slot / PAGE_SLOTS as u64, (slot % PAGE_SLOTS as u64) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratio_1_lengths_count_up_to_the_total() {
        assert_eq!(lens_ratio_1(10, 1), [10]);
        assert_eq!(lens_ratio_1(10, 3), [8, 9, 10]);
        assert_eq!(lens_ratio_1(2, 4), [0, 0, 1, 2]);
    }

    #[test]
    fn ratio_4_lengths_count_completed_groups() {
        assert_eq!(lens_ratio_4(2, 4), [0, 1, 1, 1]);
        assert_eq!(lens_ratio_4(0, 3), [0, 0, 0]);
        assert_eq!(lens_ratio_4(255, 2), [64, 64]);
    }

    #[test]
    fn main_slots_map_to_the_page_of_their_main_page() {
        for main_slot in [0, 3, 4, 255, 256, 1023, 70_000] {
            let (page, offset) = page_and_offset(slot_of_main(main_slot) as u64);
            assert_eq!(page as i64, page_of_main(main_slot));
            assert_eq!(offset as i64, main_slot % 256 / 4);
        }
        assert!(slot_of_main(-1) < 0);
    }
}
