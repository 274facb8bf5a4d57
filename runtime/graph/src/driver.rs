//! A captured graph as the driver holds it, compared with what was recorded (E11, E12).
//!
//! Only edges count: a driver's graph has no streams. Its nodes are told apart by kind, function name and
//! parameters; its edges by what they order, not one by one.

mod compare;

pub use compare::{ReadBackError, Second, read_back};

use crate::model::{EdgeKind, GraphId, KernelLaunch, NodeKind, Placement, Pool};
use crate::order::Adjacency;
use serde::{Deserialize, Serialize};

/// What a node of a captured graph is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum CapturedKind {
    Kernel,
    Memcpy,
    Memset,
    Host,
    /// Orders, and does nothing.
    Empty,
    EventRecord,
    EventWait,
    MemAlloc,
    MemFree,
    ChildGraph,
    Conditional,
    Other,
}

impl CapturedKind {
    /// How a recorded node of this kind would come out; none for a marker, which is no node.
    pub fn of(kind: NodeKind) -> Option<Self> {
        match kind {
            NodeKind::Kernel => Some(Self::Kernel),
            NodeKind::Memcpy => Some(Self::Memcpy),
            NodeKind::Memset => Some(Self::Memset),
            NodeKind::Host => Some(Self::Host),
            NodeKind::Marker => None,
        }
    }

    /// Does it only carry order?
    pub fn is_order_only(self) -> bool {
        matches!(self, Self::Empty | Self::EventRecord | Self::EventWait)
    }

    /// A word for messages.
    pub fn word(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Memcpy => "memcpy",
            Self::Memset => "memset",
            Self::Host => "host",
            Self::Empty => "empty",
            Self::EventRecord => "event record",
            Self::EventWait => "event wait",
            Self::MemAlloc => "memory allocation",
            Self::MemFree => "memory free",
            Self::ChildGraph => "child graph",
            Self::Conditional => "conditional",
            Self::Other => "unknown",
        }
    }
}

/// A node of a captured graph.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapturedNode {
    /// What it is.
    pub kind: CapturedKind,
    /// A kernel's function name; empty for others.
    #[serde(default)]
    pub name: String,
    /// How a kernel is launched, where the driver was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch: Option<KernelLaunch>,
}

impl CapturedNode {
    /// A node of which kind and name are known.
    pub fn new(kind: CapturedKind, name: impl Into<String>) -> Self {
        Self { kind, name: name.into(), launch: None }
    }
}

/// An edge of a captured graph, with the ports that `cuGraphGetEdges_v2` gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CapturedEdge {
    /// Index of the node that comes first.
    pub from: usize,
    /// Index of the node that comes second.
    pub to: usize,
    /// 0: the whole node; 1 or 2: a programmatic port, its trigger or its launch order.
    #[serde(default)]
    pub from_port: u8,
    /// Is the edge's type programmatic?
    #[serde(default)]
    pub programmatic: bool,
}

impl CapturedEdge {
    /// A full edge.
    pub fn full(from: usize, to: usize) -> Self {
        Self { from, to, from_port: 0, programmatic: false }
    }

    /// How strongly it orders.
    pub fn kind(&self) -> EdgeKind {
        if self.programmatic || self.from_port != 0 { EdgeKind::Programmatic } else { EdgeKind::Full }
    }
}

/// An aligned 8-byte word of a node's parameters, or the pointer of a copy or a fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Word {
    /// Index of the parameter.
    pub parameter: u32,
    /// Byte within the parameter.
    #[serde(default)]
    pub offset: u32,
    /// The word.
    pub value: u64,
}

/// A question that a driver did not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the driver's graph cannot be read: {call} says {reason}")]
pub struct DriverError {
    /// The driver's function.
    pub call: String,
    /// What it said.
    pub reason: String,
}

/// A captured graph that can be read back.
pub trait Driver {
    /// All nodes.
    fn nodes(&self) -> Result<Vec<CapturedNode>, DriverError>;
    /// All edges, by index of node.
    fn edges(&self) -> Result<Vec<CapturedEdge>, DriverError>;
    /// The words of a node's parameters.
    fn words(&self, node: usize) -> Result<Vec<Word>, DriverError>;
}

/// A captured graph as plain data: a dump of a real one, or a fake.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapturedGraph {
    /// All nodes.
    pub nodes: Vec<CapturedNode>,
    /// All edges.
    #[serde(default)]
    pub edges: Vec<CapturedEdge>,
    /// The words of each node's parameters.
    #[serde(default)]
    pub words: Vec<Vec<Word>>,
}

impl CapturedGraph {
    /// What a faultless driver captures of `graph`: one node for each that is no marker, edges through
    /// markers closed up, one pointer for each access.
    pub fn faultless(pool: &Pool, graph: GraphId, placement: &Placement) -> Self {
        let mut captured = Self::default();
        let mut index = vec![None; pool.nodes().len()];
        for id in pool.nodes_of(graph) {
            let node = pool.node(id);
            let Some(kind) = CapturedKind::of(node.kind) else { continue };
            index[id.index()] = Some(captured.nodes.len());
            let name = match kind {
                CapturedKind::Kernel => node.symbol.as_ref().unwrap_or(&node.name).clone(),
                _ => String::new(),
            };
            captured.nodes.push(CapturedNode { kind, name, launch: node.launch.clone() });
            let pointers = node.accesses.iter().filter_map(|a| Some(placement.address(a.buffer)? + a.range.start));
            let word = |(i, value)| Word { parameter: i as u32, offset: 0, value };
            captured.words.push(pointers.enumerate().map(word).collect());
        }
        for (from, to, kind) in compare::edges_between(pool, &Adjacency::of(pool), graph) {
            if let (Some(from), Some(to)) = (index[from.index()], index[to.index()]) {
                let programmatic = kind == EdgeKind::Programmatic;
                captured.edges.push(CapturedEdge { from, to, from_port: programmatic.into(), programmatic });
            }
        }
        captured
    }
}

impl Driver for CapturedGraph {
    fn nodes(&self) -> Result<Vec<CapturedNode>, DriverError> {
        Ok(self.nodes.clone())
    }

    fn edges(&self) -> Result<Vec<CapturedEdge>, DriverError> {
        Ok(self.edges.clone())
    }

    fn words(&self, node: usize) -> Result<Vec<Word>, DriverError> {
        Ok(self.words.get(node).cloned().unwrap_or_default())
    }
}
