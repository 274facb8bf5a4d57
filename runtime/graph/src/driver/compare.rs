//! Recorded graph against captured graph.

use super::{CapturedEdge, CapturedKind, CapturedNode, Driver, DriverError, Word};
use crate::check::AddressMap;
use crate::finding::{Code, Finding, Fix, Party, Price, Remedy};
use crate::location::Location;
use crate::model::{EdgeKind, GraphId, KernelLaunch, ModelError, Node, NodeId, NodeKind, Phase, Placement, Pool, Site};
use crate::order::{Adjacency, Order};
use std::collections::{BTreeSet, HashMap};

/// A second capture of the same graph with buffers elsewhere, which tells pointers from numbers that look
/// like them: a pointer moves with its buffer, a number stays.
#[derive(Clone, Copy)]
pub struct Second<'a> {
    /// The captured graph.
    pub driver: &'a dyn Driver,
    /// Where the buffers were then.
    pub placement: &'a Placement,
}

/// Compares what `driver` captured of `graph` with what was recorded: nodes, what the edges order, and
/// pointers.
///
/// # Errors
/// [`ReadBackError`] if the driver does not answer, or the pool is not valid.
pub fn read_back(
    pool: &Pool,
    graph: GraphId,
    placement: &Placement,
    driver: &dyn Driver,
    second: Option<Second>,
) -> Result<Vec<Finding>, ReadBackError> {
    let order = Order::of(pool)?;
    let captured = Captured::read(driver)?;
    let map = AddressMap::of(pool, placement);
    let mut compare = Compare { pool, graph, placement, map, captured, findings: Vec::new() };
    let matched = compare.nodes();
    compare.launches(&matched);
    compare.edges(&order, &matched);
    compare.pointers(&matched, second)?;
    Ok(compare.findings)
}

/// Why a captured graph could not be compared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum ReadBackError {
    #[error(transparent)]
    Driver(#[from] DriverError),
    #[error(transparent)]
    Model(#[from] ModelError),
    #[error("the driver's edge {from} -> {to} names a node that it does not list: there are {nodes}")]
    Edge { from: usize, to: usize, nodes: usize },
    #[error("the driver's graph has a cycle")]
    Cycle,
}

struct Captured {
    nodes: Vec<CapturedNode>,
    edges: Vec<CapturedEdge>,
    words: Vec<Vec<Word>>,
}

impl Captured {
    fn read(driver: &dyn Driver) -> Result<Self, ReadBackError> {
        let (nodes, edges) = (driver.nodes()?, driver.edges()?);
        if let Some(edge) = edges.iter().find(|e| e.from.max(e.to) >= nodes.len()) {
            return Err(ReadBackError::Edge { from: edge.from, to: edge.to, nodes: nodes.len() });
        }
        let words = (0..nodes.len()).map(|node| driver.words(node)).collect::<Result<_, _>>()?;
        let captured = Self { nodes, edges, words };
        match Adjacency::of(&captured.as_pool(|_| Default::default())).topological() {
            Ok(_) => Ok(captured),
            Err(_) => Err(ReadBackError::Cycle),
        }
    }

    /// The same graph in the checker's terms, so that one relation serves both sides.
    fn as_pool(&self, pdl_wait: impl Fn(usize) -> crate::model::PdlWait) -> Pool {
        let mut pool = Pool::new();
        let graph = pool.add_graph("captured", Location::unknown());
        let stream = pool.stream_named("");
        for (index, node) in self.nodes.iter().enumerate() {
            let kind = if node.kind.is_order_only() { NodeKind::Marker } else { NodeKind::Kernel };
            let mut row = Node::new(node.name.clone(), kind, Site::Graph(graph), stream, Location::unknown());
            row.pdl_wait = pdl_wait(index);
            pool.add_node(row);
        }
        for edge in &self.edges {
            pool.add_edge(NodeId::at(edge.from), NodeId::at(edge.to), edge.kind());
        }
        pool
    }
}

/// Edges between the nodes of `graph` that are no markers, each path through markers as one edge.
pub(super) fn edges_between(
    pool: &Pool,
    adjacency: &Adjacency,
    graph: GraphId,
) -> BTreeSet<(NodeId, NodeId, EdgeKind)> {
    let is_marker = |id: NodeId| pool.node(id).kind == NodeKind::Marker;
    let mut edges = BTreeSet::new();
    for from in pool.nodes_of(graph).filter(|id| !is_marker(*id)) {
        let mut stack: Vec<(NodeId, EdgeKind)> = adjacency.successors(from).to_vec();
        let mut seen = BTreeSet::new();
        while let Some((to, kind)) = stack.pop() {
            if !is_marker(to) {
                edges.insert((from, to, kind));
            } else if seen.insert(to) {
                stack.extend_from_slice(adjacency.successors(to));
            }
        }
    }
    edges
}

struct Compare<'a> {
    pool: &'a Pool,
    graph: GraphId,
    placement: &'a Placement,
    map: AddressMap,
    captured: Captured,
    findings: Vec<Finding>,
}

