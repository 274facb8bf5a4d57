//! The recording of a kernel.

mod blocks;
mod params;
mod short_circuit;
mod tiles;

use std::collections::HashMap;

use self::blocks::{Frame, FrameKind};
use super::{KernelSpec, TraceError, TraceErrors};
use crate::dtype::Dtype;
use crate::ir::{Attr, Attrs, Block, Inst, Kernel, Origin, Type, Value, ValueId};
use crate::loc::Loc;
use crate::ops::{OpDef, Signature, arith, control};

/// Whether the CUDA compiler is told to unroll a loop.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Unroll {
    /// It decides.
    #[default]
    Auto,
    /// `#pragma unroll`.
    Full,
    /// `#pragma unroll 1`.
    Never,
}

/// The recording of a kernel: blocks open from the outermost to the innermost, and the mistakes so far.
#[derive(Debug)]
pub struct Builder {
    kernel: Kernel,
    frames: Vec<Frame>,
    /// Frames opened so far: names each, also closed ones.
    opened: u32,
    /// For each value, the frame that defines it.
    homes: Vec<u32>,
    /// Integers known while tracing.
    literals: HashMap<ValueId, i64>,
    errors: Vec<TraceError>,
}

impl Builder {
    pub(super) fn new(spec: KernelSpec) -> Self {
        let body = Frame { id: 0, block: Block::default(), kind: FrameKind::Body };
        let kernel = Kernel {
            name: spec.name.to_owned(),
            doc: spec.doc.to_owned(),
            warps: spec.warps,
            ctas_per_sm: spec.ctas_per_sm,
            params: Vec::new(),
            tiles: Vec::new(),
            values: Vec::new(),
            body: Block::default(),
            loc: spec.loc,
        };
        let mut builder = Builder {
            kernel,
            frames: vec![body],
            opened: 0,
            homes: Vec::new(),
            literals: HashMap::new(),
            errors: Vec::new(),
        };
        if !(1..=32).contains(&spec.warps) {
            builder.error(spec.loc, format!("a CTA has 1 to 32 warps, not {}", spec.warps), None);
        }
        if spec.ctas_per_sm == 0 {
            builder.error(spec.loc, "`ctas_per_sm` must be at least 1", None);
        }
        builder
    }

    pub(super) fn finish(mut self) -> Result<Kernel, TraceErrors> {
        if self.frames.len() > 1 && self.errors.is_empty() {
            let (_, open) = self.scope();
            self.error(open, "this block is never closed: leave it by its end, not by `break` or `return`", None);
        }
        self.name_tiles();
        self.check_boxes();
        self.check_shared_memory();
        if !self.errors.is_empty() {
            return Err(TraceErrors { kernel: self.kernel.name, errors: self.errors });
        }
        self.kernel.body = self.frames.remove(0).block;
        self.lay_out_shared_memory();
        if !self.kernel.waits() {
            self.declare_early_accesses();
        }
        if let Err(errors) = self.kernel.verify() {
            let errors = errors.into_iter().map(|e| TraceError { message: e.message, loc: e.loc, related: e.related });
            return Err(TraceErrors { kernel: self.kernel.name, errors: errors.collect() });
        }
        Ok(self.kernel)
    }

    /// Records an instruction that has one result, and returns it.
    pub fn emit(&mut self, op: &'static OpDef, operands: &[ValueId], attrs: Attrs, loc: Loc) -> ValueId {
        let results = self.record(op, operands, attrs, Vec::new(), loc);
        match results[..] {
            [result] => result,
            _ => self.value(Type::Error, Origin::Result, loc),
        }
    }

    /// Records an instruction that has no result.
    pub fn emit_stmt(&mut self, op: &'static OpDef, operands: &[ValueId], attrs: Attrs, loc: Loc) {
        self.record(op, operands, attrs, Vec::new(), loc);
    }

    /// A constant.
    pub fn constant(&mut self, dtype: Dtype, value: Attr, loc: Loc) -> ValueId {
        let literal = value.clone();
        let id = self.emit(&arith::CONST, &[], Attrs::none().with("type", dtype).with("value", value), loc);
        if let Attr::Int(literal) = literal {
            self.literals.insert(id, literal);
        }
        id
    }

    /// The integer that `id` is known to be while tracing.
    pub fn literal(&self, id: ValueId) -> Option<i64> {
        self.literals.get(&id).copied()
    }

