//! `lathe bench`: how fast the kernels are, on a GPU; what can be known of it, without one.

mod figures;
mod measure;
mod peer;
mod plot;
mod report;
mod sizes;
mod step;

use std::path::PathBuf;
use std::process::ExitCode;

use anstream::eprintln;
use clap::ValueEnum;
use lathe_codegen::benchmark::{Axis, Benchmark, Configuration, Size};
use lathe_codegen::entry::Entry;
use lathe_codegen::target::Target;
use lathe_runtime::bench::{Edges, Protocol, bandwidth};
use lathe_runtime::device::{Device, DeviceError};
use lathe_runtime::nvrtc::Compiler;

use self::measure::{Measurer, Rival, Row};
pub use self::sizes::Sizes;
use self::step::STEPS;
use super::shard::Shard;
use super::{Context, Outcome, select, terminal};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Time the kernels, each checked against the reference before it is timed
#[derive(clap::Args)]
#[command(
    after_help = "Without a GPU, or with --static: registers, shared memory, residency and the main loop of the machine code,
and the times that a cost model predicts for RTX PRO 6000, RTX 5090 and H200.

With one: graphs of calls that rotate through enough sets of inputs to find none of them in the L2; medians of replays;
a kernel whose results are wrong gets no time. Rivals are timed in the same run, in turn with the kernel.

Exit status: 0 if everything was timed, 1 if a size was not, 2 if nothing could be timed.

Examples:
  lathe bench                                                      every kernel at its own sizes
  lathe bench --kernel bf16_paged_mqa_logits --batch 1,64 --keys 1024,16384
  lathe bench --kernel fp8_paged_mqa_logits --vs benches/peers/handwritten/peer.toml --svg fp8.svg
  lathe bench --kernel bf16_paged_mqa_logits --vs pages_per_cta=1  the launch rule against another choice
  lathe bench --kernel fp8_paged_mqa_logits --batch 32 --keys 1024 --long-row 65536
  lathe bench --static --target sm_120a"
)]
pub struct Args {
    /// Only this kernel (may be given several times)
    #[arg(long, value_name = "NAME")]
    kernel: Vec<String>,

    #[command(flatten)]
    sizes: Sizes,

    /// Time this configuration, e.g. `pages_per_cta=4`, instead of the launch rule's choice
    #[arg(long, value_name = "LABEL")]
    configuration: Option<String>,

    /// Time this beside each kernel, in turn with it: a peer's manifest (.toml), recorded figures (.jsonl), another
    /// kernel, or another configuration (may be given several times)
    #[arg(long, value_name = "OTHER")]
    vs: Vec<String>,

    /// The edges between calls; both if left out
    #[arg(long, value_enum, value_name = "EDGES")]
    edges: Option<EdgesName>,

    /// Time decode steps instead: store, logits and top-k of either format as one graph, against the sum of the three
    #[arg(long, conflicts_with_all = ["kernel", "vs", "configuration", "without_device", "svg"])]
    step: bool,

    /// Let each call find its inputs in the L2, as the call before left them
    #[arg(long)]
    warm_l2: bool,

    /// Replays that are timed
    #[arg(long, value_name = "N", default_value_t = Protocol::default().replays)]
    replays: usize,

    /// Time the INDEX-th of COUNT parts of the sizes only
    #[arg(long, value_name = "INDEX/COUNT", default_value = "1/1")]
    shard: Shard,

    /// Which GPU
    #[arg(long, value_name = "ORDINAL", default_value_t = 0)]
    device: usize,

    /// Print what can be known without a GPU, even if there is one
    #[arg(long = "static")]
    without_device: bool,

    /// With --static: only this target (may be given several times)
    #[arg(long)]
    target: Vec<Target>,

    /// Print the result as one JSON object
    #[arg(long, conflicts_with = "csv")]
    json: bool,

    /// Print the result as comma-separated values
    #[arg(long)]
    csv: bool,

