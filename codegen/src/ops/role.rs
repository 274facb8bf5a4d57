//! Warp roles: different bodies for different warps of a CTA, each whole warps, and the registers that they take.

use std::ops::Range;

use super::barrier::named_sync;
use super::{Effect, Family, OpDef, Scope};
use crate::cost::Cost;
use crate::cuda::{Cx, Emit, Expr, Helper};
use crate::ir::Attrs;
use crate::loc::Loc;
use crate::trace::{emit_stmt, with};

/// The ops of this file.
pub static FAMILY: Family = Family { name: "role", source: include_str!("role.rs"), ops: &[&ROLE, &REGISTERS] };

/// Warps that take part in `setmaxnreg` together.
pub(crate) const GROUP: i64 = 4;

/// A body of some warps.
pub static ROLE: OpDef = OpDef {
    name: "role",
    doc: "Runs its block on the `count` warps from `first` on. The others never come there, so that it holds no barrier \
          of the CTA and no copy that all its threads share.",
    signature: |s| {
        s.count(0)?;
        let (first, count) = (s.attrs.int("first"), s.attrs.int("count"));
        if first < 0 || count < 1 || first + count > i64::from(s.warps) {
            let end = first + count;
            return Err(format!("a CTA has the warps 0..{}, and the role takes {first}..{end}", s.warps));
        }
        if s.blocks != 1 {
            return Err("a role has one body".to_owned());
        }
        Ok(vec![])
    },
    min_capability: 0,
    effects: &[Effect::Control],
    emit: Emit::Stmt(print),
    cost: |_| Cost::issue(1),
    example: show,
};

/// Warp 3 gives up registers; warps 0 to 2 take some and meet.
fn show() {
    role("fetch", 3..4, || {});
    role("multiply", 0..3, || named_sync(1, 3));
}

fn print(cx: &mut Cx<'_, '_>) {
    let (first, end) = (cx.attr("first"), cx.attr("first") + cx.attr("count"));
    let warp = cx.warp();
    let all = end == i64::from(cx.kernel().warps);
    let cond = match (first, end) {
        (first, end) if end == first + 1 => format!("{warp} == {first}"),
        (0, end) => format!("{warp} < {end}"),
        (first, _) if all => format!("{warp} >= {first}"),
        (first, end) => format!("{warp} >= {first} && {warp} < {end}"),
    };
    let name = cx.inst().attrs.text("name").to_owned();
    cx.gap();
    cx.comment(&name);
    cx.open(&format!("if ({cond})"));
    cx.block(0);
    cx.close();
}

/// Changes how many registers a warp's lanes have.
pub static REGISTERS: OpDef = OpDef {
    name: "role.registers",
    doc: "Changes how many registers each lane has to `count`, for 4 whole warps at once: those that give some up \
          (`change` is dec) make room for those that wait to take some (inc).",
    signature: |s| {
        s.count(0)?;
        if !matches!(s.attrs.text("change"), "dec" | "inc") {
            return Err(format!("registers are given up (dec) or taken (inc), not {:?}", s.attrs.text("change")));
        }
        match s.attrs.int("count") {
            count @ 24..=256 if count % 8 == 0 => Ok(vec![]),
            other => Err(format!("a lane has 24 to 256 registers, a multiple of 8, not {other}")),
        }
    },
    min_capability: 90,
    effects: &[Effect::Barrier(Scope::Warps)],
    emit: Emit::Stmt(|cx| {
        let (helper, function) = match cx.inst().attrs.text("change") {
            "dec" => (&GIVE_HELPER, "give_registers"),
            _ => (&TAKE_HELPER, "take_registers"),
        };
        cx.require(helper);
        let count = Expr::primary(cx.attr("count").to_string());
        cx.line(&format!("{function}<{count}>();"));
    }),
    cost: |_| Cost::issue(1),
    example: || {
        role("everything", 0..4, || give_registers(40));
    },
};

