//! Fences between the proxies: ordinary accesses of shared memory, and those of bulk copies and of tensor cores that
//! read it, go through different proxies, which a barrier alone does not order.

use super::{Effect, Family, OpDef};
use crate::cost::Cost;
use crate::cuda::{Emit, Helper};
use crate::ir::Attrs;
use crate::trace::emit_stmt;

/// The ops of this file.
pub static FAMILY: Family =
    Family { name: "fence", source: include_str!("fence.rs"), ops: &[&MBARRIER_INIT, &ASYNC_PROXY] };

/// Makes initialised mbarriers visible to bulk copies.
pub static MBARRIER_INIT: OpDef = OpDef {
    name: "fence.mbarrier_init",
    doc: "Makes the mbarriers that this thread has initialised visible to bulk copies; a barrier makes them visible to \
          other threads.",
    signature: |s| s.count(0).map(|()| vec![]),
    min_capability: 90,
    effects: &[Effect::Fence],
    emit: Emit::Stmt(|cx| {
        cx.require(&MBARRIER_INIT_HELPER);
        cx.line("fence_mbarrier_init();");
    }),
    cost: |_| Cost::issue(1),
    example: mbarrier_init,
};

static MBARRIER_INIT_HELPER: Helper = Helper {
    name: "fence_mbarrier_init",
    text: "\
__device__ __forceinline__ void fence_mbarrier_init() { asm volatile(\"fence.mbarrier_init.release.cluster;\" ::: \"memory\"); }",
};

/// Orders ordinary accesses before asynchronous ones.
pub static ASYNC_PROXY: OpDef = OpDef {
    name: "fence.async_proxy",
    doc: "Orders this thread's ordinary accesses of shared memory, and those that it has seen, before accesses by bulk \
          copies and by tensor cores that read shared memory, started after it: by this thread, or by others after a \
          barrier.",
    signature: |s| s.count(0).map(|()| vec![]),
    min_capability: 90,
    effects: &[Effect::Fence],
    emit: Emit::Stmt(|cx| {
        cx.require(&ASYNC_PROXY_HELPER);
        cx.line("fence_async_proxy();");
    }),
    cost: |_| Cost::issue(1),
    example: async_proxy,
};

static ASYNC_PROXY_HELPER: Helper = Helper {
    name: "fence_async_proxy",
    text: "\
__device__ __forceinline__ void fence_async_proxy() { asm volatile(\"fence.proxy.async.shared::cta;\" ::: \"memory\"); }",
};

/// Makes the mbarriers that this thread has initialised visible to bulk copies. Other threads use them after a barrier.
#[track_caller]
pub fn mbarrier_init() {
    emit_stmt(&MBARRIER_INIT, &[], Attrs::none());
}

/// Orders this thread's ordinary accesses of shared memory, and those that it has seen, before accesses by bulk copies
/// and by tensor cores that read shared memory: what is stored through registers and then read by one of these needs it,
/// in the thread that stored, before the barrier between the two.
#[track_caller]
pub fn async_proxy() {
    emit_stmt(&ASYNC_PROXY, &[], Attrs::none());
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    #[test]
    fn examples() {
        super::super::example::check(
            &super::FAMILY,
            expect![[r#"
                fence.mbarrier_init
                  fence_mbarrier_init();
                fence.async_proxy
                  fence_async_proxy();
            "#]],
        );
    }
}
