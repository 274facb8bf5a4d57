//! Pools to plan, draw and explore: decode steps, fork/join graphs, a large one. All are pure functions of their arguments.
#![allow(dead_code, reason = "each test binary uses a part")]

pub mod random;

use lathe_graph::location::Location;
use lathe_graph::model::{Access, Buffer, BufferId, Effect, Lifetime, Node, NodeId, NodeKind, Pool, Site, StreamId};
use lathe_graph::record::Recorder;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// A capture in progress.
pub struct Tape {
    pub rec: Recorder,
}

impl Tape {
    /// Begins graph `name` on stream `origin`.
    pub fn new(name: &str, origin: &str) -> Self {
        let mut rec = Recorder::new();
        let origin = rec.pool_mut().stream_named(origin);
        rec.begin(name, origin, Location::caller());
        Self { rec }
    }

    /// Ends the capture and begins another graph of the same pool.
    pub fn next_graph(&mut self, name: &str, origin: &str) {
        self.rec.end();
        let origin = self.rec.pool_mut().stream_named(origin);
        self.rec.begin(name, origin, Location::caller());
    }

    pub fn stream(&mut self, name: &str) -> StreamId {
        self.rec.pool_mut().stream_named(name)
    }

    pub fn buffer(&mut self, name: impl Into<String>, size: u64, lifetime: Lifetime) -> BufferId {
        let buffer = Buffer::new(name, size, lifetime, Location::caller());
        self.rec.pool_mut().add_buffer(buffer)
    }

    pub fn transient(&mut self, name: impl Into<String>, size: u64) -> BufferId {
        let graph = self.rec.graph().expect("a capture is open");
        self.buffer(name, size, Lifetime::Transient { graph, alloc: None, free: None })
    }

    /// A kernel that reads all of `reads` and overwrites all of `writes`.
    pub fn kernel(&mut self, name: impl Into<String>, on: StreamId, reads: &[BufferId], writes: &[BufferId]) -> NodeId {
        let graph = self.rec.graph().expect("a capture is open");
        let mut node = Node::new(name, NodeKind::Kernel, Site::Graph(graph), on, Location::caller());
        let whole = |pool: &Pool, &id: &BufferId, effect| Access::new(id, 0..pool.buffer(id).size, effect);
        let pool = self.rec.pool();
        node.accesses.extend(reads.iter().map(|id| whole(pool, id, Effect::Read)));
        node.accesses.extend(writes.iter().map(|id| whole(pool, id, Effect::WriteAll)));
        self.rec.node(node)
    }

    /// `to` waits for all that is on `from` now.
    pub fn order(&mut self, from: StreamId, to: StreamId) {
        let event = self.rec.pool_mut().add_event("e", Location::caller());
        self.rec.record(event, from);
        self.rec.wait(event, to, Location::caller());
    }

    pub fn finish(self) -> Pool {
        self.rec.finish()
    }
}

/// A decode step of `batch` rows: in each layer the indexer runs beside the query projections, and the shared expert
/// and the gate's bookkeeping beside the routed experts.
pub fn decode(batch: u64, layers: usize) -> Pool {
    let mut tape = Tape::new("decode", "main");
    decode_into(&mut tape, batch, layers);
    tape.finish()
}

