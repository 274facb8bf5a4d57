//! The model: captured graphs that share one pool of memory, the work around them, and their buffers.
//!
//! Addresses are not part of it. A buffer may come with an address of its own ([`Buffer::address`]);
//! where the others lie is a [`Placement`], made by a planner or read from an allocator's history.

mod access;
mod buffer;
mod id;
mod node;
mod placement;
mod pool;
mod validate;

pub use access::{Access, Basis, Effect, Phase};
pub use buffer::{Buffer, Discipline, Lifetime, MAX_BYTES, Release};
pub use id::{BufferId, EventId, GraphId, NodeId, StreamId};
pub use node::{Edge, EdgeKind, KernelLaunch, Node, NodeKind, PdlWait, Pointer, Site};
pub use placement::Placement;
pub use pool::{DroppedWait, Event, Graph, Lane, Pool, Stream, Uses};
pub use validate::ModelError;
