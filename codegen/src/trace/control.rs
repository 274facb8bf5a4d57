//! What the attributes `#[kernel]` and `#[device]` rewrite a body into: the meaning of `if`, `for`, `let`, assignment,
//! comparisons, `&&`, `||` and `as`, decided by the types they meet.
//!
//! A value is **run-time** when it is made of handles, and **comptime** when it is any other Rust value. Comptime
//! constructs do what Rust does while the kernel is traced: an `if` takes one side, a `for` unrolls. Run-time ones are
//! recorded. Nothing here is called by hand, but the names of traits and their messages are what an author sees when
//! types do not fit.

mod assign;
mod binding;
mod branch;
mod compare;
mod comptime;
mod kind;
mod leave;
mod logic;
mod param;
mod range;

pub use assign::{Assign, Change, Declared};
pub use binding::{Bind, Keep};
pub use branch::{Branch, Condition};
pub use compare::{Equality, Order};
pub use comptime::{AsCast, Iterate, LetChain, Match, MatchGuard, ValueIf, While};
pub use kind::{Comptime, ComptimeEnds, ComptimeKind, Ends, FirstEnd, Probe, RunTime, RunTimeKind, SecondEnd, Traced};
pub use leave::{Question, leaving};
pub use logic::{And, Or};
pub use param::{PointerParam, ScalarParam, pointer, scalar};
pub use range::{Range, RangeInclusive, RunTimeLoop, RunTimeRange};

pub use crate::handles::{Read, ReadWrite, WriteAll, WritePart};
pub use crate::ir::Phase;
