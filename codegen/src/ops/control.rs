//! Control flow, mutable variables and section comments.

use super::{Effect, OpDef, Signature};
use crate::dtype::Dtype;
use crate::ir::Type;

/// Runs its first block where the condition holds, its second (if any) where not.
pub static IF: OpDef = OpDef {
    name: "if",
    doc: "Runs its first block on the lanes where the condition holds, its second, if any, on the others.",
    signature: |s| {
        s.count(1)?;
        match s.operands {
            [Type::Scalar(Dtype::Bool)] => Ok(vec![]),
            [other] => Err(format!("the condition of an `if` is a bool, not {other}")),
            _ => unreachable!("counted above"),
        }
    },
    min_capability: 0,
    effects: &[Effect::Control],
};

/// Runs its block for each index from the first operand up to, without, the second, by the third.
pub static FOR: OpDef = OpDef {
    name: "for",
    doc: "Runs its block for each index from `start` up to, without, `end`, by `step`.",
    signature: |s| {
        s.count(3)?;
        match s.operands {
            [Type::Scalar(a), Type::Scalar(b), Type::Scalar(c)] if a == b && b == c && is_index(*a) => Ok(vec![]),
            [a, b, c] => {
                Err(format!("the bounds and the step of a `for` are integers of one type, not {a}, {b} and {c}"))
            }
            _ => unreachable!("counted above"),
        }
    },
    min_capability: 0,
    effects: &[Effect::Control],
};

fn is_index(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::I32 | Dtype::U32 | Dtype::I64 | Dtype::U64)
}

/// Declares a mutable variable.
pub static VAR: OpDef = OpDef {
    name: "var",
    doc: "Declares a mutable variable with its first value.",
    signature: |s| {
        s.count(1)?;
        storable(s.operands[0])?;
        Ok(vec![s.operands[0]])
    },
    min_capability: 0,
    effects: &[Effect::WriteVariable],
};

/// Reads a mutable variable.
pub static GET: OpDef = OpDef {
    name: "var.get",
    doc: "The present value of a mutable variable.",
    signature: |s| {
        s.count(1)?;
        Ok(vec![s.operands[0]])
    },
    min_capability: 0,
    effects: &[Effect::ReadVariable],
};

/// Changes a mutable variable.
pub static SET: OpDef = OpDef {
    name: "var.set",
    doc: "Changes a mutable variable.",
    signature: |s| {
        s.count(2)?;
        match s.operands {
            [variable, value] if variable == value => Ok(vec![]),
            [variable, value] => Err(format!("a variable of type {variable} cannot become {value}")),
            _ => unreachable!("counted above"),
        }
    },
    min_capability: 0,
    effects: &[Effect::WriteVariable],
};

fn storable(ty: Type) -> Result<(), String> {
    match ty {
        Type::Shared { .. } => Err("a tile in shared memory cannot be held in a mutable variable".to_owned()),
        _ => Ok(()),
    }
}

/// A comment over the statements that follow.
pub static SECTION: OpDef = OpDef {
    name: "section",
    doc: "A comment over the statements that follow.",
    signature: |s: &Signature<'_>| {
        s.count(0)?;
        Ok(vec![])
    },
    min_capability: 0,
    effects: &[Effect::Control],
};
