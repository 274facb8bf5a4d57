//! Does a conflict change a result?
//!
//! Values are symbolic: what a node writes is a function of the node and of all it reads, and two such
//! values are equal only if they are the same term. Then the two orders of an unordered pair, run from
//! the same memory, differ in exactly the bytes computed here, and a difference travels to whatever reads
//! it until something overwrites it. No memory needs to be simulated: only the bytes that differ.

use super::conflict::for_each_overlap;
use super::{Conflict, Context};
use crate::finding::{Harm, Swap};
use crate::model::{Access, BufferId, GraphId, NodeId, NodeKind, Phase, Placement, Pool, Site, Uses};
use crate::order::Order;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;

/// Bytes of all spaces on one line: placed buffers by address, every other buffer in a space of its own.
type Spot = u128;

impl Context<'_> {
    fn spots(&self, buffer: BufferId, range: &Range<u64>) -> Range<Spot> {
        let (space, start) = match self.placement.address(buffer) {
            Some(address) => (0, address),
            None => (Spot::from(buffer.0) + 1, 0),
        };
        let at = |byte: u64| (space << 66) + Spot::from(start) + Spot::from(byte);
        at(range.start)..at(range.end)
    }

    /// The harm of running the two nodes of `conflict` in the one order or the other: right after all that either
    /// waits for, or after everything that need not wait for them.
    ///
    /// Over all conflicts of a graph the second context alone is exact: if two orders give different results, some
    /// swap of two neighbours makes the difference, and of those along the path from it to the result the last has
    /// nothing unordered left between itself and the result. The first context gives the plainer witness.
    pub(super) fn harm(&self, conflict: &Conflict) -> (Harm, Swap) {
        let (i, j) = (conflict.first, conflict.second);
        let first = self.part(i, conflict.first_access.phase);
        let second = self.part(j, conflict.second_access.phase);
        let swap =
            |late| Swap { first: (i, conflict.first_access.phase), second: (j, conflict.second_access.phase), late };
        // Within one node nothing says which access comes first: all it writes may differ.
        let changed = [i == j || self.reads_from(&first, &second), i == j || self.reads_from(&second, &first)];
        for (node, changed) in [(i, changed[0]), (j, changed[1])] {
            if changed && self.observes(node) {
                return (Harm::Harmful { buffer: None, host: Some(node) }, swap(false));
            }
        }
        let dirty = self.difference(&first, &second, changed);
        match self.spread(dirty.clone(), conflict, changed, Before::Needed) {
            Harm::Latent => match self.spread(dirty, conflict, changed, Before::Possible) {
                Harm::Latent => (Harm::Latent, swap(false)),
                harm => (harm, swap(true)),
            },
            harm => (harm, swap(false)),
        }
    }

    /// Does one part read bytes that the other writes?
    fn reads_from(&self, reader: &[&Access], writer: &[&Access]) -> bool {
        reader
            .iter()
            .filter(|r| r.effect.reads())
            .any(|r| writer.iter().any(|w| w.effect.writes() && meet(&self.at(r), &self.at(w))))
    }

    fn node(&self, id: NodeId) -> &crate::model::Node {
        self.pool.node(id)
    }

    fn at(&self, access: &Access) -> Range<Spot> {
        self.spots(access.buffer, &access.range)
    }

    /// Is what the node reads seen outside the graph?
    fn observes(&self, id: NodeId) -> bool {
        let node = self.node(id);
        node.kind == NodeKind::Host || node.site == Site::Beside
    }

    /// The accesses of one half of a node that has a programmatic wait, or of the whole node.
    fn part(&self, node: NodeId, phase: Phase) -> Vec<&Access> {
        let split = self.order.has_wait(node);
        self.node(node).accesses.iter().filter(|a| !split || a.phase == phase).collect()
    }

    /// The bytes that differ after the two parts have run in the one order or in the other; `changed`:
    /// which of them see a difference.
    fn difference(&self, first: &[&Access], second: &[&Access], changed: [bool; 2]) -> Dirty {
        let mut dirty = Dirty::default();
        for (part, other, changed) in [(first, second, changed[0]), (second, first, changed[1])] {
            for write in part.iter().filter(|a| a.effect.writes()) {
                let bytes = self.at(write);
                if changed {
                    dirty.add(bytes);
                    continue;
                }
                for clash in other.iter().filter(|a| a.effect.writes()) {
                    let clash = self.at(clash);
                    let both = bytes.start.max(clash.start)..bytes.end.min(clash.end);
                    if both.start < both.end {
                        dirty.add(both);
                    }
                }
            }
        }
        dirty
    }

    /// Runs everything that comes after the pair and looks at what differs at the end.
    fn spread(&self, mut dirty: Dirty, conflict: &Conflict, changed: [bool; 2], before: Before) -> Harm {
        let (i, j) = (conflict.first, conflict.second);
        let pair = [(i, conflict.first_access.phase), (j, conflict.second_access.phase)];
        let graph = pair.iter().find_map(|(id, _)| self.node(*id).site.graph());
        // Halves of the pair's nodes that are still to run.
        let is_split = |(id, phase): &(NodeId, Phase)| self.order.has_wait(*id) && *phase == Phase::BeforeWait;
        let mut pending = pair.iter().filter(|half| is_split(half)).count();
        let follows = |id: NodeId, phase: Phase| match before {
            Before::Needed => !pair.iter().any(|(of, at)| self.order.before_phase(id, *of, *at)),
            Before::Possible => pair.iter().any(|(of, _)| self.order.before_phase(*of, id, phase)),
        };
        let ranks = pair.map(|(id, _)| self.order.rank(id));
        let (from, last) = match before {
            Before::Needed => (self.order.all_before_one_of(pair), ranks[0].max(ranks[1])),
            Before::Possible => (ranks[0].min(ranks[1]), u32::MAX),
        };
        let stride = (self.order.serial().len() / LOOKS).max(2) as u32;
        let mut on_the_way = Vec::new();
        for (&id, rank) in self.order.serial()[from as usize..].iter().zip(from..) {
            if dirty.0.is_empty() && pending == 0 {
                return self.futures.settle(on_the_way, Harm::Latent);
            }
            // Past the pair everything follows it, so that what is left to happen depends on the bytes alone.
            if rank > last && rank.is_multiple_of(stride) {
                let here = (graph, rank, dirty.clone());
                if let Some(known) = self.futures.get(&here) {
                    return self.futures.settle(on_the_way, known);
                }
                if let Some(harm) = self.observed_now(&dirty, graph, |settled| settled < rank) {
                    return self.futures.settle(on_the_way, harm);
                }
                on_the_way.push(here);
            }
            let node = self.node(id);
            let present = match node.site {
                Site::Graph(of) => Some(of) == graph,
                Site::Beside => true,
                Site::Before | Site::Between => false,
            };
            if !present {
                continue;
            }
            let (is_pair, phase, changed) = match id {
                _ if id == i => (true, conflict.first_access.phase, changed[0]),
                _ if id == j => (true, conflict.second_access.phase, changed[1]),
                _ => (false, Phase::AfterWait, false),
            };
            if is_pair && !(self.order.has_wait(id) && phase == Phase::BeforeWait) {
                continue;
            }
            // Of a node of the pair that was split at its wait, the second half is still to run.
            pending -= usize::from(is_pair);
            let is_left = |a: &&Access| if is_pair { a.phase == Phase::AfterWait } else { follows(id, a.phase) };
            // What a kernel writes before its wait does not depend on what it reads after it.
            let halves: &[Phase] = match self.order.has_wait(id) {
                true => &[Phase::BeforeWait, Phase::AfterWait],
                false => &[Phase::AfterWait],
            };
            let mut sees = changed;
            for &half in halves {
                let in_half = |a: &&Access| halves.len() == 1 || a.phase == half;
                let accesses = || node.accesses.iter().filter(is_left).filter(in_half);
                sees |= accesses().any(|a| a.effect.reads() && dirty.meets(&self.at(a)));
                if sees && self.observes(id) {
                    return self.futures.settle(on_the_way, Harm::Harmful { buffer: None, host: Some(id) });
                }
                for access in accesses().filter(|a| a.effect.writes()) {
                    let bytes = self.at(access);
                    if sees {
                        dirty.add(bytes);
                    } else if access.effect == crate::model::Effect::WriteAll {
                        dirty.remove(&bytes);
                    }
                }
            }
        }
        let harm = self.observed_now(&dirty, graph, |_| true).unwrap_or(Harm::Latent);
        self.futures.settle(on_the_way, harm)
    }

    /// Harm, if an observed buffer differs that nothing writes any more: `settled` is asked for the rank of its last write.
    fn observed_now(&self, dirty: &Dirty, graph: Option<GraphId>, settled: impl Fn(u32) -> bool) -> Option<Harm> {
        let differs = |seen: &&Seen| {
            let buffer = self.pool.buffer(seen.buffer);
            let here = buffer.lifetime.graph().is_none_or(|of| Some(of) == graph);
            here && settled(seen.last_write) && dirty.meets(&self.spots(seen.buffer, &(0..buffer.size)))
        };
        let observed = self.observed.get_or_init(|| observed(self.pool, self.placement, self.order, &self.uses));
        let seen = observed.iter().find(differs)?;
        Some(Harm::Harmful { buffer: Some(seen.buffer), host: None })
    }
}

