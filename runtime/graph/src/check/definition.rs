//! E3 and E4 from declarations alone: uses outside a life, reads of what nothing wrote.

use super::Context;
use crate::finding::{Bytes, Code, Finding, Fix, Party, Price, Remedy};
use crate::model::{Access, BufferId, Lifetime, NodeId, Site};
use std::ops::Range;

pub(super) fn check(cx: &Context, findings: &mut Vec<Finding>) {
    for buffer in cx.pool.buffer_ids() {
        if let Lifetime::Transient { graph, alloc, free } = cx.pool.buffer(buffer).lifetime {
            for (node, access) in cx.uses.accesses(cx.pool, buffer) {
                let finding = if cx.pool.node(node).site != Site::Graph(graph) {
                    Some(foreign(cx, buffer, node, access))
                } else {
                    outside_markers(cx, buffer, node, access, alloc, free)
                };
                findings.extend(finding);
            }
        }
        if !cx.pool.buffer(buffer).lifetime.is_defined_outside() {
            for graph in cx.pool.graph_ids() {
                findings.extend(undefined(cx, buffer, Site::Graph(graph)));
            }
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

/// A use that is not between the points where the buffer was allocated and freed.
fn outside_markers(
    cx: &Context,
    buffer: BufferId,
    node: NodeId,
    access: &Access,
    alloc: Option<NodeId>,
    free: Option<NodeId>,
) -> Option<Finding> {
    let early = alloc.filter(|alloc| !cx.order.before_phase(*alloc, node, access.phase));
    let late = free.filter(|free| !cx.order.before(node, *free));
    let (marker, what, from, to) = match (early, late) {
        (Some(alloc), _) => (alloc, "allocated before", alloc, node),
        (None, Some(free)) => (free, "freed after", node, free),
        (None, None) => return None,
    };
    let stream = |id: NodeId| &cx.pool.stream(cx.pool.node(id).stream).name;
    let message = format!(
        "{} is not known to be {what} {} {} it: nothing orders `{}` and `{}`",
        cx.buffer_name(buffer),
        cx.name(node),
        access.effect.verb(),
        stream(marker),
        stream(node)
    );
    let mut finding = finding(cx, Code::E3, message, node, access);
    finding.parties =
        vec![Party::access(node, access), Party { node: Some(marker), buffer: Some(buffer), access: None }];
    let already_backwards = cx.order.before(to, from);
    if !already_backwards {
        finding.fixes.push(cx.event(from, to));
    }
    if late.is_some() && early.is_none() && !already_backwards {
        let remedy = Remedy::LongerLife { buffer, until: node, instead_of: None };
        let price = Price::bytes(0);
        finding.fixes.push(Fix { remedy, price });
    }
    Some(finding)
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
