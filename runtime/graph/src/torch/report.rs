//! The report as text, compiler-like, and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write;

use annotate_snippets::{Annotation, AnnotationKind, Group, Level, Renderer, Snippet};
use serde::Serialize;

use crate::model::{BufferId, NodeId};

use super::advice::advice;
use super::check::{Checked, Finding, Side};
use super::coverage::Coverage;
use super::dump::{Frame, FrameId};
use super::evidence::Certainty;
use super::rules::Use;

/// Nodes shown on each side of a pair in the lane drawing.
const AROUND: usize = 2;
/// Lines apart at which two places of a file are shown in one snippet.
const FOLDED: u32 = 2_000;
/// Steps of a witness shown before it is cut.
const STEPS: usize = 12;

impl Checked {
    /// The whole report: findings, coverage, a closing line.
    pub fn text(&self, colour: bool) -> String {
        let mut text = String::new();
        for finding in &self.findings {
            text += &self.finding_text(finding, colour);
            text += "\n\n";
        }
        let _ = writeln!(text, "{}\n{}", self.imported.coverage, self.summary());
        text
    }

    /// What was found, in a line.
    pub fn summary(&self) -> String {
        let graphs = self.imported.dump.graphs.len();
        let nodes = self.imported.nodes.len();
        let scope = format!("{nodes} nodes in {graphs} {}", if graphs == 1 { "graph" } else { "graphs" });
        if self.findings.is_empty() {
            return format!("no findings: {scope}");
        }
        let of = |certainty| self.findings.iter().filter(|finding| finding.certainty == certainty).count();
        let (certain, ruled, assumed) = (of(Certainty::Certain), of(Certainty::Ruled), of(Certainty::Assumed));
        let count = self.findings.len();
        format!(
            "{count} {} ({certain} certain, {ruled} by rule, {assumed} assumed): {scope}",
            if count == 1 { "finding" } else { "findings" }
        )
    }

    /// The surest finding, if there is one.
    pub fn surest(&self) -> Option<Certainty> {
        self.findings.iter().map(|finding| finding.certainty).max()
    }

    fn finding_text(&self, finding: &Finding, colour: bool) -> String {
        let title = format!("{} [{}]", finding.message, self.standing(finding));
        let (placed, unplaced): (Vec<_>, Vec<_>) =
            self.places(finding).into_iter().partition(|place| place.frame.is_some_and(|frame| !frame.text.is_empty()));
        let unplaced = unplaced.into_iter().map(|place| match place.frame {
            Some(frame) => format!("{}, at {}:{}", place.label, frame.function, frame.line),
            None => place.label,
        });
        let mut main = Level::ERROR.primary_title(title).id(finding.code.name()).elements(snippets(&placed));
        for note in unplaced.chain(self.notes(finding)) {
            main = main.element(Level::NOTE.message(note));
        }
        let mut groups = vec![main];
        for fix in &finding.fixes {
            groups.push(Group::with_title(Level::HELP.secondary_title(advice(&self.imported, fix))));
        }
        let renderer = if colour { Renderer::styled() } else { Renderer::plain() };
        renderer.render(&groups)
    }

    /// `by rule, changes an output`.
    fn standing(&self, finding: &Finding) -> String {
        match finding.harmful {
            Some(true) => format!("{}, harmful", finding.certainty),
            Some(false) => format!("{}, latent", finding.certainty),
            None => finding.certainty.to_string(),
        }
    }

    fn frame(&self, at: Option<FrameId>) -> Option<&Frame> {
        at.map(|at| &self.imported.dump.frames[at])
    }

