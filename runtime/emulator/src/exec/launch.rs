//! Launches: a grid of CTAs over the host's threads.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::Env;
use super::cta::Cta;
use super::rng::Rng;
use super::traffic::{Tally, Traffic};
use crate::check::{AtomicOrder, Declaration, Declared};
use crate::decode::Kernel;
use crate::error::{Error, Result};
use crate::finding::{Access, Address, Finding, FindingKind};
use crate::memory::{GlobalMemory, Init, Rights};

/// Shape and arguments of a launch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Launch {
    /// CTAs along x, y, z.
    pub grid: [u32; 3],
    /// Threads of a CTA along x, y, z.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub dynamic_shared: u32,
    /// The bytes of each parameter, in order, little-endian.
    pub params: Vec<Vec<u8>>,
    /// What the kernel does with its buffers. With any declared, every access is checked against them.
    pub declarations: Vec<Declaration>,
}

impl Launch {
    /// A launch without arguments; add them with [`Launch::arg`].
    pub fn new(grid: [u32; 3], block: [u32; 3]) -> Self {
        Self { grid, block, ..Self::default() }
    }

    /// Adds an argument: any plain number, or a `repr(C)` struct of them.
    #[must_use]
    pub fn arg<T: bytemuck::NoUninit>(mut self, value: T) -> Self {
        self.params.push(bytemuck::bytes_of(&value).to_vec());
        self
    }

    /// Adds a declaration.
    #[must_use]
    pub fn declare(mut self, declaration: Declaration) -> Self {
        self.declarations.push(declaration);
        self
    }

    /// Sets the dynamic shared memory.
    #[must_use]
    pub fn dynamic_shared(mut self, bytes: u32) -> Self {
        self.dynamic_shared = bytes;
        self
    }
}

/// When asynchronous copies happen. A correct kernel does not notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CpAsync {
    /// When they are issued.
    #[default]
    Eager,
    /// When their wait ends: as late as the program allows.
    Late,
}

/// Which checks run. Bounds, alignment, barriers and collectives are always checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checks {
    /// Shared-memory races and asynchronous copies in flight.
    pub races: bool,
    /// Undefined bits that reach an address, a predicate that decides, or a declared output.
    pub definedness: bool,
    /// Races in global memory between CTAs and, if `races` is on too, between the threads of one.
    pub global_races: bool,
}

impl Checks {
    /// Everything.
    pub const ALL: Self = Self { races: true, definedness: true, global_races: true };
    /// Only what keeps the emulator itself from going astray.
    pub const NONE: Self = Self { races: false, definedness: false, global_races: false };
}

/// How a launch is executed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Chooses the order of the warps. 0 runs each warp as far as it goes, in order; any other seed interleaves them at random, repeatably.
    pub seed: u64,
    /// When asynchronous copies happen.
    pub cp_async: CpAsync,
    /// Which checks run.
    pub checks: Checks,
    /// Threads may end before a barrier or a warp-wide operation that others still execute: hardware does not wait for
    /// them. A kernel whose source cannot return early has left such a barrier out for some of its threads.
    pub early_exit: bool,
    /// Warp instructions that one CTA may execute.
    pub step_limit: u64,
    /// Count memory traffic: [`Report::traffic`].
    pub traffic: bool,
    /// Host threads; 0 for as many as there are cores.
    pub threads: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            seed: 0,
            cp_async: CpAsync::Eager,
            checks: Checks::ALL,
            early_exit: true,
            step_limit: 1 << 26,
            traffic: false,
            threads: 0,
        }
    }
}

/// Counts of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Stats {
    /// Instructions that warps executed.
    pub warp_instructions: u64,
    /// Instructions that lanes executed: an instruction counts once for each lane that takes part.
    pub lane_instructions: u64,
}

impl std::ops::AddAssign for Stats {
    fn add_assign(&mut self, other: Self) {
        self.warp_instructions += other.warp_instructions;
        self.lane_instructions += other.lane_instructions;
    }
}

/// What a launch found.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Report {
    /// Faults, one for each cause, in the order of the CTAs that met them first.
    pub findings: Vec<Finding>,
    /// Counts.
    pub stats: Stats,
    /// Memory traffic by instruction, if asked for, in the order of the PTX.
    pub traffic: Vec<Traffic>,
    /// Every CTA has executed `griddepcontrol.wait`, so that whoever waits for this launch has waited for the earlier ones too.
    pub every_cta_waited: bool,
}

/// Resident CTAs when they are interleaved on one thread.
const RESIDENT: usize = 8;
/// Most threads of a CTA.
const MAX_THREADS: u64 = 1024;
/// Largest shared memory that any supported device gives a CTA (sm_90: 227 KiB).
const MAX_SHARED: u64 = 227 << 10;

