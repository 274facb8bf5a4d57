//! Placing buffers one after another, and walking from one such order to a better one.

use super::problem::{Offsets, Problem};
use crate::bits::ones;
use crate::rng::SplitMix;

/// Which of the gaps that are large enough a buffer takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// The lowest.
    First,
    /// The smallest; the lowest of equals.
    Best,
}

/// Places the buffers in the order given, each beside the conflicting ones already placed.
/// Gives up (`None`) once the peak reaches `limit`.
pub fn place(problem: &Problem, order: &[u32], fit: Fit, limit: u64) -> Option<Offsets> {
    let n = problem.sizes.len();
    let mut offsets = vec![0; n];
    let mut placed: Vec<(u64, u64, u32)> = Vec::with_capacity(n); // (offset, end, buffer), by offset
    let mut peak = 0;
    for &b in order {
        let size = problem.sizes[b as usize];
        let offset = gap(problem.conflicts.row(b as usize), &placed, size, problem.aligns[b as usize], fit);
        let end = offset + size;
        if end >= limit {
            return None;
        }
        peak = peak.max(end);
        offsets[b as usize] = offset;
        if size > 0 {
            let at = placed.partition_point(|&(o, ..)| o < offset);
            placed.insert(at, (offset, end, b));
        }
    }
    Some(Offsets { of: offsets, peak })
}

fn gap(conflicts: &[u64], placed: &[(u64, u64, u32)], size: u64, align: u64, fit: Fit) -> u64 {
    let mut free_from = 0;
    let mut best: Option<(u64, u64)> = None; // (gap, offset)
    for &(offset, end, b) in placed {
        if conflicts[b as usize / 64] >> (b % 64) & 1 == 0 {
            continue;
        }
        if offset >= free_from + size {
            if fit == Fit::First {
                return free_from;
            }
            let gap = offset - free_from;
            if best.is_none_or(|(smallest, _)| gap < smallest) {
                best = Some((gap, free_from));
            }
        }
        free_from = free_from.max(end.next_multiple_of(align));
    }
    best.map_or(free_from, |(_, offset)| offset)
}

/// The static orders worth trying, best first on graphs seen so far; ties go to the earlier buffer.
pub fn static_orders(problem: &Problem) -> Vec<Vec<u32>> {
    let n = problem.sizes.len();
    let pressure: Vec<u64> =
        (0..n).map(|b| ones(problem.conflicts.row(b)).map(|other| problem.sizes[other]).sum()).collect();
    let size = |b: usize| u128::from(problem.sizes[b]);
    let degree = |b: usize| u128::from(problem.conflicts.row(b).iter().map(|w| w.count_ones()).sum::<u32>());
    let keys: [&dyn Fn(usize) -> u128; 5] =
        [&|b| size(b), &|b| size(b) * degree(b), &|b| u128::from(pressure[b]) + size(b), &|b| degree(b), &|b| {
            u128::from(u64::MAX - problem.spans[b].0)
        }];
    keys.iter()
        .map(|key| {
            let keyed: Vec<u128> = (0..n).map(key).collect();
            let mut order: Vec<u32> = (0..n as u32).collect();
            order.sort_by_key(|&b| (std::cmp::Reverse(keyed[b as usize]), problem.spans[b as usize].0, b));
            order
        })
        .collect()
}

/// The best of all static orders and fits, with the order that gave it. Stops at `floor`, which nothing can beat.
pub fn best_static(problem: &Problem, floor: u64) -> (Offsets, Vec<u32>, Fit) {
    let mut best: Option<(Offsets, Vec<u32>, Fit)> = None;
    for order in static_orders(problem) {
        for fit in [Fit::Best, Fit::First] {
            let limit = best.as_ref().map_or(u64::MAX, |(offsets, ..)| offsets.peak);
            if limit <= floor {
                break;
            }
            if let Some(offsets) = place(problem, &order, fit, limit) {
                best = Some((offsets, order.clone(), fit));
            }
        }
    }
    best.expect("there is at least one order, and no limit on the first")
}

/// Moves buffers that reach the peak earlier in the order, `steps` times, and keeps what is not worse.
pub fn improve(problem: &Problem, start: (Offsets, Vec<u32>, Fit), floor: u64, steps: u64) -> Offsets {
    let (mut best, mut order, fit) = start;
    let mut current = best.clone();
    let mut rng = SplitMix::new(order.len() as u64);
    for _ in 0..steps {
        if best.peak <= floor {
            break;
        }
        let top: Vec<usize> = (0..order.len())
            .filter(|&at| {
                let b = order[at] as usize;
                current.of[b] + problem.sizes[b] == current.peak
            })
            .collect();
        let mut trial = order.clone();
        // A buffer at the peak, or one that stands in its way.
        let mut from = top[rng.below(top.len())];
        if rng.below(3) == 0 {
            let rivals: Vec<usize> = (0..order.len())
                .filter(|&at| problem.conflicts.get(order[from] as usize, order[at] as usize))
                .collect();
            if !rivals.is_empty() {
                from = rivals[rng.below(rivals.len())];
            }
        }
        let to = rng.below(from + 1);
        let moved = trial.remove(from);
        trial.insert(to, moved);
        // Equal peaks are kept too: they are the way off a plateau.
        if let Some(offsets) = place(problem, &trial, fit, current.peak + 1) {
            order = trial;
            current = offsets;
            if current.peak < best.peak {
                best = current.clone();
            }
        }
    }
    best
}
