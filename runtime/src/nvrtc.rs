//! CUDA C++ to cubin and PTX, through cudarc's bindings of NVRTC.

use std::ffi::{CString, c_char, c_int};
use std::sync::Mutex;
use std::time::Instant;

use cudarc::nvrtc::{result, sys};
use lathe_codegen::target::Target;

use crate::cache::{self, Key};
use crate::ptxas::{Resources, resources};
use crate::toolchain::{MIN_NVRTC, NvrtcLibrary, ProvisionError, Toolchain, Version};

/// What NVRTC makes of one source for one target.
#[derive(Clone, Debug, PartialEq)]
pub struct Compiled {
    /// The target it was made for.
    pub target: Target,
    /// The machine code, an ELF file for this target alone; empty where only the PTX was made.
    pub cubin: Vec<u8>,
    /// The PTX that the machine code is assembled from.
    pub ptx: String,
    /// Warnings of the front end and the assembler's report.
    pub log: String,
    /// What a kernel takes of an SM.
    pub resources: Resources,
    /// How long the compiler took, in milliseconds, whether now or when the result was cached.
    pub milliseconds: f64,
    /// Whether it came from the disk cache.
    pub cached: bool,
}

/// Why a source did not compile.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    /// There is no compiler.
    #[error(transparent)]
    Provision(#[from] ProvisionError),
    /// Another library answers to NVRTC's name.
    #[error(
        "the loader's `libnvrtc.so` is version {}.{}, but Lathe needs {}.{} or newer and found {}; \
         take the old toolkit off LD_LIBRARY_PATH", found.0, found.1, MIN_NVRTC.0, MIN_NVRTC.1, chosen.path.display()
    )]
    Shadowed {
        /// The version that the loader gives.
        found: Version,
        /// The library that was meant.
        chosen: NvrtcLibrary,
    },
    /// The compiler rejected the source; `log` is its own text.
    #[error("NVRTC rejects the source for {target}:\n{log}")]
    Rejected {
        /// The target compiled for.
        target: Target,
        /// Messages as the compiler wrote them; each starts with `entry.cu(line)` or names a line of the PTX.
        log: String,
        /// Line of the CUDA source for each PTX line that the assembler complains about.
        ptx_lines: Vec<(u32, u32)>,
    },
    /// The source holds a NUL byte.
    #[error("the CUDA source holds a NUL byte at offset {0}")]
    Nul(usize),
    /// An NVRTC call failed in a way that has no log.
    #[error("{call} failed: {error}")]
    Nvrtc {
        /// The function.
        call: &'static str,
        /// What it returned.
        error: result::NvrtcError,
    },
}

/// A loaded NVRTC with its disk cache.
pub struct Compiler<'a> {
    toolchain: &'a Toolchain,
    library: NvrtcLibrary,
}

/// The file name that messages of the compiler carry.
const FILE_NAME: &str = "entry.cu";

impl<'a> Compiler<'a> {
    /// Finds NVRTC, or installs it, and loads it.
    pub fn load(toolchain: &'a Toolchain) -> Result<Self, CompileError> {
        let library = toolchain.nvrtc()?;
        let found = ffi::version()?;
        if found != library.version {
            return Err(CompileError::Shadowed { found, chosen: library });
        }
        Ok(Compiler { toolchain, library })
    }

    /// The library in use.
    pub fn library(&self) -> &NvrtcLibrary {
        &self.library
    }

    /// Compiles `source` for `target`, or takes the result from the disk cache.
    pub fn compile(&self, source: &str, target: Target) -> Result<Compiled, CompileError> {
        self.compile_as(source, target, target.name())
    }

    /// The same PTX without machine code, for the emulator alone: about twice as fast, and what the assembler would refuse
    /// is left to the emulator.
    pub fn compile_ptx(&self, source: &str, target: Target) -> Result<Compiled, CompileError> {
        self.compile_as(source, target, &virtual_architecture(target))
    }

    fn compile_as(&self, source: &str, target: Target, architecture: &str) -> Result<Compiled, CompileError> {
        let options = options(architecture);
        let key = Key::new(source, &options, self.library.version);
        let folder = self.toolchain.home().cache();
        if let Some(compiled) = cache::load(&folder, &key, target) {
            return Ok(compiled);
        }
        let compiled = self.compile_uncached(source, target, architecture)?;
        cache::store(&folder, &key, &compiled);
        Ok(compiled)
    }

    fn compile_uncached(&self, source: &str, target: Target, architecture: &str) -> Result<Compiled, CompileError> {
        // NVRTC serialises threads itself, less fairly; the lock also keeps the measured time honest.
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner());

        let program = ffi::Program::new(source)?;
        let start = Instant::now();
        let outcome = program.compile(&options(architecture));
        let milliseconds = start.elapsed().as_secs_f64() * 1e3;
        let log = program.log()?;
        match outcome {
            Ok(()) => {}
            Err(error) if log.trim().is_empty() => {
                return Err(CompileError::Nvrtc { call: "nvrtcCompileProgram", error });
            }
            Err(_) => return Err(CompileError::Rejected { target, ptx_lines: ptx_lines(source, target, &log), log }),
        }
        let machine_code = architecture == target.name();
        let (cubin, ptx) = (if machine_code { program.cubin()? } else { Vec::new() }, program.ptx()?);
        let resources = resources(&log);
        Ok(Compiled { target, cubin, ptx, log, resources, milliseconds, cached: false })
    }
}

/// The architecture for which PTX is made and nothing assembled.
fn virtual_architecture(target: Target) -> String {
    target.name().replace("sm_", "compute_")
}

