//! Definedness, declared accesses, the dependency wait, races between CTAs, traffic.

mod common;

use common::{Memory, kernel, run, run_clean};
use lathe_emulator::{Address, Checks, Declaration, Effect, FindingKind, Kernel, Launch, Module, Options, Report};

/// A kernel over registers %r, %f, %rd, %p, %h with parameters a, b, c (u64) and n (u32); %rd1..3 hold a..c plus 4 * tid, %r1 tid.
fn ptx(instructions: &str) -> Kernel {
    let text = format!(
        ".version 9.0\n.target sm_120a\n.address_size 64\n\
         .visible .entry k(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n)\n{{\n\
         .reg .b32 %r<40>;\n.reg .f32 %f<40>;\n.reg .b64 %rd<20>;\n.reg .pred %p<9>;\n.reg .b16 %h<9>;\n.shared .align 16 .b8 tile[4096];\n\
         mov.u32 %r1, %tid.x;\nmul.wide.u32 %rd9, %r1, 4;\n\
         ld.param.u64 %rd1, [a];\nadd.s64 %rd1, %rd1, %rd9;\nld.param.u64 %rd2, [b];\nadd.s64 %rd2, %rd2, %rd9;\n\
         ld.param.u64 %rd3, [c];\nadd.s64 %rd3, %rd3, %rd9;\n{instructions}\nret;\n}}\n"
    );
    Module::parse(text).unwrap().entry("k").unwrap_or_else(|e| panic!("{e}"))
}

struct Buffers {
    memory: Memory,
    a: u64,
    b: u64,
    c: u64,
}

/// a is defined (0, 1, 2, ...), b is not, c is an output.
fn buffers() -> Buffers {
    let mut memory = Memory::default();
    let a = memory.with("a", &(0..64u32).collect::<Vec<_>>());
    let (b, c) = (memory.undefined("b", 256), memory.undefined("c", 256));
    Buffers { memory, a, b, c }
}

fn declare(name: &str, address: u64, effect: Effect) -> Declaration {
    Declaration { name: name.into(), address, len: 256, effect, before_wait: false, racy: 0..0 }
}

fn launch(x: &Buffers, ctas: u32) -> Launch {
    Launch::new([ctas, 1, 1], [64, 1, 1]).arg(x.a).arg(x.b).arg(x.c).arg(64u32)
}

fn with_output(k: &Kernel) -> (Report, Buffers) {
    let mut x = buffers();
    let l = launch(&x, 1)
        .declare(declare("a", x.a, Effect::Read))
        .declare(declare("b", x.b, Effect::Read))
        .declare(declare("c", x.c, Effect::WriteAll));
    let report = run(k, &l, &mut x.memory, &Options::default());
    (report, x)
}

fn kinds(report: &Report) -> Vec<FindingKind> {
    report.findings.iter().map(|f| f.kind).collect()
}

const STORE: &str = "st.global.u32 [%rd3], %r5;";

#[test]
fn undefined_bits_that_reach_an_output_are_reported_there() {
    let (report, _) = with_output(&ptx(&format!("ld.global.u32 %r4, [%rd2];\nadd.s32 %r5, %r4, 1;\n{STORE}")));
    assert_eq!(kinds(&report), [FindingKind::Undefined]);
    assert!(report.findings[0].detail.contains("`c`"), "{:?}", report.findings[0]);
    assert_eq!(report.findings[0].access.opcode, "st.global.u32");
}

