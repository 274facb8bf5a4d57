//! A parsed entry to a [`Kernel`]: instructions with register slots, jump targets and addresses settled.

mod form;
mod liveness;

use std::collections::HashMap;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::exec::lanes::{Run, Scalar};
use crate::isa;
use crate::memory::SHARED_BASE;
use crate::parse::ast::{Body, Entry, Param, RegId, SourceLocation, Variable};
use crate::parse::{Locations, Module};
pub(crate) use form::{AddressBase, Built as FormBuilt, Form, Ty};

/// Most operands of an instruction: a 16-register mma.
pub(crate) const MAX_OPERANDS: usize = 40;
/// [`Inst::guard`] of an instruction that always executes.
pub(crate) const NO_GUARD: u16 = u16::MAX;

/// A decoded instruction.
pub(crate) struct Inst {
    pub run: Run,
    /// What `run` computes for a lane, where it is [`each_lane`](crate::exec::lanes::each_lane).
    pub scalar: Scalar,
    /// Immediate: a byte offset, an immediate selector, a size; each opcode says.
    pub imm: i64,
    /// Jump target, or packed details; each opcode says.
    pub aux: u32,
    pub guard: u16,
    pub guard_negated: bool,
    /// How undefined bits go from the sources to the destinations.
    pub taint: Taint,
    /// Register slots, destinations first.
    pub ops: [u16; MAX_OPERANDS],
    pub kinds: [Kind; MAX_OPERANDS],
    pub count: u8,
    /// Bit i: operand i is a negated predicate.
    negated: u64,
}

impl Inst {
    /// All ones where the predicate operand is negated.
    #[inline(always)]
    pub fn negate(&self, operand: usize) -> u32 {
        if self.negated >> operand & 1 != 0 { !0 } else { 0 }
    }
}

/// What an operand slot is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Kind {
    /// 0 for a predicate, else the rows of the register.
    pub rows: u8,
    pub written: bool,
    pub read: bool,
}

/// How undefined bits travel through an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Taint {
    /// Any undefined bit of a lane's sources makes the lane's destinations undefined.
    #[default]
    Any,
    /// As `Any`, by 16-bit halves (packed arithmetic).
    Element,
    /// A bit of the result depends on the bits at and below it (sums and low products).
    Upwards,
    /// Bitwise and: a defined 0 decides.
    And,
    /// Bitwise or: a defined 1 decides.
    Or,
    /// The instruction only moves bits: it does the same to their definedness, steered by the operands in the mask.
    Same { control: u32 },
    /// The instruction sees to it itself (memory, exchanges between lanes).
    Own,
}

/// A kernel ready to launch. Cheap to clone.
#[derive(Clone)]
pub struct Kernel {
    pub(crate) code: Arc<Code>,
}

/// Everything about a kernel that does not change between launches.
pub(crate) struct Code {
    pub name: String,
    pub insts: Vec<Inst>,
    /// Line in the PTX, and `.loc`, of each instruction.
    pub lines: Vec<u32>,
    pub locs: Vec<Option<u32>>,
    pub opcodes: Vec<String>,
    pub locations: Arc<Locations>,
    pub params: Vec<Param>,
    pub param_offsets: Vec<usize>,
    pub param_bytes: usize,
    pub required_block: Option<[u32; 3]>,
    pub max_block: Option<u32>,
    /// Rows of registers, constants and special registers of a warp.
    pub rows: usize,
    pub preds: usize,
    /// (slot, rows, value): rows that hold a constant.
    pub constants: Vec<(u16, u8, u64)>,
    /// Rows that hold a special register.
    pub specials: Vec<(u16, Special)>,
    /// Registers that may be read before they are written.
    pub unwritten: Vec<(u16, u8)>,
    pub shared: Vec<SharedVariable>,
    /// Bytes of static shared memory; dynamic shared memory follows.
    pub static_shared: u32,
    pub local_bytes: u32,
    pub module_variables: Vec<ModuleVariable>,
    /// Uses global atomics: its CTAs must be interleaved deterministically.
    pub global_atomics: bool,
    pub uses_pdl_wait: bool,
    /// Registers that are live at the targets of backward jumps.
    pub live_at: HashMap<u32, Vec<(u16, u8)>>,
}

