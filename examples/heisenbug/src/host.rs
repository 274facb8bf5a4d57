//! Where a framework's caching allocator puts the tensors, for each way in which the host treats the references.

use lathe::graph::allocator::{AllocError, Op, allocate};
use lathe::graph::model::{BufferId, Lifetime, Placement, StreamId};

use crate::layer::{HostStep, Layer};

/// What happens to tensors that the alternate stream uses when their names go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Care {
    /// Nothing: the allocator may give their bytes away at once.
    None,
    /// `tensor.record_stream(alternate)`: they stay away until the capture ends.
    RecordStream,
    /// They are dropped after the main stream has waited for the alternate one.
    DropAfterJoin,
    /// Nothing is ever dropped, so nothing shares bytes.
    Keep,
}

/// The addresses that the allocator gives.
///
/// # Errors
/// [`AllocError`] if the host's steps make no sense.
pub fn addresses(layer: &Layer, care: Care) -> Result<Placement, AllocError> {
    let pool = &layer.pool;
    let stream = |stream| if stream == layer.streams[0] { StreamId(0) } else { StreamId(1) };
    let is_kept = |id: &BufferId| !matches!(pool.buffer(*id).lifetime, Lifetime::Transient { .. });
    let mut ops: Vec<Op> = pool.buffer_ids().filter(is_kept).map(|id| Op::Alloc(id, StreamId(0))).collect();
    let mut forgotten = Vec::new();
    for step in &layer.host {
        match step {
            HostStep::Alloc(id, on) => ops.push(Op::Alloc(*id, stream(*on))),
            HostStep::Drop(id) if care != Care::Keep => ops.push(Op::Drop(*id)),
            HostStep::UsedOnAlternate(ids) if care == Care::RecordStream => {
                let own = ids.iter().filter(|id| !is_kept(id));
                ops.extend(own.map(|&id| Op::RecordStream(id, StreamId(1))));
            }
            HostStep::Forget(ids) => match care {
                Care::None | Care::RecordStream => ops.extend(ids.iter().map(|&id| Op::Drop(id))),
                Care::DropAfterJoin => forgotten.extend(ids),
                Care::Keep => {}
            },
            HostStep::Joined => ops.extend(forgotten.drain(..).map(Op::Drop)),
            HostStep::Drop(_) | HostStep::UsedOnAlternate(_) => {}
        }
    }
    Ok(allocate(pool, &ops, 0)?.placement)
}
