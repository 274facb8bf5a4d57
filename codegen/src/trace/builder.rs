use std::collections::HashMap;

use super::{KernelSpec, TraceError, TraceErrors};
use crate::cuda::Emit;
use crate::dtype::Dtype;
use crate::ir::{
    Access, Attr, Attrs, Block, Inst, Kernel, Origin, Param, ParamKind, Phase, SharedTile, Swizzle, TensorBox, Type,
    Value, ValueId,
};
use crate::loc::Loc;
use crate::ops::{Effect, OpDef, Signature, arith, control, role};
use crate::target::Target;

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

/// A block being recorded.
#[derive(Debug)]
struct Frame {
    id: u32,
    block: Block,
    kind: FrameKind,
}

#[derive(Debug)]
enum FrameKind {
    Body,
    Then { cond: ValueId, loc: Loc },
    Else { cond: ValueId, loc: Loc, then: Block },
    For { bounds: [ValueId; 3], unroll: Unroll, loc: Loc },
    Role { attrs: Attrs, loc: Loc },
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

    /// A kernel that never waits touches all of its memory while earlier kernels may run: it says so.
    fn declare_early_accesses(&mut self) {
        for param in &mut self.kernel.params {
            if let ParamKind::Pointer { phase, .. } | ParamKind::Tensor { phase, .. } = &mut param.kind {
                *phase = Phase::BeforeWait;
            }
        }
    }

    /// Names the tiles after their `let`s.
    fn name_tiles(&mut self) {
        for value in &self.kernel.values {
            if let (Type::Shared { tile, .. }, Some(name)) = (value.ty, &value.name) {
                let tile = &mut self.kernel.tiles[tile.index()];
                if tile.name.is_empty() {
                    tile.name.clone_from(name);
                }
            }
        }
        for (index, tile) in self.kernel.tiles.iter_mut().enumerate() {
            if tile.name.is_empty() {
                tile.name = format!("tile{index}");
            }
        }
    }

    /// Refuses tiles that no target has room for; what one target has room for is known when the kernel is printed.
    fn check_shared_memory(&mut self) {
        let bytes = self.kernel.tiles.iter().fold(0, |sum: u64, tile| sum.saturating_add(tile.declared_bytes()));
        let largest = Target::ALL.into_iter().max_by_key(|target| target.max_shared_per_cta());
        let (Some(target), Some(tile)) = (largest, self.kernel.tiles.iter().max_by_key(|tile| tile.declared_bytes()))
        else {
            return;
        };
        let limit = target.max_shared_per_cta();
        if bytes > limit.into() {
            let tiles: Vec<_> = self.kernel.tiles.iter().map(SharedTile::summary).collect();
            let message = format!(
                "the tiles need {bytes} bytes of shared memory a CTA, and no target has more than {limit} ({target}): \
                 use fewer stages or smaller tiles ({})",
                tiles.join("; ")
            );
            self.error(tile.loc, message, None);
        }
    }

    /// Places the tiles one after the other.
    fn lay_out_shared_memory(&mut self) {
        let mut offset: u32 = 0;
        for tile in &mut self.kernel.tiles {
            // Addresses within a row of a permuted tile differ from its start in the low bits only; where tensor copies
            // and tensor cores permute rows of 128 bytes, they go by the address.
            let alignment = match (tile.swizzle, tile.row_bytes()) {
                (Swizzle::Xor16, 128) => 1024,
                (_, bytes) => bytes.next_power_of_two().clamp(128, 1024),
            };
            tile.offset = offset.next_multiple_of(alignment);
            offset = tile.offset + tile.bytes();
        }
    }

    // Parameters

    /// Declares a pointer parameter; returns the pointer and its run-time strides.
    pub fn pointer_param(
        &mut self,
        name: &str,
        loc: Loc,
        dtype: Dtype,
        strides: usize,
        access: Access,
        phase: Phase,
    ) -> (ValueId, Vec<ValueId>) {
        let index = self.param(name, ParamKind::Pointer { dtype, strides, access, phase }, loc);
        let pointer = self.value(Type::Global(dtype), Origin::Param { index, field: 0 }, loc);
        let long = Type::Scalar(Dtype::I64);
        let strides = (1..=strides).map(|field| self.value(long, Origin::Param { index, field }, loc)).collect();
        (pointer, strides)
    }

