//! Launch rules: how many CTAs, from what is known when a launch is captured.
//!
//! A captured graph replays with other lengths than it was captured with, so a rule sees only the longest length
//! allowed. How the pages of a row spread over the row's CTAs is decided in the kernel, from the device-side
//! length: see [`pages_per_cta`].

use lathe_codegen::target::Target;

use crate::contract::PAGE_SLOTS;

/// Most pages that a group of four warps walks: their ids lie in one register of each lane of a warp.
pub const MAX_WALK: u64 = 32;

/// Stages of a ring that leave room for another CTA on every target.
pub const STAGES: i32 = 2;

/// Stages of a ring that leave room for another CTA on Hopper, which has more shared memory.
pub const DEEP_STAGES: i32 = 5;

/// CTAs of the bf16 logits kernel on an SM.
pub const BF16_CTAS_PER_SM: u32 = 2;

/// Warps of four of the fp8 logits kernel on an SM: queries that lie in shared memory, for `wgmma`, leave registers for a
/// fourth.
pub fn fp8_warpgroups_per_sm(target: Target) -> u32 {
    if target.capability() == 90 { 4 } else { 3 }
}

/// What a logits kernel is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Groups of four warps a CTA, which share the queries; each walks pages of its own.
    pub warpgroups: i32,
    /// Stages of each warp's ring.
    pub stages: i32,
}

/// Schedule and grid of the fp8 logits kernel.
///
/// On Hopper, once there are more pages than SMs and while they make one wave of CTAs, two warpgroups share the queries. An
/// SM has registers for two such CTAs and no third; of the smallest ones, four are meant to be on an SM and five fit, so that
/// under programmatic edges those of the next launch gather where SMs end first. A page an SM, and many waves, go best with
/// the smallest CTAs. Three stages, but two where one wave makes the longest walks.
pub fn fp8_logits_launch(target: Target, batch: usize, next_n: usize, max_len: u64, sms: u32) -> (Schedule, [u32; 3]) {
    let warpgroups_per_sm = fp8_warpgroups_per_sm(target);
    let [x, splits, z] = logits_grid(warpgroups_per_sm, batch, next_n, max_len, sms);
    if target.capability() != 90 {
        return (Schedule { warpgroups: 1, stages: STAGES }, [x, splits, z]);
    }
    let (rows, pages) = ((batch * next_n) as u64, max_len.div_ceil(PAGE_SLOTS as u64));
    let walk = longest_walk(rows, pages, sms, warpgroups_per_sm);
    let one_wave = rows * pages <= 2 * walk * u64::from(warpgroups_per_sm) * u64::from(sms);
    let schedule = Schedule {
        warpgroups: if one_wave && rows * pages > u64::from(sms) { 2 } else { 1 },
        stages: if walk == MAX_WALK { 2 } else { 3 },
    };
    (schedule, [x, splits.div_ceil(schedule.warpgroups.unsigned_abs()), z])
}

/// Pages that a CTA of a logits kernel walks in the longest launch, from `rows` query rows and the longest length allowed.
///
/// Measured best on keys of every size: a page a CTA while all pages fit one wave; then the power of two that makes one
/// wave, up to 32 pages; then many waves of 16 pages with two CTAs on an SM, of 11 with more, since a persistent grid loses
/// to them (SMs do not get equal bandwidth).
fn longest_walk(rows: u64, pages: u64, sms: u32, ctas_per_sm: u32) -> u64 {
    let wave = u64::from(ctas_per_sm) * u64::from(sms);
    let one_wave = (rows * pages).div_ceil(wave).max(1).next_power_of_two();
    // Twice the largest walk is still better as two waves of it than as many of 16.
    match one_wave {
        walk if walk <= 2 * MAX_WALK => walk.min(MAX_WALK),
        _ if ctas_per_sm == 2 => 16,
        _ => 11,
    }
}

