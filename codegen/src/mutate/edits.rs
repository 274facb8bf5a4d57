//! What could be wrong about each instruction.

use super::Rule;
use super::change::Change;
use crate::dtype::Dtype;
use crate::ir::{Attr, Inst, Kernel, Path, Type};
use crate::ops::{Effect, OpDef, arith, compare};

type Edit = (Rule, String, Change);

/// The faults that an author could have made at the instruction at `path`.
pub(super) fn edits(kernel: &Kernel, path: &Path, inst: &Inst) -> Vec<Edit> {
    let name = inst.op.name;
    let drop = |rule| (rule, format!("drop `{name}`"), Change::Drop);
    let replace = |rule, op: &'static OpDef| (rule, format!("`{name}` becomes `{}`", op.name), Change::Replace(op));
    let swap = |a, b| (Rule::SwapOperands, format!("swap the operands of `{name}`"), Change::Swap(a, b));
    match name {
        "barrier.cta" | "barrier.warp" | "barrier.named" => {
            [Some(drop(Rule::DropBarrier)), later(kernel, path, inst, Rule::MoveBarrier)]
                .into_iter()
                .flatten()
                .collect()
        }
        "pdl.wait" | "mbarrier.wait" => {
            [Some(drop(Rule::DropWait)), later(kernel, path, inst, Rule::MoveWait)].into_iter().flatten().collect()
        }
        "cp_async.wait" | "bulk.wait" => {
            let lax = inst.attrs.int("pending") + 1;
            let edit = format!("wait for all but {lax} groups, not {}", lax - 1);
            let lax = (Rule::LaxWait, edit, Change::Set("pending", lax.into()));
            let moved = later(kernel, path, inst, Rule::MoveWait);
            [Some(drop(Rule::DropWait)), moved, Some(lax)].into_iter().flatten().collect()
        }
        "cp_async.commit" | "bulk.commit" => vec![drop(Rule::DropCommit)],
        "fence.async_proxy" | "fence.mbarrier_init" => vec![drop(Rule::DropFence)],
        "mbarrier.arrive" | "mbarrier.arrive_expect_tx" | "mbarrier.arrive_after_copies" | "barrier.named_arrive" => {
            vec![drop(Rule::DropArrival)]
        }
        "global.store" => {
            let guard = (Rule::DropGuard, format!("drop the mask of `{name}`"), Change::DropOperand(2));
            [Some(drop(Rule::DropStore)), (inst.operands.len() == 3).then_some(guard)].into_iter().flatten().collect()
        }
        "global.load" if inst.operands.len() == 3 => {
            vec![(Rule::DropGuard, format!("drop the mask of `{name}`"), Change::KeepOperands(1))]
        }
        "shared.store" | "shared.store_vector" | "reduce.store_rows" | "bulk.store" | "tensor.store" => {
            vec![drop(Rule::DropStore)]
        }
        "if" => vec![(Rule::DropGuard, "`if` becomes true".to_owned(), Change::Always)],
        "vector.pack_e4m3" => {
            vec![(Rule::DropSaturation, "values past 448 become NaN".to_owned(), Change::DropSaturation)]
        }
        "global.row" => {
            vec![(Rule::NarrowInteger, "the row's offset keeps 32 bits".to_owned(), Change::NarrowRow)]
        }
        "lt" => vec![replace(Rule::MoveBound, &compare::LE)],
        "le" => vec![replace(Rule::MoveBound, &compare::LT)],
        "gt" => vec![replace(Rule::MoveBound, &compare::GE)],
        "ge" => vec![replace(Rule::MoveBound, &compare::GT)],
        "eq" => vec![replace(Rule::ReplaceOperation, &compare::NE)],
        "ne" => vec![replace(Rule::ReplaceOperation, &compare::EQ)],
        "add" => with_narrow(kernel, inst, replace(Rule::ReplaceOperation, &arith::SUB)),
        "sub" | "div" | "shl" | "shr" => with_narrow(kernel, inst, swap(0, 1)),
        "mul" => narrow(kernel, inst).into_iter().collect(),
        "select" => vec![swap(1, 2)],
        "max" => vec![replace(Rule::ReplaceOperation, &arith::MIN)],
        "min" => vec![replace(Rule::ReplaceOperation, &arith::MAX)],
        "const" => constant(kernel, inst),
        _ => Vec::new(),
    }
}

/// The instruction after the next access of memory in its block, if there is one before anything of its own kind.
fn later(kernel: &Kernel, path: &Path, inst: &Inst, rule: Rule) -> Option<Edit> {
    let mut next = path.next();
    let mut steps = 1;
    while let Some(after) = kernel.inst(&next) {
        if std::ptr::eq(after.op, inst.op) {
            return None;
        }
        let memory = |effect: &Effect| matches!(effect, Effect::Read(_) | Effect::Write(_));
        if after.op.effects.iter().any(memory) || !after.blocks.is_empty() {
            let what = after.op.name;
            return Some((rule, format!("`{}` comes after `{what}`", inst.op.name), Change::Later(steps)));
        }
        (next, steps) = (next.next(), steps + 1);
    }
    None
}

fn narrow(kernel: &Kernel, inst: &Inst) -> Option<Edit> {
    let ty = inst.results.first().map(|&result| kernel.ty(result));
    matches!(ty, Some(Type::Scalar(Dtype::I64 | Dtype::U64)))
        .then(|| (Rule::NarrowInteger, format!("`{}` keeps 32 bits", inst.op.name), Change::Narrow))
}

fn with_narrow(kernel: &Kernel, inst: &Inst, edit: Edit) -> Vec<Edit> {
    std::iter::once(edit).chain(narrow(kernel, inst)).collect()
}

fn constant(kernel: &Kernel, inst: &Inst) -> Vec<Edit> {
    let ty = inst.results.first().map(|&result| kernel.ty(result));
    match (inst.attrs.get("value"), ty) {
        (Some(&Attr::Int(value)), Some(Type::Scalar(Dtype::I32 | Dtype::U32 | Dtype::I64 | Dtype::U64))) => {
            let shifted = value.wrapping_add(1);
            vec![(Rule::ShiftConstant, format!("{value} becomes {shifted}"), Change::Set("value", shifted.into()))]
        }
        (Some(&Attr::Float(value)), _) if value.is_finite() && value != 0.0 => {
            let scaled = value * 1.01;
            vec![(Rule::ScaleConstant, format!("{value} becomes {scaled}"), Change::Set("value", scaled.into()))]
        }
        _ => Vec::new(),
    }
}
