//! `lathe gpu-test`: everything that can only be shown on a GPU, in one program.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anstream::eprintln;
use comfy_table::{Cell, Color};
use lathe_codegen::entry::Entry;
use lathe_runtime::backend::{Backend, CudaBackend};
use lathe_runtime::nvrtc::Compiler;
use serde::Serialize;

use super::check::{CheckError, row::Checker};
use super::{Context, Outcome, table, terminal};
use crate::cli::output::println;
use crate::gpu_test::{Gpu, Note, tests};

/// Show on a GPU what holds on the emulator: kernels, captured graphs, read-back, instruments
#[derive(clap::Args)]
#[command(
    after_help = "Needs this program and NVIDIA's driver, nothing else. Exit status: 0 if everything passed, 1 if something failed,
2 if there is no GPU to test on.

Examples:
  lathe gpu-test                                  everything
  lathe gpu-test --filter programmatic            some tests
  lathe gpu-test --json --dumps graphs > out.json for a program to read; the captured graphs as files"
)]
pub struct Args {
    /// Only tests whose group or name contains this
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter: String,

    /// Keep what the driver captured, as JSON files in this folder
    #[arg(long, value_name = "FOLDER")]
    dumps: Option<PathBuf>,

    /// Print the result as one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Row {
    group: &'static str,
    name: String,
    seconds: f64,
    /// What is wrong; nothing if it passed.
    failure: Option<String>,
    notes: Vec<Note>,
}

#[derive(Serialize)]
struct Report {
    device: String,
    driver: (u32, u32),
    nvrtc: (u32, u32),
    target: &'static str,
    tests: Vec<Row>,
}

pub fn run(args: &Args, context: &Context) -> Outcome {
    let start = Instant::now();
    let backend = CudaBackend::open(0)?;
    let target = backend.device().info().target().ok_or(CheckError::NoTarget)?;
    let toolchain = terminal::toolchain(context.offline);
    let compiler = Compiler::load(&toolchain)?;
    let gpu = Gpu { device: backend.device(), compiler: &compiler, target, dumps: args.dumps.as_deref() };

    let wanted = |group: &str, name: &str| group.contains(&args.filter) || name.contains(&args.filter);
    let mut rows = Vec::new();
    for test in tests().into_iter().filter(|test| wanted(test.group, test.name)) {
        eprintln!("{}: {}", test.group, test.name);
        let start = Instant::now();
        let outcome = (test.run)(&gpu);
        let seconds = start.elapsed().as_secs_f64();
        let (failure, notes) = match outcome {
            Ok(notes) => (None, notes),
            Err(error) => (Some(error.to_string()), Vec::new()),
        };
        rows.push(Row { group: test.group, name: test.name.to_owned(), seconds, failure, notes });
    }
    // Last, because a kernel that faults takes the context with it.
    let entries: Vec<&Entry> = context.entries.iter().filter(|entry| wanted("kernels", entry.name)).collect();
    rows.extend(kernels(&backend, &compiler, &toolchain, target, &entries)?);

    let failed = rows.iter().filter(|row| row.failure.is_some()).count();
    let report = Report {
        device: backend.device().info().to_string(),
        driver: lathe_runtime::device::driver_version()?,
        nvrtc: compiler.library().version,
        target: target.name(),
        tests: rows,
    };
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print(&report, start.elapsed().as_secs_f64());
    }
    Ok(if failed == 0 && !report.tests.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Each variant's cases, judged as `lathe check --backend cuda` judges them.
fn kernels(
    backend: &CudaBackend,
    compiler: &Compiler,
    toolchain: &lathe_runtime::toolchain::Toolchain,
    target: lathe_codegen::target::Target,
    entries: &[&Entry],
) -> Result<Vec<Row>, Box<dyn std::error::Error + Send + Sync>> {
    let checker = Checker {
        backend: backend as &dyn Backend,
        compiler,
        toolchain,
        disassembles: toolchain.nvdisasm().is_ok(),
        targets: &[target],
        filter: "",
        seeds: 1,
        compare: None,
    };
    let rows = checker.check(entries)?.into_iter().map(|row| {
        let outcome = &row.outcome;
        let failure = (!row.passed()).then(|| {
            let errors = row.errors.iter().map(|error| error.title.clone());
            let findings = outcome.findings.iter().map(ToString::to_string);
            let wrong = outcome.failures.iter().map(|failure| format!("{}: {}", failure.case, failure.what.join(", ")));
            errors.chain(findings).chain(wrong).collect::<Vec<_>>().join("; ")
        });
        let note = |what: &str, value, unit| Note { what: what.to_owned(), value, unit };
        Row {
            group: "kernels",
            name: format!("{} {}", row.kernel, row.label).trim_end().to_owned(),
            seconds: outcome.times.iter().map(|time| time.microseconds / 1e6).sum(),
            failure,
            notes: vec![
                note("cases", outcome.cases as f64, "cases"),
                note("worst row", outcome.worst_row_diff, "difference"),
            ],
        }
    });
    Ok(rows.collect())
}

fn print(report: &Report, seconds: f64) {
    let mut table = table::table(&["test", "seconds", "measured", ""]);
    for row in &report.tests {
        let notes: Vec<_> =
            row.notes.iter().map(|note| format!("{}: {:.4} {}", note.what, note.value, note.unit)).collect();
        let (mark, colour) = if row.failure.is_none() { ("ok", Color::Green) } else { ("FAILED", Color::Red) };
        let name = format!("{}: {}", row.group, row.name.replace('_', " "));
        let cells = [name, format!("{:.2}", row.seconds), notes.join("\n")].map(Cell::new);
        table.add_row(cells.into_iter().chain([Cell::new(mark).fg(colour)]));
    }
    println!("{table}");
    for row in &report.tests {
        if let Some(failure) = &row.failure {
            println!("\n\x1b[1;91mFAILED\x1b[0m\x1b[1m {}: {}\x1b[0m\n  {failure}", row.group, row.name);
        }
    }
    let failed = report.tests.iter().filter(|row| row.failure.is_some()).count();
    println!(
        "\n{} of {} passed on {} in {seconds:.1} s",
        report.tests.len() - failed,
        report.tests.len(),
        report.device
    );
}
