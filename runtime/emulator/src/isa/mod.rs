//! The instruction table. A row is an opcode: its name, what forms of it run, and the function that decodes them. The rows stand
//! with their families, each beside the code that executes it.

mod atomics;
mod barrier;
mod bits;
mod compare;
mod control;
mod convert;
mod copies;
mod float;
mod half_float;
mod integer;
mod matrix;
mod mbarrier;
mod memory;
mod mma;
mod moves;
pub(crate) mod number;
mod tensor;
mod warp;
pub(crate) mod wgmma;

use crate::decode::{Decoder, Form};
use crate::decode::{FormBuilt, Taint};
use crate::error::{Error, Result};
use crate::exec::lanes::{Run, Scalar};
use crate::parse::ast::Instruction;

/// One opcode.
pub(crate) struct Row {
    /// The fixed beginning of the opcode, such as `add` or `cp.async.wait_group`.
    pub name: &'static str,
    /// The forms that run, for the documentation.
    pub forms: &'static str,
    decode: fn(&mut Form<'_, '_>) -> Result<Run>,
}

const fn row(name: &'static str, forms: &'static str, decode: fn(&mut Form<'_, '_>) -> Result<Run>) -> Row {
    Row { name, forms, decode }
}

const FAMILIES: [&[Row]; 17] = [
    integer::ROWS,
    bits::ROWS,
    float::ROWS,
    convert::ROWS,
    compare::ROWS,
    moves::ROWS,
    memory::ROWS,
    atomics::ROWS,
    control::ROWS,
    warp::ROWS,
    barrier::ROWS,
    matrix::ROWS,
    mma::ROWS,
    wgmma::ROWS,
    copies::ROWS,
    tensor::ROWS,
    mbarrier::ROWS,
];

/// An opcode that the emulator executes: its name and the forms of it that run.
pub fn supported_opcodes() -> impl Iterator<Item = (&'static str, &'static str)> {
    FAMILIES.iter().copied().flatten().map(|row| (row.name, row.forms))
}

/// The row with the longest name that the opcode begins with.
fn find(opcode: &str) -> Option<&'static Row> {
    let begins =
        |row: &&Row| opcode.strip_prefix(row.name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    FAMILIES.iter().copied().flatten().filter(begins).max_by_key(|row| row.name.len())
}

/// Decodes one instruction.
pub(crate) fn decode<'m>(decoder: &mut Decoder<'m>, inst: &'m Instruction) -> Result<FormBuilt> {
    let Some(row) = find(&inst.opcode) else {
        return Err(Error::UnknownOpcode { line: inst.line, opcode: inst.opcode.clone() });
    };
    let mut form = Form::new(decoder, inst, &inst.opcode[row.name.len()..]);
    let run = (row.decode)(&mut form)?;
    form.done(run)
}

/// What a kernel that falls off its end executes.
pub(crate) fn implicit_return() -> FormBuilt {
    FormBuilt {
        run: control::exit_lanes,
        scalar: Scalar::None,
        imm: 0,
        aux: 0,
        taint: Taint::Own,
        guard: None,
        operands: Vec::new(),
        targets: Vec::new(),
        ends: true,
    }
}
