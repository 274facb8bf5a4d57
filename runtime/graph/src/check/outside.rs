//! E9 and E10: work beside the replay.

use super::Context;
use super::race::Pair;
use crate::finding::{Bytes, Code, Finding, Fix, Party, Price, Remedy};
use crate::model::{Discipline, Lifetime, NodeId};

/// Leased bytes that a graph touches all the same.
pub(super) fn check(cx: &Context, findings: &mut Vec<Finding>) {
    for id in cx.pool.buffer_ids() {
        let buffer = cx.pool.buffer(id);
        for lease in &buffer.leases {
            let touches = |(node, access): &(NodeId, &crate::model::Access)| {
                cx.pool.node(*node).site.graph().is_some()
                    && access.range.start < lease.end
                    && lease.start < access.range.end
            };
            let outside = |(node, access): &(NodeId, &crate::model::Access)| {
                cx.pool.node(*node).site.graph().is_none()
                    && access.range.start < lease.end
                    && lease.start < access.range.end
            };
            let Some((node, access)) = cx.uses.accesses(cx.pool, id).find(touches) else {
                continue;
            };
            // An outside user that is declared is found as an unordered pair, with both names.
            if cx.uses.accesses(cx.pool, id).any(|user| outside(&user)) {
                continue;
            }
            let message = format!(
                "{} {} bytes of {} that are leased to someone outside the graph",
                cx.name(node),
                access.effect.verb(),
                cx.buffer_name(id)
            );
            let mut finding = Finding::new(Code::E9, message);
            finding.graph = cx.pool.node(node).site.graph();
            finding.parties = vec![Party::access(node, access)];
            let (start, end) = (lease.start.max(access.range.start), lease.end.min(access.range.end));
            finding.bytes = Some(Bytes::Of(id, start..end));
            finding.basis = access.basis;
            finding.notes.push("give the lease back before the replay, or keep the node off the leased bytes".into());
            findings.push(finding);
        }
    }
}

/// A graph node and work beside the replay, unordered on one buffer.
pub(super) fn unordered(cx: &Context, pair: Pair, beside: NodeId) -> Finding {
    let c = pair.conflict.clone();
    let buffer = c.first_access.buffer;
    let inside = if beside == c.first { c.second } else { c.first };
    let lifetime = &cx.pool.buffer(buffer).lifetime;
    let stream = cx.pool.stream(cx.pool.node(beside).stream).name.clone();
    let dropped = cx
        .pool
        .dropped_waits()
        .iter()
        .find(|wait| wait.after == Some(beside) || wait.after.is_some_and(|after| cx.order.before(beside, after)));
    let (code, why) = match lifetime {
        Lifetime::External { discipline } => (
            Code::E9,
            match discipline {
                Discipline::Event => "the declared discipline is an event, but none is recorded and waited for",
                Discipline::Quiescent => {
                    "the declared discipline is that no graph replays meanwhile, but it runs beside the replay"
                }
                Discipline::Lease => "the declared discipline is a lease, but the graph touches the same bytes",
            }
            .to_string(),
        ),
        _ => (
            Code::E10,
            match dropped {
                Some(wait) => format!(
                    "the wait for `{}` left no edge: the event was recorded outside the capture",
                    cx.pool.event(wait.event).name
                ),
                None => format!("stream `{stream}` is not part of the capture"),
            },
        ),
    };
    let outside_uses = if beside == c.first { c.first_access } else { c.second_access };
    let inside_uses = if beside == c.first { c.second_access } else { c.first_access };
    let message = format!(
        "{} {} {} outside the graph, in no order to {}, which {} it",
        cx.name(beside),
        outside_uses.effect.verb(),
        cx.buffer_name(buffer),
        cx.name(inside),
        inside_uses.effect.verb()
    );
    let mut finding = cx.pair_finding(code, pair);
    finding.message = message;
    finding.notes.push(why);
    finding.fixes.push(cx.event(c.first, c.second));
    finding.fixes.push(Fix { remedy: Remedy::Quiesce { node: beside }, price: Price::unknown() });
    finding
}
