//! The checker, which reasons, and the explorer, which runs, must agree on random captures, under every way of placing
//! buffers and after every kind of mistake: they share the model and nothing else.
//!
//! `LATHE_AGREEMENT_CASES` sets how many cases run (60,000 by default), `LATHE_AGREEMENT_SEED` the first of them.

mod common;

use common::random::{Mistake, Placer, capture};
use lathe_graph::check::{check, for_each_conflict};
use lathe_graph::explore::{PairVerdict, Schedule, exhaust, judge, strays};
use lathe_graph::finding::{Code, Harm, Step};
use lathe_graph::model::{GraphId, Phase, Placement, Pool};
use lathe_graph::order::Order;
use rayon::prelude::*;
use std::collections::BTreeSet;

const GRAPH: GraphId = GraphId(0);

/// What a case was, for the summary.
#[derive(Clone, Copy, Default)]
struct Tally {
    cases: usize,
    conflicting: usize,
    harmful: usize,
    exhausted: usize,
    clobbered: usize,
}

impl Tally {
    fn add(mut self, other: Self) -> Self {
        self.cases += other.cases;
        self.conflicting += other.conflicting;
        self.harmful += other.harmful;
        self.exhausted += other.exhausted;
        self.clobbered += other.clobbered;
        self
    }
}

fn conflicts(pool: &Pool, placement: &Placement) -> Vec<PairVerdict> {
    let order = Order::of(pool).unwrap();
    let mut pairs = BTreeSet::new();
    for_each_conflict(pool, &order, placement, |c| {
        pairs.insert(PairVerdict { first: c.first.min(c.second), second: c.first.max(c.second) });
    });
    pairs.into_iter().collect()
}

/// Is `steps` every step of the graph once, each after what it needs?
fn is_allowed(pool: &Pool, steps: &[Step]) -> bool {
    let order = Order::of(pool).unwrap();
    let at = |step: &Step| steps.iter().position(|s| s == step);
    let nodes: BTreeSet<_> = steps.iter().map(|s| s.node()).collect();
    nodes.len() == pool.nodes().len()
        && steps.iter().all(|step| {
            let phase = match step {
                Step::BeforeWait(_) => Phase::BeforeWait,
                _ => Phase::AfterWait,
            };
            order.ancestors(step.node(), phase).all(|node| {
                let last = at(&Step::Node(node)).or(at(&Step::AfterWait(node)));
                last.is_some_and(|last| last < at(step).unwrap())
            })
        })
}

