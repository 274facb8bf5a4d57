//! What frameworks do today: a model of the caching allocator behind stream capture, faithful in what makes it unsafe.
//!
//! It knows streams, not graphs. A block whose last reference the *host* drops is free at once for the next allocation
//! **on the same stream**, whatever other streams were recorded to do with it. [`Op::RecordStream`] puts that off: a
//! block that another stream is known to use stays away until the capture ends.
//!
//! Sizes are rounded to 512 bytes. Up to 1 MiB come from the small pool, cut from segments of 2 MiB; larger ones from
//! the large pool, cut from segments of 20 MiB or, from 10 MiB on, of their own size rounded to 2 MiB. A request takes
//! the smallest free block that is large enough, the lowest of equals; what is left over is split off if it is at least
//! 512 bytes (small) or more than 1 MiB (large); neighbours that are both free join again.

use crate::model::{BufferId, Lifetime, Placement, Pool, StreamId};
use std::collections::HashMap;

const ROUND: u64 = 512;
/// The largest request of the small pool, and what a split in the large pool must leave over.
const SMALL: u64 = 1 << 20;
const SMALL_SEGMENT: u64 = 2 << 20;
const LARGE_SEGMENT: u64 = 20 << 20;
/// From here on a request gets a segment of its own.
const OWN_SEGMENT: u64 = 10 << 20;
const SEGMENT_ROUND: u64 = 2 << 20;

/// What the host does, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Allocates the buffer on a stream.
    Alloc(BufferId, StreamId),
    /// Drops the last reference to it.
    Drop(BufferId),
    /// Tells the allocator that another stream uses it too.
    RecordStream(BufferId, StreamId),
}

/// A sequence that no host program can make.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllocError {
    /// The operation names a buffer that is not allocated at that point.
    #[error("operation {index} uses `{buffer}`, which is not allocated there: allocate it before, and drop it once")]
    NotAllocated {
        /// Position of the operation.
        index: usize,
        /// The buffer.
        buffer: String,
    },
    /// A buffer is allocated a second time; its bytes could not be told apart.
    #[error("operation {index} allocates `{buffer}` again: give each allocation a buffer of its own")]
    AllocatedTwice {
        /// Position of the operation.
        index: usize,
        /// The buffer.
        buffer: String,
    },
}

/// What the allocator did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// An address for each buffer that was allocated.
    pub placement: Placement,
    /// Bytes of all segments.
    pub reserved: u64,
    /// The highest number of bytes in blocks not free.
    pub peak: u64,
}

/// Replays `ops` on an allocator without segments whose first segment will lie at `base`.
///
/// # Errors
/// [`AllocError`] if a buffer is used before it is allocated or after it is dropped, or allocated twice.
pub fn allocate(pool: &Pool, ops: &[Op], base: u64) -> Result<Allocation, AllocError> {
    let mut allocator = CachingAllocator::new(base);
    let mut placement = Placement::given(pool);
    let mut blocks: HashMap<BufferId, Option<Handle>> = HashMap::new();
    for (index, &op) in ops.iter().enumerate() {
        let missing = |id: BufferId| AllocError::NotAllocated { index, buffer: pool.buffer(id).name.clone() };
        match op {
            Op::Alloc(id, stream) => {
                let buffer = pool.buffer(id);
                if blocks.contains_key(&id) {
                    return Err(AllocError::AllocatedTwice { index, buffer: buffer.name.clone() });
                }
                let block = allocator.alloc(buffer.size, stream);
                placement.set(id, block.address);
                blocks.insert(id, Some(block));
            }
            Op::Drop(id) => {
                let block = blocks.get_mut(&id).and_then(Option::take).ok_or_else(|| missing(id))?;
                allocator.drop_last_reference(block);
            }
            Op::RecordStream(id, stream) => {
                let block = blocks.get(&id).copied().flatten().ok_or_else(|| missing(id))?;
                allocator.record_stream(block, stream);
            }
        }
    }
    Ok(Allocation { placement, reserved: allocator.reserved, peak: allocator.peak })
}

