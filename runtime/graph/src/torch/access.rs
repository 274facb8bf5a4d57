//! What one node does: pointers in its parameters and what happens through them.

use std::collections::HashMap;

use super::dump::{Dump, FunctionId, GraphDump, NodeDump, NodeKind, Operand, Span};
use super::evidence::Evidence;
use super::history::Allocations;
use super::import::Because;
use super::names::KernelName;
use super::ptx::Flow;
use super::rules::{Fit, Rules, Use, Word, signature_uses};

/// How far a pointer reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Not known: from its address to the end of its allocation.
    ToEnd,
    /// All of its allocation, wherever in it the pointer lies.
    Whole,
    /// These bytes.
    Span(Span),
}

/// What a node does through one pointer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PointerUse {
    /// The address.
    pub addr: u64,
    /// What it can reach.
    pub reach: Reach,
    /// What happens.
    pub use_: Use,
    /// Why we believe that.
    pub evidence: Evidence,
    /// Where it was found: `parameter 2`, `parameter 0 + 296`, `src`.
    pub place: String,
    /// Whether the word is known to be a pointer; otherwise it is a word inside a struct that looks like one.
    pub sure: bool,
    /// Whether it is known where the pointer lies; otherwise a word that points to dropped memory is taken for a leftover.
    pub exact: bool,
    /// Bytes of one contiguous row and distance between rows, where only rows of the span are touched.
    pub rows: Option<(u64, u64)>,
    /// Before the kernel's programmatic wait, if it has programmatic predecessors.
    pub before_wait: bool,
}

/// Everything known about a kernel function, worked out once.
pub struct Kernel<'a> {
    /// Its names.
    pub name: KernelName,
    flow: Option<Flow>,
    /// Rules whose pattern matches, in order.
    rules: Vec<Fit<'a>>,
    signature: Vec<Option<Use>>,
}

