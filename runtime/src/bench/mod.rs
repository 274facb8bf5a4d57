//! Timing kernels on a device: graph replays over rotating sets of memory, each checked before it is timed.
//!
//! A [`Bench`] holds a workload's memory several times over, so that no call finds its inputs in the L2. A
//! [`Contender`] computes the workload; [`Bench::capture`] makes one call a set a graph, and [`Bench::check`] replays it
//! on poisoned outputs and asks the workload's judge. Only what passes becomes a [`Prepared`], and only that can be timed.

mod bandwidth;
mod contender;
mod statics;
mod statistics;

pub use bandwidth::{Bandwidth, BandwidthError, bandwidth};
pub use contender::{Contender, ContenderError, ContenderShape};
pub use statics::{CARDS, Card, Prediction, StaticFigures, ctas_per_sm, predict};
pub use statistics::{Paired, Samples};

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lathe_codegen::benchmark::{Content, Memory, Role, Work, Workload};
use lathe_codegen::contract::{Arg, POISON};

use crate::backend::ArgumentError;
use crate::device::{Allocation, Device, DeviceError, GUARD, Graph};

/// How measurements are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protocol {
    /// Replays that are timed.
    pub replays: usize,
    /// Replays before them.
    pub warm_ups: usize,
    /// Whether every call may find its inputs in the L2, as the call before left them: then there is one set.
    pub warm_l2: bool,
}

impl Default for Protocol {
    fn default() -> Self {
        Protocol { replays: 21, warm_ups: 3, warm_l2: false }
    }
}

/// Bytes that the sets stream together, at least: several times the L2 of any device.
const ROTATION: u64 = 300 << 20;

/// Calls of one set in a graph where the L2 may stay warm.
const WARM_CALLS: usize = 16;

impl Protocol {
    /// Sets of memory to rotate through for a workload that streams `bytes` a call: `ceil(300 MiB / bytes)`, from 2 to
    /// 24; or one.
    pub fn sets(&self, bytes: u64) -> usize {
        if self.warm_l2 { 1 } else { ROTATION.div_ceil(bytes.max(1)).clamp(2, 24) as usize }
    }
}

/// The edges between a graph's calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Edges {
    /// A call starts when the one before has ended.
    Plain,
    /// A call may start before the one before has ended, and waits for its results itself.
    Programmatic,
}

impl Edges {
    /// Both.
    pub const ALL: [Edges; 2] = [Edges::Plain, Edges::Programmatic];

    /// `plain` or `pdl`.
    pub const fn name(self) -> &'static str {
        match self {
            Edges::Plain => "plain",
            Edges::Programmatic => "pdl",
        }
    }
}

