//! Register slots. NVRTC numbers thousands of virtual registers; only a few hundred are live at once, and the emulator is
//! fast when a warp's registers stay in the cache. So: liveness by data flow, then a linear scan over instruction order.

use std::collections::HashMap;

use super::form::{Built, class_rows};
use super::{Special, Virtual};
use crate::parse::ast::Body;

pub(crate) struct Slots {
    registers: Vec<u16>,
    fixed: HashMap<Virtual, u16>,
    pub rows: usize,
    pub preds: usize,
    pub constants: Vec<(u16, u8, u64)>,
    pub specials: Vec<(u16, Special)>,
    pub unwritten: Vec<(u16, u8)>,
    pub live_at: HashMap<u32, Vec<(u16, u8)>>,
}

impl Slots {
    pub fn of(&self, value: Virtual) -> u16 {
        match value {
            Virtual::Register(r) => self.registers[r as usize],
            other => self.fixed[&other],
        }
    }
}

/// Bounds the memory of the analysis: 128 MiB of bits, a thousand times what NVRTC's largest kernels need.
const MOST_WORDS: usize = 1 << 24;

/// Which registers are live on entry to each instruction, as bit sets.
pub(crate) struct Liveness {
    words: usize,
    live_in: Vec<u64>,
}

impl Liveness {
    fn of(body: &Body, forms: &[Built]) -> Result<Self, String> {
        let words = body.registers.len().div_ceil(64);
        let blocks = blocks(forms);
        if words * blocks.len() > MOST_WORDS {
            let (registers, blocks) = (body.registers.len(), blocks.len());
            return Err(format!("{registers} registers and {blocks} blocks are more than the emulator analyses"));
        }
        let mut block_in = vec![0u64; words * blocks.len()];
        let block_at: HashMap<usize, usize> = blocks.iter().enumerate().map(|(i, b)| (b.start, i)).collect();
        let mut changed = true;
        let mut live = vec![0u64; words];
        while changed {
            changed = false;
            for (i, block) in blocks.iter().enumerate().rev() {
                live_out(&mut live, words, &forms[block.end - 1], block.end, &block_in, &block_at);
                for form in forms[block.clone()].iter().rev() {
                    step(&mut live, form);
                }
                let target = &mut block_in[i * words..(i + 1) * words];
                if target != live.as_slice() {
                    target.copy_from_slice(&live);
                    changed = true;
                }
            }
        }
        Ok(Self { words, live_in: block_in })
    }

    /// Registers live on entry to the block that starts at `pc`.
    fn at_block(&self, forms: &[Built], pc: u32) -> Vec<u32> {
        let at = blocks(forms).iter().position(|b| b.start == pc as usize);
        let mut out = Vec::new();
        if let Some(i) = at {
            for_each_bit(&self.live_in[i * self.words..(i + 1) * self.words], |r| out.push(r));
        }
        out
    }

    fn entry(&self) -> impl Iterator<Item = u32> + '_ {
        let first = self.live_in.get(..self.words).unwrap_or(&[]);
        first
            .iter()
            .enumerate()
            .flat_map(|(w, &bits)| (0..64).filter(move |b| bits >> b & 1 != 0).map(move |b| (w * 64 + b) as u32))
    }
}

fn blocks(forms: &[Built]) -> Vec<std::ops::Range<usize>> {
    let mut starts = vec![0];
    for (i, form) in forms.iter().enumerate() {
        starts.extend(form.targets.iter().map(|&t| t as usize));
        if form.ends || !form.targets.is_empty() {
            starts.push(i + 1);
        }
    }
    starts.sort_unstable();
    starts.dedup();
    starts.retain(|&s| s < forms.len());
    let ends = starts.iter().skip(1).copied().chain([forms.len()]);
    starts.iter().copied().zip(ends).map(|(s, e)| s..e).collect()
}

fn live_out(
    live: &mut [u64],
    words: usize,
    last: &Built,
    end: usize,
    block_in: &[u64],
    block_at: &HashMap<usize, usize>,
) {
    live.fill(0);
    let falls_through = (!last.ends || last.guard.is_some()).then_some(end);
    for next in last.targets.iter().map(|&t| t as usize).chain(falls_through) {
        if let Some(&block) = block_at.get(&next) {
            for (l, b) in live.iter_mut().zip(&block_in[block * words..(block + 1) * words]) {
                *l |= b;
            }
        }
    }
}

fn step(live: &mut [u64], form: &Built) {
    for slot in &form.operands {
        // A guarded write leaves the old value in some lanes.
        if let Virtual::Register(r) = slot.value
            && slot.kind.written
            && form.guard.is_none()
        {
            live[r as usize / 64] &= !(1 << (r % 64));
        }
    }
    let guard = form.guard.map(|g| g.0);
    let reads = form.operands.iter().filter(|s| s.kind.read).map(|s| s.value);
    for value in reads.chain(guard) {
        if let Virtual::Register(r) = value {
            live[r as usize / 64] |= 1 << (r % 64);
        }
    }
}

