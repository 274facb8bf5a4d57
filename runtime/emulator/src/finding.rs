//! What the checks report: plain data.

use serde::{Deserialize, Serialize};

pub use crate::parse::ast::SourceLocation;

/// The class of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FindingKind {
    /// An access outside every allocation, or outside the CTA's shared memory.
    OutOfBounds,
    /// An address that is not a multiple of the access's size.
    Misaligned,
    /// A store to memory that the launch may only read.
    ReadOnly,
    /// A warp-wide operation executed by only some of the lanes that it needs.
    DivergentCollective,
    /// A barrier used against its rules: wrong count, not all warps, never completed, used before initialisation.
    BarrierMisuse,
    /// Two unordered accesses to shared memory, one of them a write.
    SharedRace,
    /// An access to the source or destination of an asynchronous copy that has not been waited for.
    CopyInFlight,
    /// Shared memory that was written through registers is accessed by a bulk copy or a tensor core without a proxy fence
    /// between the two.
    ProxyFence,
    /// A tensor copy without a tensor map, or with one of other dimensions.
    TensorMap,
    /// Two unordered accesses to global memory, by two CTAs or by two threads of one, one of them a write.
    GlobalRace,
    /// Undefined bits reach an address, a predicate, or an output.
    Undefined,
    /// A read, before `griddepcontrol.wait`, of memory that an earlier kernel may write; or a write before it.
    BeforeWait,
    /// An access that the launch's declarations do not allow, or a declared one that never happened.
    Undeclared,
    /// The kernel stopped making progress.
    Deadlock,
    /// `trap`, or a device-side assertion.
    Trap,
}

impl FindingKind {
    /// A short name for people.
    pub fn title(self) -> &'static str {
        match self {
            Self::OutOfBounds => "out of bounds",
            Self::Misaligned => "misaligned access",
            Self::ReadOnly => "write to read-only memory",
            Self::DivergentCollective => "divergent collective",
            Self::BarrierMisuse => "barrier misuse",
            Self::SharedRace => "shared-memory race",
            Self::CopyInFlight => "copy in flight",
            Self::ProxyFence => "missing proxy fence",
            Self::TensorMap => "wrong tensor map",
            Self::GlobalRace => "global-memory race",
            Self::Undefined => "use of undefined bits",
            Self::BeforeWait => "access before the dependency wait",
            Self::Undeclared => "access against the declaration",
            Self::Deadlock => "deadlock",
            Self::Trap => "trap",
        }
    }
}

/// Who did what, where in the code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    /// CTA index in the grid.
    pub cta: [u32; 3],
    /// Warp in the CTA.
    pub warp: u32,
    /// Lane in the warp.
    pub lane: u32,
    /// Line of the PTX.
    pub ptx_line: u32,
    /// Opcode on that line.
    pub opcode: String,
    /// Place in the CUDA text, the innermost first, then outwards along `inlined_at`. Empty without `-lineinfo`.
    pub sources: Vec<SourceLocation>,
}

/// An address in the terms of its memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Address {
    /// Byte offset in the CTA's shared memory.
    Shared {
        /// From the start of the CTA's shared memory.
        offset: u32,
        /// The `.shared` variable that holds it, and the offset inside it.
        variable: Option<(String, u32)>,
    },
    /// A global address in, or near, an allocation.
    Global {
        /// The address.
        address: u64,
        /// The allocation that holds it or, out of bounds, the nearest.
        allocation: Option<String>,
        /// Byte offset from the allocation's start; negative before it.
        offset: i64,
    },
    /// Any other address.
    Raw(u64),
}

/// One fault, with everything needed to explain it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Class.
    pub kind: FindingKind,
    /// Kernel.
    pub kernel: String,
    /// The access that the check stopped at.
    pub access: Access,
    /// The address, where there is one.
    pub address: Option<Address>,
    /// The other access of a pair: the earlier one of a race, the copy in flight.
    pub other: Option<Access>,
    /// What exactly is wrong, with the values.
    pub detail: String,
    /// How often it happened in the launch; only the first is kept.
    pub count: u64,
}

/// The author's names for places in the generated code, given by whoever generated it.
pub trait Names {
    /// The author's `file:line:col` for a line of the CUDA text.
    fn source(&self, place: &SourceLocation) -> Option<String>;
    /// The author's name for a byte of shared memory, such as `ring[1][3, 16]`.
    fn shared(&self, offset: u32) -> Option<String>;
}

/// No names: findings show the CUDA text's own lines and byte offsets.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoNames;

impl Names for NoNames {
    fn source(&self, _: &SourceLocation) -> Option<String> {
        None
    }
    fn shared(&self, _: u32) -> Option<String> {
        None
    }
}

impl Finding {
    /// The finding in one line, in the author's names where there are any.
    ///
    /// ```
    /// # use lathe_emulator::{Access, Address, Finding, FindingKind, NoNames};
    /// # let access = Access { cta: [0; 3], warp: 1, lane: 2, ptx_line: 30, opcode: "ld.shared.u32".into(), sources: vec![] };
    /// # let address = Some(Address::Shared { offset: 64, variable: Some(("tile".into(), 64)) });
    /// let finding = Finding { kind: FindingKind::SharedRace, kernel: "k".into(), access, address, other: None, detail: "…".into(), count: 1 };
    /// let text = finding.describe(&NoNames);
    /// assert_eq!(text, "k: shared-memory race at `tile` + 64, ld.shared.u32 (PTX line 30), CTA (0, 0, 0), warp 1, lane 2: …");
    /// ```
    pub fn describe(&self, names: &dyn Names) -> String {
        let place = |access: &Access| {
            let author = access.sources.iter().find_map(|s| names.source(s));
            let generated = || access.sources.first().map(|s| format!("{}:{}", s.file, s.line));
            author.or_else(generated).map_or(String::new(), |p| format!("{p}, "))
        };
        let whole = |a: &Access| {
            let [x, y, z] = a.cta;
            format!(
                "{}{} (PTX line {}), CTA ({x}, {y}, {z}), warp {}, lane {}",
                place(a),
                a.opcode,
                a.ptx_line,
                a.warp,
                a.lane
            )
        };
        let address = match &self.address {
            None => String::new(),
            Some(Address::Shared { offset, variable }) => match (names.shared(*offset), variable) {
                (Some(name), _) => format!(" at {name}"),
                (None, Some((name, inside))) => format!(" at `{name}` + {inside}"),
                (None, None) => format!(" at shared offset {offset}"),
            },
            Some(Address::Global { allocation: Some(name), offset, .. }) => format!(" at `{name}` + {offset}"),
            Some(Address::Global { address, .. } | Address::Raw(address)) => format!(" at {address:#x}"),
        };
        let other = self.other.as_ref().map_or(String::new(), |o| format!("; the other access: {}", whole(o)));
        format!("{}: {}{address}, {}: {}{other}", self.kernel, self.kind.title(), whole(&self.access), self.detail)
    }
}