impl Compare<'_> {
    fn report(&mut self, message: String, parties: Vec<Party>) {
        let mut finding = Finding::new(Code::E11, message);
        finding.graph = Some(self.graph);
        finding.parties = parties;
        finding.fixes.push(Fix { remedy: Remedy::Recapture, price: Price::unknown() });
        self.findings.push(finding);
    }

    /// Which recorded node each captured one is. Among several of one kind and name, pointers decide, then
    /// the order in which they were recorded.
    fn nodes(&mut self) -> Vec<Option<NodeId>> {
        let mut recorded: HashMap<(CapturedKind, &str), Vec<NodeId>> = HashMap::new();
        let mut order: Vec<NodeId> = Vec::new();
        let pool = self.pool;
        for id in pool.nodes_of(self.graph) {
            let node = pool.node(id);
            let Some(kind) = CapturedKind::of(node.kind) else { continue };
            let name = if kind == CapturedKind::Kernel { node.symbol.as_ref().unwrap_or(&node.name) } else { "" };
            recorded.entry((kind, name)).or_default().push(id);
            order.push(id);
        }
        let mut matched: Vec<Option<NodeId>> = vec![None; self.captured.nodes.len()];
        for by_pointers in [true, false] {
            for (index, node) in self.captured.nodes.iter().enumerate() {
                let name = if node.kind == CapturedKind::Kernel { node.name.as_str() } else { "" };
                let Some(candidates) = recorded.get_mut(&(node.kind, name)) else { continue };
                let fits = |id: &NodeId| !by_pointers || self.points_at_all(*id, &self.captured.words[index]);
                if matched[index].is_none()
                    && let Some(found) = candidates.iter().position(fits)
                {
                    matched[index] = Some(candidates.remove(found));
                }
            }
        }
        let missing: Vec<NodeId> = order.into_iter().filter(|id| !matched.contains(&Some(*id))).collect();
        for id in missing {
            let node = pool.node(id);
            let message = format!(
                "{} `{}` was recorded and is not in the captured graph: it ran eagerly, once, during the capture",
                kind_word(node.kind),
                node.name
            );
            self.report(message, vec![Party::node(id)]);
        }
        for index in 0..matched.len() {
            let node = self.captured.nodes[index].clone();
            if matched[index].is_some() || node.kind.is_order_only() {
                continue;
            }
            let after = self.captured.edges.iter().filter(|e| e.to == index).find_map(|e| matched[e.from]);
            let message = match node.kind {
                CapturedKind::MemAlloc | CapturedKind::MemFree => format!(
                    "the captured graph has a {} node: memory is placed by the plan, so nothing may allocate during the capture",
                    node.kind.word()
                ),
                _ if node.name.is_empty() => {
                    format!("the captured graph has a {} node that was not recorded", node.kind.word())
                }
                _ => format!("the captured graph has {} `{}`, which was not recorded", node.kind.word(), node.name),
            };
            self.report(message, after.map(Party::node).into_iter().collect());
        }
        matched
    }

    fn points_at_all(&self, id: NodeId, words: &[Word]) -> bool {
        self.pool.node(id).accesses.iter().all(|access| {
            let range = self.placement.range(self.pool, access.buffer);
            range.is_none_or(|range| words.iter().any(|w| range.contains(&w.value)))
        })
    }

    /// A kernel runs with the grid, the attributes and the scalars that were recorded.
    fn launches(&mut self, matched: &[Option<NodeId>]) {
        for (index, id) in matched.iter().enumerate() {
            let Some(id) = *id else { continue };
            let (Some(recorded), Some(captured)) = (&self.pool.node(id).launch, &self.captured.nodes[index].launch)
            else {
                continue;
            };
            for message in differences(&self.pool.node(id).name, recorded, captured) {
                self.report(message, vec![Party::node(id)]);
            }
        }
    }

    /// Every recorded edge must hold in the captured order, and every captured edge in the recorded one.
    fn edges(&mut self, order: &Order, matched: &[Option<NodeId>]) {
        let wait = |index: usize| matched[index].map_or_else(Default::default, |id| self.pool.node(id).pdl_wait);
        let captured_pool = self.captured.as_pool(wait);
        // Only the graph itself makes a pool invalid, and its cycles are excluded.
        let Ok(captured_order) = Order::of(&captured_pool) else { return };
        let mut index_of: HashMap<NodeId, NodeId> = HashMap::new();
        for (index, id) in matched.iter().enumerate() {
            index_of.extend(id.map(|id| (id, NodeId::at(index))));
        }
        let (pool, graph) = (self.pool, self.graph);
        let names = |a: NodeId, b: NodeId| (&pool.node(a).name, &pool.node(b).name);
        let recorded = edges_between(pool, &Adjacency::of(pool), graph);
        for &(from, to, kind) in &recorded {
            let (Some(&a), Some(&b)) = (index_of.get(&from), index_of.get(&to)) else { continue };
            let (first, second) = names(from, to);
            let strong = captured_order.before(a, b);
            let weak = captured_order.before_phase(a, b, Phase::AfterWait);
            let message = match kind {
                EdgeKind::Full if !strong && weak => format!(
                    "the captured edge from `{first}` to `{second}` is programmatic, and a full one was recorded"
                ),
                EdgeKind::Full if !strong => format!(
                    "nothing in the captured graph orders `{first}` before `{second}`, as was recorded: a wait left no edge"
                ),
                EdgeKind::Programmatic if !weak && order.before_phase(from, to, Phase::AfterWait) => format!(
                    "nothing in the captured graph orders `{first}` before the wait of `{second}`, as was recorded"
                ),
                _ => continue,
            };
            self.report(message, vec![Party::node(from), Party::node(to)]);
        }
        let captured_graph = GraphId(0);
        for (a, b, kind) in edges_between(&captured_pool, &Adjacency::of(&captured_pool), captured_graph) {
            let (Some(from), Some(to)) = (matched[a.index()], matched[b.index()]) else { continue };
            // A programmatic edge into a kernel that never waits orders nothing, in the recording and here.
            if kind == EdgeKind::Programmatic && recorded.contains(&(from, to, kind)) {
                continue;
            }
            let phase = if kind == EdgeKind::Full { Phase::BeforeWait } else { Phase::AfterWait };
            if !order.before_phase(from, to, phase) && !order.before_phase(from, to, Phase::AfterWait) {
                let (first, second) = names(from, to);
                let message = format!(
                    "the captured graph orders `{first}` before `{second}`, which nothing recorded: what ran side by side is now serial"
                );
                self.report(message, vec![Party::node(from), Party::node(to)]);
            }
        }
    }

    fn pointers(&mut self, matched: &[Option<NodeId>], second: Option<Second>) -> Result<(), ReadBackError> {
        let second = match second {
            Some(second) => {
                let captured = Captured::read(second.driver)?;
                let map = AddressMap::of(self.pool, second.placement);
                // Equal programs capture equal graphs: only then do words stand side by side.
                let same = |(a, b): (&CapturedNode, &CapturedNode)| (a.kind, &a.name) == (b.kind, &b.name);
                let equal = captured.nodes.len() == self.captured.nodes.len()
                    && captured.nodes.iter().zip(&self.captured.nodes).all(same);
                equal.then_some((captured, map))
            }
            None => None,
        };
        let pool = self.pool;
        for (index, id) in matched.iter().enumerate() {
            let Some(id) = *id else { continue };
            let words = self.captured.words[index].clone();
            if words.is_empty() {
                continue;
            }
            for access in &pool.node(id).accesses {
                let Some(range) = self.placement.range(pool, access.buffer) else { continue };
                if !words.iter().any(|w| range.contains(&w.value)) {
                    let (node, buffer) = (&pool.node(id).name, &pool.buffer(access.buffer).name);
                    let message = format!(
                        "no parameter of `{node}` points into `{buffer}` ({:#x}..{:#x}), which it was recorded to use",
                        range.start, range.end
                    );
                    self.report(message, vec![Party::access(id, access)]);
                }
            }
            for word in &words {
                let twin = second.as_ref().map(|(captured, map)| {
                    let same = |w: &&Word| (w.parameter, w.offset) == (word.parameter, word.offset);
                    (captured.words[index].iter().find(same).map(|w| w.value), map)
                });
                let looks = self.map.at(word.value).next().is_some()
                    || self.map.once_at(word.value).is_some()
                    || self.map.spans(word.value);
                let is_pointer = match twin {
                    None => looks,
                    // It stayed while every buffer that it could point into moved: a number.
                    Some((Some(value), _)) if value == word.value => false,
                    Some((Some(_), _)) => true,
                    Some((None, _)) => looks,
                };
                if !is_pointer {
                    continue;
                }
                let parameter = match word.offset {
                    0 => format!("parameter {}", word.parameter),
                    offset => format!("parameter {} + {offset}", word.parameter),
                };
                if let Some(mut finding) = self.map.judge(pool, id, &parameter, word.value) {
                    if second.is_none() {
                        finding.basis = crate::model::Basis::Assumed;
                        finding.notes.push(
                            "a second capture with the buffers elsewhere tells whether it is a pointer or a number"
                                .into(),
                        );
                    }
                    self.findings.push(finding);
                }
            }
        }
        Ok(())
    }
}

