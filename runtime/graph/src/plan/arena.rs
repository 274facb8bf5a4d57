//! One arena for all graphs of a pool: who may share bytes with whom, and where everybody lies.

use super::bound::max_live;
use super::problem::{Precedence, Problem};
use super::solve::solve;
use crate::bits::{BitMatrix, ones};
use crate::model::{BufferId, GraphId, Lifetime, Placement, Pool, Release};
use crate::order::Order;
use std::fmt;

/// What a plan depends on besides the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Address of the arena's first byte; a multiple of every alignment.
    pub base: u64,
    /// How hard to look for a better plan, counted in placements of one buffer, so that the plan does not depend on
    /// the machine. The default keeps 10,000 nodes well under two seconds.
    pub steps: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { base: 0, steps: 100_000 }
    }
}

/// The planner of one pool.
///
/// Every lasting buffer and every output that its caller may hold across replays gets bytes of its own. The others
/// share: two transients of a graph if all uses of one happen before all uses of the other; buffers of two graphs if
/// these never replay at once. Buffers with a given address, and transients that nothing uses, are not placed.
pub struct Planner<'a> {
    pool: &'a Pool,
    /// Buffers with bytes of their own.
    own: Vec<BufferId>,
    /// Buffers that may share, by graph.
    shared: Vec<(GraphId, BufferId)>,
    before: Precedence,
    problem: Problem,
    granule: u64,
}

/// The heaviest set of buffers that may all be live at once: no plan needs fewer bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Its bytes, each size rounded up to the smallest alignment in the pool.
    pub bytes: u64,
    /// The buffers in it, by id.
    pub live: Vec<BufferId>,
    /// Of `bytes`, those of buffers that may share.
    pub shareable: u64,
}

/// Where every buffer of a pool lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The address of each buffer.
    pub placement: Placement,
    /// The arena's first address.
    pub base: u64,
    /// Bytes of the arena.
    pub bytes: u64,
    /// What no plan can do without.
    pub bound: Bound,
    /// Bytes if nothing shared.
    pub no_reuse: u64,
    /// Names the plan: equal for equal buffers at equal offsets, whatever the base.
    pub hash: PlanHash,
}

impl Plan {
    /// Planned bytes over bytes of the bound, both without what lasting buffers and held outputs need in any plan.
    pub fn ratio(&self) -> f64 {
        let own = self.bound.bytes - self.bound.shareable;
        if self.bound.shareable == 0 { 1.0 } else { (self.bytes - own) as f64 / self.bound.shareable as f64 }
    }
}

/// The BLAKE3 hash of a plan.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PlanHash([u8; 32]);

impl fmt::Display for PlanHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for PlanHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PlanHash({self})")
    }
}

impl<'a> Planner<'a> {
    /// Works out who may share. `order` is the order of `pool`.
    pub fn new(pool: &'a Pool, order: &Order) -> Self {
        let placed = |id: &BufferId| pool.buffer(*id).address.is_none();
        let (mut own, mut shared) = (Vec::new(), Vec::new());
        let uses = pool.uses();
        for id in pool.buffer_ids().filter(placed) {
            let home = match pool.buffer(id).lifetime {
                Lifetime::Transient { graph, .. } => Some(graph),
                Lifetime::Output { graph, release: Release::BeforeNextReplay } => Some(graph),
                _ => None,
            };
            let used_at_home = |graph| uses.of(id).iter().all(|&(node, _)| pool.node(node).site.graph() == Some(graph));
            match home {
                Some(_) if uses.of(id).is_empty() => {}
                Some(graph) if used_at_home(graph) => shared.push((graph, id)),
                _ => own.push(id),
            }
        }
        shared.sort_unstable();
        let before = Precedence::new(precedence(pool, order, &shared));
        let granule = own.iter().chain(shared.iter().map(|(_, id)| id)).map(|id| pool.buffer(*id).align).min();
        let granule = granule.unwrap_or(1);
        let size = |id: BufferId| pool.buffer(id).size.next_multiple_of(granule);
        let problem = Problem {
            sizes: shared.iter().map(|&(_, id)| size(id)).collect(),
            aligns: shared.iter().map(|&(_, id)| pool.buffer(id).align).collect(),
            conflicts: conflicts(pool, &shared, &before),
            spans: shared.iter().map(|&(graph, id)| span(pool, order, &uses, graph, id)).collect(),
        };
        Self { pool, own, shared, before, problem, granule }
    }

