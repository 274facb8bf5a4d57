//! E11 and E12 on one pointer: does a captured parameter point where its node works?

use crate::finding::{Bytes, Code, Finding, Fix, Party, Price, Remedy};
use crate::model::{BufferId, NodeId, Placement, Pool};
use std::ops::Range;

/// The placed buffers and the ranges that buffers have left, each sorted by address.
pub(crate) struct AddressMap {
    placed: Vec<(Range<u64>, BufferId)>,
    retired: Vec<(Range<u64>, BufferId)>,
}

impl AddressMap {
    pub(crate) fn of(pool: &Pool, placement: &Placement) -> Self {
        let range = |(id, _)| Some((placement.range(pool, id)?, id));
        let mut placed: Vec<_> = placement.iter().filter_map(range).collect();
        let retired = |id: BufferId| pool.buffer(id).retired.iter().map(move |r| (r.clone(), id));
        let mut retired: Vec<_> = pool.buffer_ids().flat_map(retired).collect();
        placed.sort_by_key(|(range, _)| range.start);
        retired.sort_by_key(|(range, _)| range.start);
        Self { placed, retired }
    }

    /// Every buffer whose bytes hold `address`.
    pub(crate) fn at(&self, address: u64) -> impl Iterator<Item = BufferId> + '_ {
        let starts_before = self.placed.partition_point(|(range, _)| range.start <= address);
        let holds = move |(range, _): &&(Range<u64>, BufferId)| range.contains(&address);
        self.placed[..starts_before].iter().rev().filter(holds).map(|(_, id)| *id)
    }

    /// The buffer that once had `address`, and the bytes it had.
    pub(crate) fn once_at(&self, address: u64) -> Option<(BufferId, Range<u64>)> {
        let found = self.retired.iter().find(|(range, _)| range.contains(&address));
        found.map(|(range, id)| (*id, range.clone()))
    }

    /// Is `address` between the first and the last placed byte?
    pub(crate) fn spans(&self, address: u64) -> bool {
        let first = self.placed.first().map(|(range, _)| range.start);
        let last = self.placed.iter().map(|(range, _)| range.end).max();
        first.zip(last).is_some_and(|(first, last)| (first..last).contains(&address))
    }

    /// What is wrong with `value` as a pointer of `node`, if anything is.
    pub(crate) fn judge(&self, pool: &Pool, node: NodeId, parameter: &str, value: u64) -> Option<Finding> {
        let declared = |id: BufferId| pool.node(node).accesses.iter().any(|a| a.buffer == id);
        if self.at(value).any(declared) {
            return None;
        }
        let name = &pool.node(node).name;
        let once = self.once_at(value);
        let mut finding = match (&once, self.at(value).next()) {
            (Some((buffer, range)), _) => {
                let buffer_name = &pool.buffer(*buffer).name;
                let message = format!(
                    "{parameter} of `{name}` is {value:#x}: `{buffer_name}` was there when the graph was captured and is no longer"
                );
                let mut finding = Finding::new(Code::E12, message);
                finding.bytes = Some(Bytes::At(range.clone()));
                finding.parties = vec![Party { node: Some(node), buffer: Some(*buffer), access: None }];
                finding
            }
            (None, Some(other)) => {
                let other_name = &pool.buffer(other).name;
                let message = format!(
                    "{parameter} of `{name}` is {value:#x}, in `{other_name}`, which the node was not recorded to use"
                );
                let mut finding = Finding::new(Code::E11, message);
                finding.parties = vec![Party { node: Some(node), buffer: Some(other), access: None }];
                finding
            }
            (None, None) => {
                let message = format!("{parameter} of `{name}` is {value:#x}, which is in no buffer of the pool");
                let mut finding = Finding::new(Code::E12, message);
                let missing = pool.node(node).accesses.iter().map(|a| a.buffer);
                let missing =
                    missing.clone().find(|id| self.placed.iter().all(|(_, p)| p != id)).or(missing.clone().next_back());
                finding.parties = vec![Party { node: Some(node), buffer: missing, access: None }];
                finding
            }
        };
        finding.graph = pool.node(node).site.graph();
        finding.fixes.push(Fix { remedy: Remedy::Recapture, price: Price::unknown() });
        Some(finding)
    }
}

/// Judges the pointers that nodes carry.
pub(super) fn check(cx: &super::Context, findings: &mut Vec<Finding>) {
    if cx.pool.nodes().iter().all(|node| node.pointers.is_empty()) {
        return;
    }
    let map = AddressMap::of(cx.pool, cx.placement);
    for id in cx.pool.node_ids() {
        let pointers = cx.pool.node(id).pointers.iter();
        findings.extend(pointers.filter_map(|p| map.judge(cx.pool, id, &p.parameter, p.value)));
    }
}