#[test]
fn undefined_bits_may_be_loaded_moved_and_masked_away() {
    for harmless in [
        // Loaded and thrown away.
        "ld.global.u32 %r4, [%rd2];\nadd.s32 %r6, %r4, 1;\nld.global.u32 %r5, [%rd1];",
        // Selected away by a defined predicate.
        "ld.global.u32 %r4, [%rd2];\nsetp.lt.u32 %p1, %r1, 100;\nselp.b32 %r5, %r1, %r4, %p1;",
        // Masked away.
        "ld.global.u32 %r4, [%rd2];\nand.b32 %r5, %r4, 0;",
        // Only the undefined half is dropped.
        "ld.global.u32 %r4, [%rd2];\nmov.b32 {%h1, %h2}, %r4;\nmov.b32 {%h3, %h4}, %r1;\nmov.b32 %r5, {%h3, %h4};",
        "ld.global.u32 %r4, [%rd2];\nprmt.b32 %r5, %r4, %r1, 0x7654;",
        "ld.global.u32 %r4, [%rd2];\nshl.b32 %r6, %r4, 16;\nand.b32 %r6, %r6, 0xffff;\nadd.s32 %r5, %r6, %r1;",
        // Through shared memory, and overwritten there.
        "ld.global.u32 %r4, [%rd2];\nmov.u32 %r7, tile;\nshl.b32 %r8, %r1, 2;\nadd.s32 %r7, %r7, %r8;\nst.shared.u32 [%r7], %r4;\nst.shared.u32 [%r7], %r1;\nld.shared.u32 %r5, [%r7];",
        // From lanes that are not asked.
        "mov.u32 %r4, %r1;\nsetp.gt.u32 %p1, %laneid, 15;\n@%p1 ld.global.u32 %r4, [%rd2];\nshfl.sync.idx.b32 %r5, %r4, 3, 31, -1;",
    ] {
        let (report, _) = with_output(&ptx(&format!("{harmless}\n{STORE}")));
        assert_eq!(report.findings, [], "{harmless}");
    }
}

#[test]
fn undefined_bits_are_followed_through_what_moves_them() {
    for harmful in [
        "ld.global.u32 %r4, [%rd2];\nmov.u32 %r7, tile;\nshl.b32 %r8, %r1, 2;\nadd.s32 %r7, %r7, %r8;\nst.shared.u32 [%r7], %r4;\nld.shared.u32 %r5, [%r7];",
        "mov.u32 %r7, tile;\nld.shared.u32 %r5, [%r7];",
        "mov.u32 %r4, %r1;\nsetp.gt.u32 %p1, %laneid, 15;\n@%p1 ld.global.u32 %r4, [%rd2];\nshfl.sync.idx.b32 %r5, %r4, 20, 31, -1;",
        "ld.global.u32 %r4, [%rd2];\nmov.b32 {%h1, %h2}, %r4;\nmov.b32 %r5, {%h1, %h1};",
        "ld.global.u32 %r4, [%rd2];\ncvt.rn.f32.s32 %f1, %r4;\ncvt.rzi.s32.f32 %r5, %f1;",
        "ld.global.u8 %r5, [%rd2];",
        // A register that was never written.
        "add.s32 %r5, %r30, 1;",
    ] {
        let (report, _) = with_output(&ptx(&format!("{harmful}\n{STORE}")));
        assert_eq!(kinds(&report), [FindingKind::Undefined], "{harmful}");
    }
}

#[test]
fn undefined_bits_spread_through_mma_by_row_and_column_only() {
    // A's row 0 (lanes 0 to 3 of the first register) is undefined: D's row 0 is, row 8 and the rest are not.
    let mma = |stored: &str| {
        ptx(&format!(
            "mov.u32 %r4, %r1;\nsetp.lt.u32 %p1, %laneid, 4;\n@%p1 ld.global.u32 %r4, [%rd2];\nmov.f32 %f0, 0f00000000;\n\
             mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {{%f1, %f2, %f3, %f4}}, {{%r4, %r1, %r1, %r1}}, {{%r1, %r1}}, {{%f0, %f0, %f0, %f0}};\n\
             mov.b32 %r5, %r1;\n{stored}\n{STORE}"
        ))
    };
    let (report, _) = with_output(&mma("mov.b32 %r5, %f3;"));
    assert_eq!(report.findings, [], "rows 8 to 15 do not depend on row 0 of A");
    let (report, _) = with_output(&mma("@!%p1 mov.b32 %r5, %f1;"));
    assert_eq!(report.findings, [], "rows 1 to 7 do not depend on row 0 of A");
    let (report, _) = with_output(&mma("@%p1 mov.b32 %r5, %f2;"));
    assert_eq!(kinds(&report), [FindingKind::Undefined]);
}

#[test]
fn an_undefined_address_or_predicate_is_reported() {
    let (report, _) = with_output(&ptx(&format!(
        "ld.global.u32 %r4, [%rd2];\nsetp.eq.s32 %p1, %r4, 7;\nmov.u32 %r5, 1;\n@%p1 mov.u32 %r5, 2;\n{STORE}"
    )));
    assert!(
        kinds(&report).contains(&FindingKind::Undefined) && report.findings[0].detail.contains("predicate"),
        "{report:#?}"
    );
    let (report, _) = with_output(&ptx(&format!(
        "ld.global.u32 %r4, [%rd2];\nand.b32 %r4, %r4, 60;\nmov.u32 %r7, tile;\nadd.s32 %r7, %r7, %r4;\nst.shared.u32 [%r7], %r1;\nmov.u32 %r5, 1;\n{STORE}"
    )));
    assert!(
        report.findings.iter().any(|f| f.kind == FindingKind::Undefined && f.detail.contains("address")),
        "{report:#?}"
    );
}

