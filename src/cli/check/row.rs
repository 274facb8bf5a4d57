//! One row of the result for each kernel, variant and target: compiling, running, judging.

use std::any::Any;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use lathe_codegen::contract::{Case, Scale, Verdict};
use lathe_codegen::entry::{Cases, Entry, Variant};
use lathe_codegen::ir::{ParamKind, Phase};
use lathe_codegen::target::Target;
use lathe_runtime::backend::{
    Backend, EmulatorBackend, Finding, FindingKind, Loaded, RunError, Schedule, Traffic, merge_findings,
};
use lathe_runtime::device::DeviceError;
use lathe_runtime::nvrtc::{CompileError, Compiler};
use lathe_runtime::program::{Program, ProgramError, rust_line};
use lathe_runtime::ptxas::Resources;
use lathe_runtime::sass::Sass;
use lathe_runtime::toolchain::Toolchain;
use rayon::prelude::*;

use super::agree::{self, Agreement};
use crate::cli::diagnostic::Diagnostic;
use crate::cli::{terminal, traffic};

/// What became of one kernel, variant and target.
pub struct Row {
    pub kernel: String,
    pub label: String,
    pub target: Target,
    pub backend: &'static str,
    /// What the compiler said; nothing if there is no machine code.
    pub built: Option<Built>,
    /// Why there is none.
    pub errors: Vec<Diagnostic>,
    pub outcome: Outcome,
}

/// A row's machine code, in figures.
pub struct Built {
    pub compile_ms: f64,
    pub cached: bool,
    pub resources: Resources,
    pub shared_bytes: u32,
}

/// What running a row's cases showed.
#[derive(Clone, Default)]
pub struct Outcome {
    pub cases: usize,
    pub passed: usize,
    pub worst_row_diff: f64,
    pub findings: Vec<Finding>,
    pub failures: Vec<Failure>,
    /// The emulator's cases that a device cannot hold, whose address spaces are sparse.
    pub too_large: Vec<String>,
    pub lane_instructions: u64,
    /// Device time of each case, where a device keeps it.
    pub times: Vec<Time>,
    pub agreement: Option<Agreement>,
    /// What each access cost in all cases under the first schedule, by the author's line, where that was counted.
    pub traffic: Vec<traffic::Line>,
}

/// How long a case took: the fastest of its runs.
#[derive(Clone, PartialEq, serde::Serialize)]
pub struct Time {
    pub case: String,
    pub microseconds: f64,
}

/// A case with a wrong result, or without one.
#[derive(Clone, PartialEq, serde::Serialize)]
pub struct Failure {
    pub case: String,
    pub what: Vec<String>,
}

impl Row {
    pub fn passed(&self) -> bool {
        let Outcome { cases, passed, findings, failures, .. } = &self.outcome;
        self.errors.is_empty() && findings.is_empty() && failures.is_empty() && passed == cases
    }
}

pub struct Checker<'a> {
    pub backend: &'a dyn Backend,
    pub compiler: &'a Compiler<'a>,
    pub toolchain: &'a Toolchain,
    /// Whether there is a disassembler, so that the machine code can be looked at.
    pub disassembles: bool,
    pub targets: &'a [Target],
    pub filter: &'a str,
    pub seeds: u64,
    /// What to compare the backend with.
    pub compare: Option<EmulatorBackend>,
}

/// A row before its cases have run.
struct Prepared {
    row: Row,
    program: Option<Program>,
    cases: Cases,
    /// What the machine code shows without running.
    findings: Vec<Finding>,
}

/// How many programs may be compiled ahead of the one that runs.
const AHEAD: usize = 4;

