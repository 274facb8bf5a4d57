//! Reads the listing that `nvdisasm` prints.

use std::collections::HashMap;

use super::Instruction;

/// The instructions of the listing's first function, in address order.
pub(super) fn instructions(text: &str) -> Vec<Instruction> {
    let mut labels = HashMap::new();
    let mut pending_labels = Vec::new();
    let mut line = 0;
    let mut parsed: Vec<(Instruction, Option<String>)> = Vec::new();

    for row in text.lines() {
        let row = row.trim();
        if let Some(name) = row.strip_suffix(':') {
            pending_labels.push(name.to_owned());
        } else if let Some(place) = row.strip_prefix("//## File ") {
            // Inlined code lists the chain from the innermost helper outwards, then repeats the outermost alone.
            line = place.rsplit("line ").next().and_then(|n| n.split_whitespace().next()?.parse().ok()).unwrap_or(line);
        } else if let Some(instruction) = instruction(row, line) {
            if instruction.0.offset == 0 && !parsed.is_empty() {
                break;
            }
            labels.extend(pending_labels.drain(..).map(|name| (name, instruction.0.offset)));
            parsed.push(instruction);
        }
    }

    let last = parsed.iter().rposition(|(i, _)| !matches!(i.mnemonic(), "NOP")).map_or(0, |last| last + 1);
    parsed.truncate(last);
    let resolve = |(mut instruction, label): (Instruction, Option<String>)| {
        instruction.branch_to = label.and_then(|name| labels.get(&name).copied());
        instruction
    };
    parsed.into_iter().map(resolve).collect()
}

/// `/*0060*/ @!P0 BRA (.L_x_0) ;` with its label, if it has one.
fn instruction(row: &str, line: u32) -> Option<(Instruction, Option<String>)> {
    let (offset, rest) = row.strip_prefix("/*")?.split_once("*/")?;
    let offset = u32::from_str_radix(offset, 16).ok()?;
    let mut rest = rest.split(';').next()?.trim();
    let mut predicate = None;
    if let Some(guarded) = rest.strip_prefix('@') {
        let (guard, tail) = guarded.split_once(char::is_whitespace)?;
        predicate = Some(guard.to_owned());
        rest = tail.trim_start();
    }
    let (opcode, operands) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    if opcode.is_empty() {
        return None;
    }
    let label = operands.split_once("`(").and_then(|(_, tail)| Some(tail.split_once(')')?.0.to_owned()));
    let instruction = Instruction {
        offset,
        predicate,
        opcode: opcode.to_owned(),
        operands: operands.trim().to_owned(),
        branch_to: None,
        line,
    };
    Some((instruction, label))
}
