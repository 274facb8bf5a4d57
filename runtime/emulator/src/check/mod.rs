//! The checks that need more than the instruction at hand: what is ordered before what, and what is defined.

mod clock;
mod race;
mod shadow;

pub(crate) use race::Races;
pub(crate) use shadow::Kind as AccessKind;
