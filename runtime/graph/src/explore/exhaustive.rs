//! Every order of a small graph, steps overlapping.

use super::schedule::Schedule;
use super::tagged::{State, Tagged};
use crate::model::{BufferId, GraphId, Placement, Pool};
use std::collections::{BTreeSet, HashSet};

/// What all orders together show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exhaustive {
    /// How many different situations (what has begun and ended, and the memory then) there are.
    pub states: usize,
    /// Do two orders of the same events ever leave different memory, or let a node read different values?
    pub order_matters: bool,
    /// Observed buffers that end with different values under some order; `None` stands for what a host node reads.
    pub results_differ_in: BTreeSet<Option<BufferId>>,
}

/// Runs one replay of `graph` in every order, each step as two events, its begin (it reads) and its end (it writes), so
/// that steps also overlap. Orders that lead to the same situation are followed once. `None` if there are more than
/// `limit` situations, or more than 32 steps.
pub fn exhaust(pool: &Pool, placement: &Placement, graph: GraphId, limit: usize) -> Option<Exhaustive> {
    let schedule = Schedule::new(pool, graph);
    let steps = schedule.steps();
    if steps.len() > 32 {
        return None;
    }
    // Event 2s is the begin of step s, event 2s + 1 its end.
    let needs: Vec<u64> = (0..2 * steps.len())
        .map(|event| match event % 2 {
            0 => schedule.after(event / 2).iter().fold(0, |set, &before| set | 1 << (2 * before + 1)),
            _ => 1 << (event - 1),
        })
        .collect();
    let mut world = Tagged::new(pool, placement, graph);
    let mut level: HashSet<(u64, State)> = HashSet::from([(0, world.state().clone())]);
    let mut outcome = Exhaustive { states: 0, order_matters: false, results_differ_in: BTreeSet::new() };
    let mut expected: Option<Vec<(Option<BufferId>, u64)>> = None;
    for _ in 0..needs.len() {
        let mut next = HashSet::new();
        for (done, state) in level {
            for (event, &needed) in needs.iter().enumerate() {
                if done >> event & 1 == 1 || needed & !done != 0 {
                    continue;
                }
                world.set_state(state.clone());
                match event % 2 {
                    0 => world.begin(steps[event / 2]),
                    _ => world.end(steps[event / 2]),
                }
                next.insert((done | 1 << event, world.state().clone()));
            }
        }
        outcome.states += next.len();
        if outcome.states > limit {
            return None;
        }
        let sets: HashSet<u64> = next.iter().map(|(done, _)| *done).collect();
        outcome.order_matters |= sets.len() < next.len();
        level = next;
    }
    for (_, state) in level {
        world.set_state(state);
        let results = world.results();
        let first = expected.get_or_insert_with(|| results.clone());
        let differing = first.iter().zip(&results).filter(|(a, b)| a != b).map(|((buffer, _), _)| *buffer);
        outcome.results_differ_in.extend(differing);
    }
    Some(outcome)
}
