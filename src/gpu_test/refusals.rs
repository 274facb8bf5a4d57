//! What a device refuses: a typed error each time, nothing leaked, and the device usable afterwards.

use lathe_graph::build::Recording;
use lathe_graph::plan::Options;
use lathe_runtime::device::DeviceError;
use lathe_runtime::replay::{Bindings, CudaStep, Launch, Mode, StepError};

use super::graphs::buckets;
use super::scenario::{Programs, Scenario, scenario};
use super::{Failure, Gpu, Outcome, Test, ensure};

pub(super) fn tests() -> Vec<Test> {
    let refusals = |name, run| Test { group: "refusals", name, run };
    vec![
        refusals("a_device_too_small_for_the_arena", a_device_too_small_for_the_arena),
        refusals("a_foreign_call_breaks_the_capture", a_foreign_call_breaks_the_capture),
        refusals("a_replay_after_free", a_replay_after_free),
        refusals("two_replays_at_once_of_one_arena", two_replays_at_once_of_one_arena),
        refusals("a_graph_of_another_step_or_context", a_graph_of_another_step_or_context),
        refusals("a_driver_without_a_symbol", a_driver_without_a_symbol),
    ]
}

/// Runs `refused` twice, then a whole step, and compares the free memory before and after the second time: some of the
/// driver's memory is taken at the first use.
fn leaves_the_device_usable(
    gpu: &Gpu,
    programs: &Programs,
    refused: impl Fn() -> Result<(), Failure>,
) -> Result<(), Failure> {
    let whole_step = || -> Result<(), Failure> {
        let Scenario { checked, graph, bindings, .. } = scenario(programs, 10)?;
        let planned = checked.plan(&Options::default())?;
        let step = CudaStep::new(gpu.device, &planned, &bindings)?;
        Ok(step.prepare(graph, &Mode::default())?.run(&step)?)
    };
    whole_step()?;
    refused()?;
    let (before, _) = gpu.device.memory()?;
    refused()?;
    whole_step().map_err(|error| format!("the device is not usable afterwards: {error}"))?;
    let (after, _) = gpu.device.memory()?;
    ensure!(after >= before, "{} bytes of device memory leaked", before - after);
    Ok(())
}

fn a_device_too_small_for_the_arena(gpu: &Gpu) -> Outcome {
    let programs = Programs::compile(|kernel| gpu.program(kernel))?;
    leaves_the_device_usable(gpu, &programs, || {
        let mut recording = Recording::new();
        let huge = recording.persistent("huge", 1 << 40);
        let mut bindings = Bindings::new();
        let mut recorded: Result<(), Failure> = Ok(());
        recording.capture("g", "main", |g| {
            let launch = Launch::new(&programs.scale, [1, 1, 1]);
            recorded = (|| {
                let small = g.output("out", 1024);
                let launch = launch.buffer(&huge)?.buffer(&small)?;
                let launch = launch.scalar(lathe_codegen::contract::ScalarValue::F32(1.0))?;
                let node = g.launch(g.main(), launch.work()?);
                bindings.kernel(node, launch);
                Ok(())
            })();
        });
        recorded?;
        let planned = recording.check()?.plan(&Options::default())?;
        match CudaStep::new(gpu.device, &planned, &bindings).err() {
            Some(StepError::Device(DeviceError::OutOfMemory { buffer, needed, .. })) => {
                ensure!(buffer == "arena" && needed > 1 << 40, "{buffer} {needed}");
                Ok(())
            }
            other => Err(format!("a terabyte was answered with {other:?}").into()),
        }
    })?;
    Ok(Vec::new())
}

fn a_foreign_call_breaks_the_capture(gpu: &Gpu) -> Outcome {
    let programs = Programs::compile(|kernel| gpu.program(kernel))?;
    leaves_the_device_usable(gpu, &programs, || {
        let Scenario { checked, graph, bindings, reader, .. } = scenario(&programs, 10)?;
        let planned = checked.plan(&Options::default())?;
        let mut step = CudaStep::new(gpu.device, &planned, &bindings)?;
        let mut foreign = None;
        let outcome = step.prepare_watched(graph, &Mode::default(), &mut |node| {
            if node == reader {
                foreign = Some(gpu.device.allocate("foreign", 1 << 20).err());
            }
        });
        ensure!(matches!(foreign, Some(Some(_))), "an allocation during the capture was not refused");
        match outcome.err() {
            Some(StepError::CaptureBroken { graph, .. }) => ensure!(graph == "layer", "{graph}"),
            other => return Err(format!("a broken capture was answered with {other:?}").into()),
        }
        // The same step captures and runs once nobody interferes.
        let replay = step.prepare(graph, &Mode::default())?;
        step.restore()?;
        Ok(replay.run(&step)?)
    })?;
    Ok(Vec::new())
}

