//! The captured graph against the recorded one, with every fault planted in a fake driver.

use lathe_graph::build::{Bytes, Recording, Work};
use lathe_graph::driver::{
    CapturedEdge, CapturedGraph, CapturedKind, CapturedNode, Driver, DriverError, ReadBackError, Second, Word,
    read_back,
};
use lathe_graph::model::{GraphId, KernelLaunch, PdlWait, Placement, Pool};

/// Nodes: 0 project, 1 store, 2 logits (programmatic after store), 3 other, 4 top-k.
fn recorded(base: u64) -> (Pool, Placement) {
    let mut recording = Recording::new();
    let keys = recording.persistent("keys", 4096);
    recording.capture("decode", "main", |g| {
        let (main, side) = (g.main(), g.stream("indexer"));
        let picks = g.output("picks", 1024);
        g.transients([("q", 512), ("logits", 2048), ("x", 256)], |g, [q, logits, x]| {
            g.launch(main, Work::kernel("project").writes(&q));
            g.order(main, side);
            g.launch(side, Work::kernel("store").reads(&q).writes_part(&keys));
            g.launch(side, Work::kernel("logits").reads(&q).reads(&keys).writes(&logits).programmatic());
            g.launch(main, Work::kernel("other").writes(&x));
            g.order(side, main);
            g.launch(main, Work::kernel("top-k").reads(&logits).reads(&x).writes(&picks));
        });
    });
    let pool = recording.pool().clone();
    let mut placement = Placement::empty(&pool);
    for (i, id) in pool.buffer_ids().enumerate() {
        placement.set(id, base + 0x10000 * i as u64);
    }
    (pool, placement)
}

const BASE: u64 = 0x7f00_0000_0000;

/// Plants a fault and says what the comparison finds.
fn found(plant: impl FnOnce(&mut CapturedGraph)) -> Vec<String> {
    let (pool, placement) = recorded(BASE);
    let mut captured = CapturedGraph::faultless(&pool, GraphId(0), &placement);
    plant(&mut captured);
    let findings = read_back(&pool, GraphId(0), &placement, &captured, None).unwrap();
    findings.into_iter().map(|f| format!("{}: {}", f.code, f.message)).collect()
}

/// Exactly one finding, which says all of these.
#[track_caller]
fn says(findings: &[String], parts: &[&str]) {
    assert_eq!(findings.len(), 1, "{findings:#?}");
    for part in parts {
        assert!(findings[0].contains(part), "{part:?} is not in {:?}", findings[0]);
    }
}

fn edge(g: &CapturedGraph, from: usize, to: usize) -> usize {
    g.edges.iter().position(|e| (e.from, e.to) == (from, to)).unwrap()
}

#[test]
fn a_faultless_capture_is_silent() {
    assert_eq!(found(|_| ()), [""; 0]);
}

#[test]
fn the_order_in_which_the_driver_lists_nodes_and_redundant_edges_do_not_matter() {
    let reversed = |g: &mut CapturedGraph| {
        g.nodes.reverse();
        g.words.reverse();
        for e in &mut g.edges {
            (e.from, e.to) = (4 - e.from, 4 - e.to);
        }
        g.edges.push(CapturedEdge::full(4, 0));
    };
    assert_eq!(found(reversed), [""; 0]);
}

#[test]
fn a_missing_node_is_told() {
    let findings = found(|g| {
        g.nodes.remove(3);
        g.words.remove(3);
        g.edges.retain(|e| e.from != 3 && e.to != 3);
        g.edges.iter_mut().filter(|e| e.to == 4).for_each(|e| e.to = 3);
    });
    says(&findings, &["E11", "kernel `other`", "not in the captured graph"]);
}

#[test]
fn an_extra_node_is_told() {
    let findings = found(|g| g.nodes.push(CapturedNode::new(CapturedKind::Kernel, "elementwise")));
    says(&findings, &["E11", "kernel `elementwise`, which was not recorded"]);
}

#[test]
fn a_memory_node_is_rejected() {
    let findings = found(|g| g.nodes.push(CapturedNode::new(CapturedKind::MemAlloc, "")));
    says(&findings, &["E11", "memory allocation node", "nothing may allocate"]);
}

