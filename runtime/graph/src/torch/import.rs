//! From a dump to the checker's model.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use crate::location::Location;
use crate::model::{
    Access, Basis, Buffer, BufferId, EdgeKind, Effect, GraphId, Lifetime, MAX_BYTES, Node, NodeId, NodeKind as Kind,
    PdlWait, Phase, Placement, Pointer, Pool, Release, Site,
};

use super::access::{Kernel, PointerUse, Reach, Reader, Twin};
use super::coverage::Coverage;
use super::dump::{Dump, FrameId, GraphDump, NodeKind, Role, Span};
use super::evidence::{Certainty, Evidence};
use super::history::{Allocation, AllocationId, Allocations, Meaning, Origin, TimeLine};
use super::rules::{Rules, Use};

/// A dump in the model's terms, with what the model has no place for.
pub struct Imported {
    /// The file.
    pub dump: Dump,
    /// Graphs, nodes, buffers, edges.
    pub pool: Pool,
    /// Where every buffer lies.
    pub placement: Placement,
    /// By node id.
    pub nodes: Vec<NodeInfo>,
    /// By buffer id.
    pub buffers: Vec<Allocation>,
    /// Pointers to memory that had been given back.
    pub stale: Vec<Stale>,
    /// What was seen and what was not.
    pub coverage: Coverage,
    evidence: HashMap<(NodeId, BufferId), Vec<Because>>,
}

/// What a node is to a reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeInfo {
    /// Index into [`Dump::graphs`].
    pub graph: usize,
    /// Index in the graph's nodes.
    pub index: usize,
    /// Its label in the file.
    pub label: String,
    /// Short name of the kernel or copy.
    pub name: String,
    /// Whole name.
    pub full: String,
    /// The operator that launched it.
    pub op: Option<String>,
    /// The Python line that launched it.
    pub at: Option<FrameId>,
}

/// Why a node is believed to use a buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Because {
    /// Where the pointer was found.
    pub place: String,
    /// What happens through it.
    pub use_: Use,
    /// Why we believe that.
    pub evidence: Evidence,
    /// The bytes it can reach.
    pub span: Span,
    /// Whether the dump says how far the pointer reaches, or the end of its buffer is taken.
    pub extent_known: bool,
    /// Bytes of one contiguous row and distance between rows, where only rows of the span are touched.
    pub rows: Option<(u64, u64)>,
}

/// A pointer whose memory the host had given back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stale {
    /// The node that carries it.
    pub node: NodeId,
    /// Where.
    pub place: String,
    /// The address.
    pub addr: u64,
    /// What the bytes were.
    pub was: Option<Allocation>,
    /// What became of them.
    pub why: StaleKind,
    /// How sure the use is.
    pub certainty: Certainty,
}

/// What became of memory that a graph still points to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StaleKind {
    /// Dropped before the node was recorded.
    DroppedBefore,
    /// Outside the graph's own pool, and dropped during the capture: eager code may own it at replay.
    OutsidePool,
    /// Given back to the allocator after the capture.
    FreedAfter,
}

impl Imported {
    /// Builds the model of a dump.
    pub fn of(dump: Dump, rules: &Rules) -> Imported {
        let kernels = Kernel::all(&dump, rules);
        let mut importer = Importer::new(&dump, &kernels);
        let reader = Reader { dump: &dump, kernels: &kernels };
        for (index, graph) in dump.graphs.iter().enumerate() {
            importer.graph(index, graph, &reader);
        }
        let placement = Placement::given(&importer.pool);
        let Importer { pool, nodes, buffers, stale, coverage, evidence, .. } = importer;
        Imported { dump, pool, placement, nodes, buffers, stale, coverage, evidence }
    }

    /// Why `node` is believed to use `buffer`.
    pub fn because(&self, node: NodeId, buffer: BufferId) -> &[Because] {
        self.evidence.get(&(node, buffer)).map_or(&[], Vec::as_slice)
    }
}

struct Importer<'a> {
    dump: &'a Dump,
    kernels: &'a [Kernel<'a>],
    pool: Pool,
    nodes: Vec<NodeInfo>,
    buffers: Vec<Allocation>,
    /// Buffers that outlived the capture which made them, or were there before it.
    lasting: BTreeMap<u64, BufferId>,
    names: HashMap<String, usize>,
    stale: Vec<Stale>,
    coverage: Coverage,
    evidence: HashMap<(NodeId, BufferId), Vec<Because>>,
}

