//! One planned step, replayed very often beside an unordered load, and judged on the device.

use lathe_codegen::contract::ScalarValue;
use lathe_codegen::ir::Kernel;
use lathe_codegen::prelude::*;
use lathe_dsl::kernel;
use lathe_graph::build::{Bytes, Lasting, Recording};
use lathe_graph::model::{BufferId, GraphId, Pool};
use lathe_graph::plan::Options;
use lathe_runtime::instrument::{Canary, Expected, Rate};
use lathe_runtime::program::Program;
use lathe_runtime::replay::{Bindings, Captured, CudaStep, Edges, Launch, Mode};
use serde::{Deserialize, Serialize};

use crate::gpu_test::scenario::{BYTES, LEN, Programs, SLOTS, floats, framework, planned, scaled};
use crate::gpu_test::{Failure, Gpu};

/// Loads before the indexer reads: about 20 microseconds, twice what the main stream needs to overtake it.
const HOPS: i32 = 1000;
/// Replays between two looks at the counter, and of which one is under the canary.
const CHUNK: u64 = 1000;
/// Bytes that the load copies beside each replay.
const LOAD: u64 = 16 << 20;

/// wrong[0] counts launches in which `a` or `b` is not what it must be, bit for bit.
#[kernel(warps = 8)]
pub fn tally(
    #[read] a: Slice<f32>,
    #[read] right_a: Slice<f32>,
    #[read] b: Slice<f32>,
    #[read] right_b: Slice<f32>,
    #[read_write] wrong: Slice<i32>,
) {
    let differing = shared::<i32>([1, 1]);
    let at = thread::id();
    pdl::wait();
    if at == 0 {
        differing.at(0, 0).store(0);
    }
    cta::sync();
    let of_a = a.at(at).load().bits() ^ right_a.at(at).load().bits();
    let of_b = b.at(at).load().bits() ^ right_b.at(at).load().bits();
    if (of_a | of_b) != 0 {
        differing.at(0, 0).atomic_add(1);
    }
    cta::sync();
    if at == 0 {
        let count = wrong.at(0).load();
        let one = (differing.at(0, 0).load() == 0).select(0, 1);
        wrong.at(0).store(count + one);
    }
}

/// dst = src.
#[kernel(warps = 4)]
pub fn copy(#[read] src: Slice<f32>, #[write_part] dst: Slice<f32>, count: Scalar<i32>) {
    pdl::wait();
    for i in (cta::x() * 512 + thread::id() * 4..count).step_by(512 * 64) {
        dst.at(i).store_vector(src.at(i).load_vector(4));
    }
}

/// What the long run has shown so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Soak {
    /// Replays of the planned step.
    pub planned: u64,
    /// Those that left a wrong output.
    pub planned_wrong: u64,
    /// Replays under the canary.
    pub watched: u64,
    /// Chunks of the index keys that changed outside the step's slot.
    pub intrusions: u64,
    /// Replays at the framework's addresses.
    pub framework: u64,
    /// Those that left a wrong output.
    pub framework_wrong: u64,
    /// Seconds that the planned replays took.
    pub seconds: f64,
}

impl Soak {
    /// How often the planned step left a wrong output.
    pub fn planned_rate(&self) -> Rate {
        Rate { events: self.planned_wrong, trials: self.planned }
    }

    /// The same at the framework's addresses.
    pub fn framework_rate(&self) -> Rate {
        Rate { events: self.framework_wrong, trials: self.framework }
    }
}

struct Judged<'p> {
    pool: Pool,
    bindings: Bindings<'p>,
    outputs: [BufferId; 2],
    expected: [BufferId; 2],
    wrong: BufferId,
    keys: BufferId,
}

