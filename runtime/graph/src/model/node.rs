//! Nodes, where they run, and the edges between them.

use super::{Access, EventId, GraphId, NodeId, StreamId};
use crate::location::Location;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What kind of work a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeKind {
    /// A kernel launch.
    Kernel,
    /// A copy.
    Memcpy,
    /// A fill.
    Memset,
    /// A host callback.
    Host,
    /// A recorded point without work, where a lifetime begins or ends or streams join. Not a node of the
    /// captured graph.
    Marker,
}

/// Where a node runs, which decides what orders it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Site {
    /// In a captured graph, once per replay: ordered by the graph's edges.
    Graph(GraphId),
    /// Eagerly, once, and finished before the first replay.
    Before,
    /// Eagerly, between replays: the device is idle when it starts and when it ends.
    Between,
    /// Eagerly, at each step, beside the replay: ordered by nothing but edges to and from graph nodes.
    Beside,
}

impl Site {
    /// The graph, if the node is in one.
    pub fn graph(self) -> Option<GraphId> {
        match self {
            Self::Graph(graph) => Some(graph),
            _ => None,
        }
    }
}

/// Which CTAs of a kernel execute the programmatic wait (`griddepcontrol.wait`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PdlWait {
    /// All: what comes before the kernel also comes before its successors.
    #[default]
    Every,
    /// Some: accesses after the wait are ordered, successors are not.
    Some,
    /// None: a programmatic edge into it orders nothing.
    Never,
}

/// A pointer found in a captured node's parameters.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Pointer {
    /// Which parameter, and the byte within it: `arg 2`, `arg 0 + 16`, `dst`.
    pub parameter: String,
    /// Its value.
    pub value: u64,
}

/// How a kernel is launched, as far as a driver shows it of a captured node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct KernelLaunch {
    /// CTAs in x, y, z.
    pub grid: [u32; 3],
    /// Threads of a CTA in x, y, z.
    pub block: [u32; 3],
    /// Dynamic shared memory of a CTA in bytes.
    pub shared_bytes: u32,
    /// CTAs of a cluster in x, y, z; ones without clusters.
    #[serde(default = "no_cluster")]
    pub cluster: [u32; 3],
    /// Do all CTAs run at once?
    #[serde(default)]
    pub cooperative: bool,
    /// Parameters of at most 8 bytes, by index, zero-extended: of a recorded kernel its scalars and strides; of a
    /// captured one its pointers too.
    #[serde(default)]
    pub scalars: BTreeMap<u32, u64>,
}

fn no_cluster() -> [u32; 3] {
    [1; 3]
}

/// A piece of work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// For messages: the kernel's name, made unique by the recorder where it can.
    pub name: String,
    /// The kernel's function name in the driver, where it is not `name`.
    pub symbol: Option<String>,
    /// What it is.
    pub kind: NodeKind,
    /// Where it runs.
    pub site: Site,
    /// The stream it was recorded on.
    pub stream: StreamId,
    /// What it reads and writes.
    pub accesses: Vec<Access>,
    /// Which CTAs wait for programmatic predecessors.
    pub pdl_wait: PdlWait,
    /// Pointers in its parameters, as captured, where they are known.
    pub pointers: Vec<Pointer>,
    /// How it is launched, for a kernel whose launch is known.
    pub launch: Option<KernelLaunch>,
    /// How long it takes, where that is known.
    pub nanos: Option<u64>,
    /// Where it was recorded.
    pub location: Location,
}

impl Node {
    /// A node without accesses.
    pub fn new(name: impl Into<String>, kind: NodeKind, site: Site, stream: StreamId, location: Location) -> Self {
        Self {
            name: name.into(),
            symbol: None,
            kind,
            site,
            stream,
            accesses: Vec::new(),
            pdl_wait: PdlWait::Every,
            pointers: Vec::new(),
            launch: None,
            nanos: None,
            location,
        }
    }
}

/// How strong an edge is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EdgeKind {
    /// The second starts when the first is complete and its writes are visible.
    Full,
    /// Programmatic dependent launch: the second may start early; only what it does after its wait comes
    /// after the first.
    Programmatic,
}

/// An order between two nodes, stream order included.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Edge {
    /// Comes first.
    pub from: NodeId,
    /// Comes second.
    pub to: NodeId,
    /// How strongly.
    pub kind: EdgeKind,
    /// The event that carries it, if one does.
    pub event: Option<EventId>,
}
