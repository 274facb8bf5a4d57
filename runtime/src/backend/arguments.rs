//! Checks a case against a kernel's parameters and lays out what the kernel is passed.

use lathe_codegen::contract::{Arg, Case, ScalarValue, Tensor};
use lathe_codegen::dtype::Dtype;
use lathe_codegen::ir::{Kernel, Param, ParamKind, Swizzle, TensorBox};
use lathe_codegen::target::Target;
use lathe_emulator::{TensorMap, TensorSwizzle};

/// A launch that does not fit its kernel.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum ArgumentError {
    #[error("kernel `{kernel}` takes {expected} arguments ({names}), and the launch gives {given}")]
    Count { kernel: String, expected: usize, names: String, given: usize },
    #[error("argument `{name}` is {expected}, and the launch gives {given}")]
    Kind { name: String, expected: String, given: String },
    #[error("argument `{name}` points to {expected}, and buffer `{buffer}` holds {given}")]
    Dtype { name: String, expected: Dtype, buffer: String, given: Dtype },
    #[error("argument `{name}` refers to buffer {index}, and the launch has {count}")]
    MissingBuffer { name: String, index: usize, count: usize },
    #[error("argument `{name}` takes {expected} run-time strides, and the launch gives {given}")]
    Strides { name: String, expected: usize, given: usize },
    #[error("argument `{name}` starts {offset} bytes into buffer `{buffer}`, which has {len}")]
    Offset { name: String, offset: u64, buffer: String, len: u64 },
    #[error(
        "argument `{name}` starts {offset} bytes into its buffer, which is no multiple of the {size} bytes of {dtype}"
    )]
    Alignment { name: String, offset: u64, size: usize, dtype: Dtype },
    #[error("argument `{name}` is a tensor of {expected} dimensions, and the launch gives {given}")]
    Dimensions { name: String, expected: u8, given: usize },
    #[error("argument `{name}` has boxes of {expected}, and the launch describes boxes of {given}")]
    Box { name: String, expected: TensorBox, given: TensorBox },
    #[error("argument `{name}`: {reason}")]
    Tensor { name: String, reason: lathe_emulator::Error },
    #[error("buffer `{buffer}`: segment {segment} at {offset} with {len} bytes {problem}")]
    Segment { buffer: String, segment: usize, offset: u64, len: usize, problem: &'static str },
    #[error("grid.{axis} is {given}, and the most is {limit}")]
    Grid { axis: char, given: u32, limit: u32 },
    #[error("kernel `{kernel}` has {threads} threads a CTA, and the most is 1024")]
    Threads { kernel: String, threads: u32 },
    #[error("kernel `{kernel}` needs {bytes} bytes of shared memory a CTA, and {target} has {limit}")]
    SharedMemory { kernel: String, bytes: u32, target: Target, limit: u32 },
}

/// The most CTAs along x, y and z.
const GRID_LIMITS: [u32; 3] = [i32::MAX as u32, 65_535, 65_535];

/// Checks everything about a launch that needs no memory to be known.
pub(crate) fn check(kernel: &Kernel, shared_bytes: u32, target: Target, case: &Case) -> Result<(), ArgumentError> {
    for (axis, (given, limit)) in ['x', 'y', 'z'].into_iter().zip(case.grid.into_iter().zip(GRID_LIMITS)) {
        if given > limit {
            return Err(ArgumentError::Grid { axis, given, limit });
        }
    }
    let threads = kernel.threads();
    if threads > 1024 {
        return Err(ArgumentError::Threads { kernel: kernel.name.clone(), threads });
    }
    let limit = target.max_shared_per_cta();
    if shared_bytes > limit {
        return Err(ArgumentError::SharedMemory { kernel: kernel.name.clone(), bytes: shared_bytes, target, limit });
    }
    if kernel.params.len() != case.args.len() {
        let names: Vec<_> = kernel.params.iter().map(|param| param.name.as_str()).collect();
        return Err(ArgumentError::Count {
            kernel: kernel.name.clone(),
            expected: kernel.params.len(),
            names: names.join(", "),
            given: case.args.len(),
        });
    }
    check_segments(case)?;
    kernel.params.iter().zip(&case.args).try_for_each(|(param, arg)| check_argument(param, arg, case))
}

fn check_segments(case: &Case) -> Result<(), ArgumentError> {
    for buffer in &case.buffers {
        let mut end = 0;
        for (index, segment) in buffer.segments.iter().enumerate() {
            let fail = |problem| {
                let (offset, len) = (segment.offset, segment.bytes.len());
                Err(ArgumentError::Segment { buffer: buffer.name.clone(), segment: index, offset, len, problem })
            };
            if segment.offset < end {
                return fail("overlaps the one before it");
            }
            match segment.offset.checked_add(segment.bytes.len() as u64) {
                Some(past) if past <= buffer.len => end = past,
                _ => return fail("reaches past the end of the buffer"),
            }
        }
    }
    Ok(())
}

