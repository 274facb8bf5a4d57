//! The dump: what `tools/lathe_dump.py` writes, parsed, validated and lowered to plain Rust.
//!
//! The schema is documented in `docs/torch-dump-format.md`. Version 1 is a file of several graphs; version 0 is one bare graph
//! object without a header (the first captures ever taken, kept as fixtures). Both lower to the same [`Dump`].

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::wire;

/// The newest schema version this build reads.
pub const VERSION: u64 = 1;

/// Why a dump could not be read. Every message names the file, the value and what to do.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    /// The file could not be opened or read.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The JSON stops in the middle.
    #[error(
        "{}: truncated: the JSON ends at line {line}, column {column}, inside a value; the capture process probably stopped while writing. Dump again \
         (lathe_dump writes to a temporary file and renames it, so a whole file is never half)",
        path.display()
    )]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Line of the end.
        line: usize,
        /// Column of the end.
        column: usize,
    },
    /// The text is not JSON, or a field has the wrong type.
    #[error("{}:{line}:{column}: not a torch dump: {message}; the fields are listed in docs/torch-dump-format.md", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Line of the first wrong token.
        line: usize,
        /// Its column.
        column: usize,
        /// What the parser expected.
        message: String,
    },
    /// Some other JSON document.
    #[error("{}: `format` is {found:?}, expected \"lathe-torch-dump\"; make the file with tools/lathe_dump.py", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What `format` says.
        found: String,
    },
    /// A schema from the future.
    #[error(
        "{}: schema version {found} is unknown: this build reads versions 0 to {VERSION}. Update lathe, or dump with the lathe_dump.py that came with it",
        path.display()
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// What `version` says.
        found: u64,
    },
    /// The fields parse but contradict each other.
    #[error("{}: graph `{graph}`: {message}", path.display())]
    Inconsistent {
        /// The file.
        path: PathBuf,
        /// The graph's name.
        graph: String,
        /// Which field, which value, what is accepted.
        message: String,
    },
    /// A file without a graph.
    #[error("{}: `graphs` is empty: nothing was captured before the dump was written", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
}

/// Bytes `[addr, addr + bytes)` of device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Span {
    /// First byte.
    pub addr: u64,
    /// Length in bytes.
    pub bytes: u64,
}

impl Span {
    /// One past the last byte.
    pub fn end(self) -> u64 {
        self.addr.saturating_add(self.bytes)
    }

    /// Whether `addr` is one of the bytes.
    pub fn contains(self, addr: u64) -> bool {
        self.addr <= addr && addr < self.end()
    }

    /// The bytes both spans cover, if any.
    pub fn intersection(self, other: Span) -> Option<Span> {
        let addr = self.addr.max(other.addr);
        let end = self.end().min(other.end());
        (addr < end).then(|| Span { addr, bytes: end - addr })
    }
}

/// A line of the user's Python.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Frame {
    /// File, empty when the dump does not say.
    pub file: String,
    /// Line, 0 when unknown.
    pub line: u32,
    /// Function.
    pub function: String,
    /// The text of the line, when the dumper could read it.
    pub text: String,
}

impl std::fmt::Display for Frame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let file = if self.file.is_empty() { "<python>" } else { &self.file };
        write!(f, "{file}:{} in {}", self.line, self.function)
    }
}

/// Index into [`Dump::frames`].
pub type FrameId = usize;
/// Index into [`Dump::functions`].
pub type FunctionId = usize;

/// Everything one file holds.
#[derive(Debug, Clone, Default)]
pub struct Dump {
    /// Where it came from.
    pub path: PathBuf,
    /// Python lines, referred to by index.
    pub frames: Vec<Frame>,
    /// Kernels, referred to by index.
    pub functions: Vec<Function>,
    /// The allocator's blocks when the file was written.
    pub blocks: Vec<Block>,
    /// The captured graphs, in capture order.
    pub graphs: Vec<GraphDump>,
}

