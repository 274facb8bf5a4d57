//! From JSON to a pool.

use super::captured::captured;
use super::cursor::{Cursor, Fields, Source, line_starts};
use super::node::{FIELDS, kind_and_name, node};
use super::{Expected, FileError, GraphFile, Problem, json};
use crate::driver::CapturedGraph;
use crate::location::Location;
use crate::model::{
    Buffer, BufferId, Discipline, EdgeKind, EventId, GraphId, Lifetime, ModelError, NodeId, Placement, Pool, Release,
    Site, StreamId,
};
use crate::record::Recorder;
use std::collections::HashMap;

const FILE: [&str; 9] =
    ["lathe_graph", "streams", "buffers", "graphs", "eager", "at_once", "source", "description", "expect"];
const BUFFER: [&str; 13] = [
    "name",
    "size",
    "align",
    "lifetime",
    "graph",
    "content",
    "release",
    "discipline",
    "leases",
    "stream",
    "address",
    "retired",
    "at",
];
const GRAPH: [&str; 6] = ["name", "origin", "record", "nodes", "captured", "at"];

pub(super) fn decode(name: &str, text: &str) -> Result<GraphFile, FileError> {
    let value = json::parse(name, text)?;
    let lines = line_starts(text);
    let root = Cursor { source: Source { name, text, lines: &lines }, value: &value, path: String::new() };
    let fields = root.object("a graph file", &FILE)?;
    let version = fields.need("lathe_graph")?;
    if version.bytes("version")? != 1 {
        return Err(version.error(Problem::Version { found: version.bytes("version")?.to_string() }));
    }
    let mut decoder = Decoder::new();
    decoder.streams(&fields)?;
    let graphs = fields.need("graphs")?.items()?;
    decoder.declare_graphs(&graphs)?;
    decoder.buffers(&fields)?;
    let eager = fields.items("eager")?;
    decoder.eager_nodes(&eager)?;
    let mut captured = Vec::new();
    for (index, graph) in graphs.iter().enumerate() {
        captured.extend(decoder.graph(GraphId::at(index), graph)?);
    }
    decoder.eager_edges(&eager)?;
    for pair in fields.items("at_once")? {
        let [a, b] = pair.pair()?;
        let (a, b) = (decoder.graph_named(&a)?, decoder.graph_named(&b)?);
        decoder.rec.pool_mut().may_replay_at_once(a, b);
    }
    let text_of = |field: &str| fields.get(field).map(|c| c.string().map(str::to_string)).transpose();
    let expect = fields.get("expect").map(|expect| expect.items()?.iter().map(expected).collect()).transpose()?;
    let places = Places { buffers: decoder.buffer_places, nodes: decoder.node_places, accesses: decoder.access_places };
    let pool = decoder.rec.finish();
    pool.validate().map_err(|error| places.of(&error).unwrap_or(&root).error(error))?;
    let placement = Placement::given(&pool);
    let (source, description) = (text_of("source")?, text_of("description")?);
    Ok(GraphFile { placement, pool, captured, source, description, expect })
}

fn expected(item: &Cursor) -> Result<Expected, FileError> {
    let fields = item.object("an expected finding", &["code", "nodes", "buffers"])?;
    let code = fields.need("code")?;
    let text = code.string()?;
    let parsed = text.parse().map_err(|_| {
        let known = crate::finding::Code::ALL.iter().map(|c| c.to_string()).collect();
        code.error(Problem::UnknownWord { what: "finding code", found: text.to_string(), known })
    })?;
    let names = |field: &str| -> Result<Vec<String>, FileError> {
        fields.items(field)?.iter().map(|name| Ok(name.string()?.to_string())).collect()
    };
    Ok(Expected { code: parsed, nodes: names("nodes")?, buffers: names("buffers")? })
}

/// Where the rows of the pool stand in the file.
struct Places<'a> {
    buffers: Vec<Cursor<'a>>,
    nodes: HashMap<NodeId, Cursor<'a>>,
    accesses: HashMap<(NodeId, usize), Cursor<'a>>,
}