#[test]
fn a_dropped_wait_is_told() {
    let findings = found(|g| {
        let gone = edge(g, 2, 4);
        g.edges.remove(gone);
    });
    says(&findings, &["E11", "`logits` before `top-k`", "a wait left no edge"]);
}

#[test]
fn an_extra_edge_is_told() {
    let findings = found(|g| g.edges.push(CapturedEdge::full(2, 3)));
    says(&findings, &["E11", "`logits` before `other`", "now serial"]);
}

#[test]
fn a_programmatic_edge_into_a_kernel_that_never_waits_is_as_recorded() {
    let mut recording = Recording::new();
    let [keys, out] = ["keys", "out"].map(|name| recording.persistent(name, 64));
    recording.capture("g", "m", |g| {
        g.launch(g.main(), Work::kernel("store").writes(&keys));
        g.launch(g.main(), Work::kernel("logits").writes(&out).programmatic().waits(PdlWait::Never));
    });
    let pool = recording.pool().clone();
    let mut placement = Placement::empty(&pool);
    placement.set(keys.id(), BASE);
    placement.set(out.id(), BASE + 256);
    let captured = CapturedGraph::faultless(&pool, GraphId(0), &placement);
    assert!(captured.edges[0].programmatic);
    assert_eq!(read_back(&pool, GraphId(0), &placement, &captured, None).unwrap(), []);
}

#[test]
fn a_full_edge_captured_as_a_programmatic_one_is_told() {
    let findings = found(|g| {
        let weak = edge(g, 0, 1);
        g.edges[weak].programmatic = true;
        g.edges[weak].from_port = 1;
    });
    says(&findings, &["E11", "from `project` to `store` is programmatic"]);
}

#[test]
fn another_launch_is_told_with_what_differs() {
    let launch = KernelLaunch {
        grid: [4, 1, 1],
        block: [128, 1, 1],
        shared_bytes: 0,
        cluster: [1; 3],
        cooperative: false,
        scalars: [(2, 7)].into(),
    };
    let mut recording = Recording::new();
    let out = recording.persistent("out", 64);
    recording.capture("g", "m", |g| {
        g.launch(g.main(), Work::kernel("fill").writes(&out).launched(launch.clone()));
    });
    let pool = recording.pool().clone();
    let mut placement = Placement::empty(&pool);
    placement.set(out.id(), BASE);
    let compare = |plant: &dyn Fn(&mut KernelLaunch)| {
        let mut captured = CapturedGraph::faultless(&pool, GraphId(0), &placement);
        plant(captured.nodes[0].launch.as_mut().unwrap());
        let findings = read_back(&pool, GraphId(0), &placement, &captured, None).unwrap();
        findings.into_iter().map(|f| format!("{}: {}", f.code, f.message)).collect::<Vec<_>>()
    };
    assert_eq!(compare(&|_| ()), [""; 0]);
    // The driver lists pointers among the parameters too.
    assert_eq!(compare(&|l| _ = l.scalars.insert(0, BASE)), [""; 0]);
    says(&compare(&|l| l.grid[0] = 5), &["E11", "grid of `fill`", "[5, 1, 1]", "[4, 1, 1]"]);
    says(&compare(&|l| l.block[0] = 64), &["E11", "block of `fill`", "[64, 1, 1]"]);
    says(&compare(&|l| l.shared_bytes = 16), &["E11", "shared memory of `fill`", "16"]);
    says(&compare(&|l| l.cluster[0] = 2), &["E11", "cluster of `fill`"]);
    says(&compare(&|l| l.cooperative = true), &["E11", "cooperative launch of `fill`"]);
    says(&compare(&|l| _ = l.scalars.insert(2, 8)), &["E11", "parameter 2 of `fill`", "0x8", "0x7"]);
    says(&compare(&|l| _ = l.scalars.remove(&2)), &["E11", "parameter 2 of `fill`", "not among"]);
}

