//! Buffers and their declared lifetimes.

use super::{GraphId, NodeId, StreamId};
use crate::location::Location;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// No buffer, offset or address may pass this (1 TiB for sizes; addresses may be any 64-bit value).
pub const MAX_BYTES: u64 = 1 << 40;

/// How long the bytes of a buffer are its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Lifetime {
    /// Outlives replays. `carried`: a replay may read what an earlier one left; otherwise it is scratch
    /// and must be written before it is read.
    Persistent {
        /// Does the content survive from replay to replay?
        carried: bool,
    },
    /// Lives within one graph; outside its uses its bytes may be another's.
    Transient {
        /// The only graph that may use it.
        graph: GraphId,
        /// Recorded point before which it does not exist, if declared.
        alloc: Option<NodeId>,
        /// Recorded point after which it no longer exists, if declared.
        free: Option<NodeId>,
    },
    /// Filled by the caller before a replay; its bytes are never shared.
    Input,
    /// Written by a graph and read by the caller until released.
    Output {
        /// The graph that writes it.
        graph: GraphId,
        /// When the caller is done with it.
        release: Release,
    },
    /// Someone outside the graphs uses it too.
    External {
        /// What keeps the two apart.
        discipline: Discipline,
    },
}

impl Lifetime {
    /// The word that files and messages use.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Persistent { .. } => "persistent",
            Self::Transient { .. } => "transient",
            Self::Input => "input",
            Self::Output { .. } => "output",
            Self::External { .. } => "external",
        }
    }

    /// The one graph that the buffer belongs to, if it belongs to one.
    pub fn graph(&self) -> Option<GraphId> {
        match self {
            Self::Transient { graph, .. } | Self::Output { graph, .. } => Some(*graph),
            _ => None,
        }
    }

    /// Are the bytes the buffer's own at all times, so that nothing may share them?
    pub fn is_lasting(&self) -> bool {
        matches!(self, Self::Persistent { .. } | Self::Input | Self::External { .. })
    }

    /// Does anybody look at the content after a replay? What changes here is a changed result.
    pub fn is_observed(&self) -> bool {
        matches!(self, Self::Persistent { carried: true } | Self::Output { .. } | Self::External { .. })
    }

    /// Is there content before the graph's first write?
    pub fn is_defined_outside(&self) -> bool {
        matches!(self, Self::Persistent { carried: true } | Self::Input | Self::External { .. })
    }
}

/// When an output's bytes may be another's again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Release {
    /// The caller may hold it while other graphs of the pool replay; its own graph's next replay ends it.
    #[default]
    Held,
    /// The caller is done before any graph of the pool replays again.
    BeforeNextReplay,
}

/// What keeps a graph and an outside user of an external buffer apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Discipline {
    /// An event that one side records and the other waits for: an edge in the pool.
    Event,
    /// The outside user works only while no graph replays.
    Quiescent,
    /// The outside user holds a lease on the bytes it uses; no graph touches leased bytes.
    Lease,
}

/// A buffer: a size, a lifetime, a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// Unique in the pool.
    pub name: String,
    /// Bytes, at least 1.
    pub size: u64,
    /// Alignment of the address in bytes, a power of two.
    pub align: u64,
    /// How long its bytes are its own.
    pub lifetime: Lifetime,
    /// The stream it was allocated on, where that is known.
    pub stream: Option<StreamId>,
    /// Its address, if that is given and not the planner's to choose.
    pub address: Option<u64>,
    /// Address ranges of earlier generations of this buffer, no longer valid.
    pub retired: Vec<Range<u64>>,
    /// Byte ranges, within the buffer, leased to an outside user ([`Discipline::Lease`]).
    pub leases: Vec<Range<u64>>,
    /// Where it was declared.
    pub location: Location,
}

impl Buffer {
    /// A buffer without a given address, aligned to 256 bytes.
    pub fn new(name: impl Into<String>, size: u64, lifetime: Lifetime, location: Location) -> Self {
        Self {
            name: name.into(),
            size,
            align: 256,
            lifetime,
            stream: None,
            address: None,
            retired: Vec::new(),
            leases: Vec::new(),
            location,
        }
    }
}
