//! What `#[kernel]` makes of control flow and variables, in the text form of the IR.

extern crate lathe_codegen as lathe;

use expect_test::{Expect, expect};
use lathe::handles::Scalar;
use lathe::ir::Kernel;
use lathe::trace::TraceErrors;
use lathe_dsl::{Traced, device, kernel};

fn check(kernel: Result<Kernel, TraceErrors>, expected: Expect) {
    match kernel {
        Ok(kernel) => expected.assert_eq(&kernel.to_string()),
        Err(errors) => panic!("{errors}"),
    }
}

#[kernel(warps = 1)]
fn nested(n: Scalar<i32>, limit: Scalar<i32>) {
    let mut sum = Scalar::from(0);
    let mut odd = n + n;
    for i in 0..n {
        if i < limit {
            sum += i;
            for j in (i..limit).step_by(2) {
                if j == 3 {
                    odd = odd + j;
                } else if j > 7 {
                    odd = sum;
                } else {
                    sum = odd + 1;
                }
            }
        }
    }
    let _total = sum + odd;
}

#[test]
fn nested_control_flow_is_recorded_once_with_its_variables() {
    check(
        nested(),
        expect![[r#"
            kernel nested(n: i32, limit: i32) warps 1 ctas_per_sm 1 {
              %2: i32 = const {type = i32, value = 0}
              %3_sum: i32 = var %2
              %4: i32 = add @n, @n
              %5_odd: i32 = var %4
              %6: i32 = const {type = i32, value = 0}
              %7: i32 = const {type = i32, value = 1}
              for %6, @n, %7 {unroll = "auto"} (%8_i: i32) {
                %9: bool = lt %8_i, @limit
                if %9 {
                  %10: i32 = var.get %3_sum
                  %11: i32 = add %10, %8_i
                  var.set %3_sum, %11
                  %12: i32 = const {type = i32, value = 2}
                  for %8_i, @limit, %12 {unroll = "auto"} (%13_j: i32) {
                    %14: i32 = const {type = i32, value = 3}
                    %15: bool = eq %13_j, %14
                    if %15 {
                      %16: i32 = var.get %5_odd
                      %17: i32 = add %16, %13_j
                      var.set %5_odd, %17
                    } else {
                      %18: i32 = const {type = i32, value = 7}
                      %19: bool = gt %13_j, %18
                      if %19 {
                        %20: i32 = var.get %3_sum
                        var.set %5_odd, %20
                      } else {
                        %21: i32 = const {type = i32, value = 1}
                        %22: i32 = var.get %5_odd
                        %23: i32 = add %22, %21
                        var.set %3_sum, %23
                      }
                    }
                  }
                }
              }
              %24: i32 = var.get %3_sum
              %25: i32 = var.get %5_odd
              %26__total: i32 = add %24, %25
            }
        "#]],
    );
}

#[kernel(warps = 1)]
fn copies(n: Scalar<i32>) {
    let mut x = n;
    let before = x;
    let pair = (x, before);
    x = x + 1;
    let mut y = x;
    y = y * 2;
    x -= y;
    (x, y) = (y, x);
    let _ = pair.0 + before;
}

/// Handles are `Copy`: without copies into variables of their own, `x`, `before`, `pair` and `y` would be one variable.
#[test]
fn a_binding_holds_the_value_of_its_moment() {
    check(
        copies(),
        expect![[r#"
        kernel copies(n: i32) warps 1 ctas_per_sm 1 {
          %1_x: i32 = var @n
          %2_before: i32 = var.get %1_x
          %3_pair_0: i32 = var.get %1_x
          %4: i32 = const {type = i32, value = 1}
          %5: i32 = var.get %1_x
          %6: i32 = add %5, %4
          var.set %1_x, %6
          %7: i32 = var.get %1_x
          %8_y: i32 = var %7
          %9: i32 = const {type = i32, value = 2}
          %10: i32 = var.get %8_y
          %11: i32 = mul %10, %9
          var.set %8_y, %11
          %12: i32 = var.get %1_x
          %13: i32 = var.get %8_y
          %14: i32 = sub %12, %13
          var.set %1_x, %14
          %15: i32 = var.get %8_y
          %16: i32 = var.get %1_x
          var.set %1_x, %15
          var.set %8_y, %16
          %17: i32 = add %3_pair_0, %2_before
        }
    "#]],
    );
}

#[kernel(warps = 1)]
fn order_of_evaluation(n: Scalar<i32>) {
    let mut x = n;
    let mut next = || {
        x = x * 10;
        x
    };
    let first = next();
    let mut z = first;
    z = z + {
        z += 1;
        z
    };
}

#[test]
fn the_right_side_runs_before_the_assignment() {
    check(
        order_of_evaluation(),
        expect![[r#"
            kernel order_of_evaluation(n: i32) warps 1 ctas_per_sm 1 {
              %1_x: i32 = var @n
              %2: i32 = const {type = i32, value = 10}
              %3: i32 = var.get %1_x
              %4: i32 = mul %3, %2
              var.set %1_x, %4
              %5_first: i32 = var.get %1_x
              %6_z: i32 = var %5_first
              %7: i32 = var.get %6_z
              %8: i32 = const {type = i32, value = 1}
              %9: i32 = var.get %6_z
              %10: i32 = add %9, %8
              var.set %6_z, %10
              %11: i32 = var.get %6_z
              %12: i32 = add %7, %11
              var.set %6_z, %12
            }
        "#]],
    );
}

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Sum,
    Max,
}

#[kernel(warps = 1)]
fn comptime_choices(#[comptime] stages: usize, #[comptime] mode: Mode, n: Scalar<i32>) {
    let mut acc = [n; 2];
    let mut count = 0u8;
    for s in 0..stages {
        if s % 2 == 0 && stages > 1 {
            acc[s] = match mode {
                Mode::Sum => acc[s] + n,
                Mode::Max => acc[s].max(n),
            };
            count += 1;
        } else {
            acc[s] += if mode == Mode::Max { 7 } else { 8 };
        }
    }
    let _ = acc[0] + i32::from(count) * (stages as i32);
}

#[test]
fn comptime_control_flow_leaves_no_trace() {
    assert!(comptime_choices(1, Mode::Sum).is_ok());
    check(
        comptime_choices(2, Mode::Max),
        expect![[r#"
            kernel comptime_choices(n: i32) warps 1 ctas_per_sm 1 {
              %1_acc_0: i32 = var @n
              %2_acc_1: i32 = var @n
              %3: i32 = var.get %1_acc_0
              %4: i32 = max %3, @n
              var.set %1_acc_0, %4
              %5: i32 = const {type = i32, value = 7}
              %6: i32 = var.get %2_acc_1
              %7: i32 = add %6, %5
              var.set %2_acc_1, %7
              %8: i32 = const {type = i32, value = 2}
              %9: i32 = var.get %1_acc_0
              %10: i32 = add %9, %8
            }
        "#]],
    );
}

#[kernel(warps = 1)]
fn logic(n: Scalar<i32>, m: Scalar<i32>, #[comptime] clean: bool) {
    let mut calls = n;
    if n < m && m < 10 {
        calls = m;
    }
    if n < 0 || {
        calls += 1;
        calls > 3
    } {
        calls = n;
    }
    if clean && n == 0 {
        calls = m;
    }
    if !(n == m) {
        calls = n;
    }
}

#[test]
fn logic_runs_its_right_side_only_where_it_matters() {
    check(
        logic(false),
        expect![[r#"
        kernel logic(n: i32, m: i32) warps 1 ctas_per_sm 1 {
          %2_calls: i32 = var @n
          %3: bool = lt @n, @m
          %4: i32 = const {type = i32, value = 10}
          %5: bool = lt @m, %4
          %6: bool = and %3, %5
          if %6 {
            var.set %2_calls, @m
          }
          %7: i32 = const {type = i32, value = 0}
          %8: bool = lt @n, %7
          %15: bool = var %8
          %16: bool = not %8
          if %16 {
            %9: i32 = const {type = i32, value = 1}
            %10: i32 = var.get %2_calls
            %11: i32 = add %10, %9
            var.set %2_calls, %11
            %12: i32 = const {type = i32, value = 3}
            %13: i32 = var.get %2_calls
            %14: bool = gt %13, %12
            var.set %15, %14
          }
          %17: bool = var.get %15
          if %17 {
            var.set %2_calls, @n
          }
          %18: bool = const {type = bool, value = false}
          if %18 {
            var.set %2_calls, @m
          }
          %19: bool = eq @n, @m
          %20: bool = not %19
          if %20 {
            var.set %2_calls, @n
          }
        }
    "#]],
    );
}

#[device]
fn clamp(mut x: Scalar<i32>, low: i32, high: Scalar<i32>) -> Scalar<i32> {
    if x < low {
        x = low;
    } else if x > high {
        x = high;
    }
    x
}

#[kernel(warps = 1)]
fn calls_a_device_function(n: Scalar<i32>) {
    let mut n = n;
    n = clamp(n, 0, n + 5);
    let clamped = clamp(n, 1, n);
    let _ = clamped - n;
}

#[test]
fn device_functions_are_traced_in_place_and_change_only_their_own_parameters() {
    check(
        calls_a_device_function(),
        expect![[r#"
        kernel calls_a_device_function(n: i32) warps 1 ctas_per_sm 1 {
          %1_n: i32 = var @n
          %2: i32 = const {type = i32, value = 5}
          %3: i32 = var.get %1_n
          %4_high: i32 = add %3, %2
          %5: i32 = var.get %1_n
          %6_x: i32 = var %5
          %7: i32 = const {type = i32, value = 0}
          %8: i32 = var.get %6_x
          %9: bool = lt %8, %7
          if %9 {
            %10: i32 = const {type = i32, value = 0}
            var.set %6_x, %10
          } else {
            %11: i32 = var.get %6_x
            %12: bool = gt %11, %4_high
            if %12 {
              var.set %6_x, %4_high
            }
          }
          %13: i32 = var.get %6_x
          var.set %1_n, %13
          %14: i32 = var.get %1_n
          %15_x: i32 = var %14
          %16_high: i32 = var.get %1_n
          %17: i32 = const {type = i32, value = 1}
          %18: i32 = var.get %15_x
          %19: bool = lt %18, %17
          if %19 {
            %20: i32 = const {type = i32, value = 1}
            var.set %15_x, %20
          } else {
            %21: i32 = var.get %15_x
            %22: bool = gt %21, %16_high
            if %22 {
              var.set %15_x, %16_high
            }
          }
          %23_clamped: i32 = var.get %15_x
          %24: i32 = var.get %1_n
          %25: i32 = sub %23_clamped, %24
        }
    "#]],
    );
}

#[kernel(warps = 2, ctas_per_sm = depth * 2)]
fn generic<T: lathe::handles::Integer>(#[comptime] depth: usize, n: Scalar<T>)
where
    Scalar<T>: std::ops::Add<Output = Scalar<T>>,
{
    let mut sum = n;
    for i in n..n {
        if i >= sum {
            sum = sum + i;
        }
    }
}

#[test]
fn kernels_are_generic_over_element_types_and_launch_bounds_over_comptime_values() {
    check(
        generic::<i64>(3),
        expect![[r#"
        kernel generic(n: i64) warps 2 ctas_per_sm 6 {
          %1_sum: i64 = var @n
          %2: i64 = const {type = i64, value = 1}
          for @n, @n, %2 {unroll = "auto"} (%3_i: i64) {
            %4: i64 = var.get %1_sum
            %5: bool = ge %3_i, %4
            if %5 {
              %6: i64 = var.get %1_sum
              %7: i64 = add %6, %3_i
              var.set %1_sum, %7
            }
          }
        }
    "#]],
    );
}

#[kernel(warps = 1)]
fn leaves(#[comptime] first: bool, n: Scalar<i32>) {
    let mut x = n;
    for i in 0..n {
        if first {
            continue;
        }
        x += i;
    }
    for s in 0..4 {
        if s == 2 {
            break;
        }
        x += s;
    }
    if first {
        return;
    }
    x = n;
}

#[test]
fn comptime_jumps_that_stay_inside_a_run_time_scope_are_fine() {
    check(
        leaves(true),
        expect![[r#"
            kernel leaves(n: i32) warps 1 ctas_per_sm 1 {
              %1_x: i32 = var @n
              %2: i32 = const {type = i32, value = 0}
              %3: i32 = const {type = i32, value = 1}
              for %2, @n, %3 {unroll = "auto"} (%4_i: i32) {
              }
              %5: i32 = const {type = i32, value = 0}
              %6: i32 = var.get %1_x
              var.set %1_x, %6
              %7: i32 = const {type = i32, value = 1}
              %8: i32 = var.get %1_x
              %9: i32 = add %8, %7
              var.set %1_x, %9
            }
        "#]],
    );
}

#[derive(Clone, Copy, Traced)]
struct Running<T> {
    largest: Scalar<T>,
    place: (Scalar<i32>, Scalar<i32>),
}

#[kernel(warps = 1)]
fn structs(n: Scalar<i32>, x: Scalar<f32>) {
    let mut running = Running { largest: x, place: (n, n) };
    for i in (0..n).rev() {
        if running.largest < 3.0 {
            running.place.1 = i;
            running = Running { largest: x + 1.0, ..running };
        }
    }
    let found = running;
    running.largest += 1.0;
    let _ = found.largest + running.largest;
}

#[test]
fn structs_of_run_time_values_are_variables_field_by_field() {
    check(
        structs(),
        expect![[r#"
            kernel structs(n: i32, x: f32) warps 1 ctas_per_sm 1 {
              %2_running_largest: f32 = var @x
              %3_running_place_0: i32 = var @n
              %4_running_place_1: i32 = var @n
              %5: i32 = const {type = i32, value = 0}
              %6: i32 = const {type = i32, value = 1}
              %7: i32 = const {type = i32, value = 1}
              %8: i32 = sub @n, %7
              %9: i32 = add %5, %8
              for %5, @n, %6 {unroll = "auto"} (%10: i32) {
                %11_i: i32 = sub %9, %10
                %12: f32 = const {type = f32, value = 3.0}
                %13: f32 = var.get %2_running_largest
                %14: bool = lt %13, %12
                if %14 {
                  var.set %4_running_place_1, %11_i
                  %15: f32 = const {type = f32, value = 1.0}
                  %16: f32 = add @x, %15
                  %17: i32 = var.get %3_running_place_0
                  %18: i32 = var.get %4_running_place_1
                  var.set %2_running_largest, %16
                  var.set %3_running_place_0, %17
                  var.set %4_running_place_1, %18
                }
              }
              %19_found_largest: f32 = var.get %2_running_largest
              %20_found_place_0: i32 = var.get %3_running_place_0
              %21_found_place_1: i32 = var.get %4_running_place_1
              %22: f32 = const {type = f32, value = 1.0}
              %23: f32 = var.get %2_running_largest
              %24: f32 = add %23, %22
              var.set %2_running_largest, %24
              %25: f32 = var.get %2_running_largest
              %26: f32 = add %19_found_largest, %25
            }
        "#]],
    );
}
