//! cvt. The conversions that inner loops use are compiled for whole warps; the rest goes lane by lane through one function that reads
//! its types from the instruction.

use super::number::{
    BF16, E4M3, E5M2, F16, Round, bf16_to_f32, canon, e4m3_to_f32, e5m2_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16,
    ftz, odd, to_f32,
};
use super::{Row, row};
use crate::decode::{Form, Inst, Taint, Ty};
use crate::error::Result;
use crate::exec::lanes::{LANES, Lane, Run, Scalar, binary, rare1, rare2, unary};
use crate::exec::{Cx, Flow};

pub(super) const ROWS: &[Row] = &[row(
    "cvt",
    "between all integers and f16 bf16 f32 f64, all roundings, .sat .ftz; f32 to tf32 by .rna; f16x2 bf16x2 e4m3x2 e5m2x2 with .satfinite .relu",
    cvt,
)];

const TYPES: [Ty; 16] = [
    Ty::U8,
    Ty::S8,
    Ty::B8,
    Ty::U16,
    Ty::S16,
    Ty::B16,
    Ty::U32,
    Ty::S32,
    Ty::B32,
    Ty::U64,
    Ty::S64,
    Ty::B64,
    Ty::F16,
    Ty::Bf16,
    Ty::F32,
    Ty::F64,
];
const ROUNDINGS: [Round; 4] = [Round::Nearest, Round::Zero, Round::Down, Round::Up];

/// A conversion of one value.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Conversion {
    to: Ty,
    from: Ty,
    round: Round,
    /// To an integral value, even if the result is a float.
    integral: bool,
    sat: bool,
    flush: bool,
    relu: bool,
    satfinite: bool,
}

impl Conversion {
    fn pack(self) -> u32 {
        let at = |ty| TYPES.iter().position(|&t| t == ty).unwrap_or(0) as u32;
        let round = ROUNDINGS.iter().position(|&r| r == self.round).unwrap_or(0) as u32;
        let flags = [self.integral, self.sat, self.flush, self.relu, self.satfinite];
        let flags = flags.iter().enumerate().fold(0, |m, (i, &flag)| m | u32::from(flag) << i);
        at(self.to) | at(self.from) << 4 | round << 8 | flags << 10
    }

    fn unpack(aux: u32) -> Self {
        let flag = |i: u32| aux >> (10 + i) & 1 != 0;
        Self {
            to: TYPES[(aux & 15) as usize],
            from: TYPES[(aux >> 4 & 15) as usize],
            round: ROUNDINGS[(aux >> 8 & 3) as usize],
            integral: flag(0),
            sat: flag(1),
            flush: flag(2),
            relu: flag(3),
            satfinite: flag(4),
        }
    }

    fn plain(self) -> bool {
        !(self.integral || self.sat || self.flush || self.relu || self.satfinite) && self.round == Round::Nearest
    }
}

fn cvt(f: &mut Form<'_, '_>) -> Result<Run> {
    let integral = f.choice(&[("rni", Round::Nearest), ("rzi", Round::Zero), ("rmi", Round::Down), ("rpi", Round::Up)]);
    let float = super::number::rounding(f);
    let (sat, flush, relu, satfinite) = (f.flag("sat"), f.flag("ftz"), f.flag("relu"), f.flag("satfinite"));
    let round = integral.or(float).unwrap_or(Round::Nearest);
    if let Some(run) = packed(f, round, relu, satfinite)? {
        return Ok(run);
    }
    if f.flag("tf32") {
        return to_tf32(f);
    }
    let (to, from) = (f.ty()?, f.ty()?);
    for ty in [to, from] {
        if !TYPES.contains(&ty) {
            return f.unsupported(format!("type {ty:?} is not supported"));
        }
    }
    // 8-bit values sit in wider registers.
    let register = |ty: Ty| if ty.bytes() == 1 { Ty::B16 } else { ty };
    f.dst(register(to))?;
    f.src(register(from))?;
    if !is_float(to) && is_float(from) && integral.is_none() {
        return f.unsupported("an integral rounding such as .rzi is required");
    }
    let conversion = Conversion { to, from, round, integral: integral.is_some(), sat, flush, relu, satfinite };
    if !is_float(to) && !is_float(from) && !sat {
        // Cutting and extending only move bits.
        f.taint = Taint::Same { control: 0 };
    }
    if let Some(run) = common(conversion) {
        return Ok(run);
    }
    f.aux = conversion.pack();
    Ok(convert_lanes)
}

