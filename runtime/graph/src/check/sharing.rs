//! E2, E3, E5, E6, E7: buffers that share bytes.

use super::Context;
use super::conflict::{Ends, between_buffers, for_each_overlap, overlap};
use super::race::{Frontier, Pair};
use crate::finding::{Bytes, Code, Finding, Fix, Harm, Party, Price, Remedy};
use crate::model::{Access, BufferId, Effect, GraphId, Lifetime, NodeId, Release};
use std::collections::BTreeMap;
use std::ops::Range;

pub(super) fn check(cx: &Context, findings: &mut Vec<Finding>) {
    let ends: Vec<Ends> = if cx.placement.is_empty() {
        Vec::new()
    } else {
        let ends = |id| Ends::of(cx.pool, cx.order, &cx.uses, id);
        cx.pool.buffer_ids().map(ends).collect()
    };
    let mut groups: BTreeMap<Group, Shared> = BTreeMap::new();
    for_each_overlap(cx.pool, cx.placement, |a, b, bytes| match relation(cx, a, b) {
        Relation::SameGraph => {
            let (x, y) = (&ends[a.index()], &ends[b.index()]);
            let is_output = |id: BufferId| matches!(cx.pool.buffer(id).lifetime, Lifetime::Output { .. });
            // An output is still live when its graph ends.
            let a_first = x.before(y, cx.order) && !is_output(a);
            let b_first = y.before(x, cx.order) && !is_output(b);
            if !a_first && !b_first {
                same_graph(cx, a, b, bytes, findings);
            }
        }
        Relation::Grouped(group) => {
            let shared = groups.entry(group).or_insert_with(|| Shared { pair: (a, b), bytes, more: 0 });
            if shared.pair != (a, b) {
                shared.more += 1;
            }
        }
        Relation::Apart => {}
    });
    shared_at_once(cx, &mut groups);
    findings.extend(groups.into_iter().map(|(group, shared)| grouped(cx, group, shared)));
}

/// How two buffers with common bytes stand to each other.
enum Relation {
    /// Both live within one graph: its order decides.
    SameGraph,
    /// Wrong whatever the graph's order is.
    Grouped(Group),
    /// Never live at once.
    Apart,
}

/// Findings that one fix removes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    /// A lasting buffer and what a graph overwrites.
    Lasting(BufferId, Option<GraphId>),
    /// A held output and what another graph overwrites.
    Output(BufferId, GraphId),
    /// Two graphs that may replay at once.
    AtOnce(GraphId, GraphId),
}

/// The first pair of buffers of a group, and how many more there are.
struct Shared {
    pair: (BufferId, BufferId),
    bytes: Range<u64>,
    more: usize,
}

fn relation(cx: &Context, a: BufferId, b: BufferId) -> Relation {
    let (x, y) = (&cx.pool.buffer(a).lifetime, &cx.pool.buffer(b).lifetime);
    match (x.is_lasting(), y.is_lasting()) {
        (true, _) => return Relation::Grouped(Group::Lasting(a, y.graph())),
        (_, true) => return Relation::Grouped(Group::Lasting(b, x.graph())),
        _ => {}
    }
    let (Some(g), Some(h)) = (x.graph(), y.graph()) else {
        return Relation::Apart;
    };
    if g == h {
        return Relation::SameGraph;
    }
    if cx.pool.replay_at_once(g, h) {
        return Relation::Grouped(Group::AtOnce(g.min(h), g.max(h)));
    }
    let held = |life: &Lifetime| matches!(life, Lifetime::Output { release: Release::Held, .. });
    match (held(x), held(y)) {
        (true, _) => Relation::Grouped(Group::Output(a, h)),
        (_, true) => Relation::Grouped(Group::Output(b, g)),
        _ => Relation::Apart,
    }
}

/// Buffers that two graphs at once use under one name.
fn shared_at_once(cx: &Context, groups: &mut BTreeMap<Group, Shared>) {
    for (g, h) in cx.pool.pairs_at_once() {
        for buffer in cx.pool.buffer_ids() {
            let writes_and_uses = |graph: GraphId| {
                let of_graph = |(node, _): &(NodeId, &Access)| cx.pool.node(*node).site.graph() == Some(graph);
                let uses = cx.uses.accesses(cx.pool, buffer).filter(of_graph);
                uses.fold((false, false), |(w, _), (_, access)| (w || access.effect.writes(), true))
            };
            let ((g_writes, g_uses), (h_writes, h_uses)) = (writes_and_uses(g), writes_and_uses(h));
            if (g_writes && h_uses) || (h_writes && g_uses) {
                let bytes = 0..cx.pool.buffer(buffer).size;
                let new = || Shared { pair: (buffer, buffer), bytes, more: 0 };
                let shared = groups.entry(Group::AtOnce(g, h)).or_insert_with(new);
                if shared.pair != (buffer, buffer) {
                    shared.more += 1;
                }
            }
        }
    }
}

