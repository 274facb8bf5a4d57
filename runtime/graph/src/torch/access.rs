//! What one node does: pointers in its parameters and what happens through them.

use std::collections::HashMap;

use super::dump::{Dump, FunctionId, GraphDump, NodeDump, NodeKind, Operand, Span};
use super::evidence::Evidence;
use super::history::Allocations;
use super::import::Because;
use super::names::KernelName;
use super::ptx::Flow;
use super::rules::{Rules, Use, Word, signature_uses};

/// What a node does through one pointer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PointerUse {
    /// The address.
    pub addr: u64,
    /// Bytes it can reach from there; `None`: to the end of its allocation.
    pub bytes: Option<u64>,
    /// What happens.
    pub use_: Use,
    /// Why we believe that.
    pub evidence: Evidence,
    /// Where it was found: `parameter 2`, `parameter 0 + 296`, `src`.
    pub place: String,
    /// Whether the word is known to be a pointer; otherwise it is a word inside a struct that looks like one.
    pub sure: bool,
    /// Bytes of one contiguous row and distance between rows, where only rows of the span are touched.
    pub rows: Option<(u64, u64)>,
    /// Before the kernel's programmatic wait, if it has programmatic predecessors.
    pub before_wait: bool,
}

/// Everything known about a kernel function, worked out once.
pub struct Kernel {
    /// Its names.
    pub name: KernelName,
    flow: Option<Flow>,
    signature: Vec<Option<Use>>,
}

impl Kernel {
    /// All kernels of a dump.
    pub fn all(dump: &Dump) -> Vec<Kernel> {
        let of = |function: &super::dump::Function| {
            let name = KernelName::new(&function.name);
            let flow = function.ptx.as_deref().and_then(|ptx| Flow::of(ptx, &function.name));
            let signature = signature_uses(&name.full, function.params.len());
            Kernel { name, flow, signature }
        };
        dump.functions.iter().map(of).collect()
    }

    /// Whether its PTX follows pointers that it loads from memory.
    pub fn follows_loaded_pointers(&self) -> bool {
        self.flow.as_ref().is_some_and(|flow| flow.follows_loaded_pointers)
    }

    /// Whether it executes the programmatic wait, where its PTX is known.
    pub fn waits(&self) -> Option<bool> {
        self.flow.as_ref().map(|flow| flow.waits)
    }
}

/// Reads pointers and their uses out of nodes.
pub struct Reader<'a> {
    /// The dump.
    pub dump: &'a Dump,
    /// Its kernels.
    pub kernels: &'a [Kernel],
    /// The rule table.
    pub rules: &'a Rules,
}

/// What the second capture says about a word.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Pointer,
    Number,
    Unknown,
}

/// The second capture of a graph, with its own allocations.
pub struct Twin<'a> {
    graph: &'a GraphDump,
    allocations: Allocations,
}

impl<'a> Twin<'a> {
    /// Of a graph, when it has one of the same shape.
    pub fn of(graph: &'a GraphDump, dump: &Dump) -> Option<Twin<'a>> {
        let twin = graph.twin.as_deref().filter(|twin| twin.nodes.len() == graph.nodes.len())?;
        Some(Twin { graph: twin, allocations: Allocations::of(twin, dump) })
    }

    fn judge(&self, node: usize, word: Word, allocations: &Allocations) -> Verdict {
        let NodeKind::Kernel { params, .. } = &self.graph.nodes[node].kind else { return Verdict::Unknown };
        let Some(bytes) = params.get(word.offset..word.offset + 8) else { return Verdict::Unknown };
        let other = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        let moved = allocations.holding(word.addr).iter().any(|&id| allocations.list[id].born.is_some());
        match (other == word.addr, self.allocations.knows(other)) {
            // Memory from before the captures keeps its address in both.
            (true, true) => Verdict::Unknown,
            (true, false) if moved => Verdict::Number,
            (true, false) => Verdict::Unknown,
            (false, true) => Verdict::Pointer,
            (false, false) => Verdict::Number,
        }
    }
}

/// The pointers of a node, and how many words the second capture showed to be numbers.
#[derive(Debug, Default)]
pub struct NodePointers {
    /// Uses, in parameter order.
    pub uses: Vec<PointerUse>,
    /// Words that looked like pointers and are none.
    pub refuted: usize,
}

impl Reader<'_> {
    /// What node `index` of `graph` does.
    pub fn pointers(
        &self,
        graph: &GraphDump,
        index: usize,
        allocations: &Allocations,
        twin: Option<&Twin>,
    ) -> NodePointers {
        let node = &graph.nodes[index];
        let direct = |span: Span, use_, place: &str| PointerUse {
            addr: span.addr,
            bytes: Some(span.bytes),
            use_,
            evidence: Evidence::Driver,
            place: place.into(),
            sure: true,
            rows: None,
            before_wait: false,
        };
        let uses = match &node.kind {
            NodeKind::Memcpy { src, dst } => {
                let (src, dst) =
                    (src.map(|span| direct(span, Use::Read, "src")), dst.map(|span| direct(span, Use::Write, "dst")));
                src.into_iter().chain(dst).collect()
            }
            NodeKind::Memset { dst } => vec![direct(*dst, Use::Write, "dst")],
            NodeKind::MemAlloc { span } => vec![direct(*span, Use::WritePart, "mapped bytes")],
            NodeKind::MemFree { addr } => vec![PointerUse {
                bytes: None,
                ..direct(Span { addr: *addr, bytes: 0 }, Use::WritePart, "unmapped bytes")
            }],
            NodeKind::Inert(_) | NodeKind::Opaque(_) => Vec::new(),
            NodeKind::Kernel { function, grid, params, .. } => {
                return self.kernel(graph, node, index, (*function, *grid, params), allocations, twin);
            }
        };
        NodePointers { uses, refuted: 0 }
    }

