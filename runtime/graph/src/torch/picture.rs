//! A drawing of one finding: the two lanes around the pair, and the memory map of what they share.

use svg::Document;
use svg::node::element::{Group, Line, Rectangle, Text, Title};

use crate::finding::Code;
use crate::model::{BufferId, NodeId, StreamId};

use super::check::{Checked, Finding};

const WIDTH: f64 = 900.0;
const ROW: f64 = 34.0;
const BOX: f64 = 24.0;
const LANE: f64 = 400.0;
const MARGIN: f64 = 30.0;
/// From one line of the heading to the next.
const LINE: f64 = 17.0;
const INK: &str = "#1f2933";
const QUIET: &str = "#d9e2ec";
const ALARM: &str = "#d64545";
const FIRST: &str = "#3e7cb1";
const SECOND: &str = "#e9a23b";
/// Nodes drawn on each side of a pair's node, on its lane.
const AROUND: usize = 3;

impl Checked {
    /// Draws a finding as SVG; findings about one node show its lane only.
    pub fn picture(&self, finding: &Finding) -> String {
        let nodes: Vec<NodeId> = finding.sides.iter().filter_map(|side| side.node).collect();
        let shown = self.neighbours(&nodes);
        let lanes = lanes_of(self, &nodes);
        let heading = wrapped(&format!("{} {}", finding.code, finding.message), 110);
        let below_heading = LINE * (heading.len() as f64 - 1.0);
        let lanes_height = MARGIN * 2.0 + ROW * (shown.len() as f64 + 1.0);
        let height = below_heading + lanes_height + 170.0;
        let mut document = Document::new()
            .set("viewBox", (0.0, 0.0, WIDTH, height))
            .set("font-family", "ui-sans-serif, sans-serif")
            .set("font-size", 12)
            .set("fill", INK)
            .add(Title::new(finding.message.clone()))
            .add(Rectangle::new().set("width", WIDTH).set("height", height).set("fill", "white"));
        for (index, line) in heading.iter().enumerate() {
            document = document.add(text(MARGIN, 20.0 + LINE * index as f64, line).set("font-weight", "bold"));
        }
        let mut drawing = Group::new()
            .set("transform", format!("translate(0 {below_heading})"))
            .add(self.draw_lanes(&shown, &lanes, &nodes));
        if nodes.len() == 2 {
            let key = match finding.code {
                Code::E1 | Code::E2 => "black: what the graph orders; red: the two nodes, which nothing orders",
                _ => "black: what the graph orders; red: the two nodes",
            };
            drawing = drawing.add(text(MARGIN, lanes_height - 8.0, key).set("fill", "#52606d"));
        }
        document.add(drawing.add(self.draw_memory(finding, lanes_height))).to_string()
    }

    /// The nodes themselves and those near them on their lanes, in record order.
    fn neighbours(&self, nodes: &[NodeId]) -> Vec<NodeId> {
        let pool = &self.imported.pool;
        let mut shown = Vec::new();
        for &node in nodes {
            let (site, stream) = (pool.node(node).site, pool.node(node).stream);
            let lane: Vec<NodeId> =
                pool.node_ids().filter(|&id| pool.node(id).site == site && pool.node(id).stream == stream).collect();
            let at = lane.iter().position(|&id| id == node).unwrap_or(0);
            shown.extend(&lane[at.saturating_sub(AROUND)..(at + AROUND + 1).min(lane.len())]);
        }
        shown.sort_unstable();
        shown.dedup();
        shown
    }

