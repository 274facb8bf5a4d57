//! Instruments for replays that corrupt something, none of which moves what it measures.
//!
//! **Observers** look: the [`canary`] at persistent buffers around a replay, in chunks, in pages or by one hash, the
//! [`Sentinels`] at pages that nobody owns, [`OldSlots`] at what earlier steps have stored, the [`diff`] at results beside those of the
//! serial order, poison at bytes that must be dead ([`EmulatedStep::poisoning_dead_bytes`]). They own no byte of the
//! plan and add no order: [`observed`] makes the graph with observers in it, whose plan and happens-before the checker
//! compares with the original's (E13).
//!
//! **Interventions** change order or addresses on purpose, and are named so: the [`forced`] order of a pair, and the
//! serialised and disjoint cells of the [`two_by_two`].
//!
//! [`EmulatedStep::poisoning_dead_bytes`]: crate::replay::EmulatedStep::poisoning_dead_bytes

mod canary;
mod compare;
mod observe;
mod rate;
mod slots;

pub use canary::{Canary, Expected, Intrusion, Snapshot};
pub use compare::{Cause, Difference, Forced, TwoByTwo, diff, forced, two_by_two};
pub use observe::{Observers, observed};
pub use rate::{Rate, detectable_rate};
pub use slots::{OldSlots, Paged, Sentinels};
