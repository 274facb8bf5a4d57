//! Plans: who shares bytes, how close to the bound, and what a plan depends on.

mod common;

use common::{Tape, decode, decode_into, fork_join};
use lathe_graph::bits::BitMatrix;
use lathe_graph::check::check;
use lathe_graph::model::{BufferId, Lifetime, Pool, Release};
use lathe_graph::order::Order;
use lathe_graph::plan::{Options, Plan, Planner, Precedence, max_live, max_live_of_intervals};
use proptest::prelude::*;

fn plan(pool: &Pool) -> Plan {
    let order = Order::of(pool).unwrap();
    Planner::new(pool, &order).plan(&Options::default())
}

fn share(pool: &Pool, plan: &Plan, a: BufferId, b: BufferId) -> bool {
    let range = |id| plan.placement.range(pool, id).unwrap();
    let (a, b) = (range(a), range(b));
    a.start < b.end && b.start < a.end
}

#[test]
fn a_chain_needs_its_two_largest_neighbours() {
    let mut tape = Tape::new("g", "m");
    let m = tape.stream("m");
    let buffers: Vec<BufferId> = (0..6).map(|i| tape.transient(format!("t{i}"), 1024 * (i + 1))).collect();
    tape.kernel("k0", m, &[], &buffers[..1]);
    for pair in buffers.windows(2) {
        tape.kernel("k", m, &pair[..1], &pair[1..]);
    }
    let plan = plan(&tape.finish());
    assert_eq!((plan.bytes, plan.bound.bytes), (11 * 1024, 11 * 1024));
    assert_eq!(plan.bound.live, buffers[4..]);
    assert_eq!(plan.no_reuse, 21 * 1024);
}

/// Two streams, each a chain: nothing of one is ordered with anything of the other.
#[test]
fn branches_never_share_though_their_recorded_intervals_are_disjoint() {
    let mut tape = Tape::new("g", "m");
    let (m, a) = (tape.stream("m"), tape.stream("a"));
    let (x, y) = (tape.transient("x", 4096), tape.transient("y", 4096));
    tape.kernel("fork", m, &[], &[]);
    tape.order(m, a);
    tape.kernel("k1", m, &[], &[x]);
    tape.kernel("k2", m, &[x], &[]);
    tape.kernel("k3", a, &[], &[y]);
    tape.kernel("k4", a, &[y], &[]);
    tape.order(a, m);
    let z = tape.transient("z", 8192);
    tape.kernel("join", m, &[], &[z]);
    let pool = tape.finish();
    let plan = plan(&pool);
    assert!(!share(&pool, &plan, x, y));
    assert!(share(&pool, &plan, x, z) && share(&pool, &plan, y, z));
    assert_eq!(plan.bytes, 8192);
}

#[test]
fn a_programmatic_edge_lets_bytes_be_reused_only_after_the_wait() {
    for before_wait in [false, true] {
        let mut tape = Tape::new("g", "m");
        let m = tape.stream("m");
        let (x, y) = (tape.transient("x", 4096), tape.transient("y", 4096));
        tape.kernel("k1", m, &[], &[x]);
        tape.rec.launch_next_programmatically(m);
        let k2 = tape.kernel("k2", m, &[], &[y]);
        let mut pool = tape.finish();
        if before_wait {
            pool.node_mut(k2).accesses[0].phase = lathe_graph::model::Phase::BeforeWait;
        }
        assert_eq!(share(&pool, &plan(&pool), x, y), !before_wait);
    }
}

#[test]
fn lasting_buffers_and_held_outputs_have_bytes_of_their_own() {
    let pool = decode(8, 3);
    let plan = plan(&pool);
    for kept in pool.buffer_ids().filter(|id| !matches!(pool.buffer(*id).lifetime, Lifetime::Transient { .. })) {
        for other in pool.buffer_ids().filter(|other| *other != kept) {
            assert!(!share(&pool, &plan, kept, other));
        }
    }
}

/// Two buckets of one model in a pool.
fn buckets(release: Release, at_once: bool) -> (Pool, Plan) {
    let mut tape = Tape::new("b8", "main");
    decode_into(&mut tape, 8, 2);
    tape.next_graph("b32", "main");
    decode_into(&mut tape, 32, 2);
    let mut pool = tape.finish();
    for id in pool.buffer_ids() {
        if let Lifetime::Output { release: of, .. } = &mut pool.buffer_mut(id).lifetime {
            *of = release;
        }
    }
    if at_once {
        let [a, b] = ["b8", "b32"].map(|name| pool.find_graph(name).unwrap());
        pool.may_replay_at_once(a, b);
    }
    let plan = plan(&pool);
    (pool, plan)
}

#[test]
fn buckets_share_one_arena_unless_they_may_replay_at_once() {
    let held = buckets(Release::Held, false).1;
    let released = buckets(Release::BeforeNextReplay, false).1;
    let (pool, at_once) = buckets(Release::Held, true);
    let small_output = pool.buffer(pool.find_buffer("logits b8").unwrap()).size;
    assert_eq!(released.bound.bytes, held.bound.bytes - small_output);
    assert!(at_once.bytes > held.bytes);
    for (pool, plan) in [(&pool, &at_once), (&buckets(Release::Held, false).0, &held)] {
        assert!(plan.ratio() < 1.02, "{}", plan.ratio());
        let report = check(pool, Some(&plan.placement)).unwrap();
        assert!(report.is_clean(), "{}", report.findings[0].message);
    }
}

