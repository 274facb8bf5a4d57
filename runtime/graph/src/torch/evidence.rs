//! How an access is known, from the weakest to the strongest.

use std::fmt;

/// How sure a finding or an access is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Certainty {
    /// Taken for granted because nothing says otherwise.
    Assumed,
    /// By what is known of the kernel: a rule, its PTX, its operator's schema, its C++ signature.
    Ruled,
    /// By the driver's own record of the node, or seen on the GPU.
    Certain,
}

impl fmt::Display for Certainty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Certainty::Assumed => "assumed",
            Certainty::Ruled => "by rule",
            Certainty::Certain => "certain",
        })
    }
}

/// Why we believe that a node reads or writes through a pointer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Evidence {
    /// Nothing is known about the kernel.
    Assumed,
    /// The kernel's C++ signature takes a pointer to const.
    Signature,
    /// The schema of the operator that launched it.
    Operator(String),
    /// A rule of the table, by name.
    Rule(String),
    /// Loads and stores in its PTX.
    Ptx,
    /// `lathe_dump.writes` saw the bytes change.
    Observed,
    /// The driver's parameters of a copy, a fill or a memory node.
    Driver,
}

impl Evidence {
    /// How sure that makes an access.
    pub fn certainty(&self) -> Certainty {
        match self {
            Evidence::Assumed => Certainty::Assumed,
            Evidence::Signature | Evidence::Operator(_) | Evidence::Rule(_) | Evidence::Ptx => Certainty::Ruled,
            Evidence::Observed | Evidence::Driver => Certainty::Certain,
        }
    }
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Evidence::Assumed => f.write_str("assumed: no rule, PTX or operator says what this kernel does"),
            Evidence::Signature => f.write_str("by its C++ signature"),
            Evidence::Operator(name) => write!(f, "by the schema of {name}"),
            Evidence::Rule(name) => write!(f, "by rule \"{name}\""),
            Evidence::Ptx => f.write_str("by its PTX"),
            Evidence::Observed => f.write_str("observed on the GPU"),
            Evidence::Driver => f.write_str("certain: the driver says so"),
        }
    }
}