/// The use of `buffer` that tells most: in `graph` if given, a write if wanted and there is one.
fn telling_use(cx: &Context, buffer: BufferId, graph: Option<GraphId>, write: bool) -> Party {
    let inside = |(node, _): &(NodeId, &Access)| graph.is_none() || cx.pool.node(*node).site.graph() == graph;
    let uses = || cx.uses.accesses(cx.pool, buffer).filter(inside);
    let wanted = uses().find(|(_, access)| access.effect.writes() == write);
    match wanted.or_else(|| uses().next()) {
        Some((node, access)) => Party::access(node, access),
        None => Party::buffer(buffer),
    }
}

fn grouped(cx: &Context, group: Group, shared: Shared) -> Finding {
    let (a, b) = shared.pair;
    let other = |of: BufferId| if of == a { b } else { a };
    let name = |id| cx.buffer_name(id);
    let graph_name = |id: GraphId| format!("`{}`", cx.pool.graph(id).name);
    let own = |buffer: BufferId| Fix {
        remedy: Remedy::OwnBytes { buffer },
        price: Price::bytes(cx.pool.buffer(buffer).size),
    };
    let mut finding = match group {
        Group::Lasting(kept, graph) => {
            let taker = other(kept);
            let life = cx.pool.buffer(kept).lifetime.word();
            let at_each = match graph {
                Some(graph) => format!("which {} overwrites at each replay", graph_name(graph)),
                None => "which is live at the same time".to_string(),
            };
            let mut finding = Finding::new(
                Code::E5,
                format!("{life} buffer {} lies on bytes of {}, {at_each}", name(kept), name(taker)),
            );
            finding.graph = graph;
            finding.parties = vec![telling_use(cx, taker, graph, true), telling_use(cx, kept, None, false)];
            finding.fixes.push(own(kept));
            finding
        }
        Group::Output(kept, graph) => {
            let taker = other(kept);
            let mut finding = Finding::new(
                Code::E6,
                format!(
                    "a replay of {} overwrites output {}, which the caller may still hold, through {}",
                    graph_name(graph),
                    name(kept),
                    name(taker)
                ),
            );
            finding.graph = Some(graph);
            finding.parties = vec![telling_use(cx, kept, None, true), telling_use(cx, taker, Some(graph), true)];
            finding.fixes.push(own(kept));
            finding.fixes.push(Fix { remedy: Remedy::ReleaseEarlier { buffer: kept }, price: Price::unknown() });
            finding
        }
        Group::AtOnce(g, h) => {
            let what = if a == b { name(a) } else { format!("the bytes of {} and {}", name(a), name(b)) };
            let mut finding = Finding::new(
                Code::E7,
                format!("{} and {} may replay at once and both use {what}", graph_name(g), graph_name(h)),
            );
            let of = |buffer: BufferId, fallback: GraphId| cx.pool.buffer(buffer).lifetime.graph().unwrap_or(fallback);
            finding.parties = vec![telling_use(cx, a, Some(of(a, g)), true), telling_use(cx, b, Some(of(b, h)), true)];
            finding.fixes.push(Fix { remedy: Remedy::SerialiseReplays { a: g, b: h }, price: Price::unknown() });
            if a != b && shared.more == 0 {
                finding.fixes.push(own(b));
            }
            finding
        }
    };
    finding.bytes = Some(if a == b { Bytes::Of(a, shared.bytes) } else { Bytes::At(shared.bytes) });
    if shared.more > 0 {
        let pairs = if shared.more == 1 { "pair" } else { "pairs" };
        finding.notes.push(format!("{} more {pairs} of buffers share bytes in the same way", shared.more));
    }
    finding
}

/// Two buffers of one graph on the same bytes, neither of which is done before the other begins.
fn same_graph(cx: &Context, a: BufferId, b: BufferId, shared: Range<u64>, findings: &mut Vec<Finding>) {
    let mut frontier = Frontier::new(cx);
    between_buffers(cx.pool, cx.order, &cx.uses, cx.placement, (a, b), &shared, &mut |conflict| {
        frontier.add(conflict);
    });
    if !frontier.pairs.is_empty() {
        findings.extend(frontier.pairs.into_iter().map(|pair| alias(cx, pair)));
        return;
    }
    if let Some(finding) = overwritten(cx, a, b, &shared).or_else(|| overwritten(cx, b, a, &shared)) {
        findings.push(finding);
    }
}