fn differences(name: &str, recorded: &KernelLaunch, captured: &KernelLaunch) -> Vec<String> {
    let differ = |what: &str, captured: &dyn std::fmt::Debug, recorded: &dyn std::fmt::Debug| {
        let (captured, recorded) = (format!("{captured:?}"), format!("{recorded:?}"));
        (captured != recorded)
            .then(|| format!("the {what} of `{name}` is {captured} in the captured graph, and {recorded} was recorded"))
    };
    let shape = [
        differ("grid", &captured.grid, &recorded.grid),
        differ("block", &captured.block, &recorded.block),
        differ("dynamic shared memory", &captured.shared_bytes, &recorded.shared_bytes),
        differ("cluster", &captured.cluster, &recorded.cluster),
        differ("cooperative launch", &captured.cooperative, &recorded.cooperative),
    ];
    let scalars = recorded.scalars.iter().filter_map(|(index, value)| match captured.scalars.get(index) {
        Some(found) if found == value => None,
        Some(found) => Some(format!(
            "parameter {index} of `{name}` is {found:#x} in the captured graph, and {value:#x} was recorded"
        )),
        None => Some(format!(
            "parameter {index} of `{name}`, recorded as {value:#x}, is not among the captured kernel's parameters"
        )),
    });
    shape.into_iter().flatten().chain(scalars).collect()
}

fn kind_word(kind: NodeKind) -> &'static str {
    CapturedKind::of(kind).map_or("marker", CapturedKind::word)
}