    /// Declares a scalar parameter.
    pub fn scalar_param(&mut self, name: &str, loc: Loc, dtype: Dtype) -> ValueId {
        let index = self.param(name, ParamKind::Scalar(dtype), loc);
        self.value(Type::Scalar(dtype), Origin::Param { index, field: 0 }, loc)
    }

    /// Declares a tensor map.
    pub fn tensor_param(&mut self, name: &str, loc: Loc, dtype: Dtype, rank: usize, phase: Phase) -> ValueId {
        if !(1..=5).contains(&rank) {
            self.error(loc, format!("a tensor has 1 to 5 dimensions, not {rank}"), None);
        }
        let rank = rank as u8;
        let index = self.param(name, ParamKind::Tensor { dtype, rank, tensor_box: TensorBox::default(), phase }, loc);
        self.value(Type::TensorMap { dtype, rank }, Origin::Param { index, field: 0 }, loc)
    }

    /// Says what the copies from a tensor map move: the same for all of them.
    pub fn set_box(&mut self, map: ValueId, filled: TensorBox, loc: Loc) {
        let Origin::Param { index, .. } = self.origin(map) else { return };
        let param = &mut self.kernel.params[index];
        let ParamKind::Tensor { tensor_box, .. } = &mut param.kind else { return };
        if *tensor_box == TensorBox::default() {
            *tensor_box = filled;
        } else if *tensor_box != filled {
            let message = format!(
                "`{}` has boxes of {tensor_box}, and this tile is one of {filled}: use a map for each",
                param.name
            );
            let declared = (param.loc, "declared here".to_owned());
            self.error(loc, message, Some(declared));
        }
    }

    /// Every tensor map must be used, since its copies say what its boxes are.
    fn check_boxes(&mut self) {
        for param in self.kernel.params.clone() {
            if matches!(param.kind, ParamKind::Tensor { tensor_box, .. } if tensor_box == TensorBox::default()) {
                let message = format!("no copy uses the tensor map `{}`, so that its box is not known", param.name);
                self.error(param.loc, message, None);
            }
        }
    }

    /// The pointer of the parameter `name`, if it is declared.
    pub fn pointer(&self, name: &str) -> Option<ValueId> {
        let param = self.kernel.params.iter().position(|param| param.name == name)?;
        let origin = Origin::Param { index: param, field: 0 };
        self.kernel.values.iter().position(|value| value.origin == origin).map(|index| ValueId(index as u32))
    }

    fn param(&mut self, name: &str, kind: ParamKind, loc: Loc) -> usize {
        if let Some(first) = self.kernel.params.iter().find(|p| p.name == name).map(|p| p.loc) {
            let message = format!("two parameters are named `{name}`");
            self.error(loc, message, Some((first, "the first is here".to_owned())));
        }
        self.kernel.params.push(Param { name: name.to_owned(), kind, loc });
        self.kernel.params.len() - 1
    }

    // Shared memory

    /// Declares a plain tile that the CTA shares, `rows x cols`, named by the result of `op`.
    pub fn shared_memory(&mut self, op: &'static OpDef, dtype: Dtype, rows: i32, cols: i32, loc: Loc) -> ValueId {
        let (Some(rows), Some(cols)) = (positive(rows), positive(cols)) else {
            self.error(loc, format!("a tile has at least one row and one column, not {rows} x {cols}"), None);
            return self.value(Type::Error, Origin::Result, loc);
        };
        let index = self.kernel.tiles.len() as u16;
        self.kernel.tiles.push(SharedTile {
            name: String::new(),
            dtype,
            rows,
            cols,
            stages: None,
            copies: 1,
            swizzle: Swizzle::None,
            offset: 0,
            loc,
        });
        self.emit(op, &[], Attrs::none().with("tile", u32::from(index)), loc)
    }

