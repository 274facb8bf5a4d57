//! Single instructions on special and random values, against scalar Rust.
#![allow(clippy::precedence, reason = "shifts and masks are written as PTX writes them")]

mod common;

use common::{Memory, Numbers};
use lathe_emulator::{Checks, Launch, Module, Options};

/// Runs one instruction on 32-bit or 64-bit inputs, lane by lane. `%a %b %c` are the inputs, `%d` the output; all of `width` bits.
fn run(instruction: &str, width: u32, inputs: &[[u64; 3]]) -> Vec<u64> {
    let w = width;
    let load = |name: &str, at: usize| format!("ld.global.b{w} %{name}, [%rd2+{}];\n", at as u32 * w / 8);
    let text = format!(
        ".version 9.0\n.target sm_120a\n.address_size 64\n.visible .entry k(.param .u64 in, .param .u64 out)\n{{\n\
         .reg .b{w} %a, %b, %c, %d;\n.reg .b32 %r<9>;\n.reg .b64 %rd<9>;\n.reg .b16 %h<9>;\n.reg .pred %p<9>;\n\
         ld.param.u64 %rd1, [in];\nmov.u32 %r1, %tid.x;\nmad.wide.u32 %rd2, %r1, {}, %rd1;\n{}{}{}\
         ld.param.u64 %rd3, [out];\nmad.wide.u32 %rd3, %r1, {}, %rd3;\n{instruction}\nst.global.b{w} [%rd3], %d;\nret;\n}}\n",
        3 * w / 8,
        load("a", 0),
        load("b", 1),
        load("c", 2),
        w / 8
    );
    let kernel = Module::parse(&text).and_then(|m| m.entry("k")).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let mut out = Vec::new();
    for chunk in inputs.chunks(256) {
        let mut m = Memory::default();
        let bytes: Vec<u8> = chunk.iter().flatten().flat_map(|x| x.to_le_bytes()[..w as usize / 8].to_vec()).collect();
        let (source, result) = (m.with("in", &bytes), m.undefined("out", chunk.len() * w as usize / 8));
        let launch = Launch::new([1, 1, 1], [chunk.len() as u32, 1, 1]).arg(source).arg(result);
        common::run_clean(&kernel, &launch, &mut m, &Options { checks: Checks::NONE, ..Options::default() });
        let raw = m.read::<u8>(result, chunk.len() * w as usize / 8);
        out.extend(raw.chunks(w as usize / 8).map(|c| {
            let mut bytes = [0; 8];
            bytes[..c.len()].copy_from_slice(c);
            u64::from_le_bytes(bytes)
        }));
    }
    out
}

const SPECIAL: [u32; 20] = [
    0,
    0x8000_0000,
    1,
    0x8000_0001,
    0x007f_ffff,
    0x0080_0000,
    0x3f80_0000,
    0xbf80_0000,
    0x3fc0_0000,
    0x4020_0000,
    0x4b80_0001,
    0x4f00_0000,
    0x5f00_0000,
    0x7f7f_ffff,
    0xff7f_ffff,
    0x7f80_0000,
    0xff80_0000,
    0x7fc0_0000,
    0x7f80_0001,
    0x3eaa_aaab,
];

/// All pairs of special values with each other, and random ones.
fn inputs32() -> Vec<[u64; 3]> {
    let mut numbers = Numbers::new(9);
    let mut out = Vec::new();
    for &a in &SPECIAL {
        for &b in &SPECIAL {
            out.push([a.into(), b.into(), SPECIAL[numbers.below(20) as usize].into()]);
        }
    }
    out.extend((0..400).map(|_| [0; 3].map(|_: u64| numbers.bits() & 0xffff_ffff)));
    out.extend((0..400).map(|_| [0; 3].map(|_: u64| (numbers.unit() * 1000.0).to_bits().into())));
    out
}

#[track_caller]
fn check32(instruction: &str, expected: impl Fn(u32, u32, u32) -> u32) {
    let inputs = inputs32();
    for (i, d) in inputs.iter().zip(run(instruction, 32, &inputs)) {
        let [a, b, c] = i.map(|x| x as u32);
        assert_eq!(d as u32, expected(a, b, c), "{instruction} of {a:#010x}, {b:#010x}, {c:#010x} gives {d:#010x}");
    }
}

