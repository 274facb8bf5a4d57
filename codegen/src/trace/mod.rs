//! Tracing: running a kernel's Rust function once over handles records its IR here.
//!
//! Handles are `Copy` names of values; the recording is the thread's. A mistake found while tracing is kept with its
//! source location and the trace goes on, so that one report holds them all.

mod builder;
pub mod control;
mod error;

use std::cell::RefCell;

pub use builder::{Builder, Unroll};
pub use error::{TraceError, TraceErrors};

use crate::ir::{Attrs, Kernel, ValueId};
use crate::loc::Loc;
use crate::ops::OpDef;

/// What `#[kernel]` says of a function beside its body.
#[derive(Clone, Debug)]
pub struct KernelSpec {
    /// The function's name.
    pub name: &'static str,
    /// The function's documentation, without comment markers.
    pub doc: &'static str,
    /// Warps a CTA, 1 to 32.
    pub warps: u32,
    /// CTAs that must fit on an SM at once.
    pub ctas_per_sm: u32,
    /// Where the function stands.
    pub loc: Loc,
}

thread_local! {
    static BUILDER: RefCell<Option<Builder>> = const { RefCell::new(None) };
}

/// Runs `body` once and returns the kernel that it recorded, or every mistake in it.
pub fn trace(spec: KernelSpec, body: impl FnOnce()) -> Result<Kernel, TraceErrors> {
    /// Restores the recording that was in progress, also when `body` panics.
    struct Restore(Option<Builder>);
    impl Drop for Restore {
        fn drop(&mut self) {
            BUILDER.set(self.0.take());
        }
    }

    let restore = Restore(BUILDER.replace(Some(Builder::new(spec))));
    body();
    let builder = BUILDER.take();
    drop(restore);
    builder.expect("the recording lasts as long as the body").finish()
}

/// Runs `f` on the recording in progress.
///
/// # Panics
/// If no kernel is being traced: handles mean nothing outside one.
#[track_caller]
pub fn with<R>(f: impl FnOnce(&mut Builder) -> R) -> R {
    BUILDER.with_borrow_mut(|builder| match builder {
        Some(builder) => f(builder),
        None => panic!("kernel code was called outside a kernel: only a #[kernel] function, or what it calls, may use its handles and operations"),
    })
}

/// Records an instruction that has one result.
#[track_caller]
pub(crate) fn emit(op: &'static OpDef, operands: &[ValueId], attrs: Attrs) -> ValueId {
    let loc = Loc::caller();
    with(|b| b.emit(op, operands, attrs, loc))
}

/// Records an instruction that has no result.
#[track_caller]
pub(crate) fn emit_stmt(op: &'static OpDef, operands: &[ValueId], attrs: Attrs) {
    let loc = Loc::caller();
    with(|b| b.emit_stmt(op, operands, attrs, loc));
}
