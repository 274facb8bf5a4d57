//! `lathe stress`: a decode loop over every axis that a corruption may hang on.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use comfy_table::{Cell as TableCell, Color};
use lathe_runtime::device::Device;
use lathe_runtime::instrument::{Rate, detectable_rate};
use lathe_runtime::nvrtc::Compiler;
use serde::Serialize;

use super::check::CheckError;
use super::{Context, Outcome, table, terminal};
use crate::cli::output::println;
use crate::gpu_test::{Failure, Gpu};
use crate::stress::decode::Layer;
use crate::stress::{Allocator, Bench, Capture, Cell, Soak, State, Talk, Tally, Writer, cells, programs, setup, soak};

/// Decode over every axis that a corruption may hang on, and count what goes wrong in each cell
#[derive(clap::Args)]
#[command(
    after_help = "A conversation is a sequence of steps on one cache; each step is compared with the same one run kernel by kernel,
no two tensors sharing bytes. The writer evicts a page of keys and loads it again; `unordered` is the control that
must fail. The framework's allocator gives a tensor's bytes away when the host drops it.

Exit status: 0 if nothing went wrong at Lathe's addresses under a writer that keeps its discipline, 1 if something did,
2 if there is no GPU.

Examples:
  lathe stress                                           every cell
  lathe stress --capture captured --batch 2 --writer off some
  lathe stress --state stress.json --seconds 300         what fits in five minutes; run it again to go on
  lathe stress --soak 1000000 --state soak.json          one planned step, a million replays"
)]
pub struct Args {
    /// Format of keys and queries (may be given several times); both, if left out
    #[arg(long, value_name = "DTYPE", value_parser = ["bf16", "fp8"])]
    dtype: Vec<String>,

    /// What is captured (may be given several times); every way, if left out
    #[arg(long, value_enum)]
    capture: Vec<Capture>,

    /// Requests (may be given several times); rows are padded to a power of two
    #[arg(long, value_name = "N", default_values_t = [1, 2, 3], value_parser = clap::value_parser!(u64).range(1..=64))]
    batch: Vec<u64>,

    /// Streams (may be given several times); one and two, if left out
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=2))]
    streams: Vec<u8>,

    /// Who else writes (may be given several times); everyone, if left out
    #[arg(long, value_enum)]
    writer: Vec<Writer>,

    /// Who places the tensors (may be given several times); both, if left out
    #[arg(long, value_enum)]
    allocator: Vec<Allocator>,

    /// Conversations of each cell
    #[arg(long, value_name = "N", default_value_t = 8)]
    conversations: u64,

    /// Steps of a conversation
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u64).range(1..))]
    steps: u64,

    /// Other work before the indexer on its stream, in loads of which each needs the one before (about 20 ns); with 0 the
    /// indexer comes at once, and usually wins the race
    #[arg(long, value_name = "LOADS", default_value_t = 2000, value_parser = clap::value_parser!(i32).range(0..))]
    late: i32,

    /// Instead: replay one planned step so often, beside a load on other streams
    #[arg(long, value_name = "REPLAYS")]
    soak: Option<u64>,

    /// Go on from this file, and keep the counts there
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,

    /// Stop after so many seconds
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,

    /// Print the result as one JSON object
    #[arg(long)]
    json: bool,
}

/// Why nothing was counted.
#[derive(Debug, thiserror::Error)]
enum StressError {
    #[error("{}: {error}", path.display())]
    File { path: PathBuf, error: std::io::Error },
    #[error("{} is no state of `lathe stress`: {error}; name another file", path.display())]
    State { path: PathBuf, error: serde_json::Error },
}