fn alias(cx: &Context, pair: Pair) -> Finding {
    let c = pair.conflict.clone();
    let (a, b) = (c.first_access.buffer, c.second_access.buffer);
    let (first, second) = (cx.name(c.first), cx.name(c.second));
    let own = Fix { remedy: Remedy::OwnBytes { buffer: b }, price: Price::bytes(cx.pool.buffer(b).size) };
    if cx.full_edges_would_order(&c) {
        let mut finding = cx.pair_finding(Code::E8, pair);
        cx.weak_edge(&mut finding, &c);
        finding.notes.push(format!("{} and {} share bytes", cx.buffer_name(a), cx.buffer_name(b)));
        finding.fixes.push(own);
        return finding;
    }
    let mut finding = cx.pair_finding(Code::E2, pair);
    if c.first == c.second {
        finding.message = format!(
            "{first} {} {} and {} {}, which lies on the same bytes",
            c.first_access.effect.verb(),
            cx.buffer_name(a),
            c.second_access.effect.verb(),
            cx.buffer_name(b)
        );
        finding.fixes.push(own);
        return finding;
    }
    finding.message = format!(
        "{second} {} {} on bytes of {}, which {first} may still {}",
        c.second_access.effect.verb(),
        cx.buffer_name(b),
        cx.buffer_name(a),
        if c.first_access.effect.writes() { "write" } else { "read" },
    );
    finding.fixes.push(cx.event(c.first, c.second));
    let b_life = &cx.pool.buffer(b).lifetime;
    finding.fixes.push(own);
    if matches!(cx.pool.buffer(a).lifetime, Lifetime::Transient { .. }) && !b_life.is_lasting() {
        finding.fixes.push(Fix {
            remedy: Remedy::LongerLife { buffer: a, until: c.second, instead_of: Some(b) },
            price: Price::bytes(cx.pool.buffer(b).size),
        });
    }
    finding
}

/// `kept` is used, then `taker` writes its bytes, then `kept` is read again, all in order; or `kept` is an
/// output that is still live at the end.
fn overwritten(cx: &Context, kept: BufferId, taker: BufferId, shared: &Range<u64>) -> Option<Finding> {
    let placed = |buffer: BufferId| {
        let start = cx.placement.address(buffer).unwrap_or(0);
        let at = move |(node, access): (NodeId, &'_ Access)| {
            let range = start + access.range.start..start + access.range.end;
            (node, access.clone(), overlap(&range, shared))
        };
        let mut uses: Vec<_> = cx.uses.accesses(cx.pool, buffer).map(at).collect();
        uses.retain(|(_, _, range)| !range.is_empty());
        uses.sort_by_key(|(node, ..)| cx.order.rank(*node));
        uses
    };
    let (of_kept, of_taker) = (placed(kept), placed(taker));
    let before = |x: NodeId, y: NodeId, access: &Access| cx.order.before_phase(x, y, access.phase);
    for (thief, write, range) in of_taker.iter().filter(|(_, a, _)| a.effect.writes()) {
        let meets = |other: &Range<u64>| !overlap(range, other).is_empty();
        let earlier =
            of_kept.iter().find(|(node, access, r)| meets(r) && access.effect.writes() && before(*node, *thief, write));
        let Some((owner, owned, _)) = earlier else {
            continue;
        };
        let is_output = matches!(cx.pool.buffer(kept).lifetime, Lifetime::Output { .. });
        let rewritten = |until: Option<(NodeId, &Access)>| {
            of_kept.iter().any(|(node, access, r)| {
                access.effect == Effect::WriteAll
                    && r.start <= range.start
                    && range.end <= r.end
                    && before(*thief, *node, access)
                    && until.is_none_or(|(reader, read)| before(*node, reader, read))
            })
        };
        let victim = of_kept.iter().find(|(node, access, r)| {
            meets(r) && access.effect.reads() && before(*thief, *node, access) && !rewritten(Some((*node, access)))
        });
        let (code, message, parties) = match victim {
            Some((reader, read, _)) => (
                Code::E3,
                format!(
                    "{} {} {} after {} has overwritten its bytes through {}",
                    cx.name(*reader),
                    read.effect.verb(),
                    cx.buffer_name(kept),
                    cx.name(*thief),
                    cx.buffer_name(taker)
                ),
                vec![Party::access(*thief, write), Party::access(*reader, read)],
            ),
            None if is_output && !rewritten(None) => (
                Code::E6,
                format!(
                    "{} overwrites output {} through {}, before the caller has seen it",
                    cx.name(*thief),
                    cx.buffer_name(kept),
                    cx.buffer_name(taker)
                ),
                vec![Party::access(*owner, owned), Party::access(*thief, write)],
            ),
            None => continue,
        };
        let mut finding = Finding::new(code, message);
        finding.graph = cx.pool.node(*thief).site.graph();
        finding.harm = Harm::NotByOrder;
        finding.basis = parties.iter().filter_map(|p| Some(p.access.as_ref()?.basis)).min()?;
        let until = parties[1].node?;
        finding.parties = parties;
        finding.bytes = Some(Bytes::At(range.clone()));
        let price = Price::bytes(cx.pool.buffer(taker).size);
        finding.fixes.push(Fix { remedy: Remedy::OwnBytes { buffer: taker }, price });
        if code == Code::E3 {
            let remedy = Remedy::LongerLife { buffer: kept, until, instead_of: Some(taker) };
            finding.fixes.push(Fix { remedy, price });
        }
        return Some(finding);
    }
    None
}