/// A kernel function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// Name as the driver says it, mangled.
    pub name: String,
    /// `(offset, bytes)` of every parameter in the parameter buffer.
    pub params: Vec<(usize, usize)>,
    /// PTX text, for kernels compiled in the process (Triton, NVRTC).
    pub ptx: Option<String>,
}

/// A block of the caching allocator at the time of the dump.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// Its bytes.
    pub span: Span,
    /// The memory pool of its segment; `None` is the general pool that eager code uses.
    pub pool: Option<String>,
    /// Whether a tensor still holds it.
    pub live: bool,
}

/// What the allocator did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// A block was handed out.
    Alloc,
    /// The host dropped its last reference.
    FreeRequested,
    /// The block may be handed out again.
    FreeCompleted,
}

/// One event of the allocator's history during capture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// What happened.
    pub action: Action,
    /// To which bytes.
    pub span: Span,
    /// Stream of the block, an index into [`GraphDump::streams`].
    pub stream: u32,
    /// The Python line that caused it.
    pub at: Option<FrameId>,
}

/// What a named tensor is to the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Hash)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Written before the replay, read by the graph.
    Input,
    /// Read after the replay.
    Output,
    /// State that lives across replays.
    Persistent,
    /// Lives inside one replay.
    Transient,
}

/// A tensor the user named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tensor {
    /// The name.
    pub name: String,
    /// Its bytes.
    pub span: Span,
    /// Its role.
    pub role: Role,
    /// How many history events had happened when it was named, when the dumper knows.
    pub event: Option<usize>,
}

/// A tensor argument of an operator, with the bytes it can reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operand {
    /// From the first to one past the last byte the view reaches.
    pub span: Span,
    /// Bytes of one contiguous row; equal to `span.bytes` for a dense view.
    pub row: u64,
    /// Distance between rows; 0 for a dense view.
    pub pitch: u64,
}

/// An operator that ran during capture, as the dispatcher saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Op {
    /// Name with overload, such as `aten::mul.out`.
    pub name: String,
    /// Tensor arguments its schema does not let it change.
    pub reads: Vec<Operand>,
    /// Results, and arguments that its schema marks as written.
    pub writes: Vec<Operand>,
}

/// One captured graph, child graphs already expanded.
#[derive(Debug, Clone, Default)]
pub struct GraphDump {
    /// Its name.
    pub name: String,
    /// A remark of the user's.
    pub note: String,
    /// Id of its memory pool.
    pub pool: Option<String>,
    /// Label of every stream, by index.
    pub streams: Vec<String>,
    /// The allocator's history during capture, oldest first.
    pub events: Vec<Event>,
    /// Whether the allocator's history was recorded at all.
    pub has_history: bool,
    /// Tensors the user named.
    pub tensors: Vec<Tensor>,
    /// Operators, in order.
    pub ops: Vec<Op>,
    /// Nodes in recording order.
    pub nodes: Vec<NodeDump>,
    /// Edges between them.
    pub edges: Vec<EdgeDump>,
    /// A second capture of the same program at other addresses.
    pub twin: Option<Box<GraphDump>>,
    /// Writes that `lathe_dump.writes` saw: `(node, bytes that changed)`.
    pub observed: Vec<(usize, Span)>,
}

/// A node.
#[derive(Debug, Clone)]
pub struct NodeDump {
    /// Its label in the file: the index, with the parent's before it inside a child graph (`12/3`).
    pub label: String,
    /// What it does.
    pub kind: NodeKind,
    /// The Python line that recorded it.
    pub at: Option<FrameId>,
    /// The operator that recorded it, an index into [`GraphDump::ops`].
    pub op: Option<usize>,
    /// The stream it was recorded on.
    pub stream: Option<u32>,
    /// History positions `lo..=hi` between which it was recorded.
    pub window: Option<(usize, usize)>,
}

