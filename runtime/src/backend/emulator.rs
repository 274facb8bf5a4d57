//! The emulator as a backend: runs the PTX, checks everything, and says what it saw in the author's terms.

use std::ops::Range;
use std::time::Instant;

use lathe_codegen::contract::{Arg, Buffer, Case, Scale};
use lathe_codegen::ir::{Access as Declared, ParamKind, Phase, SharedTile};
use lathe_codegen::loc::Loc;
use lathe_codegen::target::Target;
use lathe_emulator::{
    Address, Checks, CpAsync, Declaration, Effect, GlobalMemory, Init, Launch, Module, Options, Rights, SourceLocation,
    TensorMap,
};

use super::arguments::{check, marshal, may_write};
use super::{Access, Backend, Finding, FindingKind, Loaded, Run, RunError, Schedule, Traffic, finding};
use crate::program::{Program, rust_line};

/// Runs PTX on the CPU.
#[derive(Clone, Debug, Default)]
pub struct EmulatorBackend {
    /// Whether races and copies in flight go unchecked, for speed.
    pub fast: bool,
    /// Whether memory traffic is counted.
    pub traffic: bool,
}

impl Backend for EmulatorBackend {
    fn name(&self) -> &'static str {
        "emulator"
    }

    fn scale(&self) -> Scale {
        Scale::Emulator
    }

    fn runs(&self, _target: Target) -> bool {
        true
    }

    fn load<'a>(&'a self, program: &'a Program) -> Result<Box<dyn Loaded + 'a>, RunError> {
        let kernel = Module::parse(&program.compiled.ptx)?.entry(&program.cuda.entry)?;
        let checks = if self.fast { Checks::NONE } else { Checks::ALL };
        Ok(Box::new(Emulated { program, kernel, checks, traffic: self.traffic }))
    }
}

struct Emulated<'a> {
    program: &'a Program,
    kernel: lathe_emulator::Kernel,
    checks: Checks,
    traffic: bool,
}

impl Loaded for Emulated<'_> {
    fn run(&self, case: &Case, schedule: Schedule) -> Result<Run, RunError> {
        let Program { kernel, cuda, compiled } = self.program;
        check(kernel, self.program.shared_bytes(), compiled.target, case)?;
        if case.grid.contains(&0) {
            let buffers = case.buffers.clone();
            return Ok(Run { buffers, ..Run::default() });
        }

        let mut memory = Memory::default();
        for (index, buffer) in case.buffers.iter().enumerate() {
            memory.place(buffer, may_write(&self.program.kernel, case, index))?;
        }
        let launch = Launch {
            grid: case.grid,
            block: [cuda.threads, 1, 1],
            dynamic_shared: cuda.shared_bytes,
            params: marshal(&case.args, &memory.bases, TensorMap::encode)?,
            declarations: self.declarations(case, &memory),
        };
        let cp_async = if schedule.late_copies { CpAsync::Late } else { CpAsync::Eager };
        let options = Options {
            seed: schedule.seed,
            cp_async,
            checks: self.checks,
            // The language has no `return`.
            early_exit: false,
            traffic: self.traffic,
            ..Options::default()
        };
        let start = Instant::now();
        let report = self.kernel.launch(&launch, &mut memory.global, &options).map_err(|error| self.endless(error))?;
        let elapsed = start.elapsed();

        let mut findings: Vec<Finding> = Vec::new();
        finding::merge(&mut findings, report.findings.into_iter().map(|f| self.explain(f, case, &memory)));
        finding::merge(&mut findings, memory.written_padding(&kernel.name, case));
        let buffers = memory.read_back(case)?;
        let traffic = report.traffic.into_iter().map(|access| self.traffic(access)).collect();
        Ok(Run { buffers, findings, lane_instructions: report.stats.lane_instructions, elapsed, traffic })
    }
}

