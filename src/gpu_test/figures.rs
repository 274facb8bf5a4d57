//! What the runtime costs: replays beside hand-captured ones, instruments per replay and per megabyte.

use std::time::Instant;

use lathe_codegen::contract::ScalarValue;
use lathe_graph::build::{Bytes, Recording};
use lathe_graph::model::{BufferId, GraphId};
use lathe_graph::order::Order;
use lathe_graph::plan::Options;
use lathe_runtime::device::{DeviceError, LaunchShape};
use lathe_runtime::instrument::{Canary, Expected, Observers, observed};
use lathe_runtime::replay::{Bindings, CudaStep, Launch, Mode, Replay};

use super::scenario::{BYTES, LEN, Programs, Scenario, floats, scaled, scenario};
use super::{Failure, Gpu, Outcome, Test, ensure, note};

/// Kernels of the chain whose replays are compared.
const CHAIN: usize = 20;
/// Replays between two looks at the clock.
const BATCH: usize = 200;
/// Pairs of batches.
const PAIRS: usize = 31;

pub(super) fn tests() -> Vec<Test> {
    let figures = |name, run| Test { group: "figures", name, run };
    vec![
        figures("a_replay_costs_what_a_hand_captured_one_costs", a_replay_costs_what_a_hand_captured_one_costs),
        figures("what_instruments_cost", what_instruments_cost),
    ]
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The same kernels in the same order: prepared by the runtime, and captured by hand on one stream.
fn a_replay_costs_what_a_hand_captured_one_costs(gpu: &Gpu) -> Outcome {
    let programs = Programs::compile(|kernel| gpu.program(kernel))?;
    let mut recording = Recording::new();
    let buffers = [0, 1].map(|i| recording.persistent(&format!("b{i}"), BYTES));
    let mut bindings = Bindings::new();
    buffers.iter().for_each(|buffer| bindings.contents(buffer.id(), floats((0..LEN).map(|i| i as f32))));
    let mut recorded: Result<(), Failure> = Ok(());
    recording.capture("chain", "main", |g| {
        recorded = (0..CHAIN).try_for_each(|i| {
            let launch = scaled(&programs, &format!("scale {i}"), &buffers[i % 2], &buffers[(i + 1) % 2], 1.0)?;
            let node = g.launch(g.main(), launch.work()?);
            bindings.kernel(node, launch);
            Ok(())
        });
    });
    recorded?;
    let planned = recording.check()?.plan(&Options::default())?;
    let step = CudaStep::new(gpu.device, &planned, &bindings)?;
    let replay = step.prepare(GraphId(0), &Mode::default())?;

    let device = gpu.device;
    let program = &programs.scale;
    let function = device.load(&program.compiled.cubin, &program.cuda.entry, program.cuda.shared_bytes)?;
    let memory = [device.allocate("a", BYTES)?, device.allocate("b", BYTES)?];
    let shape = LaunchShape { grid: [1, 1, 1], block: [program.cuda.threads, 1, 1], programmatic: false };
    let by_hand = device.capture::<DeviceError>(|| {
        (0..CHAIN).try_for_each(|i| {
            let pointers = [memory[i % 2].address(), memory[(i + 1) % 2].address()];
            let mut arguments: Vec<Vec<u8>> = pointers.iter().map(|pointer| pointer.to_le_bytes().to_vec()).collect();
            arguments.push(1.0f32.to_le_bytes().to_vec());
            // SAFETY: the parameters of `scale`, on memory that outlives the graph.
            unsafe { device.launch(&function, shape, &mut arguments) }
        })
    })?;
    let by_hand = by_hand.ok_or("the capture by hand is empty")?;

    let seconds = |launch: &dyn Fn() -> Result<(), Failure>| -> Result<f64, Failure> {
        let start = Instant::now();
        (0..BATCH).try_for_each(|_| launch())?;
        step.wait()?;
        Ok(start.elapsed().as_secs_f64() / BATCH as f64)
    };
    let ours = || Ok(replay.launch(&step)?);
    let theirs = || Ok(by_hand.launch()?);
    seconds(&ours)?;
    seconds(&theirs)?;
    let (mut ratios, mut micros) = (Vec::new(), Vec::new());
    for _ in 0..PAIRS {
        let (one, other) = (seconds(&ours)?, seconds(&theirs)?);
        ratios.push(one / other);
        micros.push(one * 1e6);
    }
    ratios.sort_by(f64::total_cmp);
    let quartiles = (ratios[PAIRS / 4], ratios[3 * PAIRS / 4]);
    Ok(vec![
        note("a replay of 20 kernels", median(micros), "us"),
        note("ratio to a hand-captured graph, median of pairs", ratios[PAIRS / 2], ""),
        note("lower quartile", quartiles.0, ""),
        note("upper quartile", quartiles.1, ""),
    ])
}

/// The canary by the megabyte; poison and canary by the replay.
fn what_instruments_cost(gpu: &Gpu) -> Outcome {
    const WATCHED: u64 = 64 << 20;
    let programs = Programs::compile(|kernel| gpu.program(kernel))?;
    let mut recording = Recording::new();
    let tokens = recording.input("tokens", BYTES);
    let keys = recording.persistent("index keys", WATCHED);
    let mut bindings = Bindings::new();
    bindings.contents(tokens.id(), floats((0..LEN).map(|i| i as f32)));
    let mut recorded: Result<(), Failure> = Ok(());
    recording.capture("layer", "main", |g| {
        recorded = (|| {
            let save = Launch::new(&programs.store, [1, 1, 1]).buffer(&tokens)?.rows(&keys, 0, i64::from(LEN))?;
            let save = save.scalar(ScalarValue::I32(7))?;
            let node = g.launch(g.main(), save.work()?);
            bindings.kernel(node, save);
            Ok(())
        })();
    });
    recorded?;
    let planned = recording.check()?.plan(&Options::default())?;
    let mut step = CudaStep::new(gpu.device, &planned, &bindings)?;
    let replay = step.prepare(GraphId(0), &Mode::default())?;
    let canary = Canary::new([keys.id()], 256);
    let start = Instant::now();
    let before = canary.snapshot(&mut step)?;
    let snapshot = start.elapsed().as_secs_f64();
    replay.run(&step)?;
    let after = canary.snapshot(&mut step)?;
    let start = Instant::now();
    let slots = Expected::nothing().slots(keys.id(), [7], BYTES, 1 << 20, u64::MAX >> 1);
    let found = canary.compare(step.pool(), &before, &after, &slots);
    let compare = start.elapsed().as_secs_f64();
    ensure!(found.is_empty(), "the store wrote its slot, and the canary says {found:?}");
    let megabytes = WATCHED as f64 / 1e6;

    let Scenario { checked, graph, bindings, .. } = scenario(&programs, 10)?;
    let planned = checked.plan(&Options::default())?;
    let watched: Vec<BufferId> = planned.pool().find_buffer("index keys").into_iter().collect();
    let observers = Observers { canary: watched, poison: true };
    let (with, placed) = observed(planned.pool(), planned.placement(), &Order::of(planned.pool())?, &observers);
    let plain = CudaStep::new(gpu.device, &planned, &bindings)?;
    let poisoned = CudaStep::unproved(gpu.device, &with, &placed, &bindings)?;
    let (off, on) = (plain.prepare(graph, &Mode::default())?, poisoned.prepare(graph, &Mode::default())?);
    let micros = |step: &CudaStep, replay: &Replay| -> Result<f64, Failure> {
        let start = Instant::now();
        (0..BATCH).try_for_each(|_| replay.launch(step))?;
        step.wait()?;
        Ok(start.elapsed().as_secs_f64() * 1e6 / BATCH as f64)
    };
    let (mut without, mut within) = (Vec::new(), Vec::new());
    for _ in 0..PAIRS {
        without.push(micros(&plain, &off)?);
        within.push(micros(&poisoned, &on)?);
    }
    ensure!(plain.digests()? == poisoned.digests()?, "poison in the graph changed a result");
    Ok(vec![
        note("canary: a snapshot", snapshot * 1e6 / megabytes, "us a MB"),
        note("canary: comparing two", compare * 1e6 / megabytes, "us a MB"),
        note("a replay without poison", median(without), "us"),
        note("with poison as nodes of the graph", median(within), "us"),
    ])
}