/// What a framework's host code does while it records `pool`: it allocates each transient right before its first use, on
/// that use's stream, and drops it right after recording its last; every other buffer is allocated before all and kept.
pub fn as_recorded(pool: &Pool) -> Vec<Op> {
    let uses = pool.uses();
    let mut first: Vec<Vec<BufferId>> = vec![Vec::new(); pool.nodes().len()];
    let mut last = first.clone();
    let mut ops = Vec::new();
    for id in pool.buffer_ids().filter(|id| pool.buffer(*id).address.is_none()) {
        let transient = matches!(pool.buffer(id).lifetime, Lifetime::Transient { .. });
        match (transient, uses.of(id)) {
            (true, [begin, .., end]) => {
                first[begin.0.index()].push(id);
                last[end.0.index()].push(id);
            }
            (true, [only]) => {
                first[only.0.index()].push(id);
                last[only.0.index()].push(id);
            }
            (true, []) => {}
            (false, used) => {
                let stream = pool.buffer(id).stream.or(used.first().map(|(node, _)| pool.node(*node).stream));
                ops.push(Op::Alloc(id, stream.unwrap_or(StreamId(0))));
            }
        }
    }
    for (index, node) in pool.nodes().iter().enumerate() {
        let stream = |id: BufferId| pool.buffer(id).stream.unwrap_or(node.stream);
        ops.extend(first[index].iter().map(|&id| Op::Alloc(id, stream(id))));
        ops.extend(last[index].iter().map(|&id| Op::Drop(id)));
    }
    ops
}

/// A block handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Handle {
    segment: usize,
    address: u64,
}

/// One range of a segment.
#[derive(Clone, Debug)]
struct Block {
    address: u64,
    size: u64,
    state: State,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Free,
    Used {
        /// Another stream was recorded to use it.
        recorded: bool,
    },
    /// Dropped, but not free before the capture ends.
    Held,
}

/// Memory obtained from the driver at once; serves one stream and one pool.
struct Segment {
    stream: StreamId,
    small: bool,
    /// By address, without gaps.
    blocks: Vec<Block>,
}

struct CachingAllocator {
    segments: Vec<Segment>,
    next: u64,
    reserved: u64,
    in_use: u64,
    peak: u64,
}

impl CachingAllocator {
    fn new(base: u64) -> Self {
        Self { segments: Vec::new(), next: base.next_multiple_of(SEGMENT_ROUND), reserved: 0, in_use: 0, peak: 0 }
    }

    fn alloc(&mut self, bytes: u64, stream: StreamId) -> Handle {
        let size = bytes.max(1).next_multiple_of(ROUND);
        let small = size <= SMALL;
        let (segment, at) = self.best_fit(size, small, stream).unwrap_or_else(|| self.grow(size, small, stream));
        let blocks = &mut self.segments[segment].blocks;
        let rest = blocks[at].size - size;
        if if small { rest >= ROUND } else { rest > SMALL } {
            let address = blocks[at].address + size;
            blocks[at].size = size;
            blocks.insert(at + 1, Block { address, size: rest, state: State::Free });
        }
        blocks[at].state = State::Used { recorded: false };
        self.in_use += blocks[at].size;
        self.peak = self.peak.max(self.in_use);
        Handle { segment, address: blocks[at].address }
    }

    fn best_fit(&self, size: u64, small: bool, stream: StreamId) -> Option<(usize, usize)> {
        let serves = |(_, segment): &(usize, &Segment)| segment.stream == stream && segment.small == small;
        let free = self.segments.iter().enumerate().filter(serves).flat_map(|(s, segment)| {
            let fits = move |(_, block): &(usize, &Block)| block.state == State::Free && block.size >= size;
            segment.blocks.iter().enumerate().filter(fits).map(move |(b, block)| (block.size, block.address, s, b))
        });
        free.min().map(|(_, _, segment, block)| (segment, block))
    }

    fn grow(&mut self, size: u64, small: bool, stream: StreamId) -> (usize, usize) {
        let bytes = match size {
            _ if small => SMALL_SEGMENT,
            size if size < OWN_SEGMENT => LARGE_SEGMENT,
            size => size.next_multiple_of(SEGMENT_ROUND),
        };
        let blocks = vec![Block { address: self.next, size: bytes, state: State::Free }];
        self.segments.push(Segment { stream, small, blocks });
        self.next += bytes;
        self.reserved += bytes;
        (self.segments.len() - 1, 0)
    }

    fn find(&mut self, handle: Handle) -> (&mut Vec<Block>, usize) {
        let blocks = &mut self.segments[handle.segment].blocks;
        let at = blocks.partition_point(|block| block.address < handle.address);
        (blocks, at)
    }

