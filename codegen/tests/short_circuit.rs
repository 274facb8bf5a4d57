//! The right side of `&&` and `||` runs only where the left side says so, also in the CUDA text.

extern crate lathe_codegen as lathe;

use expect_test::{Expect, expect};
use lathe::ir::Kernel;
use lathe::prelude::*;
use lathe::target::Target;
use lathe::trace::TraceErrors;
use lathe_dsl::{device, kernel};

#[track_caller]
fn check(kernel: Result<Kernel, TraceErrors>, expected: Expect) {
    let kernel = kernel.unwrap_or_else(|errors| panic!("{errors}"));
    let source = kernel.cuda(Target::Sm120a).expect("prints").source;
    let (_, entry) = source.split_once("extern \"C\"").expect("has an entry");
    let (_, body) = entry.split_once(") {\n").expect("has a body");
    expected.assert_eq(body);
}

#[kernel(warps = 1)]
fn named_quotient(#[write_part] out: Slice<i32>, n: Scalar<i32>) {
    if n != 0 && {
        let q = 10 / n;
        q < 2
    } {
        out.at(0).store(1);
    }
}

#[test]
fn a_named_quotient_stays_behind_its_test() {
    check(
        named_quotient(),
        expect![[r#"
              const bool mask = n != 0;
              bool v = mask;
              if (mask) {
                const int q = 10 / n;
                v = q < 2;
              }
              if (v) {
                out[0] = 1;
              }
            }
        "#]],
    );
}

#[device]
fn between(x: Scalar<i32>, low: i32, high: i32) -> Scalar<bool> {
    x >= low && x < high
}

#[kernel(warps = 1)]
fn used_twice(#[write_part] out: Slice<i32>, n: Scalar<i32>, m: Scalar<i32>) {
    if n == 0 || between(m % n, 1, 3) {
        out.at(0).store(1);
    }
}

#[test]
fn a_remainder_used_twice_stays_behind_its_test() {
    check(
        used_twice(),
        expect![[r#"
              const bool mask = n == 0;
              bool v = mask;
              if (!mask) {
                const int x = m % n;
                v = x >= 1 && x < 3;
              }
              if (v) {
                out[0] = 1;
              }
            }
        "#]],
    );
}

#[kernel(warps = 1)]
fn one_expression(#[write_part] out: Slice<i32>, n: Scalar<i32>, m: Scalar<i32>) {
    let fits = n != 0 && m / n + 1 < 2 || m >= 0 && m < 32 && 1 << m > n;
    if fits {
        out.at(0).store(1);
    }
    if !fits && n > 0 && m >> n == 0 {
        out.at(0).store(2);
    }
}

#[test]
fn what_is_used_once_is_written_inside_the_condition() {
    check(
        one_expression(),
        expect![[r#"
              const bool fits = (n != 0 && m / n + 1 < 2) || (m >= 0 && m < 32 && (1 << m) > n);
              if (fits) {
                out[0] = 1;
              }
              if (!fits && n > 0 && (m >> n) == 0) {
                out[0] = 2;
              }
            }
        "#]],
    );
}

#[kernel(warps = 1)]
fn literal_operands(#[write_part] out: Slice<i32>, n: Scalar<i32>, x: Scalar<f32>, y: Scalar<f32>) {
    if n > 0 && {
        let half = n / 2;
        let low = n >> 3;
        let ratio = x / y;
        half > 3 && low < 9 && ratio > 0.5
    } {
        out.at(0).store(1);
    }
    if n > 0 && {
        let negated = n / -1;
        let wide = n << 32;
        negated > wide
    } {
        out.at(0).store(2);
    }
}

#[test]
fn operands_that_always_have_a_meaning_are_no_reason_for_a_branch() {
    check(
        literal_operands(),
        expect![[r#"
              const int half = n / 2;
              const int low = n >> 3;
              const float ratio = x / y;
              if (n > 0 && (half > 3 && low < 9 && ratio > 0.5f)) {
                out[0] = 1;
              }
              const bool mask = n > 0;
              bool v = mask;
              if (mask) {
                const int negated = n / -1;
                const int wide = n << 32;
                v = negated > wide;
              }
              if (v) {
                out[0] = 2;
              }
            }
        "#]],
    );
}

#[kernel(warps = 1)]
fn loads(#[read] x: Slice<i32>, #[write_part] out: Slice<i32>, n: Scalar<i32>) {
    if n >= 0 && x.at(n).load() > 0 {
        out.at(0).store(1);
    }
}

#[test]
fn a_load_stays_behind_its_test() {
    check(
        loads(),
        expect![[r#"
              const bool mask = n >= 0;
              bool v = mask;
              if (mask) {
                const int x_value = load(x + n);
                v = x_value > 0;
              }
              if (v) {
                out[0] = 1;
              }
            }
        "#]],
    );
}

#[kernel(warps = 1)]
fn comptime_right_sides(#[write_part] out: Slice<i32>, n: Scalar<i32>) {
    if n > 0 && {
        out.at(0).store(1);
        true
    } {
        out.at(1).store(2);
    }
    if n > 5 || {
        out.at(2).store(3);
        true
    } {
        out.at(3).store(4);
    }
    let mut m = n;
    let positive = m > 0 && true;
    m = -m;
    if positive {
        out.at(4).store(m);
    }
}

#[test]
fn what_a_comptime_right_side_does_happens_only_behind_its_left_side() {
    check(
        comptime_right_sides(),
        expect![[r#"
              const bool mask = n > 0;
              if (mask) {
                out[0] = 1;
              }
              if (mask) {
                out[1] = 2;
              }
              if (!(n > 5)) {
                out[2] = 3;
              }
              if (true) {
                out[3] = 4;
              }
              int m = n;
              const bool positive = m > 0;
              m = -m;
              if (positive) {
                out[4] = m;
              }
            }
        "#]],
    );
}

#[kernel(warps = 1)]
fn kept(#[write_part] out: Slice<i32>, n: Scalar<i32>) {
    let mut quotients = Vec::new();
    if n != 0 && {
        quotients.push(10 / n);
        quotients[0] < 2
    } {
        out.at(0).store(1);
    }
    out.at(1).store(quotients[0]);
}

#[test]
fn a_quotient_does_not_outlive_its_condition() {
    let errors = kept().expect_err("must be refused").to_string();
    assert!(errors.contains("this value was computed inside an `if` or `for` that has ended"), "{errors}");
}
