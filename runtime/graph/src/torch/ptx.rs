//! Which pointer parameters of a kernel flow into its loads and stores, read from its PTX.
//!
//! A flow-insensitive fixed point over registers: a register holds the set of parameter words that its value may be computed from.
//! Additions, selections and moves pass a pointer on; products and shifts do not. Pointers that leave through a call, or that are
//! themselves loaded from memory, are said so instead of guessed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::LazyLock;

use regex::Regex;

use super::rules::Use;

/// Where a value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    /// The 8 bytes at `offset` of parameter `index`.
    Word { index: usize, offset: usize },
    /// Some 8 bytes of parameter `index`, at an offset computed at run time; also the parameter's own address (tensor maps).
    Somewhere { index: usize },
    /// Memory.
    Loaded,
}

/// What a kernel does with its pointer parameters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Flow {
    words: BTreeMap<(usize, usize), Use>,
    somewhere: BTreeMap<usize, Use>,
    before_wait: BTreeSet<usize>,
    /// The kernel follows pointers that it loads from memory: what those reach is not known.
    pub follows_loaded_pointers: bool,
    /// The kernel executes `griddepcontrol.wait`.
    pub waits: bool,
}

impl Flow {
    /// Analyses the entry `name`; `None` when the text has no such entry (or, for an unnamed text, not exactly one).
    pub fn of(ptx: &str, name: &str) -> Option<Flow> {
        let text = strip_comments(ptx);
        let entry = find_entry(&text, name)?;
        Some(Analysis::new(&entry).run())
    }

    /// What happens through the pointer at byte `offset` of parameter `index`; [`Use::None`] when the kernel never follows it.
    pub fn use_of(&self, index: usize, offset: usize) -> Use {
        let word = self.words.get(&(index, offset)).copied().unwrap_or(Use::None);
        word.and(self.somewhere.get(&index).copied().unwrap_or(Use::None))
    }

    /// Whether some access through parameter `index` comes before the kernel's `griddepcontrol.wait`.
    pub fn before_wait(&self, index: usize) -> bool {
        !self.waits || self.before_wait.contains(&index)
    }
}

fn strip_comments(text: &str) -> String {
    // `.loc` ends with its line, not with a semicolon.
    static COMMENT: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"(?s)/\*.*?\*/|//[^\n]*|\.loc\b[^\n]*").expect("a constant pattern"));
    COMMENT.replace_all(text, "").into_owned()
}

struct EntryText<'a> {
    params: Vec<&'a str>,
    body: &'a str,
}

fn find_entry<'a>(text: &'a str, name: &str) -> Option<EntryText<'a>> {
    let mut found = None;
    for (at, _) in text.match_indices(".entry") {
        let rest = &text[at + ".entry".len()..];
        let open = rest.find(['(', '{'])?;
        let entry_name = rest[..open].split_whitespace().next()?;
        if entry_name != name {
            continue;
        }
        let (params, after) = if rest[open..].starts_with('(') {
            let close = open + rest[open..].find(')')?;
            (rest[open + 1..close].split(',').filter_map(param_name).collect(), close + 1)
        } else {
            (Vec::new(), open)
        };
        let start = after + rest[after..].find('{')? + 1;
        let mut depth = 1usize;
        let end = rest[start..].bytes().position(|byte| {
            depth = match byte {
                b'{' => depth + 1,
                b'}' => depth - 1,
                _ => depth,
            };
            depth == 0
        })?;
        found = Some(EntryText { params, body: &rest[start..start + end] });
    }
    found
}

fn param_name(text: &str) -> Option<&str> {
    let last = text.split_whitespace().last()?;
    Some(last.split('[').next().unwrap_or(last))
}

/// One PTX instruction, cut into what the analysis needs.
struct Instruction<'a> {
    /// Opcode with its suffixes: `["ld", "global", "u64"]`.
    opcode: Vec<&'a str>,
    /// Operands split at top-level commas; braces and brackets stay whole.
    operands: Vec<&'a str>,
}

