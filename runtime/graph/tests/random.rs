//! Random captures on random addresses: what the checker says against plain computation.

use lathe_graph::check::{Conflict, check, for_each_conflict};
use lathe_graph::finding::{Code, Finding, Harm, Remedy, Step};
use lathe_graph::location::Location;
use lathe_graph::model::{
    Access, Buffer, BufferId, Effect, Lifetime, Node, NodeId, NodeKind, PdlWait, Phase, Placement, Pool, Release, Site,
};
use lathe_graph::oracle;
use lathe_graph::order::Order;
use lathe_graph::record::Recorder;
use proptest::prelude::*;
use std::collections::{BTreeSet, HashMap};

const SIZE: u64 = 8;

#[derive(Clone, Debug)]
enum Op {
    /// Stream, accesses (buffer, first byte, effect, before the wait), launched programmatically, waits.
    Node(usize, Vec<(usize, u64, u8, bool)>, bool, u8),
    /// From one stream to the other.
    Order(usize, usize),
}

fn op() -> impl Strategy<Value = Op> {
    let access = (0usize..5, 0u64..SIZE, 0u8..4, any::<bool>());
    let node = (0usize..3, proptest::collection::vec(access, 0..4), proptest::bool::weighted(0.3), 0u8..8);
    prop_oneof![
        3 => node.prop_map(|(s, a, p, w)| Op::Node(s, a, p, w)),
        1 => (0usize..3, 0usize..3).prop_map(|(a, b)| Op::Order(a, b)),
    ]
}

/// Buffers 0 and 1 are transients, 2 is scratch, 3 an output, 4 carried; some share bytes.
fn build(ops: &[Op], addresses: &[u64; 2]) -> (Pool, Placement) {
    let mut rec = Recorder::new();
    let streams = ["m", "a", "b"].map(|name| rec.pool_mut().stream_named(name));
    let graph = rec.begin("g", streams[0], Location::unknown());
    let transient = || Lifetime::Transient { graph, alloc: None, free: None };
    let lifetimes = [
        transient(),
        transient(),
        Lifetime::Persistent { carried: false },
        Lifetime::Output { graph, release: Release::Held },
        Lifetime::Persistent { carried: true },
    ];
    let mut placement = Placement::default();
    for (i, lifetime) in lifetimes.into_iter().enumerate() {
        let id = rec.pool_mut().add_buffer(Buffer::new(format!("b{i}"), SIZE, lifetime, Location::unknown()));
        let apart = 1000 + 100 * i as u64;
        placement.set(id, addresses.get(i).copied().unwrap_or(apart));
    }
    for stream in [1, 2] {
        let event = rec.pool_mut().add_event("fork", Location::unknown());
        rec.record(event, streams[0]);
        rec.wait(event, streams[stream], Location::unknown());
    }
    for (i, op) in ops.iter().enumerate() {
        match op {
            Op::Node(stream, accesses, programmatic, wait) => {
                if *programmatic {
                    rec.launch_next_programmatically(streams[*stream]);
                }
                let kind = if i % 5 == 4 { NodeKind::Host } else { NodeKind::Kernel };
                let mut node =
                    Node::new(format!("k{i}"), kind, Site::Graph(graph), streams[*stream], Location::unknown());
                node.pdl_wait = if *wait == 0 { PdlWait::Never } else { PdlWait::Every };
                for &(buffer, start, effect, early) in accesses {
                    let effects = [Effect::Read, Effect::WriteAll, Effect::WritePart, Effect::ReadWrite];
                    let mut access = Access::new(BufferId(buffer as u32), start..SIZE, effects[effect as usize]);
                    if early {
                        access = access.before_wait();
                    }
                    if node.accesses.iter().all(|a| a.buffer != access.buffer) {
                        node.accesses.push(access);
                    }
                }
                rec.node(node);
            }
            Op::Order(from, to) => {
                let event = rec.pool_mut().add_event("e", Location::unknown());
                rec.record(event, streams[*from]);
                rec.wait(event, streams[*to], Location::unknown());
            }
        }
    }
    for stream in [1, 2] {
        let event = rec.pool_mut().add_event("join", Location::unknown());
        rec.record(event, streams[stream]);
        rec.wait(event, streams[0], Location::unknown());
    }
    (rec.finish(), placement)
}

fn cases() -> impl Strategy<Value = (Pool, Placement)> {
    let ops = proptest::collection::vec(op(), 1..12)
        .prop_filter("a node", |ops| ops.iter().any(|o| matches!(o, Op::Node(..))));
    (ops, [0u64..10, 0u64..10]).prop_map(|(ops, addresses)| build(&ops, &addresses))
}