/// `cvt.rna.tf32.f32`: to 10 bits of mantissa, ties away from zero; the rest of the register is 0.
fn to_tf32(f: &mut Form<'_, '_>) -> Result<Run> {
    let away = f.flag("rna");
    if !(away && f.ty()? == Ty::F32) {
        return f.unsupported("tf32 is rounded from f32 by .rna");
    }
    f.dst(Ty::B32)?;
    f.src(Ty::F32)?;
    let scalar = rare1(|a: u32| (if a & 0x7fff_ffff > 0x7f80_0000 { a } else { a + 0x1000 }) & !0x1fff);
    Ok(f.lane_by_lane(scalar))
}

fn is_float(ty: Ty) -> bool {
    matches!(ty, Ty::F16 | Ty::Bf16 | Ty::F32 | Ty::F64)
}

/// The conversions that address arithmetic and inner loops are made of.
fn common(c: Conversion) -> Option<Run> {
    let truncates =
        Conversion { round: Round::Nearest, integral: false, ..c }.plain() && c.integral && c.round == Round::Zero;
    Some(match (c.to, c.from) {
        (Ty::S32, Ty::F32) if truncates => unary(|a: f32| a as i32),
        (Ty::U32, Ty::F32) if truncates => unary(|a: f32| a as u32),
        _ if !c.plain() => return None,
        (Ty::U64 | Ty::S64 | Ty::B64, Ty::U32 | Ty::B32) => unary(|a: u32| u64::from(a)),
        (Ty::U64 | Ty::S64 | Ty::B64, Ty::S32) => unary(|a: i32| i64::from(a)),
        (Ty::U32 | Ty::S32 | Ty::B32, Ty::U64 | Ty::S64 | Ty::B64) => unary(|a: u64| a as u32),
        (Ty::U32 | Ty::S32 | Ty::B32 | Ty::U16 | Ty::B16, Ty::U16 | Ty::B16) => unary(|a: u32| a & 0xffff),
        (Ty::U16 | Ty::B16, Ty::U32 | Ty::S32 | Ty::B32) => unary(|a: u32| a & 0xffff),
        (Ty::U32 | Ty::S32 | Ty::B32 | Ty::U16 | Ty::B16, Ty::U8 | Ty::B8) => unary(|a: u32| a & 0xff),
        (Ty::U32 | Ty::S32 | Ty::B32, Ty::S16) => unary(|a: i16| i32::from(a)),
        (Ty::F32, Ty::U32 | Ty::B32) => unary(|a: u32| a as f32),
        (Ty::F32, Ty::S32) => unary(|a: i32| a as f32),
        (Ty::F32, Ty::F16) => unary(|a: u16| canon(f16_to_f32(a.into()))),
        // Moves the bits, of a NaN too.
        (Ty::F32, Ty::Bf16) => unary(|a: u16| u32::from(a) << 16),
        (Ty::Bf16, Ty::F32) => unary(|a: f32| f32_to_bf16(a)),
        _ => return None,
    })
}

/// A value on its way: integers exactly, floats exactly.
#[derive(Clone, Copy)]
enum Value {
    Integer(i128),
    Float(f64),
}

fn convert_lanes(cx: &mut Cx<'_>, inst: &Inst) -> Flow {
    let c = Conversion::unpack(inst.aux);
    let rows = &mut cx.warp.rows;
    let source = if inst.kinds[1].rows == 1 {
        u32::read(rows, inst.ops[1]).map(u64::from)
    } else {
        u64::read(rows, inst.ops[1])
    };
    let out: [u64; LANES] = source.map(|bits| encode(c, decode(c, bits)));
    match inst.kinds[0].rows {
        1 => Lane::write(rows, inst.ops[0], &out.map(|x| x as u32), cx.mask),
        _ => Lane::write(rows, inst.ops[0], &out, cx.mask),
    }
    Flow::Next
}

fn decode(c: Conversion, bits: u64) -> Value {
    match c.from {
        // Flushing is arithmetic, so it makes a NaN canonical.
        Ty::F32 if c.flush => Value::Float(canon(ftz(f32::from_bits(bits as u32))).into()),
        Ty::F32 => Value::Float(f32::from_bits(bits as u32).into()),
        Ty::F64 => Value::Float(f64::from_bits(bits)),
        Ty::F16 => Value::Float(f16_to_f32(bits as u32 & 0xffff).into()),
        Ty::Bf16 => Value::Float(bf16_to_f32(bits as u32 & 0xffff).into()),
        ty => {
            let shift = 64 - 8 * ty.bytes();
            Value::Integer(if ty.signed() {
                i128::from((bits << shift) as i64 >> shift)
            } else {
                i128::from(bits << shift >> shift)
            })
        }
    }
}

