//! Runs the layer in every way that matters, and notes what each instrument sees.

use lathe::graph::allocator::AllocError;
use lathe::graph::check::{Layout, check, invariance};
use lathe::graph::draw::memory_map;
use lathe::graph::explore::{Order, Schedule, World};
use lathe::graph::finding::Report;
use lathe::graph::model::{BufferId, ModelError, Phase, Placement, Pool};
use lathe::graph::order;
use lathe::graph::plan::{Options as PlanOptions, Planner};
use lathe::graph::render::{Sources, Style, render};
use lathe::kernels::contract::KeyFormat;
use lathe::runtime::instrument::{
    Canary, Cause, Expected, Observers, Rate, detectable_rate, diff, forced, observed, two_by_two,
};
use lathe::runtime::replay::Inspect;

use crate::backend::Backend;
use crate::host::{Care, addresses};
use crate::layer::{Code, Layer, LayerError, Setup};
use crate::programs::Programs;
use crate::seen::{Cells, Changed, CloningView, Observed, Refusal, Repair, Row, Study, Wrong};

/// The setup that corrupts.
pub const GUILTY: Setup = Setup { keys: KeyFormat::Bf16, batch: 2, late: 0 };
/// What a replay leaves that somebody looks at.
const RESULTS: [&str; 3] = ["attended", "hidden", "index keys"];
/// Bytes of a slot of bf16 index keys.
const SLOT: u64 = 256;

/// How much to run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Random orders of each variant.
    pub orders: u64,
    /// Seed of the first.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { orders: 24, seed: 0 }
    }
}

/// Why a study could not be finished.
#[derive(Debug, thiserror::Error)]
pub enum StudyError<E: std::error::Error + 'static> {
    /// Nothing to run.
    #[error("0 orders show nothing: ask for at least 1")]
    NoOrders,
    /// The layer could not be recorded.
    #[error(transparent)]
    Layer(#[from] LayerError),
    /// The allocator refuses the host's steps.
    #[error(transparent)]
    Allocator(#[from] AllocError),
    /// The checker cannot read the graph.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A replay failed.
    #[error("a replay failed: {0}")]
    Replay(#[source] E),
}

/// A layer at addresses.
struct Placed<'p> {
    layer: Layer<'p>,
    pool: Pool,
    placement: Placement,
}

struct Runner<'b, B> {
    backend: &'b B,
    programs: &'b Programs,
    options: Options,
}

/// Runs everything. `stage` is told what begins.
///
/// # Errors
/// [`StudyError`].
pub fn run<B: Backend>(
    backend: &B,
    programs: &Programs,
    options: Options,
    stage: &mut dyn FnMut(&str),
) -> Result<Study, StudyError<B::Error>> {
    if options.orders == 0 {
        return Err(StudyError::NoOrders);
    }
    let runner = Runner { backend, programs, options };
    let mut table = Vec::new();
    for keys in [KeyFormat::Bf16, KeyFormat::Fp8] {
        for batch in [1, 2, 4] {
            stage(&format!("{} keys, batch {batch}", format_name(keys)));
            table.push(runner.row(Setup { keys, batch, late: 0 })?);
        }
    }
    stage("the checker");
    let guilty = runner.placed(GUILTY, Code::Engine, Care::None)?;
    let report = guilty.check()?;
    let refusal = runner.refusal(&guilty, &report)?;
    let picture = memory_map(&guilty.pool, &report, &guilty.placement, "The layer where a caching allocator put it");
    stage("an instrument that clones");
    let cloning = runner.cloning(&guilty)?;
    stage("instruments that move nothing");
    let observed = runner.observed(&guilty, &report)?;
    stage("the two-by-two");
    let cells = runner.cells(&guilty)?;
    stage("repairs");
    let repairs = runner.repairs(&report)?;
    let shared = runner.placed(GUILTY, Code::SharedWorkspace, Care::None)?;
    let findings = shared.check()?.findings;
    let persistent_message = findings.first().map(|f| f.message.clone()).unwrap_or_default();
    let persistent = runner.repair("one persistent workspace for both".into(), &shared)?;
    Ok(Study {
        backend: backend.name(),
        table,
        refusal,
        cloning,
        observed,
        cells,
        repairs,
        persistent,
        persistent_message,
        picture,
    })
}