/// Records [`decode`] into a capture that is already open.
pub fn decode_into(tape: &mut Tape, batch: u64, layers: usize) {
    let [main, index, expert, gate] = ["main", "indexer", "shared expert", "router"].map(|name| tape.stream(name));
    let graph = tape.rec.graph().expect("a capture is open");
    let (hidden, heads, keys) = (7168, 64, 8192);
    let input = tape.buffer(format!("tokens b{batch}"), batch * 8, Lifetime::Input);
    let output = Lifetime::Output { graph, release: Default::default() };
    let logits_out = tape.buffer(format!("logits b{batch}"), batch * 129_280 * 4, output);
    let mut x = tape.transient("embedding", batch * hidden * 2);
    tape.kernel("embed", main, &[input], &[x]);
    for l in 0..layers {
        let t = |tape: &mut Tape, name: &str, bytes: u64| tape.transient(format!("{name} {l}"), batch * bytes);
        let cache = Lifetime::Persistent { carried: true };
        let index_keys = tape.buffer(format!("index keys {l} b{batch}"), 1 << 20, cache);
        let normed = t(tape, "normed", hidden * 2);
        tape.kernel(format!("norm {l}"), main, &[x], &[normed]);
        tape.order(main, index);
        let (iq, ik, iw) =
            (t(tape, "index q", heads * 128 * 2), t(tape, "index k", 256), t(tape, "index w", heads * 4));
        let (scores, top) = (t(tape, "scores", keys * 4), t(tape, "top-k", 2048 * 4));
        tape.kernel(format!("index q {l}"), index, &[normed], &[iq, iw]);
        tape.kernel(format!("index k {l}"), index, &[normed], &[ik]);
        tape.kernel(format!("store k {l}"), index, &[ik], &[index_keys]);
        tape.kernel(format!("logits {l}"), index, &[iq, iw, index_keys], &[scores]);
        tape.kernel(format!("top-k {l}"), index, &[scores], &[top]);
        let (latent, q, kv) =
            (t(tape, "q latent", 1536 * 2), t(tape, "q", 128 * 192 * 2), t(tape, "kv latent", 576 * 2));
        tape.kernel(format!("q down {l}"), main, &[normed], &[latent]);
        tape.kernel(format!("q up {l}"), main, &[latent], &[q]);
        tape.kernel(format!("kv down {l}"), main, &[normed], &[kv]);
        tape.order(index, main);
        let (mixed, attended) = (t(tape, "mixed", 128 * 128 * 2), t(tape, "attended", hidden * 2));
        tape.kernel(format!("attention {l}"), main, &[q, kv, top], &[mixed]);
        tape.kernel(format!("o proj {l}"), main, &[mixed, x], &[attended]);
        tape.order(main, expert);
        tape.order(main, gate);
        let (up, shared) = (t(tape, "shared up", 2 * 2048 * 2), t(tape, "shared out", hidden * 2));
        tape.kernel(format!("shared up {l}"), expert, &[attended], &[up]);
        tape.kernel(format!("shared down {l}"), expert, &[up], &[shared]);
        let (routes, counts) = (t(tape, "routes", 256 * 4), t(tape, "counts", 256 * 4));
        tape.kernel(format!("gate {l}"), gate, &[attended], &[routes]);
        tape.kernel(format!("count {l}"), gate, &[routes], &[counts]);
        tape.order(gate, main);
        let (gathered, moe) = (t(tape, "gathered", 8 * hidden), t(tape, "moe up", 8 * 2 * 2048 * 2));
        tape.kernel(format!("gather {l}"), main, &[attended, routes, counts], &[gathered]);
        tape.kernel(format!("moe up {l}"), main, &[gathered, counts], &[moe]);
        let down = t(tape, "moe down", 8 * hidden * 2);
        tape.kernel(format!("moe down {l}"), main, &[moe, counts], &[down]);
        tape.order(expert, main);
        x = t(tape, "residual", hidden * 2);
        tape.kernel(format!("combine {l}"), main, &[down, shared, routes, attended], &[x]);
    }
    let normed = tape.transient("last normed", batch * hidden * 2);
    tape.kernel("last norm", main, &[x], &[normed]);
    tape.kernel("lm head", main, &[normed], &[logits_out]);
}

