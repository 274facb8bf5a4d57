//! Where kernels run: arguments of the commands that can do either.

use clap::ValueEnum;

/// What runs the kernels.
#[derive(clap::Args)]
pub struct BackendArgs {
    /// What runs the kernels
    #[arg(long, value_enum, default_value_t = BackendName::Emulator)]
    pub backend: BackendName,

    /// On a GPU: also run the same on the emulator, and say how far the results are apart
    #[arg(long)]
    pub compare: bool,

    /// On a GPU: give kernels memory without guard zones, in which undefined bytes that they only read were never
    /// written, so that compute-sanitizer sees what these would hide from it
    #[arg(long)]
    pub bare: bool,
}

/// The two of them.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BackendName {
    /// The PTX on this machine's CPU, with every access checked
    Emulator,
    /// The machine code on a GPU
    Cuda,
}

/// Arguments that do not go together.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    #[error("`--stats` counts on the emulator, which sees every access; a GPU's own counters are read with ncu")]
    StatsOnDevice,
    #[error("`{argument}` is about a GPU: give it with `--backend cuda`")]
    OnlyOnDevice { argument: &'static str },
}

impl BackendArgs {
    /// Whether it is the GPU.
    ///
    /// # Errors
    /// [`BackendError`] if an argument means nothing there.
    pub fn on_device(&self, stats: bool) -> Result<bool, BackendError> {
        match self.backend {
            BackendName::Cuda if stats => Err(BackendError::StatsOnDevice),
            BackendName::Cuda => Ok(true),
            BackendName::Emulator if self.compare => Err(BackendError::OnlyOnDevice { argument: "--compare" }),
            BackendName::Emulator if self.bare => Err(BackendError::OnlyOnDevice { argument: "--bare" }),
            BackendName::Emulator => Ok(false),
        }
    }
}
