//! Kernels through the whole chain on the emulator: traced, printed, compiled by NVRTC, and the PTX run under every
//! check. A right one passes silently; a wrong one is caught at the author's line.

use lathe::contract::{Arg, Buffer, Case, POISON, ScalarValue, Segment, Verdict};
use lathe::dtype::Dtype;
use lathe::ir::Kernel;
use lathe::prelude::*;
use lathe::runtime::backend::{Backend, EmulatorBackend, FindingKind, Run, RunError, Schedule};
use lathe::runtime::nvrtc::Compiler;
use lathe::runtime::program::{Program, ProgramError};
use lathe::runtime::toolchain::Toolchain;
use lathe::target::Target;

const LEN: i32 = 60;

/// A row for each CTA, reversed.
#[kernel(warps = 2)]
fn reverse(#[read] input: Rows<f32>, #[write_all] output: Rows<f32>, len: Scalar<i32>) {
    let i = thread::id();
    pdl::wait();
    if i < len {
        let value = input.row(cta::x()).at(len - 1 - i).load();
        output.row(cta::x()).at(i).store(value);
    }
}

/// The same, one element too far.
#[kernel(warps = 2)]
fn reverse_too_far(#[read] input: Rows<f32>, #[write_all] output: Rows<f32>, len: Scalar<i32>) {
    let i = thread::id();
    pdl::wait();
    if i < len {
        let value = input.row(cta::x()).at(len - 1 - i).load();
        output.row(cta::x()).at(i + 1).store(value);
    }
}
const TOO_FAR_LINE: u32 = line!() - 3;

/// The same, into the wrong argument.
#[kernel(warps = 2)]
fn reverse_in_place(#[read_write] input: Rows<f32>, #[write_all] output: Rows<f32>, len: Scalar<i32>) {
    let i = thread::id();
    pdl::wait();
    if i < len {
        let value = input.row(cta::x()).at(len - 1 - i).load();
        input.row(cta::x()).at(i).store(value);
        output.row(cta::x()).at(i).store(value);
    }
}
const STORE_TO_INPUT_LINE: u32 = line!() - 4;

/// The same, with a barrier that one of the two warps reaches once more than the other, at the end.
#[kernel(warps = 2)]
fn warps_apart(#[read] input: Rows<f32>, #[write_all] output: Rows<f32>, len: Scalar<i32>) {
    let i = thread::id();
    pdl::wait();
    if i < len {
        let value = input.row(cta::x()).at(len - 1 - i).load();
        output.row(cta::x()).at(i).store(value);
    }
    if warp::id() < 1 {
        cta::sync();
    }
}
const WARPS_APART_LINE: u32 = line!() - 3;

/// The same, with a barrier of the warp for two of its lanes.
#[kernel(warps = 2)]
fn lanes_apart(#[read] input: Rows<f32>, #[write_all] output: Rows<f32>, len: Scalar<i32>) {
    let i = thread::id();
    pdl::wait();
    if i < len {
        let value = input.row(cta::x()).at(len - 1 - i).load();
        output.row(cta::x()).at(i).store(value);
    }
    if lane::id() < 2 {
        warp::sync();
    }
}
const LANES_APART_LINE: u32 = line!() - 3;

/// The same, in steps that the caller chooses: of none, it does not end.
#[kernel(warps = 2)]
fn reverse_in_steps(#[read] input: Rows<f32>, #[write_all] output: Rows<f32>, len: Scalar<i32>) {
    pdl::wait();
    for i in (thread::id()..len).step_by(len - LEN) {
        let value = input.row(cta::x()).at(len - 1 - i).load();
        output.row(cta::x()).at(i).store(value);
    }
}
const ENDLESS_LINES: std::ops::RangeInclusive<u32> = line!() - 5..=line!() - 2;

/// The same, from a row that nobody has.
#[kernel(warps = 2)]
fn reverse_far_row(#[read] input: Rows<f32>, #[write_all] output: Rows<f32>, len: Scalar<i32>) {
    let i = thread::id();
    pdl::wait();
    if i < len {
        let value = input.row(cta::x() + (1 << 20)).at(len - 1 - i).load();
        output.row(cta::x()).at(i).store(value);
    }
}

/// Two rows of `LEN` elements, each row a mapping of its own, 2^33 bytes apart: far beyond 32 bits.
fn case() -> Case {
    const STRIDE: i64 = 1 << 31;
    let row = |row: u64| (0..LEN as u64).map(|i| (row * 100 + i) as f32).collect::<Vec<_>>();
    let bytes = |row: Vec<f32>| row.into_iter().flat_map(f32::to_le_bytes).collect::<Vec<u8>>();
    let buffer = |name: &str, fill: &dyn Fn(u64) -> Vec<u8>, defined| Buffer {
        name: name.into(),
        dtype: Dtype::F32,
        len: 4 * (STRIDE as u64 + LEN as u64),
        segments: (0..2).map(|r| Segment { offset: r * 4 * STRIDE as u64, bytes: fill(r), defined }).collect(),
        racy: 0..0,
    };
    let pointer = |buffer| Arg::Pointer { buffer, offset: 0, strides: vec![STRIDE] };
    Case {
        name: "two rows".into(),
        grid: [2, 1, 1],
        buffers: vec![
            buffer("input", &|r| bytes(row(r)), true),
            buffer("output", &|_| vec![POISON; 4 * LEN as usize], false),
        ],
        args: vec![pointer(0), pointer(1), Arg::Scalar(ScalarValue::I32(LEN))],
        verify: Box::new(move |buffers| {
            let expected = |r| bytes(row(r).into_iter().rev().collect());
            let wrong = (0..2).filter(|r| buffers[1].segments[*r].bytes != expected(*r as u64));
            Verdict { worst_row_diff: 0.0, failures: wrong.map(|r| format!("row {r} is not reversed")).collect() }
        }),
    }
}

