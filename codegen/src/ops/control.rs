//! Control flow, mutable variables and section comments.

use super::example::{inputs, output};
use super::{Effect, Family, OpDef, Signature, arith, global};
use crate::cost::Cost;
use crate::cuda::{Cx, Emit, axes, ctype, prec, scalar_text};
use crate::dtype::Dtype;
use crate::handles::{Handle, Scalar};
use crate::ir::{Attrs, Type, ValueId};
use crate::loc::Loc;
use crate::trace::{Unroll, emit_stmt, with};

/// The ops of this file.
pub static FAMILY: Family =
    Family { name: "control", source: include_str!("control.rs"), ops: &[&IF, &FOR, &VAR, &GET, &SET, &SECTION] };

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
    emit: Emit::Stmt(print_if),
    cost: |_| Cost::issue(1),
    example: show_if,
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
    emit: Emit::Stmt(print_for),
    cost: |_| Cost::issue(1),
    example: show_for,
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
    emit: Emit::Stmt(print_var),
    cost: |c| Cost::issue(c.registers(c.result(0))),
    example: show_for,
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
    emit: Emit::Expr(|cx| cx.operand(0)),
    cost: |_| Cost::NONE,
    example: show_for,
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
    emit: Emit::Stmt(print_set),
    cost: |c| Cost::issue(c.registers(c.operand(0))),
    example: show_for,
};

/// `if x > 0 { out[0] = x } else { out[0] = -x }`.
fn show_if() {
    let [x] = inputs::<i32, 1>();
    let loc = Loc::caller();
    let positive = x.gt(0);
    with(|b| b.begin_if(positive.id(), loc));
    output(x);
    with(|b| b.begin_else(loc));
    output(-x);
    with(|b| b.end_if(loc));
}

/// `let mut sum = 0; for i in 0..x { sum += i } out[0] = sum`.
fn show_for() {
    let [x] = inputs::<i32, 1>();
    let loc = Loc::caller();
    let [zero, one] = [0, 1].map(Scalar::<i32>::from);
    let sum = Scalar::<i32>::from_id(with(|b| {
        let sum = b.declare_var(zero.id(), loc);
        b.name(sum, "sum");
        sum
    }));
    let i = with(|b| b.begin_for(zero.id(), x.id(), one.id(), Unroll::Auto, loc));
    let next = sum + Scalar::<i32>::from_id(i);
    with(|b| {
        b.assign(sum.id(), next.id(), loc);
        b.end_for(loc);
    });
    output(sum);
}

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
    emit: Emit::Stmt(|cx| {
        let text = cx.inst().attrs.text("text").to_owned();
        cx.gap();
        cx.comment(&text);
    }),
    cost: |_| Cost::NONE,
    example: || section("Everything that follows."),
};

fn print_if(cx: &mut Cx<'_, '_>) {
    let cond = cx.operand(0);
    cx.open(&format!("if ({cond})"));
    cx.block(0);
    let mut inst = cx.inst();
    while inst.blocks.len() > 1 {
        match cx.only_statement(&inst.blocks[1]).filter(|only| std::ptr::eq(only.op, &IF)) {
            Some(nested) => {
                let cond = cx.expr(nested.operands[0]);
                cx.otherwise(&format!("else if ({cond})"));
                cx.nested(&nested.blocks[0]);
                inst = nested;
            }
            None => {
                cx.otherwise("else");
                cx.nested(&inst.blocks[1]);
                break;
            }
        }
    }
    cx.close();
}

fn print_for(cx: &mut Cx<'_, '_>) {
    let [start, end, step] = [0, 1, 2].map(|i| cx.operand(i));
    match cx.inst().attrs.text("unroll") {
        "full" => cx.line("#pragma unroll"),
        "never" => cx.line("#pragma unroll 1"),
        _ => {}
    }
    let ty = cx.operand_type(0).dtype().map_or("int", ctype);
    let end = end.at_least(prec::RELATION + 1);
    cx.open_loop(cx.inst().blocks[0].params[0], |i| {
        let advance = if step.to_string() == "1" { format!("++{i}") } else { format!("{i} += {step}") };
        format!("for ({ty} {i} = {start}; {i} < {end}; {advance})")
    });
    cx.block(0);
    cx.close();
}

fn print_var(cx: &mut Cx<'_, '_>) {
    let ty = cx.result_type(0);
    if axes(ty).is_empty() {
        let init = cx.operand(0);
        let name = cx.result(0, "v");
        cx.line(&format!("{} {name} = {init};", scalar_text(ty)));
    } else {
        let name = cx.result(0, "v");
        cx.array(&name, ty);
        cx.fill(&name, ty, 0);
    }
}

fn print_set(cx: &mut Cx<'_, '_>) {
    let ty = cx.operand_type(0);
    let variable = cx.operand_at(0, &[]);
    if !axes(ty).is_empty() {
        return cx.fill(&variable.to_string(), ty, 1);
    }
    let (operator, value) = match update(cx) {
        Some((operator, value)) => (operator, cx.expr(value)),
        None => ("", cx.operand(1)),
    };
    cx.line(&format!("{variable} {operator}= {value};"));
}

/// The operator and the right side of `x op= y`, if the new value is `x op y`.
fn update(cx: &Cx<'_, '_>) -> Option<(&'static str, ValueId)> {
    let value = cx.inlined(1)?;
    let operators = [(&arith::ADD, "+"), (&arith::SUB, "-"), (&arith::MUL, "*"), (&global::OFFSET, "+")];
    let (_, operator) = operators.into_iter().find(|(op, _)| std::ptr::eq(*op, value.op))?;
    let read = cx.inlined_value(value.operands[0])?;
    (std::ptr::eq(read.op, &GET) && read.operands[0] == cx.inst().operands[0]).then_some((operator, value.operands[1]))
}

/// Heads the statements that follow with a comment in the CUDA text.
#[track_caller]
pub fn section(text: &str) {
    emit_stmt(&SECTION, &[], Attrs::none().with("text", text));
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    #[test]
    fn examples() {
        super::super::example::check(
            &super::FAMILY,
            expect![[r#"
                if
                  if (x > 0) {
                  } else {
                  }
                for, var, var.set
                  int sum = 0;
                  for (int i = 0; i < x; ++i) {
                    sum += i;
                  }
                var.get
                  *out = sum;
                section
                  // Everything that follows.
            "#]],
        );
    }
}