fn format_name(keys: KeyFormat) -> &'static str {
    match keys {
        KeyFormat::Bf16 => "bf16",
        KeyFormat::Fp8 => "fp8",
    }
}

impl Placed<'_> {
    fn check(&self) -> Result<Report, ModelError> {
        check(&self.pool, Some(&self.placement))
    }

    fn schedule(&self) -> Schedule {
        Schedule::new(&self.pool, self.layer.graph)
    }

    /// The other tensors that a tensor shares bytes with.
    fn lies_on(&self, name: &str) -> Vec<String> {
        let range = |id| self.placement.range(&self.pool, id);
        let Some((id, own)) = self.pool.find_buffer(name).and_then(|id| Some((id, range(id)?))) else {
            return Vec::new();
        };
        let meets = |other: &BufferId| range(*other).is_some_and(|r| r.start < own.end && own.start < r.end);
        let others = self.pool.buffer_ids().filter(|other| *other != id).filter(meets);
        others.map(|other| self.pool.buffer(other).name.clone()).collect()
    }
}

/// What the observed buffers hold, by digest.
type Results = Vec<(BufferId, u64)>;

fn replay<W: World>(world: &mut W, order: &Order) -> Result<Results, W::Error> {
    world.reset()?;
    order.steps.iter().try_for_each(|&step| world.run(step))?;
    world.observe()
}