#[track_caller]
fn check_f32(instruction: &str, expected: impl Fn(f32, f32, f32) -> f32) {
    let f = f32::from_bits;
    check32(instruction, |a, b, c| {
        let r = expected(f(a), f(b), f(c));
        if r.is_nan() { 0x7fff_ffff } else { r.to_bits() }
    });
}

fn flush(x: f32) -> f32 {
    if x.is_subnormal() { 0f32.copysign(x) } else { x }
}

#[test]
fn f32_arithmetic_is_ieee() {
    check_f32("add.f32 %d, %a, %b;", |a, b, _| a + b);
    check_f32("sub.f32 %d, %a, %b;", |a, b, _| a - b);
    check_f32("mul.f32 %d, %a, %b;", |a, b, _| a * b);
    check_f32("fma.rn.f32 %d, %a, %b, %c;", |a, b, c| a.mul_add(b, c));
    check_f32("div.rn.f32 %d, %a, %b;", |a, b, _| a / b);
    check_f32("sqrt.rn.f32 %d, %a;", |a, _, _| a.sqrt());
    check_f32("rcp.rn.f32 %d, %a;", |a, _, _| 1.0 / a);
    check_f32("add.ftz.f32 %d, %a, %b;", |a, b, _| flush(flush(a) + flush(b)));
    check_f32("mul.ftz.f32 %d, %a, %b;", |a, b, _| flush(flush(a) * flush(b)));
    check_f32("fma.rn.ftz.f32 %d, %a, %b, %c;", |a, b, c| flush(flush(a).mul_add(flush(b), flush(c))));
}

#[test]
fn saturation_clamps_and_turns_nan_to_zero() {
    let sat = |x: f32| if x.is_nan() { 0.0 } else { x.clamp(0.0, 1.0) + 0.0 };
    check_f32("add.sat.f32 %d, %a, %b;", |a, b, _| sat(a + b));
    check_f32("mul.sat.f32 %d, %a, %b;", |a, b, _| sat(a * b));
    check_f32("cvt.sat.f32.f32 %d, %a;", |a, _, _| sat(a));
}

/// The neighbours of the exact result that a directed rounding must choose between.
fn directed(exact: f64, error: f64, up: bool) -> f32 {
    let nearest = exact as f32;
    let difference = f64::from(nearest) - exact - error;
    match (difference > 0.0, difference < 0.0, up) {
        _ if !exact.is_finite() || nearest.is_nan() => nearest,
        (false, true, true) => nearest.next_up(),
        (true, false, false) => nearest.next_down(),
        _ => nearest,
    }
}

#[test]
fn directed_roundings_bracket_the_exact_result() {
    // Products of f32 are exact in f64.
    check_f32("mul.rp.f32 %d, %a, %b;", |a, b, _| directed(f64::from(a) * f64::from(b), 0.0, true));
    check_f32("mul.rm.f32 %d, %a, %b;", |a, b, _| directed(f64::from(a) * f64::from(b), 0.0, false));
    check_f32("mul.rz.f32 %d, %a, %b;", |a, b, _| {
        let x = f64::from(a) * f64::from(b);
        directed(x, 0.0, x < 0.0)
    });
    let sum = |a: f32, b: f32, up: bool| {
        let (a, b) = (f64::from(a), f64::from(b));
        let s = a + b;
        let t = s - a;
        let error = if s.is_finite() { (a - (s - t)) + (b - t) } else { 0.0 };
        directed(s, error, up)
    };
    let zero_sum = |a: f32, b: f32| a == -b && a.is_finite();
    check_f32("add.rp.f32 %d, %a, %b;", |a, b, _| sum(a, b, true));
    check_f32("add.rm.f32 %d, %a, %b;", |a, b, _| {
        // Opposite numbers sum to -0 when rounding down, unless both are +0.
        if zero_sum(a, b) && !(a == 0.0 && a.is_sign_positive() && b.is_sign_positive()) {
            -0.0
        } else {
            sum(a, b, false)
        }
    });
}

#[test]
fn min_and_max_prefer_numbers_and_order_zeros() {
    let max = |a: f32, b: f32| match (a.is_nan(), b.is_nan()) {
        (true, _) => b,
        (_, true) => a,
        _ if a == b => {
            if a.is_sign_positive() {
                a
            } else {
                b
            }
        }
        _ => {
            if a > b {
                a
            } else {
                b
            }
        }
    };
    check_f32("max.f32 %d, %a, %b;", |a, b, _| max(a, b));
    check_f32("min.f32 %d, %a, %b;", |a, b, _| -max(-a, -b));
    check_f32("max.NaN.f32 %d, %a, %b;", |a, b, _| if a.is_nan() || b.is_nan() { f32::NAN } else { max(a, b) });
    check_f32("max.f32 %d, %a, %b, %c;", |a, b, c| max(max(a, b), c));
}