impl<'a> Instruction<'a> {
    fn parse(statement: &'a str) -> Option<Instruction<'a>> {
        let mut text = statement.trim();
        while let Some((label, rest)) = text
            .split_once(':')
            .filter(|(label, _)| !label.is_empty() && label.chars().all(|c| c.is_alphanumeric() || "$_%".contains(c)))
        {
            // `shared::cluster` has two colons and is no label.
            if rest.starts_with(':') || label.is_empty() {
                break;
            }
            text = rest.trim();
        }
        if let Some(guarded) = text.strip_prefix('@') {
            text = guarded.split_once(char::is_whitespace)?.1.trim();
        }
        if text.is_empty() || text.starts_with('.') {
            return None;
        }
        let (opcode, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let opcode = opcode.split('.').flat_map(|part| part.split("::").take(1)).collect();
        Some(Instruction { opcode, operands: split_operands(rest) })
    }

    fn has(&self, suffix: &str) -> bool {
        self.opcode.contains(&suffix)
    }

    fn addresses(&self) -> impl Iterator<Item = &'a str> + '_ {
        self.operands.iter().copied().filter(|operand| operand.starts_with('['))
    }

    /// Bytes of the type suffix.
    fn width(&self) -> usize {
        let digits = self.opcode.last().map(|ty| ty.trim_start_matches(|c: char| c.is_alphabetic())).unwrap_or("");
        digits.parse::<usize>().map_or(8, |bits| bits / 8)
    }

    /// In a copy between state spaces: whether the first named one, the destination, is global.
    fn copies_to_global(&self) -> bool {
        self.opcode
            .iter()
            .find(|part| **part == "global" || part.starts_with("shared"))
            .is_some_and(|part| *part == "global")
    }
}

fn split_operands(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut parts) = (0i32, 0, Vec::new());
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            b'[' | b'{' | b'(' => depth += 1,
            b']' | b'}' | b')' => depth -= 1,
            b',' if depth == 0 => {
                parts.push(text[start..index].trim());
                start = index + 1;
            }
            _ => {}
        }
    }
    parts.push(text[start..].trim());
    parts.retain(|part| !part.is_empty());
    parts
}

/// Registers and names inside an operand.
fn names(operand: &str) -> impl Iterator<Item = &str> {
    operand
        .split(|c: char| !(c.is_alphanumeric() || "%$_.".contains(c)))
        .filter(|part| part.starts_with(|c: char| c == '%' || c == '_' || c == '$' || c.is_alphabetic()))
}

struct Analysis<'a> {
    params: HashMap<&'a str, usize>,
    instructions: Vec<Instruction<'a>>,
    /// Sources of every register and of every memory cell that is not global: `.local` and `.shared` as one cell each, call
    /// parameters by name.
    values: HashMap<&'a str, BTreeSet<Source>>,
    changed: bool,
    flow: Flow,
}

impl<'a> Analysis<'a> {
    fn new(entry: &EntryText<'a>) -> Self {
        let params = entry.params.iter().enumerate().map(|(index, name)| (*name, index)).collect();
        // Braces inside a body are scopes; inside an operand they are vectors, which always follow a comma, a bracket or a type.
        let instructions = statements(entry.body).into_iter().filter_map(Instruction::parse).collect();
        Analysis { params, instructions, values: HashMap::new(), changed: true, flow: Flow::default() }
    }

    fn run(mut self) -> Flow {
        let instructions = std::mem::take(&mut self.instructions);
        while self.changed {
            self.changed = false;
            for instruction in &instructions {
                self.propagate(instruction);
            }
        }
        self.flow.waits =
            instructions.iter().any(|instruction| instruction.opcode[0] == "griddepcontrol" && instruction.has("wait"));
        let mut waited = false;
        for instruction in &instructions {
            waited |= instruction.opcode[0] == "griddepcontrol" && instruction.has("wait");
            self.record(instruction, waited);
        }
        self.flow
    }

    fn sources(&self, operand: &str) -> BTreeSet<Source> {
        let mut sources = BTreeSet::new();
        for name in names(operand) {
            if let Some(&index) = self.params.get(name) {
                sources.insert(Source::Somewhere { index });
            } else if let Some(known) = self.values.get(name) {
                sources.extend(known);
            }
        }
        sources
    }

    fn add(&mut self, destination: &'a str, sources: BTreeSet<Source>) {
        for name in names(destination) {
            let known = self.values.entry(name).or_default();
            let before = known.len();
            known.extend(&sources);
            self.changed |= known.len() > before;
        }
    }

