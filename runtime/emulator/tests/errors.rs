//! Bad input is a typed error that names the place, never a panic.

mod common;

use common::{Memory, kernel, text};
use lathe_emulator::{Error, FindingKind, GlobalMemory, Init, Launch, Module, Options};

const HEAD: &str = ".version 9.0\n.target sm_120a\n.address_size 64\n";

fn body(instructions: &str) -> String {
    format!(
        "{HEAD}.visible .entry k(.param .u64 p)\n{{\n.reg .b32 %r<9>;\n.reg .b64 %rd<9>;\n.reg .pred %p<9>;\n{instructions}\nret;\n}}\n"
    )
}

fn entry_error(instructions: &str) -> Error {
    Module::parse(body(instructions)).unwrap().entry("k").unwrap_err()
}

#[test]
fn text_that_is_not_utf8_names_its_line() {
    let error = Module::parse(b".version 9.0\n.target sm_90\n\xff\xfe").unwrap_err();
    assert_eq!(error, Error::NotUtf8 { line: 3 });
}

#[test]
fn truncated_text_is_refused_wherever_it_ends() {
    let whole = text("basics");
    // Every cut inside the first kernels; a cut between two kernels leaves a whole module.
    let mut refused = 0;
    for cut in (0..whole.len().min(6000)).step_by(37).filter(|&i| whole.is_char_boundary(i)) {
        match Module::parse(&whole[..cut]) {
            Err(Error::Syntax { line, .. } | Error::Header { line, .. }) => {
                refused += 1;
                assert!(line as usize <= whole[..cut].lines().count().max(1));
            }
            Err(other) => panic!("{other}"),
            Ok(module) => assert!(module.entries().count() < 9),
        }
    }
    assert!(refused > 100);
}

#[test]
fn a_wrong_version_or_target_is_named() {
    let message = |text: &str| Module::parse(text).unwrap_err().to_string();
    assert!(message(".version 1.4\n.target sm_90\n").contains(".version 1.4"));
    assert!(message(".version 9.0\n.target compute_90\n").contains("compute_90"));
    assert!(message("#include <cuda.h>\n").contains("line 1"));
    assert!(message("").contains(".version"));
}

#[test]
fn an_unknown_opcode_is_named_with_its_line() {
    let error = entry_error("add.s32 %r1, %r2, %r3;\nfrobnicate.b32 %r1, %r2;");
    assert_eq!(error, Error::UnknownOpcode { line: 10, opcode: "frobnicate.b32".into() });
}

#[test]
fn an_unknown_modifier_is_named_with_its_line() {
    let error = entry_error("add.s32.sideways %r1, %r2, %r3;");
    let Error::Unsupported { line: 9, what, .. } = &error else { panic!("{error}") };
    assert!(what.contains("sideways"), "{what}");
}

#[test]
fn instructions_of_other_machines_are_refused_by_name() {
    for opcode in [
        "tcgen05.wait::ld.sync.aligned;",
        "wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {%r1, %r2, %r3, %r4}, [%rd1];",
    ] {
        let message = entry_error(opcode).to_string();
        assert!(
            message.contains("line 9") && message.contains(opcode.split(' ').next().unwrap().trim_end_matches(';')),
            "{message}"
        );
    }
}

#[test]
fn a_register_of_the_wrong_width_is_refused() {
    let error = entry_error("add.s32 %r1, %rd2, %r3;");
    assert!(matches!(error, Error::Unsupported { line: 9, .. }), "{error}");
}

#[test]
fn an_unknown_register_or_label_is_named() {
    let error = Module::parse(body("@%q1 bra DONE;")).unwrap_err();
    assert!(error.to_string().contains("%q1"), "{error}");
    let error = entry_error("bra NOWHERE;");
    assert!(error.to_string().contains("NOWHERE"), "{error}");
}

#[test]
fn a_missing_entry_lists_the_ones_there_are() {
    let error = common::module("basics").entry("nothing").unwrap_err();
    assert!(error.to_string().contains("`collatz`"), "{error}");
}

#[test]
fn arguments_are_counted_and_measured() {
    let k = kernel("basics", "waves");
    let mut m = GlobalMemory::default();
    let launch = Launch::new([1, 1, 1], [32, 1, 1]).arg(1u64).arg(1u64);
    let error = k.launch(&launch, &mut m, &Options::default()).unwrap_err();
    assert_eq!(error, Error::ArgumentCount { kernel: "waves".into(), expected: 3, given: 2 });
    let error = k.launch(&launch.arg(1u64), &mut m, &Options::default()).unwrap_err();
    assert!(matches!(error, Error::ArgumentSize { index: 2, expected: 4, given: 8, .. }), "{error}");
}

#[test]
fn shapes_past_the_limits_are_refused() {
    let k = kernel("basics", "local_table");
    let message = |grid, block| {
        let launch = Launch::new(grid, block).arg(0u64).arg(1i32);
        k.launch(&launch, &mut GlobalMemory::default(), &Options::default()).unwrap_err().to_string()
    };
    assert!(message([0, 1, 1], [32, 1, 1]).contains("grid.x is 0"));
    assert!(message([1, 70_000, 1], [32, 1, 1]).contains("grid.y is 70000"));
    assert!(message([1, 1, 1], [2048, 1, 1]).contains("block.x is 2048"));
    assert!(message([1, 1, 1], [64, 32, 1]).contains("2048 threads"));
    let launch = Launch::new([1, 1, 1], [32, 1, 1]).dynamic_shared(1 << 20).arg(0u64).arg(1i32);
    let error = k.launch(&launch, &mut GlobalMemory::default(), &Options::default()).unwrap_err();
    assert!(error.to_string().contains("1048576 bytes of shared memory"), "{error}");
    let launch = Launch::new([1, 1, 1], [256, 1, 1]).dynamic_shared(49152);
    let launch = (0..6).fold(launch, |l, _| l.arg(0u64)).arg(0i32).arg(0i32).arg(0i32);
    let error =
        kernel("matrix", "logits_bf16").launch(&launch, &mut GlobalMemory::default(), &Options::default()).unwrap_err();
    assert!(error.to_string().contains(".maxntid"), "{error}");
}

