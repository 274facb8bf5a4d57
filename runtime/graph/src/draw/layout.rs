//! Where columns and bands of bytes lie.

use crate::model::{EdgeKind, GraphId, NodeId, NodeKind, Placement, Pool, Site};
use crate::order::{Adjacency, Order};
use std::collections::BTreeSet;

/// A row of nodes: a stream, and which of its rows if nodes of it share a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Lane {
    pub(super) stream: usize,
    row: usize,
}

/// One column for each level of each graph, graphs side by side.
pub(super) struct Columns {
    /// Column and lane of each node that is drawn.
    place: Vec<Option<(usize, Lane)>>,
    /// First column of each graph, and past its last.
    graphs: Vec<(GraphId, usize, usize)>,
    /// Edges between drawn nodes, through markers too.
    edges: Vec<(NodeId, NodeId, EdgeKind)>,
    width: f64,
    count: usize,
}

impl Columns {
    pub(super) fn new(pool: &Pool, order: &Order) -> Self {
        let adjacency = Adjacency::of(pool);
        let mut place: Vec<Option<(usize, Lane)>> = vec![None; pool.nodes().len()];
        // The first column after a node; and what an edge from it starts at: itself, or what a marker stands for.
        let mut end = vec![0; pool.nodes().len()];
        let mut sources: Vec<Vec<NodeId>> = vec![Vec::new(); pool.nodes().len()];
        let (mut graphs, mut edges) = (Vec::new(), Vec::new());
        let mut count = 0;
        for graph in pool.graph_ids() {
            let first = count;
            let mut taken: BTreeSet<(usize, Lane)> = BTreeSet::new();
            // Eager work beside the replay is drawn with the first graph.
            let present = |id: &NodeId| match pool.node(*id).site {
                Site::Graph(of) => of == graph,
                Site::Beside => graph.index() == 0,
                _ => false,
            };
            for &id in order.serial().iter().filter(|id| present(id)) {
                let before = adjacency.predecessors(id);
                let column = before.iter().map(|(p, _)| end[p.index()]).max().unwrap_or(first).max(first);
                let from: BTreeSet<(NodeId, EdgeKind)> =
                    before.iter().flat_map(|(p, kind)| sources[p.index()].iter().map(|&s| (s, *kind))).collect();
                if pool.node(id).kind == NodeKind::Marker {
                    end[id.index()] = column;
                    sources[id.index()] = from.into_iter().map(|(source, _)| source).collect();
                    continue;
                }
                edges.extend(from.into_iter().map(|(source, kind)| (source, id, kind)));
                end[id.index()] = column + 1;
                sources[id.index()] = vec![id];
                let mut lane = Lane { stream: pool.node(id).stream.index(), row: 0 };
                while !taken.insert((column, lane)) {
                    lane.row += 1;
                }
                place[id.index()] = Some((column, lane));
                count = count.max(column + 1);
            }
            if count > first {
                graphs.push((graph, first, count));
            }
        }
        let width = (1500.0 / count.max(1) as f64).clamp(24.0, 130.0);
        Self { place, graphs, edges, width, count }
    }

    pub(super) fn has(&self, node: NodeId) -> bool {
        self.place[node.index()].is_some()
    }

    pub(super) fn edges(&self) -> &[(NodeId, NodeId, EdgeKind)] {
        &self.edges
    }

    pub(super) fn lanes(&self) -> Vec<Lane> {
        self.place.iter().flatten().map(|(_, lane)| *lane).collect::<BTreeSet<_>>().into_iter().collect()
    }

    pub(super) fn lane_of(&self, node: NodeId) -> Lane {
        self.place[node.index()].map_or(Lane { stream: 0, row: 0 }, |(_, lane)| lane)
    }

    /// Left and right of a node's column.
    pub(super) fn span(&self, node: NodeId) -> (f64, f64) {
        let column = self.place[node.index()].map_or(0, |(column, _)| column) as f64;
        (column * self.width, (column + 1.0) * self.width)
    }

