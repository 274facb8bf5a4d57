//! The layer, and the sequences behind it, as captured graphs on a GPU: how often replays go wrong.

use std::fmt::Write;

use lathe::gpu_test::sequences::{Rates, measure, sequences};
use lathe::gpu_test::{Failure, Gpu, scenario};
use lathe::graph::model::{BufferId, Placement};
use lathe::graph::order::Order;
use lathe::graph::plan::{Options as PlanOptions, Planner};
use lathe::kernels::contract::KeyFormat;
use lathe::runtime::instrument::{Canary, Expected, Rate};
use lathe::runtime::replay::{Captured, CudaStep, Edges, Mode, Replay};
use serde::Serialize;

use crate::host::{Care, addresses};
use crate::layer::{Code, Layer, Setup};
use crate::programs::Programs;

/// Loads that the alternate stream's other work takes where its indexer is late: some tens of microseconds.
pub const LATE: i32 = 2000;
/// Bytes of a slot of bf16 index keys.
const SLOT: u64 = 256;

/// Everything that was counted.
#[derive(Clone, Debug, Serialize)]
pub struct Hardware {
    /// The device.
    pub device: String,
    /// The sequences, each as a small graph.
    pub sequences: Vec<Rates>,
    /// The layer in each setup, with the indexer on time and late.
    pub layer: Vec<Row>,
    /// The setup that corrupts, with a late indexer.
    pub guilty: Guilty,
}

/// The layer in one setup, at the framework's addresses.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// `bf16` or `fp8`.
    pub keys: &'static str,
    /// Requests.
    pub batch: i32,
    /// Whether the alternate stream has other work first.
    pub is_late: bool,
    /// Eager, on one stream.
    pub one_stream: Rate,
    /// Eager, on both.
    pub eager: Rate,
    /// All but the indexer captured.
    pub indexer_eager: Rate,
    /// Captured.
    pub captured: Rate,
}

/// The guilty setup under instruments and interventions.
#[derive(Clone, Debug, Serialize)]
pub struct Guilty {
    /// As captured.
    pub captured: Rate,
    /// With an instrument that clones `x`.
    pub cloning: Rate,
    /// Under a canary that moves nothing.
    pub canary: Rate,
    /// Chunks of the index keys that changed outside the step's slots, over all replays.
    pub intrusions: usize,
    /// `logits` forced before `keep residual`.
    pub reader_first: Rate,
    /// `keep residual` forced before `store k`.
    pub writer_first: Rate,
    /// One kernel after the other.
    pub serialised: Rate,
    /// No two tensors on the same bytes.
    pub disjoint: Rate,
    /// Where Lathe's plan puts them.
    pub planned: Rate,
}

type Results = Vec<(BufferId, u64)>;

/// Counts, `replays` times each.
///
/// # Errors
/// What recording, compiling or the device says.
pub fn run(gpu: &Gpu, programs: &Programs, replays: u64, stage: &mut dyn FnMut(&str)) -> Result<Hardware, Failure> {
    let small = scenario::Programs::compile(|kernel| gpu.program(kernel))?;
    let mut rates = Vec::new();
    for sequence in sequences(&small)? {
        stage(sequence.name);
        rates.push(measure(gpu, &sequence, replays)?);
    }
    let mut layer = Vec::new();
    for (keys, name) in [(KeyFormat::Bf16, "bf16"), (KeyFormat::Fp8, "fp8")] {
        for batch in [1, 2, 4] {
            for late in [0, LATE] {
                stage(&format!("{name} keys, batch {batch}"));
                layer.push(row(gpu, programs, Setup { keys, batch, late }, name, replays)?);
            }
        }
    }
    stage("instruments and interventions");
    let guilty = guilty(gpu, programs, replays)?;
    Ok(Hardware { device: gpu.device.info().to_string(), sequences: rates, layer, guilty })
}

