//! Planted faults: each is found by the check meant for it, at its line of the CUDA text, and the kernels as they are stay silent.

mod common;

use common::{Memory, Numbers, kernel, text};
use lathe_emulator::{Address, Checks, CpAsync, Finding, FindingKind, Kernel, Launch, Module, Options, Report};

/// The PTX with the `n`th line (from 0) of entry `entry` that contains `what` replaced.
fn mutate(file: &str, entry: &str, what: &str, n: usize, by: &str) -> Kernel {
    let text = text(file);
    let start = text.find(&format!(".entry {entry}(")).unwrap();
    let (before, body) = text.split_at(start);
    let mut seen = 0;
    let changed: Vec<String> = body
        .lines()
        .map(|line| {
            if !line.contains(what) {
                return line.to_string();
            }
            seen += 1;
            if seen - 1 == n { line.replace(what, by) } else { line.to_string() }
        })
        .collect();
    assert!(seen > n, "`{what}` stands only {seen} times in {entry}");
    Module::parse(format!("{before}{}", changed.join("\n"))).unwrap().entry(entry).unwrap()
}

/// Removes the instruction.
fn without(file: &str, entry: &str, what: &str, n: usize) -> Kernel {
    mutate(file, entry, what, n, "// ")
}

fn every_schedule(seeds: u64) -> impl Iterator<Item = Options> {
    [CpAsync::Eager, CpAsync::Late].into_iter().flat_map(move |cp_async| {
        (0..seeds).map(move |seed| Options { seed, cp_async, checks: Checks::ALL, ..Options::default() })
    })
}

fn block_sum(k: &Kernel, options: &Options) -> Report {
    let mut m = Memory::default();
    let (out, data) = (m.with("out", &[0f32; 2]), m.with("in", &[1f32; 1000]));
    common::run(k, &Launch::new([2, 1, 1], [256, 1, 1]).arg(out).arg(data).arg(1000i32), &mut m, options)
}

fn transpose(k: &Kernel, options: &Options) -> Report {
    let mut m = Memory::default();
    let (out, data) = (m.with("out", &[0f32; 64 * 64]), m.with("in", &[1f32; 64 * 64]));
    common::run(k, &Launch::new([2, 2, 1], [32, 8, 1]).arg(out).arg(data).arg(64i32).arg(64i32), &mut m, options)
}

fn gemm(k: &Kernel, options: &Options) -> Report {
    let mut m = Memory::default();
    let mut numbers = Numbers::new(1);
    let values: Vec<u16> = (0..16 * 64).map(|_| half::bf16::from_f32(numbers.unit()).to_bits()).collect();
    let (c, a, b) = (m.with("c", &[0f32; 16 * 8]), m.with("a", &values), m.with("b", &values[..8 * 64]));
    common::run(k, &Launch::new([1, 1, 1], [32, 1, 1]).arg(c).arg(a).arg(b).arg(8i32).arg(128i32), &mut m, options)
}

fn logits_with(k: &Kernel, shared: u32, options: &Options) -> Report {
    let mut m = Memory::default();
    let out = m.with("logits", &[0f32; 320]);
    let (q, keys) = (m.with("q", &[0x3f80u16; 64 * 128]), m.with("keys", &vec![0x3f80u16; 6 * 64 * 128]));
    let (w, lens) = (m.with("weights", &[1f32; 64]), m.with("lens", &[300i32]));
    let table = m.with("table", &[0i32, 1, 2, 3, 4]);
    let launch = Launch::new([1, 1, 1], [128, 1, 1]).dynamic_shared(shared);
    let launch = launch.arg(out).arg(q).arg(keys).arg(w).arg(lens).arg(table).arg(5i32).arg(320i32).arg(5i32);
    common::run(k, &launch, &mut m, options)
}

fn logits(k: &Kernel, options: &Options) -> Report {
    logits_with(k, 64 * 256 + 4 * 2 * 16 * 256, options)
}

fn ring(k: &Kernel, options: &Options) -> Report {
    let mut m = Memory::default();
    let (out, data) = (m.with("out", &[0f32; 256]), m.with("in", &[1f32; 7 * 256]));
    let options = Options { step_limit: 20_000_000, ..options.clone() };
    common::run(k, &Launch::new([1, 1, 1], [96, 1, 1]).arg(out).arg(data).arg(7i32), &mut m, &options)
}

fn hand_over(k: &Kernel, options: &Options) -> Report {
    let mut m = Memory::default();
    let out = m.with("out", &[0i32; 64]);
    common::run(k, &Launch::new([1, 1, 1], [128, 1, 1]).arg(out).arg(5i32), &mut m, options)
}

