//! The GPUs that Lathe generates code for.

use std::fmt;
use std::str::FromStr;

/// A compilation target: an exact architecture, since cubins are not portable across `sm_XYa`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Target {
    /// Hopper (H100, H200) with wgmma.
    Sm90a,
    /// Blackwell RTX PRO 6000 and RTX 5090.
    Sm120a,
    /// The sm_120 family, GB10 (sm_121) included.
    Sm120f,
}

impl Target {
    /// Every target, in the order tables list them.
    pub const ALL: [Target; 3] = [Target::Sm90a, Target::Sm120a, Target::Sm120f];

    /// The name NVRTC takes after `--gpu-architecture=`.
    pub const fn name(self) -> &'static str {
        match self {
            Target::Sm90a => "sm_90a",
            Target::Sm120a => "sm_120a",
            Target::Sm120f => "sm_120f",
        }
    }

    /// Compute capability, major * 10 + minor.
    pub const fn capability(self) -> u32 {
        match self {
            Target::Sm90a => 90,
            Target::Sm120a | Target::Sm120f => 120,
        }
    }

    /// Most shared memory a CTA may use, in bytes.
    pub const fn max_shared_per_cta(self) -> u32 {
        match self {
            Target::Sm90a => 232_448,
            Target::Sm120a | Target::Sm120f => 101_376,
        }
    }

    /// Shared memory of an SM, in bytes; each resident CTA takes its own plus 1,024.
    pub const fn shared_per_sm(self) -> u32 {
        match self {
            Target::Sm90a => 233_472,
            Target::Sm120a | Target::Sm120f => 102_400,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A target name that is not in [`Target::ALL`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown target `{0}`: expected one of sm_90a, sm_120a, sm_120f")]
pub struct UnknownTarget(pub String);

impl FromStr for Target {
    type Err = UnknownTarget;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Target::ALL.into_iter().find(|t| t.name() == text).ok_or_else(|| UnknownTarget(text.to_owned()))
    }
}
