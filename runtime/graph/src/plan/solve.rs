//! From a problem to offsets: greedy orders, a walk from the best of them, and the exact search.

use super::exact::Searcher;
use super::greedy::{best_static, improve};
use super::problem::{Offsets, Problem};

/// Beyond this many buffers only the greedy orders and the walk are worth their time.
const SEARCHABLE: usize = 1_500;

/// Offsets for `problem`. `floor` is a lower bound on the peak (0 if none is known); `steps` is how many placements of
/// a single buffer the walk and the search may each make.
pub fn solve(problem: &Problem, floor: u64, steps: u64) -> Offsets {
    if problem.is_empty() {
        return Offsets { of: Vec::new(), peak: 0 };
    }
    let start = best_static(problem, floor);
    let mut best = improve(problem, start, floor, steps / problem.len() as u64);
    if best.peak > floor && problem.len() <= SEARCHABLE {
        close_in(problem, &mut best, floor, steps);
    }
    best
}

/// Looks for a placement at the floor, then again and again halfway between what is known to fit and what did not.
fn close_in(problem: &Problem, best: &mut Offsets, floor: u64, steps: u64) {
    let searcher = Searcher::new(problem);
    let peak = |of: &[u64]| of.iter().zip(&problem.sizes).map(|(offset, size)| offset + size).max().unwrap_or(0);
    let mut missed = floor;
    let mut capacity = floor;
    for budget in std::iter::once(steps / 2).chain([steps / 12; 6]) {
        match searcher.fit(capacity, budget) {
            Some(of) => *best = Offsets { peak: peak(&of), of },
            None => missed = capacity,
        }
        if best.peak - missed <= floor / 1_000 {
            break;
        }
        capacity = missed + (best.peak - missed) / 2;
    }
}
