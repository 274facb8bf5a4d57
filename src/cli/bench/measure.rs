//! One size of one kernel, measured.

use lathe_codegen::benchmark::{Benchmark, Configuration, Machine, Size, SizeError, Work, Workload};
use lathe_codegen::entry::Entry;
use lathe_codegen::target::Target;
use lathe_runtime::bench::{
    Bandwidth, Bench, BenchError, CARDS, Contender, Edges, Paired, Prepared, Protocol, Samples, StaticFigures, predict,
};
use lathe_runtime::device::Device;
use lathe_runtime::nvrtc::Compiler;
use lathe_runtime::sass::Sass;
use lathe_runtime::toolchain::Toolchain;
use serde::Serialize;

use super::peer::{Manifest, Recorded};
use super::{Error, select_configuration};
use crate::cli::select;

/// What is timed beside a kernel.
pub enum Rival<'a> {
    /// A kernel of this program.
    Kernel(&'a Entry, Benchmark),
    /// The same kernel, configured otherwise.
    Configuration(String),
    /// CUDA sources.
    Cuda(Manifest),
    /// Figures from elsewhere.
    Recorded(Vec<Recorded>),
}

pub struct Measurer<'a> {
    pub device: &'a Device,
    pub compiler: &'a Compiler<'a>,
    pub toolchain: &'a Toolchain,
    pub target: Target,
    pub protocol: Protocol,
    pub edges: Vec<Edges>,
    pub bandwidth: Bandwidth,
    pub rivals: Vec<Rival<'a>>,
}

/// A size of a kernel: its times, or why there are none.
#[derive(Serialize)]
pub struct Row {
    pub kernel: String,
    #[serde(flatten)]
    pub size: SizeColumns,
    pub configuration: String,
    pub grid: [u32; 3],
    /// Sets of memory that the calls rotate through.
    pub sets: usize,
    pub ctas_per_sm: u32,
    pub times: Vec<Time>,
    /// Microseconds that the cost model expects with plain edges, on a card that it knows.
    pub predicted_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(skip)]
    pub point: Size,
}

impl Row {
    /// A row without times.
    pub fn new(kernel: &str, point: Size) -> Row {
        Row {
            kernel: kernel.to_owned(),
            size: point.into(),
            configuration: String::new(),
            grid: [0; 3],
            sets: 0,
            ctas_per_sm: 0,
            times: Vec::new(),
            predicted_us: None,
            error: None,
            point,
        }
    }
}

/// A [`Size`] in plain columns.
#[derive(Clone, Serialize)]
pub struct SizeColumns {
    pub batch: u32,
    pub keys: u32,
    pub next_n: u32,
    pub heads: u32,
    pub top_k: u32,
    pub long_row: Option<u32>,
    pub captured_for: Option<u32>,
}

impl From<Size> for SizeColumns {
    fn from(size: Size) -> Self {
        let Size { batch, keys, next_n, heads, top_k, long_row, captured_for } = size;
        SizeColumns { batch, keys, next_n, heads, top_k, long_row, captured_for }
    }
}

/// The times of a size with one kind of edges.
#[derive(Serialize)]
pub struct Time {
    /// `plain` or `pdl`.
    pub edges: &'static str,
    /// Median, microseconds a call.
    pub us: f64,
    /// Half the distance between the 10th and the 90th percentile, as a part of the median.
    pub spread: f64,
    /// Bytes that must move over the median.
    pub tb_per_s: f64,
    /// Operations of the tensor cores over the median.
    pub tflop_per_s: f64,
    /// Of the read bandwidth measured in the same run.
    pub of_read_bandwidth: f64,
    /// Others, timed in the same run or recorded.
    pub rivals: Vec<RivalTime>,
}

impl Time {
    /// What `samples` of a call say of its `work`.
    pub fn new(edges: Edges, samples: &Samples, work: &Work, bandwidth: Bandwidth, rivals: Vec<RivalTime>) -> Time {
        let us = samples.median();
        let bytes = (work.read + work.written) as f64;
        Time {
            edges: edges.name(),
            us,
            spread: samples.spread(),
            tb_per_s: bytes / us / 1e6,
            tflop_per_s: work.flops as f64 / us / 1e6,
            of_read_bandwidth: bytes / us * 1e6 / bandwidth.read,
            rivals,
        }
    }
}

