//! What every pool must satisfy before anything is computed from it.

use super::{Access, Buffer, BufferId, MAX_BYTES, Node, NodeId, Pool, Site};
use crate::order::Adjacency;
use std::ops::Range;

/// Why a pool makes no sense. Each names the row at fault, so that a file's reader can find its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum ModelError {
    #[error("the pool holds no graph: record at least one node in a graph")]
    Empty,
    #[error("a {what} refers to {kind} number {index}, which the pool does not hold")]
    UnknownRow { what: &'static str, kind: &'static str, index: u32 },
    #[error("buffer `{buffer}` is {size} bytes: a size is 1 to 2^40")]
    Size { buffer: String, id: BufferId, size: u64 },
    #[error("buffer `{buffer}` is aligned to {align} bytes: an alignment is a power of two up to 2^40")]
    Align { buffer: String, id: BufferId, align: u64 },
    #[error("buffer `{buffer}` ends past the last address: {size} bytes at {address:#x}")]
    Address { buffer: String, id: BufferId, address: u64, size: u64 },
    #[error(
        "{range:?} is no part of buffer `{buffer}`, which is {size} bytes: {what} takes a non-empty range inside 0..{size}"
    )]
    Range {
        what: String,
        buffer: String,
        id: BufferId,
        node: Option<NodeId>,
        access: usize,
        range: Range<u64>,
        size: u64,
    },
    #[error(
        "node `{node}` declares bytes {range:?} of `{buffer}` twice ({first} and {second}): declare read_write once, or split the ranges"
    )]
    OverlappingAccesses {
        node: String,
        id: NodeId,
        buffer: String,
        range: Range<u64>,
        first: &'static str,
        second: &'static str,
        access: usize,
    },
    #[error(
        "buffers `{a}` ({a_life}) and `{b}` ({b_life}) are both always live and are declared on the same bytes {range:#x?}: declare one buffer and give ranges of it"
    )]
    OverlappingBuffers {
        a: String,
        a_id: BufferId,
        a_life: &'static str,
        b: String,
        b_id: BufferId,
        b_life: &'static str,
        range: Range<u64>,
    },
    #[error("the edges form a cycle: {}", .names.join(" -> "))]
    Cycle { names: Vec<String>, nodes: Vec<NodeId> },
    #[error(
        "an edge leads from `{from}` to `{to}`, nodes of different graphs: graphs are ordered by their replays, not by edges"
    )]
    EdgeBetweenGraphs { from: String, from_id: NodeId, to: String, to_id: NodeId },
}

impl Pool {
    /// Checks the tables themselves: names, rows, sizes, ranges, declarations that contradict each other,
    /// cycles. Everything else in this crate may rely on it.
    pub fn validate(&self) -> Result<(), ModelError> {
        if self.graphs().is_empty() || !self.nodes().iter().any(|n| n.site.graph().is_some()) {
            return Err(ModelError::Empty);
        }
        self.rows_exist()?;
        self.buffers_make_sense()?;
        for (node, id) in self.nodes().iter().zip(self.node_ids()) {
            self.accesses_make_sense(node, id)?;
        }
        self.lasting_buffers_are_apart()?;
        self.edges_stay_in_graphs()?;
        match self.find_cycle() {
            Some(nodes) => {
                let name = |id: &NodeId| self.node(*id).name.clone();
                let names = nodes.iter().chain(nodes.first()).map(name).collect();
                Err(ModelError::Cycle { names, nodes })
            }
            None => Ok(()),
        }
    }