/// Assigns a slot to each register and constant.
pub(crate) fn assign(body: &Body, forms: &[Built]) -> Result<Slots, String> {
    let liveness = Liveness::of(body, forms)?;
    let intervals = intervals(body, forms, &liveness);
    let mut order: Vec<u32> = (0..body.registers.len() as u32).filter(|&r| intervals[r as usize].is_some()).collect();
    order.sort_by_key(|&r| intervals[r as usize]);

    // One pool of rows a class width (1, 2, 4) and one of predicates (0).
    let mut free: [Vec<u16>; 5] = Default::default();
    let mut active: std::collections::BinaryHeap<std::cmp::Reverse<(u32, u32)>> = Default::default();
    let mut registers = vec![0u16; body.registers.len()];
    let (mut rows, mut preds) = (0usize, 2usize);
    for r in order {
        let (start, end) = intervals[r as usize].unwrap_or_default();
        while let Some(&std::cmp::Reverse((over, old))) = active.peek()
            && over < start
        {
            active.pop();
            free[class_rows(body.registers[old as usize]) as usize].push(registers[old as usize]);
        }
        let width = class_rows(body.registers[r as usize]) as usize;
        registers[r as usize] = free[width].pop().unwrap_or_else(|| take(width, &mut rows, &mut preds));
        active.push(std::cmp::Reverse((end, r)));
    }

    let mut slots = Slots {
        registers,
        fixed: HashMap::new(),
        rows: 0,
        preds: 0,
        constants: vec![],
        specials: vec![],
        unwritten: vec![],
        live_at: HashMap::new(),
    };
    slots.fixed.insert(Virtual::False, 0);
    slots.fixed.insert(Virtual::True, 1);
    for value in forms.iter().flat_map(|f| &f.operands).map(|s| s.value) {
        if matches!(value, Virtual::Register(_)) || slots.fixed.contains_key(&value) {
            continue;
        }
        let width = match value {
            Virtual::Constant(width, _) | Virtual::Sink(width) => width as usize,
            _ => 1,
        };
        let slot = take(width, &mut rows, &mut preds);
        slots.fixed.insert(value, slot);
        match value {
            Virtual::Constant(width, bits) => slots.constants.push((slot, width, bits)),
            Virtual::Special(special) => slots.specials.push((slot, special)),
            _ => {}
        }
    }
    if rows.max(preds) >= usize::from(u16::MAX) {
        return Err(format!("it needs {rows} rows of registers at once; 65534 are the emulator's limit"));
    }
    let place = |r: u32| (slots.registers[r as usize], class_rows(body.registers[r as usize]));
    let heads =
        forms.iter().enumerate().flat_map(|(i, f)| f.targets.iter().filter(move |&&t| t as usize <= i)).copied();
    slots.live_at = heads.map(|t| (t, liveness.at_block(forms, t).into_iter().map(place).collect())).collect();
    slots.unwritten =
        liveness.entry().map(|r| (slots.registers[r as usize], class_rows(body.registers[r as usize]))).collect();
    (slots.rows, slots.preds) = (rows, preds);
    Ok(slots)
}

fn take(width: usize, rows: &mut usize, preds: &mut usize) -> u16 {
    let counter = if width == 0 { preds } else { rows };
    let slot = *counter;
    *counter += width.max(1);
    slot.min(u16::MAX as usize) as u16
}

/// First and last instruction at which each register holds a value somebody may read, or is written.
fn intervals(body: &Body, forms: &[Built], liveness: &Liveness) -> Vec<Option<(u32, u32)>> {
    let mut out: Vec<Option<(u32, u32)>> = vec![None; body.registers.len()];
    let mut touch = |r: u32, at: usize| {
        let at = at as u32;
        let (start, end) = out[r as usize].unwrap_or((at, at));
        out[r as usize] = Some((start.min(at), end.max(at)));
    };
    for (i, form) in forms.iter().enumerate() {
        for value in form.operands.iter().map(|s| s.value).chain(form.guard.map(|g| g.0)) {
            if let Virtual::Register(r) = value {
                touch(r, i);
            }
        }
    }
    // A register live into a block is live from its start, and to the end of every block that can jump there.
    let words = liveness.words;
    let blocks = blocks(forms);
    let at: HashMap<usize, usize> = blocks.iter().enumerate().map(|(i, b)| (b.start, i)).collect();
    let mut live = vec![0u64; words];
    for (i, block) in blocks.iter().enumerate() {
        for_each_bit(&liveness.live_in[i * words..(i + 1) * words], |r| touch(r, block.start));
        live_out(&mut live, words, &forms[block.end - 1], block.end, &liveness.live_in, &at);
        for_each_bit(&live, |r| touch(r, block.end - 1));
    }
    out
}

fn for_each_bit(bits: &[u64], mut f: impl FnMut(u32)) {
    for (w, &word) in bits.iter().enumerate() {
        let mut rest = word;
        while rest != 0 {
            f(w as u32 * 64 + rest.trailing_zeros());
            rest &= rest - 1;
        }
    }
}
