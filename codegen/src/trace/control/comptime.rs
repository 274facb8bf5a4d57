//! The constructs that stay Rust's own, and say what to write instead when they meet a run-time value.

use super::Comptime;
use super::kind::NoValue;

macro_rules! conditions {
    ($($(#[doc = $doc:literal])* $trait:ident, $message:literal, $label:literal;)*) => {$(
        $(#[doc = $doc])*
        #[diagnostic::on_unimplemented(message = $message, label = $label)]
        pub trait $trait {
            /// The condition.
            fn comptime(self) -> bool;
        }

        #[diagnostic::do_not_recommend]
        impl $trait for bool {
            fn comptime(self) -> bool {
                self
            }
        }
    )*};
}

conditions! {
    /// The condition of an `if` whose value is used.
    ValueIf,
        "an `if` whose value is used needs a comptime condition, not `{Self}`",
        "for a run-time one write `condition.select(a, b)`, or start from `let mut x = b;` and assign to it inside an `if`";
    /// The condition of a `while`.
    While,
        "`while` needs a comptime condition, not `{Self}`",
        "a run-time loop is `for i in first..end`, with `.step_by(n)` if need be";
    /// The guard of a match arm.
    MatchGuard,
        "a match guard needs a comptime condition, not `{Self}`",
        "for a run-time one put an `if` inside the arm";
    /// A condition beside `if let`.
    LetChain,
        "a condition beside `if let` needs to be comptime, not `{Self}`",
        "for a run-time one nest an `if` inside";
}

/// The scrutinee of a `match` with literal patterns.
#[diagnostic::on_unimplemented(
    message = "`match` cannot look into a run-time value: `{Self}` is known only when the kernel runs",
    label = "for a run-time choice write `if`, `else if` and `else`, or `condition.select(a, b)`"
)]
pub trait Match {
    /// Comptime values pass.
    fn comptime(&self) {}
}

#[diagnostic::do_not_recommend]
impl<T: PartialEq + ?Sized> Match for T {}

/// The operand of `as`.
#[diagnostic::on_unimplemented(
    message = "`as` does not convert a run-time value",
    label = "this is `{Self}`: write `.to::<T>()`"
)]
pub trait AsCast<K> {
    /// The operand's type.
    type Out;
    /// The operand, unchanged.
    fn plain(self, kind: K) -> Self::Out;
}

#[diagnostic::do_not_recommend]
impl<T> AsCast<Comptime> for T {
    type Out = T;

    fn plain(self, Comptime: Comptime) -> T {
        self
    }
}

#[diagnostic::do_not_recommend]
impl<T> AsCast<NoValue<T>> for T {
    type Out = T;

    fn plain(self, kind: NoValue<T>) -> T {
        kind.never()
    }
}

/// What a `for` runs over, unless it is a range.
#[diagnostic::on_unimplemented(
    message = "`for` does not run over `{Self}`",
    label = "a run-time loop runs over a range, for example `0..n`; an unrolled one over a comptime iterator"
)]
pub trait Iterate {
    /// Itself.
    fn over(self) -> Self;
}

#[diagnostic::do_not_recommend]
impl<I: IntoIterator> Iterate for I {
    fn over(self) -> I {
        self
    }
}
