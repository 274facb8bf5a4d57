//! `lathe graph plan`: offsets for the buffers of a graph file or of a MiniMalloc CSV.

use std::path::PathBuf;
use std::process::ExitCode;

use anstream::eprintln;
use lathe_graph::check::check;
use lathe_graph::draw::bytes;
use lathe_graph::file::GraphFile;
use lathe_graph::minimalloc::Instance;
use lathe_graph::order::Order;
use lathe_graph::plan::{Options, Planner};
use lathe_graph::render::summary;
use serde_json::json;

use super::placed;
use crate::cli::output::println;
use crate::cli::{Context, Outcome};

/// Give each buffer of a graph its bytes, sharing only what the graph's order allows
#[derive(clap::Args)]
#[command(after_help = "Exit status: 0 planned, 1 the graph has findings, 2 the file cannot be used.")]
pub struct Args {
    /// Graph file (JSON), or static allocation problem (CSV with id,lower,upper,size)
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// How hard to look for a better plan: placements of one buffer to try
    #[arg(long, value_name = "N", default_value_t = Options::default().steps)]
    steps: u64,

    /// Choose every address anew, also of buffers whose address the file gives
    #[arg(long)]
    ignore_addresses: bool,

    /// Plan even if the graph has findings that no placement can mend
    #[arg(long)]
    unchecked: bool,

    /// Print where each buffer lies
    #[arg(long)]
    layout: bool,

    /// Print the plan as JSON
    #[arg(long, conflicts_with = "layout")]
    json: bool,
}

pub fn run(args: &Args, _context: &Context) -> Outcome {
    if args.file.extension().is_some_and(|ext| ext.eq_ignore_ascii_case("csv")) {
        return intervals(args);
    }
    let mut file = GraphFile::read(&args.file)?;
    if args.ignore_addresses {
        placed::forget_addresses(&mut file.pool);
    }
    let pool = &file.pool;
    let report = check(pool, None)?;
    if !report.is_clean() && !args.unchecked {
        eprintln!("{}", summary(&report, pool, &file.placement));
        eprintln!("a plan cannot make up for what is wrong: see `lathe graph check`, or plan with --unchecked");
        return Ok(ExitCode::FAILURE);
    }
    let order = Order::of(pool)?;
    let plan = Planner::new(pool, &order).plan(&Options { steps: args.steps, ..Options::default() });
    let framework = placed::framework(pool)?;
    let unsafe_findings = check(pool, Some(&framework.placement))?.findings.len();
    let lies: Vec<_> =
        plan.placement.iter().map(|(id, at)| (&pool.buffer(id).name, at, pool.buffer(id).size)).collect();
    if args.json {
        let buffers: Vec<_> =
            lies.iter().map(|(name, at, size)| json!({ "name": name, "address": at, "size": size })).collect();
        let live: Vec<_> = plan.bound.live.iter().map(|id| &pool.buffer(*id).name).collect();
        println!(
            "{}",
            json!({
                "bytes": plan.bytes, "bound": plan.bound.bytes, "ratio": plan.ratio(), "live_at_bound": live,
                "no_reuse": plan.no_reuse, "framework_peak": framework.peak, "framework_reserved": framework.reserved,
                "framework_findings": unsafe_findings, "hash": plan.hash.to_string(), "buffers": buffers,
            })
        );
        return Ok(ExitCode::SUCCESS);
    }
    let row = |what: &str, n: u64, note: &str| println!("{what:<22} {n:>16}  {:>10}  {note}", bytes(n));
    row("planned", plan.bytes, &format!("{:.4} of the bound, lasting buffers apart", plan.ratio()));
    row("bound", plan.bound.bytes, &format!("{} buffers that may all be live at once", plan.bound.live.len()));
    row("no reuse", plan.no_reuse, "");
    let verdict = match unsafe_findings {
        0 => "safe here".to_string(),
        1 => "and 1 finding".to_string(),
        n => format!("and {n} findings"),
    };
    row(
        "caching allocator",
        framework.peak,
        &format!("in record order, {} reserved: {verdict}", bytes(framework.reserved)),
    );
    println!("plan {}", plan.hash);
    if args.layout {
        lies.iter().for_each(|(name, at, size)| println!("{at:>16} {size:>14}  {name}"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Half-open lifetimes on one stream.
fn intervals(args: &Args) -> Outcome {
    let path = args.file.display().to_string();
    let text = std::fs::read_to_string(&args.file).map_err(|error| format!("{path}: {error}"))?;
    let instance = Instance::parse(&text).map_err(|error| format!("{path}: {error}"))?;
    let bound = instance.max_live();
    let offsets = instance.place(args.steps);
    let ratio = offsets.peak as f64 / bound.bytes as f64;
    let lies = || instance.names.iter().zip(&instance.sizes).zip(&offsets.of);
    if args.json {
        let buffers: Vec<_> =
            lies().map(|((name, size), at)| json!({ "name": name, "address": at, "size": size })).collect();
        println!("{}", json!({ "bytes": offsets.peak, "bound": bound.bytes, "ratio": ratio, "buffers": buffers }));
        return Ok(ExitCode::SUCCESS);
    }
    println!("planned {:>14}  {ratio:.4} of the bound", offsets.peak);
    println!("bound   {:>14}  {} buffers live at once", bound.bytes, bound.buffers.len());
    println!("no reuse {:>13}", instance.sizes.iter().sum::<u64>());
    if args.layout {
        lies().for_each(|((name, size), at)| println!("{at:>16} {size:>14}  {name}"));
    }
    Ok(ExitCode::SUCCESS)
}
