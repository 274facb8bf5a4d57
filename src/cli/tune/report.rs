//! What a search found: the fastest configuration of each size, beside the launch rule's.

use lathe_codegen::benchmark::Size;
use serde::Serialize;

use super::results::{Head, Record, Results, SizeRecord};
use crate::cli::output::println;
use crate::cli::table;

/// A size of a kernel, decided.
#[derive(Serialize)]
struct Decision<'a> {
    kernel: &'a str,
    size: SizeRecord,
    /// The fastest, if any ran.
    best: Option<&'a Record>,
    /// What the launch rule chooses.
    rule: Option<&'a Record>,
    tried: usize,
    failed: usize,
}

#[derive(Serialize)]
struct Json<'a> {
    #[serde(flatten)]
    head: &'a Head,
    decisions: Vec<Decision<'a>>,
    records: &'a [Record],
}

fn decide(results: &Results) -> Vec<Decision<'_>> {
    let mut decisions: Vec<Decision> = Vec::new();
    for record in results.records() {
        let same = |d: &Decision| d.kernel == record.kernel && d.size == record.size;
        let place = decisions.iter().position(same).unwrap_or_else(|| {
            let (kernel, size) = (&record.kernel[..], record.size);
            decisions.push(Decision { kernel, size, best: None, rule: None, tried: 0, failed: 0 });
            decisions.len() - 1
        });
        let decision = &mut decisions[place];
        decision.tried += 1;
        decision.failed += usize::from(record.failed.is_some());
        if record.rule {
            decision.rule = Some(record);
        }
        let faster = |best: &Record| record.us.is_some_and(|us| best.us.is_none_or(|known| us < known));
        if record.us.is_some() && decision.best.is_none_or(faster) {
            decision.best = Some(record);
        }
    }
    decisions.sort_by_key(|decision| (decision.kernel, decision.size));
    decisions
}

pub fn print(results: &Results, json: bool) {
    let decisions = decide(results);
    let head = &results.head;
    if json {
        let json = Json { head, decisions, records: results.records() };
        println!("{}", serde_json::to_string_pretty(&json).expect("plain data serialises"));
        return;
    }
    println!("{} ({}), {} edges, NVRTC {}.{}\n", head.device, head.target, head.edges, head.nvrtc.0, head.nvrtc.1);
    let columns = ["kernel", "size", "fastest", "us", "launch rule", "us", "rule loses", "tried", "failed"];
    let mut table = table::table(&columns);
    let label = |record: Option<&Record>| record.map_or("-".to_owned(), |record| record.configuration.clone());
    let us = |record: Option<&Record>| record.and_then(|r| r.us).map_or("-".to_owned(), |us| format!("{us:.2}"));
    for Decision { kernel, size, best, rule, tried, failed } in &decisions {
        let loss = best.and_then(|best| Some(rule.and_then(|rule| rule.us)? / best.us? - 1.0));
        table.add_row([
            (*kernel).to_owned(),
            Size::from(*size).to_string(),
            label(*best),
            us(*best),
            label(*rule),
            us(*rule),
            loss.map_or("-".to_owned(), |loss| format!("{:.1} %", loss * 100.0)),
            tried.to_string(),
            failed.to_string(),
        ]);
    }
    println!("{table}");
    let mut reasons: Vec<(&str, usize)> = Vec::new();
    for reason in results.records().iter().filter_map(|record| record.failed.as_deref()) {
        match reasons.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, count)) => *count += 1,
            None => reasons.push((reason, 1)),
        }
    }
    for (reason, count) in reasons {
        println!("{count} x failed: {reason}");
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use lathe_codegen::benchmark::Machine;
    use lathe_runtime::bench::CARDS;

    use super::*;

    #[test]
    fn the_fastest_is_found_whatever_failed() {
        let folder = tempfile::tempdir().unwrap();
        let head = Head::new("NVIDIA H200", "sm_90a", (13, 0), "pdl", false);
        let mut results = Results::open(&folder.path().join("r"), head, false).unwrap();
        let record = |configuration: &str, us: Option<f64>| Record {
            kernel: "k".into(),
            size: Size::new(1, 64).into(),
            configuration: configuration.into(),
            rule: configuration == "a=1",
            source: String::new(),
            us,
            spread: None,
            failed: us.is_none().then(|| "too much shared memory".into()),
            ordinal: 0,
            at: 0,
        };
        for (configuration, us) in [("a=1", Some(3.0)), ("a=2", None), ("a=3", Some(2.0)), ("a=4", Some(4.0))] {
            results.add(record(configuration, us)).unwrap();
        }
        let decisions = decide(&results);
        let Decision { best, rule, tried, failed, .. } = &decisions[0];
        assert_eq!(best.unwrap().configuration, "a=3");
        assert_eq!(rule.unwrap().configuration, "a=1");
        assert_eq!((*tried, *failed), (4, 1));
    }

    /// The most that a launch rule may lose against the fastest configuration that a search found.
    const MOST: f64 = 0.03;

    #[test]
    fn the_launch_rules_are_those_of_the_searches_that_ship() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/tuned");
        let files: Vec<_> = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
        assert!(!files.is_empty());
        let entries = lathe_kernels::entries();
        for path in files {
            let results = Results::read(&path).unwrap();
            let card = CARDS.iter().find(|card| results.head.device.starts_with(card.device)).unwrap();
            assert_eq!(results.head.target, card.target.name());
            let machine = Machine { target: card.target, sms: card.sms };
            for Decision { kernel, size, best, rule, .. } in decide(&results) {
                let benchmark = entries.iter().find(|entry| entry.name == kernel).unwrap().benchmark.unwrap();
                let (best, rule) = (best.unwrap(), rule.unwrap());
                let chosen = &(benchmark.configurations)(&size.into(), machine)[0];
                assert_eq!(rule.configuration, chosen.label(), "{kernel} {size:?}: search again (`lathe tune`)");
                let loss = rule.us.unwrap() / best.us.unwrap() - 1.0;
                assert!(loss <= MOST, "{kernel} {size:?} loses {loss:.3} to {}", best.configuration);
            }
        }
    }
}