fn a_replay_after_free(gpu: &Gpu) -> Outcome {
    let programs = Programs::compile(|kernel| gpu.program(kernel))?;
    leaves_the_device_usable(gpu, &programs, || {
        let Scenario { checked, graph, bindings, .. } = scenario(&programs, 10)?;
        let planned = checked.plan(&Options::default())?;
        let mut step = CudaStep::new(gpu.device, &planned, &bindings)?;
        let replay = step.prepare(graph, &Mode::default())?;
        replay.run(&step)?;
        step.free()?;
        let after = replay.run(&step);
        ensure!(matches!(after, Err(StepError::Freed)), "a replay after free: {after:?}");
        let again = step.prepare(graph, &Mode::default()).err();
        ensure!(matches!(again, Some(StepError::Freed)), "a capture after free: {again:?}");
        Ok(())
    })?;
    Ok(Vec::new())
}

fn two_replays_at_once_of_one_arena(gpu: &Gpu) -> Outcome {
    let programs = Programs::compile(|kernel| gpu.program(kernel))?;
    leaves_the_device_usable(gpu, &programs, || {
        let (planned, bindings, graphs) = buckets(&programs, "other")?;
        let step = CudaStep::new(gpu.device, &planned, &bindings)?;
        let first = step.prepare(graphs[0], &Mode::default())?;
        let second = step.prepare(graphs[1], &Mode::default())?;
        first.launch(&step)?;
        match second.launch(&step) {
            Err(StepError::AtOnce { graph, other }) => {
                ensure!((graph.as_str(), other.as_str()) == ("bucket 1", "bucket 0"), "{graph} {other}");
            }
            other => return Err(format!("two replays at once: {other:?}").into()),
        }
        step.wait()?;
        Ok(second.run(&step)?)
    })?;
    Ok(Vec::new())
}

fn a_graph_of_another_step_or_context(gpu: &Gpu) -> Outcome {
    let programs = Programs::compile(|kernel| gpu.program(kernel))?;
    leaves_the_device_usable(gpu, &programs, || {
        let Scenario { checked, graph, bindings, .. } = scenario(&programs, 10)?;
        let planned = checked.plan(&Options::default())?;
        let [one, other] =
            [CudaStep::new(gpu.device, &planned, &bindings)?, CudaStep::new(gpu.device, &planned, &bindings)?];
        let replay = one.prepare(graph, &Mode::default())?;
        let misplaced = replay.launch(&other);
        ensure!(matches!(misplaced, Err(StepError::OtherStep { .. })), "on another step: {misplaced:?}");

        let apart = gpu.device.in_another_context()?;
        let mut foreign = CudaStep::new(&apart, &planned, &bindings)?;
        let misplaced = replay.launch(&foreign);
        ensure!(matches!(misplaced, Err(StepError::OtherContext { .. })), "in another context: {misplaced:?}");
        let tokens = planned.pool().find_buffer("tokens").ok_or("no tokens")?;
        let memory = std::rc::Rc::new(gpu.device.allocate("tokens", 1 << 12)?);
        let misplaced = foreign.move_buffer(tokens, memory);
        ensure!(matches!(misplaced, Err(StepError::OtherContext { .. })), "foreign memory: {misplaced:?}");
        // Each still runs in its own.
        foreign.prepare(graph, &Mode::default())?.run(&foreign)?;
        Ok(replay.run(&one)?)
    })?;
    Ok(Vec::new())
}

fn a_driver_without_a_symbol(gpu: &Gpu) -> Outcome {
    match gpu.device.require(&["cuGraphLaunch", "cuGraphFly"]) {
        Err(DeviceError::MissingSymbol { symbol }) => ensure!(symbol == "cuGraphFly", "{symbol}"),
        other => return Err(format!("a missing symbol was answered with {other:?}").into()),
    }
    Ok(Vec::new())
}