static GIVE_HELPER: Helper = Helper {
    name: "give_registers",
    text: "\
template <int count>
__device__ __forceinline__ void give_registers() { asm volatile(\"setmaxnreg.dec.sync.aligned.u32 %0;\" :: \"n\"(count)); }",
};

static TAKE_HELPER: Helper = Helper {
    name: "take_registers",
    text: "\
template <int count>
__device__ __forceinline__ void take_registers() { asm volatile(\"setmaxnreg.inc.sync.aligned.u32 %0;\" :: \"n\"(count)); }",
};

/// Runs `body` on these warps of the CTA only. `name` says what they do, for whoever reads the CUDA text.
///
/// ```
/// # use lathe_codegen::{prelude::*, trace::{KernelSpec, trace}, loc::Loc};
/// # let spec = KernelSpec { name: "k", doc: "", warps: 4, ctas_per_sm: 1, loc: Loc::caller() };
/// # let kernel = trace(spec, || {
/// warp::role("fetch", 3..4, || { /* starts copies */ });
/// warp::role("multiply", 0..3, || { /* waits for them */ });
/// # });
/// # kernel.unwrap();
/// ```
#[track_caller]
pub fn role(name: &str, warps: Range<u32>, body: impl FnOnce()) {
    let loc = Loc::caller();
    let count = i64::from(warps.end) - i64::from(warps.start);
    let attrs = Attrs::none().with("name", name).with("first", warps.start).with("count", count);
    with(|b| b.begin_role(attrs, loc));
    body();
    with(|b| b.end_role(loc));
}

/// Leaves each lane of this role `count` registers, 24 to 256 and a multiple of 8, fewer than it has. The role's warps
/// come in fours.
#[track_caller]
pub fn give_registers(count: i32) {
    emit_stmt(&REGISTERS, &[], Attrs::none().with("change", "dec").with("count", count));
}

/// Waits until there are `count` registers, 24 to 256 and a multiple of 8, for each lane of this role: more than it has.
/// The role's warps come in fours.
#[track_caller]
pub fn take_registers(count: i32) {
    emit_stmt(&REGISTERS, &[], Attrs::none().with("change", "inc").with("count", count));
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use crate::ops::example::{kernel, rows};
    use crate::prelude::*;

    #[test]
    fn examples() {
        super::super::example::check(
            &super::FAMILY,
            expect![[r#"
                role
                  // fetch
                  if (warp == 3) {
                  }
                  // multiply
                  if (warp < 3) {
                  }
                role.registers
                    give_registers<40>();
            "#]],
        );
    }

    #[track_caller]
    fn refused(body: impl FnOnce(), message: &str) {
        let errors = kernel("k", body).expect_err("must be refused").to_string();
        assert!(errors.contains(message), "{errors}");
    }

    #[test]
    fn what_needs_all_warps_is_refused_in_a_role() {
        let sync = || warp::role("fetch", 0..1, cta::sync);
        refused(sync, "only the warps 0..1 come here, and all 4 would have to: use `cta::sync_warps(id, 1)`");
        let copy = || {
            let tile = shared::<bf16>([16, 128]);
            warp::role("fetch", 3..4, || tile.copy_async(rows::<bf16, Read>("k").row(0)));
        };
        refused(copy, "only the warps 3..4 come here, and all 4 would share the copy: make the tile `per_warp()`");
    }

    #[test]
    fn roles_are_of_warps_that_there_are() {
        refused(|| warp::role("fetch", 4..5, || {}), "a CTA has the warps 0..4, and the role takes 4..5");
        refused(|| warp::role("none", 2..2, || {}), "a CTA has the warps 0..4, and the role takes 2..2");
    }

    #[test]
    fn registers_are_those_of_fours_of_warps() {
        refused(|| warp::role("fetch", 3..4, || warp::give_registers(40)), "4 warps at a time, and the role has 3..4");
        refused(|| warp::role("all", 0..4, || warp::give_registers(20)), "a lane has 24 to 256 registers");
    }
}
