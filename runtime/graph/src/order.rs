//! Happens-before: which node is complete before which other begins.

use crate::model::{Edge, EdgeKind, ModelError, NodeId, PdlWait, Phase, Pool};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// Predecessors and successors of every node.
pub struct Adjacency {
    predecessors: Lists,
    successors: Lists,
}

/// One list per node, all in one vector.
struct Lists {
    starts: Vec<u32>,
    items: Vec<(NodeId, EdgeKind)>,
}

impl Lists {
    fn new(nodes: usize, pairs: impl Iterator<Item = (NodeId, (NodeId, EdgeKind))> + Clone) -> Self {
        let mut starts = vec![0u32; nodes + 1];
        for (of, _) in pairs.clone() {
            starts[of.index() + 1] += 1;
        }
        for i in 0..nodes {
            starts[i + 1] += starts[i];
        }
        let mut next = starts.clone();
        let mut items = vec![(NodeId(0), EdgeKind::Full); starts[nodes] as usize];
        for (of, item) in pairs {
            items[next[of.index()] as usize] = item;
            next[of.index()] += 1;
        }
        Self { starts, items }
    }

    fn of(&self, node: NodeId) -> &[(NodeId, EdgeKind)] {
        let i = node.index();
        &self.items[self.starts[i] as usize..self.starts[i + 1] as usize]
    }
}

impl Adjacency {
    /// The edges of `pool`, by node. Every row that an edge names must exist.
    pub fn of(pool: &Pool) -> Self {
        let nodes = pool.nodes().len();
        let edges = pool.edges();
        Self {
            predecessors: Lists::new(nodes, edges.iter().map(|e| (e.to, (e.from, e.kind)))),
            successors: Lists::new(nodes, edges.iter().map(|e| (e.from, (e.to, e.kind)))),
        }
    }

    /// The nodes with an edge to `node`.
    pub fn predecessors(&self, node: NodeId) -> &[(NodeId, EdgeKind)] {
        self.predecessors.of(node)
    }

    /// The nodes with an edge from `node`.
    pub fn successors(&self, node: NodeId) -> &[(NodeId, EdgeKind)] {
        self.successors.of(node)
    }

    /// All nodes in an order that respects every edge, programmatic ones too: the record order, except
    /// where an edge leads back in it. `Err`: the nodes on or behind a cycle.
    pub fn topological(&self) -> Result<Vec<NodeId>, Vec<NodeId>> {
        let nodes = self.predecessors.starts.len() - 1;
        let ids = (0..nodes as u32).map(NodeId);
        let mut missing: Vec<usize> = ids.clone().map(|id| self.predecessors(id).len()).collect();
        let roots = ids.clone().filter(|id| missing[id.index()] == 0);
        let mut ready: BinaryHeap<Reverse<NodeId>> = roots.map(Reverse).collect();
        let mut order = Vec::with_capacity(nodes);
        while let Some(Reverse(node)) = ready.pop() {
            order.push(node);
            for &(next, _) in self.successors(node) {
                missing[next.index()] -= 1;
                if missing[next.index()] == 0 {
                    ready.push(Reverse(next));
                }
            }
        }
        if order.len() == nodes { Ok(order) } else { Err(ids.filter(|id| missing[id.index()] > 0).collect()) }
    }
}

/// The happens-before relation of a pool, closed.
///
/// A node has up to three moments: its start, its programmatic wait, its end. A full edge orders the end
/// of the first before the start of the second; a programmatic edge orders it before what the second does
/// after its wait, and before the second's end (so before what follows the second) only if every CTA
/// waits. Nodes of different graphs, and eager work without edges, are never ordered here: what orders
/// replays is not an edge.
#[derive(Clone, Debug)]
pub struct Order {
    /// The weakly connected component of each node, and its index there: no path leaves a component.
    place: Vec<(u32, u32)>,
    components: Vec<Component>,
    serial: Vec<NodeId>,
    rank: Vec<u32>,
    transitive: bool,
}