    /// Left and right of a graph, or of all.
    pub(super) fn extent(&self, graph: Option<GraphId>) -> (f64, f64) {
        let found = self.graphs.iter().find(|(of, ..)| Some(*of) == graph);
        found.map_or((0.0, self.width()), |&(_, first, end)| (first as f64 * self.width, end as f64 * self.width))
    }

    pub(super) fn graphs(&self) -> impl Iterator<Item = (GraphId, f64)> + '_ {
        self.graphs.iter().map(|&(graph, first, _)| (graph, first as f64 * self.width))
    }

    /// Every boundary of a column, and whether it is one of a graph.
    pub(super) fn lines(&self) -> impl Iterator<Item = (f64, bool)> + '_ {
        let is_edge = |column: usize| self.graphs.iter().any(|&(_, first, end)| column == first || column == end);
        (0..=self.count).map(move |column| (column as f64 * self.width, is_edge(column)))
    }

    pub(super) fn width(&self) -> f64 {
        self.count as f64 * self.width
    }
}

/// Heights of address ranges: in proportion where there is room, never less than a line of text, gaps cut short.
pub(super) struct Bands {
    /// Addresses at which a buffer begins or ends, ascending, and where each is drawn.
    cuts: Vec<(u64, f64)>,
    /// Where nothing lies: the top of the band and its bytes.
    breaks: Vec<(f64, u64)>,
}

/// The least height of a range, and that of a gap.
const LINE: f64 = 17.0;
const GAP: f64 = 16.0;
/// What all ranges together would like to have.
const HEIGHT: f64 = 420.0;

impl Bands {
    pub(super) fn new(pool: &Pool, placement: &Placement) -> Self {
        let mut ranges: Vec<(u64, u64)> =
            placement.iter().map(|(id, start)| (start, start.saturating_add(pool.buffer(id).size))).collect();
        ranges.sort_unstable();
        let mut ends: Vec<u64> = ranges.iter().flat_map(|&(start, end)| [start, end]).collect();
        ends.sort_unstable();
        ends.dedup();
        let covered: Vec<bool> = {
            let (mut open_to, mut next) = (0, 0);
            ends.iter()
                .map(|&at| {
                    while next < ranges.len() && ranges[next].0 <= at {
                        open_to = open_to.max(ranges[next].1);
                        next += 1;
                    }
                    open_to > at
                })
                .collect()
        };
        let bytes = |i: usize| ends[i + 1] - ends[i];
        let bands = ends.len().saturating_sub(1);
        let used: u64 = (0..bands).filter(|&i| covered[i]).map(bytes).sum();
        let (mut cuts, mut breaks) = (Vec::new(), Vec::new());
        let mut y = 0.0;
        for (i, &at) in ends.iter().enumerate() {
            cuts.push((at, y));
            if i == bands {
                break;
            }
            if covered[i] {
                y += (bytes(i) as f64 / used as f64 * HEIGHT).max(LINE);
            } else {
                breaks.push((y, bytes(i)));
                y += GAP;
            }
        }
        Self { cuts, breaks }
    }

    pub(super) fn base(&self) -> u64 {
        self.cuts.first().map_or(0, |(address, _)| *address)
    }

    pub(super) fn height(&self) -> f64 {
        self.cuts.last().map_or(0.0, |(_, y)| *y)
    }

    pub(super) fn ticks(&self) -> impl Iterator<Item = (u64, f64)> + '_ {
        self.cuts.iter().copied()
    }

    pub(super) fn breaks(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        self.breaks.iter().copied()
    }

    /// Top and bottom of a range of addresses.
    pub(super) fn range(&self, start: u64, end: u64) -> (f64, f64) {
        (self.at(start), self.at(end))
    }

    fn at(&self, address: u64) -> f64 {
        let next = self.cuts.partition_point(|(cut, _)| *cut <= address);
        match (self.cuts.get(next.wrapping_sub(1)), self.cuts.get(next)) {
            (Some(&(low, y)), Some(&(high, z))) => y + (z - y) * (address - low) as f64 / (high - low) as f64,
            (Some(&(_, y)), None) | (None, Some(&(_, y))) => y,
            (None, None) => 0.0,
        }
    }
}
