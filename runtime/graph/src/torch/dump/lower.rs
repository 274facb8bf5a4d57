//! From what the file says to [`Dump`]: addresses, ranges and indices checked, frames and functions interned, child graphs
//! expanded.

use std::collections::HashMap;
use std::path::Path;

use super::{
    Action, Block, Dump, DumpError, EdgeDump, Event, Frame, FrameId, Function, FunctionId, GraphDump, NodeDump,
    NodeKind, Op, Operand, Span, Tensor,
};
use crate::torch::wire;

/// Turns wire structures into [`Dump`], interning version-0 frames and functions on the way.
pub(super) struct Lowering<'a> {
    path: &'a Path,
    graph: String,
    frames: Vec<Frame>,
    frame_ids: HashMap<String, FrameId>,
    functions: Vec<Function>,
    function_ids: HashMap<String, FunctionId>,
}

impl<'a> Lowering<'a> {
    pub(super) fn new(path: &'a Path, file: &wire::File) -> Self {
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

    pub(super) fn run(mut self, file: wire::File) -> Result<Dump, DumpError> {
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
