//! What a kernel is launched with.

use crate::handles::{Element, Handle, Scalar};
use crate::ir::{Access, Phase};
use crate::loc::Loc;
use crate::trace::with;

/// A parameter with a declared access: memory behind a pointer.
#[diagnostic::on_unimplemented(
    message = "`{Self}` takes no access: it is not memory behind a pointer",
    label = "a `Scalar` needs no declaration; a plain Rust value is declared `#[comptime]`"
)]
pub trait PointerParam {
    /// Declares the parameter.
    fn declare(name: &str, access: Access, phase: Phase) -> Self;
}

/// A parameter without a declaration: a scalar by value.
#[diagnostic::on_unimplemented(
    message = "`{Self}` needs a declaration before its parameter's name",
    label = "memory says what the kernel does to it: `#[read]`, `#[write_all]`, `#[write_part]` or `#[read_write]`; a \
             plain Rust value is `#[comptime]`"
)]
pub trait ScalarParam {
    /// Declares the parameter.
    fn declare(name: &str) -> Self;
}

impl<T: Element> ScalarParam for Scalar<T> {
    #[track_caller]
    fn declare(name: &str) -> Self {
        let loc = Loc::caller();
        Scalar::from_id(with(|b| b.scalar_param(name, loc, T::DTYPE)))
    }
}
