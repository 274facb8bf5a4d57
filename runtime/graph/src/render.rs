//! Findings as a compiler shows its errors.

mod source;

pub use source::Sources;

use crate::finding::{Bytes, Code, Finding, Harm, Report, Step, Witness, step_name};
use crate::location::Location;
use crate::model::{Basis, BufferId, NodeId, Placement, Pool, Site};
use annotate_snippets::{Group, Level, Renderer};
use source::Mark;
use std::collections::BTreeSet;

/// How to show a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// With ANSI colours.
    pub colour: bool,
}

/// The whole report as text, one finding after the other, and a closing line.
pub fn render(report: &Report, pool: &Pool, placement: &Placement, sources: &mut Sources, style: Style) -> String {
    let mut text = String::new();
    for finding in &report.findings {
        text += &render_finding(report, finding, pool, placement, sources, style);
        text += "\n\n";
    }
    text + &summary(report, pool, placement) + "\n"
}

/// What was checked and what was found, in a line.
pub fn summary(report: &Report, pool: &Pool, placement: &Placement) -> String {
    let nodes = count(pool.nodes().iter().filter(|n| n.site.graph().is_some()).count(), "node");
    let placed = placement.iter().count();
    let scope = format!(
        "{} in {}, {}, {placed} of them placed",
        nodes,
        count(pool.graphs().len(), "graph"),
        count(pool.buffers().len(), "buffer"),
    );
    if report.is_clean() {
        return format!("no findings: {scope}");
    }
    let harmful = report.findings.iter().filter(|f| matches!(f.harm, Harm::Harmful { .. })).count();
    let latent = report.findings.iter().filter(|f| f.harm == Harm::Latent).count();
    let codes: BTreeSet<Code> = report.findings.iter().map(|f| f.code).collect();
    let codes: Vec<&str> = codes.into_iter().map(Code::name).collect();
    let (found, codes) = (count(report.findings.len(), "finding"), codes.join(", "));
    format!("{found}, {codes} ({harmful} harmful, {latent} latent): {scope}")
}