fn encode(c: Conversion, value: Value) -> u64 {
    if !is_float(c.to) {
        return match value {
            Value::Integer(x) => narrow(c.to, x, c.sat),
            // A NaN is 0, except where a 64-bit type takes part: then the highest bit alone.
            Value::Float(x) if x.is_nan() => {
                if c.to.bytes() == 8 || c.from == Ty::F64 {
                    narrow(c.to, 1 << (8 * c.to.bytes() - 1), false)
                } else {
                    0
                }
            }
            // Floats always saturate.
            Value::Float(x) => narrow(c.to, integral(x, c.round) as i128, true),
        };
    }
    let x = match value {
        Value::Integer(x) if c.to == Ty::F64 => return towards(x, c.round).to_bits(),
        Value::Integer(x) => {
            let v = x as f64;
            odd(v, (x - v as i128) as f64)
        }
        Value::Float(x) if x.is_nan() && c.from == Ty::F64 && !c.sat && !c.relu => return nan_of_f64(c.to, x),
        Value::Float(x) if c.integral => integral(x, c.round),
        Value::Float(x) => x,
    };
    let x = match (c.sat, c.relu) {
        (true, _) => {
            if x > 0.0 {
                x.min(1.0)
            } else {
                0.0
            }
        }
        (_, true) => {
            if x <= 0.0 {
                0.0
            } else {
                x
            }
        }
        _ => x,
    };
    match c.to {
        Ty::F16 => F16.round(x, c.round, c.satfinite).into(),
        Ty::Bf16 => BF16.round(x, c.round, c.satfinite).into(),
        Ty::F64 => x.to_bits(),
        _ => {
            let result = canon(to_f32(x, c.round));
            u64::from((if c.flush { ftz(result) } else { result }).to_bits())
        }
    }
}

/// A NaN of f64 in a floating type: quiet, with the sign and what fits of the payload.
fn nan_of_f64(to: Ty, x: f64) -> u64 {
    let bits = x.to_bits() | 1 << 51;
    let sign = bits >> 63;
    match to {
        Ty::F64 => bits,
        Ty::F16 => sign << 15 | bits >> 42 & 0x7fff,
        Ty::Bf16 => sign << 15 | bits >> 45 & 0x7fff,
        _ => sign << 31 | bits >> 29 & 0x7fff_ffff,
    }
}

/// An integer to f64.
fn towards(x: i128, round: Round) -> f64 {
    let nearest = x as f64;
    let error = x - nearest as i128;
    match round {
        Round::Down if error < 0 => nearest.next_down(),
        Round::Up if error > 0 => nearest.next_up(),
        Round::Zero if error != 0 && (error < 0) == (x > 0) => {
            if x > 0 {
                nearest.next_down()
            } else {
                nearest.next_up()
            }
        }
        _ => nearest,
    }
}

/// An integer in a type, clamped to its range or cut to its bits, extended to the register by its own sign.
fn narrow(ty: Ty, x: i128, clamp: bool) -> u64 {
    let bits = 8 * ty.bytes();
    let (low, high) =
        if ty.signed() { (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1) } else { (0, (1i128 << bits) - 1) };
    let x = if clamp { x.clamp(low, high) } else { x };
    let shift = 64 - bits;
    let cut = (x as u64) << shift;
    let extended = if ty.signed() { (cut as i64 >> shift) as u64 } else { cut >> shift };
    if bits < 64 { extended & 0xffff_ffff } else { extended }
}

/// Rounds to an integral value.
fn integral(x: f64, round: Round) -> f64 {
    match round {
        Round::Nearest => x.round_ties_even(),
        Round::Zero => x.trunc(),
        Round::Down => x.floor(),
        Round::Up => x.ceil(),
    }
}

/// .relu: negative numbers become +0, a NaN stays one.
#[inline(always)]
fn positive(a: f32) -> f32 {
    if a <= 0.0 { 0.0 } else { a }
}

