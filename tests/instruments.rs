//! The seed failure on the emulator, with real kernels: a side stream still reads bytes that a caching allocator has
//! handed to the main stream. Every instrument shows it, none moves it, and each fix removes it.

use lathe::contract::ScalarValue;
use lathe::graph::allocator::{Op, allocate, as_recorded};
use lathe::graph::build::{Bytes, Recording};
use lathe::graph::check::{Layout, invariance};
use lathe::graph::explore::{Schedule, World, explore};
use lathe::graph::finding::Code;
use lathe::graph::model::{GraphId, NodeId, Placement, Pool};
use lathe::graph::order::Order;
use lathe::graph::plan::{Options, Planner};
use lathe::prelude::*;
use lathe::runtime::instrument::{Canary, Cause, Expected, Observers, diff, forced, observed, two_by_two};
use lathe::runtime::nvrtc::Compiler;
use lathe::runtime::program::Program;
use lathe::runtime::replay::{Bindings, EmulatedStep, Inspect, Launch, LaunchError};
use lathe::runtime::toolchain::Toolchain;
use lathe::target::Target;

/// Elements of every tensor.
const LEN: i32 = 256;
const BYTES: u64 = 4 * LEN as u64;

/// out = factor * x, element by element.
#[kernel(warps = 8)]
fn scale(#[read] x: Slice<f32>, #[write_all] out: Slice<f32>, factor: Scalar<f32>) {
    pdl::wait();
    out.at(thread::id()).store(x.at(thread::id()).load() * factor);
}

/// Stores `x` at a slot of the pool.
#[kernel(warps = 8)]
fn store(#[read] x: Slice<f32>, #[write_part] pool: Rows<f32>, slot: Scalar<i32>) {
    pdl::wait();
    pool.row(slot).at(thread::id()).store(x.at(thread::id()).load());
}

fn program(kernel: &lathe::ir::Kernel) -> Program {
    let toolchain = Toolchain::new(false, |_| {});
    Program::compile(&Compiler::load(&toolchain).unwrap(), kernel, Target::Sm120a).unwrap()
}

fn floats(values: impl Iterator<Item = f32>) -> Vec<u8> {
    values.flat_map(f32::to_le_bytes).collect()
}

/// The indexer on a side stream reads `q`; the main stream goes on with `x`, and joins at the end.
struct Step<'p> {
    pool: Pool,
    graph: GraphId,
    bindings: Bindings<'p>,
    reader: NodeId,
    writer: NodeId,
}

struct Programs {
    scale: Program,
    store: Program,
}

impl Programs {
    fn new() -> Self {
        Programs { scale: program(&scale().unwrap()), store: program(&store().unwrap()) }
    }
}

fn step(programs: &Programs) -> Step<'_> {
    let mut recording = Recording::new();
    let tokens = recording.input("tokens", BYTES);
    let keys = recording.persistent("index keys", 4 * BYTES);
    let mut bindings = Bindings::new();
    bindings.contents(tokens.id(), floats((0..LEN).map(|i| 0.5 + i as f32)));
    bindings.contents(keys.id(), floats((0..4 * LEN).map(|i| -(i as f32))));
    let (mut reader, mut writer) = (None, None);
    let graph = recording.capture("layer", "main", |g| {
        let (main, side) = (g.main(), g.stream("indexer"));
        let (scores, hidden) = (g.output("scores", BYTES), g.output("hidden", BYTES));
        g.transients([("q", BYTES), ("x", BYTES)], |g, [q, x]| {
            let project = scaled(programs, "project", &tokens, &q, 2.0);
            bind(g.launch(main, project.work().unwrap()), project, &mut bindings);
            g.order(main, side);
            let logits = scaled(programs, "logits", &q, &scores, 3.0);
            reader = Some(bind(g.launch(side, logits.work().unwrap()), logits, &mut bindings));
            let save = Launch::new(&programs.store, [1, 1, 1]);
            let save = save.buffer(&q).unwrap().rows(&keys, 0, i64::from(LEN)).unwrap();
            let save = save.scalar(ScalarValue::I32(2)).unwrap();
            bind(g.launch(side, save.work().unwrap()), save, &mut bindings);
            let mlp = scaled(programs, "mlp", &tokens, &x, 5.0);
            writer = Some(bind(g.launch(main, mlp.work().unwrap()), mlp, &mut bindings));
            let add = scaled(programs, "add", &x, &hidden, 7.0);
            bind(g.launch(main, add.work().unwrap()), add, &mut bindings);
        });
        g.order(side, main);
    });
    let pool = recording.check().expect("the order is right: only addresses can be wrong").pool().clone();
    Step { pool, graph, bindings, reader: reader.unwrap(), writer: writer.unwrap() }
}

