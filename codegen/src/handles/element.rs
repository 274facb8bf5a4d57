pub use half::{bf16, f16};

use crate::dtype::Dtype;
use crate::ir::Attr;

/// An 8-bit float: 4 exponent bits, 3 mantissa bits, no infinities, largest finite 448.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(transparent)]
pub struct e4m3(pub u8);

/// A Rust type that stands for an element type of kernels.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an element type of kernels",
    note = "element types are bool, i32, u32, i64, u64, u8, f32, bf16, f16 and e4m3"
)]
pub trait Element: Copy + 'static {
    /// The element type.
    const DTYPE: Dtype;

    /// The literal, as the IR holds it.
    fn literal(self) -> Attr;
}

/// Element types that a launch can pass by value, those that [`ScalarValue`](crate::contract::ScalarValue) holds: bool,
/// i32, u32, i64, u64 and f32.
#[diagnostic::on_unimplemented(
    message = "a launch does not pass `{Self}` by value",
    label = "a `Scalar` parameter is of bool, i32, u32, i64, u64 or f32",
    note = "pass one of those and convert it in the kernel, `x.to::<T>()`, or pass memory: `#[read] x: Slice<T>`"
)]
pub trait ByValue: Element {}

/// Element types with `+ - *`, comparisons, `min` and `max`: i32, u32, i64, u64 and f32.
#[diagnostic::on_unimplemented(
    message = "kernels do not compute in `{Self}`",
    note = "arithmetic is on i32, u32, i64, u64 and f32; convert first, e.g. `x.to::<f32>()`"
)]
pub trait Arithmetic: ByValue {}

/// i32, u32, i64 and u64.
#[diagnostic::on_unimplemented(message = "`{Self}` is not an integer type of kernels: i32, u32, i64 or u64")]
pub trait Integer: Arithmetic {}

/// f32.
#[diagnostic::on_unimplemented(message = "`{Self}` is not a float type that kernels compute in: f32")]
pub trait Float: Arithmetic {}

macro_rules! element {
    ($($ty:ty, $dtype:ident, $v:ident => $literal:expr;)*) => {$(
        impl Element for $ty {
            const DTYPE: Dtype = Dtype::$dtype;

            fn literal(self) -> Attr {
                let $v = self;
                $literal
            }
        }
    )*};
}

element! {
    bool, Bool, v => Attr::Bool(v);
    i32, I32, v => Attr::Int(v.into());
    u32, U32, v => Attr::Int(v.into());
    i64, I64, v => Attr::Int(v);
    u64, U64, v => Attr::Int(v.cast_signed());
    u8, U8, v => Attr::Int(v.into());
    f32, F32, v => Attr::Float(v.into());
    bf16, Bf16, v => Attr::Int(v.to_bits().into());
    f16, F16, v => Attr::Int(v.to_bits().into());
    e4m3, E4m3, v => Attr::Int(v.0.into());
}

macro_rules! class {
    ($($ty:ty: $($class:ident)*;)*) => {$($(
        #[diagnostic::do_not_recommend]
        impl $class for $ty {}
    )*)*};
}

class! {
    bool: ByValue;
    i32: ByValue Arithmetic Integer;
    u32: ByValue Arithmetic Integer;
    i64: ByValue Arithmetic Integer;
    u64: ByValue Arithmetic Integer;
    f32: ByValue Arithmetic Float;
}