/// Two numbers in one register; `None` if the instruction is not of this kind.
fn packed(f: &mut Form<'_, '_>, round: Round, relu: bool, satfinite: bool) -> Result<Option<Run>> {
    let is_e4m3 = f.inst.opcode.contains("e4m3x2");
    let eight = f.flag("e4m3x2") | f.flag("e5m2x2");
    let pair = f.choice(&[("f16x2", Ty::F16x2), ("bf16x2", Ty::Bf16x2)]);
    if !eight && pair.is_none() {
        return Ok(None);
    }
    let from_f32 = f.flag("f32");
    let scalar = match (eight, pair, from_f32) {
        (false, Some(to), true) => {
            f.dst(Ty::B32)?;
            f.src(Ty::F32)?;
            f.src(Ty::F32)?;
            if (to, round, relu, satfinite) == (Ty::Bf16x2, Round::Nearest, false, false) {
                return Ok(Some(binary(|a: f32, b: f32| f32_to_bf16(b) | f32_to_bf16(a) << 16)));
            }
            from_singles(f, to, round, relu, satfinite)?
        }
        (true, None, true) if satfinite => {
            f.dst(Ty::B16)?;
            f.src(Ty::F32)?;
            f.src(Ty::F32)?;
            macro_rules! narrow {
                ($format:expr, $each:expr) => {
                    rare2(|a: f32, b: f32| {
                        $format.round($each(b).into(), Round::Nearest, true)
                            | $format.round($each(a).into(), Round::Nearest, true) << 8
                    })
                };
            }
            match (is_e4m3, relu) {
                (true, false) => narrow!(E4M3, |x: f32| x),
                (true, true) => narrow!(E4M3, positive),
                (false, false) => narrow!(E5M2, |x: f32| x),
                (false, true) => narrow!(E5M2, positive),
            }
        }
        (true, Some(Ty::F16x2), false) => eights_and_halves(f, is_e4m3, relu)?,
        _ => return f.unsupported("this packed conversion is not supported"),
    };
    Ok(Some(f.lane_by_lane(scalar)))
}

/// `cvt.f16x2.f32 d, a, b`: a becomes the upper half.
fn from_singles(f: &Form<'_, '_>, to: Ty, round: Round, relu: bool, satfinite: bool) -> Result<Scalar> {
    macro_rules! pair {
        ($each:expr) => {
            rare2(|a: f32, b: f32| ($each)(b) | ($each)(a) << 16)
        };
    }
    Ok(match (to, round, relu, satfinite) {
        (Ty::F16x2, Round::Nearest, false, false) => pair!(f32_to_f16),
        (Ty::F16x2, Round::Nearest, true, false) => pair!(|x| f32_to_f16(positive(x))),
        (Ty::F16x2, Round::Nearest, false, true) => {
            pair!(|x: f32| F16.round(x.into(), Round::Nearest, true))
        }
        (Ty::F16x2, Round::Zero, false, false) => {
            pair!(|x: f32| F16.round(x.into(), Round::Zero, false))
        }
        (Ty::Bf16x2, Round::Nearest, true, false) => pair!(|x| f32_to_bf16(positive(x))),
        (Ty::Bf16x2, Round::Nearest, false, true) => {
            pair!(|x: f32| BF16.round(x.into(), Round::Nearest, true))
        }
        (Ty::Bf16x2, Round::Zero, false, false) => {
            pair!(|x: f32| BF16.round(x.into(), Round::Zero, false))
        }
        _ => return f.unsupported("this combination of modifiers is not supported"),
    })
}

/// Between f16x2 and e4m3x2 or e5m2x2; the destination's type stands first.
fn eights_and_halves(f: &mut Form<'_, '_>, is_e4m3: bool, relu: bool) -> Result<Scalar> {
    let opcode = &f.inst.opcode;
    let widening = opcode.find("f16x2") < opcode.find(if is_e4m3 { "e4m3x2" } else { "e5m2x2" });
    if widening {
        f.dst(Ty::B32)?;
        f.src(Ty::B16)?;
        macro_rules! widen {
            ($each:expr) => {
                rare1(|a: u32| f32_to_f16(($each)(a & 0xff)) | f32_to_f16(($each)(a >> 8 & 0xff)) << 16)
            };
        }
        return Ok(match (is_e4m3, relu) {
            (true, false) => widen!(e4m3_to_f32),
            (true, true) => widen!(|x| positive(e4m3_to_f32(x))),
            (false, false) => widen!(e5m2_to_f32),
            (false, true) => widen!(|x| positive(e5m2_to_f32(x))),
        });
    }
    f.dst(Ty::B16)?;
    f.src(Ty::B32)?;
    macro_rules! narrow {
        ($format:expr, $each:expr) => {
            rare1(|a: u32| {
                let each = |bits: u32| $format.round($each(f16_to_f32(bits & 0xffff)).into(), Round::Nearest, true);
                each(a) | each(a >> 16) << 8
            })
        };
    }
    Ok(match (is_e4m3, relu) {
        (true, false) => narrow!(E4M3, |x: f32| x),
        (true, true) => narrow!(E4M3, positive),
        (false, false) => narrow!(E5M2, |x: f32| x),
        (false, true) => narrow!(E5M2, positive),
    })
}
