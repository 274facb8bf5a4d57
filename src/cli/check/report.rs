//! The result of a check: messages, a table, a summary; or one JSON object.

use std::time::Duration;

use anstream::eprintln;
use comfy_table::{Cell, Color};
use serde::Serialize;

use super::agree::Agreement;
use super::row::{Failure, Row, Time};
use crate::cli::diagnostic::Diagnostic;
use crate::cli::output::println;
use crate::cli::sources::Sources;
use crate::cli::table;
use crate::cli::traffic::{LEGEND, Line, table as table_of_traffic};
use lathe_runtime::backend::Finding;

/// How many failed cases of a row are shown.
const SHOWN: usize = 3;
/// How many lines of a failed case are shown.
const LINES: usize = 8;

/// Every message once, however many targets, variants and cases it was met in.
pub fn diagnostics(rows: &[Row], sources: &Sources) {
    let mut findings: Vec<(&Finding, Vec<String>)> = Vec::new();
    let mut errors: Vec<(&Diagnostic, Vec<String>)> = Vec::new();
    let mut failures: Vec<(&Row, &[Failure], Vec<String>)> = Vec::new();
    for row in rows {
        for finding in &row.outcome.findings {
            match findings.iter_mut().find(|(known, _)| known.same_cause(finding)) {
                Some((_, met)) => met.push(place(row)),
                None => findings.push((finding, vec![place(row)])),
            }
        }
        for error in &row.errors {
            match errors.iter_mut().find(|(known, _)| *known == error) {
                Some((_, met)) => met.push(place(row)),
                None => errors.push((error, vec![place(row)])),
            }
        }
        let wrong = &row.outcome.failures[..];
        match failures.iter_mut().find(|(known, same, _)| known.kernel == row.kernel && *same == wrong) {
            _ if wrong.is_empty() => {}
            Some((_, _, met)) => met.push(place(row)),
            None => failures.push((row, wrong, vec![place(row)])),
        }
    }

    for (error, met) in errors {
        show(error.clone(), &met, sources);
    }
    for (finding, met) in findings {
        show(Diagnostic::of_finding(finding), &met, sources);
    }
    for (row, wrong, met) in failures {
        wrong_results(row, wrong, &met);
    }
}

/// Where a message was met, in the row's terms.
fn place(row: &Row) -> String {
    format!("{} {}", row.label, row.target).trim_start().to_owned()
}

fn show(mut message: Diagnostic, met: &[String], sources: &Sources) {
    message.notes.push(format!("for {}", met.join(", ")));
    eprintln!("{}\n", message.render(sources));
}

fn wrong_results(row: &Row, failures: &[Failure], met: &[String]) {
    let (kernel, met) = (&row.kernel, met.join(", "));
    for failure in failures.iter().take(SHOWN) {
        eprintln!("\x1b[1;91merror\x1b[0m\x1b[1m: `{kernel}` fails case `{}`, for {met}\x1b[0m", failure.case);
        for what in failure.what.iter().take(LINES) {
            eprintln!("  {what}");
        }
        let more = failure.what.len().saturating_sub(LINES);
        if more > 0 {
            eprintln!("  and {more} more; `--json` has them all");
        }
        eprintln!();
    }
    let more = failures.len().saturating_sub(SHOWN);
    if more > 0 {
        eprintln!("  and {more} more cases of `{kernel}`, for {met}; `--json` has them all\n");
    }
}

/// One line for each row.
pub fn table(rows: &[Row]) {
    let columns =
        ["kernel", "target", "compile", "registers", "spills", "shared", "cases", "worst row", "findings", ""];
    let mut table = table::table(&columns);
    for row in rows {
        let (mark, colour) = if row.passed() { ("ok", Color::Green) } else { ("FAILED", Color::Red) };
        let mut cells = vec![format!("{} {}", row.kernel, row.label).trim_end().to_owned(), row.target.to_string()];
        match &row.built {
            Some(built) => cells.extend([
                format!("{:.0} ms{}", built.compile_ms, if built.cached { ", cached" } else { "" }),
                built.resources.registers.to_string(),
                format!("{} B", built.resources.spills()),
                format!("{} B", built.shared_bytes),
            ]),
            None => cells.extend(["-"; 4].map(str::to_owned)),
        }
        cells.push(format!("{}/{}", row.outcome.passed, row.outcome.cases));
        cells.push(format!("{:.1e}", row.outcome.worst_row_diff));
        cells.push(row.outcome.findings.len().to_string());
        let cells = cells.into_iter().map(Cell::new).chain([Cell::new(mark).fg(colour)]);
        table.add_row(cells);
    }
    println!("{table}");
}