/// A variable of the module in global or constant memory.
#[derive(Clone)]
pub(crate) struct ModuleVariable {
    pub name: String,
    pub address: u64,
    pub size: u64,
    pub init: Vec<u8>,
    pub read_only: bool,
}

/// A `.shared` variable of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedVariable {
    /// Name in the PTX.
    pub name: String,
    /// Byte offset from the start of the CTA's shared memory.
    pub offset: u32,
    /// Bytes; 0 for the `.extern` array, which takes all dynamic shared memory.
    pub size: u32,
}

/// Registers whose value the launch gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Special {
    Tid(u8),
    Ntid(u8),
    Ctaid(u8),
    Nctaid(u8),
    LaneId,
    WarpId,
    NWarpId,
    LaneMask(LaneMask),
    DynamicSharedSize,
    TotalSharedSize,
    /// %smid, %gridid, %cluster_ctaid and the like: always 0 here.
    Zero,
    /// %nsmid, %cluster_nctaid and the like: always 1 here.
    One,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum LaneMask {
    Eq,
    Le,
    Lt,
    Ge,
    Gt,
}

impl Special {
    fn parse(name: &str) -> Option<Self> {
        let (register, axis) = match name.rsplit_once('.') {
            Some((r, "x")) => (r, 0),
            Some((r, "y")) => (r, 1),
            Some((r, "z")) => (r, 2),
            _ => (name, 0),
        };
        Some(match register {
            "%tid" => Self::Tid(axis),
            "%ntid" => Self::Ntid(axis),
            "%ctaid" => Self::Ctaid(axis),
            "%nctaid" => Self::Nctaid(axis),
            "%laneid" => Self::LaneId,
            "%warpid" => Self::WarpId,
            "%nwarpid" => Self::NWarpId,
            "%lanemask_eq" => Self::LaneMask(LaneMask::Eq),
            "%lanemask_le" => Self::LaneMask(LaneMask::Le),
            "%lanemask_lt" => Self::LaneMask(LaneMask::Lt),
            "%lanemask_ge" => Self::LaneMask(LaneMask::Ge),
            "%lanemask_gt" => Self::LaneMask(LaneMask::Gt),
            "%dynamic_smem_size" => Self::DynamicSharedSize,
            "%total_smem_size" => Self::TotalSharedSize,
            "%smid" | "%gridid" | "%cluster_ctarank" | "%cluster_ctaid" => Self::Zero,
            "%clusterid" => Self::Ctaid(axis),
            "%nclusterid" => Self::Nctaid(axis),
            "%nsmid" | "%cluster_nctaid" | "%cluster_nctarank" => Self::One,
            _ => return None,
        })
    }
}

impl Kernel {
    /// Name of the entry.
    pub fn name(&self) -> &str {
        &self.code.name
    }

    /// Parameters, in order.
    pub fn params(&self) -> &[Param] {
        &self.code.params
    }

    /// Shared variables, with their place in the CTA's shared memory.
    pub fn shared_variables(&self) -> &[SharedVariable] {
        &self.code.shared
    }

    /// The block that the kernel was compiled for (`.reqntid`), if it says so.
    pub fn required_block(&self) -> Option<[u32; 3]> {
        self.code.required_block
    }

    /// Bytes of static shared memory.
    pub fn static_shared_bytes(&self) -> u32 {
        self.code.static_shared
    }

    /// Whether the kernel executes `griddepcontrol.wait` somewhere.
    pub fn waits_for_dependencies(&self) -> bool {
        self.code.uses_pdl_wait
    }

