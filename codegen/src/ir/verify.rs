//! The verifier: what every kernel must satisfy, whoever made or edited it. Types come from the ops' signatures.

use std::collections::{BTreeSet, HashSet};

use super::{Block, Inst, Kernel, Origin, Param, ParamKind, Phase, TensorBox, Type, ValueId};
use crate::loc::Loc;
use crate::ops::{CATALOGUE, Effect, Signature, Space, barrier, control, cp_async, pdl, role, tensor};

/// A rule that a kernel breaks.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[error("{loc}: `{op}`: {message}")]
pub struct VerifyError {
    /// The operation at fault.
    pub op: &'static str,
    /// What is wrong.
    pub message: String,
    /// Where the author wrote it.
    pub loc: Loc,
    /// A second place that matters, and why.
    pub related: Option<(Loc, String)>,
}

impl Kernel {
    /// Checks that every operation is in the catalogue, that its operands are defined where it stands and have the
    /// types of its signature, that blocks have the form of their operation, that memory is accessed as its parameter
    /// declares, and after the PDL wait unless declared otherwise.
    pub fn verify(&self) -> Result<(), Vec<VerifyError>> {
        self.check(true)
    }

    /// The part of [`Kernel::verify`] without which a kernel cannot be printed: catalogue, scope, types, form.
    pub fn verify_form(&self) -> Result<(), Vec<VerifyError>> {
        self.check(false)
    }

    fn check(&self, memory: bool) -> Result<(), Vec<VerifyError>> {
        let warps = (0, self.warps.into());
        let mut verifier =
            Verifier { kernel: self, memory, visible: HashSet::new(), waited: false, warps, errors: Vec::new() };
        let params = self.values.iter().enumerate().filter(|(_, v)| matches!(v.origin, Origin::Param { .. }));
        verifier.visible.extend(params.map(|(i, _)| ValueId(i as u32)));
        verifier.block(&self.body);
        if verifier.errors.is_empty() { Ok(()) } else { Err(verifier.errors) }
    }

    /// Whether the kernel waits for the kernels before it.
    pub fn waits(&self) -> bool {
        self.insts().iter().any(|(_, inst)| std::ptr::eq(inst.op, &pdl::WAIT))
    }

    /// The arguments whose memory an instruction written at `loc` reads or writes.
    pub fn arguments_touched_at(&self, loc: Loc) -> Vec<&Param> {
        let insts: Vec<&Inst> = self.insts().into_iter().map(|(_, inst)| inst).collect();
        let here = insts.iter().filter(|inst| inst.loc == loc && !inst.op.is_pure());
        let pointers = here.flat_map(|inst| &inst.operands).filter(|id| matches!(self.ty(**id), Type::Global(_)));
        let touched: BTreeSet<usize> = pointers.filter_map(|id| self.pointee(&insts, *id)).collect();
        touched.into_iter().map(|index| &self.params[index]).collect()
    }

    /// The parameter that a global address points into, given what defines each value.
    fn pointee(&self, insts: &[&Inst], mut id: ValueId) -> Option<usize> {
        loop {
            if let Origin::Param { index, .. } = self.values.get(id.index())?.origin {
                return Some(index);
            }
            let def = insts.iter().find(|inst| inst.results.contains(&id))?;
            id = *def.operands.iter().find(|&&o| matches!(self.values[o.index()].ty, Type::Global(_)))?;
        }
    }
}

struct Verifier<'k> {
    kernel: &'k Kernel,
    /// Whether accesses are compared with their declarations.
    memory: bool,
    /// Values that may be used here.
    visible: HashSet<ValueId>,
    /// Whether the PDL wait lies behind on every way here.
    waited: bool,
    /// The first warp that comes here, and the number of them.
    warps: (i64, i64),
    errors: Vec<VerifyError>,
}

