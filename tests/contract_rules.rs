//! Rules of the kernels' contract that no single launch can show, and launches drawn at random.

use std::sync::LazyLock;

use lathe::contract::{Buffer, Case};
use lathe::dtype::Dtype;
use lathe::ir::Kernel;
use lathe::kernels::bf16_logits::bf16_paged_mqa_logits;
use lathe::kernels::bf16_store::bf16_index_k_store;
use lathe::kernels::cases::logits::{Data, LogitsSpec, Pages, TableTail};
use lathe::kernels::cases::store::{Rows, ScatterSpec};
use lathe::kernels::contract::KeyFormat;
use lathe::kernels::fp8_logits::fp8_paged_mqa_logits;
use lathe::kernels::fp8_store::fp8_index_k_store;
use lathe::kernels::launch::{LEAST_WAVES, STAGES};
use lathe::runtime::backend::{Backend, EmulatorBackend, Loaded, Schedule};
use lathe::runtime::nvrtc::Compiler;
use lathe::runtime::program::Program;
use lathe::runtime::toolchain::Toolchain;
use lathe::target::Target;
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};

static TOOLCHAIN: LazyLock<Toolchain> = LazyLock::new(|| Toolchain::new(false, |_| {}));

fn program(kernel: Kernel) -> Program {
    let compiler = Compiler::load(&TOOLCHAIN).expect("NVRTC is here or can be installed");
    Program::compile(&compiler, &kernel, Target::Sm120a).expect("compiles")
}

fn logits_program((format, waves): (KeyFormat, i32), heads: usize) -> Program {
    program(match format {
        KeyFormat::Bf16 => bf16_paged_mqa_logits(heads as i32, waves, STAGES).expect("traces"),
        KeyFormat::Fp8 => fp8_paged_mqa_logits(heads as i32, waves, STAGES, Target::Sm120a).expect("traces"),
    })
}

/// Runs a case that must pass, and returns what it left.
#[track_caller]
fn passes(loaded: &dyn Loaded, case: &Case, schedule: Schedule) -> Vec<Buffer> {
    let run = loaded.run(case, schedule).unwrap_or_else(|error| panic!("{}: {error}", case.name));
    let findings: Vec<String> = run.findings.iter().map(ToString::to_string).collect();
    let failures = (case.verify)(&run.buffers).failures;
    assert!(findings.is_empty() && failures.is_empty(), "{}: {findings:#?} {failures:#?}", case.name);
    run.buffers
}

/// The logits buffer is the last.
fn logits(buffers: Vec<Buffer>) -> Buffer {
    buffers.into_iter().next_back().expect("buffers")
}

fn spec((format, waves): (KeyFormat, i32)) -> LogitsSpec {
    let mut spec = LogitsSpec::new(format, 16, 3, vec![640, 641, 642, 3, 64, 0]);
    (spec.max_len, spec.waves) = (704, waves);
    spec
}

const FORMATS: [KeyFormat; 2] = [KeyFormat::Bf16, KeyFormat::Fp8];

/// Logits kernels, by format and by how often their launch fills the device.
const LOGITS: [(KeyFormat, i32); 4] =
    [(KeyFormat::Bf16, 1), (KeyFormat::Bf16, LEAST_WAVES), (KeyFormat::Fp8, 1), (KeyFormat::Fp8, LEAST_WAVES)];

#[test]
fn logits_do_not_depend_on_the_split_bit_for_bit() {
    for logits_kernel in LOGITS {
        let program = logits_program(logits_kernel, 16);
        let backend = EmulatorBackend::default();
        let loaded = backend.load(&program).expect("loads");
        let with_splits = |splits| {
            let mut case = spec(logits_kernel).case();
            case.grid[1] = splits;
            logits(passes(&*loaded, &case, Schedule::default()))
        };
        let one = with_splits(1);
        for splits in [2, 3, 7, 11, 40] {
            assert_eq!(with_splits(splits), one, "{logits_kernel:?}, {splits} CTAs a row");
        }
    }
}

#[test]
fn twenty_repeats_are_equal_bit_for_bit() {
    for logits_kernel in LOGITS {
        let program = logits_program(logits_kernel, 16);
        let backend = EmulatorBackend::default();
        let loaded = backend.load(&program).expect("loads");
        let case = spec(logits_kernel).case();
        let repeat =
            |seed: u64| logits(passes(&*loaded, &case, Schedule { seed, late_copies: seed.is_multiple_of(2) }));
        let first = repeat(0);
        assert!((1..20).all(|seed| repeat(seed) == first), "{logits_kernel:?}");
    }
}

#[test]
fn rows_of_a_request_equal_requests_of_one_row_bit_for_bit() {
    for logits_kernel in LOGITS {
        let program = logits_program(logits_kernel, 16);
        let backend = EmulatorBackend::default();
        let loaded = backend.load(&program).expect("loads");
        let native = spec(logits_kernel).case();
        let expected = logits(passes(&*loaded, &native, Schedule::default()));

        let mut flat = native;
        let [next_n, splits, batch] = flat.grid;
        assert_eq!(next_n, 3);
        flat.grid = [1, splits, batch * next_n];
        let table = flat.buffers.iter_mut().find(|buffer| buffer.name == "block_table").expect("a block table");
        let bytes = &table.segments[0].bytes;
        let repeated: Vec<u8> = bytes.chunks_exact(bytes.len() / 2).flat_map(|row| row.repeat(3)).collect();
        *table = Buffer::from_bytes("block_table", Dtype::I32, repeated);
        let run = loaded.run(&flat, Schedule::default()).expect("runs");
        assert_eq!(logits(run.buffers), expected, "{logits_kernel:?}");
    }
}