/// The line of the CUDA text that contains `what`.
fn line_of(file: &str, what: &str) -> u32 {
    let path = format!("{}/tests/fixtures/{file}.cu", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().position(|l| l.contains(what)).unwrap_or_else(|| panic!("no line has {what}")) as u32 + 1
}

/// A finding of the kind whose access, along its chain of places, stands on the line that contains `place`.
#[track_caller]
fn expect<'r>(report: &'r Report, kind: FindingKind, file: &str, place: &str) -> &'r Finding {
    let line = line_of(file, place);
    let here = |f: &&Finding| f.kind == kind && f.access.sources.iter().any(|s| s.line == line);
    report.findings.iter().find(here).unwrap_or_else(|| panic!("no {kind:?} on line {line} in {:#?}", report.findings))
}

#[test]
fn unmutated_kernels_are_silent_under_twenty_seeds_and_both_modes() {
    type Run = fn(&Kernel, &Options) -> Report;
    let kernels: [(&str, &str, Run); 6] = [
        ("basics", "block_sum", block_sum),
        ("basics", "transpose", transpose),
        ("matrix", "gemm_bf16", gemm),
        ("matrix", "logits_bf16", logits),
        ("async", "bulk_ring", ring),
        ("async", "hand_over", hand_over),
    ];
    for (file, entry, run) in kernels {
        let k = kernel(file, entry);
        for options in every_schedule(20) {
            assert_eq!(run(&k, &options).findings, [], "{entry} under {options:?}");
        }
    }
}

#[test]
fn a_deleted_cta_barrier_is_a_race() {
    let k = without("basics", "block_sum", "bar.sync", 0);
    for options in every_schedule(5) {
        let report = block_sum(&k, &options);
        // Either side may come first, as the schedule has it.
        let races: Vec<&Finding> = report.findings.iter().filter(|f| f.kind == FindingKind::SharedRace).collect();
        let (store, load) =
            (line_of("basics", "partial[threadIdx.x >> 5] = sum"), line_of("basics", "partial[threadIdx.x] : 0.f"));
        let lines = |f: &Finding| (f.access.sources[0].line, f.other.as_ref().unwrap().sources[0].line);
        assert!(races.iter().any(|f| lines(f) == (load, store) || lines(f) == (store, load)), "{report:#?}");
        let Some(Address::Shared { variable: Some((name, _)), .. }) = &races[0].address else { panic!("{report:#?}") };
        assert!(name.contains("partial"));
    }
}

#[test]
fn a_deleted_barrier_in_a_transpose_names_both_accesses() {
    let k = without("basics", "transpose", "bar.sync", 0);
    for options in every_schedule(3) {
        let report = transpose(&k, &options);
        assert!(report.findings.iter().any(|f| f.kind == FindingKind::SharedRace && f.other.is_some()), "{report:#?}");
    }
}

#[test]
fn a_deleted_warp_barrier_leaves_copies_of_other_lanes_unordered() {
    let k = without("matrix", "gemm_bf16", "bar.warp.sync", 0);
    for options in every_schedule(3) {
        expect(&gemm(&k, &options), FindingKind::SharedRace, "matrix", "ldmatrix_x4(fa");
    }
}

#[test]
fn a_deleted_warp_barrier_before_the_next_copy_is_a_race() {
    let k = without("matrix", "gemm_bf16", "bar.warp.sync", 1);
    for options in every_schedule(3) {
        expect(&gemm(&k, &options), FindingKind::SharedRace, "matrix", "copy16(shared_address(tile_a)");
    }
}

#[test]
fn a_wait_that_is_too_lax_leaves_copies_in_flight() {
    let k = mutate("matrix", "gemm_bf16", "cp.async.wait_group 0", 0, "cp.async.wait_group 1");
    for options in every_schedule(3) {
        let report = gemm(&k, &options);
        let finding = expect(&report, FindingKind::CopyInFlight, "matrix", "ldmatrix_x4(fa");
        assert!(finding.other.as_ref().unwrap().opcode.starts_with("cp.async"));
    }
}

#[test]
fn a_ring_wait_that_is_too_lax_is_found_in_the_logits_kernel() {
    // The wait in the loop is the last of the kernel.
    let k = mutate("matrix", "logits_bf16", "cp.async.wait_group 1", 0, "cp.async.wait_group 2");
    for options in every_schedule(3) {
        expect(&logits(&k, &options), FindingKind::CopyInFlight, "matrix", "ldmatrix_x4(a, ring");
    }
}

