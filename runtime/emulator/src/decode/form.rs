//! What a row of the instruction table works with: the modifiers and operands of one instruction, taken one by one.
//! Whatever a row leaves untaken is an error that names it, so no modifier is ever ignored by accident.

use super::{Decoder, Kind, MAX_OPERANDS, Place, Special, Taint, Virtual};
use crate::error::{Error, Result};
use crate::exec::lanes::{Run, Scalar, each_lane};
use crate::parse::ast::{Class, Instruction, Operand};

/// PTX types of operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Ty {
    Pred,
    B8,
    U8,
    S8,
    B16,
    U16,
    S16,
    F16,
    Bf16,
    B32,
    U32,
    S32,
    F32,
    F16x2,
    Bf16x2,
    B64,
    U64,
    S64,
    F64,
    F32x2,
    B128,
}

impl Ty {
    pub fn parse(modifier: &str) -> Option<Self> {
        Some(match modifier {
            "pred" => Self::Pred,
            "b8" => Self::B8,
            "u8" => Self::U8,
            "s8" => Self::S8,
            "b16" => Self::B16,
            "u16" => Self::U16,
            "s16" => Self::S16,
            "f16" => Self::F16,
            "bf16" => Self::Bf16,
            "b32" => Self::B32,
            "u32" => Self::U32,
            "s32" => Self::S32,
            "f32" => Self::F32,
            "f16x2" => Self::F16x2,
            "bf16x2" => Self::Bf16x2,
            "b64" => Self::B64,
            "u64" => Self::U64,
            "s64" => Self::S64,
            "f64" => Self::F64,
            "f32x2" => Self::F32x2,
            "b128" => Self::B128,
            _ => return None,
        })
    }

    pub fn bytes(self) -> u32 {
        match self {
            Self::Pred => 0,
            Self::B8 | Self::U8 | Self::S8 => 1,
            Self::B16 | Self::U16 | Self::S16 | Self::F16 | Self::Bf16 => 2,
            Self::B32 | Self::U32 | Self::S32 | Self::F32 | Self::F16x2 | Self::Bf16x2 => 4,
            Self::B64 | Self::U64 | Self::S64 | Self::F64 | Self::F32x2 => 8,
            Self::B128 => 16,
        }
    }

    pub fn signed(self) -> bool {
        matches!(self, Self::S8 | Self::S16 | Self::S32 | Self::S64)
    }

    pub fn rows(self) -> u8 {
        self.bytes().div_ceil(4) as u8
    }
}

pub(crate) fn class_rows(class: Class) -> u8 {
    match class {
        Class::Pred => 0,
        Class::B16 | Class::B32 => 1,
        Class::B64 => 2,
        Class::B128 => 4,
    }
}

pub(crate) struct Slot {
    pub value: Virtual,
    pub kind: Kind,
    pub negated: bool,
}

/// An instruction with virtual registers.
pub(crate) struct Built {
    pub run: Run,
    pub scalar: Scalar,
    pub imm: i64,
    pub aux: u32,
    pub taint: Taint,
    pub guard: Option<(Virtual, bool)>,
    pub operands: Vec<Slot>,
    /// Where control may go besides the next instruction.
    pub targets: Vec<u32>,
    /// Control never goes on to the next instruction (unless guarded).
    pub ends: bool,
}

/// The register part of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AddressBase {
    /// A 32-bit register.
    Narrow,
    /// A 64-bit register.
    Wide,
    /// A kernel parameter; the offset is from the start of the parameters.
    Param,
}

pub(crate) struct Form<'d, 'm> {
    pub decoder: &'d mut Decoder<'m>,
    pub inst: &'m Instruction,
    modifiers: Vec<(&'m str, bool)>,
    next: usize,
    pub operands: Vec<Slot>,
    pub imm: i64,
    pub aux: u32,
    pub taint: Taint,
    pub targets: Vec<u32>,
    pub ends: bool,
    scalar: Scalar,
}

impl<'d, 'm> Form<'d, 'm> {
    /// `modifiers` is what follows the name of the row in the opcode.
    pub fn new(decoder: &'d mut Decoder<'m>, inst: &'m Instruction, modifiers: &'m str) -> Self {
        let modifiers = modifiers.split('.').filter(|m| !m.is_empty()).map(|m| (m, false)).collect();
        Self {
            decoder,
            inst,
            modifiers,
            next: 0,
            operands: Vec::new(),
            imm: 0,
            aux: 0,
            taint: Taint::Any,
            targets: Vec::new(),
            ends: false,
            scalar: Scalar::None,
        }
    }

    pub fn unsupported<T>(&self, what: impl Into<String>) -> Result<T> {
        Err(Error::Unsupported { line: self.inst.line, opcode: self.inst.opcode.clone(), what: what.into() })
    }

    /// Takes a modifier if it is there.
    pub fn flag(&mut self, name: &str) -> bool {
        let found = self.modifiers.iter_mut().find(|m| m.0 == name && !m.1);
        found.map(|m| m.1 = true).is_some()
    }

