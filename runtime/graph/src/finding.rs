//! What the checker finds: codes, parties, harm, fixes.

mod code;
mod fix;
mod report;
mod view;

pub use code::Code;
pub use fix::{Fix, Price, Remedy};
pub use report::{Report, Step, Witness};
pub use view::step_name;
pub use view::{BufferView, Checked, FindingView, FixView, HarmView, NodeView, PartyView, ReportView};

use crate::model::{Access, Basis, BufferId, GraphId, NodeId, Phase};
use std::ops::Range;

/// One finding. Ids are rows of the pool that was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What is wrong.
    pub code: Code,
    /// What is wrong, in a sentence with the names in it.
    pub message: String,
    /// The graph in which it happens, where it is one.
    pub graph: Option<GraphId>,
    /// Who is involved: the earlier node of the record order first. One or two.
    pub parties: Vec<Party>,
    /// The bytes in question.
    pub bytes: Option<Bytes>,
    /// Does it change a result?
    pub harm: Harm,
    /// The swap that shows it, where order is what it is about.
    pub swap: Option<Swap>,
    /// Further pairs of nodes with the same cause, which the fix of this one orders too.
    pub also: Vec<(NodeId, NodeId)>,
    /// How to remove it, cheapest of each kind, each sufficient alone.
    pub fixes: Vec<Fix>,
    /// Facts that explain it.
    pub notes: Vec<String>,
    /// The weakest ground it stands on: declared accesses are certain, assumed ones are not.
    pub basis: Basis,
}

impl Finding {
    /// A finding without parties.
    pub(crate) fn new(code: Code, message: String) -> Self {
        Self {
            code,
            message,
            graph: None,
            parties: Vec::new(),
            bytes: None,
            harm: Harm::NotByOrder,
            swap: None,
            also: Vec::new(),
            fixes: Vec::new(),
            notes: Vec::new(),
            basis: Basis::Declared,
        }
    }

    /// The two nodes whose order decides, if that is what it is about.
    pub fn pair(&self) -> Option<[NodeId; 2]> {
        match &self.parties[..] {
            [first, second] => Some([first.node?, second.node?]),
            _ => None,
        }
    }
}

/// A node and the buffer it uses, as one side of a finding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Party {
    /// The node; none where a declaration alone is wrong.
    pub node: Option<NodeId>,
    /// The buffer; none where the node alone is wrong.
    pub buffer: Option<BufferId>,
    /// The access in question, if there is one.
    pub access: Option<Access>,
}

impl Party {
    /// `node` and its access.
    pub fn access(node: NodeId, access: &Access) -> Self {
        Self { node: Some(node), buffer: Some(access.buffer), access: Some(access.clone()) }
    }

    /// A node alone.
    pub fn node(node: NodeId) -> Self {
        Self { node: Some(node), ..Self::default() }
    }

    /// A buffer alone.
    pub fn buffer(buffer: BufferId) -> Self {
        Self { buffer: Some(buffer), ..Self::default() }
    }

    /// The phase of the access; after the wait if there is none.
    pub fn phase(&self) -> Phase {
        self.access.as_ref().map_or(Phase::AfterWait, |a| a.phase)
    }
}

/// A range of bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bytes {
    /// Within one buffer.
    Of(BufferId, Range<u64>),
    /// Addresses that two buffers share.
    At(Range<u64>),
}

/// Two nodes, each in a phase, that run in the one order or the other: those of the finding, or a pair with the same cause
/// where that one changes a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Swap {
    /// First in the record order.
    pub first: (NodeId, Phase),
    /// Second in it.
    pub second: (NodeId, Phase),
    /// Whether all that need not wait for them has run before them; otherwise only what they wait for.
    pub late: bool,
}

/// Whether a finding changes a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Harm {
    /// Swapping the pair changes what this observed buffer holds at the end, or what this node reads, which
    /// is host or outside work.
    Harmful {
        /// The buffer, if one changes.
        buffer: Option<BufferId>,
        /// The node, if one sees the difference.
        host: Option<NodeId>,
    },
    /// Swapping the pair changes what a node reads or what bytes hold in between, but no result.
    Latent,
    /// Not a question of order.
    NotByOrder,
}
