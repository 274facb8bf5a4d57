//! The layer's kernels, compiled for one target.

use lathe::ir::Kernel;
use lathe::kernels::contract::KeyFormat;
use lathe::kernels::launch::STAGES;
use lathe::kernels::{bf16_logits, bf16_store, fp8_logits, fp8_store, topk};
use lathe::runtime::nvrtc::{CompileError, Compiler};
use lathe::runtime::program::{Program, ProgramError};
use lathe::runtime::toolchain::Toolchain;
use lathe::target::Target;
use lathe::trace::TraceErrors;

use crate::kernels;

/// Index heads.
pub const HEADS: i32 = 64;

/// The indexer's kernels for one format of keys.
pub struct Indexer {
    pub(crate) project_q: Program,
    pub(crate) store: Program,
    pub(crate) logits: Program,
}

/// Every kernel of the layer, whatever its keys.
pub struct Programs {
    bf16: Indexer,
    fp8: Indexer,
    pub(crate) topk: Program,
    pub(crate) project: Program,
    pub(crate) project_f32: Program,
    pub(crate) sum_partials: Program,
    pub(crate) attend: Program,
    pub(crate) add: Program,
    pub(crate) compare: Program,
    pub(crate) other_work: Program,
}

/// Why a kernel of the layer is not there.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// No compiler.
    #[error(transparent)]
    Compiler(#[from] CompileError),
    /// The compiler rejects a kernel.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// A kernel does not trace.
    #[error(transparent)]
    Trace(#[from] TraceErrors),
}

impl Programs {
    /// Compiles all of them, or takes them from the disk cache.
    ///
    /// # Errors
    /// [`BuildError`] without a compiler that knows `target`.
    pub fn compile(target: Target) -> Result<Self, BuildError> {
        let toolchain = Toolchain::new(false, |_| {});
        let compiler = Compiler::load(&toolchain)?;
        let program = |kernel: Result<Kernel, TraceErrors>| -> Result<Program, BuildError> {
            Ok(Program::compile(&compiler, &kernel?, target)?)
        };
        Ok(Self {
            bf16: Indexer {
                project_q: program(kernels::project_bf16())?,
                store: program(bf16_store::bf16_index_k_store::<i64>(1))?,
                logits: program(bf16_logits::bf16_paged_mqa_logits(HEADS, 1, STAGES))?,
            },
            fp8: Indexer {
                project_q: program(kernels::project_e4m3())?,
                store: program(fp8_store::fp8_index_k_store::<i64>(false, 1))?,
                logits: program(fp8_logits::fp8_paged_mqa_logits(HEADS, 1, STAGES, target))?,
            },
            topk: program(topk::topk_page_transform(kernels::TOP_K))?,
            project: program(kernels::project_bf16())?,
            project_f32: program(kernels::project_f32())?,
            sum_partials: program(kernels::sum_partials())?,
            attend: program(kernels::attend())?,
            add: program(kernels::add())?,
            compare: program(kernels::compare())?,
            other_work: program(kernels::other_work())?,
        })
    }

    pub(crate) fn indexer(&self, keys: KeyFormat) -> &Indexer {
        match keys {
            KeyFormat::Bf16 => &self.bf16,
            KeyFormat::Fp8 => &self.fp8,
        }
    }
}