    /// The `.loc` chain of a PTX line: the innermost place first, then the places it was inlined at.
    pub fn sources_of_line(&self, ptx_line: u32) -> Vec<SourceLocation> {
        let at = self.code.lines.iter().position(|&l| l == ptx_line);
        self.code.locations.chain(at.and_then(|i| self.code.locs[i]))
    }
}

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Kernel({}, {} instructions)", self.code.name, self.code.insts.len())
    }
}

impl Code {
    pub fn sources(&self, pc: u32) -> Vec<SourceLocation> {
        self.locations.chain(self.locs[pc as usize])
    }
}

/// Where a name of the PTX lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Shared(u32),
    Param(u32),
    Local(u32),
    Module(u64),
}

impl Place {
    /// The address in its own state space.
    pub fn address(self) -> u64 {
        match self {
            Self::Shared(a) => (SHARED_BASE + a).into(),
            Self::Param(a) | Self::Local(a) => a.into(),
            Self::Module(a) => a,
        }
    }
}

/// A register, constant or special register during decoding, before it has a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Virtual {
    Register(RegId),
    /// Rows and bits.
    Constant(u8, u64),
    Special(Special),
    /// A destination that nobody reads, with its rows.
    Sink(u8),
    /// The predicates that are always false and true.
    False,
    True,
}

/// What the rows see while they decode one instruction, and what they add to the kernel.
pub(crate) struct Decoder<'m> {
    pub body: &'m Body,
    pub places: HashMap<&'m str, Place>,
    pub global_atomics: bool,
    pub uses_pdl_wait: bool,
}

pub(crate) fn kernel(module: &Module, entry: &Entry) -> Result<Kernel> {
    let mut places = HashMap::new();
    let (shared, static_shared) = lay_out_shared(module, entry)?;
    for v in module.shared.iter().chain(&entry.body.shared) {
        if let Some(s) = shared.iter().find(|s| s.name == v.name) {
            places.insert(v.name.as_str(), Place::Shared(s.offset));
        }
    }
    let (mut local_bytes, mut param_bytes) = (0, 0);
    for v in &entry.body.local {
        let at = place_after(&mut local_bytes, v.align.into(), v.size);
        if local_bytes > 512 << 10 {
            return Err(Error::Launch {
                kernel: entry.name.clone(),
                what: format!("{local_bytes} bytes of local memory a thread; 524288 are the limit"),
            });
        }
        places.insert(v.name.as_str(), Place::Local(at as u32));
    }
    let mut param_offsets = Vec::new();
    for p in &entry.params {
        let at = place_after(&mut param_bytes, p.align as u64, p.size as u64);
        if param_bytes > 32764 {
            return Err(Error::Launch {
                kernel: entry.name.clone(),
                what: format!("{param_bytes} bytes of parameters; 32764 are the limit"),
            });
        }
        param_offsets.push(at as usize);
        places.insert(p.name.as_str(), Place::Param(at as u32));
    }
    let module_variables = lay_out_module(module);
    for v in &module_variables {
        let name = module.global.iter().chain(&module.constant).find(|m| m.name == v.name).map(|m| m.name.as_str());
        if let Some(name) = name {
            places.entry(name).or_insert(Place::Module(v.address));
        }
    }

    let mut decoder = Decoder { body: &entry.body, places, global_atomics: false, uses_pdl_wait: false };
    let mut forms = Vec::with_capacity(entry.body.instructions.len() + 1);
    for inst in &entry.body.instructions {
        forms.push(isa::decode(&mut decoder, inst)?);
    }
    // Falling off the end is a return.
    forms.push(isa::implicit_return());
    let slots =
        liveness::assign(&entry.body, &forms).map_err(|what| Error::Launch { kernel: entry.name.clone(), what })?;

    let mut lines: Vec<u32> = entry.body.instructions.iter().map(|i| i.line).collect();
    lines.push(lines.last().copied().unwrap_or(1));
    let mut locs: Vec<Option<u32>> = entry.body.instructions.iter().map(|i| i.loc).collect();
    locs.push(locs.last().copied().flatten());
    let mut opcodes: Vec<String> = entry.body.instructions.iter().map(|i| i.opcode.clone()).collect();
    opcodes.push("ret".into());
    let insts = forms.iter().map(|f| finish(f, &slots)).collect();
    Ok(Kernel {
        code: Arc::new(Code {
            name: entry.name.clone(),
            insts,
            lines,
            locs,
            opcodes,
            locations: module.locations.clone(),
            params: entry.params.clone(),
            param_offsets,
            param_bytes: param_bytes as usize,
            required_block: entry.required_block,
            max_block: entry.max_block,
            rows: slots.rows,
            preds: slots.preds,
            constants: slots.constants.clone(),
            specials: slots.specials.clone(),
            unwritten: slots.unwritten.clone(),
            shared,
            static_shared,
            local_bytes: local_bytes as u32,
            module_variables,
            global_atomics: decoder.global_atomics,
            uses_pdl_wait: decoder.uses_pdl_wait,
            live_at: slots.live_at.clone(),
        }),
    })
}

