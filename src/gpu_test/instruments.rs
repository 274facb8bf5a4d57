//! What the instruments show of the seed failure, in any world: every one sees it, none moves it.

use lathe_graph::check::{Layout, check, invariance};
use lathe_graph::explore::{Schedule, World, explore};
use lathe_graph::model::{Phase, Placement, Pool};
use lathe_graph::order::Order;
use lathe_runtime::instrument::{Canary, Cause, Expected, Observers, diff, forced, observed, two_by_two};
use lathe_runtime::replay::{Bindings, CudaStep, EmulatedStep, Inspect, StepError};

use super::scenario::{BYTES, Programs, SLOTS, Scenario, disjoint, framework, planned, scenario};
use super::{Failure, Gpu, ensure};

/// Where steps run node by node.
pub trait Worlds {
    /// A step there.
    type Step<'a>: Inspect<Error = StepError>
    where
        Self: 'a;

    /// The scenario's kernels.
    fn programs(&self) -> Result<Programs, Failure>;

    /// A step at these addresses.
    fn step<'a>(
        &'a self,
        pool: &'a Pool,
        placement: &'a Placement,
        bindings: &'a Bindings<'a>,
        poisoned: bool,
    ) -> Result<Self::Step<'a>, StepError>;
}

/// The emulator.
pub struct Emulated<F>(pub F);

impl<F: Fn(&lathe_codegen::ir::Kernel) -> Result<lathe_runtime::program::Program, Failure>> Worlds for Emulated<F> {
    type Step<'a>
        = EmulatedStep<'a>
    where
        Self: 'a;

    fn programs(&self) -> Result<Programs, Failure> {
        Programs::compile(&self.0)
    }

    fn step<'a>(
        &'a self,
        pool: &'a Pool,
        placement: &'a Placement,
        bindings: &'a Bindings<'a>,
        poisoned: bool,
    ) -> Result<EmulatedStep<'a>, StepError> {
        let step = EmulatedStep::new(pool, placement, bindings)?;
        Ok(if poisoned { step.poisoning_dead_bytes() } else { step })
    }
}

/// A GPU.
pub struct OnDevice<'g>(pub &'g Gpu<'g>);

impl Worlds for OnDevice<'_> {
    type Step<'a>
        = CudaStep<'a>
    where
        Self: 'a;

    fn programs(&self) -> Result<Programs, Failure> {
        Programs::compile(|kernel| self.0.program(kernel))
    }

    fn step<'a>(
        &'a self,
        pool: &'a Pool,
        placement: &'a Placement,
        bindings: &'a Bindings<'a>,
        poisoned: bool,
    ) -> Result<CudaStep<'a>, StepError> {
        let step = CudaStep::unproved(self.0.device, pool, placement, bindings)?;
        Ok(if poisoned { step.poisoning_dead_bytes() } else { step })
    }
}

/// How many loads the reader waits for here, where orders are chosen and time does not matter.
const HOPS: i32 = 3;

/// Random orders of the captured nodes.
const ORDERS: u64 = 40;

/// Explored, the framework's addresses go wrong in some orders, and others never.
#[allow(clippy::missing_errors_doc)]
pub fn some_orders_corrupt_the_framework_step_and_none_the_planned_one(worlds: &impl Worlds) -> Result<(), Failure> {
    let programs = worlds.programs()?;
    let Scenario { checked, graph, bindings, .. } = scenario(&programs, HOPS)?;
    let pool = checked.pool();
    let schedule = Schedule::new(pool, graph);
    for (placement, corrupts) in [(framework(pool)?, true), (planned(pool)?, false), (disjoint(pool)?, false)] {
        let mut world = worlds.step(pool, &placement, &bindings, false)?;
        let orders = (0..ORDERS).map(|seed| schedule.random_order(seed));
        let seen = explore(&schedule, orders, &mut world)?;
        let wrong = seen.deviations.len();
        ensure!((wrong > 0) == corrupts, "{wrong} of {} orders are wrong, expected some: {corrupts}", seen.orders);
        ensure!(wrong < seen.orders, "every order is wrong, the recorded one among them");
    }
    Ok(())
}

