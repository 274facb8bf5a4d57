//! Telling run-time values from comptime ones by their type, without asking anything of comptime types.
//!
//! The rewritten body asks `(&Probe::of(&value)).kind()`. Method lookup tries [`RunTimeKind`] first, which holds for
//! [`Traced`] types, and falls back to [`ComptimeKind`], which holds one reference further away for every type. The
//! answer is a type, so that what follows is checked, and reported, as ordinary trait bounds.

use std::convert::Infallible;
use std::marker::PhantomData;

use crate::handles::Handle;
use crate::ir::ValueId;

/// Known when the kernel runs: recorded.
#[derive(Clone, Copy, Debug)]
pub struct RunTime;

/// Known while the kernel is traced: plain Rust.
#[derive(Clone, Copy, Debug)]
pub struct Comptime;

/// The type of no value. Where a trait has one implementation that could fit, the compiler infers types from it, and then
/// reports the author's mistake as a mismatch with what it inferred. A second implementation, for this type, keeps it
/// from guessing, so that it reports the trait's own message.
#[derive(Debug)]
pub struct NoValue<T>(Infallible, PhantomData<T>);

impl<T> NoValue<T> {
    pub(super) fn never<R>(self) -> R {
        match self.0 {}
    }
}

/// A value that consists of run-time values only: a handle, or an array, tuple or `Vec` of such.
///
/// Derive it for a struct of handles (`#[derive(Traced)]`), so that `let mut` and assignment work on the struct and its
/// fields.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not made of run-time values",
    note = "handles are, and arrays, tuples and `Vec`s of them, and structs of them with `#[derive(Traced)]`"
)]
pub trait Traced {
    /// Shows each value, in a fixed order, to `f`, which may replace it by another of the same type. A lone value is
    /// called `name`; one of several has its field's name, or its number, behind that.
    fn visit(&mut self, name: &str, f: &mut dyn FnMut(&str, &mut ValueId));
}

#[diagnostic::do_not_recommend]
impl<H: Handle> Traced for H {
    fn visit(&mut self, name: &str, f: &mut dyn FnMut(&str, &mut ValueId)) {
        let mut id = self.id();
        f(name, &mut id);
        *self = H::from_id(id);
    }
}

#[diagnostic::do_not_recommend]
impl<T: Traced> Traced for [T] {
    fn visit(&mut self, name: &str, f: &mut dyn FnMut(&str, &mut ValueId)) {
        for (at, element) in self.iter_mut().enumerate() {
            element.visit(&format!("{name}_{at}"), f);
        }
    }
}

#[diagnostic::do_not_recommend]
impl<T: Traced, const N: usize> Traced for [T; N] {
    fn visit(&mut self, name: &str, f: &mut dyn FnMut(&str, &mut ValueId)) {
        self.as_mut_slice().visit(name, f);
    }
}

#[diagnostic::do_not_recommend]
impl<T: Traced> Traced for Vec<T> {
    fn visit(&mut self, name: &str, f: &mut dyn FnMut(&str, &mut ValueId)) {
        self.as_mut_slice().visit(name, f);
    }
}

macro_rules! tuples {
    ($(($($field:tt $ty:ident)+))*) => {$(
        #[diagnostic::do_not_recommend]
        impl<$($ty: Traced),+> Traced for ($($ty,)+) {
            fn visit(&mut self, name: &str, f: &mut dyn FnMut(&str, &mut ValueId)) {
                $(self.$field.visit(&format!(concat!("{}_", $field), name), f);)+
            }
        }
    )*};
}

tuples! { (0 A) (0 A 1 B) (0 A 1 B 2 C) (0 A 1 B 2 C 3 D) (0 A 1 B 2 C 3 D 4 E) (0 A 1 B 2 C 3 D 4 E 5 F) }

/// The type of a value, as something to call `kind()` on.
#[derive(Debug)]
pub struct Probe<T>(PhantomData<T>);

impl<T> Probe<T> {
    /// The type of this value.
    pub const fn of(_: &T) -> Self {
        Probe(PhantomData)
    }
}

/// The first answer of a [`Probe`].
pub trait RunTimeKind {
    /// Which kind of value it is.
    fn kind(&self) -> RunTime {
        RunTime
    }
}

impl<T: Traced> RunTimeKind for Probe<T> {}

/// The other answer of a [`Probe`].
pub trait ComptimeKind {
    /// Which kind of value it is.
    fn kind(&self) -> Comptime {
        Comptime
    }
}

impl<T> ComptimeKind for &Probe<T> {}

/// The types of a range's ends, as something to call `kind()` on: a range is run-time when one of its ends is.
#[derive(Debug)]
pub struct Ends<A, B>(PhantomData<(A, B)>);

impl<A, B> Ends<A, B> {
    /// The types of these values.
    pub const fn of(_: &A, _: &B) -> Self {
        Ends(PhantomData)
    }
}

/// The first answer of [`Ends`], asked through two references.
pub trait FirstEnd {
    /// Which kind of range it is.
    fn kind(&self) -> RunTime {
        RunTime
    }
}

impl<A: Traced, B> FirstEnd for &Ends<A, B> {}

/// The second answer of [`Ends`].
pub trait SecondEnd {
    /// Which kind of range it is.
    fn kind(&self) -> RunTime {
        RunTime
    }
}

impl<A, B: Traced> SecondEnd for &&Ends<A, B> {}

/// The last answer of [`Ends`].
pub trait ComptimeEnds {
    /// Which kind of range it is.
    fn kind(&self) -> Comptime {
        Comptime
    }
}

impl<A, B> ComptimeEnds for Ends<A, B> {}