#[test]
fn comparisons_treat_nan_as_unordered() {
    let set = |p: bool| u32::from(p);
    let f = f32::from_bits;
    let of = |op: &str| format!("setp.{op}.f32 %p1, %a, %b;\nselp.b32 %d, 1, 0, %p1;");
    check32(&of("lt"), |a, b, _| set(f(a) < f(b)));
    check32(&of("ne"), |a, b, _| set(f(a) < f(b) || f(a) > f(b)));
    check32(&of("neu"), |a, b, _| set(f(a) != f(b)));
    check32(&of("geu"), |a, b, _| set(f(a) >= f(b) || f(a).is_nan() || f(b).is_nan()));
    check32(&of("equ"), |a, b, _| set(f(a) == f(b) || f(a).is_nan() || f(b).is_nan()));
    check32(&of("nan"), |a, b, _| set(f(a).is_nan() || f(b).is_nan()));
    check32("setp.lt.s32 %p2, %a, 7;\nsetp.gt.and.u32 %p1, %a, %b, !%p2;\nselp.b32 %d, 1, 0, %p1;", |a, b, _| {
        set(a > b && (a as i32) >= 7)
    });
    check32("setp.lt.u32 %p1|%p2, %a, %b;\nselp.b32 %d, 1, 0, %p2;", |a, b, _| set(a >= b));
}

#[test]
fn conversions_saturate_round_and_zero_nans() {
    let f = f32::from_bits;
    check32("cvt.rzi.s32.f32 %d, %a;", |a, _, _| f(a) as i32 as u32);
    check32("cvt.rni.s32.f32 %d, %a;", |a, _, _| f(a).round_ties_even() as i32 as u32);
    check32("cvt.rmi.u32.f32 %d, %a;", |a, _, _| f(a).floor() as u32);
    check32("cvt.rpi.s32.f32 %d, %a;", |a, _, _| f(a).ceil() as i32 as u32);
    check32("cvt.rn.f32.s32 %d, %a;", |a, _, _| (a as i32 as f32).to_bits());
    check32("cvt.rn.f32.u32 %d, %a;", |a, _, _| (a as f32).to_bits());
    check32("cvt.rz.f32.u32 %d, %a;", |a, _, _| {
        let x = a as f32;
        if f64::from(x) > f64::from(a) { x.next_down() } else { x }.to_bits()
    });
    check32("cvt.sat.s8.s32 %h1, %a;\ncvt.s32.s8 %d, %h1;", |a, _, _| (a as i32).clamp(-128, 127) as u32);
    check32("cvt.u8.u32 %h1, %a;\ncvt.u32.u8 %d, %h1;", |a, _, _| a & 0xff);
    check32("cvt.s16.s32 %h1, %a;\ncvt.s32.s16 %d, %h1;", |a, _, _| a as i16 as i32 as u32);
    check_f32("cvt.rni.f32.f32 %d, %a;", |a, _, _| a.round_ties_even());
}

#[test]
fn sixteen_bit_floats_agree_with_the_half_crate() {
    use half::{bf16, f16};
    let nan16 = |bits: u16, nan: bool| if nan { 0x7fff } else { u32::from(bits) };
    let f = f32::from_bits;
    check32("cvt.rn.f16.f32 %h1, %a;\ncvt.u32.u16 %d, %h1;", |a, _, _| {
        nan16(f16::from_f32(f(a)).to_bits(), f(a).is_nan())
    });
    check32("cvt.rn.bf16.f32 %h1, %a;\ncvt.u32.u16 %d, %h1;", |a, _, _| {
        nan16(bf16::from_f32(f(a)).to_bits(), f(a).is_nan())
    });
    check32("cvt.rn.bf16x2.f32 %d, %a, %b;", |a, b, _| {
        nan16(bf16::from_f32(f(b)).to_bits(), f(b).is_nan())
            | nan16(bf16::from_f32(f(a)).to_bits(), f(a).is_nan()) << 16
    });
    check32("cvt.u16.u32 %h1, %a;\ncvt.f32.f16 %d, %h1;", |a, _, _| {
        let x = f16::from_bits(a as u16).to_f32();
        if x.is_nan() { 0x7fff_ffff } else { x.to_bits() }
    });
    let halves = |a: u32, b: u32, op: &dyn Fn(u16, u16) -> u32| {
        op(a as u16, b as u16) | op((a >> 16) as u16, (b >> 16) as u16) << 16
    };
    check32("mul.rn.bf16x2 %d, %a, %b;", |a, b, _| {
        halves(a, b, &|x, y| {
            let r = bf16::from_f32(bf16::from_bits(x).to_f32() * bf16::from_bits(y).to_f32());
            nan16(r.to_bits(), r.is_nan())
        })
    });
    check32("add.rn.f16x2 %d, %a, %b;", |a, b, _| {
        halves(a, b, &|x, y| {
            let r = f16::from_f64(f16::from_bits(x).to_f64() + f16::from_bits(y).to_f64());
            nan16(r.to_bits(), r.is_nan())
        })
    });
}

