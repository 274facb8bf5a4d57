//! The dump: what `tools/lathe_dump.py` writes, parsed, validated and lowered to plain Rust.
//!
//! The schema is documented in `docs/torch-dump-format.md`. Version 1 is a file of several graphs; version 0 is one bare graph
//! object without a header (the first captures ever taken, kept as fixtures). Both lower to the same [`Dump`].

mod error;
mod lower;

pub use error::DumpError;

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::wire;
use lower::Lowering;

/// The newest schema version this build reads.
pub const VERSION: u64 = 1;

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