impl<'b, B: Backend> Runner<'b, B> {
    fn placed(&self, setup: Setup, code: Code, care: Care) -> Result<Placed<'b>, StudyError<B::Error>> {
        let layer = Layer::record(self.programs, setup, code)?;
        let placement = addresses(&layer, care)?;
        Ok(Placed { pool: layer.pool.clone(), layer, placement })
    }

    fn world<'a>(&'a self, placed: &'a Placed, at: &'a Placement) -> Result<B::World<'a>, StudyError<B::Error>> {
        self.backend.world(&placed.pool, at, &placed.layer.bindings).map_err(StudyError::Replay)
    }

    fn orders(&self, schedule: &Schedule) -> Vec<Order> {
        (0..self.options.orders).map(|i| schedule.random_order(self.options.seed.wrapping_add(i))).collect()
    }

    /// The right results: in record order, with bytes for every tensor.
    fn expected(&self, placed: &Placed) -> Result<Results, StudyError<B::Error>> {
        let disjoint = addresses(&placed.layer, Care::Keep)?;
        let mut world = self.world(placed, &disjoint)?;
        replay(&mut world, &placed.schedule().record_order()).map_err(StudyError::Replay)
    }

    /// How often `orders` give anything else.
    fn wrong(&self, placed: &Placed, orders: &[Order]) -> Result<Wrong, StudyError<B::Error>> {
        let expected = self.expected(placed)?;
        let mut world = self.world(placed, &placed.placement)?;
        let mut rate = Rate { events: 0, trials: 0 };
        for order in orders {
            let results = replay(&mut world, order).map_err(StudyError::Replay)?;
            rate.events += u64::from(results != expected);
            rate.trials += 1;
        }
        Ok(rate.into())
    }

    fn captured(&self, placed: &Placed) -> Result<Wrong, StudyError<B::Error>> {
        self.wrong(placed, &self.orders(&placed.schedule()))
    }

    fn row(&self, setup: Setup) -> Result<Row, StudyError<B::Error>> {
        let placed = self.placed(setup, Code::Engine, Care::None)?;
        Ok(Row {
            keys: format_name(setup.keys),
            batch: setup.batch,
            q_bytes: setup.q_bytes(),
            residual_bytes: setup.hidden_bytes(),
            residual_lies_on: placed.lies_on("residual"),
            eager: self.wrong(&placed, &[placed.schedule().record_order()])?,
            captured: self.captured(&placed)?,
            findings: placed.check()?.findings.len(),
        })
    }

    fn refusal(&self, guilty: &Placed, report: &Report) -> Result<Refusal, StudyError<B::Error>> {
        let witness = report.findings.first().and_then(|finding| report.witness(&guilty.pool, finding));
        let wrong = match witness {
            Some(witness) => self.wrong(guilty, &[Order { steps: witness.steps }])?.wrong,
            None => 0,
        };
        let mut sources = Sources::from_disk();
        Ok(Refusal {
            report: report.view(&guilty.pool, &guilty.placement),
            text: render(report, &guilty.pool, &guilty.placement, &mut sources, Style { colour: true }),
            witness_corrupts: wrong > 0,
        })
    }

    fn cloning(&self, guilty: &Placed) -> Result<CloningView, StudyError<B::Error>> {
        let placed = self.placed(GUILTY, Code::Cloning, Care::None)?;
        let moved = guilty.placement.iter().filter_map(|(id, before)| {
            let name = &guilty.pool.buffer(id).name;
            let after = placed.placement.address(placed.pool.find_buffer(name)?)?;
            (before != after).then(|| (name.clone(), before, after))
        });
        Ok(CloningView {
            moved: moved.collect(),
            residual_lies_on: placed.lies_on("residual"),
            findings: placed.check()?.findings.len(),
            captured: self.captured(&placed)?,
        })
    }

    fn observed(&self, guilty: &Placed, report: &Report) -> Result<Observed, StudyError<B::Error>> {
        let (pool, layer) = (&guilty.pool, &guilty.layer);
        let keys = layer.buffer("index keys");
        let observers = Observers { canary: vec![keys], poison: false };
        let (with, placed) = observed(pool, &guilty.placement, &report.order, &observers);
        let off = Layout { pool, placement: &guilty.placement };
        let moved = invariance(off, Layout { pool: &with, placement: &placed })?.len();

        let expected = self.expected(guilty)?;
        let step = Expected::nothing().slots(keys, layer.slots.iter().copied(), SLOT, 64, 64 * SLOT);
        let canary = Canary::new([keys], SLOT);
        let mut world = self.world(guilty, &guilty.placement)?;
        let mut rate = Rate { events: 0, trials: 0 };
        let mut intrusions = 0;
        for order in self.orders(&guilty.schedule()) {
            world.reset().map_err(StudyError::Replay)?;
            let before = canary.snapshot(&mut world).map_err(StudyError::Replay)?;
            order.steps.iter().try_for_each(|&step| world.run(step)).map_err(StudyError::Replay)?;
            let after = canary.snapshot(&mut world).map_err(StudyError::Replay)?;
            intrusions += canary.compare(pool, &before, &after, &step).len();
            rate.events += u64::from(world.observe().map_err(StudyError::Replay)? != expected);
            rate.trials += 1;
        }

        let schedule = guilty.schedule();
        let witness = report.findings.first().and_then(|finding| report.witness(pool, finding));
        let bad = witness.map_or_else(|| schedule.record_order(), |witness| Order { steps: witness.steps });
        let inputs = ["x", "slots", "lens", "block table", "index keys"].map(|name| layer.buffer(name));
        let results = RESULTS.map(|name| layer.buffer(name));
        let seen = diff(&mut world, &inputs, &results, &schedule.record_order(), &bad).map_err(StudyError::Replay)?;
        let mut changed = Vec::new();
        for &(id, first, bytes) in &seen.outputs {
            changed.push(Changed {
                buffer: pool.buffer(id).name.clone(),
                first,
                bytes,
                requests: self.requests(guilty, &mut world, id, &bad)?,
            });
        }
        Ok(Observed {
            moved,
            captured: rate.into(),
            intrusions,
            would_have_seen: detectable_rate(rate.trials, 1.0),
            changed,
            unequal_inputs: seen.inputs.len(),
        })
    }

    /// Whose rows of a result, or whose slots, `bad` changes.
    fn requests(
        &self,
        placed: &Placed,
        world: &mut B::World<'_>,
        buffer: BufferId,
        bad: &Order,
    ) -> Result<Vec<u64>, StudyError<B::Error>> {
        let mut bytes_after = |order: &Order| {
            replay(world, order)?;
            world.bytes(buffer)
        };
        let right = bytes_after(&placed.schedule().record_order()).map_err(StudyError::Replay)?;
        let wrong = bytes_after(bad).map_err(StudyError::Replay)?;
        let batch = placed.layer.setup.batch as u64;
        let row = placed.pool.buffer(buffer).size / batch;
        let is_pool = placed.pool.buffer(buffer).name == "index keys";
        let bytes_of = |request: u64| match is_pool {
            true => {
                let slot = placed.layer.slots[request as usize] as u64;
                slot * SLOT..(slot + 1) * SLOT
            }
            false => request * row..(request + 1) * row,
        };
        let differs = |request: &u64| {
            let range = bytes_of(*request);
            let range = range.start as usize..range.end as usize;
            right[range.clone()] != wrong[range]
        };
        Ok((0..batch).filter(differs).collect())
    }

    fn cells(&self, guilty: &Placed) -> Result<Cells, StudyError<B::Error>> {
        let schedule = guilty.schedule();
        let expected = self.expected(guilty)?;
        let apart = addresses(&guilty.layer, Care::Keep)?;
        let mut planned = self.world(guilty, &guilty.placement)?;
        let [reader, writer] = [guilty.layer.node("logits"), guilty.layer.node("keep residual")];
        let pair = forced(&mut planned, &schedule, reader, writer).map_err(StudyError::Replay)?;
        let mut disjoint = self.world(guilty, &apart)?;
        let mut orders = self.orders(&schedule);
        orders.extend(schedule.pair_order(reader, writer, Phase::AfterWait));
        let cells = two_by_two(&mut planned, &mut disjoint, &schedule, &orders, &expected);
        let cells = cells.map_err(StudyError::Replay)?;
        Ok(Cells {
            concurrent_planned: cells.concurrent_planned.into(),
            concurrent_disjoint: cells.concurrent_disjoint.into(),
            serialised_planned: cells.serialised_planned.into(),
            serialised_disjoint: cells.serialised_disjoint.into(),
            cause: match cells.cause() {
                Cause::Nothing => "nothing showed",
                Cause::Alias => "tensors share bytes across streams without order",
                Cause::MissingEdge => "two streams use one tensor without order",
                Cause::Lifetime => "bytes are reused while their tensor is still needed",
                Cause::Kernel => "a kernel is wrong by itself",
            },
            forced: (pair.first_before_second, pair.second_before_first),
        })
    }

    fn repair(&self, what: String, placed: &Placed) -> Result<Repair, StudyError<B::Error>> {
        Ok(Repair { what, findings: placed.check()?.findings.len(), captured: self.captured(placed)? })
    }

    fn repairs(&self, report: &Report) -> Result<Vec<Repair>, StudyError<B::Error>> {
        let mut repairs = Vec::new();
        let kinds = report.findings.iter().flat_map(|finding| &finding.fixes).map(|fix| fix.remedy.word());
        let mut kinds: Vec<&str> = kinds.collect();
        kinds.sort_unstable();
        kinds.dedup();
        for kind in kinds {
            let mut placed = self.placed(GUILTY, Code::Engine, Care::None)?;
            let mut done = Vec::new();
            // Each fix mends one finding; where several tensors share the bytes, several are needed.
            while let Some(fix) = placed
                .check()?
                .findings
                .first()
                .and_then(|finding| finding.fixes.iter().find(|fix| fix.remedy.word() == kind).cloned())
            {
                done.push(fix.remedy.describe(&placed.pool));
                fix.remedy.apply(&mut placed.pool, &mut placed.placement);
            }
            repairs.push(self.repair(done.join("; "), &placed)?);
        }
        for (what, care) in [
            ("`record_stream(alternate)` on k, w and q", Care::RecordStream),
            ("drop k, w and q after the join", Care::DropAfterJoin),
        ] {
            repairs.push(self.repair(what.into(), &self.placed(GUILTY, Code::Engine, care)?)?);
        }
        let mut planned = self.placed(GUILTY, Code::Engine, Care::None)?;
        let order = order::Order::of(&planned.pool)?;
        planned.placement = Planner::new(&planned.pool, &order).plan(&PlanOptions::default()).placement;
        repairs.push(self.repair("the addresses of Lathe's plan".into(), &planned)?);
        Ok(repairs)
    }
}
