//! Recorded steps on real streams: every mode gives the serial result, and the driver holds what was recorded.

use std::rc::Rc;
use std::time::Instant;

use lathe_codegen::contract::ScalarValue;
use lathe_graph::build::{Bytes, Capture, Lasting, Planned, Recording};
use lathe_graph::driver::{CapturedEdge, CapturedGraph, CapturedKind, CapturedNode, read_back};
use lathe_graph::finding::Code;
use lathe_graph::model::{BufferId, EdgeKind, GraphId, NodeKind, Placement, Pool};
use lathe_graph::plan::Options;
use lathe_runtime::replay::{Bindings, Captured, CudaStep, Edges, Launch, Mode, Replay, StepError};

use super::scenario::{BYTES, LEN, Programs, Scenario, floats, framework, scaled, scenario};
use super::{Failure, Gpu, Outcome, Test, ensure, note};

/// Replays that a right graph must survive.
const REPLAYS: usize = 200;
/// Loads before the reader reads: some 100 microseconds, which the writer beside it takes a tenth of.
const HOPS: i32 = 5000;

pub(super) fn tests() -> Vec<Test> {
    let graphs = |name, run| Test { group: "graphs", name, run };
    let read_back = |name, run| Test { group: "read-back", name, run };
    vec![
        graphs("every_mode_gives_the_serial_result", every_mode_gives_the_serial_result),
        graphs("the_seed_failure_shows_its_rates", the_seed_failure_shows_its_rates),
        graphs("two_graphs_share_an_arena", two_graphs_share_an_arena),
        graphs("updates_move_buffers_and_change_scalars", updates_move_buffers_and_change_scalars),
        graphs("a_decode_step_of_61_layers_is_ready_in_a_second", a_decode_step_of_61_layers_is_ready_in_a_second),
        read_back("the_driver_holds_what_was_recorded", the_driver_holds_what_was_recorded),
        read_back(
            "a_programmatic_launch_may_wait_for_another_stream",
            a_programmatic_launch_may_wait_for_another_stream,
        ),
        read_back("what_differs_is_named", what_differs_is_named),
    ]
}

fn whole() -> Mode {
    Mode::default()
}

fn mode(captured: Captured, edges: Edges) -> Mode {
    Mode { captured, edges }
}

fn serial_result(step: &mut CudaStep, graph: GraphId) -> Result<Vec<(BufferId, u64)>, Failure> {
    let replay = step.prepare(graph, &mode(Captured::Nothing, Edges::Serialised))?;
    step.restore()?;
    replay.run(step)?;
    Ok(step.digests()?)
}

/// How many of `trials` replays, each from the same memory, leave another result.
fn wrong(step: &mut CudaStep, replay: &Replay, expected: &[(BufferId, u64)], trials: usize) -> Result<usize, Failure> {
    let mut wrong = 0;
    for _ in 0..trials {
        step.restore()?;
        replay.run(step)?;
        wrong += usize::from(step.digests()? != expected);
    }
    Ok(wrong)
}

fn every_mode_gives_the_serial_result(gpu: &Gpu) -> Outcome {
    let programs = Programs::compile(|kernel| gpu.program(kernel))?;
    let Scenario { checked, graph, bindings, reader, writer } = scenario(&programs, HOPS)?;
    let planned = checked.plan(&Options::default())?;
    let mut step = CudaStep::new(gpu.device, &planned, &bindings)?;
    let expected = serial_result(&mut step, graph)?;
    let forced = |first, second| Edges::Forced { first, second };
    let modes = [
        ("captured", whole()),
        ("eager", mode(Captured::Nothing, Edges::Recorded)),
        ("one node eager", mode(Captured::AllBut([reader].into()), Edges::Recorded)),
        ("captured, one stream", mode(Captured::Whole, Edges::Serialised)),
        ("reader forced first", mode(Captured::Whole, forced(reader, writer))),
        ("writer forced first", mode(Captured::Whole, forced(writer, reader))),
        ("eager, writer forced first", mode(Captured::Nothing, forced(writer, reader))),
    ];
    for (name, mode) in modes {
        let replay = step.prepare(graph, &mode).map_err(|error| format!("{name}: {error}"))?;
        let wrong = wrong(&mut step, &replay, &expected, REPLAYS).map_err(|error| format!("{name}: {error}"))?;
        ensure!(wrong == 0, "{name}: {wrong} of {REPLAYS} replays are wrong on the planned addresses");
    }
    Ok(Vec::new())
}