fn scaled<'p, 'a, 'b>(
    programs: &'p Programs,
    name: &str,
    from: &impl Bytes<'a>,
    to: &impl Bytes<'b>,
    factor: f32,
) -> Launch<'p> {
    let launch = Launch::named(name, &programs.scale, [1, 1, 1]);
    launch.buffer(from).unwrap().buffer(to).unwrap().scalar(ScalarValue::F32(factor)).unwrap()
}

fn bind<'p>(node: NodeId, launch: Launch<'p>, bindings: &mut Bindings<'p>) -> NodeId {
    bindings.kernel(node, launch);
    node
}

/// Where a framework's caching allocator puts the buffers.
fn framework(pool: &Pool) -> Placement {
    allocate(pool, &as_recorded(pool), 1 << 20).unwrap().placement
}

/// No two buffers share bytes.
fn disjoint(pool: &Pool) -> Placement {
    let mut ops = as_recorded(pool);
    ops.retain(|op| !matches!(op, Op::Drop(_)));
    allocate(pool, &ops, 1 << 20).unwrap().placement
}

fn planned(pool: &Pool) -> Placement {
    Planner::new(pool, &Order::of(pool).unwrap()).plan(&Options::default()).placement
}

#[test]
fn the_checker_refuses_the_frameworks_addresses_and_takes_the_plan() {
    let programs = Programs::new();
    let Step { pool, .. } = step(&programs);
    let (q, x) = (pool.find_buffer("q").unwrap(), pool.find_buffer("x").unwrap());
    let shared = framework(&pool);
    assert_eq!(shared.address(q), shared.address(x), "the allocator hands q's bytes to x");
    let report = lathe::graph::check::check(&pool, Some(&shared)).unwrap();
    assert!(report.of(Code::E2).count() > 0, "{:?}", report.findings);
    assert!(report.is_harmful());
    assert!(lathe::graph::check::check(&pool, Some(&planned(&pool))).unwrap().is_clean());
}

#[test]
fn some_orders_corrupt_the_framework_step_and_none_the_planned_one() {
    let programs = Programs::new();
    let Step { pool, graph, bindings, .. } = step(&programs);
    let schedule = Schedule::new(&pool, graph);
    let orders = || (0..40).map(|seed| schedule.random_order(seed));
    for (placement, corrupts) in [(framework(&pool), true), (planned(&pool), false), (disjoint(&pool), false)] {
        let mut world = EmulatedStep::new(&pool, &placement, &bindings).unwrap();
        let seen = explore(&schedule, orders(), &mut world).unwrap();
        assert_eq!(!seen.deviations.is_empty(), corrupts);
        assert!(seen.deviations.len() < seen.orders, "the record order is among the right ones");
    }
}

#[test]
fn a_forced_order_makes_the_fault_certain_and_the_two_by_two_names_it() {
    let programs = Programs::new();
    let Step { pool, graph, bindings, reader, writer } = step(&programs);
    let schedule = Schedule::new(&pool, graph);
    let (shared, apart) = (framework(&pool), disjoint(&pool));
    let mut world = EmulatedStep::new(&pool, &shared, &bindings).unwrap();
    let seen = forced(&mut world, &schedule, reader, writer).unwrap();
    assert_eq!((seen.first_before_second, seen.second_before_first), (Some(true), Some(false)));

    let mut other = EmulatedStep::new(&pool, &apart, &bindings).unwrap();
    let clean = forced(&mut other, &schedule, reader, writer).unwrap();
    assert_eq!((clean.first_before_second, clean.second_before_first), (Some(true), Some(true)));

    other.reset().unwrap();
    schedule.record_order().steps.iter().for_each(|&step| other.run(step).unwrap());
    let expected = other.observe().unwrap();
    let orders: Vec<_> = (0..40).map(|seed| schedule.random_order(seed)).collect();
    let table = two_by_two(&mut world, &mut other, &schedule, &orders, &expected).unwrap();
    assert_eq!(table.cause(), Cause::Alias, "{table:?}");
    assert_eq!(table.concurrent_planned.trials, 40);
}

