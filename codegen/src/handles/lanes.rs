use super::{Place, Read, Scalar};

/// Up to 32 values, one a lane of the warp: a small table in one register.
#[derive(Clone, Copy)]
pub struct Lanes<T> {
    pub(crate) value: Scalar<T>,
    pub(crate) len: Scalar<i32>,
}

/// A run of elements after a place, cut to what is there.
#[derive(Clone, Copy)]
pub struct Span<T, A = Read> {
    pub(crate) start: Place<T, A>,
    /// Where the run starts, in elements from the place that it was taken of.
    pub(crate) first: Scalar<i32>,
    /// At most this many.
    pub(crate) capacity: i32,
    pub(crate) len: Scalar<i32>,
}
