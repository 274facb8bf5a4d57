//! `lathe run --backend cuda`: the same launch on a GPU, and how far its results are from the emulator's.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anstream::eprintln;
use comfy_table::Cell;
use lathe_emulator::Module;
use lathe_runtime::device::Device;
use lathe_runtime::launch_file::{BufferAfter, DeviceLaunchError, DeviceOutcome, Difference, Prepared};
use serde::Serialize;

use super::{Args, Launches, launch, message, report, save, vary};
use crate::cli::output::println;
use crate::cli::sources::Sources;
use crate::cli::{Outcome, table};

/// PTX that this machine's device cannot run.
#[derive(Debug, thiserror::Error)]
#[error(
    "the PTX is for {target}, and the device is {device}: compile it for the device; `--backend emulator` runs it as it is"
)]
struct ForeignTarget {
    target: String,
    device: String,
}

/// What all launches on the device left, beside what the emulator did.
struct Ran<'a> {
    prepared: &'a Prepared,
    device: String,
    first: DeviceOutcome,
    /// The fastest launch.
    fastest: Duration,
    launches: u64,
    /// Buffers whose bytes differ between launches.
    varying: Vec<String>,
    emulated: Option<Launches>,
    saved: Vec<PathBuf>,
}

#[derive(Serialize)]
struct Json<'a> {
    ptx: String,
    kernel: &'a str,
    device: &'a str,
    grid: [u32; 3],
    block: [u32; 3],
    stray_writes: &'a [String],
    buffers: Vec<JsonBuffer<'a>>,
    varying: &'a [String],
    launches: u64,
    microseconds: f64,
    /// What the emulator found, if it ran.
    findings: Option<Vec<report::JsonFinding<'a>>>,
}

#[derive(Serialize)]
struct JsonBuffer<'a> {
    name: &'a str,
    dtype: &'static str,
    shape: &'a [u64],
    changed: usize,
    /// Elements that differ from the emulator's, if it ran.
    different: Option<usize>,
    /// The largest difference of two numbers, relative to the largest magnitude.
    largest_difference: Option<f64>,
    file: Option<String>,
}

