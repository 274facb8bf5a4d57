//! mma: D = A B + C over the lanes of a warp.

use super::matrix::whole;
use super::number::{bf16_to_f32, canon, e4m3_to_f32, e5m2_to_f32, f16_to_f32, f32_to_f16};
use super::{Row, row};
use crate::decode::{Form, Inst, Taint, Ty};
use crate::error::Result;
use crate::exec::lanes::{LANES, Lane, Row as Lanes, Run, whole_warp};
use crate::exec::{Cx, Flow};

pub(super) const ROWS: &[Row] = &[row(
    "mma.sync.aligned",
    ".row.col: m16n8k8 m16n8k16 of f16 and bf16, m16n8k16 m16n8k32 of e4m3 and e5m2, m16n8k4 m16n8k8 of tf32, to f32 (f16 to f16 too); \
         m16n8k16 m16n8k32 of s8 and u8 to s32",
    mma,
)];

/// Element type of A or B.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Element {
    F16,
    Bf16,
    Tf32,
    E4m3,
    E5m2,
    S8,
    U8,
}

const ELEMENTS: [(&str, Element); 7] = [
    ("f16", Element::F16),
    ("bf16", Element::Bf16),
    ("tf32", Element::Tf32),
    ("e4m3", Element::E4m3),
    ("e5m2", Element::E5m2),
    ("s8", Element::S8),
    ("u8", Element::U8),
];

impl Element {
    fn bytes(self) -> usize {
        match self {
            Self::F16 | Self::Bf16 => 2,
            Self::Tf32 => 4,
            _ => 1,
        }
    }

    fn is_integer(self) -> bool {
        matches!(self, Self::S8 | Self::U8)
    }
}

fn mma(f: &mut Form<'_, '_>) -> Result<Run> {
    // The types stand in order D, A, B, C after the shape and layouts.
    let Some(k) = f.choice(&[("m16n8k4", 4), ("m16n8k8", 8), ("m16n8k16", 16), ("m16n8k32", 32)]) else {
        return f.unsupported("the shapes m16n8k4, m16n8k8, m16n8k16 and m16n8k32 are supported");
    };
    f.ignore(&["kind::f8f6f4"]);
    if !(f.flag("row") & f.flag("col")) {
        return f.unsupported("the layouts .row.col are supported");
    }
    let saturates = f.flag("satfinite");
    let words: Vec<&str> = f.inst.opcode.split('.').collect();
    let types: Vec<&str> = words[words.len().saturating_sub(4)..].to_vec();
    for t in &types {
        f.flag(t);
    }
    let element = |name: &str| ELEMENTS.iter().find(|e| e.0 == name).map(|e| e.1);
    let (Some(a), Some(b)) = (element(types[1]), element(types[2])) else {
        return f.unsupported(format!("A of {} and B of {} are not supported", types[1], types[2]));
    };
    let registers = 16 * k * a.bytes() / 128;
    let to_f16 = types[0] == "f16";
    let fits = a.bytes() == b.bytes()
        && a.is_integer() == b.is_integer()
        && matches!(registers, 2 | 4)
        && types[0] == types[3]
        && match types[0] {
            "f32" => !a.is_integer(),
            "f16" => a == Element::F16 || a.bytes() == 1 && !a.is_integer(),
            "s32" => a.is_integer(),
            _ => false,
        };
    if !fits || saturates && !a.is_integer() {
        return f.unsupported("this combination of shape and types is not supported");
    }
    let c_registers = if to_f16 { 2 } else { 4 };
    f.dsts(Ty::B32, c_registers)?;
    f.srcs(Ty::B32, registers)?;
    f.srcs(Ty::B32, registers / 2)?;
    f.srcs(Ty::B32, c_registers)?;
    let code = |e: Element| e as u32;
    f.aux = code(a) | code(b) << 4 | (registers as u32) << 8 | u32::from(to_f16) << 12 | u32::from(saturates) << 13;
    f.taint = Taint::Own;
    Ok(match (a, b, registers, types[0]) {
        (Element::Bf16, Element::Bf16, 4, "f32") => mma_bf16(),
        (Element::F16, Element::F16, 4, "f32") => mma_f16(),
        (Element::E4m3, Element::E4m3, 4, "f32") => mma_e4m3(),
        (_, _, _, "s32") => mma_integer,
        _ => mma_general,
    })
}