    /// Changes the tile that `id` declares, which nothing uses yet.
    pub fn alter_tile(&mut self, id: ValueId, change: impl FnOnce(&mut SharedTile)) {
        if let Type::Shared { tile, .. } = self.ty(id) {
            let record = &mut self.kernel.tiles[tile.index()];
            change(record);
            let staged = record.stages.is_some();
            self.kernel.values[id.index()].ty = Type::Shared { tile, staged };
        }
    }

    /// Refuses an index that is known and outside `0..len`; `what` names the index and what it is an index of.
    pub fn check_index(&mut self, index: ValueId, len: u32, tile: ValueId, what: &str, loc: Loc) {
        let (Some(at), Some(record)) = (self.literal(index), self.tile(tile)) else { return };
        if (0..i64::from(len)).contains(&at) {
            return;
        }
        let SharedTile { dtype, rows, cols, loc: declared, .. } = *record;
        let stages = record.stages.map_or_else(String::new, |n| format!("{n} stages of "));
        let name = self.tile_name(tile).map_or_else(|| "this tile".to_owned(), |name| format!("`{name}`"));
        let message = format!(
            "{what} {at} is outside {name}, {stages}{dtype} [{rows}, {cols}]: its {what}s are 0 to {}",
            len - 1
        );
        self.error(loc, message, Some((declared, "declared here".to_owned())));
    }

    /// The author's name for the tile that `id` is, or is a stage of.
    fn tile_name(&self, id: ValueId) -> Option<&str> {
        let Type::Shared { tile: wanted, .. } = self.ty(id) else { return None };
        let named =
            |value: &&Value| matches!(value.ty, Type::Shared { tile, .. } if tile == wanted) && value.name.is_some();
        self.kernel.values.iter().find(named)?.name.as_deref()
    }

    /// The tile that `id` names.
    pub fn tile(&self, id: ValueId) -> Option<&SharedTile> {
        match self.ty(id) {
            Type::Shared { tile, .. } => self.kernel.tiles.get(tile.index()),
            _ => None,
        }
    }

    // Instructions

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

    fn frame(&mut self) -> &mut Frame {
        self.frames.last_mut().expect("the body's frame stays open")
    }

    /// Refuses a value whose block is closed, in a message that names both places.
    fn check_in_scope(&mut self, id: ValueId, loc: Loc) -> bool {
        let home = self.homes[id.index()];
        if self.frames.iter().any(|frame| frame.id == home) {
            return true;
        }
        let value = self.kernel.value(id);
        let what = value.name.as_ref().map_or_else(|| "this value".to_owned(), |name| format!("`{name}`"));
        let computed = value.loc;
        let message = format!(
            "{what} was computed inside an `if` or `for` that has ended: declare `let mut` before the block and assign to it inside"
        );
        self.error(loc, message, Some((computed, "computed here".to_owned())));
        false
    }

    // Values

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

    // Control flow

    /// The innermost open block: a number of its own, and where its `if` or `for` stands.
    pub fn scope(&self) -> (u32, Loc) {
        let innermost = self.frames.last().expect("the body's frame stays open");
        (innermost.id, innermost.loc(self.kernel.loc))
    }

    /// Opens the block that runs where `cond` holds.
    pub fn begin_if(&mut self, cond: ValueId, loc: Loc) {
        let cond = self.read(cond, loc);
        self.open(FrameKind::Then { cond, loc });
    }

    /// Ends the block of the innermost `if` and opens the one that runs where its condition does not hold.
    pub fn begin_else(&mut self, loc: Loc) {
        match self.close() {
            Some(Frame { block, kind: FrameKind::Then { cond, loc }, .. }) => {
                self.open(FrameKind::Else { cond, loc, then: block });
            }
            other => self.misnested("else", other, loc),
        }
    }

