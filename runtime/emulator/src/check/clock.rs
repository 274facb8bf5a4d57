//! What each lane knows to have happened before.
//!
//! A warp counts *epochs*: one more with each operation by which any of its lanes releases something. A lane's clock holds, for each
//! *agent*, the last epoch whose accesses are ordered before what the lane does next. Agents are the CTA's threads and, behind them,
//! one for each mbarrier: the copies that complete on it.

use crate::exec::lanes::{FULL, LANES};

/// Epochs known, by agent; agents past the end are unknown (0).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Clock {
    known: Vec<u32>,
    /// Epochs whose accesses a proxy fence lies behind: ordered before accesses through the async proxy too. Empty until
    /// there is a fence.
    fenced: Vec<u32>,
}

impl Clock {
    fn new(agents: usize) -> Self {
        Self { known: vec![0; agents], fenced: Vec::new() }
    }

    #[inline(always)]
    pub fn of(&self, agent: u32) -> u32 {
        self.known.get(agent as usize).copied().unwrap_or(0)
    }

    /// The last epoch of `agent` that a proxy fence lies behind.
    pub fn fenced(&self, agent: u32) -> u32 {
        self.fenced.get(agent as usize).copied().unwrap_or(0)
    }

    pub fn set(&mut self, agent: u32, epoch: u32) {
        put(&mut self.known, agent, epoch);
    }

    pub fn clear(&mut self) {
        self.known.fill(0);
        self.fenced.clear();
    }

    pub fn join(&mut self, other: &Self) {
        join(&mut self.known, &other.known);
        join(&mut self.fenced, &other.fenced);
    }
}

fn put(epochs: &mut Vec<u32>, agent: u32, epoch: u32) {
    let agent = agent as usize;
    if epochs.len() <= agent {
        epochs.resize(agent + 1, 0);
    }
    epochs[agent] = epoch;
}

fn join(mine: &mut Vec<u32>, theirs: &[u32]) {
    if mine.len() < theirs.len() {
        mine.resize(theirs.len(), 0);
    }
    for (mine, theirs) in mine.iter_mut().zip(theirs) {
        *mine = (*mine).max(*theirs);
    }
}

/// The clocks of a warp's lanes: one for all of them as long as they synchronise together.
enum Known {
    Uniform(Clock),
    PerLane(Vec<Clock>),
}

pub(crate) struct WarpClock {
    /// Agent of lane 0.
    first: u32,
    pub epoch: u32,
    known: Known,
}

impl WarpClock {
    pub fn new(warp: u32, agents: usize) -> Self {
        // Epoch 0 means "never".
        Self { first: warp * LANES as u32, epoch: 1, known: Known::Uniform(Clock::new(agents)) }
    }

    #[inline(always)]
    pub fn of(&self, lane: u32) -> &Clock {
        match &self.known {
            Known::Uniform(clock) => clock,
            Known::PerLane(clocks) => &clocks[lane as usize],
        }
    }

    /// What `lanes` publish when they release together: everything they know, and all they did.
    pub fn release(&mut self, lanes: u32, into: &mut Clock) {
        match &self.known {
            Known::Uniform(clock) => into.join(clock),
            Known::PerLane(clocks) => each(lanes).for_each(|lane| into.join(&clocks[lane as usize])),
        }
        for lane in each(lanes) {
            let agent = self.first + lane;
            into.set(agent, into.of(agent).max(self.epoch));
        }
        self.epoch += 1;
    }

    /// `lanes` learn `clock`. `live` are the lanes that have not ended.
    pub fn acquire(&mut self, lanes: u32, live: u32, clock: &Clock) {
        match &mut self.known {
            Known::Uniform(known) if live & !lanes == 0 => known.join(clock),
            _ => self.per_lane(lanes, |known| known.join(clock)),
        }
    }

    /// `lanes` synchronise among themselves: all know what any of them knows and did.
    pub fn synchronise(&mut self, lanes: u32, live: u32) {
        if let Known::Uniform(known) = &mut self.known
            && live & !lanes == 0
        {
            for lane in each(lanes) {
                known.set(self.first + lane, self.epoch);
            }
            self.epoch += 1;
            return;
        }
        let mut all = Clock::default();
        self.release(lanes, &mut all);
        if live & !lanes == 0 {
            self.known = Known::Uniform(all);
        } else {
            self.per_lane(lanes, |known| known.clone_from(&all));
        }
    }

    /// After a barrier of which `lanes` were part.
    pub fn set(&mut self, lanes: u32, live: u32, clock: &Clock) {
        if live & !lanes == 0 {
            match &mut self.known {
                Known::Uniform(known) => known.clone_from(clock),
                Known::PerLane(_) => self.known = Known::Uniform(clock.clone()),
            }
        } else {
            self.per_lane(lanes, |known| known.clone_from(clock));
        }
    }

    /// `lanes` execute a proxy fence: what they know and did goes before what the async proxy does after it.
    pub fn fence(&mut self, lanes: u32, live: u32) {
        let (first, epoch) = (self.first, self.epoch);
        let fence = |clock: &mut Clock| {
            let known = std::mem::take(&mut clock.known);
            join(&mut clock.fenced, &known);
            clock.known = known;
            // Of another lane's accesses, only those that this one is ordered after are asked about.
            each(lanes).for_each(|lane| put(&mut clock.fenced, first + lane, epoch));
        };
        match &mut self.known {
            Known::Uniform(known) if live & !lanes == 0 => fence(known),
            _ => self.per_lane(lanes, fence),
        }
        self.epoch += 1;
    }

    fn per_lane(&mut self, lanes: u32, change: impl Fn(&mut Clock)) {
        if let Known::Uniform(clock) = &self.known {
            self.known = Known::PerLane(vec![clock.clone(); LANES]);
        }
        if let Known::PerLane(clocks) = &mut self.known {
            each(lanes).for_each(|lane| change(&mut clocks[lane as usize]));
        }
    }
}

/// The lanes of a mask.
pub(crate) fn each(lanes: u32) -> impl Iterator<Item = u32> {
    let mut rest = lanes & FULL;
    std::iter::from_fn(move || {
        (rest != 0).then(|| {
            let lane = rest.trailing_zeros();
            rest &= rest - 1;
            lane
        })
    })
}
