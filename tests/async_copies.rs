//! Kernels that move data by bulk copies, mbarriers and warp roles: right under every schedule, and each fault that an
//! author could plant in them is found, at its line.

use std::sync::LazyLock;

use lathe::contract::{Arg, Buffer, Case, ScalarValue, Tensor, Verdict};
use lathe::dtype::Dtype;
use lathe::ir::{Kernel, TensorBox};
use lathe::prelude::*;
use lathe::runtime::backend::{Backend, EmulatorBackend, Finding, FindingKind, Schedule};
use lathe::runtime::nvrtc::Compiler;
use lathe::runtime::program::Program;
use lathe::runtime::toolchain::Toolchain;
use lathe::target::Target;

const STAGES: i32 = 3;
/// Rows of 128 f32 that a stage holds.
const ROWS: i32 = 4;

/// What a kernel here gets wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    None,
    /// The producer does not say how many bytes will come.
    NoBytes,
    /// It says so after the copy has started, and too few.
    FewBytes,
    /// It announces more than it copies.
    ManyBytes,
    /// The consumers wait for the parity that has gone.
    OldParity,
    /// The producer's first wait takes the phase that has not been.
    NewParity,
    /// Nobody waits for a stage to be empty.
    NoEmpty,
    /// One lane says that its warp has read, without a warp barrier.
    NoWarpSync,
    /// Bulk copies do not see the initialisation.
    NoInitFence,
    /// The mbarriers are used before they are initialised.
    NoInitSync,
    /// What is stored goes out without a proxy fence.
    NoProxyFence,
    /// A tile that is on its way out changes.
    NoStoreWait,
}

/// sums[i] = sum of x[r][i] over the rows, row blocks of 4 at a time: warp 3 fetches, warps 0 to 2 add.
#[kernel(warps = 4)]
fn sum_rows(#[comptime] fault: Fault, #[read] x: Slice<f32>, #[write_all] sums: Slice<f32>, blocks: Scalar<i32>) {
    let ring = shared::<f32>([ROWS, 96]).stages(STAGES);
    let full = mbarriers(STAGES);
    let empty = mbarriers(STAGES);

    if thread::id() == 0 {
        full.init(1);
        empty.init(3);
        if fault != Fault::NoInitFence {
            fence::mbarrier_init();
        }
    }
    if fault != Fault::NoInitSync {
        cta::sync();
    }
    let mut at = PipelineState::start();
    warp::role("fetch", 3..4, || {
        if lane::id() == 0 {
            for block in Scalar::from(0)..blocks {
                let (stage, filled) = (ring.stage(at.stage), full.at(at.stage));
                if fault != Fault::NoEmpty {
                    empty.at(at.stage).wait(if fault == Fault::NewParity { at.parity } else { at.parity ^ 1 });
                }
                if fault == Fault::NoBytes {
                    filled.arrive();
                } else if fault != Fault::FewBytes {
                    filled.arrive_expect_tx(stage.bytes() + if fault == Fault::ManyBytes { 16 } else { 0 });
                }
                stage.copy_bulk(x.at(block * (ROWS * 96)), filled);
                if fault == Fault::FewBytes {
                    filled.arrive_expect_tx(stage.bytes() - 16);
                }
                at = at.advance(STAGES);
            }
        }
    });
    warp::role("add", 0..3, || {
        let column = thread::id();
        let mut sum = Scalar::from(0.0f32);
        for _ in Scalar::from(0)..blocks {
            full.at(at.stage).wait(if fault == Fault::OldParity { at.parity ^ 1 } else { at.parity });
            for row in 0..ROWS {
                sum += ring.stage(at.stage).at(row, column).load();
            }
            if fault != Fault::NoWarpSync {
                warp::sync();
            }
            if lane::id() == 0 {
                empty.at(at.stage).arrive();
            }
            at = at.advance(STAGES);
        }
        sums.at(column).store(sum);
    });
}