    fn kernel(
        &self,
        graph: &GraphDump,
        node: &NodeDump,
        index: usize,
        (id, grid, params): (FunctionId, [u32; 3], &[u8]),
        allocations: &Allocations,
        twin: Option<&Twin>,
    ) -> NodePointers {
        let (function, kernel) = (&self.dump.functions[id], &self.kernels[id]);
        let words: Vec<Word> = params
            .chunks_exact(8)
            .enumerate()
            .map(|(rank, bytes)| Word {
                offset: rank * 8,
                addr: u64::from_le_bytes(bytes.try_into().expect("eight bytes")),
            })
            .collect();
        let mut refuted = 0;
        let verdicts: HashMap<usize, Verdict> = words
            .iter()
            .filter(|word| allocations.knows(word.addr))
            .map(|&word| (word.offset, twin.map_or(Verdict::Unknown, |twin| twin.judge(index, word, allocations))))
            .inspect(|&(_, verdict)| refuted += usize::from(verdict == Verdict::Number))
            .collect();
        let is_pointer = |word: Word| verdicts.get(&word.offset).is_some_and(|&verdict| verdict != Verdict::Number);
        let whole = |word: &Word| function.params.iter().any(|&(offset, bytes)| offset == word.offset && bytes == 8);
        let param_of =
            |offset: usize| function.params.iter().position(|&(start, bytes)| (start..start + bytes).contains(&offset));

        let fit = self.rules.find(function, &kernel.name.full, grid);
        let decided: Vec<(Word, Use, Evidence)> = if let Some(flow) = &kernel.flow {
            let by_flow = |&word: &Word| {
                let param = param_of(word.offset)?;
                Some((word, flow.use_of(param, word.offset - function.params[param].0), Evidence::Ptx))
            };
            words.iter().filter(|&&word| is_pointer(word)).filter_map(by_flow).collect()
        } else if let Some(fit) = &fit {
            let rule = || Evidence::Rule(fit.name().to_owned());
            fit.uses(function, &words, is_pointer).into_iter().map(|(word, use_)| (word, use_, rule())).collect()
        } else {
            let undecided = words.iter().filter(|&&word| is_pointer(word));
            undecided.map(|&word| self.without_rule(graph, node, kernel, word, param_of(word.offset))).collect()
        };
        let extent = fit.as_ref().and_then(|fit| fit.extent(&kernel.name.full, params));
        let single_wait = kernel.waits().is_some();
        let uses = decided
            .into_iter()
            .map(|(word, use_, evidence)| {
                let param = param_of(word.offset);
                let reach = operand_reach(graph, node, word.addr);
                let sure = !matches!(evidence, Evidence::Assumed)
                    || whole(&word)
                    || verdicts.get(&word.offset) == Some(&Verdict::Pointer);
                let before_wait = match (&kernel.flow, param) {
                    (Some(flow), Some(param)) => flow.before_wait(param),
                    _ => !single_wait,
                };
                PointerUse {
                    addr: word.addr,
                    bytes: reach.map(|operand| operand.span.bytes).or(extent),
                    use_,
                    evidence,
                    place: place_of(&function.params, word.offset),
                    sure,
                    rows: reach
                        .filter(|operand| operand.pitch > operand.row)
                        .map(|operand| (operand.row, operand.pitch)),
                    before_wait,
                }
            })
            .collect();
        NodePointers { uses, refuted }
    }

