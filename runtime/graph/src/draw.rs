//! A memory map as SVG: who lives on which bytes, and when.
//!
//! Above, the nodes of each graph: one lane a stream, one column a happens-before level, edges between them. Below, on the
//! same columns, the buffers on the bytes they got, each from its first use to its last, in the colour of the stream
//! that uses it first. Two uses of the same bytes that nothing orders are joined by a red band, however far apart their
//! columns are: columns are one possible timing, and the red bands say where it is not the only one.

mod canvas;
mod layout;

use crate::check::{Conflict, for_each_conflict};
use crate::finding::Bytes;
use crate::model::{BufferId, EdgeKind, Effect, Lifetime, NodeId, Placement, Pool};
use crate::order::Order;
use canvas::{Canvas, Ink};
use layout::{Bands, Columns};
use std::collections::BTreeMap;

/// Colours of streams: distinct for the colour-blind too, and none of them red.
const COLOURS: [&str; 8] = ["#4477aa", "#228833", "#ccbb44", "#66ccee", "#aa7744", "#8855aa", "#009988", "#888888"];
const RED: &str = "#d00020";
const LEFT: f64 = 96.0;
const TOP: f64 = 78.0;
const LANE: f64 = 34.0;
const ROW: f64 = 13.0;

/// Draws the placed buffers of `pool`. `order` is the order of `pool`; `title` heads the picture.
pub fn memory_map(pool: &Pool, order: &Order, placement: &Placement, title: &str) -> String {
    let columns = Columns::new(pool, order);
    let lanes = columns.lanes();
    let bands = Bands::new(pool, placement);
    let mut conflicts: Vec<Conflict> = Vec::new();
    for_each_conflict(pool, order, placement, |conflict| conflicts.push(conflict));
    let map_top = TOP + LANE * lanes.len() as f64 + 46.0;
    let drawing = Drawing { pool, placement, columns, lanes, bands, map_top };
    let width = (LEFT + drawing.columns.width() + 40.0).max(860.0);
    let mut canvas = Canvas::new();
    drawing.title(&mut canvas, title, &conflicts);
    drawing.grid(&mut canvas);
    drawing.nodes(&mut canvas, &conflicts);
    drawing.axis(&mut canvas);
    drawing.buffers(&mut canvas);
    drawing.conflicts(&mut canvas, &conflicts);
    let bottom = drawing.legend(&mut canvas, map_top + drawing.bands.height() + 34.0);
    canvas.finish(width, bottom)
}

struct Drawing<'a> {
    pool: &'a Pool,
    placement: &'a Placement,
    columns: Columns,
    /// Stream and row within it of each lane, top to bottom.
    lanes: Vec<layout::Lane>,
    bands: Bands,
    map_top: f64,
}