/// The closure among the nodes of one component, one bit row per node and moment.
#[derive(Clone, Debug)]
struct Component {
    words: usize,
    members: Vec<NodeId>,
    /// Row of a node: what is complete before it starts.
    at_start: Vec<u64>,
    /// What is complete before it passes its wait, for the few nodes where that is more.
    at_wait: HashMap<u32, Vec<u64>>,
}

impl Component {
    fn new(members: Vec<NodeId>) -> Self {
        let words = members.len().div_ceil(64);
        Self { words, at_start: vec![0; words * members.len()], at_wait: HashMap::new(), members }
    }

    fn start_row(&self, node: usize) -> &[u64] {
        &self.at_start[node * self.words..][..self.words]
    }

    fn row(&self, node: usize, phase: Phase) -> &[u64] {
        match phase {
            Phase::BeforeWait => self.start_row(node),
            Phase::AfterWait => match self.at_wait.get(&(node as u32)) {
                Some(row) => row,
                None => self.start_row(node),
            },
        }
    }

    /// Fills the rows of `node` from those of its predecessors: index, edge, and which CTAs wait there.
    fn close(&mut self, node: usize, waits: PdlWait, predecessors: impl Iterator<Item = (usize, EdgeKind, PdlWait)>) {
        let mut start = vec![0; self.words];
        let mut wait: Option<Vec<u64>> = None;
        for (before, kind, pdl) in predecessors {
            let target = match kind {
                EdgeKind::Full => &mut start,
                EdgeKind::Programmatic if waits == PdlWait::Never => continue,
                EdgeKind::Programmatic => wait.get_or_insert_with(|| vec![0; self.words]),
            };
            // What is complete when the predecessor ends: itself, and what it waited for.
            let end = self.row(before, at_end(pdl));
            target.iter_mut().zip(end).for_each(|(t, e)| *t |= e);
            target[before / 64] |= 1 << (before % 64);
        }
        if let Some(mut wait) = wait {
            wait.iter_mut().zip(&start).for_each(|(w, s)| *w |= s);
            self.at_wait.insert(node as u32, wait);
        }
        self.at_start[node * self.words..][..self.words].copy_from_slice(&start);
    }
}

impl Order {
    /// Closes the relation.
    ///
    /// # Errors
    /// [`ModelError`] if the pool does not pass [`Pool::validate`].
    pub fn of(pool: &Pool) -> Result<Self, ModelError> {
        pool.validate()?;
        Ok(Self::closed(pool, |kind| kind))
    }

    /// The relation as it would be if every programmatic edge of the (valid) pool were a full one.
    pub(crate) fn if_all_full(pool: &Pool) -> Self {
        Self::closed(pool, |_| EdgeKind::Full)
    }

    fn closed(pool: &Pool, strength: impl Fn(EdgeKind) -> EdgeKind) -> Self {
        let adjacency = Adjacency::of(pool);
        let serial = adjacency.topological().expect("a valid pool has no cycle");
        let (place, members) = components(pool, &serial);
        let mut components: Vec<Component> = members.into_iter().map(Component::new).collect();
        for &node in &serial {
            let (component, row) = place[node.index()];
            let waits = pool.node(node).pdl_wait;
            let predecessors = adjacency.predecessors(node).iter().map(|&(before, kind)| {
                let pdl = pool.node(before).pdl_wait;
                (place[before.index()].1 as usize, strength(kind), pdl)
            });
            components[component as usize].close(row as usize, waits, predecessors);
        }
        let mut rank = vec![0; serial.len()];
        for (i, node) in serial.iter().enumerate() {
            rank[node.index()] = i as u32;
        }
        let leaks = |e: &Edge| strength(e.kind) == EdgeKind::Programmatic && pool.node(e.to).pdl_wait != PdlWait::Every;
        let transitive = !pool.edges().iter().any(leaks);
        Self { place, components, serial, rank, transitive }
    }

    /// Is `first` complete before `second` starts?
    pub fn before(&self, first: NodeId, second: NodeId) -> bool {
        self.before_phase(first, second, Phase::BeforeWait)
    }

