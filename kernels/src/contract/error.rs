use lathe_codegen::dtype::Dtype;

/// Why a call is refused before anything is launched.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ContractError {
    /// An argument has another element type.
    #[error("`{arg}` has dtype {got}, accepted: {accepted}")]
    Dtype {
        /// The argument.
        arg: &'static str,
        /// Its element type.
        got: Dtype,
        /// The accepted types.
        accepted: &'static str,
    },
    /// An argument has another number of dimensions, or a dimension that disagrees with the other arguments.
    #[error("`{arg}` has shape {got:?}, accepted: {accepted}")]
    Shape {
        /// The argument.
        arg: &'static str,
        /// Its shape.
        got: Vec<u64>,
        /// What its shape must be, with the numbers that the other arguments fix.
        accepted: String,
    },
    /// A size that no kernel is built for.
    #[error("{what} of `{arg}` is {got}, supported: {supported}")]
    Unsupported {
        /// The argument the size was read from.
        arg: &'static str,
        /// Which size.
        what: &'static str,
        /// Its value.
        got: u64,
        /// The supported values.
        supported: &'static str,
    },
    /// A stride that the kernel cannot follow.
    #[error("`{arg}`: the stride of {what} is {got} elements ({bytes} bytes), accepted: {accepted}")]
    Stride {
        /// The argument.
        arg: &'static str,
        /// What the stride steps over: `page`, `row`, ...
        what: &'static str,
        /// The stride in elements.
        got: i64,
        /// The stride in bytes.
        bytes: i128,
        /// What it must be.
        accepted: String,
    },
    /// An address that the kernel's vector accesses cannot use.
    #[error("`{arg}` begins at an address that is {got} modulo {alignment}; align it to {alignment} bytes")]
    Misaligned {
        /// The argument.
        arg: &'static str,
        /// The required alignment in bytes.
        alignment: u64,
        /// The address modulo the alignment.
        got: u64,
    },
    /// The memory behind an argument ends before its shape and strides do.
    #[error("`{arg}` is backed by {got} bytes, but its shape and strides reach {needed}")]
    TooSmall {
        /// The argument.
        arg: &'static str,
        /// Bytes behind it.
        got: u64,
        /// Bytes its last element ends at.
        needed: i128,
    },
    /// A context length outside what the other arguments allow.
    #[error("`context_lens[{row}]` is {got}, accepted: 0..={most} ({reason})")]
    Length {
        /// The row, `b * next_n + j`.
        row: usize,
        /// The length.
        got: i64,
        /// The largest length allowed.
        most: u64,
        /// What limits it.
        reason: &'static str,
    },
    /// A block-table entry that a row of this length would follow outside the pool.
    #[error("`block_table[{request}][{entry}]` is {got}, accepted: 0..{pages} (the pages of `{pool}`)")]
    Page {
        /// The request.
        request: usize,
        /// The entry.
        entry: usize,
        /// The page id.
        got: i32,
        /// Pages in the pool.
        pages: u64,
        /// The pool's argument name.
        pool: &'static str,
    },
    /// A slot past the end of the pool.
    #[error("`{arg}[{row}]` is {got}, accepted: below {slots} (the slots of `{pool}`), or negative to store nothing")]
    Slot {
        /// The argument.
        arg: &'static str,
        /// The row.
        row: usize,
        /// The slot.
        got: i64,
        /// Slots in the pool.
        slots: u64,
        /// The pool's argument name.
        pool: &'static str,
    },
    /// Two rows store to one slot outside the dummy page 0: which wins is a race.
    #[error("`{arg}[{first}]` and `{arg}[{second}]` are both slot {slot}; only page 0 (slots 0..64) may be hit twice")]
    DuplicateSlot {
        /// The argument.
        arg: &'static str,
        /// The earlier row.
        first: usize,
        /// The later row.
        second: usize,
        /// The slot.
        slot: i64,
    },
    /// A scalar argument outside its range.
    #[error("`{arg}` is {got}, accepted: {accepted}")]
    Scalar {
        /// The argument.
        arg: &'static str,
        /// Its value.
        got: i64,
        /// What it must be.
        accepted: String,
    },
}