whole_warp!(mma_bf16, mma_bf16_body);
whole_warp!(mma_f16, mma_f16_body);
whole_warp!(mma_e4m3, mma_e4m3_body);

#[inline(always)]
fn mma_bf16_body(cx: &mut Cx<'_>, inst: &Inst) -> Flow {
    halves(cx, inst, |x| bf16_to_f32(x & 0xffff))
}

#[inline(always)]
fn mma_f16_body(cx: &mut Cx<'_>, inst: &Inst) -> Flow {
    halves(cx, inst, |x| f16_to_f32(x & 0xffff))
}

/// m16n8k16 of 16-bit elements. A register of A, its lanes in order, *is* an 8x8 quadrant in row order; a register of B an 8x8
/// block in column order.
#[inline(always)]
fn halves(cx: &mut Cx<'_>, inst: &Inst, to_f32: impl Fn(u32) -> f32 + Copy) -> Flow {
    if !whole(cx) {
        return Flow::Park;
    }
    mma_taint(cx, inst);
    let rows = &mut cx.warp.rows;
    // b[k] is row k of B: eight columns.
    let mut b = [[0f32; 8]; 16];
    for half in 0..2 {
        let r = &rows[inst.ops[8 + half] as usize].0;
        for pair in 0..4 {
            let words: [u32; 8] = std::array::from_fn(|n| r[4 * n + pair]);
            b[8 * half + 2 * pair] = words.map(to_f32);
            b[8 * half + 2 * pair + 1] = words.map(|w| to_f32(w >> 16));
        }
    }
    for half in 0..2 {
        let mut a = [[0f32; 64]; 2];
        for (k, a) in a.iter_mut().enumerate() {
            let r = &rows[inst.ops[4 + half + 2 * k] as usize].0;
            for i in 0..LANES {
                a[2 * i] = to_f32(r[i]);
                a[2 * i + 1] = to_f32(r[i] >> 16);
            }
        }
        let mut d = read_c(rows, inst.ops[10 + 2 * half], inst.ops[11 + 2 * half]);
        for (k_half, a) in a.iter().enumerate() {
            for k in 0..8 {
                let column = &b[8 * k_half + k];
                for i in 0..8 {
                    let x = a[8 * i + k];
                    for n in 0..8 {
                        d[i][n] = x.mul_add(column[n], d[i][n]);
                    }
                }
            }
        }
        write_d(rows, inst.ops[2 * half], inst.ops[2 * half + 1], &d, cx.mask);
    }
    Flow::Next
}

/// An element of D is undefined if anything in its row of A, its column of B or its own C is.
#[inline(always)]
fn mma_taint(cx: &mut Cx<'_>, inst: &Inst) {
    if cx.warp.tainted {
        mma_undefined(cx, inst);
    }
}

#[cold]
#[inline(never)]
fn mma_undefined(cx: &mut Cx<'_>, inst: &Inst) {
    let d_registers = (0..inst.count as usize).filter(|&i| inst.kinds[i].written).count();
    let (a, b, c) = fragments(inst, d_registers);
    let lanes = |slots: &[u16]| {
        let shadow = |&slot: &u16| u32::read(&cx.warp.shadows.rows, slot);
        let bits = slots.iter().map(shadow).fold([0u32; LANES], |all, s| std::array::from_fn(|i| all[i] | s[i]));
        bits.iter().enumerate().fold(0u32, |m, (i, &w)| m | u32::from(w != 0) << i)
    };
    let columns = lanes(&b);
    let column = |n: usize| columns >> (4 * n) & 0xf != 0;
    let mut out = Vec::new();
    for register in 0..d_registers {
        let half = register * 2 / d_registers;
        let rows = lanes(&a[half]);
        let own = u32::read(&cx.warp.shadows.rows, inst.ops[c + register]);
        let shadow: [u32; LANES] = std::array::from_fn(|lane| {
            let row = rows >> (lane & !3) & 0xf != 0;
            let (even, odd) = (column(lane % 4 * 2), column(lane % 4 * 2 + 1));
            let all = |undefined: bool| if undefined { !0u32 } else { 0 };
            match d_registers {
                // Two f16 in a register.
                2 => own[lane] | all(row) | all(even) & 0xffff | all(odd) & 0xffff_0000,
                _ => all(row || own[lane] != 0 || if register % 2 == 0 { even } else { odd }),
            }
        });
        out.push(shadow);
    }
    for (register, shadow) in out.iter().enumerate() {
        Lane::write(&mut cx.warp.shadows.rows, inst.ops[register], shadow, cx.mask);
    }
}

