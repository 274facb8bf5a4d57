use std::marker::PhantomData;

use super::{AccessMode, Element, Handle, Read, Scalar};
use crate::ir::{Phase, ValueId};
use crate::loc::Loc;
use crate::trace;

/// A kernel argument: a run of elements in global memory. One CUDA parameter, a pointer.
pub struct Slice<T, A = Read> {
    pointer: ValueId,
    of: PhantomData<(T, A)>,
}

/// A kernel argument: rows of elements in global memory, a run-time number of elements apart. Two CUDA parameters, a
/// pointer and a 64-bit stride in elements.
pub struct Rows<T, A = Read> {
    pointer: ValueId,
    stride: ValueId,
    of: PhantomData<(T, A)>,
}

/// A place in the memory of an argument: an element, and the start of what follows it.
pub struct Place<T, A = Read> {
    pointer: ValueId,
    of: PhantomData<(T, A)>,
}

macro_rules! copy {
    ($($handle:ident)*) => {$(
        impl<T, A> Clone for $handle<T, A> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<T, A> Copy for $handle<T, A> {}
    )*};
}

copy! { Slice Rows Place }

impl<T, A> Slice<T, A> {
    pub(crate) fn of(pointer: ValueId) -> Self {
        Slice { pointer, of: PhantomData }
    }

    /// The first element.
    pub fn start(self) -> Place<T, A> {
        Place::from_id(self.pointer)
    }
}

impl<T, A> Rows<T, A> {
    pub(crate) fn pointer(self) -> ValueId {
        self.pointer
    }

    pub(crate) fn moved_to(self, pointer: ValueId) -> Self {
        Rows { pointer, ..self }
    }

    pub(crate) fn stride(self) -> Scalar<i64> {
        Scalar::from_id(self.stride)
    }
}

impl<T, A> Handle for Place<T, A> {
    fn id(self) -> ValueId {
        self.pointer
    }

    fn from_id(pointer: ValueId) -> Self {
        Place { pointer, of: PhantomData }
    }
}

/// A kernel argument: a tensor in global memory, in the form that the copy engine reads. One CUDA parameter of 128 bytes,
/// which says where the tensor lies, its `RANK` dimensions and strides, and the box that a copy moves.
pub struct TensorMap<T, const RANK: usize, A = Read> {
    id: ValueId,
    of: PhantomData<(T, A)>,
}

impl<T, const RANK: usize, A> Clone for TensorMap<T, RANK, A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, const RANK: usize, A> Copy for TensorMap<T, RANK, A> {}

impl<T, const RANK: usize, A> TensorMap<T, RANK, A> {
    pub(crate) fn id(self) -> ValueId {
        self.id
    }
}

/// What a kernel may take as an argument.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an argument of a kernel",
    note = "arguments are `Slice<T>`, `Rows<T>`, `TensorMap<T, RANK>` and `Scalar<T>`; plain Rust values are comptime parameters"
)]
pub trait Argument: Sized {
    /// Declares the parameter in the kernel being traced.
    fn declare(name: &str, phase: Phase, loc: Loc) -> Self;
}

impl<T: Element, A: AccessMode> Argument for Slice<T, A> {
    fn declare(name: &str, phase: Phase, loc: Loc) -> Self {
        let (pointer, _) = trace::with(|b| b.pointer_param(name, loc, T::DTYPE, 0, A::ACCESS, phase));
        Slice { pointer, of: PhantomData }
    }
}

impl<T: Element, A: AccessMode> Argument for Rows<T, A> {
    fn declare(name: &str, phase: Phase, loc: Loc) -> Self {
        let (pointer, strides) = trace::with(|b| b.pointer_param(name, loc, T::DTYPE, 1, A::ACCESS, phase));
        Rows { pointer, stride: strides[0], of: PhantomData }
    }
}

impl<T: Element> Argument for Scalar<T> {
    fn declare(name: &str, _: Phase, loc: Loc) -> Self {
        Scalar::from_id(trace::with(|b| b.scalar_param(name, loc, T::DTYPE)))
    }
}

impl<T: Element, const RANK: usize, A: AccessMode> Argument for TensorMap<T, RANK, A> {
    fn declare(name: &str, phase: Phase, loc: Loc) -> Self {
        TensorMap { id: trace::with(|b| b.tensor_param(name, loc, T::DTYPE, RANK, A::ACCESS, phase)), of: PhantomData }
    }
}