impl Verifier<'_> {
    fn error(&mut self, inst: &Inst, message: impl Into<String>, related: Option<(Loc, String)>) {
        self.errors.push(VerifyError { op: inst.op.name, message: message.into(), loc: inst.loc, related });
    }

    fn block(&mut self, block: &Block) {
        for inst in &block.insts {
            self.inst(inst);
        }
    }

    fn inst(&mut self, inst: &Inst) {
        let known = CATALOGUE.iter().any(|family| family.ops.iter().any(|op| std::ptr::eq(*op, inst.op)));
        if !known {
            self.error(inst, "the operation is not in the catalogue", None);
        }
        if inst.operands.iter().chain(&inst.results).any(|id| id.index() >= self.kernel.values.len()) {
            return self.error(inst, "it names a value that the kernel does not have", None);
        }
        for &operand in &inst.operands {
            if !self.visible.contains(&operand) {
                let value = self.kernel.value(operand);
                let name = value.name.as_ref().map_or_else(|| format!("%{}", operand.0), |name| format!("`{name}`"));
                let related = Some((value.loc, "its place".to_owned()));
                self.error(inst, format!("{name} is used where it is not defined"), related);
            }
        }
        self.signature(inst);
        self.form(inst);
        self.boxes(inst);
        self.role(inst);
        if self.memory {
            self.memory(inst);
        }
        if std::ptr::eq(inst.op, &pdl::WAIT) {
            self.waited = true;
        }
        let before = self.waited;
        let mut every_side_waits = true;
        for block in &inst.blocks {
            let (outside, warps) = (self.visible.clone(), self.warps);
            self.visible.extend(&block.params);
            self.waited = before;
            if std::ptr::eq(inst.op, &role::ROLE) {
                self.warps = (inst.attrs.int("first"), inst.attrs.int("count"));
            }
            self.block(block);
            every_side_waits &= self.waited;
            (self.visible, self.warps) = (outside, warps);
        }
        // One of two sides runs; a block without another side may not run at all.
        if !inst.blocks.is_empty() {
            self.waited = before || (inst.blocks.len() > 1 && every_side_waits);
        }
        self.visible.extend(&inst.results);
    }

    fn signature(&mut self, inst: &Inst) {
        let types: Vec<Type> = inst.operands.iter().map(|&id| self.kernel.ty(id)).collect();
        let signature = Signature {
            operands: &types,
            attrs: &inst.attrs,
            blocks: inst.blocks.len(),
            tiles: &self.kernel.tiles,
            warps: self.kernel.warps,
        };
        let found: Vec<Type> = inst.results.iter().map(|&id| self.kernel.ty(id)).collect();
        match (inst.op.signature)(&signature) {
            Err(message) => self.error(inst, message, None),
            Ok(expected) if expected != found => {
                let list = |types: &[Type]| types.iter().map(Type::to_string).collect::<Vec<_>>().join(", ");
                self.error(inst, format!("it results in ({}), not ({})", list(&expected), list(&found)), None);
            }
            Ok(_) => {}
        }
    }

    /// Blocks, their parameters, and what may be assigned to.
    fn form(&mut self, inst: &Inst) {
        let is = |op| std::ptr::eq(inst.op, op);
        let blocks = inst.blocks.len();
        let fits = match () {
            () if is(&role::ROLE) => matches!(&inst.blocks[..], [body] if body.params.is_empty()),
            () if is(&control::IF) => (1..=2).contains(&blocks) && inst.blocks.iter().all(|b| b.params.is_empty()),
            () if is(&control::FOR) => match (&inst.blocks[..], inst.operands.first()) {
                ([body], Some(&start)) => {
                    matches!(body.params[..], [index] if self.kernel.ty(index) == self.kernel.ty(start))
                }
                _ => false,
            },
            () => blocks == 0,
        };
        if !fits {
            self.error(inst, "its blocks do not have the form of the operation", None);
        }
        if is(&control::SET) && inst.operands.first().map(|&id| self.kernel.value(id).origin) != Some(Origin::Variable)
        {
            self.error(inst, "only a variable can be assigned to", None);
        }
    }

    /// What some warps execute by themselves against what needs others.
    fn role(&mut self, inst: &Inst) {
        let is = |op| std::ptr::eq(inst.op, op);
        let ((first, count), all) = (self.warps, i64::from(self.kernel.warps));
        let here = format!("only the warps {first}..{} come here", first + count);
        let shared = match inst.operands.first().map(|&id| self.kernel.ty(id)) {
            Some(Type::Shared { tile, .. }) => self.kernel.tiles.get(tile.index()).is_some_and(|tile| tile.copies == 1),
            _ => false,
        };
        if is(&role::REGISTERS) && (first % role::GROUP != 0 || count % role::GROUP != 0) {
            let message = format!(
                "registers are given and taken by {} warps at a time, and the role has {first}..{}",
                role::GROUP,
                first + count
            );
            self.error(inst, message, None);
        } else if count == all {
            // Everything is allowed.
        } else if is(&barrier::CTA_SYNC) {
            let message = format!("{here}, and all {all} would have to: use `cta::sync_warps(id, {count})`");
            self.error(inst, message, None);
        } else if is(&cp_async::COPY) && shared {
            let message =
                format!("{here}, and all {all} would share the copy: make the tile `per_warp()`, or use `copy_bulk`");
            self.error(inst, message, None);
        } else if is(&role::ROLE) {
            self.error(inst, format!("{here}: a role does not stand in another"), None);
        }
    }

    /// Tiles that tensor copies fill, or empty, against the boxes of their maps.
    fn boxes(&mut self, inst: &Inst) {
        if ![&tensor::LOAD, &tensor::STORE].into_iter().any(|op| std::ptr::eq(inst.op, op)) {
            return;
        }
        let [Type::Shared { tile, .. }, Type::TensorMap { .. }] =
            [inst.operands[0], inst.operands[1]].map(|id| self.kernel.ty(id))
        else {
            return;
        };
        let Origin::Param { index, .. } = self.kernel.value(inst.operands[1]).origin else { return };
        let (Some(tile), param) = (self.kernel.tiles.get(tile.index()), &self.kernel.params[index]) else { return };
        let moved = TensorBox { tile: [tile.rows, tile.cols], swizzle: tile.swizzle };
        if let ParamKind::Tensor { tensor_box, .. } = param.kind
            && tensor_box != moved
        {
            let declared = Some((param.loc, "declared here".to_owned()));
            let message = format!("`{}` has boxes of {tensor_box}, and this tile is one of {moved}", param.name);
            self.error(inst, message, declared);
        }
    }

    /// Accesses of global memory against the declarations of the parameters.
    fn memory(&mut self, inst: &Inst) {
        let reads = inst.op.effects.contains(&Effect::Read(Space::Global));
        let writes = inst.op.effects.contains(&Effect::Write(Space::Global));
        if !reads && !writes {
            return;
        }
        let all = self.kernel.insts();
        let insts: Vec<&Inst> = all.iter().map(|(_, inst)| *inst).collect();
        let in_memory = |&&id: &&ValueId| matches!(self.kernel.ty(id), Type::Global(_) | Type::TensorMap { .. });
        let places = inst.operands.iter().filter(in_memory);
        let params: Vec<usize> = places.filter_map(|&id| self.kernel.pointee(&insts, id)).collect();
        for index in params {
            let param = &self.kernel.params[index];
            let (access, phase) = match param.kind {
                ParamKind::Pointer { access, phase, .. } | ParamKind::Tensor { access, phase, .. } => (access, phase),
                ParamKind::Scalar(_) => continue,
            };
            let declared = Some((param.loc, "declared here".to_owned()));
            if (reads && !access.reads()) || (writes && !access.writes()) {
                let does = if reads { "load from" } else { "store to" };
                self.error(
                    inst,
                    format!("`{}` is declared `{access}`: the kernel may not {does} it", param.name),
                    declared,
                );
            } else if phase == Phase::AfterWait && !self.waited {
                let message = format!(
                    "`{}` is touched before `pdl::wait()`, while earlier kernels may still write it: wait first, or \
                     declare it `#[{access}(before_wait)]`, which the graph checker then has to prove safe",
                    param.name
                );
                self.error(inst, message, declared);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Access;
    use super::*;
    use crate::dtype::Dtype;
    use crate::handles::{Argument, Handle, Read, Scalar, Slice, WritePart};
    use crate::ir::{Attrs, Path};
    use crate::ops::example::kernel;
    use crate::ops::{arith, global};

    /// `out[i] = x[i] * 2 if i < 10`, after the wait.
    fn doubling() -> Kernel {
        kernel("doubling", || {
            let x = Slice::<f32, Read>::declare("x", Phase::AfterWait, Loc::caller());
            let out = Slice::<f32, WritePart>::declare("out", Phase::AfterWait, Loc::caller());
            let i = crate::ops::index::thread_id();
            pdl::wait();
            let few = i.lt(10);
            let loc = Loc::caller();
            crate::trace::with(|b| b.begin_if(few.id(), loc));
            out.at(i).store(x.at(i).load() * 2.0);
            crate::trace::with(|b| b.end_if(loc));
        })
        .expect("traces")
    }

    fn find(kernel: &Kernel, op: &'static crate::ops::OpDef) -> Path {
        let insts = kernel.insts();
        insts.into_iter().find(|(_, inst)| std::ptr::eq(inst.op, op)).expect("is there").0
    }

    #[track_caller]
    fn refused(kernel: &Kernel, message: &str) {
        let errors = kernel.verify().expect_err("must be refused");
        assert!(errors.iter().any(|error| error.to_string().contains(message)), "{errors:?}");
    }

    #[test]
    fn a_traced_kernel_is_fine() {
        assert_eq!(doubling().verify(), Ok(()));
    }

    #[test]
    fn a_removed_definition_is_missed() {
        let mut kernel = doubling();
        kernel.remove(&find(&kernel, &global::LOAD));
        refused(&kernel, "is used where it is not defined");
    }

    #[test]
    fn a_malformed_kernel_is_not_printed() {
        let mut kernel = doubling();
        kernel.remove(&find(&kernel, &global::LOAD));
        let error = kernel.cuda(crate::target::Target::Sm120a).expect_err("must be refused").to_string();
        assert!(error.contains("is used where it is not defined"), "{error}");
    }

    #[test]
    fn a_definition_moved_after_its_use_is_missed() {
        let mut kernel = doubling();
        let path = find(&kernel, &crate::ops::compare::LT);
        let inst = kernel.remove(&path).expect("was found");
        assert!(kernel.insert(&path.next(), inst));
        refused(&kernel, "is used where it is not defined");
    }

    #[test]
    fn another_type_is_refused() {
        let mut kernel = doubling();
        let product = kernel.inst(&find(&kernel, &arith::MUL)).expect("was found").results[0];
        kernel.values[product.index()].ty = Type::Scalar(Dtype::I32);
        refused(&kernel, "it results in (f32), not (i32)");
    }

    #[test]
    fn a_swapped_operand_is_refused() {
        let mut kernel = doubling();
        let path = find(&kernel, &global::STORE);
        kernel.inst_mut(&path).expect("was found").operands.swap(0, 1);
        refused(&kernel, "the operands do not fit together");
    }

    #[test]
    fn an_if_without_its_block_is_refused() {
        let mut kernel = doubling();
        let path = find(&kernel, &control::IF);
        kernel.inst_mut(&path).expect("was found").blocks.clear();
        refused(&kernel, "its blocks do not have the form of the operation");
    }

    #[test]
    fn an_assignment_to_a_value_is_refused() {
        let mut kernel = doubling();
        let path = find(&kernel, &arith::MUL);
        let mul = kernel.inst(&path).expect("was found").clone();
        let set = Inst {
            op: &control::SET,
            operands: vec![mul.results[0], mul.results[0]],
            attrs: Attrs::none(),
            results: vec![],
            blocks: vec![],
            loc: mul.loc,
        };
        assert!(kernel.insert(&path.next(), set));
        refused(&kernel, "only a variable can be assigned to");
    }

    #[test]
    fn accesses_must_be_as_declared() {
        let mut kernel = doubling();
        let ParamKind::Pointer { access, .. } = &mut kernel.params[1].kind else { panic!("a pointer") };
        *access = Access::Read;
        refused(&kernel, "`out` is declared `read`: the kernel may not store to it");
    }

    #[test]
    fn memory_is_touched_after_the_wait_unless_declared() {
        let mut kernel = doubling();
        kernel.remove(&find(&kernel, &pdl::WAIT));
        refused(&kernel, "`x` is touched before `pdl::wait()`");
        for param in &mut kernel.params {
            let ParamKind::Pointer { phase, .. } = &mut param.kind else { panic!("a pointer") };
            *phase = Phase::BeforeWait;
        }
        assert_eq!(kernel.verify(), Ok(()));
    }

    /// `if n > 0 { then } else { otherwise }`, then a load.
    fn load_after_an_if(then: fn(), otherwise: fn()) -> Result<Kernel, crate::trace::TraceErrors> {
        kernel("k", || {
            let x = Slice::<f32, Read>::declare("x", Phase::AfterWait, Loc::caller());
            let n = Scalar::<i32>::declare("n", Phase::AfterWait, Loc::caller());
            let loc = Loc::caller();
            let positive = n.gt(0);
            crate::trace::with(|b| b.begin_if(positive.id(), loc));
            then();
            crate::trace::with(|b| b.begin_else(loc));
            otherwise();
            crate::trace::with(|b| b.end_if(loc));
            x.at(0).load();
        })
    }

    #[test]
    fn a_wait_on_one_side_of_an_if_does_not_count() {
        for [then, otherwise] in [[pdl::wait as fn(), || ()], [|| (), pdl::wait]] {
            let errors = load_after_an_if(then, otherwise).expect_err("must be refused");
            assert!(errors.to_string().contains("`x` is touched before `pdl::wait()`"), "{errors}");
        }
    }

    #[test]
    fn a_wait_on_both_sides_of_an_if_counts() {
        load_after_an_if(pdl::wait, pdl::wait).expect("waits on every way");
    }
}
