//! The sequences in which framework graphs corrupt buffers, and their right twins.

use lathe_graph::check::check;
use lathe_graph::finding::{Harm, Report};
use lathe_graph::location::Location;
use lathe_graph::model::{
    Access, Buffer, BufferId, Effect, Lifetime, Node, NodeId, NodeKind, PdlWait, Placement, Pool, Release, Site,
    StreamId,
};
use lathe_graph::record::Recorder;
use lathe_graph::render::{Sources, Style, render};

/// A capture on streams `m` (origin) and `a`.
struct Session {
    rec: Recorder,
    m: StreamId,
    a: StreamId,
}

const SIZE: u64 = 1024;

impl Session {
    fn new() -> Self {
        let mut rec = Recorder::new();
        let (m, a) = (rec.pool_mut().stream_named("m"), rec.pool_mut().stream_named("a"));
        rec.begin("step", m, Location::caller());
        Self { rec, m, a }
    }

    fn buffer(&mut self, name: &str, lifetime: Lifetime, address: u64) -> BufferId {
        let mut buffer = Buffer::new(name, SIZE, lifetime, Location::caller());
        buffer.address = Some(address);
        self.rec.pool_mut().add_buffer(buffer)
    }

    fn transient(&mut self, name: &str, address: u64) -> BufferId {
        let graph = self.rec.graph().unwrap();
        self.buffer(name, Lifetime::Transient { graph, alloc: None, free: None }, address)
    }

    fn output(&mut self, name: &str, address: u64) -> BufferId {
        let graph = self.rec.graph().unwrap();
        self.buffer(name, Lifetime::Output { graph, release: Release::Held }, address)
    }

    fn kernel(&mut self, name: &str, stream: StreamId, uses: &[(BufferId, Effect)]) -> NodeId {
        let site = Site::Graph(self.rec.graph().unwrap());
        let mut node = Node::new(name, NodeKind::Kernel, site, stream, Location::caller());
        node.accesses = uses.iter().map(|&(b, effect)| Access::new(b, 0..SIZE, effect)).collect();
        self.rec.node(node)
    }

    /// `to` waits for all that is on `from` now.
    fn order(&mut self, from: StreamId, to: StreamId) {
        let event = self.rec.pool_mut().add_event("e", Location::caller());
        self.rec.record(event, from);
        self.rec.wait(event, to, Location::caller());
    }

    fn check(self) -> (Pool, Report) {
        let pool = self.rec.finish();
        let report = check(&pool, Some(&Placement::given(&pool))).unwrap();
        (pool, report)
    }
}

use Effect::{Read, WriteAll};

/// The codes of a report with the names of their nodes.
fn told((pool, report): &(Pool, Report)) -> Vec<String> {
    let tell = |f: &lathe_graph::finding::Finding| {
        let names: Vec<_> = f.parties.iter().filter_map(|p| Some(pool.node(p.node?).name.as_str())).collect();
        format!("{} {}", f.code, names.join("/"))
    };
    report.findings.iter().map(tell).collect()
}

/// m: K1 w(A). a: K2 r(A) w(O). drop A; m: K3 w(B) on A's bytes. The join comes before or after K3.
fn s1(join_first: bool) -> (Pool, Report) {
    let mut s = Session::new();
    let (m, a) = (s.m, s.a);
    let (x, y, out) = (s.transient("A", 0), s.transient("B", 0), s.output("O", 4096));
    s.kernel("K1", m, &[(x, WriteAll)]);
    s.order(m, a);
    s.kernel("K2", a, &[(x, Read), (out, WriteAll)]);
    if join_first {
        s.order(a, m);
    }
    s.kernel("K3", m, &[(y, WriteAll)]);
    s.order(a, m);
    s.check()
}

#[test]
fn s1_bytes_dropped_while_the_other_stream_still_reads_them() {
    let wrong = s1(false);
    assert_eq!(told(&wrong), ["E2 K2/K3"]);
    let finding = &wrong.1.findings[0];
    assert!(matches!(finding.harm, Harm::Harmful { buffer: Some(b), .. } if wrong.0.buffer(b).name == "O"));
    let witness = wrong.1.witness(&wrong.0, finding).unwrap();
    let names: Vec<_> = witness.steps.iter().map(|s| wrong.0.node(s.node()).name.as_str()).collect();
    assert_eq!(names, ["K1", "K3", "K2"]);
    assert_eq!(told(&s1(true)), [""; 0]);
}