/// Eight rows of the accumulator: lane 4i + t holds columns 2t (first register) and 2t + 1 (second) of row i.
#[inline(always)]
pub(super) fn read_c(rows: &[Lanes], even: u16, odd: u16) -> [[f32; 8]; 8] {
    let (even, odd) = (&rows[even as usize].0, &rows[odd as usize].0);
    let mut c = [[0f32; 8]; 8];
    for i in 0..8 {
        for t in 0..4 {
            c[i][2 * t] = f32::from_bits(even[4 * i + t]);
            c[i][2 * t + 1] = f32::from_bits(odd[4 * i + t]);
        }
    }
    c
}

#[inline(always)]
pub(super) fn write_d(rows: &mut [Lanes], even: u16, odd: u16, d: &[[f32; 8]; 8], mask: u32) {
    let (mut e, mut o) = ([0u32; LANES], [0u32; LANES]);
    for i in 0..8 {
        for t in 0..4 {
            e[4 * i + t] = canon(d[i][2 * t]).to_bits();
            o[4 * i + t] = canon(d[i][2 * t + 1]).to_bits();
        }
    }
    Lane::write(rows, even, &e, mask);
    Lane::write(rows, odd, &o, mask);
}

/// m16n8k32 of e4m3: as for 16 bits, with four elements in a word.
#[inline(always)]
fn mma_e4m3_body(cx: &mut Cx<'_>, inst: &Inst) -> Flow {
    if !whole(cx) {
        return Flow::Park;
    }
    mma_taint(cx, inst);
    let rows = &mut cx.warp.rows;
    let mut b = [[0f32; 8]; 32];
    for half in 0..2 {
        let r = &rows[inst.ops[8 + half] as usize].0;
        for quad in 0..4 {
            let words: [u32; 8] = std::array::from_fn(|n| r[4 * n + quad]);
            for byte in 0..4 {
                b[16 * half + 4 * quad + byte] = words.map(|w| e4m3_to_f32(w >> (8 * byte) & 0xff));
            }
        }
    }
    for half in 0..2 {
        let mut a = [[0f32; 128]; 2];
        for (k, a) in a.iter_mut().enumerate() {
            let r = &rows[inst.ops[4 + half + 2 * k] as usize].0;
            let bytes: &[u8] = bytemuck::cast_slice(r);
            for i in 0..128 {
                a[i] = e4m3_to_f32(bytes[i].into());
            }
        }
        let mut d = read_c(rows, inst.ops[10 + 2 * half], inst.ops[11 + 2 * half]);
        for (k_half, a) in a.iter().enumerate() {
            for k in 0..16 {
                let column = &b[16 * k_half + k];
                for i in 0..8 {
                    let x = a[16 * i + k];
                    for n in 0..8 {
                        d[i][n] = x.mul_add(column[n], d[i][n]);
                    }
                }
            }
        }
        write_d(rows, inst.ops[2 * half], inst.ops[2 * half + 1], &d, cx.mask);
    }
    Flow::Next
}

/// Element k of a row whose four lanes hold the registers `r`: 4 bytes a lane, then on to the next register.
fn element_at(rows: &[Lanes], registers: &[u16], index: usize, k: usize, bytes: usize) -> u32 {
    let per_register = 16 / bytes;
    let (register, within) = (k / per_register, k % per_register);
    let per_lane = 4 / bytes;
    let word = rows[registers[register] as usize].0[4 * index + within / per_lane];
    let bits = 8 * bytes as u32;
    let value = word >> (bits * (within % per_lane) as u32);
    if bytes == 4 { value } else { value & ((1 << bits) - 1) }
}

fn float_of(element: Element, bits: u32) -> f32 {
    match element {
        Element::F16 => f16_to_f32(bits),
        Element::Bf16 => bf16_to_f32(bits),
        // The low 13 bits of a tf32 operand are ignored.
        Element::Tf32 => f32::from_bits(bits & !0x1fff),
        Element::E4m3 => e4m3_to_f32(bits),
        _ => e5m2_to_f32(bits),
    }
}