fn options(architecture: &str) -> Vec<String> {
    [&format!("--gpu-architecture={architecture}"), "--std=c++17", "-lineinfo", "--ptxas-options=-v"]
        .map(str::to_owned)
        .to_vec()
}

/// For messages of the assembler, which name lines of a PTX that NVRTC then withholds: makes that PTX for the
/// virtual architecture, where inline assembly is not checked, and reads its `.loc` directives.
fn ptx_lines(source: &str, target: Target, log: &str) -> Vec<(u32, u32)> {
    let wanted: Vec<u32> = log
        .lines()
        .filter_map(|line| line.strip_prefix("ptxas application ptx input, line "))
        .filter_map(|rest| rest.split(';').next()?.trim().parse().ok())
        .collect();
    if wanted.is_empty() {
        return Vec::new();
    }
    let Ok(program) = ffi::Program::new(source) else { return Vec::new() };
    if program.compile(&options(&virtual_architecture(target))).is_err() {
        return Vec::new();
    }
    let ptx = program.ptx().unwrap_or_default();
    wanted.into_iter().filter_map(|line| Some((line, source_line(&ptx, line)?))).collect()
}

/// The CUDA line of a PTX line: the last `.loc` at or above it, at the call site when it was inlined.
fn source_line(ptx: &str, line: u32) -> Option<u32> {
    let above: Vec<&str> = ptx.lines().take(line as usize).collect();
    let loc = above.into_iter().rev().find_map(|l| l.trim_start().strip_prefix(".loc"))?;
    let place = loc.rsplit("inlined_at").next()?;
    place.split_whitespace().nth(1)?.parse().ok()
}

/// Every call into NVRTC, each with its error.
mod ffi {
    use super::*;

    pub fn version() -> Result<Version, CompileError> {
        // cudarc panics at first use when the library is missing.
        // SAFETY: loading NVIDIA's library runs only its own initialisers.
        if !unsafe { sys::is_culib_present() } {
            return Err(CompileError::Nvrtc {
                call: "dlopen(libnvrtc.so)",
                error: result::NvrtcError(sys::nvrtcResult::NVRTC_ERROR_INTERNAL_ERROR),
            });
        }
        let (mut major, mut minor): (c_int, c_int) = (0, 0);
        // SAFETY: both pointers are valid for the call.
        check("nvrtcVersion", unsafe { sys::nvrtcVersion(&mut major, &mut minor) })?;
        Ok((major.unsigned_abs(), minor.unsigned_abs()))
    }

    fn check(call: &'static str, status: sys::nvrtcResult) -> Result<(), CompileError> {
        status.result().map_err(|error| CompileError::Nvrtc { call, error })
    }

    /// An `nvrtcProgram`, destroyed when dropped.
    pub struct Program {
        handle: sys::nvrtcProgram,
    }

    impl Program {
        pub fn new(source: &str) -> Result<Self, CompileError> {
            let source = CString::new(source).map_err(|nul| CompileError::Nul(nul.nul_position()))?;
            let name = CString::new(FILE_NAME).expect("no NUL in a constant");
            let handle = result::create_program(&source, Some(&name))
                .map_err(|error| CompileError::Nvrtc { call: "nvrtcCreateProgram", error })?;
            Ok(Program { handle })
        }

        pub fn compile(&self, options: &[String]) -> Result<(), result::NvrtcError> {
            // SAFETY: the handle lives as long as `self`, and NVRTC copied the source when it was created.
            unsafe { result::compile_program(self.handle, options) }
        }

        pub fn log(&self) -> Result<String, CompileError> {
            self.text("nvrtcGetProgramLog", sys::nvrtcGetProgramLogSize, sys::nvrtcGetProgramLog)
        }

        pub fn ptx(&self) -> Result<String, CompileError> {
            self.text("nvrtcGetPTX", sys::nvrtcGetPTXSize, sys::nvrtcGetPTX)
        }

        pub fn cubin(&self) -> Result<Vec<u8>, CompileError> {
            self.bytes("nvrtcGetCUBIN", sys::nvrtcGetCUBINSize, sys::nvrtcGetCUBIN)
        }

        /// Logs are not always UTF-8: the assembler quotes source bytes.
        fn text(&self, call: &'static str, size: SizeCall, get: GetCall) -> Result<String, CompileError> {
            let bytes = self.bytes(call, size, get)?;
            let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
            Ok(String::from_utf8_lossy(text).into_owned())
        }

        fn bytes(&self, call: &'static str, size: SizeCall, get: GetCall) -> Result<Vec<u8>, CompileError> {
            let mut len = 0;
            // SAFETY: the handle is valid, and the buffer is as long as NVRTC says that its answer is.
            unsafe {
                check(call, size(self.handle, &mut len))?;
                let mut bytes = vec![0u8; len];
                check(call, get(self.handle, bytes.as_mut_ptr().cast::<c_char>()))?;
                Ok(bytes)
            }
        }
    }

    type SizeCall = unsafe fn(sys::nvrtcProgram, *mut usize) -> sys::nvrtcResult;
    type GetCall = unsafe fn(sys::nvrtcProgram, *mut c_char) -> sys::nvrtcResult;

    impl Drop for Program {
        fn drop(&mut self) {
            // SAFETY: created by `create_program` and destroyed once.
            let _ = unsafe { result::destroy_program(self.handle) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ptx_line_maps_to_the_cuda_line_above_it() {
        let ptx = ".entry k(\n)\n{\n\t.loc 1 7 3\n\tmov.u32 %r1, 1;\n\t.loc 1 2 5, function_name $L__info, inlined_at 1 9 3\n\tbad;\n";
        assert_eq!(source_line(ptx, 5), Some(7));
        assert_eq!(source_line(ptx, 7), Some(9));
        assert_eq!(source_line(ptx, 2), None);
    }
}
