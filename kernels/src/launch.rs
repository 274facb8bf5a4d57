//! Launch rules: how many CTAs, from what is known when a launch is captured.
//!
//! A captured graph replays with other lengths than it was captured with, so a rule sees only the longest length
//! allowed. How the pages of a row spread over the row's CTAs is decided in the kernel, from the device-side
//! length: see [`pages_per_cta`].

use lathe_codegen::target::Target;

use crate::contract::PAGE_SLOTS;
use crate::partition::GROUP;

/// Most pages that a CTA of the logits kernels walks at a time: their ids lie in one register of each lane of a warp.
pub const MAX_WALK: u64 = 32;

/// Stages of a ring that leave room for another CTA on every target.
pub const STAGES: i32 = 2;

/// Stages of a ring that leave room for another CTA on Hopper, which has more shared memory.
pub const DEEP_STAGES: i32 = 5;

/// CTAs of the bf16 logits kernel on an SM.
pub const BF16_CTAS_PER_SM: u32 = 2;

/// CTAs of the fp8 logits kernel on an SM: queries that lie in shared memory, for `wgmma`, leave registers for a fourth.
pub fn fp8_ctas_per_sm(target: Target) -> u32 {
    if target.capability() == 90 { 4 } else { 3 }
}

/// What a logits kernel is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// How often the launch fills the device. *1*: the CTAs of a row share that row; no way to the first key is shorter.
    /// *[More](LEAST_WAVES)*: all CTAs share all rows, by the lengths that they find: see [`partition`](crate::partition).
    pub waves: i32,
    /// Stages of each warp's ring.
    pub stages: i32,
}

/// Pages of a walk that one wave would make, up to which there is one: twice the largest walk is still better as two waves of
/// it than as many of 16.
const LONGEST_WAVE: u64 = 2 * MAX_WALK;

/// The fewest waves of a bf16 launch whose CTAs share all rows.
pub const LEAST_WAVES: i32 = 4;

/// The fewest waves of an fp8 one.
pub const FP8_LEAST_WAVES: i32 = 2;

/// The most: a launch of the longest rows loses 1 % to one of still smaller CTAs, and one of short rows gains more.
pub const MOST_WAVES: i32 = 16;

/// Schedules of the bf16 logits kernel.
pub fn bf16_schedules(target: Target) -> Vec<Schedule> {
    let schedules = match target.capability() {
        90 => &[(1, STAGES), (1, DEEP_STAGES), (LEAST_WAVES, 3), (8, DEEP_STAGES), (MOST_WAVES, DEEP_STAGES)][..],
        _ => &[(1, STAGES), (LEAST_WAVES, STAGES), (8, STAGES), (MOST_WAVES, STAGES)],
    };
    schedules.iter().map(|&(waves, stages)| Schedule { waves, stages }).collect()
}

/// Schedule and grid of the bf16 logits kernel.
///
/// Stages, on Hopper: two are best for one wave of CTAs: with more in flight, every CTA's first page comes later. Many waves
/// go best with five, where they fit beside a second CTA of the SM; three are between the two for launches that may be short
/// or long.
pub fn bf16_logits_launch(target: Target, batch: usize, next_n: usize, max_len: u64, sms: u32) -> (Schedule, [u32; 3]) {
    let grid = logits_grid(BF16_CTAS_PER_SM, batch, next_n, max_len, sms);
    let waves = balanced_waves(BF16_CTAS_PER_SM * sms, LEAST_WAVES, batch, next_n, max_len);
    let stages = match waves {
        _ if target.capability() != 90 => STAGES,
        Some(LEAST_WAVES) => 3,
        Some(_) => DEEP_STAGES,
        None if one_wave_walk(batch, next_n, max_len, BF16_CTAS_PER_SM * sms) <= LONGEST_WAVE => STAGES,
        None => DEEP_STAGES,
    };
    let schedule = Schedule { waves: waves.unwrap_or(1), stages };
    (schedule, waves.map_or(grid, |waves| balanced_grid(BF16_CTAS_PER_SM * sms, waves, batch, next_n)))
}

/// Waves of a launch whose groups of four warps share all rows, at least `least`, where that is better than that each row has
/// its own.
///
/// While the longest launch is not much more than one wave, it is not: the lengths are one more load on the way to the first
/// key. From there on, neither a long row beside short ones nor a graph captured for longer rows than it replays leaves most
/// of the device idle. A group for 32 pages of the longest launch: with fewer, SMs that are faster than others are idle
/// at its end, and of more, more find nothing to do in a short one.
///
/// Batches of more than [`GROUP`] requests keep to their rows, and those that do not divide so many groups evenly.
fn balanced_waves(wave: u32, least: i32, batch: usize, next_n: usize, max_len: u64) -> Option<i32> {
    let waves = (one_wave_walk(batch, next_n, max_len, wave) / MAX_WALK).min(MOST_WAVES as u64) as i32;
    if waves < least || batch > GROUP as usize {
        return None;
    }
    let [x, splits, z] = balanced_grid(wave, waves, batch, next_n);
    let (groups, wanted) = (x * splits * z, waves.unsigned_abs() * wave);
    (groups <= wanted && groups >= wanted / 10 * 9).then_some(waves)
}

