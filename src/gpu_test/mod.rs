//! What holds on the emulator, shown again on a GPU: kernels, graphs, instruments, and what a device refuses.
//!
//! [`tests`] is the list that `lathe gpu-test` runs. A test is a function of a [`Gpu`]; it measures what it may
//! ([`Note`]), and says what is wrong otherwise. Those about instruments are generic over the world they look at, so
//! that the emulator runs the same ones.

mod figures;
mod graphs;
pub mod instruments;
pub mod pdl;
mod refusals;
pub mod scenario;
pub mod sequences;
pub mod tensor_maps;

use std::error::Error;
use std::path::Path;

use lathe_codegen::ir::Kernel;
use lathe_codegen::target::Target;
use lathe_graph::driver::CapturedGraph;
use lathe_graph::model::{Placement, Pool};
use lathe_runtime::device::Device;
use lathe_runtime::nvrtc::Compiler;
use lathe_runtime::program::Program;
use serde::Serialize;

/// What the tests run on.
pub struct Gpu<'a> {
    /// The device.
    pub device: &'a Device,
    /// Makes machine code for it.
    pub compiler: &'a Compiler<'a>,
    /// The target of that code.
    pub target: Target,
    /// Where captured graphs are kept as JSON, if they are.
    pub dumps: Option<&'a Path>,
}

/// Something that a test measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Note {
    /// What.
    pub what: String,
    /// How much.
    pub value: f64,
    /// Of what.
    pub unit: &'static str,
}

/// What is wrong.
pub type Failure = Box<dyn Error + Send + Sync>;
/// What a test measured, or what is wrong.
pub type Outcome = Result<Vec<Note>, Failure>;

/// One test.
pub struct Test {
    /// What it is about.
    pub group: &'static str,
    /// What holds if it passes.
    pub name: &'static str,
    /// The test.
    pub run: fn(&Gpu) -> Outcome,
}

/// Every test besides the kernels' own cases.
pub fn tests() -> Vec<Test> {
    [
        graphs::tests(),
        sequences::tests(),
        instruments_on_gpu(),
        pdl::tests(),
        tensor_maps::tests(),
        refusals::tests(),
        figures::tests(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn instruments_on_gpu() -> Vec<Test> {
    macro_rules! on_gpu {
        ($($name:ident)*) => {
            vec![$(Test {
                group: "instruments",
                name: stringify!($name),
                run: |gpu| instruments::$name(&instruments::OnDevice(gpu)).map(|()| Vec::new()),
            }),*]
        };
    }
    on_gpu! {
        a_forced_order_makes_the_fault_certain_and_the_two_by_two_names_it
        some_orders_corrupt_the_framework_step_and_none_the_planned_one
        the_diff_names_the_buffer_and_the_canary_the_chunk
        observers_change_no_address_no_order_and_no_result
    }
}

impl Gpu<'_> {
    /// Compiles a kernel for the device.
    ///
    /// # Errors
    /// What tracing or compiling it says.
    pub fn program(&self, kernel: &Kernel) -> Result<Program, Failure> {
        Ok(Program::compile(self.compiler, kernel, self.target)?)
    }
}

impl Gpu<'_> {
    /// Keeps what the driver captured beside what was recorded, as a file of its own.
    fn keep(&self, name: &str, pool: &Pool, placement: &Placement, dump: &CapturedGraph) -> Result<(), Failure> {
        let Some(folder) = self.dumps else { return Ok(()) };
        std::fs::create_dir_all(folder)?;
        let addresses: Vec<(&str, u64)> =
            placement.iter().map(|(id, address)| (pool.buffer(id).name.as_str(), address)).collect();
        let file = serde_json::json!({ "addresses": addresses, "captured": dump });
        std::fs::write(folder.join(format!("{name}.json")), serde_json::to_string_pretty(&file)?)?;
        Ok(())
    }
}

/// `value` of `unit`.
fn note(what: impl Into<String>, value: f64, unit: &'static str) -> Note {
    Note { what: what.into(), value, unit }
}

/// Fails the test with a message unless `holds`.
macro_rules! ensure {
    ($holds:expr, $($message:tt)+) => {
        if !$holds {
            return Err(format!($($message)+).into());
        }
    };
}
use ensure;