/// A rival at a size.
#[derive(Serialize)]
pub struct RivalTime {
    /// What stands above its column: configurations of a peer share one.
    #[serde(skip)]
    pub column: String,
    /// What was timed.
    pub name: String,
    pub us: Option<f64>,
    /// This kernel's time over the rival's: the median over pairs that were timed in turn, or of medians where the
    /// rival's figure was recorded.
    pub ratio: Option<f64>,
    pub ratio_spread: Option<f64>,
    pub recorded: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Replays of each candidate when a rival chooses its best configuration.
const GLANCES: usize = 5;

impl Measurer<'_> {
    /// Measures a size. What goes wrong at this size is part of the row.
    pub fn row(&self, entry: &Entry, benchmark: &Benchmark, size: Size, configuration: Option<&str>) -> Row {
        let mut row = Row::new(entry.name, size);
        if let Err(error) = self.measure(entry, benchmark, configuration, &mut row) {
            row.times.clear();
            row.error = Some(error.to_string());
        }
        row
    }

    /// What launch rules may know of the device.
    pub fn machine(&self) -> Machine {
        Machine { target: self.target, sms: self.device.info().sms }
    }

    fn measure(
        &self,
        entry: &Entry,
        benchmark: &Benchmark,
        configuration: Option<&str>,
        row: &mut Row,
    ) -> Result<(), Error> {
        let size = row.point;
        let work = (benchmark.work)(&size)?;
        Bench::expect_room(self.device, &work, self.protocol)?;
        let workload = (benchmark.workload)(&size)?;
        let chosen = select_configuration((benchmark.configurations)(&size, self.machine()), configuration)?;
        (row.configuration, row.grid) = (chosen.label(), chosen.grid);
        let contender = self.contender(entry.name, chosen)?;
        row.ctas_per_sm = contender.ctas_per_sm(self.device)?;
        row.predicted_us = self.predicted(&contender, &work)?;

        let bench = Bench::new(self.device, &workload, &work, self.protocol)?;
        row.sets = bench.sets();
        let others = self.rivals.iter().map(|rival| rival.workload(&size)).collect::<Result<Vec<_>, _>>()?;
        let mut rivals = Vec::new();
        for (rival, other) in self.rivals.iter().zip(&others) {
            let own = match other {
                Some((workload, work)) => Some(Bench::new(self.device, workload, work, self.protocol)?),
                None => None,
            };
            let floor = matches!(rival, Rival::Cuda(manifest) if manifest.floor);
            rivals.push((rival.name(entry), self.contenders(rival, entry, benchmark, &size)?, own, floor));
        }

        for &edges in &self.edges {
            let prepared = bench.prepare(&contender, edges)?;
            let mut samples: Option<Samples> = None;
            let mut times = Vec::new();
            for (name, contenders, own, floor) in rivals.iter().filter(|rival| !rival.1.is_empty()) {
                let (rival, paired) = match best(own.as_ref().unwrap_or(&bench), contenders, edges, *floor) {
                    Ok((rival, other)) => (rival, bench.pair(&prepared, &other)?),
                    Err(error) => {
                        times.push(RivalTime::failed(name.clone(), error.to_string()));
                        continue;
                    }
                };
                samples.get_or_insert_with(|| paired.first.clone());
                times.push(RivalTime::paired(name.clone(), rival, &paired));
            }
            let samples = match samples {
                Some(samples) => samples,
                None => bench.time(&prepared)?,
            };
            let us = samples.median();
            for recorded in self.rivals.iter().flat_map(Rival::recorded).filter(|r| r.is_of(entry.name, &size, edges)) {
                times.push(RivalTime::recorded(recorded, us));
            }
            row.times.push(Time::new(edges, &samples, &work, self.bandwidth, times));
        }
        Ok(())
    }

    /// What a rival may launch at this size; nothing where it computes no such size.
    fn contenders(
        &self,
        rival: &Rival,
        entry: &Entry,
        benchmark: &Benchmark,
        size: &Size,
    ) -> Result<Vec<Contender>, Error> {
        let configurations = |benchmark: &Benchmark| (benchmark.configurations)(size, self.machine());
        let one = |name: &str, configuration| Ok(vec![self.contender(name, configuration)?]);
        match rival {
            Rival::Recorded(_) => Ok(Vec::new()),
            Rival::Kernel(other, theirs) => one(other.name, select_configuration(configurations(theirs), None)?),
            Rival::Configuration(label) => {
                one(entry.name, select_configuration(configurations(benchmark), Some(label))?)
            }
            Rival::Cuda(manifest) => {
                Ok(manifest.contenders(entry.name, size, (self.device, self.compiler, self.target))?)
            }
        }
    }