/// What a node does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeKind {
    /// A kernel launch.
    Kernel {
        /// The kernel.
        function: FunctionId,
        /// Grid in CTAs.
        grid: [u32; 3],
        /// CTA in threads.
        block: [u32; 3],
        /// The parameter buffer, parameters at their offsets.
        params: Vec<u8>,
    },
    /// A copy; a side on the host or in an array is `None`.
    Memcpy {
        /// Device bytes read.
        src: Option<Span>,
        /// Device bytes written.
        dst: Option<Span>,
    },
    /// A fill.
    Memset {
        /// Device bytes written.
        dst: Span,
    },
    /// A graph memory node that maps bytes.
    MemAlloc {
        /// The bytes.
        span: Span,
    },
    /// A graph memory node that unmaps the bytes at this address.
    MemFree {
        /// The address.
        addr: u64,
    },
    /// A node that touches no device memory: empty, event record or wait.
    Inert(String),
    /// A node whose accesses cannot be read back: host function, conditional body, batched memory operation.
    Opaque(String),
}

impl NodeKind {
    /// Device memory that the driver's own parameters name.
    pub fn named_spans(&self) -> impl Iterator<Item = Span> + use<> {
        let (first, second) = match *self {
            NodeKind::Memcpy { src, dst } => (src, dst),
            NodeKind::Memset { dst: span } | NodeKind::MemAlloc { span } => (Some(span), None),
            _ => (None, None),
        };
        first.into_iter().chain(second)
    }
}

/// An edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EdgeDump {
    /// From node.
    pub src: usize,
    /// To node.
    pub dst: usize,
    /// A programmatic (PDL) edge: orders the launch, not the memory.
    pub programmatic: bool,
}

impl Dump {
    /// Reads and validates a file.
    ///
    /// # Errors
    /// [`DumpError`], naming the file, the field and what is accepted.
    pub fn load(path: &Path) -> Result<Dump, DumpError> {
        let text = std::fs::read_to_string(path).map_err(|source| DumpError::Io { path: path.to_owned(), source })?;
        Dump::parse(&text, path)
    }

    /// Parses the text of a dump; `path` names it in errors and names the graph of a version-0 file.
    ///
    /// # Errors
    /// [`DumpError`], naming the file, the field and what is accepted.
    pub fn parse(text: &str, path: &Path) -> Result<Dump, DumpError> {
        let header: wire::Header = wire::from_str(text, path)?;
        let file = match (header.format, header.version) {
            (None, None) => {
                let mut graph: wire::Graph = wire::from_str(text, path)?;
                graph.name =
                    path.file_stem().map_or_else(|| "graph".into(), |stem| stem.to_string_lossy().into_owned());
                wire::File::of_one(graph)
            }
            (Some(format), _) if format != "lathe-torch-dump" => {
                return Err(DumpError::Format { path: path.to_owned(), found: format });
            }
            (_, Some(VERSION)) => wire::from_str(text, path)?,
            (_, found) => return Err(DumpError::Version { path: path.to_owned(), found: found.unwrap_or(0) }),
        };
        if file.graphs.is_empty() {
            return Err(DumpError::Empty { path: path.to_owned() });
        }
        Lowering::new(path, &file).run(file)
    }
}

/// Turns wire structures into [`Dump`], interning version-0 frames and functions on the way.
struct Lowering<'a> {
    path: &'a Path,
    graph: String,
    frames: Vec<Frame>,
    frame_ids: HashMap<String, FrameId>,
    functions: Vec<Function>,
    function_ids: HashMap<String, FunctionId>,
}

impl<'a> Lowering<'a> {
    fn new(path: &'a Path, file: &wire::File) -> Self {
        let frames = file.frames.iter().cloned().map(wire::Frame::lower).collect();
        Lowering {
            path,
            graph: String::new(),
            frames,
            frame_ids: HashMap::new(),
            functions: Vec::new(),
            function_ids: HashMap::new(),
        }
    }

    fn run(mut self, file: wire::File) -> Result<Dump, DumpError> {
        for function in file.functions {
            let params = function.params.iter().map(|&[offset, bytes]| (offset, bytes)).collect();
            self.functions.push(Function { name: function.name, params, ptx: function.ptx });
        }
        let blocks = file
            .blocks
            .into_iter()
            .map(|block| {
                Ok(Block {
                    span: self.span(&block.addr, block.bytes, "blocks.addr")?,
                    pool: block.pool,
                    live: block.live,
                })
            })
            .collect::<Result<_, DumpError>>()?;
        let graphs = file.graphs.into_iter().map(|graph| self.graph(graph)).collect::<Result<_, _>>()?;
        Ok(Dump { path: self.path.to_owned(), frames: self.frames, functions: self.functions, blocks, graphs })
    }

