//! The checker's findings in the terms of a dump: how sure each is, and the one fact that would settle it.

use crate::check;
use crate::finding::{Code, Finding as GraphFinding, Fix, Harm};
use crate::model::{BufferId, Effect, ModelError, NodeId};

use super::access::Rows;
use super::dump::Span;
use super::evidence::{Certainty, Evidence};
use super::import::{Because, Imported, Stale, StaleKind};
use super::rules::Use;

/// What was found in a dump.
pub struct Checked {
    /// The model, with evidence and coverage.
    pub imported: Imported,
    /// Surest first, then by code.
    pub findings: Vec<Finding>,
}

/// One finding.
#[derive(Debug, Clone)]
pub struct Finding {
    /// What is wrong.
    pub code: Code,
    /// In a sentence.
    pub message: String,
    /// How sure it is: the weakest ground it stands on.
    pub certainty: Certainty,
    /// The single fact that would settle it, unless it is certain.
    pub settle: Option<String>,
    /// Whether an output changes; `None` where order is not the question.
    pub harmful: Option<bool>,
    /// One or two sides, in record order.
    pub sides: Vec<Side>,
    /// The bytes in question.
    pub bytes: Option<Span>,
    /// Other pairs with the same cause.
    pub also: Vec<(NodeId, NodeId)>,
    /// An order that the graph allows, in which the later node of the pair comes first.
    pub witness: Vec<NodeId>,
    /// Ways to remove it.
    pub fixes: Vec<Fix>,
    /// Facts that explain it.
    pub notes: Vec<String>,
}

/// One node's part in a finding.
#[derive(Debug, Clone)]
pub struct Side {
    /// The node; `None` where the buffer alone is at fault.
    pub node: Option<NodeId>,
    /// The buffer it uses.
    pub buffer: Option<BufferId>,
    /// What it does to it.
    pub use_: Option<Use>,
    /// Why we believe that.
    pub evidence: Option<Evidence>,
}

/// Checks an imported dump.
///
/// # Errors
/// [`ModelError`] when the dump's graph makes no sense as one: no node at all, or edges that form a cycle.
pub fn check(imported: Imported) -> Result<Checked, ModelError> {
    let report = check::check(&imported.pool, Some(&imported.placement))?;
    let judge = Judge { imported: &imported };
    let mut findings: Vec<Finding> = Vec::new();
    for finding in &report.findings {
        let Some(mut judged) = judge.finding(finding) else { continue };
        judged.witness = match (judged.pair(), report.witness(&imported.pool, finding)) {
            (Some(pair), Some(witness)) if Some([pair.0, pair.1]) == finding.pair() => {
                witness.steps.iter().map(|step| step.node()).collect()
            }
            _ => Vec::new(),
        };
        findings.push(judged);
    }
    findings.extend(judge.stale());
    findings.sort_by_key(|finding| {
        (std::cmp::Reverse(finding.certainty), finding.code, finding.sides.first().and_then(|side| side.node))
    });
    Ok(Checked { imported, findings })
}

impl Finding {
    /// The two nodes whose order is in question.
    pub fn pair(&self) -> Option<(NodeId, NodeId)> {
        match &self.sides[..] {
            [first, second] => Some((first.node?, second.node?)),
            _ => None,
        }
    }
}

struct Judge<'a> {
    imported: &'a Imported,
}

/// How sure a conflict of two nodes is, and why.
struct Verdict {
    certainty: Certainty,
    settle: Option<String>,
    first: (Use, Evidence),
    second: (Use, Evidence),
}