    /// A word of a kernel that has neither PTX nor a rule: its operator's schema, its signature, else assumed.
    fn without_rule(
        &self,
        graph: &GraphDump,
        node: &NodeDump,
        kernel: &Kernel,
        word: Word,
        param: Option<usize>,
    ) -> (Word, Use, Evidence) {
        if let Some(op) = node.op.map(|op| &graph.ops[op]) {
            let holds = |operands: &[Operand]| operands.iter().any(|operand| operand.span.contains(word.addr));
            let evidence = || Evidence::Operator(op.name.clone());
            match (holds(&op.reads), holds(&op.writes)) {
                (true, true) => return (word, Use::ReadWrite, evidence()),
                (true, false) => return (word, Use::Read, evidence()),
                // One operator may launch several kernels, of which only one writes the result and another reads it back.
                (false, true) => return (word, Use::ReadWrite, evidence()),
                (false, false) => {}
            }
        }
        match param.and_then(|param| kernel.signature[param]) {
            Some(use_) => (word, use_, Evidence::Signature),
            None => (word, Use::ReadWrite, Evidence::Assumed),
        }
    }
}

/// The widest tensor that the operator was given at that address.
fn operand_reach(graph: &GraphDump, node: &NodeDump, addr: u64) -> Option<Operand> {
    let op = &graph.ops[node.op?];
    let at = op.reads.iter().chain(&op.writes).filter(|operand| operand.span.addr == addr && operand.span.bytes > 0);
    at.copied().max_by_key(|operand| (operand.span.bytes, operand.row))
}

/// The bytes of a strided view: `row` bytes at every `pitch`.
#[derive(Debug, Clone, Copy)]
pub struct Rows {
    span: Span,
    row: u64,
    pitch: u64,
}

impl Rows {
    /// The rows of a use whose reach is known.
    pub fn of(because: &Because) -> Option<Rows> {
        let (row, pitch) = because.rows.unwrap_or((because.span.bytes, because.span.bytes));
        because.extent_known.then_some(Rows { span: because.span, row: row.max(1), pitch: pitch.max(1) })
    }

    /// Whether no byte is in both.
    pub fn is_apart_from(self, other: Rows) -> bool {
        let Some(common) = self.span.intersection(other.span) else { return true };
        let (coarse, fine) = if self.pitch >= other.pitch { (self, other) } else { (other, self) };
        let mut row = (common.addr - coarse.span.addr) / coarse.pitch;
        while coarse.span.addr + row * coarse.pitch < common.end() {
            let start = coarse.span.addr + row * coarse.pitch;
            if fine.touches(start.max(common.addr), (start + coarse.row).min(common.end())) {
                return false;
            }
            row += 1;
        }
        true
    }

    fn touches(self, start: u64, end: u64) -> bool {
        if start >= end {
            return false;
        }
        let into = (start - self.span.addr) % self.pitch;
        into < self.row || start + (self.pitch - into) < end
    }
}

fn place_of(params: &[(usize, usize)], offset: usize) -> String {
    match params.iter().position(|&(start, bytes)| (start..start + bytes).contains(&offset)) {
        Some(index) if params[index] == (offset, 8) => format!("parameter {index}"),
        Some(index) => format!("parameter {index} + {}", offset - params[index].0),
        None => format!("offset {offset}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(addr: u64, bytes: u64, row: u64, pitch: u64) -> Rows {
        Rows { span: Span { addr, bytes }, row, pitch }
    }

    #[test]
    fn column_halves_are_apart_and_overlapping_columns_are_not() {
        let (left, right) = (rows(0, 4 * 100 + 50, 50, 100), rows(50, 4 * 100 + 50, 50, 100));
        assert!(left.is_apart_from(right) && right.is_apart_from(left));
        let wide = rows(49, 4 * 100 + 51, 51, 100);
        assert!(!left.is_apart_from(wide) && !wide.is_apart_from(left));
    }

    #[test]
    fn a_dense_range_in_the_gap_of_a_strided_view_is_apart() {
        let left = rows(0, 450, 50, 100);
        let dense = |addr: u64, bytes: u64| rows(addr, bytes, bytes, bytes);
        assert!(left.is_apart_from(dense(160, 40)) && dense(160, 40).is_apart_from(left));
        assert!(!left.is_apart_from(dense(160, 41)) && !dense(149, 1).is_apart_from(left));
    }
}
