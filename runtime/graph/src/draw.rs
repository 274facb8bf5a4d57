//! A memory map as SVG: who lives on which bytes, and when.
//!
//! Above, the nodes of each graph: one lane a stream, one column a happens-before level, edges between them. Below, on the
//! same columns, the buffers on the bytes they got, each from its first use to its last, in the colour of the stream
//! that uses it first. Two uses of the same bytes that nothing orders are joined by a red band, however far apart their
//! columns are: columns are one possible timing, and the red bands say where it is not the only one.

mod canvas;
mod layout;

use crate::finding::{Bytes, Finding, Harm, Report};
use crate::model::{BufferId, EdgeKind, Effect, Lifetime, NodeId, Placement, Pool, Release};
use crate::render::summary;
use canvas::{Area, Canvas, Ink};
use layout::{Bands, Columns};
use std::collections::BTreeMap;

/// Colours of streams: distinct for the colour-blind too, and none of them red.
const COLOURS: [&str; 8] = ["#4477aa", "#228833", "#ccbb44", "#66ccee", "#aa7744", "#8855aa", "#009988", "#888888"];
const RED: &str = "#d00020";
const LEFT: f64 = 96.0;
const LANE: f64 = 34.0;
const ROW: f64 = 13.0;

/// Draws the placed buffers of `pool`. `report` is the check of that placement; `title` heads the picture.
pub fn memory_map(pool: &Pool, report: &Report, placement: &Placement, title: &str) -> String {
    let columns = Columns::new(pool, &report.order);
    let lanes = columns.lanes();
    let bands = Bands::new(pool, placement);
    let width = (LEFT + columns.width() + 40.0).max(860.0);
    let mut canvas = Canvas::new();
    let top = heading(&mut canvas, width - 32.0, pool, report, placement, title) + 14.0;
    let map_top = top + LANE * lanes.len() as f64 + 46.0;
    let drawing = Drawing { pool, placement, columns, lanes, bands, top, map_top };
    drawing.grid(&mut canvas);
    drawing.nodes(&mut canvas, &report.findings);
    drawing.axis(&mut canvas);
    let tiles = drawing.buffers(&mut canvas);
    let badges: Vec<(f64, f64, String)> =
        report.findings.iter().filter_map(|finding| drawing.danger(&mut canvas, finding)).collect();
    tiles.iter().for_each(|tile| drawing.label(&mut canvas, tile));
    badges.iter().for_each(|(x, y, text)| canvas.badge(*x, *y, text));
    let bottom = drawing.legend(&mut canvas, map_top + drawing.bands.height() + 34.0);
    canvas.finish(width, bottom)
}

/// How many findings are told in words.
const TOLD: usize = 4;

/// Title, size, and what is wrong; the bottom of it all.
fn heading(canvas: &mut Canvas, width: f64, pool: &Pool, report: &Report, placement: &Placement, title: &str) -> f64 {
    let mut y = 26.0;
    y = canvas.paragraph(16.0, y, width, title, Ink::heading());
    y = canvas.paragraph(16.0, y, width, &summary(report, pool, placement), Ink::plain());
    for finding in report.findings.iter().take(TOLD) {
        let line = format!("{}: {}", finding.code, finding.message);
        y = canvas.paragraph(16.0, y, width, &line, Ink::plain().fill(RED).bold());
    }
    if report.findings.len() > TOLD {
        let more = format!("and {} more", report.findings.len() - TOLD);
        y = canvas.paragraph(16.0, y, width, &more, Ink::plain().fill(RED).bold());
    }
    y
}

/// A buffer as it is drawn.
struct Tile {
    buffer: BufferId,
    area: Area,
}

struct Drawing<'a> {
    pool: &'a Pool,
    placement: &'a Placement,
    columns: Columns,
    /// Stream and row within it of each lane, top to bottom.
    lanes: Vec<layout::Lane>,
    bands: Bands,
    top: f64,
    map_top: f64,
}

/// Draws a sign of the legend at a height.
type Sign<'a> = &'a dyn Fn(&mut Canvas, f64);