#[test]
fn a_row_does_not_depend_on_its_neighbours() {
    let program = logits_program((KeyFormat::Bf16, 1), 16);
    let backend = EmulatorBackend::default();
    let loaded = backend.load(&program).expect("loads");
    let case = LogitsSpec::new(KeyFormat::Bf16, 16, 1, vec![130, 70]).case();
    let before = logits(passes(&*loaded, &case, Schedule::default()));
    let mut changed = case;
    changed.buffers[0].segments[0].bytes[..16 * 256].fill(0x40);
    let after = logits(loaded.run(&changed, Schedule::default()).expect("runs").buffers);
    let row = |logits: &Buffer, row: u64| logits.slice(row * 130 * 4, 70 * 4).expect("mapped").to_vec();
    assert_ne!(row(&after, 0), row(&before, 0));
    assert_eq!(row(&after, 1), row(&before, 1));
}

/// Draws `count` values and hands them on; the same ones every time.
fn draw<S: Strategy>(count: u32, strategy: &S, test: impl Fn(S::Value)) {
    let config = ProptestConfig { cases: count, failure_persistence: None, ..ProptestConfig::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let result = runner.run(strategy, |value| {
        test(value);
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
}

fn any_launch((format, waves): (KeyFormat, i32)) -> impl Strategy<Value = LogitsSpec> {
    let lens = (1usize..=6, 0usize..=3)
        .prop_flat_map(|(next_n, batch)| (Just(next_n), prop::collection::vec(0i32..300, next_n * batch)));
    let layout = (0u64..200, 0u64..9, 0u64..70, 0u32..150, any::<bool>());
    let pages = prop_oneof![
        (1i32..300_000).prop_map(|first| Pages::Shuffled { first }),
        (1usize..6).prop_map(|pool| Pages::Repeated { pool }),
    ];
    let data = prop_oneof![Just(Data::Random), Just(Data::NegativeWeights), Just(Data::OneHot), Just(Data::ZeroKeys)];
    let tail = prop_oneof![Just(TableTail::MinusOne), Just(TableTail::IntMax), Just(TableTail::Stale)];
    let launch = (prop_oneof![Just(1u32), Just(3), Just(188)], any::<u64>());
    (lens, layout, pages, data, tail, launch).prop_map(
        move |((next_n, lens), (page_gap, table_gap, logits_gap, spare, clean), pages, data, tail, (sms, seed))| {
            let mut spec = LogitsSpec::new(format, 16, next_n, lens);
            spec.max_len += spare;
            spec.page_stride += 16 * page_gap;
            (spec.table_gap, spec.logits_gap, spec.clean) = (table_gap, logits_gap, clean);
            (spec.pages, spec.data, spec.tail, spec.sms, spec.seed) = (pages, data, tail, sms, seed);
            (spec.label, spec.waves) = ("drawn".to_owned(), waves);
            spec
        },
    )
}

#[test]
fn logits_are_right_for_any_shape_and_any_strides() {
    for logits_kernel in LOGITS {
        let program = logits_program(logits_kernel, 16);
        let backend = EmulatorBackend::default();
        let loaded = backend.load(&program).expect("loads");
        draw(40, &any_launch(logits_kernel), |spec| {
            let schedule = Schedule { seed: spec.seed % 5, late_copies: spec.seed % 2 == 1 };
            passes(&*loaded, &spec.case(), schedule);
        });
    }
}

/// Slots that differ, but for page 0 and for negative ones.
fn any_scatter(format: KeyFormat) -> impl Strategy<Value = ScatterSpec> {
    let slot = prop_oneof![4 => 64i64..700, 1 => 0i64..64, 1 => -3i64..0, 1 => 3_000_000_000i64..3_000_000_100];
    (prop::collection::vec(slot, 0..40), 0u64..100, 0u64..9, any::<u64>()).prop_map(
        move |(mut slots, page_gap, key_gap, seed)| {
            let mut seen = std::collections::HashSet::new();
            slots.retain(|&slot| slot < 64 || seen.insert(slot));
            let mut spec = ScatterSpec::new(format, slots);
            (spec.slot_dtype, spec.key_gap, spec.seed) = (Dtype::I64, 8 * key_gap, seed);
            spec.page_stride += 16 * page_gap;
            spec.rows = if seed.is_multiple_of(3) { Rows::Extremes } else { Rows::Random };
            spec.label = "drawn".to_owned();
            spec
        },
    )
}

#[test]
fn stores_are_exact_for_any_slots_and_any_strides() {
    for format in FORMATS {
        let program = program(match format {
            KeyFormat::Bf16 => bf16_index_k_store::<i64>(1).expect("traces"),
            KeyFormat::Fp8 => fp8_index_k_store::<i64>(false, 1).expect("traces"),
        });
        let backend = EmulatorBackend::default();
        let loaded = backend.load(&program).expect("loads");
        draw(60, &any_scatter(format), |spec| {
            passes(&*loaded, &spec.case(), Schedule { seed: spec.seed % 5, late_copies: false });
        });
    }
}