    fn size(&self, id: BufferId) -> u64 {
        self.pool.buffer(id).size.next_multiple_of(self.granule)
    }

    /// The bytes that no plan can do without. It is exact where happens-before is transitive, that is, where every
    /// kernel launched programmatically waits in every CTA; elsewhere it is still a lower bound.
    pub fn bound(&self) -> Bound {
        let heaviest: Vec<(u64, Vec<BufferId>)> = (0..self.pool.graphs().len())
            .map(|g| {
                let members: Vec<usize> = (0..self.shared.len()).filter(|&i| self.shared[i].0.index() == g).collect();
                let sizes: Vec<u64> = members.iter().map(|&i| self.problem.sizes[i]).collect();
                let live = max_live(&sizes, &self.before.restricted_to(&members));
                (live.bytes, live.buffers.iter().map(|&i| self.shared[members[i]].1).collect())
            })
            .collect();
        let weights: Vec<u64> = heaviest.iter().map(|(bytes, _)| *bytes).collect();
        let graphs = heaviest_at_once(self.pool, &weights);
        let shared = graphs.iter().map(|&g| weights[g]).sum();
        let mut live: Vec<BufferId> = self.own.clone();
        graphs.iter().for_each(|&g| live.extend(&heaviest[g].1));
        live.sort_unstable();
        let own: u64 = self.own.iter().map(|&id| self.size(id)).sum();
        Bound { bytes: own + shared, live, shareable: shared }
    }

    /// Makes the plan: a pure function of the pool and `options`.
    pub fn plan(&self, options: &Options) -> Plan {
        let bound = self.bound();
        let mut placement = Placement::given(self.pool);
        let mut own = self.own.clone();
        own.sort_by_key(|&id| (std::cmp::Reverse(self.pool.buffer(id).align), id));
        let mut end = 0u64;
        for &id in &own {
            let offset = end.next_multiple_of(self.pool.buffer(id).align);
            placement.set(id, options.base + offset);
            end = offset + self.size(id);
        }
        let widest = self.problem.aligns.iter().max().copied().unwrap_or(1);
        let start = end.next_multiple_of(widest);
        let offsets = solve(&self.problem, bound.shareable, options.steps);
        debug_assert_eq!(self.problem.overlap(&offsets), None);
        for (&(_, id), offset) in self.shared.iter().zip(&offsets.of) {
            placement.set(id, options.base + start + offset);
        }
        let bytes = if self.shared.is_empty() { end } else { start + offsets.peak };
        let no_reuse = self.own.iter().chain(self.shared.iter().map(|(_, id)| id)).map(|&id| self.size(id)).sum();
        let hash = self.hash(&placement, options.base, bytes);
        Plan { placement, base: options.base, bytes, bound, no_reuse, hash }
    }

    fn hash(&self, placement: &Placement, base: u64, bytes: u64) -> PlanHash {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&bytes.to_le_bytes());
        let mut placed: Vec<BufferId> = self.own.iter().chain(self.shared.iter().map(|(_, id)| id)).copied().collect();
        placed.sort_unstable();
        for id in placed {
            let buffer = self.pool.buffer(id);
            let offset = placement.address(id).unwrap_or(base) - base;
            hasher.update(&(buffer.name.len() as u64).to_le_bytes()).update(buffer.name.as_bytes());
            for number in [buffer.size, buffer.align, offset] {
                hasher.update(&number.to_le_bytes());
            }
        }
        PlanHash(*hasher.finalize().as_bytes())
    }
}

