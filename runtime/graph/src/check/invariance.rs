//! E13: does an instrument leave the graph as it was?

use crate::finding::{Code, Finding, Party};
use crate::model::{BufferId, ModelError, NodeId, Phase, Placement, Pool};
use crate::order::Order;
use std::collections::HashMap;

/// A pool and where its buffers lie.
#[derive(Clone, Copy)]
pub struct Layout<'a> {
    /// The graphs and buffers.
    pub pool: &'a Pool,
    /// Their addresses.
    pub placement: &'a Placement,
}

/// Compares the graph with an instrument `on` to the graph with it `off`: every original buffer must keep its
/// address, and every two original nodes their order. Nodes and buffers are told apart by name. Ids in the
/// findings are rows of the pool that is `off`.
///
/// # Errors
/// [`ModelError`] if one of the pools is not valid.
pub fn invariance(off: Layout, on: Layout) -> Result<Vec<Finding>, ModelError> {
    let (order_off, order_on) = (Order::of(off.pool)?, Order::of(on.pool)?);
    let mut findings = Vec::new();
    let mut tell = |message: String, parties: Vec<Party>, more: usize, what: &str| {
        let mut finding = Finding::new(Code::E13, message);
        finding.graph = parties.iter().find_map(|p| off.pool.node(p.node?).site.graph());
        finding.parties = parties;
        if more > 0 {
            finding.notes.push(format!("so do {more} more {what}"));
        }
        findings.push(finding);
    };

    let buffers = same_buffers(off.pool, on.pool);
    let moved: Vec<_> = buffers.iter().filter(|(a, b)| off.placement.address(*a) != on.placement.address(*b)).collect();
    if let Some((a, b)) = moved.first() {
        let at = |address: Option<u64>| address.map_or("nowhere".to_string(), |a| format!("{a:#x}"));
        let (from, to) = (at(off.placement.address(*a)), at(on.placement.address(*b)));
        let message = format!("`{}` is at {from} without the instrument and at {to} with it", off.pool.buffer(*a).name);
        tell(message, vec![Party::buffer(*a)], moved.len() - 1, "buffers move");
    }

    let nodes = same_nodes(off.pool, on.pool);
    let twin: HashMap<NodeId, NodeId> = nodes.iter().copied().collect();
    let back: HashMap<NodeId, NodeId> = nodes.iter().map(|(a, b)| (*b, *a)).collect();
    type Pairs = Vec<(NodeId, NodeId)>;
    let (mut gained, mut lost) = (Pairs::new(), Pairs::new());
    for &(node, on_node) in &nodes {
        for phase in [Phase::BeforeWait, Phase::AfterWait] {
            let before = |first: NodeId| order_off.before_phase(first, node, phase);
            let new = order_on.ancestors(on_node, phase).filter_map(|id| back.get(&id).copied());
            gained.extend(new.filter(|first| !before(*first)).map(|first| (first, node)));
            let still = |first: NodeId| twin.get(&first).is_none_or(|f| order_on.before_phase(*f, on_node, phase));
            let old = order_off.ancestors(node, phase);
            lost.extend(old.filter(|first| !still(*first)).map(|first| (first, node)));
        }
    }
    for (mut pairs, verb) in [(gained, "orders"), (lost, "no longer orders")] {
        pairs.dedup();
        if let Some(&(first, second)) = pairs.first() {
            let (a, b) = (&off.pool.node(first).name, &off.pool.node(second).name);
            let message = format!("the instrument {verb} `{a}` before `{b}`");
            tell(message, vec![Party::node(first), Party::node(second)], pairs.len() - 1, "pairs of nodes");
        }
    }
    let missing: Vec<NodeId> = off.pool.node_ids().filter(|id| !twin.contains_key(id)).collect();
    if let Some(&node) = missing.first() {
        let message = format!("`{}` is gone with the instrument on", off.pool.node(node).name);
        tell(message, vec![Party::node(node)], missing.len() - 1, "nodes");
    }
    Ok(findings)
}

fn same_buffers(off: &Pool, on: &Pool) -> Vec<(BufferId, BufferId)> {
    let by_name: HashMap<&str, BufferId> = on.buffer_ids().rev().map(|id| (on.buffer(id).name.as_str(), id)).collect();
    let twin = |id| Some((id, *by_name.get(off.buffer(id).name.as_str())?));
    off.buffer_ids().filter_map(twin).collect()
}

/// Nodes of one name stand for each other in record order.
fn same_nodes(off: &Pool, on: &Pool) -> Vec<(NodeId, NodeId)> {
    let mut by_name: HashMap<(Option<&str>, &str), Vec<NodeId>> = HashMap::new();
    fn key(pool: &Pool, id: NodeId) -> (Option<&str>, &str) {
        let node = pool.node(id);
        (node.site.graph().map(|graph| pool.graph(graph).name.as_str()), node.name.as_str())
    }
    for id in on.node_ids().rev() {
        by_name.entry(key(on, id)).or_default().push(id);
    }
    off.node_ids().filter_map(|id| Some((id, by_name.get_mut(&key(off, id))?.pop()?))).collect()
}
