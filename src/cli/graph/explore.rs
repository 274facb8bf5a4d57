//! `lathe graph explore`: a graph file run in many orders, on symbolic values.

use std::process::ExitCode;

use lathe_graph::explore::{Order, Schedule, Tagged, exhaust, explore, judge};
use lathe_graph::finding::step_name;
use lathe_graph::model::{GraphId, NodeId, Phase, Placement, Pool};
use serde::Serialize;

use super::placed::Input;
use crate::cli::output::println;
use crate::cli::{Context, Outcome};

/// Run a graph in many orders on symbolic values, and say what the order changes
#[derive(clap::Args)]
#[command(after_help = "Exit status: 0 no order changes anything, 1 some order does, 2 the file cannot be used.")]
pub struct Args {
    #[command(flatten)]
    input: Input,

    /// Random orders to run, besides the adversarial one of each pair that matters
    #[arg(long, value_name = "N", default_value_t = 1000)]
    orders: u64,

    /// Seed of the first random order
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    seed: u64,

    /// Situations after which to give up on running every order
    #[arg(long, value_name = "N", default_value_t = 200_000)]
    limit: usize,

    /// Print what was seen as JSON
    #[arg(long)]
    json: bool,
}

/// What the orders of one graph showed.
#[derive(Serialize)]
struct Seen {
    graph: String,
    /// Pairs of nodes whose order changes what one of them reads, or the bytes after both.
    pairs_that_matter: Vec<[String; 2]>,
    orders: usize,
    orders_with_another_result: usize,
    first_such_order: Option<Deviating>,
    /// None if there are too many.
    every_order: Option<EveryOrder>,
}

#[derive(Serialize)]
struct Deviating {
    changes: Vec<String>,
    order: Vec<String>,
}

#[derive(Serialize)]
struct EveryOrder {
    situations: usize,
    results_that_change: usize,
}

pub fn run(args: &Args, _context: &Context) -> Outcome {
    let (file, placement) = args.input.read()?;
    let pool = &file.pool;
    pool.validate()?;
    let seen: Vec<Seen> = pool.graph_ids().map(|graph| explore_graph(args, pool, &placement, graph)).collect();
    if args.json {
        println!("{}", serde_json::to_string(&seen)?);
    } else {
        seen.iter().for_each(|graph| graph.print(args.limit));
    }
    let matters = seen.iter().any(|graph| !graph.pairs_that_matter.is_empty());
    Ok(if matters { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn explore_graph(args: &Args, pool: &Pool, placement: &Placement, graph: GraphId) -> Seen {
    let name = |id: NodeId| pool.node(id).name.clone();
    let schedule = Schedule::new(pool, graph);
    let pairs = judge(pool, placement, graph);
    let adversarial = pairs.iter().flat_map(|pair| {
        let phases = [Phase::BeforeWait, Phase::AfterWait];
        phases.into_iter().filter_map(|phase| schedule.pair_order(pair.first, pair.second, phase))
    });
    let orders: Vec<Order> =
        adversarial.chain((0..args.orders).map(|i| schedule.random_order(args.seed.wrapping_add(i)))).collect();
    let mut world = Tagged::new(pool, placement, graph);
    let Ok(explored) = explore(&schedule, orders, &mut world);
    let every_order = exhaust(pool, placement, graph, args.limit);
    Seen {
        graph: pool.graph(graph).name.clone(),
        pairs_that_matter: pairs.iter().map(|pair| [name(pair.first), name(pair.second)]).collect(),
        orders: explored.orders,
        orders_with_another_result: explored.deviations.len(),
        first_such_order: explored.deviations.first().map(|deviation| Deviating {
            changes: deviation.buffers.iter().map(|id| pool.buffer(*id).name.clone()).collect(),
            order: deviation.order.steps.iter().map(|&step| step_name(pool, step)).collect(),
        }),
        every_order: every_order
            .map(|all| EveryOrder { situations: all.states, results_that_change: all.results_differ_in.len() }),
    }
}

impl Seen {
    fn print(&self, limit: usize) {
        println!("\x1b[1m{}\x1b[0m", self.graph);
        for [first, second] in &self.pairs_that_matter {
            println!("  the order of {first} and {second} matters");
        }
        println!("  {} orders run, {} with another result", self.orders, self.orders_with_another_result);
        if let Some(deviating) = &self.first_such_order {
            println!("  changes {}: {}", deviating.changes.join(", "), deviating.order.join(" → "));
        }
        match &self.every_order {
            Some(all) => println!(
                "  every order, kernels overlapping: {} situations, {} results change",
                all.situations, all.results_that_change
            ),
            None => println!("  too large to run every order: more than {limit} situations or 32 steps"),
        }
    }
}
