//! Every pair of accesses that nothing orders.

use crate::finding::Bytes;
use crate::model::{Access, BufferId, NodeId, Phase, Placement, Pool, Site, Uses};
use crate::order::Order;
use std::ops::Range;

/// Two unordered accesses of the same bytes, one of which writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict<'a> {
    /// The node that the record order puts first.
    pub first: NodeId,
    /// Its access.
    pub first_access: &'a Access,
    /// The other node; the same one if it uses two buffers on the same bytes.
    pub second: NodeId,
    /// Its access.
    pub second_access: &'a Access,
    /// The bytes.
    pub bytes: Bytes,
}

/// Calls `found` for every conflict of `pool`: within each graph, between a graph and work beside it, on
/// one buffer and, where `placement` says that buffers overlap, between buffers. What only the rules of
/// replay order (different graphs) is not asked here.
pub fn for_each_conflict<'a>(
    pool: &'a Pool,
    order: &Order,
    placement: &Placement,
    mut found: impl FnMut(Conflict<'a>),
) {
    let uses = pool.uses();
    for buffer in pool.buffer_ids() {
        on_one_buffer(pool, order, &uses, buffer, &mut found);
    }
    for_each_overlap(pool, placement, |a, b, bytes| {
        between_buffers(pool, order, &uses, placement, (a, b), &bytes, &mut found);
    });
}

/// An access with its node.
type Use<'a> = (NodeId, &'a Access);

/// Can the two nodes run in one replay, ordered by edges alone?
pub(super) fn share_a_replay(a: Site, b: Site) -> bool {
    match (a, b) {
        (Site::Graph(a), Site::Graph(b)) => a == b,
        (Site::Graph(_) | Site::Beside, Site::Graph(_) | Site::Beside) => true,
        _ => false,
    }
}

/// Conflicts on one buffer, later first nodes first, and for each the earliest second node first.
pub(super) fn on_one_buffer<'a>(
    pool: &'a Pool,
    order: &Order,
    uses: &Uses,
    buffer: BufferId,
    found: &mut impl FnMut(Conflict<'a>),
) {
    if uses.of(buffer).len() < 2 {
        return;
    }
    let mut all: Vec<Use<'a>> = uses.accesses(pool, buffer).collect();
    all.sort_by_key(|(node, _)| order.rank(*node));
    if is_chain(order, &all) {
        return;
    }
    for i in (0..all.len()).rev() {
        let (first, a) = all[i];
        for &(second, b) in &all[i + 1..] {
            let range = overlap(&a.range, &b.range);
            if (a.effect.writes() || b.effect.writes())
                && !range.is_empty()
                && share_a_replay(pool.node(first).site, pool.node(second).site)
                && !order.ordered((first, a.phase), (second, b.phase))
            {
                found(Conflict { first, first_access: a, second, second_access: b, bytes: Bytes::Of(buffer, range) });
            }
        }
    }
}

/// Is every use before the next, so that all are ordered?
fn is_chain(order: &Order, uses: &[Use]) -> bool {
    order.is_transitive()
        && uses.windows(2).all(|pair| {
            let ((first, _), (second, access)) = (pair[0], pair[1]);
            first == second || order.before_phase(first, second, access.phase)
        })
}

