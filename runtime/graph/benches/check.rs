//! The checker on large graphs: `cargo bench -p lathe-graph --bench check`.

use criterion::{Criterion, criterion_group, criterion_main};
use lathe_graph::check::check;
use lathe_graph::location::Location;
use lathe_graph::model::{
    Access, Buffer, BufferId, EdgeKind, Effect, Lifetime, Node, NodeId, NodeKind, Placement, Pool, Site,
};
use std::hint::black_box;

const NODES: usize = 10_000;
const EDGES: usize = 11_000;
const BUFFERS: usize = 5_004;
const STREAMS: usize = 4;

/// Four streams with an event from one to another every ten nodes; every second node begins a buffer, which it
/// writes and the next two nodes of its stream read; the last node of a stream writes an output. `slots`: a stream's
/// buffers share that many places.
fn decode_like(slots: usize) -> (Pool, Placement) {
    let mut pool = Pool::new();
    let graph = pool.add_graph("decode", Location::unknown());
    let streams: Vec<_> = (0..STREAMS).map(|i| pool.stream_named(&format!("s{i}"))).collect();
    let mut placement = Placement::default();
    let mut live: Vec<Vec<BufferId>> = vec![Vec::new(); STREAMS];
    for i in 0..NODES {
        let stream = i % STREAMS;
        let turn = i / STREAMS;
        let mut node =
            Node::new(format!("k{i}"), NodeKind::Kernel, Site::Graph(graph), streams[stream], Location::unknown());
        node.accesses.extend(live[stream].iter().rev().take(2).map(|&b| Access::new(b, 0..4096, Effect::Read)));
        if i + STREAMS >= NODES {
            let lifetime = Lifetime::Output { graph, release: Default::default() };
            let output = pool.add_buffer(Buffer::new(format!("o{stream}"), 4096, lifetime, Location::unknown()));
            placement.set(output, ((slots + 1) * STREAMS * 4096 + stream * 4096) as u64);
            node.accesses.push(Access::new(output, 0..4096, Effect::WriteAll));
        } else if turn.is_multiple_of(2) {
            let lifetime = Lifetime::Transient { graph, alloc: None, free: None };
            let buffer = pool.add_buffer(Buffer::new(format!("b{i}"), 4096, lifetime, Location::unknown()));
            placement.set(buffer, ((turn / 2 % slots * STREAMS + stream) * 4096) as u64);
            node.accesses.push(Access::new(buffer, 0..4096, Effect::WriteAll));
            live[stream].push(buffer);
        }
        let id = pool.add_node(node);
        if i >= STREAMS {
            pool.add_edge(NodeId(id.0 - STREAMS as u32), id, EdgeKind::Full);
        }
    }
    let cross = EDGES - pool.edges().len();
    for i in 0..cross {
        let from = i * (NODES - STREAMS - 1) / cross;
        let to = from + 1 + i % (STREAMS - 1);
        pool.add_edge(NodeId(from as u32), NodeId(to as u32), EdgeKind::Full);
    }
    assert_eq!((pool.nodes().len(), pool.edges().len(), pool.buffers().len()), (NODES, EDGES, BUFFERS));
    (pool, placement)
}

fn bench(c: &mut Criterion) {
    let mut group = c.benchmark_group("check 10,000 nodes, 11,000 edges, 5,004 buffers");
    group.sample_size(20);
    for (name, slots) in [("clean", 8), ("tight", 3), ("one slot short", 2)] {
        let (pool, placement) = decode_like(slots);
        let findings = check(&pool, Some(&placement)).unwrap().findings.len();
        group.bench_function(format!("{name}, {findings} findings"), |b| {
            b.iter(|| check(black_box(&pool), Some(black_box(&placement))).unwrap());
        });
    }
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
