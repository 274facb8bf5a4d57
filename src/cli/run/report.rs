//! What a run found and left: messages and tables, or one JSON object.

use std::path::{Path, PathBuf};

use anstream::eprintln;
use comfy_table::Cell;
use lathe_emulator::{Finding, Stats};
use lathe_runtime::launch_file::{BufferAfter, Prepared};
use serde::Serialize;

use super::{Launches, message};
use crate::cli::output::println;
use crate::cli::sources::Sources;
use crate::cli::{table, traffic};

/// Everything about a run.
pub struct Report<'a> {
    pub ptx: &'a Path,
    pub target: &'a str,
    pub prepared: &'a Prepared,
    pub result: &'a Launches,
    /// Files of the buffers, in their order; none if nothing was written.
    pub saved: &'a [PathBuf],
}

#[derive(Serialize)]
struct Json<'a> {
    ptx: String,
    kernel: &'a str,
    target: &'a str,
    grid: [u32; 3],
    block: [u32; 3],
    findings: Vec<JsonFinding<'a>>,
    buffers: Vec<JsonBuffer<'a>>,
    varying: &'a [String],
    launches: u64,
    seconds: f64,
    stats: Stats,
    traffic: Vec<traffic::Line>,
}

/// A finding in the launch file's terms.
#[derive(Serialize)]
pub struct JsonFinding<'a> {
    #[serde(flatten)]
    finding: &'a Finding,
    element: Option<String>,
    help: Option<&'static str>,
}

#[derive(Serialize)]
struct JsonBuffer<'a> {
    name: &'a str,
    dtype: &'static str,
    shape: &'a [u64],
    changed: usize,
    undefined: Option<usize>,
    file: Option<String>,
}

impl<'a> JsonFinding<'a> {
    pub fn of(finding: &'a Finding, prepared: &Prepared) -> Self {
        let element = finding.address.as_ref().and_then(|address| prepared.element(address));
        JsonFinding { finding, element, help: message::help(finding) }
    }
}

impl Report<'_> {
    pub fn json(&self) {
        let Launches { first, findings, varying, seconds, launches } = self.result;
        let buffers = first.buffers.iter().enumerate().map(|(index, buffer)| JsonBuffer {
            name: &buffer.name,
            dtype: buffer.element.name(),
            shape: &buffer.shape,
            changed: buffer.changed,
            undefined: buffer.undefined(),
            file: self.saved.get(index).map(|path| path.display().to_string()),
        });
        let json = Json {
            ptx: self.ptx.display().to_string(),
            kernel: self.prepared.kernel().name(),
            target: self.target,
            grid: self.prepared.grid(),
            block: self.prepared.block(),
            findings: findings.iter().map(|finding| JsonFinding::of(finding, self.prepared)).collect(),
            buffers: buffers.collect(),
            varying,
            launches: *launches,
            seconds: *seconds,
            stats: first.report.stats,
            traffic: self.traffic(),
        };
        println!("{}", serde_json::to_string_pretty(&json).expect("plain data"));
    }

    /// Traffic by the author's line, or by that of the PTX.
    fn traffic(&self) -> Vec<traffic::Line> {
        let mut lines = Vec::new();
        let of = |access: &lathe_emulator::Traffic| {
            let place = match message::author(&access.sources) {
                Some(at) => format!("{}:{}", at.file, at.line),
                None => format!("{}:{}", self.ptx.display(), access.ptx_line),
            };
            traffic::Line { place, opcode: access.opcode.clone(), counts: access.counts }
        };
        traffic::merge(&mut lines, self.result.first.report.traffic.iter().map(of));
        lines
    }

    pub fn messages(&self, sources: &Sources) {
        for finding in &self.result.findings {
            eprintln!("{}\n", message::of_finding(finding, self.prepared, self.ptx).render(sources));
        }
        if !self.result.varying.is_empty() {
            eprintln!(
                "\x1b[1;33mwarning\x1b[0m: the bytes of {} depend on the order of the warps\n",
                self.result.varying.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
            );
        }
    }

    pub fn tables(&self, stats: bool) {
        if !self.result.first.buffers.is_empty() {
            println!("{}\n", self.buffers());
        }
        if stats {
            println!("{}\n{}\n", traffic::table(&self.traffic()), traffic::LEGEND);
        }
        self.summary();
    }

    fn buffers(&self) -> comfy_table::Table {
        let mut table = table::table(&["buffer", "elements", "changed", "undefined", "least", "most", "nan", "file"]);
        for (index, buffer) in self.result.first.buffers.iter().enumerate() {
            let [least, most, nan] = range(buffer);
            let undefined = buffer.undefined().unwrap_or_default().to_string();
            let file = self.saved.get(index).map(|path| path.display().to_string()).unwrap_or_default();
            let row = [title(buffer), elements(buffer), buffer.changed.to_string(), undefined, least, most, nan, file];
            table.add_row(row.map(Cell::new));
        }
        table
    }

    fn summary(&self) {
        let Launches { first, findings, seconds, launches, .. } = self.result;
        let (word, colour) = if findings.is_empty() { ("silent", "\x1b[1;32m") } else { ("FAULTY", "\x1b[1;31m") };
        let [x, y, z] = self.prepared.grid();
        println!(
            "{colour}{word}\x1b[0m: `{}` ({}), findings: {}, launches: {} of {x}x{y}x{z} CTAs, {} lane-instructions each, in {seconds:.2} s",
            self.prepared.kernel().name(),
            self.target,
            findings.len(),
            launches,
            first.report.stats.lane_instructions,
        );
    }
}

/// A buffer as the first column of a table names it.
pub fn title(buffer: &BufferAfter) -> String {
    format!("{} {}{:?}", buffer.name, buffer.element, buffer.shape)
}

/// How many elements it has.
pub fn elements(buffer: &BufferAfter) -> String {
    (buffer.bytes.len() / buffer.element.size()).to_string()
}

/// Least and largest number of a floating buffer, and how many are NaN.
pub fn range(buffer: &BufferAfter) -> [String; 3] {
    match buffer.range() {
        Some((range, nans)) => [format!("{:.5}", range.start), format!("{:.5}", range.end), nans.to_string()],
        None => Default::default(),
    }
}
