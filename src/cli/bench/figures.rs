//! What can be known of the kernels' speed without a GPU.

use std::process::ExitCode;

use lathe_codegen::benchmark::{Benchmark, Machine, Size};
use lathe_codegen::entry::Entry;
use lathe_codegen::target::Target;
use lathe_runtime::bench::{CARDS, StaticFigures, predict};
use lathe_runtime::nvrtc::Compiler;
use lathe_runtime::program::Program;
use lathe_runtime::sass::Sass;
use serde::Serialize;

use super::{Args, select_configuration};
use crate::cli::output::println;
use crate::cli::{Context, Outcome, table, terminal};

/// A kernel's machine code in figures, and the times predicted for it.
#[derive(Serialize)]
struct Row {
    kernel: String,
    target: &'static str,
    configuration: String,
    #[serde(flatten)]
    figures: StaticFigures,
    predictions: Vec<Predicted>,
}

#[derive(Serialize)]
struct Predicted {
    card: &'static str,
    size: String,
    us: f64,
    bound: &'static str,
}

pub fn run(args: &Args, entries: &[(&Entry, Benchmark)], context: &Context) -> Outcome {
    let toolchain = terminal::toolchain(context.offline);
    let compiler = Compiler::load(&toolchain)?;
    let targets = if args.target.is_empty() { vec![Target::Sm90a, Target::Sm120a] } else { args.target.clone() };
    let points: Vec<_> = entries.iter().flat_map(|entry| targets.iter().map(move |target| (entry, *target))).collect();
    let bar = terminal::bar_with_time_left(points.len());
    let mut rows: Vec<Row> = Vec::new();
    for ((entry, benchmark), target) in points {
        bar.set_message(format!("{} {target}", entry.name));
        for size in args.sizes.of(benchmark) {
            let sms = CARDS.iter().find(|card| runs(card.target, target)).map_or(132, |card| card.sms);
            let machine = Machine { target, sms };
            let configurations = (benchmark.configurations)(&size, machine);
            let chosen = select_configuration(configurations, args.configuration.as_deref())?;
            // The launch rule may take another kernel at another size.
            let parameters = chosen.parameters.iter().filter(|(name, _)| *name != "pages_per_cta");
            let configuration = parameters.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ");
            let program = Program::compile(&compiler, &chosen.kernel?, target)?;
            let figures = StaticFigures::of(&program, &Sass::disassemble(&toolchain, &program.compiled.cubin)?);
            let predictions = predictions(benchmark, size, target, &figures)?;
            let same = |row: &&mut Row| {
                row.kernel == entry.name
                    && row.target == target.name()
                    && row.configuration == configuration
                    && row.figures == figures
            };
            match rows.iter_mut().find(same) {
                Some(row) => row.predictions.extend(predictions),
                None => rows.push(Row {
                    kernel: entry.name.to_owned(),
                    target: target.name(),
                    configuration,
                    figures,
                    predictions,
                }),
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    if args.json {
        println!("{}", serde_json::to_string_pretty(&rows).expect("plain data serialises"));
    } else {
        print(&rows);
    }
    Ok(ExitCode::SUCCESS)
}

fn runs(card: Target, target: Target) -> bool {
    card.capability() == target.capability()
}

fn predictions(
    benchmark: &Benchmark,
    size: Size,
    target: Target,
    figures: &StaticFigures,
) -> Result<Vec<Predicted>, lathe_codegen::benchmark::SizeError> {
    let work = (benchmark.work)(&size)?;
    let cards = CARDS.iter().filter(|card| runs(card.target, target));
    Ok(cards
        .map(|card| {
            let prediction = predict(card, &work, figures);
            Predicted { card: card.name, size: size.to_string(), us: prediction.us, bound: prediction.bound() }
        })
        .collect())
}

fn print(rows: &[Row]) {
    let columns = [
        "kernel",
        "target",
        "registers",
        "spills",
        "shared",
        "CTAs an SM",
        "instructions",
        "a turn",
        "MMA",
        "LDSM",
        "modelled",
    ];
    let mut figures = table::table(&columns);
    for row in rows {
        let f = row.figures;
        let name = format!("{} {}", row.kernel, row.configuration);
        figures.add_row([
            name.trim_end().to_owned(),
            row.target.to_owned(),
            f.registers.to_string(),
            format!("{} B", f.spills),
            format!("{} B", f.shared),
            f.ctas_per_sm.to_string(),
            f.instructions.to_string(),
            f.of_a_turn(f.loop_instructions).to_string(),
            f.of_a_turn(f.loop_mma).to_string(),
            f.of_a_turn(f.loop_ldsm).to_string(),
            f.of_a_turn(f.modelled_issue as usize).to_string(),
        ]);
    }
    println!("{figures}");
    println!(
        "\n`a turn`, MMA and LDSM: instructions of a CTA's warps in a turn of the main loop (a tile of 64 keys); `modelled`: \
         what the cost model expects there.\n"
    );
    let mut times = table::table(&["kernel", "size", "card", "predicted", "bound by"]);
    for row in rows {
        for predicted in &row.predictions {
            times.add_row([
                row.kernel.clone(),
                predicted.size.clone(),
                predicted.card.to_owned(),
                format!("{:.1} us", predicted.us),
                predicted.bound.to_owned(),
            ]);
        }
    }
    println!("{times}");
}
