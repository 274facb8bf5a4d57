//! Constants and arithmetic, element by element.
//!
//! In a kernel they are Rust's operators (`+`, `-`, `*`, `/`, `%`, `&`, `|`, `^`, `<<`, `>>`, `!`, unary `-`, and the
//! assignments `+=` and so on), literals, and the methods below.
//!
//! Each op is on scalars; those that are also on register tiles apply to every element, with a scalar or a column
//! vector spread over the tile.

use std::ops::{
    Add, AddAssign, BitAnd, BitAndAssign, BitOr, BitOrAssign, BitXor, BitXorAssign, Div, DivAssign, Mul, MulAssign,
    Neg, Not, Rem, RemAssign, Shl, ShlAssign, Shr, ShrAssign, Sub, SubAssign,
};

use super::example::{inputs, output};
use super::{Domain, Effect, Family, OpDef, Signature};
use crate::cost::{Cost, elementwise as elementwise_cost};
use crate::cuda::{Cx, Emit, Expr, prec};
use crate::dtype::Dtype;
use crate::handles::{Arithmetic, Float, Handle, Integer, Scalar};
use crate::ir::{Attr, Attrs, Type};
use crate::loc::Loc;
use crate::trace::{emit, with};

/// The ops of this file.
pub static FAMILY: Family = Family {
    name: "arith",
    source: include_str!("arith.rs"),
    ops: &[&CONST, &ADD, &SUB, &MUL, &DIV, &REM, &MIN, &MAX, &NEG, &AND, &OR, &XOR, &NOT, &SHL, &SHR, &FMA],
};

/// Shows an operation on two i32.
fn pair(operation: fn(Scalar<i32>, Scalar<i32>) -> Scalar<i32>) {
    let [a, b] = inputs::<i32, 2>();
    output(operation(a, b));
}

/// A literal.
pub static CONST: OpDef = OpDef {
    name: "const",
    doc: "A literal of type `type`.",
    signature: |s| {
        s.count(0)?;
        let dtype = s.attrs.dtype("type").ok_or("a constant needs a `type`")?;
        s.attrs.get("value").ok_or("a constant needs a `value`")?;
        Ok(vec![Type::Scalar(dtype)])
    },
    min_capability: 0,
    effects: &[],
    emit: Emit::Expr(literal),
    cost: |_| Cost::NONE,
    example: || output(Scalar::from(7)),
};

fn literal(cx: &mut Cx<'_, '_>) -> Expr {
    let Type::Scalar(dtype) = cx.result_type(0) else { return Expr::primary("0") };
    let negative = |text: String| match text.strip_prefix('-') {
        Some(positive) => Expr::prefix("-", &Expr::primary(positive)),
        None => Expr::primary(text),
    };
    match (cx.inst().attrs.get("value"), dtype) {
        (Some(Attr::Bool(value)), _) => Expr::primary(value.to_string()),
        (Some(Attr::Float(value)), _) => {
            let bits = (*value as f32).to_bits();
            if value.is_finite() {
                negative(format!("{:?}f", *value as f32))
            } else {
                Expr::primary(format!("__int_as_float({bits:#010x})"))
            }
        }
        (Some(Attr::Int(value)), Dtype::I32) if *value == i32::MIN.into() => Expr::primary("(-2147483647 - 1)"),
        (Some(Attr::Int(value)), Dtype::I64) if *value == i64::MIN => Expr::primary("(-9223372036854775807LL - 1)"),
        (Some(Attr::Int(value)), Dtype::I64) => negative(format!("{value}LL")),
        (Some(Attr::Int(value)), Dtype::U64) => Expr::primary(format!("{}ULL", value.cast_unsigned())),
        (Some(Attr::Int(value)), Dtype::U32) => Expr::primary(format!("{value}u")),
        (Some(Attr::Int(value)), _) => negative(value.to_string()),
        _ => Expr::primary("0"),
    }
}