fn is_race(finding: &Finding) -> bool {
    matches!(finding.code, Code::E1 | Code::E2 | Code::E8)
}

/// Symbolic memory: the term that each byte holds.
#[derive(Default)]
struct Memory {
    bytes: HashMap<u64, u64>,
    /// What host nodes have read, by node.
    seen: HashMap<NodeId, Vec<u64>>,
    /// What each node has read so far.
    read: HashMap<NodeId, u64>,
}

fn mix(a: u64, b: u64) -> u64 {
    (a.rotate_left(23) ^ b).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).wrapping_add(0x1234_5678_9abc_def1)
}

impl Memory {
    /// Runs the accesses of `node` that `part` selects.
    fn run(&mut self, pool: &Pool, placement: &Placement, id: NodeId, part: impl Fn(&Access) -> bool) {
        let node = pool.node(id);
        let at = |access: &Access| {
            let start = placement.address(access.buffer).unwrap();
            start + access.range.start..start + access.range.end
        };
        let mut value = self.read.get(&id).copied().unwrap_or_else(|| mix(u64::from(id.0), 7));
        for access in node.accesses.iter().filter(|a| part(a) && a.effect.reads()) {
            for byte in at(access) {
                let held = self.bytes.get(&byte).copied().unwrap_or(byte);
                value = mix(value, held);
                if node.kind == NodeKind::Host {
                    self.seen.entry(id).or_default().push(held);
                }
            }
        }
        self.read.insert(id, value);
        // Writes of one node in a fixed order, as one implementation would do them.
        for access in node.accesses.iter().filter(|a| part(a) && a.effect.writes()) {
            for byte in at(access) {
                let old = self.bytes.get(&byte).copied().unwrap_or(byte);
                let new = mix(value, byte);
                self.bytes.insert(byte, if access.effect == Effect::WritePart { mix(new, old) } else { new });
            }
        }
    }

    fn outcome(&self, pool: &Pool, placement: &Placement) -> (Vec<u64>, BTreeSet<(NodeId, Vec<u64>)>) {
        let observed = pool.buffer_ids().filter(|id| pool.buffer(*id).lifetime.is_observed());
        let bytes = observed.flat_map(|id| placement.range(pool, id).unwrap());
        let held = bytes.map(|byte| self.bytes.get(&byte).copied().unwrap_or(byte)).collect();
        (held, self.seen.iter().map(|(id, read)| (*id, read.clone())).collect())
    }
}

/// A node, or what it does before or after its wait if something comes before the one and not before the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    node: NodeId,
    half: Option<Phase>,
}

impl Part {
    fn has(self, access: &Access) -> bool {
        self.half.is_none_or(|half| half == access.phase)
    }

    /// Is all of `node` complete before this?
    fn follows(self, pool: &Pool, node: NodeId) -> bool {
        oracle::before_phase(pool, node, self.node, self.half.unwrap_or(Phase::BeforeWait))
    }

    fn is_second_half_of(self, other: Self) -> bool {
        self.node == other.node && self.half == Some(Phase::AfterWait) && other.half == Some(Phase::BeforeWait)
    }
}

fn parts(pool: &Pool) -> Vec<Part> {
    let waits = |node: NodeId| {
        let before = |phase| pool.node_ids().filter(|id| oracle::before_phase(pool, *id, node, phase)).count();
        before(Phase::AfterWait) > before(Phase::BeforeWait)
    };
    let of = |node: NodeId| match waits(node) {
        true => vec![Some(Phase::BeforeWait), Some(Phase::AfterWait)],
        false => vec![None],
    };
    pool.node_ids().flat_map(|node| of(node).into_iter().map(move |half| Part { node, half })).collect()
}

/// What else has run when the pair runs.
#[derive(Clone, Copy, Debug)]
enum Context {
    /// What one of the pair waits for.
    Needed,
    /// Everything that waits for none of the pair.
    Possible,
}