#[test]
fn definedness_passes_from_launch_to_launch() {
    let copy = ptx("ld.global.u32 %r5, [%rd2];\nst.global.u32 [%rd3], %r5;");
    let mut x = buffers();
    let l = launch(&x, 1);
    run_clean(&copy, &l, &mut x.memory, &Options::default());
    assert!(!x.memory.0.is_defined(x.c, 4).unwrap());
    x.memory.0.write(x.b, &[0; 256]).unwrap();
    run_clean(&copy, &l, &mut x.memory, &Options::default());
    assert!(x.memory.0.is_defined(x.c, 256).unwrap());
}

#[test]
fn accesses_against_the_declarations_are_reported() {
    let copy = ptx("ld.global.u32 %r5, [%rd1];\nst.global.u32 [%rd3], %r5;");
    let case = |a: Effect, c: Effect| {
        let mut x = buffers();
        let l = launch(&x, 1).declare(declare("a", x.a, a)).declare(declare("c", x.c, c));
        run(&copy, &l, &mut x.memory, &Options::default())
    };
    assert_eq!(case(Effect::Read, Effect::WriteAll).findings, []);
    assert_eq!(case(Effect::ReadWrite, Effect::WritePart).findings, []);
    assert_eq!(kinds(&case(Effect::WritePart, Effect::WriteAll)), [FindingKind::Undeclared]);
    let report = case(Effect::Read, Effect::Read);
    assert_eq!(kinds(&report), [FindingKind::Undeclared]);
    assert!(report.findings[0].detail.contains("`c` is declared read"), "{report:#?}");
}

#[test]
fn a_buffer_that_is_not_declared_at_all_is_reported() {
    let copy = ptx("ld.global.u32 %r5, [%rd1];\nst.global.u32 [%rd3], %r5;");
    let mut x = buffers();
    let l = launch(&x, 1).declare(declare("c", x.c, Effect::WriteAll));
    assert_eq!(kinds(&run(&copy, &l, &mut x.memory, &Options::default())), [FindingKind::Undeclared]);
}

#[test]
fn write_all_must_write_every_byte() {
    let half = ptx("setp.gt.u32 %p1, %r1, 31;\n@%p1 ret;\nst.global.u32 [%rd3], %r1;");
    let (report, _) = with_output(&half);
    assert_eq!(kinds(&report), [FindingKind::Undeclared]);
    assert!(report.findings[0].detail.contains("byte 128"), "{report:#?}");
}

#[test]
fn what_is_touched_before_the_dependency_wait_is_reported_unless_declared() {
    let early = ptx("ld.global.u32 %r5, [%rd1];\ngriddepcontrol.wait;\nst.global.u32 [%rd3], %r5;");
    let (report, _) = with_output(&early);
    assert_eq!(kinds(&report), [FindingKind::BeforeWait]);
    assert!(report.every_cta_waited);
    let mut x = buffers();
    let constant = Declaration { before_wait: true, ..declare("a", x.a, Effect::Read) };
    let l = launch(&x, 1).declare(constant).declare(declare("c", x.c, Effect::WriteAll));
    assert_eq!(run(&early, &l, &mut x.memory, &Options::default()).findings, []);
}

#[test]
fn a_cta_that_skips_the_dependency_wait_is_told() {
    let k = ptx("mov.u32 %r9, %ctaid.x;\nsetp.eq.u32 %p1, %r9, 1;\n@%p1 ret;\ngriddepcontrol.wait;");
    let mut x = buffers();
    let l = launch(&x, 2);
    assert!(!run_clean(&k, &l, &mut x.memory, &Options::default()).every_cta_waited);
}