    /// Draw time against keys, a panel for each kernel, a line for each batch, with the roofline and the rivals
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum EdgesName {
    /// A call starts when the one before has ended
    Plain,
    /// A call may start before the one before has ended, and waits for its results itself
    Pdl,
}

impl From<EdgesName> for Edges {
    fn from(name: EdgesName) -> Self {
        match name {
            EdgesName::Plain => Edges::Plain,
            EdgesName::Pdl => Edges::Programmatic,
        }
    }
}

/// Why nothing was timed.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    #[error("kernel `{kernel}` says nothing of how it is timed: its entry has no `benchmark`")]
    NoBenchmark { kernel: String },
    #[error("no configuration `{label}` at this size; there are {known}")]
    Configuration { label: String, known: String },
    #[error("the device runs no target that Lathe generates code for (sm_90a, sm_120a, sm_120f)")]
    NoTarget,
    #[error("--{option} draws or compares times, and without a GPU there are none")]
    NeedsDevice { option: &'static str },
    #[error("{}: {error}", path.display())]
    Write { path: PathBuf, error: String },
}

pub fn run(args: &Args, context: &Context) -> Outcome {
    let entries = benchmarks(select::entries(context.entries, &args.kernel)?, !args.kernel.is_empty())?;
    let device = match Device::open(args.device) {
        _ if args.without_device => None,
        Ok(device) => Some(device),
        Err(error @ (DeviceError::NoDriver | DeviceError::NoDevice { count: 0, .. })) => {
            eprintln!("\x1b[1;32mlathe\x1b[0m no GPU to time on ({error}): static figures only");
            None
        }
        Err(error) => return Err(error.into()),
    };
    let Some(device) = device else {
        for (given, option) in [(args.svg.is_some(), "svg"), (!args.vs.is_empty(), "vs"), (args.step, "step")] {
            if given {
                return Err(SweepError::NeedsDevice { option }.into());
            }
        }
        return figures::run(args, &entries, context);
    };
    timed(args, &entries, &device, context)
}

fn timed(args: &Args, entries: &[(&Entry, Benchmark)], device: &Device, context: &Context) -> Outcome {
    let target = device.info().target().ok_or(SweepError::NoTarget)?;
    // Before any work: a peer that does not parse costs nothing.
    let rivals = args.vs.iter().map(|what| Rival::of(what, context.entries)).collect::<Result<Vec<_>, _>>()?;
    let toolchain = terminal::toolchain(context.offline);
    let compiler = Compiler::load(&toolchain)?;
    let bandwidth = bandwidth(device, &compiler)?.ok_or(SweepError::NoTarget)?;
    let edges = args.edges.map_or(Edges::ALL.to_vec(), |edges| vec![edges.into()]);
    let protocol = Protocol { replays: args.replays.max(1), warm_l2: args.warm_l2, ..Protocol::default() };
    let measurer =
        Measurer { device, compiler: &compiler, toolchain: &toolchain, target, protocol, edges, bandwidth, rivals };
    let rows = if args.step { steps(args, &measurer) } else { kernels(args, entries, &measurer) };

    let run = report::Run { device: device.info(), target, bandwidth, protocol, rows: &rows };
    if args.json {
        report::json(&run);
    } else if args.csv {
        report::csv(&rows)?;
    } else {
        report::table(&run);
    }
    if let Some(path) = &args.svg {
        plot::draw(&run, path).map_err(|error| SweepError::Write { path: path.clone(), error })?;
    }
    let all = rows.iter().all(|row| {
        row.error.is_none() && row.times.iter().all(|time| time.rivals.iter().all(|rival| rival.error.is_none()))
    });
    Ok(if all { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn kernels(args: &Args, entries: &[(&Entry, Benchmark)], measurer: &Measurer) -> Vec<Row> {
    let points: Vec<(&Entry, &Benchmark, Size)> = entries
        .iter()
        .flat_map(|(entry, benchmark)| args.sizes.of(benchmark).into_iter().map(move |size| (*entry, benchmark, size)))
        .collect();
    let points = args.shard.of(points);
    let bar = terminal::bar_with_time_left(points.len());
    let mut rows = Vec::new();
    for (entry, benchmark, size) in points {
        bar.set_message(format!("{} {size}", entry.name));
        rows.push(measurer.row(entry, benchmark, size, args.configuration.as_deref()));
        bar.inc(1);
    }
    bar.finish_and_clear();
    rows
}

fn steps(args: &Args, measurer: &Measurer) -> Vec<Row> {
    let sizes = args.sizes.of_axes(
        &[Axis::Batch, Axis::Keys, Axis::NextN, Axis::Heads, Axis::TopK],
        lathe_kernels::benchmarks::step::sizes(),
    );
    let points = STEPS.iter().flat_map(|step| sizes.iter().map(move |size| (*step, *size)));
    let points = args.shard.of(points.collect());
    let bar = terminal::bar_with_time_left(points.len());
    let mut rows = Vec::new();
    for ((format, name), size) in points {
        bar.set_message(format!("{name} {size}"));
        rows.push(measurer.step(format, name, size));
        bar.inc(1);
    }
    bar.finish_and_clear();
    rows
}

/// The entries that say how they are timed; one that was asked for and does not is an error.
pub fn benchmarks(entries: Vec<&Entry>, asked: bool) -> Result<Vec<(&Entry, Benchmark)>, SweepError> {
    let timed = entries.into_iter().filter_map(|entry| match entry.benchmark {
        Some(benchmark) => Some(Ok((entry, benchmark))),
        None if asked => Some(Err(SweepError::NoBenchmark { kernel: entry.name.to_owned() })),
        None => None,
    });
    timed.collect()
}

/// The configuration with this label, or the launch rule's choice.
fn select_configuration(configurations: Vec<Configuration>, label: Option<&str>) -> Result<Configuration, SweepError> {
    let known = configurations.iter().map(|c| format!("`{}`", c.label())).collect::<Vec<_>>().join(", ");
    let mut configurations = configurations.into_iter();
    let found = configurations.find(|configuration| label.is_none_or(|label| configuration.label() == label));
    found.ok_or_else(|| SweepError::Configuration { label: label.unwrap_or_default().to_owned(), known })
}
