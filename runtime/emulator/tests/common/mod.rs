//! What the tests share: fixtures, typed buffers, and running a kernel under every schedule.
#![allow(dead_code)]

use lathe_emulator::{Checks, CpAsync, GlobalMemory, Init, Kernel, Launch, Module, Options, Report};

/// A kernel of `tests/fixtures/FILE.ptx`.
pub fn kernel(file: &str, entry: &str) -> Kernel {
    module(file).entry(entry).unwrap_or_else(|e| panic!("{e}"))
}

pub fn text(file: &str) -> String {
    let path = format!("{}/tests/fixtures/{file}.ptx", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"))
}

pub fn module(file: &str) -> Module {
    Module::parse(text(file)).unwrap_or_else(|e| panic!("{e}"))
}

/// Global memory with typed access.
#[derive(Default)]
pub struct Memory(pub GlobalMemory);

impl Memory {
    pub fn with<T: bytemuck::NoUninit>(&mut self, name: &str, values: &[T]) -> u64 {
        let bytes: &[u8] = bytemuck::cast_slice(values);
        self.0.allocate(name, bytes.len() as u64, Init::Bytes(bytes)).unwrap()
    }

    pub fn undefined(&mut self, name: &str, bytes: usize) -> u64 {
        self.0.allocate(name, bytes as u64, Init::Undefined).unwrap()
    }

    pub fn read<T: bytemuck::AnyBitPattern + bytemuck::NoUninit>(&self, address: u64, count: usize) -> Vec<T> {
        let mut out = vec![T::zeroed(); count];
        self.0.read(address, bytemuck::cast_slice_mut(&mut out)).unwrap();
        out
    }
}

/// Schedules that a test runs under: several seeds, copies early and late.
pub fn schedules() -> Vec<Options> {
    let mut out = Vec::new();
    for cp_async in [CpAsync::Eager, CpAsync::Late] {
        for seed in [0, 1, 2, 3] {
            out.push(Options { seed, cp_async, checks: Checks::ALL, ..Options::default() });
        }
    }
    out
}

pub fn run(kernel: &Kernel, launch: &Launch, memory: &mut Memory, options: &Options) -> Report {
    kernel.launch(launch, &mut memory.0, options).unwrap_or_else(|e| panic!("{e}"))
}

/// Runs a kernel and insists that nothing was found.
pub fn run_clean(kernel: &Kernel, launch: &Launch, memory: &mut Memory, options: &Options) -> Report {
    let report = run(kernel, launch, memory, options);
    assert!(report.findings.is_empty(), "{options:?}: {:#?}", report.findings);
    report
}

/// Numbers that look random and repeat.
pub struct Numbers(u64);

impl Numbers {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let x = self.0 ^ self.0 >> 33;
        x.wrapping_mul(0xff51afd7ed558ccd) ^ x >> 29
    }
    /// In [-1, 1).
    pub fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }
    pub fn below(&mut self, n: u64) -> u64 {
        self.bits() % n
    }
}
