//! The JSON of a dump, field by field, before validation.

use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::dump::{self, DumpError, EdgeDump, Role};

/// Parses JSON, telling a file that ends too early from one that is wrong.
pub fn from_str<T: DeserializeOwned>(text: &str, path: &Path) -> Result<T, DumpError> {
    serde_json::from_str(text).map_err(|error| {
        let (path, line, column) = (path.to_owned(), error.line(), error.column());
        if error.is_eof() {
            DumpError::Truncated { path, line, column }
        } else {
            let message = error.to_string();
            let message = message.split(" at line ").next().unwrap_or_default().to_owned();
            DumpError::Malformed { path, line, column, message }
        }
    })
}

/// Hexadecimal digits to bytes; `None` for an odd count or another character.
pub fn decode_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|value| value as u8);
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    pairs.iter().map(|&[high, low]| Some(digit(high)? << 4 | digit(low)?)).collect()
}

#[derive(Deserialize)]
pub struct Header {
    pub format: Option<String>,
    pub version: Option<u64>,
}

#[derive(Deserialize)]
pub struct File {
    #[serde(default)]
    pub frames: Vec<Frame>,
    #[serde(default)]
    pub functions: Vec<Function>,
    #[serde(default)]
    pub blocks: Vec<Block>,
    pub graphs: Vec<Graph>,
}

impl File {
    pub fn of_one(graph: Graph) -> File {
        File { frames: Vec::new(), functions: Vec::new(), blocks: Vec::new(), graphs: vec![graph] }
    }
}

#[derive(Deserialize, Clone)]
pub struct Frame {
    pub file: String,
    pub line: u32,
    pub function: String,
    #[serde(default)]
    pub text: String,
}

impl Frame {
    pub fn lower(self) -> dump::Frame {
        dump::Frame { file: self.file, line: self.line, function: self.function, text: self.text }
    }
}

#[derive(Deserialize)]
pub struct Function {
    pub name: String,
    pub params: Vec<[usize; 2]>,
    pub ptx: Option<String>,
}

#[derive(Deserialize)]
pub struct Block {
    pub addr: String,
    pub bytes: u64,
    pub pool: Option<String>,
    pub live: bool,
}

#[derive(Deserialize)]
pub struct Graph {
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub note: String,
    pub pool: Option<String>,
    #[serde(default)]
    pub streams: Vec<String>,
    pub allocations: Option<Vec<Event>>,
    #[serde(default)]
    pub tensors: Vec<Tensor>,
    #[serde(default)]
    pub ops: Vec<Op>,
    pub nodes: Vec<Node>,
    pub edges: Vec<Edge>,
    pub twin: Option<Box<Graph>>,
    #[serde(default)]
    pub observed: Vec<Observed>,
}

#[derive(Deserialize)]
pub struct Event {
    pub action: String,
    pub addr: String,
    pub bytes: u64,
    pub stream: u32,
    pub at: Option<At>,
}

/// A frame by index, or `function:line` as version 0 writes it.
#[derive(Deserialize, Clone)]
#[serde(untagged)]
pub enum At {
    Id(usize),
    Text(String),
}

#[derive(Deserialize)]
pub struct Tensor {
    pub name: String,
    pub ptr: String,
    pub bytes: u64,
    pub role: Role,
    pub event: Option<usize>,
}

#[derive(Deserialize)]
pub struct Op {
    pub name: String,
    #[serde(default)]
    pub reads: Vec<Operand>,
    #[serde(default)]
    pub writes: Vec<Operand>,
}

#[derive(Deserialize)]
pub struct Operand {
    pub ptr: String,
    pub bytes: u64,
    pub row: Option<u64>,
    #[serde(default)]
    pub pitch: u64,
}

#[derive(Deserialize)]
pub struct Node {
    pub id: Option<usize>,
    #[serde(rename = "type")]
    pub kind: String,
    pub function: Option<usize>,
    pub kernel: Option<String>,
    pub grid: Option<[u32; 3]>,
    pub block: Option<[u32; 3]>,
    pub params: Option<Params>,
    pub src: Option<String>,
    pub dst: Option<String>,
    pub bytes: Option<u64>,
    pub graph: Option<Body>,
    pub at: Option<At>,
    pub op: Option<usize>,
    pub stream: Option<u32>,
    pub events: Option<[usize; 2]>,
}

#[derive(Deserialize)]
pub struct Body {
    pub nodes: Vec<Node>,
    pub edges: Vec<Edge>,
}

/// The whole parameter buffer as hex, or one entry a parameter as version 0 writes it.
#[derive(Deserialize)]
#[serde(untagged)]
pub enum Params {
    Buffer(String),
    List(Vec<Param>),
}

#[derive(Deserialize)]
pub struct Param {
    pub offset: usize,
    pub size: usize,
    pub hex: String,
}

/// `[src, dst]`, `[src, dst, type, from_port, to_port]`, or an object as version 0 writes it.
#[derive(Deserialize)]
#[serde(untagged)]
pub enum Edge {
    Plain([usize; 2]),
    Typed([usize; 5]),
    Object {
        src: usize,
        dst: usize,
        #[serde(rename = "type", default)]
        kind: usize,
    },
}

impl Edge {
    pub fn lower(self) -> EdgeDump {
        // CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC
        const PROGRAMMATIC: usize = 1;
        match self {
            Edge::Plain([src, dst]) => EdgeDump { src, dst, programmatic: false },
            Edge::Typed([src, dst, kind, ..]) | Edge::Object { src, dst, kind } => {
                EdgeDump { src, dst, programmatic: kind == PROGRAMMATIC }
            }
        }
    }
}

#[derive(Deserialize)]
pub struct Observed {
    pub node: usize,
    pub addr: String,
    pub bytes: u64,
}