    fn record_stream(&mut self, handle: Handle, stream: StreamId) {
        let other = self.segments[handle.segment].stream != stream;
        let (blocks, at) = self.find(handle);
        if other {
            blocks[at].state = State::Used { recorded: true };
        }
    }

    fn drop_last_reference(&mut self, handle: Handle) {
        let (blocks, at) = self.find(handle);
        if blocks[at].state == (State::Used { recorded: true }) {
            blocks[at].state = State::Held;
            return;
        }
        let size = blocks[at].size;
        blocks[at].state = State::Free;
        if blocks.get(at + 1).is_some_and(|next| next.state == State::Free) {
            blocks[at].size += blocks.remove(at + 1).size;
        }
        if at > 0 && blocks[at - 1].state == State::Free {
            blocks[at - 1].size += blocks.remove(at).size;
        }
        self.in_use -= size;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const M: StreamId = StreamId(0);
    const A: StreamId = StreamId(1);
    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;

    fn fresh() -> CachingAllocator {
        CachingAllocator::new(0)
    }

    #[test]
    fn a_dropped_block_goes_to_the_next_request_of_the_same_stream_only() {
        let mut allocator = fresh();
        let first = allocator.alloc(4 * KIB, M);
        allocator.drop_last_reference(first);
        assert_ne!(allocator.alloc(4 * KIB, A).address, first.address);
        assert_eq!(allocator.alloc(4 * KIB, M).address, first.address);
    }

    #[test]
    fn record_stream_keeps_a_block_away_until_the_end() {
        let mut allocator = fresh();
        let [own, other] = [allocator.alloc(KIB, M), allocator.alloc(KIB, M)];
        allocator.record_stream(own, M);
        allocator.record_stream(other, A);
        allocator.drop_last_reference(own);
        allocator.drop_last_reference(other);
        let again = [allocator.alloc(KIB, M).address, allocator.alloc(KIB, M).address];
        assert!(again.contains(&own.address) && !again.contains(&other.address));
    }

    #[test]
    fn sizes_decide_the_pool_and_so_the_neighbour() {
        let mut allocator = fresh();
        let small = allocator.alloc(MIB, M);
        assert_eq!(allocator.reserved, 2 * MIB);
        let large = allocator.alloc(MIB + 1, M);
        assert_eq!(allocator.reserved, 22 * MIB);
        allocator.drop_last_reference(small);
        allocator.drop_last_reference(large);
        // One more byte than a MiB never meets a block of the small pool.
        assert_eq!(allocator.alloc(MIB + 1, M).address, large.address);
        assert_eq!(allocator.alloc(KIB, M).address, small.address);
        allocator.alloc(10 * MIB, M);
        assert_eq!(allocator.reserved, 22 * MIB, "10 MiB still fit in the 20 MiB segment");
        allocator.alloc(11 * MIB, M);
        assert_eq!(allocator.reserved, 34 * MIB, "and 11 MiB get a segment of their own size");
    }

    #[test]
    fn rounding_to_512_and_splitting() {
        let mut allocator = fresh();
        let [a, b] = [allocator.alloc(1, M), allocator.alloc(513, M)];
        assert_eq!(b.address, a.address + 512);
        assert_eq!(allocator.alloc(1, M).address, b.address + 1024);
        // A large block is not split when that leaves a MiB or less.
        let mut allocator = fresh();
        let whole = allocator.alloc(19 * MIB, M);
        assert_eq!(allocator.in_use, 20 * MIB);
        allocator.drop_last_reference(whole);
        allocator.alloc(19 * MIB - 512, M);
        assert_eq!(allocator.in_use, 19 * MIB - 512);
    }

    #[test]
    fn free_neighbours_join_and_the_best_fit_wins() {
        let mut allocator = fresh();
        let blocks: Vec<Handle> = [512, 2048, 512, 1024, 512].map(|size| allocator.alloc(size, M)).to_vec();
        allocator.drop_last_reference(blocks[1]);
        allocator.drop_last_reference(blocks[3]);
        assert_eq!(allocator.alloc(1024, M).address, blocks[3].address);
        allocator.drop_last_reference(blocks[0]);
        allocator.drop_last_reference(blocks[2]);
        // 512 + 2048 + 512 are one block again.
        assert_eq!(allocator.alloc(3072, M).address, blocks[0].address);
    }
}