/// Conflicts between two buffers that share the addresses `shared`, in the order of [`on_one_buffer`].
pub(super) fn between_buffers<'a>(
    pool: &'a Pool,
    order: &Order,
    uses: &Uses,
    placement: &Placement,
    (a, b): (BufferId, BufferId),
    shared: &Range<u64>,
    found: &mut impl FnMut(Conflict<'a>),
) {
    let placed = |buffer: BufferId| -> Vec<(NodeId, &'a Access, Range<u64>)> {
        let start = placement.address(buffer).unwrap_or(0);
        let at = |(node, access): Use<'a>| {
            let range = start + access.range.start..start + access.range.end;
            let range = overlap(&range, shared);
            (!range.is_empty()).then_some((node, access, range))
        };
        let mut uses: Vec<_> = uses.accesses(pool, buffer).filter_map(at).collect();
        uses.sort_by_key(|(node, ..)| order.rank(*node));
        uses
    };
    let (of_a, of_b) = (placed(a), placed(b));
    let mut pairs = Vec::new();
    for (node_a, access_a, range_a) in &of_a {
        for (node_b, access_b, range_b) in &of_b {
            let range = overlap(range_a, range_b);
            if !range.is_empty()
                && (access_a.effect.writes() || access_b.effect.writes())
                && share_a_replay(pool.node(*node_a).site, pool.node(*node_b).site)
                && (node_a == node_b || !order.ordered((*node_a, access_a.phase), (*node_b, access_b.phase)))
            {
                let (x, y) = ((*node_a, *access_a), (*node_b, *access_b));
                let forward = order.rank(*node_a) <= order.rank(*node_b);
                pairs.push(if forward { (x, y, range) } else { (y, x, range) });
            }
        }
    }
    pairs.sort_by_key(|((first, _), (second, _), _)| (std::cmp::Reverse(order.rank(*first)), order.rank(*second)));
    for ((first, first_access), (second, second_access), range) in pairs {
        found(Conflict { first, first_access, second, second_access, bytes: Bytes::At(range) });
    }
}

/// Calls `found` for every two placed buffers that share addresses.
pub(super) fn for_each_overlap(
    pool: &Pool,
    placement: &Placement,
    mut found: impl FnMut(BufferId, BufferId, Range<u64>),
) {
    let range = |(id, start): (BufferId, u64)| (start, start.saturating_add(pool.buffer(id).size), id);
    let mut placed: Vec<(u64, u64, BufferId)> = placement.iter().map(range).collect();
    placed.sort_unstable();
    let mut open: Vec<(u64, BufferId)> = Vec::new();
    for &(start, end, id) in &placed {
        open.retain(|(other_end, _)| *other_end > start);
        for &(other_end, other) in &open {
            found(other.min(id), other.max(id), start..end.min(other_end));
        }
        open.push((end, id));
    }
}

/// What two ranges share; empty if nothing.
pub(super) fn overlap(a: &Range<u64>, b: &Range<u64>) -> Range<u64> {
    let start = a.start.max(b.start);
    start..a.end.min(b.end).max(start)
}

/// The uses of a buffer that no other use of it precedes, and those that none follows.
pub(super) struct Ends {
    firsts: Vec<(NodeId, Phase)>,
    lasts: Vec<NodeId>,
}

impl Ends {
    pub(super) fn of(pool: &Pool, order: &Order, uses: &Uses, buffer: BufferId) -> Self {
        let mut all: Vec<(NodeId, Phase)> =
            uses.accesses(pool, buffer).map(|(node, access)| (node, access.phase)).collect();
        all.sort_by_key(|(node, phase)| (order.rank(*node), *phase));
        all.dedup_by_key(|(node, _)| *node);
        if !order.is_transitive() {
            let lasts = all.iter().map(|(node, _)| *node).collect();
            return Self { firsts: all, lasts };
        }
        let mut firsts: Vec<(NodeId, Phase)> = Vec::new();
        let mut lasts: Vec<NodeId> = Vec::new();
        for &(node, phase) in &all {
            if !firsts.iter().any(|(first, _)| order.before_phase(*first, node, phase)) {
                firsts.push((node, phase));
            }
            lasts.retain(|last| !order.before_phase(*last, node, phase));
            lasts.push(node);
        }
        Self { firsts, lasts }
    }

    /// Are all uses of `self` complete before any of `other` begins?
    pub(super) fn before(&self, other: &Self, order: &Order) -> bool {
        let before =
            |last: &NodeId| other.firsts.iter().all(|(first, phase)| order.before_phase(*last, *first, *phase));
        self.lasts.iter().all(before)
    }
}
