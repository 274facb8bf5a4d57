//! `lathe graph explore`: a graph file run in many orders, on symbolic values.

use std::process::ExitCode;

use anstream::println;
use lathe_graph::explore::{Order, Schedule, Tagged, exhaust, explore, judge};
use lathe_graph::finding::step_name;
use lathe_graph::model::{NodeId, Phase};

use super::placed::Input;
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
}

pub fn run(args: &Args, _context: &Context) -> Outcome {
    let (file, placement) = args.input.read()?;
    let pool = &file.pool;
    pool.validate()?;
    let name = |id: NodeId| &pool.node(id).name;
    let mut changed = false;
    for graph in pool.graph_ids() {
        println!("\x1b[1m{}\x1b[0m", pool.graph(graph).name);
        let schedule = Schedule::new(pool, graph);
        let pairs = judge(pool, &placement, graph);
        changed |= !pairs.is_empty();
        for pair in &pairs {
            println!("  the order of {} and {} matters", name(pair.first), name(pair.second));
        }
        let adversarial = pairs.iter().flat_map(|pair| {
            let phases = [Phase::BeforeWait, Phase::AfterWait];
            phases.into_iter().filter_map(|phase| schedule.pair_order(pair.first, pair.second, phase))
        });
        let orders: Vec<Order> =
            adversarial.chain((0..args.orders).map(|i| schedule.random_order(args.seed.wrapping_add(i)))).collect();
        let mut world = Tagged::new(pool, &placement, graph);
        let Ok(seen) = explore(&schedule, orders, &mut world);
        println!("  {} orders run, {} with another result", seen.orders, seen.deviations.len());
        if let Some(deviation) = seen.deviations.first() {
            let steps: Vec<String> = deviation.order.steps.iter().map(|&step| step_name(pool, step)).collect();
            let buffers: Vec<&str> = deviation.buffers.iter().map(|id| pool.buffer(*id).name.as_str()).collect();
            println!("  changes {}: {}", buffers.join(", "), steps.join(" → "));
        }
        match exhaust(pool, &placement, graph, args.limit) {
            Some(all) => println!(
                "  every order, kernels overlapping: {} situations, {} results change",
                all.states,
                all.results_differ_in.len()
            ),
            None => println!("  too large to run every order: more than {} situations or 32 steps", args.limit),
        }
    }
    Ok(if changed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
