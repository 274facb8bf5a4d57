//! Kernels that NVRTC compiled, against plain Rust.

mod common;

use common::{Memory, Numbers, kernel, run_clean, schedules};
use lathe_emulator::Launch;

#[test]
fn loops_with_divergent_trip_counts_and_early_returns() {
    let k = kernel("basics", "collatz");
    let start: Vec<u32> = (1..=500).collect();
    for options in schedules() {
        let mut m = Memory::default();
        let (steps, input) = (m.with("steps", &vec![-1i32; 500]), m.with("start", &start));
        run_clean(&k, &Launch::new([4, 1, 1], [128, 1, 1]).arg(steps).arg(input).arg(500i32), &mut m, &options);
        let expected: Vec<i32> = start
            .iter()
            .map(|&s| {
                std::iter::successors(Some(u64::from(s)), |&x| {
                    (x != 1).then(|| if x % 2 == 1 { 3 * x + 1 } else { x / 2 })
                })
                .count() as i32
                    - 1
            })
            .collect();
        assert_eq!(m.read::<i32>(steps, 500), expected);
    }
}

#[test]
fn shuffles_and_a_barrier_sum_a_block() {
    let k = kernel("basics", "block_sum");
    let mut numbers = Numbers::new(1);
    let input: Vec<f32> = (0..3000).map(|_| numbers.below(1000) as f32).collect();
    for options in schedules() {
        let mut m = Memory::default();
        let (out, data) = (m.with("out", &[0f32; 3]), m.with("in", &input));
        run_clean(&k, &Launch::new([3, 1, 1], [256, 1, 1]).arg(out).arg(data).arg(3000i32), &mut m, &options);
        let sums: Vec<f32> = (0..3).map(|b| (0..3000).filter(|i| i / 256 % 3 == b).map(|i| input[i]).sum()).collect();
        assert_eq!(m.read::<f32>(out, 3), sums);
    }
}

#[test]
fn shared_and_global_atomics_count() {
    let k = kernel("basics", "histogram");
    let mut numbers = Numbers::new(2);
    let input: Vec<u8> = (0..5000).map(|_| numbers.below(256) as u8).collect();
    let mut expected = vec![0u32; 256];
    input.iter().for_each(|&b| expected[b as usize] += 1);
    for options in schedules() {
        let mut m = Memory::default();
        let (bins, data) = (m.with("bins", &[0u32; 256]), m.with("in", &input));
        run_clean(&k, &Launch::new([5, 1, 1], [256, 1, 1]).arg(bins).arg(data).arg(5000i32), &mut m, &options);
        assert_eq!(m.read::<u32>(bins, 256), expected);
    }
}

#[test]
fn a_two_dimensional_tile_is_transposed() {
    let k = kernel("basics", "transpose");
    let (w, h) = (70usize, 45usize);
    let input: Vec<f32> = (0..w * h).map(|i| i as f32).collect();
    for options in schedules() {
        let mut m = Memory::default();
        let (out, data) = (m.with("out", &vec![0f32; w * h]), m.with("in", &input));
        run_clean(
            &k,
            &Launch::new([3, 2, 1], [32, 8, 1]).arg(out).arg(data).arg(w as i32).arg(h as i32),
            &mut m,
            &options,
        );
        let expected: Vec<f32> = (0..w * h).map(|i| input[i % h * w + i / h]).collect();
        assert_eq!(m.read::<f32>(out, w * h), expected);
    }
}

#[test]
fn approximate_functions_stay_within_their_error() {
    let k = kernel("basics", "waves");
    let mut numbers = Numbers::new(3);
    let input: Vec<f32> = (0..300).map(|_| numbers.unit() * 3.0).collect();
    let mut m = Memory::default();
    let (out, data) = (m.with("out", &[0f32; 300]), m.with("in", &input));
    run_clean(&k, &Launch::new([2, 1, 1], [160, 1, 1]).arg(out).arg(data).arg(300i32), &mut m, &schedules()[0]);
    for (x, y) in input.iter().map(|&x| f64::from(x)).zip(m.read::<f32>(out, 300)) {
        let expected = (x.sin() + (-x * x).exp()) / (1.0 + x.abs()) + x.abs().sqrt() + 1.0 / (1.0 + x * x).sqrt();
        assert!((f64::from(y) - expected).abs() < 1e-6 * (1.0 + expected.abs()), "{x}: {y} is not {expected}");
    }
}

