//! What can be known of a kernel's speed without running it: figures of the machine code, and a time that a model of
//! the card predicts.

use lathe_codegen::benchmark::Work;
use lathe_codegen::cost::Region;
use lathe_codegen::dtype::Dtype;
use lathe_codegen::target::Target;
use serde::Serialize;

use crate::program::Program;
use crate::sass::Sass;

/// Figures of a kernel's machine code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct StaticFigures {
    /// Registers a thread.
    pub registers: u32,
    /// Bytes that spills move, a thread.
    pub spills: u32,
    /// Bytes of shared memory a CTA.
    pub shared: u32,
    /// Threads a CTA.
    pub threads: u32,
    /// CTAs that an SM holds at once.
    pub ctas_per_sm: u32,
    /// Instructions of the kernel.
    pub instructions: usize,
    /// Instructions of one turn of the main loop.
    pub loop_instructions: usize,
    /// Matrix instructions among them.
    pub loop_mma: usize,
    /// Matrix loads from shared memory among them.
    pub loop_ldsm: usize,
    /// Instructions that the cost model expects of a warp in a turn of the costliest loop.
    pub modelled_issue: u64,
}

impl StaticFigures {
    /// Reads them off a program and its disassembly.
    pub fn of(program: &Program, sass: &Sass) -> StaticFigures {
        let target = program.compiled.target;
        let resources = program.compiled.resources;
        let counts = sass.main_loop().map(|range| sass.counts(range)).unwrap_or_default();
        let count = |ends: &str| counts.iter().filter(|(name, _)| name.ends_with(ends)).map(|(_, n)| n).sum();
        let (threads, shared) = (program.cuda.threads, program.shared_bytes());
        StaticFigures {
            registers: resources.registers,
            spills: resources.spills(),
            shared,
            threads,
            ctas_per_sm: ctas_per_sm(target, resources.registers, shared, threads),
            instructions: sass.instructions.len(),
            loop_instructions: counts.values().sum(),
            loop_mma: count("MMA"),
            loop_ldsm: count("LDSM"),
            modelled_issue: costliest_loop(&program.kernel.cost()),
        }
    }
}

impl StaticFigures {
    /// Warps of a CTA.
    pub fn warps(&self) -> u32 {
        self.threads.div_ceil(32)
    }

    /// What all warps of a CTA do in a turn of the main loop, given what one does. In a turn of the logits
    /// kernels, four warps make a tile of 64 keys.
    pub fn of_a_turn(&self, of_a_warp: usize) -> usize {
        of_a_warp * self.warps() as usize
    }
}

/// Issue slots of a warp in a turn of the loop that has most of them, inner loops of known length included.
fn costliest_loop(region: &Region) -> u64 {
    let own = region.loops.iter().map(|inner| inner.total().issue);
    own.chain(region.loops.iter().map(costliest_loop)).max().unwrap_or(0)
}

/// CTAs that an SM holds at once, by registers, shared memory, threads and slots.
///
/// Registers are given to a warp in units of 256, from the quarter of the SM that the warp lives in.
pub fn ctas_per_sm(target: Target, registers: u32, shared: u32, threads: u32) -> u32 {
    const QUARTERS: u32 = 4;
    const REGISTERS_A_QUARTER: u32 = 16_384;
    let (max_threads, max_ctas) = match target {
        Target::Sm90a => (2_048, 32),
        Target::Sm120a | Target::Sm120f => (1_536, 24),
    };
    let warps = threads.div_ceil(32).max(1);
    let of_a_warp = (registers.max(1) * 32).next_multiple_of(256);
    let by_registers = REGISTERS_A_QUARTER / of_a_warp * QUARTERS / warps;
    let by_shared = target.shared_per_sm() / (shared + 1_024);
    by_registers.min(by_shared).min(max_threads / (warps * 32)).min(max_ctas)
}

/// A graphics card, as the model knows it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Card {
    /// What it is called.
    pub name: &'static str,
    /// What its driver calls it begins with.
    pub device: &'static str,
    /// What it runs.
    pub target: Target,
    /// Streaming multiprocessors.
    pub sms: u32,
    /// Bytes a second that a kernel can read.
    pub bandwidth: f64,
    /// SM clock under load, in Hz.
    pub clock: f64,
    /// Operations a clock that the tensor cores of an SM do on bf16 with fp32 sums; twice that on e4m3.
    pub bf16_flops: f64,
}

/// The cards that times are predicted for. Bandwidth of the H200 as measured, the others' by their data sheets.
pub const CARDS: [Card; 3] = [
    Card {
        name: "RTX PRO 6000",
        device: "NVIDIA RTX PRO 6000",
        target: Target::Sm120a,
        sms: 188,
        bandwidth: 1.79e12,
        clock: 2.4e9,
        bf16_flops: 1_024.0,
    },
    Card {
        name: "RTX 5090",
        device: "NVIDIA GeForce RTX 5090",
        target: Target::Sm120a,
        sms: 170,
        bandwidth: 1.79e12,
        clock: 2.4e9,
        bf16_flops: 512.0,
    },
    Card {
        name: "H200",
        device: "NVIDIA H200",
        target: Target::Sm90a,
        sms: 132,
        bandwidth: 4.27e12,
        clock: 1.75e9,
        bf16_flops: 4_096.0,
    },
];

