//! Lane-instructions a second on the bf16 logits kernel (an mma counts 32): functional only, and with the checks on.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use lathe_emulator::{Checks, CpAsync, GlobalMemory, Init, Launch, Module, Options};

fn logits(c: &mut Criterion) {
    let ptx = include_str!("../tests/fixtures/matrix.ptx");
    let kernel = Module::parse(ptx).and_then(|m| m.entry("logits_bf16")).unwrap_or_else(|e| panic!("{e}"));
    let (rows, pages) = (16u32, 64u32);
    let mut memory = GlobalMemory::default();
    let ones = |n: usize| (0..n).map(|i| 0x3f80u16 + (i % 61) as u16).collect::<Vec<u16>>();
    let mut with = |name: &str, bytes: &[u8]| {
        memory.allocate(name, bytes.len() as u64, Init::Bytes(bytes)).unwrap_or_else(|e| panic!("{e}"))
    };
    let table: Vec<i32> = (0..rows * pages).map(|i| (i * 7 % pages) as i32).collect();
    let out = with("logits", &vec![0; (rows * pages * 64 * 4) as usize]);
    let q = with("q", bytemuck::cast_slice(&ones(rows as usize * 64 * 128)));
    let keys = with("keys", bytemuck::cast_slice(&ones(pages as usize * 64 * 128)));
    let weights = with("weights", bytemuck::cast_slice(&vec![0.5f32; rows as usize * 64]));
    let lens = with("lens", bytemuck::cast_slice(&vec![(pages * 64) as i32; rows as usize]));
    let table = with("table", bytemuck::cast_slice(&table));
    let per_cta = 16u32;
    let launch = Launch::new([pages / per_cta, rows, 1], [128, 1, 1]).dynamic_shared(64 * 256 + 4 * 2 * 16 * 256);
    let launch =
        launch.arg(out).arg(q).arg(keys).arg(weights).arg(lens).arg(table).arg(pages).arg(pages * 64).arg(per_cta);

    let mut group = c.benchmark_group("logits_bf16");
    for (name, checks, cp_async) in [
        ("functional", Checks::NONE, CpAsync::Eager),
        ("races", Checks { races: true, ..Checks::NONE }, CpAsync::Eager),
        ("races, late copies", Checks { races: true, ..Checks::NONE }, CpAsync::Late),
        ("all checks", Checks::ALL, CpAsync::Eager),
    ] {
        let options = Options { checks, cp_async, ..Options::default() };
        let report = kernel.launch(&launch, &mut memory, &options).unwrap_or_else(|e| panic!("{e}"));
        assert!(report.findings.is_empty(), "{:?}", report.findings);
        group.throughput(Throughput::Elements(report.stats.lane_instructions));
        group.sample_size(10);
        group.bench_function(name, |b| b.iter(|| kernel.launch(&launch, &mut memory, &options).map(|r| r.stats)));
    }
    group.finish();
}

criterion_group!(benches, logits);
criterion_main!(benches);
