//! A kernel with its arguments: launched as often as one likes, each time on fresh memory.

use std::fs;
use std::io;
use std::ops::Range;
use std::path::Path;

use lathe_emulator::{
    Address, Declaration, Effect, GlobalMemory, Init, Kernel, Launch, Options, Param, Report, Rights, TensorMap,
};

use super::contents::{Contents, contents};
use super::{Argument, Buffer, Element, LaunchFile, LaunchFileError, Problem, Tensor, Value, npy};

/// Bytes that all buffers of a launch may take.
const MOST_BYTES: u64 = 1 << 30;

/// A kernel and what it is launched with.
pub struct Prepared {
    kernel: Kernel,
    file: LaunchFile,
    block: [u32; 3],
    contents: Vec<Contents>,
}

/// What a launch left.
#[derive(Debug)]
pub struct Outcome {
    /// Findings and counts.
    pub report: Report,
    /// The buffers that the kernel may write.
    pub buffers: Vec<BufferAfter>,
}

/// A buffer after the launch.
#[derive(Clone, Debug, PartialEq)]
pub struct BufferAfter {
    /// Its name.
    pub name: String,
    /// Type of its elements.
    pub element: Element,
    /// Extents, outermost first.
    pub shape: Vec<u64>,
    /// Its bytes; undefined ones are `0xCB` from the emulator, and anything from a device.
    pub bytes: Vec<u8>,
    /// Elements that differ from before, or are defined only now.
    pub changed: usize,
    /// Whether each element was defined by somebody; nothing from a device, which cannot tell.
    pub defined: Option<Vec<bool>>,
}

impl Prepared {
    pub(super) fn new(file: LaunchFile, kernel: Kernel, folder: &Path) -> Result<Self, LaunchFileError> {
        let Some(block) = file.block.or(kernel.required_block()) else {
            let why = "threads of a CTA, which this PTX does not fix";
            return Err(Problem::Missing { place: "the launch file".into(), key: "block", why }.into());
        };
        if let Some(silent) = file.buffers.iter().find(|buffer| buffer.access.is_none())
            && file.buffers.iter().any(|buffer| buffer.access.is_some())
        {
            return Err(Problem::Undeclared { buffer: silent.name.clone() }.at(silent.span.clone()));
        }
        let mut room = MOST_BYTES;
        let mut filled = Vec::new();
        for buffer in &file.buffers {
            let contents = contents(buffer, folder, room).map_err(|problem| problem.at(buffer.span.clone()))?;
            room -= contents.shape.iter().product::<u64>() * buffer.element.size() as u64;
            filled.push(contents);
        }
        let prepared = Prepared { kernel, file, block, contents: filled };
        // Any addresses will do to see whether the arguments fit.
        prepared.arguments(&vec![0; prepared.contents.len()], &emulated)?;
        Ok(prepared)
    }

    /// The kernel.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// CTAs along x, y, z.
    pub fn grid(&self) -> [u32; 3] {
        self.file.grid
    }

    /// Threads of a CTA along x, y, z.
    pub fn block(&self) -> [u32; 3] {
        self.block
    }

    /// Launches the kernel once on fresh memory.
    ///
    /// # Errors
    /// What [`Kernel::launch`] refuses: a shape past the limits, or a CTA that does not end.
    pub fn run(&self, options: &Options) -> lathe_emulator::Result<Outcome> {
        let mut memory = GlobalMemory::default();
        let mut bases = Vec::new();
        let mut declarations = Vec::new();
        for (buffer, contents) in self.file.buffers.iter().zip(&self.contents) {
            let len = self.len(buffer, contents);
            let init = contents.bytes.as_ref().map_or(Init::Undefined, |bytes| Init::Bytes(bytes));
            let base = memory.allocate(&buffer.name, len, init)?;
            if let Some(effect) = buffer.access {
                if !effect.writes() {
                    memory.protect(base, Rights::ReadOnly);
                }
                declarations.push(Declaration {
                    name: buffer.name.clone(),
                    address: base,
                    len,
                    effect,
                    before_wait: buffer.before_wait,
                    racy: 0..0,
                });
            }
            bases.push(base);
        }
        let launch = Launch {
            grid: self.file.grid,
            block: self.block,
            dynamic_shared: self.file.dynamic_shared,
            params: self.arguments(&bases, &emulated).expect("checked when prepared"),
            declarations,
        };
        let report = self.kernel.launch(&launch, &mut memory, options)?;
        let buffers = self.writable().map(|index| self.read_back(&memory, index, bases[index]));
        Ok(Outcome { report, buffers: buffers.collect::<lathe_emulator::Result<_>>()? })
    }