/// On the framework's addresses: sometimes wrong as recorded, never with the reader first, always with the writer first.
fn the_seed_failure_shows_its_rates(gpu: &Gpu) -> Outcome {
    let programs = Programs::compile(|kernel| gpu.program(kernel))?;
    let Scenario { checked, graph, bindings, reader, writer } = scenario(&programs, HOPS)?;
    let pool = checked.pool();
    let planned = checked.pool().clone();
    let mut right = CudaStep::unproved(gpu.device, &planned, &super::scenario::planned(&planned)?, &bindings)?;
    let expected = serial_result(&mut right, graph)?;
    let mut step = CudaStep::unproved(gpu.device, pool, &framework(pool)?, &bindings)?;
    let mut rate = |edges| -> Result<usize, Failure> {
        let replay = step.prepare(graph, &mode(Captured::Whole, edges))?;
        wrong(&mut step, &replay, &expected, REPLAYS)
    };
    let concurrent = rate(Edges::Recorded)?;
    let first = rate(Edges::Forced { first: reader, second: writer })?;
    let second = rate(Edges::Forced { first: writer, second: reader })?;
    let serial = rate(Edges::Serialised)?;
    ensure!(concurrent > 0, "no replay of the concurrent graph is wrong: the reader is not slow enough");
    ensure!(first == 0, "{first} of {REPLAYS} are wrong with the reader forced first");
    ensure!(second == REPLAYS, "{second} of {REPLAYS} are wrong with the writer forced first");
    ensure!(serial == 0, "{serial} of {REPLAYS} are wrong when serialised");
    Ok(vec![note("wrong, concurrent, framework's addresses", concurrent as f64 / REPLAYS as f64, "of replays")])
}

/// Two buckets: the transients of one lie on those of the other, and both write outputs that must survive.
fn two_graphs_share_an_arena(gpu: &Gpu) -> Outcome {
    let programs = Programs::compile(|kernel| gpu.program(kernel))?;
    let (planned, bindings, graphs) = buckets(&programs, "main")?;
    let mut step = CudaStep::new(gpu.device, &planned, &bindings)?;
    let expected = {
        let serial = mode(Captured::Nothing, Edges::Serialised);
        let replays = [step.prepare(graphs[0], &serial)?, step.prepare(graphs[1], &serial)?];
        step.restore()?;
        replays.iter().try_for_each(|replay| replay.run(&step))?;
        step.digests()?
    };
    let no_reuse: u64 = planned.pool().buffers().iter().map(|buffer| buffer.size).sum();
    ensure!(step.arena_bytes() < no_reuse, "the buckets share nothing: {} of {no_reuse} bytes", step.arena_bytes());
    let replays = [step.prepare(graphs[0], &whole())?, step.prepare(graphs[1], &whole())?];
    step.restore()?;
    for turn in 0..REPLAYS {
        replays[turn % 2].launch(&step)?;
    }
    ensure!(step.digests()? == expected, "alternating replays left another result than one of each");
    Ok(Vec::new())
}

