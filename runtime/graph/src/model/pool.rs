//! The pool: all tables of the model.

use super::{Access, Buffer, BufferId, Edge, EdgeKind, EventId, GraphId, Lifetime, Node, NodeId, Site, StreamId};
use crate::location::Location;
use std::collections::BTreeSet;

/// Captured graphs that share memory, the eager work around them, and their buffers.
///
/// Only [`Edge`]s order nodes: whoever fills the tables adds the edges of stream order too, as
/// [`Recorder`](crate::record::Recorder) does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pool {
    graphs: Vec<Graph>,
    streams: Vec<Stream>,
    events: Vec<Event>,
    buffers: Vec<Buffer>,
    nodes: Vec<Node>,
    edges: Vec<Edge>,
    dropped_waits: Vec<DroppedWait>,
    at_once: BTreeSet<(GraphId, GraphId)>,
}

/// One captured graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Graph {
    /// Unique in the pool.
    pub name: String,
    /// The streams that took part in its capture. Empty for a graph read back from a driver, which keeps
    /// edges only.
    pub lanes: Vec<Lane>,
    /// Where its capture began.
    pub location: Location,
}

/// One stream's part in a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lane {
    /// The stream.
    pub stream: StreamId,
    /// Is it the origin, or did it wait for captured work before its first node?
    pub forked: bool,
    /// Is it the origin, or did the origin wait for its last node before the capture ended?
    pub joined: bool,
}

/// A stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    /// Unique in the pool.
    pub name: String,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// For messages; events may be re-recorded, so names need not be unique.
    pub name: String,
    /// Where it was recorded.
    pub location: Location,
}

/// A wait that left no edge: what it waited for was not part of the capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DroppedWait {
    /// The graph being captured.
    pub graph: GraphId,
    /// The stream that was to wait.
    pub stream: StreamId,
    /// The event it named.
    pub event: EventId,
    /// What the event was recorded after, if that is known: eager work, or a node of another graph.
    pub after: Option<NodeId>,
    /// The first node of the stream after the wait, if there is one.
    pub before: Option<NodeId>,
    /// Where the wait was written.
    pub location: Location,
}

impl Pool {
    /// An empty pool.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a graph.
    pub fn add_graph(&mut self, name: impl Into<String>, location: Location) -> GraphId {
        let name = name.into();
        let lanes = Vec::new();
        self.graphs.push(Graph { name, lanes, location });
        GraphId::at(self.graphs.len() - 1)
    }

    /// Adds a stream, or finds the one of that name.
    pub fn stream_named(&mut self, name: &str) -> StreamId {
        let found = self.streams.iter().position(|s| s.name == name);
        StreamId::at(found.unwrap_or_else(|| {
            let name = name.to_string();
            self.streams.push(Stream { name });
            self.streams.len() - 1
        }))
    }

    /// Adds an event.
    pub fn add_event(&mut self, name: impl Into<String>, location: Location) -> EventId {
        let name = name.into();
        self.events.push(Event { name, location });
        EventId::at(self.events.len() - 1)
    }

    /// Adds a buffer.
    pub fn add_buffer(&mut self, buffer: Buffer) -> BufferId {
        self.buffers.push(buffer);
        BufferId::at(self.buffers.len() - 1)
    }

    /// Adds a node. Node ids are the record order: the serial result is theirs.
    pub fn add_node(&mut self, node: Node) -> NodeId {
        self.nodes.push(node);
        NodeId::at(self.nodes.len() - 1)
    }

    /// Adds an edge that no event carries.
    pub fn add_edge(&mut self, from: NodeId, to: NodeId, kind: EdgeKind) {
        let event = None;
        self.edges.push(Edge { from, to, kind, event });
    }

    /// Adds an edge that `event` carries.
    pub fn add_event_edge(&mut self, from: NodeId, to: NodeId, kind: EdgeKind, event: EventId) {
        let event = Some(event);
        self.edges.push(Edge { from, to, kind, event });
    }

    /// Notes a wait that left no edge.
    pub fn add_dropped_wait(&mut self, wait: DroppedWait) {
        self.dropped_waits.push(wait);
    }

    /// Declares that replays of `a` and `b` may overlap in time. Without it replays are serialised.
    pub fn may_replay_at_once(&mut self, a: GraphId, b: GraphId) {
        self.at_once.insert((a.min(b), a.max(b)));
    }

    /// Takes [`Pool::may_replay_at_once`] back.
    pub fn serialise_replays(&mut self, a: GraphId, b: GraphId) {
        self.at_once.remove(&(a.min(b), a.max(b)));
    }

    /// Forgets the dropped waits for which `gone` holds.
    pub fn forget_dropped_waits(&mut self, gone: impl Fn(&DroppedWait) -> bool) {
        self.dropped_waits.retain(|wait| !gone(wait));
    }

    /// May replays of `a` and `b` overlap in time?
    pub fn replay_at_once(&self, a: GraphId, b: GraphId) -> bool {
        self.at_once.contains(&(a.min(b), a.max(b)))
    }

