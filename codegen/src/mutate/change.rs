//! Edits of a kernel, each at one instruction.

use crate::dtype::Dtype;
use crate::ir::{Attr, Attrs, Block, Inst, Kernel, Origin, Path, Type, Value, ValueId};
use crate::ops::{OpDef, arith, cast, compare, float, global};

/// One edit of one instruction.
pub(super) enum Change {
    /// It is not there.
    Drop,
    /// It comes so many instructions later.
    Later(usize),
    /// It is another operation.
    Replace(&'static OpDef),
    /// Two operands change places.
    Swap(usize, usize),
    /// An operand is not there.
    DropOperand(usize),
    /// Only so many operands are.
    KeepOperands(usize),
    /// An attribute is another.
    Set(&'static str, Attr),
    /// The condition of an `if` holds.
    Always,
    /// The result, of 64 bits, keeps 32.
    Narrow,
    /// The offset of a row is computed in 32 bits.
    NarrowRow,
    /// f32 operands past the largest e4m3 are NaN.
    DropSaturation,
}

impl Change {
    pub fn apply(self, kernel: &mut Kernel, path: &Path) {
        match self {
            Change::Drop => {
                kernel.remove(path);
                return;
            }
            Change::Later(steps) => {
                let Some(inst) = kernel.remove(path) else { return };
                let place = (0..steps).fold(path.clone(), |path, _| path.next());
                kernel.insert(&place, inst);
                return;
            }
            Change::Narrow => return narrow(kernel, path),
            _ => {}
        }
        let mut before = Before { kernel, path: path.clone() };
        let Some(mut inst) = before.kernel.inst(path).cloned() else { return };
        match self {
            Change::Replace(op) => inst.op = op,
            Change::Swap(a, b) => inst.operands.swap(a, b),
            Change::DropOperand(i) => drop(inst.operands.remove(i)),
            Change::KeepOperands(count) => inst.operands.truncate(count),
            Change::Set(name, value) => inst.attrs.set(name, value),
            Change::Always => inst.operands[0] = before.constant(Dtype::Bool, Attr::Bool(true)),
            Change::NarrowRow => {
                let [index, stride] = [1, 2].map(|i| before.cast(inst.operands[i], Dtype::I32));
                let offset = before.emit(&arith::MUL, vec![index, stride], Attrs::none(), Dtype::I32);
                inst.op = &global::OFFSET;
                inst.operands = vec![inst.operands[0], offset];
            }
            Change::DropSaturation => {
                let [largest, nan] = [448.0, f64::NAN].map(|value| before.constant(Dtype::F32, Attr::Float(value)));
                for operand in &mut inst.operands {
                    let magnitude = before.emit(&float::ABS, vec![*operand], Attrs::none(), Dtype::F32);
                    let past = before.emit(&compare::GT, vec![magnitude, largest], Attrs::none(), Dtype::Bool);
                    *operand = before.emit(&compare::SELECT, vec![past, nan, *operand], Attrs::none(), Dtype::F32);
                }
            }
            Change::Drop | Change::Later(_) | Change::Narrow => {}
        }
        let Before { kernel, path } = before;
        if let Some(place) = kernel.inst_mut(&path) {
            *place = inst;
        }
    }
}

/// Every later use of the result of the instruction at `path` sees its low 32 bits, with their sign.
fn narrow(kernel: &mut Kernel, path: &Path) {
    let Some(&wide) = kernel.inst(path).and_then(|inst| inst.results.first()) else { return };
    let Type::Scalar(dtype) = kernel.ty(wide) else { return };
    let mut after = Before { kernel, path: path.next() };
    let short = after.cast(wide, Dtype::I32);
    let again = after.cast(short, dtype);
    let makes = |inst: &Inst| inst.results.contains(&short);
    rename(&mut after.kernel.body, wide, again, &makes);
}

fn rename(block: &mut Block, from: ValueId, to: ValueId, except: &dyn Fn(&Inst) -> bool) {
    for inst in &mut block.insts {
        if !except(inst) {
            inst.operands.iter_mut().filter(|operand| **operand == from).for_each(|operand| *operand = to);
        }
        inst.blocks.iter_mut().for_each(|block| rename(block, from, to, except));
    }
}

/// Inserts instructions before a place, which moves on.
struct Before<'k> {
    kernel: &'k mut Kernel,
    path: Path,
}

impl Before<'_> {
    fn emit(&mut self, op: &'static OpDef, operands: Vec<ValueId>, attrs: Attrs, dtype: Dtype) -> ValueId {
        let loc = self.kernel.inst(&self.path).map_or(self.kernel.loc, |inst| inst.loc);
        let result = ValueId(self.kernel.values.len() as u32);
        self.kernel.values.push(Value { ty: Type::Scalar(dtype), origin: Origin::Result, name: None, loc });
        self.kernel.insert(&self.path, Inst { op, operands, attrs, results: vec![result], blocks: Vec::new(), loc });
        self.path = self.path.next();
        result
    }

    fn constant(&mut self, dtype: Dtype, value: Attr) -> ValueId {
        self.emit(&arith::CONST, Vec::new(), Attrs::none().with("type", dtype).with("value", value), dtype)
    }

    fn cast(&mut self, value: ValueId, to: Dtype) -> ValueId {
        if self.kernel.ty(value) == Type::Scalar(to) {
            return value;
        }
        self.emit(&cast::CAST, vec![value], Attrs::none().with("to", to), to)
    }
}