#[test]
fn ctas_that_write_the_same_bytes_race() {
    let k = ptx("mov.u32 %r9, %ctaid.x;\nst.global.u32 [%rd3], %r9;");
    let mut x = buffers();
    let l = launch(&x, 3);
    let report = run(&k, &l, &mut x.memory, &Options::default());
    assert_eq!(kinds(&report), [FindingKind::GlobalRace]);
    assert_ne!(report.findings[0].access.cta, report.findings[0].other.as_ref().unwrap().cta);
    // Each word that they write is exempt, or the one word that is not is found.
    let exempt = |racy| Declaration { racy, ..declare("c", x.c, Effect::WriteAll) };
    let whole = l.clone().declare(exempt(0..256));
    assert_eq!(run(&k, &whole, &mut x.memory, &Options::default()).findings, []);
    let report = run(&k, &l.declare(exempt(0..252)), &mut x.memory, &Options::default());
    assert_eq!(kinds(&report), [FindingKind::GlobalRace]);
    let Some(Address::Global { offset, .. }) = report.findings[0].address else { panic!("{report:?}") };
    assert_eq!(offset, 252);
}

#[test]
fn ctas_that_read_what_another_writes_race() {
    let k = ptx(
        "mov.u32 %r9, %ctaid.x;\nsetp.eq.u32 %p1, %r9, 0;\n@%p1 st.global.u32 [%rd1], %r9;\n@!%p1 ld.global.u32 %r5, [%rd1];",
    );
    let mut x = buffers();
    let l = launch(&x, 2);
    assert_eq!(kinds(&run(&k, &l, &mut x.memory, &Options::default())), [FindingKind::GlobalRace]);
}

/// Threads of one CTA: thread t writes word t of `a`, then whatever `between` says, then reads the word of thread t + 1 (within
/// its warp) or t + 32 (across the two).
fn handed_on(between: &str, across: bool) -> Kernel {
    let step = if across { 32 } else { 1 };
    ptx(&format!(
        "st.global.u32 [%rd1], %r1;\n{between}\nadd.s32 %r4, %r1, {step};\nand.b32 %r4, %r4, 63;\n\
         mul.wide.u32 %rd10, %r4, 4;\nld.param.u64 %rd11, [a];\nadd.s64 %rd11, %rd11, %rd10;\nld.global.u32 %r5, [%rd11];\n{STORE}"
    ))
}

#[test]
fn threads_that_read_what_another_of_their_cta_writes_need_a_barrier() {
    let findings = |between, across| {
        let mut x = buffers();
        let l = launch(&x, 1);
        run(&handed_on(between, across), &l, &mut x.memory, &Options::default()).findings
    };
    for across in [false, true] {
        assert_eq!(findings("bar.sync 0;", across), [], "a CTA barrier orders all threads");
        let races = findings("", across);
        assert!(races.iter().all(|race| race.kind == FindingKind::GlobalRace), "{races:?}");
        // Whichever of the two comes later, the pair is named.
        let pair = |race: &lathe_emulator::Finding| {
            let other = race.other.as_ref().unwrap();
            assert_eq!(race.access.cta, other.cta);
            ([&race.access.opcode, &other.opcode].map(ToString::to_string), race.access.warp != other.warp)
        };
        let read_after_write = (["ld.global.u32", "st.global.u32"].map(String::from), across);
        assert!(races.iter().map(pair).any(|found| found == read_after_write), "{races:?}");
    }
    // A warp barrier is no order between warps.
    assert_ne!(findings("bar.warp.sync -1;", true), []);
    // Within a warp it is: only lanes 31 and 63 read a word of the other one.
    for race in findings("bar.warp.sync -1;", false) {
        assert_ne!(race.access.warp, race.other.unwrap().warp);
    }
}

#[test]
fn threads_that_store_to_one_word_race_unless_they_agree() {
    let store = |value| {
        let k = ptx(&format!("ld.param.u64 %rd11, [c];\nst.global.u32 [%rd11], {value};"));
        let mut x = buffers();
        let l = launch(&x, 1);
        kinds(&run(&k, &l, &mut x.memory, &Options::default()))
    };
    assert_eq!(store("7"), []);
    assert_eq!(store("%r1"), [FindingKind::GlobalRace]);
}

