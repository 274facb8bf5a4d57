//! Recording as stream capture does it: work goes to streams, events order streams, edges follow.

use crate::location::Location;
use crate::model::{
    BufferId, DroppedWait, EdgeKind, EventId, GraphId, Lane, Lifetime, Node, NodeId, NodeKind, Pool, Site, StreamId,
};
use std::collections::HashMap;

/// Fills a [`Pool`], one capture at a time, and derives the edges that a driver's capture would have.
#[derive(Debug, Default)]
pub struct Recorder {
    pool: Pool,
    capture: Option<Capture>,
    /// What each stream's eager work waits for.
    eager: HashMap<StreamId, Frontier>,
    /// What each event stands for.
    recorded: HashMap<EventId, Recorded>,
}

/// The capture in progress.
#[derive(Debug)]
struct Capture {
    graph: GraphId,
    origin: StreamId,
    lanes: Vec<(StreamId, Frontier)>,
}

/// What the next node of a stream waits for.
#[derive(Clone, Debug, Default)]
struct Frontier {
    after: Vec<(NodeId, Option<EventId>)>,
    /// Has the stream waited for captured work, or is it the origin?
    forked: bool,
    /// The stream's last node, if the next is to be launched programmatically.
    programmatic: bool,
    last: Option<NodeId>,
    /// Waits that left no edge and await the node after them, as rows of the pool.
    dropped: Vec<DroppedWait>,
}

#[derive(Clone, Debug)]
struct Recorded {
    /// The capture it was recorded in; none if eagerly.
    graph: Option<GraphId>,
    after: Vec<NodeId>,
    /// Was the stream part of the capture?
    captured: bool,
}

impl Recorder {
    /// An empty pool to record into.
    pub fn new() -> Self {
        Self::default()
    }

    /// What is recorded so far.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The same, to add buffers and relations.
    pub fn pool_mut(&mut self) -> &mut Pool {
        &mut self.pool
    }

    /// Ends a capture that is still open, and gives the pool.
    pub fn finish(mut self) -> Pool {
        self.end();
        self.pool
    }

    /// Begins the capture of a graph on stream `origin`, ending one that is still open.
    pub fn begin(&mut self, name: impl Into<String>, origin: StreamId, location: Location) -> GraphId {
        self.end();
        let graph = self.pool.add_graph(name, location);
        let lanes = vec![(origin, Frontier { forked: true, ..Frontier::default() })];
        self.capture = Some(Capture { graph, origin, lanes });
        graph
    }

    /// Ends the capture: notes which streams were forked and joined.
    pub fn end(&mut self) {
        let Some(capture) = self.capture.take() else {
            return;
        };
        let mut lanes = Vec::new();
        // What the origin has waited for, directly or through a node.
        let (_, exit) = &capture.lanes[0];
        let mut joined: Vec<NodeId> = exit.after.iter().map(|(node, _)| *node).collect();
        let mut at = 0;
        let mut seen = vec![false; self.pool.nodes().len()];
        joined.iter().for_each(|node| seen[node.index()] = true);
        let mut into: HashMap<NodeId, Vec<NodeId>> = HashMap::new();
        for edge in self.pool.edges() {
            into.entry(edge.to).or_default().push(edge.from);
        }
        while let Some(node) = joined.get(at).copied() {
            at += 1;
            for &before in into.get(&node).into_iter().flatten() {
                if !std::mem::replace(&mut seen[before.index()], true) {
                    joined.push(before);
                }
            }
        }
        for (stream, frontier) in capture.lanes {
            let is_joined = frontier.last.is_none_or(|last| seen[last.index()]);
            lanes.push(Lane { stream, forked: frontier.forked, joined: stream == capture.origin || is_joined });
            for wait in frontier.dropped {
                self.pool.add_dropped_wait(wait);
            }
        }
        self.pool.graph_mut(capture.graph).lanes = lanes;
    }

    /// The graph being captured.
    pub fn graph(&self) -> Option<GraphId> {
        self.capture.as_ref().map(|c| c.graph)
    }

    /// Records a node on its stream, after all that the stream waits for. The node's site decides whether
    /// it is captured; a node of a graph belongs to the capture in progress.
    pub fn node(&mut self, node: Node) -> NodeId {
        let stream = node.stream;
        let captured = node.site.graph().is_some();
        let id = self.pool.add_node(node);
        let frontier = self.frontier(stream, captured);
        let taken = std::mem::take(frontier);
        *frontier = Frontier { after: vec![(id, None)], forked: taken.forked, last: Some(id), ..Frontier::default() };
        for (before, event) in taken.after {
            let weak = taken.programmatic && taken.last == Some(before);
            let kind = if weak { EdgeKind::Programmatic } else { EdgeKind::Full };
            match event {
                Some(event) => self.pool.add_event_edge(before, id, kind, event),
                None => self.pool.add_edge(before, id, kind),
            }
        }
        for wait in taken.dropped {
            self.pool.add_dropped_wait(DroppedWait { before: Some(id), ..wait });
        }
        id
    }

