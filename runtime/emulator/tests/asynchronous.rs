//! mbarriers, bulk copies, named barriers.

mod common;

use common::{Memory, Numbers, kernel, run_clean, schedules};
use lathe_emulator::Launch;

#[test]
fn a_producer_feeds_consumers_through_a_bulk_ring() {
    let k = kernel("async", "bulk_ring");
    let chunks = 7usize;
    let mut numbers = Numbers::new(7);
    let input: Vec<f32> = (0..chunks * 256).map(|_| numbers.below(1000) as f32).collect();
    for options in schedules() {
        let mut m = Memory::default();
        let (out, data) = (m.with("out", &[0f32; 256]), m.with("in", &input));
        run_clean(&k, &Launch::new([1, 1, 1], [96, 1, 1]).arg(out).arg(data).arg(chunks as i32), &mut m, &options);
        let expected: Vec<f32> = (0..256).map(|i| (0..chunks).map(|c| input[c * 256 + i]).sum()).collect();
        assert_eq!(m.read::<f32>(out, 256), expected);
    }
}

#[test]
fn a_bulk_store_reaches_global_memory() {
    let k = kernel("async", "bulk_store");
    for options in schedules() {
        let mut m = Memory::default();
        let out = m.with("out", &[0i32; 256]);
        run_clean(&k, &Launch::new([2, 1, 1], [128, 1, 1]).arg(out), &mut m, &options);
        let expected: Vec<i32> = (0..256).map(|i| (i % 128) * (i % 128) + i / 128).collect();
        assert_eq!(m.read::<i32>(out, 256), expected);
    }
}

#[test]
fn two_named_barriers_hand_values_over() {
    let k = kernel("async", "hand_over");
    for options in schedules() {
        let mut m = Memory::default();
        let out = m.with("out", &[0i32; 64]);
        run_clean(&k, &Launch::new([1, 1, 1], [128, 1, 1]).arg(out).arg(5i32), &mut m, &options);
        let expected: Vec<i32> = (0..64).map(|t| (0..5).map(|r| r * 64 + 63 - t).sum()).collect();
        assert_eq!(m.read::<i32>(out, 64), expected);
    }
}