impl Judge<'_> {
    fn finding(&self, finding: &GraphFinding) -> Option<Finding> {
        let judged = match (finding.pair(), &finding.parties[..]) {
            (Some([first, second]), [a, b]) if first != second => {
                let buffers = (a.buffer?, b.buffer?);
                let main = ((first, second), self.conflict((first, buffers.0), (second, buffers.1)));
                // Strided views may turn out to be disjoint: then another pair of the same cause speaks for it.
                let others =
                    finding.also.iter().map(|&pair| (pair, self.conflict((pair.0, buffers.0), (pair.1, buffers.1))));
                let (pair, verdict) =
                    std::iter::once(main).chain(others).find_map(|(pair, verdict)| Some((pair, verdict?)))?;
                let side = |node, buffer, (use_, evidence)| Side {
                    node: Some(node),
                    buffer: Some(buffer),
                    use_: Some(use_),
                    evidence: Some(evidence),
                };
                let sides = vec![side(pair.0, buffers.0, verdict.first), side(pair.1, buffers.1, verdict.second)];
                self.with_sides(finding, sides, verdict.certainty, verdict.settle)
            }
            _ => {
                if finding.code == Code::E4 && !self.is_surely_undefined(finding) {
                    return None;
                }
                self.declared(finding)
            }
        };
        Some(judged)
    }

    fn with_sides(
        &self,
        finding: &GraphFinding,
        sides: Vec<Side>,
        certainty: Certainty,
        settle: Option<String>,
    ) -> Finding {
        let spans = sides.iter().filter_map(|side| Some(self.imported.buffers[side.buffer?.index()].span));
        let overlap = spans.reduce(|a, b| a.intersection(b).unwrap_or(a));
        let span_of = |side: &Side| {
            let reach = self
                .imported
                .because(side.node?, side.buffer?)
                .iter()
                .filter(|because| because.use_ != Use::None)
                .map(|because| because.span);
            reach.reduce(|a, b| Span { addr: a.addr.min(b.addr), bytes: a.end().max(b.end()) - a.addr.min(b.addr) })
        };
        let touched = sides.iter().filter_map(span_of).reduce(|a, b| a.intersection(b).unwrap_or(a));
        Finding {
            code: finding.code,
            message: finding.message.clone(),
            certainty,
            settle,
            harmful: match finding.harm {
                Harm::Harmful { .. } => Some(true),
                Harm::Latent => Some(false),
                Harm::NotByOrder => None,
            },
            bytes: touched.or(overlap),
            also: finding.also.clone(),
            witness: Vec::new(),
            fixes: finding.fixes.clone(),
            notes: finding.notes.clone(),
            sides,
        }
    }

    /// A finding that is not about two nodes' order: its sides as the checker gives them.
    fn declared(&self, finding: &GraphFinding) -> Finding {
        let mut certainty = Certainty::Certain;
        let mut settle = None;
        let sides: Vec<Side> = finding
            .parties
            .iter()
            .map(|party| {
                let because = party.node.zip(party.buffer).map(|(node, buffer)| self.imported.because(node, buffer));
                let strongest = because.and_then(|list| list.iter().max_by_key(|because| because.evidence.certainty()));
                if let Some(because) = strongest.filter(|because| because.evidence.certainty() < certainty) {
                    certainty = because.evidence.certainty();
                    settle = party.node.map(|node| self.question(node, because));
                }
                Side {
                    node: party.node,
                    buffer: party.buffer,
                    use_: strongest.map(|because| because.use_),
                    evidence: strongest.map(|because| because.evidence.clone()),
                }
            })
            .collect();
        if finding.code == Code::E3 && certainty > Certainty::Assumed && !self.places_are_known(finding) {
            certainty = Certainty::Assumed;
            settle = Some("which of the two tensors each pointer means: the dump does not say when the nodes were recorded; capture with lathe_dump.capture(lines=True)".into());
        }
        let mut judged = self.with_sides(finding, sides, certainty, settle);
        judged.harmful = None;
        judged
    }

    /// Whether the dump says between which allocator events every node of the finding was recorded.
    fn places_are_known(&self, finding: &GraphFinding) -> bool {
        finding.parties.iter().filter_map(|party| party.node).all(|node| {
            let info = &self.imported.nodes[node.index()];
            self.imported.dump.graphs[info.graph].nodes[info.index].window.is_some()
        })
    }

    /// A plain read of a buffer that no earlier node writes at all; anything less is a question of extents, not of definitions.
    fn is_surely_undefined(&self, finding: &GraphFinding) -> bool {
        let Some((node, buffer)) = finding.parties.last().and_then(|party| party.node.zip(party.buffer)) else {
            return false;
        };
        let plain = self
            .imported
            .because(node, buffer)
            .iter()
            .all(|because| because.use_ == Use::Read && because.evidence.certainty() > Certainty::Assumed);
        let earlier = self.imported.pool.node_ids().take(node.index()).any(|id| {
            self.imported
                .pool
                .node(id)
                .accesses
                .iter()
                .any(|access| access.buffer == buffer && access.effect != Effect::Read)
        });
        plain && !earlier
    }

    /// How sure it is that the two nodes meet on these buffers with one of them writing; `None` when they surely do not.
    fn conflict(&self, first: (NodeId, BufferId), second: (NodeId, BufferId)) -> Option<Verdict> {
        let same_buffer = first.1 == second.1;
        let mut best: Option<Verdict> = None;
        for a in self.imported.because(first.0, first.1) {
            for b in self.imported.because(second.0, second.1) {
                let apart = a.span.intersection(b.span).is_none()
                    || Rows::of(a).zip(Rows::of(b)).is_some_and(|(x, y)| x.is_apart_from(y));
                if apart || !(a.use_.writes() || b.use_.writes()) || a.use_ == Use::None || b.use_ == Use::None {
                    continue;
                }
                let (weak_node, weak) =
                    if a.evidence.certainty() <= b.evidence.certainty() { (first.0, a) } else { (second.0, b) };
                let mut certainty = weak.evidence.certainty();
                let mut settle = (certainty < Certainty::Certain).then(|| self.question(weak_node, weak));
                let (low_node, low) = if a.span.addr <= b.span.addr { (first.0, a) } else { (second.0, b) };
                if same_buffer && a.span.addr != b.span.addr && !low.extent_known {
                    certainty = Certainty::Assumed;
                    settle = Some(format!(
                        "how far {} reaches from {} of it: the two were given different pointers into one buffer",
                        self.name(low_node),
                        low.place
                    ));
                }
                if best.as_ref().is_none_or(|best| certainty > best.certainty) {
                    let use_ = |because: &Because| (because.use_, because.evidence.clone());
                    best = Some(Verdict { certainty, settle, first: use_(a), second: use_(b) });
                }
            }
        }
        best
    }

    fn name(&self, node: NodeId) -> String {
        let info = &self.imported.nodes[node.index()];
        format!("node {} ({})", info.label, info.name)
    }

    /// The fact that would settle an access.
    fn question(&self, node: NodeId, because: &Because) -> String {
        let does = match because.use_ {
            Use::Read => "reads",
            Use::ReadWrite if because.evidence == Evidence::Assumed => "reads or writes, or neither,",
            Use::ReadWrite => "reads and writes",
            _ => "writes",
        };
        let how = match because.evidence {
            Evidence::Assumed => "a rule for it, its PTX, or lathe_dump.writes(graph)",
            _ => "lathe_dump.writes(graph), or a replay with lathe_dump.ordered(graph, ...)",
        };
        format!("whether {} {does} through {}; {how} would show it", self.name(node), because.place)
    }

    fn stale(&self) -> Vec<Finding> {
        let mut findings: Vec<Finding> = Vec::new();
        for stale in &self.imported.stale {
            let buffer = self.imported.pool.node(stale.node).accesses.iter().map(|access| access.buffer);
            let buffer = buffer.into_iter().find(|id| self.imported.buffers[id.index()].span.contains(stale.addr));
            // One finding a buffer: the first node tells, the others come with it.
            if let Some(known) = findings.iter_mut().find(|finding| {
                buffer.is_some() && finding.sides[0].buffer == buffer && finding.message.ends_with(reason(stale.why))
            }) {
                known.notes.push(format!("also used by {}", self.name(stale.node)));
                continue;
            }
            findings.push(self.stale_finding(stale, buffer));
        }
        findings
    }

    fn stale_finding(&self, stale: &Stale, buffer: Option<BufferId>) -> Finding {
        let name = buffer.map_or_else(|| format!("{:#x}", stale.addr), |id| self.imported.pool.buffer(id).name.clone());
        let because = buffer
            .and_then(|id| self.imported.because(stale.node, id).iter().find(|because| because.place == stale.place));
        Finding {
            code: Code::E12,
            message: format!(
                "`{}` uses `{name}` through {}: {}",
                self.imported.pool.node(stale.node).name,
                stale.place,
                reason(stale.why)
            ),
            certainty: stale.certainty,
            settle: because
                .filter(|because| because.evidence.certainty() < Certainty::Certain)
                .map(|because| self.question(stale.node, because)),
            harmful: None,
            sides: vec![Side {
                node: Some(stale.node),
                buffer,
                use_: because.map(|because| because.use_),
                evidence: because.map(|because| because.evidence.clone()),
            }],
            bytes: stale.was.as_ref().map(|was| was.span),
            also: Vec::new(),
            witness: Vec::new(),
            fixes: Vec::new(),
            notes: vec![remedy(stale.why).to_owned()],
        }
    }
}

fn reason(why: StaleKind) -> &'static str {
    match why {
        StaleKind::DroppedBefore => "the host had dropped it before the node was recorded",
        StaleKind::OutsidePool => {
            "it was allocated outside the graph's pool and dropped, so eager code may own the bytes at replay"
        }
        StaleKind::FreedAfter => "it was given back to the allocator after the capture",
    }
}

fn remedy(why: StaleKind) -> &'static str {
    match why {
        StaleKind::DroppedBefore => "keep the tensor until the last kernel that uses it is launched",
        StaleKind::OutsidePool => {
            "let the stream join the capture first (`side.wait_stream(main)`), then allocate on it: the block then belongs to the graph"
        }
        StaleKind::FreedAfter => "keep the tensor as long as the graph, or capture again after it is replaced",
    }
}
