//! Which pairs of nodes matter: each pair that the edges leave open, run in both orders.

use super::schedule::Schedule;
use super::tagged::Tagged;
use crate::finding::Step;
use std::collections::{HashMap, HashSet};

use crate::model::{BufferId, GraphId, NodeId, Placement, Pool};

/// Two nodes whose order changes what one of them reads or what the bytes hold after both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PairVerdict {
    /// The node recorded first; the same as the other if one node does not agree with itself.
    pub first: NodeId,
    /// The other.
    pub second: NodeId,
}

/// All such pairs of one replay of `graph`, by running each pair, after what either needs, both ways round.
pub fn judge(pool: &Pool, placement: &Placement, graph: GraphId) -> Vec<PairVerdict> {
    let schedule = Schedule::new(pool, graph);
    let steps = schedule.steps();
    let needs: Vec<Vec<bool>> = (0..steps.len()).map(|step| schedule.needs(step)).collect();
    let position: Vec<usize> = {
        let mut position = vec![0; steps.len()];
        let number = |step: &Step| steps.iter().position(|s| s == step).expect("the order holds each step once");
        schedule.record_order().steps.iter().enumerate().for_each(|(at, step)| position[number(step)] = at);
        position
    };
    let mut by_position: Vec<usize> = (0..steps.len()).collect();
    by_position.sort_by_key(|&step| position[step]);
    let mut world = Tagged::new(pool, placement, graph);
    let mut verdicts = Vec::new();
    for (at, &i) in by_position.iter().enumerate() {
        if disagrees_with_itself(&mut world, pool, steps[i].node()) {
            verdicts.push(PairVerdict { first: steps[i].node(), second: steps[i].node() });
        }
        for &j in &by_position[at + 1..] {
            if needs[j][i] || needs[i][j] {
                continue;
            }
            world.restart();
            let early = by_position.iter().filter(|&&step| needs[i][step] || needs[j][step]);
            early.for_each(|&step| {
                world.begin(steps[step]);
                world.end(steps[step]);
            });
            let start = world.state().clone();
            let [forward, backward] = [[i, j], [j, i]].map(|pair| {
                world.set_state(start.clone());
                for step in pair {
                    world.begin(steps[step]);
                    world.end(steps[step]);
                }
                world.state().clone()
            });
            if forward != backward {
                let (first, second) = (steps[i].node(), steps[j].node());
                verdicts.push(PairVerdict { first: first.min(second), second: first.max(second) });
            }
        }
    }
    verdicts.sort_unstable();
    verdicts.dedup();
    verdicts
}

/// Does it matter in which order one node does what it does? Nothing orders the accesses within it.
fn disagrees_with_itself(world: &mut Tagged, pool: &Pool, node: NodeId) -> bool {
    let accesses = pool.node(node).accesses.len();
    (0..accesses).any(|x| (0..x).any(|y| world.accesses_disagree(node, x, y)))
}

/// In the record order, the reads of bytes that the graph wrote through the same buffer and then overwrote through another.
pub fn strays(pool: &Pool, placement: &Placement, graph: GraphId) -> Vec<(NodeId, BufferId)> {
    let world = Tagged::new(pool, placement, graph);
    let mut written: HashSet<(u32, BufferId)> = HashSet::new();
    let mut last_writer: HashMap<u32, BufferId> = HashMap::new();
    let mut strays = Vec::new();
    for step in Schedule::new(pool, graph).record_order().steps {
        let cells = |index| world.cells(step.node(), index);
        for (index, access) in world.accesses(step).filter(|(_, a)| a.effect.reads()) {
            let own = access.buffer;
            let lost = |c: &u32| written.contains(&(*c, own)) && last_writer.get(c) != Some(&own);
            if cells(index).any(|c| lost(&c)) {
                strays.push((step.node(), own));
            }
        }
        for (index, access) in world.accesses(step).filter(|(_, a)| a.effect.writes()) {
            for cell in cells(index) {
                written.insert((cell, access.buffer));
                last_writer.insert(cell, access.buffer);
            }
        }
    }
    strays
}