    /// Whether a buffer is a result: declared as one, or else changed.
    pub fn is_result(&self, after: &BufferAfter) -> bool {
        let declared = |buffer: &Buffer| buffer.name == after.name && buffer.access.is_some();
        after.changed > 0 || self.file.buffers.iter().any(declared)
    }

    /// The buffers that the kernel may write, by index.
    pub(super) fn writable(&self) -> impl Iterator<Item = usize> {
        let buffers = self.file.buffers.iter().enumerate();
        buffers.filter(|(_, buffer)| buffer.access != Some(Effect::Read)).map(|(index, _)| index)
    }

    pub(super) fn file(&self) -> &LaunchFile {
        &self.file
    }

    pub(super) fn contents(&self) -> &[Contents] {
        &self.contents
    }

    pub(super) fn len(&self, buffer: &Buffer, contents: &Contents) -> u64 {
        contents.shape.iter().product::<u64>() * buffer.element.size() as u64
    }

    fn read_back(&self, memory: &GlobalMemory, index: usize, base: u64) -> lathe_emulator::Result<BufferAfter> {
        let (buffer, contents) = (&self.file.buffers[index], &self.contents[index]);
        let size = buffer.element.size() as u64;
        let mut bytes = vec![0; self.len(buffer, contents) as usize];
        memory.read(base, &mut bytes)?;
        let elements = (base..base + bytes.len() as u64).step_by(size as usize);
        let defined: Vec<bool> =
            elements.map(|at| memory.is_defined(at, size)).collect::<lathe_emulator::Result<_>>()?;
        let changed = match &contents.bytes {
            Some(before) => buffer.element.differ(before, &bytes),
            None => defined.iter().filter(|defined| **defined).count(),
        };
        let (name, element, shape) = (buffer.name.clone(), buffer.element, contents.shape.clone());
        Ok(BufferAfter { name, element, shape, bytes, changed, defined: Some(defined) })
    }

    /// The bytes of each parameter, with buffers at these addresses and tensor maps as `encode` makes them.
    pub(super) fn arguments<E: From<LaunchFileError>>(
        &self,
        bases: &[u64],
        encode: &impl Fn(&TensorMap) -> Result<[u8; 128], E>,
    ) -> Result<Vec<Vec<u8>>, E> {
        let params = self.kernel.params();
        if params.len() != self.file.args.len() {
            let names: Vec<String> = params.iter().map(|param| format!("{} {}", param.ty, param.name)).collect();
            let problem = Problem::ArgumentCount {
                kernel: self.kernel.name().into(),
                expected: params.len(),
                params: names.join(", "),
                given: self.file.args.len(),
            };
            return Err(LaunchFileError { problem: Box::new(problem), span: self.file.args_span.clone() }.into());
        }
        let each = params.iter().zip(&self.file.args).enumerate();
        let bytes = each.map(|(index, (param, argument))| {
            self.check_offsets(index, param, argument)?;
            let mut bytes = Vec::new();
            self.encode(argument, bases, encode, &mut bytes)?;
            Ok(self.sized(index, param, argument, bytes)?)
        });
        bytes.collect()
    }