#[test]
fn shared_memory_one_stage_short_is_out_of_bounds() {
    let k = kernel("matrix", "logits_bf16");
    for options in every_schedule(2) {
        let report = logits_with(&k, 64 * 256 + 4 * 2 * 16 * 256 - 16 * 256, &options);
        expect(&report, FindingKind::OutOfBounds, "matrix", "fetch(s, s)");
    }
}

#[test]
fn an_access_past_a_buffer_names_it() {
    let k = kernel("basics", "waves");
    let mut m = Memory::default();
    let (out, data) = (m.with("out", &[0f32; 100]), m.with("in", &[0f32; 99]));
    let report = common::run(
        &k,
        &Launch::new([1, 1, 1], [128, 1, 1]).arg(out).arg(data).arg(100i32),
        &mut m,
        &Options::default(),
    );
    let finding = expect(&report, FindingKind::OutOfBounds, "basics", "out[i] = wave(in[i])");
    assert_eq!((finding.access.warp, finding.access.lane), (3, 3));
    let Some(Address::Global { allocation, offset, .. }) = &finding.address else { panic!("{finding:?}") };
    assert_eq!((allocation.as_deref(), *offset), (Some("in"), 396));
}

#[test]
fn a_misaligned_access_is_found() {
    let k = kernel("basics", "waves");
    let mut m = Memory::default();
    let (out, data) = (m.with("out", &[0f32; 100]), m.with("in", &[0f32; 100]));
    let report = common::run(
        &k,
        &Launch::new([1, 1, 1], [32, 1, 1]).arg(out).arg(data + 2).arg(32i32),
        &mut m,
        &Options::default(),
    );
    expect(&report, FindingKind::Misaligned, "basics", "out[i] = wave(in[i])");
}

#[test]
fn a_divergent_shuffle_is_found() {
    // Only the lower half of the warp reaches the last shuffles.
    let k = mutate("basics", "block_sum", "setp.gt.u32 \t%p9, %r3, 31", 0, "setp.gt.u32 \t%p9, %r3, 15");
    let report = block_sum(&k, &Options::default());
    expect(&report, FindingKind::DivergentCollective, "basics", "__shfl_down_sync");
}

#[test]
fn a_barrier_that_some_warps_never_reach_is_a_deadlock() {
    let k = mutate("async", "hand_over", "bar.arrive 1, 128", 0, "// ");
    let report = hand_over(&k, &Options::default());
    expect(&report, FindingKind::Deadlock, "async", "bar.sync 1, 128");
}

#[test]
fn a_missing_named_barrier_is_a_race() {
    let k = mutate("async", "hand_over", "bar.sync 2, 128;", 0, "bar.arrive 3, 128;");
    for options in every_schedule(6) {
        let report = hand_over(&k, &options);
        let found = |f: &Finding| matches!(f.kind, FindingKind::SharedRace | FindingKind::BarrierMisuse);
        assert!(report.findings.iter().any(found), "{options:?}: {report:#?}");
    }
}

#[test]
fn a_wrong_thread_count_is_barrier_misuse() {
    let k = mutate("async", "hand_over", "bar.sync 1, 128", 0, "bar.sync 1, 100");
    let report = hand_over(&k, &Options::default());
    expect(&report, FindingKind::BarrierMisuse, "async", "bar.sync 1, 128");
}

#[test]
fn an_mbarrier_used_without_the_barrier_after_its_initialisation_is_a_race() {
    let k = without("async", "bulk_ring", "bar.sync", 0);
    let found = every_schedule(8).any(|o| {
        let report = ring(&k, &o);
        report.findings.iter().any(|f| matches!(f.kind, FindingKind::SharedRace | FindingKind::BarrierMisuse))
    });
    assert!(found);
}

#[test]
fn consumers_that_do_not_wait_read_a_copy_in_flight() {
    // The consumers' wait is the last one of the kernel: make it pass at once.
    let text = text("async");
    let waits = text
        .split(".entry bulk_ring(")
        .nth(1)
        .unwrap()
        .split(".entry")
        .next()
        .unwrap()
        .matches("mbarrier.try_wait.parity.shared::cta.b64 P,")
        .count();
    let k = mutate(
        "async",
        "bulk_ring",
        "mbarrier.try_wait.parity.shared::cta.b64 P,",
        waits - 1,
        "setp.ge.s32 P, 1, 0; // ",
    );
    for options in every_schedule(4) {
        let report = ring(&k, &options);
        assert!(report.findings.iter().any(|f| f.kind == FindingKind::CopyInFlight), "{options:?}: {report:#?}");
    }
}