/// A buffer that somebody looks at after a replay.
pub(super) struct Seen {
    buffer: BufferId,
    /// The rank of the last node that writes bytes of it, under whatever name.
    last_write: u32,
}

/// The buffers of `pool` that somebody looks at.
fn observed(pool: &Pool, placement: &Placement, order: &Order, uses: &Uses) -> Vec<Seen> {
    let mut seen: HashMap<BufferId, u32> = HashMap::new();
    seen.extend(pool.buffer_ids().filter(|id| pool.buffer(*id).lifetime.is_observed()).map(|id| (id, 0)));
    let last_write = |id: BufferId| {
        let writes = uses.accesses(pool, id).filter(|(_, access)| access.effect.writes());
        writes.map(|(node, _)| order.rank(node)).max().unwrap_or(0)
    };
    for (id, last) in &mut seen {
        *last = last_write(*id);
    }
    for_each_overlap(pool, placement, |a, b, _| {
        for (id, other) in [(a, b), (b, a)] {
            if let Some(last) = seen.get_mut(&id) {
                *last = (*last).max(last_write(other));
            }
        }
    });
    let mut seen: Vec<Seen> = seen.into_iter().map(|(buffer, last_write)| Seen { buffer, last_write }).collect();
    seen.sort_unstable_by_key(|seen| seen.buffer);
    seen
}