impl Kernel {
    /// Runs the kernel.
    ///
    /// Faults of the kernel are findings in the report; the launch goes on past them as far as it makes sense.
    ///
    /// # Errors
    /// Wrong arguments ([`Error::ArgumentCount`], [`Error::ArgumentSize`]), a shape past the device's limits ([`Error::Launch`]), or
    /// a CTA that does not end ([`Error::StepLimit`]).
    pub fn launch(&self, launch: &Launch, memory: &mut GlobalMemory, options: &Options) -> Result<Report> {
        let params = self.check(launch)?;
        for v in &self.code.module_variables {
            if memory.locate(v.address).is_none() {
                memory.map(&v.name, v.address, v.size, Init::Zero)?;
                memory.write(v.address, &v.init[..v.init.len().min(v.size as usize)])?;
                memory.protect(v.address, if v.read_only { Rights::ReadOnly } else { Rights::ReadWrite });
            }
        }
        if options.checks.global_races {
            memory.forget_owners();
        }
        let ctas: u64 = launch.grid.iter().map(|&g| u64::from(g)).product();
        let env = Env {
            ctas,
            declared: Declared::new(&launch.declarations),
            order: AtomicOrder::default(),
            code: &self.code,
            memory,
            options,
            grid: launch.grid,
            block: launch.block,
            threads: launch.block.iter().product(),
            shared_bytes: self.code.static_shared + launch.dynamic_shared,
            dynamic_shared: launch.dynamic_shared,
            params,
        };
        let mut report = if self.code.global_atomics {
            interleaved(&env, ctas)?
        } else if options.threads == 0 {
            parallel(&env, ctas)?
        } else {
            let n = options.threads;
            let pool = rayon::ThreadPoolBuilder::new().num_threads(n).build();
            let fail = |e| Error::Launch { kernel: self.code.name.clone(), what: format!("{n} host threads: {e}") };
            pool.map_err(fail)?.install(|| parallel(&env, ctas))?
        };
        for (declaration, byte) in env.declared.incomplete() {
            let end = self.code.insts.len() as u32 - 1;
            let detail = format!(
                "`{}` is declared write_all, and byte {byte} of its {} was never written",
                declaration.name, declaration.len
            );
            report.findings.push(Finding {
                kind: FindingKind::Undeclared,
                kernel: self.code.name.clone(),
                access: Access::new(&self.code, end, [0; 3], 0, 0),
                address: Some(Address::Global {
                    address: declaration.address + byte,
                    allocation: Some(declaration.name.clone()),
                    offset: byte as i64,
                }),
                other: None,
                detail,
                count: 1,
            });
        }
        Ok(report)
    }

    /// Checks a launch against the kernel, and lays out its parameters.
    fn check(&self, launch: &Launch) -> Result<Vec<u32>> {
        let code = &self.code;
        let fail = |what: String| Err(Error::Launch { kernel: code.name.clone(), what });
        let limits = [i32::MAX as u32, 65535, 65535];
        for axis in 0..3 {
            let (name, n) = (["x", "y", "z"][axis], launch.grid[axis]);
            if n == 0 || n > limits[axis] {
                return fail(format!("grid.{name} is {n}; 1 to {} are accepted", limits[axis]));
            }
            let (n, most) = (launch.block[axis], [1024, 1024, 64][axis]);
            if n == 0 || n > most {
                return fail(format!("block.{name} is {n}; 1 to {most} are accepted"));
            }
        }
        let threads: u64 = launch.block.iter().map(|&b| u64::from(b)).product();
        if threads > MAX_THREADS {
            return fail(format!("a block of {threads} threads; {MAX_THREADS} are the limit"));
        }
        if let Some(required) = code.required_block
            && required != launch.block
        {
            return fail(format!(
                "the block is {:?}; the kernel was compiled for {required:?} (.reqntid)",
                launch.block
            ));
        }
        if let Some(most) = code.max_block
            && threads > u64::from(most)
        {
            return fail(format!(
                "a block of {threads} threads; the kernel was compiled for at most {most} (.maxntid)"
            ));
        }
        let shared = u64::from(code.static_shared) + u64::from(launch.dynamic_shared);
        if shared > MAX_SHARED {
            return fail(format!(
                "{shared} bytes of shared memory a CTA; {MAX_SHARED} are the most that any device has"
            ));
        }
        if launch.params.len() != code.params.len() {
            return Err(Error::ArgumentCount {
                kernel: code.name.clone(),
                expected: code.params.len(),
                given: launch.params.len(),
            });
        }
        let mut bytes = vec![0u8; code.param_bytes.next_multiple_of(16)];
        for (index, (param, value)) in code.params.iter().zip(&launch.params).enumerate() {
            if param.size != value.len() {
                let (kernel, name) = (code.name.clone(), param.name.clone());
                return Err(Error::ArgumentSize { kernel, index, name, expected: param.size, given: value.len() });
            }
            let at = code.param_offsets[index];
            bytes[at..at + param.size].copy_from_slice(value);
        }
        Ok(bytes.chunks_exact(4).map(|w| u32::from_le_bytes([w[0], w[1], w[2], w[3]])).collect())
    }
}

