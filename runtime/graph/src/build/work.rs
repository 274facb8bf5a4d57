//! Work to record, with what it reads and writes.

use super::handle::{Bytes, Slice};
use crate::location::Location;
use crate::model::{
    Access, Basis, BufferId, Effect, KernelLaunch, Node, NodeKind, PdlWait, Phase, Pool, Site, StreamId,
};
use std::ops::Range;

/// A node to be: a kernel, a copy, a fill or a host callback, with its accesses.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "work does nothing until it is launched"]
pub struct Work {
    name: String,
    symbol: Option<String>,
    kind: NodeKind,
    accesses: Vec<(BufferId, Option<Range<u64>>, Effect, Phase)>,
    pdl_wait: PdlWait,
    nanos: Option<u64>,
    launch: Option<KernelLaunch>,
    programmatic: bool,
}

impl Work {
    fn new(name: &str, kind: NodeKind) -> Self {
        Self {
            name: name.to_string(),
            symbol: None,
            kind,
            accesses: Vec::new(),
            pdl_wait: PdlWait::Every,
            nanos: None,
            launch: None,
            programmatic: false,
        }
    }

    /// A kernel whose accesses follow by hand. One from the DSL brings its own: [`Work::of`].
    pub fn kernel(name: &str) -> Self {
        Self::new(name, NodeKind::Kernel)
    }

    /// A kernel with the accesses that it declares, `arguments` in the order of its pointer parameters.
    ///
    /// # Errors
    /// [`BindError`] if there are more or fewer arguments than parameters.
    pub fn of(kernel: &impl Accesses, arguments: &[Slice]) -> Result<Self, BindError> {
        let KernelAccesses { name, parameters, pdl_wait } = kernel.accesses();
        if parameters.len() != arguments.len() {
            let names = parameters.into_iter().map(|p| p.name).collect();
            return Err(BindError { kernel: name, parameters: names, given: arguments.len() });
        }
        let mut work = Self::kernel(&name);
        work.pdl_wait = pdl_wait;
        for (parameter, argument) in parameters.into_iter().zip(arguments) {
            let Slice { buffer, range, .. } = argument.clone();
            work.accesses.push((buffer, range, parameter.effect, parameter.phase));
        }
        Ok(work)
    }

    /// A copy of all of `from` to `to`.
    pub fn copy<'a, 'b>(name: &str, from: &impl Bytes<'a>, to: &impl Bytes<'b>) -> Self {
        Self::new(name, NodeKind::Memcpy).reads(from).writes(to)
    }

    /// A fill of `what`.
    pub fn fill<'a>(name: &str, what: &impl Bytes<'a>) -> Self {
        Self::new(name, NodeKind::Memset).writes(what)
    }

    /// A host callback.
    pub fn host(name: &str) -> Self {
        Self::new(name, NodeKind::Host)
    }

    fn uses<'s>(mut self, what: &impl Bytes<'s>, effect: Effect, phase: Phase) -> Self {
        let Slice { buffer, range, .. } = what.slice();
        self.accesses.push((buffer, range, effect, phase));
        self
    }

    /// It reads these bytes.
    pub fn reads<'s>(self, what: &impl Bytes<'s>) -> Self {
        self.uses(what, Effect::Read, Phase::AfterWait)
    }

    /// It reads these bytes before its programmatic wait.
    pub fn reads_before_wait<'s>(self, what: &impl Bytes<'s>) -> Self {
        self.uses(what, Effect::Read, Phase::BeforeWait)
    }

    /// It writes all of these bytes, before it reads any.
    pub fn writes<'s>(self, what: &impl Bytes<'s>) -> Self {
        self.uses(what, Effect::WriteAll, Phase::AfterWait)
    }

    /// It writes some of these bytes and reads none.
    pub fn writes_part<'s>(self, what: &impl Bytes<'s>) -> Self {
        self.uses(what, Effect::WritePart, Phase::AfterWait)
    }

    /// It reads and writes these bytes.
    pub fn updates<'s>(self, what: &impl Bytes<'s>) -> Self {
        self.uses(what, Effect::ReadWrite, Phase::AfterWait)
    }

    /// Launch it programmatically (PDL) after the last node of its stream.
    pub fn programmatic(mut self) -> Self {
        self.programmatic = true;
        self
    }

    /// Which of its CTAs wait for programmatic predecessors; all, unless said otherwise.
    pub fn waits(mut self, wait: PdlWait) -> Self {
        self.pdl_wait = wait;
        self
    }

    /// How long it takes, to price fixes in time.
    pub fn takes_nanos(mut self, nanos: u64) -> Self {
        self.nanos = Some(nanos);
        self
    }

    /// How the kernel is launched, to be compared with what a driver captures.
    pub fn launched(mut self, launch: KernelLaunch) -> Self {
        self.launch = Some(launch);
        self
    }

    /// The kernel's function name in the driver, if it is not the work's.
    pub fn symbol(mut self, symbol: &str) -> Self {
        self.symbol = Some(symbol.to_string());
        self
    }

    pub(super) fn is_programmatic(&self) -> bool {
        self.programmatic
    }

    pub(super) fn into_node(self, site: Site, stream: StreamId, location: Location, pool: &Pool) -> Node {
        let accesses = self.accesses.into_iter().map(|(buffer, range, effect, phase)| Access {
            buffer,
            range: range.unwrap_or_else(|| 0..pool.buffer(buffer).size),
            effect,
            phase,
            basis: Basis::Declared,
        });
        Node {
            symbol: self.symbol,
            accesses: accesses.collect(),
            pdl_wait: self.pdl_wait,
            nanos: self.nanos,
            launch: self.launch,
            ..Node::new(self.name, self.kind, site, stream, location)
        }
    }
}

/// A kernel that knows what it does to its pointer parameters. The DSL's kernels implement it from their
/// declarations, so an author cannot forget an access.
pub trait Accesses {
    /// What it declares.
    fn accesses(&self) -> KernelAccesses;
}

/// What a kernel declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelAccesses {
    /// Its function name.
    pub name: String,
    /// Its pointer parameters, in order.
    pub parameters: Vec<ParameterAccess>,
    /// Which of its CTAs wait for programmatic predecessors.
    pub pdl_wait: PdlWait,
}

/// What a kernel does to the bytes behind one pointer parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterAccess {
    /// The parameter's name.
    pub name: String,
    /// What happens to the bytes.
    pub effect: Effect,
    /// Before or after the kernel's programmatic wait.
    pub phase: Phase,
}

impl Accesses for KernelAccesses {
    fn accesses(&self) -> KernelAccesses {
        self.clone()
    }
}

/// More or fewer arguments than pointer parameters.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("kernel `{kernel}` takes {} buffers ({}), and {given} were given", .parameters.len(), .parameters.join(", "))]
pub struct BindError {
    kernel: String,
    parameters: Vec<String>,
    given: usize,
}