#[test]
fn a_producer_that_does_not_wait_overwrites_what_is_being_read() {
    let k = mutate("async", "bulk_ring", "mbarrier.try_wait.parity.shared::cta.b64 P,", 0, "setp.ge.s32 P, 1, 0; // ");
    let found = every_schedule(6).any(|o| {
        let report = ring(&k, &o);
        report.findings.iter().any(|f| matches!(f.kind, FindingKind::SharedRace | FindingKind::CopyInFlight))
    });
    assert!(found);
}

/// The kernel that stores a tile by a bulk copy.
fn bulk_store(k: &Kernel, options: &Options) -> Report {
    let mut m = Memory::default();
    let out = m.with("out", &[0i32; 256]);
    common::run(k, &Launch::new([2, 1, 1], [128, 1, 1]).arg(out), &mut m, options)
}

#[test]
fn a_bulk_store_of_what_registers_stored_needs_a_proxy_fence() {
    let k = without("async", "bulk_store", "fence.proxy.async", 0);
    for options in every_schedule(3) {
        let report = bulk_store(&k, &options);
        let finding = expect(&report, FindingKind::ProxyFence, "async", "cp.async.bulk.global.shared::cta.bulk_group");
        let store = line_of("async", "tile[threadIdx.x] = threadIdx.x");
        assert_eq!(finding.other.as_ref().unwrap().sources[0].line, store);
    }
}

#[test]
fn a_proxy_fence_before_the_stores_does_not_serve_them() {
    let text = text("async");
    let entry = text.find(".entry bulk_store(").unwrap();
    let (before, body) = text.split_at(entry);
    let store = body.find("st.shared").unwrap();
    let fence = body.find("fence.proxy.async.shared::cta;").unwrap();
    assert!(store < fence);
    let body = body.replacen("fence.proxy.async.shared::cta;", "", 1);
    let body = body.replacen("st.shared", "fence.proxy.async.shared::cta;\nst.shared", 1);
    let k = Module::parse(format!("{before}{body}")).unwrap().entry("bulk_store").unwrap();
    let report = bulk_store(&k, &Options::default());
    assert!(report.findings.iter().any(|f| f.kind == FindingKind::ProxyFence), "{report:#?}");
}

#[test]
fn a_new_mbarrier_needs_a_fence_before_copies_complete_on_it() {
    let k = without("async", "bulk_ring", "fence.mbarrier_init", 0);
    for options in every_schedule(3) {
        expect(&ring(&k, &options), FindingKind::ProxyFence, "async", "cp.async.bulk.shared::cta.global");
    }
    let k = mutate("async", "bulk_ring", "fence.mbarrier_init.release.cluster", 0, "fence.proxy.async.shared::cta");
    for options in every_schedule(3) {
        assert_eq!(ring(&k, &options).findings, []);
    }
}

/// The ring with `bytes` expected of each copy of 1024.
fn expecting(bytes: u32) -> Kernel {
    let text = text("async");
    let entry = text.find(".entry bulk_ring(").unwrap();
    let (before, body) = text.split_at(entry);
    let line = body.lines().find(|line| line.contains("mbarrier.arrive.expect_tx")).unwrap();
    let register = line.rsplit(' ').next().unwrap().trim_end_matches(';');
    let changed = line.replace(register, &bytes.to_string());
    Module::parse(format!("{before}{}", body.replacen(line, &changed, 1))).unwrap().entry("bulk_ring").unwrap()
}

#[test]
fn too_few_bytes_expected_are_barrier_misuse() {
    for bytes in [0, 512] {
        for options in every_schedule(2) {
            let report = ring(&expecting(bytes), &options);
            let found = report.findings.iter().find(|f| f.kind == FindingKind::BarrierMisuse);
            let found = found.unwrap_or_else(|| panic!("{options:?}: {report:#?}"));
            let Some(Address::Shared { variable: Some((name, _)), .. }) = &found.address else { panic!("{found:?}") };
            assert!(name.contains("full"), "{name}");
        }
    }
    let late = Options { cp_async: CpAsync::Late, ..Options::default() };
    let more = "copies have brought 512 bytes more than it expects";
    assert!(ring(&expecting(512), &late).findings.iter().any(|f| f.detail.contains(more)));
}

#[test]
fn too_many_bytes_expected_are_a_deadlock_that_names_the_mbarrier() {
    for options in every_schedule(2) {
        let report = ring(&expecting(1040), &options);
        let found = report.findings.iter().find(|f| f.kind == FindingKind::Deadlock).expect("a deadlock");
        let waits = "the mbarrier here has all arrivals of phase 0 and waits for 16 bytes that nothing copies";
        assert!(found.detail.ends_with(waits), "{found:?}");
    }
}
