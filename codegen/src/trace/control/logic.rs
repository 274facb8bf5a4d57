//! `&&` and `||`, which evaluate their right side only where it matters, at run time as in Rust.

use crate::handles::{Handle, Mask, Scalar};
use crate::loc::Loc;
use crate::trace::with;

/// `self && other`
#[diagnostic::on_unimplemented(
    message = "`&&` joins `bool` and `Scalar<bool>`, not `{Self}` and `{R}`",
    label = "compare it with something, for example `!= 0`; bitwise and is `&`"
)]
pub trait And<R, Out> {
    /// The right side runs only where the left one holds.
    fn and(self, other: impl FnOnce() -> R) -> Out;
}

/// `self || other`
#[diagnostic::on_unimplemented(
    message = "`||` joins `bool` and `Scalar<bool>`, not `{Self}` and `{R}`",
    label = "compare it with something, for example `!= 0`; bitwise or is `|`"
)]
pub trait Or<R, Out> {
    /// The right side runs only where the left one does not hold.
    fn or(self, other: impl FnOnce() -> R) -> Out;
}

macro_rules! logic {
    ($($trait:ident $method:ident: $short:literal;)*) => {$(
        #[diagnostic::do_not_recommend]
        impl $trait<bool, bool> for bool {
            fn $method(self, other: impl FnOnce() -> bool) -> bool {
                if self == $short { $short } else { other() }
            }
        }

        #[diagnostic::do_not_recommend]
        impl $trait<Mask, Mask> for bool {
            #[track_caller]
            fn $method(self, other: impl FnOnce() -> Mask) -> Mask {
                if self == $short { Scalar::from($short) } else { other() }
            }
        }

        #[diagnostic::do_not_recommend]
        impl $trait<bool, Mask> for Mask {
            #[track_caller]
            fn $method(self, other: impl FnOnce() -> bool) -> Mask {
                let loc = Loc::caller();
                let left = with(|b| b.begin_short_circuit(self.id(), loc));
                let right = other();
                Scalar::from_id(with(|b| b.end_comptime_short_circuit(left, right, $short, loc)))
            }
        }

        #[diagnostic::do_not_recommend]
        impl $trait<Mask, Mask> for Mask {
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
