//! A report as plain data with the names in it, for JSON.

use super::{Bytes, Code, Finding, Harm, Report, Step};
use crate::location::Location;
use crate::model::{Basis, Effect, Phase, Placement, Pool, Site};
use serde::Serialize;
use std::ops::Range;

/// A whole report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReportView {
    /// Version of this form.
    pub lathe_report: u32,
    /// How much was checked.
    pub checked: Checked,
    /// The findings.
    pub findings: Vec<FindingView>,
}

/// How much was checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs)]
pub struct Checked {
    pub graphs: usize,
    pub nodes: usize,
    pub edges: usize,
    pub buffers: usize,
    /// Buffers whose address is known: only these can be found to share bytes.
    pub placed: usize,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FindingView {
    /// `E1` to `E13`.
    pub code: Code,
    /// What the code means.
    pub title: &'static str,
    /// What is wrong here.
    pub message: String,
    /// The graph, where it is one.
    pub graph: Option<String>,
    /// How sure the accesses are that it rests on.
    pub basis: Basis,
    /// Whether a result changes.
    pub harm: HarmView,
    /// The parties, the earlier one of the record order first.
    pub parties: Vec<PartyView>,
    /// Address range that two buffers share, first byte and one past the last.
    pub addresses: Option<Range<u64>>,
    /// A complete order in which the wrong node comes first.
    pub witness: Option<Vec<String>>,
    /// Pairs of nodes with the same cause.
    pub also: Vec<[String; 2]>,
    /// Facts that explain it.
    pub notes: Vec<String>,
    /// Ways to remove it.
    pub fixes: Vec<FixView>,
}

/// Whether a result changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum HarmView {
    /// With what changes: a buffer's content after the replay, or what a host node reads.
    Harmful {
        changes: String,
    },
    Latent,
    NotByOrder,
}

/// A node and what it does to a buffer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs)]
pub struct PartyView {
    pub node: Option<NodeView>,
    pub buffer: Option<BufferView>,
    pub effect: Option<Effect>,
    pub phase: Option<Phase>,
    /// The bytes in question, within the buffer.
    pub bytes: Option<Range<u64>>,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs)]
pub struct NodeView {
    pub name: String,
    pub stream: String,
    /// The graph; none for eager work.
    pub graph: Option<String>,
    pub location: Location,
}

/// A buffer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs)]
pub struct BufferView {
    pub name: String,
    pub lifetime: &'static str,
    pub size: u64,
    pub address: Option<u64>,
    pub location: Location,
}

/// A fix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs)]
pub struct FixView {
    pub kind: &'static str,
    pub what: String,
    /// Nanoseconds more on the critical path, if every node's time is known.
    pub critical_path_ns: Option<u64>,
    /// Nodes more on the critical path, otherwise.
    pub critical_path_nodes: Option<u64>,
    /// Bytes more, at most.
    pub bytes: Option<u64>,
}

impl Report {
    /// The report as plain data.
    pub fn view(&self, pool: &Pool, placement: &Placement) -> ReportView {
        let views = self.findings.iter().map(|f| self.view_finding(pool, placement, f));
        ReportView {
            lathe_report: 1,
            checked: Checked {
                graphs: pool.graphs().len(),
                nodes: pool.nodes().len(),
                edges: pool.edges().len(),
                buffers: pool.buffers().len(),
                placed: placement.iter().count(),
            },
            findings: views.collect(),
        }
    }

    /// One of its findings as plain data.
    pub fn view_finding(&self, pool: &Pool, placement: &Placement, finding: &Finding) -> FindingView {
        let name = |node| pool.node(node).name.clone();
        let graph_name = |graph| pool.graph(graph).name.clone();
        let parties = finding.parties.iter().map(|party| PartyView {
            node: party.node.map(|id| {
                let node = pool.node(id);
                NodeView {
                    name: node.name.clone(),
                    stream: pool.stream(node.stream).name.clone(),
                    graph: match node.site {
                        Site::Graph(graph) => Some(graph_name(graph)),
                        _ => None,
                    },
                    location: node.location.clone(),
                }
            }),
            buffer: party.buffer.map(|id| {
                let buffer = pool.buffer(id);
                BufferView {
                    name: buffer.name.clone(),
                    lifetime: buffer.lifetime.word(),
                    size: buffer.size,
                    address: placement.address(id),
                    location: buffer.location.clone(),
                }
            }),
            effect: party.access.as_ref().map(|a| a.effect),
            phase: party.access.as_ref().map(|a| a.phase),
            bytes: finding.bytes.as_ref().and_then(|bytes| bytes.within(pool, placement, party)),
        });
        let fixes = finding.fixes.iter().map(|fix| FixView {
            kind: fix.remedy.word(),
            what: fix.remedy.describe(pool),
            critical_path_ns: fix.price.critical_path.filter(|_| fix.price.timed),
            critical_path_nodes: fix.price.critical_path.filter(|_| !fix.price.timed),
            bytes: fix.price.bytes,
        });
        FindingView {
            code: finding.code,
            title: finding.code.title(),
            message: finding.message.clone(),
            graph: finding.graph.map(graph_name),
            basis: finding.basis,
            harm: match &finding.harm {
                Harm::Harmful { buffer: Some(buffer), .. } => {
                    HarmView::Harmful { changes: pool.buffer(*buffer).name.clone() }
                }
                Harm::Harmful { host, .. } => HarmView::Harmful { changes: host.map(name).unwrap_or_default() },
                Harm::Latent => HarmView::Latent,
                Harm::NotByOrder => HarmView::NotByOrder,
            },
            parties: parties.collect(),
            addresses: match &finding.bytes {
                Some(Bytes::At(range)) => Some(range.clone()),
                _ => None,
            },
            witness: self.witness(pool, finding).map(|w| w.steps.iter().map(|s| step_name(pool, *s)).collect()),
            also: finding.also.iter().map(|(a, b)| [name(*a), name(*b)]).collect(),
            notes: finding.notes.clone(),
            fixes: fixes.collect(),
        }
    }
}

/// `K2`, or `K2 (before its wait)`.
pub fn step_name(pool: &Pool, step: Step) -> String {
    let name = &pool.node(step.node()).name;
    match step {
        Step::Node(_) => name.clone(),
        Step::BeforeWait(_) => format!("{name} (before its wait)"),
        Step::AfterWait(_) => format!("{name} (after its wait)"),
    }
}