/// The registers of A for the upper and lower eight rows, and of B.
fn fragments(inst: &Inst, c_registers: usize) -> ([Vec<u16>; 2], Vec<u16>, usize) {
    let registers = (inst.aux >> 8 & 0xf) as usize;
    let a = &inst.ops[c_registers..c_registers + registers];
    let b = inst.ops[c_registers + registers..c_registers + registers + registers / 2].to_vec();
    let halves = [0, 1].map(|half| a.iter().skip(half).step_by(2).copied().collect());
    (halves, b, c_registers + registers + registers / 2)
}

fn mma_general(cx: &mut Cx<'_>, inst: &Inst) -> Flow {
    if !whole(cx) {
        return Flow::Park;
    }
    mma_taint(cx, inst);
    let (ea, eb) = (ELEMENTS[(inst.aux & 0xf) as usize].1, ELEMENTS[(inst.aux >> 4 & 0xf) as usize].1);
    let to_f16 = inst.aux >> 12 & 1 != 0;
    let (a, b, c) = fragments(inst, if to_f16 { 2 } else { 4 });
    let k = a[0].len() * 16 / ea.bytes();
    let rows = &mut cx.warp.rows;
    let mut results = [[[0f32; 8]; 8]; 2];
    for half in 0..2 {
        let mut d = if to_f16 {
            read_c16(rows, inst.ops[c + half])
        } else {
            read_c(rows, inst.ops[c + 2 * half], inst.ops[c + 2 * half + 1])
        };
        for (i, d) in d.iter_mut().enumerate() {
            for (n, d) in d.iter_mut().enumerate() {
                for k in 0..k {
                    let x = float_of(ea, element_at(rows, &a[half], i, k, ea.bytes()));
                    let y = float_of(eb, element_at(rows, &b, n, k, eb.bytes()));
                    *d = x.mul_add(y, *d);
                }
            }
        }
        results[half] = d;
    }
    for (half, d) in results.iter().enumerate() {
        if to_f16 {
            let packed: [u32; LANES] =
                std::array::from_fn(|l| f32_to_f16(d[l / 4][l % 4 * 2]) | f32_to_f16(d[l / 4][l % 4 * 2 + 1]) << 16);
            Lane::write(rows, inst.ops[half], &packed, cx.mask);
        } else {
            write_d(rows, inst.ops[2 * half], inst.ops[2 * half + 1], d, cx.mask);
        }
    }
    Flow::Next
}

fn read_c16(rows: &[Lanes], slot: u16) -> [[f32; 8]; 8] {
    let r = &rows[slot as usize].0;
    std::array::from_fn(|i| std::array::from_fn(|n| f16_to_f32(r[4 * i + n / 2] >> (16 * (n % 2)) & 0xffff)))
}

fn mma_integer(cx: &mut Cx<'_>, inst: &Inst) -> Flow {
    if !whole(cx) {
        return Flow::Park;
    }
    mma_taint(cx, inst);
    let signed = |e: u32| ELEMENTS[e as usize].1 == Element::S8;
    let (sa, sb, saturates) = (signed(inst.aux & 0xf), signed(inst.aux >> 4 & 0xf), inst.aux >> 13 & 1 != 0);
    let extend = |bits: u32, signed: bool| {
        if signed { i64::from(bits as u8 as i8) } else { i64::from(bits) }
    };
    let (a, b, c) = fragments(inst, 4);
    let k = a[0].len() * 16;
    let rows = &mut cx.warp.rows;
    let mut out = [[0u32; LANES]; 4];
    for (register, out) in out.iter_mut().enumerate() {
        let (half, odd) = (register / 2, register % 2);
        for (lane, out) in out.iter_mut().enumerate() {
            let (i, n) = (lane / 4, lane % 4 * 2 + odd);
            let start = i64::from(rows[inst.ops[c + register] as usize].0[lane] as i32);
            let sum = (0..k).fold(start, |sum, k| {
                sum + extend(element_at(rows, &a[half], i, k, 1), sa) * extend(element_at(rows, &b, n, k, 1), sb)
            });
            *out = if saturates { sum.clamp(i32::MIN.into(), i32::MAX.into()) as u32 } else { sum as u32 };
        }
    }
    for (register, out) in out.iter().enumerate() {
        Lane::write(rows, inst.ops[register], out, cx.mask);
    }
    Flow::Next
}