    /// Ends the innermost `if`.
    pub fn end_if(&mut self, loc: Loc) {
        match self.close() {
            Some(Frame { block, kind: FrameKind::Then { cond, loc }, .. }) => {
                self.record(&control::IF, &[cond], Attrs::none(), vec![block], loc);
            }
            Some(Frame { block, kind: FrameKind::Else { cond, loc, then }, .. }) => {
                self.record(&control::IF, &[cond], Attrs::none(), vec![then, block], loc);
            }
            other => self.misnested("end of an `if`", other, loc),
        }
    }

    /// Opens the body of `for index in start..end` by `step`, and returns its index. The three have one integer type;
    /// `step` is positive.
    pub fn begin_for(&mut self, start: ValueId, end: ValueId, step: ValueId, unroll: Unroll, loc: Loc) -> ValueId {
        let bounds = [start, end, step].map(|bound| self.read(bound, loc));
        let ty = self.ty(bounds[0]);
        self.open(FrameKind::For { bounds, unroll, loc });
        let index = self.value(ty, Origin::Index, loc);
        self.frame().block.params.push(index);
        index
    }

    /// Ends the innermost `for`.
    pub fn end_for(&mut self, loc: Loc) {
        match self.close() {
            Some(Frame { block, kind: FrameKind::For { bounds, unroll, loc }, .. }) => {
                let unroll = match unroll {
                    Unroll::Auto => "auto",
                    Unroll::Full => "full",
                    Unroll::Never => "never",
                };
                self.record(&control::FOR, &bounds, Attrs::none().with("unroll", unroll), vec![block], loc);
            }
            other => self.misnested("end of a `for`", other, loc),
        }
    }

    /// Opens the body of a warp role.
    pub fn begin_role(&mut self, attrs: Attrs, loc: Loc) {
        self.open(FrameKind::Role { attrs, loc });
    }

    /// Ends the innermost warp role.
    pub fn end_role(&mut self, loc: Loc) {
        match self.close() {
            Some(Frame { block, kind: FrameKind::Role { attrs, loc }, .. }) => {
                self.record(&role::ROLE, &[], attrs, vec![block], loc);
            }
            other => self.misnested("end of a warp role", other, loc),
        }
    }

    /// Opens the block of the right side of `left && right` (`short` is false) or `left || right` (`short` is true).
    pub fn begin_short_circuit(&mut self, left: ValueId, loc: Loc) -> ValueId {
        let left = self.read(left, loc);
        self.open(FrameKind::Then { cond: left, loc });
        left
    }

    /// Ends the right side: one logical operation if that keeps it from running where it must not, else an `if` around
    /// it.
    pub fn end_short_circuit(&mut self, left: ValueId, right: ValueId, short: bool, loc: Loc) -> ValueId {
        let right = self.read(right, loc);
        let Some(frame) = self.close() else { return left };
        if let Some(guarded) = self.guarded_by_an_operator(&frame.block, right) {
            let inside = frame.id;
            self.absorb(frame);
            let op = if short { &arith::OR } else { &arith::AND };
            let result = self.emit(op, &[left, right], Attrs::none(), loc);
            // A second use would take them out of the expression, and so out from behind the left side.
            guarded.iter().for_each(|id| self.homes[id.index()] = inside);
            return result;
        }
        let result = self.declare_var(left, loc);
        let cond = self.runs_right_side(left, short, loc);
        self.frames.push(frame);
        self.assign(result, right, loc);
        if let Some(frame) = self.close() {
            self.record(&control::IF, &[cond], Attrs::none(), vec![frame.block], loc);
        }
        self.read(result, loc)
    }

    /// Ends a right side that is known while tracing: what it did besides stays inside an `if`.
    pub fn end_comptime_short_circuit(&mut self, left: ValueId, right: bool, short: bool, loc: Loc) -> ValueId {
        let Some(frame) = self.close() else { return left };
        if frame.block.insts.iter().all(|inst| self.runs_anywhere(inst)) {
            self.absorb(frame);
        } else {
            let cond = self.runs_right_side(left, short, loc);
            self.record(&control::IF, &[cond], Attrs::none(), vec![frame.block], loc);
        }
        if right == short { self.constant(Dtype::Bool, Attr::Bool(short), loc) } else { left }
    }

