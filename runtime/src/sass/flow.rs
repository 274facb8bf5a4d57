//! Control flow over machine code: which instructions can follow which.

use std::collections::HashMap;
use std::ops::Range;

use super::Instruction;

/// Indices of the instructions that can run before any `barrier` instruction has, in address order.
pub(super) fn reachable_without(code: &[Instruction], barrier: &str) -> Vec<usize> {
    let flow = Flow::new(code);
    let mut seen = vec![false; code.len()];
    let mut open: Vec<usize> = (0..code.len().min(1)).collect();
    while let Some(index) = open.pop() {
        if std::mem::replace(&mut seen[index], true) {
            continue;
        }
        let waits = code[index].mnemonic() == barrier && code[index].predicate.is_none();
        if !waits {
            open.extend(flow.successors(index));
        }
    }
    (0..code.len()).filter(|index| seen[*index]).collect()
}

pub(super) fn main_loop(code: &[Instruction]) -> Option<Range<usize>> {
    let index = indices(code);
    let loops: Vec<Range<usize>> = code
        .iter()
        .enumerate()
        .filter(|(_, i)| i.mnemonic() == "BRA")
        .filter_map(|(at, i)| Some(*index.get(&i.branch_to?)?..at + 1))
        // A branch to itself is the trap after the last EXIT.
        .filter(|range| range.len() > 1)
        .collect();
    let is_innermost =
        |range: &&Range<usize>| !loops.iter().any(|l| l != *range && range.start <= l.start && l.end <= range.end);
    let weight = |range: &&Range<usize>| {
        let matrix = code[(*range).clone()].iter().filter(|i| i.mnemonic().ends_with("MMA")).count();
        (matrix, range.len())
    };
    loops.iter().filter(is_innermost).max_by_key(weight).cloned()
}

fn indices(code: &[Instruction]) -> HashMap<u32, usize> {
    code.iter().enumerate().map(|(index, instruction)| (instruction.offset, index)).collect()
}

struct Flow<'a> {
    code: &'a [Instruction],
    index: HashMap<u32, usize>,
    /// Where the lanes that a `BSSY` parks meet again, by barrier register.
    meetings: HashMap<&'a str, Vec<usize>>,
}

impl<'a> Flow<'a> {
    fn new(code: &'a [Instruction]) -> Self {
        let index = indices(code);
        let mut meetings: HashMap<&str, Vec<usize>> = HashMap::new();
        for instruction in code.iter().filter(|i| i.mnemonic() == "BSSY") {
            let register = instruction.operands.split(',').next().unwrap_or_default().trim();
            let target = instruction.branch_to.and_then(|to| index.get(&to).copied());
            meetings.entry(register).or_default().extend(target);
        }
        Flow { code, index, meetings }
    }

