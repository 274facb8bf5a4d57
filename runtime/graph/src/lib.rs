//! Graphs with explicit buffer lifetimes: checker, planner, explorer, instruments.
//!
//! A [`Pool`](model::Pool) is what shares memory: some captured graphs, the eager work around them, and
//! their buffers. [`Order`](order::Order) is its happens-before relation.
#![warn(missing_docs)]

pub mod allocator;
pub mod bits;
pub mod build;
pub mod check;
pub mod draw;
pub mod driver;
pub mod explore;
pub mod file;
pub mod finding;
pub mod location;
pub mod minimalloc;
pub mod model;
pub mod oracle;
pub mod order;
pub mod plan;
pub mod record;
pub mod render;
mod rng;
pub mod torch;
