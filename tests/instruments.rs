//! The seed failure on the emulator, with real kernels: a side stream still reads bytes that a caching allocator has
//! handed to the main stream. Every instrument shows it, none moves it, and each fix removes it. `lathe gpu-test` runs the
//! same tests on a GPU.

use lathe::gpu_test::Failure;
use lathe::gpu_test::instruments::{self, Emulated};
use lathe::gpu_test::scenario::{BYTES, Programs, framework, planned, scenario};
use lathe::gpu_test::sequences;
use lathe::graph::build::Recording;
use lathe::graph::check::check;
use lathe::graph::finding::Code;
use lathe::ir::Kernel;
use lathe::runtime::nvrtc::Compiler;
use lathe::runtime::program::Program;
use lathe::runtime::replay::{Launch, LaunchError};
use lathe::runtime::toolchain::Toolchain;
use lathe::target::Target;

fn program(kernel: &Kernel) -> Result<Program, Failure> {
    let toolchain = Toolchain::new(false, |_| {});
    Ok(Program::compile(&Compiler::load(&toolchain)?, kernel, Target::Sm120a)?)
}

#[test]
fn the_checker_refuses_the_frameworks_addresses_and_takes_the_plan() -> Result<(), Failure> {
    let programs = Programs::compile(program)?;
    let scenario = scenario(&programs, 3)?;
    let pool = scenario.checked.pool();
    let (q, x) = (pool.find_buffer("q").unwrap(), pool.find_buffer("x").unwrap());
    let shared = framework(pool)?;
    assert_eq!(shared.address(q), shared.address(x), "the allocator hands q's bytes to x");
    let report = check(pool, Some(&shared))?;
    assert!(report.of(Code::E2).count() > 0, "{:?}", report.findings);
    assert!(report.is_harmful());
    assert!(check(pool, Some(&planned(pool)?))?.is_clean());
    Ok(())
}

#[test]
fn some_orders_corrupt_the_framework_step_and_none_the_planned_one() -> Result<(), Failure> {
    instruments::some_orders_corrupt_the_framework_step_and_none_the_planned_one(&Emulated(program))
}

#[test]
fn a_forced_order_makes_the_fault_certain_and_the_two_by_two_names_it() -> Result<(), Failure> {
    instruments::a_forced_order_makes_the_fault_certain_and_the_two_by_two_names_it(&Emulated(program))
}

#[test]
fn the_diff_names_the_buffer_and_the_canary_the_chunk() -> Result<(), Failure> {
    instruments::the_diff_names_the_buffer_and_the_canary_the_chunk(&Emulated(program))
}

#[test]
fn observers_change_no_address_no_order_and_no_result() -> Result<(), Failure> {
    instruments::observers_change_no_address_no_order_and_no_result(&Emulated(program))
}

#[test]
fn in_each_sequence_the_pair_decides_and_the_checker_names_it() -> Result<(), Failure> {
    let programs = Programs::compile(program)?;
    for sequence in sequences::sequences(&programs)? {
        assert!(sequence.found()?.contains(&sequence.code), "{}: {:?}", sequence.name, sequence.found()?);
        assert_eq!(sequence.emulated()?, (true, false), "{}: reader first, writer first", sequence.name);
    }
    Ok(())
}

#[test]
fn a_missing_programmatic_wait_is_shown_by_the_checker_and_the_emulator() -> Result<(), Failure> {
    lathe::gpu_test::pdl::checker_and_emulator_show_a_missing_wait(program)
}

#[test]
fn an_argument_that_does_not_fit_is_named() -> Result<(), Failure> {
    let programs = Programs::compile(program)?;
    let mut recording = Recording::new();
    let tokens = recording.input("tokens", BYTES);
    let refused = Launch::new(&programs.scale, [1, 1, 1]).rows(&tokens, 0, 8).err().unwrap();
    assert_eq!(
        refused.to_string(),
        "kernel `scale`, argument 1: a pointer with 1 strides was given, and `x` is a pointer to f32 with 0 strides"
    );
    let short = Launch::new(&programs.scale, [1, 1, 1]).buffer(&tokens).unwrap();
    assert!(matches!(short.work(), Err(LaunchError::Missing { given: 1, .. })));
    Ok(())
}
