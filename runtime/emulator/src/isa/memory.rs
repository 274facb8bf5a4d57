//! Loads and stores.

use super::{Row, row};
use crate::check::AccessKind;
use crate::decode::{AddressBase, Form, Inst, Taint, Ty};
use crate::error::Result;
use crate::exec::access::{Intent, Space, Target, WORDS};
use crate::exec::lanes::{Row as Row32, Run, whole_warp};
use crate::exec::{Cx, Flow};
use crate::memory::Cursor;
use crate::parse::ast::Operand;

pub(super) const ROWS: &[Row] = &[
    row("ld", "all spaces and generic, .v2 .v4 .v8, .volatile .relaxed .acquire .nc and cache hints", ld),
    row("ldu", "as ld", ld),
    row("st", "as ld", st),
    row("prefetch", "does nothing", prefetch),
    row("prefetchu", "does nothing", prefetch),
    row("applypriority", "does nothing", prefetch),
    row("discard", "does nothing", prefetch),
    row("createpolicy", "gives 0", createpolicy),
];

/// Access details in `Inst::aux`.
#[derive(Clone, Copy)]
struct Shape {
    element: u32,
    count: u32,
    signed: bool,
    space: Space,
    /// Has an order of its own: volatile, relaxed, acquire, release.
    strong: bool,
}

impl Shape {
    fn pack(self) -> u32 {
        self.element
            | self.count << 8
            | u32::from(self.signed) << 12
            | u32::from(self.strong) << 13
            | self.space.code() << 16
    }

    #[inline(always)]
    fn unpack(aux: u32) -> Self {
        Self {
            element: aux & 0xff,
            count: aux >> 8 & 0xf,
            signed: aux >> 12 & 1 != 0,
            strong: aux >> 13 & 1 != 0,
            space: Space::of(aux >> 16 & 7),
        }
    }

    fn bytes(self) -> u32 {
        self.element * self.count
    }
}

pub(super) fn space(f: &mut Form<'_, '_>) -> Space {
    f.choice(&[
        ("global", Space::Global),
        ("shared", Space::Shared),
        ("shared::cta", Space::Shared),
        ("shared::cluster", Space::Shared),
        ("local", Space::Local),
        ("param", Space::Param),
        ("param::entry", Space::Param),
        ("const", Space::Global),
    ])
    .unwrap_or(Space::Generic)
}

/// Ordering, scope and cache hints: the emulator's memory is sequentially consistent, and has no cache.
pub(super) fn hints(f: &mut Form<'_, '_>) {
    f.ignore(&[
        "volatile", "relaxed", "acquire", "release", "acq_rel", "weak", "mmio", "cta", "cluster", "gpu", "sys", "nc",
        "ca", "cg", "cs", "lu", "cv", "wb", "wt", "unified", "noftz",
    ]);
    f.ignore_prefix("L1::");
    f.ignore_prefix("L2::");
}

fn vector(f: &mut Form<'_, '_>) -> u32 {
    f.choice(&[("v2", 2), ("v4", 4), ("v8", 8)]).unwrap_or(1)
}

/// A cache policy may follow the operands.
pub(super) fn policy(f: &mut Form<'_, '_>) -> Result<()> {
    if f.remaining() > 0 && f.inst.opcode.contains("L2::cache_hint") {
        f.operand()?;
    }
    Ok(())
}

/// The operands of a vector, or the single one.
fn items(operand: &Operand) -> &[Operand] {
    if let Operand::Vector(items) = operand { items } else { std::slice::from_ref(operand) }
}

/// Types for a register of the given rows: loads and stores accept registers wider than the element.
fn register_type(rows: u8, ty: Ty) -> Ty {
    match rows {
        1 if ty.bytes() <= 4 => Ty::B32,
        2 => Ty::B64,
        4 => Ty::B128,
        _ => ty,
    }
}

fn strong(f: &mut Form<'_, '_>) -> bool {
    ["volatile", "relaxed", "acquire", "release", "mmio"].into_iter().any(|order| f.flag(order))
}

fn ld(f: &mut Form<'_, '_>) -> Result<Run> {
    let space = space(f);
    let strong = strong(f);
    hints(f);
    let (count, ty) = (vector(f), f.ty()?);
    let shape = Shape { element: ty.bytes(), count, signed: ty.signed(), space, strong };
    let operand = f.operand()?;
    if items(operand).len() != count as usize {
        return f.unsupported(format!("{} destinations for a vector of {count}", items(operand).len()));
    }
    for item in items(operand) {
        let rows = f.register_rows(item, ty);
        f.dst_from(item, register_type(rows, ty))?;
    }
    check_width(f, shape)?;
    let base = f.address()?;
    f.aux = Shape { space: resolve(f, space, base)?, ..shape }.pack();
    policy(f)?;
    f.taint = Taint::Own;
    Ok(load())
}