fn mode(captured: Captured, edges: Edges) -> Mode {
    Mode { captured, edges }
}

/// What one kernel after the other leaves where nothing shares bytes.
fn expected(gpu: &Gpu, layer: &Layer) -> Result<Results, Failure> {
    let placement = addresses(layer, Care::Keep)?;
    let mut step = CudaStep::unproved(gpu.device, &layer.pool, &placement, &layer.bindings)?;
    let serial = step.prepare(layer.graph, &mode(Captured::Whole, Edges::Serialised))?;
    step.restore()?;
    serial.run(&step)?;
    Ok(step.digests()?)
}

/// How many of `replays`, each from the same memory, leave anything else.
fn wrong(step: &mut CudaStep, replay: &Replay, expected: &Results, replays: u64) -> Result<Rate, Failure> {
    let mut rate = Rate { events: 0, trials: 0 };
    for _ in 0..replays {
        step.restore()?;
        replay.run(step)?;
        rate.events += u64::from(step.digests()? != *expected);
        rate.trials += 1;
    }
    Ok(rate)
}

fn row(gpu: &Gpu, programs: &Programs, setup: Setup, keys: &'static str, replays: u64) -> Result<Row, Failure> {
    let layer = Layer::record(programs, setup, Code::Engine)?;
    let expected = expected(gpu, &layer)?;
    let placement = addresses(&layer, Care::None)?;
    let mut step = CudaStep::unproved(gpu.device, &layer.pool, &placement, &layer.bindings)?;
    let mut rate = |captured, edges| {
        let replay = step.prepare(layer.graph, &mode(captured, edges))?;
        wrong(&mut step, &replay, &expected, replays)
    };
    let indexer = ["store k", "logits", "top-k"].map(|name| layer.node(name));
    Ok(Row {
        keys,
        batch: setup.batch,
        is_late: setup.late > 0,
        one_stream: rate(Captured::Nothing, Edges::Serialised)?,
        eager: rate(Captured::Nothing, Edges::Recorded)?,
        indexer_eager: rate(Captured::AllBut(indexer.into()), Edges::Recorded)?,
        captured: rate(Captured::Whole, Edges::Recorded)?,
    })
}

fn guilty(gpu: &Gpu, programs: &Programs, replays: u64) -> Result<Guilty, Failure> {
    let setup = Setup { keys: KeyFormat::Bf16, batch: 2, late: LATE };
    let layer = Layer::record(programs, setup, Code::Engine)?;
    let right = expected(gpu, &layer)?;
    let at = |placement: &Placement| CudaStep::unproved(gpu.device, &layer.pool, placement, &layer.bindings);
    let rate = |step: &mut CudaStep, edges| -> Result<Rate, Failure> {
        let replay = step.prepare(layer.graph, &mode(Captured::Whole, edges))?;
        wrong(step, &replay, &right, replays)
    };
    let mut step = at(&addresses(&layer, Care::None)?)?;
    let (store, logits, keep) = (layer.node("store k"), layer.node("logits"), layer.node("keep residual"));

    let keys = layer.buffer("index keys");
    let canary = Canary::new([keys], SLOT);
    let slots = Expected::nothing().slots(keys, layer.slots.iter().copied(), SLOT, 64, 64 * SLOT);
    let replay = step.prepare(layer.graph, &Mode::default())?;
    let (mut watched, mut intrusions) = (Rate { events: 0, trials: 0 }, 0);
    for _ in 0..replays {
        step.restore()?;
        let before = canary.snapshot(&mut step)?;
        replay.run(&step)?;
        let after = canary.snapshot(&mut step)?;
        intrusions += canary.compare(&layer.pool, &before, &after, &slots).len();
        watched.events += u64::from(step.digests()? != right);
        watched.trials += 1;
    }

    let cloned = Layer::record(programs, setup, Code::Cloning)?;
    let cloned_right = expected(gpu, &cloned)?;
    let placement = addresses(&cloned, Care::None)?;
    let mut cloning = CudaStep::unproved(gpu.device, &cloned.pool, &placement, &cloned.bindings)?;
    let cloning_replay = cloning.prepare(cloned.graph, &Mode::default())?;

    let plan = Planner::new(&layer.pool, &Order::of(&layer.pool)?).plan(&PlanOptions::default()).placement;
    Ok(Guilty {
        captured: rate(&mut step, Edges::Recorded)?,
        cloning: wrong(&mut cloning, &cloning_replay, &cloned_right, replays)?,
        canary: watched,
        intrusions,
        reader_first: rate(&mut step, Edges::Forced { first: logits, second: keep })?,
        writer_first: rate(&mut step, Edges::Forced { first: keep, second: store })?,
        serialised: rate(&mut step, Edges::Serialised)?,
        disjoint: rate(&mut at(&addresses(&layer, Care::Keep)?)?, Edges::Recorded)?,
        planned: rate(&mut at(&plan)?, Edges::Recorded)?,
    })
}

