//! Handles of buffers, and byte ranges of them.

use crate::model::BufferId;
use std::marker::PhantomData;
use std::ops::Range;

/// A buffer with bytes of its own: persistent, input, output or external.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lasting(pub(super) BufferId);

/// A buffer that exists within the closure it was given to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transient<'s>(pub(super) BufferId, pub(super) PhantomData<fn(&'s ()) -> &'s ()>);

/// Bytes of a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice<'s> {
    pub(super) buffer: BufferId,
    /// All bytes if none.
    pub(super) range: Option<Range<u64>>,
    scope: PhantomData<fn(&'s ()) -> &'s ()>,
}

/// What a node can use: a whole buffer or bytes of it.
pub trait Bytes<'s> {
    /// The buffer.
    fn id(&self) -> BufferId;

    /// The bytes.
    fn slice(&self) -> Slice<'s>;

    /// Bytes `range` of these.
    fn bytes(&self, range: Range<u64>) -> Slice<'s> {
        let whole = self.slice();
        let start = whole.range.map_or(0, |r| r.start);
        Slice {
            range: Some(start.saturating_add(range.start)..start.saturating_add(range.end)),
            ..Slice::all(whole.buffer)
        }
    }
}

impl Slice<'_> {
    fn all(buffer: BufferId) -> Self {
        Self { buffer, range: None, scope: PhantomData }
    }
}

impl Bytes<'static> for Lasting {
    fn id(&self) -> BufferId {
        self.0
    }

    fn slice(&self) -> Slice<'static> {
        Slice::all(self.0)
    }
}

impl<'s> Bytes<'s> for Transient<'s> {
    fn id(&self) -> BufferId {
        self.0
    }

    fn slice(&self) -> Slice<'s> {
        Slice::all(self.0)
    }
}

impl<'s> Bytes<'s> for Slice<'s> {
    fn id(&self) -> BufferId {
        self.buffer
    }

    fn slice(&self) -> Slice<'s> {
        self.clone()
    }
}
