//! One layer of a decode step, recorded as an engine captures it: the indexer on a stream of its own.
//!
//! ```text
//! main       project k, w, q ──┬── q up (split) ── kv down ── q up (sum) ── keep residual ──┬── attend ── add residual
//!                              │                                                            │
//! alternate                    └── store k ── logits ── top-k ──────────────────────────────┘
//! ```
//!
//! Beside the graph the host's allocations and drops are noted in the order in which Python would make them: `k`, `w`
//! and `q` are dropped when their names go, while the alternate stream may still read them. That is the mistake.

use lathe::contract::ScalarValue::{F32, I32};
use lathe::graph::build::{Bytes, Capture, Lasting, Recording, Refused, Slice, Stream, Transient, Work};
use lathe::graph::model::{BufferId, GraphId, NodeId, Pool};
use lathe::kernels::contract::KeyFormat;
use lathe::kernels::launch::{BF16_CTAS_PER_SM, logits_grid, store_grid, topk_grid};
use lathe::prelude::bf16;
use lathe::runtime::program::Program;
use lathe::runtime::replay::{Bindings, Launch, LaunchError};

use crate::kernels::{HIDDEN, LATENT, SPLIT, TOP_K};
use crate::programs::{HEADS, Indexer, Programs};

/// Elements of an index key.
const KEY: i32 = 128;
/// Keys of a page.
const PAGE: i32 = 64;
/// Columns of the attention's queries.
const ATTENTION_Q: i32 = 128 * 192;
/// Rows of a projection's tile: its workspace is as large for one token as for sixteen.
const TILE_ROWS: i32 = 16;
/// The longest context, in keys.
pub const MAX_LEN: i32 = 640;
const PAGES: i32 = MAX_LEN / PAGE;
/// SMs that the launches are shaped for.
const SMS: u32 = 132;

/// What is decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// The format of index keys and queries.
    pub keys: KeyFormat,
    /// Requests, one token each.
    pub batch: i32,
    /// Loads, each after the one before, that other work on the alternate stream takes before the indexer's; none, if 0.
    pub late: i32,
}

/// How the layer is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// As the engine has it.
    Engine,
    /// With an instrument that clones the layer's input and compares it after the projections.
    Cloning,
    /// With `q` and `residual` in one persistent workspace, as a first repair.
    SharedWorkspace,
}

/// What the host does with memory while it records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostStep {
    /// Allocates a buffer, on the stream that is current.
    Alloc(BufferId, Stream),
    /// Drops the last reference to it, when all its uses are ordered before whatever comes next on its stream.
    Drop(BufferId),
    /// Has recorded uses of these on the alternate stream.
    UsedOnAlternate(Vec<BufferId>),
    /// Is done with their names, though the alternate stream may still use them.
    Forget(Vec<BufferId>),
    /// Has let the main stream wait for the alternate one.
    Joined,
}

/// A recorded layer.
pub struct Layer<'p> {
    /// The graph.
    pub pool: Pool,
    /// Its only graph.
    pub graph: GraphId,
    /// Its kernels and inputs.
    pub bindings: Bindings<'p>,
    /// What the host did meanwhile.
    pub host: Vec<HostStep>,
    /// The two streams.
    pub streams: [Stream; 2],
    /// The slots that this step's tokens go to.
    pub slots: Vec<i64>,
    /// What is decoded.
    pub setup: Setup,
}

/// Why a layer could not be recorded.
#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    /// Arguments that do not fit.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// The graph itself makes no sense.
    #[error(transparent)]
    Refused(#[from] Refused),
}

/// Buffers that exist before the capture and after it.
struct Kept {
    x: Lasting,
    slots: Lasting,
    lens: Lasting,
    table: Lasting,
    keys: Lasting,
    scales: Option<Lasting>,
    differing: Option<Lasting>,
    /// What the alternate stream's other work reads and writes.
    other: Option<[Lasting; 2]>,
    workspace: Option<Lasting>,
}