    /// Lines to show: both nodes, then where each buffer was allocated and dropped.
    fn places(&self, finding: &Finding) -> Vec<Place<'_>> {
        let mut places = Vec::new();
        for side in &finding.sides {
            let Some(node) = side.node else { continue };
            places.push(Place {
                primary: true,
                frame: self.frame(self.imported.nodes[node.index()].at),
                label: self.part(side, node),
            });
        }
        let mut shown: Vec<BufferId> = Vec::new();
        for id in finding.sides.iter().filter_map(|side| side.buffer) {
            if shown.contains(&id) {
                continue;
            }
            shown.push(id);
            let allocation = &self.imported.buffers[id.index()];
            let name = &self.imported.pool.buffer(id).name;
            let bytes = format!("{} bytes at {:#x}", allocation.span.bytes, allocation.span.addr);
            if allocation.at.is_some() {
                let label = format!("`{name}` is allocated here, {bytes}");
                places.push(Place { primary: false, frame: self.frame(allocation.at), label });
            }
            if allocation.dropped_at.is_some() {
                let label = format!("`{name}` is dropped here");
                places.push(Place { primary: false, frame: self.frame(allocation.dropped_at), label });
            }
        }
        places
    }

    /// `on side: node 10 elementwise_kernel<MulFunctor> reads `w` (by rule ...)`.
    fn part(&self, side: &Side, node: NodeId) -> String {
        let info = &self.imported.nodes[node.index()];
        let lane = &self.imported.pool.stream(self.imported.pool.node(node).stream).name;
        let mut text = format!("on {lane}: node {} {}", info.label, info.name);
        if let (Some(buffer), Some(use_)) = (side.buffer, side.use_) {
            let _ = write!(text, " {} `{}`", verb(use_), self.imported.pool.buffer(buffer).name);
        }
        if let Some(evidence) = &side.evidence {
            let _ = write!(text, " ({evidence})");
        }
        text
    }

    fn notes(&self, finding: &Finding) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some(span) = finding.bytes {
            notes.push(format!("they meet on {} bytes, {:#x}..{:#x}", span.bytes, span.addr, span.end()));
        }
        notes.extend(finding.notes.iter().cloned());
        if let Some((first, second)) = finding.pair().filter(|_| !finding.witness.is_empty()) {
            notes.push(format!("nothing orders them:\n{}", self.lanes(first, second)));
            notes.push(format!("the graph allows this order: {}", self.witness(&finding.witness, second)));
        }
        for &(first, second) in finding.also.iter().take(4) {
            notes.push(format!(
                "the same cause leaves nodes {} and {} unordered",
                self.label(first),
                self.label(second)
            ));
        }
        if let Some(settle) = &finding.settle {
            notes.push(format!("one fact would settle it: {settle}"));
        }
        notes
    }

    fn label(&self, node: NodeId) -> &str {
        &self.imported.nodes[node.index()].label
    }

    /// The two lanes around a pair, earlier nodes above.
    fn lanes(&self, first: NodeId, second: NodeId) -> String {
        let pool = &self.imported.pool;
        let lane = |node: NodeId| pool.node(node).stream;
        let (left, right) = (lane(first), lane(second));
        let site = pool.node(first).site;
        let near = |around: NodeId| move |&(rank, _): &(usize, NodeId)| rank.abs_diff(around.index()) <= AROUND;
        let on =
            |stream| pool.node_ids().filter(move |&id| pool.node(id).site == site && pool.node(id).stream == stream);
        let rank_of = |stream, node: NodeId| on(stream).position(|id| id == node).unwrap_or(0);
        let mut shown: Vec<NodeId> = Vec::new();
        for (stream, node) in [(left, first), (right, second)] {
            let rank = rank_of(stream, node);
            shown.extend(on(stream).enumerate().filter(|entry| near(NodeId(rank as u32))(entry)).map(|(_, id)| id));
        }
        shown.sort_unstable();
        shown.dedup();
        let width = shown
            .iter()
            .filter(|&&id| lane(id) == left)
            .map(|id| pool.node(*id).name.chars().count() + 2)
            .max()
            .unwrap_or(0);
        let width = width.max(pool.stream(left).name.chars().count()).min(60);
        let mut text = format!(
            "{:width$} | {}",
            pool.stream(left).name,
            if left == right { "" } else { &pool.stream(right).name }
        );
        for id in shown {
            let mark = if id == first || id == second { "> " } else { "  " };
            let cell = format!("{mark}{}", pool.node(id).name);
            let _ = if lane(id) == left {
                write!(text, "\n{cell:width$} |")
            } else {
                write!(text, "\n{:width$} | {cell}", "")
            };
        }
        text
    }

    fn witness(&self, steps: &[NodeId], second: NodeId) -> String {
        let at = steps.iter().position(|&node| node == second).unwrap_or(0);
        let from = at.saturating_sub(STEPS / 2);
        let to = (from + STEPS).min(steps.len());
        let mut labels: Vec<String> = steps[from..to]
            .iter()
            .map(|&node| if node == second { format!("[{}]", self.label(node)) } else { self.label(node).to_owned() })
            .collect();
        if from > 0 {
            labels.insert(0, "...".into());
        }
        if to < steps.len() {
            labels.push("...".into());
        }
        labels.join(" ")
    }

    /// The report for programs.
    pub fn view(&self) -> View<'_> {
        let findings = self.findings.iter().map(|finding| self.finding_view(finding)).collect();
        View {
            file: self.imported.dump.path.display().to_string(),
            summary: self.summary(),
            findings,
            coverage: &self.imported.coverage,
        }
    }

    fn finding_view(&self, finding: &Finding) -> FindingView<'_> {
        let labels = |nodes: &[NodeId]| nodes.iter().map(|&node| self.label(node).to_owned()).collect();
        let bytes = |span: super::dump::Span| BytesView { addr: format!("{:#x}", span.addr), bytes: span.bytes };
        let frame = |at: Option<FrameId>| self.frame(at).map(ToString::to_string);
        let graph = finding.sides.iter().find_map(|side| side.node).map(|node| self.imported.nodes[node.index()].graph);
        FindingView {
            code: finding.code.name(),
            message: finding.message.clone(),
            graph: graph.map(|graph| self.imported.dump.graphs[graph].name.as_str()),
            certainty: finding.certainty.to_string(),
            settle: finding.settle.clone(),
            harmful: finding.harmful,
            bytes: finding.bytes.map(bytes),
            sides: finding
                .sides
                .iter()
                .map(|side| SideView {
                    node: side.node.map(|node| self.label(node).to_owned()),
                    kernel: side.node.map(|node| self.imported.nodes[node.index()].full.as_str()),
                    operator: side.node.and_then(|node| self.imported.nodes[node.index()].op.as_deref()),
                    stream: side
                        .node
                        .map(|node| self.imported.pool.stream(self.imported.pool.node(node).stream).name.as_str()),
                    line: side.node.and_then(|node| frame(self.imported.nodes[node.index()].at)),
                    tensor: side.buffer.map(|id| self.imported.pool.buffer(id).name.as_str()),
                    bytes: side.buffer.map(|id| bytes(self.imported.buffers[id.index()].span)),
                    allocated: side.buffer.and_then(|id| frame(self.imported.buffers[id.index()].at)),
                    dropped: side.buffer.and_then(|id| frame(self.imported.buffers[id.index()].dropped_at)),
                    does: side.use_.map(verb),
                    evidence: side.evidence.as_ref().map(ToString::to_string),
                })
                .collect(),
            also: finding.also.iter().map(|&(a, b)| labels(&[a, b])).collect(),
            witness: labels(&finding.witness),
            fixes: finding
                .fixes
                .iter()
                .map(|fix| FixView {
                    kind: fix.remedy.word(),
                    what: advice(&self.imported, fix),
                    bytes: fix.price.bytes,
                    critical_path: fix.price.critical_path,
                })
                .collect(),
            notes: finding.notes.clone(),
        }
    }
}

