//! Recorded steps with real kernels, replayed node by node in any order that a graph's edges allow, or as captured
//! graphs.
//!
//! A [`Launch`] is a kernel with its arguments: it gives the recorder the accesses that the kernel declares, and the
//! [`Bindings`] what to run. [`EmulatedStep`] runs them on the emulator, at the addresses of a placement, so that
//! buffers which share bytes there share them here. [`CudaStep`] runs them on a device, eagerly or captured in one of
//! several [`Mode`]s, in an arena of the same layout.

mod cuda;
mod dead;
mod emulated;
mod error;
mod lanes;
mod launch;
mod mode;

use std::collections::HashMap;

use lathe_graph::explore::World;
use lathe_graph::model::{BufferId, NodeId};

pub use cuda::{CudaStep, Replay};
pub use emulated::EmulatedStep;
pub use error::StepError;
pub use launch::{Launch, LaunchError};
pub use mode::{Captured, Edges, Mode};

use crate::program::Program;
use lathe_codegen::contract::Arg;

/// What the nodes of a recording do, and what its buffers hold before a replay.
#[derive(Default)]
pub struct Bindings<'p> {
    actions: HashMap<NodeId, Action<'p>>,
    contents: HashMap<BufferId, Vec<u8>>,
}

enum Action<'p> {
    Kernel { program: &'p Program, grid: [u32; 3], args: Vec<Arg> },
    Copy { from: BufferId, to: BufferId },
}

impl<'p> Bindings<'p> {
    /// Nothing bound. A fill needs no binding: it fills what it writes with poison.
    pub fn new() -> Self {
        Self::default()
    }

    /// `node` runs `launch`.
    pub fn kernel(&mut self, node: NodeId, launch: Launch<'p>) {
        let (program, grid, args) = launch.into_parts();
        self.actions.insert(node, Action::Kernel { program, grid, args });
    }

    /// `node` copies all of `from` to the start of `to`.
    pub fn copy(&mut self, node: NodeId, from: BufferId, to: BufferId) {
        self.actions.insert(node, Action::Copy { from, to });
    }

    /// What `buffer` holds before each replay; poison, if nothing is said.
    pub fn contents(&mut self, buffer: BufferId, bytes: Vec<u8>) {
        self.contents.insert(buffer, bytes);
    }
}

/// A world whose memory an instrument can look at and, where it says so, write.
pub trait Inspect: World {
    /// What the bytes of `buffer` hold now.
    fn bytes(&mut self, buffer: BufferId) -> Result<Vec<u8>, Self::Error>;
}
