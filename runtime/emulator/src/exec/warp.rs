//! A warp: its registers, and where its lanes are.
//!
//! Lanes that diverged form *fragments*, each with its own pc. The fragment with the smallest pc runs first, so that lanes wait for
//! each other where their paths join; one that keeps jumping backwards gives way in time, so no lane starves another.

use crate::check::Shadows;
use crate::decode::{Code, LaneMask, Special};

use super::Env;
use super::async_copy::Pending;
use super::lanes::{FULL, LANES, Row};
use crate::isa::wgmma::Products;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Ready,
    /// At a collective, waiting for more lanes.
    Parked,
    /// At a warp barrier with these members.
    Meeting(u32),
    /// At a barrier, until its generation passes.
    Blocked {
        barrier: u8,
        generation: u32,
    },
}

impl State {
    /// Waits for other lanes of the warp.
    fn waits_for_lanes(self) -> bool {
        matches!(self, Self::Parked | Self::Meeting(_))
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Fragment {
    pub pc: u32,
    pub mask: u32,
    state: State,
    /// Backward jumps since another fragment ran.
    spins: u32,
}

/// Backward jumps after which a fragment gives way to the others.
const SPINS: u32 = 64;

pub(crate) struct Warp {
    pub id: u32,
    pub rows: Vec<Row>,
    pub preds: Vec<u32>,
    /// Lanes that the launch gave it.
    pub launched: u32,
    /// The running fragment's lanes.
    pub active: u32,
    pub fragments: Vec<Fragment>,
    current: usize,
    /// The next collective executes with the lanes it has.
    pub forced: bool,
    /// Polled without success since the CTA last made progress.
    pub polling: bool,
    /// Members of the warp barrier that the executing lanes wait at; set before [`super::Flow::Park`].
    pub meeting: u32,
    /// Barrier that the executing lanes arrived at, set before [`super::Flow::Block`].
    pub arrived: (u8, u32),
    /// The instruction being executed, for the lanes that do not take part in it.
    pub running: u32,
    /// bar.red executes again, to take the result.
    pub takes_reduction: bool,
    /// Bulk groups that each lane has committed.
    pub bulk_groups: [u32; LANES],
    /// Local memory, lane by lane.
    pub local: Vec<u32>,
    /// Definedness of the registers, while `tainted` says that they hold undefined bits.
    pub shadows: Shadows,
    pub tainted: bool,
    /// Lanes that have executed griddepcontrol.wait.
    pub waited: u32,
    /// Definedness of local memory, if tracked.
    pub local_shadow: Vec<u32>,
    /// Copies started by cp.async and not yet waited for.
    pub pending: Pending,
    /// Products started by wgmma and not yet waited for.
    pub products: Products,
}

impl Warp {
    pub fn new() -> Self {
        Self {
            id: 0,
            rows: Vec::new(),
            preds: Vec::new(),
            launched: 0,
            active: 0,
            fragments: Vec::new(),
            current: 0,
            forced: false,
            polling: false,
            meeting: 0,
            arrived: (0, 0),
            running: 0,
            takes_reduction: false,
            bulk_groups: [0; LANES],
            local: Vec::new(),
            shadows: Shadows::default(),
            tainted: false,
            waited: 0,
            local_shadow: Vec::new(),
            pending: Pending::default(),
            products: Products::default(),
        }
    }

    /// Puts the warp at the start of the kernel. The storage is reused from CTA to CTA.
    pub fn start(&mut self, env: &Env<'_>, id: u32, cta: [u32; 3]) {
        let code = env.code;
        let first = id * LANES as u32;
        let lanes = env.threads.saturating_sub(first).min(LANES as u32);
        let mask = if lanes == LANES as u32 { FULL } else { (1 << lanes) - 1 };
        (self.id, self.launched) = (id, mask);
        self.rows.resize(code.rows, Row([0; LANES]));
        self.preds.resize(code.preds, 0);
        self.preds[1] = FULL;
        // Whoever reads a register that was never written gets something that shows.
        for &(slot, rows) in &code.unwritten {
            match rows {
                0 => self.preds[slot as usize] = 0,
                n => self.rows[slot as usize..(slot + u16::from(n)) as usize].fill(Row([0xcbcb_cbcb; LANES])),
            }
        }
        for &(slot, rows, value) in &code.constants {
            fill_constant(&mut self.rows, slot, rows, value);
        }
        for &(slot, special) in &code.specials {
            self.rows[slot as usize] = special_row(special, env, id, cta);
        }
        self.fragments.clear();
        self.fragments.push(Fragment { pc: 0, mask, state: State::Ready, spins: 0 });
        self.current = 0;
        self.forced = false;
        self.polling = false;
        self.meeting = 0;
        self.takes_reduction = false;
        self.bulk_groups = [0; LANES];
        self.local.clear();
        self.local.resize(code.local_bytes.div_ceil(4) as usize * LANES, 0xcbcb_cbcb);
        self.tainted = false;
        self.waited = 0;
        self.local_shadow.clear();
        if env.options.checks.definedness {
            self.local_shadow.resize(self.local.len(), FULL);
        }
        self.pending.clear();
        self.products.clear();
    }

    /// Lanes that have not ended.
    pub fn live(&self) -> u32 {
        self.fragments.iter().fold(0, |m, f| m | f.mask)
    }

    pub fn is_done(&self) -> bool {
        self.fragments.is_empty()
    }

    /// Joins fragments that stand at the same pc and chooses the one to run.
    pub fn select(&mut self) -> Option<(u32, u32)> {
        if let [only] = self.fragments.as_mut_slice() {
            // The usual case: nothing diverged.
            if only.state != State::Ready && !(self.forced && only.state.waits_for_lanes()) {
                return None;
            }
            only.state = State::Ready;
            self.current = 0;
            return Some((only.pc, only.mask));
        }
        self.merge();
        let ready = |f: &&Fragment| f.state == State::Ready;
        if self.fragments.iter().filter(ready).all(|f| f.spins > SPINS) {
            self.fragments.iter_mut().for_each(|f| f.spins = 0);
        }
        let choose = |fragments: &[Fragment], fits: fn(State) -> bool| {
            let candidates = fragments.iter().enumerate().filter(|(_, f)| fits(f.state));
            candidates.min_by_key(|(_, f)| (f.spins > SPINS, f.pc)).map(|(i, _)| i)
        };
        let mut chosen = choose(&self.fragments, |s| s == State::Ready);
        if chosen.is_none() && self.forced {
            chosen = choose(&self.fragments, State::waits_for_lanes);
        }
        let i = chosen?;
        self.current = i;
        self.fragments[i].state = State::Ready;
        Some((self.fragments[i].pc, self.fragments[i].mask))
    }

    fn merge(&mut self) {
        let mut i = 0;
        while i < self.fragments.len() {
            let mut j = i + 1;
            while j < self.fragments.len() {
                let (a, b) = (self.fragments[i], self.fragments[j]);
                let blocked = |s| matches!(s, State::Blocked { .. });
                if a.pc == b.pc && !blocked(a.state) && !blocked(b.state) {
                    let f = &mut self.fragments[i];
                    f.mask |= b.mask;
                    f.state = State::Ready;
                    f.spins = f.spins.max(b.spins);
                    self.fragments.swap_remove(j);
                } else {
                    j += 1;
                }
            }
            i += 1;
        }
    }

    /// The nearest pc, at or after `pc`, where other lanes wait.
    pub fn merge_at(&self, pc: u32) -> u32 {
        let others = self.fragments.iter().enumerate().filter(|(i, _)| *i != self.current);
        others.map(|(_, f)| f.pc).filter(|&p| p > pc).min().unwrap_or(u32::MAX)
    }

    pub fn suspend(&mut self, pc: u32, mask: u32) {
        let f = &mut self.fragments[self.current];
        (f.pc, f.mask, f.state) = (pc, mask, State::Ready);
    }

    pub fn jumped(&mut self, backward: bool) {
        self.fragments[self.current].spins += u32::from(backward);
    }

    pub fn split(&mut self, target: u32, taken: u32, next: u32, rest: u32) {
        let spins = self.fragments[self.current].spins;
        self.suspend(target, taken);
        if rest != 0 {
            self.fragments.push(Fragment { pc: next, mask: rest, state: State::Ready, spins });
        }
    }

    pub fn exit(&mut self, _ended: u32, next: u32, rest: u32) {
        if rest != 0 {
            self.suspend(next, rest);
        } else {
            self.fragments.swap_remove(self.current);
            self.current = 0;
        }
    }

    pub fn park(&mut self, pc: u32, mask: u32, rest: u32) {
        let state = match std::mem::take(&mut self.meeting) {
            0 => State::Parked,
            members => State::Meeting(members),
        };
        self.hold(pc, mask, pc + 1, rest, state);
    }

    pub fn block(&mut self, pc: u32, mask: u32, rest: u32) {
        let (barrier, generation) = self.arrived;
        self.hold(pc, mask, self.running + 1, rest, State::Blocked { barrier, generation });
    }

    fn hold(&mut self, pc: u32, mask: u32, rest_pc: u32, rest: u32, state: State) {
        let f = &mut self.fragments[self.current];
        let spins = f.spins;
        (f.pc, f.mask, f.state) = (pc, mask, state);
        if rest != 0 {
            self.fragments.push(Fragment { pc: rest_pc, mask: rest, state: State::Ready, spins });
        }
    }

    /// Lets go of the fragments whose barrier has completed; true if there were any.
    pub fn release(&mut self, generations: &[u32; 16]) -> bool {
        let mut any = false;
        for f in &mut self.fragments {
            if let State::Blocked { barrier, generation } = f.state
                && generations[barrier as usize] != generation
            {
                f.state = State::Ready;
                any = true;
            }
        }
        any
    }

    /// Lanes that wait at a warp barrier with these members.
    pub fn at_warp_barrier(&self, members: u32) -> u32 {
        let meets = |f: &&Fragment| f.state == State::Meeting(members);
        self.fragments.iter().filter(meets).fold(0, |m, f| m | f.mask)
    }

    /// Everybody has come to the warp barrier: those who waited go on.
    pub fn leave_warp_barrier(&mut self, members: u32) {
        for f in self.fragments.iter_mut().filter(|f| f.state == State::Meeting(members)) {
            f.state = State::Ready;
            f.pc += 1;
        }
    }

    /// Whether lanes wait at a collective for others that will not come.
    pub fn is_parked(&self) -> bool {
        self.fragments.iter().any(|f| f.state.waits_for_lanes())
    }

    /// The pc and barrier of a fragment that waits at a barrier, for messages.
    pub fn blocked_at(&self) -> Option<(u32, u32, u8)> {
        self.fragments.iter().find_map(|f| match f.state {
            State::Blocked { barrier, .. } => Some((f.pc, f.mask, barrier)),
            _ => None,
        })
    }

    /// Where the first fragment stands.
    pub fn position(&self) -> u32 {
        self.fragments.first().map_or(0, |f| f.pc)
    }
}

fn fill_constant(rows: &mut [Row], slot: u16, count: u8, value: u64) {
    let slot = slot as usize;
    match count {
        1 => rows[slot] = Row([value as u32; LANES]),
        n => {
            let words: &mut [u64] = bytemuck::cast_slice_mut(&mut rows[slot..slot + n as usize]);
            words.fill(if n == 2 { value } else { 0 });
            if n == 4 {
                words.iter_mut().step_by(2).for_each(|w| *w = value);
            }
        }
    }
}

fn special_row(special: Special, env: &Env<'_>, warp: u32, cta: [u32; 3]) -> Row {
    let [bx, by, _] = env.block;
    let lane_mask = |lane: u32, kind| match kind {
        LaneMask::Eq => 1u32 << lane,
        LaneMask::Lt => (1u32 << lane) - 1,
        LaneMask::Le => ((1u64 << (lane + 1)) - 1) as u32,
        LaneMask::Gt => !(((1u64 << (lane + 1)) - 1) as u32),
        LaneMask::Ge => !((1u32 << lane) - 1),
    };
    Row(std::array::from_fn(|lane| {
        let lane = lane as u32;
        let thread = warp * LANES as u32 + lane;
        match special {
            Special::Tid(0) => thread % bx,
            Special::Tid(1) => thread / bx % by,
            Special::Tid(_) => thread / (bx * by),
            Special::Ntid(axis) => env.block[axis as usize],
            Special::Ctaid(axis) => cta[axis as usize],
            Special::Nctaid(axis) => env.grid[axis as usize],
            Special::LaneId => lane,
            Special::WarpId => warp,
            Special::NWarpId => env.threads.div_ceil(LANES as u32),
            Special::LaneMask(kind) => lane_mask(lane, kind),
            Special::DynamicSharedSize => env.dynamic_shared,
            Special::TotalSharedSize => env.shared_bytes,
            Special::Zero => 0,
            Special::One => 1,
        }
    }))
}

impl Code {
    /// Warps of a CTA with this many threads.
    pub fn warps(threads: u32) -> u32 {
        threads.div_ceil(LANES as u32)
    }
}