pub fn run(args: &Args, ptx: &str, module: &Module, prepared: &Prepared, sources: &Sources) -> Outcome {
    let device = Device::open(0)?;
    if !device.info().assembles(module.target()) {
        let (target, device) = (module.target().to_owned(), device.info().to_string());
        return Err(ForeignTarget { target, device }.into());
    }
    let function = prepared.load(&device, ptx)?;
    let launch_once = || match prepared.run_on(&device, &function, args.backend.bare) {
        Ok(outcome) => Ok(outcome),
        // The arguments were fitted when the launch was prepared.
        Err(DeviceLaunchError::File(error)) => Err(error.to_string().into()),
        Err(DeviceLaunchError::Device(error)) => Err(Box::<dyn std::error::Error + Send + Sync>::from(error)),
    };
    let mut first = launch_once()?;
    let (mut fastest, mut varying) = (first.elapsed, Vec::new());
    for _ in 1..args.seeds {
        let again = launch_once()?;
        fastest = fastest.min(again.elapsed);
        // Bare memory holds anything where nobody wrote.
        if !args.backend.bare {
            vary(&mut varying, &first.buffers, &again.buffers);
        }
    }
    let emulated = match args.backend.compare.then(|| launch(prepared, args)).transpose() {
        Ok(emulated) => emulated,
        Err(error) => {
            eprintln!("{}", message::of_error(&error, &args.ptx).render(sources));
            return Ok(ExitCode::from(2));
        }
    };
    first.buffers.retain(|buffer| prepared.is_result(buffer));
    let saved = save(&first.buffers, args)?;
    let device = device.info().to_string();
    let ran = Ran { prepared, device, first, fastest, launches: args.seeds, varying, emulated, saved };
    if args.json {
        ran.json(args);
    } else {
        ran.messages(args, sources);
        ran.tables();
    }
    Ok(if ran.is_right() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl<'a> Ran<'a> {
    /// How far a buffer is from the emulator's, if that ran and took it for a result.
    fn difference(&self, buffer: &BufferAfter) -> Option<Difference> {
        let emulated = self.emulated.as_ref()?.first.buffers.iter().find(|other| other.name == buffer.name);
        Some(match emulated {
            Some(emulated) => emulated.difference(buffer),
            // The emulator left it as it was.
            None => Difference { elements: buffer.changed, largest: None },
        })
    }

    /// Whether nothing was found: no stray write, no finding of the emulator, and nothing apart but by rounding.
    fn is_right(&self) -> bool {
        let found = self.emulated.as_ref().map_or(0, |emulated| emulated.findings.len());
        let apart = |buffer| self.difference(buffer).is_some_and(|d| d.elements > 0 && d.largest.is_none());
        self.first.stray_writes.is_empty() && found == 0 && !self.first.buffers.iter().any(apart)
    }

    fn messages(&self, args: &Args, sources: &Sources) {
        for stray in &self.first.stray_writes {
            eprintln!("\x1b[1;91merror\x1b[0m: {stray}; `--backend emulator` names the access\n");
        }
        for finding in self.emulated.iter().flat_map(|emulated| &emulated.findings) {
            eprintln!("{}\n", message::of_finding(finding, self.prepared, &args.ptx).render(sources));
        }
        if !self.varying.is_empty() {
            let names: Vec<_> = self.varying.iter().map(|name| format!("`{name}`")).collect();
            eprintln!("\x1b[1;33mwarning\x1b[0m: the bytes of {} differ between launches\n", names.join(", "));
        }
    }

    fn tables(&self) {
        let mut columns = vec!["buffer", "elements", "changed", "least", "most", "nan"];
        if self.emulated.is_some() {
            columns.extend(["unlike the emulator", "by at most"]);
        }
        columns.push("file");
        let mut table = table::table(&columns);
        for (index, buffer) in self.first.buffers.iter().enumerate() {
            let [least, most, nan] = report::range(buffer);
            let mut row = vec![report::title(buffer), report::elements(buffer), buffer.changed.to_string()];
            row.extend([least, most, nan]);
            if let Some(difference) = self.difference(buffer) {
                let by = match difference.largest {
                    _ if difference.elements == 0 => String::new(),
                    Some(largest) => format!("{largest:.1e}"),
                    None => "not by rounding".to_owned(),
                };
                row.extend([difference.elements.to_string(), by]);
            }
            row.push(self.saved.get(index).map(|path| path.display().to_string()).unwrap_or_default());
            table.add_row(row.into_iter().map(Cell::new));
        }
        if !self.first.buffers.is_empty() {
            println!("{table}\n");
        }
        let (word, colour) = match (self.is_right(), &self.emulated) {
            (false, _) => ("FAULTY", "\x1b[1;31m"),
            (true, Some(_)) => ("agrees with the emulator", "\x1b[1;32m"),
            (true, None) => ("ran", "\x1b[1;32m"),
        };
        let [x, y, z] = self.prepared.grid();
        println!(
            "{colour}{word}\x1b[0m: `{}` on {}, launches: {} of {x}x{y}x{z} CTAs, the fastest in {:.1} us",
            self.prepared.kernel().name(),
            self.device,
            self.launches,
            self.fastest.as_secs_f64() * 1e6,
        );
    }

    fn json(&'a self, args: &Args) {
        let buffers = self.first.buffers.iter().enumerate().map(|(index, buffer)| {
            let difference = self.difference(buffer);
            JsonBuffer {
                name: &buffer.name,
                dtype: buffer.element.name(),
                shape: &buffer.shape,
                changed: buffer.changed,
                different: difference.map(|difference| difference.elements),
                largest_difference: difference.and_then(|difference| difference.largest),
                file: self.saved.get(index).map(|path| path.display().to_string()),
            }
        });
        let findings = |emulated: &'a Launches| {
            emulated.findings.iter().map(|finding| report::JsonFinding::of(finding, self.prepared)).collect()
        };
        let json = Json {
            ptx: args.ptx.display().to_string(),
            kernel: self.prepared.kernel().name(),
            device: &self.device,
            grid: self.prepared.grid(),
            block: self.prepared.block(),
            stray_writes: &self.first.stray_writes,
            buffers: buffers.collect(),
            varying: &self.varying,
            launches: self.launches,
            microseconds: self.fastest.as_secs_f64() * 1e6,
            findings: self.emulated.as_ref().map(findings),
        };
        println!("{}", serde_json::to_string_pretty(&json).expect("plain data"));
    }
}