/// Grid of a logits kernel whose CTAs share all rows and fill the device, which has room for `wave` of them, so often.
pub fn balanced_grid(wave: u32, waves: i32, batch: usize, next_n: usize) -> [u32; 3] {
    if batch == 0 {
        return [0, 0, 0];
    }
    let splits = waves.unsigned_abs() * wave / (batch * next_n) as u32;
    [next_n as u32, splits.max(1), batch as u32]
}

/// Pages that each of `wave` walkers would have, as a power of two.
fn one_wave_walk(batch: usize, next_n: usize, max_len: u64, wave: u32) -> u64 {
    let pages = (batch * next_n) as u64 * max_len.div_ceil(PAGE_SLOTS as u64);
    pages.div_ceil(wave.into()).max(1).next_power_of_two()
}

/// Schedules of the fp8 logits kernel.
pub fn fp8_schedules(target: Target) -> Vec<Schedule> {
    let stages = if target.capability() == 90 { &[STAGES, 3][..] } else { &[STAGES] };
    let waves = [1, FP8_LEAST_WAVES, LEAST_WAVES, 8, MOST_WAVES];
    waves.into_iter().flat_map(|waves| stages.iter().map(move |&stages| Schedule { waves, stages })).collect()
}

/// Schedule and grid of the fp8 logits kernel.
///
/// Two stages, but on Hopper three where there are many waves, on own rows or on shared ones. Two waves on shared rows take an
/// even batch 1.5 % longer than own rows, and an uneven one 0.4 of their time.
pub fn fp8_logits_launch(target: Target, batch: usize, next_n: usize, max_len: u64, sms: u32) -> (Schedule, [u32; 3]) {
    let wave = fp8_ctas_per_sm(target) * sms;
    let waves = balanced_waves(wave, FP8_LEAST_WAVES, batch, next_n, max_len);
    let many_waves = match waves {
        Some(waves) => waves > FP8_LEAST_WAVES,
        None => one_wave_walk(batch, next_n, max_len, wave) > LONGEST_WAVE,
    };
    let stages = if target.capability() == 90 && many_waves { 3 } else { STAGES };
    let own = logits_grid(fp8_ctas_per_sm(target), batch, next_n, max_len, sms);
    let grid = waves.map_or(own, |waves| balanced_grid(wave, waves, batch, next_n));
    (Schedule { waves: waves.unwrap_or(1), stages }, grid)
}

/// Pages that a CTA of a logits kernel whose rows are not shared walks in the longest launch.
///
/// Measured best on keys of every size: a page a CTA while all pages fit one wave; then the power of two that makes one
/// wave, up to 32 pages; then many waves of 16 pages with two CTAs on an SM, of 11 with more, since a persistent grid loses
/// to them (SMs do not get equal bandwidth).
fn longest_walk(batch: usize, next_n: usize, max_len: u64, sms: u32, ctas_per_sm: u32) -> u64 {
    match one_wave_walk(batch, next_n, max_len, ctas_per_sm * sms) {
        walk if walk <= LONGEST_WAVE => walk.min(MAX_WALK),
        _ if ctas_per_sm == 2 => 16,
        _ => 11,
    }
}

/// Grid of the logits kernels: `[next_n, splits, batch]`, or zeros where there is nothing to do. The rows of a request,
/// which read the same pages, run side by side. `ctas_per_sm` is [`BF16_CTAS_PER_SM`] or [`fp8_ctas_per_sm`].
pub fn logits_grid(ctas_per_sm: u32, batch: usize, next_n: usize, max_len: u64, sms: u32) -> [u32; 3] {
    logits_grid_of_walk(batch, next_n, max_len, longest_walk(batch, next_n, max_len, sms, ctas_per_sm))
}

/// Grid of the logits kernels whose CTAs walk `walk` pages of the longest row, whatever [`logits_grid`] would choose.
pub fn logits_grid_of_walk(batch: usize, next_n: usize, max_len: u64, walk: u64) -> [u32; 3] {
    let splits = max_len.div_ceil(PAGE_SLOTS as u64).div_ceil(walk);
    if batch == 0 || splits == 0 { [0, 0, 0] } else { [next_n as u32, splits as u32, batch as u32] }
}