fn count(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

/// One finding as text.
pub fn render_finding(
    report: &Report,
    finding: &Finding,
    pool: &Pool,
    placement: &Placement,
    sources: &mut Sources,
    style: Style,
) -> String {
    let marks = marks(finding, pool, placement);
    sources.load(marks.iter().map(|mark| &mark.location));
    let title = Level::ERROR.primary_title(finding.message.clone()).id(finding.code.name());
    let mut main = title.elements(source::snippets(sources, &marks));
    for note in notes(report, finding, pool) {
        main = main.element(Level::NOTE.message(note));
    }
    let mut groups = vec![main];
    groups.extend(finding.fixes.iter().map(|fix| {
        let what = fix.remedy.describe(pool);
        Group::with_title(Level::HELP.secondary_title(match fix.price.describe() {
            Some(price) => format!("{what} ({price})"),
            None => what,
        }))
    }));
    let renderer = if style.colour { Renderer::styled() } else { Renderer::plain() };
    renderer.render(&groups)
}

/// The places to show: the nodes first, then the buffers.
fn marks(finding: &Finding, pool: &Pool, placement: &Placement) -> Vec<Mark> {
    let mut marks: Vec<Mark> = Vec::new();
    for party in &finding.parties {
        let Some(id) = party.node else { continue };
        let node = pool.node(id);
        let mut label = format!("{} ", place_of(pool, id));
        match (&party.access, party.buffer) {
            (Some(access), Some(buffer)) => {
                let bytes = finding.bytes.as_ref().and_then(|b| b.within(pool, placement, party));
                let bytes = bytes.unwrap_or_else(|| access.range.clone());
                label += &format!(
                    "`{}` {} `{}`, bytes {}..{}",
                    node.name,
                    access.effect.verb(),
                    pool.buffer(buffer).name,
                    bytes.start,
                    bytes.end
                );
            }
            _ => label += &format!("`{}`", node.name),
        }
        marks.push(Mark { location: node.location.clone(), label, primary: true, name: node.name.clone() });
    }
    let mut buffers: Vec<BufferId> = finding.parties.iter().filter_map(|p| p.buffer).collect();
    buffers.dedup();
    for id in buffers {
        let buffer = pool.buffer(id);
        let at = placement.address(id).map(|a| format!(" at {a:#x}")).unwrap_or_default();
        let label = format!("{} `{}`, {} bytes{at}", buffer.lifetime.word(), buffer.name, buffer.size);
        marks.push(Mark { location: buffer.location.clone(), label, primary: false, name: buffer.name.clone() });
    }
    marks.retain(|mark| mark.location.is_known());
    if marks.is_empty() {
        let graph = finding.graph.map(|graph| pool.graph(graph));
        let location = graph.map(|g| g.location.clone()).filter(Location::is_known);
        marks.extend(location.map(|location| Mark {
            location,
            label: "in this graph".into(),
            primary: true,
            name: graph.map(|g| g.name.clone()).unwrap_or_default(),
        }));
    }
    marks
}

/// `on a:` or `outside the graph, on a:`
fn place_of(pool: &Pool, node: NodeId) -> String {
    let node = pool.node(node);
    let stream = &pool.stream(node.stream).name;
    match node.site {
        Site::Graph(_) => format!("on stream {stream}:"),
        Site::Before => format!("eagerly, before the first replay, on stream {stream}:"),
        Site::Between => format!("eagerly, between replays, on stream {stream}:"),
        Site::Beside => format!("eagerly, beside the replay, on stream {stream}:"),
    }
}

fn notes(report: &Report, finding: &Finding, pool: &Pool) -> Vec<String> {
    let mut notes = vec![finding.code.explain().to_string()];
    if let Some(Bytes::At(range)) = &finding.bytes {
        let bytes = range.end - range.start;
        notes.push(format!("shared: {} at {:#x}..{:#x}", count(bytes as usize, "byte"), range.start, range.end));
    }
    notes.extend(finding.notes.iter().cloned());
    if let Some(witness) = report.witness(pool, finding) {
        notes.push(format!("the graph allows this order: {}", tell(&witness, finding, pool)));
    }
    match &finding.harm {
        Harm::Harmful { buffer: Some(buffer), .. } => {
            notes.push(format!("harmful: `{}` then ends up with another value", pool.buffer(*buffer).name));
        }
        Harm::Harmful { host, .. } => {
            let host = host.map(|id| pool.node(id).name.as_str()).unwrap_or_default();
            notes.push(format!("harmful: `{host}` then reads another value, and it works outside the graph"));
        }
        Harm::Latent => {
            notes.push("latent: what is read in between changes, but no result of the graph does".to_string());
        }
        Harm::NotByOrder => {}
    }
    if !finding.also.is_empty() {
        let pairs: Vec<String> = finding.also.iter().take(4).map(|(a, b)| pair_name(pool, *a, *b)).collect();
        let more = finding.also.len() - pairs.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        notes.push(format!("the same cause leaves unordered: {}{more}", pairs.join(", ")));
    }
    match finding.basis {
        Basis::Declared => {}
        Basis::Observed => notes.push("the accesses were observed, not declared".into()),
        Basis::Rule => notes.push("the accesses follow from a rule on the kernel's name".into()),
        Basis::Assumed => notes.push("an access is assumed to read and write: nothing is known of the kernel".into()),
    }
    notes
}

fn pair_name(pool: &Pool, a: NodeId, b: NodeId) -> String {
    format!("`{}` and `{}`", pool.node(a).name, pool.node(b).name)
}

/// The witness, with what is neither of the pair left out where it is long.
fn tell(witness: &Witness, finding: &Finding, pool: &Pool) -> String {
    const SHOWN: usize = 10;
    let pair = finding.pair();
    let name = |step: &Step| {
        let stream = &pool.stream(pool.node(step.node()).stream).name;
        format!("{} [{stream}]", step_name(pool, *step))
    };
    if witness.steps.len() <= SHOWN {
        let names: Vec<String> = witness.steps.iter().map(name).collect();
        return names.join(", ");
    }
    let mut parts: Vec<String> = Vec::new();
    let mut hidden = 0;
    for step in &witness.steps {
        if !pair.is_some_and(|pair| pair.contains(&step.node())) {
            hidden += 1;
            continue;
        }
        if hidden > 0 {
            parts.push(format!("({})", count(hidden, "node")));
            hidden = 0;
        }
        parts.push(name(step));
    }
    if hidden > 0 {
        parts.push(format!("({})", count(hidden, "node")));
    }
    parts.join(", ")
}
