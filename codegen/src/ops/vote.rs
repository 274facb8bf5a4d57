//! What the lanes of a warp decide together: ballots, matches and reductions of integers. All lanes of the warp take part.

use super::example::{inputs, output};
use super::index::lane_id;
use super::{Effect, Family, OpDef};
use crate::cost::Cost;
use crate::cuda::{Cx, Emit, Expr};
use crate::dtype::Dtype;
use crate::handles::{Element, Handle, Mask, Scalar};
use crate::ir::{Attrs, Type};
use crate::trace::emit;

/// The ops of this file.
pub static FAMILY: Family =
    Family { name: "vote", source: include_str!("vote.rs"), ops: &[&BALLOT, &ANY, &ALL, &MATCH, &REDUCE] };

/// A call of an intrinsic of all lanes.
fn call(cx: &mut Cx<'_, '_>, function: &str) -> Expr {
    let value = cx.operand(0);
    Expr::call(function, &[&Expr::primary("0xffffffffu"), &value])
}

macro_rules! votes {
    ($($(#[doc = $doc:literal])* $op:ident $name:literal $method:ident -> ($result:ty: $dtype:ident) $cuda:literal;)*) => {$(
        $(#[doc = $doc])*
        pub static $op: OpDef = OpDef {
            name: $name,
            doc: concat!($($doc),*),
            signature: |s| {
                s.count(1)?;
                match s.operands[0] {
                    Type::Scalar(Dtype::Bool) => Ok(vec![Type::Scalar(Dtype::$dtype)]),
                    other => Err(format!("lanes vote on a bool, not on {other}")),
                }
            },
            min_capability: 70,
            effects: &[Effect::Exchange],
            emit: Emit::Expr(|cx| call(cx, $cuda)),
            cost: |_| Cost::issue(1),
            example: show,
        };

        impl Scalar<bool> {
            $(#[doc = $doc])*
            #[track_caller]
            pub fn $method(self) -> Scalar<$result> {
                Scalar::from_id(emit(&$op, &[self.id()], Attrs::none()))
            }
        }
    )*};
}

votes! {
    /// The lanes of the warp for which the condition holds, a bit each.
    BALLOT "vote.ballot" ballot -> (u32: U32) "__ballot_sync";
    /// Whether the condition holds for some lane of the warp.
    ANY "vote.any" any_lane -> (bool: Bool) "__any_sync";
    /// Whether the condition holds for every lane of the warp.
    ALL "vote.all" all_lanes -> (bool: Bool) "__all_sync";
}

/// How many lanes below this one hold a larger `x`, where any does.
fn show() {
    let [x] = inputs::<i32, 1>();
    let larger: Mask = x.gt(lane_id());
    let below = larger.ballot() & ((Scalar::from(1u32) << lane_id().to::<u32>()) - 1u32);
    let some = larger.any_lane() & !larger.all_lanes();
    output(some.select(below.count_ones(), 0));
}

/// The lanes that hold the same value.
pub static MATCH: OpDef = OpDef {
    name: "vote.match",
    doc: "The lanes of the warp that hold the same value, a bit each.",
    signature: |s| {
        s.count(1)?;
        match s.operands[0] {
            Type::Scalar(dtype) if matches!(dtype.size(), 4 | 8) => Ok(vec![Type::Scalar(Dtype::U32)]),
            other => Err(format!("values of 4 or 8 bytes are matched, not {other}")),
        }
    },
    min_capability: 70,
    effects: &[Effect::Exchange],
    emit: Emit::Expr(|cx| call(cx, "__match_any_sync")),
    // The hardware goes through the values that there are, one after the other.
    cost: |_| Cost::issue(8),
    example: || {
        let [x] = inputs::<i32, 1>();
        output(x.match_lanes().count_ones());
    },
};

impl<T: Element> Scalar<T> {
    /// The lanes of the warp that hold the same value, bit by bit, a bit each.
    #[track_caller]
    pub fn match_lanes(self) -> Scalar<u32> {
        Scalar::from_id(emit(&MATCH, &[self.id()], Attrs::none()))
    }
}

/// The lanes' values, combined.
pub static REDUCE: OpDef = OpDef {
    name: "vote.reduce",
    doc: "The values of all lanes of the warp combined by `by`: add, min, max (i32 and u32), and, or, xor (u32).",
    signature: |s| {
        s.count(1)?;
        let by = s.attrs.text("by");
        match (s.operands[0], by) {
            (Type::Scalar(dtype @ (Dtype::I32 | Dtype::U32)), "add" | "min" | "max")
            | (Type::Scalar(dtype @ Dtype::U32), "and" | "or" | "xor") => Ok(vec![Type::Scalar(dtype)]),
            (other, by) => Err(format!(
                "lanes combine i32 and u32 by add, min or max, u32 by and, or or xor; not {other} by {by:?}"
            )),
        }
    },
    min_capability: 80,
    effects: &[Effect::Exchange],
    emit: Emit::Expr(|cx| {
        let function = format!("__reduce_{}_sync", cx.inst().attrs.text("by"));
        call(cx, &function)
    }),
    cost: |_| Cost::issue(2),
    example: || {
        let [x] = inputs::<i32, 1>();
        output(x.warp_max() - x.warp_min());
    },
};

macro_rules! reductions {
    ($($doc:literal $method:ident $by:literal: $($ty:ty)*;)*) => {$($(
        impl Scalar<$ty> {
            #[doc = $doc]
            #[track_caller]
            pub fn $method(self) -> Scalar<$ty> {
                Scalar::from_id(emit(&REDUCE, &[self.id()], Attrs::none().with("by", $by)))
            }
        }
    )*)*};
}

reductions! {
    "The sum of the lanes' values, modulo 2^32." warp_sum "add": i32 u32;
    "The smallest of the lanes' values." warp_min "min": i32 u32;
    "The largest of the lanes' values." warp_max "max": i32 u32;
    "The bits that all lanes' values have." warp_and "and": u32;
    "The bits that some lane's value has." warp_or "or": u32;
    "The bits that an odd number of lanes' values have." warp_xor "xor": u32;
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    #[test]
    fn examples() {
        super::super::example::check(
            &super::FAMILY,
            expect![[r#"
                vote.ballot
                  const unsigned i = __ballot_sync(0xffffffffu, mask);
                vote.any
                  const bool mask_2 = __any_sync(0xffffffffu, mask);
                vote.all
                  const bool mask_3 = __all_sync(0xffffffffu, mask);
                vote.match
                  const unsigned i = __match_any_sync(0xffffffffu, x);
                vote.reduce
                  const int i = __reduce_max_sync(0xffffffffu, x);
                  const int i_2 = __reduce_min_sync(0xffffffffu, x);
            "#]],
        );
    }
}
