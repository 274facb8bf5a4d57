//! Each planted fault is caught by the check that is meant for it, at the line of the Rust source where it shows; the
//! kernels as they are stay silent under many schedules.

use std::sync::LazyLock;

use lathe::contract::{Case, Scale};
use lathe::dtype::Dtype;
use lathe::ir::{Inst, Kernel, Path};
use lathe::kernels::bf16_logits::bf16_paged_mqa_logits;
use lathe::kernels::bf16_store::bf16_index_k_store;
use lathe::kernels::cases::logits::{Data, LogitsSpec};
use lathe::kernels::cases::logits_list::logits_specs;
use lathe::kernels::cases::store::{ScatterSpec, scatter_specs};
use lathe::kernels::contract::KeyFormat;
use lathe::kernels::fp8_logits::fp8_paged_mqa_logits;
use lathe::kernels::launch::STAGES;
use lathe::runtime::backend::{Backend, EmulatorBackend, Finding, FindingKind, Schedule};
use lathe::runtime::nvrtc::Compiler;
use lathe::runtime::program::Program;
use lathe::runtime::toolchain::Toolchain;
use lathe::target::Target;
use lathe_codegen::ops::compare;
use regex::Regex;

const LOGITS: &str = include_str!("../kernels/src/bf16_logits.rs");
const FP8_LOGITS: &str = include_str!("../kernels/src/fp8_logits.rs");
const STORE: &str = include_str!("../kernels/src/bf16_store.rs");

static TOOLCHAIN: LazyLock<Toolchain> = LazyLock::new(|| Toolchain::new(false, |_| {}));

fn compiler() -> Compiler<'static> {
    Compiler::load(&TOOLCHAIN).expect("NVRTC is here or can be installed")
}

/// What a fault does to the logits kernel or to the store.
enum Fault {
    /// In the IR.
    Ir(fn(&mut Kernel)),
    /// In the printed text, where the IR has no words for it: `from` becomes `to`.
    Text { from: &'static str, to: &'static str },
}

/// Who catches it.
#[derive(Debug)]
enum Caught {
    /// A finding of this kind, at the line that holds this text.
    At(FindingKind, &'static str),
    /// The judge, with a failure that holds this text.
    Judge(&'static str),
}

fn logits_kernel() -> Kernel {
    bf16_paged_mqa_logits(16, 1, STAGES).expect("traces")
}

/// Long rows, so that every CTA goes round its ring, and a length inside a page.
fn logits_case() -> Case {
    let mut spec = LogitsSpec::new(KeyFormat::Bf16, 16, 1, vec![700, 130]);
    (spec.sms, spec.label) = (1, "faults".to_owned());
    spec.case()
}

fn nth(kernel: &Kernel, op: &str, n: usize) -> Path {
    let found = kernel.insts().into_iter().filter(|(_, inst)| inst.op.name == op).nth(n);
    found.unwrap_or_else(|| panic!("there is no `{op}` number {n}")).0
}

fn remove(kernel: &mut Kernel, op: &str, n: usize) {
    let path = nth(kernel, op, n);
    kernel.remove(&path).expect("it is there");
}

fn alter(kernel: &mut Kernel, op: &str, n: usize, change: impl FnOnce(&mut Inst)) {
    let path = nth(kernel, op, n);
    change(kernel.inst_mut(&path).expect("it is there"));
}

/// Runs the faulty kernel with copies as late as they may come, and in two orders of warps.
fn run(kernel: Kernel, target: Target, fault: Fault, case: &Case) -> (Vec<Finding>, Vec<String>) {
    let (mut kernel, compiler) = (kernel, compiler());
    if let Fault::Ir(change) = fault {
        change(&mut kernel);
    }
    let mut program = Program::compile(&compiler, &kernel, target).expect("a fault still compiles");
    if let Fault::Text { from, to } = fault {
        assert_eq!(program.cuda.source.matches(from).count(), 1, "`{from}` in\n{}", program.cuda.source);
        program.cuda.source = program.cuda.source.replace(from, to);
        program.compiled = compiler.compile(&program.cuda.source, target).expect("a fault still compiles");
    }
    let backend = EmulatorBackend::default();
    let loaded = backend.load(&program).expect("loads");
    let (mut findings, mut failures) = (Vec::new(), Vec::new());
    for seed in [0, 1] {
        let run = loaded.run(case, Schedule { seed, late_copies: true }).expect("runs");
        failures.extend((case.verify)(&run.buffers).failures);
        findings.extend(run.findings);
    }
    (findings, failures)
}

/// A message says where, in which of the author's tiles or arguments, and nothing of this program's insides.
#[track_caller]
fn judge(finding: &Finding, source: &str) {
    static PLACE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^kernels/src/\w+\.rs:\d+:\d+: ").unwrap());
    static NAME: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"`(\w+)`").unwrap());
    // Names of types, and values as a debugger prints them.
    static INSIDES: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"[a-z][A-Z]|\bSome\b|\bNone\b|lathe_|%r\d|\{").unwrap());
    let text = finding.to_string();
    assert!(PLACE.is_match(&text), "no place: {text}");
    let words = [Some(&finding.detail), finding.element.as_ref(), finding.help.as_ref()];
    for text in words.into_iter().flatten() {
        assert!(!INSIDES.is_match(text), "insides: {text}");
    }
    let named = matches!(
        finding.kind,
        FindingKind::OutOfBounds
            | FindingKind::Misaligned
            | FindingKind::ReadOnly
            | FindingKind::SharedRace
            | FindingKind::CopyInFlight
            | FindingKind::GlobalRace
            | FindingKind::Undeclared
            | FindingKind::BeforeWait
    );
    let element = finding.element.as_deref().unwrap_or_default();
    let name = NAME.captures(element).map(|found| found[1].to_owned());
    assert!(!named || name.as_ref().is_some_and(|name| source.contains(name.as_str())), "no name: {finding:?}");
}