    fn propagate(&mut self, instruction: &Instruction<'a>) {
        let Some(&first) = instruction.operands.first() else { return };
        match instruction.opcode[0] {
            "ld" | "ldu" if instruction.has("param") => self.load_parameter(instruction, first),
            "ld" | "ldu" => {
                let cell = ["local", "shared"].into_iter().find(|space| instruction.has(space));
                let loaded = match cell {
                    Some(space) => self.values.get(space).cloned().unwrap_or_default(),
                    None if instruction.width() == 8 => BTreeSet::from([Source::Loaded]),
                    None => BTreeSet::new(),
                };
                self.add(first, loaded);
            }
            "st" => {
                let value: BTreeSet<Source> =
                    instruction.operands.iter().skip(1).flat_map(|operand| self.sources(operand)).collect();
                if instruction.has("param") {
                    self.add(first, value);
                } else if let Some(space) = ["local", "shared"].into_iter().find(|space| instruction.has(space)) {
                    self.add(space, value);
                }
            }
            "mad" | "fma" => {
                let sources = instruction.operands.last().map(|operand| self.sources(operand)).unwrap_or_default();
                self.add(first, sources);
            }
            "mul" | "shl" | "shr" | "div" | "rem" | "setp" | "atom" | "red" | "call" | "cp" | "bar" | "barrier"
            | "mbarrier" | "mma" | "wgmma" | "prefetch" => {}
            _ => {
                let sources = instruction.operands.iter().skip(1).flat_map(|operand| self.sources(operand)).collect();
                self.add(first, sources);
            }
        }
    }

    fn load_parameter(&mut self, instruction: &Instruction<'a>, destination: &'a str) {
        let Some(&address) = instruction.operands.get(1) else { return };
        let width = instruction.width();
        let inner = address.trim_matches(['[', ']']);
        let (base, offset) = inner.split_once('+').unwrap_or((inner, "0"));
        let (base, offset) = (base.trim(), offset.trim().parse::<usize>());
        for (rank, register) in names(destination).enumerate() {
            let sources = match (self.params.get(base), &offset) {
                (Some(&index), Ok(offset)) if width == 8 => {
                    BTreeSet::from([Source::Word { index, offset: offset + rank * width }])
                }
                (Some(_), Ok(_)) => BTreeSet::new(),
                (Some(&index), Err(_)) => BTreeSet::from([Source::Somewhere { index }]),
                (None, _) => self.sources(address),
            };
            self.add(register, sources);
        }
    }

    fn record(&mut self, instruction: &Instruction<'a>, waited: bool) {
        let global = !["param", "shared", "local", "const"].iter().any(|space| instruction.has(space));
        let first = instruction.addresses().next();
        match instruction.opcode[0] {
            "ld" | "ldu" if global => self.access(first, Use::Read, waited),
            "st" if global => self.access(first, Use::WritePart, waited),
            "atom" | "red" if global => self.access(first, Use::ReadWrite, waited),
            "multimem" => {
                let use_ = if instruction.has("st") { Use::WritePart } else { Use::ReadWrite };
                self.access(first, use_, waited);
            }
            "cp" if instruction.has("prefetch") => {}
            "cp" if instruction.copies_to_global() => {
                let use_ = if instruction.has("reduce") { Use::ReadWrite } else { Use::WritePart };
                self.access(first, use_, waited);
            }
            "cp" if instruction.has("global") => self.access(instruction.addresses().nth(1), Use::Read, waited),
            "call" => {
                // What the callee does with a pointer is not followed.
                for operand in &instruction.operands {
                    self.access(Some(operand), Use::ReadWrite, waited);
                }
            }
            _ => {}
        }
    }

    fn access(&mut self, operand: Option<&str>, use_: Use, waited: bool) {
        let sources = operand.map(|operand| self.sources(operand)).unwrap_or_default();
        for source in sources {
            let index = match source {
                Source::Word { index, offset } => {
                    let known = self.flow.words.entry((index, offset)).or_insert(Use::None);
                    *known = known.and(use_);
                    index
                }
                Source::Somewhere { index } => {
                    let known = self.flow.somewhere.entry(index).or_insert(Use::None);
                    *known = known.and(use_);
                    index
                }
                Source::Loaded => {
                    self.flow.follows_loaded_pointers = true;
                    continue;
                }
            };
            if !waited {
                self.flow.before_wait.insert(index);
            }
        }
    }
}

