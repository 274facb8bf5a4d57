//! What a study finds, as `--json` prints it and [`story`](crate::story) tells it.

use lathe::graph::finding::ReportView;
use lathe::runtime::instrument::Rate;
use serde::Serialize;

/// How often a result was wrong.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Wrong {
    /// Replays with a wrong result.
    pub wrong: u64,
    /// All of them.
    pub replays: u64,
    /// The 95 % Wilson interval of the rate.
    pub interval: (f64, f64),
}

impl From<Rate> for Wrong {
    fn from(rate: Rate) -> Self {
        Self { wrong: rate.events, replays: rate.trials, interval: rate.interval() }
    }
}

/// One way of decoding.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// `bf16` or `fp8`.
    pub keys: &'static str,
    /// Requests.
    pub batch: i32,
    /// Bytes of the indexer's queries.
    pub q_bytes: u64,
    /// Bytes of the tensor that the main stream allocates next.
    pub residual_bytes: u64,
    /// The tensors whose bytes that one got.
    pub residual_lies_on: Vec<String>,
    /// One kernel after the other, as when a host launches them too slowly for two to meet.
    pub eager: Wrong,
    /// Replayed as a graph, in random orders that its edges allow.
    pub captured: Wrong,
    /// What the checker finds in it.
    pub findings: usize,
}

/// What the checker says of the guilty setup, before any replay.
#[derive(Clone, Debug, Serialize)]
pub struct Refusal {
    /// The findings.
    pub report: ReportView,
    /// The same as a person reads it.
    pub text: String,
    /// Whether the order that the first finding gives as its witness corrupts.
    pub witness_corrupts: bool,
}

/// An instrument that clones.
#[derive(Clone, Debug, Serialize)]
pub struct CloningView {
    /// What the replays give while it is on.
    pub captured: Wrong,
    /// Tensors that lie elsewhere than without it: name, address without, address with.
    pub moved: Vec<(String, u64, u64)>,
    /// Where the second tensor lies now.
    pub residual_lies_on: Vec<String>,
    /// What the checker finds in the instrumented graph.
    pub findings: usize,
}

/// What differs from the serial result after one order.
#[derive(Clone, Debug, Serialize)]
pub struct Changed {
    /// The buffer.
    pub buffer: String,
    /// Its first byte that differs.
    pub first: u64,
    /// How many do.
    pub bytes: u64,
    /// The requests whose rows or slots they are.
    pub requests: Vec<u64>,
}

/// Instruments that move nothing.
#[derive(Clone, Debug, Serialize)]
pub struct Observed {
    /// Differences of addresses and of happens-before with every observer on: none.
    pub moved: usize,
    /// The same replays as without, the canary looking.
    pub captured: Wrong,
    /// Chunks that changed outside the slots of the step, over all replays.
    pub intrusions: usize,
    /// The rate of intrusions per replay that would have been seen with 95 %.
    pub would_have_seen: f64,
    /// What the diff names after the witness.
    pub changed: Vec<Changed>,
    /// Inputs that were not equal when the diff began: none.
    pub unequal_inputs: usize,
}

/// The pattern that separates causes.
#[derive(Clone, Debug, Serialize)]
pub struct Cells {
    /// As captured, addresses as allocated.
    pub concurrent_planned: Wrong,
    /// As captured, no two tensors sharing bytes.
    pub concurrent_disjoint: Wrong,
    /// One after the other, addresses as allocated.
    pub serialised_planned: Wrong,
    /// One after the other, no two tensors sharing bytes.
    pub serialised_disjoint: Wrong,
    /// What it says.
    pub cause: &'static str,
    /// The pair forced one way round, and the other: is the result right?
    pub forced: (Option<bool>, Option<bool>),
}

/// A repair.
#[derive(Clone, Debug, Serialize)]
pub struct Repair {
    /// What is done.
    pub what: String,
    /// What the checker finds afterwards.
    pub findings: usize,
    /// What the replays give.
    pub captured: Wrong,
}

/// Everything that was seen.
#[derive(Clone, Debug, Serialize)]
pub struct Study {
    /// Where it ran.
    pub backend: String,
    /// Each setup.
    pub table: Vec<Row>,
    /// The guilty one, checked.
    pub refusal: Refusal,
    /// Looked at by cloning.
    pub cloning: CloningView,
    /// Looked at without moving anything.
    pub observed: Observed,
    /// Separated by cause.
    pub cells: Cells,
    /// Repaired as the checker proposes, as PyTorch can, and as Lathe plans.
    pub repairs: Vec<Repair>,
    /// Repaired by sharing one persistent workspace: not repaired.
    pub persistent: Repair,
    /// What the checker says of that.
    pub persistent_message: String,
    /// The memory map of the guilty setup.
    #[serde(skip)]
    pub picture: String,
}