/// What was counted, as tables.
pub fn tell(seen: &Hardware) -> String {
    let mut text = String::new();
    write(seen, &mut text).expect("a string takes everything");
    text
}

fn percent(rate: Rate) -> String {
    let (low, high) = rate.interval();
    format!("{:5.1} % [{:.1}, {:.1}]", 100.0 * rate.share(), 100.0 * low, 100.0 * high)
}

fn write(seen: &Hardware, out: &mut String) -> std::fmt::Result {
    let trials = seen.guilty.captured.trials;
    writeln!(out, "Wrong replays of {trials} each on the {}, with 95 % Wilson intervals", seen.device)?;
    writeln!(out, "\nThe sequences, with a reader slow enough to lose")?;
    let columns = ["as captured", "reader first", "writer first", "serialised", "disjoint", "planned"];
    writeln!(out, "       {}  the checker, the two-by-two", columns.map(|name| format!("{name:<20}")).join(" "))?;
    for row in &seen.sequences {
        let planned = row.planned.map_or("refused".to_owned(), percent);
        let cells = [row.concurrent, row.reader_first, row.writer_first, row.serialised, row.disjoint].map(percent);
        let cells: Vec<String> = cells.into_iter().chain([planned]).map(|cell| format!("{cell:<20}")).collect();
        writeln!(out, "   {}  {}  {}, {:?}", row.name, cells.join(" "), row.found, row.cause)?;
    }
    writeln!(out, "\nThe layer, at the framework's addresses")?;
    let columns = ["eager, one stream", "eager", "indexer eager", "captured"];
    writeln!(out, "   keys batch indexer  {}", columns.map(|name| format!("{name:<20}")).join(" "))?;
    for row in &seen.layer {
        let cells = [row.one_stream, row.eager, row.indexer_eager, row.captured];
        let cells = cells.map(|cell| format!("{:<20}", percent(cell))).join(" ");
        let indexer = if row.is_late { "late" } else { "on time" };
        writeln!(out, "   {:<4} {:>5} {indexer:<8} {cells}", row.keys, row.batch)?;
    }
    let guilty = &seen.guilty;
    writeln!(out, "\nbf16 keys, batch 2, a late indexer")?;
    for (name, rate) in [
        ("as captured", guilty.captured),
        ("with an instrument that clones x", guilty.cloning),
        ("under a canary that moves nothing", guilty.canary),
        ("logits forced before keep residual", guilty.reader_first),
        ("keep residual forced before store k", guilty.writer_first),
        ("serialised", guilty.serialised),
        ("disjoint addresses", guilty.disjoint),
        ("Lathe's plan", guilty.planned),
    ] {
        writeln!(out, "   {name:<38} {}", percent(rate))?;
    }
    writeln!(out, "   chunks changed outside the step's slots {}", guilty.intrusions)
}
