//! Does a conflict change a result?
//!
//! Values are symbolic: what a node writes is a function of the node and of all it reads, and two such
//! values are equal only if they are the same term. Then the two orders of an unordered pair, run from
//! the same memory, differ in exactly the bytes computed here, and a difference travels to whatever reads
//! it until something overwrites it. No memory needs to be simulated: only the bytes that differ.

use super::{Conflict, Context};
use crate::finding::Harm;
use crate::model::{Access, BufferId, NodeId, NodeKind, Phase, Site};
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
    pub(super) fn harm(&self, conflict: &Conflict) -> Harm {
        let (i, j) = (conflict.first, conflict.second);
        let first = self.part(i, conflict.first_access.phase);
        let second = self.part(j, conflict.second_access.phase);
        // Within one node nothing says which access comes first: all it writes may differ.
        let changed = [i == j || self.reads_from(&first, &second), i == j || self.reads_from(&second, &first)];
        for (node, changed) in [(i, changed[0]), (j, changed[1])] {
            if changed && self.observes(node) {
                return Harm::Harmful { buffer: None, host: Some(node) };
            }
        }
        let dirty = self.difference(&first, &second, changed);
        match self.spread(dirty.clone(), conflict, changed, Before::Needed) {
            Harm::Latent => self.spread(dirty, conflict, changed, Before::Possible),
            harm => harm,
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
        let sites = [self.node(i).site, self.node(j).site];
        let graph = sites.iter().find_map(|site| site.graph());
        let mut early = vec![false; self.pool.nodes().len()];
        for (node, access) in [(i, conflict.first_access), (j, conflict.second_access)] {
            for before in self.order.ancestors(node, access.phase) {
                early[before.index()] = true;
            }
        }
        // Halves of the pair's nodes that are still to run.
        let split = |id: NodeId, access: &Access| self.order.has_wait(id) && access.phase == Phase::BeforeWait;
        let mut pending = [(i, conflict.first_access), (j, conflict.second_access)]
            .into_iter()
            .filter(|(id, access)| split(*id, access))
            .count();
        let follows = |id: NodeId, phase: Phase| match before {
            Before::Needed => !early[id.index()],
            Before::Possible => [i, j].iter().any(|&of| self.order.before_phase(of, id, phase)),
        };
        for &id in self.order.serial() {
            if dirty.0.is_empty() && pending == 0 {
                return Harm::Latent;
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
                    return Harm::Harmful { buffer: None, host: Some(id) };
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
        let result = self.observed.iter().copied().find(|&id| {
            let buffer = self.pool.buffer(id);
            let here = buffer.lifetime.graph().is_none_or(|of| Some(of) == graph);
            here && dirty.meets(&self.spots(id, &(0..buffer.size)))
        });
        match result {
            Some(buffer) => Harm::Harmful { buffer: Some(buffer), host: None },
            None => Harm::Latent,
        }
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
#[derive(Clone, Default)]
struct Dirty(Vec<Range<Spot>>);

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
