//! Small random captures, every way of placing their buffers, and the mistakes that people make.

use super::Tape;
use lathe_graph::allocator::{Op, allocate, as_recorded};
use lathe_graph::model::{
    Access, BufferId, EdgeKind, Effect, Lifetime, NodeId, NodeKind, PdlWait, Phase, Placement, Pool, StreamId,
};
use lathe_graph::order::Order;
use lathe_graph::plan::Planner;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Who places the buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placer {
    Planner,
    CachingAllocator,
    NoReuse,
}

impl Placer {
    pub const ALL: [Self; 3] = [Self::Planner, Self::CachingAllocator, Self::NoReuse];
}

/// What went wrong after or before placing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    None,
    /// An edge is lost after the buffers are placed.
    EdgeDropped,
    /// The host drops a buffer before its last use is recorded.
    FreedEarly,
    /// Two buffers get each other's addresses.
    Swapped,
    /// An edge becomes programmatic after the buffers are placed.
    Downgraded,
}

impl Mistake {
    pub const ALL: [Self; 5] = [Self::None, Self::EdgeDropped, Self::FreedEarly, Self::Swapped, Self::Downgraded];
}

/// A random capture of up to ten nodes, placed, with one mistake.
pub fn capture(seed: u64, placer: Placer, mistake: Mistake) -> (Pool, Placement) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut pool = record(&mut rng);
    let mut ops = as_recorded(&pool);
    if mistake == Mistake::FreedEarly {
        let drops: Vec<usize> = (0..ops.len()).filter(|&at| matches!(ops[at], Op::Drop(_))).collect();
        if let Some(&from) = drops.choose(&mut rng) {
            let Op::Drop(id) = ops[from] else { unreachable!("only drops were chosen") };
            let born = ops.iter().position(|op| matches!(op, Op::Alloc(of, _) if *of == id)).expect("it is allocated");
            ops.remove(from);
            ops.insert(rng.random_range(born + 1..=from), Op::Drop(id));
        }
    }
    let mut placement = match placer {
        Placer::Planner => {
            let order = Order::of(&pool).expect("the capture is valid");
            Planner::new(&pool, &order).plan(&Default::default()).placement
        }
        Placer::CachingAllocator => allocate(&pool, &ops, 0).expect("the host's operations make sense").placement,
        Placer::NoReuse => Placement::empty(&pool),
    };
    if placer == Placer::NoReuse && mistake == Mistake::FreedEarly {
        // Whoever reuses nothing can still give two buffers the same bytes, in part.
        let ids: Vec<BufferId> = pool.buffer_ids().collect();
        ids.iter().for_each(|&id| placement.set(id, 4096 * u64::from(id.0)));
        let (&a, &b) = (ids.choose(&mut rng).expect("not empty"), ids.choose(&mut rng).expect("not empty"));
        placement.set(a, placement.address(b).unwrap_or(0) + 16 * rng.random_range(0..3));
    }
    match mistake {
        Mistake::None | Mistake::FreedEarly => {}
        Mistake::EdgeDropped => {
            let lost = rng.random_range(0..pool.edges().len().max(1));
            let mut at = 0..;
            pool.retain_edges(|_| at.next() != Some(lost));
        }
        Mistake::Swapped => {
            let placed: Vec<(BufferId, u64)> = placement.iter().collect();
            if let (Some(&(a, at_a)), Some(&(b, at_b))) = (placed.choose(&mut rng), placed.choose(&mut rng)) {
                placement.set(a, at_b);
                placement.set(b, at_a);
            }
        }
        Mistake::Downgraded => {
            if let Some(edge) = pool.edges().to_vec().choose(&mut rng) {
                let same = |e: &&mut lathe_graph::model::Edge| **e == *edge;
                pool.edges_mut().iter_mut().filter(same).for_each(|e| e.kind = EdgeKind::Programmatic);
            }
        }
    }
    (pool, placement)
}

