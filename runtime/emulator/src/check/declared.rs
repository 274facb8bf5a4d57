//! Declared accesses: what a launch says that a kernel does with each buffer, against what it does.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use serde::{Deserialize, Serialize};

use crate::exec::Cx;
use crate::exec::access::Intent;
use crate::finding::FindingKind;

/// What a kernel does with a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Reads only.
    Read,
    /// Writes every byte, each before any read of it.
    WriteAll,
    /// Writes some bytes, reads none.
    WritePart,
    /// Reads and writes.
    ReadWrite,
}

impl Effect {
    /// Whether the buffer is an output.
    pub fn writes(self) -> bool {
        self != Self::Read
    }

    fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::WriteAll => "write_all",
            Self::WritePart => "write_part",
            Self::ReadWrite => "read_write",
        }
    }
}

/// A buffer of a launch, as declared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Declaration {
    /// Name for messages.
    pub name: String,
    /// First byte.
    pub address: u64,
    /// Bytes.
    pub len: u64,
    /// What the kernel does with it.
    pub effect: Effect,
    /// Whether it may be touched before `griddepcontrol.wait`: no earlier kernel writes it (and, for an output, none uses it).
    pub before_wait: bool,
    /// Bytes, from the start, that CTAs may write without order: where padding goes, for example.
    pub racy: Range<u64>,
}

/// The declarations of a launch, with what has been seen of each.
pub(crate) struct Declared {
    /// By address.
    entries: Vec<Entry>,
}

struct Entry {
    declaration: Declaration,
    /// For `write_all`: a bit for each byte written.
    written: Vec<AtomicU32>,
}

impl Declared {
    pub fn new(declarations: &[Declaration]) -> Self {
        let mut entries: Vec<Entry> = declarations
            .iter()
            .map(|d| {
                let bits = if d.effect == Effect::WriteAll { d.len.div_ceil(32) } else { 0 };
                Entry { declaration: d.clone(), written: (0..bits).map(|_| AtomicU32::new(0)).collect() }
            })
            .collect();
        entries.sort_by_key(|e| e.declaration.address);
        Self { entries }
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn find(&self, address: u64) -> Option<&Entry> {
        let at = self.entries.partition_point(|e| e.declaration.address <= address).checked_sub(1)?;
        let entry = &self.entries[at];
        (address - entry.declaration.address < entry.declaration.len).then_some(entry)
    }

    /// The output that holds an address.
    pub fn output(&self, address: u64) -> Option<&Declaration> {
        self.find(address).map(|e| &e.declaration).filter(|d| d.effect.writes())
    }

    /// Whether accesses there cannot race: nobody writes, or it is declared that they may.
    pub fn race_free(&self, address: u64) -> bool {
        self.find(address).is_some_and(|e| {
            let d = &e.declaration;
            !d.effect.writes() || d.racy.contains(&(address - d.address))
        })
    }

    /// Outputs declared `write_all` of which a byte was never written, with its offset.
    pub fn incomplete(&self) -> impl Iterator<Item = (&Declaration, u64)> {
        self.entries.iter().filter(|e| e.declaration.effect == Effect::WriteAll).filter_map(|e| {
            let missing = (0..e.declaration.len).find(|&byte| !e.is_written(byte))?;
            Some((&e.declaration, missing))
        })
    }
}

impl Entry {
    fn is_written(&self, byte: u64) -> bool {
        self.written[byte as usize / 32].load(Relaxed) >> (byte % 32) & 1 != 0
    }

    fn write(&self, from: u64, bytes: u32) {
        for byte in from..(from + u64::from(bytes)).min(self.declaration.len) {
            let word = &self.written[byte as usize / 32];
            let bit = 1 << (byte % 32);
            if word.load(Relaxed) & bit == 0 {
                word.fetch_or(bit, Relaxed);
            }
        }
    }
}

impl Cx<'_> {
    /// Checks a global access against the declarations.
    #[inline]
    pub fn check_declared(&mut self, address: u64, bytes: u32, intent: Intent, lane: u32) {
        if self.env.declared.is_empty() {
            return;
        }
        let declared = &self.env.declared;
        let Some(entry) = declared.find(address) else {
            if address < crate::memory::MODULE_BASE {
                self.undeclared(address, lane, "nothing declares that this launch touches this buffer".into());
            }
            return;
        };
        let d = &entry.declaration;
        let offset = address - d.address;
        if !d.before_wait && self.env.code.uses_pdl_wait && self.warp.waited >> lane & 1 == 0 {
            self.before_wait(address, lane, intent, &d.name);
        }
        let wrong = match (d.effect, intent) {
            (Effect::ReadWrite, _) | (Effect::Read, Intent::Read) | (Effect::WritePart, Intent::Write) => false,
            (Effect::WriteAll, Intent::Write) => {
                entry.write(offset, bytes);
                false
            }
            (Effect::WriteAll, Intent::Read) => {
                !(offset..offset + u64::from(bytes)).all(|b| b < d.len && entry.is_written(b))
            }
            _ => true,
        };
        if wrong {
            let verb = match intent {
                Intent::Read => "reads",
                Intent::Write => "writes",
                Intent::Atomic => "reads and writes",
            };
            let detail =
                format!("`{}` is declared {}, and the kernel {verb} byte {offset} of it", d.name, d.effect.name());
            self.undeclared(address, lane, detail);
        }
    }

    #[cold]
    fn undeclared(&mut self, address: u64, lane: u32, detail: String) {
        let place = self.global_address(address);
        self.report(FindingKind::Undeclared, lane, Some(place), None, detail);
    }

    #[cold]
    fn before_wait(&mut self, address: u64, lane: u32, intent: Intent, name: &str) {
        let place = self.global_address(address);
        let verb = if intent == Intent::Read { "reads" } else { "writes" };
        let why = if intent == Intent::Read {
            "an earlier kernel may still write it"
        } else {
            "an earlier kernel may still use it"
        };
        let detail = format!("the lane {verb} `{name}` before griddepcontrol.wait, and {why}");
        self.report(FindingKind::BeforeWait, lane, Some(place), None, detail);
    }

    /// Reports undefined bits that are stored to a declared output.
    #[cold]
    pub fn check_output(&mut self, address: u64, lane: u32) {
        if let Some(d) = self.env.declared.output(address) {
            let detail =
                format!("bits that nobody defined are stored to the output `{}`, byte {}", d.name, address - d.address);
            let place = self.global_address(address);
            self.report(FindingKind::Undefined, lane, Some(place), None, detail);
        }
    }
}
