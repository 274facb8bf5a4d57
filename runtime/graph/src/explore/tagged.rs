//! Memory of symbolic values.

use super::World;
use crate::finding::Step;
use crate::model::{Access, BufferId, Effect, GraphId, Node, NodeId, NodeKind, Phase, Placement, Pool, Site};
use std::convert::Infallible;
use std::ops::Range;

/// Memory whose values are symbolic: what a node writes is a term over the node and everything that it read, and what it
/// writes in part, over what was there as well. Two values are equal only if they are the same term (64-bit hashes
/// stand for terms). Bytes that every access treats alike are one cell.
///
/// A step reads when it begins and writes when it ends, so two steps can also be run overlapping.
#[derive(Clone, Debug)]
pub struct Tagged<'a> {
    pool: &'a Pool,
    /// For each node and access, its cells.
    cells_of: Vec<Vec<Range<u32>>>,
    /// Observed buffers with their cells.
    observed: Vec<(BufferId, Range<u32>)>,
    state: State,
}

/// What changes while steps run.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    /// The value of each cell.
    pub(super) values: Vec<u64>,
    /// For each node, a digest of all it has read so far.
    pub(super) seen: Vec<u64>,
}

impl<'a> Tagged<'a> {
    /// Memory in which the buffers of `pool` lie as `placement` says; a buffer that is not placed shares nothing. What is
    /// observed is what `graph` leaves in buffers whose content is looked at after a replay, and what host nodes read.
    pub fn new(pool: &'a Pool, placement: &Placement, graph: GraphId) -> Self {
        let spot = |buffer: BufferId, byte: u64| match placement.address(buffer) {
            Some(address) => (0u32, address.saturating_add(byte)),
            None => (buffer.0 + 1, byte),
        };
        let is_observed = |id: &BufferId| {
            let lifetime = &pool.buffer(*id).lifetime;
            lifetime.is_observed() && lifetime.graph().is_none_or(|of| of == graph)
        };
        let observed: Vec<BufferId> = pool.buffer_ids().filter(is_observed).collect();
        let whole = |&id: &BufferId| (id, 0..pool.buffer(id).size);
        let accessed = pool.nodes().iter().flat_map(|node| &node.accesses).map(|a| (a.buffer, a.range.clone()));
        let ranges = accessed.chain(observed.iter().map(whole));
        let mut cuts: Vec<(u32, u64)> = ranges.flat_map(|(b, r)| [spot(b, r.start), spot(b, r.end)]).collect();
        cuts.sort_unstable();
        cuts.dedup();
        let cell = |at: (u32, u64)| cuts.partition_point(|&cut| cut < at) as u32;
        let cells =
            |buffer: BufferId, range: &Range<u64>| cell(spot(buffer, range.start))..cell(spot(buffer, range.end));
        let of_node = |accesses: &Vec<Access>| accesses.iter().map(|a| cells(a.buffer, &a.range)).collect();
        let mut tagged = Self {
            pool,
            cells_of: pool.nodes().iter().map(|node| of_node(&node.accesses)).collect(),
            observed: observed.into_iter().map(|id| (id, cells(id, &(0..pool.buffer(id).size)))).collect(),
            state: State { values: vec![0; cuts.len()], seen: Vec::new() },
        };
        tagged.restart();
        tagged
    }

    /// Memory as it is before a replay.
    pub(super) fn restart(&mut self) {
        self.state.values.iter_mut().enumerate().for_each(|(cell, value)| *value = mix(cell as u64, u64::MAX));
        self.state.seen = (0..self.pool.nodes().len() as u64).map(|node| mix(node, 1)).collect();
    }

    pub(super) fn state(&self) -> &State {
        &self.state
    }

    pub(super) fn set_state(&mut self, state: State) {
        self.state = state;
    }

    /// The cells of an access.
    pub(super) fn cells(&self, node: NodeId, access: usize) -> Range<u32> {
        self.cells_of[node.index()][access].clone()
    }

    /// The accesses of a step, with their positions in the node's list.
    pub(super) fn accesses(&self, step: Step) -> impl Iterator<Item = (usize, &'a Access)> + use<'a> {
        let node: &'a Node = self.pool.node(step.node());
        node.accesses.iter().enumerate().filter(move |(_, access)| match step {
            Step::Node(_) => true,
            Step::BeforeWait(_) => access.phase == Phase::BeforeWait,
            Step::AfterWait(_) => access.phase == Phase::AfterWait,
        })
    }

    /// All reads of the step.
    pub(super) fn begin(&mut self, step: Step) {
        for (index, access) in self.accesses(step) {
            if access.effect.reads() {
                self.read(step.node(), index);
            }
        }
    }

    /// All its writes.
    pub(super) fn end(&mut self, step: Step) {
        for (index, access) in self.accesses(step) {
            if access.effect.writes() {
                self.write(step.node(), index);
            }
        }
    }

    fn value(&self, cells: &Range<u32>) -> u64 {
        cells.clone().fold(0, |hash, cell| mix(hash, self.state.values[cell as usize]))
    }

    fn read(&mut self, node: NodeId, access: usize) {
        let value = self.value(&self.cells_of[node.index()][access]);
        let seen = &mut self.state.seen[node.index()];
        *seen = mix(mix(*seen, access as u64), value);
    }

    /// From the same memory, does it matter which of two accesses of one node comes first?
    pub(super) fn accesses_disagree(&mut self, node: NodeId, x: usize, y: usize) -> bool {
        let [forward, backward] = [[x, y], [y, x]].map(|order| {
            self.restart();
            let mut read = [0; 2];
            for access in order {
                let effect = self.pool.node(node).accesses[access].effect;
                if effect.reads() {
                    read[usize::from(access == y)] = self.value(&self.cells_of[node.index()][access]);
                }
                if effect.writes() {
                    self.write(node, access);
                }
            }
            (read, self.state.values.clone())
        });
        forward != backward
    }

    fn write(&mut self, node: NodeId, access: usize) {
        let value = mix(mix(self.state.seen[node.index()], u64::from(node.0)), access as u64);
        let effect = self.pool.node(node).accesses[access].effect;
        for cell in self.cells_of[node.index()][access].clone() {
            let old = &mut self.state.values[cell as usize];
            *old = if effect == Effect::WritePart { mix(value, *old) } else { value };
        }
    }

    /// The value of every observed buffer, and of what host nodes and work outside the graph read.
    pub(super) fn results(&self) -> Vec<(Option<BufferId>, u64)> {
        let buffers = self.observed.iter().map(|(id, cells)| (Some(*id), self.value(cells)));
        let outside = |node: &Node| node.kind == NodeKind::Host || node.site == Site::Beside;
        let hosts = self.pool.node_ids().filter(|id| outside(self.pool.node(*id)));
        buffers.chain(hosts.map(|id| (None, self.state.seen[id.index()]))).collect()
    }
}

impl World for Tagged<'_> {
    type Error = Infallible;

    fn reset(&mut self) -> Result<(), Infallible> {
        self.restart();
        Ok(())
    }

    fn run(&mut self, step: Step) -> Result<(), Infallible> {
        self.begin(step);
        self.end(step);
        Ok(())
    }

    fn observe(&mut self) -> Result<Vec<(BufferId, u64)>, Infallible> {
        Ok(self.results().into_iter().filter_map(|(buffer, value)| Some((buffer?, value))).collect())
    }
}

/// The term of `a` and `b`.
fn mix(a: u64, b: u64) -> u64 {
    let mut z = a.rotate_left(23) ^ b.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