/// Two graphs, the second with its origin on `stream`.
pub(super) fn buckets<'p>(
    programs: &'p Programs,
    stream: &str,
) -> Result<(Planned, Bindings<'p>, [GraphId; 2]), Failure> {
    let mut recording = Recording::new();
    let tokens = recording.input("tokens", BYTES);
    let zeros = recording.input("zeros", 256);
    let mut bindings = Bindings::new();
    bindings.contents(tokens.id(), floats((0..LEN).map(|i| 1.0 + i as f32)));
    bindings.contents(zeros.id(), vec![0; 256]);
    let mut graphs = Vec::new();
    for (bucket, origin) in ["main", stream].into_iter().enumerate() {
        let mut recorded: Result<(), Failure> = Ok(());
        graphs.push(recording.capture(&format!("bucket {bucket}"), origin, |g| {
            let out = g.output(&format!("out {bucket}"), BYTES);
            recorded = g.transient(&format!("hidden {bucket}"), BYTES, |g, hidden| {
                let first = Launch::named(&format!("up {bucket}"), &programs.scale, [1, 1, 1]);
                let first = first.buffer(&tokens)?.buffer(&hidden)?.scalar(ScalarValue::F32(2.0 + bucket as f32))?;
                let node = g.launch(g.main(), first.work()?);
                bindings.kernel(node, first);
                let second = Launch::named(&format!("down {bucket}"), &programs.late, [1, 1, 1]);
                let second = second.buffer(&zeros)?.buffer(&hidden)?.buffer(&out)?;
                let second = second.scalar(ScalarValue::F32(3.0))?.scalar(ScalarValue::I32(HOPS))?;
                let node = g.launch(g.main(), second.work()?);
                bindings.kernel(node, second);
                Ok(())
            });
        }));
        recorded?;
    }
    let planned = recording.check()?.plan(&Options::default())?;
    Ok((planned, bindings, [graphs[0], graphs[1]]))
}

fn updates_move_buffers_and_change_scalars(gpu: &Gpu) -> Outcome {
    let programs = Programs::compile(|kernel| gpu.program(kernel))?;
    let Scenario { checked, graph, bindings, .. } = scenario(&programs, 1)?;
    let planned = checked.plan(&Options::default())?;
    let pool = planned.pool();
    let find = |name: &str| pool.find_buffer(name).ok_or_else(|| format!("no buffer `{name}`"));
    let (tokens, hidden, keys) = (find("tokens")?, find("hidden")?, find("index keys")?);
    let (mlp, add) = (pool.find_node("mlp").ok_or("no mlp")?, pool.find_node("add").ok_or("no add")?);
    let mut step = CudaStep::new(gpu.device, &planned, &bindings)?;
    let mut replay = step.prepare(graph, &whole())?;
    let first = |step: &CudaStep| -> Result<f32, Failure> {
        let bytes = step.read(hidden)?;
        Ok(f32::from_le_bytes(bytes[..4].try_into()?))
    };
    step.restore()?;
    replay.run(&step)?;
    ensure!(first(&step)? == 0.5 * 5.0 * 7.0, "before any update: {}", first(&step)?);

    let memory = Rc::new(gpu.device.allocate("new tokens", BYTES)?);
    step.move_buffer(tokens, memory)?;
    step.write(tokens, &floats((0..LEN).map(|i| 2.0 + i as f32)))?;
    let stale = replay.run(&step);
    ensure!(matches!(stale, Err(StepError::Stale { .. })), "a replay with old pointers: {stale:?}");
    replay.update(&step)?;
    replay.run(&step)?;
    ensure!(first(&step)? == 2.0 * 5.0 * 7.0, "after the input moved: {}", first(&step)?);

    step.set_scalar(mlp, 2, ScalarValue::F32(11.0))?;
    step.set_scalar(add, 2, ScalarValue::F32(13.0))?;
    replay.update(&step)?;
    replay.run(&step)?;
    ensure!(first(&step)? == 2.0 * 11.0 * 13.0, "after the scalars changed: {}", first(&step)?);

    let wrong_type = step.set_scalar(mlp, 2, ScalarValue::I32(1));
    ensure!(matches!(wrong_type, Err(StepError::Update(_))), "an integer for a float: {wrong_type:?}");
    let persistent = step.move_buffer(keys, Rc::new(gpu.device.allocate("keys", 4 * BYTES)?));
    ensure!(matches!(persistent, Err(StepError::Update(_))), "a persistent buffer moved: {persistent:?}");
    let small = step.move_buffer(tokens, Rc::new(gpu.device.allocate("small", 16)?));
    ensure!(matches!(small, Err(StepError::Update(_))), "memory that is too small: {small:?}");
    let shared = Rc::new(gpu.device.allocate("shared", BYTES)?);
    step.move_buffer(tokens, shared.clone())?;
    let twice = step.move_buffer(hidden, shared);
    ensure!(twice.is_err(), "an output on the bytes of an input was accepted");
    Ok(Vec::new())
}

