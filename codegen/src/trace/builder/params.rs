//! Parameters of the kernel that is being recorded.

use super::Builder;
use crate::dtype::Dtype;
use crate::ir::{Access, Origin, Param, ParamKind, Phase, TensorBox, Type, ValueId};
use crate::loc::Loc;

impl Builder {
    /// A kernel that never waits touches all of its memory while earlier kernels may run: it says so.
    pub(super) fn declare_early_accesses(&mut self) {
        for param in &mut self.kernel.params {
            if let ParamKind::Pointer { phase, .. } | ParamKind::Tensor { phase, .. } = &mut param.kind {
                *phase = Phase::BeforeWait;
            }
        }
    }

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
    pub fn tensor_param(
        &mut self,
        name: &str,
        loc: Loc,
        dtype: Dtype,
        rank: usize,
        access: Access,
        phase: Phase,
    ) -> ValueId {
        if !(1..=5).contains(&rank) {
            self.error(loc, format!("a tensor has 1 to 5 dimensions, not {rank}"), None);
        }
        let rank = rank as u8;
        let tensor_box = TensorBox::default();
        let index = self.param(name, ParamKind::Tensor { dtype, rank, tensor_box, access, phase }, loc);
        self.value(Type::TensorMap { dtype, rank }, Origin::Param { index, field: 0 }, loc)
    }

    /// Says what the copies of a tensor map move: the same for all of them.
    pub fn set_box(&mut self, map: ValueId, moved: TensorBox, loc: Loc) {
        let Origin::Param { index, .. } = self.origin(map) else { return };
        let param = &mut self.kernel.params[index];
        let ParamKind::Tensor { tensor_box, .. } = &mut param.kind else { return };
        if *tensor_box == TensorBox::default() {
            *tensor_box = moved;
        } else if *tensor_box != moved {
            let message = format!(
                "`{}` has boxes of {tensor_box}, and this tile is one of {moved}: use a map for each",
                param.name
            );
            let declared = (param.loc, "declared here".to_owned());
            self.error(loc, message, Some(declared));
        }
    }

    /// Every tensor map must be used, since its copies say what its boxes are.
    pub(super) fn check_boxes(&mut self) {
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
}