    fn fail(&self, message: String) -> DumpError {
        DumpError::Inconsistent { path: self.path.to_owned(), graph: self.graph.clone(), message }
    }

    fn address(&self, text: &str, field: &str) -> Result<u64, DumpError> {
        let digits = text.strip_prefix("0x").unwrap_or(text);
        u64::from_str_radix(digits, 16).map_err(|_| {
            self.fail(format!("`{field}` is {text:?}, expected a hexadecimal address such as \"0x7f00aa000000\""))
        })
    }

    fn span(&self, addr: &str, bytes: u64, field: &str) -> Result<Span, DumpError> {
        let addr = self.address(addr, field)?;
        if addr.checked_add(bytes).is_none() {
            return Err(
                self.fail(format!("`{field}` {addr:#x} + {bytes} bytes runs past the end of the address space"))
            );
        }
        Ok(Span { addr, bytes })
    }

    fn frame(&mut self, at: Option<wire::At>) -> Result<Option<FrameId>, DumpError> {
        match at {
            None => Ok(None),
            Some(wire::At::Id(id)) if id < self.frames.len() => Ok(Some(id)),
            Some(wire::At::Id(id)) => {
                Err(self.fail(format!("`at` is {id}, but `frames` has {} entries", self.frames.len())))
            }
            Some(wire::At::Text(text)) if text.is_empty() => Ok(None),
            Some(wire::At::Text(text)) => {
                if let Some(&id) = self.frame_ids.get(&text) {
                    return Ok(Some(id));
                }
                let (function, line) = text.rsplit_once(':').unwrap_or((&text, "0"));
                self.frames.push(Frame {
                    line: line.parse().unwrap_or(0),
                    function: function.to_owned(),
                    ..Frame::default()
                });
                self.frame_ids.insert(text, self.frames.len() - 1);
                Ok(Some(self.frames.len() - 1))
            }
        }
    }

    fn graph(&mut self, graph: wire::Graph) -> Result<GraphDump, DumpError> {
        self.graph = graph.name.clone();
        let mut streams = graph.streams;
        let has_history = graph.allocations.is_some();
        let mut events = Vec::new();
        for event in graph.allocations.unwrap_or_default() {
            let action = match event.action.as_str() {
                "alloc" => Action::Alloc,
                "free_requested" => Action::FreeRequested,
                "free_completed" => Action::FreeCompleted,
                other => {
                    return Err(self.fail(format!(
                        "allocation action {other:?} is unknown; alloc, free_requested and free_completed are"
                    )));
                }
            };
            let span = self.span(&event.addr, event.bytes, "allocations.addr")?;
            while streams.len() <= event.stream as usize && streams.len() < 4096 {
                streams.push(format!("stream {}", streams.len()));
            }
            events.push(Event { action, span, stream: event.stream, at: self.frame(event.at)? });
        }
        let tensors = graph
            .tensors
            .into_iter()
            .map(|tensor| {
                Ok(Tensor {
                    span: self.span(&tensor.ptr, tensor.bytes, "tensors.ptr")?,
                    name: tensor.name,
                    role: tensor.role,
                    event: tensor.event,
                })
            })
            .collect::<Result<_, DumpError>>()?;
        let ops = graph.ops.into_iter().map(|op| self.op(op)).collect::<Result<Vec<_>, _>>()?;
        let mut flat = GraphDump {
            name: graph.name,
            note: graph.note,
            pool: graph.pool,
            streams,
            events,
            has_history,
            tensors,
            ops,
            ..GraphDump::default()
        };
        self.body(graph.nodes, graph.edges, "", &mut flat)?;
        for write in graph.observed {
            if write.node >= flat.nodes.len() {
                return Err(self.fail(format!(
                    "`observed.node` is {}, but the graph has {} nodes",
                    write.node,
                    flat.nodes.len()
                )));
            }
            flat.observed.push((write.node, self.span(&write.addr, write.bytes, "observed.addr")?));
        }
        if let Some(mut twin) = graph.twin {
            twin.name = format!("{} (second capture)", flat.name);
            flat.twin = Some(Box::new(self.graph(*twin)?));
        }
        Ok(flat)
    }