    /// Takes modifiers that make no difference here, such as cache hints.
    pub fn ignore(&mut self, names: &[&str]) {
        for m in &mut self.modifiers {
            m.1 |= names.contains(&m.0);
        }
    }

    /// Takes modifiers that begin with `prefix` and make no difference here.
    pub fn ignore_prefix(&mut self, prefix: &str) {
        for m in &mut self.modifiers {
            m.1 |= m.0.starts_with(prefix);
        }
    }

    /// Takes the first of the listed modifiers that is there.
    pub fn choice<T: Copy>(&mut self, choices: &[(&str, T)]) -> Option<T> {
        choices.iter().find(|c| self.flag(c.0)).map(|c| c.1)
    }

    /// Takes the next modifier that is a type.
    pub fn ty(&mut self) -> Result<Ty> {
        for m in &mut self.modifiers {
            if !m.1
                && let Some(ty) = Ty::parse(m.0)
            {
                m.1 = true;
                return Ok(ty);
            }
        }
        self.unsupported("its type is missing")
    }

    /// The next operand, taken.
    pub fn operand(&mut self) -> Result<&'m Operand> {
        let found = self.inst.operands.get(self.next);
        self.next += 1;
        match found {
            Some(o) => Ok(o),
            None => self.unsupported(format!("operand {} is missing", self.next)),
        }
    }

    pub fn remaining(&self) -> usize {
        self.inst.operands.len().saturating_sub(self.next)
    }

    /// The next operand, which must be an integer constant.
    pub fn constant(&mut self) -> Result<i128> {
        match self.operand()? {
            Operand::Int(v) => Ok(*v),
            _ => self.unsupported(format!("operand {} must be a constant", self.next)),
        }
    }

    /// The next operand as a destination.
    pub fn dst(&mut self, ty: Ty) -> Result<()> {
        let operand = self.operand()?;
        self.dst_from(operand, ty)
    }

    /// The next operand as a source.
    pub fn src(&mut self, ty: Ty) -> Result<()> {
        let operand = self.operand()?;
        self.src_from(operand, ty)
    }

    /// The next operand, a vector of destinations.
    pub fn dsts(&mut self, ty: Ty, count: usize) -> Result<()> {
        for operand in self.vector(count)? {
            self.dst_from(operand, ty)?;
        }
        Ok(())
    }

    /// The next operand, a vector of sources.
    pub fn srcs(&mut self, ty: Ty, count: usize) -> Result<()> {
        for operand in self.vector(count)? {
            self.src_from(operand, ty)?;
        }
        Ok(())
    }

    /// The next operand, a vector of registers that are read and written.
    pub fn updated(&mut self, ty: Ty, count: usize) -> Result<()> {
        for operand in self.vector(count)? {
            self.dst_from(operand, ty)?;
            if let Some(slot) = self.operands.last_mut() {
                slot.kind.read = true;
            }
        }
        Ok(())
    }