fn agree(seed: u64) -> Result<Tally, String> {
    let placer = Placer::ALL[seed as usize % Placer::ALL.len()];
    let mistake = Mistake::ALL[seed as usize / Placer::ALL.len() % Mistake::ALL.len()];
    let (pool, placement) = capture(seed, placer, mistake);
    let fail = |what: String| {
        Err(format!("case {seed} ({placer:?}, {mistake:?}): {what}\n{}", common::random::show(&pool, &placement)))
    };

    let (reasoned, seen) = (conflicts(&pool, &placement), judge(&pool, &placement, GRAPH));
    if reasoned != seen {
        return fail(format!("the checker has the conflicts {reasoned:?}, the explorer sees {seen:?}"));
    }
    let report = check(&pool, Some(&placement)).map_err(|e| e.to_string())?;
    let by_order = |f: &&lathe_graph::finding::Finding| f.harm != Harm::NotByOrder;
    let reported: BTreeSet<_> = report
        .findings
        .iter()
        .filter(by_order)
        .flat_map(|f| f.pair().into_iter().chain(f.also.iter().map(|&(a, b)| [a, b])))
        .map(|[a, b]| PairVerdict { first: a.min(b), second: a.max(b) })
        .collect();
    // A lasting buffer on shared bytes is one finding, whatever the order of its users; the pairs are not listed.
    let in_any_order = report.findings.iter().any(|f| matches!(f.code, Code::E5 | Code::E6));
    let complete = reported.iter().eq(reasoned.iter());
    if !(complete || in_any_order && reported.iter().all(|pair| reasoned.contains(pair))) {
        return fail(format!("the report has the pairs {reported:?}, the conflicts are {reasoned:?}"));
    }
    for finding in report.findings.iter().filter(by_order) {
        let Some(witness) = report.witness(&pool, finding) else { continue };
        let swap = finding.swap.unwrap();
        let [first, second] = [swap.first, swap.second];
        let at = |(node, phase)| {
            let is_part = |step: &Step| match step {
                Step::Node(id) => *id == node,
                Step::BeforeWait(id) => *id == node && phase == Phase::BeforeWait,
                Step::AfterWait(id) => *id == node && phase == Phase::AfterWait,
            };
            witness.steps.iter().position(is_part).unwrap()
        };
        if !is_allowed(&pool, &witness.steps) || at(second) > at(first) {
            return fail(format!(
                "the witness {:?} of {} is no order with {second:?} before {first:?}",
                witness.steps, finding.message
            ));
        }
    }

    let mut tally = Tally { cases: 1, conflicting: usize::from(!seen.is_empty()), ..Tally::default() };
    let inner = seen.iter().any(|pair| pair.first == pair.second);
    if let (false, Some(all)) = (inner, exhaust(&pool, &placement, GRAPH, 4_000)) {
        tally.exhausted = 1;
        if all.order_matters == seen.is_empty() {
            return fail(format!("all orders: order matters is {}, the conflicts are {seen:?}", all.order_matters));
        }
        let harmful = !all.results_differ_in.is_empty();
        tally.harmful = usize::from(harmful);
        if harmful != report.is_harmful() && !in_any_order {
            return fail(format!(
                "all orders: results differ in {:?}; the checker says {:?}",
                all.results_differ_in,
                report.findings.iter().map(|f| (f.code, f.pair(), f.harm.clone())).collect::<Vec<_>>()
            ));
        }
    }
    if seen.is_empty() {
        let strays = strays(&pool, &placement, GRAPH);
        tally.clobbered = usize::from(!strays.is_empty());
        let found = report.findings.iter().any(|f| matches!(f.code, Code::E3 | Code::E5 | Code::E6));
        if !strays.is_empty() && !found {
            return fail(format!("{strays:?} read what another buffer wrote, and nothing is reported"));
        }
    }
    Ok(tally)
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")))
}

#[test]
fn the_checker_and_the_explorer_agree() {
    let (first, cases) = (number("LATHE_AGREEMENT_SEED", 0), number("LATHE_AGREEMENT_CASES", 60_000));
    let results: Vec<_> = (first..first + cases).into_par_iter().map(agree).collect();
    let mut tally = Tally::default();
    let mut failures = Vec::new();
    for result in results {
        match result {
            Ok(one) => tally = tally.add(one),
            Err(message) => failures.push(message),
        }
    }
    println!(
        "{} cases agree: {} with conflicts; {} run in all orders, results differ in {}; {} overwritten in order",
        tally.cases, tally.conflicting, tally.exhausted, tally.harmful, tally.clobbered
    );
    assert!(failures.is_empty(), "{} of {cases} cases disagree; the first:\n{}", failures.len(), failures[0]);
    // The cases are worth something only if they are of every kind.
    assert!(tally.conflicting * 5 > tally.cases && tally.conflicting * 5 < tally.cases * 4);
    assert!(
        tally.harmful * 10 > tally.cases && tally.exhausted * 2 > tally.cases && tally.clobbered * 1000 > tally.cases
    );
}

/// The theorem: without conflicts, one run stands for all schedules.
#[test]
fn a_planned_capture_gives_the_record_orders_result_in_any_order() {
    let all = |seed| {
        lathe_graph::explore::Order::clone(&Schedule::new(&common::fork_join(seed, 20), GRAPH).random_order(seed))
    };
    assert_eq!(all(3), all(3), "a seeded order is reproducible");
    for seed in 0..40 {
        let pool = common::fork_join(seed, 30);
        let order = Order::of(&pool).unwrap();
        let plan = lathe_graph::plan::Planner::new(&pool, &order).plan(&Default::default());
        let schedule = Schedule::new(&pool, GRAPH);
        let mut world = lathe_graph::explore::Tagged::new(&pool, &plan.placement, GRAPH);
        let orders = (0..50).map(|seed| schedule.random_order(seed));
        let Ok(exploration) = lathe_graph::explore::explore(&schedule, orders, &mut world);
        assert_eq!(exploration.deviations, []);
    }
}
