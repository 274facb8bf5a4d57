//! Trying every configuration of a size, on every GPU.

use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use indicatif::ProgressBar;
use lathe_codegen::benchmark::{Benchmark, Configuration, Machine, Size, Work};
use lathe_codegen::entry::Entry;
use lathe_codegen::target::Target;
use lathe_runtime::bench::{Bench, BenchError, Contender, ContenderError, Edges, Protocol, Samples};
use lathe_runtime::device::{Device, DeviceError};
use lathe_runtime::nvrtc::Compiler;

use super::results::{Record, Results, ResultsError};

/// A size of a kernel, to be searched on one GPU.
#[derive(Clone, Copy)]
pub struct Job<'a> {
    pub entry: &'a Entry,
    pub benchmark: Benchmark,
    pub size: Size,
}

pub struct Search<'a> {
    pub compiler: &'a Compiler<'a>,
    pub target: Target,
    pub protocol: Protocol,
    pub edges: Edges,
    pub results: Mutex<Results>,
    pub bar: &'a ProgressBar,
}

/// Why a search stopped.
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    #[error(transparent)]
    Results(#[from] ResultsError),
    /// The context is lost, and with it every GPU of the process. What was measured is on disk.
    #[error("{what} lost the device: {error}; the same command again skips it and goes on")]
    Lost { what: String, error: String },
}

impl Search<'_> {
    /// Works through `jobs` on all of `devices` at once.
    pub fn run(&self, devices: &[(usize, Device)], jobs: Vec<Job>) -> Result<(), SearchError> {
        let jobs = Mutex::new(jobs.into_iter());
        let next = || jobs.lock().unwrap_or_else(PoisonError::into_inner).next();
        std::thread::scope(|scope| {
            let work = |ordinal: usize, device: &Device| {
                while let Some(job) = next() {
                    self.job(ordinal, device, job)?;
                }
                Ok(())
            };
            let workers: Vec<_> =
                devices.iter().map(|(ordinal, device)| scope.spawn(move || work(*ordinal, device))).collect();
            workers.into_iter().try_for_each(|worker| worker.join().expect("a worker does not panic"))
        })
    }

    fn job(&self, ordinal: usize, device: &Device, job: Job) -> Result<(), SearchError> {
        let Job { entry, benchmark, size } = job;
        self.bar.set_message(format!("{} {size}", entry.name));
        let machine = Machine { target: self.target, sms: device.info().sms };
        let configurations = (benchmark.configurations)(&size, machine);
        let open: Vec<(usize, Configuration, String)> = configurations
            .into_iter()
            .enumerate()
            .map(|(place, configuration)| (place, self.source(&configuration), configuration))
            .filter(|(_, source, configuration)| !self.lock().has(entry.name, &size, &configuration.label(), source))
            .map(|(place, source, configuration)| (place, configuration, source))
            .collect();
        if open.is_empty() {
            self.bar.inc(1);
            return Ok(());
        }
        let record = |place: usize, configuration: String, source: String| Record {
            kernel: entry.name.to_owned(),
            size: size.into(),
            configuration,
            // The launch rule's choice comes first.
            rule: place == 0,
            source,
            us: None,
            spread: None,
            failed: None,
            ordinal,
            at: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        };
        // A size that does not fit is a fact about each of its configurations.
        let fail_all = |reason: String| {
            open.iter().try_for_each(|(place, configuration, source)| {
                let failed = Some(reason.clone());
                self.lock().add(Record { failed, ..record(*place, configuration.label(), source.clone()) })
            })
        };
        let room = |work: &Work| Bench::expect_room(device, work, self.protocol).map_err(|error| error.to_string());
        let made = (benchmark.work)(&size).map_err(|error| error.to_string()).and_then(|work| {
            room(&work)?;
            Ok((work, (benchmark.workload)(&size).map_err(|error| error.to_string())?))
        });
        let (work, workload) = match made {
            Ok(made) => made,
            Err(reason) => return Ok(fail_all(reason)?),
        };
        let bench = match Bench::new(device, &workload, &work, self.protocol) {
            Ok(bench) => bench,
            Err(error) => return Ok(fail_all(error.to_string())?),
        };
        for (place, configuration, source) in open {
            let label = configuration.label();
            let name = format!("{} {label}", entry.name);
            let outcome = self.time(device, &bench, name.clone(), configuration);
            let record = record(place, label, source);
            let lost = outcome.as_ref().err().filter(|failure| failure.lost).map(|failure| failure.reason.clone());
            self.lock().add(match outcome {
                Ok(samples) => Record { us: Some(samples.median()), spread: Some(samples.spread()), ..record },
                Err(failure) => Record { failed: Some(failure.reason), ..record },
            })?;
            if let Some(error) = lost {
                return Err(SearchError::Lost { what: format!("{name} at {size}"), error });
            }
        }
        self.bar.inc(1);
        Ok(())
    }

    fn time(
        &self,
        device: &Device,
        bench: &Bench,
        name: String,
        configuration: Configuration,
    ) -> Result<Samples, Failure> {
        let contender = Contender::of_configuration(device, self.compiler, self.target, name, configuration)?;
        let prepared = bench.prepare(&contender, self.edges)?;
        Ok(bench.time(&prepared)?)
    }

    /// What the configuration's kernel is printed as, in short.
    fn source(&self, configuration: &Configuration) -> String {
        let text = configuration.kernel.as_ref().ok().and_then(|kernel| kernel.cuda(self.target).ok());
        text.map_or(String::new(), |cuda| blake3::hash(cuda.source.as_bytes()).to_hex()[..16].to_owned())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Results> {
        self.results.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a configuration has no time.
struct Failure {
    reason: String,
    /// Whether the device is lost to this process.
    lost: bool,
}

impl From<ContenderError> for Failure {
    fn from(error: ContenderError) -> Self {
        let lost = matches!(&error, ContenderError::Device(error) if error.is_sticky());
        Failure { reason: error.to_string(), lost }
    }
}

impl From<BenchError> for Failure {
    fn from(error: BenchError) -> Self {
        let lost = matches!(&error, BenchError::Device(error) if DeviceError::is_sticky(error));
        Failure { reason: error.to_string(), lost }
    }
}
