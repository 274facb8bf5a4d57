//! The kernels under Criterion, timed by the device's clock: a group for each kernel, an id for each batch and length.
//! The harness is that of `lathe bench`: rotating inputs, results checked before anything is timed, graphs with
//! programmatic edges. Criterion keeps the history: `cargo bench --bench kernels -- --baseline NAME`.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use lathe::runtime::bench::{Bench, Contender, Edges, Protocol};
use lathe::runtime::device::Device;
use lathe::runtime::nvrtc::Compiler;
use lathe::runtime::toolchain::Toolchain;
use lathe_codegen::benchmark::Machine;

fn kernels(criterion: &mut Criterion) {
    let device = match Device::open(0) {
        Ok(device) => device,
        Err(error) => return eprintln!("skipped: {error}"),
    };
    let Some(target) = device.info().target() else {
        return eprintln!("skipped: {} runs no target that Lathe generates code for", device.info());
    };
    let toolchain = Toolchain::new(false, |event| eprintln!("{event}"));
    let compiler = Compiler::load(&toolchain).expect("a compiler");
    let machine = Machine { target, sms: device.info().sms };
    for entry in lathe::kernels::entries() {
        let Some(benchmark) = entry.benchmark else { continue };
        let mut group = criterion.benchmark_group(entry.name);
        for size in (benchmark.sizes)() {
            let workload = (benchmark.workload)(&size).expect("a kernel computes its own sizes");
            let work = (benchmark.work)(&size).expect("a kernel computes its own sizes");
            let chosen = (benchmark.configurations)(&size, machine).into_iter().next().expect("a configuration");
            let contender = Contender::of_configuration(&device, &compiler, target, entry.name.to_owned(), chosen)
                .expect("it compiles");
            let bench = Bench::new(&device, &workload, &work, Protocol::default()).expect("it fits the device");
            let prepared = bench.prepare(&contender, Edges::Programmatic).expect("its results are right");
            group.throughput(Throughput::Bytes(work.read + work.written));
            group.bench_function(BenchmarkId::from_parameter(size), |bencher| {
                bencher.iter_custom(|calls| bench.elapsed(&prepared, calls).expect("the device runs"));
            });
        }
        group.finish();
    }
}

criterion_group!(benches, kernels);
criterion_main!(benches);