/// Recording, check, plan, capture and read-back of a decode step: 61 layers of ten kernels on two streams.
fn a_decode_step_of_61_layers_is_ready_in_a_second(gpu: &Gpu) -> Outcome {
    let programs = Programs::compile(|kernel| gpu.program(kernel))?;
    let start = Instant::now();
    let (recording, bindings) = decode_step(&programs, 61)?;
    let recorded = start.elapsed();
    let planned = recording.check()?.plan(&Options::default())?;
    let proved = start.elapsed();
    let mut step = CudaStep::new(gpu.device, &planned, &bindings)?;
    let placed = start.elapsed();
    let replay = step.prepare(GraphId(0), &whole())?;
    let ready = start.elapsed();
    let nodes = planned.pool().nodes().len();
    step.restore()?;
    replay.run(&step)?;
    let captured = step.digests()?;
    ensure!(captured == serial_result(&mut step, GraphId(0))?, "the captured step differs from the serial one");
    let seconds = ready.as_secs_f64();
    Ok(vec![
        note("nodes of a decode step", nodes as f64, "nodes"),
        note("record", recorded.as_secs_f64(), "s"),
        note("check and plan", (proved - recorded).as_secs_f64(), "s"),
        note("arena and kernels", (placed - proved).as_secs_f64(), "s"),
        note("capture, twice, read-back and instantiation", (ready - placed).as_secs_f64(), "s"),
        note("from nothing to ready", seconds, "s"),
    ])
}

/// `layers` layers of ten kernels: the indexer's five on a side stream beside the main stream's, joined at each end.
pub(super) fn decode_step(programs: &Programs, layers: usize) -> Result<(Recording, Bindings<'_>), Failure> {
    let mut recording = Recording::new();
    let tokens = recording.input("tokens", BYTES);
    let hidden = recording.scratch("hidden", BYTES);
    let keys = recording.persistent("index keys", layers as u64 * BYTES);
    let mut bindings = Bindings::new();
    bindings.contents(tokens.id(), floats((0..LEN).map(|i| 1.0 + i as f32 / 64.0)));
    bindings.contents(keys.id(), vec![0; layers * BYTES as usize]);
    let mut recorded: Result<(), Failure> = Ok(());
    recording.capture("decode", "main", |g| {
        recorded = record_layers(g, programs, &mut bindings, (&tokens, &hidden, &keys), layers);
    });
    recorded?;
    Ok((recording, bindings))
}

fn record_layers<'p>(
    g: &mut Capture,
    programs: &'p Programs,
    bindings: &mut Bindings<'p>,
    (tokens, hidden, keys): (&Lasting, &Lasting, &Lasting),
    layers: usize,
) -> Result<(), Failure> {
    let (main, side) = (g.main(), g.stream("indexer"));
    let out = g.output("logits of the step", BYTES);
    let mut run = |g: &mut Capture, stream, launch: Launch<'p>| -> Result<(), Failure> {
        let node = g.launch(stream, launch.work()?);
        bindings.kernel(node, launch);
        Ok(())
    };
    run(g, main, scaled(programs, "embed", tokens, hidden, 1.5)?)?;
    for layer in 0..layers {
        let name = |what: &str| format!("{what} {layer}");
        let names = ["norm", "q", "k", "scores", "picks", "up", "down"].map(name);
        let sizes: [(&str, u64); 7] = std::array::from_fn(|i| (names[i].as_str(), BYTES));
        g.transients(sizes, |g, [norm, q, k, scores, picks, up, down]| {
            run(g, main, scaled(programs, &name("normalise"), hidden, &norm, 0.5)?)?;
            g.order(main, side);
            run(g, side, scaled(programs, &name("project q"), &norm, &q, 2.0)?)?;
            run(g, side, scaled(programs, &name("project k"), &norm, &k, 3.0)?)?;
            let save = Launch::named(&name("store"), &programs.store, [1, 1, 1]).buffer(&k)?;
            let save = save.rows(keys, 0, i64::from(LEN))?.scalar(ScalarValue::I32(layer as i32))?;
            run(g, side, save)?;
            run(g, side, scaled(programs, &name("score"), &q, &scores, 1.25)?)?;
            run(g, side, scaled(programs, &name("pick"), &scores, &picks, 0.75)?)?;
            run(g, main, scaled(programs, &name("mlp up"), &norm, &up, 1.5)?)?;
            run(g, main, scaled(programs, &name("mlp down"), &up, &down, 0.5)?)?;
            g.order(side, main);
            run(g, main, scaled(programs, &name("attend"), &picks, &down, 1.0)?)?;
            run(g, main, scaled(programs, &name("add"), &down, hidden, 1.0625)?)
        })?;
    }
    run(g, main, scaled(programs, "head", hidden, &out, 1.0)?)
}

