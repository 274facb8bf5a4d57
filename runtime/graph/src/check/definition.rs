//! E3 and E4 from declarations alone: uses outside a life, reads of what nothing wrote.

use super::Context;
use crate::finding::{Bytes, Code, Finding, Fix, Party, Price, Remedy};
use crate::model::{Access, BufferId, Lifetime, NodeId, Site};
use std::collections::BTreeSet;
use std::ops::Range;

pub(super) fn check(cx: &Context, findings: &mut Vec<Finding>) {
    for buffer in cx.pool.buffer_ids() {
        if let Lifetime::Transient { graph, alloc, free } = cx.pool.buffer(buffer).lifetime {
            let mut inside = Vec::new();
            for (node, access) in cx.uses.accesses(cx.pool, buffer) {
                if cx.pool.node(node).site == Site::Graph(graph) {
                    inside.push((node, access));
                } else {
                    findings.push(foreign(cx, buffer, node, access));
                }
            }
            findings.extend(early(cx, buffer, alloc, &inside));
            findings.extend(late(cx, buffer, free, &inside));
        }
        if !cx.pool.buffer(buffer).lifetime.is_defined_outside() {
            let sites: BTreeSet<Site> = cx.uses.of(buffer).iter().map(|(node, _)| cx.pool.node(*node).site).collect();
            let in_graphs = sites.into_iter().filter(|site| site.graph().is_some());
            findings.extend(in_graphs.filter_map(|site| undefined(cx, buffer, site)));
        }
    }
}

fn finding(cx: &Context, code: Code, message: String, node: NodeId, access: &Access) -> Finding {
    let mut finding = Finding::new(code, message);
    finding.graph = cx.pool.node(node).site.graph();
    finding.bytes = Some(Bytes::Of(access.buffer, access.range.clone()));
    finding.basis = access.basis;
    finding
}

/// A transient used where its graph is not.
fn foreign(cx: &Context, buffer: BufferId, node: NodeId, access: &Access) -> Finding {
    let message = format!(
        "{} {} transient {} outside the graph it lives in",
        cx.name(node),
        access.effect.verb(),
        cx.buffer_name(buffer)
    );
    let mut finding = finding(cx, Code::E3, message, node, access);
    let home = cx.pool.buffer(buffer).lifetime.graph();
    let inside = |(user, _): &(NodeId, &Access)| cx.pool.node(*user).site.graph() == home;
    let inside = cx.uses.accesses(cx.pool, buffer).filter(inside).last();
    finding.parties.extend(inside.map(|(user, access)| Party::access(user, access)));
    finding.parties.push(Party::access(node, access));
    finding.notes.push("a transient's bytes are another's as soon as its graph is done with it".into());
    finding
        .fixes
        .push(Fix { remedy: Remedy::DeclarePersistent { buffer }, price: Price::bytes(cx.pool.buffer(buffer).size) });
    finding
}

/// Uses that may come before the point where the buffer is allocated; of several in a row the first.
fn early(cx: &Context, buffer: BufferId, alloc: Option<NodeId>, uses: &[(NodeId, &Access)]) -> Vec<Finding> {
    let Some(alloc) = alloc else { return Vec::new() };
    let is_early = |node: NodeId, access: &Access| !cx.order.before_phase(alloc, node, access.phase);
    let all: Vec<_> = uses.iter().filter(|(node, access)| is_early(*node, access)).collect();
    let covered = |node: NodeId| all.iter().any(|(other, _)| cx.order.before(*other, node));
    let first = all.iter().filter(|(node, _)| !covered(*node));
    first.map(|(node, access)| off_life(cx, buffer, (*node, access), alloc, [alloc, *node])).collect()
}

/// Uses that may come after the point where the buffer is freed; of several in a row the last.
fn late(cx: &Context, buffer: BufferId, free: Option<NodeId>, uses: &[(NodeId, &Access)]) -> Vec<Finding> {
    let Some(free) = free else { return Vec::new() };
    let all: Vec<_> = uses.iter().filter(|(node, _)| !cx.order.before(*node, free)).collect();
    let covered = |node: NodeId| all.iter().any(|(other, _)| cx.order.before(node, *other));
    let last = all.iter().filter(|(node, _)| !covered(*node));
    last.map(|(node, access)| off_life(cx, buffer, (*node, access), free, [*node, free])).collect()
}