impl<'a> Places<'a> {
    fn of(&self, error: &ModelError) -> Option<&Cursor<'a>> {
        match error {
            ModelError::Size { id, .. } | ModelError::Align { id, .. } | ModelError::Address { id, .. } => {
                self.buffers.get(id.index())
            }
            ModelError::Range { node: Some(node), access, .. } => self.accesses.get(&(*node, *access)),
            ModelError::Range { id, .. } => self.buffers.get(id.index()),
            ModelError::OverlappingAccesses { id, access, .. } => self.accesses.get(&(*id, *access)),
            ModelError::OverlappingBuffers { b_id, .. } => self.buffers.get(b_id.index()),
            ModelError::Cycle { nodes, .. } => self.nodes.get(nodes.first()?),
            ModelError::EdgeBetweenGraphs { to_id, .. } => self.nodes.get(to_id),
            ModelError::Empty | ModelError::UnknownRow { .. } => None,
        }
    }
}

/// Tables of names, filled while decoding.
pub(super) struct Decoder<'a> {
    rec: Recorder,
    streams: HashMap<String, StreamId>,
    graphs: HashMap<String, GraphId>,
    buffers: HashMap<String, BufferId>,
    events: HashMap<String, EventId>,
    nodes: HashMap<(Option<GraphId>, String), NodeId>,
    buffer_places: Vec<Cursor<'a>>,
    node_places: HashMap<NodeId, Cursor<'a>>,
    access_places: HashMap<(NodeId, usize), Cursor<'a>>,
}

/// The id of a name, or an error that lists the names there are.
fn look_up<T: Copy>(table: &HashMap<String, T>, what: &'static str, at: &Cursor, name: &str) -> Result<T, FileError> {
    table.get(name).copied().ok_or_else(|| {
        let mut known: Vec<String> = table.keys().cloned().collect();
        known.sort();
        at.error(Problem::UnknownName { what, name: name.to_string(), known })
    })
}

/// Adds a name that must be new.
fn declare<T>(table: &mut HashMap<String, T>, what: &'static str, at: &Cursor, id: T) -> Result<(), FileError> {
    let name = at.string()?.to_string();
    match table.insert(name.clone(), id) {
        None => Ok(()),
        Some(_) => Err(at.error(Problem::DuplicateName { what, name })),
    }
}

impl<'a> Decoder<'a> {
    fn new() -> Self {
        Self {
            rec: Recorder::new(),
            streams: HashMap::new(),
            graphs: HashMap::new(),
            buffers: HashMap::new(),
            events: HashMap::new(),
            nodes: HashMap::new(),
            buffer_places: Vec::new(),
            node_places: HashMap::new(),
            access_places: HashMap::new(),
        }
    }

    pub(super) fn pool(&self) -> &Pool {
        self.rec.pool()
    }

    pub(super) fn buffer(&self, at: &Cursor, name: &str) -> Result<BufferId, FileError> {
        look_up(&self.buffers, "buffer", at, name)
    }

    fn stream(&self, fields: &Fields<'a>) -> Result<StreamId, FileError> {
        let at = fields.need("stream")?;
        look_up(&self.streams, "stream", &at, at.string()?)
    }

    fn graph_named(&self, at: &Cursor) -> Result<GraphId, FileError> {
        look_up(&self.graphs, "graph", at, at.string()?)
    }

    fn streams(&mut self, fields: &Fields<'a>) -> Result<(), FileError> {
        for item in fields.need("streams")?.items()? {
            let id = self.rec.pool_mut().stream_named(item.string()?);
            declare(&mut self.streams, "stream", &item, id)?;
        }
        Ok(())
    }

