//! CUDA text of control flow and variables, and the table from its lines to the author's.

use expect_test::{Expect, expect};
use lathe_codegen::ir::Kernel;
use lathe_codegen::prelude::*;
use lathe_codegen::target::Target;
use lathe_codegen::trace::TraceErrors;
use lathe_dsl::kernel;

extern crate lathe_codegen as lathe;

/// Compares the kernel's body, without its indentation: a snapshot does not keep what all its lines begin with.
#[track_caller]
fn check(kernel: Result<Kernel, TraceErrors>, expected: Expect) {
    let source = kernel.unwrap_or_else(|errors| panic!("{errors}")).cuda(Target::Sm120a).expect("prints").source;
    let (_, body) = source.split_once(") {\n").expect("has a body");
    let body = body.strip_suffix("}\n").expect("ends");
    let lines = body.lines().map(|line| format!("{}\n", line.strip_prefix("  ").unwrap_or(line)));
    expected.assert_eq(&lines.collect::<String>());
}

#[kernel(warps = 1)]
fn branches(#[write_part] out: Slice<i32>, n: Scalar<i32>) {
    if n > 3 {
        out.at(0).store(n);
    } else if n > 1 {
        out.at(1).store(n * 2);
    } else {
        out.at(2).store(0);
    }
}

#[test]
fn an_else_if_nests() {
    check(
        branches(),
        expect![[r#"
              if (n > 3) {
                out[0] = n;
              } else if (n > 1) {
                out[1] = n * 2;
              } else {
                out[2] = 0;
              }
        "#]],
    );
}

#[kernel(warps = 1)]
fn swap(#[write_part] out: Slice<i32>, n: Scalar<i32>) {
    let mut a = n;
    let mut b = n * n;
    for _ in 0..n {
        let old = a;
        a = b - a;
        b = old;
    }
    out.at(0).store(a + b);
}

#[test]
fn a_variable_read_before_it_changes_keeps_its_value() {
    check(
        swap(),
        expect![[r#"
              int a = n;
              int b = n * n;
              for (int i = 0; i < n; ++i) {
                const int old = a;
                a = b - a;
                b = old;
              }
              out[0] = a + b;
        "#]],
    );
}

#[kernel(warps = 1)]
fn moving_bound(#[write_part] out: Slice<i32>, n: Scalar<i32>) {
    let mut end = n;
    for i in 0..end + 1 {
        end -= 1;
        out.at(i).store(end);
    }
    let before = end + 1;
    end = 0;
    out.at(before).store(end * 2);
}

#[test]
fn the_bounds_of_a_loop_are_those_at_its_start() {
    check(
        moving_bound(),
        expect![[r#"
              int end = n;
              const int end_before = end;
              for (int i = 0; i < end_before + 1; ++i) {
                end -= 1;
                out[i] = end;
              }
              const int before = end + 1;
              end = 0;
              out[before] = end * 2;
        "#]],
    );
}

#[kernel(warps = 1)]
fn names(#[write_part] out: Slice<i32>, int: Scalar<i32>) {
    let float = int + 1;
    for turn in 0..2 {
        let float = float * (turn + 2);
        out.at(turn).store(float * float);
    }
    if int > 0 {
        let float = float - 1;
        out.at(2).store(float * float);
    }
}

#[test]
fn names_stay_unique_and_legal() {
    check(
        names(),
        expect![[r#"
              const int float_ = int_ + 1;
              const int float__2 = float_ * 2;
              out[0] = float__2 * float__2;
              const int float__3 = float_ * 3;
              out[1] = float__3 * float__3;
              if (int_ > 0) {
                const int float__4 = float_ - 1;
                out[2] = float__4 * float__4;
              }
        "#]],
    );
}

#[kernel(warps = 1)]
fn sections(#[write_part] out: Slice<i32>) {
    section("First this");
    out.at(0).store(1);
    section("then that");
    out.at(1).store(2);
}

#[test]
fn sections_are_comments_set_apart() {
    check(
        sections(),
        expect![[r#"
              // First this
              out[0] = 1;

              // then that
              out[1] = 2;
        "#]],
    );
}

#[test]
fn every_statement_has_its_place_in_the_source() {
    let cuda = sections().expect("traces").cuda(Target::Sm120a).expect("prints");
    assert_eq!(cuda.source.lines().count(), cuda.lines.len());
    let place = |text: &str| {
        let line = cuda.source.lines().position(|line| line.contains(text)).expect("is printed");
        cuda.lines[line].expect("has a place")
    };
    let (first, second) = (place("out[0] = 1;"), place("out[1] = 2;"));
    assert_eq!(second.line, first.line + 2);
    assert!(first.file.ends_with("printing.rs"));
}

/// Kept in C:\
/// as ??/
#[kernel(warps = 1)]
fn double(#[read] load: Slice<i32>, #[write_part] quad_sum: Slice<i32>, char16_t: Scalar<i32>) {
    section("C:\\ \r#error\u{2028}*/ \0 end \\");
    let shared = load.at(char16_t).load();
    let max = shared.max(char16_t);
    quad_sum.at(max).store(shared);
}

#[test]
fn the_authors_words_stay_words() {
    let cuda = double().expect("traces").cuda(Target::Sm120a).expect("prints");
    assert_eq!(cuda.entry, "double_");
    let (_, entry) = cuda.source.split_once("}\n").expect("has a device function");
    expect![[r#"

        // Kept in C:\ //
        // as ??/ //
        extern "C" __global__ void __launch_bounds__(32, 1)
        double_(const int* load_2,
                int* quad_sum,
                int char16_t_) {
          // C:\ //
          // #error
          // */   end \ //
          const int shared_2 = load(load_2 + char16_t_);
          const int max_2 = max(shared_2, char16_t_);
          quad_sum[max_2] = shared_2;
        }
    "#]]
    .assert_eq(entry);
}