fn compile(kernel: &Kernel) -> Result<Program, ProgramError> {
    let toolchain = Toolchain::new(false, |event| eprintln!("{event}"));
    let compiler = Compiler::load(&toolchain).unwrap();
    Program::compile(&compiler, kernel, Target::Sm120a)
}

fn run(program: &Program, case: &Case) -> Result<Run, RunError> {
    EmulatorBackend::default().load(program)?.run(case, Schedule::default())
}

#[test]
fn a_right_kernel_passes_silently_under_every_schedule_on_every_target() {
    let toolchain = Toolchain::new(false, |event| eprintln!("{event}"));
    let compiler = Compiler::load(&toolchain).unwrap();
    let backend = EmulatorBackend::default();
    for target in Target::ALL {
        let program = Program::compile(&compiler, &reverse().unwrap(), target).unwrap();
        let loaded = backend.load(&program).unwrap();
        for seed in 0..4 {
            for late_copies in [false, true] {
                let run = loaded.run(&case(), Schedule { seed, late_copies }).unwrap();
                assert_eq!(run.findings, []);
                assert_eq!((case().verify)(&run.buffers).failures, [""; 0]);
                assert!(run.lane_instructions > 0);
            }
        }
    }
}

#[test]
fn a_write_past_a_row_is_found_at_its_line_and_named_by_its_argument() {
    let run = run(&compile(&reverse_too_far().unwrap()).unwrap(), &case()).unwrap();
    // What goes too far at the end is missing at the beginning.
    let kinds: Vec<_> = run.findings.iter().map(|finding| finding.kind).collect();
    assert_eq!(kinds, [FindingKind::OutOfBounds, FindingKind::Undeclared], "{:#?}", run.findings);
    let finding = &run.findings[0];
    assert_eq!(finding.access.as_ref().unwrap().rust.unwrap().line, TOO_FAR_LINE);
    let element = finding.element.as_deref().unwrap();
    assert!(element.starts_with("`output`[60]"), "{element}");
    assert!(!(case().verify)(&run.buffers).failures.is_empty(), "the judge sees it too");
}

#[test]
fn a_barrier_that_not_every_thread_reaches_is_found_though_the_others_have_ended() {
    for (kernel, kind, line) in [
        (warps_apart(), FindingKind::BarrierMisuse, WARPS_APART_LINE),
        (lanes_apart(), FindingKind::DivergentCollective, LANES_APART_LINE),
    ] {
        let run = run(&compile(&kernel.unwrap()).unwrap(), &case()).unwrap();
        assert_eq!(run.findings.len(), 1, "{:#?}", run.findings);
        assert_eq!(run.findings[0].kind, kind, "{:#?}", run.findings);
        assert_eq!(run.findings[0].access.as_ref().unwrap().rust.unwrap().line, line);
    }
}

#[test]
fn a_loop_without_end_is_an_error_at_its_line() {
    match run(&compile(&reverse_in_steps().unwrap()).unwrap(), &case()) {
        Err(RunError::Endless { at, .. }) => assert!(ENDLESS_LINES.contains(&at.line), "{at}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_address_far_from_every_buffer_is_named_by_the_argument_that_it_came_from() {
    let run = run(&compile(&reverse_far_row().unwrap()).unwrap(), &case()).unwrap();
    let finding = &run.findings[0];
    assert_eq!(finding.kind, FindingKind::OutOfBounds);
    assert_eq!(finding.element.as_deref(), Some("an address far outside `input`"));
    assert!(!finding.detail.contains("output"), "{}", finding.detail);
}

#[test]
fn a_store_to_what_is_declared_as_read_is_found() {
    let mut program = compile(&reverse_in_place().unwrap()).unwrap();
    program.kernel.params[0] = reverse().unwrap().params[0].clone();
    let run = run(&program, &case()).unwrap();
    assert_eq!(run.findings[0].kind, FindingKind::ReadOnly, "{:#?}", run.findings);
    assert!(run.findings[0].element.as_deref().unwrap().starts_with("`input`["), "{:#?}", run.findings);
}

#[test]
fn a_compile_error_is_traced_to_the_line_of_the_kernel() {
    // The text stores through what is then printed as a pointer to const.
    let mut kernel = reverse_in_place().unwrap();
    kernel.params[0] = reverse().unwrap().params[0].clone();
    let error = compile(&kernel).unwrap_err();
    let messages = error.messages();
    assert_eq!(messages.len(), 1, "{messages:#?}");
    assert!(messages[0].text.contains("modifiable lvalue"), "{messages:#?}");
    assert_eq!(messages[0].rust.unwrap().line, STORE_TO_INPUT_LINE);
}

#[test]
fn an_empty_grid_launches_nothing() {
    let case = Case { grid: [0, 1, 1], ..case() };
    let run = run(&compile(&reverse_too_far().unwrap()).unwrap(), &case).unwrap();
    assert_eq!(run.findings, []);
    assert_eq!(run.buffers, case.buffers);
}

#[test]
fn arguments_that_do_not_fit_are_refused_before_anything_runs() {
    let mut case = case();
    case.args.pop();
    let error = run(&compile(&reverse().unwrap()).unwrap(), &case).unwrap_err();
    assert!(matches!(error, RunError::Argument(_)));
    assert!(error.to_string().contains("(input, output, len)"), "{error}");
}