#[test]
fn a_wrong_pointer_is_told() {
    let findings = found(|g| g.words[4][0].value = BASE + 0x20000);
    assert_eq!(findings.len(), 2, "{findings:#?}");
    assert!(findings[0].contains("no parameter of `top-k` points into `logits`"), "{findings:#?}");
    assert!(findings[1].contains("in `q`, which the node was not recorded to use"), "{findings:#?}");
}

#[test]
fn a_pointer_into_a_gap_is_told() {
    let findings = found(|g| g.words[3].push(Word { parameter: 5, offset: 8, value: BASE + 0x30000 - 16 }));
    says(&findings, &["E12", "parameter 5 + 8 of `other`", "in no buffer"]);
}

#[test]
fn a_second_capture_tells_pointers_from_numbers() {
    let number = Word { parameter: 5, offset: 0, value: BASE + 0x20000 };
    let pointer = |base: u64| Word { parameter: 6, offset: 0, value: base + 0x20000 };
    let other = BASE + 0x100_0000;
    let capture = |base: u64, extra: Word| {
        let (pool, placement) = recorded(base);
        let mut captured = CapturedGraph::faultless(&pool, GraphId(0), &placement);
        captured.words[3].push(extra);
        (pool, placement, captured)
    };
    for (first, again, expected) in [(number, number, 0), (pointer(BASE), pointer(other), 1)] {
        let (pool, placement, captured) = capture(BASE, first);
        let (_, moved, twin) = capture(other, again);
        let second = Some(Second { driver: &twin, placement: &moved });
        let findings = read_back(&pool, GraphId(0), &placement, &captured, second).unwrap();
        assert_eq!(findings.len(), expected, "{findings:#?}");
    }
}

#[test]
fn equal_kernels_are_told_apart_by_their_pointers() {
    let mut recording = Recording::new();
    let buffers = [0, 1].map(|i| recording.persistent(&format!("b{i}"), 64));
    recording.capture("g", "m", |g| {
        for (i, b) in buffers.iter().enumerate() {
            g.launch(g.main(), Work::kernel(&format!("fill {i}")).symbol("fill").writes(b));
        }
    });
    let pool = recording.pool().clone();
    let mut placement = Placement::empty(&pool);
    pool.buffer_ids().enumerate().for_each(|(i, id)| placement.set(id, BASE + 256 * i as u64));
    let mut captured = CapturedGraph::faultless(&pool, GraphId(0), &placement);
    captured.nodes.reverse();
    captured.words.reverse();
    captured.edges[0] = CapturedEdge::full(1, 0);
    assert_eq!(read_back(&pool, GraphId(0), &placement, &captured, None).unwrap(), []);
}

#[test]
fn a_dump_reads_back_as_it_was_written() {
    let (pool, placement) = recorded(BASE);
    let captured = CapturedGraph::faultless(&pool, GraphId(0), &placement);
    let text = serde_json::to_string(&captured).unwrap();
    assert_eq!(serde_json::from_str::<CapturedGraph>(&text).unwrap(), captured);
}

#[test]
fn a_driver_that_makes_no_sense_is_an_error() {
    let (pool, placement) = recorded(BASE);
    let good = CapturedGraph::faultless(&pool, GraphId(0), &placement);
    let compare = |driver: &dyn Driver| read_back(&pool, GraphId(0), &placement, driver, None).unwrap_err();
    let mut far = good.clone();
    far.edges.push(CapturedEdge::full(0, 9));
    assert_eq!(compare(&far), ReadBackError::Edge { from: 0, to: 9, nodes: 5 });
    let mut cycle = good.clone();
    cycle.edges.push(CapturedEdge::full(4, 0));
    assert_eq!(compare(&cycle), ReadBackError::Cycle);

    struct Broken;
    impl Driver for Broken {
        fn nodes(&self) -> Result<Vec<CapturedNode>, DriverError> {
            Err(DriverError { call: "cuGraphGetNodes".into(), reason: "invalid handle".into() })
        }
        fn edges(&self) -> Result<Vec<CapturedEdge>, DriverError> {
            Ok(Vec::new())
        }
        fn words(&self, _: usize) -> Result<Vec<Word>, DriverError> {
            Ok(Vec::new())
        }
    }
    assert!(compare(&Broken).to_string().contains("cuGraphGetNodes says invalid handle"));
}