impl<'a> Kernel<'a> {
    /// All kernels of a dump.
    pub fn all(dump: &Dump, rules: &'a Rules) -> Vec<Kernel<'a>> {
        let of = |function: &super::dump::Function| {
            let name = KernelName::new(&function.name);
            let flow = function.ptx.as_deref().and_then(|ptx| Flow::of(ptx, &function.name));
            let signature = signature_uses(&name.full, function.params.len());
            let rules = rules.matching(function, &name.full);
            Kernel { name, flow, rules, signature }
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
    pub kernels: &'a [Kernel<'a>],
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
            reach: Reach::Span(span),
            use_,
            evidence: Evidence::Driver,
            place: place.into(),
            sure: true,
            exact: true,
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
                reach: Reach::ToEnd,
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
        // Where a rule does not say which words are pointers, those of the operator's own tensors and temporaries are meant.
        let own = own_memory(graph, node, allocations);
        let any_own = words.iter().any(|&word| is_pointer(word) && own(word.addr));
        let is_own_pointer = |word: Word| is_pointer(word) && (!any_own || own(word.addr));
        let whole = |word: &Word| function.params.iter().any(|&(offset, bytes)| offset == word.offset && bytes == 8);
        let param_of =
            |offset: usize| function.params.iter().position(|&(start, bytes)| (start..start + bytes).contains(&offset));

        let fit = kernel.rules.iter().copied().find(|fit| fit.takes(grid));
        let by_operator = |word: Word| self.by_operator(graph, node, index, word);
        let decided: Vec<(Word, Use, Evidence)> = if let Some(flow) = &kernel.flow {
            let by_flow = |&word: &Word| {
                let param = param_of(word.offset)?;
                Some((word, flow.use_of(param, word.offset - function.params[param].0), Evidence::Ptx))
            };
            words.iter().filter(|&&word| is_pointer(word)).filter_map(by_flow).collect()
        } else if let Some(fit) = &fit {
            let by_rule = |(word, use_): (Word, Use)| {
                let rule = (word, use_, Evidence::Rule(fit.name().to_owned()));
                // Which operand a word is says more than its rank among words that look like pointers.
                if fit.is_exact() { rule } else { by_operator(word).unwrap_or(rule) }
            };
            fit.uses(function, &words, is_own_pointer).into_iter().map(by_rule).collect()
        } else {
            let by_signature = |word: Word| {
                param_of(word.offset)
                    .and_then(|param| kernel.signature[param])
                    .map(|use_| (word, use_, Evidence::Signature))
            };
            let undecided = words.iter().copied().filter(|&word| is_pointer(word));
            undecided
                .map(|word| {
                    by_operator(word).or_else(|| by_signature(word)).unwrap_or((
                        word,
                        Use::ReadWrite,
                        Evidence::Assumed,
                    ))
                })
                .collect()
        };
        let extent = fit.as_ref().and_then(|fit| fit.extent(&kernel.name.full, params));
        let single_wait = kernel.waits().is_some();
        let uses = decided
            .into_iter()
            .map(|(word, use_, evidence)| {
                let param = param_of(word.offset);
                let operand = operand_of(graph, node, word.addr);
                let sure = !matches!(evidence, Evidence::Assumed)
                    || whole(&word)
                    || verdicts.get(&word.offset) == Some(&Verdict::Pointer);
                let exact = match &evidence {
                    Evidence::Rule(_) => fit.as_ref().is_some_and(|fit| fit.is_exact()),
                    Evidence::Assumed => whole(&word),
                    _ => true,
                };
                let before_wait = match (&kernel.flow, param) {
                    (Some(flow), Some(param)) => flow.before_wait(param),
                    _ => !single_wait,
                };
                PointerUse {
                    addr: word.addr,
                    reach: match (operand, extent) {
                        (Some(operand), _) => Reach::Span(operand.span),
                        (None, Some(bytes)) => Reach::Span(Span { addr: word.addr, bytes }),
                        (None, None) if fit.as_ref().is_some_and(|fit| fit.reaches_whole()) => Reach::Whole,
                        (None, None) => Reach::ToEnd,
                    },
                    use_,
                    evidence,
                    place: place_of(&function.params, word.offset),
                    sure,
                    exact,
                    rows: operand
                        .filter(|operand| operand.pitch > operand.row)
                        .map(|operand| (operand.row, operand.pitch)),
                    before_wait,
                }
            })
            .collect();
        NodePointers { uses, refuted }
    }

    /// What the schema of the operator that launched the node says about a word.
    fn by_operator(
        &self,
        graph: &GraphDump,
        node: &NodeDump,
        index: usize,
        word: Word,
    ) -> Option<(Word, Use, Evidence)> {
        let id = node.op?;
        let op = &graph.ops[id];
        let holds = |operands: &[Operand]| operands.iter().any(|operand| operand.span.contains(word.addr));
        let others = || {
            [index.wrapping_sub(1), index + 1]
                .iter()
                .any(|&near| graph.nodes.get(near).is_some_and(|near| near.op == Some(id)))
        };
        let use_ = match (holds(&op.reads), holds(&op.writes)) {
            (true, true) => Use::ReadWrite,
            (true, false) => Use::Read,
            // One operator may launch several kernels, of which one writes the result and another reads it back.
            (false, true) if others() => Use::ReadWrite,
            (false, true) => Use::Write,
            (false, false) => return None,
        };
        Some((word, use_, Evidence::Operator(op.name.clone())))
    }
}

/// Whether an address is in a tensor that the node's operator was given, or in memory handed out while it ran; all, where that is not known.
fn own_memory<'a>(graph: &'a GraphDump, node: &NodeDump, allocations: &'a Allocations) -> impl Fn(u64) -> bool + 'a {
    let op = node.op.map(|op| &graph.ops[op]);
    let window = node.window;
    move |addr| {
        let Some(op) = op else { return true };
        let is_operand = op.reads.iter().chain(&op.writes).any(|operand| operand.span.contains(addr));
        let is_temporary = || window.is_some_and(|window| allocations.handed_out(addr, window));
        is_operand || is_temporary()
    }
}

/// The tensor of the operator that a pointer leads into: the widest that begins there, else one that holds the address.
fn operand_of(graph: &GraphDump, node: &NodeDump, addr: u64) -> Option<Operand> {
    let op = &graph.ops[node.op?];
    let holding = op.reads.iter().chain(&op.writes).filter(|operand| operand.span.contains(addr));
    holding.copied().max_by_key(|operand| (operand.span.addr == addr, operand.span.bytes, operand.row))
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