    fn record(
        &mut self,
        op: &'static OpDef,
        operands: &[ValueId],
        attrs: Attrs,
        blocks: Vec<Block>,
        loc: Loc,
    ) -> Vec<ValueId> {
        let keeps_variables = std::ptr::eq(op, &control::SET);
        let operands: Vec<ValueId> =
            operands.iter().map(|&id| if keeps_variables { id } else { self.read(id, loc) }).collect();
        if !operands.iter().all(|&id| self.check_in_scope(id, loc)) {
            return vec![self.value(Type::Error, Origin::Result, loc)];
        }
        let types: Vec<Type> = operands.iter().map(|&id| self.ty(id)).collect();
        if types.contains(&Type::Error) {
            return vec![self.value(Type::Error, Origin::Result, loc)];
        }
        let signature = Signature {
            operands: &types,
            attrs: &attrs,
            blocks: blocks.len(),
            tiles: &self.kernel.tiles,
            warps: self.kernel.warps,
        };
        match (op.signature)(&signature) {
            Ok(types) => {
                let results: Vec<_> = types.iter().map(|&ty| self.value(ty, Origin::Result, loc)).collect();
                self.push(Inst { op, operands, attrs, results: results.clone(), blocks, loc });
                results
            }
            Err(message) => {
                self.error(loc, message, None);
                vec![self.value(Type::Error, Origin::Result, loc)]
            }
        }
    }

    fn push(&mut self, inst: Inst) {
        self.frame().block.insts.push(inst);
    }

    fn value(&mut self, ty: Type, origin: Origin, loc: Loc) -> ValueId {
        let id = ValueId(self.kernel.values.len() as u32);
        self.kernel.values.push(Value { ty, origin, name: None, loc });
        let home = if matches!(origin, Origin::Param { .. }) { 0 } else { self.frame().id };
        self.homes.push(home);
        id
    }

    /// The type of `id`.
    pub fn ty(&self, id: ValueId) -> Type {
        self.kernel.ty(id)
    }

    /// Warps a CTA.
    pub fn warps(&self) -> u32 {
        self.kernel.warps
    }

    /// How `id` came to be.
    pub fn origin(&self, id: ValueId) -> Origin {
        self.kernel.value(id).origin
    }

    /// Gives `id` the author's name for it, unless it has one.
    pub fn name(&mut self, id: ValueId, name: &str) {
        let value = &mut self.kernel.values[id.index()];
        if value.name.is_none() {
            value.name = Some(name.to_owned());
        }
    }

    /// Declares a mutable variable that starts as `init`.
    pub fn declare_var(&mut self, init: ValueId, loc: Loc) -> ValueId {
        let variable = self.emit(&control::VAR, &[init], Attrs::none(), loc);
        self.kernel.values[variable.index()].origin = Origin::Variable;
        variable
    }

    /// Changes `variable` to `value`, of the same type.
    pub fn assign(&mut self, variable: ValueId, value: ValueId, loc: Loc) {
        if self.origin(variable) != Origin::Variable {
            let declared = self.kernel.value(variable).loc;
            self.error(
                loc,
                "assignment to a value that is not a variable: declare it by `let mut`; a struct of run-time values needs \
                     `#[derive(Traced)]` as well",
                Some((declared, "declared here".to_owned())),
            );
            return;
        }
        let value = self.read(value, loc);
        self.emit_stmt(&control::SET, &[variable, value], Attrs::none(), loc);
    }

    /// The present value of a variable; any other value is itself.
    pub fn read(&mut self, id: ValueId, loc: Loc) -> ValueId {
        if self.origin(id) != Origin::Variable || !self.check_in_scope(id, loc) {
            return id;
        }
        let result = self.value(self.ty(id), Origin::Result, loc);
        self.push(Inst {
            op: &control::GET,
            operands: vec![id],
            attrs: Attrs::none(),
            results: vec![result],
            blocks: Vec::new(),
            loc,
        });
        result
    }

    /// Records a mistake; the trace goes on.
    pub fn error(&mut self, loc: Loc, message: impl Into<String>, related: Option<(Loc, String)>) {
        let error = TraceError { message: message.into(), loc, related };
        if !self.errors.contains(&error) {
            self.errors.push(error);
        }
    }
}