/// Most pages that a CTA of a row walks: CTA `y` of `splits` takes pages `y`, `y + splits`, `y + 2 * splits`, ...
///
/// The pages are those of the row's own length, so that a graph captured for 131,072 keys still spreads a row of 1,000
/// over as many CTAs as it has pages.
pub fn pages_per_cta(row_pages: u32, splits: u32) -> u32 {
    row_pages.div_ceil(splits)
}

/// Rows that one CTA of the stores handles at a time: 4 warps, 16 lanes of 16 bytes a bf16 row.
pub const STORE_ROWS_PER_CTA: usize = 8;

/// CTAs of a store on an SM of Hopper, which holds 2,048 threads.
const STORE_CTAS_PER_SM: usize = 16;

/// Rows that a thread of the stores has in flight: one while that makes at most half a wave of CTAs, else two, since then
/// bytes in flight and the start of CTAs decide. More than two gained nothing on an H200.
pub fn store_rows_a_thread(rows: usize, sms: u32) -> i32 {
    if 2 * rows <= STORE_ROWS_PER_CTA * STORE_CTAS_PER_SM * sms as usize { 1 } else { 2 }
}

/// Grid of the stores, `rows_a_thread` rows each: `[ceil(rows / 8 / these), 1, 1]`, or zeros where there is nothing to do.
pub fn store_grid(rows: usize, rows_a_thread: i32) -> [u32; 3] {
    match rows.div_ceil(STORE_ROWS_PER_CTA * rows_a_thread as usize) {
        0 => [0, 0, 0],
        ctas => [ctas as u32, 1, 1],
    }
}

