//! Comparisons and selection, element by element.

use super::arith::{infix, joined, number};
use super::example::{inputs, output};
use super::{Family, OpDef, Signature};
use crate::cost::elementwise as elementwise_cost;
use crate::cuda::{Emit, Expr, prec};
use crate::dtype::Dtype;
use crate::handles::{Arithmetic, Element, Handle, Mask, Scalar};
use crate::ir::{Attrs, Type};
use crate::trace::emit;

/// The ops of this file.
pub static FAMILY: Family =
    Family { name: "compare", source: include_str!("compare.rs"), ops: &[&LT, &LE, &GT, &GE, &EQ, &NE, &SELECT] };

fn comparison(s: &Signature<'_>, accepts: fn(Dtype) -> bool) -> Result<Vec<Type>, String> {
    s.count(2)?;
    match s.operands {
        [Type::Scalar(a), Type::Scalar(b)] if a == b && accepts(*a) => Ok(vec![Type::Scalar(Dtype::Bool)]),
        [a, b] => Err(format!("{a} and {b} cannot be compared")),
        _ => unreachable!("counted above"),
    }
}

macro_rules! comparison_ops {
    ($($(#[doc = $doc:literal])* $op:ident $name:literal $method:ident $level:ident $operator:literal $accepts:ident $bound:ident;)*) => {
        $(
            $(#[doc = $doc])*
            pub static $op: OpDef = OpDef {
                name: $name,
                doc: concat!($($doc),*),
                signature: |s| comparison(s, $accepts),
                min_capability: 0,
                effects: &[],
                emit: Emit::Expr(|cx| infix(cx, prec::$level, $operator)),
                cost: |c| elementwise_cost(c, 0),
                example: || {
                    let [a, b] = inputs::<i32, 2>();
                    output(a.$method(b).select(a, b));
                },
            };
        )*
        impl<T: Element> Scalar<T> {
            $(
                $(#[doc = $doc])*
                #[track_caller]
                pub fn $method(self, other: impl Into<Scalar<T>>) -> Mask
                where
                    T: $bound,
                {
                    let other = other.into();
                    Scalar::from_id(emit(&$op, &[self.id(), other.id()], Attrs::none()))
                }
            )*
        }
    };
}

comparison_ops! {
    /// Whether the first is smaller.
    LT "lt" lt RELATION "<" number Arithmetic;
    /// Whether the first is smaller or equal.
    LE "le" le RELATION "<=" number Arithmetic;
    /// Whether the first is larger.
    GT "gt" gt RELATION ">" number Arithmetic;
    /// Whether the first is larger or equal.
    GE "ge" ge RELATION ">=" number Arithmetic;
    /// Whether both are equal.
    EQ "eq" eq EQUALITY "==" any Element;
    /// Whether they differ.
    NE "ne" ne EQUALITY "!=" any Element;
}

fn any(dtype: Dtype) -> bool {
    number(dtype) || matches!(dtype, Dtype::Bool | Dtype::U8)
}

/// Picks the second operand where the first holds, else the third.
pub static SELECT: OpDef = OpDef {
    name: "select",
    doc: "The second operand where the first holds, else the third; both are computed.",
    signature: |s| {
        s.count(3)?;
        match s.operands {
            [Type::Scalar(Dtype::Bool), rest @ ..] => Ok(vec![joined(rest)?]),
            [other, ..] => Err(format!("the condition of a `select` is a bool, not {other}")),
            [] => unreachable!("counted above"),
        }
    },
    min_capability: 0,
    effects: &[],
    emit: Emit::Expr(|cx| {
        let (cond, yes, no) = (cx.operand(0), cx.operand(1), cx.operand(2));
        Expr::conditional(&cond, &yes, &no)
    }),
    cost: |c| elementwise_cost(c, 0),
    example: || {
        let [a, b] = inputs::<f32, 2>();
        output(a.gt(b).select(a - b, 0.0f32));
    },
};

impl Mask {
    /// `yes` where the condition holds, else `no`; both are computed.
    #[track_caller]
    pub fn select<T: Element>(self, yes: impl Into<Scalar<T>>, no: impl Into<Scalar<T>>) -> Scalar<T> {
        let (yes, no) = (yes.into(), no.into());
        Scalar::from_id(emit(&SELECT, &[self.id(), yes.id(), no.id()], Attrs::none()))
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
            lt
              *out = x < y ? x : y;
            le
              *out = x <= y ? x : y;
            gt
              *out = x > y ? x : y;
            ge
              *out = x >= y ? x : y;
            eq
              *out = x == y ? x : y;
            ne
              *out = x != y ? x : y;
            select
              *out = x > y ? x - y : 0.0f;
        "#]],
        );
    }
}