/// A predicted time and what it is made of, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// A call, with plain edges.
    pub us: f64,
    /// Moving the bytes at full bandwidth.
    pub memory: f64,
    /// Multiplying at the tensor cores' full rate.
    pub tensor: f64,
    /// Issuing the main loop's instructions, one a clock and quarter of an SM.
    pub issue: f64,
    /// Starting, the chain of dependent loads, and the first turn of the main loop.
    pub latency: f64,
}

impl Prediction {
    /// What decides the time: the latency if it is more than half of it.
    pub fn bound(&self) -> &'static str {
        let parts = [(self.memory, "memory"), (self.tensor, "tensor cores"), (self.issue, "issue slots")];
        let (slowest, name) = parts.into_iter().max_by(|a, b| a.0.total_cmp(&b.0)).expect("three parts");
        if slowest < self.latency { "latency" } else { name }
    }
}

/// An empty kernel behind another in a graph, microseconds, as measured on an H200.
const START: f64 = 0.65;

/// A global load on an idle device, microseconds: half of what two in a chain and a store take beyond [`START`].
const LOAD: f64 = 0.38;

/// Clocks of a warp for an instruction of the main loop, alone on its scheduler: most wait for the one before.
const CLOCKS: f64 = 5.0;

/// Schedulers of an SM.
const SCHEDULERS: f64 = 4.0;

/// What the model expects of a call: the latency of its chain of loads and of one turn of the main loop, then the
/// slowest of memory, tensor cores and issue slots.
pub fn predict(card: &Card, work: &Work, figures: &StaticFigures) -> Prediction {
    let us = 1e6;
    let memory = (work.read + work.written) as f64 / card.bandwidth * us;
    let rate = match work.multiplies {
        Some(Dtype::E4m3) => 2.0 * card.bf16_flops,
        _ => card.bf16_flops,
    };
    let sm_clocks = f64::from(card.sms) * card.clock;
    let tensor = work.flops as f64 / (rate * sm_clocks) * us;
    let of_a_turn = figures.loop_instructions as f64;
    let issue = work.turns as f64 * of_a_turn / (SCHEDULERS * sm_clocks) * us;
    let first_turn = if work.turns > 0 { of_a_turn * CLOCKS / card.clock * us } else { 0.0 };
    let latency = START + f64::from(work.chain) * LOAD + first_turn;
    Prediction { us: latency + memory.max(tensor).max(issue), memory, tensor, issue, latency }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn residency_follows_the_scarcest_resource() {
        // Registers: 214 take 27 units of 256 a warp, so a quarter of an SM holds 2 warps.
        assert_eq!(ctas_per_sm(Target::Sm120a, 214, 49_152, 128), 2);
        assert_eq!(ctas_per_sm(Target::Sm120a, 150, 25_600, 128), 3);
        // Shared memory: 102,400 hold one CTA of 86 KB.
        assert_eq!(ctas_per_sm(Target::Sm120a, 64, 88_064, 128), 1);
        // Threads: 1,536 and 2,048 an SM.
        assert_eq!(ctas_per_sm(Target::Sm120a, 32, 0, 512), 3);
        assert_eq!(ctas_per_sm(Target::Sm90a, 32, 0, 512), 4);
        // Slots.
        assert_eq!(ctas_per_sm(Target::Sm90a, 16, 0, 32), 32);
        // Nothing fits.
        assert_eq!(ctas_per_sm(Target::Sm120a, 32, 200_000, 128), 0);
    }

    #[test]
    fn the_slowest_part_decides_and_the_latency_comes_on_top() {
        let figures = StaticFigures {
            registers: 200,
            spills: 0,
            shared: 0,
            threads: 128,
            ctas_per_sm: 2,
            instructions: 2_000,
            loop_instructions: 1_000,
            loop_mma: 256,
            loop_ldsm: 32,
            modelled_issue: 900,
        };
        let keys = 64 * 16_384;
        let work = Work {
            read: keys * 256,
            written: keys * 4,
            flops: 2 * keys * 64 * 128,
            multiplies: Some(Dtype::Bf16),
            turns: keys / 64 * 4,
            chain: 2,
            ..Work::default()
        };
        let h200 = predict(&CARDS[2], &work, &figures);
        assert!((h200.memory - 63.85).abs() < 0.1, "{h200:?}");
        assert!(h200.issue > h200.memory && h200.issue < 1.2 * h200.memory, "{h200:?}");
        assert_eq!(h200.us, h200.issue + h200.latency);
        assert_eq!(h200.bound(), "issue slots");
        let light = predict(&CARDS[2], &Work { turns: 0, flops: 0, ..work }, &figures);
        assert_eq!((light.us, light.latency), (light.memory + light.latency, START + 2.0 * LOAD));
        assert_eq!(light.bound(), "memory");
        let tiny = predict(&CARDS[2], &Work { chain: 1, read: 1_000, ..Work::default() }, &figures);
        assert_eq!(tiny.bound(), "latency");
    }
}