impl Checker<'_> {
    /// Checks every variant of `entries` for every target, compiling the next ones while one runs.
    ///
    /// A kernel's fault is a row that failed; an error here means that nothing could be checked.
    pub fn check(&self, entries: &[&Entry]) -> Result<Vec<Row>, CompileError> {
        let variants: Vec<(&Entry, Target, Variant)> = entries
            .iter()
            .flat_map(|entry| self.targets.iter().map(move |target| (*entry, *target)))
            .flat_map(|(entry, target)| (entry.variants)(target).into_iter().map(move |v| (entry, target, v)))
            .collect();
        let bar = terminal::bar(variants.len());
        let mut rows = Vec::new();
        // Targets whose machine code comes from the same PTX need one run on a backend that runs the PTX.
        let mut known = HashMap::new();
        std::thread::scope(|scope| {
            let (ready, next) = std::sync::mpsc::sync_channel(AHEAD);
            scope.spawn(move || {
                for (entry, target, variant) in variants {
                    // The receiver goes away early only after an error.
                    if ready.send(self.prepare(entry, target, variant)).is_err() {
                        break;
                    }
                }
            });
            for prepared in next {
                let prepared = prepared?;
                bar.set_message(format!("{} {} {}", prepared.row.kernel, prepared.row.label, prepared.row.target));
                rows.push(self.finish(prepared, &mut known));
                bar.inc(1);
            }
            Ok::<_, CompileError>(())
        })?;
        bar.finish_and_clear();
        Ok(rows)
    }

    fn prepare(&self, entry: &Entry, target: Target, variant: Variant) -> Result<Prepared, CompileError> {
        let row = Row {
            kernel: entry.name.to_owned(),
            label: variant.label,
            target,
            backend: self.backend.name(),
            built: None,
            errors: Vec::new(),
            outcome: Outcome::default(),
        };
        let mut prepared = Prepared { row, program: None, cases: variant.cases, findings: Vec::new() };
        let kernel = match variant.kernel {
            Ok(kernel) => kernel,
            Err(errors) => {
                prepared.row.errors = Diagnostic::of_trace(&errors);
                return Ok(prepared);
            }
        };
        match Program::compile(self.compiler, &kernel, target) {
            Ok(program) => {
                prepared.row.built = Some(Built {
                    compile_ms: program.compiled.milliseconds,
                    cached: program.compiled.cached,
                    resources: program.compiled.resources,
                    shared_bytes: program.shared_bytes(),
                });
                match self.loads_before_wait(&program) {
                    Ok(findings) => prepared.findings = findings,
                    Err(error) => {
                        prepared.row.errors.push(Diagnostic { title: error.to_string(), ..Default::default() })
                    }
                }
                prepared.program = Some(program);
            }
            Err(ProgramError::Compile { error: error @ CompileError::Provision(_), .. }) => return Err(error),
            Err(error) => prepared.row.errors = Diagnostic::of_program(&error),
        }
        Ok(prepared)
    }

    fn finish(&self, prepared: Prepared, known: &mut HashMap<(String, String), Outcome>) -> Row {
        let Prepared { mut row, program: Some(program), cases, findings } = prepared else { return prepared.row };
        let key = (row.label.clone(), what_runs(&program, self.backend));
        let outcome = known.entry(key).or_insert_with(|| self.run(&program, &cases));
        row.outcome = outcome.clone();
        match self.agreement(&program, &cases).transpose() {
            Ok(agreement) => row.outcome.agreement = agreement,
            Err(error) => {
                row.errors
                    .push(Diagnostic { title: format!("comparison with the emulator: {error}"), ..Default::default() });
            }
        }
        merge_findings(&mut row.outcome.findings, findings);
        row
    }

    fn run(&self, program: &Program, cases: &Cases) -> Outcome {
        let failed = |cases, case: &str, what| Outcome {
            cases,
            failures: vec![Failure { case: case.to_owned(), what: vec![what] }],
            ..Outcome::default()
        };
        let mut cases = match guarded(|| cases(self.backend.scale())) {
            Ok(cases) if cases.is_empty() => {
                return failed(0, "none", "it has no cases, so nothing is known of its results".into());
            }
            Ok(cases) => cases,
            Err(panic) => return failed(0, "none", format!("the function that makes its cases panicked: {panic}")),
        };
        cases.retain(|case| case.name.contains(self.filter));
        let loaded = match self.backend.load(program) {
            Ok(loaded) => loaded,
            Err(error) => return failed(cases.len(), "loading", error.to_string()),
        };
        let schedules = self.schedules();
        let sparse = self.backend.scale() == Scale::Emulator;
        let outcomes = cases.into_par_iter().map(|case| run_case(&*loaded, &case, &schedules, sparse));
        let mut outcome = outcomes.reduce(Outcome::default, Outcome::and);
        if self.backend.name() == "emulator" {
            outcome.times.clear();
        }
        outcome
    }

    /// Runs the emulator's cases on both backends.
    fn agreement(&self, program: &Program, cases: &Cases) -> Option<Result<Agreement, RunError>> {
        let emulator = self.compare.as_ref()?;
        let compare =
            || agree::compare(&*emulator.load(program)?, &*self.backend.load(program)?, &cases(Scale::Emulator));
        Some(compare())
    }

    fn schedules(&self) -> Vec<Schedule> {
        let copies: &[bool] = if self.backend.name() == "emulator" { &[false, true] } else { &[false] };
        (0..self.seeds)
            .flat_map(|seed| copies.iter().map(move |late_copies| Schedule { seed, late_copies: *late_copies }))
            .collect()
    }

    /// Global loads that the assembler moved, or the author put, above the PDL wait; none are looked for if an
    /// argument is declared as touched before it.
    fn loads_before_wait(&self, program: &Program) -> Result<Vec<Finding>, lathe_runtime::sass::SassError> {
        let early = |kind| matches!(kind, ParamKind::Pointer { phase: Phase::BeforeWait, .. });
        let waits = program.compiled.ptx.contains("griddepcontrol.wait");
        if !self.disassembles || !waits || program.kernel.params.iter().any(|param| early(param.kind)) {
            return Ok(Vec::new());
        }
        let sass = Sass::disassemble(self.toolchain, &program.compiled.cubin)?;
        let explain = |load: &lathe_runtime::sass::Instruction| Finding {
            kind: FindingKind::BeforeWait,
            kernel: program.kernel.name.clone(),
            detail: format!(
                "in the machine code for {}, `{}` at {:#06x} can run before the wait for earlier kernels",
                program.compiled.target, load.opcode, load.offset
            ),
            element: None,
            access: None,
            other: None,
            help: rust_line(&program.cuda, load.line).map(|loc| format!("the load was written at {loc}")),
            count: 1,
        };
        Ok(sass.global_loads_before_pdl_wait().into_iter().map(explain).collect())
    }
}

