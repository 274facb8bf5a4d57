//! The checks that need more than the instruction at hand: what is ordered before what, and what is defined.

mod clock;
mod declared;
mod defined;
mod global;
mod race;
mod shadow;
mod within;

pub(crate) use declared::Declared;
pub use declared::{Declaration, Effect};
pub(crate) use defined::Shadows;
pub(crate) use global::{AtomicOrder, Owners};
pub(crate) use race::Races;
pub(crate) use shadow::Kind as AccessKind;
