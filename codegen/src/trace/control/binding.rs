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

fn replace_each<T: Traced>(traced: &mut T, name: &str, f: impl Fn(&mut Builder, ValueId, &str) -> ValueId) {
    with(|b| traced.visit(name, &mut |name, id| *id = f(b, *id, name)));
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
        replace_each(&mut self, "", |b, id, _| if b.origin(id) == Origin::Variable { b.read(id, loc) } else { id });
        self
    }
}