fn check_argument(param: &Param, arg: &Arg, case: &Case) -> Result<(), ArgumentError> {
    let name = param.name.clone();
    match (param.kind, arg) {
        (ParamKind::Scalar(dtype), Arg::Scalar(value)) if value.dtype() == dtype => Ok(()),
        (ParamKind::Scalar(dtype), Arg::Scalar(value)) => {
            Err(ArgumentError::Kind { name, expected: dtype.to_string(), given: value.dtype().to_string() })
        }
        (ParamKind::Scalar(dtype), _) => {
            Err(ArgumentError::Kind { name, expected: dtype.to_string(), given: described(arg) })
        }
        (ParamKind::Pointer { dtype, .. }, Arg::Scalar(_) | Arg::Tensor(_)) => {
            Err(ArgumentError::Kind { name, expected: format!("a pointer to {dtype}"), given: described(arg) })
        }
        (ParamKind::Tensor { dtype, .. }, Arg::Scalar(_) | Arg::Pointer { .. }) => {
            Err(ArgumentError::Kind { name, expected: format!("a tensor map of {dtype}"), given: described(arg) })
        }
        (ParamKind::Tensor { dtype, rank, tensor_box, .. }, Arg::Tensor(tensor)) => {
            check_memory(&name, dtype, tensor.buffer, tensor.offset, case)?;
            if tensor.dtype != dtype {
                let (expected, given) = (format!("a tensor map of {dtype}"), described(arg));
                return Err(ArgumentError::Kind { name, expected, given });
            }
            if tensor.dims.len() != usize::from(rank) {
                return Err(ArgumentError::Dimensions { name, expected: rank, given: tensor.dims.len() });
            }
            if tensor.tensor_box != tensor_box {
                return Err(ArgumentError::Box { name, expected: tensor_box, given: tensor.tensor_box });
            }
            // Buffers begin at multiples of 256.
            tensor_map(tensor, 0).check().map_err(|reason| ArgumentError::Tensor { name, reason })
        }
        (ParamKind::Pointer { dtype, strides: expected, .. }, &Arg::Pointer { buffer, offset, ref strides }) => {
            check_memory(&name, dtype, buffer, offset, case)?;
            if strides.len() != expected {
                return Err(ArgumentError::Strides { name, expected, given: strides.len() });
            }
            Ok(())
        }
    }
}

/// Whether an argument through which the kernel may write points into the buffer with this index.
pub(crate) fn may_write(kernel: &Kernel, case: &Case, index: usize) -> bool {
    kernel.params.iter().zip(&case.args).any(|(param, arg)| match (param.kind, arg) {
        (ParamKind::Pointer { access, .. }, Arg::Pointer { buffer, .. }) => *buffer == index && access.writes(),
        (ParamKind::Tensor { access, .. }, Arg::Tensor(tensor)) => tensor.buffer == index && access.writes(),
        _ => false,
    })
}

/// What an argument is, for messages.
fn described(arg: &Arg) -> String {
    match arg {
        Arg::Pointer { .. } => "a pointer".to_owned(),
        Arg::Scalar(value) => format!("a scalar of {}", value.dtype()),
        Arg::Tensor(tensor) => format!("a tensor map of {}", tensor.dtype),
    }
}

/// Checks that an argument points to elements of `dtype` in a buffer.
fn check_memory(name: &str, dtype: Dtype, buffer: usize, offset: u64, case: &Case) -> Result<(), ArgumentError> {
    let name = name.to_owned();
    let Some(memory) = case.buffers.get(buffer) else {
        return Err(ArgumentError::MissingBuffer { name, index: buffer, count: case.buffers.len() });
    };
    // Records hold parts of other types: a key's bytes and its scale share a page of bytes.
    if memory.dtype != dtype && memory.dtype.size() != 1 {
        let (buffer, given) = (memory.name.clone(), memory.dtype);
        return Err(ArgumentError::Dtype { name, expected: dtype, buffer, given });
    }
    if offset > memory.len {
        return Err(ArgumentError::Offset { name, offset, buffer: memory.name.clone(), len: memory.len });
    }
    if !offset.is_multiple_of(dtype.size() as u64) {
        return Err(ArgumentError::Alignment { name, offset, size: dtype.size(), dtype });
    }
    Ok(())
}