impl Emulated<'_> {
    /// What the arguments declare of each buffer; arguments that share one are taken together.
    fn declarations(&self, case: &Case, memory: &Memory) -> Vec<Declaration> {
        let of = |(index, buffer): (usize, &Buffer)| {
            let pointers =
                self.program.kernel.params.iter().zip(&case.args).filter_map(|(param, arg)| match (param.kind, arg) {
                    (ParamKind::Pointer { access, phase, .. }, Arg::Pointer { buffer, .. }) if *buffer == index => {
                        Some((access, phase))
                    }
                    (ParamKind::Tensor { access, phase, .. }, Arg::Tensor(tensor)) if tensor.buffer == index => {
                        Some((access, phase))
                    }
                    _ => None,
                });
            let pointers: Vec<(Declared, Phase)> = pointers.collect();
            let reads = pointers.iter().any(|(access, _)| access.reads());
            let writes = pointers.iter().any(|(access, _)| access.writes());
            let effect = match (reads, writes) {
                (true, true) => Effect::ReadWrite,
                (true, false) => Effect::Read,
                (false, true) if pointers.iter().all(|(access, _)| *access == Declared::WriteAll) => Effect::WriteAll,
                (false, true) => Effect::WritePart,
                (false, false) => return Vec::new(),
            };
            // The launch covers what is mapped, not what lies in between.
            let parts: Vec<Range<u64>> = match effect {
                Effect::WriteAll => buffer.segments.iter().map(|s| s.offset..s.offset + s.bytes.len() as u64).collect(),
                _ => std::iter::once(0..buffer.len).collect(),
            };
            let declare = |part: Range<u64>| Declaration {
                name: buffer.name.clone(),
                address: memory.bases[index] + part.start,
                len: part.end - part.start,
                effect,
                before_wait: pointers.iter().all(|(_, phase)| *phase == Phase::BeforeWait),
                racy: buffer.racy.start.saturating_sub(part.start)..buffer.racy.end.saturating_sub(part.start),
            };
            parts.into_iter().map(declare).collect()
        };
        case.buffers.iter().enumerate().flat_map(of).collect()
    }

    /// An endless loop, at the author's line.
    fn endless(&self, error: lathe_emulator::Error) -> RunError {
        match &error {
            lathe_emulator::Error::StepLimit { cta, limit, sources, .. } => match self.author(sources) {
                Some((_, at)) => RunError::Endless { cta: *cta, limit: *limit, at },
                None => error.into(),
            },
            _ => error.into(),
        }
    }

    /// The innermost place that the author wrote, as lines of the CUDA text and of Rust; helpers of the printed text are
    /// nobody's lines.
    fn author(&self, sources: &[SourceLocation]) -> Option<(u32, Loc)> {
        sources.iter().find_map(|place| Some((place.line, rust_line(&self.program.cuda, place.line)?)))
    }

    fn explain(&self, found: lathe_emulator::Finding, case: &Case, memory: &Memory) -> Finding {
        let access = self.access(found.access);
        let other = found.other.map(|other| self.access(other));
        let far = || {
            let touched = self.program.kernel.arguments_touched_at(access.rust?);
            let names: Vec<_> = touched.iter().map(|param| format!("`{}`", param.name)).collect();
            (!names.is_empty()).then(|| format!("an address far outside {}", names.join(" and ")))
        };
        Finding {
            kind: found.kind,
            kernel: found.kernel,
            detail: found.detail,
            element: found.address.and_then(|address| match address {
                Address::Shared { offset, variable } => {
                    let offset = variable.map_or(offset, |(_, inside)| inside);
                    shared_element(&self.program.cuda.tiles, offset)
                }
                Address::Global { address, .. } => memory.element(case, address).or_else(far),
                Address::Raw(_) => None,
            }),
            help: finding::help(found.kind, &access, other.as_ref()),
            access: Some(access),
            other,
            count: found.count,
        }
    }

    fn traffic(&self, access: lathe_emulator::Traffic) -> Traffic {
        let rust = self.author(&access.sources).map(|(_, loc)| loc);
        Traffic { rust, ptx_line: access.ptx_line, opcode: access.opcode, counts: access.counts }
    }

    fn access(&self, access: lathe_emulator::Access) -> Access {
        let place = self.author(&access.sources);
        Access {
            rust: place.map(|(_, loc)| loc),
            cuda_line: place.map(|(line, _)| line).or(access.sources.last().map(|place| place.line)),
            ptx_line: access.ptx_line,
            opcode: access.opcode,
            cta: access.cta,
            warp: access.warp,
            lane: access.lane,
        }
    }
}

