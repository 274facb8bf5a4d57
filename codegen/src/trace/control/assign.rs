//! `x = e` and the check that goes with every change of a comptime variable.

use super::kind::NoValue;
use super::{Comptime, RunTime, Traced};
use crate::handles::{Element, Scalar};
use crate::loc::Loc;
use crate::trace::with;

/// `place = value`, by the kind of the place; the value has been computed before.
#[diagnostic::on_unimplemented(
    message = "cannot assign `{V}` to a variable of type `{P}`",
    label = "this is `{V}`, the variable `{P}`",
    note = "a run-time variable starts from a run-time value, `let mut x = Scalar::from(0);`, and keeps its type: convert \
            with `.to::<T>()`"
)]
pub trait Assign<P, V> {
    /// Assigns.
    fn assign(self, place: &mut P, value: V);
}

#[diagnostic::do_not_recommend]
impl<T> Assign<T, T> for Comptime {
    fn assign(self, place: &mut T, value: T) {
        *place = value;
    }
}

#[diagnostic::do_not_recommend]
impl<T> Assign<T, NoValue<T>> for Comptime {
    fn assign(self, _: &mut T, value: NoValue<T>) {
        value.never()
    }
}

#[diagnostic::do_not_recommend]
impl<T: Traced> Assign<T, T> for RunTime {
    #[track_caller]
    fn assign(self, place: &mut T, value: T) {
        assign(place, value);
    }
}

#[diagnostic::do_not_recommend]
impl<T: Element> Assign<Scalar<T>, T> for RunTime {
    #[track_caller]
    fn assign(self, place: &mut Scalar<T>, value: T) {
        assign(place, Scalar::from(value));
    }
}

/// All new values are read before the first variable changes.
#[track_caller]
fn assign<T: Traced>(place: &mut T, mut value: T) {
    let loc = Loc::caller();
    with(|b| {
        let mut values = Vec::new();
        value.visit("", &mut |_, id| values.push(b.read(*id, loc)));
        let mut variables = Vec::new();
        place.visit("", &mut |_, id| variables.push(*id));
        if values.len() != variables.len() {
            let (from, to) = (values.len(), variables.len());
            b.error(
                loc,
                format!("{from} values are assigned to {to} variables: both sides need the same length"),
                None,
            );
        }
        for (variable, value) in variables.into_iter().zip(values) {
            b.assign(variable, value, loc);
        }
    });
}

/// Where a `let mut` stands, for the changes of a comptime variable.
#[derive(Clone, Copy, Debug)]
pub struct Declared {
    name: &'static str,
    scope: u32,
}

impl Declared {
    /// Declared here.
    pub fn here(name: &'static str) -> Self {
        Declared { name, scope: with(|b| b.scope().0) }
    }
}

/// A change, by assignment, of a variable whose declaration is known.
pub trait Change {
    /// Refuses the change of a comptime variable inside a run-time scope that does not hold its declaration.
    fn check(self, declared: &Declared);
}

impl Change for RunTime {
    fn check(self, _: &Declared) {}
}

impl Change for Comptime {
    #[track_caller]
    fn check(self, declared: &Declared) {
        let loc = Loc::caller();
        let name = declared.name;
        with(|b| {
            let (scope, opened) = b.scope();
            if scope != declared.scope {
                let message = format!(
                    "`{name}` is a comptime variable, and cannot change inside a run-time block, which is traced once \
                     however often it runs: make it a run-time variable, `let mut {name} = Scalar::from(...)`, or \
                     change it outside"
                );
                b.error(loc, message, Some((opened, "the run-time block begins here".to_owned())));
            }
        });
    }
}