/// squares[i] = i * i: all threads fill a tile, one thread copies it out, twice.
#[kernel(warps = 4)]
fn squares(#[comptime] fault: Fault, #[write_all] squares: Slice<i32>) {
    let tile = shared::<i32>([1, 128]);
    for half in 0..2 {
        let i = thread::id() + half * 128;
        tile.at(0, thread::id()).store(i * i);
        if fault != Fault::NoProxyFence {
            fence::async_proxy();
        }
        cta::sync();
        if thread::id() == 0 {
            tile.store_bulk(squares.at(half * 128));
            commit_bulk();
            if fault != Fault::NoStoreWait {
                wait_bulk_all_but(0);
            }
        }
        cta::sync();
    }
}

/// The same ring, filled by all lanes of a warp with ordinary copies, which arrive when they are there.
#[kernel(warps = 2)]
fn sum_copied(#[comptime] fault: Fault, #[read] x: Slice<f32>, #[write_all] sums: Slice<f32>, blocks: Scalar<i32>) {
    let ring = shared::<f32>([1, 128]).stages(STAGES);
    let full = mbarriers(STAGES);
    let empty = mbarriers(STAGES);
    if thread::id() == 0 {
        full.init(64);
        empty.init(64);
    }
    cta::sync();
    let mut at = PipelineState::start();
    let mut sum = Scalar::from(0.0f32);
    for block in Scalar::from(0)..blocks {
        empty.at(at.stage).wait(at.parity ^ 1);
        ring.stage(at.stage).copy_async(x.at(block * 128));
        if fault == Fault::NoBytes {
            full.at(at.stage).arrive();
        } else {
            full.at(at.stage).arrive_after_copies();
        }
        full.at(at.stage).wait(at.parity);
        sum += ring.stage(at.stage).at(0, 127 - thread::id()).load();
        empty.at(at.stage).arrive();
        at = at.advance(STAGES);
    }
    sums.at(thread::id()).store(sum);
}

/// sums[p][c] = the sum of column c over the 20 rows of page p: boxes of 8 x 32, permuted, the last of which reach past
/// the page.
#[kernel(warps = 4)]
fn sum_pages(#[comptime] fault: Fault, #[read] pages: TensorMap<f32, 3>, #[write_all] sums: Slice<f32>) {
    let tile = shared::<f32>([8, 32]).per_warp().swizzle(Xor16);
    let full = mbarriers(1).per_warp();
    let (page, first) = (cta::x(), warp::id() * 32);
    if lane::id() == 0 {
        full.init(1);
        fence::mbarrier_init();
    }
    if fault != Fault::NoInitSync {
        warp::sync();
    }
    let mut sum = Scalar::from(0.0f32);
    for part in 0..3 {
        if lane::id() == 0 {
            full.at(0).arrive_expect_tx(tile.bytes() - if fault == Fault::FewBytes { 16 } else { 0 });
            tile.copy_tensor(pages, [page, Scalar::from(part * 8), first], full.at(0));
        }
        full.at(0).wait(if fault == Fault::OldParity { 1 } else { part % 2 });
        for row in 0..8 {
            sum += tile.at(row, lane::id()).load();
        }
        if fault != Fault::NoWarpSync {
            warp::sync();
        }
    }
    sums.at(page * 128 + thread::id()).store(sum);
}

/// Doubles pages of 20 x 32, a warp each: boxes of 8 rows, permuted, come in, are changed where they lie, and go out; the
/// last ones reach past the page.
#[kernel(warps = 2)]
fn double_pages(#[comptime] fault: Fault, #[read] x: TensorMap<f32, 3>, #[write_part] doubled: TensorMap<f32, 3>) {
    let tile = shared::<f32>([8, 32]).per_warp().swizzle(Xor16);
    let full = mbarriers(1).per_warp();
    if lane::id() == 0 {
        full.init(1);
        fence::mbarrier_init();
    }
    warp::sync();
    for part in 0..3 {
        let corner = [cta::x() * 2 + warp::id(), Scalar::from(part * 8), Scalar::from(0)];
        if lane::id() == 0 {
            full.at(0).arrive_expect_tx(tile.bytes());
            tile.copy_tensor(x, corner, full.at(0));
        }
        full.at(0).wait(part % 2);
        for row in 0..8 {
            let element = tile.at(row, lane::id());
            element.store(element.load() * 2.0);
        }
        if fault != Fault::NoProxyFence {
            fence::async_proxy();
        }
        if fault != Fault::NoWarpSync {
            warp::sync();
        }
        if lane::id() == 0 {
            tile.store_tensor(doubled, corner);
            commit_bulk();
            if fault != Fault::NoStoreWait {
                wait_bulk_all_but(0);
            }
        }
    }
}

