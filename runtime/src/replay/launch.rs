//! A kernel with its arguments, for the recorder and for the replay at once.

use std::collections::BTreeMap;

use lathe_codegen::contract::{Arg, ScalarValue};
use lathe_codegen::ir::{Access, Block, Param, ParamKind, Phase};
use lathe_graph::build::{Accesses, Bytes, KernelAccesses, ParameterAccess, Work};
use lathe_graph::model::{self, Effect, KernelLaunch, PdlWait};

use crate::program::Program;

/// A launch to be recorded: arguments follow in the order of the kernel's parameters.
#[must_use = "a launch does nothing until it is recorded and bound"]
pub struct Launch<'p> {
    program: &'p Program,
    grid: [u32; 3],
    args: Vec<Arg>,
    work: Work,
}

/// Arguments that do not fit the kernel's parameters.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LaunchError {
    /// An argument of the wrong kind.
    #[error("kernel `{kernel}`, argument {position}: {given} was given, and {expected}")]
    Argument {
        /// The kernel.
        kernel: String,
        /// Position of the argument, from 1.
        position: usize,
        /// What was given.
        given: String,
        /// What the parameter is.
        expected: String,
    },
    /// Too few arguments.
    #[error("kernel `{kernel}` takes {} arguments ({}), and {given} were given", .parameters.len(), .parameters.join(", "))]
    Missing {
        /// The kernel.
        kernel: String,
        /// Its parameters.
        parameters: Vec<String>,
        /// How many were given.
        given: usize,
    },
}

impl<'p> Launch<'p> {
    /// A launch of `grid` CTAs, named after the kernel.
    pub fn new(program: &'p Program, grid: [u32; 3]) -> Self {
        Self::named(&program.kernel.name, program, grid)
    }

    /// The same under a name of its own, for steps that launch one kernel several times.
    pub fn named(name: &str, program: &'p Program, grid: [u32; 3]) -> Self {
        let work = Work::kernel(name).symbol(&program.cuda.entry).waits(program.accesses().pdl_wait);
        Launch { program, grid, args: Vec::new(), work }
    }

    /// A pointer to the start of `buffer`.
    ///
    /// # Errors
    /// [`LaunchError`] if the next parameter is a scalar or has run-time strides.
    pub fn buffer<'s>(self, buffer: &impl Bytes<'s>) -> Result<Self, LaunchError> {
        self.pointer(buffer, 0, Vec::new())
    }

    /// A pointer to rows that begin `offset` bytes into `buffer` and lie `stride` elements apart.
    ///
    /// # Errors
    /// [`LaunchError`] if the next parameter has no run-time stride.
    pub fn rows<'s>(self, buffer: &impl Bytes<'s>, offset: u64, stride: i64) -> Result<Self, LaunchError> {
        self.pointer(buffer, offset, vec![stride])
    }

    fn pointer<'s>(mut self, buffer: &impl Bytes<'s>, offset: u64, strides: Vec<i64>) -> Result<Self, LaunchError> {
        let param = self.next(&format!("a pointer with {} strides", strides.len()))?;
        let ParamKind::Pointer { strides: expected, access, phase, .. } = param.kind else {
            return Err(self.misfit("a pointer", param));
        };
        if expected != strides.len() {
            return Err(self.misfit(&format!("a pointer with {} strides", strides.len()), param));
        }
        self.work = match (access, phase) {
            (Access::Read, Phase::BeforeWait) => self.work.reads_before_wait(buffer),
            (Access::Read, Phase::AfterWait) => self.work.reads(buffer),
            // What a launch covers need not be the whole buffer.
            (Access::WriteAll | Access::WritePart, _) => self.work.writes_part(buffer),
            (Access::ReadWrite, _) => self.work.updates(buffer),
        };
        self.args.push(Arg::Pointer { buffer: buffer.id().index(), offset, strides });
        Ok(self)
    }

    /// A scalar.
    ///
    /// # Errors
    /// [`LaunchError`] if the next parameter is a pointer or has another type.
    pub fn scalar(mut self, value: ScalarValue) -> Result<Self, LaunchError> {
        let param = self.next(&format!("the {} {value:?}", value.dtype()))?;
        match param.kind {
            ParamKind::Scalar(dtype) if dtype == value.dtype() => {
                self.args.push(Arg::Scalar(value));
                Ok(self)
            }
            _ => Err(self.misfit(&format!("a scalar {}", value.dtype()), param)),
        }
    }

    /// The work to record, once every parameter has its argument.
    ///
    /// # Errors
    /// [`LaunchError::Missing`] if some have none.
    pub fn work(&self) -> Result<Work, LaunchError> {
        let params = &self.program.kernel.params;
        if self.args.len() == params.len() {
            return Ok(self.work.clone().launched(self.as_captured()));
        }
        Err(LaunchError::Missing {
            kernel: self.program.kernel.name.clone(),
            parameters: params.iter().map(|param| param.name.clone()).collect(),
            given: self.args.len(),
        })
    }

    /// The launch as a driver will show it.
    fn as_captured(&self) -> KernelLaunch {
        let cuda = &self.program.cuda;
        KernelLaunch {
            grid: self.grid,
            block: [cuda.threads, 1, 1],
            shared_bytes: cuda.shared_bytes,
            cluster: [1; 3],
            cooperative: false,
            scalars: scalars(&self.args),
        }
    }

    pub(super) fn into_parts(self) -> (&'p Program, [u32; 3], Vec<Arg>) {
        (self.program, self.grid, self.args)
    }

    fn next(&self, given: &str) -> Result<&'p Param, LaunchError> {
        let params = &self.program.kernel.params;
        params.get(self.args.len()).ok_or_else(|| LaunchError::Argument {
            kernel: self.program.kernel.name.clone(),
            position: self.args.len() + 1,
            given: given.to_owned(),
            expected: format!("the kernel takes {} arguments", params.len()),
        })
    }

    fn misfit(&self, given: &str, param: &Param) -> LaunchError {
        let expected = match param.kind {
            ParamKind::Pointer { dtype, strides, .. } => format!("a pointer to {dtype} with {strides} strides"),
            ParamKind::Scalar(dtype) => format!("a scalar {dtype}"),
            ParamKind::Tensor { dtype, rank, .. } => format!("a tensor map of {dtype} with {rank} dimensions"),
        };
        LaunchError::Argument {
            kernel: self.program.kernel.name.clone(),
            position: self.args.len() + 1,
            given: given.to_owned(),
            expected: format!("`{}` is {expected}", param.name),
        }
    }
}

