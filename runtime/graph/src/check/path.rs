//! The critical path, to price an edge.

use crate::finding::Price;
use crate::model::{NodeId, Pool};
use crate::order::{Adjacency, Order};

/// Longest paths into and out of every node.
pub(super) struct CriticalPath {
    /// Up to and including the node.
    head: Vec<u64>,
    /// From and including the node.
    tail: Vec<u64>,
    longest: u64,
    timed: bool,
}

impl CriticalPath {
    pub(super) fn of(pool: &Pool, order: &Order) -> Self {
        let work = |id: &NodeId| pool.node(*id).kind != crate::model::NodeKind::Marker;
        let timed = pool.node_ids().filter(work).all(|id| pool.node(id).nanos.is_some());
        let cost = |id: NodeId| match (work(&id), timed) {
            (false, _) => 0,
            (true, true) => pool.node(id).nanos.unwrap_or(0),
            (true, false) => 1,
        };
        let adjacency = Adjacency::of(pool);
        let nodes = pool.nodes().len();
        let (mut head, mut tail) = (vec![0u64; nodes], vec![0u64; nodes]);
        for &id in order.serial() {
            let before = adjacency.predecessors(id).iter().map(|(p, _)| head[p.index()]);
            head[id.index()] = before.max().unwrap_or(0).saturating_add(cost(id));
        }
        for &id in order.serial().iter().rev() {
            let after = adjacency.successors(id).iter().map(|(s, _)| tail[s.index()]);
            tail[id.index()] = after.max().unwrap_or(0).saturating_add(cost(id));
        }
        let longest = head.iter().copied().max().unwrap_or(0);
        Self { head, tail, longest, timed }
    }

    /// The price of one more edge.
    pub(super) fn edge(&self, from: NodeId, to: NodeId) -> Price {
        let through = self.head[from.index()].saturating_add(self.tail[to.index()]);
        Price { critical_path: Some(through.saturating_sub(self.longest)), timed: self.timed, bytes: None }
    }
}
