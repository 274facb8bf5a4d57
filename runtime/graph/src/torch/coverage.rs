//! What was seen and what was not, so that "nothing found" means something.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::access::PointerUse;
use super::dump::{GraphDump, NodeDump, NodeKind};
use super::evidence::Certainty;
use super::history::{Allocation, Origin};
use super::import::NodeInfo;
use super::rules::Use;

/// Counts over all graphs of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Coverage {
    /// Nodes in all.
    pub nodes: usize,
    /// Nodes all of whose accesses the driver states or the GPU showed.
    pub certain: usize,
    /// Nodes whose accesses follow from rules, PTX, schemas or signatures.
    pub ruled: usize,
    /// Nodes with at least one assumed access.
    pub assumed: usize,
    /// Kernels without any pointer into known memory, and nodes that touch none.
    pub without_pointers: usize,
    /// Nodes whose accesses cannot be read back (host functions, conditional bodies), by label and kind.
    pub unreadable: Vec<String>,
    /// Kernels with assumed accesses, by short name, with the number of their nodes.
    pub assumed_kernels: BTreeMap<String, usize>,
    /// Pointers matched to an allocation of the history.
    pub matched: usize,
    /// Pointers matched to memory that was there before the capture.
    pub before: usize,
    /// Pointers that rules or copies name, into memory that the allocator does not know (library workspaces, other allocators).
    pub outside: usize,
    /// Pointers into other graphs' pools, by pool: shared workspaces, which must live as long as this graph.
    pub borrowed: BTreeMap<String, usize>,
    /// Words that look like pointers inside structs, counted as pointers.
    pub guessed: usize,
    /// Words that looked like pointers and which the second capture showed to be numbers.
    pub refuted: usize,
    /// Kernels whose PTX follows pointers loaded from memory.
    pub indirect: usize,
    /// Programmatic edges.
    pub programmatic_edges: usize,
    /// Of these, into kernels whose wait is not known; taken as never waiting.
    pub waits_unseen: usize,
    /// Graphs without an allocation history.
    pub without_history: Vec<String>,
    /// Graphs without a second capture.
    pub without_twin: Vec<String>,
}

impl Coverage {
    pub(super) fn graph(&mut self, graph: &GraphDump, twin: bool) {
        if !graph.has_history {
            self.without_history.push(graph.name.clone());
        }
        if !twin {
            self.without_twin.push(graph.name.clone());
        }
    }

    pub(super) fn pointer(&mut self, use_: &PointerUse, allocation: &Allocation, graph: &GraphDump) {
        if use_.use_ == Use::None {
            return;
        }
        match allocation.origin {
            Origin::Capture => self.matched += 1,
            Origin::Before => self.before += 1,
            Origin::Unlisted => self.outside += 1,
        }
        self.guessed += usize::from(!use_.sure);
        if let (Some(Some(pool)), Some(own)) = (&allocation.pool, &graph.pool)
            && pool != own
        {
            *self.borrowed.entry(pool.clone()).or_default() += 1;
        }
    }

    pub(super) fn node(&mut self, node: &NodeDump, info: &NodeInfo, certainty: Option<Certainty>, indirect: bool) {
        self.nodes += 1;
        self.indirect += usize::from(indirect);
        match (&node.kind, certainty) {
            (NodeKind::Opaque(what), _) => self.unreadable.push(format!("{} {what}", node.label)),
            (_, None) => self.without_pointers += 1,
            (_, Some(Certainty::Certain)) => self.certain += 1,
            (_, Some(Certainty::Ruled)) => self.ruled += 1,
            (_, Some(Certainty::Assumed)) => {
                self.assumed += 1;
                *self.assumed_kernels.entry(info.name.clone()).or_default() += 1;
            }
        }
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pointers = self.matched + self.before + self.outside;
        writeln!(
            f,
            "coverage: {} nodes: {} certain, {} by rule, {} assumed, {} without pointers",
            self.nodes, self.certain, self.ruled, self.assumed, self.without_pointers
        )?;
        write!(
            f,
            "  {pointers} pointers: {} into the capture's allocations, {} into memory from before, {} outside the allocator",
            self.matched, self.before, self.outside
        )?;
        if self.guessed > 0 {
            write!(f, "; {} are words that look like pointers", self.guessed)?;
        }
        writeln!(f)?;
        if self.refuted > 0 {
            writeln!(
                f,
                "  {} words looked like pointers; the second capture shows that they are numbers",
                self.refuted
            )?;
        }
        for (name, count) in self.assumed_kernels.iter().take(8) {
            writeln!(
                f,
                "  assumed read and written: {name} ({count}); a rule, its PTX or lathe_dump.writes would settle it"
            )?;
        }
        if self.assumed_kernels.len() > 8 {
            writeln!(f, "  and {} more kernels with assumed accesses (all in --json)", self.assumed_kernels.len() - 8)?;
        }
        for node in self.unreadable.iter().take(8) {
            writeln!(f, "  not seen: what node {node} does; the driver does not say")?;
        }
        if self.indirect > 0 {
            writeln!(
                f,
                "  not seen: memory that {} kernels reach through pointers they load from memory",
                self.indirect
            )?;
        }
        if self.outside > 0 {
            writeln!(
                f,
                "  {} pointers lead outside the allocator: their sizes are not known, only equal addresses are compared",
                self.outside
            )?;
        }
        for (pool, count) in &self.borrowed {
            writeln!(
                f,
                "  {count} pointers lead into pool {pool} of another graph (a library workspace?): keep that graph, or clear workspaces between captures"
            )?;
        }
        if self.waits_unseen > 0 {
            writeln!(
                f,
                "  {} of {} programmatic edges lead to kernels whose wait is not known: taken as never waiting",
                self.waits_unseen, self.programmatic_edges
            )?;
        }
        for graph in &self.without_history {
            writeln!(
                f,
                "  {graph}: no allocation history, so tensors that share a block cannot be told apart; capture with lathe_dump.capture"
            )?;
        }
        Ok(())
    }
}