/// Everything among the marshalled parameters that is no pointer, by index.
pub(super) fn scalars(args: &[Arg]) -> BTreeMap<u32, u64> {
    let mut scalars = BTreeMap::new();
    let mut index = 0;
    for arg in args {
        match arg {
            Arg::Pointer { strides, .. } => {
                scalars.extend(strides.iter().zip(index + 1..).map(|(stride, at)| (at, *stride as u64)));
                index += strides.len() as u32;
            }
            Arg::Scalar(value) => {
                scalars.insert(index, bits(*value));
            }
            Arg::Tensor(_) => {}
        }
        index += 1;
    }
    scalars
}

/// The bytes of a scalar, zero-extended.
fn bits(value: ScalarValue) -> u64 {
    match value {
        ScalarValue::Bool(v) => v.into(),
        ScalarValue::I32(v) => u64::from(v as u32),
        ScalarValue::U32(v) => v.into(),
        ScalarValue::I64(v) => v as u64,
        ScalarValue::U64(v) => v,
        ScalarValue::F32(v) => v.to_bits().into(),
    }
}

impl Accesses for Program {
    fn accesses(&self) -> KernelAccesses {
        let kernel = &self.kernel;
        let pointers = kernel.params.iter().filter_map(|param| match param.kind {
            ParamKind::Pointer { access, phase, .. } | ParamKind::Tensor { access, phase, .. } => {
                Some(ParameterAccess {
                    name: param.name.clone(),
                    effect: match access {
                        Access::Read => Effect::Read,
                        Access::WriteAll => Effect::WriteAll,
                        Access::WritePart => Effect::WritePart,
                        Access::ReadWrite => Effect::ReadWrite,
                    },
                    phase: match phase {
                        Phase::BeforeWait => model::Phase::BeforeWait,
                        Phase::AfterWait => model::Phase::AfterWait,
                    },
                })
            }
            ParamKind::Scalar(_) => None,
        });
        KernelAccesses { name: kernel.name.clone(), parameters: pointers.collect(), pdl_wait: pdl_wait(&kernel.body) }
    }
}

/// Which CTAs wait: all if the wait stands outside every branch and loop.
fn pdl_wait(body: &Block) -> PdlWait {
    fn somewhere(block: &Block) -> bool {
        block.insts.iter().any(|inst| inst.op.name == "pdl.wait" || inst.blocks.iter().any(somewhere))
    }
    if body.insts.iter().any(|inst| inst.op.name == "pdl.wait") {
        PdlWait::Every
    } else if somewhere(body) {
        PdlWait::Some
    } else {
        PdlWait::Never
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_and_strides_are_numbered_among_the_marshalled_parameters() {
        let args = [
            Arg::Pointer { buffer: 0, offset: 0, strides: vec![] },
            Arg::Pointer { buffer: 1, offset: 0, strides: vec![-3] },
            Arg::Scalar(ScalarValue::I32(-1)),
            Arg::Scalar(ScalarValue::F32(1.0)),
        ];
        let expected = [(2, -3i64 as u64), (3, 0xffff_ffff), (4, 0x3f80_0000)];
        assert_eq!(scalars(&args), expected.into());
        let parameters = crate::backend::marshal(&args, &[0, 0], lathe_emulator::TensorMap::encode).unwrap();
        assert_eq!(parameters.len(), 5);
    }
}
