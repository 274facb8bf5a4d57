//! Copies that tensor maps describe, which the driver encodes for hardware and the emulator for itself: a kernel that Lathe
//! did not write, as serving engines write theirs, and one of its own leave what the emulator says.

use std::path::Path;

use lathe_codegen::contract::{Arg, Buffer, Case, POISON, Tensor, Verdict};
use lathe_codegen::dtype::Dtype;
use lathe_codegen::ir::{Kernel, TensorBox};
use lathe_codegen::prelude::*;
use lathe_codegen::target::Target;
use lathe_dsl::kernel;
use lathe_emulator::{Module, Options};
use lathe_runtime::backend::{Backend, CudaBackend, EmulatorBackend, Schedule};
use lathe_runtime::launch_file::{Fill, LaunchFile, Number, Prepared};
use lathe_runtime::nvrtc::Compiler;

use super::{Failure, Gpu, Outcome, Test, ensure, note};

pub(super) fn tests() -> Vec<Test> {
    let maps = |name, run| Test { group: "tensor maps", name, run };
    vec![
        maps("an_outside_kernel_of_maps_mbarriers_and_roles_agrees_with_the_emulator", outside_kernel_agrees),
        maps("boxes_copied_by_a_kernel_of_lathe_agree_with_the_emulator", boxes_agree),
    ]
}

/// fp8 logits of two tensor maps, an mbarrier ring, roles that trade registers (`setmaxnreg`) and named barriers.
const OUTSIDE: &str = include_str!("../../runtime/emulator/tests/fixtures/paged_logits.cu");

/// Two rows that six CTAs share; 64 heads, and pages packed into larger records.
const OUTSIDE_LAUNCH: &str = r#"
entry = "paged_logits"
grid = [3, 2]
block = 256
dynamic_shared = 34104
args = [
  { tensor = "queries", box = [64, 128], swizzle = 128 },
  { tensor = "pages", dims = [12, 64, 128], strides = [9472, 128], box = [1, 64, 128], swizzle = 128 },
  "pages", { i64 = 9472 },
  "weights", "lens", "table", { i64 = 5 }, "logits", { i64 = 320 },
]
buffers.queries = { dtype = "e4m3", shape = [128, 128], fill = { normal = [0, 1], seed = 1 }, access = "read" }
buffers.pages = { dtype = "u8", shape = [12, 9472], access = "read" }
buffers.weights = { dtype = "f32", shape = [2, 64], fill = { uniform = [0, 1], seed = 2 }, access = "read" }
buffers.lens = { dtype = "i32", shape = [2], fill = { values = [300, 129] }, access = "read" }
buffers.table = { dtype = "i32", shape = [2, 5], fill = { values = [4, 11, 7, 1, 9, 10, 2, 6, 2147483647, -1] }, access = "read" }
buffers.logits = { dtype = "f32", shape = [2, 320], access = "write_part" }
"#;

/// Sums differ by rounding: tensor cores of Hopper multiply e4m3 as f16 and round sums in their own way.
const ROUNDING: f64 = 1e-5;

/// Bytes of a page's keys, and of its record.
const KEY_BYTES: usize = 64 * 128;
const RECORD: usize = 9472;

/// The outside kernel, compiled for `target`, with its launch and the text that the driver assembles.
///
/// # Errors
/// What the compiler or the emulator says.
pub fn outside_kernel(compiler: &Compiler, target: Target) -> Result<(Prepared, String), Failure> {
    let ptx = compiler.compile(OUTSIDE, target)?.ptx;
    let mut file = LaunchFile::parse(OUTSIDE_LAUNCH)?;
    let pages = file.buffers.iter_mut().find(|buffer| buffer.name == "pages").ok_or("the launch has no pages")?;
    pages.fill = Fill::Values(pages_of_keys().into_iter().map(|byte| Number::Integer(byte.into())).collect());
    let prepared = file.prepare(&Module::parse(&ptx)?.entry("paged_logits")?, Path::new(""))?;
    Ok((prepared, ptx))
}

/// Finite keys of all magnitudes from 2^-3 to 2^1, a scale for each, and NaN in what other layers keep behind them.
fn pages_of_keys() -> Vec<u8> {
    let mut state = 1u32;
    let mut random = move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 16
    };
    let mut pages = vec![0x7f; 12 * RECORD];
    for page in pages.chunks_exact_mut(RECORD) {
        let (keys, rest) = page.split_at_mut(KEY_BYTES);
        keys.fill_with(|| {
            let (sign, exponent, mantissa) = (random() % 2, 4 + random() % 5, random() % 8);
            (sign << 7 | exponent << 3 | mantissa) as u8
        });
        for scale in rest[..256].as_chunks_mut().0 {
            *scale = (1.0 + (random() % 1024) as f32 / 1024.0).to_le_bytes();
        }
    }
    pages
}

