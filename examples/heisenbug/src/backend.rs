//! Where the layer runs.

use lathe::graph::model::{Placement, Pool};
use lathe::runtime::replay::{Bindings, EmulatedStep, Inspect, StepError};
use lathe::target::Target;

/// What replays a recorded layer, in any order that its edges allow, at given addresses.
pub trait Backend {
    /// Why it cannot.
    type Error: std::error::Error + Send + Sync + 'static;
    /// A layer ready to be replayed and looked at.
    type World<'a>: Inspect<Error = Self::Error>
    where
        Self: 'a;

    /// Its name.
    fn name(&self) -> String;

    /// What its kernels are compiled for.
    fn target(&self) -> Target;

    /// Makes `pool` ready, each buffer where `placement` says.
    ///
    /// # Errors
    /// The backend's.
    fn world<'a>(
        &'a self,
        pool: &'a Pool,
        placement: &'a Placement,
        bindings: &'a Bindings<'a>,
    ) -> Result<Self::World<'a>, Self::Error>;
}

/// The PTX of the real kernels, on the CPU.
pub struct Emulator {
    /// What the kernels are compiled for.
    pub target: Target,
}

impl Backend for Emulator {
    type Error = StepError;
    type World<'a> = EmulatedStep<'a>;

    fn name(&self) -> String {
        format!("emulator, PTX for {}", self.target.name())
    }

    fn target(&self) -> Target {
        self.target
    }

    fn world<'a>(
        &'a self,
        pool: &'a Pool,
        placement: &'a Placement,
        bindings: &'a Bindings<'a>,
    ) -> Result<EmulatedStep<'a>, StepError> {
        EmulatedStep::new(pool, placement, bindings)
    }
}
