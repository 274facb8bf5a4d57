//! Results beside results: the diff, the two-by-two that separates causes, and the forced order of a pair.

use lathe_graph::explore::{Order, Schedule};
use lathe_graph::finding::Step;
use lathe_graph::model::{BufferId, NodeId, Phase};

use serde::Serialize;

use super::Rate;
use crate::replay::Inspect;

/// Where the results of two orders differ, on equal inputs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Inputs that were not equal when the replays began: then the outputs say nothing.
    pub inputs: Vec<BufferId>,
    /// Each observed buffer that differs, with the first byte and how many.
    pub outputs: Vec<(BufferId, u64, u64)>,
}

/// Replays both orders from the same memory, and compares inputs before and observed buffers after, bit for bit.
///
/// # Errors
/// The world's.
pub fn diff<W: Inspect>(
    world: &mut W,
    inputs: &[BufferId],
    outputs: &[BufferId],
    one: &Order,
    other: &Order,
) -> Result<Difference, W::Error> {
    let mut replay = |order: &Order| {
        world.reset()?;
        let before: Vec<Vec<u8>> = inputs.iter().map(|&id| world.bytes(id)).collect::<Result<_, _>>()?;
        order.steps.iter().try_for_each(|&step| world.run(step))?;
        let after: Vec<Vec<u8>> = outputs.iter().map(|&id| world.bytes(id)).collect::<Result<_, _>>()?;
        Ok::<_, W::Error>((before, after))
    };
    let (inputs_of_one, outputs_of_one) = replay(one)?;
    let (inputs_of_other, outputs_of_other) = replay(other)?;
    let unequal = |(at, id): (usize, &BufferId)| (inputs_of_one[at] != inputs_of_other[at]).then_some(*id);
    let changed = |(at, id): (usize, &BufferId)| {
        let mut bytes = outputs_of_one[at].iter().zip(&outputs_of_other[at]).enumerate().filter(|(_, (a, b))| a != b);
        let (first, _) = bytes.next()?;
        Some((*id, first as u64, 1 + bytes.count() as u64))
    };
    Ok(Difference {
        inputs: inputs.iter().enumerate().filter_map(unequal).collect(),
        outputs: outputs.iter().enumerate().filter_map(changed).collect(),
    })
}

/// What an intervention on one pair shows: the same addresses, one edge more, both ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forced {
    /// Whether the result is the serial one with the first node before the second; none if the edges exclude it.
    pub first_before_second: Option<bool>,
    /// The other way round.
    pub second_before_first: Option<bool>,
}

/// Replays the step with `first` forced before `second`, then with `second` before `first`. It confirms harm; a result
/// that does not change clears nothing.
///
/// # Errors
/// The world's.
pub fn forced<W: Inspect>(
    world: &mut W,
    schedule: &Schedule,
    first: NodeId,
    second: NodeId,
) -> Result<Forced, W::Error> {
    let expected = replay(world, &schedule.record_order().steps)?;
    let mut agrees = |late: NodeId, early: NodeId| -> Result<Option<bool>, W::Error> {
        let order = schedule.pair_order(late, early, Phase::AfterWait);
        order.map(|order| Ok(replay(world, &order.steps)? == expected)).transpose()
    };
    Ok(Forced { first_before_second: agrees(second, first)?, second_before_first: agrees(first, second)? })
}

/// How often replays were wrong, with and without concurrency, at the planned and at disjoint addresses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TwoByTwo {
    /// As captured.
    pub concurrent_planned: Rate,
    /// As captured, no two buffers sharing bytes.
    pub concurrent_disjoint: Rate,
    /// One node after the other, in the order of the recording.
    pub serialised_planned: Rate,
    /// The same, no two buffers sharing bytes.
    pub serialised_disjoint: Rate,
}

/// What a [`TwoByTwo`] says is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Nothing showed.
    Nothing,
    /// Buffers share bytes across streams without order.
    Alias,
    /// Two streams use one buffer without order.
    MissingEdge,
    /// Bytes are reused while their buffer is still needed, in any order.
    Lifetime,
    /// A kernel is wrong by itself.
    Kernel,
}

impl TwoByTwo {
    /// The cause that the pattern of wrong cells points at.
    pub fn cause(&self) -> Cause {
        let wrong = |rate: Rate| rate.events > 0;
        match (wrong(self.concurrent_planned), wrong(self.concurrent_disjoint), wrong(self.serialised_planned)) {
            _ if wrong(self.serialised_disjoint) => Cause::Kernel,
            (_, _, true) => Cause::Lifetime,
            (_, true, false) => Cause::MissingEdge,
            (true, false, false) => Cause::Alias,
            (false, false, false) => Cause::Nothing,
        }
    }
}

/// Replays `orders`, which the schedule allows, on `planned` and on `disjoint` addresses of the same step, and judges
/// each against `expected`, the right content of the observed buffers.
///
/// # Errors
/// The worlds'.
pub fn two_by_two<W: Inspect>(
    planned: &mut W,
    disjoint: &mut W,
    schedule: &Schedule,
    orders: &[Order],
    expected: &[(BufferId, u64)],
) -> Result<TwoByTwo, W::Error> {
    let rate = |world: &mut W, orders: &[Order]| {
        let mut events = 0;
        for order in orders {
            events += u64::from(replay(world, &order.steps)? != expected);
        }
        Ok(Rate { events, trials: orders.len() as u64 })
    };
    let serial = vec![schedule.record_order()];
    Ok(TwoByTwo {
        concurrent_planned: rate(planned, orders)?,
        concurrent_disjoint: rate(disjoint, orders)?,
        serialised_planned: rate(planned, &serial)?,
        serialised_disjoint: rate(disjoint, &serial)?,
    })
}

fn replay<W: Inspect>(world: &mut W, steps: &[Step]) -> Result<Vec<(BufferId, u64)>, W::Error> {
    world.reset()?;
    steps.iter().try_for_each(|&step| world.run(step))?;
    world.observe()
}
