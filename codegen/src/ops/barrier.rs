//! Barriers: where lanes of a warp or warps of a CTA wait for one another and see one another's shared memory.

use super::{Effect, Family, OpDef, Scope, Signature};
use crate::cost::Cost;
use crate::cuda::{Emit, Helper};
use crate::ir::{Attrs, Type};
use crate::trace::emit_stmt;

/// The ops of this file.
pub static FAMILY: Family = Family {
    name: "barrier",
    source: include_str!("barrier.rs"),
    ops: &[&CTA_SYNC, &WARP_SYNC, &NAMED_SYNC, &NAMED_ARRIVE],
};

/// All threads of the CTA wait for one another.
pub static CTA_SYNC: OpDef = OpDef {
    name: "barrier.cta",
    doc: "All threads of the CTA wait for one another and see one another's memory accesses.",
    signature: |s| s.count(0).map(|()| vec![]),
    min_capability: 0,
    effects: &[Effect::Barrier(Scope::Cta)],
    emit: Emit::Stmt(|cx| cx.line("__syncthreads();")),
    cost: |_| Cost::issue(1),
    example: cta_sync,
};

/// All lanes of the warp wait for one another.
pub static WARP_SYNC: OpDef = OpDef {
    name: "barrier.warp",
    doc: "All lanes of the warp wait for one another and see one another's memory accesses.",
    signature: |s| s.count(0).map(|()| vec![]),
    min_capability: 0,
    effects: &[Effect::Barrier(Scope::Warp)],
    emit: Emit::Stmt(|cx| cx.line("__syncwarp();")),
    cost: |_| Cost::issue(1),
    example: warp_sync,
};

/// The warps that share a named barrier wait for one another.
pub static NAMED_SYNC: OpDef = OpDef {
    name: "barrier.named",
    doc: "The `warps` warps that meet at barrier `id` wait for one another and see one another's memory accesses.",
    signature: named,
    min_capability: 0,
    effects: &[Effect::Barrier(Scope::Warps)],
    emit: Emit::Stmt(|cx| {
        cx.require(&NAMED_HELPER);
        let (id, threads) = (cx.attr("id"), cx.attr("warps") * 32);
        cx.line(&format!("named_barrier_sync({id}, {threads});"));
    }),
    cost: |_| Cost::issue(1),
    example: || named_sync(1, 2),
};

/// Tells the warps that share a named barrier, without waiting.
pub static NAMED_ARRIVE: OpDef = OpDef {
    name: "barrier.named_arrive",
    doc: "Counts this warp among the `warps` warps that meet at barrier `id`, and goes on: those that wait there see what \
          it did before.",
    signature: named,
    min_capability: 0,
    effects: &[Effect::Arrive],
    emit: Emit::Stmt(|cx| {
        cx.require(&ARRIVE_HELPER);
        let (id, threads) = (cx.attr("id"), cx.attr("warps") * 32);
        cx.line(&format!("named_barrier_arrive({id}, {threads});"));
    }),
    cost: |_| Cost::issue(1),
    example: || named_arrive(1, 2),
};

static ARRIVE_HELPER: Helper = Helper {
    name: "named_barrier_arrive",
    text: "\
__device__ __forceinline__ void named_barrier_arrive(int id, int threads) {
  asm volatile(\"bar.arrive %0, %1;\" :: \"r\"(id), \"r\"(threads) : \"memory\");
}",
};

fn named(s: &Signature<'_>) -> Result<Vec<Type>, String> {
    s.count(0)?;
    let (id, warps) = (s.attrs.int("id"), s.attrs.int("warps"));
    if !(1..=15).contains(&id) {
        return Err(format!("a named barrier is numbered 1 to 15 (0 is `cta::sync`), not {id}"));
    }
    if !(1..=i64::from(s.warps)).contains(&warps) {
        return Err(format!("1 to {} warps of this kernel meet at a barrier, not {warps}", s.warps));
    }
    Ok(vec![])
}

static NAMED_HELPER: Helper = Helper {
    name: "named_barrier_sync",
    text: "\
__device__ __forceinline__ void named_barrier_sync(int id, int threads) {
  asm volatile(\"bar.sync %0, %1;\" :: \"r\"(id), \"r\"(threads) : \"memory\");
}",
};

/// All threads of the CTA wait for one another and see one another's memory accesses.
#[track_caller]
pub fn cta_sync() {
    emit_stmt(&CTA_SYNC, &[], Attrs::none());
}

/// All lanes of the warp wait for one another and see one another's memory accesses.
#[track_caller]
pub fn warp_sync() {
    emit_stmt(&WARP_SYNC, &[], Attrs::none());
}

/// `warps` warps of the CTA wait for one another at the barrier numbered `id`, 1 to 15.
#[track_caller]
pub fn named_sync(id: i32, warps: i32) {
    emit_stmt(&NAMED_SYNC, &[], Attrs::none().with("id", id).with("warps", warps));
}

/// Counts this warp among the `warps` warps that meet at the barrier numbered `id`, 1 to 15, and goes on.
#[track_caller]
pub fn named_arrive(id: i32, warps: i32) {
    emit_stmt(&NAMED_ARRIVE, &[], Attrs::none().with("id", id).with("warps", warps));
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    #[test]
    fn examples() {
        super::super::example::check(
            &super::FAMILY,
            expect![[r#"
                barrier.cta
                  __syncthreads();
                barrier.warp
                  __syncwarp();
                barrier.named
                  named_barrier_sync(1, 64);
                barrier.named_arrive
                  named_barrier_arrive(1, 64);
            "#]],
        );
    }
}