/// The element at a byte of the CTA's dynamic shared memory, e.g. "`ring`, warp 2, stage 1, [3, 16]".
fn shared_element(tiles: &[SharedTile], offset: u32) -> Option<String> {
    let tile = tiles.iter().find(|tile| (tile.offset..tile.offset + tile.bytes()).contains(&offset))?;
    let [copy, stage, row, column] = tile.element_at(offset - tile.offset)?;
    let mut text = format!("`{}`", tile.name);
    if tile.copies > 1 {
        text += &format!(", warp {copy}");
    }
    if tile.stages.is_some() {
        text += &format!(", stage {stage}");
    }
    Some(text + &format!(", [{row}, {column}]"))
}

/// Where buffers lie in the emulated address space.
struct Memory {
    global: GlobalMemory,
    /// Base address of each buffer.
    bases: Vec<u64>,
    /// Where the next buffer may start.
    next_base: u64,
    /// Ranges that had to be mapped though no segment holds them, since the emulator maps 16 bytes at a time.
    padding: Vec<Padding>,
}

struct Padding {
    buffer: usize,
    offset: u64,
    len: u64,
}

const FIRST_ADDRESS: u64 = 0x7_0000_0000;
/// Unmapped bytes between buffers.
const GAP: u64 = 1 << 20;
/// Granularity of the emulator's mappings.
const UNIT: u64 = 16;

impl Default for Memory {
    fn default() -> Self {
        Memory { global: GlobalMemory::default(), bases: Vec::new(), next_base: FIRST_ADDRESS, padding: Vec::new() }
    }
}

impl Memory {
    /// Maps the segments of `buffer` behind the buffers placed before.
    fn place(&mut self, buffer: &Buffer, writable: bool) -> Result<(), RunError> {
        let index = self.bases.len();
        let base = self.next_base;
        self.next_base = (base + buffer.len + GAP).next_multiple_of(256);
        self.bases.push(base);

        for island in islands(buffer) {
            let segments = &buffer.segments[island];
            let (Some(first), Some(last)) = (segments.first(), segments.last()) else { continue };
            let start = first.offset / UNIT * UNIT;
            let end = last.offset + last.bytes.len() as u64;
            self.global.map(&buffer.name, base + start, end - start, Init::Undefined)?;
            let mut mapped = start;
            for segment in segments {
                if segment.offset > mapped {
                    self.padding.push(Padding { buffer: index, offset: mapped, len: segment.offset - mapped });
                }
                mapped = segment.offset + segment.bytes.len() as u64;
                self.global.write(base + segment.offset, &segment.bytes)?;
                if !segment.defined {
                    self.global.poison(base + segment.offset, segment.bytes.len() as u64)?;
                }
            }
            if !writable {
                self.global.protect(base + start, Rights::ReadOnly);
            }
        }
        Ok(())
    }

    fn read_back(&self, case: &Case) -> Result<Vec<Buffer>, RunError> {
        let mut buffers = case.buffers.clone();
        for (buffer, base) in buffers.iter_mut().zip(&self.bases) {
            for segment in buffer.segments.iter_mut().filter(|segment| !segment.bytes.is_empty()) {
                self.global.read(base + segment.offset, &mut segment.bytes)?;
            }
        }
        Ok(buffers)
    }

    /// The element at an address, e.g. "`logits`\[1234\]"; past the ends of a buffer, how far.
    fn element(&self, case: &Case, address: u64) -> Option<String> {
        let near = |(index, base): &(usize, &u64)| {
            let len = case.buffers[*index].len;
            address + GAP / 2 >= **base && address < **base + len + GAP / 2
        };
        let (index, base) = self.bases.iter().enumerate().find(near)?;
        let buffer = &case.buffers[index];
        Some(if address < *base {
            format!("{} bytes before `{}`", base - address, buffer.name)
        } else if address - base == buffer.len {
            format!("the end of `{}`", buffer.name)
        } else if address - base > buffer.len {
            format!("{} bytes past the end of `{}`", address - base - buffer.len, buffer.name)
        } else {
            let mapped = buffer.slice(address - base, 1).is_some();
            let element = (address - base) / buffer.dtype.size() as u64;
            format!("`{}`[{element}]{}", buffer.name, if mapped { "" } else { ", which is not mapped" })
        })
    }