    fn vector(&mut self, count: usize) -> Result<&'m [Operand]> {
        let items = match self.operand()? {
            Operand::Vector(items) => items.as_slice(),
            single => std::slice::from_ref(single),
        };
        if items.len() == count {
            Ok(items)
        } else {
            self.unsupported(format!("a vector of {count} was expected, {} are given", items.len()))
        }
    }

    pub fn dst_from(&mut self, operand: &Operand, ty: Ty) -> Result<()> {
        let rows = ty.rows();
        let value = match operand {
            Operand::Reg(r) => {
                self.check_rows(class_rows(self.decoder.body.registers[*r as usize]), ty)?;
                Virtual::Register(*r)
            }
            Operand::Sink => Virtual::Sink(rows),
            _ => {
                return self.unsupported(format!("destination {} must be a register", self.operands.len()));
            }
        };
        self.push(value, Kind { rows, written: true, read: false }, false)
    }

    pub fn src_from(&mut self, operand: &Operand, ty: Ty) -> Result<()> {
        let rows = ty.rows();
        let kind = Kind { rows, written: false, read: true };
        let constant = |bits: u64| Virtual::Constant(rows, bits);
        let value = match operand {
            Operand::Reg(r) | Operand::Not(r) => {
                self.check_rows(class_rows(self.decoder.body.registers[*r as usize]), ty)?;
                Virtual::Register(*r)
            }
            Operand::Int(v) if ty == Ty::Pred => {
                if *v == 0 {
                    Virtual::False
                } else {
                    Virtual::True
                }
            }
            Operand::Int(v) => match ty {
                Ty::F32 => constant((*v as f32).to_bits().into()),
                Ty::F64 => constant((*v as f64).to_bits()),
                _ => constant(truncate(*v as u64, ty.bytes())),
            },
            Operand::F32(bits) if ty == Ty::F64 => constant(f64::from(f32::from_bits(*bits)).to_bits()),
            Operand::F32(bits) => constant((*bits).into()),
            Operand::F64(bits) if ty.bytes() <= 4 => constant((f64::from_bits(*bits) as f32).to_bits().into()),
            Operand::F64(bits) => constant(*bits),
            Operand::Special(name) => match Special::parse(name) {
                Some(special) => Virtual::Special(special),
                None => {
                    return self.unsupported(format!("special register {name} is not supported"));
                }
            },
            Operand::Symbol(name, offset) => {
                let address = self.place(name)?.address().wrapping_add_signed(*offset);
                constant(truncate(address, ty.bytes()))
            }
            _ => {
                return self.unsupported(format!("operand {} must be a register or a constant", self.next));
            }
        };
        let negated = matches!(operand, Operand::Not(_));
        if negated && ty != Ty::Pred {
            return self.unsupported("only a predicate can be negated");
        }
        self.push(value, kind, negated)
    }

    pub fn place(&self, name: &str) -> Result<Place> {
        match self.decoder.places.get(name) {
            Some(place) => Ok(*place),
            None => self.unsupported(format!("`{}` is not declared", name.split('@').next().unwrap_or(name))),
        }
    }

    /// The next operand, an address: its register becomes a source, its offset the immediate.
    pub fn address(&mut self) -> Result<AddressBase> {
        let operand = self.operand()?;
        self.address_from(operand)
    }

    /// [`Form::address`] of an operand that has been taken.
    pub fn address_from(&mut self, operand: &Operand) -> Result<AddressBase> {
        let Operand::Address(base, offset) = operand else {
            return self.unsupported("an address `[register + offset]` was expected");
        };
        self.imm = *offset;
        match &**base {
            Operand::Reg(r) => {
                let narrow = class_rows(self.decoder.body.registers[*r as usize]) == 1;
                self.src_from(base, if narrow { Ty::U32 } else { Ty::U64 })?;
                Ok(if narrow { AddressBase::Narrow } else { AddressBase::Wide })
            }
            Operand::Int(v) => {
                self.src_from(&Operand::Int(*v), Ty::U64)?;
                Ok(AddressBase::Wide)
            }
            Operand::Symbol(name, inner) => {
                let place = self.place(name)?;
                if let Place::Param(at) = place {
                    self.imm = i64::from(at) + inner;
                    self.src_from(&Operand::Int(0), Ty::U64)?;
                    return Ok(AddressBase::Param);
                }
                self.imm = *inner;
                self.src_from(&Operand::Int(place.address().into()), Ty::U64)?;
                Ok(AddressBase::Wide)
            }
            _ => self.unsupported("an address `[register + offset]` was expected"),
        }
    }

    fn check_rows(&self, rows: u8, ty: Ty) -> Result<()> {
        if rows == ty.rows() {
            Ok(())
        } else {
            self.unsupported(format!("operand {} is a register of another width than the type", self.next))
        }
    }

    pub fn push(&mut self, value: Virtual, kind: Kind, negated: bool) -> Result<()> {
        if self.operands.len() == MAX_OPERANDS {
            return self.unsupported(format!("more than {MAX_OPERANDS} registers"));
        }
        self.operands.push(Slot { value, kind, negated });
        Ok(())
    }

    /// Rows of the register in `operand`, or of `ty` when it is a constant or `_`: loads and stores accept wider registers.
    pub fn register_rows(&self, operand: &Operand, ty: Ty) -> u8 {
        match operand {
            Operand::Reg(r) => class_rows(self.decoder.body.registers[*r as usize]),
            _ => ty.rows(),
        }
    }

    /// The instruction computes this for each lane.
    pub fn lane_by_lane(&mut self, scalar: Scalar) -> Run {
        self.scalar = scalar;
        each_lane
    }

    /// Ends the decoding.
    pub fn done(self, run: Run) -> Result<Built> {
        let left: Vec<&str> = self.modifiers.iter().filter(|m| !m.1).map(|m| m.0).collect();
        if !left.is_empty() {
            return self.unsupported(format!("modifier .{} is not supported", left.join(", .")));
        }
        if self.next < self.inst.operands.len() {
            return self.unsupported(format!(
                "{} operands are given, {} were expected",
                self.inst.operands.len(),
                self.next
            ));
        }
        let guard = self.inst.guard.map(|(r, negated)| (Virtual::Register(r), negated));
        if let Some((Virtual::Register(r), _)) = guard
            && self.decoder.body.registers[r as usize] != Class::Pred
        {
            return self.unsupported("the guard is not a predicate");
        }
        Ok(Built {
            run,
            scalar: self.scalar,
            imm: self.imm,
            aux: self.aux,
            taint: self.taint,
            guard,
            operands: self.operands,
            targets: self.targets,
            ends: self.ends,
        })
    }
}

fn truncate(value: u64, bytes: u32) -> u64 {
    if bytes >= 8 { value } else { value & ((1 << (8 * bytes)) - 1) }
}

/// Whether an operand names a variable.
pub(crate) fn mentions(operand: &Operand, variable: &str) -> bool {
    match operand {
        Operand::Symbol(name, _) => name == variable,
        Operand::Address(base, _) => mentions(base, variable),
        Operand::Tensor(base, coordinates) => {
            mentions(base, variable) || coordinates.iter().any(|o| mentions(o, variable))
        }
        Operand::Vector(items) => items.iter().any(|o| mentions(o, variable)),
        _ => false,
    }
}