#[track_caller]
fn expect(kernel: Kernel, source: &str, fault: Fault, case: &Case, caught: Caught) {
    expect_on(Target::Sm120a, kernel, source, fault, case, caught);
}

#[track_caller]
fn expect_on(target: Target, kernel: Kernel, source: &str, fault: Fault, case: &Case, caught: Caught) {
    let (findings, failures) = run(kernel, target, fault, case);
    let line = |snippet: &str| {
        let lines: Vec<_> = source.lines().enumerate().filter(|(_, line)| line.contains(snippet)).collect();
        assert_eq!(lines.len(), 1, "`{snippet}` stands on one line");
        lines[0].0 as u32 + 1
    };
    let seen = match &caught {
        Caught::At(kind, snippet) => findings.iter().any(|finding| {
            let place = finding.access.as_ref().and_then(|access| access.rust);
            finding.kind == *kind && place.is_some_and(|loc| loc.line == line(snippet))
        }),
        Caught::Judge(text) => failures.iter().any(|failure| failure.contains(text)),
    };
    findings.iter().for_each(|finding| judge(finding, source));
    let found: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert!(seen, "expected {caught:?}\nfindings: {found:#?}\nfailures: {failures:#?}");
}

#[track_caller]
fn expect_logits(fault: Fault, caught: Caught) {
    expect(logits_kernel(), LOGITS, fault, &logits_case(), caught);
}

/// Rows for slots on both sides of a page's end.
#[track_caller]
fn expect_store(fault: Fault, caught: Caught) {
    let case = ScatterSpec::new(KeyFormat::Bf16, (60..72 + 4).collect()).case();
    expect(bf16_index_k_store::<i32>(1).expect("traces"), STORE, fault, &case, caught);
}

#[test]
fn a_deleted_cta_barrier_is_a_copy_in_flight_where_the_queries_are_loaded() {
    let fault = Fault::Ir(|kernel| remove(kernel, "barrier.cta", 0));
    expect_logits(fault, Caught::At(FindingKind::CopyInFlight, "let queries = q_tile.load_b();"));
}

#[test]
fn a_deleted_warp_barrier_after_the_wait_is_a_race_where_keys_are_loaded() {
    let fault = Fault::Ir(|kernel| remove(kernel, "barrier.warp", 1));
    expect_logits(fault, Caught::At(FindingKind::SharedRace, "mma_abt(stage.load_a(), queries)"));
}