    /// Writes that went between segments, into bytes that are mapped only because a mapping is 16 bytes wide.
    fn written_padding(&self, kernel: &str, case: &Case) -> Vec<Finding> {
        let written = |padding: &Padding| {
            let start = self.bases[padding.buffer] + padding.offset;
            (start..start + padding.len).find(|byte| self.global.is_defined(*byte, 1) == Ok(true))
        };
        let explain = |byte: u64, padding: &Padding| Finding {
            kind: FindingKind::OutOfBounds,
            kernel: kernel.to_owned(),
            detail: format!("a write outside every mapped part of `{}`", case.buffers[padding.buffer].name),
            element: self.element(case, byte),
            access: None,
            other: None,
            help: None,
            count: 1,
        };
        self.padding.iter().filter_map(|padding| Some(explain(written(padding)?, padding))).collect()
    }
}

/// Runs of segments that share units of mapping with their neighbours, as ranges of indices.
fn islands(buffer: &Buffer) -> Vec<std::ops::Range<usize>> {
    let mut islands: Vec<std::ops::Range<usize>> = Vec::new();
    let mut end = 0;
    for (index, segment) in buffer.segments.iter().enumerate().filter(|(_, s)| !s.bytes.is_empty()) {
        match islands.last_mut() {
            Some(island) if segment.offset / UNIT * UNIT < end => island.end = index + 1,
            _ => islands.push(index..index + 1),
        }
        end = segment.offset + segment.bytes.len() as u64;
    }
    islands
}

#[cfg(test)]
mod tests {
    use lathe_codegen::contract::Segment;
    use lathe_codegen::dtype::Dtype;

    use super::*;

    fn sparse(segments: &[(u64, usize, bool)]) -> Buffer {
        let segments = segments.iter().map(|(offset, len, defined)| Segment {
            offset: *offset,
            bytes: vec![7; *len],
            defined: *defined,
        });
        Buffer { name: "rows".into(), dtype: Dtype::F32, len: 1 << 40, segments: segments.collect(), racy: 0..0 }
    }

    fn case(buffer: Buffer) -> Case {
        let verify = Box::new(|_: &[Buffer]| Default::default());
        Case { name: String::new(), grid: [1; 3], buffers: vec![buffer], args: Vec::new(), verify }
    }

    #[test]
    fn segments_come_back_byte_for_byte_wherever_they_lie() {
        let case = case(sparse(&[(0, 12, true), (12, 8, false), (36, 4, true), (1 << 35, 100, false)]));
        let mut memory = Memory::default();
        memory.place(&case.buffers[0], true).unwrap();
        assert_eq!(memory.read_back(&case).unwrap(), case.buffers);
        assert!(memory.written_padding("k", &case).is_empty());
    }

    #[test]
    fn a_write_between_segments_of_one_unit_is_seen() {
        let case = case(sparse(&[(0, 4, true), (8, 4, true)]));
        let mut memory = Memory::default();
        memory.place(&case.buffers[0], true).unwrap();
        memory.global.write(memory.bases[0] + 4, &[1]).unwrap();
        let findings = memory.written_padding("k", &case);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].element.as_deref(), Some("`rows`[1], which is not mapped"));
    }

    #[test]
    fn an_address_is_named_by_argument_and_element() {
        let case = case(sparse(&[(0, 64, true)]));
        let mut memory = Memory::default();
        memory.place(&case.buffers[0], true).unwrap();
        let base = memory.bases[0];
        assert_eq!(memory.element(&case, base + 8).as_deref(), Some("`rows`[2]"));
        assert_eq!(memory.element(&case, base - 4).as_deref(), Some("4 bytes before `rows`"));
        assert_eq!(memory.element(&case, base + (1 << 40) + 4).as_deref(), Some("4 bytes past the end of `rows`"));
        assert_eq!(memory.element(&case, 64), None);
    }
}