fn the_driver_holds_what_was_recorded(gpu: &Gpu) -> Outcome {
    let programs = Programs::compile(|kernel| gpu.program(kernel))?;
    let Scenario { checked, graph, bindings, .. } = scenario(&programs, HOPS)?;
    let planned = checked.plan(&Options::default())?;
    let step = CudaStep::new(gpu.device, &planned, &bindings)?;
    let replay = step.prepare(graph, &whole())?;
    let dumps = replay.dumps()?;
    ensure!(dumps.len() == 1, "{} captured segments", dumps.len());
    let dump = &dumps[0];
    let kernels = dump.nodes.iter().filter(|node| node.kind == CapturedKind::Kernel).count();
    ensure!(kernels == dump.nodes.len(), "not only kernels: {:?}", dump.nodes);
    ensure!(kernels == step.pool().nodes_of(graph).count(), "{kernels} kernels were captured");
    let launch = dump.nodes[0].launch.as_ref().ok_or("the driver did not say how the kernel is launched")?;
    ensure!(launch.block == [256, 1, 1] && launch.grid == [1, 1, 1], "{launch:?}");
    gpu.keep("seed", step.pool(), step.placement(), dump)?;
    Ok(vec![note("nodes", dump.nodes.len() as f64, "nodes"), note("edges", dump.edges.len() as f64, "edges")])
}

/// A launch after a kernel of its own stream, programmatically, and after one of another stream, fully: it is launched fully,
/// because the driver would make both edges programmatic.
fn a_programmatic_launch_may_wait_for_another_stream(gpu: &Gpu) -> Outcome {
    let programs = Programs::compile(|kernel| gpu.program(kernel))?;
    let mut recording = Recording::new();
    let tokens = recording.input("tokens", BYTES);
    let mut bindings = Bindings::new();
    bindings.contents(tokens.id(), floats((0..LEN).map(|i| 1.0 + i as f32)));
    let mut recorded: Result<(), Failure> = Ok(());
    let graph = recording.capture("mixed", "main", |g| {
        let (main, side) = (g.main(), g.stream("side"));
        let out = g.output("out", BYTES);
        recorded = g.transients([("a", BYTES), ("b", BYTES), ("c", BYTES)], |g, [a, b, c]| {
            let steps = [
                scaled(&programs, "first", &tokens, &a, 2.0)?,
                scaled(&programs, "beside", &a, &b, 3.0)?,
                scaled(&programs, "own", &a, &c, 5.0)?,
                scaled(&programs, "last", &c, &out, 7.0)?,
            ];
            for (at, launch) in steps.into_iter().enumerate() {
                match at {
                    1 => g.order(main, side),
                    3 => g.order(side, main),
                    _ => {}
                }
                let work = if at == 3 { launch.work()?.programmatic() } else { launch.work()? };
                let node = g.launch(if at == 1 { side } else { main }, work);
                bindings.kernel(node, launch);
            }
            Ok(())
        });
    });
    recorded?;
    let planned = recording.check()?.plan(&Options::default())?;
    let mut step = CudaStep::new(gpu.device, &planned, &bindings)?;
    let replay = step.prepare(graph, &whole())?;
    let dump = replay.dumps()?.remove(0);
    gpu.keep("mixed", step.pool(), step.placement(), &dump)?;
    let expected = serial_result(&mut step, graph)?;
    let wrong = wrong(&mut step, &replay, &expected, REPLAYS)?;
    ensure!(wrong == 0, "{wrong} of {REPLAYS} replays are wrong");
    let programmatic = dump.edges.iter().filter(|edge| edge.programmatic).count();
    ensure!(programmatic == 0, "{programmatic} programmatic edges were captured: {:?}", dump.edges);
    Ok(Vec::new())
}

