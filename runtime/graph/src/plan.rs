//! The planner: which bytes each buffer gets.
//!
//! Two transients may share bytes if and only if all uses of one happen before all uses of the other: a partial
//! order, not intervals, because a graph with several streams has no single time. [`Planner`] works it out for a
//! pool, finds the exact bound ([`max_live`]) and looks for offsets close to it ([`solve`]).

mod arena;
mod bound;
mod exact;
mod greedy;
mod problem;
mod solve;

pub use arena::{Bound, Options, Plan, PlanHash, Planner};
pub use bound::{MaxLive, max_live, max_live_of_intervals};
pub use problem::{Offsets, Precedence, Problem};
pub use solve::solve;