#[test]
fn what_threads_pass_on_by_atomics_or_strong_accesses_does_not_race() {
    // Thread 63 writes word 0, then the flag; thread 0 waits for the flag, then reads the word.
    for (publish, watch) in [
        ("red.global.add.u32 [%rd12], 1;", "atom.global.add.u32 %r6, [%rd12], 0;"),
        ("st.release.gpu.global.u32 [%rd12], 1;", "ld.acquire.gpu.global.u32 %r6, [%rd12];"),
        ("st.volatile.global.u32 [%rd12], 1;", "ld.volatile.global.u32 %r6, [%rd12];"),
    ] {
        let k = ptx(&format!(
            "ld.param.u64 %rd11, [a];\nld.param.u64 %rd12, [b];\nsetp.eq.u32 %p1, %r1, 63;\nsetp.eq.u32 %p2, %r1, 0;\n\
             @%p1 st.global.u32 [%rd11], %r1;\n@%p1 {publish}\n@!%p2 bra done;\n\
             again:\n{watch}\nsetp.eq.u32 %p3, %r6, 0;\n@%p3 bra again;\nld.global.u32 %r5, [%rd11];\n{STORE}\ndone:"
        ));
        let mut x = buffers();
        x.memory.0.write(x.b, &[0; 256]).unwrap();
        let l = launch(&x, 1);
        run_clean(&k, &l, &mut x.memory, &Options { seed: 5, ..Options::default() });
        assert_eq!(x.memory.read::<u32>(x.c, 1), [63], "{watch}");
    }
}

#[test]
fn work_handed_over_by_an_atomic_does_not_race() {
    // The last CTA to arrive reads what the others wrote.
    let k = ptx(
        "mov.u32 %r9, %ctaid.x;\nmul.wide.u32 %rd10, %r9, 4;\nld.param.u64 %rd11, [a];\nadd.s64 %rd11, %rd11, %rd10;\n\
         ld.param.u64 %rd12, [c];\nsetp.ne.u32 %p1, %r1, 0;\n@%p1 ret;\n\
         st.global.u32 [%rd11], %r9;\nmembar.gl;\natom.global.add.u32 %r4, [%rd12], 1;\nsetp.ne.u32 %p2, %r4, 3;\n@%p2 ret;\n\
         ld.param.u64 %rd11, [a];\nld.global.v4.u32 {%r5, %r6, %r7, %r8}, [%rd11];\nadd.s32 %r5, %r5, %r6;\nadd.s32 %r5, %r5, %r7;\nadd.s32 %r5, %r5, %r8;\n\
         st.global.u32 [%rd12+4], %r5;",
    );
    for seed in 0..5 {
        let mut x = buffers();
        x.memory.0.write(x.c, &[0; 8]).unwrap();
        let l = launch(&x, 4);
        run_clean(&k, &l, &mut x.memory, &Options { seed, ..Options::default() });
        assert_eq!(x.memory.read::<u32>(x.c, 2), [4, 6]);
    }
}

#[test]
fn traffic_counts_bank_conflicts_and_sectors() {
    let k = ptx("mov.u32 %r7, tile;\nshl.b32 %r8, %r1, 2;\nadd.s32 %r10, %r7, %r8;\nst.shared.u32 [%r10], %r1;\n\
         shl.b32 %r8, %r1, 5;\nadd.s32 %r11, %r7, %r8;\nst.shared.u32 [%r11], %r1;\nld.global.u32 %r4, [%rd1];");
    let mut x = buffers();
    let l = Launch::new([1, 1, 1], [32, 1, 1]).arg(x.a).arg(x.b).arg(x.c).arg(64u32);
    let options = Options { traffic: true, checks: Checks::NONE, ..Options::default() };
    let report = run_clean(&k, &l, &mut x.memory, &options);
    let counts: Vec<_> = report.traffic.iter().filter(|t| !t.opcode.contains("param")).map(|t| t.counts).collect();
    assert_eq!((counts[0].wavefronts, counts[0].ideal_wavefronts), (1, 1));
    assert_eq!((counts[1].wavefronts, counts[1].ideal_wavefronts), (8, 1));
    assert_eq!((counts[2].sectors, counts[2].ideal_sectors, counts[2].bytes), (4, 4, 128));
}

