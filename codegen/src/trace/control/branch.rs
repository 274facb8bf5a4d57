//! A statement `if`: comptime conditions take one side, run-time ones record both.

use super::leave;
use crate::handles::{Handle, Mask};
use crate::loc::Loc;
use crate::trace::with;

/// The condition of a statement `if`.
#[diagnostic::on_unimplemented(
    message = "the condition of an `if` is a `bool` or a `Scalar<bool>`, not `{Self}`",
    label = "compare it with something, for example `!= 0`"
)]
pub trait Condition {
    /// Opens the `if`.
    fn branch(self) -> Branch;
}

#[diagnostic::do_not_recommend]
impl Condition for bool {
    fn branch(self) -> Branch {
        Branch(State::Comptime(self))
    }
}

#[diagnostic::do_not_recommend]
impl Condition for Mask {
    #[track_caller]
    fn branch(self) -> Branch {
        let loc = Loc::caller();
        leave::entered();
        with(|b| b.begin_if(self.id(), loc));
        Branch(State::Open(loc))
    }
}

/// An open `if`. Dropping it before its [`end`](Branch::end) means that the body was left in between.
#[derive(Debug)]
pub struct Branch(State);

#[derive(Debug)]
enum State {
    Comptime(bool),
    Open(Loc),
    Ended,
}

impl Branch {
    /// Whether to go through the first block.
    pub fn then(&mut self) -> bool {
        !matches!(self.0, State::Comptime(false))
    }

    /// Whether to go through the block behind `else`.
    pub fn otherwise(&mut self) -> bool {
        match self.0 {
            State::Comptime(condition) => !condition,
            State::Open(loc) => {
                with(|b| b.begin_else(loc));
                true
            }
            State::Ended => false,
        }
    }

    /// Closes the `if`.
    pub fn end(mut self) {
        if let State::Open(loc) = self.0 {
            with(|b| b.end_if(loc));
        }
        self.0 = State::Ended;
    }
}

impl Drop for Branch {
    fn drop(&mut self) {
        if let State::Open(loc) = self.0 {
            leave::abandoned("if", loc, |b| b.end_if(loc));
        }
    }
}