    /// An argument's bytes at the size of its parameter.
    fn sized(
        &self,
        index: usize,
        param: &Param,
        argument: &Argument,
        mut bytes: Vec<u8>,
    ) -> Result<Vec<u8>, LaunchFileError> {
        if matches!(argument.value, Value::Struct(_)) {
            // C pads the end of a struct to its alignment.
            bytes.resize(bytes.len().next_multiple_of(alignment(argument)), 0);
        }
        if bytes.len() == param.size && fits(&argument.value, &param.ty) {
            return Ok(bytes);
        }
        let element = bits(&param.ty).max(1) / 8;
        let problem = Problem::ArgumentType {
            kernel: self.kernel.name().into(),
            index,
            name: param.name.clone(),
            expected: if element == param.size { param.ty.clone() } else { format!("{} bytes", param.size) },
            given: match &argument.value {
                Value::Buffer { buffer, .. } => format!("the address of buffer `{}`", self.file.buffers[*buffer].name),
                Value::Scalar { element, number } => format!("{element} {number}"),
                Value::Struct(_) => format!("a struct of {} bytes", bytes.len()),
                Value::Tensor(tensor) => format!("a tensor map of `{}`", self.file.buffers[tensor.buffer].name),
            },
        };
        Err(problem.at(argument.span.clone()))
    }

    fn check_offsets(&self, index: usize, param: &Param, argument: &Argument) -> Result<(), LaunchFileError> {
        match &argument.value {
            Value::Scalar { .. } => Ok(()),
            Value::Struct(fields) => fields.iter().try_for_each(|field| self.check_offsets(index, param, field)),
            Value::Tensor(tensor) => self.tensor_map(tensor, 0).check().map_err(|reason| {
                Problem::Tensor { index, name: param.name.clone(), reason }.at(argument.span.clone())
            }),
            &Value::Buffer { buffer, offset } => {
                let len = self.len(&self.file.buffers[buffer], &self.contents[buffer]);
                if offset < len {
                    return Ok(());
                }
                let (name, buffer) = (param.name.clone(), self.file.buffers[buffer].name.clone());
                Err(Problem::Offset { index, name, offset, buffer, len }.at(argument.span.clone()))
            }
        }
    }

    /// The tensor map of a tensor whose buffer begins at `base`; maps count dimensions from the innermost.
    fn tensor_map(&self, tensor: &Tensor, base: u64) -> TensorMap {
        let size = self.file.buffers[tensor.buffer].element.size() as u64;
        let dims = tensor.dims.as_ref().unwrap_or(&self.contents[tensor.buffer].shape);
        let tight = || {
            dims.iter().rev().scan(1, |stride, dim| {
                *stride *= dim;
                Some(*stride * size)
            })
        };
        let strides = match &tensor.strides {
            Some(strides) => strides.iter().rev().map(|stride| stride * size).collect(),
            None => tight().take(dims.len().saturating_sub(1)).collect(),
        };
        TensorMap {
            address: base + tensor.offset,
            element_bytes: size as u32,
            dims: dims.iter().rev().copied().collect(),
            strides,
            box_dims: tensor.box_dims.iter().rev().copied().collect(),
            swizzle: tensor.swizzle,
        }
    }

    /// Appends an argument as C lays it out.
    fn encode<E>(
        &self,
        argument: &Argument,
        bases: &[u64],
        encode: &impl Fn(&TensorMap) -> Result<[u8; 128], E>,
        out: &mut Vec<u8>,
    ) -> Result<(), E> {
        match &argument.value {
            Value::Buffer { buffer, offset } => out.extend_from_slice(&(bases[*buffer] + offset).to_le_bytes()),
            Value::Scalar { element, number } => element.encode(*number, out).expect("checked when read"),
            Value::Tensor(tensor) => out.extend(encode(&self.tensor_map(tensor, bases[tensor.buffer]))?),
            Value::Struct(fields) => {
                for field in fields {
                    out.resize(out.len().next_multiple_of(alignment(field)), 0);
                    self.encode(field, bases, encode, out)?;
                    if matches!(field.value, Value::Struct(_)) {
                        out.resize(out.len().next_multiple_of(alignment(field)), 0);
                    }
                }
            }
        }
        Ok(())
    }