static TOOLCHAIN: LazyLock<Toolchain> = LazyLock::new(|| Toolchain::new(false, |_| {}));

fn program(kernel: &Kernel, target: Target) -> Program {
    let compiler = Compiler::load(&TOOLCHAIN).expect("NVRTC is here or can be installed");
    Program::compile(&compiler, kernel, target).unwrap_or_else(|error| panic!("{error}"))
}

/// Runs a kernel over the schedules; what was found, and what the judge said.
fn run(kernel: &Kernel, target: Target, case: &Case) -> (Vec<Finding>, Vec<String>) {
    let program = program(kernel, target);
    let backend = EmulatorBackend::default();
    let loaded = backend.load(&program).expect("loads");
    let (mut findings, mut failures) = (Vec::new(), Vec::new());
    for (seed, late_copies) in [(0, false), (0, true), (1, true), (2, false), (3, true)] {
        let run = loaded.run(case, Schedule { seed, late_copies }).expect("runs");
        findings.extend(run.findings);
        failures.extend((case.verify)(&run.buffers).failures);
    }
    (findings, failures)
}

fn pointer(buffer: usize) -> Arg {
    Arg::Pointer { buffer, offset: 0, strides: vec![] }
}

fn expects(name: &'static str, buffer: usize, expected: Vec<u32>) -> lathe::contract::Judge {
    Box::new(move |after: &[Buffer]| {
        let bytes = after[buffer].slice(0, 4 * expected.len()).expect("mapped");
        let found = bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().expect("four")));
        let wrong = found.zip(&expected).enumerate().filter(|(_, (found, expected))| found != *expected);
        let failures = wrong.map(|(i, (found, expected))| format!("{name}[{i}] is {found:#x}, expected {expected:#x}"));
        Verdict { failures: failures.collect(), ..Verdict::default() }
    })
}

/// `blocks` blocks of `rows` rows of `columns` small integers, and the sums of some columns.
fn sums_case(rows: usize, columns: usize, blocks: usize, summed: impl Iterator<Item = usize>) -> Case {
    let x: Vec<f32> = (0..blocks * rows * columns).map(|i| (i * 7 % 23) as f32).collect();
    let sum = |c: usize| x.iter().skip(c).step_by(columns).fold(0.0, |sum: f32, x| sum + x).to_bits();
    let expected: Vec<u32> = summed.map(sum).collect();
    let bytes = x.iter().flat_map(|x| x.to_le_bytes()).collect();
    Case {
        name: "sums".into(),
        grid: [1; 3],
        buffers: vec![
            Buffer::from_bytes("x", Dtype::F32, bytes),
            Buffer::poisoned("sums", Dtype::F32, expected.len() * 4),
        ],
        args: vec![pointer(0), pointer(1), Arg::Scalar(ScalarValue::I32(blocks as i32))],
        verify: expects("sums", 1, expected),
    }
}