    fn op(&self, op: wire::Op) -> Result<Op, DumpError> {
        let operands = |list: Vec<wire::Operand>| {
            list.into_iter()
                .map(|operand| {
                    let span = self.span(&operand.ptr, operand.bytes, "ops.ptr")?;
                    Ok(Operand { span, row: operand.row.unwrap_or(span.bytes), pitch: operand.pitch })
                })
                .collect::<Result<Vec<_>, DumpError>>()
        };
        Ok(Op { name: op.name, reads: operands(op.reads)?, writes: operands(op.writes)? })
    }

    /// Appends nodes and edges, expanding child graphs: their roots inherit the parent's incoming edges, their leaves its outgoing ones.
    fn body(
        &mut self,
        nodes: Vec<wire::Node>,
        edges: Vec<wire::Edge>,
        prefix: &str,
        flat: &mut GraphDump,
    ) -> Result<(), DumpError> {
        let count = nodes.len();
        let mut spans: Vec<(usize, usize)> = Vec::with_capacity(count);
        for (index, node) in nodes.into_iter().enumerate() {
            let start = flat.nodes.len();
            let label = format!("{prefix}{index}");
            if node.id.is_some_and(|id| id != index) {
                return Err(self.fail(format!(
                    "node {label} has id {}; ids count from 0 in recording order",
                    node.id.unwrap_or(0)
                )));
            }
            let at = self.frame(node.at.clone())?;
            if let Some(op) = node.op.filter(|&op| op >= flat.ops.len()) {
                return Err(self.fail(format!("node {label}: `op` is {op}, but the graph has {} ops", flat.ops.len())));
            }
            let window = node.events.map(|[lo, hi]| (lo, hi));
            if let Some((lo, hi)) = window.filter(|&(lo, hi)| lo > hi || hi > flat.events.len()) {
                return Err(self.fail(format!(
                    "node {label}: `events` is [{lo}, {hi}], expected lo <= hi <= {}",
                    flat.events.len()
                )));
            }
            if node.kind == "graph" {
                let child =
                    node.graph.ok_or_else(|| self.fail(format!("node {label} is a child graph without `graph`")))?;
                self.body(child.nodes, child.edges, &format!("{label}/"), flat)?;
                if flat.nodes.len() == start {
                    let kind = NodeKind::Inert("empty child graph".into());
                    flat.nodes.push(NodeDump { label, kind, at, op: node.op, stream: node.stream, window });
                }
            } else {
                let (op, stream) = (node.op, node.stream);
                let kind = self.kind(node, &label)?;
                flat.nodes.push(NodeDump { label, kind, at, op, stream, window });
            }
            spans.push((start, flat.nodes.len()));
        }
        // Ends of expanded children are found on their inner edges before the outer ones are added.
        let (mut has_in, mut has_out) = (vec![false; flat.nodes.len()], vec![false; flat.nodes.len()]);
        for edge in &flat.edges {
            has_out[edge.src] = true;
            has_in[edge.dst] = true;
        }
        for edge in edges {
            let edge = edge.lower();
            if edge.src >= count || edge.dst >= count {
                return Err(self.fail(format!("edge {} -> {} names a node outside 0..{count}", edge.src, edge.dst)));
            }
            let leaves = (spans[edge.src].0..spans[edge.src].1).filter(|&node| !has_out[node]);
            for src in leaves {
                for dst in (spans[edge.dst].0..spans[edge.dst].1).filter(|&node| !has_in[node]) {
                    flat.edges.push(EdgeDump { src, dst, ..edge });
                }
            }
        }
        Ok(())
    }