/// Tensors of the layer that only it uses.
struct Tensors<'s> {
    k: Transient<'s>,
    w: Transient<'s>,
    attention_q: Transient<'s>,
    partials: Transient<'s>,
    kv: Transient<'s>,
    logits: Transient<'s>,
    selected: Transient<'s>,
}

struct Tape<'p> {
    programs: &'p Programs,
    indexer: &'p Indexer,
    setup: Setup,
    bindings: Bindings<'p>,
    host: Vec<HostStep>,
}

impl<'p> Layer<'p> {
    /// Records the layer.
    ///
    /// # Errors
    /// [`LayerError`]; with [`Code::SharedWorkspace`] the checker's refusal is not one, since it is what is to be shown.
    pub fn record(programs: &'p Programs, setup: Setup, code: Code) -> Result<Self, LayerError> {
        let mut recording = Recording::new();
        let kept = Kept::declare(&mut recording, setup, code);
        let mut tape = Tape {
            programs,
            indexer: programs.indexer(setup.keys),
            setup,
            bindings: Bindings::new(),
            host: Vec::new(),
        };
        let slots = tape.fill(&kept);
        let mut streams = None;
        let mut recorded = Ok(());
        let graph = recording.capture("layer", "main", |g| {
            let (main, alternate) = (g.main(), g.stream("alternate"));
            streams = Some([main, alternate]);
            recorded = match code {
                Code::Cloning => g.transient("clone of x", setup.hidden_bytes(), |g, clone| {
                    tape.layer(g, &kept, [main, alternate], Some(clone.slice()))
                }),
                _ => tape.layer(g, &kept, [main, alternate], None),
            };
        });
        recorded?;
        let pool = match recording.check() {
            Ok(checked) => checked.pool().clone(),
            Err(Refused::Findings { pool, .. }) if code == Code::SharedWorkspace => *pool,
            Err(refused) => return Err(refused.into()),
        };
        let streams = streams.expect("a capture calls its closure");
        Ok(Self { pool, graph, bindings: tape.bindings, host: tape.host, streams, slots, setup })
    }

    /// The node of that name.
    pub fn node(&self, name: &str) -> NodeId {
        self.pool.find_node(name).expect("the layer has the node")
    }

    /// The buffer of that name.
    pub fn buffer(&self, name: &str) -> BufferId {
        self.pool.find_buffer(name).expect("the layer has the buffer")
    }
}

impl Setup {
    fn rows(self, columns: i32, bytes: i32) -> u64 {
        (self.batch * columns * bytes) as u64
    }

    /// Bytes of the indexer's queries.
    pub fn q_bytes(self) -> u64 {
        self.rows(HEADS * KEY, self.keys.dtype().size() as i32)
    }

    /// Bytes of a hidden state.
    pub fn hidden_bytes(self) -> u64 {
        self.rows(HIDDEN, 2)
    }

    /// Slots of the pool of index keys; page 0 is nobody's.
    fn slots(self) -> i32 {
        (self.batch * PAGES + 1) * PAGE
    }
}

impl Kept {
    #[rustfmt::skip]
    fn declare(r: &mut Recording, setup: Setup, code: Code) -> Self {
        let batch = setup.batch as u64;
        let key_bytes = setup.keys.dtype().size() as u64;
        Self {
            x: r.input("x", setup.hidden_bytes()),
            slots: r.input("slots", 8 * batch),
            lens: r.input("lens", 4 * batch),
            table: r.input("block table", 4 * batch * PAGES as u64),
            keys: r.persistent("index keys", setup.slots() as u64 * KEY as u64 * key_bytes),
            scales: (setup.keys == KeyFormat::Fp8).then(|| r.persistent("index scales", setup.slots() as u64 * 4)),
            differing: (code == Code::Cloning).then(|| r.persistent("differing", 4 * 128)),
            other: (setup.late > 0).then(|| [r.input("zeros", 256), r.scratch("other work", 4 * 32)]),
            workspace: (code == Code::SharedWorkspace).then(|| r.scratch("workspace", setup.q_bytes().max(setup.hidden_bytes()))),
        }
    }
}

