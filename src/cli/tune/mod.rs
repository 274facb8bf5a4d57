//! `lathe tune`: which configuration of a kernel is the fastest at each size, and what the launch rule gives away.

mod report;
mod results;
mod search;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use anstream::eprintln;
use lathe_codegen::target::Target;
use lathe_runtime::bench::{Edges, Protocol};
use lathe_runtime::device::{self, Device};
use lathe_runtime::nvrtc::Compiler;

use self::results::{Head, Results};
use self::search::{Job, Search};
use super::bench::{EdgesName, Sizes, benchmarks};
use super::shard::Shard;
use super::{Context, Outcome, select, terminal};

/// Search the schedules of the kernels for the fastest at each size
#[derive(clap::Args)]
#[command(
    after_help = "Every configuration is compiled, checked against the reference and timed as `lathe bench` does; one that does not
compile, fit or compute the right thing is a row with its reason. Rows are kept as they are measured: the same command
again goes on where it was stopped, and tries again only what has changed. All GPUs of the machine take part.

Results belong to a device, a target, a version and a compiler; others are refused, or replaced with --fresh.

Exit status: 0 if the search ended, 2 if it could not be made.

Examples:
  lathe tune --kernel bf16_paged_mqa_logits                    every configuration at the kernel's own sizes
  lathe tune --batch 1,64 --keys 1024,16384 --shard 3/8        a part, for a job array
  lathe tune --merge part-*.jsonl --results all.jsonl          the parts together
  lathe tune --show all.jsonl                                  the fastest of each size (needs no GPU)"
)]
pub struct Args {
    /// Only this kernel (may be given several times)
    #[arg(long, value_name = "NAME")]
    kernel: Vec<String>,

    #[command(flatten)]
    sizes: Sizes,

    /// The edges between calls
    #[arg(long, value_enum, value_name = "EDGES", default_value = "pdl")]
    edges: EdgesName,

    /// Let each call find its inputs in the L2, as the call before left them
    #[arg(long)]
    warm_l2: bool,

    /// Replays that are timed
    #[arg(long, value_name = "N", default_value_t = 11)]
    replays: usize,

    /// Only this GPU; all GPUs of the first one's kind if left out (may be given several times)
    #[arg(long, value_name = "ORDINAL")]
    device: Vec<usize>,

    /// Search the INDEX-th of COUNT parts only
    #[arg(long, value_name = "INDEX/COUNT", default_value = "1/1")]
    shard: Shard,

    /// The file of results; by default one in Lathe's folder for each device and shard
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,

    /// Start over: throw away what the file of results holds
    #[arg(long)]
    fresh: bool,

    /// Join files of results into one instead of searching
    #[arg(long, value_name = "FILE", num_args = 1.., requires = "results")]
    merge: Vec<PathBuf>,

    /// Print a file of results instead of searching
    #[arg(long, value_name = "FILE", conflicts_with = "merge")]
    show: Option<PathBuf>,

    /// Print the result as one JSON object
    #[arg(long)]
    json: bool,
}

/// Why there is no search.
#[derive(Debug, thiserror::Error)]
enum TuneError {
    #[error("the device runs no target that Lathe generates code for (sm_90a, sm_120a, sm_120f)")]
    NoTarget,
    #[error(
        "GPU {other} is {theirs}, and GPU {first} is {own}: results belong to one kind, name the GPUs with --device"
    )]
    Mixed { first: usize, own: String, other: usize, theirs: String },
}

pub fn run(args: &Args, context: &Context) -> Outcome {
    if let Some(path) = &args.show {
        report::print(&Results::read(path)?, args.json);
        return Ok(ExitCode::SUCCESS);
    }
    if let (false, Some(into)) = (args.merge.is_empty(), &args.results) {
        report::print(&Results::merge(&args.merge, into)?, args.json);
        return Ok(ExitCode::SUCCESS);
    }
    let entries = benchmarks(select::entries(context.entries, &args.kernel)?, !args.kernel.is_empty())?;
    let devices = devices(&args.device)?;
    let (_, first) = &devices[0];
    let target = first.info().target().ok_or(TuneError::NoTarget)?;
    let toolchain = terminal::toolchain(context.offline);
    let compiler = Compiler::load(&toolchain)?;
    let edges = Edges::from(args.edges);
    let head = Head::new(&first.info().name, target.name(), compiler.library().version, edges.name(), args.warm_l2);
    let path = args.results.clone().unwrap_or_else(|| {
        toolchain.home().path().join("tune").join(file_name(&first.info().name, target, edges, args.shard))
    });
    let results = Results::open(&path, head, args.fresh)?;

    let jobs = entries.iter().flat_map(|(entry, benchmark)| {
        args.sizes.of(benchmark).into_iter().map(|size| Job { entry, benchmark: *benchmark, size })
    });
    let jobs = args.shard.of(jobs.collect());
    let bar = terminal::bar_with_time_left(jobs.len());
    let protocol = Protocol { replays: args.replays.max(1), warm_l2: args.warm_l2, ..Protocol::default() };
    let search = Search { compiler: &compiler, target, protocol, edges, results: Mutex::new(results), bar: &bar };
    let outcome = search.run(&devices, jobs);
    bar.finish_and_clear();
    outcome?;
    let results = search.results.into_inner().unwrap_or_else(PoisonError::into_inner);
    eprintln!("\x1b[1;32mlathe\x1b[0m results are in {}", path.display());
    report::print(&results, args.json);
    Ok(ExitCode::SUCCESS)
}

/// The GPUs that were asked for, or all of the first one's kind.
fn devices(asked: &[usize]) -> Result<Vec<(usize, Device)>, Box<dyn std::error::Error + Send + Sync>> {
    let listed = device::list()?;
    let ordinals: Vec<usize> = match (asked.is_empty(), listed.first()) {
        (false, _) => asked.to_vec(),
        // Opening the first one that is not there says so.
        (true, None) => vec![0],
        (true, Some(first)) => (0..listed.len()).filter(|&ordinal| listed[ordinal].name == first.name).collect(),
    };
    let mut devices: Vec<(usize, Device)> = Vec::new();
    for other in ordinals {
        let device = Device::open(other)?;
        if let Some((first, known)) = devices.first().filter(|(_, known)| known.info().name != device.info().name) {
            let (own, theirs) = (known.info().name.clone(), device.info().name.clone());
            return Err(TuneError::Mixed { first: *first, own, other, theirs }.into());
        }
        devices.push((other, device));
    }
    Ok(devices)
}

/// `nvidia-h200-sm_90a-pdl.jsonl`, with the shard if there are several.
fn file_name(device: &str, target: Target, edges: Edges, shard: Shard) -> String {
    let device = device.to_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    let part = if shard == Shard::WHOLE { String::new() } else { format!("-{}of{}", shard.index, shard.count) };
    format!("{device}-{target}-{}{part}.jsonl", edges.name())
}
