//! E10: streams that a capture lost, waits that left no edge.

use super::Context;
use crate::finding::{Code, Finding, Fix, Party, Price, Remedy};
use crate::model::{NodeId, Site};

pub(super) fn check(cx: &Context, findings: &mut Vec<Finding>) {
    for graph in cx.pool.graph_ids() {
        let lanes = &cx.pool.graph(graph).lanes;
        for lane in lanes.iter().filter(|lane| !lane.forked || !lane.joined) {
            let on_lane = |id: &NodeId| cx.pool.node(*id).stream == lane.stream;
            let mut nodes = cx.pool.nodes_of(graph).filter(on_lane);
            let node = if lane.forked { nodes.last() } else { nodes.next() };
            let Some(node) = node else { continue };
            let stream = &cx.pool.stream(lane.stream).name;
            let name = &cx.pool.graph(graph).name;
            let message = if lane.forked {
                format!(
                    "stream `{stream}` is never joined: the capture of `{name}` ends without waiting for {}",
                    cx.name(node)
                )
            } else {
                format!("stream `{stream}` never waited for captured work: {} is not part of `{name}`", cx.name(node))
            };
            let mut finding = Finding::new(Code::E10, message);
            finding.graph = Some(graph);
            finding.parties.push(Party::node(node));
            let origin = lanes.first().filter(|origin| origin.stream != lane.stream);
            let on_origin = |id: &NodeId| origin.is_some_and(|o| cx.pool.node(*id).stream == o.stream);
            finding.parties.extend(cx.pool.nodes_of(graph).filter(on_origin).last().map(Party::node));
            finding
                .fixes
                .push(Fix { remedy: Remedy::ForkAndJoin { graph, stream: lane.stream }, price: Price::unknown() });
            findings.push(finding);
        }
    }
    for (index, wait) in cx.pool.dropped_waits().iter().enumerate() {
        // A wait that was to order two uses of one buffer is told there, with both of them.
        let told = |f: &Finding| {
            f.code == Code::E10
                && f.pair().is_some_and(|pair| {
                    let beside = |id: &NodeId| cx.pool.node(*id).site == Site::Beside;
                    pair.iter().filter(|id| beside(id)).any(|id| {
                        wait.after == Some(*id) || wait.after.is_some_and(|after| cx.order.before(*id, after))
                    })
                })
        };
        if findings.iter().any(told) {
            continue;
        }
        let event = &cx.pool.event(wait.event).name;
        let stream = &cx.pool.stream(wait.stream).name;
        let message = format!(
            "`{stream}` waits for `{event}`, which was not recorded in the capture of `{}`: the wait left no edge",
            cx.pool.graph(wait.graph).name
        );
        let mut finding = Finding::new(Code::E10, message);
        finding.graph = Some(wait.graph);
        finding.parties.extend([wait.after, wait.before].into_iter().flatten().map(Party::node));
        finding.fixes.push(Fix { remedy: Remedy::DropWait { wait: index }, price: Price::unknown() });
        findings.push(finding);
    }
}