    /// Every instruction that may run after the one at `index`; too many rather than too few.
    fn successors(&self, index: usize) -> Vec<usize> {
        let instruction = &self.code[index];
        let next = (index + 1 < self.code.len()).then_some(index + 1);
        let target = instruction.branch_to.and_then(|to| self.index.get(&to).copied());
        // A branch may also be guarded by a uniform predicate among its operands.
        let guarded = instruction.predicate.is_some() || !instruction.operands.starts_with("`(");
        match instruction.mnemonic() {
            "EXIT" | "RET" if instruction.predicate.is_none() => Vec::new(),
            "BRA" | "JMP" if guarded => target.into_iter().chain(next).collect(),
            "BRA" | "JMP" => target.into_iter().collect(),
            // An indirect branch may go anywhere.
            "BRX" | "JMX" | "BRXU" | "JMXU" => (0..self.code.len()).collect(),
            "BSSY" => next.into_iter().collect(),
            "BSYNC" => {
                let register = instruction.operands.split(',').next().unwrap_or_default().trim();
                let meetings = self.meetings.get(register).cloned().unwrap_or_default();
                meetings.into_iter().chain(next).collect()
            }
            _ => target.into_iter().chain(next).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Sass;

    fn sass(body: &str) -> Sass {
        let rows: Vec<String> = body
            .lines()
            .map(str::trim)
            .filter(|row| !row.is_empty())
            .scan(0, |offset, row| {
                let text = if row.ends_with(':') { row.to_owned() } else { format!("/*{offset:04x}*/ {row} ;") };
                *offset += if row.ends_with(':') { 0 } else { 16 };
                Some(text)
            })
            .collect();
        Sass::parse(rows.join("\n"))
    }

    #[test]
    fn a_load_after_the_wait_is_behind_it() {
        let code = sass("S2R R0, SR_TID.X\nACQBULK\nLDG.E R4, [R2.64]\nEXIT");
        assert!(code.global_loads_before_pdl_wait().is_empty());
    }

    #[test]
    fn a_load_above_the_wait_is_found_with_its_offset() {
        let code = sass("LDG.E.128 R4, [R2.64]\nACQBULK\nLDGSTS R1, [R2]\nEXIT");
        let loads = code.global_loads_before_pdl_wait();
        assert_eq!(loads.iter().map(|l| l.offset).collect::<Vec<_>>(), [0]);
    }

    #[test]
    fn loads_before_the_first_copy_are_those_to_registers() {
        let code = sass("ACQBULK\nLDG.E R4, [R2.64]\nLDGSTS R1, [R2]\nLDG.E R6, [R2.64]\nEXIT");
        let loads = code.global_loads_before_copies();
        assert_eq!(loads.iter().map(|l| l.offset).collect::<Vec<_>>(), [16]);
    }

    #[test]
    fn a_branch_around_the_wait_is_found_though_the_wait_comes_first_in_the_listing() {
        let code = sass(
            "@P0 BRA `(.L_skip)
             ACQBULK
             .L_skip:
             LDG.E R4, [R2.64]
             EXIT",
        );
        assert_eq!(code.global_loads_before_pdl_wait().len(), 1);
    }

    #[test]
    fn a_load_placed_above_the_wait_but_reached_only_after_it_is_fine() {
        let code = sass(
            "BRA `(.L_wait)
             .L_work:
             LDG.E R4, [R2.64]
             EXIT
             .L_wait:
             ACQBULK
             BRA `(.L_work)",
        );
        assert!(code.global_loads_before_pdl_wait().is_empty());
    }

    #[test]
    fn a_guarded_wait_does_not_count() {
        let code = sass("@P0 ACQBULK\nLDG.E R4, [R2.64]\nEXIT");
        assert_eq!(code.global_loads_before_pdl_wait().len(), 1);
    }

    #[test]
    fn a_parked_lane_reaches_what_follows_its_meeting_point() {
        let code = sass(
            "BSSY B0, `(.L_meet)
             @P0 BRA `(.L_sync)
             ACQBULK
             .L_sync:
             BSYNC B0
             .L_meet:
             LDG.E R4, [R2.64]
             EXIT",
        );
        assert_eq!(code.global_loads_before_pdl_wait().len(), 1);
    }

    #[test]
    fn the_main_loop_is_the_innermost_one_with_the_matrix_instructions() {
        let code = sass(
            ".L_outer:
             MOV R0, R1
             .L_copy:
             LDG.E R4, [R2.64]
             STS [R0], R4
             STS [R0], R4
             @P0 BRA `(.L_copy)
             .L_multiply:
             LDSM.16.M88.4 R4, [R0]
             HMMA.16816.F32.BF16 R8, R4, R2, R8
             @P0 BRA `(.L_multiply)
             @P1 BRA `(.L_outer)
             EXIT
             .L_trap:
             BRA `(.L_trap)
             NOP
             NOP",
        );
        let main = code.main_loop().unwrap();
        assert_eq!(main, 5..8);
        assert_eq!(code.counts(main)["HMMA"], 1);
        assert_eq!(code.count("STS"), 2);
        assert_eq!(code.count("NOP"), 0, "padding is left out");
    }
}
