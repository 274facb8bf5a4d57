//! Atomic updates of memory.

use super::memory::{get64, hints, policy, resolve, set64, space};
use super::number::{BF16, F16, Format, Round, odd_sum};
use super::{Row, row};
use crate::check::AccessKind;
use crate::decode::{Form, Inst, Taint, Ty};
use crate::error::Result;
use crate::exec::access::{Intent, Space, Target, WORDS};
use crate::exec::lanes::Run;
use crate::exec::{Cx, Flow};
use crate::memory::Cursor;
use crate::parse::ast::Operand;

pub(super) const ROWS: &[Row] = &[
    row(
        "atom",
        "global, shared, generic: add min max inc dec and or xor exch cas; u32 s32 u64 s64 b32 b64 f32 f64 f16x2 bf16x2",
        atom,
    ),
    row("red", "as atom", red),
];

/// A read-modify-write of one value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Update {
    Add,
    Min,
    Max,
    Inc,
    Dec,
    And,
    Or,
    Xor,
    Exch,
    Cas,
}

const UPDATES: [(&str, Update); 10] = [
    ("add", Update::Add),
    ("min", Update::Min),
    ("max", Update::Max),
    ("inc", Update::Inc),
    ("dec", Update::Dec),
    ("and", Update::And),
    ("or", Update::Or),
    ("xor", Update::Xor),
    ("exch", Update::Exch),
    ("cas", Update::Cas),
];

/// Types that an atomic computes with.
const ATOMIC_TYPES: [Ty; 11] =
    [Ty::U32, Ty::S32, Ty::B32, Ty::F32, Ty::U64, Ty::S64, Ty::B64, Ty::F64, Ty::F16x2, Ty::Bf16x2, Ty::B128];

fn atom(f: &mut Form<'_, '_>) -> Result<Run> {
    atomic(f, true)
}

fn red(f: &mut Form<'_, '_>) -> Result<Run> {
    f.ignore(&["async"]);
    atomic(f, false)
}

fn atomic(f: &mut Form<'_, '_>, returns: bool) -> Result<Run> {
    let space = space(f);
    hints(f);
    let Some(update) = f.choice(&UPDATES) else {
        return f.unsupported("an operation such as .add is required");
    };
    let ty = f.ty()?;
    let Some(type_code) = ATOMIC_TYPES.iter().position(|&t| t == ty).filter(|_| ty != Ty::B128) else {
        return f.unsupported(format!("type {ty:?} is not supported"));
    };
    if f.flag("v2") || f.flag("v4") {
        return f.unsupported("vector atomics are not supported");
    }
    if matches!(ty, Ty::F32 | Ty::F64 | Ty::F16x2 | Ty::Bf16x2) && !matches!(update, Update::Add | Update::Exch) {
        return f.unsupported("floating types can be added");
    }
    match (returns, f.inst.operands.first()) {
        (true, Some(first)) => {
            f.operand()?;
            f.dst_from(first, ty)?;
        }
        _ => f.dst_from(&Operand::Sink, ty)?,
    }
    let base = f.address()?;
    let space = resolve(f, space, base)?;
    if matches!(space, Space::Global | Space::Generic) {
        f.decoder.global_atomics = true;
    }
    f.src(ty)?;
    if update == Update::Cas {
        f.src(ty)?;
    }
    policy(f)?;
    f.aux = update as u32 | (type_code as u32) << 8 | space.code() << 16;
    f.taint = Taint::Own;
    Ok(atomic_lanes)
}

