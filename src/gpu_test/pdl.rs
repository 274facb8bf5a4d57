//! Store to logits to top-k on programmatic edges: right as written; with a wait left out, the checker, the emulator
//! and the hardware each show it.

use lathe_codegen::contract::ScalarValue;
use lathe_codegen::ir::Kernel;
use lathe_codegen::mutate::{Rule, mutants};
use lathe_codegen::ops::OpDef;
use lathe_codegen::ops::pdl::{LAUNCH_DEPENDENTS, WAIT};
use lathe_graph::build::{Bytes, Recording};
use lathe_graph::check::check;
use lathe_graph::explore::Schedule;
use lathe_graph::finding::Code;
use lathe_graph::model::{BufferId, GraphId, Pool};
use lathe_kernels::launch::{BF16_CTAS_PER_SM, STAGES, logits_grid, store_grid, topk_grid};
use lathe_runtime::instrument::forced;
use lathe_runtime::program::Program;
use lathe_runtime::replay::{Bindings, CudaStep, Edges, EmulatedStep, Launch, Mode};

use super::{Failure, Gpu, Outcome, Test, ensure, note};

/// Replays of the right graph.
const REPLAYS: usize = 10_000;
/// Replays of the graph that must go wrong.
const CONTROLS: usize = 500;
/// Different keys that replays store in turn, so that a stale one is seen.
const TURNS: usize = 8;

const ROWS: usize = 4;
const HEADS: i32 = 64;
const K: usize = 512;
/// Keys of a row.
pub const KEYS: usize = 2048;
/// Keys of a row of the graph that must go wrong: the logits still run when a top-k that does not wait for them reads.
pub const CONTROL_KEYS: usize = 16_384;
const PAGE: usize = 64;
const PAGE_BYTES: usize = PAGE * 256;

pub(super) fn tests() -> Vec<Test> {
    let pdl = |name, run| Test { group: "programmatic", name, run };
    vec![
        pdl("store_logits_and_top_k_are_right_over_10000_replays", store_logits_and_top_k_are_right),
        pdl("without_its_wait_the_checker_the_emulator_and_the_hardware_show_it", without_its_wait),
    ]
}

/// The kernels of the chain.
pub struct Kernels {
    store: Program,
    logits: Program,
    topk: Program,
}

/// A recorded chain.
pub struct Chain<'p> {
    /// The recording.
    pub pool: Pool,
    /// Its graph.
    pub graph: GraphId,
    /// What its nodes do.
    pub bindings: Bindings<'p>,
    keys: BufferId,
    logits: BufferId,
    picks: BufferId,
}

/// Compiles the kernels, each that reads what another wrote as `change` makes it.
///
/// # Errors
/// What tracing or compiling says.
pub fn kernels(
    compile: impl Fn(&Kernel) -> Result<Program, Failure>,
    change: impl Fn(Kernel) -> Result<Kernel, Failure>,
) -> Result<Kernels, Failure> {
    Ok(Kernels {
        store: compile(&lathe_kernels::bf16_store::bf16_index_k_store::<i64>(1)?)?,
        logits: compile(&change(lathe_kernels::bf16_logits::bf16_paged_mqa_logits(HEADS, 1, STAGES)?)?)?,
        topk: compile(&change(lathe_kernels::topk::topk_page_transform(K as i32)?)?)?,
    })
}

/// Top-k without its `pdl::wait`, and logits that let it start before they have written anything.
fn without_wait(mut kernel: Kernel) -> Result<Kernel, Failure> {
    if kernel.name == "topk_page_transform" {
        let without =
            mutants(&kernel).into_iter().find(|mutant| mutant.rule == Rule::DropWait && mutant.edit.contains("pdl"));
        return Ok(without.ok_or("the kernel has no pdl::wait to leave out")?.kernel);
    }
    let find = |kernel: &Kernel, op: &OpDef| {
        let found = kernel.insts().into_iter().find(|(_, inst)| std::ptr::eq(inst.op, op)).map(|(path, _)| path);
        found.ok_or_else(|| format!("`{}` has no `{}`", kernel.name, op.name))
    };
    let release = find(&kernel, &LAUNCH_DEPENDENTS)?;
    let release = kernel.remove(&release).ok_or("it was found here")?;
    let wait = find(&kernel, &WAIT)?;
    ensure!(kernel.insert(&wait, release), "it was found here");
    Ok(kernel)
}

