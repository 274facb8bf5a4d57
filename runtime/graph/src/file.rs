//! Graph files: a pool as JSON, so that a graph of any framework can be checked. The format is described
//! in `docs/graph-format.md`.

mod captured;
mod cursor;
mod decode;
mod error;
mod json;
mod node;

pub use error::{FileError, Problem};

use crate::check::{Layout, check, invariance};
use crate::driver::{CapturedGraph, ReadBackError, read_back};
use crate::finding::{Code, Report};
use crate::model::{GraphId, ModelError, Placement, Pool};
use crate::order::Order;
use std::path::Path;

/// What a graph file holds.
#[derive(Clone, Debug, Default)]
pub struct GraphFile {
    /// The graphs, buffers and eager work.
    pub pool: Pool,
    /// The addresses that the file gives; empty if it gives none.
    pub placement: Placement,
    /// Graphs as a driver read them back, to compare with the recorded ones.
    pub captured: Vec<(GraphId, CapturedGraph)>,
    /// Where the case comes from.
    pub source: Option<String>,
    /// What it shows.
    pub description: Option<String>,
    /// What a checker must say, if the file says so: nothing at all if empty.
    pub expect: Option<Vec<Expected>>,
}

/// A finding that a file expects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Its code.
    pub code: Code,
    /// The nodes it names, the earlier first.
    pub nodes: Vec<String>,
    /// The buffers it names.
    pub buffers: Vec<String>,
}

/// A graph file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It cannot be read from disk.
    #[error("{path}: {error}")]
    Io {
        /// The file.
        path: String,
        /// Why.
        #[source]
        error: std::io::Error,
    },
    /// Something in it is wrong.
    #[error(transparent)]
    File(#[from] FileError),
}

impl GraphFile {
    /// Reads a file from disk.
    ///
    /// # Errors
    /// [`ReadError`]: the file is not there, is not UTF-8, or something in it is wrong.
    pub fn read(path: &Path) -> Result<Self, ReadError> {
        let name = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => Ok(Self::parse(&name, &text)?),
            Err(error) => Err(ReadError::Io { path: name, error }),
        }
    }

    /// Reads a file's text; `name` is for messages and for the places of nodes that give none.
    ///
    /// # Errors
    /// [`FileError`] with line, column and JSON pointer.
    pub fn parse(name: &str, text: &str) -> Result<Self, FileError> {
        decode::decode(name, text)
    }

    /// Checks the pool, with the addresses that the file gives, and compares what a driver captured.
    ///
    /// # Errors
    /// [`ReadBackError`] if a captured graph makes no sense.
    pub fn check(&self) -> Result<Report, ReadBackError> {
        let mut report = check(&self.pool, Some(&self.placement))?;
        for (graph, captured) in &self.captured {
            report.findings.extend(read_back(&self.pool, *graph, &self.placement, captured, None)?);
        }
        Ok(report)
    }

    /// Compares this graph, with an instrument in it, to the `original` without: addresses and order must be the same
    /// (E13). The findings are about the original's rows.
    ///
    /// # Errors
    /// [`ModelError`] if one of the pools is not valid.
    pub fn differences_from(&self, original: &Self) -> Result<Report, ModelError> {
        let [off, on] = [original, self].map(|file| Layout { pool: &file.pool, placement: &file.placement });
        Ok(Report { findings: invariance(off, on)?, order: Order::of(off.pool)? })
    }
}
