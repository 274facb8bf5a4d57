//! How a recorded step runs: what of it is captured, and on which edges.

use std::collections::BTreeSet;

use lathe_graph::model::{EdgeKind, GraphId, NodeId, Pool, Site};
use lathe_graph::order::Adjacency;

use super::StepError;

/// How a recorded step runs. Whatever the mode, every address is the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mode {
    /// What of the step is captured.
    pub captured: Captured,
    /// What orders it.
    pub edges: Edges,
}

/// What of a step is captured in graphs; the rest is launched anew at each replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Captured {
    /// All of it, in one graph.
    #[default]
    Whole,
    /// Nothing: eager.
    Nothing,
    /// All but these nodes, which run eagerly between two captured segments. No path may leave them and come back.
    AllBut(BTreeSet<NodeId>),
}

/// What orders the nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Edges {
    /// What was recorded: several streams, their events, programmatic edges.
    #[default]
    Recorded,
    /// One stream, one node after the other in the order of the recording. An intervention.
    Serialised,
    /// What was recorded and one full edge more. An intervention.
    Forced {
        /// Comes first.
        first: NodeId,
        /// Comes second.
        second: NodeId,
    },
}

/// A step as a mode runs it.
pub(super) struct Realised {
    /// The recording, with the edges that the mode adds.
    pub pool: Pool,
    /// The nodes of each segment in an order that its edges allow, and whether it is captured. Segments run one after
    /// another.
    pub segments: Vec<(Vec<NodeId>, bool)>,
    /// Whether everything runs on the origin stream.
    pub one_lane: bool,
}

impl Mode {
    /// The step of `graph` as this mode runs it.
    pub(super) fn realise(&self, recorded: &Pool, graph: GraphId) -> Result<Realised, StepError> {
        let mut pool = recorded.clone();
        match self.edges {
            Edges::Recorded => {}
            Edges::Serialised => {
                for edge in pool.edges_mut() {
                    edge.kind = EdgeKind::Full;
                }
                let serial = in_order(recorded, graph)?;
                serial.windows(2).for_each(|pair| pool.add_edge(pair[0], pair[1], EdgeKind::Full));
            }
            Edges::Forced { first, second } => {
                for node in [first, second] {
                    if recorded.node(node).site != Site::Graph(graph) {
                        let (node, graph) = (&recorded.node(node).name, &recorded.graph(graph).name);
                        return Err(StepError::Mode(format!("node `{node}` is not in `{graph}`: no order to force")));
                    }
                }
                pool.add_edge(first, second, EdgeKind::Full);
            }
        }
        let order = in_order(&pool, graph)?;
        let segments = match &self.captured {
            Captured::Whole => vec![(order, true)],
            Captured::Nothing => vec![(order, false)],
            Captured::AllBut(region) => segments(&pool, order, region)?,
        };
        Ok(Realised { pool, segments, one_lane: self.edges == Edges::Serialised })
    }
}

/// The nodes of `graph` in an order that every edge allows.
fn in_order(pool: &Pool, graph: GraphId) -> Result<Vec<NodeId>, StepError> {
    let order = Adjacency::of(pool).topological().map_err(|stuck| {
        let names: Vec<_> = stuck.iter().map(|id| format!("`{}`", pool.node(*id).name)).collect();
        StepError::Mode(format!("the forced order contradicts the recorded edges, among {}", names.join(", ")))
    })?;
    Ok(order.into_iter().filter(|id| pool.node(*id).site == Site::Graph(graph)).collect())
}

/// What comes before the region, the region, and what comes after it.
fn segments(pool: &Pool, order: Vec<NodeId>, region: &BTreeSet<NodeId>) -> Result<Vec<(Vec<NodeId>, bool)>, StepError> {
    if let Some(stranger) = region.iter().find(|id| !order.contains(id)) {
        let name = &pool.node(*stranger).name;
        return Err(StepError::Mode(format!(
            "node `{name}` is not in the graph: it cannot be left out of its capture"
        )));
    }
    let adjacency = Adjacency::of(pool);
    let after = reached(region, |id| adjacency.successors(id));
    let before = reached(region, |id| adjacency.predecessors(id));
    let (mut first, mut last) = (Vec::new(), Vec::new());
    let mut is_past = false;
    for id in order.iter().copied() {
        match (region.contains(&id), before.contains(&id), after.contains(&id)) {
            (true, ..) => is_past = true,
            (false, true, true) => {
                let name = &pool.node(id).name;
                return Err(StepError::Mode(format!(
                    "`{name}` comes after a node of the eager region and before another: make it part of the region"
                )));
            }
            (false, true, false) => first.push(id),
            (false, false, true) => last.push(id),
            (false, false, false) => if is_past { &mut last } else { &mut first }.push(id),
        }
    }
    let middle = order.into_iter().filter(|id| region.contains(id)).collect();
    let segments = [(first, true), (middle, false), (last, true)];
    Ok(segments.into_iter().filter(|(nodes, _)| !nodes.is_empty()).collect())
}

/// Every node that a path of `next` leads to from one of `from`.
fn reached<'a>(from: &BTreeSet<NodeId>, next: impl Fn(NodeId) -> &'a [(NodeId, EdgeKind)]) -> BTreeSet<NodeId> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<NodeId> = from.iter().copied().collect();
    while let Some(node) = open.pop() {
        open.extend(next(node).iter().map(|(id, _)| *id).filter(|id| reached.insert(*id)));
    }
    reached
}