/// Most looks at what is known of the future, from the first node to the last.
const LOOKS: usize = 256;

/// Past a pair, which bytes differ decides what becomes of it, and many pairs of a graph lead to the same bytes.
#[derive(Default)]
pub(super) struct Futures(RefCell<HashMap<Situation, Harm>>);

/// The graph, a rank, and the bytes that differ there.
type Situation = (Option<GraphId>, u32, Dirty);

impl Futures {
    /// Bounds the memory: a graph with more situations than these is only slower.
    const MOST: usize = 1 << 17;

    fn get(&self, situation: &Situation) -> Option<Harm> {
        self.0.borrow().get(situation).cloned()
    }

    /// Notes that all these situations lead to `harm`.
    fn settle(&self, situations: Vec<Situation>, harm: Harm) -> Harm {
        let mut known = self.0.borrow_mut();
        if known.len() < Self::MOST {
            known.extend(situations.into_iter().map(|situation| (situation, harm.clone())));
        }
        harm
    }
}

/// What has run when the pair runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    /// What one of the pair waits for.
    Needed,
    /// Everything that does not wait for one of the pair.
    Possible,
}

fn meet(a: &Range<Spot>, b: &Range<Spot>) -> bool {
    a.start < b.end && b.start < a.end
}

/// A set of bytes: disjoint ranges, sorted.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Dirty(Vec<Range<Spot>>);

impl Dirty {
    fn meets(&self, range: &Range<Spot>) -> bool {
        let next = self.0.partition_point(|r| r.end <= range.start);
        self.0.get(next).is_some_and(|r| r.start < range.end)
    }

    fn add(&mut self, range: Range<Spot>) {
        let from = self.0.partition_point(|r| r.end < range.start);
        let to = self.0.partition_point(|r| r.start <= range.end);
        let joined = match self.0.get(from..to) {
            Some([first, .., last]) => range.start.min(first.start)..range.end.max(last.end),
            Some([only]) => range.start.min(only.start)..range.end.max(only.end),
            _ => range,
        };
        self.0.splice(from..to, [joined]);
    }

    fn remove(&mut self, range: &Range<Spot>) {
        let from = self.0.partition_point(|r| r.end <= range.start);
        let to = self.0.partition_point(|r| r.start < range.end);
        if from >= to {
            return;
        }
        let (head, tail) = (self.0[from].start..range.start, range.end..self.0[to - 1].end);
        let kept = [head, tail].into_iter().filter(|r| r.start < r.end);
        self.0.splice(from..to, kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn dirty_bytes_are_a_set(steps in proptest::collection::vec((any::<bool>(), 0u64..40, 1u64..12), 0..40)) {
            let mut dirty = Dirty::default();
            let mut plain = [false; 64];
            for (add, start, len) in steps {
                let range = Spot::from(start)..Spot::from(start + len);
                plain[start as usize..(start + len) as usize].fill(add);
                if add { dirty.add(range) } else { dirty.remove(&range) }
            }
            for (byte, &is_dirty) in plain.iter().enumerate() {
                prop_assert_eq!(dirty.meets(&(byte as Spot..byte as Spot + 1)), is_dirty);
            }
            prop_assert!(dirty.0.windows(2).all(|w| w[0].end < w[1].start));
        }
    }
}
