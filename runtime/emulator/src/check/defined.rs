//! Definedness: a shadow bit for every bit of a register or memory word, set while nobody has given the bit a value.
//!
//! Undefined bits may be loaded, moved and computed with: kernels do so with the tail of a page. They are reported where they reach an
//! address, a predicate that decides something, or a declared output. A warp without undefined bits in registers pays next to nothing:
//! the shadow registers are looked at only while [`Warp::tainted`](crate::exec::warp::Warp) says so.

use crate::decode::{Inst, NO_GUARD, Taint};
use crate::exec::Cx;
use crate::exec::lanes::{FULL, LANES, Lane, Row};
use crate::finding::FindingKind;

/// Shadow of a warp's registers.
#[derive(Default)]
pub(crate) struct Shadows {
    pub rows: Vec<Row>,
    pub preds: Vec<u32>,
}

impl Shadows {
    fn clear(&mut self, rows: usize, preds: usize) {
        self.rows.clear();
        self.rows.resize(rows, Row([0; LANES]));
        self.preds.clear();
        self.preds.resize(preds, 0);
    }
}

impl Cx<'_> {
    /// Whether definedness is tracked in this launch.
    #[inline(always)]
    pub fn tracks(&self) -> bool {
        self.env.options.checks.definedness
    }

    /// From now on the warp's registers hold undefined bits.
    pub fn taint(&mut self) {
        if !self.warp.tainted {
            self.warp.tainted = true;
            self.warp.shadows.clear(self.env.code.rows, self.env.code.preds);
        }
    }

    /// Registers that the kernel may read before it writes them are undefined at its start.
    pub fn taint_unwritten(&mut self) {
        let unwritten = &self.env.code.unwritten;
        if !self.tracks() || unwritten.is_empty() {
            return;
        }
        self.taint();
        for &(slot, rows) in unwritten {
            let slot = slot as usize;
            match rows {
                0 => self.warp.shadows.preds[slot] = FULL,
                n => self.warp.shadows.rows[slot..slot + n as usize].fill(Row([FULL; LANES])),
            }
        }
    }

    /// Lanes for which an operand has undefined bits.
    pub fn undefined_lanes(&self, inst: &Inst, operand: usize) -> u32 {
        if !self.warp.tainted {
            return 0;
        }
        let slot = inst.ops[operand] as usize;
        match inst.kinds[operand].rows {
            0 => self.warp.shadows.preds[slot],
            rows => lanes_with_bits(&self.warp.shadows.rows[slot..], rows),
        }
    }

    /// Reports an address operand with undefined bits.
    #[inline(always)]
    pub fn check_address(&mut self, inst: &Inst, operand: usize) {
        if self.warp.tainted {
            self.check_use(inst, operand, "the address has bits that nobody defined");
        }
    }

    #[cold]
    pub fn check_use(&mut self, inst: &Inst, operand: usize, what: &str) {
        let lanes = self.undefined_lanes(inst, operand) & self.mask;
        if lanes != 0 {
            self.report(FindingKind::Undefined, lanes.trailing_zeros(), None, None, what.into());
        }
    }

    /// Reports a guard that is undefined for one of the active lanes.
    #[cold]
    pub fn check_guard(&mut self, inst: &Inst, active: u32, pc: u32) {
        let lanes = if inst.guard == NO_GUARD { 0 } else { self.warp.shadows.preds[inst.guard as usize] & active };
        if lanes != 0 {
            self.pc = pc;
            let detail = "the predicate that decides here comes from bits that nobody defined".into();
            self.report(FindingKind::Undefined, lanes.trailing_zeros(), None, None, detail);
        }
    }

    /// Marks an operand of the executing lanes as undefined in the given lanes, and defined in the others.
    pub fn mark(&mut self, inst: &Inst, operand: usize, lanes: u32) {
        if !self.warp.tainted {
            return;
        }
        let slot = inst.ops[operand] as usize;
        let mask = self.mask;
        match inst.kinds[operand].rows {
            0 => {
                let p = &mut self.warp.shadows.preds[slot];
                *p = *p & !mask | lanes & mask;
            }
            1 => u32::write(&mut self.warp.shadows.rows, inst.ops[operand], &spread(lanes), mask),
            2 => u64::write(
                &mut self.warp.shadows.rows,
                inst.ops[operand],
                &spread(lanes).map(|m| u64::from(m) | u64::from(m) << 32),
                mask,
            ),
            _ => u128::write(
                &mut self.warp.shadows.rows,
                inst.ops[operand],
                &spread(lanes).map(|m| if m != 0 { u128::MAX } else { 0 }),
                mask,
            ),
        }
    }

    /// Moves definedness through an instruction of a tainted warp, before it executes.
    #[cold]
    #[inline(never)]
    pub fn propagate(&mut self, inst: &Inst) {
        let count = inst.count as usize;
        match inst.taint {
            Taint::Own => {}
            Taint::Same { control } => self.same(inst, control),
            Taint::Any | Taint::Element | Taint::Upwards | Taint::And | Taint::Or => {
                let sources = (0..count).filter(|&i| inst.kinds[i].read);
                let lanes = sources.fold(0, |m, i| m | self.undefined_lanes(inst, i));
                let precise = lanes & self.mask != 0 && inst.kinds[0].rows == 1 && count == 3;
                match inst.taint {
                    Taint::Element if lanes & self.mask != 0 && inst.kinds[0].rows == 1 => self.halves(inst),
                    Taint::Upwards if precise => self.bitwise(inst, |a, b, _, _| (a | b) | (a | b).wrapping_neg()),
                    Taint::And if precise => self.bitwise(inst, |a, b, x, y| a & b | a & y | b & x),
                    Taint::Or if precise => self.bitwise(inst, |a, b, x, y| a & b | a & !y | b & !x),
                    _ => (0..count).filter(|&i| inst.kinds[i].written).for_each(|i| self.mark(inst, i, lanes)),
                }
            }
        }
    }

    /// The shadow of `d = f(a, b)` from the shadows and values of a and b.
    fn bitwise(&mut self, inst: &Inst, f: impl Fn(u32, u32, u32, u32) -> u32) {
        let shadow = |cx: &Self, i: usize| u32::read(&cx.warp.shadows.rows, inst.ops[i]);
        let value = |cx: &Self, i: usize| u32::read(&cx.warp.rows, inst.ops[i]);
        let (a, b, x, y) = (shadow(self, 1), shadow(self, 2), value(self, 1), value(self, 2));
        let d: [u32; LANES] = std::array::from_fn(|i| f(a[i], b[i], x[i], y[i]));
        Lane::write(&mut self.warp.shadows.rows, inst.ops[0], &d, self.mask);
    }

    /// Packed arithmetic: each half by itself.
    fn halves(&mut self, inst: &Inst) {
        let sources = (0..inst.count as usize).filter(|&i| inst.kinds[i].read);
        let mut all = [0u32; LANES];
        for i in sources {
            let shadow = u32::read(&self.warp.shadows.rows, inst.ops[i]);
            all.iter_mut().zip(shadow).for_each(|(a, s)| *a |= s);
        }
        let half = |bits: u32| if bits != 0 { 0xffff } else { 0 };
        let d = all.map(|a| half(a & 0xffff) | half(a >> 16) << 16);
        Lane::write(&mut self.warp.shadows.rows, inst.ops[0], &d, self.mask);
    }

    /// The instruction only moves bits: it does to the shadows what it does to the values, steered by the true `control` operands.
    fn same(&mut self, inst: &Inst, control: u32) {
        let controls = || (0..inst.count as usize).filter(move |&i| control >> i & 1 != 0);
        let steered = controls().fold(0, |m, i| m | self.undefined_lanes(inst, i));
        let data: Vec<usize> = (0..inst.count as usize).filter(|i| control >> i & 1 == 0).collect();
        let overlap = controls().any(|c| {
            inst.kinds[c].rows != 0 && data.iter().any(|&d| inst.kinds[d].rows != 0 && inst.ops[d] == inst.ops[c])
        });
        if steered & self.mask != 0 || overlap {
            let lanes = (0..inst.count as usize)
                .filter(|&i| inst.kinds[i].read)
                .fold(0, |m, i| m | self.undefined_lanes(inst, i));
            (0..inst.count as usize).filter(|&i| inst.kinds[i].written).for_each(|i| self.mark(inst, i, lanes));
            return;
        }
        let warp = &mut self.warp;
        let mut saved_rows = Vec::new();
        let mut saved_preds = Vec::new();
        for i in controls() {
            let slot = inst.ops[i] as usize;
            match inst.kinds[i].rows {
                0 => saved_preds.push((slot, std::mem::replace(&mut warp.shadows.preds[slot], warp.preds[slot]))),
                n => (slot..slot + n as usize)
                    .for_each(|s| saved_rows.push((s, std::mem::replace(&mut warp.shadows.rows[s], warp.rows[s])))),
            }
        }
        std::mem::swap(&mut warp.rows, &mut warp.shadows.rows);
        std::mem::swap(&mut warp.preds, &mut warp.shadows.preds);
        // SAFETY: as in `run_warp`: the function was chosen for this machine when the kernel was decoded.
        unsafe { (inst.run)(self, inst) };
        let warp = &mut self.warp;
        std::mem::swap(&mut warp.rows, &mut warp.shadows.rows);
        std::mem::swap(&mut warp.preds, &mut warp.shadows.preds);
        // In reverse, in case an operand stands twice.
        saved_rows.into_iter().rev().for_each(|(slot, row)| warp.shadows.rows[slot] = row);
        saved_preds.into_iter().rev().for_each(|(slot, pred)| warp.shadows.preds[slot] = pred);
    }

    /// At the head of a loop: if no register that is still needed holds undefined bits, the warp is clean again.
    #[cold]
    pub fn forget_dead(&mut self, pc: u32) {
        let Some(live) = self.env.code.live_at.get(&pc) else {
            return;
        };
        let shadows = &self.warp.shadows;
        let clean = live.iter().all(|&(slot, rows)| match rows {
            0 => shadows.preds[slot as usize] == 0,
            n => shadows.rows[slot as usize..slot as usize + n as usize].iter().all(|r| r.0 == [0; LANES]),
        });
        self.warp.tainted = !clean;
    }
}

/// Lanes in which any of the register's bits is set.
fn lanes_with_bits(rows: &[Row], count: u8) -> u32 {
    let any = |lane: usize| match count {
        1 => rows[0].0[lane] != 0,
        n => {
            let n = n as usize;
            let words: &[u32] = bytemuck::cast_slice(&rows[..n]);
            words[lane * n..(lane + 1) * n].iter().any(|&w| w != 0)
        }
    };
    (0..LANES).fold(0, |m, lane| m | u32::from(any(lane)) << lane)
}

/// All ones in the lanes of a mask.
fn spread(lanes: u32) -> [u32; LANES] {
    std::array::from_fn(|i| if lanes >> i & 1 != 0 { FULL } else { 0 })
}