/// A real dump against annotations that are each wrong in one way.
fn what_differs_is_named(gpu: &Gpu) -> Outcome {
    let programs = Programs::compile(|kernel| gpu.program(kernel))?;
    let Scenario { checked, graph, bindings, .. } = scenario(&programs, HOPS)?;
    let planned = checked.plan(&Options::default())?;
    let step = CudaStep::new(gpu.device, &planned, &bindings)?;
    let dump = step.prepare(graph, &whole())?.dumps()?.remove(0);
    let find = |name: &str| step.pool().find_node(name).ok_or_else(|| format!("no node `{name}`"));
    let (save, mlp) = (find("store")?, find("mlp")?);
    let told = |change: &dyn Fn(&mut Pool, &mut Placement, &mut CapturedGraph)| -> Result<Vec<String>, Failure> {
        let (mut pool, mut placement, mut dump) = (step.pool().clone(), step.placement().clone(), dump.clone());
        change(&mut pool, &mut placement, &mut dump);
        let findings = read_back(&pool, graph, &placement, &dump, None)?;
        Ok(findings.into_iter().map(|finding| format!("{}: {}", finding.code, finding.message)).collect())
    };
    let expect = |what: &str, said: Vec<String>, code: Code, part: &str| -> Result<(), Failure> {
        let code = code.to_string();
        let found = said.iter().any(|message| message.starts_with(&code) && message.contains(part));
        ensure!(found, "{what}: no {code} says {part:?} among {said:#?}");
        Ok(())
    };
    ensure!(told(&|_, _, _| ())?.is_empty(), "the annotation itself is found wrong");
    let grid = told(&|pool, _, _| {
        if let Some(launch) = &mut pool.node_mut(mlp).launch {
            launch.grid = [2, 1, 1];
        }
    })?;
    expect("another grid", grid, Code::E11, "grid of `mlp`")?;
    let scalar = told(&|pool, _, _| {
        if let Some(launch) = &mut pool.node_mut(mlp).launch {
            launch.scalars.insert(2, 0);
        }
    })?;
    expect("another scalar", scalar, Code::E11, "parameter 2 of `mlp`")?;
    let extra = told(&|_, _, dump| dump.nodes.push(CapturedNode::new(CapturedKind::Memset, "")))?;
    expect("a node nobody recorded", extra, Code::E11, "memset node that was not recorded")?;
    let missing = told(&|pool, _, _| {
        let mut node = pool.node(mlp).clone();
        node.name = "forgotten".into();
        node.symbol = None;
        node.kind = NodeKind::Kernel;
        pool.add_node(node);
    })?;
    expect("a node that was not captured", missing, Code::E11, "`forgotten` was recorded and is not in")?;
    let order = told(&|pool, _, _| pool.add_edge(save, mlp, EdgeKind::Full))?;
    expect(
        "an edge that was not captured",
        order,
        Code::E11,
        "nothing in the captured graph orders `store` before `mlp`",
    )?;
    let serial = told(&|_, _, dump| {
        let at = |name: &str| dump.nodes.iter().position(|node| node.name == name).unwrap_or(0);
        let (late, store) = (at("scale_late"), at("store"));
        dump.edges.retain(|edge| (edge.from, edge.to) != (late, store));
        dump.edges.push(CapturedEdge::full(store, late));
    })?;
    expect("an edge turned round", serial, Code::E11, "`store`")?;
    let moved = told(&|_, placement, _| {
        let q = step.pool().find_buffer("x");
        if let Some((id, address)) = q.and_then(|id| Some((id, placement.address(id)?))) {
            placement.set(id, address + (1 << 30));
        }
    })?;
    expect("a buffer that is elsewhere", moved, Code::E11, "no parameter of `mlp` points into `x`")?;
    Ok(Vec::new())
}