    /// Is `first` complete before `second` does what it does in `phase`?
    pub fn before_phase(&self, first: NodeId, second: NodeId, phase: Phase) -> bool {
        let ((a, i), (b, j)) = (self.place[first.index()], self.place[second.index()]);
        a == b && bit(self.components[a as usize].row(j as usize, phase), i as usize)
    }

    /// Is `first` complete before whatever a full edge from `second` leads to? `waits` are the CTAs of `second` that wait.
    pub(crate) fn before_end(&self, first: NodeId, second: NodeId, waits: PdlWait) -> bool {
        self.before_phase(first, second, at_end(waits))
    }

    /// Does every access of `first` in its phase come before every access of `second` in its phase, or the
    /// other way round?
    pub fn ordered(&self, first: (NodeId, Phase), second: (NodeId, Phase)) -> bool {
        first.0 == second.0
            || self.before_phase(first.0, second.0, second.1)
            || self.before_phase(second.0, first.0, first.1)
    }

    /// The nodes that are complete before `node` does what it does in `phase`.
    pub fn ancestors(&self, node: NodeId, phase: Phase) -> impl Iterator<Item = NodeId> + '_ {
        let (component, row) = self.place[node.index()];
        let component = &self.components[component as usize];
        ones(component.row(row as usize, phase)).map(|i| component.members[i])
    }

    /// A rank below which every node comes before one of the two, in its phase.
    pub(crate) fn all_before_one_of(&self, pair: [(NodeId, Phase); 2]) -> u32 {
        let [(a, i), (b, j)] = pair.map(|(node, _)| self.place[node.index()]);
        if a != b || self.components.len() > 1 {
            return 0;
        }
        let component = &self.components[a as usize];
        let rows = [component.row(i as usize, pair[0].1), component.row(j as usize, pair[1].1)];
        let open = |(x, y): (&u64, &u64)| (x | y) != u64::MAX;
        let word = rows[0].iter().zip(rows[1]).position(open).unwrap_or(rows[0].len().saturating_sub(1));
        (word * 64) as u32 + (rows[0][word] | rows[1][word]).trailing_ones()
    }

    /// The serial order: all nodes as they were recorded, except where an edge leads back.
    pub fn serial(&self) -> &[NodeId] {
        &self.serial
    }

    /// The position of `node` in [`Order::serial`].
    pub fn rank(&self, node: NodeId) -> u32 {
        self.rank[node.index()]
    }

    /// Does something come before the node's wait that does not come before its start?
    pub fn has_wait(&self, node: NodeId) -> bool {
        let (component, row) = self.place[node.index()];
        self.components[component as usize].at_wait.contains_key(&row)
    }

    /// Do a before b and b before c give a before c? Not where some CTA skips its programmatic wait.
    pub fn is_transitive(&self) -> bool {
        self.transitive
    }
}

/// The phase whose predecessors are all complete when a node ends.
fn at_end(waits: PdlWait) -> Phase {
    match waits {
        PdlWait::Every => Phase::AfterWait,
        PdlWait::Some | PdlWait::Never => Phase::BeforeWait,
    }
}

/// Is bit `i` of the row set?
fn bit(row: &[u64], i: usize) -> bool {
    row[i / 64] >> (i % 64) & 1 == 1
}

/// The set bits of a row.
fn ones(row: &[u64]) -> impl Iterator<Item = usize> + '_ {
    row.iter().enumerate().flat_map(|(index, &word)| {
        let rest = |&word: &u64| Some(word & (word - 1)).filter(|&rest| rest != 0);
        std::iter::successors(Some(word).filter(|&word| word != 0), rest)
            .map(move |word| index * 64 + word.trailing_zeros() as usize)
    })
}