    /// Launches the next node of `stream` programmatically after the stream's last one.
    pub fn launch_next_programmatically(&mut self, stream: StreamId) {
        let captured = self.capture.is_some();
        self.frontier(stream, captured).programmatic = true;
    }

    /// Records a point without work at which `buffer`'s life begins or ends.
    pub fn marker(&mut self, name: impl Into<String>, stream: StreamId, location: Location) -> NodeId {
        let site = self.capture.as_ref().map_or(Site::Between, |c| Site::Graph(c.graph));
        self.node(Node::new(name, NodeKind::Marker, site, stream, location))
    }

    /// The life of transient `buffer` begins here on `stream`.
    pub fn alloc(&mut self, buffer: BufferId, stream: StreamId, location: Location) -> NodeId {
        let name = format!("alloc {}", self.pool.buffer(buffer).name);
        let marker = self.marker(name, stream, location);
        if let Lifetime::Transient { alloc, .. } = &mut self.pool.buffer_mut(buffer).lifetime {
            *alloc = Some(marker);
        }
        marker
    }

    /// The life of transient `buffer` ends here on `stream`.
    pub fn free(&mut self, buffer: BufferId, stream: StreamId, location: Location) -> NodeId {
        let name = format!("free {}", self.pool.buffer(buffer).name);
        let marker = self.marker(name, stream, location);
        if let Lifetime::Transient { free, .. } = &mut self.pool.buffer_mut(buffer).lifetime {
            *free = Some(marker);
        }
        marker
    }

    /// Records `event` after everything on `stream` so far, in the capture in progress or, without one,
    /// eagerly. Recording an event again gives it a new meaning for the waits that follow.
    pub fn record(&mut self, event: EventId, stream: StreamId) {
        self.record_on(event, stream, self.capture.is_some());
    }

    /// Records `event` after the eager work of `stream`, outside any capture.
    pub fn record_eagerly(&mut self, event: EventId, stream: StreamId) {
        self.record_on(event, stream, false);
    }

    fn record_on(&mut self, event: EventId, stream: StreamId, captured: bool) {
        let graph = if captured { self.graph() } else { None };
        let frontier = self.frontier(stream, captured);
        let after = frontier.after.iter().map(|(node, _)| *node).collect();
        let captured = captured && frontier.forked;
        self.recorded.insert(event, Recorded { graph, after, captured });
    }

    /// Lets `stream` wait for `event` in the capture in progress. If the event was recorded elsewhere, the
    /// wait leaves no edge and is noted as dropped.
    pub fn wait(&mut self, event: EventId, stream: StreamId, location: Location) {
        let Some(graph) = self.graph() else {
            return self.wait_eagerly(event, stream);
        };
        let recorded = self.recorded.get(&event).cloned();
        let frontier = self.frontier(stream, true);
        match recorded {
            Some(r) if r.graph == Some(graph) => {
                frontier.forked |= r.captured;
                let known = |node: &NodeId| frontier.after.iter().any(|(other, _)| other == node);
                let new: Vec<NodeId> = r.after.into_iter().filter(|node| !known(node)).collect();
                frontier.after.extend(new.into_iter().map(|node| (node, Some(event))));
            }
            other => {
                let after = other.and_then(|r| r.after.last().copied());
                frontier.dropped.push(DroppedWait { graph, stream, event, after, before: None, location });
            }
        }
    }

    /// Lets `stream` wait for an external event: one recorded outside the graph and waited for at each
    /// replay, or the other way round. It orders eager work beside the replay and graph nodes.
    pub fn wait_external(&mut self, event: EventId, stream: StreamId) {
        let captured = self.capture.is_some();
        let Some(recorded) = self.recorded.get(&event).cloned() else {
            return;
        };
        let after = recorded.after.into_iter().map(|node| (node, Some(event)));
        self.frontier(stream, captured).after.extend(after);
    }

    /// Lets the eager work of `stream` wait for `event`.
    pub fn wait_eagerly(&mut self, event: EventId, stream: StreamId) {
        let Some(recorded) = self.recorded.get(&event).cloned() else {
            return;
        };
        let after = recorded.after.into_iter().map(|node| (node, Some(event)));
        self.frontier(stream, false).after.extend(after);
    }

    fn frontier(&mut self, stream: StreamId, captured: bool) -> &mut Frontier {
        match &mut self.capture {
            Some(capture) if captured => {
                let found = capture.lanes.iter().position(|(of, _)| *of == stream);
                let index = found.unwrap_or_else(|| {
                    capture.lanes.push((stream, Frontier::default()));
                    capture.lanes.len() - 1
                });
                &mut capture.lanes[index].1
            }
            _ => self.eager.entry(stream).or_default(),
        }
    }
}
