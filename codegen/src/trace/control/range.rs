//! `for` over a range: comptime ends unroll, run-time ends record a loop whose body is traced once.

use std::ops;

use super::{Comptime, RunTime, leave};
use crate::handles::{Element, Handle, Integer, Scalar};
use crate::ir::Attr;
use crate::loc::Loc;
use crate::trace::{Unroll, with};

/// `self..end`
#[diagnostic::on_unimplemented(
    message = "a range cannot run from `{Self}` to `{B}`",
    label = "this is `{Self}`, the end `{B}`",
    note = "both ends need one integer type: convert a run-time value with `.to::<T>()`, a comptime one with `as`"
)]
pub trait Range<B, K> {
    /// What to iterate over.
    type Out;
    /// The range.
    fn range(self, end: B, kind: K) -> Self::Out;
}

#[diagnostic::do_not_recommend]
impl<T> Range<T, Comptime> for T {
    type Out = ops::Range<T>;
    fn range(self, end: T, Comptime: Comptime) -> ops::Range<T> {
        self..end
    }
}

#[diagnostic::do_not_recommend]
impl<T: Integer> Range<Scalar<T>, RunTime> for Scalar<T> {
    type Out = RunTimeRange<T>;
    #[track_caller]
    fn range(self, end: Scalar<T>, RunTime: RunTime) -> RunTimeRange<T> {
        RunTimeRange::new(self, end)
    }
}

#[diagnostic::do_not_recommend]
impl<T: Integer> Range<T, RunTime> for Scalar<T> {
    type Out = RunTimeRange<T>;
    #[track_caller]
    fn range(self, end: T, RunTime: RunTime) -> RunTimeRange<T> {
        RunTimeRange::new(self, Scalar::from(end))
    }
}

#[diagnostic::do_not_recommend]
impl<T: Integer> Range<Scalar<T>, RunTime> for T {
    type Out = RunTimeRange<T>;
    #[track_caller]
    fn range(self, end: Scalar<T>, RunTime: RunTime) -> RunTimeRange<T> {
        RunTimeRange::new(Scalar::from(self), end)
    }
}

/// `self..=end`
#[diagnostic::on_unimplemented(message = "`..=` does not run to a run-time end", label = "write `first..last + 1`")]
pub trait RangeInclusive<B, K> {
    /// What to iterate over.
    type Out;
    /// The range.
    fn range_inclusive(self, end: B, kind: K) -> Self::Out;
}

#[diagnostic::do_not_recommend]
impl<T> RangeInclusive<T, Comptime> for T {
    type Out = ops::RangeInclusive<T>;
    fn range_inclusive(self, end: T, Comptime: Comptime) -> ops::RangeInclusive<T> {
        self..=end
    }
}

/// The indices of a run-time loop.
#[derive(Clone, Copy)]
pub struct RunTimeRange<T> {
    start: Scalar<T>,
    end: Scalar<T>,
    step: Option<Scalar<T>>,
    unroll: Unroll,
    loc: Loc,
}

impl<T: Integer> RunTimeRange<T> {
    #[track_caller]
    fn new(start: Scalar<T>, end: Scalar<T>) -> Self {
        let loc = Loc::caller();
        RunTimeRange { start, end, step: None, unroll: Unroll::Auto, loc }
    }

    /// Every `step`-th index, from the first; `step` is positive.
    #[track_caller]
    pub fn step_by(self, step: impl Into<Scalar<T>>) -> Self {
        RunTimeRange { step: Some(step.into()), ..self }
    }

    /// Asks the CUDA compiler to unroll the loop (`Unroll::Full`), or not to (`Unroll::Never`).
    pub fn unroll(self, unroll: Unroll) -> Self {
        RunTimeRange { unroll, ..self }
    }
}

impl<T: Element> IntoIterator for RunTimeRange<T> {
    type Item = Scalar<T>;
    type IntoIter = RunTimeLoop<T>;

    fn into_iter(self) -> RunTimeLoop<T> {
        RunTimeLoop { range: self, state: State::Before }
    }
}

/// Yields the index of a run-time loop once, and closes the loop when it is asked again.
pub struct RunTimeLoop<T> {
    range: RunTimeRange<T>,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum State {
    Before,
    Inside,
    After,
}

impl<T: Element> Iterator for RunTimeLoop<T> {
    type Item = Scalar<T>;

    fn next(&mut self) -> Option<Scalar<T>> {
        let RunTimeRange { start, end, step, unroll, loc } = self.range;
        match self.state {
            State::Before => {
                self.state = State::Inside;
                leave::entered();
                Some(Scalar::from_id(with(|b| {
                    let step = step.map_or_else(|| b.constant(T::DTYPE, Attr::Int(1), loc), Handle::id);
                    b.begin_for(start.id(), end.id(), step, unroll, loc)
                })))
            }
            State::Inside => {
                self.state = State::After;
                with(|b| b.end_for(loc));
                None
            }
            State::After => None,
        }
    }
}

impl<T> Drop for RunTimeLoop<T> {
    fn drop(&mut self) {
        if self.state == State::Inside {
            let loc = self.range.loc;
            leave::abandoned("for", loc, |b| b.end_for(loc));
        }
    }
}
