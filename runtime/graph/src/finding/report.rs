//! The checker's answer, and the order that shows a finding.

use super::{Bytes, Code, Finding, Harm, Party};
use crate::model::{NodeId, Phase, Placement, Pool, Site};
use crate::order::Order;

/// All findings of one check.
#[derive(Clone, Debug)]
pub struct Report {
    /// By code, then by record order.
    pub findings: Vec<Finding>,
    /// The happens-before relation they rest on.
    pub order: Order,
}

/// One step of a witness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The whole node.
    Node(NodeId),
    /// What the node does before its programmatic wait.
    BeforeWait(NodeId),
    /// What it does after it.
    AfterWait(NodeId),
}

impl Step {
    /// The node.
    pub fn node(self) -> NodeId {
        match self {
            Self::Node(node) | Self::BeforeWait(node) | Self::AfterWait(node) => node,
        }
    }
}

/// A complete order of the nodes, allowed by the graph, in which the wrong one of a pair comes first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Witness {
    /// Every node of the pair's graph, and outside work that runs beside it, in this order.
    pub steps: Vec<Step>,
}

impl Witness {
    /// What `second` waits for, then `second`, then the rest: so `second` runs before `first`, which it
    /// would follow in the record order.
    pub fn of(pool: &Pool, order: &Order, first: NodeId, second: NodeId, phase: Phase) -> Self {
        let graph = pool.node(first).site.graph().or(pool.node(second).site.graph());
        let present = |id: &NodeId| match pool.node(*id).site {
            Site::Graph(of) => Some(of) == graph,
            Site::Beside => true,
            Site::Before | Site::Between => false,
        };
        let mut early: Vec<NodeId> = order.ancestors(second, phase).filter(present).collect();
        early.sort_unstable_by_key(|id| order.rank(*id));
        let mut done = vec![false; pool.nodes().len()];
        for node in &early {
            done[node.index()] = true;
        }
        let split = phase == Phase::BeforeWait && order.has_wait(second);
        let mut steps: Vec<Step> = early.into_iter().map(Step::Node).collect();
        if split {
            steps.push(Step::BeforeWait(second));
        } else {
            steps.push(Step::Node(second));
            done[second.index()] = true;
        }
        for &node in order.serial().iter().filter(|id| present(id) && !done[id.index()]) {
            if node == second {
                steps.push(Step::AfterWait(node));
            } else {
                steps.push(Step::Node(node));
            }
        }
        Self { steps }
    }
}

impl Report {
    /// Nothing found.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }

    /// Does any finding change a result?
    pub fn is_harmful(&self) -> bool {
        self.findings.iter().any(|f| matches!(f.harm, Harm::Harmful { .. }))
    }

    /// The findings of one code.
    pub fn of(&self, code: Code) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(move |f| f.code == code)
    }

    /// The order that shows `finding`, if order is what it is about.
    pub fn witness(&self, pool: &Pool, finding: &Finding) -> Option<Witness> {
        let [first, second] = finding.pair()?;
        let by_order = !matches!(finding.harm, Harm::NotByOrder);
        let phase = finding.parties[1].phase();
        (by_order && first != second).then(|| Witness::of(pool, &self.order, first, second, phase))
    }
}

impl Bytes {
    /// The bytes of one party's access that are meant, as a range within its buffer.
    pub fn within(&self, pool: &Pool, placement: &Placement, party: &Party) -> Option<std::ops::Range<u64>> {
        let buffer = party.buffer?;
        match self {
            Self::Of(of, range) => (*of == buffer).then(|| range.clone()),
            Self::At(at) => {
                let home = placement.range(pool, buffer)?;
                let (start, end) = (at.start.max(home.start), at.end.min(home.end));
                (start < end).then(|| start - home.start..end - home.start)
            }
        }
    }
}