/// The pair in question decides alone.
#[allow(clippy::missing_errors_doc)]
pub fn a_forced_order_makes_the_fault_certain_and_the_two_by_two_names_it(worlds: &impl Worlds) -> Result<(), Failure> {
    let programs = worlds.programs()?;
    let Scenario { checked, graph, bindings, reader, writer } = scenario(&programs, HOPS)?;
    let pool = checked.pool();
    let schedule = Schedule::new(pool, graph);
    let (shared, apart) = (framework(pool)?, disjoint(pool)?);
    let mut world = worlds.step(pool, &shared, &bindings, false)?;
    let seen = forced(&mut world, &schedule, reader, writer)?;
    ensure!(
        (seen.first_before_second, seen.second_before_first) == (Some(true), Some(false)),
        "at the framework's addresses: {seen:?}"
    );

    let mut other = worlds.step(pool, &apart, &bindings, false)?;
    let clean = forced(&mut other, &schedule, reader, writer)?;
    ensure!(
        (clean.first_before_second, clean.second_before_first) == (Some(true), Some(true)),
        "at disjoint addresses: {clean:?}"
    );

    other.reset()?;
    schedule.record_order().steps.iter().try_for_each(|&step| other.run(step))?;
    let expected = other.observe()?;
    let orders: Vec<_> = (0..ORDERS).map(|seed| schedule.random_order(seed)).collect();
    let table = two_by_two(&mut world, &mut other, &schedule, &orders, &expected)?;
    ensure!(table.cause() == Cause::Alias, "{table:?}");
    ensure!(table.concurrent_planned.trials == ORDERS, "{table:?}");
    Ok(())
}

/// Where results differ, and which bytes nobody may write.
#[allow(clippy::missing_errors_doc)]
pub fn the_diff_names_the_buffer_and_the_canary_the_chunk(worlds: &impl Worlds) -> Result<(), Failure> {
    let programs = worlds.programs()?;
    let Scenario { checked, graph, bindings, reader, writer } = scenario(&programs, HOPS)?;
    let pool = checked.pool();
    let schedule = Schedule::new(pool, graph);
    let shared = framework(pool)?;
    let mut world = worlds.step(pool, &shared, &bindings, false)?;
    let find = |name: &str| pool.find_buffer(name).ok_or_else(|| format!("no buffer `{name}`"));
    let (tokens, scores, keys) = (find("tokens")?, find("scores")?, find("index keys")?);
    let bad = schedule.pair_order(reader, writer, Phase::AfterWait).ok_or("the edges exclude the bad order")?;

    let seen = diff(&mut world, &[tokens], &[scores], &schedule.record_order(), &bad)?;
    ensure!(seen.inputs.is_empty(), "inputs differ: {:?}", seen.inputs);
    let named: Vec<_> = seen.outputs.iter().map(|(id, ..)| *id).collect();
    ensure!(named == [scores], "{seen:?}");

    let canary = Canary::new([keys], 256);
    world.reset()?;
    let before = canary.snapshot(&mut world)?;
    bad.steps.iter().try_for_each(|&step| world.run(step))?;
    let after = canary.snapshot(&mut world)?;
    let slot = Expected::nothing().slots(keys, [2, -1], BYTES, SLOTS, SLOTS * BYTES);
    let clean = canary.compare(pool, &before, &after, &slot);
    ensure!(clean.is_empty(), "the store wrote its slot and nothing else, and the canary says {clean:?}");
    let wrong_slot = Expected::nothing().slots(keys, [1], BYTES, SLOTS, SLOTS * BYTES);
    let found = canary.compare(pool, &before, &after, &wrong_slot);
    let chunks: Vec<u64> = found.iter().map(|intrusion| intrusion.chunk.start).collect();
    ensure!(chunks == [2048, 2304, 2560, 2816], "{found:?}");
    ensure!(found[0].writers == pool.find_node("store").as_slice(), "{found:?}");
    Ok(())
}

/// With every observer on: the same plan, the same order, the same results.
#[allow(clippy::missing_errors_doc)]
pub fn observers_change_no_address_no_order_and_no_result(worlds: &impl Worlds) -> Result<(), Failure> {
    let programs = worlds.programs()?;
    let Scenario { checked, graph, bindings, .. } = scenario(&programs, HOPS)?;
    let pool = checked.pool();
    let order = Order::of(pool)?;
    let placement = planned(pool)?;
    let keys = pool.find_buffer("index keys").ok_or("no keys")?;
    let observers = Observers { canary: vec![keys], poison: true };
    let (with, placed) = observed(pool, &placement, &order, &observers);
    ensure!(with.nodes().len() > pool.nodes().len(), "no observer was added");
    let off = Layout { pool, placement: &placement };
    let changes = invariance(off, Layout { pool: &with, placement: &placed })?;
    ensure!(changes.is_empty(), "{changes:?}");
    ensure!(check(&with, Some(&placed))?.is_clean(), "the observed graph is not clean");

    let schedule = Schedule::new(pool, graph);
    let mut plain = worlds.step(pool, &placement, &bindings, false)?;
    let mut poisoned = worlds.step(pool, &placement, &bindings, true)?;
    for order in (0..10).map(|seed| schedule.random_order(seed)) {
        let mut results = Vec::new();
        for world in [&mut plain, &mut poisoned] {
            world.reset()?;
            order.steps.iter().try_for_each(|&step| world.run(step))?;
            results.push(world.observe()?);
        }
        ensure!(results[0] == results[1], "poison changed a result: {results:?}");
    }
    let q = pool.find_buffer("q").ok_or("no q")?;
    ensure!(poisoned.bytes(q)? != plain.bytes(q)?, "the poison is not there");
    Ok(())
}