/// Row `u` holds `v` if both are of one graph and every use of `u` is complete before every use of `v`. An output is
/// before nothing: it is live when its graph ends.
fn precedence(pool: &Pool, order: &Order, shared: &[(GraphId, BufferId)]) -> BitMatrix {
    let uses = pool.uses();
    let mut index = vec![None; pool.buffers().len()];
    let mut users = vec![0u32; shared.len()];
    for (i, &(_, id)) in shared.iter().enumerate() {
        index[id.index()] = Some(i);
    }
    let mut used_by: Vec<Vec<usize>> = vec![Vec::new(); pool.nodes().len()];
    for (node, id) in pool.nodes().iter().zip(pool.node_ids()) {
        let used = &mut used_by[id.index()];
        used.extend(node.accesses.iter().filter_map(|access| index[access.buffer.index()]));
        used.sort_unstable();
        used.dedup();
        used.iter().for_each(|&i| users[i] += 1);
    }
    let mut before = BitMatrix::new(shared.len());
    let mut done_users = vec![0u32; shared.len()];
    for (v, &(_, id)) in shared.iter().enumerate() {
        if matches!(pool.buffer(id).lifetime, Lifetime::Output { .. }) {
            continue;
        }
        let mut done: Option<Vec<u64>> = None;
        for (node, access) in uses.accesses(pool, id) {
            let mut ancestors = vec![0u64; pool.nodes().len().div_ceil(64)];
            for ancestor in order.ancestors(node, access.phase) {
                ancestors[ancestor.index() / 64] |= 1 << (ancestor.index() % 64);
            }
            match &mut done {
                None => done = Some(ancestors),
                Some(done) => done.iter_mut().zip(&ancestors).for_each(|(d, a)| *d &= a),
            }
        }
        let done = done.unwrap_or_default();
        let of_done = || ones(&done).flat_map(|node| used_by[node].iter().copied());
        of_done().for_each(|u| done_users[u] += 1);
        for u in of_done() {
            if done_users[u] == users[u] && !matches!(pool.buffer(shared[u].1).lifetime, Lifetime::Output { .. }) {
                before.set(u, v);
            }
        }
        of_done().for_each(|u| done_users[u] = 0);
    }
    before
}

fn conflicts(pool: &Pool, shared: &[(GraphId, BufferId)], before: &Precedence) -> BitMatrix {
    let mut conflicts = before.conflicts();
    let graphs = pool.graphs().len();
    if graphs < 2 {
        return conflicts;
    }
    // Between graphs the order says nothing; what counts is whether they may replay at once.
    let mut members = vec![vec![0u64; shared.len().div_ceil(64)]; graphs];
    for (i, (graph, _)) in shared.iter().enumerate() {
        members[graph.index()][i / 64] |= 1 << (i % 64);
    }
    for (i, &(graph, _)) in shared.iter().enumerate() {
        for other in pool.graph_ids().filter(|&other| other != graph && !pool.replay_at_once(graph, other)) {
            conflicts.row_mut(i).iter_mut().zip(&members[other.index()]).for_each(|(row, member)| *row &= !member);
        }
    }
    conflicts
}

/// From the first use to past the last in the serial order; graphs one after another.
fn span(pool: &Pool, order: &Order, uses: &crate::model::Uses, graph: GraphId, id: BufferId) -> (u64, u64) {
    let start = graph.index() as u64 * pool.nodes().len() as u64;
    let ranks = || uses.of(id).iter().map(|&(node, _)| start + u64::from(order.rank(node)));
    (ranks().min().unwrap_or(start), ranks().max().unwrap_or(start) + 1)
}

/// The heaviest set of graphs that may all replay at once.
fn heaviest_at_once(pool: &Pool, weights: &[u64]) -> Vec<usize> {
    let ids: Vec<GraphId> = pool.graph_ids().collect();
    let together = |a: usize, b: usize| pool.replay_at_once(ids[a], ids[b]);
    let mut by_weight: Vec<usize> = (0..weights.len()).collect();
    by_weight.sort_by_key(|&g| (std::cmp::Reverse(weights[g]), g));
    let mut best: (u64, Vec<usize>) = (0, Vec::new());
    let mut stack = vec![(0u64, Vec::new(), by_weight)];
    while let Some((weight, chosen, open)) = stack.pop() {
        if weight > best.0 || best.1.is_empty() {
            best = (weight, chosen.clone());
        }
        if weight + open.iter().map(|&g| weights[g]).sum::<u64>() <= best.0 {
            continue;
        }
        for (i, &g) in open.iter().enumerate().rev() {
            let rest = open[i + 1..].iter().copied().filter(|&h| together(g, h)).collect();
            let mut with = chosen.clone();
            with.push(g);
            stack.push((weight + weights[g], with, rest));
        }
    }
    best.1.sort_unstable();
    best.1
}