#[test]
fn a_deleted_warp_barrier_before_the_refill_is_a_race_with_the_refill() {
    let fault = Fault::Ir(|kernel| remove(kernel, "barrier.warp", 2));
    expect_logits(fault, Caught::At(FindingKind::SharedRace, "stage.copy_async(k.row(page));"));
}

#[test]
fn a_wait_that_is_one_group_too_lax_is_a_copy_in_flight() {
    let fault = Fault::Ir(|kernel| {
        alter(kernel, "cp_async.wait", 1, |inst| inst.attrs.set("pending", inst.attrs.int("pending") + 1));
    });
    expect_logits(fault, Caught::At(FindingKind::CopyInFlight, "mma_abt(stage.load_a(), queries)"));
}

#[test]
fn a_ring_that_turns_one_stage_short_is_a_copy_in_flight() {
    let fault = Fault::Text { from: "stage_index = 1 - stage_index;", to: "stage_index = 0;" };
    expect_logits(fault, Caught::At(FindingKind::CopyInFlight, "mma_abt(stage.load_a(), queries)"));
}

#[test]
fn a_wrong_swizzle_gives_wrong_logits() {
    let fault = Fault::Text {
        from: "q_tile + lane % 8 * 256 + ((lane / 8) ^ (lane % 8)) * 16",
        to: "q_tile + lane % 8 * 256 + (lane / 8) * 16",
    };
    expect_logits(fault, Caught::Judge("off by"));
}

#[test]
fn swapped_fragment_registers_give_wrong_logits() {
    let fault = Fault::Text {
        from: "queries[n][k * 2], queries[n][k * 2 + 1], (",
        to: "queries[n][k * 2 + 1], queries[n][k * 2], (",
    };
    expect_logits(fault, Caught::Judge("off by"));
}

#[test]
fn a_mask_that_is_off_by_one_writes_past_the_length() {
    let fault = Fault::Text { from: "lane_row < len - keys - start", to: "lane_row <= len - keys - start" };
    expect_logits(fault, Caught::Judge("past the length, must not be written"));
}

/// The fp8 logits on Hopper, whose warps multiply together.
#[track_caller]
fn expect_warpgroup(fault: Fault, caught: Caught) {
    let kernel = fp8_paged_mqa_logits(16, 1, STAGES, Target::Sm90a).expect("traces");
    let mut spec = LogitsSpec::new(KeyFormat::Fp8, 16, 1, vec![700, 130]);
    (spec.sms, spec.label) = (1, "faults".to_owned());
    expect_on(Target::Sm90a, kernel, FP8_LOGITS, fault, &spec.case(), caught);
}

const PRODUCT: &str = "wgmma::product(fragment, q_tile)";

#[test]
fn queries_that_no_proxy_fence_hands_to_the_tensor_cores_are_found() {
    let fault = Fault::Ir(|kernel| remove(kernel, "fence.async_proxy", 0));
    expect_warpgroup(fault, Caught::At(FindingKind::ProxyFence, PRODUCT));
}

#[test]
fn queries_that_no_barrier_hands_to_the_tensor_cores_are_a_copy_in_flight() {
    let fault = Fault::Ir(|kernel| remove(kernel, "barrier.cta", 0));
    expect_warpgroup(fault, Caught::At(FindingKind::CopyInFlight, PRODUCT));
}

#[test]
fn a_product_that_is_not_waited_for_is_undefined() {
    let fault = Fault::Ir(|kernel| alter(kernel, "wgmma.wait", 0, |inst| inst.attrs.set("pending", 1)));
    expect_warpgroup(fault, Caught::At(FindingKind::Undefined, "store_rows(score, below(walk.len - keys - start))"));
    let fault = Fault::Ir(|kernel| remove(kernel, "wgmma.commit", 0));
    expect_warpgroup(fault, Caught::At(FindingKind::Undefined, "store_rows(score, below(walk.len - keys - start))"));
}

#[test]
fn a_product_without_its_fence_is_found() {
    let fault = Fault::Text { from: "wgmma.fence.sync.aligned;", to: "" };
    expect_warpgroup(fault, Caught::At(FindingKind::BarrierMisuse, PRODUCT));
}

