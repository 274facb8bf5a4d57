//! What tracing refuses, and where it says the mistake is.

extern crate lathe_codegen as lathe;

use expect_test::{Expect, expect};
use lathe::ir::Kernel;
use lathe::prelude::{Scalar, shared};
use lathe::trace::TraceErrors;
use lathe_dsl::kernel;

fn check(kernel: Result<Kernel, TraceErrors>, expected: Expect) {
    match kernel {
        Ok(kernel) => panic!("traced without an error:\n{kernel}"),
        Err(errors) => expected.assert_eq(&errors.to_string()),
    }
}

#[allow(clippy::never_loop, clippy::needless_return)]
#[kernel(warps = 1)]
fn jumps(n: Scalar<i32>) {
    for i in 0..n {
        if i == 3 {
            break;
        }
        if i == 4 {
            continue;
        }
    }
    for i in 0..n {
        for _ in 0..4 {
            if i == 5 {
                break;
            }
        }
    }
    let early = || {
        if n > 3 {
            return;
        }
    };
    early();
    let fails = |value: Option<i32>| {
        for _ in 0..n {
            value?;
        }
        Some(())
    };
    let _ = fails(None);
    for _ in 0..n {
        break;
    }
    if n == 9 {
        return;
    }
}

#[test]
fn jumps_across_a_run_time_scope_are_refused_with_both_places() {
    check(
        jumps(),
        expect![[r#"
            kernel `jumps` has 6 errors:
            codegen/tests/trace_errors.rs:23:13: `break` leaves a run-time `if`, whose body is traced once whether or not it runs: invert the condition and put the rest of the loop's body inside the `if`
              codegen/tests/trace_errors.rs:22:9: the run-time `if` begins here
            codegen/tests/trace_errors.rs:32:17: `break` leaves a run-time `if`, whose body is traced once whether or not it runs: invert the condition and put the rest of the loop's body inside the `if`
              codegen/tests/trace_errors.rs:31:13: the run-time `if` begins here
            codegen/tests/trace_errors.rs:38:13: `return` leaves a run-time `if`, whose body is traced once whether or not it runs: invert the condition and put what follows inside the block
              codegen/tests/trace_errors.rs:37:9: the run-time `if` begins here
            codegen/tests/trace_errors.rs:44:18: `?` leaves a run-time `for`, whose body is traced once whether or not it runs: do what can fail before the block
              codegen/tests/trace_errors.rs:43:18: the run-time `for` begins here
            codegen/tests/trace_errors.rs:50:9: `break` leaves a run-time `for`, whose body is traced once whether or not it runs: bound the range instead, or guard the rest of the body by an `if`
              codegen/tests/trace_errors.rs:49:14: the run-time `for` begins here
            codegen/tests/trace_errors.rs:53:9: `return` leaves a run-time `if`, whose body is traced once whether or not it runs: invert the condition and put what follows inside the block
              codegen/tests/trace_errors.rs:52:5: the run-time `if` begins here"#]],
    );
}

#[kernel(warps = 1)]
fn comptime_changes(n: Scalar<i32>) {
    let mut count = 0;
    let mut seen = None;
    if n < 3 {
        count += 1;
        for _ in 0..n {
            seen = Some(n);
        }
        let mut inner = 1;
        inner += 1;
        let _ = n + inner;
    }
    let _ = (count, seen);
}

#[test]
fn comptime_variables_do_not_change_inside_run_time_scopes() {
    check(
        comptime_changes(),
        expect![[r#"
            kernel `comptime_changes` has 2 errors:
            codegen/tests/trace_errors.rs:83:15: `count` is a comptime variable, and cannot change inside a run-time block, which is traced once however often it runs: make it a run-time variable, `let mut count = Scalar::from(...)`, or change it outside
              codegen/tests/trace_errors.rs:82:5: the run-time block begins here
            codegen/tests/trace_errors.rs:85:18: `seen` is a comptime variable, and cannot change inside a run-time block, which is traced once however often it runs: make it a run-time variable, `let mut seen = Scalar::from(...)`, or change it outside
              codegen/tests/trace_errors.rs:84:18: the run-time block begins here"#]],
    );
}

#[kernel(warps = 1)]
fn escapes(n: Scalar<i32>) {
    let fixed = n + 1;
    let mut kept = vec![];
    if n < 3 {
        let inside = n + 2;
        kept.push(inside);
    }
    let mut list = [fixed; 2];
    list[0] = kept[0];
    let mut whole = vec![n, n];
    whole = vec![n];
    let mut sum = n;
    let mut add = |v: Scalar<i32>| sum += v;
    add(fixed);
    let _ = whole;
}

#[test]
fn values_do_not_outlive_their_scope() {
    check(
        escapes(),
        expect![[r#"
            kernel `escapes` has 2 errors:
            codegen/tests/trace_errors.rs:116:13: `inside` was computed inside an `if` or `for` that has ended: declare `let mut` before the block and assign to it inside
              codegen/tests/trace_errors.rs:112:22: computed here
            codegen/tests/trace_errors.rs:118:11: 1 values are assigned to 2 variables: both sides need the same length"#]],
    );
}

#[kernel(warps = 1)]
fn leaves_a_ring(n: Scalar<i32>) {
    let ring = shared::<f32>([16, 32]).stages(2);
    for _ in 0..n {
        for (i, _stage) in ring.turns(n) {
            if i == 3 {
                break;
            }
        }
    }
}

#[test]
fn the_loops_of_rings_are_run_time_blocks_like_others() {
    check(
        leaves_a_ring(),
        expect![[r#"
        kernel `leaves_a_ring` has 1 error:
        codegen/tests/trace_errors.rs:143:17: `break` leaves a run-time `if`, whose body is traced once whether or not it runs: invert the condition and put the rest of the loop's body inside the `if`
          codegen/tests/trace_errors.rs:142:13: the run-time `if` begins here"#]],
    );
}