/// CTAs share no state but memory that they do not exchange values through, so they run on all cores.
fn parallel(env: &Env<'_>, ctas: u64) -> Result<Report> {
    let run = |cta: &mut Cta, index: u64| {
        cta.start(env, index);
        while !cta.run(env, u64::MAX)? {}
        Ok(Partial::of(cta, index))
    };
    let parts =
        (0..ctas).into_par_iter().map_init(Cta::new, run).try_fold(Vec::new, |mut parts: Vec<Partial>, part| {
            // Most CTAs have nothing to tell but their counts.
            let part: Partial = part?;
            match parts.last_mut() {
                Some(last) if part.findings.is_empty() => last.absorb(part),
                _ => parts.push(part),
            }
            Ok(parts)
        });
    let mut parts = parts.try_reduce(Vec::new, |mut a, b| {
        a.extend(b);
        Ok(a)
    })?;
    parts.sort_by_key(|p| p.index);
    Ok(merge(env, parts))
}

/// CTAs that exchange values through atomics run on one thread, interleaved by the seed, so that a run repeats.
fn interleaved(env: &Env<'_>, ctas: u64) -> Result<Report> {
    let mut rng = Rng::new(env.options.seed);
    let mut resident: Vec<(u64, Cta)> = Vec::new();
    let mut reports = Vec::new();
    let mut next = 0;
    loop {
        while resident.len() < RESIDENT && next < ctas {
            let mut cta = Cta::new();
            cta.start(env, next);
            resident.push((next, cta));
            next += 1;
        }
        if resident.is_empty() {
            break;
        }
        let at = rng.below(resident.len() as u64) as usize;
        let slices = if env.options.seed == 0 { 1 << 10 } else { 1 + rng.below(16) };
        let (index, cta) = &mut resident[at];
        if cta.run(env, slices)? {
            reports.push(Partial::of(cta, *index));
            let (_, mut cta) = resident.swap_remove(at);
            if next < ctas {
                cta.start(env, next);
                resident.push((next, cta));
                next += 1;
            }
        }
    }
    reports.sort_by_key(|p| p.index);
    Ok(merge(env, reports))
}

/// What one CTA, or several, have to tell.
struct Partial {
    index: u64,
    findings: Vec<Finding>,
    stats: Stats,
    traffic: Tally,
    waited: bool,
}

impl Partial {
    fn of(cta: &mut Cta, index: u64) -> Self {
        let state = &mut cta.state;
        Self {
            index,
            findings: std::mem::take(&mut state.findings.list),
            stats: Stats { warp_instructions: state.instructions, lane_instructions: state.lane_instructions },
            traffic: std::mem::take(&mut state.traffic),
            waited: state.waited,
        }
    }

    /// Adds the counts of another.
    fn absorb(&mut self, other: Self) {
        self.stats += other.stats;
        self.waited &= other.waited;
        for (pc, counts) in other.traffic {
            *self.traffic.entry(pc).or_default() += counts;
        }
    }
}

fn merge(env: &Env<'_>, parts: Vec<Partial>) -> Report {
    let mut report = Report { every_cta_waited: true, ..Report::default() };
    let mut traffic = Tally::new();
    let mut seen: std::collections::HashMap<(FindingKind, u32, u32), usize> = Default::default();
    for part in parts {
        report.stats += part.stats;
        report.every_cta_waited &= part.waited;
        for (pc, counts) in part.traffic {
            *traffic.entry(pc).or_default() += counts;
        }
        for finding in part.findings {
            let key = (finding.kind, finding.access.ptx_line, finding.other.as_ref().map_or(0, |o| o.ptx_line));
            match seen.get(&key) {
                Some(&at) => report.findings[at].count += finding.count,
                None => {
                    seen.insert(key, report.findings.len());
                    report.findings.push(finding);
                }
            }
        }
    }
    let of = |(pc, counts): (u32, _)| Traffic {
        ptx_line: env.code.lines[pc as usize],
        opcode: env.code.opcodes[pc as usize].clone(),
        sources: env.code.sources(pc),
        counts,
    };
    report.traffic = traffic.into_iter().map(of).collect();
    report
}