/// Does it change what is seen in the end, which of the pair comes first?
fn order_shows(pool: &Pool, placement: &Placement, pair: [(NodeId, Phase); 2], context: Context) -> bool {
    let all = parts(pool);
    let [i, j] = pair.map(|(node, phase)| {
        *all.iter().find(|p| p.node == node && p.half.is_none_or(|half| half == phase)).expect("every node has parts")
    });
    let is_early = |part: &Part| match context {
        Context::Needed => [i, j].iter().any(|of| of.follows(pool, part.node) || of.is_second_half_of(*part)),
        Context::Possible => ![i, j].iter().any(|of| part.follows(pool, of.node) || part.is_second_half_of(*of)),
    };
    let (early, late): (Vec<Part>, Vec<Part>) =
        all.iter().filter(|part| **part != i && **part != j).partition(|p| is_early(p));
    let outcome = |pair: [Part; 2]| {
        let mut memory = Memory::default();
        let order = early.iter().chain(&pair).chain(&late);
        order.for_each(|part| memory.run(pool, placement, part.node, |access| part.has(access)));
        memory.outcome(pool, placement)
    };
    outcome([i, j]) != outcome([j, i])
}

/// Does some node use the same bytes twice, writing, so that it does not agree with itself?
fn disagrees_with_itself(pool: &Pool, placement: &Placement) -> bool {
    let range = |a: &Access| {
        let start = placement.address(a.buffer).unwrap();
        start + a.range.start..start + a.range.end
    };
    pool.nodes().iter().any(|node| {
        node.accesses.iter().enumerate().any(|(at, a)| {
            node.accesses[..at].iter().any(|b| {
                let (x, y) = (range(a), range(b));
                x.start < y.end && y.start < x.end && (a.effect.writes() || b.effect.writes())
            })
        })
    })
}

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config(300))]

    #[test]
    fn races_are_the_pairs_that_a_search_finds_unordered((pool, placement) in cases()) {
        let mut expected = BTreeSet::new();
        for i in pool.node_ids() {
            for j in pool.node_ids().filter(|j| i <= *j) {
                for a in &pool.node(i).accesses {
                    for b in &pool.node(j).accesses {
                        let (x, y) = (placement.address(a.buffer).unwrap(), placement.address(b.buffer).unwrap());
                        let meet = x + a.range.start < y + b.range.end && y + b.range.start < x + a.range.end;
                        let writes = a.effect.writes() || b.effect.writes();
                        let ordered = oracle::before_phase(&pool, i, j, b.phase) || oracle::before_phase(&pool, j, i, a.phase);
                        if meet && writes && !ordered && (i != j || a.buffer < b.buffer) {
                            expected.insert((i, j));
                        }
                    }
                }
            }
        }
        let order = Order::of(&pool).unwrap();
        let mut found = BTreeSet::new();
        for_each_conflict(&pool, &order, &placement, |c: Conflict| { found.insert((c.first, c.second)); });
        prop_assert_eq!(&found, &expected);

        let report = check(&pool, Some(&placement)).unwrap();
        let mut told = BTreeSet::new();
        for finding in report.findings.iter().filter(|f| is_race(f)) {
            let [first, second] = finding.pair().unwrap();
            told.insert((first, second));
            told.extend(finding.also.iter().copied());
        }
        prop_assert_eq!(told, expected);
    }

    /// Exactly: swapping two neighbours changes a result in one of two contexts of the pair, or of one that it stands for,
    /// if and only if the finding says harm.
    #[test]
    fn a_swap_that_changes_an_output_is_harm((pool, placement) in cases()) {
        prop_assume!(!disagrees_with_itself(&pool, &placement));
        let order = Order::of(&pool).unwrap();
        let mut shows: BTreeSet<[NodeId; 2]> = BTreeSet::new();
        for_each_conflict(&pool, &order, &placement, |c: Conflict| {
            let pair = [(c.first, c.first_access.phase), (c.second, c.second_access.phase)];
            if [Context::Needed, Context::Possible].iter().any(|&context| order_shows(&pool, &placement, pair, context)) {
                shows.insert([c.first, c.second]);
            }
        });
        let report = check(&pool, Some(&placement)).unwrap();
        let races: Vec<&Finding> = report.findings.iter().filter(|f| is_race(f)).collect();
        let pairs = |f: &Finding| f.pair().into_iter().chain(f.also.iter().map(|&(a, b)| [a, b])).collect::<Vec<_>>();
        for finding in &races {
            let is_harmful = matches!(finding.harm, Harm::Harmful { .. });
            prop_assert!(!is_harmful || pairs(finding).iter().any(|pair| shows.contains(pair)), "no swap shows {:?}", finding);
        }
        for pair in shows {
            let told = |f: &&&Finding| matches!(f.harm, Harm::Harmful { .. }) && pairs(f).contains(&pair);
            prop_assert!(races.iter().find(told).is_some(), "{:?} changes a result; {:?}", pair, races);
        }
    }

    #[test]
    fn the_events_proposed_order_everything((mut pool, mut placement) in cases()) {
        let report = check(&pool, Some(&placement)).unwrap();
        for finding in report.findings.iter().filter(|f| is_race(f)) {
            let [i, j] = finding.pair().unwrap();
            if i == j {
                continue;
            }
            let fix = finding.fixes.iter().find(|f| matches!(f.remedy, Remedy::Event { .. } | Remedy::FullEdge { .. }));
            prop_assert!(fix.is_some(), "{:?}", finding);
            fix.unwrap().remedy.apply(&mut pool, &mut placement);
        }
        let after = check(&pool, Some(&placement)).unwrap();
        let left: Vec<_> = after.findings.iter().filter(|f| is_race(f) && f.pair().is_some_and(|[i, j]| i != j)).collect();
        prop_assert!(left.is_empty(), "{:?}", left);
    }

    #[test]
    fn each_fix_alone_removes_its_finding((pool, placement) in cases()) {
        let uses = |f: &Finding| f.parties.iter().map(|p| (p.node, p.buffer, p.phase())).collect::<Vec<_>>();
        let report = check(&pool, Some(&placement)).unwrap();
        for finding in report.findings.iter().filter(|f| is_race(f)) {
            for fix in &finding.fixes {
                let (mut pool, mut placement) = (pool.clone(), placement.clone());
                prop_assert!(fix.remedy.apply(&mut pool, &mut placement));
                let after = check(&pool, Some(&placement)).unwrap();
                let same = after.findings.iter().find(|f| is_race(f) && uses(f) == uses(finding));
                prop_assert!(same.is_none(), "{:?} leaves {:?}", fix, same);
            }
        }
    }

    #[test]
    fn a_witness_is_allowed_and_wrong((pool, placement) in cases()) {
        let report = check(&pool, Some(&placement)).unwrap();
        for finding in &report.findings {
            let Some(witness) = report.witness(&pool, finding) else { continue };
            let swap = finding.swap.unwrap();
            let place = |(node, phase): (NodeId, Phase)| {
                let is_part = |step: &Step| match step {
                    Step::Node(id) => *id == node,
                    Step::BeforeWait(id) => *id == node && phase == Phase::BeforeWait,
                    Step::AfterWait(id) => *id == node && phase == Phase::AfterWait,
                };
                witness.steps.iter().position(is_part).unwrap()
            };
            prop_assert!(place(swap.second) < place(swap.first));
            let over = |steps: &[Step], node: NodeId| {
                steps.iter().any(|s| s.node() == node && !matches!(s, Step::BeforeWait(_)))
            };
            for (at, step) in witness.steps.iter().enumerate() {
                let phase = if matches!(step, Step::BeforeWait(_)) { Phase::BeforeWait } else { Phase::AfterWait };
                let before = pool.node_ids().filter(|id| oracle::before_phase(&pool, *id, step.node(), phase));
                for earlier in before {
                    prop_assert!(over(&witness.steps[..at], earlier), "{:?}", witness);
                }
            }
            prop_assert!(pool.node_ids().all(|id| over(&witness.steps, id)));
        }
    }

    /// Where nothing else is wrong, the witness's result is not that of the record order; also where the harm shows only
    /// once everything else has run.
    #[test]
    fn the_witness_of_a_lone_race_shows_its_harm((pool, placement) in cases()) {
        prop_assume!(!disagrees_with_itself(&pool, &placement));
        let report = check(&pool, Some(&placement)).unwrap();
        let order = Order::of(&pool).unwrap();
        let mut conflicts = 0;
        for_each_conflict(&pool, &order, &placement, |_: Conflict| conflicts += 1);
        let harmful = |f: &&Finding| is_race(f) && matches!(f.harm, Harm::Harmful { .. });
        if let (1, Some(finding)) = (conflicts, report.findings.iter().find(harmful)) {
            let witness = report.witness(&pool, finding).unwrap();
            let mut memory = Memory::default();
            for step in &witness.steps {
                let part = |access: &Access| match step {
                    Step::Node(_) => true,
                    Step::BeforeWait(_) => access.phase == Phase::BeforeWait,
                    Step::AfterWait(_) => access.phase == Phase::AfterWait,
                };
                memory.run(&pool, &placement, step.node(), part);
            }
            let mut recorded = Memory::default();
            for part in parts(&pool) {
                recorded.run(&pool, &placement, part.node, |access| part.has(access));
            }
            let (one, other) = (memory.outcome(&pool, &placement), recorded.outcome(&pool, &placement));
            prop_assert!(one != other, "{:?} shows nothing of {:?}", witness, finding);
        }
    }
}