impl Drawing<'_> {
    fn colour(&self, stream: usize) -> &'static str {
        COLOURS[stream % COLOURS.len()]
    }

    fn lane_y(&self, node: NodeId) -> f64 {
        let lane = self.columns.lane_of(node);
        let at = self.lanes.iter().position(|l| *l == lane).unwrap_or(0);
        self.top + LANE * at as f64
    }

    /// The height at which edges meet a node.
    fn middle(&self, node: NodeId) -> f64 {
        self.lane_y(node) + LANE / 2.0
    }

    fn grid(&self, canvas: &mut Canvas) {
        let bottom = self.map_top + self.bands.height();
        for (x, is_edge) in self.columns.lines() {
            let colour = if is_edge { "#999999" } else { "#eeeeee" };
            canvas.line((LEFT + x, self.top), (LEFT + x, bottom), colour, 1.0);
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

    fn nodes(&self, canvas: &mut Canvas, findings: &[Finding]) {
        for (at, lane) in self.lanes.iter().enumerate() {
            if at == 0 || self.lanes[at - 1].stream != lane.stream {
                let name = &self.pool.streams()[lane.stream].name;
                let y = self.top + LANE * at as f64 + LANE / 2.0 + 4.0;
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
            let hot = findings.iter().any(|f| f.parties.iter().any(|party| party.node == Some(id)));
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

    /// The boxes of all buffers; those that lie on an earlier one at the same time are drawn a little smaller.
    fn buffers(&self, canvas: &mut Canvas) -> Vec<Tile> {
        let uses = self.pool.uses();
        let mut tiles: Vec<Tile> = Vec::new();
        for (id, address) in self.placement.iter() {
            let buffer = self.pool.buffer(id);
            let used = uses.of(id);
            let lasting = !matches!(buffer.lifetime, Lifetime::Transient { .. });
            let here = used.iter().map(|&(node, _)| node).filter(|node| self.columns.has(*node));
            let spans: Vec<(f64, f64)> = here.map(|node| self.columns.span(node)).collect();
            let (mut left, mut right) = (f64::MAX, f64::MIN);
            spans.iter().for_each(|&(l, r)| (left, right) = (left.min(l), right.max(r)));
            let released = matches!(buffer.lifetime, Lifetime::Output { release: Release::BeforeNextReplay, .. });
            if released {
                right = self.columns.extent(buffer.lifetime.graph()).1;
            } else if lasting || spans.is_empty() {
                (left, right) = (0.0, self.columns.width());
            }
            let (top, bottom) = self.bands.range(address, address + buffer.size);
            let area = (LEFT + left + 1.5, self.map_top + top + 0.75, right - left - 3.0, bottom - top - 1.5);
            let below = tiles.iter().filter(|tile| meet(tile.area, area)).count();
            let inset = (5.0 * below as f64).min(area.3 / 4.0).min(area.2 / 4.0);
            let area = (area.0 + inset, area.1 + inset, area.2 - 2.0 * inset, area.3 - 2.0 * inset);
            let stream = used.first().map(|&(node, _)| self.pool.node(node).stream).or(buffer.stream);
            let colour = stream.map_or("#bbbbbb", |stream| self.colour(stream.index()));
            let what = format!("{} ({}, {}) at {address:#x}", buffer.name, buffer.lifetime.word(), bytes(buffer.size));
            canvas.tile(area, colour, ("#333333", 0.8), lasting, &what);
            self.marks(canvas, id, used, area);
            tiles.push(Tile { buffer: id, area });
        }
        tiles
    }

    fn label(&self, canvas: &mut Canvas, tile: &Tile) {
        let buffer = self.pool.buffer(tile.buffer);
        let mut label = format!("{} · {}", buffer.name, bytes(buffer.size));
        if !matches!(buffer.lifetime, Lifetime::Transient { .. }) {
            label += &format!(" · {}", buffer.lifetime.word());
        }
        let (x, y, width, height) = tile.area;
        // In a box of one line the label stands beside the first mark, not on it.
        let inset = if height < 24.0 { 15.0 } else { 5.0 };
        canvas.clipped(x + inset, y + (height / 2.0 + 4.0).min(ROW + 1.0), width - inset - 3.0, &label, Ink::small());
    }

    /// Where a buffer is written (filled triangle at the left of the column) and read (hollow, at the right).
    fn marks(&self, canvas: &mut Canvas, id: BufferId, used: &[(NodeId, usize)], area: Area) {
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
            let low = area.1 + area.3 - 2.0;
            if writes {
                canvas.mark(LEFT + left + 8.0, low, true);
            }
            if reads {
                canvas.mark(LEFT + right - 8.0, low, false);
            }
        }
    }

    /// The bytes of a finding, from the first column of who is involved to the last; where its label goes.
    fn danger(&self, canvas: &mut Canvas, finding: &Finding) -> Option<(f64, f64, String)> {
        let range = match finding.bytes.clone()? {
            Bytes::At(range) => range,
            Bytes::Of(buffer, range) => {
                let start = self.placement.address(buffer)?;
                start + range.start..start + range.end
            }
        };
        let nodes: Vec<NodeId> =
            finding.parties.iter().filter_map(|p| p.node).filter(|id| self.columns.has(*id)).collect();
        let spans = nodes.iter().map(|&id| self.columns.span(id));
        let (left, right) = spans.reduce(|(a, b), (l, r)| (a.min(l), b.max(r)))?;
        let (top, bottom) = self.bands.range(range.start, range.end);
        let area = (LEFT + left + 1.5, self.map_top + top + 0.75, right - left - 3.0, bottom - top - 1.5);
        canvas.danger(area, &format!("{}: {}", finding.code, finding.message));
        let names: Vec<&str> = nodes.iter().map(|&id| self.pool.node(id).name.as_str()).collect();
        // Two nodes in one order or the other, or one after the other.
        let sign = if finding.harm == Harm::NotByOrder { " → " } else { " ∥ " };
        let label = format!("{} {}", finding.code, names.join(sign));
        Some((LEFT + (left + right) / 2.0, self.map_top + (top + bottom) / 2.0, label))
    }

    /// What the signs mean; the bottom of the picture.
    fn legend(&self, canvas: &mut Canvas, top: f64) -> f64 {
        canvas.line((16.0, top - 12.0), (LEFT + self.columns.width().max(720.0), top - 12.0), "#cccccc", 1.0);
        canvas.text(16.0, top + 6.0, "How to read this", Ink::plain().bold());
        let rows: [(Sign, &str); 6] = [
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
                "a finding: X ∥ Y use these bytes and no edge orders them, so either may come first; X → Y: wrong in any order",
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

fn meet(a: Area, b: Area) -> bool {
    a.0 < b.0 + b.2 && b.0 < a.0 + a.2 && a.1 < b.1 + b.3 && b.1 < a.1 + a.3
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
