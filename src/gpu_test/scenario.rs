//! The seed failure: a side stream still reads bytes that a caching allocator has handed to the main stream.

use lathe_codegen::contract::ScalarValue;
use lathe_codegen::ir::Kernel;
use lathe_codegen::prelude::*;
use lathe_dsl::kernel;
use lathe_graph::allocator::{Op, allocate, as_recorded};
use lathe_graph::build::{Bytes, Capture, Checked, Recording};
use lathe_graph::model::{GraphId, NodeId, Placement, Pool};
use lathe_graph::order::Order;
use lathe_graph::plan::{Options, Planner};
use lathe_runtime::program::Program;
use lathe_runtime::replay::{Bindings, Launch};

use super::Failure;

/// Elements of every tensor.
pub const LEN: i32 = 256;
/// Bytes of every tensor.
pub const BYTES: u64 = 4 * LEN as u64;
/// Slots of the pool of keys.
pub const SLOTS: u64 = 4;

/// out = factor * x, element by element.
#[kernel(warps = 8)]
pub fn scale(#[read] x: Slice<f32>, #[write_all] out: Slice<f32>, factor: Scalar<f32>) {
    pdl::wait();
    out.at(thread::id()).store(x.at(thread::id()).load() * factor);
}

/// The same, late: it reads `x` after `hops` loads of which each needs the one before. `zeros` holds zeros.
#[kernel(warps = 8)]
pub fn scale_late(
    #[read] zeros: Slice<i32>,
    #[read] x: Slice<f32>,
    #[write_all] out: Slice<f32>,
    factor: Scalar<f32>,
    hops: Scalar<i32>,
) {
    pdl::wait();
    let mut at = Scalar::from(0);
    for _ in Scalar::from(0)..hops {
        at = zeros.at(at).load();
    }
    out.at(thread::id()).store(x.at(thread::id() + at).load() * factor);
}

/// Stores `x` at a slot of the pool.
#[kernel(warps = 8)]
pub fn store(#[read] x: Slice<f32>, #[write_part] pool: Rows<f32>, slot: Scalar<i32>) {
    pdl::wait();
    pool.row(slot).at(thread::id()).store(x.at(thread::id()).load());
}

/// The kernels, compiled.
pub struct Programs {
    /// [`scale`].
    pub scale: Program,
    /// [`scale_late`].
    pub late: Program,
    /// [`store`].
    pub store: Program,
}

impl Programs {
    /// Compiles them.
    ///
    /// # Errors
    /// What tracing or compiling says.
    pub fn compile(compile: impl Fn(&Kernel) -> Result<Program, Failure>) -> Result<Self, Failure> {
        Ok(Programs { scale: compile(&scale()?)?, late: compile(&scale_late()?)?, store: compile(&store()?)? })
    }
}

/// The indexer on a side stream reads `q`; the main stream goes on with `x`, and joins at the end.
pub struct Scenario<'p> {
    /// The recording, checked: only addresses can be wrong.
    pub checked: Checked,
    /// Its graph.
    pub graph: GraphId,
    /// What its nodes do.
    pub bindings: Bindings<'p>,
    /// Reads `q` on the side stream.
    pub reader: NodeId,
    /// Writes `x` on the main stream.
    pub writer: NodeId,
}

/// Records it; the reader reads after `hops` loads.
///
/// # Errors
/// If the checker finds something, which it must not.
pub fn scenario<'p>(programs: &'p Programs, hops: i32) -> Result<Scenario<'p>, Failure> {
    let mut recording = Recording::new();
    let tokens = recording.input("tokens", BYTES);
    let zeros = recording.input("zeros", 256);
    let keys = recording.persistent("index keys", SLOTS * BYTES);
    let mut bindings = Bindings::new();
    bindings.contents(tokens.id(), floats((0..LEN).map(|i| 0.5 + i as f32)));
    bindings.contents(zeros.id(), vec![0; 256]);
    bindings.contents(keys.id(), floats((0..SLOTS as i32 * LEN).map(|i| -(i as f32))));
    let mut nodes: Result<(NodeId, NodeId), Failure> = Err("nothing was recorded".into());
    let graph = recording.capture("layer", "main", |g| {
        let (main, side) = (g.main(), g.stream("indexer"));
        let (scores, hidden) = (g.output("scores", BYTES), g.output("hidden", BYTES));
        nodes = g.transients([("q", BYTES), ("x", BYTES)], |g, [q, x]| {
            let mut run = |g: &mut Capture, stream, launch: Launch<'p>| {
                let node = g.launch(stream, launch.work()?);
                bindings.kernel(node, launch);
                Ok::<NodeId, Failure>(node)
            };
            run(g, main, scaled(programs, "project", &tokens, &q, 2.0)?)?;
            g.order(main, side);
            let logits = Launch::named("logits", &programs.late, [1, 1, 1]).buffer(&zeros)?.buffer(&q)?;
            let logits = logits.buffer(&scores)?.scalar(ScalarValue::F32(3.0))?.scalar(ScalarValue::I32(hops))?;
            let reader = run(g, side, logits)?;
            let save = Launch::new(&programs.store, [1, 1, 1]).buffer(&q)?.rows(&keys, 0, i64::from(LEN))?;
            run(g, side, save.scalar(ScalarValue::I32(2))?)?;
            let writer = run(g, main, scaled(programs, "mlp", &tokens, &x, 5.0)?)?;
            run(g, main, scaled(programs, "add", &x, &hidden, 7.0)?)?;
            Ok((reader, writer))
        });
        g.order(side, main);
    });
    let (reader, writer) = nodes?;
    Ok(Scenario { checked: recording.check()?, graph, bindings, reader, writer })
}

/// [`scale`] of `from` into `to`, under a name of its own.
///
/// # Errors
/// None: the arguments fit.
pub fn scaled<'p, 'a, 'b>(
    programs: &'p Programs,
    name: &str,
    from: &impl Bytes<'a>,
    to: &impl Bytes<'b>,
    factor: f32,
) -> Result<Launch<'p>, Failure> {
    let launch = Launch::named(name, &programs.scale, [1, 1, 1]);
    Ok(launch.buffer(from)?.buffer(to)?.scalar(ScalarValue::F32(factor))?)
}

/// Little-endian bytes.
pub fn floats(values: impl Iterator<Item = f32>) -> Vec<u8> {
    values.flat_map(f32::to_le_bytes).collect()
}

/// Where a framework's caching allocator puts the buffers.
///
/// # Errors
/// None that a recording can cause.
pub fn framework(pool: &Pool) -> Result<Placement, Failure> {
    Ok(allocate(pool, &as_recorded(pool), 1 << 20)?.placement)
}

/// No two buffers share bytes.
///
/// # Errors
/// None that a recording can cause.
pub fn disjoint(pool: &Pool) -> Result<Placement, Failure> {
    let mut ops = as_recorded(pool);
    ops.retain(|op| !matches!(op, Op::Drop(_)));
    Ok(allocate(pool, &ops, 1 << 20)?.placement)
}

/// Where the planner puts them.
///
/// # Errors
/// If the pool is not valid.
pub fn planned(pool: &Pool) -> Result<Placement, Failure> {
    Ok(Planner::new(pool, &Order::of(pool)?).plan(&Options::default()).placement)
}
