//! Bits of integers: counts, positions, and bytes picked from two words.

use super::example::{inputs, output};
use super::{Family, OpDef, Signature};
use crate::cost::Cost;
use crate::cuda::{Emit, Expr};
use crate::dtype::Dtype;
use crate::handles::{Handle, Scalar};
use crate::ir::{Attrs, Type};
use crate::trace::emit;

/// The ops of this file.
pub static FAMILY: Family = Family {
    name: "bits",
    source: include_str!("bits.rs"),
    ops: &[&COUNT_ONES, &LEADING_ZEROS, &FIND_FIRST, &PERMUTE],
};

fn of_u32(s: &Signature<'_>, operands: usize, result: Dtype) -> Result<Vec<Type>, String> {
    s.count(operands)?;
    match s.operands.iter().find(|&&operand| operand != Type::Scalar(Dtype::U32)) {
        None => Ok(vec![Type::Scalar(result)]),
        Some(other) => Err(format!("bits are those of u32, not of {other}")),
    }
}

macro_rules! functions {
    ($($(#[doc = $doc:literal])* $op:ident $name:literal $method:ident $cuda:literal;)*) => {
        $(
            $(#[doc = $doc])*
            pub static $op: OpDef = OpDef {
                name: $name,
                doc: concat!($($doc),*),
                signature: |s| of_u32(s, 1, Dtype::I32),
                min_capability: 0,
                effects: &[],
                emit: Emit::Expr(|cx| {
                    let x = cx.operand(0);
                    Expr::call($cuda, &[&x])
                }),
                cost: |_| Cost::issue(1),
                example: || {
                    let [x] = inputs::<u32, 1>();
                    output(x.$method());
                },
            };

            impl Scalar<u32> {
                $(#[doc = $doc])*
                #[track_caller]
                pub fn $method(self) -> Scalar<i32> {
                    Scalar::from_id(emit(&$op, &[self.id()], Attrs::none()))
                }
            }
        )*
    };
}

functions! {
    /// How many bits are set.
    COUNT_ONES "bits.count_ones" count_ones "__popc";
    /// How many bits above the highest set one are not set: 32 of 0.
    LEADING_ZEROS "bits.leading_zeros" leading_zeros "__clz";
    /// The position of the lowest set bit, counted from 1: 0 of 0.
    FIND_FIRST "bits.find_first" find_first "__ffs";
}

/// Bytes picked from two words.
pub static PERMUTE: OpDef = OpDef {
    name: "bits.permute",
    doc: "Four bytes picked from the eight of two words: byte i of the result is the one that the low 3 bits of digit i \
          (4 bits each) of the selector number, 0 to 3 from the first word, 4 to 7 from the second.",
    signature: |s| of_u32(s, 3, Dtype::U32),
    min_capability: 0,
    effects: &[],
    emit: Emit::Expr(|cx| {
        let [a, b, selector] = [0, 1, 2].map(|i| cx.operand(i));
        Expr::call("__byte_perm", &[&a, &b, &selector])
    }),
    cost: |_| Cost::issue(1),
    example: || {
        let [x, y] = inputs::<u32, 2>();
        output(x.permute_bytes(y, 0x5410u32));
    },
};

impl Scalar<u32> {
    /// Four bytes picked from this word's (0 to 3) and `other`'s (4 to 7): byte i of the result is the one that digit i of
    /// `selector`, 4 bits each, numbers. `0x5410` puts the lower halves side by side.
    #[track_caller]
    pub fn permute_bytes(self, other: impl Into<Scalar<u32>>, selector: impl Into<Scalar<u32>>) -> Scalar<u32> {
        let operands = [self.id(), other.into().id(), selector.into().id()];
        Scalar::from_id(emit(&PERMUTE, &operands, Attrs::none()))
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
            bits.count_ones
              *out = __popc(x);
            bits.leading_zeros
              *out = __clz(x);
            bits.find_first
              *out = __ffs(x);
            bits.permute
              *out = __byte_perm(x, y, 21520u);
        "#]],
        );
    }
}