#[test]
fn votes_matches_and_reductions_agree_with_scalar_code() {
    let k = kernel("basics", "votes");
    for seed in 0..20 {
        let mut numbers = Numbers::new(seed);
        let input: Vec<i32> = (0..32).map(|_| numbers.below(12) as i32 - 4).collect();
        let mut m = Memory::default();
        let (out, data) = (m.with("out", &[0u32; 32]), m.with("in", &input));
        run_clean(&k, &Launch::new([1, 1, 1], [32, 1, 1]).arg(out).arg(data), &mut m, &schedules()[0]);
        let mask = |f: &dyn Fn(i32) -> bool| input.iter().enumerate().fold(0u32, |m, (i, &v)| m | u32::from(f(v)) << i);
        let sum = input.iter().fold(0u32, |s, &v| s.wrapping_add(v as u32));
        let lowest = *input.iter().min().unwrap() as u32;
        let any = u32::from(input.contains(&7));
        let expected: Vec<u32> =
            input.iter().map(|&v| mask(&|x| x > 0) ^ mask(&|x| x == v) ^ sum ^ lowest ^ any).collect();
        assert_eq!(m.read::<u32>(out, 32), expected);
    }
}

#[test]
fn a_filter_by_ballot_and_ticket_keeps_the_right_set_and_repeats() {
    let k = kernel("basics", "filter");
    let mut numbers = Numbers::new(4);
    let keys: Vec<f32> = (0..1000).map(|_| numbers.unit()).collect();
    for options in schedules() {
        let mut runs = Vec::new();
        for _ in 0..2 {
            let mut m = Memory::default();
            let (kept, count, data) = (m.with("kept", &[-1i32; 1000]), m.with("count", &[0u32]), m.with("keys", &keys));
            run_clean(
                &k,
                &Launch::new([8, 1, 1], [128, 1, 1]).arg(kept).arg(count).arg(data).arg(0.25f32).arg(1000i32),
                &mut m,
                &options,
            );
            let n = m.read::<u32>(count, 1)[0] as usize;
            runs.push(m.read::<i32>(kept, n));
        }
        assert_eq!(runs[0], runs[1], "a run repeats under the same seed");
        let mut found = runs[0].clone();
        found.sort_unstable();
        let expected: Vec<i32> = (0..1000).filter(|&i| keys[i as usize] > 0.25).collect();
        assert_eq!(found, expected);
    }
}

#[test]
fn structs_doubles_and_small_integers() {
    #[repr(C)]
    #[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable, Debug, PartialEq)]
    struct Point {
        x: f64,
        tag: i32,
        s: i16,
        c: i8,
        pad: u8,
    }
    let k = kernel("basics", "points");
    let points: Vec<Point> = (0..32)
        .map(|i| Point { x: f64::from(i) * 0.1, tag: i * 12345 - 100_000, s: i as i16 * 999, c: (i * 7) as i8, pad: 0 })
        .collect();
    let shift = Point { x: -3.25, tag: 17, s: -5, c: 100, pad: 0 };
    let factor = 1_234_567_891_011i64;
    let mut m = Memory::default();
    let out = m.with("points", &points);
    run_clean(&k, &Launch::new([1, 1, 1], [32, 1, 1]).arg(out).arg(shift).arg(factor), &mut m, &schedules()[0]);
    let expected: Vec<Point> = points
        .iter()
        .map(|p| Point {
            x: p.x.mul_add(factor as f64, shift.x),
            tag: (i64::from(p.tag).wrapping_mul(factor).wrapping_add(shift.tag.into()) % 1_000_003) as i32,
            s: p.s.wrapping_mul(shift.s),
            c: p.c.wrapping_sub(shift.c),
            pad: 0,
        })
        .collect();
    assert_eq!(m.read::<Point>(out, 32), expected);
}

#[test]
fn local_memory_is_private_to_the_lane() {
    let k = kernel("basics", "local_table");
    let mut m = Memory::default();
    let out = m.with("out", &[0i32; 64]);
    run_clean(&k, &Launch::new([1, 1, 1], [64, 1, 1]).arg(out).arg(13i32), &mut m, &schedules()[0]);
    let expected: Vec<i32> = (0..64)
        .map(|t: usize| {
            let mut table = [0i32; 16];
            (0..16).for_each(|i| table[(i * 7 + t) & 15] = i as i32 * 13);
            (0..13).map(|i| table[(i * 3) & 15] * (i as i32 + 1)).sum()
        })
        .collect();
    assert_eq!(m.read::<i32>(out, 64), expected);
}
