//! `docs/operations.md`: the catalogue as a reference, with the calls of authors, which are read from the families' own
//! text.

use super::example::kernel;
use super::{CATALOGUE, Family, OpDef};
use crate::cost::Costing;

/// The reference of operations is written by this test (`UPDATE_EXPECT=1`).
#[test]
fn the_reference_is_up_to_date() {
    let mut text = String::from(REFERENCE_HEAD);
    for family in CATALOGUE {
        let about = family.source.lines().take_while(|line| line.starts_with("//!"));
        let about: Vec<&str> = about.map(|line| line.trim_start_matches("//!").trim()).collect();
        text += &format!("\n## {}\n\n{}\n", family.name, about.join("\n"));
        text += &calls(family);
        let mut shown = Vec::new();
        for op in family.ops {
            let kernel = kernel("example", op.example).expect("traces");
            let insts = kernel.insts();
            let (_, inst) = insts.iter().find(|(_, inst)| std::ptr::eq(inst.op, *op)).expect("shows its op");
            let cost = (op.cost)(&Costing { kernel: &kernel, inst });
            text += &format!("\n### `{}`\n\n{}\n", op.name, op.doc.trim());
            text += &properties(op, cost);
            let example = kernel.to_string();
            if !shown.contains(&example) {
                text += &format!("\n```text\n{example}```\n");
                shown.push(example);
            }
        }
    }
    expect_test::expect_file!["../../../docs/operations.md"].assert_eq(&text);
}

const REFERENCE_HEAD: &str = "\
# Operations

What kernels are made of once traced. Each family begins with the calls that make its operations in a kernel's source;
then comes every operation of the IR with its effects, the cost that the model gives it in the example (of one warp),
and the example in the IR's text form. Generated from the catalogue in `codegen/src/ops`.
";

/// What authors write to have the operations of a family.
fn calls(family: &Family) -> String {
    let source = family.source.split("#[cfg(test)]").next().unwrap_or_default();
    let lines: Vec<&str> = source.lines().collect();
    let (mut rows, mut owner, mut doc) = (String::new(), String::new(), Vec::new());
    for (at, line) in lines.iter().enumerate() {
        let text = line.trim();
        match text.strip_prefix("///") {
            Some(more) => doc.push(more.trim()),
            None if text == "#[doc(hidden)]" => doc.clear(),
            None if text.starts_with("#[") => {}
            None => {
                if let Some(of) = line.strip_prefix("impl") {
                    owner = subject(of);
                }
                let call = match text.strip_prefix("pub fn ") {
                    Some(start) if !start.starts_with('$') => function(family, &owner, &lines[at..]),
                    _ => row_of_a_macro(family, text),
                };
                if let Some(call) = call.filter(|_| !doc.is_empty()) {
                    let paragraph: Vec<&str> = doc.iter().copied().take_while(|line| !line.is_empty()).collect();
                    rows += &format!("- `{call}`: {}\n", without_links(&paragraph.join(" ")));
                }
                doc.clear();
            }
        }
    }
    if rows.is_empty() { rows } else { format!("\nIn a kernel:\n\n{rows}") }
}

/// Documentation without the links that only rustdoc follows: the text of ``[`text`](path)`` stays.
fn without_links(doc: &str) -> String {
    let mut parts = doc.split("](");
    let first = parts.next().unwrap_or_default().to_owned();
    let text = parts.fold(first, |text, part| text + part.split_once(')').map_or(part, |(_, rest)| rest));
    text.replace("[`", "`").replace("`]", "`")
}

/// The type of `impl<..> Type {`, given what follows `impl`.
fn subject(head: &str) -> String {
    let mut depth = 0;
    let generics = head.find(|c| {
        depth += i32::from(c == '<') - i32::from(c == '>');
        depth == 0
    });
    let rest = if head.starts_with('<') { &head[generics.map_or(0, |end| end + 1)..] } else { head };
    rest.split([' ', '{'])
        .filter(|word| !word.is_empty())
        .take_while(|word| *word != "where")
        .collect::<Vec<_>>()
        .join(" ")
}

/// The signature that stands at the first of `lines`, up to its body.
fn function(family: &Family, owner: &str, lines: &[&str]) -> Option<String> {
    let end = lines.iter().position(|line| line.ends_with('{'))?;
    let parts: Vec<&str> = lines[..=end].iter().map(|line| line.trim()).collect();
    let text = parts.join(" ").replace("( ", "(").replace(", )", ")");
    let signature = text.strip_prefix("pub fn ")?.split(" where ").next()?.trim_end_matches(['{', ' ']);
    if lines[0].starts_with(' ') {
        return Some(format!("{owner}::{signature}"));
    }
    let name = signature.split(['(', '<']).next()?;
    Some(format!("{}{}", exported(family, name)?, &signature[name.len()..]))
}

/// The call that a row of a macro's table makes: `OP "name" method ..`, `"documentation" method ..` or `function "of";`.
fn row_of_a_macro(family: &Family, row: &str) -> Option<String> {
    let (before, rest) = row.split_once('"')?;
    let (_, after) = rest.split_once('"')?;
    if after == ";" {
        return exported(family, before.trim()).map(|path| format!("{path}()"));
    }
    let method = after.split_whitespace().next()?;
    let is_name = method.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    is_name.then(|| format!("Scalar::{method}"))
}

/// The name under which kernels see a function of a family.
fn exported(family: &Family, function: &str) -> Option<String> {
    let of = format!("pub use crate::ops::{}::", family.name);
    let mut module = String::new();
    for line in include_str!("../prelude.rs").lines() {
        if let Some(name) = line.strip_prefix("pub mod ") {
            module = format!("{}::", name.trim_end_matches(" {"));
        } else if line == "}" {
            module.clear();
        }
        let Some(names) = line.trim().strip_prefix(&of) else { continue };
        for name in names.trim_end_matches(';').trim_matches(['{', '}']).split(", ") {
            let (ours, theirs) = name.split_once(" as ").unwrap_or((name, name));
            if ours == function {
                return Some(format!("{module}{theirs}"));
            }
        }
    }
    None
}

fn properties(op: &OpDef, cost: crate::cost::Cost) -> String {
    let mut lines = Vec::new();
    if op.min_capability > 0 {
        lines.push(format!("- from sm_{}", op.min_capability));
    }
    if !op.effects.is_empty() {
        let effects: Vec<_> = op.effects.iter().map(|effect| format!("{effect:?}")).collect();
        lines.push(format!("- effects: {}", effects.join(", ")));
    }
    let figures = [
        (cost.issue, "warp instructions"),
        (cost.flops, "flops"),
        (cost.global_read, "bytes read from global memory"),
        (cost.global_written, "bytes written to global memory"),
        (cost.shared_read, "bytes read from shared memory"),
        (cost.shared_written, "bytes written to shared memory"),
    ];
    let figures: Vec<_> = figures.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
    if !figures.is_empty() {
        lines.push(format!("- cost: {}", figures.join(", ")));
    }
    if lines.is_empty() { String::new() } else { format!("\n{}\n", lines.join("\n")) }
}