/// Rows of one token each and of so many keys; a step stores the row's newest key in its last slot.
///
/// # Errors
/// None: the arguments fit.
pub fn chain(kernels: &Kernels, row_keys: usize) -> Result<Chain<'_>, Failure> {
    let pages = ROWS * row_keys / PAGE;
    let mut recording = Recording::new();
    let keys = recording.input("new keys", (ROWS * 256) as u64);
    let slots = recording.input("slots", (ROWS * 8) as u64);
    let q = recording.input("q", (ROWS * HEADS as usize * 256) as u64);
    let weights = recording.input("weights", (ROWS * HEADS as usize * 4) as u64);
    let lens = recording.input("context lens", (ROWS * 4) as u64);
    let table = recording.input("block table", (pages * 4) as u64);
    let k_pages = recording.persistent("index k", (pages * PAGE_BYTES) as u64);

    let mut bindings = Bindings::new();
    bindings.contents(keys.id(), new_keys(0));
    let slot = |row: usize| ((row * row_keys + row_keys - 1) as i64).to_le_bytes();
    bindings.contents(slots.id(), (0..ROWS).flat_map(slot).collect());
    bindings.contents(q.id(), bf16s(1, ROWS * HEADS as usize * 128));
    bindings.contents(
        weights.id(),
        (0..ROWS * HEADS as usize).flat_map(|i| (1.0 + (i % 7) as f32).to_le_bytes()).collect(),
    );
    bindings.contents(lens.id(), (0..ROWS).flat_map(|_| (row_keys as i32).to_le_bytes()).collect());
    bindings.contents(table.id(), (0..pages as i32).flat_map(i32::to_le_bytes).collect());
    bindings.contents(k_pages.id(), bf16s(2, pages * PAGE_BYTES / 2));

    let mut recorded: Result<(BufferId, BufferId), Failure> = Err("nothing was recorded".into());
    let graph = recording.capture("decode", "main", |g| {
        let logits = g.output("logits", (ROWS * row_keys * 4) as u64);
        let picks = g.output("picks", (ROWS * K * 4) as u64);
        recorded = (|| {
            let store = Launch::new(&kernels.store, store_grid(ROWS, 1)).rows(&keys, 0, 128)?.buffer(&slots)?;
            let store = store.rows(&k_pages, 0, (PAGE_BYTES / 2) as i64)?.scalar(ScalarValue::I32(ROWS as i32))?;
            let node = g.launch(g.main(), store.work()?);
            bindings.kernel(node, store);
            // A page a CTA: many CTAs, so that one which does not wait finds others still at work.
            let score = Launch::new(&kernels.logits, logits_grid(BF16_CTAS_PER_SM, ROWS, 1, row_keys as u64, 132))
                .buffer(&q)?;
            let score = score.rows(&k_pages, 0, (PAGE_BYTES / 2) as i64)?.buffer(&weights)?.buffer(&lens)?;
            let score = score.rows(&table, 0, (row_keys / PAGE) as i64)?.rows(&logits, 0, row_keys as i64)?;
            let score =
                score.scalar(ScalarValue::I32((row_keys / PAGE) as i32))?.scalar(ScalarValue::I32(row_keys as i32))?;
            let node = g.launch(g.main(), score.work()?.programmatic());
            bindings.kernel(node, score);
            let pick = Launch::new(&kernels.topk, topk_grid(ROWS)).rows(&logits, 0, row_keys as i64)?.buffer(&lens)?;
            let pick = pick.rows(&table, 0, (row_keys / PAGE) as i64)?.buffer(&picks)?.scalar(ScalarValue::I32(1))?;
            let node = g.launch(g.main(), pick.work()?.programmatic());
            bindings.kernel(node, pick);
            Ok((logits.id(), picks.id()))
        })();
    });
    let (logits, picks) = recorded?;
    Ok(Chain { pool: recording.pool().clone(), graph, bindings, keys: keys.id(), logits, picks })
}

/// The rows' newest keys in one turn.
fn new_keys(turn: usize) -> Vec<u8> {
    bf16s(100 + turn as u64, ROWS * 128)
}

/// Numbers between -1 and 1.
fn bf16s(seed: u64, count: usize) -> Vec<u8> {
    let noise = lathe_kernels::cases::Noise::new(seed);
    (0..count as u64).flat_map(|i| half::bf16::from_f32(noise.bell(i).clamp(-1.0, 1.0)).to_le_bytes()).collect()
}

/// What a replay leaves: the logits, bit for bit, and the picks of each row in ascending order.
fn outputs(step: &CudaStep, chain: &Chain) -> Result<(Vec<u8>, Vec<i32>), Failure> {
    let mut picks: Vec<i32> =
        step.read(chain.picks)?.as_chunks().0.iter().map(|bytes| i32::from_le_bytes(*bytes)).collect();
    picks.chunks_mut(K).for_each(<[i32]>::sort_unstable);
    Ok((step.read(chain.logits)?, picks))
}

/// Writes the turn's keys, and poisons what the replay is to write: picks that stay are none, and a logit that top-k reads too
/// early is larger than any. (One that is smaller would let a top-k without its wait find more keys above the k-th than it
/// counted, and write past its row.)
fn begin_turn(step: &mut CudaStep, chain: &Chain, turn: usize) -> Result<(), Failure> {
    step.write(chain.keys, &new_keys(turn))?;
    for (buffer, poison) in [(chain.logits, f32::INFINITY.to_le_bytes()), (chain.picks, [0xff; 4])] {
        let words = step.pool().buffer(buffer).size as usize / 4;
        step.write(buffer, &poison.repeat(words))?;
    }
    Ok(())
}