#[test]
fn s1_without_a_placement_is_a_matter_of_order_only() {
    let (pool, _) = s1(false);
    assert!(check(&pool, None).unwrap().is_clean());
}

#[test]
fn s2_bytes_reused_on_the_stream_that_wrote_them_while_another_reads() {
    for (wait, expected) in [(false, vec!["E2 K2/K3"]), (true, vec![])] {
        let mut s = Session::new();
        let (m, a) = (s.m, s.a);
        let (x, y) = (s.transient("L", 0), s.transient("L'", 0));
        s.order(m, a);
        s.kernel("K1", a, &[(x, WriteAll)]);
        s.order(a, m);
        s.kernel("K2", m, &[(x, Read)]);
        if wait {
            s.order(m, a);
        }
        s.kernel("K3", a, &[(y, WriteAll)]);
        s.order(a, m);
        assert_eq!(told(&s.check()), expected);
    }
}

#[test]
fn s3_persistent_scratch_is_no_order() {
    for (edge_back, expected) in [(false, vec!["E1 K2/K3"]), (true, vec![])] {
        let mut s = Session::new();
        let (m, a) = (s.m, s.a);
        let p = s.buffer("P", Lifetime::Persistent { carried: false }, 0);
        s.order(m, a);
        s.kernel("K1", a, &[(p, WriteAll)]);
        s.order(a, m);
        s.kernel("K2", m, &[(p, Read)]);
        if edge_back {
            s.order(m, a);
        }
        s.kernel("K3", a, &[(p, WriteAll)]);
        s.order(a, m);
        s.kernel("K4", m, &[(p, Read)]);
        assert_eq!(told(&s.check()), expected);
    }
}

#[test]
fn reuse_on_one_stream_is_silent() {
    let mut s = Session::new();
    let m = s.m;
    for i in 0..10 {
        let x = s.transient(&format!("x{i}"), 0);
        s.kernel(&format!("w{i}"), m, &[(x, WriteAll)]);
        s.kernel(&format!("r{i}"), m, &[(x, Read)]);
    }
    assert_eq!(told(&s.check()), [""; 0]);
}

#[test]
fn a_life_cut_in_two_is_told_even_in_order() {
    let mut s = Session::new();
    let m = s.m;
    let (x, y) = (s.transient("x", 0), s.transient("y", 512));
    s.kernel("K1", m, &[(x, WriteAll)]);
    s.kernel("K2", m, &[(y, WriteAll)]);
    s.kernel("K3", m, &[(x, Read)]);
    assert_eq!(told(&s.check()), ["E3 K2/K3"]);
}

#[test]
fn an_unjoined_stream_is_told() {
    let mut s = Session::new();
    let (m, a) = (s.m, s.a);
    s.kernel("K1", m, &[]);
    s.order(m, a);
    s.kernel("K2", a, &[]);
    assert_eq!(told(&s.check()), ["E10 K2/K1"]);
}

#[test]
fn a_consumer_that_waits_at_entry_may_be_launched_programmatically() {
    let run = |early: bool, wait: PdlWait| {
        let mut s = Session::new();
        let m = s.m;
        let x = s.transient("x", 0);
        s.kernel("K1", m, &[(x, WriteAll)]);
        s.rec.launch_next_programmatically(m);
        let k2 = s.kernel("K2", m, &[(x, Read)]);
        let node = s.rec.pool_mut().node_mut(k2);
        node.pdl_wait = wait;
        if early {
            node.accesses[0] = node.accesses[0].clone().before_wait();
        }
        told(&s.check())
    };
    assert_eq!(run(false, PdlWait::Every), [""; 0]);
    assert_eq!(run(false, PdlWait::Some), [""; 0]);
    assert_eq!(run(true, PdlWait::Every), ["E8 K1/K2"]);
    assert_eq!(run(false, PdlWait::Never), ["E8 K1/K2"]);
}