/// What tells whether two programs do the same on a backend: the PTX without its target, where that is what runs.
fn what_runs(program: &Program, backend: &dyn Backend) -> String {
    let mut text = format!("{}\n", program.cuda.entry);
    match backend.name() {
        "emulator" => text.extend(program.compiled.ptx.lines().filter(|line| !line.starts_with(".target"))),
        _ => text += program.compiled.target.name(),
    }
    text
}

/// Runs a case under every schedule. One of a `sparse` list may be too large for a device.
fn run_case(loaded: &dyn Loaded, case: &Case, schedules: &[Schedule], sparse: bool) -> Outcome {
    let mut outcome = Outcome { cases: 1, ..Outcome::default() };
    let mut what = Vec::new();
    let mut fastest = Duration::MAX;
    for schedule in schedules {
        let run = match loaded.run(case, *schedule) {
            Ok(run) => run,
            Err(RunError::Device(DeviceError::OutOfMemory { .. })) if sparse => {
                return Outcome { too_large: vec![case.name.clone()], ..Outcome::default() };
            }
            Err(error) => {
                what.push(format!("{}{}", error, under(*schedule)));
                // The next run would end the same way; on a device, the context may be lost.
                if matches!(error, RunError::Argument(_) | RunError::Device(_)) {
                    break;
                }
                continue;
            }
        };
        fastest = fastest.min(run.elapsed);
        let verdict = guarded(|| (case.verify)(&run.buffers)).unwrap_or_else(|panic| Verdict {
            worst_row_diff: f64::NAN,
            failures: vec![format!("the case's judge panicked: {panic}")],
        });
        outcome.worst_row_diff = worst(outcome.worst_row_diff, verdict.worst_row_diff);
        outcome.lane_instructions += run.lane_instructions;
        if *schedule == schedules[0] {
            traffic::merge(&mut outcome.traffic, run.traffic.into_iter().map(line));
        }
        if what.is_empty() {
            what.extend(verdict.failures.into_iter().map(|failure| format!("{failure}{}", under(*schedule))));
        }
        merge_findings(&mut outcome.findings, run.findings);
    }
    if fastest < Duration::MAX {
        outcome.times.push(Time { case: case.name.clone(), microseconds: fastest.as_secs_f64() * 1e6 });
    }
    outcome.passed = usize::from(what.is_empty() && outcome.findings.is_empty());
    if !what.is_empty() {
        outcome.failures.push(Failure { case: case.name.clone(), what });
    }
    outcome
}

/// What the author's own function gives, or what it said when it panicked: one kernel's fault is not another's.
fn guarded<T>(function: impl FnOnce() -> T) -> Result<T, String> {
    let text = |panic: Box<dyn Any + Send>| match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => panic.downcast::<&str>().map_or("(no message)".to_owned(), |text| (*text).to_owned()),
    };
    catch_unwind(AssertUnwindSafe(function)).map_err(text)
}

fn line(access: Traffic) -> traffic::Line {
    let place = access.rust.map_or_else(|| format!("line {} of the PTX", access.ptx_line), |loc| loc.to_string());
    traffic::Line { place, opcode: access.opcode, counts: access.counts }
}

fn under(schedule: Schedule) -> String {
    match schedule {
        Schedule { seed: 0, late_copies: false } => String::new(),
        Schedule { seed, late_copies: false } => format!(" (seed {seed})"),
        Schedule { seed, late_copies: true } => format!(" (seed {seed}, copies as late as allowed)"),
    }
}

/// The larger, a NaN being larger than everything: a judge that could not compare must not look like one that did.
fn worst(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) }
}

impl Outcome {
    fn and(mut self, other: Outcome) -> Outcome {
        self.cases += other.cases;
        self.passed += other.passed;
        self.worst_row_diff = worst(self.worst_row_diff, other.worst_row_diff);
        self.lane_instructions += other.lane_instructions;
        self.failures.extend(other.failures);
        self.too_large.extend(other.too_large);
        self.times.extend(other.times);
        traffic::merge(&mut self.traffic, other.traffic);
        merge_findings(&mut self.findings, other.findings);
        self
    }
}