fn atomic_lanes(cx: &mut Cx<'_>, inst: &Inst) -> Flow {
    let update = UPDATES[(inst.aux & 0xff) as usize].1;
    let ty = ATOMIC_TYPES[(inst.aux >> 8 & 0xff) as usize];
    let space = Space::of(inst.aux >> 16 & 7);
    cx.check_address(inst, 1);
    let addresses = cx.addresses(inst.ops[1], inst.kinds[1].rows, inst.imm);
    let (mut cursor, mut last) = (Cursor::default(), 0);
    let wide = ty.bytes() == 8;
    let mask = cx.mask;
    for lane in (0..32).filter(|l| mask >> l & 1 != 0) {
        let Some(target) = cx.target(space, addresses[lane as usize], ty.bytes(), Intent::Atomic, lane, &mut last)
        else {
            continue;
        };
        if let Target::Shared(offset) = target {
            cx.shared_touched(lane, offset, ty.bytes(), AccessKind::Atomic);
        } else {
            cx.updated_within(target, ty.bytes(), lane);
        }
        let value = |cx: &Cx<'_>, operand: usize| {
            let slot = inst.ops[operand] as usize;
            if wide { get64(&cx.warp.rows, slot, lane as usize) } else { cx.warp.rows[slot].0[lane as usize].into() }
        };
        let words = cx.read(target, ty.bytes(), lane, &mut cursor);
        let old = u64::from(words[0]) | u64::from(words[1]) << 32;
        let old = if wide { old } else { old & 0xffff_ffff };
        let swap = if update == Update::Cas { value(cx, 3) } else { 0 };
        let new = updated(update, ty, old, value(cx, 2), swap);
        let mut words = [0; WORDS];
        (words[0], words[1]) = (new as u32, (new >> 32) as u32);
        let mut undefined = [0; WORDS];
        if cx.tracks() {
            // The old value goes to the register, and both make the new one.
            let before = cx.read_shadow(target, ty.bytes(), lane, &mut cursor);
            let from_memory = before.iter().any(|&w| w != 0);
            if from_memory {
                cx.taint();
            }
            if cx.warp.tainted {
                let given = (2..inst.count as usize).any(|i| cx.undefined_lanes(inst, i) >> lane & 1 != 0);
                let mask = std::mem::replace(&mut cx.mask, 1 << lane);
                cx.mark(inst, 0, if from_memory { 1 << lane } else { 0 });
                cx.mask = mask;
                let keeps = !matches!(update, Update::Exch);
                undefined = [if given || from_memory && keeps { !0 } else { 0 }; WORDS];
            }
            cx.write_shadow(target, ty.bytes(), lane, &undefined);
        }
        cx.write(target, ty.bytes(), lane, &words, &undefined, &mut cursor);
        let slot = inst.ops[0] as usize;
        if wide {
            set64(&mut cx.warp.rows, slot, lane as usize, old);
        } else {
            cx.warp.rows[slot].0[lane as usize] = old as u32;
        }
    }
    cx.cta.progress += 1;
    Flow::Next
}

fn updated(update: Update, ty: Ty, old: u64, value: u64, swap: u64) -> u64 {
    let (a, b) = (old as u32, value as u32);
    let narrow = |x: u32| u64::from(x);
    match (update, ty) {
        (Update::Exch, _) => value,
        (Update::Cas, _) => {
            if old == value {
                swap
            } else {
                old
            }
        }
        (Update::And, _) => old & value,
        (Update::Or, _) => old | value,
        (Update::Xor, _) => old ^ value,
        (Update::Inc, _) => narrow(if a >= b { 0 } else { a + 1 }),
        (Update::Dec, _) => narrow(if a == 0 || a > b { b } else { a - 1 }),
        (Update::Add, Ty::F32) => narrow((f32::from_bits(a) + f32::from_bits(b)).to_bits()),
        (Update::Add, Ty::F64) => (f64::from_bits(old) + f64::from_bits(value)).to_bits(),
        (Update::Add, Ty::F16x2) => narrow(packed_sum(a, b, F16)),
        (Update::Add, Ty::Bf16x2) => narrow(packed_sum(a, b, BF16)),
        (Update::Add, Ty::U64 | Ty::S64 | Ty::B64) => old.wrapping_add(value),
        (Update::Add, _) => narrow(a.wrapping_add(b)),
        (Update::Min, Ty::S32) => narrow((a as i32).min(b as i32) as u32),
        (Update::Max, Ty::S32) => narrow((a as i32).max(b as i32) as u32),
        (Update::Min, Ty::S64) => (old as i64).min(value as i64) as u64,
        (Update::Max, Ty::S64) => (old as i64).max(value as i64) as u64,
        (Update::Min, _) => old.min(value),
        (Update::Max, _) => old.max(value),
    }
}

fn packed_sum(a: u32, b: u32, format: Format) -> u32 {
    let sum = |a: u32, b: u32| {
        format.round(odd_sum(format.value(a & 0xffff), format.value(b & 0xffff)), Round::Nearest, false)
    };
    sum(a, b) | sum(a >> 16, b >> 16) << 16
}
