//! What the examples of ops are made of.

use crate::handles::{AccessMode, Argument, Element, Rows, Scalar, Slice, WritePart};
use crate::ir::{Kernel, Phase};
use crate::loc::Loc;
use crate::trace::{KernelSpec, TraceErrors, trace, with};

/// Scalar arguments `x`, `y`, `z`.
pub fn inputs<T: Element, const N: usize>() -> [Scalar<T>; N] {
    std::array::from_fn(|i| Scalar::declare(["x", "y", "z"][i % 3], Phase::AfterWait, Loc::caller()))
}

/// An argument of memory.
pub fn memory<T: Element, A: AccessMode>(name: &str) -> Slice<T, A> {
    Slice::declare(name, Phase::AfterWait, Loc::caller())
}

/// An argument of rows.
pub fn rows<T: Element, A: AccessMode>(name: &str) -> Rows<T, A> {
    Rows::declare(name, Phase::AfterWait, Loc::caller())
}

/// Stores `value` as the result, in `out`.
#[track_caller]
pub fn output<T: Element>(value: Scalar<T>) {
    let known = with(|b| b.pointer("out"));
    let out: Slice<T, WritePart> = match known {
        Some(pointer) => Slice::of(pointer),
        None => memory("out"),
    };
    out.start().store(value);
}

/// The kernel that `body` traces to, of 4 warps.
pub fn kernel(name: &'static str, body: impl FnOnce()) -> Result<Kernel, TraceErrors> {
    trace(KernelSpec { name, doc: "", warps: 4, ctas_per_sm: 1, loc: Loc::caller() }, body)
}

/// The CUDA of an example, for the newest target that has its op.
#[cfg(test)]
fn print(kernel: &crate::ir::Kernel) -> Result<crate::cuda::Cuda, crate::cuda::CudaError> {
    use crate::target::Target;
    kernel.cuda(Target::Sm120a).or_else(|_| kernel.cuda(Target::Sm90a))
}

/// Compares with a snapshot what each op of a family prints in its example: the statements that are its own or, where it is
/// part of another's expression, the whole kernel.
#[cfg(test)]
#[track_caller]
pub(crate) fn check(family: &super::Family, expected: expect_test::Expect) {
    let mut shown: Vec<(String, Vec<&str>)> = Vec::new();
    for op in family.ops {
        let kernel = kernel("example", op.example).unwrap_or_else(|errors| panic!("`{}`: {errors}", op.name));
        let insts = kernel.insts();
        let places: Vec<Loc> =
            insts.iter().filter(|(_, inst)| std::ptr::eq(inst.op, *op)).map(|(_, inst)| inst.loc).collect();
        let cuda = print(&kernel).expect("prints");
        let lines = cuda.source.lines().zip(&cuda.lines).skip_while(|(line, _)| !line.contains("example("));
        let entry = lines.skip_while(|(line, _)| !line.ends_with(") {")).skip(1).take_while(|(line, _)| *line != "}");
        let own = entry.clone().filter(|(_, loc)| loc.is_some_and(|loc| places.contains(&loc)));
        let text = |lines: &mut dyn Iterator<Item = (&str, &Option<Loc>)>| -> String {
            lines.map(|(line, _)| format!("{line}\n")).collect()
        };
        let mut body = text(&mut own.clone());
        if body.is_empty() {
            body = text(&mut entry.clone());
        }
        match shown.iter_mut().find(|(text, _)| *text == body) {
            Some((_, ops)) => ops.push(op.name),
            None => shown.push((body, vec![op.name])),
        }
    }
    let text: String = shown.iter().map(|(body, ops)| format!("{}\n{body}", ops.join(", "))).collect();
    expected.assert_eq(&text);
}

#[cfg(test)]
mod tests {
    use super::super::{CATALOGUE, OpDef, Signature};
    use super::*;
    use crate::cost::Costing;
    use crate::ir::{Attrs, Type};

    fn all() -> impl Iterator<Item = &'static OpDef> {
        CATALOGUE.iter().flat_map(|family| family.ops.iter().copied())
    }

    #[test]
    fn names_are_unique_and_documentation_is_sentences() {
        let mut names = std::collections::HashSet::new();
        for op in all() {
            assert!(names.insert(op.name), "two ops are named `{}`", op.name);
            assert!(op.doc.ends_with('.'), "the doc of `{}` is not a sentence: {:?}", op.name, op.doc);
        }
    }

    #[test]
    fn every_example_shows_its_op_and_prints_and_has_a_cost() {
        for op in all() {
            let kernel = kernel("example", op.example).unwrap_or_else(|errors| panic!("`{}`: {errors}", op.name));
            let insts = kernel.insts();
            let uses: Vec<_> = insts.iter().filter(|(_, inst)| std::ptr::eq(inst.op, op)).collect();
            assert!(!uses.is_empty(), "the example of `{}` does not use it", op.name);
            let cost = (op.cost)(&Costing { kernel: &kernel, inst: uses[0].1 });
            let free = ["const", "var.get", "section", "index", "shared.tile", "mbarrier.array"].contains(&op.name);
            assert_eq!(cost.issue == 0, free, "`{}` costs {cost:?}", op.name);
            super::print(&kernel).unwrap_or_else(|error| panic!("`{}`: {error}", op.name));
        }
    }

    #[test]
    fn every_family_lists_its_ops_and_tests_their_examples() {
        for family in CATALOGUE {
            assert!(
                family.source.contains("super::example::check("),
                "ops/{}.rs does not test its examples",
                family.name
            );
            let defined = family.source.matches(": OpDef = OpDef {").count();
            let in_macros = family.source.matches("pub static $op: OpDef = OpDef {").count();
            assert!(
                family.ops.len() >= defined - in_macros,
                "ops/{}.rs defines {defined} ops and lists {}",
                family.name,
                family.ops.len()
            );
        }
    }

    #[test]
    fn every_signature_refuses_operands_that_it_does_not_know() {
        for op in all() {
            let signature = Signature {
                operands: &[Type::Error, Type::Error, Type::Error, Type::Error, Type::Error],
                attrs: &Attrs::none(),
                blocks: 0,
                tiles: &[],
                warps: 4,
            };
            assert!((op.signature)(&signature).is_err(), "`{}` accepts anything", op.name);
        }
    }
}