pub fn run(args: &Args, context: &Context) -> Outcome {
    let device = Device::open(0)?;
    let target = device.info().target().ok_or(CheckError::NoTarget)?;
    let toolchain = terminal::toolchain(context.offline);
    let compiler = Compiler::load(&toolchain)?;
    let gpu = Gpu { device: &device, compiler: &compiler, target, dumps: None };
    let deadline = args.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let mut state = match &args.state {
        Some(path) if path.exists() => read(path)?,
        _ => State::default(),
    };
    let is_late = || deadline.is_some_and(|deadline| Instant::now() >= deadline);
    if let Some(replays) = args.soak {
        let bar = terminal::bar(replays as usize);
        let mut counted = state.soak;
        let outcome = soak(&gpu, replays, &mut counted, &mut |so_far| {
            bar.set_position(so_far.planned);
            state.soak = *so_far;
            keep(args, &state)?;
            Ok(!is_late())
        });
        bar.finish_and_clear();
        outcome?;
        return soaked(args, &state.soak);
    }
    let wanted = wanted(args);
    let talk = Talk { steps: args.steps, late: args.late };
    let programs = programs(&gpu)?;
    let bar = terminal::bar(wanted.len());
    for cell in &wanted {
        bar.set_message(cell.to_string());
        let tally = state.cells.entry(cell.to_string()).or_default();
        if tally.conversations < args.conversations && !is_late() {
            let setup = setup(*cell, talk);
            let layer = Layer::record(&programs, setup)?;
            let mut bench = Bench::new(&gpu, &layer, setup, *cell)?;
            while tally.conversations < args.conversations && !is_late() {
                bench.converse(talk, tally.conversations, tally)?;
            }
            keep(args, &state)?;
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    report(args, &wanted, &state, device.info().to_string())
}

fn wanted(args: &Args) -> Vec<Cell> {
    use clap::ValueEnum;
    fn or_all<T: Clone>(given: &[T], all: &[T]) -> Vec<T> {
        if given.is_empty() { all.to_vec() } else { given.to_vec() }
    }
    let dtypes: Vec<bool> = args.dtype.iter().map(|name| name == "fp8").collect();
    let streams: Vec<bool> = args.streams.iter().map(|streams| *streams == 2).collect();
    let batches: Vec<usize> = args.batch.iter().map(|batch| *batch as usize).collect();
    cells(
        &or_all(&dtypes, &[false, true]),
        &or_all(&args.capture, Capture::value_variants()),
        &batches,
        &or_all(&streams, &[false, true]),
        &or_all(&args.writer, Writer::value_variants()),
        &or_all(&args.allocator, Allocator::value_variants()),
    )
}

fn read(path: &Path) -> Result<State, StressError> {
    let text = std::fs::read_to_string(path).map_err(|error| StressError::File { path: path.into(), error })?;
    serde_json::from_str(&text).map_err(|error| StressError::State { path: path.into(), error })
}

/// Written beside the file and renamed, so that it is whole at any moment.
fn keep(args: &Args, state: &State) -> Result<(), Failure> {
    let Some(path) = &args.state else { return Ok(()) };
    let beside = path.with_extension("part");
    let text = serde_json::to_string_pretty(state)?;
    let written = std::fs::write(&beside, text).and_then(|()| std::fs::rename(&beside, path));
    Ok(written.map_err(|error| StressError::File { path: path.clone(), error })?)
}

#[derive(Serialize)]
struct Row {
    cell: Cell,
    tally: Tally,
    per_step: Counted,
    per_conversation: Counted,
}

#[derive(Serialize)]
struct Counted {
    rate: f64,
    /// The 95 % Wilson interval.
    interval: (f64, f64),
    /// The rate that would have been seen at least once with 95 %.
    detectable: f64,
}

impl From<Rate> for Counted {
    fn from(rate: Rate) -> Self {
        Counted { rate: rate.share(), interval: rate.interval(), detectable: detectable_rate(rate.trials, 1.0) }
    }
}

fn report(args: &Args, wanted: &[Cell], state: &State, device: String) -> Outcome {
    let rows = wanted.iter().filter_map(|cell| {
        let tally = *state.cells.get(&cell.to_string())?;
        let (per_step, per_conversation) = (tally.per_step().into(), tally.per_conversation().into());
        Some(Row { cell: *cell, tally, per_step, per_conversation })
    });
    let rows: Vec<Row> = rows.collect();
    let is_bad = |row: &Row| {
        let is_kept = row.cell.allocator == Allocator::Ours && row.cell.writer != Writer::Unordered;
        is_kept && row.tally.corrupted_conversations > 0
    };
    if args.json {
        println!("{}", serde_json::to_string_pretty(&serde_json::json!({ "device": device, "cells": rows }))?);
    } else {
        let mut table = table::table(&["cell", "steps wrong", "95 %", "conversations wrong", "95 %"]);
        for row in &rows {
            let colour = match row.tally.corrupted_conversations {
                0 => Color::Green,
                _ if is_bad(row) => Color::Red,
                _ => Color::Yellow,
            };
            let cells = [cells_of(row.tally.per_step()), cells_of(row.tally.per_conversation())].concat();
            let cells = cells.into_iter().map(|cell| TableCell::new(cell).fg(colour));
            table.add_row(std::iter::once(TableCell::new(row.cell.to_string())).chain(cells));
        }
        println!("{table}\non {device}");
    }
    Ok(if rows.iter().any(is_bad) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Counts, and what they say: the interval, or of a zero the rate that it excludes.
fn cells_of(rate: Rate) -> [String; 2] {
    let (low, high) = rate.interval();
    let says = match rate.events {
        0 => format!("below {:.2} %", 100.0 * detectable_rate(rate.trials, 1.0)),
        _ => format!("{:.1} to {:.1} %", 100.0 * low, 100.0 * high),
    };
    [format!("{} of {}", rate.events, rate.trials), says]
}

fn soaked(args: &Args, seen: &Soak) -> Outcome {
    if args.json {
        println!("{}", serde_json::to_string_pretty(seen)?);
    } else {
        let mut table = table::table(&["outputs wrong", "of replays", "95 %"]);
        for (name, rate) in [("planned", seen.planned_rate()), ("framework's addresses", seen.framework_rate())] {
            let [_, says] = cells_of(rate);
            table.add_row([name.to_owned(), format!("{} of {}", rate.events, rate.trials), says]);
        }
        println!("{table}");
        let micros = 1e6 * seen.seconds / seen.planned.max(1) as f64;
        println!(
            "canary on {} of {} planned replays: {} intrusions; {micros:.1} us a replay, its checks included",
            seen.watched, seen.planned, seen.intrusions
        );
    }
    let is_clean = seen.planned_wrong == 0 && seen.intrusions == 0;
    Ok(if is_clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