/// K3 overwrites what K2 makes of A, unless it has run before: only then does it matter whether K2 reads A too early.
#[test]
fn a_witness_shows_harm_that_shows_late_only() {
    let mut s = Session::new();
    let (m, a) = (s.m, s.a);
    let b = s.rec.pool_mut().stream_named("b");
    let (x, out) = (s.transient("A", 0), s.output("O", 4096));
    s.kernel("fork", m, &[(x, WriteAll)]);
    s.order(m, a);
    s.order(m, b);
    s.kernel("K1", m, &[(x, WriteAll)]);
    s.kernel("K2", a, &[(x, Read), (out, WriteAll)]);
    s.kernel("K3", b, &[(out, WriteAll)]);
    s.order(a, m);
    s.order(b, m);
    let (pool, report) = s.check();
    let race = report.findings.iter().find(|f| f.message.contains("`A`")).unwrap();
    assert!(matches!(race.harm, Harm::Harmful { .. }) && race.swap.unwrap().late, "{race:?}");
    let witness = report.witness(&pool, race).unwrap();
    let names: Vec<_> = witness.steps.iter().map(|step| pool.node(step.node()).name.as_str()).collect();
    assert_eq!(names, ["fork", "K3", "K2", "K1"]);
}

/// K2 never waits, so K3's own wait, or a full edge into K3, brings K2's end and not K1's.
#[test]
fn behind_a_kernel_that_never_waits_only_an_event_helps() {
    let mut s = Session::new();
    let m = s.m;
    let x = s.transient("x", 0);
    s.kernel("K1", m, &[(x, WriteAll)]);
    s.rec.launch_next_programmatically(m);
    let k2 = s.kernel("K2", m, &[]);
    s.rec.pool_mut().node_mut(k2).pdl_wait = PdlWait::Never;
    s.rec.launch_next_programmatically(m);
    let k3 = s.kernel("K3", m, &[(x, Read)]);
    let node = s.rec.pool_mut().node_mut(k3);
    node.accesses[0] = node.accesses[0].clone().before_wait();
    let (mut pool, report) = s.check();
    let fixes: Vec<_> = report.findings[0].fixes.iter().map(|f| f.remedy.word()).collect();
    assert_eq!((report.findings[0].code.to_string().as_str(), fixes), ("E8", vec!["event"]));
    let mut placement = Placement::given(&pool);
    assert!(report.findings[0].fixes[0].remedy.apply(&mut pool, &mut placement));
    assert!(check(&pool, Some(&placement)).unwrap().is_clean());
}

#[test]
fn a_finding_reads_like_a_compiler_error() {
    let (mut pool, _) = s1(false);
    let places = [("K1", "step.py:11:5"), ("K2", "step.py:13:9"), ("K3", "step.py:15:5")];
    for (name, place) in places {
        let id = pool.find_node(name).unwrap();
        pool.node_mut(id).location = place.parse().unwrap();
    }
    for (name, place) in [("A", "step.py:10:1"), ("B", "alloc.py:3")] {
        let id = pool.find_buffer(name).unwrap();
        pool.buffer_mut(id).location = place.parse().unwrap();
    }
    let mut sources = Sources::in_memory();
    let lines = ["A = empty(256)", "    produce(A)", "with side:", "    O = consume(A)", "del A", "B = fill(256)"];
    sources.insert("step.py", "\n".repeat(9) + &lines.join("\n") + "\n");
    let placement = Placement::given(&pool);
    let report = check(&pool, Some(&placement)).unwrap();
    let text = render(&report, &pool, &placement, &mut sources, Style { colour: false });
    expect_test::expect![[r#"
        error[E2]: `K3` writes `B` on bytes of `A`, which `K2` may still read
          --> step.py:13:9
           |
        10 | A = empty(256)
           | - transient `A`, 1024 bytes at 0x0
        ...
        13 |     O = consume(A)
           |         ^^^^^^^ on stream a: `K2` reads `A`, bytes 0..1024
        14 | del A
        15 | B = fill(256)
           |     ^^^^ on stream m: `K3` writes `B`, bytes 0..1024
           |
          ::: alloc.py:3:1
           |
         3 | B
           | - transient `B`, 1024 bytes at 0x0
           |
           = note: two buffers share bytes, nodes use them without an order, and one of them writes
           = note: shared: 1024 bytes at 0x0..0x400
           = note: the graph allows this order: K1 [m], K3 [m], K2 [a]
           = note: harmful: `O` then ends up with another value
        help: record an event on `a` after `K2`, and let `m` wait for it before `K3` (lengthens the critical path by 1 node)
        help: give `B` bytes of its own (costs at most 1024 bytes)
        help: keep `A` alive until `K3` is complete, so that `B` gets other bytes (costs at most 1024 bytes)

        1 finding, E2 (1 harmful, 0 latent): 3 nodes in 1 graph, 3 buffers, 3 of them placed
    "#]].assert_eq(&text);
}