    /// Gives every graph its id, in the order of the file, before buffers refer to them.
    fn declare_graphs(&mut self, graphs: &[Cursor<'a>]) -> Result<(), FileError> {
        for (index, graph) in graphs.iter().enumerate() {
            let name = graph.object("a graph", &GRAPH)?.need("name")?;
            declare(&mut self.graphs, "graph", &name, GraphId::at(index))?;
        }
        Ok(())
    }

    fn buffers(&mut self, fields: &Fields<'a>) -> Result<(), FileError> {
        for item in fields.items("buffers")? {
            let fields = item.object("a buffer", &BUFFER)?;
            let name = fields.need("name")?;
            let lifetime = self.lifetime(&fields)?;
            let mut buffer =
                Buffer::new(name.string()?, fields.need("size")?.bytes("size")?, lifetime, fields.location(&name)?);
            if let Some(align) = fields.get("align") {
                buffer.align = align.bytes("alignment")?;
            }
            buffer.address = fields.get("address").map(|a| a.address()).transpose()?;
            if fields.get("stream").is_some() {
                buffer.stream = Some(self.stream(&fields)?);
            }
            for range in fields.items("retired")? {
                let [start, end] = range.pair()?;
                buffer.retired.push(start.address()?..end.address()?);
            }
            for range in fields.items("leases")? {
                let [start, end] = range.pair()?;
                buffer.leases.push(start.bytes("offset")?..end.bytes("offset")?);
            }
            let id = self.rec.pool_mut().add_buffer(buffer);
            declare(&mut self.buffers, "buffer", &name, id)?;
            self.buffer_places.push(name);
        }
        Ok(())
    }

    fn lifetime(&self, fields: &Fields<'a>) -> Result<Lifetime, FileError> {
        let graph = || {
            let at = fields.need("graph")?;
            self.graph_named(&at)
        };
        let words = ["persistent", "transient", "input", "output", "external"].map(|word| (word, word));
        fields.need("lifetime")?;
        let word = fields.word("lifetime", "lifetime", &words)?.unwrap_or("persistent");
        let (lifetime, takes): (Lifetime, &[&str]) = match word {
            "persistent" => {
                let contents = [("carried", true), ("scratch", false)];
                let carried = fields.word("content", "content of a persistent buffer", &contents)?.unwrap_or(true);
                (Lifetime::Persistent { carried }, &["content"])
            }
            "transient" => (Lifetime::Transient { graph: graph()?, alloc: None, free: None }, &["graph"]),
            "input" => (Lifetime::Input, &[]),
            "output" => {
                let words = [("held", Release::Held), ("before_next_replay", Release::BeforeNextReplay)];
                let release = fields.word("release", "release of an output", &words)?.unwrap_or_default();
                (Lifetime::Output { graph: graph()?, release }, &["graph", "release"])
            }
            _ => {
                let words =
                    [("event", Discipline::Event), ("quiescent", Discipline::Quiescent), ("lease", Discipline::Lease)];
                fields.need("discipline")?;
                let discipline = fields.word("discipline", "discipline", &words)?.unwrap_or(Discipline::Event);
                (Lifetime::External { discipline }, &["discipline", "leases"])
            }
        };
        for field in ["graph", "content", "release", "discipline", "leases"] {
            if let (Some(at), false) = (fields.get(field), takes.contains(&field)) {
                let what = format!("a buffer that is {}", lifetime.word());
                return Err(at.error(Problem::Misplaced { field, what }));
            }
        }
        Ok(lifetime)
    }

    fn event(&mut self, at: &Cursor, location: Location) -> Result<EventId, FileError> {
        let name = at.string()?;
        Ok(match self.events.get(name) {
            Some(id) => *id,
            None => {
                let id = self.rec.pool_mut().add_event(name, location);
                self.events.insert(name.to_string(), id);
                id
            }
        })
    }

    fn add_node(
        &mut self,
        fields: &Fields<'a>,
        named: (crate::model::NodeKind, Cursor<'a>),
        site: Site,
        stream: StreamId,
    ) -> Result<NodeId, FileError> {
        let name = named.1.clone();
        let key = (site.graph(), name.string()?.to_string());
        if self.nodes.contains_key(&key) {
            return Err(name.error(Problem::DuplicateName { what: "node", name: key.1 }));
        }
        let (node, places) = node(self, fields, named, site, stream)?;
        let id = self.rec.node(node);
        self.nodes.insert(key, id);
        let places = places.into_iter().enumerate().map(|(index, place)| ((id, index), place));
        self.access_places.extend(places);
        self.node_places.insert(id, name);
        Ok(id)
    }

    fn graph(&mut self, id: GraphId, graph: &Cursor<'a>) -> Result<Option<(GraphId, CapturedGraph)>, FileError> {
        let fields = graph.object("a graph", &GRAPH)?;
        let name = fields.need("name")?;
        let location = fields.location(&name)?;
        match (fields.get("record"), fields.get("nodes")) {
            (Some(record), None) => {
                let origin = fields.need("origin")?;
                let origin = look_up(&self.streams, "stream", &origin, origin.string()?)?;
                self.rec.begin(name.string()?, origin, location);
                for entry in record.items()? {
                    self.entry(Site::Graph(id), &entry)?;
                }
                self.rec.end();
            }
            (None, Some(nodes)) => {
                self.rec.pool_mut().add_graph(name.string()?, location);
                self.dag(id, name.string()?, &nodes.items()?)?;
            }
            (None, None) => {
                return Err(graph.error(Problem::Missing { field: "record", what: "a graph without `nodes`" }));
            }
            (Some(_), Some(nodes)) => {
                let what = "a graph that has `record`".to_string();
                return Err(nodes.error(Problem::Misplaced { field: "nodes", what }));
            }
        }
        let captured = fields.get("captured").map(|at| captured(&at)).transpose()?;
        Ok(captured.map(|captured| (id, captured)))
    }

    /// One step of a capture: a node, a record, a wait, or the begin or end of a life.
    fn entry(&mut self, site: Site, entry: &Cursor<'a>) -> Result<(), FileError> {
        let mut known = FIELDS.to_vec();
        known.extend(["record", "wait", "external", "alloc", "free"]);
        let fields = entry.object("a recorded step", &known)?;
        let stream = self.stream(&fields)?;
        if let Some(named) = kind_and_name(&fields) {
            if fields.get("programmatic").map(|p| p.boolean()).transpose()?.unwrap_or(false) {
                self.rec.launch_next_programmatically(stream);
            }
            return self.add_node(&fields, named, site, stream).map(drop);
        }
        if let Some(event) = fields.get("record") {
            let id = self.event(&event, fields.location(&event)?)?;
            self.rec.record(id, stream);
        } else if let Some(event) = fields.get("wait") {
            let id = look_up(&self.events, "event", &event, event.string()?)?;
            if fields.get("external").map(|e| e.boolean()).transpose()?.unwrap_or(false) {
                self.rec.wait_external(id, stream);
            } else {
                self.rec.wait(id, stream, fields.location(&event)?);
            }
        } else if let Some(name) = fields.get("alloc") {
            let buffer = self.transient(&name)?;
            self.rec.alloc(buffer, stream, fields.location(&name)?);
        } else if let Some(name) = fields.get("free") {
            let buffer = self.transient(&name)?;
            self.rec.free(buffer, stream, fields.location(&name)?);
        } else {
            let field = "kernel";
            return Err(entry.error(Problem::Missing { field, what: "a step that is no other node, record or wait" }));
        }
        Ok(())
    }

    fn transient(&self, at: &Cursor<'a>) -> Result<BufferId, FileError> {
        let buffer = self.buffer(at, at.string()?)?;
        match &self.pool().buffer(buffer).lifetime {
            Lifetime::Transient { .. } => Ok(buffer),
            other => {
                let what = format!("a buffer that is {}", other.word());
                Err(at.error(Problem::Misplaced { field: "alloc or free", what }))
            }
        }
    }

    /// A graph given by its edges.
    fn dag(&mut self, graph: GraphId, name: &str, entries: &[Cursor<'a>]) -> Result<(), FileError> {
        let mut known = FIELDS.to_vec();
        known.extend(["after", "after_programmatic"]);
        let default = self.rec.pool_mut().stream_named(name);
        let mut added = Vec::new();
        for entry in entries {
            let fields = entry.object("a node", &known)?;
            let stream = if fields.get("stream").is_some() { self.stream(&fields)? } else { default };
            let named = kind_and_name(&fields);
            let named = named.ok_or_else(|| entry.error(Problem::Missing { field: "kernel", what: "a node" }))?;
            let site = Site::Graph(graph);
            let (node, places) = node(self, &fields, named.clone(), site, stream)?;
            let id = self.rec.pool_mut().add_node(node);
            let key = (Some(graph), named.1.string()?.to_string());
            if self.nodes.insert(key.clone(), id).is_some() {
                return Err(named.1.error(Problem::DuplicateName { what: "node", name: key.1 }));
            }
            self.access_places.extend(places.into_iter().enumerate().map(|(index, place)| ((id, index), place)));
            self.node_places.insert(id, named.1);
            added.push((id, fields));
        }
        for (id, fields) in added {
            for (field, kind) in [("after", EdgeKind::Full), ("after_programmatic", EdgeKind::Programmatic)] {
                for item in fields.items(field)? {
                    let before = self.node_in(Some(graph), &item, item.string()?)?;
                    self.rec.pool_mut().add_edge(before, id, kind);
                }
            }
        }
        Ok(())
    }

    fn node_in(&self, graph: Option<GraphId>, at: &Cursor<'a>, name: &str) -> Result<NodeId, FileError> {
        let key = (graph, name.to_string());
        self.nodes.get(&key).copied().ok_or_else(|| {
            let mut known: Vec<String> =
                self.nodes.keys().filter(|(of, _)| *of == graph).map(|(_, name)| name.clone()).collect();
            known.sort();
            at.error(Problem::UnknownName { what: "node", name: key.1, known })
        })
    }

    /// Eager nodes and the events they record; the edges to and from graph nodes come later.
    fn eager_nodes(&mut self, entries: &[Cursor<'a>]) -> Result<(), FileError> {
        let sites = [("before", Site::Before), ("between", Site::Between), ("beside", Site::Beside)];
        for entry in entries {
            let fields = entry.object("eager work", &eager_fields())?;
            let stream = self.stream(&fields)?;
            if let Some(named) = kind_and_name(&fields) {
                fields.need("when")?;
                let site = fields.word("when", "time of eager work", &sites)?.unwrap_or(Site::Before);
                self.add_node(&fields, named, site, stream)?;
            } else {
                let event = fields.need("record")?;
                let id = self.event(&event, fields.location(&event)?)?;
                self.rec.record_eagerly(id, stream);
            }
        }
        Ok(())
    }

    fn eager_edges(&mut self, entries: &[Cursor<'a>]) -> Result<(), FileError> {
        for entry in entries {
            let fields = entry.object("eager work", &eager_fields())?;
            let Some((_, name)) = kind_and_name(&fields) else { continue };
            let here = self.node_in(None, &name, name.string()?)?;
            for (field, comes_after) in [("after", true), ("before", false)] {
                for item in fields.items(field)? {
                    let text = item.string()?;
                    let Some((graph, node)) = text.split_once('/') else {
                        return Err(item.error(Problem::BadNodePath { found: text.to_string() }));
                    };
                    let graph = look_up(&self.graphs, "graph", &item, graph)?;
                    let there = self.node_in(Some(graph), &item, node)?;
                    let (from, to) = if comes_after { (there, here) } else { (here, there) };
                    self.rec.pool_mut().add_edge(from, to, EdgeKind::Full);
                }
            }
        }
        Ok(())
    }
}

fn eager_fields() -> Vec<&'static str> {
    let mut known = FIELDS.to_vec();
    known.extend(["when", "after", "before", "record"]);
    known
}