/// The tensor map of a tensor whose buffer begins at `base`.
fn tensor_map(tensor: &Tensor, base: u64) -> TensorMap {
    let size = tensor.dtype.size();
    let [rows, cols] = tensor.tensor_box.tile;
    let mut box_dims = vec![1; tensor.dims.len()];
    for (dim, elements) in box_dims.iter_mut().zip([cols, rows]) {
        *dim = elements;
    }
    TensorMap {
        address: base + tensor.offset,
        element_bytes: size as u32,
        dims: tensor.dims.iter().rev().copied().collect(),
        strides: tensor.strides.iter().rev().map(|stride| stride * size as u64).collect(),
        box_dims,
        swizzle: match tensor.tensor_box.swizzle {
            Swizzle::None => TensorSwizzle::None,
            Swizzle::Xor16 => TensorSwizzle::B128,
        },
    }
}

/// The bytes of each CUDA parameter of checked arguments: a pointer, then its strides; a scalar; or a tensor map, as
/// `encode` makes it.
pub(crate) fn marshal<E>(
    args: &[Arg],
    base_addresses: &[u64],
    encode: impl Fn(&TensorMap) -> Result<[u8; 128], E>,
) -> Result<Vec<Vec<u8>>, E> {
    let mut parameters = Vec::new();
    for arg in args {
        match arg {
            Arg::Pointer { buffer, offset, strides } => {
                parameters.push((base_addresses[*buffer] + offset).to_le_bytes().to_vec());
                parameters.extend(strides.iter().map(|stride| stride.to_le_bytes().to_vec()));
            }
            Arg::Scalar(value) => parameters.push(match value {
                ScalarValue::Bool(v) => vec![u8::from(*v)],
                ScalarValue::I32(v) => v.to_le_bytes().to_vec(),
                ScalarValue::U32(v) => v.to_le_bytes().to_vec(),
                ScalarValue::I64(v) => v.to_le_bytes().to_vec(),
                ScalarValue::U64(v) => v.to_le_bytes().to_vec(),
                ScalarValue::F32(v) => v.to_le_bytes().to_vec(),
            }),
            Arg::Tensor(tensor) => {
                parameters.push(encode(&tensor_map(tensor, base_addresses[tensor.buffer]))?.to_vec());
            }
        }
    }
    Ok(parameters)
}

#[cfg(test)]
mod tests {
    use lathe_codegen::contract::{Buffer, Segment};
    use lathe_codegen::ir::{Access, Block, Phase, Swizzle};
    use lathe_codegen::loc::Loc;

    use super::*;

    fn kernel() -> Kernel {
        let loc = Loc { file: "k.rs", line: 1, column: 1 };
        let pointer =
            ParamKind::Pointer { dtype: Dtype::F32, strides: 1, access: Access::Read, phase: Phase::AfterWait };
        Kernel {
            name: "scale".into(),
            doc: String::new(),
            warps: 4,
            ctas_per_sm: 1,
            params: vec![
                Param { name: "rows".into(), kind: pointer, loc },
                Param { name: "factor".into(), kind: ParamKind::Scalar(Dtype::F32), loc },
            ],
            tiles: Vec::new(),
            values: Vec::new(),
            body: Block::default(),
            loc,
        }
    }

    fn case() -> Case {
        Case {
            name: "one".into(),
            grid: [2, 1, 1],
            buffers: vec![Buffer::from_bytes("memory", Dtype::F32, vec![0; 64])],
            args: vec![Arg::Pointer { buffer: 0, offset: 16, strides: vec![-3] }, Arg::Scalar(ScalarValue::F32(0.5))],
            verify: Box::new(|_| Default::default()),
        }
    }

    fn refused(change: impl FnOnce(&mut Case)) -> String {
        let mut case = case();
        change(&mut case);
        check(&kernel(), 0, Target::Sm120a, &case).unwrap_err().to_string()
    }

    #[test]
    fn pointers_are_followed_by_their_strides() {
        check(&kernel(), 0, Target::Sm120a, &case()).unwrap();
        let expected =
            [0x1010u64.to_le_bytes().to_vec(), (-3i64).to_le_bytes().to_vec(), 0.5f32.to_le_bytes().to_vec()];
        assert_eq!(marshal(&case().args, &[0x1000], TensorMap::encode).unwrap(), expected);
    }

