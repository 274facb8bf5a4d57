//! Programmatic dependent launch: where a kernel meets the one before it and releases the one after it.

use super::{Effect, Family, OpDef};
use crate::cost::Cost;
use crate::cuda::{Emit, Helper};
use crate::ir::Attrs;
use crate::trace::emit_stmt;

/// The ops of this file.
pub static FAMILY: Family = Family { name: "pdl", source: include_str!("pdl.rs"), ops: &[&WAIT, &LAUNCH_DEPENDENTS] };

/// Waits for the kernels that this launch depends on.
pub static WAIT: OpDef = OpDef {
    name: "pdl.wait",
    doc: "Waits until the kernels that this launch depends on have completed and their writes are visible.",
    signature: |s| s.count(0).map(|()| vec![]),
    min_capability: 90,
    effects: &[Effect::GridDependency],
    emit: Emit::Stmt(|cx| {
        cx.require(&WAIT_HELPER);
        cx.line("grid_dependency_wait();");
    }),
    cost: |_| Cost::issue(1),
    example: wait,
};

static WAIT_HELPER: Helper = Helper {
    name: "grid_dependency_wait",
    text: "\
__device__ __forceinline__ void grid_dependency_wait() { asm volatile(\"griddepcontrol.wait;\" ::: \"memory\"); }",
};

/// Lets the kernels that depend on this launch start.
pub static LAUNCH_DEPENDENTS: OpDef = OpDef {
    name: "pdl.launch_dependents",
    doc: "Lets the kernels that depend on this launch start, once every CTA has said so; they still wait for its end.",
    signature: |s| s.count(0).map(|()| vec![]),
    min_capability: 90,
    effects: &[Effect::GridDependency],
    emit: Emit::Stmt(|cx| {
        cx.require(&LAUNCH_HELPER);
        cx.line("launch_dependents();");
    }),
    cost: |_| Cost::issue(1),
    example: launch_dependents,
};

static LAUNCH_HELPER: Helper = Helper {
    name: "launch_dependents",
    text: "\
__device__ __forceinline__ void launch_dependents() { asm volatile(\"griddepcontrol.launch_dependents;\" ::: \"memory\"); }",
};

/// Waits until the kernels that this launch depends on have completed and their writes are visible. Nothing that an
/// earlier kernel may write is to be read before. Without a programmatic edge it costs nothing.
#[track_caller]
pub fn wait() {
    emit_stmt(&WAIT, &[], Attrs::none());
}

/// Lets the kernels that depend on this launch start once every CTA has called it. It may come early: dependents
/// still wait, by [`wait`], for the end of this kernel.
#[track_caller]
pub fn launch_dependents() {
    emit_stmt(&LAUNCH_DEPENDENTS, &[], Attrs::none());
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    #[test]
    fn examples() {
        super::super::example::check(
            &super::FAMILY,
            expect![[r#"
            pdl.wait
              grid_dependency_wait();
            pdl.launch_dependents
              launch_dependents();
        "#]],
        );
    }
}
