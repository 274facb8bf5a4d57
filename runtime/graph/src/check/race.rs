//! E1, E8, and the unordered pairs of E9 and E10: conflicts on one buffer.

use super::conflict::{Conflict, on_one_buffer};
use super::{Context, outside};
use crate::finding::{Bytes, Code, Finding, Fix, Harm, Party, Price, Remedy};
use crate::model::{Basis, EdgeKind, NodeId, PdlWait, Phase, Site};

pub(super) fn check(cx: &Context, findings: &mut Vec<Finding>) {
    for buffer in cx.pool.buffer_ids() {
        let mut frontier = Frontier::new(cx);
        on_one_buffer(cx.pool, cx.order, &cx.uses, buffer, &mut |c| frontier.add(c));
        findings.extend(frontier.pairs.into_iter().map(|pair| race(cx, pair)));
    }
}

/// The conflicts of one cause: those that no other's fix would order too.
pub(super) struct Frontier<'c, 'a> {
    cx: &'c Context<'c>,
    pub(super) pairs: Vec<Pair<'a>>,
}

/// A conflict, and those that an edge between its nodes would order too.
pub(super) struct Pair<'a> {
    pub(super) conflict: Conflict<'a>,
    pub(super) also: Vec<Conflict<'a>>,
}

impl<'c, 'a> Frontier<'c, 'a> {
    pub(super) fn new(cx: &'c Context<'c>) -> Self {
        Self { cx, pairs: Vec::new() }
    }

    /// Takes conflicts with later first nodes before those with earlier ones, and for each the earliest
    /// second node first, so that whoever covers another comes before it.
    pub(super) fn add(&mut self, conflict: Conflict<'a>) {
        let order = self.cx.order;
        let (i, j) = (conflict.first, conflict.second);
        let reaches = |from: NodeId, to: NodeId, phase: Phase| from == to || order.before_phase(from, to, phase);
        let covers = |pair: &&mut Pair| {
            let (from, to) = (pair.conflict.first, pair.conflict.second);
            from != to
                && order.is_transitive()
                && reaches(i, from, Phase::BeforeWait)
                && reaches(to, j, conflict.second_access.phase)
        };
        match self.pairs.iter_mut().find(covers) {
            Some(pair) => pair.also.push(conflict),
            None => self.pairs.push(Pair { conflict, also: Vec::new() }),
        }
    }
}