#[test]
fn the_diff_names_the_buffer_and_the_canary_the_chunk() {
    let programs = Programs::new();
    let Step { pool, graph, bindings, reader, writer } = step(&programs);
    let schedule = Schedule::new(&pool, graph);
    let shared = framework(&pool);
    let mut world = EmulatedStep::new(&pool, &shared, &bindings).unwrap();
    let find = |name| pool.find_buffer(name).unwrap();
    let (tokens, scores, keys) = (find("tokens"), find("scores"), find("index keys"));
    let bad = schedule.pair_order(reader, writer, lathe::graph::model::Phase::AfterWait).unwrap();

    let seen = diff(&mut world, &[tokens], &[scores], &schedule.record_order(), &bad).unwrap();
    assert!(seen.inputs.is_empty());
    assert_eq!(seen.outputs.iter().map(|(id, ..)| *id).collect::<Vec<_>>(), [scores]);

    let canary = Canary::new([keys], 256);
    world.reset().unwrap();
    let before = canary.snapshot(&mut world).unwrap();
    bad.steps.iter().for_each(|&step| world.run(step).unwrap());
    let after = canary.snapshot(&mut world).unwrap();
    let slot = Expected::nothing().slots(keys, [2, -1], BYTES, 4, 4 * BYTES);
    assert_eq!(canary.compare(&pool, &before, &after, &slot), [], "the store wrote its slot and nothing else");
    let wrong_slot = Expected::nothing().slots(keys, [1], BYTES, 4, 4 * BYTES);
    let found = canary.compare(&pool, &before, &after, &wrong_slot);
    assert_eq!(found.iter().map(|i| i.chunk.start).collect::<Vec<_>>(), [2048, 2304, 2560, 2816]);
    assert_eq!(found[0].writers, [pool.find_node("store").unwrap()]);
}

#[test]
fn observers_change_no_address_no_order_and_no_result() {
    let programs = Programs::new();
    let Step { pool, graph, bindings, .. } = step(&programs);
    let order = Order::of(&pool).unwrap();
    let plan = Planner::new(&pool, &order).plan(&Options::default());
    let observers = Observers { canary: vec![pool.find_buffer("index keys").unwrap()], poison: true };
    let (with, placed) = observed(&pool, &plan.placement, &order, &observers);
    assert!(with.nodes().len() > pool.nodes().len());
    let off = Layout { pool: &pool, placement: &plan.placement };
    assert_eq!(invariance(off, Layout { pool: &with, placement: &placed }).unwrap(), []);
    assert!(lathe::graph::check::check(&with, Some(&placed)).unwrap().is_clean());

    let schedule = Schedule::new(&pool, graph);
    let mut plain = EmulatedStep::new(&pool, &plan.placement, &bindings).unwrap();
    let mut poisoned = EmulatedStep::new(&pool, &plan.placement, &bindings).unwrap().poisoning_dead_bytes();
    for order in (0..10).map(|seed| schedule.random_order(seed)) {
        let results = [&mut plain, &mut poisoned].map(|world| {
            world.reset().unwrap();
            order.steps.iter().for_each(|&step| world.run(step).unwrap());
            world.observe().unwrap()
        });
        assert_eq!(results[0], results[1]);
    }
    let q = pool.find_buffer("q").unwrap();
    assert!(poisoned.bytes(q).unwrap() != plain.bytes(q).unwrap(), "the poison is there");
}

#[test]
fn an_argument_that_does_not_fit_is_named() {
    let programs = Programs::new();
    let mut recording = Recording::new();
    let tokens = recording.input("tokens", BYTES);
    let refused = Launch::new(&programs.scale, [1, 1, 1]).rows(&tokens, 0, 8).err().unwrap();
    assert_eq!(
        refused.to_string(),
        "kernel `scale`, argument 1: a pointer with 1 strides was given, and `x` is a pointer to f32 with 0 strides"
    );
    let short = Launch::new(&programs.scale, [1, 1, 1]).buffer(&tokens).unwrap();
    assert!(matches!(short.work(), Err(LaunchError::Missing { given: 1, .. })));
}