    /// A configuration, compiled and loaded.
    pub fn contender(&self, name: &str, configuration: Configuration) -> Result<Contender, Error> {
        let name = format!("{name} {}", configuration.label());
        let name = name.trim_end().to_owned();
        Ok(Contender::of_configuration(self.device, self.compiler, self.target, name, configuration)?)
    }

    fn predicted(&self, contender: &Contender, work: &Work) -> Result<Option<f64>, Error> {
        let card = CARDS.iter().find(|card| self.device.info().name.starts_with(card.device));
        let (Some(card), Some(program)) = (card, contender.program()) else { return Ok(None) };
        let Ok(sass) = Sass::disassemble(self.toolchain, &program.compiled.cubin) else { return Ok(None) };
        Ok(Some(predict(card, work, &StaticFigures::of(program, &sass)).us))
    }
}

/// The fastest of `contenders` with these edges whose results are right, or of floors, which have none.
fn best(bench: &Bench, contenders: &[Contender], edges: Edges, floors: bool) -> Result<(String, Prepared), BenchError> {
    let mut timed = Vec::new();
    for contender in contenders {
        let captured = bench.capture(contender, edges)?;
        timed.push((bench.glance(&captured, GLANCES)?, contender.name.clone(), captured));
    }
    timed.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut wrong = None;
    for (_, name, captured) in timed {
        match if floors { Ok(bench.floor(captured)) } else { bench.check(captured) } {
            Ok(prepared) => return Ok((name, prepared)),
            Err(error @ BenchError::Wrong { .. }) => wrong = wrong.or(Some(error)),
            Err(error) => return Err(error),
        }
    }
    Err(wrong.expect("there is a contender"))
}

impl Rival<'_> {
    fn name(&self, entry: &Entry) -> String {
        match self {
            Rival::Kernel(other, _) => other.name.to_owned(),
            Rival::Configuration(label) => format!("{} {label}", entry.name),
            Rival::Cuda(manifest) => manifest.name.clone(),
            Rival::Recorded(_) => "recorded".to_owned(),
        }
    }

    /// Memory of its own, where it does not compute on that of the kernel it is compared with.
    fn workload(&self, size: &Size) -> Result<Option<(Workload, Work)>, SizeError> {
        match self {
            Rival::Kernel(_, benchmark) => Ok(Some(((benchmark.workload)(size)?, (benchmark.work)(size)?))),
            _ => Ok(None),
        }
    }

    fn recorded(&self) -> &[Recorded] {
        if let Rival::Recorded(figures) = self { figures } else { &[] }
    }

    /// What `--vs` names: a manifest, a file of figures, a kernel, or a configuration.
    pub fn of<'a>(what: &str, entries: &'a [Entry]) -> Result<Rival<'a>, Error> {
        let path = std::path::Path::new(what);
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("toml") => return Ok(Rival::Cuda(Manifest::read(path)?)),
            Some("json" | "jsonl") => return Ok(Rival::Recorded(Recorded::read(path)?)),
            _ => {}
        }
        if what.contains('=') {
            return Ok(Rival::Configuration(what.to_owned()));
        }
        let entry = select::entry(entries, what)?;
        let benchmark = entry.benchmark.ok_or_else(|| super::SweepError::NoBenchmark { kernel: what.to_owned() })?;
        Ok(Rival::Kernel(entry, benchmark))
    }
}

impl RivalTime {
    fn paired(column: String, name: String, paired: &Paired) -> RivalTime {
        RivalTime {
            column,
            name,
            us: Some(paired.second.median()),
            ratio: Some(paired.ratio.median()),
            ratio_spread: Some(paired.ratio.spread()),
            recorded: false,
            error: None,
        }
    }

    /// Something that is timed for its own sake.
    pub fn alone(column: String, name: String, us: f64) -> RivalTime {
        RivalTime { column, name, us: Some(us), ratio: None, ratio_spread: None, recorded: false, error: None }
    }

    fn recorded(recorded: &Recorded, us: f64) -> RivalTime {
        RivalTime {
            column: recorded.peer.clone(),
            name: recorded.peer.clone(),
            us: Some(recorded.us),
            ratio: Some(us / recorded.us),
            ratio_spread: None,
            recorded: true,
            error: None,
        }
    }

    fn failed(name: String, error: String) -> RivalTime {
        RivalTime {
            column: name.clone(),
            name,
            us: None,
            ratio: None,
            ratio_spread: None,
            recorded: false,
            error: Some(error),
        }
    }
}