/// Splits a body at `;` and at scope braces; a brace that opens a vector operand stays in its statement.
fn statements(body: &str) -> Vec<&str> {
    let (mut start, mut vector, mut parts) = (0, 0usize, Vec::new());
    for (index, byte) in body.bytes().enumerate() {
        match byte {
            b';' => {
                parts.push(&body[start..index]);
                (start, vector) = (index + 1, 0);
            }
            b'{' if body[start..index].trim().is_empty() => start = index + 1,
            b'{' => vector += 1,
            b'}' if vector > 0 => vector -= 1,
            b'}' => start = index + 1,
            _ => {}
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    const AXPY: &str = r"
        .visible .entry axpy(
            .param .u64 .ptr .global .align 16 axpy_param_0, // x
            .param .u64 axpy_param_1, .param .u64 axpy_param_2,
            .param .u32 axpy_param_3
        ) .reqntid 128
        {
            .reg .b64 %rd<9>; .reg .b32 %r<9>; .reg .pred %p<2>;
            .loc 1 6 0 // axpy.py:6
            $L__tmp0:
            .loc 1 7 23, function_name $L__info, inlined_at 1 9 1
            ld.param.b64 %rd1, [axpy_param_0];
            ld.param.b64 %rd2, [axpy_param_1];
            ld.param.b32 %r1, [axpy_param_3];
            mul.wide.s32 %rd3, %r1, 4;
            add.s64 %rd4, %rd1, %rd3;
            mad.wide.s32 %rd5, %r1, 4, %rd2;
            // begin inline asm
            { .reg .u64 p; mov.u64 p, 0x0;
              @%p1 ld.global.L1::evict_last.v4.b32 { %r2, %r3, %r4, %r5 }, [ %rd4 + 0 ]; }
            @%p1 st.global.v4.b32 [ %rd5 + 0 ], { %r2, %r3, %r4, %r5 };
            ret;
        }";

    #[test]
    fn a_pointer_is_read_where_it_reaches_a_load_and_written_where_it_reaches_a_store() {
        let flow = Flow::of(AXPY, "axpy").unwrap();
        assert_eq!(flow.use_of(0, 0), Use::Read);
        assert_eq!(flow.use_of(1, 0), Use::WritePart);
        assert_eq!(flow.use_of(2, 0), Use::None, "never followed");
        assert!(!flow.follows_loaded_pointers && !flow.waits);
        assert!(Flow::of(AXPY, "other").is_none());
    }

    #[test]
    fn structs_atomics_async_copies_and_loaded_pointers() {
        let ptx = r"
        .entry k(.param .align 8 .b8 k_param_0[24], .param .align 64 .b8 k_param_1[128])
        {
        $L__BB0_1:
            ld.param.v2.u64 {%rd1, %rd2}, [k_param_0+8];
            cvta.to.global.u64 %rd3, %rd2;
            atom.global.add.u32 %r1, [%rd3], 1;
            cp.async.cg.shared.global [%r2], [%rd1], 16;
            mov.b64 %rd5, k_param_1;
            cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd5, {%r3, %r4}], [%r2];
            griddepcontrol.wait;
            ld.param.u64 %rd6, [k_param_0];
            ld.global.u64 %rd7, [%rd6];
            st.u32 [%rd7], %r1;
            ret;
        }";
        let flow = Flow::of(ptx, "k").unwrap();
        assert_eq!(flow.use_of(0, 8), Use::Read);
        assert_eq!(flow.use_of(0, 16), Use::ReadWrite);
        assert_eq!(flow.use_of(0, 0), Use::Read);
        assert_eq!(flow.use_of(1, 0), Use::WritePart, "the tensor map's pointer is stored through");
        assert!(flow.follows_loaded_pointers);
        assert!(flow.waits && flow.before_wait(1));
    }

    #[test]
    fn a_pointer_that_leaves_through_a_call_is_read_and_written() {
        let ptx = r".entry k(.param .u64 k_param_0) { ld.param.u64 %rd1, [k_param_0];
            { .param .b64 param0; st.param.b64 [param0+0], %rd1; call.uni helper, (param0); } ret; }";
        assert_eq!(Flow::of(ptx, "k").unwrap().use_of(0, 0), Use::ReadWrite);
    }
}
