//! Control flow, variables and scoping as the trace records them.

use expect_test::{Expect, expect};
use lathe_codegen::handles::{Handle, Scalar};
use lathe_codegen::ir::Kernel;
use lathe_codegen::loc::Loc;
use lathe_codegen::trace::{self, KernelSpec, TraceErrors, Unroll, trace};

fn kernel(body: impl FnOnce()) -> Result<Kernel, TraceErrors> {
    trace(KernelSpec { name: "k", doc: "", warps: 4, ctas_per_sm: 1, loc: Loc::caller() }, body)
}

#[track_caller]
fn check(body: impl FnOnce(), expected: Expect) {
    expected.assert_eq(&kernel(body).expect("traces").to_string());
}

fn param(name: &str) -> Scalar<i32> {
    let loc = Loc::caller();
    Scalar::from_id(trace::with(|b| b.scalar_param(name, loc, lathe_codegen::dtype::Dtype::I32)))
}

#[test]
fn a_loop_that_updates_a_variable_under_a_condition() {
    check(
        || {
            let n = param("n");
            let loc = Loc::caller();
            let sum = trace::with(|b| {
                let zero = b.constant(lathe_codegen::dtype::Dtype::I32, 0.into(), loc);
                let sum = b.declare_var(zero, loc);
                b.name(sum, "sum");
                sum
            });
            let (zero, one) = (Scalar::from(0), Scalar::from(1));
            let i: Scalar<i32> =
                Scalar::from_id(trace::with(|b| b.begin_for(zero.id(), n.id(), one.id(), Unroll::Auto, loc)));
            let odd = (i % 2).eq(1);
            trace::with(|b| b.begin_if(odd.id(), loc));
            let next = Scalar::from_id(sum) + i * 3;
            trace::with(|b| {
                b.assign(sum, next.id(), loc);
                b.begin_else(loc);
            });
            let next = Scalar::<i32>::from_id(sum) - 1;
            trace::with(|b| {
                b.assign(sum, next.id(), loc);
                b.end_if(loc);
                b.end_for(loc);
            });
        },
        expect![[r#"
            kernel k(n: i32) warps 4 ctas_per_sm 1 {
              %1: i32 = const {type = i32, value = 0}
              %2_sum: i32 = var %1
              %3: i32 = const {type = i32, value = 0}
              %4: i32 = const {type = i32, value = 1}
              for %3, @n, %4 {unroll = "auto"} (%5: i32) {
                %6: i32 = const {type = i32, value = 2}
                %7: i32 = rem %5, %6
                %8: i32 = const {type = i32, value = 1}
                %9: bool = eq %7, %8
                if %9 {
                  %10: i32 = const {type = i32, value = 3}
                  %11: i32 = mul %5, %10
                  %12: i32 = var.get %2_sum
                  %13: i32 = add %12, %11
                  var.set %2_sum, %13
                } else {
                  %14: i32 = const {type = i32, value = 1}
                  %15: i32 = var.get %2_sum
                  %16: i32 = sub %15, %14
                  var.set %2_sum, %16
                }
              }
            }
        "#]],
    );
}

#[test]
fn a_value_does_not_leave_its_block() {
    let errors = kernel(|| {
        let n = param("n");
        let positive = n.gt(0);
        let loc = Loc::caller();
        trace::with(|b| b.begin_if(positive.id(), loc));
        let inside = n + 1;
        trace::with(|b| {
            b.name(inside.id(), "inside");
            b.end_if(loc);
        });
        let _ = inside + 1;
        let _ = inside + 2;
    })
    .expect_err("must be refused");
    assert_eq!(errors.errors.len(), 2);
    let error = &errors.errors[0];
    assert!(error.message.starts_with("`inside` was computed inside an `if` or `for` that has ended"), "{errors}");
    let (related, why) = error.related.as_ref().expect("names both places");
    assert_eq!(related.line + 6 - 1, error.loc.line, "{errors}");
    assert_eq!(why, "computed here");
}

#[test]
fn one_mistake_gives_one_message() {
    let errors = kernel(|| {
        let f: Scalar<f32> = Scalar::from_id(param("n").id());
        let g = f + 1.0;
        let _ = g * 2.0 + g;
    })
    .expect_err("must be refused");
    assert_eq!(errors.errors.len(), 1);
    assert_eq!(errors.errors[0].message, "i32 and f32 do not go together");
}

#[test]
fn an_unclosed_block_is_refused() {
    let errors = kernel(|| {
        let positive = param("n").gt(0);
        let loc = Loc::caller();
        trace::with(|b| b.begin_if(positive.id(), loc));
    })
    .expect_err("must be refused");
    assert!(errors.errors[0].message.contains("never closed"), "{errors}");
}

#[test]
#[should_panic(expected = "kernel code was called outside a kernel")]
fn handles_mean_nothing_outside_a_kernel() {
    let _ = Scalar::from(1);
}