/// e4m3 by its definition: the value of a code, and the nearest code of a number, ties to the even code.
fn e4m3(code: u32) -> f64 {
    let (e, m) = (code >> 3 & 15, f64::from(code & 7));
    let x = if e == 0 { m / 512.0 } else { (1.0 + m / 8.0) * 2f64.powi(e as i32 - 7) };
    if code & 0x80 != 0 { -x } else { x }
}

fn to_e4m3(x: f32) -> u32 {
    if x.is_nan() {
        return 0x7f;
    }
    let sign = if x.is_sign_negative() { 0x80 } else { 0 };
    let magnitude = f64::from(x.abs()).min(448.0);
    let nearest = (0..0x7f).min_by(|&a, &b| {
        let distance = |c: u32| (e4m3(c) - magnitude).abs();
        distance(a).total_cmp(&distance(b)).then((a & 1).cmp(&(b & 1)))
    });
    sign | nearest.unwrap_or(0)
}

#[test]
fn e4m3_rounds_to_nearest_even_and_saturates() {
    let f = f32::from_bits;
    check32("cvt.rn.satfinite.e4m3x2.f32 %h1, %a, %b;\ncvt.u32.u16 %d, %h1;", |a, b, _| {
        to_e4m3(f(b)) | to_e4m3(f(a)) << 8
    });
    check32("and.b32 %a, %a, 0xffff;\ncvt.u16.u32 %h1, %a;\ncvt.rn.f16x2.e4m3x2 %d, %h1;", |a, _, _| {
        let one = |c: u32| if c & 0x7f == 0x7f { 0x7fff } else { u32::from(half::f16::from_f64(e4m3(c)).to_bits()) };
        one(a & 0xff) | one(a >> 8 & 0xff) << 16
    });
}

#[test]
fn integer_instructions_wrap_and_widen() {
    check32("add.s32 %d, %a, %b;", |a, b, _| a.wrapping_add(b));
    check32("mul.lo.s32 %d, %a, %b;", |a, b, _| a.wrapping_mul(b));
    check32("mul.hi.s32 %d, %a, %b;", |a, b, _| (i64::from(a as i32) * i64::from(b as i32) >> 32) as u32);
    check32("mad.lo.u32 %d, %a, %b, %c;", |a, b, c| a.wrapping_mul(b).wrapping_add(c));
    check32("add.sat.s32 %d, %a, %b;", |a, b, _| (a as i32).saturating_add(b as i32) as u32);
    check32("sad.u32 %d, %a, %b, %c;", |a, b, c| a.abs_diff(b).wrapping_add(c));
    check32("min.s32 %d, %a, %b;", |a, b, _| (a as i32).min(b as i32) as u32);
    check32("or.b32 %b, %b, 1;\nrem.s32 %d, %a, %b;", |a, b, _| (a as i32).wrapping_rem((b | 1) as i32) as u32);
    check32("abs.s32 %d, %a;", |a, _, _| (a as i32).wrapping_abs() as u32);
    check32(
        "mul.wide.s32 %rd4, %a, %b;\ncvt.u32.u64 %d, %rd4;\nshr.u64 %rd4, %rd4, 32;\ncvt.u32.u64 %r2, %rd4;\nxor.b32 %d, %d, %r2;",
        |a, b, _| {
            let p = (i64::from(a as i32) * i64::from(b as i32)) as u64;
            p as u32 ^ (p >> 32) as u32
        },
    );
}