/// The seed failure's step, whose last kernel compares both outputs with what they must be.
fn judged<'p>(programs: &'p Programs, tally: &'p Program) -> Result<Judged<'p>, Failure> {
    let mut recording = Recording::new();
    let tokens = recording.input("tokens", BYTES);
    let zeros = recording.input("zeros", 256);
    let keys = recording.persistent("index keys", SLOTS * BYTES);
    let expected = ["expected scores", "expected hidden"].map(|name| recording.input(name, BYTES));
    let wrong = recording.persistent("wrong", 256);
    let mut bindings = Bindings::new();
    bindings.contents(tokens.id(), floats((0..LEN).map(|i| 0.5 + i as f32)));
    bindings.contents(zeros.id(), vec![0; 256]);
    bindings.contents(keys.id(), floats((0..SLOTS as i32 * LEN).map(|i| -(i as f32))));
    bindings.contents(wrong.id(), vec![0; 256]);
    let mut recorded: Result<[Lasting; 2], Failure> = Err("nothing was recorded".into());
    recording.capture("step", "main", |g| {
        let (main, side) = (g.main(), g.stream("indexer"));
        let (scores, hidden) = (g.output("scores", BYTES), g.output("hidden", BYTES));
        recorded = (|| {
            let mut run = |g: &mut lathe_graph::build::Capture, on, launch: Launch<'p>| -> Result<(), Failure> {
                let node = g.launch(on, launch.work()?);
                bindings.kernel(node, launch);
                Ok(())
            };
            g.transients([("q", BYTES), ("x", BYTES)], |g, [q, x]| -> Result<(), Failure> {
                run(g, main, scaled(programs, "project", &tokens, &q, 2.0)?)?;
                g.order(main, side);
                let late = Launch::named("logits", &programs.late, [1, 1, 1]).buffer(&zeros)?.buffer(&q)?;
                let late = late.buffer(&scores)?.scalar(ScalarValue::F32(3.0))?.scalar(ScalarValue::I32(HOPS))?;
                run(g, side, late)?;
                let save = Launch::new(&programs.store, [1, 1, 1]).buffer(&q)?.rows(&keys, 0, i64::from(LEN))?;
                run(g, side, save.scalar(ScalarValue::I32(2))?)?;
                run(g, main, scaled(programs, "mlp", &tokens, &x, 5.0)?)?;
                run(g, main, scaled(programs, "add", &x, &hidden, 7.0)?)
            })?;
            g.order(side, main);
            let judge = Launch::new(tally, [1, 1, 1]).buffer(&scores)?.buffer(&expected[0])?;
            run(g, main, judge.buffer(&hidden)?.buffer(&expected[1])?.buffer(&wrong)?)?;
            Ok([scores, hidden])
        })();
    });
    let outputs = recorded?.map(|output| output.id());
    let pool = recording.check()?.pool().clone();
    let expected = expected.map(|buffer| buffer.id());
    Ok(Judged { pool, bindings, outputs, expected, wrong: wrong.id(), keys: keys.id() })
}