/// A line of the user's Python and what to say about it.
struct Place<'a> {
    primary: bool,
    frame: Option<&'a Frame>,
    label: String,
}

/// One snippet a file, made of the lines that the dump carries; lines in between are blank and folded away.
fn snippets<'a>(places: &[Place<'a>]) -> Vec<Snippet<'a, Annotation<'a>>> {
    let mut files: BTreeMap<&str, Vec<(&Frame, &Place<'a>)>> = BTreeMap::new();
    for place in places {
        if let Some(frame) = place.frame {
            files.entry(&frame.file).or_default().push((frame, place));
        }
    }
    let mut snippets = Vec::new();
    for (file, mut marks) in files {
        marks.sort_by_key(|(frame, _)| frame.line);
        for near in marks.chunk_by(|a, b| b.0.line - a.0.line <= FOLDED) {
            let first = near[0].0.line;
            let mut text = String::new();
            let mut annotations = Vec::new();
            let (mut line, mut start) = (first, 0);
            for (index, (frame, place)) in near.iter().enumerate() {
                if index == 0 || frame.line > line {
                    text.extend(std::iter::repeat_n('\n', (frame.line - line) as usize));
                    (line, start) = (frame.line, text.len());
                    text += &frame.text;
                }
                let kind = if place.primary { AnnotationKind::Primary } else { AnnotationKind::Context };
                annotations.push(kind.span(start..start + frame.text.len()).label(place.label.clone()));
            }
            snippets.push(
                Snippet::source(text).line_start(first.max(1) as usize).path(file.to_owned()).annotations(annotations),
            );
        }
    }
    snippets
}

fn verb(use_: Use) -> &'static str {
    match use_ {
        Use::Read => "reads",
        Use::Write => "writes",
        Use::WritePart => "writes part of",
        Use::ReadWrite => "reads and writes",
        Use::None => "carries",
    }
}

/// A report for programs; documented in `docs/check-your-captured-graph.md`.
#[derive(Serialize)]
pub struct View<'a> {
    file: String,
    summary: String,
    findings: Vec<FindingView<'a>>,
    coverage: &'a Coverage,
}

#[derive(Serialize)]
struct FindingView<'a> {
    code: &'static str,
    message: String,
    graph: Option<&'a str>,
    certainty: String,
    settle: Option<String>,
    harmful: Option<bool>,
    bytes: Option<BytesView>,
    sides: Vec<SideView<'a>>,
    also: Vec<Vec<String>>,
    witness: Vec<String>,
    fixes: Vec<FixView>,
    notes: Vec<String>,
}

#[derive(Serialize)]
struct BytesView {
    addr: String,
    bytes: u64,
}

#[derive(Serialize)]
struct SideView<'a> {
    node: Option<String>,
    kernel: Option<&'a str>,
    operator: Option<&'a str>,
    stream: Option<&'a str>,
    line: Option<String>,
    tensor: Option<&'a str>,
    bytes: Option<BytesView>,
    allocated: Option<String>,
    dropped: Option<String>,
    does: Option<&'static str>,
    evidence: Option<String>,
}

#[derive(Serialize)]
struct FixView {
    kind: &'static str,
    what: String,
    bytes: Option<u64>,
    critical_path: Option<u64>,
}