fn check_width(f: &Form<'_, '_>, shape: Shape) -> Result<()> {
    if shape.bytes() <= 4 * WORDS as u32 && shape.element > 0 {
        Ok(())
    } else {
        f.unsupported("accesses of 1 to 32 bytes are supported")
    }
}

/// An address that names a parameter belongs to the parameters.
pub(super) fn resolve(f: &Form<'_, '_>, space: Space, base: AddressBase) -> Result<Space> {
    match (space, base) {
        (Space::Param, _) => Ok(Space::Param),
        (_, AddressBase::Param) => f.unsupported("a parameter is read with ld.param"),
        (Space::Global | Space::Generic, AddressBase::Narrow) => f.unsupported("global addresses have 64 bits"),
        (space, _) => Ok(space),
    }
}

whole_warp!(load, load_body);

#[inline(always)]
fn load_body(cx: &mut Cx<'_>, inst: &Inst) -> Flow {
    let shape = Shape::unpack(inst.aux);
    let base = inst.count as usize - 1;
    cx.check_address(inst, base);
    let addresses = cx.addresses(inst.ops[base], inst.kinds[base].rows, inst.imm);
    cx.count_traffic(shape.space, &addresses, cx.mask, shape.bytes());
    let (mut cursor, mut last) = (Cursor::default(), 0);
    let mut lanes = cx.mask;
    while lanes != 0 {
        let lane = lanes.trailing_zeros();
        lanes &= lanes - 1;
        let Some(target) =
            cx.target(shape.space, addresses[lane as usize], shape.bytes(), Intent::Read, lane, &mut last)
        else {
            continue;
        };
        if let Target::Shared(offset) = target {
            cx.shared_touched(lane, offset, shape.bytes(), AccessKind::Read);
        } else if shape.strong {
            cx.ordered_within(target, lane);
        } else {
            cx.touched_within(target, shape.bytes(), AccessKind::Read, lane);
        }
        let words = cx.read(target, shape.bytes(), lane, &mut cursor);
        scatter(&mut cx.warp.rows, inst, shape, lane, &words);
        if cx.tracks() {
            let undefined = cx.read_shadow(target, shape.bytes(), lane, &mut cursor);
            if undefined.iter().any(|&w| w != 0) {
                cx.taint();
            }
            if cx.warp.tainted {
                scatter(&mut cx.warp.shadows.rows, inst, shape, lane, &undefined);
            }
        }
    }
    Flow::Next
}

/// Gives a lane's loaded words to its registers.
#[inline(always)]
fn scatter(rows: &mut [Row32], inst: &Inst, shape: Shape, lane: u32, words: &[u32; WORDS]) {
    let lane = lane as usize;
    for i in 0..shape.count as usize {
        let slot = inst.ops[i] as usize;
        match shape.element {
            4 if inst.kinds[i].rows == 1 => rows[slot].0[lane] = words[i],
            8 => set64(rows, slot, lane, u64::from(words[2 * i]) | u64::from(words[2 * i + 1]) << 32),
            16 => {
                let wide: &mut [u32] = bytemuck::cast_slice_mut(&mut rows[slot..slot + 4]);
                wide[4 * lane..4 * lane + 4].copy_from_slice(&words[4 * i..4 * i + 4]);
            }
            element => {
                let bits = 8 * element;
                let per_word = 4 / element as usize;
                let raw = words[i / per_word] >> (bits * (i % per_word) as u32);
                let value = if element == 4 {
                    if shape.signed { i64::from(raw as i32) } else { raw.into() }
                } else if shape.signed {
                    i64::from((raw << (32 - bits)) as i32 >> (32 - bits))
                } else {
                    i64::from(raw & ((1 << bits) - 1))
                };
                match inst.kinds[i].rows {
                    1 => rows[slot].0[lane] = value as u32,
                    _ => set64(rows, slot, lane, value as u64),
                }
            }
        }
    }
}

#[inline(always)]
pub(super) fn set64(rows: &mut [crate::exec::lanes::Row], slot: usize, lane: usize, value: u64) {
    let wide: &mut [u64] = bytemuck::cast_slice_mut(&mut rows[slot..slot + 2]);
    wide[lane] = value;
}

#[inline(always)]
pub(super) fn get64(rows: &[crate::exec::lanes::Row], slot: usize, lane: usize) -> u64 {
    let wide: &[u64] = bytemuck::cast_slice(&rows[slot..slot + 2]);
    wide[lane]
}

