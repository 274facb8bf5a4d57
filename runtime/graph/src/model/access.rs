//! What a node does to a buffer.

use super::BufferId;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// What an access does to the bytes of its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Reads, changes nothing.
    Read,
    /// Writes every byte, before it reads any.
    WriteAll,
    /// Writes some of the bytes, reads none.
    WritePart,
    /// Reads and writes.
    ReadWrite,
}

impl Effect {
    /// Does the result depend on what the bytes held?
    pub fn reads(self) -> bool {
        matches!(self, Self::Read | Self::ReadWrite)
    }

    /// May bytes change?
    pub fn writes(self) -> bool {
        !matches!(self, Self::Read)
    }

    /// What a node does, in a sentence.
    pub fn verb(self) -> &'static str {
        match self {
            Self::Read => "reads",
            Self::WriteAll => "writes",
            Self::WritePart => "writes part of",
            Self::ReadWrite => "reads and writes",
        }
    }

    /// The word that files use.
    pub fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::WriteAll => "write_all",
            Self::WritePart => "write_part",
            Self::ReadWrite => "read_write",
        }
    }
}

/// When, in a kernel launched programmatically (PDL), the access happens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Before `griddepcontrol.wait`.
    BeforeWait,
    /// After it. In a node without programmatic predecessors the two are the same.
    #[default]
    AfterWait,
}

/// How the access is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// Nothing is known: taken as read and written.
    Assumed,
    /// By a rule on the kernel's name.
    Rule,
    /// Seen when the node ran alone.
    Observed,
    /// Declared by the kernel or by the author.
    #[default]
    Declared,
}

/// One access of a node: a byte range of a buffer and what happens to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Access {
    /// The buffer.
    pub buffer: BufferId,
    /// Bytes within the buffer, from its start; never empty.
    pub range: Range<u64>,
    /// What happens to them.
    pub effect: Effect,
    /// Before or after the node's programmatic wait.
    pub phase: Phase,
    /// How this is known.
    pub basis: Basis,
}

impl Access {
    /// A declared access after the wait.
    pub fn new(buffer: BufferId, range: Range<u64>, effect: Effect) -> Self {
        Self { buffer, range, effect, phase: Phase::AfterWait, basis: Basis::Declared }
    }

    /// The same access, before the wait.
    pub fn before_wait(mut self) -> Self {
        self.phase = Phase::BeforeWait;
        self
    }
}