/// Replays the planned step until `soak` holds `replays`, and a tenth as many at the framework's addresses, beside copies
/// on a stream that nothing orders. `progress` is told after each thousand, and may stop it by saying false.
///
/// # Errors
/// The device's.
pub fn soak(
    gpu: &Gpu,
    replays: u64,
    soak: &mut Soak,
    progress: &mut dyn FnMut(&Soak) -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let compile = |kernel: &Kernel| gpu.program(kernel);
    let programs = Programs::compile(compile)?;
    let (judge, copy) = (compile(&tally()?)?, compile(&copy()?)?);
    let judged = judged(&programs, &judge)?;
    let (load_pool, load_bindings) = load(&copy)?;
    let load_step = CudaStep::unproved(gpu.device, &load_pool, &planned(&load_pool)?, &load_bindings)?;
    let load = load_step.prepare(GraphId(0), &Mode::default())?;

    let places = [(planned(&judged.pool)?, true), (framework(&judged.pool)?, false)];
    for (placement, is_planned) in places {
        let mut step = CudaStep::unproved(gpu.device, &judged.pool, &placement, &judged.bindings)?;
        let serial = step.prepare(GraphId(0), &Mode { captured: Captured::Nothing, edges: Edges::Serialised })?;
        serial.run(&step)?;
        for (output, right) in judged.outputs.into_iter().zip(judged.expected) {
            let bytes = step.read(output)?;
            step.write(right, &bytes)?;
        }
        step.write(judged.wrong, &[0; 256])?;
        let replay = step.prepare(GraphId(0), &Mode::default())?;
        let canary = Canary::new([judged.keys], 256);
        let slot = Expected::nothing().slots(judged.keys, [2], BYTES, SLOTS, SLOTS * BYTES);
        let goal = if is_planned { replays } else { replays / 10 };
        loop {
            let done = if is_planned { soak.planned } else { soak.framework };
            if done >= goal {
                break;
            }
            let start = std::time::Instant::now();
            let before = canary.snapshot(&mut step)?;
            load.launch(&load_step)?;
            replay.run(&step)?;
            let after = canary.snapshot(&mut step)?;
            for at in 1..CHUNK {
                // One copy for a few replays keeps the load's queue from growing without end.
                if at % 8 == 0 {
                    load.launch(&load_step)?;
                }
                replay.launch(&step)?;
            }
            let counted = step.read(judged.wrong)?;
            let wrong = u64::from(u32::from_le_bytes([counted[0], counted[1], counted[2], counted[3]]));
            step.write(judged.wrong, &[0; 256])?;
            load_step.wait()?;
            if is_planned {
                soak.planned += CHUNK;
                soak.planned_wrong += wrong;
                soak.watched += 1;
                soak.intrusions += canary.compare(step.pool(), &before, &after, &slot).len() as u64;
                soak.seconds += start.elapsed().as_secs_f64();
            } else {
                soak.framework += CHUNK;
                soak.framework_wrong += wrong;
            }
            if !progress(soak)? {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// A copy that takes bandwidth.
fn load(copy: &Program) -> Result<(Pool, Bindings<'_>), Failure> {
    let mut recording = Recording::new();
    let from = recording.input("from", LOAD);
    let to = recording.scratch("to", LOAD);
    let mut bindings = Bindings::new();
    bindings.contents(from.id(), vec![1; LOAD as usize]);
    let mut recorded: Result<(), Failure> = Ok(());
    recording.capture("load", "load", |g| {
        recorded = (|| {
            let launch = Launch::new(copy, [64, 1, 1]).buffer(&from)?.buffer(&to)?;
            let launch = launch.scalar(ScalarValue::I32((LOAD / 4) as i32))?;
            let node = g.launch(g.main(), launch.work()?);
            bindings.kernel(node, launch);
            Ok(())
        })();
    });
    recorded?;
    let planned = recording.check()?.plan(&Options::default())?;
    Ok((planned.pool().clone(), bindings))
}

#[cfg(test)]
mod tests {
    use lathe_codegen::target::Target;
    use lathe_graph::explore::{Order, Schedule, World};
    use lathe_graph::model::{Phase, Placement};
    use lathe_runtime::nvrtc::Compiler;
    use lathe_runtime::replay::{EmulatedStep, Inspect};
    use lathe_runtime::toolchain::Toolchain;

    use super::*;

    fn program(kernel: &Kernel) -> Result<Program, Failure> {
        let toolchain = Toolchain::new(false, |_| {});
        Ok(Program::compile(&Compiler::load(&toolchain)?, kernel, Target::Sm90a)?)
    }

    #[test]
    fn the_step_counts_its_own_wrong_replays() -> Result<(), Failure> {
        let (programs, judge) = (Programs::compile(program)?, program(&tally()?)?);
        let mut judged = judged(&programs, &judge)?;
        let schedule = Schedule::new(&judged.pool, GraphId(0));
        let find = |name| judged.pool.find_node(name).unwrap();
        let bad = schedule.pair_order(find("logits"), find("mlp"), Phase::AfterWait).unwrap();
        let good = schedule.record_order();
        let run = |judged: &Judged, placement: &Placement, order: &Order| -> Result<(Vec<Vec<u8>>, u8), Failure> {
            let mut step = EmulatedStep::new(&judged.pool, placement, &judged.bindings)?;
            order.steps.iter().try_for_each(|&at| step.run(at))?;
            let outputs = judged.outputs.map(|id| step.bytes(id)).into_iter().collect::<Result<_, _>>()?;
            Ok((outputs, step.bytes(judged.wrong)?[0]))
        };
        let (planned, shared) = (planned(&judged.pool)?, framework(&judged.pool)?);
        let (right, _) = run(&judged, &planned, &good)?;
        judged.expected.into_iter().zip(right).for_each(|(id, bytes)| judged.bindings.contents(id, bytes));
        let counted = |placement, order| run(&judged, placement, order).map(|(_, wrong)| wrong);
        assert_eq!((counted(&planned, &good)?, counted(&planned, &bad)?), (0, 0));
        assert_eq!((counted(&shared, &good)?, counted(&shared, &bad)?), (0, 1));
        Ok(())
    }
}