    /// The pairs of graphs whose replays may overlap in time, each with the smaller id first.
    pub fn pairs_at_once(&self) -> impl Iterator<Item = (GraphId, GraphId)> + '_ {
        self.at_once.iter().copied()
    }

    /// All graphs, by id.
    pub fn graphs(&self) -> &[Graph] {
        &self.graphs
    }

    /// All streams, by id.
    pub fn streams(&self) -> &[Stream] {
        &self.streams
    }

    /// All events, by id.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// All buffers, by id.
    pub fn buffers(&self) -> &[Buffer] {
        &self.buffers
    }

    /// All nodes, by id.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// All edges.
    pub fn edges(&self) -> &[Edge] {
        &self.edges
    }

    /// All waits that left no edge.
    pub fn dropped_waits(&self) -> &[DroppedWait] {
        &self.dropped_waits
    }

    /// One graph.
    pub fn graph(&self, id: GraphId) -> &Graph {
        &self.graphs[id.index()]
    }

    /// One stream.
    pub fn stream(&self, id: StreamId) -> &Stream {
        &self.streams[id.index()]
    }

    /// One event.
    pub fn event(&self, id: EventId) -> &Event {
        &self.events[id.index()]
    }

    /// One buffer.
    pub fn buffer(&self, id: BufferId) -> &Buffer {
        &self.buffers[id.index()]
    }

    /// One node.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// One graph, to change.
    pub fn graph_mut(&mut self, id: GraphId) -> &mut Graph {
        &mut self.graphs[id.index()]
    }

    /// One buffer, to change.
    pub fn buffer_mut(&mut self, id: BufferId) -> &mut Buffer {
        &mut self.buffers[id.index()]
    }

    /// One node, to change.
    pub fn node_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id.index()]
    }

    /// Keeps only the edges for which `keep` holds: how a mutation drops one.
    pub fn retain_edges(&mut self, keep: impl FnMut(&Edge) -> bool) {
        self.edges.retain(keep);
    }

    /// All edges, to change.
    pub fn edges_mut(&mut self) -> &mut [Edge] {
        &mut self.edges
    }

    /// Every id of a node, in record order.
    pub fn node_ids(&self) -> impl DoubleEndedIterator<Item = NodeId> + use<> {
        (0..self.nodes.len()).map(NodeId::at)
    }

    /// Every id of a buffer.
    pub fn buffer_ids(&self) -> impl DoubleEndedIterator<Item = BufferId> + use<> {
        (0..self.buffers.len()).map(BufferId::at)
    }

    /// Every id of a graph.
    pub fn graph_ids(&self) -> impl DoubleEndedIterator<Item = GraphId> + use<> {
        (0..self.graphs.len()).map(GraphId::at)
    }

    /// The nodes of `graph`, in record order.
    pub fn nodes_of(&self, graph: GraphId) -> impl Iterator<Item = NodeId> + '_ {
        let of_graph = move |id: &NodeId| self.node(*id).site == Site::Graph(graph);
        self.node_ids().filter(of_graph)
    }

    /// The buffer of that name.
    pub fn find_buffer(&self, name: &str) -> Option<BufferId> {
        let found = self.buffers.iter().position(|b| b.name == name);
        found.map(BufferId::at)
    }

    /// The first node of that name.
    pub fn find_node(&self, name: &str) -> Option<NodeId> {
        let found = self.nodes.iter().position(|n| n.name == name);
        found.map(NodeId::at)
    }

    /// The graph of that name.
    pub fn find_graph(&self, name: &str) -> Option<GraphId> {
        let found = self.graphs.iter().position(|g| g.name == name);
        found.map(GraphId::at)
    }

    /// Who uses each buffer.
    pub fn uses(&self) -> Uses {
        let mut of = vec![Vec::new(); self.buffers.len()];
        for (node, id) in self.nodes.iter().zip(self.node_ids()) {
            for (index, access) in node.accesses.iter().enumerate() {
                of[access.buffer.index()].push((id, index));
            }
        }
        Uses { of }
    }

    /// Points of the recording, besides its uses, between which a transient lives.
    pub fn life_markers(&self, buffer: BufferId) -> impl Iterator<Item = NodeId> + use<> {
        let (alloc, free) = match self.buffer(buffer).lifetime {
            Lifetime::Transient { alloc, free, .. } => (alloc, free),
            _ => (None, None),
        };
        alloc.into_iter().chain(free)
    }
}

/// The accesses of each buffer, in record order.
#[derive(Clone, Debug)]
pub struct Uses {
    of: Vec<Vec<(NodeId, usize)>>,
}

impl Uses {
    /// Nodes that use `buffer`, each with the index of the access in [`Node::accesses`].
    pub fn of(&self, buffer: BufferId) -> &[(NodeId, usize)] {
        &self.of[buffer.index()]
    }

    /// The same, as accesses.
    pub fn accesses<'p>(&self, pool: &'p Pool, buffer: BufferId) -> impl Iterator<Item = (NodeId, &'p Access)> {
        let access = move |&(node, index): &(NodeId, usize)| (node, &pool.node(node).accesses[index]);
        self.of(buffer).iter().map(access)
    }
}