/// A random graph of nested forks and joins, `nodes` kernels or a few more, each with its own output buffer.
pub fn fork_join(seed: u64, nodes: usize) -> Pool {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut tape = Tape::new("fork join", "s0");
    let main = tape.stream("s0");
    let first = tape.transient("t0", size(&mut rng));
    tape.kernel("k0", main, &[], &[first]);
    let mut live = vec![first];
    let mut made = 1;
    let mut streams = 1;
    while made < nodes {
        live = block(&mut tape, &mut rng, main, &live, &mut made, &mut streams, 0);
    }
    let graph = tape.rec.graph().expect("a capture is open");
    let result = tape.buffer("result", 256, Lifetime::Output { graph, release: Default::default() });
    tape.kernel("last", main, &live, &[result]);
    tape.finish()
}

fn size(rng: &mut ChaCha8Rng) -> u64 {
    256 * (1 << rng.random_range(0..10)) * rng.random_range(1..8)
}

/// A chain of kernels on `on`, or a fork into branches and the join; the buffers alive after it.
fn block(
    tape: &mut Tape,
    rng: &mut ChaCha8Rng,
    on: StreamId,
    live: &[BufferId],
    made: &mut usize,
    streams: &mut usize,
    depth: usize,
) -> Vec<BufferId> {
    if depth < 3 && rng.random_bool(0.4) {
        let mut ends = Vec::new();
        let mut branches = Vec::new();
        for branch in 0..rng.random_range(2..=4) {
            let stream = if branch == 0 {
                on
            } else {
                *streams += 1;
                let stream = tape.stream(&format!("s{}", *streams - 1));
                tape.order(on, stream);
                stream
            };
            branches.push(stream);
        }
        for &stream in &branches {
            let mut mine = live.to_vec();
            for _ in 0..rng.random_range(1..=2) {
                mine = block(tape, rng, stream, &mine, made, streams, depth + 1);
            }
            ends.extend(mine);
        }
        branches[1..].iter().for_each(|&stream| tape.order(stream, on));
        let joined = tape.transient(format!("t{made}"), size(rng));
        ends.sort_unstable();
        ends.dedup();
        tape.kernel(format!("k{made}"), on, &ends, &[joined]);
        *made += 1;
        return vec![joined];
    }
    let mut recent: Vec<BufferId> = live.to_vec();
    for _ in 0..rng.random_range(1..=5) {
        let out = tape.transient(format!("t{made}"), size(rng));
        let mut reads = vec![*recent.last().expect("something is live")];
        if recent.len() > 1 && rng.random_bool(0.5) {
            reads.push(recent[rng.random_range(0..recent.len() - 1)]);
        }
        tape.kernel(format!("k{made}"), on, &reads, &[out]);
        *made += 1;
        recent.push(out);
        if recent.len() > 3 {
            recent.remove(0);
        }
    }
    recent.split_off(recent.len() - 1)
}

/// 10,000 nodes on four streams, 11,000 edges, 5,000 buffers.
pub fn large() -> Pool {
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let mut tape = Tape::new("large", "s0");
    let streams: Vec<StreamId> = (0..4).map(|s| tape.stream(&format!("s{s}"))).collect();
    let mut latest: Vec<Vec<BufferId>> = vec![Vec::new(); 4];
    let root = tape.transient("t0", size(&mut rng));
    tape.kernel("k0", streams[0], &[], &[root]);
    streams[1..].iter().for_each(|&s| tape.order(streams[0], s));
    latest.iter_mut().for_each(|l| l.push(root));
    for k in 1..10_000 {
        let s = k % 4;
        if k % 10 == 0 {
            let from = (s + rng.random_range(1..4)) % 4;
            tape.order(streams[from], streams[s]);
            let seen = *latest[from].last().expect("every stream has seen the root");
            latest[s].push(seen);
        }
        let read = latest[s][latest[s].len().saturating_sub(rng.random_range(1..4))];
        if k % 2 == 0 {
            let out = tape.transient(format!("t{k}"), size(&mut rng));
            tape.kernel(format!("k{k}"), streams[s], &[read], &[out]);
            latest[s].push(out);
        } else {
            tape.kernel(format!("k{k}"), streams[s], &[read], &[]);
        }
    }
    tape.finish()
}