impl<'p> Tape<'p> {
    #[track_caller]
    fn launch(&mut self, g: &mut Capture, on: Stream, launch: Launch<'p>) -> Result<(), LaunchError> {
        let node = g.launch(on, launch.work()?);
        self.bindings.kernel(node, launch);
        Ok(())
    }

    fn alloc<'s>(&mut self, buffer: &impl Bytes<'s>, on: Stream) {
        self.host.push(HostStep::Alloc(buffer.id(), on));
    }

    fn drop<'s>(&mut self, buffer: &impl Bytes<'s>) {
        self.host.push(HostStep::Drop(buffer.id()));
    }

    /// `out = project(x)`.
    fn project<'s>(
        &self,
        name: &str,
        program: &'p Program,
        x: &Lasting,
        out: &impl Bytes<'s>,
        [columns, shift]: [i32; 2],
    ) -> Result<Launch<'p>, LaunchError> {
        let grid = [(columns as u32).div_ceil(512), self.setup.batch as u32, 1];
        let launch = Launch::named(name, program, grid).rows(x, 0, i64::from(HIDDEN))?;
        launch.rows(out, 0, i64::from(columns))?.scalar(I32(columns))?.scalar(I32(shift))?.scalar(F32(0.5))
    }

    fn layer<'c>(
        &mut self,
        g: &mut Capture,
        kept: &Kept,
        streams: [Stream; 2],
        clone: Option<Slice<'c>>,
    ) -> Result<(), LaunchError> {
        let setup = self.setup;
        let tensors = [
            ("k", setup.rows(KEY, 2)),
            ("w", setup.rows(HEADS, 4)),
            ("attention q", setup.rows(ATTENTION_Q, 2)),
            ("partials", (TILE_ROWS * SPLIT * 4) as u64),
            ("kv", setup.rows(LATENT, 2)),
            ("logits", setup.rows(MAX_LEN, 4)),
            ("top-k", setup.rows(TOP_K, 4)),
        ];
        g.transients(tensors, |g, [k, w, attention_q, partials, kv, logits, selected]| {
            let tensors = Tensors { k, w, attention_q, partials, kv, logits, selected };
            if let Some(shared) = &kept.workspace {
                let (q, residual) = (shared.bytes(0..setup.q_bytes()), shared.bytes(0..setup.hidden_bytes()));
                return self.body(g, kept, streams, &tensors, [q, residual], false, clone);
            }
            g.transients([("q", setup.q_bytes()), ("residual", setup.hidden_bytes())], |g, pair| {
                self.body(g, kept, streams, &tensors, pair.map(|tensor| tensor.slice()), true, clone)
            })
        })
    }

    /// The layer, line by line as its Python runs.
    #[allow(clippy::too_many_arguments, reason = "what the layer's code has names for")]
    fn body<'q, 'c>(
        &mut self,
        g: &mut Capture,
        kept: &Kept,
        [main, alternate]: [Stream; 2],
        t: &Tensors,
        [q, residual]: [Slice<'q>; 2],
        owns_pair: bool,
        clone: Option<Slice<'c>>,
    ) -> Result<(), LaunchError> {
        let (programs, indexer, setup) = (self.programs, self.indexer, self.setup);
        let (batch, rows) = (setup.batch as u32, setup.batch as usize);
        let attended = g.output("attended", setup.rows(setup.slots(), 4));
        let hidden = g.output("hidden", setup.hidden_bytes());

        // saved = x.clone()
        if let Some(clone) = &clone {
            self.alloc(clone, main);
            let node = g.launch(main, Work::copy("clone x", &kept.x, clone));
            self.bindings.copy(node, kept.x.id(), clone.id());
        }

        // k, w, q = index_projections(x)
        self.alloc(&t.k, main);
        self.launch(g, main, self.project("project k", &programs.project, &kept.x, &t.k, [KEY, 8])?)?;
        self.alloc(&t.w, main);
        self.launch(g, main, self.project("project w", &programs.project_f32, &kept.x, &t.w, [HEADS, 1024])?)?;
        if owns_pair {
            self.alloc(&q, main);
        }
        self.launch(g, main, self.project("project q", &indexer.project_q, &kept.x, &q, [HEADS * KEY, 0])?)?;

        // with stream(alternate): store(k); selected = top_k(logits(q, w))
        g.order(main, alternate);
        if let Some([zeros, out]) = &kept.other {
            let other = Launch::new(&programs.other_work, [1, 1, 1]).buffer(zeros)?.buffer(out)?;
            self.launch(g, alternate, other.scalar(I32(setup.late))?)?;
        }
        let store = Launch::named("store k", &indexer.store, store_grid(rows, 1));
        let store = store.rows(&t.k, 0, i64::from(KEY))?.buffer(&kept.slots)?;
        self.launch(g, alternate, self.pages(store, kept)?.scalar(I32(setup.batch))?)?;
        self.alloc(&t.logits, alternate);
        let logits =
            Launch::named("logits", &indexer.logits, logits_grid(BF16_CTAS_PER_SM, rows, 1, MAX_LEN as u64, SMS));
        let logits = self.pages(logits.buffer(&q)?, kept)?.buffer(&t.w)?.buffer(&kept.lens)?;
        let logits = logits.rows(&kept.table, 0, i64::from(PAGES))?.rows(&t.logits, 0, i64::from(MAX_LEN))?;
        self.launch(g, alternate, logits.scalar(I32(PAGES))?.scalar(I32(0))?)?;
        self.alloc(&t.selected, alternate);
        let topk = Launch::named("top-k", &programs.topk, topk_grid(rows)).rows(&t.logits, 0, i64::from(MAX_LEN))?;
        let topk = topk.buffer(&kept.lens)?.rows(&kept.table, 0, i64::from(PAGES))?.buffer(&t.selected)?;
        self.launch(g, alternate, topk.scalar(I32(1))?)?;
        self.drop(&t.logits);
        self.host.push(HostStep::UsedOnAlternate(vec![t.k.id(), t.w.id(), q.id()]));

        // attention_q, kv = attention_projections(x)
        self.alloc(&t.attention_q, main);
        self.alloc(&t.partials, main);
        let split = self.project("q up (split)", &programs.project_f32, &kept.x, &t.partials, [SPLIT, 512])?;
        self.launch(g, main, split)?;
        self.alloc(&t.kv, main);
        self.launch(g, main, self.project("kv down", &programs.project, &kept.x, &t.kv, [LATENT, 2048])?)?;
        let sum = Launch::named("q up (sum)", &programs.sum_partials, [(ATTENTION_Q as u32).div_ceil(512), batch, 1]);
        let sum = sum.rows(&t.partials, 0, i64::from(SPLIT))?.rows(&t.attention_q, 0, i64::from(ATTENTION_Q))?;
        self.launch(g, main, sum.scalar(I32(ATTENTION_Q))?)?;
        self.drop(&t.partials);

        // assert torch.equal(saved, x); del saved
        if let (Some(clone), Some(differing)) = (&clone, &kept.differing) {
            let compare = Launch::named("compare x", &programs.compare, [1, 1, 1]).buffer(&kept.x)?.buffer(clone)?;
            self.launch(g, main, compare.buffer(differing)?.scalar(I32(setup.batch * HIDDEN))?)?;
            self.drop(clone);
        }

        // del k, w, q: the alternate stream may still read them
        self.host.push(HostStep::Forget(vec![t.k.id(), t.w.id()]));
        if owns_pair {
            self.host.push(HostStep::Forget(vec![q.id()]));
            self.alloc(&residual, main);
        }

        // residual = keep(x)
        self.launch(g, main, self.project("keep residual", &programs.project, &kept.x, &residual, [HIDDEN, 0])?)?;

        // current_stream().wait_stream(alternate)
        g.order(alternate, main);
        self.host.push(HostStep::Joined);

        // return attend(selected, attention_q, kv), residual + x
        let attend = Launch::named("attend", &programs.attend, [batch, 1, 1]).buffer(&t.selected)?;
        let attend = attend.rows(&t.attention_q, 0, i64::from(ATTENTION_Q))?.rows(&t.kv, 0, i64::from(LATENT))?;
        let attend = attend.rows(&attended, 0, i64::from(setup.slots()))?.scalar(I32(setup.slots()))?;
        self.launch(g, main, attend)?;
        let add = Launch::named("add residual", &programs.add, [(HIDDEN as u32).div_ceil(1024), batch, 1]);
        let add = add.rows(&residual, 0, i64::from(HIDDEN))?.rows(&kept.x, 0, i64::from(HIDDEN))?;
        self.launch(g, main, add.rows(&hidden, 0, i64::from(HIDDEN))?.scalar(I32(HIDDEN))?)
    }

    /// The pages of index keys, and of their scales if they have any.
    fn pages(&self, launch: Launch<'p>, kept: &Kept) -> Result<Launch<'p>, LaunchError> {
        let launch = launch.rows(&kept.keys, 0, i64::from(PAGE * KEY))?;
        match &kept.scales {
            Some(scales) => launch.rows(scales, 0, i64::from(PAGE)),
            None => Ok(launch),
        }
    }

    /// What the buffers hold before a replay; the slots of this step's tokens.
    fn fill(&mut self, kept: &Kept) -> Vec<i64> {
        let Setup { keys, batch, .. } = self.setup;
        let lens: Vec<i32> = (0..batch).map(|request| MAX_LEN - 24 * (request % 4)).collect();
        let page = |request: i32, page: i32| 1 + request * PAGES + page;
        let table = (0..batch).flat_map(|request| (0..PAGES).map(move |at| page(request, at)));
        let slots: Vec<i64> = (0..batch)
            .map(|request| {
                let last = lens[request as usize] - 1;
                i64::from(page(request, last / PAGE) * PAGE + last % PAGE)
            })
            .collect();
        let elements = self.setup.slots() as u64 * KEY as u64;
        let content = match keys {
            KeyFormat::Bf16 => bf16s(2, elements),
            // Magnitudes below 2, so no NaN.
            KeyFormat::Fp8 => (0..elements).map(|at| hash(2, at) as u8 & 0b1011_1111).collect(),
        };
        self.bindings.contents(kept.x.id(), bf16s(1, (batch * HIDDEN) as u64));
        self.bindings.contents(kept.slots.id(), slots.iter().flat_map(|slot| slot.to_le_bytes()).collect());
        self.bindings.contents(kept.lens.id(), lens.iter().flat_map(|len| len.to_le_bytes()).collect());
        self.bindings.contents(kept.table.id(), table.flat_map(i32::to_le_bytes).collect());
        self.bindings.contents(kept.keys.id(), content);
        if let Some([zeros, _]) = &kept.other {
            self.bindings.contents(zeros.id(), vec![0; 256]);
        }
        if let Some(scales) = &kept.scales {
            let scales_of = (0..self.setup.slots()).map(|slot| 0.25 + (slot % 7) as f32 / 8.0);
            self.bindings.contents(scales.id(), scales_of.flat_map(f32::to_le_bytes).collect());
        }
        slots
    }
}

/// Noise of one stream of numbers, the same in every run.
fn hash(stream: u64, at: u64) -> u64 {
    let mut z = (stream << 40 ^ at).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Values between -1 and 1.
fn bf16s(stream: u64, count: u64) -> Vec<u8> {
    let value = |at| (hash(stream, at) >> 40) as f32 / (1u64 << 23) as f32 - 1.0;
    (0..count).flat_map(|at| bf16::from_f32(value(at)).to_le_bytes()).collect()
}
