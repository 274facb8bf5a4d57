//! Nodes and their accesses, as a file writes them.

use super::cursor::{Cursor, Fields};
use super::decode::Decoder;
use super::{FileError, Problem};
use crate::model::{Access, Basis, BufferId, Effect, Node, NodeKind, PdlWait, Phase, Pointer, Site, StreamId};

/// The fields by which an entry is recognised as a node.
pub(super) const KINDS: [(&str, NodeKind); 4] = [
    ("kernel", NodeKind::Kernel),
    ("memcpy", NodeKind::Memcpy),
    ("memset", NodeKind::Memset),
    ("host", NodeKind::Host),
];

const EFFECTS: [(&str, Effect); 4] = [
    ("read", Effect::Read),
    ("write_all", Effect::WriteAll),
    ("write_part", Effect::WritePart),
    ("read_write", Effect::ReadWrite),
];

/// Fields of every node.
pub(super) const FIELDS: [&str; 17] = [
    "kernel",
    "memcpy",
    "memset",
    "host",
    "stream",
    "read",
    "write_all",
    "write_part",
    "read_write",
    "before_wait",
    "pdl_wait",
    "programmatic",
    "pointers",
    "symbol",
    "ns",
    "basis",
    "at",
];

const WAITS: [(&str, PdlWait); 3] = [("every", PdlWait::Every), ("some", PdlWait::Some), ("never", PdlWait::Never)];

const BASES: [(&str, Basis); 4] =
    [("declared", Basis::Declared), ("observed", Basis::Observed), ("rule", Basis::Rule), ("assumed", Basis::Assumed)];

/// The kind and the name of a node, if the entry is one.
pub(super) fn kind_and_name<'a>(fields: &Fields<'a>) -> Option<(NodeKind, Cursor<'a>)> {
    KINDS.iter().find_map(|(word, kind)| Some((*kind, fields.get(word)?)))
}

/// A node, with the place of each of its accesses.
pub(super) fn node<'a>(
    decoder: &Decoder<'a>,
    fields: &Fields<'a>,
    (kind, name): (NodeKind, Cursor<'a>),
    site: Site,
    stream: StreamId,
) -> Result<(Node, Vec<Cursor<'a>>), FileError> {
    let mut node = Node::new(name.string()?, kind, site, stream, fields.location(&name)?);
    node.pdl_wait = fields.word("pdl_wait", "set of waiting CTAs", &WAITS)?.unwrap_or_default();
    let basis = fields.word("basis", "ground for an access", &BASES)?.unwrap_or_default();
    let mut places = Vec::new();
    let mut take = |fields: &Fields<'a>, phase: Phase, node: &mut Node| -> Result<(), FileError> {
        for (word, effect) in EFFECTS {
            for item in fields.items(word)? {
                let (buffer, range) = bytes(decoder, &item)?;
                node.accesses.push(Access { buffer, range, effect, phase, basis });
                places.push(item);
            }
        }
        Ok(())
    };
    take(fields, Phase::AfterWait, &mut node)?;
    if let Some(early) = fields.get("before_wait") {
        let words = EFFECTS.map(|(word, _)| word);
        take(&early.object("what a kernel does before its wait", &words)?, Phase::BeforeWait, &mut node)?;
    }
    for item in fields.items("pointers")? {
        let fields = item.object("a pointer", &["parameter", "value"])?;
        let parameter = fields.need("parameter")?.string()?.to_string();
        node.pointers.push(Pointer { parameter, value: fields.need("value")?.address()? });
    }
    node.symbol = fields.get("symbol").map(|s| s.string().map(str::to_string)).transpose()?;
    node.nanos = fields.get("ns").map(|ns| ns.bytes("time in nanoseconds")).transpose()?;
    Ok((node, places))
}

/// `name` or `name[first..end]`.
fn bytes<'a>(decoder: &Decoder<'a>, item: &Cursor<'a>) -> Result<(BufferId, std::ops::Range<u64>), FileError> {
    let text = item.string()?;
    let parts = text.strip_suffix(']').and_then(|head| head.rsplit_once('['));
    let Some((name, range)) = parts else {
        let buffer = decoder.buffer(item, text)?;
        return Ok((buffer, 0..decoder.pool().buffer(buffer).size));
    };
    let buffer = decoder.buffer(item, name)?;
    let ends = range.split_once("..").and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
    match ends {
        Some((start, end)) if start < end => Ok((buffer, start..end)),
        _ => Err(item.error(Problem::BadRange { found: text.to_string() })),
    }
}