/// A use on the wrong side of `marker`; `edge` would put it right.
fn off_life(
    cx: &Context,
    buffer: BufferId,
    (node, access): (NodeId, &Access),
    marker: NodeId,
    edge: [NodeId; 2],
) -> Finding {
    let [from, to] = edge;
    let what = if from == marker { "allocated before" } else { "freed after" };
    let stream = |id: NodeId| &cx.pool.stream(cx.pool.node(id).stream).name;
    let backwards = cx.order.before(to, from);
    let mut message =
        format!("{} is not known to be {what} {} {} it", cx.buffer_name(buffer), cx.name(node), access.effect.verb(),);
    message += &match backwards {
        true => ": the recorded order says the opposite".to_string(),
        false => format!(": nothing orders `{}` and `{}`", stream(marker), stream(node)),
    };
    let mut finding = finding(cx, Code::E3, message, node, access);
    let at_marker = Party { node: Some(marker), buffer: Some(buffer), access: None };
    finding.parties = vec![Party::access(node, access), at_marker];
    if !backwards {
        finding.fixes.push(cx.event(from, to));
    }
    if to == marker && !backwards {
        let remedy = Remedy::LongerLife { buffer, until: node, instead_of: None };
        finding.fixes.push(Fix { remedy, price: Price::bytes(0) });
    }
    if backwards {
        let remedy = Remedy::DeclarePersistent { buffer };
        finding.fixes.push(Fix { remedy, price: Price::bytes(cx.pool.buffer(buffer).size) });
    }
    finding
}

/// The first node of `site` that reads bytes of `buffer` which no write in it can have defined.
fn undefined(cx: &Context, buffer: BufferId, site: Site) -> Option<Finding> {
    let here = |(node, _): &(NodeId, &Access)| cx.pool.node(*node).site == site;
    let uses = || cx.uses.accesses(cx.pool, buffer).filter(here);
    let mut reads: Vec<(NodeId, &Access)> = uses().filter(|(_, a)| a.effect.reads()).collect();
    reads.sort_by_key(|(node, _)| cx.order.rank(*node));
    let (reader, read, gap) = reads.into_iter().find_map(|(reader, read)| {
        let mut missing = vec![read.range.clone()];
        for (writer, write) in uses().filter(|(_, a)| a.effect.writes()) {
            // An unordered write is a race, not a missing definition.
            let later = writer == reader || cx.order.before_phase(reader, writer, write.phase);
            if !later {
                subtract(&mut missing, &write.range);
                if missing.is_empty() {
                    return None;
                }
            }
        }
        Some((reader, read, missing.swap_remove(0)))
    })?;
    let message = format!(
        "{} {} {}, which nothing in the graph has written before",
        cx.name(reader),
        read.effect.verb(),
        cx.buffer_name(buffer)
    );
    let mut finding = finding(cx, Code::E4, message, reader, read);
    finding.bytes = Some(Bytes::Of(buffer, gap));
    let eager = cx
        .uses
        .accesses(cx.pool, buffer)
        .find(|(node, access)| cx.pool.node(*node).site.graph().is_none() && access.effect.writes());
    if let Some((node, access)) = eager {
        finding.parties.push(Party::access(node, access));
        finding.notes.push(format!(
            "{} writes it outside the graph: the first replay may find that, later ones find what the replay before left",
            cx.name(node)
        ));
    }
    finding.parties.push(Party::access(reader, read));
    finding.fixes.push(Fix {
        remedy: Remedy::Define { buffer, before: reader },
        price: Price { critical_path: Some(1), ..Price::unknown() },
    });
    if matches!(cx.pool.buffer(buffer).lifetime, Lifetime::Persistent { .. }) {
        finding.fixes.push(Fix { remedy: Remedy::DeclareCarried { buffer }, price: Price::bytes(0) });
    }
    Some(finding)
}

fn subtract(ranges: &mut Vec<Range<u64>>, gone: &Range<u64>) {
    let parts = |r: Range<u64>| {
        let (head, tail) = (r.start..gone.start.min(r.end), gone.end.max(r.start)..r.end);
        [head, tail].into_iter().filter(|part| part.start < part.end)
    };
    *ranges = std::mem::take(ranges).into_iter().flat_map(parts).collect();
}