    fn kind(&mut self, node: wire::Node, label: &str) -> Result<NodeKind, DumpError> {
        let bytes = node.bytes.unwrap_or(0);
        let side = |this: &Self, addr: &Option<String>, field: &str| -> Result<Option<Span>, DumpError> {
            let Some(text) = addr else { return Ok(None) };
            let span = this.span(text, bytes, field)?;
            Ok((span.addr != 0).then_some(span))
        };
        Ok(match node.kind.as_str() {
            "kernel" => self.kernel(node, label)?,
            "memcpy" => {
                NodeKind::Memcpy { src: side(self, &node.src, "nodes.src")?, dst: side(self, &node.dst, "nodes.dst")? }
            }
            "memset" => match side(self, &node.dst, "nodes.dst")? {
                Some(dst) => NodeKind::Memset { dst },
                None => return Err(self.fail(format!("node {label} is a memset without `dst`"))),
            },
            "mem_alloc" => match side(self, &node.dst, "nodes.dst")? {
                Some(span) => NodeKind::MemAlloc { span },
                None => return Err(self.fail(format!("node {label} is a memory allocation without `dst`"))),
            },
            "mem_free" => match side(self, &node.dst, "nodes.dst")? {
                Some(span) => NodeKind::MemFree { addr: span.addr },
                None => return Err(self.fail(format!("node {label} is a memory free without `dst`"))),
            },
            "empty" | "wait_event" | "event_record" | "semaphore_signal" | "semaphore_wait" => {
                NodeKind::Inert(node.kind)
            }
            _ => NodeKind::Opaque(node.kind),
        })
    }

    fn kernel(&mut self, node: wire::Node, label: &str) -> Result<NodeKind, DumpError> {
        let (function, params) = match (node.function, node.kernel, node.params) {
            (Some(id), _, Some(wire::Params::Buffer(hex))) => {
                let Some(function) = self.functions.get(id) else {
                    return Err(self.fail(format!("node {label}: `function` is {id}, but `functions` has {} entries", self.functions.len())));
                };
                let params = self.bytes(&hex, label)?;
                let need = function.params.iter().map(|&(offset, bytes)| offset + bytes).max().unwrap_or(0);
                if params.len() < need {
                    return Err(self.fail(format!("node {label}: `params` holds {} bytes, but its kernel takes {need}", params.len())));
                }
                (id, params)
            }
            (None, Some(name), Some(wire::Params::List(list))) => {
                let mut buffer = Vec::new();
                let mut layout = Vec::new();
                for param in list {
                    let bytes = self.bytes(&param.hex, label)?;
                    if bytes.len() != param.size || param.offset > 1 << 20 {
                        return Err(self.fail(format!("node {label}: parameter at offset {} says {} bytes and holds {}", param.offset, param.size, bytes.len())));
                    }
                    buffer.resize(buffer.len().max(param.offset + param.size), 0);
                    buffer[param.offset..param.offset + param.size].copy_from_slice(&bytes);
                    layout.push((param.offset, param.size));
                }
                (self.function(name, layout), buffer)
            }
            _ => return Err(self.fail(format!("node {label} is a kernel: it needs `function` with `params` as hex, or `kernel` with a list of parameters"))),
        };
        Ok(NodeKind::Kernel {
            function,
            grid: node.grid.unwrap_or([1; 3]),
            block: node.block.unwrap_or([1; 3]),
            params,
        })
    }

    fn function(&mut self, name: String, params: Vec<(usize, usize)>) -> FunctionId {
        let key = format!("{name} {params:?}");
        *self.function_ids.entry(key).or_insert_with(|| {
            self.functions.push(Function { name, params, ptx: None });
            self.functions.len() - 1
        })
    }

    fn bytes(&self, hex: &str, label: &str) -> Result<Vec<u8>, DumpError> {
        wire::decode_hex(hex)
            .ok_or_else(|| self.fail(format!("node {label}: `params` is not an even run of hexadecimal digits")))
    }
}