/// Grid of the logits kernels: `[next_n, splits, batch]`, or zeros where there is nothing to do. The rows of a request,
/// which read the same pages, run side by side. `ctas_per_sm` is [`BF16_CTAS_PER_SM`], or [`fp8_warpgroups_per_sm`]
/// for CTAs of one warpgroup.
pub fn logits_grid(ctas_per_sm: u32, batch: usize, next_n: usize, max_len: u64, sms: u32) -> [u32; 3] {
    let pages = max_len.div_ceil(PAGE_SLOTS as u64);
    logits_grid_of_walk(batch, next_n, max_len, longest_walk((batch * next_n) as u64, pages, sms, ctas_per_sm))
}

/// Grid of the logits kernels whose CTAs walk `walk` pages of the longest row, whatever [`logits_grid`] would choose.
pub fn logits_grid_of_walk(batch: usize, next_n: usize, max_len: u64, walk: u64) -> [u32; 3] {
    let splits = max_len.div_ceil(PAGE_SLOTS as u64).div_ceil(walk);
    if batch == 0 || splits == 0 { [0, 0, 0] } else { [next_n as u32, splits as u32, batch as u32] }
}

/// Stages of the bf16 logits kernel's rings.
///
/// Where one wave of CTAs walks several pages each, two stages are best: with more in flight, every CTA's first page
/// comes later. One page a CTA, or many waves, go best with five, where they fit beside a second CTA of the SM.
pub fn bf16_logits_stages(target: Target, batch: usize, next_n: usize, max_len: u64, sms: u32) -> i32 {
    let pages = max_len.div_ceil(PAGE_SLOTS as u64);
    let rows = (batch * next_n) as u64;
    let walk = longest_walk(rows, pages, sms, BF16_CTAS_PER_SM);
    let many_waves = rows * pages > 2 * walk * u64::from(BF16_CTAS_PER_SM) * u64::from(sms);
    if target.capability() == 90 && (walk == 1 || many_waves) { DEEP_STAGES } else { STAGES }
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
    fn two_warpgroups_share_the_queries_while_one_wave_has_several_pages_an_sm() {
        let launch = |rows, max_len| {
            let (schedule, [1, splits, _]) = fp8_logits_launch(Target::Sm90a, rows, 1, max_len, SMS) else { panic!() };
            (splits, schedule.warpgroups, schedule.stages)
        };
        assert_eq!(launch(1, 4_096), (64, 1, 3)); // a page an SM
        assert_eq!(launch(1, 16_384), (128, 2, 3)); // a page a warpgroup
        assert_eq!(launch(1, 65_536), (1024 / 2 / 2, 2, 3));
        assert_eq!(launch(16, 16_384), (256 / 8 / 2, 2, 3));
        assert_eq!(launch(64, 16_384), (256 / 32 / 2, 2, 2));
        assert_eq!(launch(128, 65_536), (1024_u32.div_ceil(11), 1, 3)); // many waves
        let elsewhere = fp8_logits_launch(Target::Sm120a, 16, 1, 16_384, 188);
        assert_eq!(elsewhere, (Schedule { warpgroups: 1, stages: 2 }, [1, 256 / 8, 16]));
    }

    #[test]
    fn rings_are_deep_for_single_pages_and_for_many_waves() {
        let stages = |rows, max_len| bf16_logits_stages(Target::Sm90a, rows, 1, max_len, SMS);
        for (rows, max_len) in [(1, 1024), (1, 16_384), (64, 65_536), (128, 65_536)] {
            assert_eq!(stages(rows, max_len), DEEP_STAGES, "{rows} x {max_len}");
        }
        for (rows, max_len) in [(1, 65_536), (16, 4096), (16, 16_384), (64, 16_384)] {
            assert_eq!(stages(rows, max_len), STAGES, "{rows} x {max_len}");
        }
        assert_eq!(bf16_logits_stages(Target::Sm120a, 128, 1, 65_536, 188), STAGES);
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
