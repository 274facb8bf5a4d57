//! The builder: what it refuses at compile time, at check time, and at plan time.

use lathe_graph::build::{Accesses, Bytes, KernelAccesses, ParameterAccess, Recording, Refused, Work};
use lathe_graph::finding::Code;
use lathe_graph::model::{Discipline, Effect, PdlWait, Phase, Placement, Site};

#[test]
fn what_must_not_compile_does_not() {
    trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
}

fn codes(refused: Refused) -> Vec<Code> {
    match refused {
        Refused::Findings { report, .. } => report.findings.iter().map(|f| f.code).collect(),
        Refused::Model(error) => panic!("{error}"),
    }
}

/// One layer: project on the main stream, store and logits beside it, top-k after the join.
fn layer(ordered: bool) -> Recording {
    let mut recording = Recording::new();
    let keys = recording.persistent("keys", 4096);
    let tokens = recording.input("tokens", 512);
    recording.capture("decode", "main", |g| {
        let (main, side) = (g.main(), g.stream("indexer"));
        let picks = g.output("picks", 1024);
        g.transients([("q", 512), ("logits", 2048)], |g, [q, logits]| {
            g.launch(main, Work::kernel("project").reads(&tokens).writes(&q));
            g.order(main, side);
            g.launch(side, Work::kernel("store").reads(&q).writes_part(&keys));
            g.launch(side, Work::kernel("logits").reads(&q).reads(&keys).writes(&logits));
            if ordered {
                g.order(side, main);
            }
            g.launch(main, Work::kernel("top-k").reads(&logits).writes(&picks));
            if !ordered {
                g.order(side, main);
            }
        });
    });
    recording
}

#[test]
fn a_clean_recording_is_planned() {
    let planned = layer(true).check().unwrap().plan(&Default::default()).unwrap();
    let keys = planned.find("keys").unwrap();
    assert!(planned.address(&keys).is_some());
    assert!(planned.find("q").is_none(), "a transient is nobody's outside its scope");
    let plan = planned.plan().unwrap();
    assert!(plan.bytes <= plan.no_reuse);
}

#[test]
fn a_missing_join_is_refused_with_the_lines_of_this_file() {
    let refused = layer(false).check().unwrap_err();
    let text = refused.to_string();
    for part in ["error[E1]", "tests/build.rs", "Work::kernel(\"top-k\")", "Work::kernel(\"logits\")"] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
    assert_eq!(codes(refused), [Code::E1]);
}

#[test]
fn a_framework_placement_is_checked_like_a_plan() {
    let checked = layer(true).check().unwrap();
    let mut placement = Placement::empty(checked.pool());
    for (name, address) in [("q", 0), ("logits", 256)] {
        placement.set(checked.pool().find_buffer(name).unwrap(), address);
    }
    // `logits` reads q while it writes logits: the two must not share bytes.
    assert_eq!(codes(checked.place(placement).unwrap_err()), [Code::E2]);
}

struct Logits;

impl Accesses for Logits {
    fn accesses(&self) -> KernelAccesses {
        let parameter = |name: &str, effect| ParameterAccess { name: name.into(), effect, phase: Phase::AfterWait };
        let parameters =
            vec![parameter("q", Effect::Read), parameter("k", Effect::Read), parameter("out", Effect::WriteAll)];
        KernelAccesses { name: "logits".into(), parameters, pdl_wait: PdlWait::Every }
    }
}

#[test]
fn a_kernel_brings_its_accesses() {
    let mut recording = Recording::new();
    let (q, k) = (recording.input("q", 512), recording.input("k", 4096));
    recording.capture("step", "main", |g| {
        let out = g.output("out", 256);
        let work = Work::of(&Logits, &[q.slice(), k.bytes(0..1024), out.slice()]).unwrap();
        g.launch(g.main(), work);
    });
    let node = &recording.pool().nodes()[0];
    let told: Vec<_> = node.accesses.iter().map(|a| (a.effect, a.range.clone())).collect();
    assert_eq!(told, [(Effect::Read, 0..512), (Effect::Read, 0..1024), (Effect::WriteAll, 0..256)]);
    let error = Work::of(&Logits, &[q.slice()]).unwrap_err().to_string();
    assert_eq!(error, "kernel `logits` takes 3 buffers (q, k, out), and 1 were given");
}

#[test]
fn an_external_writer_needs_its_event() {
    let record = |wait: bool| {
        let mut recording = Recording::new();
        let cache = recording.external("cache", 4096, Discipline::Event);
        recording.eager(Site::Beside, "transfer", Work::kernel("load").writes_part(&cache));
        let loaded = recording.eager_event("loaded", "transfer");
        recording.capture("step", "main", |g| {
            let out = g.output("out", 64);
            if wait {
                g.wait_external(loaded, g.main());
            }
            g.launch(g.main(), Work::kernel("read").reads(&cache).writes(&out));
        });
        recording.check()
    };
    assert!(record(true).is_ok());
    assert_eq!(codes(record(false).unwrap_err()), [Code::E9]);
}