fn finish(form: &form::Built, slots: &liveness::Slots) -> Inst {
    let mut inst = Inst {
        run: form.run,
        scalar: form.scalar,
        imm: form.imm,
        aux: form.aux,
        guard: form.guard.map_or(NO_GUARD, |(v, _)| slots.of(v)),
        guard_negated: form.guard.is_some_and(|g| g.1),
        taint: form.taint,
        ops: [0; MAX_OPERANDS],
        kinds: [Kind::default(); MAX_OPERANDS],
        count: form.operands.len() as u8,
        negated: 0,
    };
    for (i, operand) in form.operands.iter().enumerate() {
        inst.ops[i] = slots.of(operand.value);
        inst.kinds[i] = operand.kind;
        inst.negated |= u64::from(operand.negated) << i;
    }
    inst
}

fn place_after(end: &mut u64, align: u64, size: u64) -> u64 {
    let at = end.next_multiple_of(align.max(1));
    *end = at + size;
    at
}

fn lay_out_shared(module: &Module, entry: &Entry) -> Result<(Vec<SharedVariable>, u32)> {
    let used =
        |v: &&Variable| entry.body.instructions.iter().any(|i| i.operands.iter().any(|o| form::mentions(o, &v.name)));
    let mut variables: Vec<&Variable> = module.shared.iter().filter(used).chain(&entry.body.shared).collect();
    variables.sort_by_key(|v| std::cmp::Reverse(v.align));
    let (mut end, mut out, mut dynamic_align) = (0u64, Vec::new(), 16);
    for v in variables.iter().filter(|v| v.size > 0) {
        let offset = place_after(&mut end, v.align.into(), v.size);
        if end > 1 << 20 {
            return Err(Error::Launch {
                kernel: entry.name.clone(),
                what: format!("{end} bytes of static shared memory; no device has that much"),
            });
        }
        out.push(SharedVariable { name: v.name.clone(), offset: offset as u32, size: v.size as u32 });
    }
    for v in variables.iter().filter(|v| v.size == 0) {
        dynamic_align = dynamic_align.max(v.align);
    }
    let dynamic = (end as u32).next_multiple_of(dynamic_align.max(1));
    for v in variables.iter().filter(|v| v.size == 0) {
        out.push(SharedVariable { name: v.name.clone(), offset: dynamic, size: 0 });
    }
    let bytes = if variables.iter().any(|v| v.size == 0) { dynamic } else { end as u32 };
    Ok((out, bytes))
}

fn lay_out_module(module: &Module) -> Vec<ModuleVariable> {
    let mut end = crate::memory::MODULE_BASE;
    let globals = module.global.iter().map(|v| (v, false));
    globals
        .chain(module.constant.iter().map(|v| (v, true)))
        .filter(|(v, _)| v.size > 0)
        .map(|(v, read_only)| {
            // A gap between variables, so that an overrun is found.
            let address = place_after(&mut end, u64::from(v.align).max(256), v.size + 256);
            ModuleVariable { name: v.name.clone(), address, size: v.size, init: v.init.clone(), read_only }
        })
        .collect()
}
