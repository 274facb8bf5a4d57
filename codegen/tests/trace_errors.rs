//! What tracing refuses, and where it says the mistake is.

extern crate lathe_codegen as lathe;

use expect_test::{Expect, expect};
use lathe::ir::Kernel;
use lathe::prelude::*;
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

#[kernel(warps = 4)]
fn indices_outside(n: Scalar<i32>) {
    let a = shared::<f32>([1, 4]);
    let ring = shared::<bf16>([16, 128]).stages(2);
    a.at(0, 7).store(1.0f32);
    a.at(1, n).store(1.0f32);
    a.at(-1, 2 * 2).load();
    ring.stage(2).load_a();
    ring.stage(-1).load_a();
    shared::<f32>([2, 2]).at(0, 2).load();
    a.at(0, 3).store(n.to::<f32>());
    ring.stage(n).load_a();
}

#[test]
fn known_indices_lie_inside_their_tile() {
    check(
        indices_outside(),
        expect![[r#"
            kernel `indices_outside` has 7 errors:
            codegen/tests/trace_errors.rs:164:7: column 7 is outside `a`, f32 [1, 4]: its columns are 0 to 3
              codegen/tests/trace_errors.rs:162:13: declared here
            codegen/tests/trace_errors.rs:165:7: row 1 is outside `a`, f32 [1, 4]: its rows are 0 to 0
              codegen/tests/trace_errors.rs:162:13: declared here
            codegen/tests/trace_errors.rs:166:7: row -1 is outside `a`, f32 [1, 4]: its rows are 0 to 0
              codegen/tests/trace_errors.rs:162:13: declared here
            codegen/tests/trace_errors.rs:166:7: column 4 is outside `a`, f32 [1, 4]: its columns are 0 to 3
              codegen/tests/trace_errors.rs:162:13: declared here
            codegen/tests/trace_errors.rs:167:10: stage 2 is outside `ring`, 2 stages of bf16 [16, 128]: its stages are 0 to 1
              codegen/tests/trace_errors.rs:163:16: declared here
            codegen/tests/trace_errors.rs:168:10: stage -1 is outside `ring`, 2 stages of bf16 [16, 128]: its stages are 0 to 1
              codegen/tests/trace_errors.rs:163:16: declared here
            codegen/tests/trace_errors.rs:169:27: column 2 is outside this tile, f32 [2, 2]: its columns are 0 to 1
              codegen/tests/trace_errors.rs:169:5: declared here"#]],
    );
}

#[kernel(warps = 1)]
fn steps(n: Scalar<i32>, m: Scalar<u32>, k: Scalar<u64>) {
    for _ in (0..n).step_by(0) {}
    for _ in (0..n).step_by(-2) {}
    for _ in (0..m).step_by(0) {}
    for _ in (0..n).step_by(n) {}
    for _ in (0..m).step_by(4_000_000_000) {}
    for _ in (0..k).step_by(u64::MAX) {}
}

#[test]
fn known_steps_are_positive() {
    check(
        steps(),
        expect![[r#"
            kernel `steps` has 3 errors:
            codegen/tests/trace_errors.rs:199:21: `.step_by(0)` never reaches the end of the range: the step is at least 1; the indices from the last to the first are `(first..end).rev()`
            codegen/tests/trace_errors.rs:200:21: `.step_by(-2)` never reaches the end of the range: the step is at least 1; the indices from the last to the first are `(first..end).rev()`
            codegen/tests/trace_errors.rs:201:21: `.step_by(0)` never reaches the end of the range: the step is at least 1; the indices from the last to the first are `(first..end).rev()`"#]],
    );
}

#[kernel(warps = 4)]
fn large_tiles(#[comptime] rows: i32, #[comptime] cols: i32) {
    let big = shared::<f32>([rows, cols]);
    let small = shared::<bf16>([16, 128]).stages(2).per_warp().swizzle(Xor16);
    big.at(0, 0).store(0.0f32);
    small.stage(0).load_a();
}

#[test]
fn tiles_that_no_memory_holds_are_refused_with_their_true_size() {
    check(
        large_tiles(65536, 65536),
        expect![[r#"
            kernel `large_tiles` has 1 error:
            codegen/tests/trace_errors.rs:221:15: the tiles need 17179901952 bytes of shared memory a CTA, and no target has more than 232448 (sm_90a): use fewer stages or smaller tiles (`big`, f32 [65536, 65536]: 17179869184 bytes; `small`, 2 stages of bf16 [16, 128] for each of 4 warps: 32768 bytes)"#]],
    );
    check(
        large_tiles(32768, 32769),
        expect![[r#"
            kernel `large_tiles` has 1 error:
            codegen/tests/trace_errors.rs:221:15: the tiles need 4295131136 bytes of shared memory a CTA, and no target has more than 232448 (sm_90a): use fewer stages or smaller tiles (`big`, f32 [32768, 32769]: 4295098368 bytes; `small`, 2 stages of bf16 [16, 128] for each of 4 warps: 32768 bytes)"#]],
    );
    check(
        large_tiles(i32::MAX, i32::MAX),
        expect![[r#"
            kernel `large_tiles` has 1 error:
            codegen/tests/trace_errors.rs:221:15: the tiles need 18446744056529715204 bytes of shared memory a CTA, and no target has more than 232448 (sm_90a): use fewer stages or smaller tiles (`big`, f32 [2147483647, 2147483647]: 18446744056529682436 bytes; `small`, 2 stages of bf16 [16, 128] for each of 4 warps: 32768 bytes)"#]],
    );
    check(
        large_tiles(1, 50_000),
        expect![[r#"
            kernel `large_tiles` has 1 error:
            codegen/tests/trace_errors.rs:221:15: the tiles need 232768 bytes of shared memory a CTA, and no target has more than 232448 (sm_90a): use fewer stages or smaller tiles (`big`, f32 [1, 50000]: 200000 bytes; `small`, 2 stages of bf16 [16, 128] for each of 4 warps: 32768 bytes)"#]],
    );
}