    #[test]
    fn every_misfit_names_the_argument_the_value_and_what_is_accepted() {
        let pointer = |buffer, offset, strides| Arg::Pointer { buffer, offset, strides };
        for (text, expected) in [
            (
                refused(|c| c.args.truncate(1)),
                "kernel `scale` takes 2 arguments (rows, factor), and the launch gives 1",
            ),
            (
                refused(|c| c.args[1] = Arg::Scalar(ScalarValue::I32(1))),
                "argument `factor` is f32, and the launch gives i32",
            ),
            (
                refused(|c| c.args[1] = pointer(0, 0, vec![])),
                "argument `factor` is f32, and the launch gives a pointer",
            ),
            (
                refused(|c| c.args[0] = Arg::Scalar(ScalarValue::F32(1.0))),
                "argument `rows` is a pointer to f32, and the launch gives a scalar of f32",
            ),
            (
                refused(|c| c.args[0] = pointer(7, 0, vec![1])),
                "argument `rows` refers to buffer 7, and the launch has 1",
            ),
            (
                refused(|c| c.buffers[0].dtype = Dtype::Bf16),
                "argument `rows` points to f32, and buffer `memory` holds bf16",
            ),
            (
                refused(|c| c.args[0] = pointer(0, 0, vec![])),
                "argument `rows` takes 1 run-time strides, and the launch gives 0",
            ),
            (
                refused(|c| c.args[0] = pointer(0, 65, vec![1])),
                "argument `rows` starts 65 bytes into buffer `memory`, which has 64",
            ),
            (
                refused(|c| c.args[0] = pointer(0, 6, vec![1])),
                "argument `rows` starts 6 bytes into its buffer, which is no multiple of the 4 bytes of f32",
            ),
            (refused(|c| c.grid[1] = 70_000), "grid.y is 70000, and the most is 65535"),
            (
                refused(|c| c.buffers[0].segments.push(Segment { offset: 8, bytes: vec![0; 4], defined: true })),
                "buffer `memory`: segment 1 at 8 with 4 bytes overlaps the one before it",
            ),
            (
                refused(|c| c.buffers[0].len = 60),
                "buffer `memory`: segment 0 at 0 with 64 bytes reaches past the end of the buffer",
            ),
        ] {
            assert_eq!(text, expected);
        }
    }

    #[test]
    fn tensors_are_described_innermost_first_to_the_device() {
        let loc = Loc { file: "k.rs", line: 1, column: 1 };
        let tensor_box = TensorBox { tile: [4, 64], swizzle: Swizzle::Xor16 };
        let (access, phase) = (Access::Read, Phase::AfterWait);
        let kind = ParamKind::Tensor { dtype: Dtype::Bf16, rank: 3, tensor_box, access, phase };
        let kernel = Kernel { params: vec![Param { name: "pages".into(), kind, loc }], ..kernel() };
        let tensor = Tensor {
            buffer: 0,
            offset: 32,
            dtype: Dtype::Bf16,
            dims: vec![10, 64, 128],
            strides: vec![538_560, 128],
            tensor_box,
        };
        let given = |change: fn(&mut Tensor)| {
            let mut tensor = tensor.clone();
            change(&mut tensor);
            let memory = Buffer { len: 1 << 30, segments: Vec::new(), ..Buffer::poisoned("memory", Dtype::U8, 0) };
            Case { buffers: vec![memory], args: vec![Arg::Tensor(tensor)], ..case() }
        };
        let check = |case: Case| check(&kernel, 0, Target::Sm120a, &case);
        check(given(|_| {})).unwrap();
        let bytes = marshal(&given(|_| {}).args, &[0x1_0000], |map| {
            assert_eq!((map.address, map.element_bytes, map.swizzle), (0x1_0020, 2, TensorSwizzle::B128));
            assert_eq!((&map.dims[..], &map.strides[..]), (&[128, 64, 10][..], &[256, 1_077_120][..]));
            assert_eq!(map.box_dims, [64, 4, 1]);
            map.encode()
        });
        assert_eq!(bytes.unwrap()[0].len(), 128);

        let refused = |change: fn(&mut Tensor)| check(given(change)).unwrap_err().to_string();
        assert_eq!(
            refused(|t| t.dims = vec![128]),
            "argument `pages` is a tensor of 3 dimensions, and the launch gives 1"
        );
        assert_eq!(
            refused(|t| t.tensor_box.tile = [8, 64]),
            "argument `pages` has boxes of 4 x 64, xor16, and the launch describes boxes of 8 x 64, xor16"
        );
        assert_eq!(
            refused(|t| t.strides[1] = 100),
            "argument `pages`: tensor map: `strides` is 200, and multiples of 16 bytes below 2^40 is accepted"
        );
        assert_eq!(
            refused(|t| t.dtype = Dtype::E4m3),
            "argument `pages` is a tensor map of bf16, and the launch gives a tensor map of e4m3"
        );
    }

    #[test]
    fn limits_of_the_target_are_limits_of_the_launch() {
        let error = check(&kernel(), 101_377, Target::Sm120a, &case()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "kernel `scale` needs 101377 bytes of shared memory a CTA, and sm_120a has 101376"
        );
        check(&kernel(), 101_377, Target::Sm90a, &case()).unwrap();
        let many = Kernel { warps: 33, ..kernel() };
        let error = check(&many, 0, Target::Sm120a, &case()).unwrap_err();
        assert_eq!(error.to_string(), "kernel `scale` has 1056 threads a CTA, and the most is 1024");
    }
}