impl Drawing<'_> {
    fn colour(&self, stream: usize) -> &'static str {
        COLOURS[stream % COLOURS.len()]
    }

    fn lane_y(&self, node: NodeId) -> f64 {
        let lane = self.columns.lane_of(node);
        let at = self.lanes.iter().position(|l| *l == lane).unwrap_or(0);
        TOP + LANE * at as f64
    }

    /// The height at which edges meet a node.
    fn middle(&self, node: NodeId) -> f64 {
        self.lane_y(node) + LANE / 2.0
    }

    fn title(&self, canvas: &mut Canvas, title: &str, conflicts: &[Conflict]) {
        canvas.text(16.0, 26.0, title, Ink::heading());
        let placed = self.placement.iter().count();
        let mut line = format!(
            "{} nodes on {} streams, {placed} of {} buffers placed on {}",
            self.columns.nodes(),
            self.columns.streams(),
            self.pool.buffers().len(),
            bytes(self.bands.used()),
        );
        if conflicts.is_empty() {
            line += ": no two uses of the same bytes are without an order";
        }
        canvas.text(16.0, 46.0, &line, Ink::plain());
        if !conflicts.is_empty() {
            let n = conflicts.len();
            let line = format!(
                "{n} pair{} of uses of the same bytes without an order: see the red bands",
                if n == 1 { "" } else { "s" }
            );
            canvas.text(16.0, 63.0, &line, Ink::plain().fill(RED).bold());
        }
    }

    fn grid(&self, canvas: &mut Canvas) {
        let bottom = self.map_top + self.bands.height();
        for (x, is_edge) in self.columns.lines() {
            let colour = if is_edge { "#999999" } else { "#eeeeee" };
            canvas.line((LEFT + x, TOP), (LEFT + x, bottom), colour, 1.0);
        }
        for (graph, x) in self.columns.graphs() {
            canvas.text(
                LEFT + x + 4.0,
                self.map_top - 24.0,
                &format!("graph `{}`", self.pool.graph(graph).name),
                Ink::plain().bold(),
            );
        }
        canvas.text(LEFT + 4.0, self.map_top - 9.0, "happens-before levels →", Ink::small());
        canvas.text(16.0, self.map_top - 9.0, "bytes ↓", Ink::small());
    }

    fn nodes(&self, canvas: &mut Canvas, conflicts: &[Conflict]) {
        for (at, lane) in self.lanes.iter().enumerate() {
            if at == 0 || self.lanes[at - 1].stream != lane.stream {
                let name = &self.pool.streams()[lane.stream].name;
                let y = TOP + LANE * at as f64 + LANE / 2.0 + 4.0;
                canvas.clipped(12.0, y, LEFT - 18.0, name, Ink::plain().bold().fill(self.colour(lane.stream)));
            }
        }
        for &(from, to, kind) in self.columns.edges() {
            let ((_, left), (right, _)) = (self.columns.span(from), self.columns.span(to));
            let (y, z) = (self.middle(from), self.middle(to));
            canvas.arrow((LEFT + left - 3.0, y), (LEFT + right + 3.0, z), kind == EdgeKind::Programmatic);
        }
        for id in self.pool.node_ids().filter(|id| self.columns.has(*id)) {
            let node = self.pool.node(id);
            let (left, right) = self.columns.span(id);
            let y = self.lane_y(id);
            let hot = conflicts.iter().any(|c| c.first == id || c.second == id);
            let (stroke, weight) = if hot { (RED, 2.5) } else { ("#333333", 0.7) };
            let colour = self.colour(node.stream.index());
            let uses: Vec<String> = node
                .accesses
                .iter()
                .map(|a| format!("{} {}", a.effect.word(), self.pool.buffer(a.buffer).name))
                .collect();
            let hint = format!("{} on {}: {}", node.name, self.pool.stream(node.stream).name, uses.join(", "));
            canvas.tile(
                (LEFT + left + 3.0, y + 6.0, right - left - 6.0, LANE - 12.0),
                colour,
                (stroke, weight),
                false,
                &hint,
            );
            canvas.clipped(LEFT + left + 7.0, y + LANE / 2.0 + 4.0, right - left - 13.0, &node.name, Ink::small());
        }
    }

    fn axis(&self, canvas: &mut Canvas) {
        let mut free_from = f64::MIN;
        for (address, y) in self.bands.ticks() {
            let y = self.map_top + y;
            canvas.line((LEFT - 5.0, y), (LEFT, y), "#333333", 1.0);
            if y >= free_from {
                canvas.text(LEFT - 8.0, y + 4.0, &bytes(address - self.bands.base()), Ink::small().right());
                free_from = y + 12.0;
            }
        }
        for (y, size) in self.bands.breaks() {
            let text = format!("{} not used by these buffers", bytes(size));
            canvas.gap((LEFT, self.map_top + y, self.columns.width()), &text);
        }
    }

    fn buffers(&self, canvas: &mut Canvas) {
        let uses = self.pool.uses();
        for (id, address) in self.placement.iter() {
            let buffer = self.pool.buffer(id);
            let used = uses.of(id);
            let lasting = !matches!(buffer.lifetime, Lifetime::Transient { .. });
            let here = used.iter().map(|&(node, _)| node).filter(|node| self.columns.has(*node));
            let spans: Vec<(f64, f64)> = here.map(|node| self.columns.span(node)).collect();
            let (mut left, mut right) = (f64::MAX, f64::MIN);
            spans.iter().for_each(|&(l, r)| (left, right) = (left.min(l), right.max(r)));
            if lasting || spans.is_empty() {
                (left, right) = self.columns.extent(buffer.lifetime.graph());
            }
            let (top, bottom) = self.bands.range(address, address + buffer.size);
            let (y, height) = (self.map_top + top, bottom - top);
            let stream = used.first().map(|&(node, _)| self.pool.node(node).stream).or(buffer.stream);
            let colour = stream.map_or("#bbbbbb", |stream| self.colour(stream.index()));
            let what = format!("{} ({}, {})", buffer.name, buffer.lifetime.word(), bytes(buffer.size));
            let box_of = (LEFT + left + 1.5, y + 0.75, right - left - 3.0, height - 1.5);
            canvas.tile(box_of, colour, ("#333333", 0.8), lasting, &format!("{what} at {address:#x}"));
            self.marks(canvas, id, used, y, height);
            let label = if lasting {
                format!("{} · {} · {}", buffer.name, bytes(buffer.size), buffer.lifetime.word())
            } else {
                format!("{} · {}", buffer.name, bytes(buffer.size))
            };
            canvas.clipped(
                LEFT + left + 6.0,
                y + (height / 2.0 + 4.0).min(ROW + 2.0),
                right - left - 10.0,
                &label,
                Ink::small(),
            );
        }
    }

    /// Where a buffer is written (filled triangle at the left of the column) and read (hollow, at the right).
    fn marks(&self, canvas: &mut Canvas, id: BufferId, used: &[(NodeId, usize)], y: f64, height: f64) {
        let mut at: BTreeMap<NodeId, (bool, bool)> = BTreeMap::new();
        for &(node, access) in used.iter().filter(|(node, _)| self.columns.has(*node)) {
            let access = &self.pool.node(node).accesses[access];
            debug_assert_eq!(access.buffer, id);
            let entry = at.entry(node).or_default();
            entry.0 |= access.effect.reads();
            entry.1 |= access.effect != Effect::Read;
        }
        for (node, (reads, writes)) in at {
            let (left, right) = self.columns.span(node);
            let low = y + height - 3.0;
            if writes {
                canvas.mark(LEFT + left + 8.0, low, true);
            }
            if reads {
                canvas.mark(LEFT + right - 8.0, low, false);
            }
        }
    }

    fn conflicts(&self, canvas: &mut Canvas, conflicts: &[Conflict]) {
        for c in conflicts.iter().filter(|c| self.columns.has(c.first) && self.columns.has(c.second)) {
            let range = match &c.bytes {
                Bytes::At(range) => Some(range.clone()),
                Bytes::Of(buffer, range) => {
                    self.placement.address(*buffer).map(|start| start + range.start..start + range.end)
                }
            };
            let Some(range) = range else { continue };
            let ((a, b), (x, y)) = (self.columns.span(c.first), self.columns.span(c.second));
            let (left, right) = (a.min(x), b.max(y));
            let (top, bottom) = self.bands.range(range.start, range.end);
            let name = |node: NodeId| &self.pool.node(node).name;
            let hint = format!(
                "{} and {} use bytes {} to {} without an order",
                name(c.first),
                name(c.second),
                range.start - self.bands.base(),
                range.end - self.bands.base()
            );
            canvas
                .danger((LEFT + left + 1.5, self.map_top + top + 0.75, right - left - 3.0, bottom - top - 1.5), &hint);
            let label = format!("{} ∥ {}", name(c.first), name(c.second));
            canvas.badge(LEFT + (left + right) / 2.0, self.map_top + (top + bottom) / 2.0, &label);
        }
    }

    /// What the signs mean; the bottom of the picture.
    fn legend(&self, canvas: &mut Canvas, top: f64) -> f64 {
        canvas.line((16.0, top - 12.0), (LEFT + self.columns.width().max(720.0), top - 12.0), "#cccccc", 1.0);
        canvas.text(16.0, top + 6.0, "How to read this", Ink::plain().bold());
        let rows: [(&dyn Fn(&mut Canvas, f64), &str); 6] = [
            (
                &|c, y| c.tile((18.0, y - 10.0, 30.0, 13.0), COLOURS[0], ("#333333", 0.8), false, ""),
                "a buffer that lives within one graph, from its first use to its last; its colour is that of the stream that uses it first",
            ),
            (
                &|c, y| c.tile((18.0, y - 10.0, 30.0, 13.0), COLOURS[0], ("#333333", 0.8), true, ""),
                "a buffer with bytes of its own at all times: persistent, input, output or external",
            ),
            (
                &|c, y| {
                    c.mark(26.0, y, true);
                    c.mark(42.0, y, false);
                },
                "written here (filled), read here (hollow)",
            ),
            (
                &|c, y| c.danger((18.0, y - 10.0, 30.0, 13.0), ""),
                "two uses of these bytes that no edge orders, one of them a write: either may come first",
            ),
            (
                &|c, y| {
                    c.arrow((18.0, y - 8.0), (48.0, y - 8.0), false);
                    c.arrow((18.0, y), (48.0, y), true);
                },
                "edge: full, and (dashed) programmatic, which orders only what follows the wait",
            ),
            (
                &|c, y| c.text(18.0, y, "y axis", Ink::small()),
                "bytes from the start of the arena; every range is at least one line high, so heights of small buffers are not to scale",
            ),
        ];
        for (at, (sign, text)) in rows.iter().enumerate() {
            let y = top + 26.0 + 18.0 * at as f64;
            sign(canvas, y);
            canvas.text(60.0, y, text, Ink::plain());
        }
        top + 26.0 + 18.0 * rows.len() as f64
    }
}

/// A number of bytes for people: exact where that is short.
pub fn bytes(n: u64) -> String {
    const UNITS: [(&str, u64); 4] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    let Some((unit, size)) = UNITS.iter().find(|(_, size)| n >= *size) else {
        return format!("{n} B");
    };
    if n.is_multiple_of(*size) {
        format!("{} {unit}", n / size)
    } else {
        format!("{:.1} {unit}", n as f64 / *size as f64)
    }
}