/// Replays the chain with other new keys each time; gives how many left something else than the right one does, serially, and
/// how many programmatic edges the driver holds. Its graph is kept as `name`.
fn wrong_replays(
    gpu: &Gpu,
    name: &str,
    [right, tested]: [&Kernels; 2],
    row_keys: usize,
    replays: usize,
) -> Result<(usize, usize), Failure> {
    let reference = chain(right, row_keys)?;
    let placement = super::scenario::planned(&reference.pool)?;
    let mut serial = CudaStep::unproved(gpu.device, &reference.pool, &placement, &reference.bindings)?;
    let one_by_one = serial.prepare(reference.graph, &Mode { edges: Edges::Serialised, ..Mode::default() })?;
    let mut expected = Vec::new();
    for turn in 0..TURNS {
        begin_turn(&mut serial, &reference, turn)?;
        one_by_one.run(&serial)?;
        expected.push(outputs(&serial, &reference)?);
    }
    ensure!(expected.windows(2).all(|pair| pair[0] != pair[1]), "turns cannot be told apart");

    let tested = chain(tested, row_keys)?;
    let mut step = CudaStep::unproved(gpu.device, &tested.pool, &placement, &tested.bindings)?;
    let replay = step.prepare(tested.graph, &Mode::default())?;
    let dump = replay.dumps()?.remove(0);
    gpu.keep(name, step.pool(), step.placement(), &dump)?;
    let mut wrong = 0;
    for at in 0..replays {
        let turn = at % TURNS;
        begin_turn(&mut step, &tested, turn)?;
        replay.run(&step)?;
        wrong += usize::from(outputs(&step, &tested)? != expected[turn]);
    }
    let programmatic = dump.edges.iter().filter(|edge| edge.programmatic).count();
    Ok((wrong, programmatic))
}

fn store_logits_and_top_k_are_right(gpu: &Gpu) -> Outcome {
    let right = kernels(|kernel| gpu.program(kernel), Ok)?;
    let recorded = chain(&right, KEYS)?;
    let report = check(&recorded.pool, Some(&super::scenario::planned(&recorded.pool)?))?;
    ensure!(report.is_clean(), "the checker finds {:?}", report.findings);
    let (wrong, programmatic) = wrong_replays(gpu, "programmatic", [&right, &right], KEYS, REPLAYS)?;
    ensure!(programmatic == 2, "{programmatic} programmatic edges were captured, of two");
    ensure!(wrong == 0, "{wrong} of {REPLAYS} replays are wrong");
    Ok(vec![note("replays of store, logits, top-k", REPLAYS as f64, "replays"), note("wrong", wrong as f64, "replays")])
}

fn without_its_wait(gpu: &Gpu) -> Outcome {
    let compile = |kernel: &Kernel| gpu.program(kernel);
    checker_and_emulator_show_a_missing_wait(compile)?;
    let (right, broken) = (kernels(compile, Ok)?, kernels(compile, without_wait)?);
    let (wrong, _) = wrong_replays(gpu, "control", [&right, &broken], CONTROL_KEYS, CONTROLS)?;
    ensure!(wrong > 0, "none of {CONTROLS} replays is wrong on the hardware");
    Ok(vec![note("wrong without top-k's wait", wrong as f64 / CONTROLS as f64, "of replays")])
}

/// Top-k without its wait: E8, and another result in the order that the edge then allows.
///
/// # Errors
/// If one of the two does not show it.
pub fn checker_and_emulator_show_a_missing_wait(
    compile: impl Fn(&Kernel) -> Result<Program, Failure>,
) -> Result<(), Failure> {
    let broken = kernels(compile, without_wait)?;
    let Chain { pool, graph, bindings, .. } = chain(&broken, KEYS)?;
    let placement = super::scenario::planned(&pool)?;
    let report = check(&pool, Some(&placement))?;
    ensure!(report.of(Code::E8).count() > 0, "the checker says {:?}", report.findings);

    let mut emulated = EmulatedStep::new(&pool, &placement, &bindings)?;
    let schedule = Schedule::new(&pool, graph);
    let find = |name: &str| pool.find_node(name).ok_or_else(|| format!("no node `{name}`"));
    let seen = forced(&mut emulated, &schedule, find("bf16_paged_mqa_logits")?, find("topk_page_transform")?)?;
    ensure!(seen.first_before_second == Some(true), "the emulator is wrong in the recorded order: {seen:?}");
    ensure!(seen.second_before_first == Some(false), "the emulator does not show the missing wait: {seen:?}");
    Ok(())
}