/// Place of each node and members, in serial order, of each weakly connected component.
fn components(pool: &Pool, serial: &[NodeId]) -> (Vec<(u32, u32)>, Vec<Vec<NodeId>>) {
    let nodes = pool.nodes().len();
    let mut parent: Vec<u32> = (0..nodes as u32).collect();
    fn root(parent: &mut [u32], mut node: u32) -> u32 {
        while parent[node as usize] != node {
            parent[node as usize] = parent[parent[node as usize] as usize];
            node = parent[node as usize];
        }
        node
    }
    for edge in pool.edges() {
        let (a, b) = (root(&mut parent, edge.from.0), root(&mut parent, edge.to.0));
        parent[a.max(b) as usize] = a.min(b);
    }
    let mut component_of_root = vec![u32::MAX; nodes];
    let mut place = vec![(0, 0); nodes];
    let mut members: Vec<Vec<NodeId>> = Vec::new();
    for &node in serial {
        let root = root(&mut parent, node.0) as usize;
        if component_of_root[root] == u32::MAX {
            component_of_root[root] = members.len() as u32;
            members.push(Vec::new());
        }
        let component = component_of_root[root];
        let list = &mut members[component as usize];
        place[node.index()] = (component, list.len() as u32);
        list.push(node);
    }
    (place, members)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::location::Location;
    use crate::model::{Node, NodeKind, Site};

    fn chain(edges: &[(u32, u32, EdgeKind)], waits: &[PdlWait]) -> Order {
        let mut pool = Pool::new();
        let graph = pool.add_graph("g", Location::unknown());
        let stream = pool.stream_named("m");
        for (i, wait) in waits.iter().enumerate() {
            let site = Site::Graph(graph);
            let name = format!("k{i}");
            let id = pool.add_node(Node::new(name, NodeKind::Kernel, site, stream, Location::unknown()));
            pool.node_mut(id).pdl_wait = *wait;
        }
        for &(from, to, kind) in edges {
            pool.add_edge(NodeId(from), NodeId(to), kind);
        }
        Order::of(&pool).unwrap()
    }

    use EdgeKind::{Full, Programmatic};

    #[test]
    fn full_edges_compose() {
        let order = chain(&[(0, 1, Full), (1, 2, Full)], &[PdlWait::Every; 4]);
        assert!(order.before(NodeId(0), NodeId(2)));
        assert!(!order.before(NodeId(2), NodeId(0)));
        assert!(!order.before(NodeId(0), NodeId(3)));
        let before: Vec<_> = order.ancestors(NodeId(2), Phase::BeforeWait).collect();
        assert_eq!(before, [NodeId(0), NodeId(1)]);
    }

    #[test]
    fn a_programmatic_edge_orders_what_follows_the_wait_only() {
        let order = chain(&[(0, 1, Programmatic)], &[PdlWait::Every; 2]);
        let (k0, k1) = (NodeId(0), NodeId(1));
        assert!(order.before_phase(k0, k1, Phase::AfterWait));
        assert!(!order.before_phase(k0, k1, Phase::BeforeWait));
    }

    #[test]
    fn a_programmatic_edge_composes_only_if_every_cta_waits() {
        for (wait, composes) in [(PdlWait::Every, true), (PdlWait::Some, false), (PdlWait::Never, false)] {
            let waits = [PdlWait::Every, wait, PdlWait::Every];
            let order = chain(&[(0, 1, Programmatic), (1, 2, Full)], &waits);
            assert_eq!(order.before(NodeId(0), NodeId(2)), composes, "{wait:?}");
            assert_eq!(order.before_phase(NodeId(0), NodeId(1), Phase::AfterWait), wait != PdlWait::Never);
            assert!(order.before(NodeId(1), NodeId(2)));
        }
    }

    #[test]
    fn what_precedes_the_first_of_two_programmatic_edges_reaches_past_the_second_wait() {
        let order = chain(&[(0, 1, Programmatic), (1, 2, Programmatic)], &[PdlWait::Every; 3]);
        assert!(order.before_phase(NodeId(0), NodeId(2), Phase::AfterWait));
        assert!(!order.before_phase(NodeId(0), NodeId(2), Phase::BeforeWait));
    }
}
