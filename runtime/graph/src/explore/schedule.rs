//! The orders that a graph's edges allow.

use crate::finding::Step;
use crate::model::{EdgeKind, GraphId, NodeId, PdlWait, Phase, Pool, Site};
use crate::rng::SplitMix;

/// All steps of one replay, each once, in an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// The steps.
    pub steps: Vec<Step>,
}

/// The steps of one replay of a graph, with the eager work beside it, and what each must wait for.
///
/// A kernel that may start before its programmatic predecessors are complete, and does something before it waits for
/// them, is two steps; every other node is one.
#[derive(Clone, Debug)]
pub struct Schedule {
    steps: Vec<Step>,
    /// For each step, the steps that must be complete before it.
    after: Vec<Vec<u32>>,
    /// For each node, its first and last step.
    of_node: Vec<Option<(u32, u32)>>,
}

impl Schedule {
    /// The steps of `graph`. The pool must be valid.
    pub fn new(pool: &Pool, graph: GraphId) -> Self {
        let mut waits = vec![false; pool.nodes().len()];
        for edge in pool.edges().iter().filter(|e| e.kind == EdgeKind::Programmatic) {
            waits[edge.to.index()] |= pool.node(edge.to).pdl_wait != PdlWait::Never;
        }
        let mut schedule = Self { steps: Vec::new(), after: Vec::new(), of_node: vec![None; pool.nodes().len()] };
        for id in pool.node_ids() {
            let node = pool.node(id);
            if !(node.site == Site::Graph(graph) || node.site == Site::Beside) {
                continue;
            }
            let first = schedule.steps.len() as u32;
            if waits[id.index()] && node.accesses.iter().any(|a| a.phase == Phase::BeforeWait) {
                schedule.steps.extend([Step::BeforeWait(id), Step::AfterWait(id)]);
                schedule.after.extend([vec![], vec![first]]);
                schedule.of_node[id.index()] = Some((first, first + 1));
            } else {
                schedule.steps.push(Step::Node(id));
                schedule.after.push(vec![]);
                schedule.of_node[id.index()] = Some((first, first));
            }
        }
        for edge in pool.edges() {
            let (Some((_, end)), Some((start, wait))) =
                (schedule.of_node[edge.from.index()], schedule.of_node[edge.to.index()])
            else {
                continue;
            };
            match edge.kind {
                EdgeKind::Full => schedule.after[start as usize].push(end),
                EdgeKind::Programmatic if waits[edge.to.index()] => schedule.after[wait as usize].push(end),
                EdgeKind::Programmatic => {}
            }
        }
        schedule
    }

    /// All steps, by node.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The steps that must be complete before step number `step`.
    pub(super) fn after(&self, step: usize) -> &[u32] {
        &self.after[step]
    }

    /// Numbers of the steps that must all be complete before step number `step` can run.
    pub(super) fn needs(&self, step: usize) -> Vec<bool> {
        let mut needed = vec![false; self.steps.len()];
        let mut stack = self.after[step].clone();
        while let Some(before) = stack.pop() {
            if !std::mem::replace(&mut needed[before as usize], true) {
                stack.extend(&self.after[before as usize]);
            }
        }
        needed
    }

    /// Runs what can run, whichever `choose` picks of the steps that are ready, until nothing is left.
    fn complete(&self, mut choose: impl FnMut(&[u32]) -> u32) -> Order {
        let mut missing: Vec<usize> = self.after.iter().map(Vec::len).collect();
        let mut followers: Vec<Vec<u32>> = vec![Vec::new(); self.steps.len()];
        for (step, after) in self.after.iter().enumerate() {
            after.iter().for_each(|&before| followers[before as usize].push(step as u32));
        }
        let mut ready: Vec<u32> = (0..self.steps.len() as u32).filter(|&s| missing[s as usize] == 0).collect();
        let mut steps = Vec::with_capacity(self.steps.len());
        while !ready.is_empty() {
            let next = choose(&ready);
            ready.retain(|&step| step != next);
            steps.push(self.steps[next as usize]);
            for &follower in &followers[next as usize] {
                missing[follower as usize] -= 1;
                if missing[follower as usize] == 0 {
                    ready.push(follower);
                }
            }
        }
        Order { steps }
    }

    /// The order of the recording, except where an edge leads back in it.
    pub fn record_order(&self) -> Order {
        self.complete(lowest)
    }

    /// A random order, the same for the same seed.
    pub fn random_order(&self, seed: u64) -> Order {
        let mut rng = SplitMix::new(seed);
        // Each step gets a weight, so that whole branches run late in some orders: more telling than a fair draw.
        let weights: Vec<u64> = self.steps.iter().map(|_| rng.next()).collect();
        self.complete(move |ready| match rng.below(4) {
            0 => ready[rng.below(ready.len())],
            _ => *ready.iter().min_by_key(|&&s| weights[s as usize]).expect("something is ready"),
        })
    }

    /// The order in which `second` comes as early as it can, so that `first` comes after it if that is allowed: what
    /// `second` needs, `second`, then the rest. Of a node with two steps `phase` tells which one.
    pub fn pair_order(&self, first: NodeId, second: NodeId, phase: Phase) -> Option<Order> {
        let first = self.step_of(first, Phase::AfterWait)?;
        let second = self.step_of(second, phase)?;
        let needed = self.needs(second);
        if needed[first] {
            return None;
        }
        let needs = |s: &u32| needed[*s as usize];
        Some(self.complete(|ready| {
            let early = ready.iter().copied().filter(needs).min();
            early.or(ready.iter().copied().find(|&s| s as usize == second)).unwrap_or_else(|| lowest(ready))
        }))
    }

    /// The number of the step in which `node` does what it does in `phase`.
    pub(super) fn step_of(&self, node: NodeId, phase: Phase) -> Option<usize> {
        let (first, last) = self.of_node.get(node.index()).copied().flatten()?;
        Some(if phase == Phase::BeforeWait { first } else { last } as usize)
    }
}

fn lowest(ready: &[u32]) -> u32 {
    ready.iter().copied().min().expect("something is ready")
}