fn record(rng: &mut ChaCha8Rng) -> Pool {
    let mut tape = Tape::new("g", "m");
    let streams: Vec<StreamId> = ["m", "a", "b"][..rng.random_range(1..=3)].iter().map(|s| tape.stream(s)).collect();
    let graph = tape.rec.graph().expect("a capture is open");
    let buffers: Vec<BufferId> = (0..rng.random_range(2..=6))
        .map(|i| {
            let lifetime = match rng.random_range(0..8) {
                0 => Lifetime::Persistent { carried: rng.random_bool(0.5) },
                1 => Lifetime::Output { graph, release: Default::default() },
                2 => Lifetime::Input,
                _ => Lifetime::Transient { graph, alloc: None, free: None },
            };
            let size = 16 * rng.random_range(1..=4);
            let id = tape.buffer(format!("t{i}"), size, lifetime);
            tape.rec.pool_mut().buffer_mut(id).align = 16;
            id
        })
        .collect();
    streams[1..].iter().for_each(|&s| {
        if rng.random_bool(0.7) {
            tape.order(streams[0], s)
        }
    });
    for i in 0..rng.random_range(3..=9) {
        let stream = *streams.choose(rng).expect("not empty");
        if rng.random_bool(0.3) {
            tape.order(*streams.choose(rng).expect("not empty"), stream);
        }
        if rng.random_bool(0.15) {
            tape.rec.launch_next_programmatically(stream);
        }
        let id = tape.kernel(format!("k{i}"), stream, &[], &[]);
        let mut accesses: Vec<Access> = Vec::new();
        for _ in 0..rng.random_range(1..=3) {
            let access = random_access(rng, tape.rec.pool(), &buffers);
            if accesses.iter().all(|a| a.buffer != access.buffer) {
                accesses.push(access);
            }
        }
        let node = tape.rec.pool_mut().node_mut(id);
        node.accesses = accesses;
        if rng.random_bool(0.05) {
            node.pdl_wait = PdlWait::Never;
        }
        if rng.random_bool(0.05) {
            node.kind = NodeKind::Host;
        }
    }
    tape.finish()
}

fn random_access(rng: &mut ChaCha8Rng, pool: &Pool, buffers: &[BufferId]) -> Access {
    let id = *buffers.choose(rng).expect("not empty");
    let size = pool.buffer(id).size;
    let range = if rng.random_bool(0.6) {
        0..size
    } else {
        let start = 8 * rng.random_range(0..size / 8);
        start..start + 8 * rng.random_range(1..=(size - start) / 8)
    };
    let effects =
        [Effect::Read, Effect::Read, Effect::WriteAll, Effect::WriteAll, Effect::WritePart, Effect::ReadWrite];
    let mut access = Access::new(id, range, *effects.choose(rng).expect("not empty"));
    if rng.random_bool(0.2) {
        access.phase = Phase::BeforeWait;
    }
    access
}

/// The capture, to read a failure.
pub fn show(pool: &Pool, placement: &Placement) -> String {
    let mut text = String::new();
    for id in pool.buffer_ids() {
        let buffer = pool.buffer(id);
        text +=
            &format!("  {} {} bytes at {:?}: {:?}\n", buffer.name, buffer.size, placement.address(id), buffer.lifetime);
    }
    for (index, node) in pool.nodes().iter().enumerate() {
        let uses: Vec<String> = node
            .accesses
            .iter()
            .map(|a| format!("{:?} {}[{:?}] {:?}", a.effect, pool.buffer(a.buffer).name, a.range, a.phase))
            .collect();
        let into = pool.edges().iter().filter(|e| e.to == NodeId(index as u32));
        let edges: Vec<String> = into.map(|e| format!("{}{:?}", e.from.0, e.kind)).collect();
        text += &format!("  node {index} {:?} {:?} after {edges:?}: {}\n", node.kind, node.pdl_wait, uses.join(", "));
    }
    text
}