#[test]
fn padded_tails_of_a_page_influence_nothing_in_the_logits_kernel() {
    // The page is 64 keys long and 40 are written; the other keys' bits are undefined, and no output depends on them.
    let k = kernel("matrix", "logits_bf16");
    let mut m = Memory::default();
    let out = m.with("logits", &[0f32; 64]);
    let keys = m.undefined("keys", 64 * 256);
    m.0.write(keys, bytemuck::cast_slice(&[0x3f80u16; 40 * 128])).unwrap();
    let (q, w) = (m.with("q", &[0x3f80u16; 64 * 128]), m.with("weights", &[1f32; 64]));
    let (lens, table) = (m.with("lens", &[40i32]), m.with("table", &[0i32]));
    let l = Launch::new([1, 1, 1], [128, 1, 1]).dynamic_shared(64 * 256 + 4 * 2 * 16 * 256);
    let l = l.arg(out).arg(q).arg(keys).arg(w).arg(lens).arg(table).arg(1i32).arg(64i32).arg(1i32);
    let d = |name: &str, address, len, effect| Declaration {
        name: name.into(),
        address,
        len,
        effect,
        before_wait: false,
        racy: 0..0,
    };
    let l = l.declare(d("out", out, 256, Effect::WritePart)).declare(d("q", q, 16384, Effect::Read)).declare(d(
        "keys",
        keys,
        16384,
        Effect::Read,
    ));
    let l = l.declare(d("w", w, 256, Effect::Read)).declare(d("lens", lens, 4, Effect::Read)).declare(d(
        "table",
        table,
        4,
        Effect::Read,
    ));
    let report = run_clean(&k, &l, &mut m, &Options::default());
    assert!(report.every_cta_waited);
    assert_eq!(m.read::<f32>(out, 41)[..40], [64.0 * 128.0; 40]);
    // One key more is one too many.
    m.0.write(lens, &41i32.to_le_bytes()).unwrap();
    let report = run(&k, &l, &mut m, &Options::default());
    assert_eq!(kinds(&report), [FindingKind::Undefined]);
}

#[test]
fn lanes_may_meet_at_a_warp_barrier_from_both_sides_of_a_branch() {
    let k = ptx("mov.u32 %r7, tile;\nshl.b32 %r8, %r1, 2;\nadd.s32 %r7, %r7, %r8;\nst.shared.u32 [%r7], %r1;\n\
         setp.lt.u32 %p1, %laneid, 16;\n@%p1 bra LOW;\nbar.warp.sync -1;\nld.shared.u32 %r5, [%r7+-64];\nbra END;\n\
         LOW:\nbar.warp.sync -1;\nld.shared.u32 %r5, [%r7+64];\nEND:\nst.global.u32 [%rd3], %r5;");
    let mut x = buffers();
    let l = launch(&x, 1);
    run_clean(&k, &l, &mut x.memory, &Options::default());
    let expected: Vec<u32> = (0..64).map(|i| if i % 32 < 16 { i + 16 } else { i - 16 }).collect();
    assert_eq!(x.memory.read::<u32>(x.c, 64), expected);
}

#[test]
fn lanes_that_have_ended_are_not_waited_for() {
    let k = ptx(
        "setp.gt.u32 %p1, %laneid, 20;\n@%p1 ret;\nbar.warp.sync -1;\nshfl.sync.idx.b32 %r5, %r1, 3, 31, -1;\nst.global.u32 [%rd3], %r5;\nbar.sync 0;",
    );
    let mut x = buffers();
    let l = launch(&x, 1);
    run_clean(&k, &l, &mut x.memory, &Options::default());
    assert_eq!(x.memory.read::<u32>(x.c, 1), [3]);
}

#[test]
fn one_lane_that_polls_for_another_of_its_warp_makes_progress() {
    // Lane 0 spins on a flag that lane 1 sets on the other side of the branch, at a higher pc.
    let k = ptx(
        "mov.u32 %r7, tile;\nsetp.ne.u32 %p1, %r1, 0;\nmov.u32 %r9, 0;\nst.shared.u32 [%r7], %r9;\nbar.sync 0;\n@%p1 bra SET;\n\
         SPIN:\natom.shared.or.b32 %r4, [%r7], 0;\nsetp.eq.u32 %p2, %r4, 0;\n@%p2 bra SPIN;\nbra END;\n\
         SET:\nsetp.ne.u32 %p3, %r1, 1;\n@%p3 bra END;\natom.shared.or.b32 %r4, [%r7], 1;\nEND:\nst.global.u32 [%rd3], %r1;",
    );
    let mut x = buffers();
    let l = launch(&x, 1);
    let options = Options { step_limit: 100_000, ..Options::default() };
    run_clean(&k, &l, &mut x.memory, &options);
    assert_eq!(x.memory.read::<u32>(x.c, 64), (0..64).collect::<Vec<u32>>());
}