impl Context<'_> {
    pub(super) fn name(&self, node: NodeId) -> String {
        format!("`{}`", self.pool.node(node).name)
    }

    pub(super) fn buffer_name(&self, buffer: crate::model::BufferId) -> String {
        format!("`{}`", self.pool.buffer(buffer).name)
    }

    /// Would the pair be ordered if every programmatic edge were full?
    pub(super) fn full_edges_would_order(&self, conflict: &Conflict) -> bool {
        let first = (conflict.first, conflict.first_access.phase);
        let second = (conflict.second, conflict.second_access.phase);
        let full = self.if_all_full.as_ref();
        first.0 != second.0 && full.is_some_and(|full| full.ordered(first, second))
    }

    /// A finding about an unordered pair, without its message.
    pub(super) fn pair_finding(&self, code: Code, pair: Pair) -> Finding {
        let Pair { conflict: c, also } = pair;
        let sites = [c.first, c.second].map(|node| self.pool.node(node).site);
        let mut finding = Finding::new(code, String::new());
        finding.graph = sites.iter().find_map(|site| site.graph());
        let (mut harm, mut swap) = self.harm(&c);
        for covered in &also {
            if harm != Harm::Latent {
                break;
            }
            let (of_covered, swapped) = self.harm(covered);
            if of_covered != Harm::Latent {
                (harm, swap) = (of_covered, swapped);
            }
        }
        (finding.harm, finding.swap) = (harm, Some(swap));
        finding.basis = c.first_access.basis.min(c.second_access.basis);
        finding.parties = vec![Party::access(c.first, c.first_access), Party::access(c.second, c.second_access)];
        finding.bytes = Some(c.bytes);
        let nodes = |covered: &Conflict| (covered.first, covered.second);
        finding.also = also.iter().map(nodes).filter(|pair| *pair != (c.first, c.second)).collect();
        finding.also.dedup();
        finding
    }

    /// The fix by an event, priced.
    pub(super) fn event(&self, from: NodeId, to: NodeId) -> Fix {
        Fix { remedy: Remedy::Event { from, to }, price: self.path.edge(from, to) }
    }

    /// Is `first` complete before a node that has a programmatic edge to `second`, or is it that node? Then `second` need
    /// only wait, or these edges be full.
    fn weak_edges_carry(&self, first: NodeId, second: NodeId) -> bool {
        let mut weak = self.pool.edges().iter().filter(|e| e.to == second && e.kind == EdgeKind::Programmatic);
        weak.any(|e| e.from == first || self.order.before_end(first, e.from, self.pool.node(e.from).pdl_wait))
    }

    /// Why an edge into `second` did not order the pair, and how to make it.
    pub(super) fn weak_edge(&self, finding: &mut Finding, conflict: &Conflict) {
        let (second, access) = (conflict.second, conflict.second_access);
        let (first, node) = (conflict.first, self.pool.node(second));
        let buffer = self.buffer_name(access.buffer);
        finding.message = format!(
            "{} {} {buffer} before {} is complete: the edge between them is programmatic",
            self.name(second),
            access.effect.verb(),
            self.name(first)
        );
        let early = access.phase == Phase::BeforeWait || node.pdl_wait == PdlWait::Never;
        if early && self.weak_edges_carry(first, second) {
            let why = match node.pdl_wait {
                PdlWait::Never => format!("{} never executes `griddepcontrol.wait`", self.name(second)),
                _ => format!("{} touches {buffer} before its `griddepcontrol.wait`", self.name(second)),
            };
            finding.notes.push(why);
            finding.fixes.push(Fix {
                remedy: Remedy::WaitFirst { node: second, buffer: access.buffer },
                price: Price { critical_path: Some(0), ..Price::unknown() },
            });
            finding.fixes.push(Fix { remedy: Remedy::FullEdge { to: second }, price: self.path.edge(first, second) });
        } else {
            let why = "a programmatic edge composes only if every CTA of the kernel in between waits for it";
            finding.notes.push(why.to_string());
            finding.fixes.push(self.event(first, second));
        }
    }
}

fn race(cx: &Context, pair: Pair) -> Finding {
    let conflict = pair.conflict.clone();
    let (first, second) = (conflict.first, conflict.second);
    let beside = [first, second].map(|id| cx.pool.node(id).site == Site::Beside);
    if cx.full_edges_would_order(&conflict) {
        let mut finding = cx.pair_finding(Code::E8, pair);
        cx.weak_edge(&mut finding, &conflict);
        return finding;
    }
    if beside[0] != beside[1] {
        return outside::unordered(cx, pair, if beside[0] { first } else { second });
    }
    let mut finding = cx.pair_finding(Code::E1, pair);
    let (a, b) = (conflict.first_access, conflict.second_access);
    finding.message = format!(
        "{} {} {} while {} may still {} it",
        cx.name(second),
        b.effect.verb(),
        cx.buffer_name(b.buffer),
        cx.name(first),
        if a.effect.writes() { "write" } else { "read" },
    );
    finding.fixes.push(cx.event(first, second));
    if b.effect == crate::model::Effect::WriteAll {
        // The second use starts a new value, so it can have bytes of its own.
        finding.fixes.push(Fix {
            remedy: Remedy::OwnBuffer { node: second, buffer: b.buffer },
            price: Price::bytes(cx.pool.buffer(b.buffer).size),
        });
    }
    if let (Some(Bytes::Of(buffer, _)), Basis::Declared) = (&finding.bytes, finding.basis)
        && let crate::model::Lifetime::Persistent { carried: false } = cx.pool.buffer(*buffer).lifetime
    {
        finding.notes.push(format!(
            "{} is persistent scratch: being persistent gives it bytes of its own, not an order between its users",
            cx.buffer_name(*buffer)
        ));
    }
    finding
}