/// Three pages of 20 rows of 128, packed into larger records whose rest no box may touch.
fn pages_case() -> Case {
    let (pages, record) = (3, 21 * 128);
    let x: Vec<f32> =
        (0..pages * record).map(|i| if i % record < 20 * 128 { (i % 31) as f32 } else { f32::NAN }).collect();
    let sum = |page: usize, c: usize| (0..20).map(|row| x[page * record + row * 128 + c]).sum::<f32>().to_bits();
    let expected: Vec<u32> = (0..pages * 128).map(|i| sum(i / 128, i % 128)).collect();
    let tensor = Tensor {
        buffer: 0,
        offset: 0,
        dtype: Dtype::F32,
        dims: vec![pages as u64, 20, 128],
        strides: vec![record as u64, 128],
        tensor_box: TensorBox { tile: [8, 32], swizzle: Xor16 },
    };
    Case {
        name: "pages".into(),
        grid: [pages as u32, 1, 1],
        buffers: vec![
            Buffer::from_bytes("pages", Dtype::F32, x.iter().flat_map(|x| x.to_le_bytes()).collect()),
            Buffer::poisoned("sums", Dtype::F32, expected.len() * 4),
        ],
        args: vec![Arg::Tensor(tensor), pointer(1)],
        verify: expects("sums", 1, expected),
    }
}

/// Four pages of 20 rows of 32, and where they go: records so much larger that what lies between them shows any stray byte.
fn doubled_case() -> Case {
    let pages = 4;
    let x: Vec<f32> = (0..pages * 20 * 32).map(|i| (i % 31) as f32).collect();
    let mut expected = vec![u32::MAX; pages * 24 * 40];
    for (i, x) in x.iter().enumerate() {
        let (page, row, column) = (i / 640, i / 32 % 20, i % 32);
        expected[(page * 24 + row) * 40 + column] = (2.0 * x).to_bits();
    }
    let tensor = |buffer, strides: [u64; 2]| {
        let tensor_box = TensorBox { tile: [8, 32], swizzle: Xor16 };
        let (dims, strides) = (vec![pages as u64, 20, 32], strides.to_vec());
        Arg::Tensor(Tensor { buffer, offset: 0, dtype: Dtype::F32, dims, strides, tensor_box })
    };
    Case {
        name: "doubled".into(),
        grid: [pages as u32 / 2, 1, 1],
        buffers: vec![
            Buffer::from_bytes("x", Dtype::F32, x.iter().flat_map(|x| x.to_le_bytes()).collect()),
            Buffer::poisoned("doubled", Dtype::F32, expected.len() * 4),
        ],
        args: vec![tensor(0, [640, 32]), tensor(1, [24 * 40, 40])],
        verify: expects("doubled", 1, expected),
    }
}

fn squares_case() -> Case {
    Case {
        name: "squares".into(),
        grid: [1; 3],
        buffers: vec![Buffer::poisoned("squares", Dtype::I32, 1024)],
        args: vec![pointer(0)],
        verify: expects("squares", 0, (0..256).map(|i| i * i).collect()),
    }
}

#[test]
fn they_are_right_under_every_schedule_on_every_target() {
    for target in Target::ALL {
        let clean = |kernel: Kernel, case: Case| {
            let (findings, failures) = run(&kernel, target, &case);
            let text: Vec<String> = findings.iter().map(ToString::to_string).collect();
            assert!(text.is_empty() && failures.is_empty(), "{}: {text:#?}\n{failures:#?}", kernel.name);
        };
        for blocks in [0, 1, 3, 8] {
            clean(sum_rows(Fault::None).unwrap(), sums_case(4, 96, blocks, 0..96));
        }
        clean(sum_copied(Fault::None).unwrap(), sums_case(1, 128, 7, (64..128).rev()));
        clean(squares(Fault::None).unwrap(), squares_case());
        clean(sum_pages(Fault::None).unwrap(), pages_case());
        clean(double_pages(Fault::None).unwrap(), doubled_case());
    }
}

/// The line of this file that holds `snippet`, which stands on one line of the kernels.
fn line(snippet: &str) -> u32 {
    let lines: Vec<usize> = include_str!("async_copies.rs")
        .lines()
        .enumerate()
        .filter(|(_, line)| line.contains(snippet))
        .map(|(i, _)| i)
        .collect();
    lines[0] as u32 + 1
}

