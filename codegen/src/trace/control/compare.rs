//! `<`, `<=`, `>`, `>=`, `==` and `!=`: a `bool` for comptime values, a `Scalar<bool>` for run-time ones.

use crate::handles::{Arithmetic, Element, Mask, Scalar};

/// The comparisons that need an order.
///
/// `Out` is `bool` or `Scalar<bool>`. It is a parameter and not an associated type so that types that do not fit give one
/// message, not a second one for what the result would have been.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be compared with `{R}`",
    label = "this is `{Self}`, the other side `{R}`",
    note = "both sides need one element type: convert a run-time value with `.to::<T>()`, a comptime one with `as`"
)]
pub trait Order<R: ?Sized, Out> {
    /// `self < other`
    fn lt(&self, other: &R) -> Out;
    /// `self <= other`
    fn le(&self, other: &R) -> Out;
    /// `self > other`
    fn gt(&self, other: &R) -> Out;
    /// `self >= other`
    fn ge(&self, other: &R) -> Out;
}

/// The comparisons that need none.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be compared with `{R}`",
    label = "this is `{Self}`, the other side `{R}`",
    note = "both sides need one element type: convert a run-time value with `.to::<T>()`, a comptime one with `as`"
)]
pub trait Equality<R: ?Sized, Out> {
    /// `self == other`
    fn eq(&self, other: &R) -> Out;
    /// `self != other`
    fn ne(&self, other: &R) -> Out;
}

macro_rules! comptime {
    ($trait:ident by $std:ident: $($method:ident $op:tt)*) => {
        #[diagnostic::do_not_recommend]
        impl<L: $std<R> + ?Sized, R: ?Sized> $trait<R, bool> for L {
            $(fn $method(&self, other: &R) -> bool {
                self $op other
            })*
        }
    };
}

comptime!(Order by PartialOrd: lt < le <= gt > ge >=);
comptime!(Equality by PartialEq: eq == ne !=);

macro_rules! run_time {
    ($trait:ident on $bound:ident: $($method:ident)*; with literals $($ty:ty)*) => {
        #[diagnostic::do_not_recommend]
        impl<T: $bound> $trait<Scalar<T>, Mask> for Scalar<T> {
            $(#[track_caller]
            fn $method(&self, other: &Scalar<T>) -> Mask {
                Scalar::$method(*self, *other)
            })*
        }
        run_time!(@literals $trait [$($method)*] $($ty)*);
    };
    (@literals $trait:ident $methods:tt $($ty:ty)*) => {$(
        run_time!(@literal $trait $methods $ty);
    )*};
    (@literal $trait:ident [$($method:ident)*] $ty:ty) => {
        #[diagnostic::do_not_recommend]
        impl $trait<$ty, Mask> for Scalar<$ty> {
            $(#[track_caller]
            fn $method(&self, other: &$ty) -> Mask {
                Scalar::$method(*self, *other)
            })*
        }
        #[diagnostic::do_not_recommend]
        impl $trait<Scalar<$ty>, Mask> for $ty {
            $(#[track_caller]
            fn $method(&self, other: &Scalar<$ty>) -> Mask {
                Scalar::$method(Scalar::from(*self), *other)
            })*
        }
    };
}

run_time!(Order on Arithmetic: lt le gt ge; with literals i32 u32 i64 u64 f32);
run_time!(Equality on Element: eq ne; with literals bool i32 u32 i64 u64 u8 f32);