#[test]
fn an_endless_loop_ends_at_the_step_limit() {
    let k = Module::parse(body("FOREVER:\nadd.s32 %r1, %r1, 1;\nbra FOREVER;")).unwrap().entry("k").unwrap();
    let options = Options { step_limit: 100_000, ..Options::default() };
    let error =
        k.launch(&Launch::new([1, 1, 1], [32, 1, 1]).arg(0u64), &mut GlobalMemory::default(), &options).unwrap_err();
    assert!(matches!(error, Error::StepLimit { line: 10 | 11, limit: 100_000, .. }), "{error}");
}

#[test]
fn lanes_may_end_before_a_barrier_unless_the_source_cannot_return_early() {
    let early = "mov.u32 %r1, %tid.x;\nsetp.gt.u32 %p1, %r1, 40;\n@%p1 ret;\nbar.sync 0;";
    let k = Module::parse(body(early)).unwrap().entry("k").unwrap();
    let findings = |early_exit| {
        let options = Options { early_exit, ..Options::default() };
        let launch = Launch::new([1, 1, 1], [96, 1, 1]).arg(0u64);
        k.launch(&launch, &mut GlobalMemory::default(), &options).unwrap().findings
    };
    assert_eq!(findings(true), []);
    // Lanes of the second warp, and the whole third.
    let kinds: Vec<_> = findings(false).iter().map(|finding| finding.kind).collect();
    assert_eq!(kinds, [FindingKind::DivergentCollective, FindingKind::BarrierMisuse]);
}

#[test]
fn memory_maps_are_checked() {
    let mut m = GlobalMemory::default();
    m.map("a", 0x1000, 256, Init::Zero).unwrap();
    let message = |m: &mut GlobalMemory, address, len, init| m.map("b", address, len, init).unwrap_err().to_string();
    assert!(message(&mut m, 0x1080, 16, Init::Zero).contains("overlaps `a`"));
    assert!(message(&mut m, 0xf00, 4096, Init::Zero).contains("overlaps `a`"));
    assert!(message(&mut m, 0x2000, 0, Init::Zero).contains("empty"));
    assert!(message(&mut m, 0x2001, 16, Init::Zero).contains("multiple of 16"));
    assert!(message(&mut m, 0x2000, 16, Init::Bytes(&[1])).contains("1 bytes"));
    assert_eq!(m.read(0x10f8, &mut [0; 16]), Err(Error::NotMapped { address: 0x10f8, len: 16 }));
}

#[test]
fn writes_to_read_only_memory_are_found_and_not_done() {
    let k = kernel("basics", "local_table");
    let mut m = Memory::default();
    let out = m.with("out", &[5i32; 32]);
    m.0.protect(out, lathe_emulator::Rights::ReadOnly);
    let report = common::run(&k, &Launch::new([1, 1, 1], [32, 1, 1]).arg(out).arg(3i32), &mut m, &Options::default());
    assert_eq!(report.findings[0].kind, lathe_emulator::FindingKind::ReadOnly);
    assert_eq!(m.read::<i32>(out, 32), [5; 32]);
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig { cases: 300, ..Default::default() })]

    /// Real PTX with bytes changed: whatever happens, no panic.
    #[test]
    fn damaged_ptx_never_panics(changes in proptest::collection::vec((0usize..6000, 0u8..128), 1..12)) {
        let mut bytes = text("basics").into_bytes();
        for (at, byte) in changes {
            bytes[at] = byte;
        }
        if let Ok(module) = Module::parse(&bytes) {
            let names: Vec<String> = module.entries().map(String::from).collect();
            for name in names {
                let _ = module.entry(&name);
            }
        }
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig { cases: 150, ..Default::default() })]

    /// Kernels with digits and registers exchanged: they do something else, wrong in some way, and still no panic.
    #[test]
    fn damaged_kernels_run_without_a_panic(
        file in proptest::sample::select(vec!["basics", "matrix", "async"]),
        changes in proptest::collection::vec((0.0f64..1.0, proptest::sample::select(b"0123456789".to_vec())), 1..40),
        seed in 0u64..3,
    ) {
        let mut bytes = text(file).into_bytes();
        let digits: Vec<usize> = (300..bytes.len()).filter(|&i| bytes[i].is_ascii_digit()).collect();
        for (at, digit) in changes {
            bytes[digits[(at * digits.len() as f64) as usize]] = digit;
        }
        let Ok(module) = Module::parse(&bytes) else { return Ok(()) };
        let names: Vec<String> = module.entries().map(String::from).collect();
        for name in names {
            let Ok(kernel) = module.entry(&name) else { continue };
            let mut m = Memory::default();
            let buffer = m.with("buffer", &[1u8; 4096]);
            let mut launch = Launch::new([2, 1, 1], [64, 1, 1]).dynamic_shared(49152);
            launch.params = kernel.params().iter().map(|p| [buffer.to_le_bytes(), 7u64.to_le_bytes()].concat().repeat(p.size)[..p.size].to_vec()).collect();
            let options = Options { seed, step_limit: 20_000, ..Options::default() };
            let _ = kernel.launch(&launch, &mut m.0, &options);
        }
    }
}
