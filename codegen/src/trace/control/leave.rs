//! `return`, `break`, `continue` and `?`: allowed while they stay inside the run-time scope they stand in.

use std::cell::Cell;

use crate::loc::Loc;
use crate::trace::{Builder, with};

/// What the thread knows of control flow that is leaving a block.
#[derive(Clone, Copy)]
enum Leaving {
    No,
    /// A leaving statement has run; blocks it does not cross never see it.
    By(&'static str, Loc),
    /// It has crossed a run-time block and been reported: the blocks around that one say nothing.
    Reported,
}

thread_local! {
    static LEAVING: Cell<Leaving> = const { Cell::new(Leaving::No) };
}

/// Notes that the statement `word` is about to leave something.
#[track_caller]
pub fn leaving(word: &'static str) {
    LEAVING.set(Leaving::By(word, Loc::caller()));
}

/// The operand of `?`.
pub trait Question {
    /// Notes the place if the `?` is about to return.
    #[track_caller]
    fn note(self) -> Self;
}

impl<T> Question for Option<T> {
    #[track_caller]
    fn note(self) -> Self {
        if self.is_none() {
            leaving("?");
        }
        self
    }
}

impl<T, E> Question for Result<T, E> {
    #[track_caller]
    fn note(self) -> Self {
        if self.is_err() {
            leaving("?");
        }
        self
    }
}

/// A run-time scope has been entered: whatever left something before has arrived.
pub(super) fn entered() {
    LEAVING.set(Leaving::No);
}

/// A run-time block was left before its end: reports it, once for all the blocks that one statement leaves, and closes
/// the block so that the trace goes on.
pub(super) fn abandoned(block: &str, opened: Loc, close: impl FnOnce(&mut Builder)) {
    if std::thread::panicking() {
        return;
    }
    with(|b| {
        match LEAVING.get() {
            Leaving::Reported => {}
            Leaving::By(word, at) => {
                b.error(at, message(word, block), Some((opened, format!("the run-time `{block}` begins here"))));
            }
            Leaving::No => {
                b.error(
                    opened,
                    format!("this run-time `{block}` is left before its end, while it is being traced"),
                    None,
                );
            }
        }
        close(b);
    });
    LEAVING.set(Leaving::Reported);
}

fn message(word: &str, block: &str) -> String {
    let instead = match (word, block) {
        ("break", "for") => "bound the range instead, or guard the rest of the body by an `if`",
        ("break" | "continue", _) => "invert the condition and put the rest of the loop's body inside the `if`",
        ("return", _) => "invert the condition and put what follows inside the block",
        _ => "do what can fail before the block",
    };
    format!("`{word}` leaves a run-time `{block}`, whose body is traced once whether or not it runs: {instead}")
}
