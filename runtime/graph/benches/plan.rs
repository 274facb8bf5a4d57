//! Planning a large pool: who may share, the bound, the plan.

#[path = "../tests/common/mod.rs"]
mod common;

use criterion::{Criterion, criterion_group, criterion_main};
use lathe_graph::order::Order;
use lathe_graph::plan::{Options, Planner};

fn large(c: &mut Criterion) {
    let pool = common::large();
    let order = Order::of(&pool).expect("the pool is valid");
    println!("{} nodes, {} edges, {} buffers", pool.nodes().len(), pool.edges().len(), pool.buffers().len());
    let planner = Planner::new(&pool, &order);
    let plan = planner.plan(&Options::default());
    println!("{} bytes, {:.4} of the bound, {} without reuse", plan.bytes, plan.ratio(), plan.no_reuse);
    let mut group = c.benchmark_group("10,000 nodes");
    group.sample_size(10);
    group.bench_function("who may share", |b| b.iter(|| Planner::new(&pool, &order)));
    group.bench_function("bound", |b| b.iter(|| planner.bound()));
    group.bench_function("order, bound and plan", |b| {
        b.iter(|| {
            let order = Order::of(&pool).expect("the pool is valid");
            Planner::new(&pool, &order).plan(&Options::default())
        });
    });
    group.finish();
}

criterion_group!(benches, large);
criterion_main!(benches);
