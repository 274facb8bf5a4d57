//! `let`: a fresh variable for `let mut`, a name for the others; and values kept inside other values.

use super::{Comptime, RunTime, Traced};
use crate::ir::{Origin, ValueId};
use crate::loc::Loc;
use crate::trace::{Builder, with};

/// What a `let` binds.
pub trait Bind<K>: Sized {
    /// `let mut name = self`: handles are `Copy`, so a variable of its own is declared, which starts as the value.
    fn variable(self, name: &str, kind: K) -> Self;

    /// `let name = self`: a variable is read now, so that its later changes do not show; the value gets the name.
    fn value(self, name: &str, kind: K) -> Self;
}

impl<T> Bind<Comptime> for T {
    fn variable(self, _: &str, Comptime: Comptime) -> Self {
        self
    }

    fn value(self, _: &str, Comptime: Comptime) -> Self {
        self
    }
}

impl<T: Traced> Bind<RunTime> for T {
    #[track_caller]
    fn variable(mut self, name: &str, RunTime: RunTime) -> Self {
        let loc = Loc::caller();
        replace_each(&mut self, name, |b, id, name| {
            let variable = b.declare_var(id, loc);
            b.name(variable, name);
            variable
        });
        self
    }

    #[track_caller]
    fn value(mut self, name: &str, RunTime: RunTime) -> Self {
        let loc = Loc::caller();
        replace_each(&mut self, name, |b, id, name| {
            let value = b.read(id, loc);
            b.name(value, name);
            value
        });
        self
    }
}

/// Names a lone value `name`, and several `name_0`, `name_1`...
fn replace_each<T: Traced>(traced: &mut T, name: &str, f: impl Fn(&mut Builder, ValueId, &str) -> ValueId) {
    let mut count = 0;
    traced.visit(&mut |_| count += 1);
    let mut at = 0;
    with(|b| {
        traced.visit(&mut |id| {
            *id = if count == 1 { f(b, *id, name) } else { f(b, *id, &format!("{name}_{at}")) };
            at += 1;
        });
    });
}

/// A value stored inside a tuple, array, struct or collection.
pub trait Keep<K>: Sized {
    /// The value as it is now: a variable's later changes do not show in what keeps it.
    fn keep(self, kind: K) -> Self;
}

impl<T> Keep<Comptime> for T {
    fn keep(self, Comptime: Comptime) -> Self {
        self
    }
}

impl<T: Traced> Keep<RunTime> for T {
    #[track_caller]
    fn keep(mut self, RunTime: RunTime) -> Self {
        let loc = Loc::caller();
        with(|b| {
            self.visit(&mut |id| {
                if b.origin(*id) == Origin::Variable {
                    *id = b.read(*id, loc);
                }
            });
        });
        self
    }
}
