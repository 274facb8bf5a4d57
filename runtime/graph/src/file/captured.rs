//! From JSON to the graph that a driver held, which the annotation is compared with.

use super::cursor::Cursor;
use super::{FileError, Problem};
use crate::driver::{CapturedEdge, CapturedGraph, CapturedKind, CapturedNode, Word};

/// A graph as a driver held it.
pub(super) fn captured(captured: &Cursor) -> Result<CapturedGraph, FileError> {
    let fields = captured.object("a captured graph", &["nodes", "edges"])?;
    let kinds = [
        CapturedKind::Kernel,
        CapturedKind::Memcpy,
        CapturedKind::Memset,
        CapturedKind::Host,
        CapturedKind::Empty,
        CapturedKind::EventRecord,
        CapturedKind::EventWait,
        CapturedKind::MemAlloc,
        CapturedKind::MemFree,
        CapturedKind::ChildGraph,
        CapturedKind::Conditional,
        CapturedKind::Other,
    ];
    let words = [
        "kernel",
        "memcpy",
        "memset",
        "host",
        "empty",
        "event_record",
        "event_wait",
        "mem_alloc",
        "mem_free",
        "child_graph",
        "conditional",
        "other",
    ];
    let words: Vec<(&str, CapturedKind)> = words.into_iter().zip(kinds).collect();
    let mut graph = CapturedGraph::default();
    for item in fields.need("nodes")?.items()? {
        let fields = item.object("a captured node", &["kind", "name", "words"])?;
        fields.need("kind")?;
        let kind = fields.word("kind", "kind of captured node", &words)?.unwrap_or(CapturedKind::Other);
        let name = fields.get("name").map_or(Ok(""), |name| name.string())?.to_string();
        graph.nodes.push(CapturedNode::new(kind, name));
        let mut list = Vec::new();
        for item in fields.items("words")? {
            let fields = item.object("a parameter word", &["parameter", "offset", "value"])?;
            let small = |at: Cursor| {
                let number = at.bytes("index")?;
                u32::try_from(number).map_err(|_| at.error(Problem::Bytes { what: "index", found: number.to_string() }))
            };
            let parameter = small(fields.need("parameter")?)?;
            let offset = fields.get("offset").map_or(Ok(0), small)?;
            list.push(Word { parameter, offset, value: fields.need("value")?.address()? });
        }
        graph.words.push(list);
    }
    for item in fields.items("edges")? {
        let fields = item.object("a captured edge", &["from", "to", "programmatic"])?;
        let index = |field| -> Result<usize, FileError> {
            let at = fields.need(field)?;
            let index = at.bytes("index")?;
            match usize::try_from(index) {
                Ok(index) if index < graph.nodes.len() => Ok(index),
                _ => {
                    let known = graph.nodes.iter().map(|n| n.name.clone()).collect();
                    Err(at.error(Problem::UnknownName { what: "captured node", name: index.to_string(), known }))
                }
            }
        };
        let (from, to) = (index("from")?, index("to")?);
        let programmatic = fields.get("programmatic").map(|p| p.boolean()).transpose()?.unwrap_or(false);
        graph.edges.push(CapturedEdge { from, to, from_port: programmatic.into(), programmatic });
    }
    Ok(graph)
}