#[test]
fn bit_instructions_follow_their_definitions() {
    check32("lop3.b32 %d, %a, %b, %c, 0x96;", |a, b, c| a ^ b ^ c);
    check32("lop3.b32 %d, %a, %b, %c, 0xca;", |a, b, c| a & b | !a & c);
    check32("shl.b32 %d, %a, %b;", |a, n, _| if n > 31 { 0 } else { a << n });
    check32("shr.s32 %d, %a, %b;", |a, n, _| (a as i32 >> n.min(31)) as u32);
    check32("shf.l.wrap.b32 %d, %a, %b, %c;", |a, b, n| ((u64::from(b) << 32 | u64::from(a)) << (n & 31) >> 32) as u32);
    check32("shf.r.clamp.b32 %d, %a, %b, %c;", |a, b, n| ((u64::from(b) << 32 | u64::from(a)) >> n.min(32)) as u32);
    check32("and.b32 %b, %b, 31;\nand.b32 %c, %c, 31;\nbfe.u32 %d, %a, %b, %c;", |a, at, n| {
        a >> (at & 31) & ((1u64 << (n & 31)) - 1) as u32
    });
    check32("bfe.s32 %d, %a, 4, 8;", |a, _, _| ((a << 20) as i32 >> 24) as u32);
    check32("bfi.b32 %d, %a, %b, 5, 7;", |a, b, _| b & !(0x7f << 5) | (a & 0x7f) << 5);
    check32("popc.b32 %d, %a;", |a, _, _| a.count_ones());
    check32("clz.b32 %d, %a;", |a, _, _| a.leading_zeros());
    check32("brev.b32 %d, %a;", |a, _, _| a.reverse_bits());
    check32("bfind.u32 %d, %a;", |a, _, _| if a == 0 { !0 } else { 31 - a.leading_zeros() });
    check32("prmt.b32 %d, %a, %b, 0x4051;", |a, b, _| {
        u32::from_le_bytes([a.to_le_bytes()[1], b.to_le_bytes()[1], a.to_le_bytes()[0], b.to_le_bytes()[0]])
    });
    check32("prmt.b32 %d, %a, %b, 0xba98;", |a, _, _| {
        u32::from_le_bytes(a.to_le_bytes().map(|x| if x & 0x80 != 0 { 0xff } else { 0 }))
    });
    check32("mov.b32 {%h1, %h2}, %a;\nmov.b32 %d, {%h2, %h1};", |a, _, _| a.rotate_left(16));
}

#[test]
fn sixty_four_bit_instructions() {
    let mut numbers = Numbers::new(10);
    let inputs: Vec<[u64; 3]> = (0..500).map(|_| [0; 3].map(|_: u64| numbers.bits() >> numbers.below(60))).collect();
    let check = |instruction: &str, expected: &dyn Fn(u64, u64, u64) -> u64| {
        for (&[a, b, c], d) in inputs.iter().zip(run(instruction, 64, &inputs)) {
            assert_eq!(d, expected(a, b, c), "{instruction} of {a:#x}, {b:#x}, {c:#x}");
        }
    };
    check("mad.lo.s64 %d, %a, %b, %c;", &|a, b, c| a.wrapping_mul(b).wrapping_add(c));
    check("mul.hi.u64 %d, %a, %b;", &|a, b, _| (u128::from(a) * u128::from(b) >> 64) as u64);
    check("or.b64 %b, %b, 1;\ndiv.u64 %d, %a, %b;", &|a, b, _| a / (b | 1));
    check("cvt.u32.u64 %r2, %b;\nshr.s64 %d, %a, %r2;", &|a, b, _| (a as i64 >> (b as u32).min(63)) as u64);
    check("cvt.rn.f64.u64 %d, %a;", &|a, _, _| (a as f64).to_bits());
    check("mov.b64 {%r2, %r3}, %a;\nmov.b64 %d, {%r3, %r2};", &|a, _, _| a.rotate_left(32));
    check("mul.f32x2 %d, %a, %b;", &|a, b, _| {
        let one = |s: u32| {
            let r = f32::from_bits((a >> s) as u32) * f32::from_bits((b >> s) as u32);
            u64::from(if r.is_nan() { 0x7fff_ffff } else { r.to_bits() }) << s
        };
        one(0) | one(32)
    });
}
