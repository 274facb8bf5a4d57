//! Printing a kernel as CUDA C++: header-free, one statement a line, named as the author named things.

mod emit;
mod expr;
mod helper;
mod names;
mod plan;
mod printer;
pub mod reserved;
mod writer;

pub use emit::{Cx, Emit, scalar_text};
pub use expr::{Expr, prec};
pub use helper::Helper;
use printer::Printed;
pub use printer::{axes, ctype, register_text};

use crate::ir::{Inst, Kernel, SharedTile, VerifyError};
use crate::loc::Loc;
use crate::ops::wgmma;
use crate::target::Target;

/// A kernel as CUDA C++, with what it takes to compile, launch and explain it.
#[derive(Clone, PartialEq, Debug)]
pub struct Cuda {
    /// The source: no header, one `extern "C"` entry.
    pub source: String,
    /// The entry's name.
    pub entry: String,
    /// For each line of the source, where the author wrote it.
    pub lines: Vec<Option<Loc>>,
    /// Dynamic shared memory of a CTA, in bytes.
    pub shared_bytes: u32,
    /// What lies in it.
    pub tiles: Vec<SharedTile>,
    /// Threads a CTA.
    pub threads: u32,
}

/// Why a kernel cannot be printed for a target.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum CudaError {
    /// An operation needs a later architecture.
    #[error("{loc}: `{op}` needs compute capability {needs} or later, and {target} has {has}")]
    Architecture {
        /// The operation.
        op: &'static str,
        /// Where it is used.
        loc: Loc,
        /// The target.
        target: Target,
        /// Capability (major * 10 + minor) needed.
        needs: u32,
        /// Capability of the target.
        has: u32,
    },
    /// An instruction that only Hopper has.
    #[error("{loc}: `{op}` is of sm_90a alone, and {target} has no such instruction: multiply with `mma_abt` there")]
    HopperOnly {
        /// The op.
        op: &'static str,
        /// Where it stands.
        loc: Loc,
        /// The target.
        target: Target,
    },
    /// The kernel was edited into something that has no meaning.
    #[error("malformed kernel: {0}")]
    Malformed(Box<VerifyError>),
    /// The tiles do not fit.
    #[error(
        "{loc}: kernel `{kernel}` needs {bytes} bytes of shared memory a CTA, and {target} has at most {limit}: use fewer stages or smaller tiles ({tiles})"
    )]
    SharedMemory {
        /// The kernel.
        kernel: String,
        /// Where its largest tile is declared.
        loc: Loc,
        /// Bytes needed.
        bytes: u32,
        /// The target.
        target: Target,
        /// Bytes available.
        limit: u32,
        /// Name, shape and bytes of each tile.
        tiles: String,
    },
}

impl CudaError {
    /// Where the author wrote what cannot be printed.
    pub fn loc(&self) -> Loc {
        match self {
            CudaError::Architecture { loc, .. }
            | CudaError::HopperOnly { loc, .. }
            | CudaError::SharedMemory { loc, .. } => *loc,
            CudaError::Malformed(error) => error.loc,
        }
    }
}

impl Kernel {
    /// Bytes of dynamic shared memory of a CTA.
    pub fn shared_bytes(&self) -> u32 {
        self.tiles.iter().map(|tile| tile.offset.saturating_add(tile.bytes())).max().unwrap_or(0)
    }

    /// The kernel as CUDA C++ for `target`.
    pub fn cuda(&self, target: Target) -> Result<Cuda, CudaError> {
        if let Err(errors) = self.verify_form()
            && let Some(error) = errors.into_iter().next()
        {
            return Err(CudaError::Malformed(Box::new(error)));
        }
        let has = target.capability();
        if let Some((_, inst)) = self.insts().into_iter().find(|(_, inst)| inst.op.min_capability > has) {
            let (op, loc, needs) = (inst.op.name, inst.loc, inst.op.min_capability);
            return Err(CudaError::Architecture { op, loc, target, needs, has });
        }
        let of_warpgroup = |inst: &Inst| wgmma::FAMILY.ops.iter().any(|op| std::ptr::eq(*op, inst.op));
        if has != 90
            && let Some((_, inst)) = self.insts().into_iter().find(|(_, inst)| of_warpgroup(inst))
        {
            return Err(CudaError::HopperOnly { op: inst.op.name, loc: inst.loc, target });
        }
        let (bytes, limit) = (self.shared_bytes(), target.max_shared_per_cta());
        if bytes > limit {
            let loc = self.tiles.iter().max_by_key(|tile| tile.bytes()).map_or(self.loc, |tile| tile.loc);
            let tiles: Vec<_> = self.tiles.iter().map(SharedTile::summary).collect();
            let (kernel, tiles) = (self.name.clone(), tiles.join("; "));
            return Err(CudaError::SharedMemory { kernel, loc, bytes, target, limit, tiles });
        }
        let Printed { source, entry, lines } = printer::print(self);
        Ok(Cuda { source, entry, lines, shared_bytes: bytes, tiles: self.tiles.clone(), threads: self.threads() })
    }
}
