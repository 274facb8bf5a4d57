//! What backends report, in the author's terms.

use std::fmt;

use lathe_codegen::loc::Loc;
pub use lathe_emulator::FindingKind;
use serde::{Serialize, Serializer};

/// One fault of a kernel.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// The class of the fault.
    pub kind: FindingKind,
    /// The kernel's name.
    pub kernel: String,
    /// What exactly is wrong, with the values.
    pub detail: String,
    /// The element that was accessed, by the author's name for its tile or argument.
    pub element: Option<String>,
    /// The access that was wrong; none where only its effect was seen.
    pub access: Option<Access>,
    /// The other access of a pair: the earlier one of a race, the copy in flight.
    pub other: Option<Access>,
    /// What would repair it.
    pub help: Option<String>,
    /// How often it happened.
    pub count: u64,
}

/// Who did what, where in the code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Access {
    /// Where the author wrote it.
    #[serde(serialize_with = "as_text")]
    pub rust: Option<Loc>,
    /// Line of the CUDA source, at the call site of helpers.
    pub cuda_line: Option<u32>,
    /// Line of the PTX.
    pub ptx_line: u32,
    /// PTX opcode.
    pub opcode: String,
    /// CTA index in the grid.
    pub cta: [u32; 3],
    /// Warp in the CTA.
    pub warp: u32,
    /// Lane in the warp.
    pub lane: u32,
}

fn as_text<S: Serializer>(loc: &Option<Loc>, serializer: S) -> Result<S::Ok, S::Error> {
    match loc {
        Some(loc) => serializer.collect_str(loc),
        None => serializer.serialize_none(),
    }
}

impl Finding {
    /// Whether two findings have the same cause: the same fault at the same places, in whichever order they came.
    pub fn same_cause(&self, other: &Finding) -> bool {
        self.kind == other.kind
            && self.kernel == other.kernel
            && self.places() == other.places()
            // Without a place, only the text tells causes apart.
            && (self.access.is_some() || self.detail == other.detail)
    }

    /// The places of both accesses, sorted; lines of the PTX where the author's are not known.
    fn places(&self) -> Vec<(Option<Loc>, u32)> {
        let accesses = self.access.iter().chain(&self.other);
        let mut places: Vec<_> = accesses.map(|a| (a.rust, if a.rust.is_none() { a.ptx_line } else { 0 })).collect();
        places.sort_unstable();
        places
    }
}

/// Adds `new` to `findings`, counting those of a cause already there.
pub fn merge(findings: &mut Vec<Finding>, new: impl IntoIterator<Item = Finding>) {
    for finding in new {
        match findings.iter_mut().find(|known| known.same_cause(&finding)) {
            Some(known) => known.count += finding.count,
            None => findings.push(finding),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(loc) = self.access.as_ref().and_then(|access| access.rust) {
            write!(f, "{loc}: ")?;
        }
        write!(f, "{}: {}", self.kind.title(), self.detail)
    }
}

/// What to do about a fault of `kind` between two accesses.
pub(super) fn help(kind: FindingKind, access: &Access, other: Option<&Access>) -> Option<String> {
    let same_lane = |other: &Access| (other.cta, other.warp, other.lane) == (access.cta, access.warp, access.lane);
    let same_warp = |other: &Access| (other.cta, other.warp) == (access.cta, access.warp);
    let loads = |access: &Access| access.opcode.starts_with("cp.async.bulk.shared::cta");
    let stores = |access: &Access| access.opcode.starts_with("cp.async.bulk.global");
    let text = match (kind, other) {
        (FindingKind::SharedRace | FindingKind::CopyInFlight, Some(_)) if loads(access) => {
            "let those who use the bytes arrive at an mbarrier when they are done, and wait for its phase before the copy"
        }
        (FindingKind::CopyInFlight, Some(other)) if loads(other) => {
            "wait for the phase of the mbarrier that counts the copy's bytes: `full.at(stage).wait(parity)`"
        }
        (FindingKind::CopyInFlight, Some(other)) if stores(other) => {
            "wait for the store's group first: `wait_bulk_all_but(n)` with n the number of later groups that may still be in flight"
        }
        (FindingKind::ProxyFence, Some(other)) if other.opcode.starts_with("mbarrier.init") => {
            "put `fence::mbarrier_init()` behind the initialisation, in the thread that does it"
        }
        (FindingKind::ProxyFence, _) => {
            "put `fence::async_proxy()` behind the stores, in the threads that store, and a barrier behind that"
        }
        (FindingKind::SharedRace, Some(other)) if same_warp(other) => {
            "put a `warp::sync()` between the two, or a `cta::sync()`: lanes of a warp are not ordered by running in step"
        }
        (FindingKind::SharedRace, Some(_)) => "put a `cta::sync()` between the two: they are in different warps",
        (FindingKind::CopyInFlight, Some(other)) if same_lane(other) => {
            "wait for the copy's group first: `wait_all_but(n)` with n the number of later groups that may still be in flight"
        }
        (FindingKind::CopyInFlight, Some(other)) if same_warp(other) => {
            "wait for the copy's group and then `warp::sync()`: a wait serves only the lane that issued the copy"
        }
        (FindingKind::CopyInFlight, Some(_)) => {
            "wait for the copy's group and then `cta::sync()`: a wait serves only the lane that issued the copy"
        }
        (FindingKind::GlobalRace, Some(other)) if same_warp(other) => {
            "put a `warp::sync()` between the two, or let one lane do both"
        }
        (FindingKind::GlobalRace, Some(other)) if other.cta == access.cta => "put a `cta::sync()` between the two",
        (FindingKind::GlobalRace, _) => "CTAs of a launch are not ordered: give each its own part, or use atomics",
        (FindingKind::BeforeWait, _) => {
            "move it below `pdl::wait()`, or declare the argument as touched before the wait"
        }
        (FindingKind::DivergentCollective, _) => "move it out of the branch, so that every lane of the warp takes part",
        _ => return None,
    };
    Some(text.to_owned())
}
