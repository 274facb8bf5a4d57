use std::fmt;
use std::marker::PhantomData;

use super::{Element, Handle};
use crate::ir::ValueId;
use crate::loc::Loc;
use crate::trace;

/// One element a lane, known when the kernel runs. Rust literals and other comptime values of type `T` turn into one
/// wherever they meet one.
pub struct Scalar<T> {
    id: ValueId,
    element: PhantomData<T>,
}

/// A condition known when the kernel runs.
pub type Mask = Scalar<bool>;

impl<T> Clone for Scalar<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Scalar<T> {}

impl<T: Element> fmt::Debug for Scalar<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scalar<{}>({})", T::DTYPE, self.id.0)
    }
}

impl<T> Handle for Scalar<T> {
    fn id(self) -> ValueId {
        self.id
    }

    fn from_id(id: ValueId) -> Self {
        Scalar { id, element: PhantomData }
    }
}

impl<T: Element> From<T> for Scalar<T> {
    #[track_caller]
    fn from(value: T) -> Self {
        let loc = Loc::caller();
        Scalar::from_id(trace::with(|b| b.constant(T::DTYPE, value.literal(), loc)))
    }
}

/// What memory of `T` takes: a run-time value of that type, or a plain one.
#[diagnostic::on_unimplemented(
    message = "memory of `{T}` does not take `{Self}`",
    label = "this is `{Self}`, and the memory holds `{T}`",
    note = "convert a run-time value with `.to::<T>()`, a comptime one with `as`"
)]
pub trait Stored<T> {
    /// The value, as it is stored.
    #[track_caller]
    fn stored(self) -> Scalar<T>;
}

#[diagnostic::do_not_recommend]
impl<T: Element, V: Into<Scalar<T>>> Stored<T> for V {
    #[track_caller]
    fn stored(self) -> Scalar<T> {
        self.into()
    }
}
