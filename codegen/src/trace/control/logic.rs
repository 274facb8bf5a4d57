//! `&&` and `||`, which evaluate their right side only where it matters, at run time as in Rust.

use crate::handles::{Handle, Mask, Scalar};
use crate::loc::Loc;
use crate::trace::with;

/// `self && other`
#[diagnostic::on_unimplemented(
    message = "`&&` joins `bool` and `Scalar<bool>`, not `{Self}` and `{R}`",
    label = "compare it with something, for example `!= 0`; bitwise and is `&`"
)]
pub trait And<R> {
    /// `bool` or `Scalar<bool>`.
    type Out;
    /// The right side runs only where the left one holds.
    fn and(self, other: impl FnOnce() -> R) -> Self::Out;
}

/// `self || other`
#[diagnostic::on_unimplemented(
    message = "`||` joins `bool` and `Scalar<bool>`, not `{Self}` and `{R}`",
    label = "compare it with something, for example `!= 0`; bitwise or is `|`"
)]
pub trait Or<R> {
    /// `bool` or `Scalar<bool>`.
    type Out;
    /// The right side runs only where the left one does not hold.
    fn or(self, other: impl FnOnce() -> R) -> Self::Out;
}

macro_rules! logic {
    ($($trait:ident $method:ident: $short:literal;)*) => {$(
        impl $trait<bool> for bool {
            type Out = bool;
            fn $method(self, other: impl FnOnce() -> bool) -> bool {
                if self == $short { $short } else { other() }
            }
        }

        impl $trait<Mask> for bool {
            type Out = Mask;
            #[track_caller]
            fn $method(self, other: impl FnOnce() -> Mask) -> Mask {
                if self == $short { Scalar::from($short) } else { other() }
            }
        }

        impl $trait<bool> for Mask {
            type Out = Mask;
            #[track_caller]
            fn $method(self, other: impl FnOnce() -> bool) -> Mask {
                if other() == $short { Scalar::from($short) } else { self }
            }
        }

        impl $trait<Mask> for Mask {
            type Out = Mask;
            #[track_caller]
            fn $method(self, other: impl FnOnce() -> Mask) -> Mask {
                short_circuit(self, $short, other)
            }
        }
    )*};
}

logic! {
    And and: false;
    Or or: true;
}

#[track_caller]
fn short_circuit(left: Mask, short: bool, right: impl FnOnce() -> Mask) -> Mask {
    let loc = Loc::caller();
    let left = with(|b| b.begin_short_circuit(left.id(), loc));
    let right = right();
    Scalar::from_id(with(|b| b.end_short_circuit(left, right.id(), short, loc)))
}
