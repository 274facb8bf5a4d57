//! The explorer: runs a placed graph under orders that its edges allow, and looks at what changes.
//!
//! It knows edges and effects only, not the happens-before closure, so that it can judge the checker. [`Schedule`] says
//! which orders there are: the record order, random ones, the adversarial one for a pair, all of them. A [`World`] is
//! what steps do: [`Tagged`] memory, where every write leaves a value that is equal to another only if it was computed in
//! the same way from the same values, or real kernels on an emulator or a device. [`judge`] and [`Exhaustive`]
//! give exact verdicts on tagged memory; [`explore`] compares results in any world.
//!
//! Where only some CTAs of a kernel wait for its programmatic predecessors, the explorer lets the kernel end after
//! them, as it does when it runs; the checker does not rely on that.

mod exhaustive;
mod judge;
mod schedule;
mod tagged;

pub use exhaustive::{Exhaustive, exhaust};
pub use judge::{PairVerdict, judge, strays};
pub use schedule::{Order, Schedule};
pub use tagged::Tagged;

use crate::finding::Step;
use crate::model::BufferId;

/// What the steps of a graph do to memory.
pub trait World {
    /// Why a step could not run.
    type Error;

    /// Puts memory into the state before a replay; always the same one.
    fn reset(&mut self) -> Result<(), Self::Error>;

    /// Runs one step to its end.
    fn run(&mut self, step: Step) -> Result<(), Self::Error>;

    /// What an outside observer sees now: a digest of each observed buffer, in a fixed order.
    fn observe(&mut self) -> Result<Vec<(BufferId, u64)>, Self::Error>;
}

/// An order whose result is not that of the record order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deviation {
    /// The order.
    pub order: Order,
    /// Position of the order among those explored.
    pub index: usize,
    /// The observed buffers that differ.
    pub buffers: Vec<BufferId>,
}

/// What [`explore`] saw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exploration {
    /// How many orders ran, the record order not counted.
    pub orders: usize,
    /// Those that gave another result.
    pub deviations: Vec<Deviation>,
}

/// Runs every order from the same memory and compares what is observed with the record order's result.
///
/// # Errors
/// The first error of the world.
pub fn explore<W: World>(
    schedule: &Schedule,
    orders: impl IntoIterator<Item = Order>,
    world: &mut W,
) -> Result<Exploration, W::Error> {
    let expected = run(world, &schedule.record_order())?;
    let mut exploration = Exploration::default();
    for (index, order) in orders.into_iter().enumerate() {
        let seen = run(world, &order)?;
        exploration.orders += 1;
        let differing = expected.iter().zip(&seen).filter(|(a, b)| a != b).map(|((buffer, _), _)| *buffer);
        let buffers: Vec<BufferId> = differing.collect();
        if !buffers.is_empty() {
            exploration.deviations.push(Deviation { order, index, buffers });
        }
    }
    Ok(exploration)
}

fn run<W: World>(world: &mut W, order: &Order) -> Result<Vec<(BufferId, u64)>, W::Error> {
    world.reset()?;
    order.steps.iter().try_for_each(|&step| world.run(step))?;
    world.observe()
}
