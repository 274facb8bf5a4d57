//! Graphs that an H200's driver held (`lathe gpu-test --dumps`), compared with the recordings they were captured from, with
//! no GPU: they agree, and each fault planted in a dump is named.

use lathe::gpu_test::scenario::{Programs, scenario};
use lathe::gpu_test::{Failure, pdl};
use lathe::graph::driver::{CapturedEdge, CapturedGraph, CapturedKind, CapturedNode, read_back};
use lathe::graph::model::{GraphId, Placement, Pool};
use lathe::ir::Kernel;
use lathe::runtime::nvrtc::Compiler;
use lathe::runtime::program::Program;
use lathe::runtime::toolchain::Toolchain;
use lathe::target::Target;
use serde::Deserialize;

#[derive(Deserialize)]
struct Dump {
    /// Device address of each buffer, by name.
    addresses: Vec<(String, u64)>,
    captured: CapturedGraph,
}

fn dump(text: &str) -> Dump {
    serde_json::from_str(text).unwrap()
}

fn seed() -> Dump {
    dump(include_str!("data/h200_seed_graph.json"))
}

impl Dump {
    fn placement(&self, pool: &Pool) -> Placement {
        let mut placement = Placement::empty(pool);
        for (name, address) in &self.addresses {
            placement.set(pool.find_buffer(name).unwrap(), *address);
        }
        placement
    }

    fn compare(&self, pool: &Pool) -> Vec<String> {
        let findings = read_back(pool, GraphId(0), &self.placement(pool), &self.captured, None).unwrap();
        findings.into_iter().map(|finding| format!("{}: {}", finding.code, finding.message)).collect()
    }
}

fn program(kernel: &Kernel) -> Result<Program, Failure> {
    let toolchain = Toolchain::new(false, |_| {});
    Ok(Program::compile(&Compiler::load(&toolchain)?, kernel, Target::Sm90a)?)
}

/// As it was recorded when the dump was made.
fn recorded() -> Pool {
    let programs = Programs::compile(program).unwrap();
    scenario(&programs, 5000).unwrap().checked.pool().clone()
}

#[test]
fn what_the_driver_captured_is_what_was_recorded() {
    assert_eq!(seed().compare(&recorded()), [""; 0]);
}

#[test]
fn programmatic_edges_come_back_with_their_ports() {
    let dump = dump(include_str!("data/h200_control_graph.json"));
    let ports: Vec<_> = dump.captured.edges.iter().map(|edge| (edge.programmatic, edge.from_port)).collect();
    assert_eq!(ports, [(true, 1), (true, 1)], "launch ports of store and of logits");
    let kernels = pdl::kernels(program, Ok).unwrap();
    // Without its wait top-k is launched no differently.
    let chain = pdl::chain(&kernels, pdl::CONTROL_KEYS).unwrap();
    assert_eq!(dump.compare(&chain.pool), [""; 0]);
}

#[test]
fn every_fault_planted_in_the_dump_is_named() {
    let pool = recorded();
    type Plant = fn(&mut CapturedGraph);
    let cases: [(Plant, &str); 7] = [
        (|g| g.edges.clear(), "E11: nothing in the captured graph orders `project` before `logits`"),
        (|g| g.edges.push(CapturedEdge::full(2, 4)), "E11: the captured graph orders `store` before `add`"),
        (
            |g| {
                g.nodes.pop();
                g.words.pop();
                g.edges.retain(|edge| edge.to != 4);
            },
            "E11: kernel `add` was recorded and is not in the captured graph",
        ),
        (
            |g| g.nodes.push(CapturedNode::new(CapturedKind::MemAlloc, "")),
            "E11: the captured graph has a memory allocation",
        ),
        (|g| g.nodes[1].launch.as_mut().unwrap().grid = [7, 1, 1], "E11: the grid of `logits` is [7, 1, 1]"),
        (
            |g| _ = g.nodes[1].launch.as_mut().unwrap().scalars.insert(4, 1),
            "E11: parameter 4 of `logits` is 0x1 in the captured graph, and 0x1388 was recorded",
        ),
        (|g| g.words[4][0].value = 0x10, "E11: no parameter of `add` points into `x`"),
    ];
    for (plant, expected) in cases {
        let mut dump = seed();
        plant(&mut dump.captured);
        let found = dump.compare(&pool);
        assert!(found.iter().any(|message| message.starts_with(expected)), "{expected}: {found:#?}");
    }
}
