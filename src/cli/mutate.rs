//! `lathe mutate`: plants small faults in kernels and says which of their checks catches each.

use std::collections::BTreeMap;
use std::process::ExitCode;

use comfy_table::Cell;
use lathe_codegen::contract::Scale;
use lathe_codegen::entry::Entry;
use lathe_codegen::mutate::{Rule, mutants};
use lathe_codegen::target::Target;
use lathe_runtime::mutation::{Fate, fates};
use lathe_runtime::nvrtc::Compiler;

use super::sources::Sources;
use super::{Context, Outcome, select, table, terminal};
use crate::cli::output::println;

/// Plant small faults in the kernels, one at a time, and say what catches each
#[derive(clap::Args)]
#[command(
    after_help = "Each mutant leaves out or delays a barrier or a wait, leaves out a store, a guard, a fence or a saturation, narrows
an integer, moves a bound, shifts a constant, swaps operands, ...
A survivor is a hole in the checks, unless its kernel lists it as equivalent, with the reason.

Exit status: 0 if every mutant was caught or is equivalent, 1 if some survived.

Examples:
  lathe mutate --kernel bf16_index_k_store      one kernel
  lathe mutate                                  all of them (minutes)"
)]
pub struct Args {
    /// Only this kernel (may be given several times)
    #[arg(long, value_name = "NAME")]
    kernel: Vec<String>,

    /// The variant's label, as `lathe list` shows it; the first one if left out
    #[arg(long, value_name = "LABEL")]
    variant: Option<String>,

    /// The architecture to generate for
    #[arg(long, default_value = "sm_120a")]
    target: Target,
}

pub fn run(args: &Args, context: &Context) -> Outcome {
    let entries = select::entries(context.entries, &args.kernel)?;
    let toolchain = terminal::toolchain(context.offline);
    let compiler = Compiler::load(&toolchain)?;
    let sources = Sources::new(context.entries);
    let mut survived = false;
    for entry in entries {
        let fates = of_entry(entry, args, &compiler)?;
        survived |= report(entry, &fates, &sources);
    }
    Ok(if !survived { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn of_entry(
    entry: &Entry,
    args: &Args,
    compiler: &Compiler,
) -> Result<Vec<Fate>, Box<dyn std::error::Error + Send + Sync>> {
    let variant = select::variant(entry, args.target, args.variant.as_deref())?;
    let kernel = variant.kernel?;
    let cases = (variant.cases)(Scale::Emulator);
    let mutants = mutants(&kernel);
    let bar = terminal::bar(mutants.len());
    bar.set_message(entry.name);
    let fates = fates(mutants, &cases, compiler, args.target, || bar.inc(1));
    bar.finish_and_clear();
    Ok(fates)
}

/// Prints what became of the mutants of one kernel; says whether one survived that should not have.
fn report(entry: &Entry, fates: &[Fate], sources: &Sources) -> bool {
    let caught = fates.iter().filter(|fate| fate.killer.is_some()).count();
    println!("\x1b[1m{}\x1b[0m: {caught} of {} mutants caught", entry.name, fates.len());
    let mut table = table::table(&["fault", "caught", "of", "by"]);
    for rule in Rule::ALL {
        let fates: Vec<&Fate> = fates.iter().filter(|fate| fate.mutant.rule == rule).collect();
        if fates.is_empty() {
            continue;
        }
        let mut killers: BTreeMap<_, usize> = BTreeMap::new();
        for killer in fates.iter().filter_map(|fate| fate.killer) {
            *killers.entry(killer).or_default() += 1;
        }
        let by: Vec<String> = killers.iter().map(|(killer, count)| format!("{killer} {count}")).collect();
        let caught: usize = killers.values().sum();
        table.add_row([Cell::new(rule.name()), Cell::new(caught), Cell::new(fates.len()), Cell::new(by.join(", "))]);
    }
    println!("{table}");
    let mut survived = false;
    for fate in fates.iter().filter(|fate| fate.killer.is_none()) {
        let text = sources.text(fate.mutant.loc.file).unwrap_or_default();
        let line = text.lines().nth(fate.mutant.loc.line as usize - 1).unwrap_or_default();
        match entry.equivalents.iter().find(|equivalent| equivalent.covers(&fate.mutant, line)) {
            Some(equivalent) => println!("  equivalent {}: {}", fate.mutant, equivalent.reason),
            None => {
                survived = true;
                println!("  \x1b[1;33msurvived\x1b[0m {} ({})", fate.mutant, fate.mutant.rule);
            }
        }
    }
    survived
}
