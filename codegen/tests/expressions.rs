//! Printed expressions mean what was traced: random ones, read back by an independent reader.

mod common;

use std::collections::HashMap;

use common::{Names, declare, eval};
use lathe_codegen::handles::{Argument, Handle};
use lathe_codegen::ir::{Attr, Kernel, Phase, ValueId};
use lathe_codegen::loc::Loc;
use lathe_codegen::ops::example;
use lathe_codegen::prelude::*;
use lathe_codegen::target::Target;
use lathe_codegen::trace;
use proptest::prelude::*;

/// An expression to trace; `Name` gives its operand a name, as a `let` does, and uses it twice.
#[derive(Clone, Debug)]
enum Tree {
    Input(usize),
    Literal(i32),
    Unary(&'static str, Box<Tree>),
    Binary(&'static str, Box<Tree>, Box<Tree>),
    Select(&'static str, Box<[Tree; 4]>),
    Named(Box<Tree>),
    Twice(Box<Tree>),
}

const BINARY: [&str; 10] = ["+", "-", "*", "/", "%", "&", "|", "^", "min", "max"];
const COMPARISONS: [&str; 6] = ["<", "<=", ">", ">=", "==", "!="];

fn tree() -> impl Strategy<Value = Tree> {
    let leaf = prop_oneof![(0usize..3).prop_map(Tree::Input), (-70i32..70).prop_map(Tree::Literal)];
    leaf.prop_recursive(6, 40, 4, |inner| {
        let boxed = || inner.clone().prop_map(Box::new);
        prop_oneof![
            4 => (prop::sample::select(&BINARY[..]), boxed(), boxed()).prop_map(|(op, a, b)| Tree::Binary(op, a, b)),
            1 => (prop::sample::select(&["<<", ">>"][..]), boxed(), (0i32..31).prop_map(|n| Box::new(Tree::Literal(n))))
                .prop_map(|(op, a, b)| Tree::Binary(op, a, b)),
            1 => (prop::sample::select(&["-", "~"][..]), boxed()).prop_map(|(op, a)| Tree::Unary(op, a)),
            1 => (prop::sample::select(&COMPARISONS[..]), [inner.clone(), inner.clone(), inner.clone(), inner.clone()])
                .prop_map(|(op, parts)| Tree::Select(op, Box::new(parts))),
            1 => boxed().prop_map(Tree::Named),
            1 => boxed().prop_map(Tree::Twice),
        ]
    })
}

fn record(tree: &Tree, inputs: &[Scalar<i32>; 3]) -> Scalar<i32> {
    match tree {
        Tree::Input(i) => inputs[*i],
        Tree::Literal(value) => Scalar::from(*value),
        Tree::Unary(op, a) => {
            let a = record(a, inputs);
            if *op == "-" { -a } else { !a }
        }
        Tree::Binary(op, a, b) => {
            let (a, b) = (record(a, inputs), record(b, inputs));
            match *op {
                "+" => a + b,
                "-" => a - b,
                "*" => a * b,
                // Never zero, never -1.
                "/" => a / ((b & 63) + 1),
                "%" => a % ((b & 63) + 1),
                "&" => a & b,
                "|" => a | b,
                "^" => a ^ b,
                "min" => a.min(b),
                "max" => a.max(b),
                "<<" => a << b,
                _ => a >> b,
            }
        }
        Tree::Select(op, parts) => {
            let [a, b, yes, no] = parts.each_ref().map(|part| record(part, inputs));
            let cond = match *op {
                "<" => a.lt(b),
                "<=" => a.le(b),
                ">" => a.gt(b),
                ">=" => a.ge(b),
                "==" => a.eq(b),
                _ => a.ne(b),
            };
            (cond & !(a.eq(7) | b.gt(5))).select(yes, no)
        }
        Tree::Named(a) => {
            let a = record(a, inputs);
            trace::with(|b| b.name(a.id(), "named"));
            a
        }
        Tree::Twice(a) => {
            let a = record(a, inputs);
            a - (a ^ 3)
        }
    }
}

/// The value of the IR, operation by operation.
fn interpret(kernel: &Kernel, inputs: [i32; 3]) -> i32 {
    let mut values: HashMap<ValueId, i32> = HashMap::new();
    let params = kernel
        .values
        .iter()
        .zip(0..)
        .filter(|(value, _)| matches!(value.origin, lathe_codegen::ir::Origin::Param { .. }));
    let ids: Vec<_> = kernel.insts().iter().flat_map(|(_, inst)| inst.operands.clone()).collect();
    for (_, position) in params {
        if let Some(&id) = ids.iter().find(|id| id.index() == position)
            && position < 3
        {
            values.insert(id, inputs[position]);
        }
    }
    for (_, inst) in kernel.insts() {
        let x = |i: usize| values[&inst.operands[i]];
        let value = match inst.op.name {
            "const" => match inst.attrs.get("value") {
                Some(Attr::Int(value)) => *value as i32,
                other => panic!("a literal {other:?}"),
            },
            "add" => x(0).wrapping_add(x(1)),
            "sub" => x(0).wrapping_sub(x(1)),
            "mul" => x(0).wrapping_mul(x(1)),
            "div" => x(0) / x(1),
            "rem" => x(0) % x(1),
            "and" => x(0) & x(1),
            "or" => x(0) | x(1),
            "xor" => x(0) ^ x(1),
            "min" => x(0).min(x(1)),
            "max" => x(0).max(x(1)),
            "shl" => x(0) << x(1),
            "shr" => x(0) >> x(1),
            "neg" => x(0).wrapping_neg(),
            "not" if kernel.ty(inst.results[0]).to_string() == "bool" => i32::from(x(0) == 0),
            "not" => !x(0),
            "lt" => i32::from(x(0) < x(1)),
            "le" => i32::from(x(0) <= x(1)),
            "gt" => i32::from(x(0) > x(1)),
            "ge" => i32::from(x(0) >= x(1)),
            "eq" => i32::from(x(0) == x(1)),
            "ne" => i32::from(x(0) != x(1)),
            "select" => {
                if x(0) != 0 {
                    x(1)
                } else {
                    x(2)
                }
            }
            "global.store" => return x(1),
            other => panic!("`{other}` is not interpreted"),
        };
        values.insert(inst.results[0], value);
    }
    panic!("nothing is stored")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn printed_expressions_mean_what_was_traced(tree in tree(), inputs in prop::array::uniform3(-1000i32..1000)) {
        let kernel = example::kernel("k", || {
            let xs = example::inputs::<i32, 3>();
            let out: Slice<i32, WritePart> = Slice::declare("out", Phase::AfterWait, Loc::caller());
            out.start().store(record(&tree, &xs));
        });
        let kernel = kernel.expect("traces");
        let source = kernel.cuda(Target::Sm120a).expect("prints").source;
        let body = &source[source.find(") {").expect("the body")..];
        let mut names: Names = ["x", "y", "z"].map(str::to_owned).into_iter().zip(inputs.map(i64::from)).collect();
        declare(body, &mut names);
        let stored = body.lines().find_map(|line| line.trim().strip_prefix("*out = ")).expect("the result");
        let read = eval(stored.trim_end_matches(';'), &names);
        prop_assert_eq!(read, i64::from(interpret(&kernel, inputs)), "{}", body);
    }
}
