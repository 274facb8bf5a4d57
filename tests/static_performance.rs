//! What the machine code of every shipped kernel takes, held to golden files: a change of speed that can be seen
//! without a GPU is a diff that somebody reviews. `UPDATE_EXPECT=1 cargo test --test static_performance` rewrites them.

use std::fmt::Write;

use expect_test::expect_file;
use lathe::runtime::bench::{CARDS, StaticFigures};
use lathe::runtime::nvrtc::Compiler;
use lathe::runtime::program::Program;
use lathe::runtime::sass::Sass;
use lathe::runtime::toolchain::Toolchain;
use lathe::target::Target;
use lathe_codegen::benchmark::{Benchmark, Configuration, Machine};

/// The compiler whose machine code the files describe; another one's differs without anybody's doing.
const COMPILER: (u32, u32) = (13, 0);

/// The most instructions of a turn of the main loop, 64 keys, that a logits kernel may take on sm_120a.
const TILE_LIMITS: [(&str, usize); 2] = [("bf16_paged_mqa_logits", 1_000), ("fp8_paged_mqa_logits", 760)];

/// Shared memory of a CTA on sm_120a.
const SM120_SHARED_BYTES: u32 = 101_376;

/// The kernels that the launch rule chooses for some benchmarked size, each once.
fn chosen(benchmark: &Benchmark, target: Target) -> Vec<(String, Configuration)> {
    let card = CARDS.iter().find(|card| card.target == target).expect("a card of every tested target");
    let machine = Machine { target, sms: card.sms };
    let mut seen: Vec<(String, Configuration)> = Vec::new();
    for size in (benchmark.sizes)() {
        let first = (benchmark.configurations)(&size, machine).into_iter().next().expect("a configuration");
        // The grid is no part of the machine code.
        let parameters = first.parameters.iter().filter(|(name, _)| *name != "pages_per_cta");
        let label = parameters.map(|(name, value)| format!(" {name}={value}")).collect::<String>();
        if !seen.iter().any(|(known, _)| *known == label) {
            seen.push((label, first));
        }
    }
    seen
}

fn describe(name: &str, target: Target, figures: &StaticFigures, sass: &Sass) -> String {
    let mut text = format!("{name} for {target}\n");
    let mut line = |what: &str, value: String| writeln!(text, "{what:<36}{value:>8}").expect("strings take text");
    line("registers a thread", figures.registers.to_string());
    line("bytes of spills", figures.spills.to_string());
    line("bytes of shared memory", figures.shared.to_string());
    line("CTAs an SM", figures.ctas_per_sm.to_string());
    line("warps an SM", (figures.ctas_per_sm * figures.warps()).to_string());
    line("instructions", figures.instructions.to_string());
    line("a turn of the main loop, all warps", figures.of_a_turn(figures.loop_instructions).to_string());
    line("  matrix instructions", figures.of_a_turn(figures.loop_mma).to_string());
    line("  matrix loads (LDSM)", figures.of_a_turn(figures.loop_ldsm).to_string());
    line("global loads before the PDL wait", sass.global_loads_before_pdl_wait().len().to_string());
    // Lengths and page ids: a page id that is asked for behind the queries' copies makes short rows 6 % slower.
    if sass.count("LDGSTS") > 0 {
        line("global loads before the first copy", sass.global_loads_before_copies().len().to_string());
    }
    text
}

/// What no golden file may say, however it was reviewed.
fn hold_limits(name: &str, target: Target, figures: &StaticFigures) {
    assert_eq!(figures.spills, 0, "{name} for {target} spills registers");
    if target == Target::Sm120a {
        assert!(figures.shared <= SM120_SHARED_BYTES, "{name}: {} B of shared memory", figures.shared);
        if let Some((_, limit)) = TILE_LIMITS.iter().find(|(limited, _)| *limited == name) {
            let instructions = figures.of_a_turn(figures.loop_instructions);
            assert!(instructions <= *limit, "{name}: {instructions} instructions a tile, more than {limit}");
            let warps = figures.ctas_per_sm * figures.warps();
            assert!(warps >= 8, "{name}: only {warps} warps an SM");
        }
    }
}

#[test]
fn the_machine_code_takes_what_it_took() {
    let toolchain = Toolchain::new(false, |_| {});
    let compiler = Compiler::load(&toolchain).expect("a compiler");
    let found = compiler.library().version;
    if found != COMPILER {
        eprintln!("skipped: the golden files are NVRTC {COMPILER:?}'s, and this machine has {found:?}");
        return;
    }
    for entry in lathe::kernels::entries() {
        let Some(benchmark) = entry.benchmark else { continue };
        for target in [Target::Sm90a, Target::Sm120a] {
            let mut blocks = Vec::new();
            for (label, configuration) in chosen(&benchmark, target) {
                let kernel = configuration.kernel.expect("a shipped kernel traces");
                let program = Program::compile(&compiler, &kernel, target).expect("a shipped kernel compiles");
                let sass = Sass::disassemble(&toolchain, &program.compiled.cubin).expect("a disassembler");
                let figures = StaticFigures::of(&program, &sass);
                hold_limits(entry.name, target, &figures);
                blocks.push(describe(&format!("{}{label}", entry.name), target, &figures, &sass));
            }
            expect_file![format!("static/{}.{target}.txt", entry.name)].assert_eq(&blocks.join("\n"));
        }
    }
}