/// Grid of top-k: a CTA a row, or zeros where there is nothing to do.
pub fn topk_grid(rows: usize) -> [u32; 3] {
    if rows == 0 { [0, 0, 0] } else { [rows as u32, 1, 1] }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// H200.
    const SMS: u32 = 132;

    fn walk(rows: usize, max_len: u64) -> u64 {
        let [1, splits, z] = logits_grid(2, rows, 1, max_len, SMS) else { panic!() };
        assert_eq!(z as usize, rows);
        max_len.div_ceil(64).div_ceil(splits.into())
    }

    #[test]
    fn the_walk_follows_the_measured_optimum() {
        assert_eq!(walk(1, 1024), 1);
        assert_eq!(walk(1, 16_384), 1); // 256 pages in all
        assert_eq!(walk(1, 65_536), 4); // 1,024
        assert_eq!(walk(16, 4096), 4);
        assert_eq!(walk(16, 16_384), 16); // 4,096
        assert_eq!(walk(64, 16_384), 32); // 16,384
        assert_eq!(walk(64, 65_536), 16); // many waves
        assert_eq!(walk(128, 65_536), 16);
    }

    #[test]
    fn rings_are_deep_for_many_waves_on_hopper() {
        let bf16 = |rows, max_len| bf16_logits_launch(Target::Sm90a, rows, 1, max_len, SMS).0.stages;
        let fp8 = |rows, max_len| fp8_logits_launch(Target::Sm90a, rows, 1, max_len, SMS).0.stages;
        for (rows, max_len) in [(64, 65_536), (128, 65_536), (512, 65_536)] {
            assert_eq!([bf16(rows, max_len), fp8(rows, max_len)], [DEEP_STAGES, 3], "{rows} x {max_len}");
        }
        for (rows, max_len) in [(1, 1024), (1, 16_384), (1, 65_536), (16, 4096), (16, 16_384), (64, 16_384)] {
            assert_eq!([bf16(rows, max_len), fp8(rows, max_len)], [STAGES; 2], "{rows} x {max_len}");
        }
        assert_eq!([bf16(32, 65_536), fp8(32, 65_536)], [3, STAGES]);
        assert_eq!(bf16_logits_launch(Target::Sm120a, 128, 1, 65_536, 188).0.stages, STAGES);
        assert_eq!(fp8_logits_launch(Target::Sm120a, 128, 1, 65_536, 188).0.stages, STAGES);
    }

    #[test]
    fn fp8_ctas_walk_half_as_many_pages_where_twice_as_many_fit() {
        let splits = |rows, max_len| fp8_logits_launch(Target::Sm90a, rows, 1, max_len, SMS).1[1];
        assert_eq!(splits(1, 16_384), 256); // a page each
        assert_eq!(splits(1, 65_536), 1024 / 2);
        assert_eq!(splits(16, 16_384), 256 / 8);
        assert_eq!(splits(64, 16_384), 256 / 32);
        assert_eq!(splits(4_096, 4_096), 64_u32.div_ceil(11)); // many waves
        assert_eq!(fp8_logits_launch(Target::Sm120a, 16, 1, 16_384, 188).1, [1, 256 / 8, 16]);
    }

    #[test]
    fn rows_are_shared_once_the_longest_launch_is_far_more_than_a_wave() {
        let launch = |batch, next_n, max_len| {
            let (schedule, [_, splits, _]) = bf16_logits_launch(Target::Sm90a, batch, next_n, max_len, SMS);
            (schedule.waves, splits)
        };
        assert_eq!(launch(64, 1, 16_384), (1, 8)); // two waves of the longest walks
        assert_eq!(launch(32, 1, 65_536), (4, 4 * 264 / 32));
        assert_eq!(launch(64, 1, 65_536), (8, 8 * 264 / 64));
        assert_eq!(launch(128, 1, 65_536), (16, 16 * 264 / 128));
        assert_eq!(launch(256, 1, 131_072), (16, 16 * 264 / 256)); // 62 pages a CTA
        assert_eq!(launch(32, 2, 65_536), (8, 8 * 264 / 64));
        assert_eq!(launch(1, 1, 131_072), (1, 256)); // a lone row is its CTAs' own
        assert_eq!(launch(300, 1, 65_536), (1, 64)); // more than a group
        assert_eq!(launch(140, 4, 2_048), (1, 2)); // 560 rows do not divide 4 x 264 CTAs
        assert_eq!(launch(0, 1, 65_536), (1, 0));
    }

    #[test]
    fn fp8_rows_are_shared_from_two_waves_of_the_longest_walks_on() {
        let launch = |batch, max_len| {
            let (schedule, [_, splits, _]) = fp8_logits_launch(Target::Sm90a, batch, 1, max_len, SMS);
            (schedule, splits)
        };
        let shared = |waves| Schedule { waves, stages: if waves == 2 { 2 } else { 3 } };
        assert_eq!(launch(64, 16_384).0.waves, 1); // one wave of the longest walks
        assert_eq!(launch(32, 65_536), (shared(2), 2 * 528 / 32));
        assert_eq!(launch(64, 65_536), (shared(4), 4 * 528 / 64));
        assert_eq!(launch(128, 65_536), (shared(8), 8 * 528 / 128));
        assert_eq!(launch(300, 65_536).0.waves, 1); // more than a group
        let (elsewhere, [_, splits, _]) = fp8_logits_launch(Target::Sm120a, 64, 1, 65_536, 188);
        assert_eq!((elsewhere.waves, elsewhere.stages, splits), (4, STAGES, 4 * 564 / 64));
    }

    #[test]
    fn a_shared_launch_fills_the_device_as_often_as_it_says() {
        for batch in 1..=256 {
            for (next_n, max_len) in [(1, 65_536), (2, 65_536), (3, 131_072), (6, 16_384)] {
                let (Schedule { waves, .. }, [x, splits, z]) =
                    bf16_logits_launch(Target::Sm120a, batch, next_n, max_len, 188);
                assert_eq!((x as usize, z as usize), (next_n, batch));
                let (ctas, wanted) = (x * splits * z, waves.unsigned_abs() * 2 * 188);
                assert!(waves == 1 || (wanted * 9 / 10..=wanted).contains(&ctas), "{batch} {next_n} {max_len}: {ctas}");
            }
        }
    }

    #[test]
    fn threads_of_the_stores_take_two_rows_where_one_each_is_more_than_half_a_wave() {
        assert_eq!([1, 8_448, 8_449, 262_144].map(|rows| store_rows_a_thread(rows, SMS)), [1, 1, 2, 2]);
        assert_eq!(store_grid(9, 1), [2, 1, 1]);
        assert_eq!(store_grid(8_449, 2), [529, 1, 1]);
    }

    #[test]
    fn nothing_to_do_launches_nothing() {
        assert_eq!(logits_grid(2, 0, 1, 1024, SMS), [0, 0, 0]);
        assert_eq!(logits_grid(2, 4, 1, 0, SMS), [0, 0, 0]);
        assert_eq!(store_grid(0, 1), [0, 0, 0]);
    }

    #[test]
    fn no_length_gives_a_cta_more_pages_than_a_warp_has_lanes() {
        for (rows, max_pages) in [(1, 1), (1, 300), (3, 2048), (64, 257), (7, 4096), (4096, 4096)] {
            for sms in [1, 20, 132, 188] {
                let [_, splits, _] = logits_grid(2, rows, 1, u64::from(max_pages) * 64, sms);
                assert!((1..=max_pages).contains(&splits));
                let most = pages_per_cta(max_pages, splits);
                assert!(u64::from(most) <= MAX_WALK, "rows {rows} max {max_pages} sms {sms}: {most}");
            }
        }
    }
}