    fn draw_lanes(&self, shown: &[NodeId], lanes: &[StreamId], pair: &[NodeId]) -> Group {
        let pool = &self.imported.pool;
        let column = |node: NodeId| lanes.iter().position(|&lane| lane == pool.node(node).stream).unwrap_or(0);
        let place = |rank: usize, node: NodeId| {
            (MARGIN + column(node) as f64 * (LANE + 40.0), MARGIN + ROW * (rank as f64 + 1.0))
        };
        let mut group = Group::new();
        for (index, &lane) in lanes.iter().enumerate() {
            group = group.add(
                text(MARGIN + index as f64 * (LANE + 40.0), MARGIN + 16.0, &pool.stream(lane).name)
                    .set("font-style", "italic"),
            );
        }
        let rank = |node: NodeId| shown.iter().position(|&id| id == node);
        for edge in pool.edges() {
            let (Some(from), Some(to)) = (rank(edge.from), rank(edge.to)) else { continue };
            let ((x1, y1), (x2, y2)) = (place(from, edge.from), place(to, edge.to));
            let line = Line::new()
                .set("x1", x1 + 12.0)
                .set("y1", y1 + BOX)
                .set("x2", x2 + 12.0)
                .set("y2", y2)
                .set("stroke", INK)
                .set("stroke-width", 1.2);
            group = group.add(if edge.kind == crate::model::EdgeKind::Full {
                line
            } else {
                line.set("stroke-dasharray", "4 3")
            });
        }
        if let [first, second] = *pair
            && let (Some(a), Some(b)) = (rank(first), rank(second))
        {
            let ((x1, y1), (x2, y2)) = (place(a, first), place(b, second));
            let (x1, x2) = if x1 < x2 { (x1 + LANE, x2) } else { (x1, x2 + LANE) };
            let line = Line::new().set("x1", x1).set("y1", y1 + BOX / 2.0).set("x2", x2).set("y2", y2 + BOX / 2.0);
            group = group.add(line.set("stroke", ALARM).set("stroke-width", 2).set("stroke-dasharray", "7 4"));
        }
        for (index, &node) in shown.iter().enumerate() {
            let (x, y) = place(index, node);
            let fill = match pair.iter().position(|&id| id == node) {
                Some(0) => FIRST,
                Some(_) => SECOND,
                None => QUIET,
            };
            let rectangle = Rectangle::new()
                .set("x", x)
                .set("y", y)
                .set("width", LANE)
                .set("height", BOX)
                .set("rx", 4)
                .set("fill", fill);
            group = group.add(rectangle).add(text(x + 8.0, y + 16.0, &cut(&pool.node(node).name, 52)));
        }
        group
    }

    fn draw_memory(&self, finding: &Finding, top: f64) -> Group {
        let mut buffers: Vec<BufferId> = finding.sides.iter().filter_map(|side| side.buffer).collect();
        buffers.dedup();
        let spans: Vec<_> = buffers.iter().map(|id| self.imported.buffers[id.index()].span).collect();
        let (Some(low), Some(high)) =
            (spans.iter().map(|span| span.addr).min(), spans.iter().map(|span| span.end()).max())
        else {
            return Group::new();
        };
        let scale = (WIDTH - 2.0 * MARGIN) / (high - low).max(1) as f64;
        let x = |addr: u64| MARGIN + (addr - low) as f64 * scale;
        let mut group = Group::new().add(
            text(MARGIN, top + 14.0, &format!("memory {low:#x} .. {high:#x}, {} bytes", high - low))
                .set("font-style", "italic"),
        );
        for (index, (id, span)) in buffers.iter().zip(&spans).enumerate() {
            let y = top + 26.0 + index as f64 * ROW;
            let fill = if index == 0 { FIRST } else { SECOND };
            let bar = Rectangle::new()
                .set("x", x(span.addr))
                .set("y", y)
                .set("width", (span.bytes as f64 * scale).max(2.0))
                .set("height", BOX)
                .set("fill", fill);
            let label = format!("{}, {} bytes", self.imported.pool.buffer(*id).name, span.bytes);
            group = group.add(bar).add(text(x(span.addr) + 6.0, y + 16.0, &cut(&label, 110)));
        }
        if let Some(shared) = finding.bytes.filter(|shared| low <= shared.addr && shared.end() <= high) {
            let outline = Rectangle::new()
                .set("x", x(shared.addr))
                .set("y", top + 22.0)
                .set("width", (shared.bytes as f64 * scale).max(2.0))
                .set("height", buffers.len() as f64 * ROW)
                .set("fill", "none")
                .set("stroke", ALARM)
                .set("stroke-width", 2);
            let label = format!("{} bytes in question", shared.bytes);
            group = group
                .add(outline)
                .add(text(MARGIN, top + 44.0 + buffers.len() as f64 * ROW, &label).set("fill", ALARM));
        }
        group
    }
}

fn lanes_of(checked: &Checked, nodes: &[NodeId]) -> Vec<StreamId> {
    let mut lanes: Vec<StreamId> = nodes.iter().map(|&node| checked.imported.pool.node(node).stream).collect();
    lanes.dedup();
    lanes
}

fn text(x: f64, y: f64, content: &str) -> Text {
    Text::new(content.to_owned()).set("x", x).set("y", y)
}

/// Lines of at most `longest` characters, cut between words.
fn wrapped(content: &str, longest: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in content.split(' ') {
        let line = lines.last_mut().expect("there is a line");
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= longest {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

fn cut(content: &str, longest: usize) -> String {
    if content.chars().count() <= longest {
        content.to_owned()
    } else {
        content.chars().take(longest - 1).chain(['…']).collect()
    }
}