    fn rows_exist(&self) -> Result<(), ModelError> {
        let exists = |what, kind, index: u32, len: usize| {
            if (index as usize) < len { Ok(()) } else { Err(ModelError::UnknownRow { what, kind, index }) }
        };
        let graphs = self.graphs().len();
        let (streams, events) = (self.streams().len(), self.events().len());
        let (buffers, nodes) = (self.buffers().len(), self.nodes().len());
        for node in self.nodes() {
            exists("node", "stream", node.stream.0, streams)?;
            if let Site::Graph(graph) = node.site {
                exists("node", "graph", graph.0, graphs)?;
            }
            for access in &node.accesses {
                exists("node", "buffer", access.buffer.0, buffers)?;
            }
        }
        for (buffer, id) in self.buffers().iter().zip(self.buffer_ids()) {
            if let Some(graph) = buffer.lifetime.graph() {
                exists("buffer", "graph", graph.0, graphs)?;
            }
            if let Some(stream) = buffer.stream {
                exists("buffer", "stream", stream.0, streams)?;
            }
            for marker in self.life_markers(id) {
                exists("buffer", "node", marker.0, nodes)?;
            }
        }
        for edge in self.edges() {
            exists("edge", "node", edge.from.0, nodes)?;
            exists("edge", "node", edge.to.0, nodes)?;
            if let Some(event) = edge.event {
                exists("edge", "event", event.0, events)?;
            }
        }
        for graph in self.graphs() {
            for lane in &graph.lanes {
                exists("graph", "stream", lane.stream.0, streams)?;
            }
        }
        for wait in self.dropped_waits() {
            exists("wait", "graph", wait.graph.0, graphs)?;
            exists("wait", "stream", wait.stream.0, streams)?;
            exists("wait", "event", wait.event.0, events)?;
            for node in wait.after.iter().chain(&wait.before) {
                exists("wait", "node", node.0, nodes)?;
            }
        }
        for (a, b) in self.pairs_at_once() {
            exists("replay relation", "graph", a.0.max(b.0), graphs)?;
        }
        Ok(())
    }

    fn buffers_make_sense(&self) -> Result<(), ModelError> {
        for (buffer, id) in self.buffers().iter().zip(self.buffer_ids()) {
            let (name, size) = (buffer.name.clone(), buffer.size);
            if size == 0 || size > MAX_BYTES {
                return Err(ModelError::Size { buffer: name, id, size });
            }
            let align = buffer.align;
            if !align.is_power_of_two() || align > MAX_BYTES {
                return Err(ModelError::Align { buffer: name, id, align });
            }
            if let Some(address) = buffer.address
                && address.checked_add(size).is_none()
            {
                return Err(ModelError::Address { buffer: name, id, address, size });
            }
            for lease in &buffer.leases {
                self.in_buffer(id, lease, "a lease", None, 0)?;
            }
        }
        Ok(())
    }

    fn in_buffer(
        &self,
        id: BufferId,
        range: &Range<u64>,
        what: &str,
        node: Option<NodeId>,
        access: usize,
    ) -> Result<(), ModelError> {
        let Buffer { name, size, .. } = self.buffer(id);
        if range.start < range.end && range.end <= *size {
            return Ok(());
        }
        Err(ModelError::Range {
            what: what.to_string(),
            buffer: name.clone(),
            id,
            node,
            access,
            range: range.clone(),
            size: *size,
        })
    }

    fn accesses_make_sense(&self, node: &Node, id: NodeId) -> Result<(), ModelError> {
        for (index, access) in node.accesses.iter().enumerate() {
            let what = format!("an access of node `{}`", node.name);
            self.in_buffer(access.buffer, &access.range, &what, Some(id), index)?;
            let clashes = |other: &&Access| {
                other.buffer == access.buffer
                    && other.range.start < access.range.end
                    && access.range.start < other.range.end
            };
            if let Some(other) = node.accesses[..index].iter().find(clashes) {
                let start = other.range.start.max(access.range.start);
                return Err(ModelError::OverlappingAccesses {
                    node: node.name.clone(),
                    id,
                    buffer: self.buffer(access.buffer).name.clone(),
                    range: start..other.range.end.min(access.range.end),
                    first: other.effect.word(),
                    second: access.effect.word(),
                    access: index,
                });
            }
        }
        Ok(())
    }

    fn lasting_buffers_are_apart(&self) -> Result<(), ModelError> {
        let lasting = |id: &BufferId| self.buffer(*id).lifetime.is_lasting();
        let given = |id: BufferId| {
            let buffer = self.buffer(id);
            buffer.address.map(|start| (start, start + buffer.size, id))
        };
        let mut ranges: Vec<_> = self.buffer_ids().filter(lasting).filter_map(given).collect();
        ranges.sort_unstable();
        for pair in ranges.windows(2) {
            let ((_, a_end, a), (b_start, b_end, b)) = (pair[0], pair[1]);
            if b_start < a_end {
                let (first, second) = (self.buffer(a), self.buffer(b));
                return Err(ModelError::OverlappingBuffers {
                    a: first.name.clone(),
                    a_id: a,
                    a_life: first.lifetime.word(),
                    b: second.name.clone(),
                    b_id: b,
                    b_life: second.lifetime.word(),
                    range: b_start..a_end.min(b_end),
                });
            }
        }
        Ok(())
    }

