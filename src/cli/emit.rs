//! `lathe emit`: a kernel in any of the forms it takes on its way to the GPU.

use std::process::ExitCode;

use anstream::eprintln;
use clap::ValueEnum;
use lathe_codegen::target::Target;
use lathe_runtime::nvrtc::Compiler;
use lathe_runtime::program::Program;
use lathe_runtime::sass::Sass;

use super::diagnostic::Diagnostic;
use super::sources::Sources;
use super::{Context, Outcome, select, terminal};
use crate::cli::output::print;

/// Print a kernel in any of its forms
#[derive(clap::Args)]
#[command(after_help = "Examples:
  lathe emit bf16_paged_mqa_logits                          the CUDA C++
  lathe emit bf16_paged_mqa_logits --view rust              the function it was traced from
  lathe emit bf16_paged_mqa_logits --view sass --counts     the instruction mix of the main loop
  lathe emit bf16_index_k_store --view ptx --target sm_90a  the PTX that the emulator runs")]
pub struct Args {
    /// The kernel's name, as `lathe list` shows it
    kernel: String,

    /// Which form
    #[arg(long, value_enum, default_value_t = View::Cuda)]
    view: View,

    /// The architecture to generate for
    #[arg(long, default_value = "sm_120a")]
    target: Target,

    /// The variant's label, as `lathe list` shows it; the first one if left out
    #[arg(long, value_name = "LABEL")]
    variant: Option<String>,

    /// With --view sass: how often each instruction occurs in the main loop and in all
    #[arg(long)]
    counts: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum View {
    /// The Rust function
    Rust,
    /// The traced IR
    Ir,
    /// The CUDA C++ that NVRTC compiles
    Cuda,
    /// The PTX that NVRTC makes
    Ptx,
    /// The machine code, with lines of the CUDA
    Sass,
}

/// Options that do not go together.
#[derive(Debug, thiserror::Error)]
enum EmitError {
    #[error("`--counts` counts instructions of the machine code: give it with `--view sass`")]
    NothingToCount,
}

pub fn run(args: &Args, context: &Context) -> Outcome {
    let entry = select::entry(context.entries, &args.kernel)?;
    if args.counts && args.view != View::Sass {
        return Err(EmitError::NothingToCount.into());
    }
    let variant = select::variant(entry, args.target, args.variant.as_deref())?;
    let sources = Sources::new(context.entries);
    let kernel = match variant.kernel {
        Ok(kernel) => kernel,
        Err(errors) => return Ok(fail(&Diagnostic::of_trace(&errors), &sources)),
    };
    match args.view {
        View::Rust => print!("{}", function(entry.source, &kernel.name)),
        View::Ir => print!("{kernel}"),
        View::Cuda => print!("{}", kernel.cuda(args.target)?.source),
        View::Ptx | View::Sass => {
            let toolchain = terminal::toolchain(context.offline);
            let compiler = Compiler::load(&toolchain)?;
            let program = match Program::compile(&compiler, &kernel, args.target) {
                Ok(program) => program,
                Err(error) => return Ok(fail(&Diagnostic::of_program(&error), &sources)),
            };
            if args.view == View::Ptx {
                print!("{}", program.compiled.ptx);
            } else {
                let sass = Sass::disassemble(&toolchain, &program.compiled.cubin)?;
                print!("{}", if args.counts { counts(&sass) } else { sass.text });
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn fail(diagnostics: &[Diagnostic], sources: &Sources) -> ExitCode {
    for diagnostic in diagnostics {
        eprintln!("{}\n", diagnostic.render(sources));
    }
    ExitCode::FAILURE
}

/// The kernel's function with its attributes and documentation, cut out of its file; all of the file where the function
/// is not in it.
fn function(source: &str, name: &str) -> String {
    let lines: Vec<&str> = source.lines().collect();
    let Some(at) = lines.iter().position(|line| defines(line, name)) else {
        return source.to_owned();
    };
    let is_head = |line: &&str| line.trim_start().starts_with(['#', '/']);
    let head = lines[..at].iter().rev().take_while(|line| is_head(line)).count();
    let indent = &lines[at][..lines[at].len() - lines[at].trim_start().len()];
    let is_end = |line: &&str| line.strip_prefix(indent) == Some("}");
    let body = match lines[at].trim_end().ends_with('}') {
        true => at + 1,
        false => lines[at..].iter().position(is_end).map_or(lines.len(), |end| at + end + 1),
    };
    lines[at - head..body].join("\n") + "\n"
}

/// Whether a line begins the function `name`, and not one whose name only starts with it.
fn defines(line: &str, name: &str) -> bool {
    let rest = line.split_once("fn ").and_then(|(_, rest)| rest.strip_prefix(name));
    rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
}

fn counts(sass: &Sass) -> String {
    let whole = sass.counts(0..sass.instructions.len());
    let main_loop = sass.main_loop();
    let inside = main_loop.map(|range| sass.counts(range)).unwrap_or_default();
    let mut rows: Vec<_> = whole.into_iter().collect();
    rows.sort_by_key(|(mnemonic, all)| (std::cmp::Reverse(inside.get(mnemonic).copied()), std::cmp::Reverse(*all)));
    let mut table = super::table::table(&["instruction", "main loop", "all"]);
    for (mnemonic, all) in rows {
        let looped = inside.get(mnemonic).copied().unwrap_or(0);
        table.add_row([mnemonic.to_owned(), looped.to_string(), all.to_string()]);
    }
    format!("{table}\n")
}

#[cfg(test)]
mod tests {
    use super::function;

    const SOURCE: &str = "\
#[device]
fn prefixed_helper(x: Scalar<f32>) -> Scalar<f32> {
    x
}

mod inner {
    /// One line.
    #[kernel(warps = 1)]
    pub fn prefixed(n: Scalar<i32>) {
        if n > 0 {
        }
    }
}

#[kernel(warps = 1)]
fn short() {}
fn last<T>() {
}
";

    #[test]
    fn a_function_is_found_by_its_whole_name() {
        let indented = "    /// One line.\n    #[kernel(warps = 1)]\n    pub fn prefixed(n: Scalar<i32>) {\n        if n > 0 {\n        }\n    }\n";
        assert_eq!(function(SOURCE, "prefixed"), indented);
        assert_eq!(function(SOURCE, "short"), "#[kernel(warps = 1)]\nfn short() {}\n");
        assert_eq!(function(SOURCE, "last"), "fn last<T>() {\n}\n");
        assert_eq!(function(SOURCE, "pre"), SOURCE);
    }
}