/// Why there is no time.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The memory of all sets is more than the device has.
    #[error("{sets} sets of {each} bytes each do not fit: {free} bytes of device memory are free; take a smaller size")]
    DoesNotFit {
        /// Sets.
        sets: usize,
        /// Bytes of one.
        each: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// A contender computed something else; what it takes to do so is of no interest.
    #[error("`{name}` gives wrong results with {} edges (set {set}): {}", edges.name(), failures.join("; "))]
    Wrong {
        /// The contender.
        name: String,
        /// The edges it ran with.
        edges: Edges,
        /// The set that was judged.
        set: usize,
        /// The judge's words.
        failures: Vec<String>,
    },
    /// A launch has no CTAs.
    #[error("`{name}` launches nothing: its grid is {grid:?}")]
    Empty {
        /// The contender.
        name: String,
        /// Its grid.
        grid: [u32; 3],
    },
    /// The arguments do not fit the kernel.
    #[error(transparent)]
    Argument(#[from] ArgumentError),
    /// The device refused or failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// A workload's memory on a device, several times over.
pub struct Bench<'a> {
    device: &'a Device,
    workload: &'a Workload,
    protocol: Protocol,
    sets: Arc<Sets>,
    count: usize,
}

/// Memory of every set. Graphs that were captured over it keep it.
struct Sets(Mutex<Vec<Vec<Allocation>>>);

impl Sets {
    fn lock(&self) -> MutexGuard<'_, Vec<Vec<Allocation>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Calls of a contender, one for each set, as a graph.
pub struct Captured {
    name: String,
    edges: Edges,
    graph: Graph,
    calls: usize,
    _memory: Arc<Sets>,
}

/// A captured contender whose results are right.
pub struct Prepared(Captured);

impl<'a> Bench<'a> {
    /// Refuses work whose inputs and outputs alone are more than the device has free, before any memory is made.
    pub fn expect_room(device: &Device, work: &Work, protocol: Protocol) -> Result<(), BenchError> {
        let (sets, each) = (protocol.sets(work.streamed), work.read + work.written);
        let free = device.memory()?.0 as u64;
        if each.saturating_mul(sets as u64) > free {
            return Err(BenchError::DoesNotFit { sets, each, free });
        }
        Ok(())
    }

    /// Allocates and fills the sets; how many, says the work.
    ///
    /// # Errors
    /// [`BenchError::DoesNotFit`] before anything is allocated that would not.
    pub fn new(
        device: &'a Device,
        workload: &'a Workload,
        work: &Work,
        protocol: Protocol,
    ) -> Result<Self, BenchError> {
        let count = protocol.sets(work.streamed);
        let each: u64 = workload.memory.iter().map(|memory| memory.len + 2 * GUARD as u64).sum();
        let free = device.memory()?.0 as u64;
        if each.saturating_mul(count as u64) > free {
            return Err(BenchError::DoesNotFit { sets: count, each, free });
        }
        let set = || workload.memory.iter().map(|memory| fill(device, memory)).collect::<Result<Vec<_>, _>>();
        let sets = (0..count).map(|_| set()).collect::<Result<Vec<_>, _>>()?;
        device.synchronize()?;
        Ok(Bench { device, workload, protocol, sets: Arc::new(Sets(Mutex::new(sets))), count })
    }

    /// How many sets there are.
    pub fn sets(&self) -> usize {
        self.count
    }

    /// Captures a call of `contender` for each set.
    pub fn capture(&self, contender: &Contender, edges: Edges) -> Result<Captured, BenchError> {
        self.capture_chain(&contender.name, &[(contender, &self.workload.args)], edges)
    }

    /// Captures, for each set, launches that follow each other, each with its own arguments over the workload's memory.
    pub fn capture_chain(
        &self,
        name: &str,
        chain: &[(&Contender, &[Arg])],
        edges: Edges,
    ) -> Result<Captured, BenchError> {
        for (contender, args) in chain {
            let Contender { name, grid, .. } = contender;
            if grid.contains(&0) {
                return Err(BenchError::Empty { name: name.clone(), grid: *grid });
            }
            contender.check(&self.workload.memory, args)?;
        }
        let calls = if self.protocol.warm_l2 { WARM_CALLS } else { self.count };
        let sets = self.sets.lock();
        let graph = self.device.capture(|| {
            (0..calls).try_for_each(|call| {
                let addresses: Vec<u64> = sets[call % self.count].iter().map(Allocation::address).collect();
                chain.iter().try_for_each(|(contender, args)| {
                    contender.launch(self.device, args, &addresses, edges == Edges::Programmatic)
                })
            })
        })?;
        let graph = graph.expect("a capture of launches is not empty");
        Ok(Captured { name: name.to_owned(), edges, graph, calls, _memory: self.sets.clone() })
    }

    /// Microseconds of a call, roughly: for a search that tells the fast from the slow before anything is checked.
    pub fn glance(&self, captured: &Captured, replays: usize) -> Result<f64, BenchError> {
        self.replay(captured)?;
        let samples = (0..replays.max(1)).map(|_| self.replay(captured)).collect::<Result<Vec<_>, _>>()?;
        Ok(Samples::new(samples).median())
    }

    /// Replays on restored memory and judges what the first and the last call leave.
    pub fn check(&self, captured: Captured) -> Result<Prepared, BenchError> {
        self.restore()?;
        self.device.synchronize()?;
        captured.graph.launch()?;
        self.device.synchronize()?;
        let last = self.count - 1;
        for set in if last == 0 { vec![0] } else { vec![0, last] } {
            let failures = self.judge(set)?;
            if !failures.is_empty() {
                let Captured { name, edges, .. } = captured;
                return Err(BenchError::Wrong { name, edges, set, failures });
            }
        }
        Ok(Prepared(captured))
    }

    /// [`capture`](Self::capture), then [`check`](Self::check).
    pub fn prepare(&self, contender: &Contender, edges: Edges) -> Result<Prepared, BenchError> {
        let captured = self.capture(contender, edges)?;
        self.check(captured)
    }

    /// Takes a kernel that only moves bytes, and so computes nothing that could be judged: a floor, no contender.
    pub fn floor(&self, floor: Captured) -> Prepared {
        Prepared(floor)
    }

    /// Takes a part of a chain that was checked as a whole: its own results are in the chain's.
    pub fn part(&self, _whole: &Prepared, part: Captured) -> Prepared {
        Prepared(part)
    }

    /// Puts back what every set holds before a call, where calls write.
    fn restore(&self) -> Result<(), DeviceError> {
        for set in self.sets.lock().iter_mut() {
            let written = self.workload.memory.iter().zip(set).filter(|(memory, _)| memory.role != Role::Input);
            for (memory, allocation) in written {
                set_content(memory, allocation)?;
            }
        }
        Ok(())
    }

    fn judge(&self, set: usize) -> Result<Vec<String>, DeviceError> {
        let mut after = Vec::new();
        let sets = self.sets.lock();
        let parts = self.workload.memory.iter().zip(&sets[set]);
        for (memory, allocation) in parts.filter(|(memory, _)| memory.role == Role::Output) {
            let mut bytes = vec![0; memory.len as usize];
            allocation.read(0, &mut bytes)?;
            after.push(bytes);
        }
        Ok((self.workload.judge)(&after).failures)
    }

    /// Times replays: microseconds of a call.
    pub fn time(&self, prepared: &Prepared) -> Result<Samples, BenchError> {
        self.warm_up(prepared)?;
        let samples = (0..self.protocol.replays).map(|_| self.replay(&prepared.0)).collect::<Result<Vec<_>, _>>()?;
        Ok(Samples::new(samples))
    }

    /// Times two side by side, in turn, who comes first changing from pair to pair.
    pub fn pair(&self, first: &Prepared, second: &Prepared) -> Result<Paired, BenchError> {
        let rounds = self.rounds(&[first, second])?;
        Ok(Paired::new(rounds.into_iter().map(|round| (round[0], round[1])).collect()))
    }

    /// Times several side by side, in turn, the order reversed from round to round: microseconds of a call by round.
    pub fn rounds(&self, prepared: &[&Prepared]) -> Result<Vec<Vec<f64>>, BenchError> {
        prepared.iter().try_for_each(|prepared| self.warm_up(prepared))?;
        let round = |turn: usize| {
            let mut times = vec![0.0; prepared.len()];
            for place in 0..prepared.len() {
                let place = if turn.is_multiple_of(2) { place } else { prepared.len() - 1 - place };
                times[place] = self.replay(&prepared[place].0)?;
            }
            Ok(times)
        };
        (0..self.protocol.replays).map(round).collect()
    }

    /// How long `calls` calls take, by the device's clock; for harnesses that choose the number of calls themselves.
    pub fn elapsed(&self, prepared: &Prepared, calls: u64) -> Result<Duration, BenchError> {
        let replays = calls.div_ceil(prepared.0.calls as u64).max(1);
        let mut microseconds = 0.0;
        for _ in 0..replays {
            microseconds += self.replay(&prepared.0)?;
        }
        Ok(Duration::from_secs_f64(microseconds / replays as f64 * calls as f64 / 1e6))
    }

    fn warm_up(&self, prepared: &Prepared) -> Result<(), DeviceError> {
        (0..self.protocol.warm_ups).try_for_each(|_| prepared.0.graph.launch())?;
        self.device.synchronize()
    }

    /// Microseconds of a call in one replay, by the device's clock.
    fn replay(&self, captured: &Captured) -> Result<f64, DeviceError> {
        let start = self.device.record()?;
        captured.graph.launch()?;
        let end = self.device.record()?;
        self.device.synchronize()?;
        Ok(f64::from(self.device.elapsed(&start, &end)?) * 1e3 / captured.calls as f64)
    }
}

fn fill(device: &Device, memory: &Memory) -> Result<Allocation, DeviceError> {
    let mut allocation = device.allocate(&memory.name, memory.len)?;
    set_content(memory, &mut allocation)?;
    Ok(allocation)
}

fn set_content(memory: &Memory, allocation: &mut Allocation) -> Result<(), DeviceError> {
    match &memory.content {
        Content::Bytes(bytes) => allocation.write(0, bytes),
        Content::Repeated(block) => allocation.repeat(block),
        Content::Poison => allocation.fill(0, POISON, memory.len as usize),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_outgrow_the_l2_and_stay_few() {
        let cold = Protocol::default();
        assert_eq!(cold.sets(256 << 10), 24);
        assert_eq!(cold.sets(64 << 20), 5);
        assert_eq!(cold.sets(2 << 30), 2);
        assert_eq!(cold.sets(0), 24);
        assert_eq!(Protocol { warm_l2: true, ..cold }.sets(1), 1);
    }
}
