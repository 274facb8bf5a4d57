//! Exchanging values between the lanes of a warp. All lanes of the warp take part.

use super::example::{inputs, output};
use super::{Effect, Family, OpDef};
use crate::cost::Cost;
use crate::cuda::{Cx, Emit, Expr};
use crate::dtype::Dtype;
use crate::handles::{AccessMode, Element, Handle, Integer, Lanes, Place, Readable, Scalar, Span};
use crate::ir::{Attrs, Type};
use crate::loc::Loc;
use crate::ops::index::lane_id;
use crate::trace::{emit, with};

/// The ops of this file.
pub static FAMILY: Family = Family { name: "shuffle", source: include_str!("shuffle.rs"), ops: &[&SHUFFLE] };

/// A value of another lane.
pub static SHUFFLE: OpDef = OpDef {
    name: "shuffle",
    doc: "The value that another lane of the warp holds: of lane `by` (idx), lane ^ `by` (xor), lane + `by` (down), \
          lane - `by` (up).",
    signature: |s| {
        s.count(2)?;
        if function(s.attrs.text("mode")).is_none() {
            return Err(format!("a shuffle is idx, xor, down or up, not {:?}", s.attrs.text("mode")));
        }
        match *s.operands {
            [Type::Scalar(value), Type::Scalar(Dtype::I32)] if matches!(value.size(), 4 | 8) => {
                Ok(vec![Type::Scalar(value)])
            }
            [value, by] => Err(format!("a 4- or 8-byte value and an i32 are shuffled, not {value} and {by}")),
            _ => unreachable!("counted above"),
        }
    },
    min_capability: 70,
    effects: &[Effect::Exchange],
    emit: Emit::Expr(|cx: &mut Cx<'_, '_>| {
        let (value, by) = (cx.operand(0), cx.operand(1));
        let function = function(cx.inst().attrs.text("mode")).unwrap_or("__shfl_sync");
        Expr::call(function, &[&Expr::primary("0xffffffffu"), &value, &by])
    }),
    cost: |c| Cost::issue(c.bytes(c.result(0)) / 128),
    example: || {
        let [x] = inputs::<f32, 1>();
        output(x + x.shuffle_xor(1));
    },
};

fn function(mode: &str) -> Option<&'static str> {
    Some(match mode {
        "idx" => "__shfl_sync",
        "xor" => "__shfl_xor_sync",
        "down" => "__shfl_down_sync",
        "up" => "__shfl_up_sync",
        _ => return None,
    })
}

#[track_caller]
fn shuffle<T>(value: Scalar<T>, mode: &str, by: Scalar<i32>) -> Scalar<T> {
    Scalar::from_id(emit(&SHUFFLE, &[value.id(), by.id()], Attrs::none().with("mode", mode)))
}

impl<T: Element> Scalar<T> {
    /// The value that lane `lane` of the warp holds.
    #[track_caller]
    pub fn of_lane(self, lane: impl Into<Scalar<i32>>) -> Scalar<T> {
        shuffle(self, "idx", lane.into())
    }

    /// The value of the lane whose index differs in the bits of `mask`.
    #[track_caller]
    pub fn shuffle_xor(self, mask: impl Into<Scalar<i32>>) -> Scalar<T> {
        shuffle(self, "xor", mask.into())
    }

    /// The value of the lane `by` further; the last `by` lanes get their own.
    #[track_caller]
    pub fn shuffle_down(self, by: impl Into<Scalar<i32>>) -> Scalar<T> {
        shuffle(self, "down", by.into())
    }

    /// The value of the lane `by` before; the first `by` lanes get their own.
    #[track_caller]
    pub fn shuffle_up(self, by: impl Into<Scalar<i32>>) -> Scalar<T> {
        shuffle(self, "up", by.into())
    }
}

impl<T: Element, A: AccessMode> Place<T, A> {
    /// The run of at most `capacity` elements from `first` on.
    #[track_caller]
    pub fn slice(self, first: impl Into<Scalar<i32>>, capacity: i32) -> Span<T, A> {
        let first = first.into();
        Span { start: self.at(first), first, capacity, len: Scalar::from(capacity) }
    }
}

impl<T: Element, A: AccessMode> Span<T, A> {
    /// The part of the run before element `end`, counted from where [`Place::slice`] was taken of; may be none.
    #[track_caller]
    pub fn until(self, end: impl Into<Scalar<i32>>) -> Span<T, A> {
        Span { len: self.len.min(end.into() - self.first), ..self }
    }

    /// Loads the run, one element a lane; memory past its end is not touched.
    #[track_caller]
    pub fn load_lanes(self) -> Lanes<T>
    where
        A: Readable,
        Scalar<T>: From<T>,
        T: Integer + From<bool>,
    {
        if self.capacity > 32 {
            let loc = Loc::caller();
            let message = format!("a warp has 32 lanes: {} elements do not fit, one a lane", self.capacity);
            with(|b| b.error(loc, message, None));
        }
        let lane = lane_id();
        let value = self.start.at(lane).load_if(lane.lt(self.len), T::from(false));
        Lanes { value, len: self.len }
    }
}

impl<T: Element> Lanes<T> {
    /// How many there are; none if negative.
    pub fn len(self) -> Scalar<i32> {
        self.len
    }

    /// Element `index`, the same on all lanes.
    #[track_caller]
    pub fn get(self, index: impl Into<Scalar<i32>>) -> Scalar<T> {
        self.value.of_lane(index)
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
                shuffle
                  const float x_2 = __shfl_xor_sync(0xffffffffu, x, 1);
            "#]],
        );
    }
}
