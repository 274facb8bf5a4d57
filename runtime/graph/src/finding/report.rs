//! The checker's answer, and the order that shows a finding.

use super::{Bytes, Code, Finding, Harm, Party, Swap};
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

/// A complete order of the nodes, allowed by the graph, in which the wrong one of a pair comes first, and that shows the
/// harm if there is any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Witness {
    /// Every node of the pair's graph, and outside work that runs beside it, in this order.
    pub steps: Vec<Step>,
}

impl Witness {
    /// What either of the two waits for (or, late, all that waits for neither), then the second, the first, and the rest.
    pub fn of(pool: &Pool, order: &Order, swap: Swap) -> Self {
        let Swap { first, second, late } = swap;
        let graph = pool.node(first.0).site.graph().or(pool.node(second.0).site.graph());
        let present = |id: &NodeId| match pool.node(*id).site {
            Site::Graph(of) => Some(of) == graph,
            Site::Beside => true,
            Site::Before | Site::Between => false,
        };
        let is_halved = |id: NodeId| {
            order.has_wait(id) && pool.node(id).accesses.iter().any(|access| access.phase == Phase::BeforeWait)
        };
        let steps_of = |id: NodeId| match is_halved(id) {
            true => vec![(Step::BeforeWait(id), Phase::BeforeWait), (Step::AfterWait(id), Phase::AfterWait)],
            false => vec![(Step::Node(id), Phase::AfterWait)],
        };
        let [i, j] = [first, second].map(|(id, phase)| match (is_halved(id), phase) {
            (false, _) => Step::Node(id),
            (true, Phase::BeforeWait) => Step::BeforeWait(id),
            (true, Phase::AfterWait) => Step::AfterWait(id),
        });
        let is_early = |step: Step, phase: Phase| match [i, j].into_iter().find(|of| of.node() == step.node()) {
            Some(of) => matches!((step, of), (Step::BeforeWait(_), Step::AfterWait(_))),
            None if late => ![first, second].iter().any(|(of, _)| order.before_phase(*of, step.node(), phase)),
            None => [first, second].iter().any(|(of, at)| order.before_phase(step.node(), *of, *at)),
        };
        let all = order.serial().iter().copied().filter(present).flat_map(steps_of);
        let others = all.filter(|(step, _)| *step != i && *step != j);
        let (early, rest): (Vec<_>, Vec<_>) = others.partition(|&(step, phase)| is_early(step, phase));
        let named = |steps: Vec<(Step, Phase)>| steps.into_iter().map(|(step, _)| step);
        Self { steps: named(early).chain([j, i]).chain(named(rest)).collect() }
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
        let swap = finding.swap.filter(|swap| swap.first.0 != swap.second.0)?;
        Some(Witness::of(pool, &self.order, swap))
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
