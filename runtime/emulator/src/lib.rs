//! A PTX emulator that checks what it executes.
//!
//! It runs the PTX text that NVRTC (or Triton, or nvcc) produced, with no GPU: warps in lock step over 32 lanes, CTAs on all cores,
//! IEEE arithmetic down to the NaN patterns, and asynchronous copies either at once or as late as the program allows. While it runs it
//! looks for what makes kernels fail on hardware, and reports each cause once, at the line of the source:
//!
//! - accesses out of bounds or misaligned, stores to memory that may only be read;
//! - races in shared memory, by happens-before over barriers, named barriers, warp barriers, mbarriers and asynchronous copies:
//!   lock step, shuffles and matrix instructions order nothing;
//! - reads and overwrites of asynchronous copies that nobody waited for;
//! - stores to shared memory that reach a bulk copy without a proxy fence;
//! - warp-wide operations that some lanes miss, misused barriers, deadlocks;
//! - bits that nobody defined, where they reach an address, a predicate that decides something, or a declared output;
//! - races in global memory between the CTAs of a launch;
//! - accesses that the launch's declarations do not allow, and accesses before `griddepcontrol.wait`.
//!
//! ```
//! use lathe_emulator::{FindingKind, GlobalMemory, Init, Launch, Module, Options};
//!
//! // out[i] = in[i] + 1, as NVRTC would print it; the last thread steps over the end of `in`.
//! let ptx = r#"
//! .version 9.0
//! .target sm_120a
//! .address_size 64
//! .visible .entry add_one(.param .u64 out, .param .u64 in)
//! {
//!     .reg .b32 %r<4>;
//!     .reg .b64 %rd<6>;
//!     ld.param.u64 %rd1, [out];
//!     ld.param.u64 %rd2, [in];
//!     mov.u32 %r1, %tid.x;
//!     mul.wide.u32 %rd3, %r1, 4;
//!     add.s64 %rd4, %rd2, %rd3;
//!     ld.global.u32 %r2, [%rd4];
//!     add.s32 %r3, %r2, 1;
//!     add.s64 %rd5, %rd1, %rd3;
//!     st.global.u32 [%rd5], %r3;
//!     ret;
//! }"#;
//! let kernel = Module::parse(ptx)?.entry("add_one")?;
//!
//! let mut memory = GlobalMemory::default();
//! let input: Vec<u8> = (0..31u32).flat_map(u32::to_le_bytes).collect();
//! let input = memory.allocate("in", 124, Init::Bytes(&input))?;
//! let out = memory.allocate("out", 128, Init::Undefined)?;
//!
//! let launch = Launch::new([1, 1, 1], [32, 1, 1]).arg(out).arg(input);
//! let report = kernel.launch(&launch, &mut memory, &Options::default())?;
//!
//! let mut third = [0; 4];
//! memory.read(out + 8, &mut third)?;
//! assert_eq!(u32::from_le_bytes(third), 3);
//! assert_eq!(report.findings.len(), 1);
//! assert_eq!((report.findings[0].kind, report.findings[0].access.lane), (FindingKind::OutOfBounds, 31));
//! # Ok::<(), lathe_emulator::Error>(())
//! ```
//!
//! # What the checks prove, and what they cannot see
//! All checks watch the instructions that this launch executes on these inputs: a path not taken is not checked.
//!
//! | check | proves | cannot see |
//! |---|---|---|
//! | bounds, alignment, rights | no lane's access left its allocation, shared memory or rights | an overrun into another object inside one allocation |
//! | shared-memory races | every two accesses to a byte, one a write, are ordered by barriers, warp barriers, mbarriers or waits for copies; the verdict does not depend on the seed unless the kernel's synchronisation does | stores by one instruction that agree in the value count as harmless |
//! | copies in flight | nobody touched the bytes of an asynchronous copy between its start and a wait that serves the toucher | |
//! | proxy fences | what was stored through registers reached bulk copies, and mbarriers that were initialised reached copies that complete on them, by way of a fence | fences for aliased addresses, and between ordinary and constant or texture accesses |
//! | collectives and barriers | all lanes that must take part did, with the same count | two barriers swapped in a way that still matches |
//! | definedness | no undefined bit reached an address, a deciding predicate or a declared output; exact through moves, logic and shifts, by element through arithmetic, by row and column through mma | bits defined by a wrong value |
//! | global races | no two CTAs touched a byte, one writing, without an atomic between them | a race hidden by a third CTA's access in between; missing fences around atomics |
//! | declarations | reads, writes and the wait are as declared; `write_all` wrote every byte | what is not declared at all, when nothing is |
//!
//! # How it is built
//! `parse` reads text into instructions with their `.loc` lines. `decode` looks each opcode up in the table of `isa`, settles operands
//! and gives registers slots. `exec` runs warps, CTAs and grids; `memory` holds what they share; `check` knows what is ordered before
//! what, and what is defined. A new opcode is a row in `isa`, beside the function that executes it.
#![warn(missing_docs)]
#![allow(clippy::precedence, reason = "shifts and masks are written as PTX and hardware manuals write them")]
#![allow(
    clippy::needless_range_loop,
    reason = "loops over lanes index several rows at once, and vectorise as they stand"
)]

mod check;
mod decode;
mod error;
mod exec;
mod finding;
mod isa;
mod memory;
mod parse;
mod tensor_map;

pub use check::{Declaration, Effect};
pub use decode::{Kernel, SharedVariable};
pub use error::{Error, Result};
pub use exec::{Checks, Counts, CpAsync, Launch, Options, Report, Stats, Traffic};
pub use finding::{Access, Address, Finding, FindingKind, Names, NoNames, SourceLocation};
pub use isa::supported_opcodes;
pub use memory::{GlobalMemory, Init, Rights};
pub use parse::Module;
pub use parse::ast::Param;
pub use tensor_map::{TensorMap, TensorSwizzle};