/// The type that elementwise operands have together: a scalar spreads over a tile, a column vector over the rows of an
/// accumulator.
pub(super) fn joined(types: &[Type]) -> Result<Type, String> {
    let mut joined = types[0];
    for &ty in &types[1..] {
        joined = match (joined, ty) {
            (a, b) if a == b => a,
            (Type::Scalar(d), tile) | (tile, Type::Scalar(d)) if tile.dtype() == Some(d) && is_tile(tile) => tile,
            (Type::Acc { rows, cols }, Type::Cols { cols: n }) | (Type::Cols { cols: n }, Type::Acc { rows, cols })
                if n == cols =>
            {
                Type::Acc { rows, cols }
            }
            (a, b) => return Err(format!("{a} and {b} do not go together")),
        };
    }
    Ok(joined)
}

fn is_tile(ty: Type) -> bool {
    matches!(ty, Type::Vector { .. } | Type::Acc { .. } | Type::Cols { .. } | Type::RowSums { .. })
}

fn elementwise(s: &Signature<'_>, operands: usize, accepts: fn(Dtype) -> bool) -> Result<Vec<Type>, String> {
    s.count(operands)?;
    let joined = joined(s.operands)?;
    match joined.dtype() {
        Some(dtype) if accepts(dtype) && (is_tile(joined) || matches!(joined, Type::Scalar(_))) => Ok(vec![joined]),
        _ => Err(format!("not an operation on {joined}")),
    }
}

pub(super) fn number(dtype: Dtype) -> bool {
    integer(dtype) || dtype == Dtype::F32
}

fn integer(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::I32 | Dtype::U32 | Dtype::I64 | Dtype::U64)
}

fn bits(dtype: Dtype) -> bool {
    integer(dtype) || dtype == Dtype::Bool
}

