//! The graph with observers in it, to prove that they change nothing.

use std::collections::BTreeSet;

use lathe_graph::location::Location;
use lathe_graph::model::{
    Access, Basis, Buffer, BufferId, EdgeKind, Effect, GraphId, Lifetime, Node, NodeId, NodeKind, Phase, Placement,
    Pool, Site,
};
use lathe_graph::order::Order;

/// Which observers are on. Their bytes are reserved whether they are on or off.
#[derive(Clone, Debug, Default)]
pub struct Observers {
    /// Buffers that a canary copies before and after each replay.
    pub canary: Vec<BufferId>,
    /// Whether dead bytes of transients are poisoned.
    pub poison: bool,
}

/// The pool with the observers as nodes of their own. A poison of a transient runs after all its uses, and before only
/// those nodes that come after all of them anyway and use its bytes.
pub fn observed(pool: &Pool, placement: &Placement, order: &Order, observers: &Observers) -> (Pool, Placement) {
    let (mut with, mut placed) = (pool.clone(), placement.clone());
    let location = Location::caller();

    // Behind everything, so that no address of the plan can depend on it.
    let end = pool.buffer_ids().filter_map(|id| placement.range(pool, id)).map(|range| range.end).max().unwrap_or(0);
    let copies: u64 = 2 * pool.buffer_ids().map(|id| pool.buffer(id)).filter(is_carried).map(|b| b.size).sum::<u64>();
    let reservation =
        Buffer::new("observers", copies.max(1), Lifetime::Persistent { carried: false }, location.clone());
    let reservation = with.add_buffer(reservation);
    placed.set(reservation, end.next_multiple_of(256));

    let mut at = 0;
    for &buffer in &observers.canary {
        let size = pool.buffer(buffer).size;
        for moment in ["before", "after"] {
            let name = format!("canary of `{}`, {moment} the replay", pool.buffer(buffer).name);
            let mut node = Node::new(name, NodeKind::Memcpy, Site::Between, stream_of(pool, buffer), location.clone());
            node.accesses =
                vec![access(buffer, 0..size, Effect::Read), access(reservation, at..at + size, Effect::WriteAll)];
            at += size;
            with.add_node(node);
        }
    }
    if observers.poison {
        for buffer in pool.buffer_ids() {
            if let Lifetime::Transient { graph, .. } = pool.buffer(buffer).lifetime {
                add_poison(pool, placement, order, graph, buffer, &mut with);
            }
        }
    }
    (with, placed)
}

fn is_carried(buffer: &&Buffer) -> bool {
    matches!(buffer.lifetime, Lifetime::Persistent { carried: true })
}

fn access(buffer: BufferId, range: std::ops::Range<u64>, effect: Effect) -> Access {
    Access { buffer, range, effect, phase: Phase::AfterWait, basis: Basis::Declared }
}

fn stream_of(pool: &Pool, buffer: BufferId) -> lathe_graph::model::StreamId {
    let uses = pool.uses();
    uses.of(buffer).last().map_or(lathe_graph::model::StreamId(0), |(node, _)| pool.node(*node).stream)
}

fn add_poison(pool: &Pool, placement: &Placement, order: &Order, graph: GraphId, buffer: BufferId, with: &mut Pool) {
    let uses: BTreeSet<NodeId> = pool.uses().of(buffer).iter().map(|(node, _)| *node).collect();
    let (Some(&last), Some(bytes)) = (uses.last(), placement.range(pool, buffer)) else { return };
    let name = format!("poison of `{}`", pool.buffer(buffer).name);
    let mut node =
        Node::new(name, NodeKind::Memset, Site::Graph(graph), pool.node(last).stream, pool.node(last).location.clone());
    node.accesses = vec![access(buffer, 0..pool.buffer(buffer).size, Effect::WriteAll)];
    let poison = with.add_node(node);
    for &user in &uses {
        with.add_edge(user, poison, EdgeKind::Full);
    }
    let uses_the_bytes = |id: &NodeId| {
        pool.node(*id).accesses.iter().any(|a| {
            placement.range(pool, a.buffer).is_some_and(|range| range.start < bytes.end && bytes.start < range.end)
        })
    };
    let after_all = |id: &NodeId| uses.iter().all(|&user| order.before(user, *id));
    for later in pool.nodes_of(graph).filter(after_all).filter(uses_the_bytes) {
        with.add_edge(poison, later, EdgeKind::Full);
    }
}