    fn edges_stay_in_graphs(&self) -> Result<(), ModelError> {
        for edge in self.edges() {
            let (from, to) = (self.node(edge.from), self.node(edge.to));
            if let (Site::Graph(a), Site::Graph(b)) = (from.site, to.site)
                && a != b
            {
                return Err(ModelError::EdgeBetweenGraphs {
                    from: from.name.clone(),
                    from_id: edge.from,
                    to: to.name.clone(),
                    to_id: edge.to,
                });
            }
        }
        Ok(())
    }

    /// Some cycle of edges, each node once, if there is one.
    fn find_cycle(&self) -> Option<Vec<NodeId>> {
        let adjacency = Adjacency::of(self);
        let stuck = adjacency.topological().err()?;
        // Every stuck node has a stuck predecessor, so walking backwards must come round.
        let mut is_stuck = vec![false; self.nodes().len()];
        for node in &stuck {
            is_stuck[node.index()] = true;
        }
        let mut seen_at = vec![usize::MAX; self.nodes().len()];
        let mut walk = Vec::new();
        let mut here = stuck[0];
        while seen_at[here.index()] == usize::MAX {
            seen_at[here.index()] = walk.len();
            walk.push(here);
            let mut before = adjacency.predecessors(here).iter().map(|&(node, _)| node);
            here = before.find(|node| is_stuck[node.index()])?;
        }
        let mut cycle = walk.split_off(seen_at[here.index()]);
        cycle.reverse();
        let first = (0..cycle.len()).min_by_key(|i| cycle[*i])?;
        cycle.rotate_left(first);
        Some(cycle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::location::Location;
    use crate::model::{EdgeKind, Effect, Lifetime, NodeKind};

    fn pool_of(nodes: usize) -> Pool {
        let mut pool = Pool::new();
        let graph = pool.add_graph("g", Location::unknown());
        let stream = pool.stream_named("m");
        for i in 0..nodes {
            let site = Site::Graph(graph);
            pool.add_node(Node::new(format!("k{i}"), NodeKind::Kernel, site, stream, Location::unknown()));
        }
        pool
    }

    fn persistent(name: &str, size: u64) -> Buffer {
        Buffer::new(name, size, Lifetime::Persistent { carried: true }, Location::unknown())
    }

    #[test]
    fn an_empty_pool_is_refused() {
        assert_eq!(Pool::new().validate(), Err(ModelError::Empty));
        assert_eq!(pool_of(0).validate(), Err(ModelError::Empty));
        assert_eq!(pool_of(1).validate(), Ok(()));
    }

    #[test]
    fn a_cycle_is_named_node_by_node() {
        let mut pool = pool_of(4);
        for (a, b) in [(0, 1), (1, 2), (2, 1), (2, 3)] {
            pool.add_edge(NodeId(a), NodeId(b), EdgeKind::Full);
        }
        let message = pool.validate().unwrap_err().to_string();
        assert!(message.contains("k1 -> k2 -> k1"), "{message}");
    }

    #[test]
    fn sizes_stop_at_a_tebibyte() {
        for (size, ok) in [(0, false), (1, true), (MAX_BYTES, true), (MAX_BYTES + 1, false)] {
            let mut pool = pool_of(1);
            pool.add_buffer(persistent("x", size));
            assert_eq!(pool.validate().is_ok(), ok, "{size}");
        }
    }

    #[test]
    fn an_access_stays_inside_its_buffer_and_is_declared_once() {
        let mut pool = pool_of(1);
        let x = pool.add_buffer(persistent("x", 64));
        pool.node_mut(NodeId(0)).accesses = vec![Access::new(x, 0..65, Effect::Read)];
        assert!(matches!(pool.validate(), Err(ModelError::Range { size: 64, .. })));
        let (read, write) = (Access::new(x, 0..40, Effect::Read), Access::new(x, 32..64, Effect::WriteAll));
        pool.node_mut(NodeId(0)).accesses = vec![read, write];
        let clash = pool.validate().unwrap_err();
        assert!(matches!(&clash, ModelError::OverlappingAccesses { range, .. } if *range == (32..40)), "{clash}");
    }

    #[test]
    fn two_lasting_buffers_on_the_same_bytes_are_refused() {
        let mut pool = pool_of(1);
        for (name, address) in [("x", 0), ("y", 32)] {
            let id = pool.add_buffer(persistent(name, 64));
            pool.buffer_mut(id).address = Some(address);
        }
        assert!(matches!(pool.validate(), Err(ModelError::OverlappingBuffers { range, .. }) if range == (32..64)));
    }
}