#[test]
fn a_descriptor_of_other_rows_gives_wrong_logits() {
    let fault = Fault::Text { from: "64ull << 32", to: "32ull << 32" };
    expect_warpgroup(fault, Caught::Judge("off by"));
}

#[test]
fn a_store_whose_last_row_is_off_by_one_reads_past_the_slots() {
    let fault = Fault::Text { from: "min(first, rows - 1)", to: "min(first, rows)" };
    let case = ScatterSpec::new(KeyFormat::Bf16, (64..72 + 4).collect()).case();
    let caught = Caught::At(FindingKind::OutOfBounds, "let slot = slots.at(source).load()");
    expect(bf16_index_k_store::<i32>(1).expect("traces"), STORE, fault, &case, caught);
}

#[test]
fn a_store_that_takes_negative_slots_is_out_of_bounds() {
    let fault = Fault::Ir(|kernel| alter(kernel, "ge", 0, |inst| inst.op = &compare::NE));
    let case = ScatterSpec::new(KeyFormat::Bf16, vec![70, -1, 71]).case();
    let caught = Caught::At(FindingKind::OutOfBounds, "store_vector(key);");
    expect(bf16_index_k_store::<i32>(1).expect("traces"), STORE, fault, &case, caught);
}

#[test]
fn a_deleted_wait_for_the_queries_is_a_copy_in_flight() {
    let fault = Fault::Ir(|kernel| remove(kernel, "cp_async.wait", 0));
    expect_logits(fault, Caught::At(FindingKind::CopyInFlight, "let queries = q_tile.load_b();"));
}

#[test]
fn queries_that_join_the_group_of_the_keys_are_in_flight() {
    let fault = Fault::Ir(|kernel| remove(kernel, "cp_async.commit", 0));
    expect_logits(fault, Caught::At(FindingKind::CopyInFlight, "let queries = q_tile.load_b();"));
}

#[test]
fn a_length_that_is_read_before_the_dependency_wait_is_told() {
    let fault = Fault::Text {
        from: "  grid_dependency_wait();\n\n  // The row's queries",
        to: "  load(context_lens + row);\n  grid_dependency_wait();\n\n  // The row's queries",
    };
    expect_logits(fault, Caught::At(FindingKind::BeforeWait, "pdl::wait();"));
}

#[test]
fn a_shuffle_that_a_lane_skips_is_a_divergent_collective() {
    let fault = Fault::Text {
        from: "ring_stage_2 = ring + 4096;\n  if (due < len) {",
        to: "ring_stage_2 = ring + 4096;\n  if (due < len && lane != 5) {",
    };
    expect_logits(fault, Caught::At(FindingKind::DivergentCollective, "let page = page_ids.of_lane(holder);"));
}

#[test]
fn a_cta_barrier_that_a_warp_skips_is_misuse() {
    let fault = Fault::Text { from: "  __syncthreads();", to: "  if (warp != 1) __syncthreads();" };
    expect_logits(fault, Caught::At(FindingKind::BarrierMisuse, "cta::sync(); // the queries are there"));
}

#[test]
fn queries_that_are_fetched_by_half_leave_undefined_scores() {
    let fault = Fault::Text { from: "copy_tile_xor16<16, 256, 128>(q_tile", to: "copy_tile_xor16<8, 256, 128>(q_tile" };
    expect_logits(
        fault,
        Caught::At(FindingKind::Undefined, "scores.store_rows(score, below(walk.len - keys - start));"),
    );
}

#[test]
fn rows_that_store_to_one_place_race() {
    let fault = Fault::Text {
        from: "float* scores = logits + (unsigned)row * logits_stride + (first * 64 + keys);",
        to: "float* scores = logits + (first * 64 + keys);",
    };
    expect_logits(
        fault,
        Caught::At(FindingKind::GlobalRace, "scores.store_rows(score, below(walk.len - keys - start));"),
    );
}

#[test]
fn a_dropped_relu_gives_wrong_logits() {
    let fault = Fault::Text { from: "fmaxf(dots[n][e], 0.0f)", to: "dots[n][e]" };
    expect_logits(fault, Caught::Judge("off by"));
}

