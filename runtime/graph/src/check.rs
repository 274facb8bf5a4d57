//! The checker: what could go wrong in a pool, in any order that its edges allow.
//!
//! Two accesses **conflict** if they overlap in bytes, one of them writes, and happens-before orders
//! neither. A pool without conflicts gives the result of the record order under every schedule. What
//! shares bytes is known only when buffers are placed, so a check without a placement answers for order
//! and lifetimes (E1, E3, E4, E8, E9, E10), and a check of any placement, a planner's or a framework
//! allocator's, answers for shared bytes too (E2, E5, E6, E7).

mod conflict;
mod definition;
mod harm;
mod invariance;
mod lanes;
mod outside;
mod path;
mod pointer;
mod race;
mod sharing;

pub use conflict::{Conflict, for_each_conflict};
pub use invariance::{Layout, invariance};
pub(crate) use pointer::AddressMap;

use crate::finding::Report;
use crate::model::{EdgeKind, ModelError, Placement, Pool, Uses};
use crate::order::Order;
use harm::{Futures, Seen};
use path::CriticalPath;
use std::cell::OnceCell;

/// Checks `pool`, and the bytes that buffers share if `placement` says where they lie.
///
/// # Errors
/// [`ModelError`] if the pool does not pass [`Pool::validate`].
pub fn check(pool: &Pool, placement: Option<&Placement>) -> Result<Report, ModelError> {
    let order = Order::of(pool)?;
    let nowhere = Placement::empty(pool);
    let has_weak_edges = pool.edges().iter().any(|e| e.kind == EdgeKind::Programmatic);
    let (placement, uses) = (placement.unwrap_or(&nowhere), pool.uses());
    let context = Context {
        pool,
        order: &order,
        placement,
        path: CriticalPath::of(pool, &order),
        observed: OnceCell::new(),
        futures: Futures::default(),
        uses,
        if_all_full: has_weak_edges.then(|| Order::if_all_full(pool)),
    };
    let mut findings = Vec::new();
    race::check(&context, &mut findings);
    sharing::check(&context, &mut findings);
    definition::check(&context, &mut findings);
    outside::check(&context, &mut findings);
    lanes::check(&context, &mut findings);
    pointer::check(&context, &mut findings);
    findings.sort_by_key(|f| (f.code, f.parties.first().and_then(|p| p.node)));
    Ok(Report { findings, order })
}

/// What every rule looks at.
struct Context<'a> {
    pool: &'a Pool,
    order: &'a Order,
    placement: &'a Placement,
    uses: Uses,
    path: CriticalPath,
    /// Buffers that somebody looks at after a replay; asked for by findings only.
    observed: OnceCell<Vec<Seen>>,
    futures: Futures,
    /// The order as it would be with full edges only, where some are programmatic.
    if_all_full: Option<Order>,
}