macro_rules! elementwise_ops {
    ($($(#[doc = $doc:literal])* $op:ident $name:literal $operands:literal $accepts:ident $(: $domain:ident)? $emit:expr, $example:expr;)*) => {$(
        $(#[doc = $doc])*
        pub static $op: OpDef = OpDef {
            name: $name,
            doc: concat!($($doc),*),
            signature: |s| elementwise(s, $operands, $accepts),
            min_capability: 0,
            effects: &[$(Effect::Partial(Domain::$domain))?],
            emit: Emit::Expr($emit),
            cost: |c| elementwise_cost(c, 1),
            example: $example,
        };
    )*};
}

elementwise_ops! {
    /// Sum.
    ADD "add" 2 number |cx| infix(cx, prec::SUM, "+"), || pair(|a, b| a + b);
    /// Difference.
    SUB "sub" 2 number |cx| infix(cx, prec::SUM, "-"), || pair(|a, b| a - (b - 1));
    /// Product.
    MUL "mul" 2 number |cx| infix(cx, prec::PRODUCT, "*"), || pair(|a, b| a * (b + 1));
    /// Quotient; of integers, rounded towards zero.
    DIV "div" 2 number: Divisor |cx| infix(cx, prec::PRODUCT, "/"), || pair(|a, b| a / b);
    /// Remainder, with the sign of the first operand.
    REM "rem" 2 integer: Divisor |cx| infix(cx, prec::PRODUCT, "%"), || pair(|a, b| a % b);
    /// The smaller; of floats, the one that is not NaN.
    MIN "min" 2 number |cx| extreme(cx, "fminf", "min"), || pair(|a, b| a.min(b));
    /// The larger; of floats, the one that is not NaN.
    MAX "max" 2 number |cx| extreme(cx, "fmaxf", "max"), || pair(|a, b| a.max(b));
    /// Negation.
    NEG "neg" 1 number |cx| Expr::prefix("-", &cx.operand(0)), || pair(|a, b| a - -b);
    /// Bitwise or logical and.
    AND "and" 2 bits |cx| logic(cx, (prec::AND, "&"), (prec::LOGICAL_AND, "&&")), || pair(|a, b| a & (b + 1));
    /// Bitwise or logical or.
    OR "or" 2 bits |cx| logic(cx, (prec::OR, "|"), (prec::LOGICAL_OR, "||")), || pair(|a, b| a | b);
    /// Bitwise or logical exclusive or.
    XOR "xor" 2 bits |cx| logic(cx, (prec::XOR, "^"), (prec::EQUALITY, "!=")), || pair(|a, b| a ^ b);
    /// Bitwise or logical complement.
    NOT "not" 1 bits complement, || pair(|a, b| a & !b);
    /// Shift left.
    SHL "shl" 2 integer: ShiftCount |cx| infix(cx, prec::SHIFT, "<<"), || pair(|a, b| a << b);
    /// Shift right; of signed integers, with the sign.
    SHR "shr" 2 integer: ShiftCount |cx| infix(cx, prec::SHIFT, ">>"), || pair(|a, b| (a >> b) + 1);
}

pub(super) fn infix(cx: &mut Cx<'_, '_>, level: u8, operator: &str) -> Expr {
    let [a, b] = [0, 1].map(|i| if level == prec::SHIFT { cx.operand(i) } else { plain(cx, i) });
    Expr::binary(level, operator, &a, &b)
}

/// Operand `i` of an operator that converts a literal to the type of its other operand: no suffix is needed.
fn plain(cx: &mut Cx<'_, '_>, i: usize) -> Expr {
    match (cx.literal(i), cx.literal(1 - i)) {
        (Some(value), None) if i32::try_from(value).is_ok_and(|v| v >= 0) => Expr::primary(value.to_string()),
        _ => cx.operand(i),
    }
}

/// One operator on bits, another on conditions.
fn logic(cx: &mut Cx<'_, '_>, bits: (u8, &str), conditions: (u8, &str)) -> Expr {
    let (level, operator) = if cx.result_type(0).dtype() == Some(Dtype::Bool) { conditions } else { bits };
    infix(cx, level, operator)
}

fn complement(cx: &mut Cx<'_, '_>) -> Expr {
    let operator = if cx.result_type(0).dtype() == Some(Dtype::Bool) { "!" } else { "~" };
    Expr::prefix(operator, &cx.operand(0))
}

fn extreme(cx: &mut Cx<'_, '_>, float: &str, integer: &str) -> Expr {
    let (a, b) = (cx.operand(0), cx.operand(1));
    let function = if cx.result_type(0).dtype() == Some(Dtype::F32) { float } else { integer };
    Expr::call(function, &[&a, &b])
}

/// `a * b + c`, rounded once.
pub static FMA: OpDef = OpDef {
    name: "fma",
    doc: "`a * b + c`, rounded once.",
    signature: |s| elementwise(s, 3, |dtype| dtype == Dtype::F32),
    min_capability: 0,
    effects: &[],
    emit: Emit::Expr(|cx| {
        let (a, b, c) = (cx.operand(0), cx.operand(1), cx.operand(2));
        Expr::call("fmaf", &[&a, &b, &c])
    }),
    cost: |c| elementwise_cost(c, 2),
    example: || {
        let [a, b, c] = inputs::<f32, 3>();
        output(a.mul_add(b, c));
    },
};

#[track_caller]
fn unary<T>(op: &'static OpDef, a: Scalar<T>) -> Scalar<T> {
    Scalar::from_id(emit(op, &[a.id()], Attrs::none()))
}

#[track_caller]
fn binary<T>(op: &'static OpDef, a: Scalar<T>, b: Scalar<T>) -> Scalar<T> {
    let loc = Loc::caller();
    Scalar::from_id(with(|builder| {
        let (ty, x, y) = (builder.ty(a.id()), builder.literal(a.id()), builder.literal(b.id()));
        let Type::Scalar(dtype @ (Dtype::I32 | Dtype::U32 | Dtype::I64)) = ty else {
            return builder.emit(op, &[a.id(), b.id()], Attrs::none(), loc);
        };
        match (folded(op, x, y), identity(op, x, y)) {
            (Some(value), _) if fits(dtype, value) => builder.constant(dtype, value.into(), loc),
            (_, Some(Side::Left)) => builder.read(a.id(), loc),
            (_, Some(Side::Right)) => builder.read(b.id(), loc),
            _ => builder.emit(op, &[a.id(), b.id()], Attrs::none(), loc),
        }
    }))
}

/// The value of an operation on two literals, or on one that decides it, where it is worth knowing.
fn folded(op: &'static OpDef, x: Option<i64>, y: Option<i64>) -> Option<i64> {
    if op.name == "mul" && (x == Some(0) || y == Some(0)) {
        return Some(0);
    }
    let (x, y) = (x?, y?);
    match op.name {
        "add" => x.checked_add(y),
        "sub" => x.checked_sub(y),
        "mul" => x.checked_mul(y),
        "div" => x.checked_div(y),
        "rem" => x.checked_rem(y),
        "min" => Some(x.min(y)),
        "max" => Some(x.max(y)),
        _ => None,
    }
}

fn fits(dtype: Dtype, value: i64) -> bool {
    match dtype {
        Dtype::I32 => i32::try_from(value).is_ok(),
        Dtype::U32 => u32::try_from(value).is_ok(),
        _ => true,
    }
}

enum Side {
    Left,
    Right,
}

/// Which operand an operation with a neutral literal leaves as it is.
fn identity(op: &'static OpDef, x: Option<i64>, y: Option<i64>) -> Option<Side> {
    match (op.name, x, y) {
        ("add" | "sub", _, Some(0)) | ("mul" | "div", _, Some(1)) => Some(Side::Left),
        ("add", Some(0), _) | ("mul", Some(1), _) => Some(Side::Right),
        _ => None,
    }
}

macro_rules! operators {
    ($($trait:ident $method:ident $op:ident: $($ty:ty)*;)*) => {$($(
        #[diagnostic::do_not_recommend]
        impl $trait<Scalar<$ty>> for Scalar<$ty> {
            type Output = Scalar<$ty>;
            #[track_caller]
            fn $method(self, other: Scalar<$ty>) -> Scalar<$ty> {
                binary(&$op, self, other)
            }
        }

        #[diagnostic::do_not_recommend]
        impl $trait<$ty> for Scalar<$ty> {
            type Output = Scalar<$ty>;
            #[track_caller]
            fn $method(self, other: $ty) -> Scalar<$ty> {
                binary(&$op, self, other.into())
            }
        }

        #[diagnostic::do_not_recommend]
        impl $trait<Scalar<$ty>> for $ty {
            type Output = Scalar<$ty>;
            #[track_caller]
            fn $method(self, other: Scalar<$ty>) -> Scalar<$ty> {
                binary(&$op, self.into(), other)
            }
        }
    )*)*};
}

/// `variable op= value`: the variable's own value is read after the right side has been computed.
#[track_caller]
fn change<T>(op: &'static OpDef, variable: Scalar<T>, value: Scalar<T>) {
    let changed = binary(op, variable, value);
    let loc = Loc::caller();
    with(|b| b.assign(variable.id(), changed.id(), loc));
}

macro_rules! assignment_operators {
    ($($trait:ident $method:ident $op:ident: $($ty:ty)*;)*) => {$($(
        #[diagnostic::do_not_recommend]
        impl $trait<Scalar<$ty>> for Scalar<$ty> {
            #[track_caller]
            fn $method(&mut self, other: Scalar<$ty>) {
                change(&$op, *self, other);
            }
        }

        #[diagnostic::do_not_recommend]
        impl $trait<$ty> for Scalar<$ty> {
            #[track_caller]
            fn $method(&mut self, other: $ty) {
                change(&$op, *self, other.into());
            }
        }
    )*)*};
}

assignment_operators! {
    AddAssign add_assign ADD: i32 u32 i64 u64 f32;
    SubAssign sub_assign SUB: i32 u32 i64 u64 f32;
    MulAssign mul_assign MUL: i32 u32 i64 u64 f32;
    DivAssign div_assign DIV: i32 u32 i64 u64 f32;
    RemAssign rem_assign REM: i32 u32 i64 u64;
    BitAndAssign bitand_assign AND: i32 u32 i64 u64 bool;
    BitOrAssign bitor_assign OR: i32 u32 i64 u64 bool;
    BitXorAssign bitxor_assign XOR: i32 u32 i64 u64 bool;
    ShlAssign shl_assign SHL: i32 u32 i64 u64;
    ShrAssign shr_assign SHR: i32 u32 i64 u64;
}

operators! {
    Add add ADD: i32 u32 i64 u64 f32;
    Sub sub SUB: i32 u32 i64 u64 f32;
    Mul mul MUL: i32 u32 i64 u64 f32;
    Div div DIV: i32 u32 i64 u64 f32;
    Rem rem REM: i32 u32 i64 u64;
    BitAnd bitand AND: i32 u32 i64 u64 bool;
    BitOr bitor OR: i32 u32 i64 u64 bool;
    BitXor bitxor XOR: i32 u32 i64 u64 bool;
    Shl shl SHL: i32 u32 i64 u64;
    Shr shr SHR: i32 u32 i64 u64;
}

macro_rules! prefix_operators {
    ($($trait:ident $method:ident $op:ident: $($ty:ty)*;)*) => {$($(
        impl $trait for Scalar<$ty> {
            type Output = Scalar<$ty>;
            #[track_caller]
            fn $method(self) -> Scalar<$ty> {
                unary(&$op, self)
            }
        }
    )*)*};
}

prefix_operators! {
    Neg neg NEG: i32 i64 f32;
    Not not NOT: i32 u32 i64 u64 bool;
}

impl<T: Arithmetic> Scalar<T> {
    /// The smaller of both; of floats, the one that is not NaN.
    #[track_caller]
    pub fn min(self, other: impl Into<Scalar<T>>) -> Scalar<T> {
        binary(&MIN, self, other.into())
    }

    /// The larger of both; of floats, the one that is not NaN.
    #[track_caller]
    pub fn max(self, other: impl Into<Scalar<T>>) -> Scalar<T> {
        binary(&MAX, self, other.into())
    }
}

impl<T: Integer> Scalar<T>
where
    Scalar<T>: Add<Output = Scalar<T>> + Sub<Output = Scalar<T>> + Div<Output = Scalar<T>>,
{
    /// The quotient rounded up; both must be positive or zero.
    #[track_caller]
    pub fn div_ceil(self, other: impl Into<Scalar<T>>) -> Scalar<T>
    where
        Scalar<T>: From<T>,
        T: From<bool>,
    {
        let other = other.into();
        (self + (other - Scalar::from(T::from(true)))) / other
    }
}

impl<T: Float> Scalar<T> {
    /// `self * b + c`, rounded once.
    #[track_caller]
    pub fn mul_add(self, b: impl Into<Scalar<T>>, c: impl Into<Scalar<T>>) -> Scalar<T> {
        let (b, c) = (b.into(), c.into());
        Scalar::from_id(emit(&FMA, &[self.id(), b.id(), c.id()], Attrs::none()))
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    #[test]
    fn examples() {
        super::super::example::check(
            &super::FAMILY,
            expect![[r#"
            const
              *out = 7;
            add
              *out = x + y;
            sub
              *out = x - (y - 1);
            mul
              *out = x * (y + 1);
            div
              *out = x / y;
            rem
              *out = x % y;
            min
              *out = min(x, y);
            max
              *out = max(x, y);
            neg
              *out = x - -y;
            and
              *out = x & (y + 1);
            or
              *out = x | y;
            xor
              *out = x ^ y;
            not
              *out = x & ~y;
            shl
              *out = x << y;
            shr
              *out = (x >> y) + 1;
            fma
              *out = fmaf(x, y, z);
        "#]],
        );
    }
}