#[test]
fn a_chunk_of_half_the_bytes_is_misaligned() {
    let fault = Fault::Text { from: "thread % 16 * 8", to: "thread % 16 * 4" };
    expect_store(fault, Caught::At(FindingKind::Misaligned, "load_vector(8)"));
}

#[test]
fn a_key_that_is_stored_to_the_input_is_refused() {
    let fault = Fault::Text {
        from: "store_x4(k_pages + place / 64 * k_pages_stride + place % 64 * 128 + chunk, key);",
        to: "store_x4((bf16*)keys + chunk, key);",
    };
    expect_store(fault, Caught::At(FindingKind::ReadOnly, "store_vector(key);"));
}

#[test]
fn a_key_that_is_read_from_the_pool_is_against_the_declaration() {
    let fault = Fault::Text { from: "load_x4(key, keys +", to: "load_x4(key, k_pages +" };
    expect_store(fault, Caught::At(FindingKind::Undeclared, "load_vector(8)"));
}

#[test]
fn ctas_that_take_a_row_twice_race_for_its_slot() {
    let fault = Fault::Text { from: "blockIdx.x * 8", to: "blockIdx.x * 7" };
    expect_store(fault, Caught::At(FindingKind::GlobalRace, "store_vector(key);"));
}

#[test]
fn lanes_that_share_the_slots_of_two_rows_race_within_their_cta() {
    // Both half warps store to the slot of the first one's row.
    let fault = Fault::Text { from: "load(slots + source)", to: "load(slots + (source & ~1))" };
    let (findings, _) = run(
        bf16_index_k_store::<i32>(1).expect("traces"),
        Target::Sm120a,
        fault,
        &ScatterSpec::new(KeyFormat::Bf16, (60..72 + 4).collect()).case(),
    );
    let race = findings.iter().find(|finding| finding.kind == FindingKind::GlobalRace).expect("a race");
    let (access, other) = (race.access.as_ref().unwrap(), race.other.as_ref().unwrap());
    assert_eq!((access.cta, access.warp), (other.cta, other.warp));
    assert!(race.help.as_ref().unwrap().contains("let one lane do both"), "{race}");
}

#[test]
fn pages_of_half_the_slots_are_out_of_bounds() {
    let fault = Fault::Text { from: "place / 64", to: "place / 32" };
    expect_store(fault, Caught::At(FindingKind::OutOfBounds, "store_vector(key);"));
}

/// Every schedule of 20 seeds with both modes of asynchronous copies.
fn silent(kernel: Kernel, cases: &[Case]) {
    let program = Program::compile(&compiler(), &kernel, Target::Sm120a).expect("compiles");
    let backend = EmulatorBackend::default();
    let loaded = backend.load(&program).expect("loads");
    for case in cases {
        for seed in 0..20 {
            for late_copies in [false, true] {
                let run = loaded.run(case, Schedule { seed, late_copies }).expect("runs");
                let failures = (case.verify)(&run.buffers).failures;
                let findings: Vec<String> = run.findings.iter().map(ToString::to_string).collect();
                assert!(
                    failures.is_empty() && findings.is_empty(),
                    "{} seed {seed} late {late_copies}: {findings:#?} {failures:#?}",
                    case.name
                );
            }
        }
    }
}

#[test]
fn the_logits_kernel_is_silent_under_every_schedule() {
    let mut cases = vec![logits_case()];
    cases.extend(
        logits_specs(KeyFormat::Bf16, 16, 1, Scale::Emulator)
            .iter()
            .filter(|spec| spec.lens.iter().sum::<i32>() < 1_000 && (spec.data != Data::Random || spec.clean))
            .map(LogitsSpec::case),
    );
    assert!(cases.len() > 8);
    silent(logits_kernel(), &cases);
}

#[test]
fn the_store_is_silent_under_every_schedule() {
    let cases: Vec<Case> = scatter_specs(KeyFormat::Bf16, Dtype::I64, false, Scale::Emulator)
        .iter()
        .filter(|spec| spec.slots.len() < 50)
        .map(ScatterSpec::case)
        .collect();
    silent(bf16_index_k_store::<i64>(1).expect("traces"), &cases);
}