    fn runs_right_side(&mut self, left: ValueId, short: bool, loc: Loc) -> ValueId {
        if short { self.emit(&arith::NOT, &[left], Attrs::none(), loc) } else { left }
    }

    /// Whether what `block` computes for `right` does no harm where the left side forbids it, once `right` is an operand
    /// of C++'s own `&&` or `||`: because it may be computed anywhere, or because it is certain to be written inside
    /// that operand and nowhere else. The latter are returned.
    fn guarded_by_an_operator(&self, block: &Block, right: ValueId) -> Option<Vec<ValueId>> {
        let mut guarded = Vec::new();
        for inst in &block.insts {
            if !self.runs_anywhere(inst) {
                guarded.extend(self.written_inside(block, inst, right)?);
            }
        }
        Some(guarded)
    }

    /// Whether an instruction has a meaning, and none but its results, wherever it stands.
    fn runs_anywhere(&self, inst: &Inst) -> bool {
        inst.op.effects.iter().all(|effect| match (effect, inst.operands.last()) {
            (Effect::ReadVariable, _) => true,
            (Effect::Partial(domain), Some(&last)) => {
                self.ty(last).dtype().is_some_and(|dtype| domain.holds(dtype, self.literal(last)))
            }
            _ => false,
        })
    }

    /// The values from the result of `inst` to `right`, if each is written where the next one is computed: an unnamed
    /// expression with one use.
    fn written_inside<'b>(&self, block: &'b Block, mut inst: &'b Inst, right: ValueId) -> Option<Vec<ValueId>> {
        let mut values = Vec::new();
        loop {
            let [result] = inst.results[..] else { return None };
            let expression = inst.op.is_pure() && matches!(inst.op.emit, Emit::Expr(_));
            if !expression || self.kernel.value(result).name.is_some() {
                return None;
            }
            values.push(result);
            let mut uses =
                block.insts.iter().flat_map(|user| user.operands.iter().filter(|&&o| o == result).map(move |_| user));
            match (uses.next(), uses.next()) {
                (None, None) if result == right => return Some(values),
                (Some(user), None) if result != right => inst = user,
                _ => return None,
            }
        }
    }

    /// Moves the instructions of a closed block to the end of the innermost open one.
    fn absorb(&mut self, closed: Frame) {
        let home = self.frame().id;
        self.homes.iter_mut().filter(|of| **of == closed.id).for_each(|of| *of = home);
        self.frame().block.insts.extend(closed.block.insts);
    }

    fn open(&mut self, kind: FrameKind) {
        self.opened += 1;
        self.frames.push(Frame { id: self.opened, block: Block::default(), kind });
    }

    fn close(&mut self) -> Option<Frame> {
        if self.frames.len() > 1 { self.frames.pop() } else { None }
    }

    fn misnested(&mut self, what: &str, found: Option<Frame>, loc: Loc) {
        let related = found.as_ref().map(|frame| (frame.loc(loc), "the innermost open block is here".to_owned()));
        self.error(loc, format!("{what} without its beginning: blocks were left by `break` or `return`"), related);
        self.frames.extend(found);
    }

    // Variables

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

    // Messages

    /// Records a mistake; the trace goes on.
    pub fn error(&mut self, loc: Loc, message: impl Into<String>, related: Option<(Loc, String)>) {
        let error = TraceError { message: message.into(), loc, related };
        if !self.errors.contains(&error) {
            self.errors.push(error);
        }
    }
}

impl Frame {
    fn loc(&self, body: Loc) -> Loc {
        match self.kind {
            FrameKind::Body => body,
            FrameKind::Then { loc, .. }
            | FrameKind::Else { loc, .. }
            | FrameKind::For { loc, .. }
            | FrameKind::Role { loc, .. } => loc,
        }
    }
}

fn positive(n: i32) -> Option<u32> {
    u32::try_from(n).ok().filter(|&n| n > 0)
}