/// Every schedule but the harmless ones finds a fault of one of these kinds, at this line.
#[track_caller]
fn found(kernel: &Kernel, case: &Case, kinds: &[FindingKind], at: &str) {
    let (findings, _) = run(kernel, Target::Sm120a, case);
    let here = |finding: &Finding| {
        let place = finding.access.as_ref().and_then(|access| access.rust);
        kinds.contains(&finding.kind) && place.is_some_and(|loc| loc.line == line(at))
    };
    let found: Vec<String> = findings.iter().map(|finding| format!("{:?} {finding}", finding.kind)).collect();
    assert!(findings.iter().any(here), "expected {kinds:?} at `{at}`: {found:#?}");
}

#[test]
fn planted_faults_of_the_ring_are_found() {
    use FindingKind::{BarrierMisuse, CopyInFlight, Deadlock, ProxyFence, SharedRace};
    let load = "sum += ring.stage(at.stage).at(row, column).load();";
    let refill = "stage.copy_bulk(x.at(block * (ROWS * 96)), filled);";
    let wait = "full.at(at.stage).wait(if fault";
    for (fault, kinds, at) in [
        (Fault::NoBytes, &[CopyInFlight, SharedRace][..], load),
        (Fault::FewBytes, &[BarrierMisuse], "filled.arrive_expect_tx(stage.bytes() - 16);"),
        (Fault::ManyBytes, &[Deadlock], wait),
        (Fault::OldParity, &[CopyInFlight], load),
        (Fault::NewParity, &[Deadlock], wait),
        (Fault::NoEmpty, &[CopyInFlight, SharedRace], refill),
        (Fault::NoWarpSync, &[SharedRace], refill),
        (Fault::NoInitFence, &[ProxyFence], refill),
        (Fault::NoInitSync, &[SharedRace, BarrierMisuse], wait),
    ] {
        let kernel = sum_rows(fault).unwrap();
        found(&kernel, &sums_case(4, 96, 8, 0..96), kinds, at);
    }
}

#[test]
fn planted_faults_of_stores_are_found() {
    let case = squares_case();
    let store = "tile.store_bulk(squares.at(half * 128));";
    found(&squares(Fault::NoProxyFence).unwrap(), &case, &[FindingKind::ProxyFence], store);
    found(
        &squares(Fault::NoStoreWait).unwrap(),
        &case,
        &[FindingKind::CopyInFlight],
        "tile.at(0, thread::id()).store(i * i);",
    );
}

#[test]
fn an_arrival_that_does_not_wait_for_its_lanes_copies_is_found() {
    let case = sums_case(1, 128, 7, (64..128).rev());
    let load = "sum += ring.stage(at.stage).at(0, 127 - thread::id()).load();";
    found(&sum_copied(Fault::NoBytes).unwrap(), &case, &[FindingKind::CopyInFlight], load);
}

#[test]
fn planted_faults_of_tensor_copies_are_found() {
    let case = pages_case();
    let load = "sum += tile.at(row, lane::id()).load();";
    let refill = "tile.copy_tensor(pages, [page, Scalar::from(part * 8), first], full.at(0));";
    for (fault, kind, at) in [
        (Fault::FewBytes, FindingKind::BarrierMisuse, refill),
        (Fault::OldParity, FindingKind::CopyInFlight, load),
        (Fault::NoWarpSync, FindingKind::SharedRace, refill),
        (Fault::NoInitSync, FindingKind::SharedRace, "full.at(0).wait(if fault == Fault::OldParity"),
    ] {
        found(&sum_pages(fault).unwrap(), &case, &[kind], at);
    }
}

#[test]
fn planted_faults_of_tensor_stores_are_found() {
    let case = doubled_case();
    let store = "tile.store_tensor(doubled, corner);";
    let refill = "tile.copy_tensor(x, corner, full.at(0));";
    for (fault, kinds, at) in [
        (Fault::NoProxyFence, &[FindingKind::ProxyFence][..], store),
        (Fault::NoWarpSync, &[FindingKind::ProxyFence, FindingKind::SharedRace], store),
        (Fault::NoStoreWait, &[FindingKind::CopyInFlight, FindingKind::SharedRace], refill),
    ] {
        found(&double_pages(fault).unwrap(), &case, kinds, at);
    }
}