fn st(f: &mut Form<'_, '_>) -> Result<Run> {
    let space = space(f);
    let strong = strong(f);
    hints(f);
    let (count, ty) = (vector(f), f.ty()?);
    let shape = Shape { element: ty.bytes(), count, signed: false, space, strong };
    check_width(f, shape)?;
    let base = f.address()?;
    f.aux = Shape { space: resolve(f, space, base)?, ..shape }.pack();
    if matches!(space, Space::Param) {
        return f.unsupported("parameters cannot be stored to");
    }
    let operand = f.operand()?;
    if items(operand).len() != count as usize {
        return f.unsupported(format!("{} sources for a vector of {count}", items(operand).len()));
    }
    for item in items(operand) {
        let rows = f.register_rows(item, ty);
        let as_type = if matches!(item, Operand::Reg(_)) { register_type(rows, ty) } else { ty };
        f.src_from(item, if as_type.bytes() < 4 { Ty::B32 } else { as_type })?;
    }
    policy(f)?;
    f.taint = Taint::Own;
    Ok(store())
}

whole_warp!(store, store_body);

#[inline(always)]
fn store_body(cx: &mut Cx<'_>, inst: &Inst) -> Flow {
    let shape = Shape::unpack(inst.aux);
    cx.check_address(inst, 0);
    let addresses = cx.addresses(inst.ops[0], inst.kinds[0].rows, inst.imm);
    cx.count_traffic(shape.space, &addresses, cx.mask, shape.bytes());
    let (mut cursor, mut last) = (Cursor::default(), 0);
    let mut lanes = cx.mask;
    while lanes != 0 {
        let lane = lanes.trailing_zeros();
        lanes &= lanes - 1;
        let Some(target) =
            cx.target(shape.space, addresses[lane as usize], shape.bytes(), Intent::Write, lane, &mut last)
        else {
            continue;
        };
        let words = gather(&cx.warp.rows, inst, shape, lane as usize);
        let undefined =
            if cx.warp.tainted { gather(&cx.warp.shadows.rows, inst, shape, lane as usize) } else { [0; WORDS] };
        if let Target::Shared(offset) = target {
            cx.shared_stored(lane, offset, shape.bytes(), &words);
        } else if shape.strong {
            cx.ordered_within(target, lane);
        } else {
            cx.stored_within(target, shape.bytes(), &words, lane);
        }
        if cx.tracks() {
            cx.write_shadow(target, shape.bytes(), lane, &undefined);
        }
        if let Target::Global(allocation, offset) = target
            && undefined.iter().any(|&w| w != 0)
        {
            cx.check_output(allocation.base + offset, lane);
        }
        cx.write(target, shape.bytes(), lane, &words, &undefined, &mut cursor);
        cx.cta.progress += 1;
    }
    Flow::Next
}

/// The words that a lane stores.
#[inline(always)]
fn gather(rows: &[Row32], inst: &Inst, shape: Shape, lane: usize) -> [u32; WORDS] {
    let mut words = [0; WORDS];
    for i in 0..shape.count as usize {
        let slot = inst.ops[i + 1] as usize;
        match shape.element {
            4 if inst.kinds[i + 1].rows == 1 => words[i] = rows[slot].0[lane],
            8 => {
                let value = get64(rows, slot, lane);
                words[2 * i] = value as u32;
                words[2 * i + 1] = (value >> 32) as u32;
            }
            16 => {
                let wide: &[u32] = bytemuck::cast_slice(&rows[slot..slot + 4]);
                words[4 * i..4 * i + 4].copy_from_slice(&wide[4 * lane..4 * lane + 4]);
            }
            element => {
                let value =
                    if inst.kinds[i + 1].rows == 1 { rows[slot].0[lane] } else { get64(rows, slot, lane) as u32 };
                let per_word = 4 / element as usize;
                let mask = if element == 4 { !0 } else { (1 << (8 * element)) - 1 };
                words[i / per_word] |= (value & mask) << (8 * element * (i % per_word) as u32);
            }
        }
    }
    words
}

fn prefetch(f: &mut Form<'_, '_>) -> Result<Run> {
    f.ignore(&["global", "local", "L1", "L2", "tensormap", "const", "param", "evict_last", "evict_normal"]);
    f.ignore_prefix("L2::");
    while f.remaining() > 0 {
        f.operand()?;
    }
    f.taint = Taint::Own;
    fn nothing(_: &mut Cx<'_>, _: &Inst) -> Flow {
        Flow::Next
    }
    Ok(nothing)
}

fn createpolicy(f: &mut Form<'_, '_>) -> Result<Run> {
    f.ignore(&["fractional", "range", "cvt", "global", "L2", "b64"]);
    f.ignore_prefix("L2::");
    f.dst(Ty::B64)?;
    while f.remaining() > 0 {
        f.operand()?;
    }
    fn zero(cx: &mut Cx<'_>, inst: &Inst) -> Flow {
        crate::exec::lanes::Lane::write(&mut cx.warp.rows, inst.ops[0], &[0u64; 32], cx.mask);
        Flow::Next
    }
    Ok(zero)
}
