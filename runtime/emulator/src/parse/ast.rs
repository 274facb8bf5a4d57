//! What the parser produces: names resolved to registers and labels, opcodes still text.

use serde::{Deserialize, Serialize};

/// A place in the CUDA text, as the PTX's `.loc` directives give it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SourceLocation {
    /// File of the CUDA text.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
    /// Column as the compiler counts it.
    pub column: u32,
}

/// One `.loc`, with the call that it was inlined at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Loc {
    pub file: u32,
    pub line: u32,
    pub column: u32,
    /// Index of the caller's `Loc`.
    pub inlined_at: Option<u32>,
}

/// Register class, by width; PTX types of the same width share registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Class {
    Pred,
    B16,
    B32,
    B64,
    B128,
}

/// Index into [`Body::registers`].
pub(crate) type RegId = u32;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Operand {
    Reg(RegId),
    /// `!%p`
    Not(RegId),
    /// `%tid.x` and its kind.
    Special(String),
    Int(i128),
    F32(u32),
    F64(u64),
    /// A variable, parameter or label, with a byte offset (0 for a label).
    Symbol(String, i64),
    /// `[base + offset]`
    Address(Box<Operand>, i64),
    /// `[base, {a, b}]`: a tensor map and coordinates.
    Tensor(Box<Operand>, Vec<Operand>),
    /// Other bracketed lists: recognised so that they can be refused by name.
    AddressList,
    Vector(Vec<Operand>),
    /// `%r1|%p1`
    Pair(Box<Operand>, Box<Operand>),
    /// `_`
    Sink,
}

#[derive(Debug, Clone)]
pub(crate) struct Instruction {
    /// Guard register and whether it is negated.
    pub guard: Option<(RegId, bool)>,
    pub opcode: String,
    pub operands: Vec<Operand>,
    pub line: u32,
    pub loc: Option<u32>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Body {
    pub registers: Vec<Class>,
    pub instructions: Vec<Instruction>,
    /// Label (unique within the body) to instruction index.
    pub labels: std::collections::HashMap<String, u32>,
    pub shared: Vec<Variable>,
    pub local: Vec<Variable>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Variable {
    pub name: String,
    pub align: u32,
    /// 0 for `.extern .shared x[]`.
    pub size: u64,
    pub init: Vec<u8>,
    /// The element's type as written, such as `.u64`.
    pub ty: String,
}

/// A kernel parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Param {
    /// Name in the PTX.
    pub name: String,
    /// Type as written, such as `.u64`; of an array, such as a struct passed by value, its elements' type.
    pub ty: String,
    /// Bytes.
    pub size: usize,
    /// Alignment in bytes.
    pub align: usize,
}

#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub name: String,
    pub params: Vec<Param>,
    /// `.reqntid`, then `.maxntid`.
    pub required_block: Option<[u32; 3]>,
    pub max_block: Option<u32>,
    pub body: Body,
}
