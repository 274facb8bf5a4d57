//! What a kernel is launched with.

use crate::handles::{AccessMode, Argument, ByValue, Element, Rows, Scalar, Slice, TensorMap};
use crate::ir::Phase;
use crate::loc::Loc;

/// A parameter with a declared access: memory behind a pointer. In the body its type says what the kernel may do:
/// `#[write_part] out: Rows<f32>` is a `Rows<f32, WritePart>` there.
#[diagnostic::on_unimplemented(
    message = "`{Self}` takes no access: it is not memory behind a pointer",
    label = "a `Scalar` needs no declaration; a plain Rust value is declared `#[comptime]`"
)]
pub trait PointerParam<A: AccessMode, Out> {
    /// Declares the parameter; returns it as the type that it has in the body.
    #[track_caller]
    fn declare(name: &str, phase: Phase) -> Out;
}

macro_rules! pointer_params {
    ($($handle:ident)*) => {$(
        impl<T: Element, A: AccessMode> PointerParam<A, $handle<T, A>> for $handle<T> {
            #[track_caller]
            fn declare(name: &str, phase: Phase) -> $handle<T, A> {
                Argument::declare(name, phase, Loc::caller())
            }
        }
    )*};
}

pointer_params! { Slice Rows }

#[diagnostic::do_not_recommend]
impl<T: Element, const RANK: usize, A: AccessMode> PointerParam<A, TensorMap<T, RANK, A>> for TensorMap<T, RANK> {
    #[track_caller]
    fn declare(name: &str, phase: Phase) -> TensorMap<T, RANK, A> {
        Argument::declare(name, phase, Loc::caller())
    }
}

/// A parameter without a declaration: a scalar by value.
#[diagnostic::on_unimplemented(
    message = "`{Self}` needs a declaration before its parameter's name",
    label = "memory says what the kernel does to it: `#[read]`, `#[write_all]`, `#[write_part]` or `#[read_write]`; a \
             plain Rust value is `#[comptime]`"
)]
pub trait ScalarParam {
    /// Declares the parameter.
    #[track_caller]
    fn declare(name: &str) -> Self;
}

impl<T: ByValue> ScalarParam for Scalar<T> {
    #[track_caller]
    fn declare(name: &str) -> Self {
        Argument::declare(name, Phase::default(), Loc::caller())
    }
}

/// Declares a parameter that has an access.
#[track_caller]
pub fn pointer<T: PointerParam<A, Out>, A: AccessMode, Out>(name: &str, phase: Phase) -> Out {
    T::declare(name, phase)
}

/// Declares a parameter that has none.
#[track_caller]
pub fn scalar<T: ScalarParam>(name: &str) -> T {
    T::declare(name)
}