    /// A byte of memory in the launch file's terms, such as `` `q`[2, 17] ``.
    pub fn element(&self, address: &Address) -> Option<String> {
        match address {
            Address::Shared { variable: Some((name, inside)), .. } => Some(format!("`{name}` + {inside}")),
            Address::Shared { offset, variable: None } => Some(format!("shared memory + {offset}")),
            Address::Global { allocation: Some(name), offset, .. } => {
                let Some(index) = self.file.buffers.iter().position(|buffer| buffer.name == *name) else {
                    return Some(format!("`{name}` + {offset}"));
                };
                let (buffer, shape) = (&self.file.buffers[index], &self.contents[index].shape);
                let len = self.len(buffer, &self.contents[index]) as i64;
                Some(match *offset {
                    offset if offset < 0 => format!("{} bytes before `{name}`", offset.unsigned_abs()),
                    offset if offset >= len => format!("byte {offset} of `{name}`, which has {len},"),
                    offset => format!("`{name}`{:?}", indices(offset as u64 / buffer.element.size() as u64, shape)),
                })
            }
            Address::Global { address, .. } | Address::Raw(address) => Some(format!("address {address:#x}")),
        }
    }
}

/// A tensor map as the emulator reads it, once its description was checked.
fn emulated(map: &TensorMap) -> Result<[u8; 128], LaunchFileError> {
    Ok(map.encode().expect("checked with the offsets"))
}

impl From<Problem> for LaunchFileError {
    fn from(problem: Problem) -> Self {
        LaunchFileError { problem: Box::new(problem), span: None }
    }
}

/// The index along each axis of an element in C order.
fn indices(mut element: u64, shape: &[u64]) -> Vec<u64> {
    let mut out: Vec<u64> = shape
        .iter()
        .rev()
        .map(|extent| {
            let index = element % extent;
            element /= extent;
            index
        })
        .collect();
    out.reverse();
    out
}

fn alignment(argument: &Argument) -> usize {
    match &argument.value {
        Value::Buffer { .. } => 8,
        Value::Scalar { element, .. } => element.size(),
        Value::Tensor(_) => 64,
        Value::Struct(fields) => fields.iter().map(alignment).max().unwrap_or(1),
    }
}

/// Bits of a PTX type such as `.u64`.
fn bits(ty: &str) -> usize {
    ty.trim_start_matches(|c: char| !c.is_ascii_digit()).parse().unwrap_or(0)
}

/// Whether a value of the right size suits a parameter of this PTX type: floats and integers do not mix, bits take both.
fn fits(value: &Value, ty: &str) -> bool {
    let float = ty.starts_with(".f") || ty.starts_with(".bf");
    match value {
        Value::Struct(_) => true,
        Value::Tensor(_) => ty.starts_with(".b"),
        Value::Buffer { .. } => !float,
        Value::Scalar { element, .. } => ty.starts_with(".b") && !float || element.is_float() == float,
    }
}

impl BufferAfter {
    /// Writes the buffer to `FOLDER/NAME.npy`, and says where that is.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn save(&self, folder: &Path) -> io::Result<std::path::PathBuf> {
        fs::create_dir_all(folder)?;
        let path = folder.join(format!("{}.npy", self.name));
        let mut file = npy::header_bytes(self.element.numpy(), &self.shape);
        file.extend_from_slice(&self.bytes);
        fs::write(&path, file)?;
        Ok(path)
    }

    /// How many elements have bytes that nobody defined, where that is known.
    pub fn undefined(&self) -> Option<usize> {
        Some(self.defined.as_ref()?.iter().filter(|defined| !**defined).count())
    }

    /// Least and largest number of a floating buffer, and how many are NaN; none if it has no number.
    pub fn range(&self) -> Option<(Range<f64>, usize)> {
        let mut range = f64::INFINITY..f64::NEG_INFINITY;
        let mut nans = 0;
        for bytes in self.bytes.chunks_exact(self.element.size()) {
            let value = self.element.decode_float(bytes)?;
            if value.is_nan() {
                nans += 1;
            } else {
                range = range.start.min(value)..range.end.max(value);
            }
        }
        (range.start <= range.end).then_some((range, nans))
    }
}