fn outside_kernel_agrees(gpu: &Gpu) -> Outcome {
    let (prepared, ptx) = outside_kernel(gpu.compiler, gpu.target)?;
    let emulated = prepared.run(&Options::default())?;
    ensure!(emulated.report.findings.is_empty(), "the emulator finds {:?}", emulated.report.findings);
    let function = prepared.load(gpu.device, &ptx)?;
    let device = prepared.run_on(gpu.device, &function, false)?;
    ensure!(device.stray_writes.is_empty(), "{:?}", device.stray_writes);
    let [logits, on_device] = [&emulated.buffers, &device.buffers].map(|all| &all[0]);
    let written = logits.defined.as_ref().map_or(0, |defined| defined.iter().filter(|d| **d).count());
    ensure!(written == 300 + 129, "{written} logits were written, of 429");
    let difference = logits.difference(on_device);
    let largest = difference.largest.ok_or("a logit is a number on one side only")?;
    ensure!((0.0..ROUNDING).contains(&largest), "logits are {largest:e} apart, relative to the largest");
    Ok(vec![note("logits", written as f64, "logits"), note("apart", largest, "of the largest")])
}

/// Doubles pages of 20 x 32, a warp each: boxes of 8 rows, whose chunks are permuted, come in, are changed where they lie,
/// and go out; the last ones reach past the page.
#[kernel(warps = 2)]
pub fn double_pages(#[read] x: TensorMap<f32, 3>, #[write_part] doubled: TensorMap<f32, 3>) {
    let tile = shared::<f32>([8, 32]).per_warp().swizzle(Xor16);
    let full = mbarriers(1).per_warp();
    if lane::id() == 0 {
        full.init(1);
        fence::mbarrier_init();
    }
    warp::sync();
    pdl::wait();
    for part in 0..3 {
        let corner = [cta::x() * 2 + warp::id(), Scalar::from(part * 8), Scalar::from(0)];
        if lane::id() == 0 {
            full.at(0).arrive_expect_tx(tile.bytes());
            tile.copy_tensor(x, corner, full.at(0));
        }
        full.at(0).wait(part % 2);
        for row in 0..8 {
            let element = tile.at(row, lane::id());
            element.store(element.load() * 2.0);
        }
        fence::async_proxy();
        warp::sync();
        if lane::id() == 0 {
            tile.store_tensor(doubled, corner);
            commit_bulk();
            wait_bulk_all_but(0);
        }
    }
}

/// Pages of the case.
const PAGES: usize = 64;

/// Pages of 20 rows of 32, which go to records so much larger that what lies between them shows any stray byte.
pub fn double_pages_case() -> Case {
    let x: Vec<f32> = (0..PAGES * 20 * 32).map(|i| (i % 31) as f32).collect();
    let mut expected = vec![POISON; PAGES * 24 * 40 * 4];
    for (i, x) in x.iter().enumerate() {
        let (page, row, column) = (i / 640, i / 32 % 20, i % 32);
        expected[4 * ((page * 24 + row) * 40 + column)..][..4].copy_from_slice(&(2.0 * x).to_le_bytes());
    }
    let tensor = |buffer, strides: [u64; 2]| {
        let tensor_box = TensorBox { tile: [8, 32], swizzle: Xor16 };
        let (dims, strides) = (vec![PAGES as u64, 20, 32], strides.to_vec());
        Arg::Tensor(Tensor { buffer, offset: 0, dtype: Dtype::F32, dims, strides, tensor_box })
    };
    Case {
        name: "pages that boxes reach past".into(),
        grid: [PAGES as u32 / 2, 1, 1],
        buffers: vec![
            Buffer::from_bytes("x", Dtype::F32, x.iter().flat_map(|x| x.to_le_bytes()).collect()),
            Buffer::poisoned("doubled", Dtype::F32, expected.len()),
        ],
        args: vec![tensor(0, [640, 32]), tensor(1, [24 * 40, 40])],
        verify: Box::new(move |after| {
            let wrong = after[1]
                .slice(0, expected.len())
                .map(|bytes| bytes.iter().zip(&expected).filter(|(found, expected)| found != expected).count());
            let failures = (wrong != Some(0)).then(|| format!("{} bytes are wrong", wrong.unwrap_or(expected.len())));
            Verdict { failures: failures.into_iter().collect(), worst_row_diff: 0.0 }
        }),
    }
}

fn boxes_agree(gpu: &Gpu) -> Outcome {
    let kernel: Kernel = double_pages()?;
    let (program, case) = (gpu.program(&kernel)?, double_pages_case());
    let (cuda, emulator) = (CudaBackend::open(0)?, EmulatorBackend::default());
    for backend in [&cuda as &dyn Backend, &emulator] {
        let run = backend.load(&program)?.run(&case, Schedule::default())?;
        let mut wrong: Vec<String> = run.findings.iter().map(ToString::to_string).collect();
        wrong.extend((case.verify)(&run.buffers).failures);
        ensure!(wrong.is_empty(), "{}: {}", backend.name(), wrong.join("; "));
    }
    Ok(vec![note("boxes in and out", 3.0 * PAGES as f64, "boxes")])
}
