//! Every public report and every sequence of the corpus: the checker says what each file expects, and each
//! fix that it proposes removes the finding.

use lathe_graph::check::check;
use lathe_graph::file::{Expected, GraphFile};
use lathe_graph::finding::{Code, Finding, Harm};
use lathe_graph::model::Pool;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn corpus() -> Vec<(PathBuf, GraphFile)> {
    files_of("corpus")
}

/// A graph with an instrument in it each, beside `original.json` without.
fn instrumented() -> (GraphFile, Vec<(PathBuf, GraphFile)>) {
    let mut files = files_of("corpus/instruments");
    let at = files.iter().position(|(path, _)| path.ends_with("original.json")).unwrap();
    let (_, original) = files.remove(at);
    (original, files)
}

fn files_of(folder: &str) -> Vec<(PathBuf, GraphFile)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|e| e == "json")).collect();
    paths.sort();
    let read = |path: PathBuf| {
        let file = GraphFile::read(&path).unwrap_or_else(|error| panic!("{error}"));
        (path, file)
    };
    paths.into_iter().map(read).collect()
}

/// A finding as the files write it.
fn told(pool: &Pool, finding: &Finding) -> Expected {
    let nodes = finding.parties.iter().filter_map(|p| Some(pool.node(p.node?).name.clone()));
    let mut buffers: Vec<String> =
        finding.parties.iter().filter_map(|p| Some(pool.buffer(p.buffer?).name.clone())).collect();
    buffers.dedup();
    Expected { code: finding.code, nodes: nodes.collect(), buffers }
}

#[test]
fn every_case_is_judged_as_its_file_expects() {
    let mut wrong = String::new();
    for (path, file) in corpus() {
        let report = file.check().unwrap();
        let found: Vec<Expected> = report.findings.iter().map(|f| told(&file.pool, f)).collect();
        let expected = file.expect.clone().expect("a corpus file says what it expects");
        if found != expected {
            wrong += &format!("{}:\n  expected {expected:?}\n  found    {found:?}\n", path.display());
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn instruments_that_move_or_order_something_are_told_and_others_are_not() {
    let (original, files) = instrumented();
    assert!(original.check().unwrap().is_clean());
    for (path, file) in files {
        assert!(file.check().unwrap().is_clean(), "{}: only the comparison shows it", path.display());
        let found = file.differences_from(&original).unwrap().findings;
        let found: Vec<Expected> = found.iter().map(|f| told(&original.pool, f)).collect();
        assert_eq!(found, file.expect.unwrap(), "{}", path.display());
    }
}

#[test]
fn every_proposed_fix_removes_its_finding_and_adds_none() {
    let mut applied = 0;
    for (path, file) in corpus() {
        let before = file.check().unwrap();
        for finding in &before.findings {
            for fix in &finding.fixes {
                let (mut pool, mut placement) = (file.pool.clone(), file.placement.clone());
                if !fix.remedy.apply(&mut pool, &mut placement) {
                    continue;
                }
                applied += 1;
                let after = check(&pool, Some(&placement)).unwrap();
                let left: Vec<Expected> = after.findings.iter().map(|f| told(&pool, f)).collect();
                let (name, what) = (path.display(), fix.remedy.describe(&file.pool));
                assert!(left.is_empty(), "{name}: after \"{what}\" there is still {left:?}");
            }
        }
    }
    assert!(applied > 40, "only {applied} fixes could be applied");
}

#[test]
fn every_race_has_a_fix_of_every_kind_that_fits_it() {
    for (path, file) in corpus() {
        for finding in &file.check().unwrap().findings {
            let kinds: Vec<&str> = finding.fixes.iter().map(|f| f.remedy.word()).collect();
            let needed: &[&str] = match finding.code {
                Code::E1 => &["event"],
                Code::E2 => &["event", "own_bytes", "longer_life"],
                Code::E5 | Code::E6 => &["own_bytes"],
                Code::E9 | Code::E10 => &["event"],
                _ => &[],
            };
            assert!(!kinds.is_empty() && needed.iter().all(|n| kinds.contains(n)), "{}: {kinds:?}", path.display());
            let priced = |f: &&lathe_graph::finding::Fix| f.price.describe().is_some();
            let event = finding.fixes.iter().find(|f| f.remedy.word() == "event");
            assert!(event.iter().all(priced), "{}", path.display());
        }
    }
}

#[test]
fn the_witness_of_every_race_is_a_complete_order_that_the_graph_allows() {
    let mut seen = 0;
    for (path, file) in corpus() {
        let report = file.check().unwrap();
        for finding in &report.findings {
            let Some(witness) = report.witness(&file.pool, finding) else {
                assert_eq!(finding.harm, Harm::NotByOrder, "{}", path.display());
                continue;
            };
            seen += 1;
            let [first, second] = finding.pair().unwrap();
            let at = |node| witness.steps.iter().position(|step| step.node() == node).unwrap();
            assert!(at(second) < at(first), "{}", path.display());
            let nodes: BTreeSet<_> = witness.steps.iter().map(|step| step.node()).collect();
            for edge in file.pool.edges().iter().filter(|e| nodes.contains(&e.from) && nodes.contains(&e.to)) {
                let starts = at(edge.to) > at(edge.from);
                let weak = edge.kind == lathe_graph::model::EdgeKind::Programmatic;
                assert!(starts || weak, "{}", path.display());
            }
            let graph = finding.graph.unwrap();
            assert!(file.pool.nodes_of(graph).all(|node| nodes.contains(&node)), "{}", path.display());
        }
    }
    assert!(seen >= 15, "{seen}");
}

#[test]
fn the_corpus_shows_every_code() {
    let files = corpus().into_iter().chain(instrumented().1);
    let expected = files.flat_map(|(_, file)| file.expect.unwrap());
    let codes: BTreeSet<Code> = expected.map(|e| e.code).collect();
    assert_eq!(codes, Code::ALL.iter().copied().collect());
}