#[test]
fn a_plan_is_a_function_of_its_input_and_the_hash_tells() {
    let pool = decode(8, 2);
    let first = plan(&pool);
    assert_eq!(first, plan(&pool));
    let moved = {
        let order = Order::of(&pool).unwrap();
        Planner::new(&pool, &order).plan(&Options { base: 1 << 32, ..Options::default() })
    };
    assert_eq!(moved.hash, first.hash, "the base is not part of the plan");
    assert_ne!(moved.placement, first.placement);
    let mut other = pool.clone();
    other.buffer_mut(pool.find_buffer("q 1").unwrap()).size += 1;
    assert_ne!(plan(&other).hash, first.hash);
}

#[test]
fn offsets_respect_every_alignment() {
    let mut pool = fork_join(3, 40);
    for (i, id) in pool.buffer_ids().enumerate() {
        let buffer = pool.buffer_mut(id);
        buffer.align = 1 << (i % 13);
        buffer.size += i as u64 % 7;
    }
    let plan = plan(&pool);
    for (id, address) in plan.placement.iter() {
        assert!(address.is_multiple_of(pool.buffer(id).align));
    }
    assert!(check(&pool, Some(&plan.placement)).unwrap().is_clean());
}

#[test]
fn decode_steps_are_planned_within_two_per_cent_of_the_bound() {
    for batch in [1, 8, 32] {
        let pool = decode(batch, 8);
        let plan = plan(&pool);
        assert!(check(&pool, Some(&plan.placement)).unwrap().is_clean());
        println!(
            "B {batch:>2}: {} bytes, bound {}, ratio {:.4}, no reuse {}",
            plan.bytes,
            plan.bound.bytes,
            plan.ratio(),
            plan.no_reuse
        );
        assert!(plan.ratio() <= 1.02);
    }
}

#[test]
fn fork_join_graphs_are_planned_within_two_per_cent_of_the_bound_at_the_median() {
    let mut ratios: Vec<f64> = (0..40)
        .map(|seed| {
            let pool = fork_join(seed, 30 + 4 * seed as usize);
            let plan = plan(&pool);
            assert!(check(&pool, Some(&plan.placement)).unwrap().is_clean());
            plan.ratio()
        })
        .collect();
    ratios.sort_by(f64::total_cmp);
    println!("fork/join: median {:.4}, worst {:.4}", ratios[20], ratios[39]);
    assert!(ratios[20] <= 1.02);
    assert!(ratios[0] >= 1.0);
}

/// Every antichain, by force.
fn heaviest_by_force(sizes: &[u64], order: &Precedence) -> u64 {
    let apart = |set: u32| {
        let members: Vec<usize> = (0..sizes.len()).filter(|b| set >> b & 1 == 1).collect();
        members.iter().all(|&u| members.iter().all(|&v| !order.is_before(u, v)))
    };
    let weight = |set: &u32| (0..sizes.len()).filter(|b| set >> b & 1 == 1).map(|b| sizes[b]).sum::<u64>();
    (0..1u32 << sizes.len()).filter(|&set| apart(set)).map(|set| weight(&set)).max().unwrap_or(0)
}

fn closed(n: usize, pairs: &[(usize, usize)]) -> Precedence {
    let mut before = BitMatrix::new(n);
    pairs.iter().map(|&(a, b)| (a % n, b % n)).filter(|(a, b)| a < b).for_each(|(a, b)| before.set(a, b));
    for v in (0..n).rev() {
        let after: Vec<usize> = before.iter_row(v).collect();
        after.into_iter().for_each(|w| before.union_rows(v, w));
    }
    Precedence::new(before)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_bound_is_the_heaviest_antichain(
        sizes in proptest::collection::vec(1u64..20, 1..10),
        pairs in proptest::collection::vec((0usize..10, 0usize..10), 0..20),
    ) {
        let order = closed(sizes.len(), &pairs);
        let live = max_live(&sizes, &order);
        prop_assert_eq!(live.bytes, heaviest_by_force(&sizes, &order));
        for &u in &live.buffers {
            prop_assert!(live.buffers.iter().all(|&v| !order.is_before(u, v)));
        }
    }

    #[test]
    fn for_intervals_the_flow_and_the_sweep_agree(
        buffers in proptest::collection::vec((0u64..60, 1u64..20, 1u64..1000), 1..80),
    ) {
        let lifetimes: Vec<(u64, u64)> = buffers.iter().map(|&(lower, len, _)| (lower, lower + len)).collect();
        let sizes: Vec<u64> = buffers.iter().map(|&(.., size)| size).collect();
        let by_flow = max_live(&sizes, &Precedence::of_intervals(&lifetimes));
        prop_assert_eq!(by_flow.bytes, max_live_of_intervals(&sizes, &lifetimes).bytes);
    }

    #[test]
    fn planned_graphs_have_no_finding(seed in any::<u64>(), nodes in 5usize..80) {
        let pool = fork_join(seed, nodes);
        let plan = plan(&pool);
        prop_assert!(plan.bytes >= plan.bound.bytes);
        prop_assert!(check(&pool, Some(&plan.placement)).unwrap().is_clean());
    }
}
