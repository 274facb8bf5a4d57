//! Mutation testing: runs every small fault of a kernel against its cases, and says what caught it.

use std::fmt;

use lathe_codegen::contract::Case;
use lathe_codegen::ir::Kernel;
use lathe_codegen::mutate::Mutant;
use lathe_codegen::target::Target;
use lathe_emulator::FindingKind;
use rayon::prelude::*;

use crate::backend::{Backend, EmulatorBackend, Loaded, Schedule};
use crate::nvrtc::Compiler;
use crate::program::Program;

/// What caught a mutant: the first of these that did.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Killer {
    /// The IR's verifier, before anything is printed.
    Verifier,
    /// Printing or compiling it to PTX, or reading that.
    Compiler,
    /// A check of the emulator.
    Finding(FindingKind),
    /// The judge of a case: the kernel ran clean and left something wrong.
    Judge,
    /// It could not be run, or did not come to an end.
    Stopped,
}

impl fmt::Display for Killer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Killer::Verifier => "verifier",
            Killer::Compiler => "compiler",
            Killer::Finding(kind) => kind.title(),
            Killer::Judge => "wrong result",
            Killer::Stopped => "stopped",
        })
    }
}

/// A mutant, and what became of it.
#[derive(Debug)]
pub struct Fate {
    /// The mutant.
    pub mutant: Mutant,
    /// What caught it; nothing if every case passed.
    pub killer: Option<Killer>,
}

/// Runs mutants of a kernel on the emulator: each case with copies as late as they may come, in two orders of
/// warps, until something catches it. `done` is called after each.
pub fn fates(
    mutants: Vec<Mutant>,
    cases: &[Case],
    compiler: &Compiler,
    target: Target,
    done: impl Fn() + Sync,
) -> Vec<Fate> {
    // Short cases first: most mutants do not survive one.
    let mut order: Vec<&Case> = cases.iter().filter(|case| !case.grid.contains(&0)).collect();
    order.sort_by_key(|case| case.buffers.iter().flat_map(|b| &b.segments).map(|s| s.bytes.len()).sum::<usize>());
    mutants
        .into_par_iter()
        .map(|mutant| {
            let killer = killer(&mutant.kernel, &order, compiler, target);
            done();
            Fate { mutant, killer }
        })
        .collect()
}

fn killer(kernel: &Kernel, cases: &[&Case], compiler: &Compiler, target: Target) -> Option<Killer> {
    if kernel.verify().is_err() {
        return Some(Killer::Verifier);
    }
    let Ok(program) = Program::compile_ptx(compiler, kernel, target) else { return Some(Killer::Compiler) };
    let backend = EmulatorBackend::default();
    let Ok(loaded) = backend.load(&program) else { return Some(Killer::Compiler) };
    cases.iter().find_map(|case| [0, 1].into_iter().find_map(|seed| caught(&*loaded, case, seed)))
}

fn caught(loaded: &dyn Loaded, case: &Case, seed: u64) -> Option<Killer> {
    match loaded.run(case, Schedule { seed, late_copies: true }) {
        Err(_) => Some(Killer::Stopped),
        Ok(run) => match run.findings.first() {
            Some(finding) => Some(Killer::Finding(finding.kind)),
            None => (!(case.verify)(&run.buffers).failures.is_empty()).then_some(Killer::Judge),
        },
    }
}