impl<'a> Importer<'a> {
    fn new(dump: &'a Dump, kernels: &'a [Kernel<'a>]) -> Self {
        Importer {
            dump,
            kernels,
            pool: Pool::new(),
            nodes: Vec::new(),
            buffers: Vec::new(),
            lasting: BTreeMap::new(),
            names: HashMap::new(),
            stale: Vec::new(),
            coverage: Coverage::default(),
            evidence: HashMap::new(),
        }
    }

    fn location(&self, at: Option<FrameId>) -> Location {
        let Some(frame) = at.map(|id| &self.dump.frames[id]) else { return Location::unknown() };
        // Version 0 knows the function but not the file.
        let file = if frame.file.is_empty() { &frame.function } else { &frame.file };
        Location::new(file.as_str(), frame.line, 0)
    }

    fn graph(&mut self, graph_index: usize, graph: &GraphDump, reader: &Reader) {
        let id = self.pool.add_graph(graph.name.clone(), Location::unknown());
        let mut allocations = Allocations::of(graph, self.dump);
        // What copies, fills and memory nodes name is memory, so a kernel's word that leads there is a pointer.
        allocations.add_unlisted(&graph.nodes.iter().flat_map(|node| node.kind.named_spans()).collect::<Vec<_>>());
        let twin = Twin::of(graph, self.dump);
        let pointers: Vec<_> =
            (0..graph.nodes.len()).map(|node| reader.pointers(graph, node, &allocations, twin.as_ref())).collect();
        self.coverage.graph(graph, twin.is_some());
        self.coverage.refuted += pointers.iter().map(|node| node.refuted).sum::<usize>();
        let mut observed: HashMap<usize, Vec<Span>> = HashMap::new();
        for &(node, span) in &graph.observed {
            observed.entry(node).or_default().push(span);
        }

        let outside: Vec<Span> = pointers
            .iter()
            .flat_map(|node| &node.uses)
            .filter(|use_| use_.sure && use_.use_ != Use::None && !allocations.knows(use_.addr))
            .map(|use_| match use_.reach {
                Reach::Span(span) if span.bytes > 0 => span,
                _ => Span { addr: use_.addr, bytes: 1 },
            })
            .collect();
        allocations.add_unlisted(&outside);

        let lanes = lanes(graph);
        let first = self.nodes.len();
        let mut used = vec![Reads::default(); allocations.list.len()];
        let mut placed = Vec::with_capacity(graph.nodes.len());
        let mut time_line = TimeLine::new(&allocations, graph.events.len());
        for (index, node) in graph.nodes.iter().enumerate() {
            self.add_node(graph_index, id, graph, index, &lanes[index]);
            let uses = &pointers[index].uses;
            // A word inside a struct may be a number: it never moves time forward.
            let sure: Vec<_> = uses.iter().filter(|use_| use_.sure).map(|use_| (use_.addr, use_.use_)).collect();
            time_line.place(&sure, node.window);
            let all: Vec<_> = uses.iter().map(|use_| (use_.addr, use_.use_)).collect();
            let meanings = time_line.look(&all);
            for (use_, meaning) in uses.iter().zip(meanings) {
                let is_leftover = |meaning: &Meaning| meaning.stale && !use_.exact;
                let meaning = match meaning {
                    Some(meaning) if is_leftover(&meaning) => {
                        let unplaced = node.window.is_none() && use_.evidence == Evidence::Assumed;
                        unplaced.then(|| time_line.next_life(use_.addr)).flatten()
                    }
                    meaning => meaning,
                };
                let Some(meaning) = meaning else { continue };
                let reads = &mut used[meaning.allocation];
                reads.first_is_a_sure_read |= !reads.seen && use_.use_ == Use::Read;
                reads.seen |= use_.use_ != Use::None;
                let span = allocations.list[meaning.allocation].span;
                let seen = observed
                    .get(&index)
                    .is_some_and(|writes| writes.iter().any(|write| write.intersection(span).is_some()));
                placed.push((
                    NodeId((first + index) as u32),
                    if seen { Cow::Owned(as_observed(use_)) } else { Cow::Borrowed(use_) },
                    meaning,
                ));
            }
        }

        let mut ids: HashMap<AllocationId, BufferId> = HashMap::new();
        let mut accesses: BTreeMap<NodeId, Vec<(BufferId, &PointerUse, Span)>> = BTreeMap::new();
        for (node, use_, meaning) in &placed {
            let (node, use_) = (*node, use_.as_ref());
            let allocation = &allocations.list[meaning.allocation];
            self.coverage.pointer(use_, allocation, graph);
            if use_.use_ == Use::None {
                continue;
            }
            if let Some(why) = stale_kind(graph, allocation, meaning.stale) {
                let certainty = use_.evidence.certainty();
                self.stale.push(Stale {
                    node,
                    place: use_.place.clone(),
                    addr: use_.addr,
                    was: Some(allocation.clone()),
                    why,
                    certainty,
                });
            }
            let buffer =
                *ids.entry(meaning.allocation).or_insert_with(|| self.buffer(id, allocation, used[meaning.allocation]));
            let life = self.buffers[buffer.index()].span;
            let reach = match use_.reach {
                Reach::Span(span) => span,
                Reach::Whole => life,
                Reach::ToEnd => Span { addr: use_.addr, bytes: life.end().saturating_sub(use_.addr) },
            };
            let Some(span) = reach.intersection(life) else { continue };
            accesses.entry(node).or_default().push((buffer, use_, span));
        }
        for (node, list) in accesses {
            self.add_accesses(node, &list);
        }
        self.add_edges(graph, first);
        for (index, node) in graph.nodes.iter().enumerate() {
            let id = NodeId((first + index) as u32);
            let unseen = matches!(&node.kind, NodeKind::Kernel { function, .. } if self.kernels[*function].follows_loaded_pointers());
            self.coverage.node(node, &self.nodes[id.index()], self.node_certainty(id), unseen);
        }
    }

    fn add_node(&mut self, graph_index: usize, id: GraphId, graph: &GraphDump, index: usize, lane: &str) {
        let node = &graph.nodes[index];
        let (kind, name, full) = match &node.kind {
            NodeKind::Kernel { function, .. } => {
                let name = &self.kernels[*function].name;
                (Kind::Kernel, name.short.clone(), name.full.clone())
            }
            NodeKind::Memcpy { .. } => (Kind::Memcpy, "memcpy".into(), "memcpy".into()),
            NodeKind::Memset { .. } => (Kind::Memset, "memset".into(), "memset".into()),
            NodeKind::MemAlloc { .. } => (Kind::Memset, "memory allocation".into(), "memory allocation".into()),
            NodeKind::MemFree { .. } => (Kind::Memset, "memory free".into(), "memory free".into()),
            NodeKind::Inert(what) | NodeKind::Opaque(what) => (Kind::Host, what.clone(), what.clone()),
        };
        let stream = self.pool.stream_named(lane);
        let unique = format!("{} {name}", node.label);
        self.pool.add_node(Node::new(unique, kind, Site::Graph(id), stream, self.location(node.at)));
        let op = node.op.map(|op| graph.ops[op].name.clone());
        self.nodes.push(NodeInfo { graph: graph_index, index, label: node.label.clone(), name, full, op, at: node.at });
    }

    /// The buffer of an allocation: one that an earlier graph of the file left behind, or a new one.
    fn buffer(&mut self, graph: GraphId, allocation: &Allocation, reads: Reads) -> BufferId {
        if allocation.born.is_none()
            && let Some((_, &id)) = self.lasting.range(..=allocation.span.addr).next_back()
            && self.buffers[id.index()].span.intersection(allocation.span).is_some()
        {
            // The host still held it when the next graph was captured: it outlives its own graph.
            let lifetime = &mut self.pool.buffer_mut(id).lifetime;
            if matches!(lifetime, Lifetime::Transient { .. }) {
                *lifetime = Lifetime::Persistent { carried: true };
            }
            return id;
        }
        // A block born in this capture ends whatever an earlier graph left on its bytes.
        let span = Span { bytes: allocation.span.bytes.min(MAX_BYTES), ..allocation.span };
        let over: Vec<u64> = self
            .lasting
            .range(..span.end())
            .rev()
            .take(8)
            .filter(|(_, id)| self.buffers[id.index()].span.intersection(span).is_some())
            .map(|(&addr, _)| addr)
            .collect();
        for addr in over {
            self.lasting.remove(&addr);
        }
        let carried =
            allocation.role == Some(Role::Persistent) || (allocation.dropped.is_none() && reads.first_is_a_sure_read);
        let lifetime = match (allocation.origin, allocation.role) {
            (Origin::Capture, Some(Role::Output)) => Lifetime::Output { graph, release: Release::Held },
            (Origin::Capture, _) if carried => Lifetime::Persistent { carried: true },
            (Origin::Capture, _) => Lifetime::Transient { graph, alloc: None, free: None },
            (Origin::Before | Origin::Unlisted, _) => Lifetime::Persistent { carried: true },
        };
        let name = self.unique_name(allocation);
        let mut buffer = Buffer::new(name.clone(), span.bytes, lifetime, self.location(allocation.at));
        buffer.address = Some(span.addr);
        buffer.align = 1;
        let id = self.pool.add_buffer(buffer);
        self.buffers.push(Allocation { name: Some(name), span, ..allocation.clone() });
        if allocation.dropped.is_none() {
            self.lasting.insert(span.addr, id);
        }
        id
    }

    /// The user's name, else the line that allocated it, else its address; numbered where that repeats.
    fn unique_name(&mut self, allocation: &Allocation) -> String {
        let base = allocation.name.clone().unwrap_or_else(|| match (allocation.at, allocation.origin) {
            (Some(at), _) => {
                let frame = &self.dump.frames[at];
                let file = frame.file.rsplit('/').next().filter(|file| !file.is_empty()).unwrap_or(&frame.function);
                format!("{file}:{}", frame.line)
            }
            (None, Origin::Unlisted) => format!("{:#x} (outside the allocator)", allocation.span.addr),
            (None, _) => format!("{:#x}", allocation.span.addr),
        });
        let count = self.names.entry(base.clone()).or_insert(0);
        *count += 1;
        if *count == 1 { base } else { format!("{base} #{count}") }
    }

    /// Cuts a node's spans on each buffer at their ends, so that no two of its accesses overlap.
    fn add_accesses(&mut self, node: NodeId, list: &[(BufferId, &PointerUse, Span)]) {
        let mut by_buffer: BTreeMap<BufferId, Vec<(&PointerUse, Span)>> = BTreeMap::new();
        for &(buffer, use_, span) in list {
            by_buffer.entry(buffer).or_default().push((use_, span));
        }
        for (buffer, uses) in by_buffer {
            let base = self.buffers[buffer.index()].span.addr;
            let mut cuts: Vec<u64> = uses.iter().flat_map(|(_, span)| [span.addr, span.end()]).collect();
            cuts.sort_unstable();
            cuts.dedup();
            let mut accesses: Vec<Access> = Vec::new();
            for cut in cuts.windows(2) {
                let covering = || uses.iter().filter(|(_, span)| span.addr <= cut[0] && cut[1] <= span.end());
                let use_ = covering().fold(Use::None, |use_, (other, _)| use_.and(other.use_));
                let Some(effect) = effect(use_) else { continue };
                let basis = covering().map(|(use_, _)| basis(&use_.evidence)).min().unwrap_or(Basis::Assumed);
                let phase =
                    if covering().any(|(use_, _)| use_.before_wait) { Phase::BeforeWait } else { Phase::AfterWait };
                let range = cut[0] - base..cut[1] - base;
                match accesses.last_mut() {
                    Some(last)
                        if last.range.end == range.start
                            && (last.effect, last.basis, last.phase) == (effect, basis, phase) =>
                    {
                        last.range.end = range.end
                    }
                    _ => accesses.push(Access { buffer, range, effect, phase, basis }),
                }
            }
            self.pool.node_mut(node).accesses.extend(accesses);
            let because = uses.iter().map(|(use_, span)| Because {
                place: use_.place.clone(),
                use_: use_.use_,
                evidence: use_.evidence.clone(),
                span: *span,
                extent_known: matches!(use_.reach, Reach::Span(_)),
                rows: use_.rows,
            });
            self.evidence.insert((node, buffer), because.collect());
            let pointers = uses.iter().map(|(use_, _)| Pointer { parameter: use_.place.clone(), value: use_.addr });
            self.pool.node_mut(node).pointers.extend(pointers);
        }
    }

    fn add_edges(&mut self, graph: &GraphDump, first: usize) {
        let node = |index: usize| NodeId((first + index) as u32);
        for edge in &graph.edges {
            let kind = if edge.programmatic { EdgeKind::Programmatic } else { EdgeKind::Full };
            self.pool.add_edge(node(edge.src), node(edge.dst), kind);
            if edge.programmatic {
                self.coverage.programmatic_edges += 1;
                let waits = match &graph.nodes[edge.dst].kind {
                    NodeKind::Kernel { function, .. } => self.kernels[*function].waits(),
                    _ => Some(true),
                };
                self.coverage.waits_unseen += usize::from(waits.is_none());
                self.pool.node_mut(node(edge.dst)).pdl_wait =
                    if waits == Some(true) { PdlWait::Every } else { PdlWait::Never };
            }
        }
    }

    /// The weakest certainty of a node's accesses; `None` without accesses.
    fn node_certainty(&self, node: NodeId) -> Option<Certainty> {
        let buffers = self.pool.node(node).accesses.iter().map(|access| access.buffer);
        buffers.flat_map(|buffer| &self.evidence[&(node, buffer)]).map(|because| because.evidence.certainty()).min()
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Reads {
    seen: bool,
    first_is_a_sure_read: bool,
}

/// A use of a block that `lathe_dump.writes` saw the node change.
fn as_observed(use_: &PointerUse) -> PointerUse {
    let mut seen = use_.clone();
    if use_.use_ != Use::Read && use_.evidence.certainty() < Certainty::Certain {
        seen.evidence = Evidence::Observed;
        seen.sure = true;
        if use_.use_ == Use::None {
            seen.use_ = Use::WritePart;
        }
    }
    seen
}

fn stale_kind(graph: &GraphDump, allocation: &Allocation, stale: bool) -> Option<StaleKind> {
    if stale {
        return Some(StaleKind::DroppedBefore);
    }
    match (allocation.origin, &allocation.pool, &graph.pool) {
        (Origin::Capture | Origin::Before, Some(None), Some(_)) if allocation.dropped.is_some() => {
            Some(StaleKind::OutsidePool)
        }
        (Origin::Before, ..) if allocation.live_at_dump == Some(false) => Some(StaleKind::FreedAfter),
        _ => None,
    }
}

fn effect(use_: Use) -> Option<Effect> {
    Some(match use_ {
        Use::Read => Effect::Read,
        Use::Write => Effect::WriteAll,
        Use::WritePart => Effect::WritePart,
        Use::ReadWrite => Effect::ReadWrite,
        Use::None => return None,
    })
}

fn basis(evidence: &Evidence) -> Basis {
    match evidence {
        Evidence::Assumed => Basis::Assumed,
        Evidence::Signature | Evidence::Operator(_) | Evidence::Rule(_) | Evidence::Ptx => Basis::Rule,
        Evidence::Observed => Basis::Observed,
        Evidence::Driver => Basis::Declared,
    }
}

/// The lane of each node: the stream it was recorded on, else the lane of its first parent, the first child staying on it.
fn lanes(graph: &GraphDump) -> Vec<String> {
    let mut parents: Vec<Option<usize>> = vec![None; graph.nodes.len()];
    for edge in &graph.edges {
        let first = &mut parents[edge.dst];
        *first = Some(first.map_or(edge.src, |parent| parent.min(edge.src)));
    }
    let mut continued = vec![false; graph.nodes.len()];
    let mut lanes: Vec<usize> = Vec::with_capacity(graph.nodes.len());
    let mut count = 0;
    for parent in parents {
        let lane =
            match parent.filter(|&parent| parent < lanes.len() && !std::mem::replace(&mut continued[parent], true)) {
                Some(parent) => lanes[parent],
                None => {
                    count += 1;
                    count - 1
                }
            };
        lanes.push(lane);
    }
    let name = |(node, lane): (&super::dump::NodeDump, usize)| match node
        .stream
        .and_then(|stream| graph.streams.get(stream as usize))
    {
        Some(stream) => stream.clone(),
        None => format!("lane {lane}"),
    };
    graph.nodes.iter().zip(lanes).map(name).collect()
}
