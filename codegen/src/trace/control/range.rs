//! `for` over a range: comptime ends unroll, run-time ends record a loop whose body is traced once.

use std::ops;

use super::kind::NoValue;
use super::{Comptime, RunTime, leave};
use crate::dtype::Dtype;
use crate::handles::{Element, Handle, Integer, Scalar};
use crate::ir::{Attr, Attrs};
use crate::loc::Loc;
use crate::ops::arith;
use crate::trace::{Builder, Unroll, with};

/// `start..end`, by the kind of the ends, which come as a pair so that they are judged together.
#[diagnostic::on_unimplemented(
    message = "a range cannot have the ends `{Pair}`",
    label = "the ends have the types `{Pair}`",
    note = "both ends need one integer type: convert a run-time value with `.to::<T>()`, a comptime one with `as`"
)]
pub trait Range<Pair, Out> {
    /// The range.
    fn range(self, ends: Pair) -> Out;
}

#[diagnostic::do_not_recommend]
impl<T> Range<(T, T), ops::Range<T>> for Comptime {
    fn range(self, (start, end): (T, T)) -> ops::Range<T> {
        start..end
    }
}

#[diagnostic::do_not_recommend]
impl<T: Integer> Range<(Scalar<T>, Scalar<T>), RunTimeRange<T>> for RunTime {
    #[track_caller]
    fn range(self, (start, end): (Scalar<T>, Scalar<T>)) -> RunTimeRange<T> {
        RunTimeRange::new(start, end)
    }
}

#[diagnostic::do_not_recommend]
impl<T: Integer> Range<(Scalar<T>, T), RunTimeRange<T>> for RunTime {
    #[track_caller]
    fn range(self, (start, end): (Scalar<T>, T)) -> RunTimeRange<T> {
        RunTimeRange::new(start, Scalar::from(end))
    }
}

#[diagnostic::do_not_recommend]
impl<T: Integer> Range<(T, Scalar<T>), RunTimeRange<T>> for RunTime {
    #[track_caller]
    fn range(self, (start, end): (T, Scalar<T>)) -> RunTimeRange<T> {
        RunTimeRange::new(Scalar::from(start), end)
    }
}

/// `start..=end`, by the kind of the ends.
#[diagnostic::on_unimplemented(
    message = "`..=` does not run to a run-time end",
    label = "the ends have the types `{Pair}`: write `first..last + 1`"
)]
pub trait RangeInclusive<Pair, Out> {
    /// The range.
    fn range_inclusive(self, ends: Pair) -> Out;
}

#[diagnostic::do_not_recommend]
impl<T> RangeInclusive<(T, T), ops::RangeInclusive<T>> for Comptime {
    fn range_inclusive(self, (start, end): (T, T)) -> ops::RangeInclusive<T> {
        start..=end
    }
}

#[diagnostic::do_not_recommend]
impl<T> RangeInclusive<(NoValue<T>, T), RunTimeRange<T>> for RunTime {
    fn range_inclusive(self, (start, _): (NoValue<T>, T)) -> RunTimeRange<T> {
        start.never()
    }
}

#[diagnostic::do_not_recommend]
impl<T> RangeInclusive<(T, NoValue<T>), RunTimeRange<T>> for RunTime {
    fn range_inclusive(self, (_, end): (T, NoValue<T>)) -> RunTimeRange<T> {
        end.never()
    }
}

/// The indices of a run-time loop.
#[derive(Clone, Copy)]
pub struct RunTimeRange<T> {
    start: Scalar<T>,
    end: Scalar<T>,
    step: Option<Scalar<T>>,
    reversed: bool,
    unroll: Unroll,
    loc: Loc,
}

impl<T: Integer> RunTimeRange<T> {
    /// The indices from `start` up to, without, `end`.
    #[track_caller]
    pub fn new(start: Scalar<T>, end: Scalar<T>) -> Self {
        let loc = Loc::caller();
        RunTimeRange { start, end, step: None, reversed: false, unroll: Unroll::Auto, loc }
    }

    /// Every `step`-th index, from the first; `step` is positive.
    #[track_caller]
    pub fn step_by(self, step: impl Into<Scalar<T>>) -> Self {
        let (step, loc) = (step.into(), Loc::caller());
        with(|b| {
            if let Some(known) =
                b.literal(step.id()).filter(|known| *known == 0 || (*known < 0 && T::DTYPE != Dtype::U64))
            {
                let message = format!(
                    "`.step_by({known})` never reaches the end of the range: the step is at least 1; the indices from \
                     the last to the first are `(first..end).rev()`"
                );
                b.error(loc, message, None);
            }
        });
        RunTimeRange { step: Some(step), ..self }
    }

    /// The same indices, from the last to the first.
    #[track_caller]
    pub fn rev(self) -> Self {
        if self.step.is_some() {
            let loc = Loc::caller();
            with(|b| {
                b.error(loc, "`.rev()` goes before `.step_by(n)`, not behind it: the last index depends on n", None)
            });
        }
        RunTimeRange { reversed: !self.reversed, ..self }
    }

    /// Asks the CUDA compiler to unroll the loop (`Unroll::Full`), or not to (`Unroll::Never`).
    pub fn unroll(self, unroll: Unroll) -> Self {
        RunTimeRange { unroll, ..self }
    }
}

impl From<ops::Range<Scalar<i32>>> for RunTimeRange<i32> {
    #[track_caller]
    fn from(range: ops::Range<Scalar<i32>>) -> Self {
        RunTimeRange::new(range.start, range.end)
    }
}

/// `0..count`.
impl From<Scalar<i32>> for RunTimeRange<i32> {
    #[track_caller]
    fn from(count: Scalar<i32>) -> Self {
        RunTimeRange::new(Scalar::from(0), count)
    }
}

/// `0..count`.
impl From<i32> for RunTimeRange<i32> {
    #[track_caller]
    fn from(count: i32) -> Self {
        RunTimeRange::new(Scalar::from(0), Scalar::from(count))
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

impl<T> RunTimeLoop<T> {
    /// Whether the index has been yielded and the loop not been closed.
    pub fn is_open(&self) -> bool {
        self.state == State::Inside
    }
}

impl<T: Element> Iterator for RunTimeLoop<T> {
    type Item = Scalar<T>;

    fn next(&mut self) -> Option<Scalar<T>> {
        let RunTimeRange { start, end, step, reversed, unroll, loc } = self.range;
        match self.state {
            State::Before => {
                self.state = State::Inside;
                leave::entered();
                Some(Scalar::from_id(with(|b| {
                    let one = |b: &mut Builder| b.constant(T::DTYPE, Attr::Int(1), loc);
                    let step = step.map_or_else(|| one(b), Handle::id);
                    if !reversed {
                        return b.begin_for(start.id(), end.id(), step, unroll, loc);
                    }
                    let one = one(b);
                    let last = b.emit(&arith::SUB, &[end.id(), one], Attrs::none(), loc);
                    let both = b.emit(&arith::ADD, &[start.id(), last], Attrs::none(), loc);
                    let index = b.begin_for(start.id(), end.id(), step, unroll, loc);
                    b.emit(&arith::SUB, &[both, index], Attrs::none(), loc)
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
