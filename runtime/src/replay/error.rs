//! Why a step cannot be replayed.

use lathe_graph::driver::ReadBackError;
use lathe_graph::finding::Finding;
use lathe_graph::model::ModelError;

use crate::device::DeviceError;

/// Why a step cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// A node that does something was not bound.
    #[error("node `{0}` has no work: bind a kernel or a copy to it before the replay")]
    Unbound(String),
    /// A buffer without an address.
    #[error("buffer `{0}` has no address: plan the graph, or give a placement that holds it")]
    Unplaced(String),
    /// Contents that do not fit.
    #[error("buffer `{buffer}` has {size} bytes, and {given} were given for it")]
    Contents {
        /// The buffer.
        buffer: String,
        /// Its bytes.
        size: u64,
        /// How many were given.
        given: usize,
    },
    /// A copy between buffers of which the second is too small.
    #[error("node `{node}` copies {bytes} bytes of `{from}` to `{to}`, which has {room}")]
    Copy {
        /// The node.
        node: String,
        /// Where from.
        from: String,
        /// How many.
        bytes: u64,
        /// Where to.
        to: String,
        /// Bytes there.
        room: u64,
    },
    /// A launch of no CTA, which a driver takes for an error.
    #[error("node `{node}` launches a grid of {grid:?}, which has no CTA: leave the node out of the recording")]
    EmptyGrid {
        /// The node.
        node: String,
        /// The grid.
        grid: [u32; 3],
    },
    /// Arguments whose sizes are not those of the compiled function.
    #[error("node `{node}` passes parameters of {given:?} bytes, and the compiled function takes {expected:?}")]
    Parameters {
        /// The node.
        node: String,
        /// Bytes of each parameter of the function.
        expected: Vec<usize>,
        /// Bytes of each that was marshalled.
        given: Vec<usize>,
    },
    /// A node that cannot run as the mode says.
    #[error("{0}")]
    Mode(String),
    /// Something that is no part of the capture broke it.
    #[error(
        "the capture of `{graph}` broke {moment}: {error}; nothing may allocate, synchronise or use the legacy stream while it lasts, on any thread"
    )]
    CaptureBroken {
        /// The graph.
        graph: String,
        /// During or after which node.
        moment: String,
        /// What the driver said.
        error: DeviceError,
    },
    /// The captured graph is not the recorded one.
    #[error("the driver captured another graph than was recorded: {}", messages(findings))]
    Differs {
        /// What differs.
        findings: Vec<Finding>,
    },
    /// The captured graph could not be compared.
    #[error(transparent)]
    ReadBack(#[from] ReadBackError),
    /// The memory of the step was given back.
    #[error("the memory of this step was freed: its graphs hold addresses that are no longer theirs, make a new step")]
    Freed,
    /// Parameters changed after the capture.
    #[error("parameters of the step changed after `{graph}` was captured: call `update` on the replay first")]
    Stale {
        /// The graph.
        graph: String,
    },
    /// A replay of another step.
    #[error("`{graph}` was captured from another step, whose addresses are not those of this one")]
    OtherStep {
        /// The graph.
        graph: String,
    },
    /// A graph, a stream or memory of another context.
    #[error("{what} belongs to another context than the step's device: make it with the same `Device`")]
    OtherContext {
        /// What.
        what: String,
    },
    /// Two graphs of one arena at the same time.
    #[error(
        "`{graph}` would replay while `{other}` still runs on another stream, and both use one arena: wait for it, replay both on one stream, or declare `may_replay_at_once` before planning"
    )]
    AtOnce {
        /// The graph to be replayed.
        graph: String,
        /// The one in flight.
        other: String,
    },
    /// New memory or a new value that does not fit.
    #[error("{0}")]
    Update(String),
    /// The step's pool makes no sense.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The emulator refused or gave up.
    #[error(transparent)]
    Emulator(#[from] lathe_emulator::Error),
    /// The device refused or failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

fn messages(findings: &[Finding]) -> String {
    let rows: Vec<String> = findings.iter().map(|finding| format!("{}: {}", finding.code, finding.message)).collect();
    rows.join("; ")
}
