//! A decode step as one graph, against the sum of its kernels timed alone.

use lathe_codegen::benchmark::Size;
use lathe_kernels::benchmarks::step::{self, Step};
use lathe_kernels::contract::KeyFormat;
use lathe_runtime::bench::{Bench, Contender, Samples};

use super::Error;
use super::measure::{Measurer, RivalTime, Row, Time};

/// The formats of a step, with the names that results carry.
pub const STEPS: [(KeyFormat, &str); 2] =
    [(KeyFormat::Bf16, "bf16 store + logits + top-k"), (KeyFormat::Fp8, "fp8 store + logits + top-k")];

impl Measurer<'_> {
    /// Measures a step. What goes wrong at this size is part of the row.
    pub fn step(&self, format: KeyFormat, name: &str, size: Size) -> Row {
        let mut row = Row::new(name, size);
        if let Err(error) = self.measure_step(format, &mut row) {
            row.times.clear();
            row.error = Some(error.to_string());
        }
        row
    }

    fn measure_step(&self, format: KeyFormat, row: &mut Row) -> Result<(), Error> {
        let Step { workload, work, launches } = step::step(format, &row.point, self.machine())?;
        let mut chain = Vec::new();
        for launch in launches {
            chain.push((self.contender(launch.kernel, launch.configuration)?, launch.args));
        }
        let chain: Vec<(&Contender, &[_])> = chain.iter().map(|(contender, args)| (contender, &args[..])).collect();
        let bench = Bench::new(self.device, &workload, &work, self.protocol)?;
        row.sets = bench.sets();
        for &edges in &self.edges {
            let whole = bench.check(bench.capture_chain(&row.kernel, &chain, edges)?)?;
            let parts = chain.iter().map(|(contender, args)| {
                let alone = bench.capture_chain(&contender.name, &[(contender, args)], edges)?;
                Ok(bench.part(&whole, alone))
            });
            let parts = parts.collect::<Result<Vec<_>, lathe_runtime::bench::BenchError>>()?;
            let all: Vec<_> = std::iter::once(&whole).chain(&parts).collect();
            let rounds = bench.rounds(&all)?;

            let of = |value: &dyn Fn(&[f64]) -> f64| Samples::new(rounds.iter().map(|round| value(round)).collect());
            let ratio = of(&|round| round[0] / round[1..].iter().sum::<f64>());
            let mut others = vec![RivalTime {
                column: "sum of parts".to_owned(),
                name: "sum of parts".to_owned(),
                us: Some(of(&|round| round[1..].iter().sum()).median()),
                ratio: Some(ratio.median()),
                ratio_spread: Some(ratio.spread()),
                recorded: false,
                error: None,
            }];
            for (part, (contender, _)) in chain.iter().enumerate() {
                let us = of(&|round| round[1 + part]).median();
                let column = ["store", "logits", "top-k"][part].to_owned();
                others.push(RivalTime::alone(column, contender.name.clone(), us));
            }
            row.times.push(Time::new(edges, &of(&|round| round[0]), &work, self.bandwidth, others));
        }
        Ok(())
    }
}
