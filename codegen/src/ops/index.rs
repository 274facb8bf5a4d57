//! Where a lane stands: its place in the warp, the CTA and the grid.

use super::example::output;
use super::{Family, OpDef};
use crate::cost::Cost;
use crate::cuda::{Cx, Emit, Expr};
use crate::dtype::Dtype;
use crate::handles::{Handle, Scalar};
use crate::ir::{Attrs, Type};
use crate::trace::{emit, with};

/// The ops of this file.
pub static FAMILY: Family = Family { name: "index", source: include_str!("index.rs"), ops: &[&INDEX] };

/// An index of the lane, by `of`.
pub static INDEX: OpDef = OpDef {
    name: "index",
    doc: "An index of the lane: `of` is lane, warp, thread, cta.x, cta.y, cta.z, grid.x, grid.y or grid.z.",
    signature: |s| {
        s.count(0)?;
        match cuda(s.attrs.text("of")) {
            Some(_) => Ok(vec![Type::Scalar(Dtype::I32)]),
            None => Err(format!("there is no index of {:?}", s.attrs.text("of"))),
        }
    },
    min_capability: 0,
    effects: &[],
    emit: Emit::Expr(|cx: &mut Cx<'_, '_>| match cx.inst().attrs.text("of") {
        "lane" => cx.lane(),
        "warp" => cx.warp(),
        "thread" => cx.thread(),
        other => Expr::prefix("(int)", &Expr::primary(cuda(other).unwrap_or("0"))),
    }),
    cost: |_| Cost::NONE,
    example: || output(cta_x() * 4 + warp_id()),
};

fn cuda(of: &str) -> Option<&'static str> {
    Some(match of {
        "lane" => "lane",
        "warp" => "warp",
        "thread" => "thread",
        "cta.x" => "blockIdx.x",
        "cta.y" => "blockIdx.y",
        "cta.z" => "blockIdx.z",
        "grid.x" => "gridDim.x",
        "grid.y" => "gridDim.y",
        "grid.z" => "gridDim.z",
        _ => return None,
    })
}

macro_rules! indices {
    ($($(#[doc = $doc:literal])* $function:ident $of:literal;)*) => {$(
        $(#[doc = $doc])*
        #[track_caller]
        pub fn $function() -> Scalar<i32> {
            Scalar::from_id(emit(&INDEX, &[], Attrs::none().with("of", $of)))
        }
    )*};
}

indices! {
    /// The lane's index in its warp, 0 to 31.
    lane_id "lane";
    /// The warp's index in its CTA.
    warp_id "warp";
    /// The thread's index in its CTA.
    thread_id "thread";
    /// The CTA's x in the grid.
    cta_x "cta.x";
    /// The CTA's y in the grid.
    cta_y "cta.y";
    /// The CTA's z in the grid.
    cta_z "cta.z";
    /// CTAs of the grid in x.
    grid_x "grid.x";
    /// CTAs of the grid in y.
    grid_y "grid.y";
    /// CTAs of the grid in z.
    grid_z "grid.z";
}

/// The index of the warp's group of four in its CTA. Lane 0 hands it to the others: the compiler sees that a warp has one,
/// and branches that depend on it as one.
#[track_caller]
pub fn warpgroup_id() -> Scalar<i32> {
    match with(|builder| builder.warps()) {
        0..=4 => Scalar::from(0),
        _ => (warp_id() / 4).of_lane(0),
    }
}

/// The warp's index in its group of four, 0 to 3.
#[track_caller]
pub fn warp_of_group() -> Scalar<i32> {
    match with(|builder| builder.warps()) {
        0..=4 => warp_id(),
        _ => warp_id() % 4,
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
            index
              const int warp = threadIdx.x / 32;
              *out = (int)blockIdx.x * 4 + warp;
        "#]],
        );
    }
}