/// How the rows' results compare with the emulator's, where that was asked for.
pub fn agreements(rows: &[Row]) {
    for (row, agreement) in rows.iter().filter_map(|row| Some((row, row.outcome.agreement.as_ref()?))) {
        let mut line = format!(
            "{} {} against the emulator: {} of {} cases equal bit for bit",
            row.kernel,
            place(row),
            agreement.identical,
            agreement.cases
        );
        if agreement.largest() > 0.0 {
            line += &format!(", numbers apart by at most {:.1e}", agreement.largest());
        }
        if agreement.incomparable() > 0 {
            line += &format!(", other integers or bytes in {}", agreement.incomparable());
        }
        if !agreement.too_large.is_empty() {
            line += &format!("; {} not run, too large for the device", agreement.too_large.len());
        }
        println!("{line}");
    }
}

/// What each access costs, row by row, where that was counted; rows that ran the same PTX share a table.
pub fn traffic(rows: &[Row]) {
    let mut shown: Vec<(&Row, Vec<String>)> = Vec::new();
    for row in rows.iter().filter(|row| !row.outcome.traffic.is_empty()) {
        let same = |known: &Row| known.kernel == row.kernel && known.outcome.traffic == row.outcome.traffic;
        match shown.iter_mut().find(|(known, _)| same(known)) {
            Some((_, met)) => met.push(place(row)),
            None => shown.push((row, vec![place(row)])),
        }
    }
    for (row, met) in &shown {
        println!("\n\x1b[1m{}\x1b[0m, {}", row.kernel, met.join(", "));
        println!("{}", table_of_traffic(&row.outcome.traffic));
    }
    if !shown.is_empty() {
        println!("\n{LEGEND}");
    }
}

pub fn summary(rows: &[Row], elapsed: Duration, nvrtc: (u32, u32)) {
    let cases: usize = rows.iter().map(|row| row.outcome.cases).sum();
    let passed: usize = rows.iter().map(|row| row.outcome.passed).sum();
    let failed = rows.iter().filter(|row| !row.passed()).count();
    let backend = rows.first().map_or("", |row| row.backend);
    let too_large: usize = rows.iter().map(|row| row.outcome.too_large.len()).sum();
    let left_out =
        if too_large > 0 { format!("; {too_large} not run, too large for the device") } else { String::new() };
    let (word, colour) = if failed == 0 { ("passed", "\x1b[1;32m") } else { ("FAILED", "\x1b[1;31m") };
    println!(
        "\n{colour}{word}\x1b[0m: {passed} of {cases} cases, {} of {} rows, in {:.1} s ({backend}, NVRTC {}.{}){left_out}",
        rows.len() - failed,
        rows.len(),
        elapsed.as_secs_f64(),
        nvrtc.0,
        nvrtc.1
    );
}

#[derive(Serialize)]
struct Json<'a> {
    kernels: Vec<JsonRow<'a>>,
}

#[derive(Serialize)]
struct JsonRow<'a> {
    kernel: &'a str,
    variant: &'a str,
    target: &'static str,
    backend: &'static str,
    compile_ms: Option<f64>,
    regs: Option<u32>,
    spill_bytes: Option<u32>,
    smem_bytes: Option<u32>,
    cases: usize,
    passed: usize,
    worst_row_diff: f64,
    findings: &'a [Finding],
    failures: &'a [Failure],
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    too_large: &'a [String],
    errors: Vec<&'a str>,
    #[serde(skip_serializing_if = "<[Time]>::is_empty")]
    times: &'a [Time],
    #[serde(skip_serializing_if = "<[Line]>::is_empty")]
    traffic: &'a [Line],
    #[serde(skip_serializing_if = "Option::is_none")]
    against_emulator: Option<&'a Agreement>,
}

pub fn json(rows: &[Row]) {
    let kernels = rows.iter().map(|row| JsonRow {
        kernel: &row.kernel,
        variant: &row.label,
        target: row.target.name(),
        backend: row.backend,
        compile_ms: row.built.as_ref().map(|built| built.compile_ms),
        regs: row.built.as_ref().map(|built| built.resources.registers),
        spill_bytes: row.built.as_ref().map(|built| built.resources.spills()),
        smem_bytes: row.built.as_ref().map(|built| built.shared_bytes),
        cases: row.outcome.cases,
        passed: row.outcome.passed,
        worst_row_diff: row.outcome.worst_row_diff,
        findings: &row.outcome.findings,
        failures: &row.outcome.failures,
        too_large: &row.outcome.too_large,
        errors: row.errors.iter().map(|error| error.title.as_str()).collect(),
        times: &row.outcome.times,
        traffic: &row.outcome.traffic,
        against_emulator: row.outcome.agreement.as_ref(),
    });
    let json = Json { kernels: kernels.collect() };
    println!("{}", serde_json::to_string_pretty(&json).expect("plain data serialises"));
}
