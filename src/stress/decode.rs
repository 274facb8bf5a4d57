//! One layer of a decode step, as the stress test records it: the indexer's real kernels on a side stream, the rest of the
//! layer on the main one.
//!
//! ```text
//! main   embed k, w, q ──┬── kv ── split ── gate ── sum ── keep residual ── add ──┬── attend ── open
//!                        │                                                        │
//! side                   └── [other work] ── store k ── logits ── top-k ──────────┘
//! ```
//!
//! Values are a hash of the row's token, so that a stale or foreign byte is another number.

use lathe_codegen::contract::ScalarValue::I32;
use lathe_codegen::ir::Kernel;
use lathe_codegen::prelude::*;
use lathe_codegen::target::Target;
use lathe_dsl::{device, kernel};
use lathe_graph::build::{Bytes, Capture, Lasting, Recording, Stream};
use lathe_graph::model::{BufferId, GraphId, NodeId, Pool};
use lathe_kernels::contract::KeyFormat;
use lathe_kernels::launch::{BF16_CTAS_PER_SM, STAGES, logits_grid, store_grid, topk_grid};
use lathe_runtime::program::Program;
use lathe_runtime::replay::{Bindings, Launch};

use crate::gpu_test::Failure;

/// Keys of a page.
pub const PAGE: usize = 64;
/// The longest context, in keys.
pub const MAX_LEN: usize = 1024;
/// Entries that the top-k selects.
pub const K: usize = 512;
/// Elements of a key.
const KEY: usize = 128;
const HEADS: usize = 64;
const HIDDEN: usize = 7168;
/// Bytes of a projection's workspace, which is as large for one row as for sixteen.
const PARTIALS: u64 = 16 * 240 * 4;

/// A number between -1 and 1 for a token's column.
#[device]
fn hashed(token: Scalar<i32>, column: Scalar<i32>, salt: Scalar<i32>) -> Scalar<f32> {
    let mixed = token.to::<u32>() * 2_654_435_761 + column.to::<u32>() * 40_503 + salt.to::<u32>() * 97;
    let folded = (mixed ^ (mixed >> 15)) * 2_246_822_519;
    (((folded >> 13) & 2047).to::<i32>().to::<f32>() - 1024.0f32) * (1.0f32 / 1024.0)
}

macro_rules! embed {
    ($name:ident, $dtype:ident, $what:literal, $lanes:literal, $pack:expr) => {
        #[doc = concat!("out[r, c] = a hash of row r's token and c, in ", $what, ".")]
        #[kernel(warps = 4)]
        pub fn $name(
            #[read] tokens: Slice<i32>,
            #[write_part] out: Rows<$dtype>,
            columns: Scalar<i32>,
            salt: Scalar<i32>,
        ) {
            let row = cta::y();
            let column = (cta::x() * 128 + thread::id()) * $lanes;
            pdl::wait();
            if column < columns {
                let token = tokens.at(row).load();
                let values: [Scalar<f32>; $lanes] = std::array::from_fn(|i| hashed(token, column + i as i32, salt));
                out.row(row).at(column).store_vector($pack(&values));
            }
        }
    };
}

fn halves(values: &[Scalar<f32>; 8]) -> Vector<bf16> {
    Vector::of(&values.map(|x| x.to::<bf16>()))
}

embed!(embed_bf16, bf16, "bf16", 8, halves);
embed!(embed_e4m3, e4m3, "e4m3", 8, Vector::saturating);
embed!(embed_f32, f32, "f32", 4, Vector::of);

/// out[r, c] = a[r, c % width].
#[kernel(warps = 4)]
pub fn spread(#[read] a: Rows<f32>, #[write_part] out: Rows<f32>, columns: Scalar<i32>, width: Scalar<i32>) {
    let row = cta::y();
    let column = cta::x() * 128 + thread::id();
    pdl::wait();
    if column < columns {
        out.row(row).at(column).store(a.row(row).at(column % width).load());
    }
}

/// out = a, row by row.
#[kernel(warps = 4)]
pub fn pass(#[read] a: Rows<bf16>, #[write_part] out: Rows<bf16>, columns: Scalar<i32>) {
    let row = cta::y();
    let column = (cta::x() * 128 + thread::id()) * 8;
    pdl::wait();
    if column < columns {
        out.row(row).at(column).store_vector(a.row(row).at(column).load_vector(8));
    }
}

/// Takes the time of `loads` loads, each after the one before. `zeros` holds zeros.
#[kernel(warps = 1)]
pub fn other_work(#[read] zeros: Slice<i32>, #[write_part] out: Slice<i32>, loads: Scalar<i32>) {
    pdl::wait();
    let mut at = Scalar::from(0);
    for _ in Scalar::from(0)..loads {
        at = zeros.at(at).load();
    }
    out.at(thread::id()).store(at);
}

/// The kernels of a layer, for both formats of keys.
pub struct Programs {
    embed: Program,
    embed_e4m3: Program,
    embed_f32: Program,
    spread: Program,
    pass: Program,
    other_work: Program,
    store: [Program; 2],
    logits: [Program; 2],
    topk: Program,
}

impl Programs {
    /// Compiles them.
    ///
    /// # Errors
    /// What tracing or compiling says.
    pub fn compile(target: Target, compile: impl Fn(&Kernel) -> Result<Program, Failure>) -> Result<Self, Failure> {
        use lathe_kernels::{bf16_logits, bf16_store, fp8_logits, fp8_store, topk};
        let heads = HEADS as i32;
        Ok(Programs {
            embed: compile(&embed_bf16()?)?,
            embed_e4m3: compile(&embed_e4m3()?)?,
            embed_f32: compile(&embed_f32()?)?,
            spread: compile(&spread()?)?,
            pass: compile(&pass()?)?,
            other_work: compile(&other_work()?)?,
            store: [
                compile(&bf16_store::bf16_index_k_store::<i64>(1)?)?,
                compile(&fp8_store::fp8_index_k_store::<i64>(false, 1)?)?,
            ],
            logits: [
                compile(&bf16_logits::bf16_paged_mqa_logits(heads, 1, STAGES)?)?,
                compile(&fp8_logits::fp8_paged_mqa_logits(heads, 1, STAGES, target)?)?,
            ],
            topk: compile(&topk::topk_page_transform(K as i32)?)?,
        })
    }
}

/// What is decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// The format of index keys and queries.
    pub keys: KeyFormat,
    /// Rows of the bucket.
    pub rows: usize,
    /// Pages of the pool of keys; page 0 is nobody's.
    pub pages: usize,
    /// Loads that other work on the side stream takes before the indexer's.
    pub late: i32,
}

impl Setup {
    /// Bytes of a page of keys.
    pub fn page_bytes(self) -> u64 {
        (PAGE * KEY * self.keys.dtype().size()) as u64
    }
}

/// A recorded layer.
pub struct Layer<'p> {
    /// The recording.
    pub pool: Pool,
    /// Its graph.
    pub graph: GraphId,
    /// What its nodes do.
    pub bindings: Bindings<'p>,
    /// The rows' tokens, `rows` i32.
    pub tokens: BufferId,
    /// Where each row's key goes, `rows` i64; negative stores nothing.
    pub slots: BufferId,
    /// Context lengths, `rows` i32.
    pub lens: BufferId,
    /// Page ids, `rows` times 16 i32.
    pub table: BufferId,
    /// The pool of keys.
    pub keys: BufferId,
    /// The selected slots, `rows` times 512 i32, in any order.
    pub picks: BufferId,
    /// What else the layer gives.
    pub outputs: [BufferId; 3],
    /// The nodes of the side stream.
    pub indexer: Vec<NodeId>,
}

struct Tape<'p> {
    bindings: Bindings<'p>,
    indexer: Vec<NodeId>,
}

impl<'p> Tape<'p> {
    fn run(&mut self, g: &mut Capture, on: Stream, launch: Launch<'p>) -> Result<NodeId, Failure> {
        let node = g.launch(on, launch.work()?);
        self.bindings.kernel(node, launch);
        if on != g.main() {
            self.indexer.push(node);
        }
        Ok(node)
    }
}

struct Kept {
    tokens: Lasting,
    slots: Lasting,
    lens: Lasting,
    table: Lasting,
    keys: Lasting,
    scales: Option<Lasting>,
    late: Option<[Lasting; 2]>,
}

impl<'p> Layer<'p> {
    /// Records it.
    ///
    /// # Errors
    /// What the checker says, which finds nothing: only addresses can be wrong.
    pub fn record(programs: &'p Programs, setup: Setup) -> Result<Self, Failure> {
        let Setup { keys, rows, pages, late } = setup;
        let mut r = Recording::new();
        let count = rows as u64;
        let kept = Kept {
            tokens: r.input("tokens", 4 * count),
            slots: r.input("slots", 8 * count),
            lens: r.input("context lens", 4 * count),
            table: r.input("block table", 4 * count * (MAX_LEN / PAGE) as u64),
            keys: r.persistent("index keys", pages as u64 * setup.page_bytes()),
            scales: (keys == KeyFormat::Fp8).then(|| r.persistent("index scales", (pages * PAGE * 4) as u64)),
            late: (late > 0).then(|| [r.input("zeros", 256), r.scratch("other work", 128)]),
        };
        let mut tape = Tape { bindings: Bindings::new(), indexer: Vec::new() };
        // Magnitudes below 2, so no NaN in either format.
        let noise = |at: u64| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
        let content: Vec<u8> = (0..pages as u64 * setup.page_bytes())
            .map(|at| if keys == KeyFormat::Bf16 && at % 2 == 1 { 0x3e | (noise(at) & 0x81) } else { noise(at) & 0xbf })
            .collect();
        tape.bindings.contents(kept.keys.id(), content);
        if let Some(scales) = &kept.scales {
            let scale = |slot: usize| (0.25 + (slot % 7) as f32 / 8.0).to_le_bytes();
            tape.bindings.contents(scales.id(), (0..pages * PAGE).flat_map(scale).collect());
        }
        if let Some([zeros, _]) = &kept.late {
            tape.bindings.contents(zeros.id(), vec![0; 256]);
        }
        let mut recorded: Result<_, Failure> = Err("nothing was recorded".into());
        let graph = r.capture("layer", "main", |g| recorded = tape.layer(g, programs, setup, &kept));
        let (picks, outputs) = recorded?;
        Ok(Layer {
            pool: r.check()?.pool().clone(),
            graph,
            bindings: tape.bindings,
            tokens: kept.tokens.id(),
            slots: kept.slots.id(),
            lens: kept.lens.id(),
            table: kept.table.id(),
            keys: kept.keys.id(),
            picks,
            outputs,
            indexer: tape.indexer,
        })
    }
}

impl<'p> Tape<'p> {
    fn layer(
        &mut self,
        g: &mut Capture,
        programs: &'p Programs,
        setup: Setup,
        kept: &Kept,
    ) -> Result<(BufferId, [BufferId; 3]), Failure> {
        let rows = setup.rows;
        let format = usize::from(setup.keys == KeyFormat::Fp8);
        let (main, side) = (g.main(), g.stream("side"));
        let bytes = |columns: usize, size: usize| (rows * columns * size) as u64;
        let picks = g.output("picks", bytes(K, 4));
        let attended = g.output("attended", bytes(2 * KEY, 2));
        let (mixed, hidden) = (g.output("mixed", bytes(HIDDEN, 4)), g.output("hidden", bytes(HIDDEN, 2)));
        let q_bytes = bytes(HEADS * KEY, setup.keys.dtype().size());
        let (key_stride, table_stride) = ((PAGE * KEY) as i64, (MAX_LEN / PAGE) as i64);
        let tensors = [
            ("k", bytes(KEY, 2)),
            ("w", bytes(HEADS, 4)),
            ("q", q_bytes),
            ("logits", bytes(MAX_LEN, 4)),
            ("partials", PARTIALS),
            ("kv", bytes(KEY, 2)),
            ("gate", bytes(KEY, 2)),
            ("residual", bytes(HIDDEN, 2)),
        ];
        g.transients(tensors, |g, [k, w, q, logits, partials, kv, gate, residual]| {
            let embed = |name: &str, program: &'p Program, lanes: usize, columns: usize, salt: i32| {
                let grid = [columns.div_ceil(128 * lanes) as u32, rows as u32, 1];
                let launch = Launch::named(name, program, grid).buffer(&kept.tokens)?;
                Ok::<_, Failure>((launch, columns as i64, [I32(columns as i32), I32(salt)]))
            };
            macro_rules! embed {
                ($name:literal, $program:ident, $lanes:literal, $columns:expr, $salt:literal, $out:expr) => {{
                    let (launch, stride, [columns, salt]) = embed($name, &programs.$program, $lanes, $columns, $salt)?;
                    self.run(g, main, launch.rows($out, 0, stride)?.scalar(columns)?.scalar(salt)?)?
                }};
            }
            embed!("embed k", embed, 8, KEY, 1, &k);
            embed!("embed w", embed_f32, 4, HEADS, 2, &w);
            match setup.keys {
                KeyFormat::Bf16 => embed!("embed q", embed, 8, HEADS * KEY, 3, &q),
                KeyFormat::Fp8 => embed!("embed q", embed_e4m3, 8, HEADS * KEY, 3, &q),
            };

            g.order(main, side);
            // The workspace's block is free when `residual` is allocated, and fits it best if there is one row.
            embed!("kv down", embed, 8, KEY, 6, &kv);
            embed!("split", embed_f32, 4, 240, 4, &partials);
            embed!("gate", embed, 8, KEY, 7, &gate);
            let sum = Launch::named("sum", &programs.spread, [HIDDEN.div_ceil(128) as u32, rows as u32, 1]);
            let sum = sum.rows(&partials, 0, 240)?.rows(&mixed, 0, HIDDEN as i64)?;
            self.run(g, main, sum.scalar(I32(HIDDEN as i32))?.scalar(I32(240))?)?;

            if let Some([zeros, out]) = &kept.late {
                let other = Launch::new(&programs.other_work, [1, 1, 1]).buffer(zeros)?.buffer(out)?;
                self.run(g, side, other.scalar(I32(setup.late))?)?;
            }
            let pages = |launch: Launch<'p>| -> Result<Launch<'p>, Failure> {
                let launch = launch.rows(&kept.keys, 0, key_stride)?;
                Ok(match &kept.scales {
                    Some(scales) => launch.rows(scales, 0, PAGE as i64)?,
                    None => launch,
                })
            };
            let store = Launch::named("store k", &programs.store[format], store_grid(rows, 1));
            let store = store.rows(&k, 0, KEY as i64)?.buffer(&kept.slots)?;
            self.run(g, side, pages(store)?.scalar(I32(rows as i32))?)?;
            let grid = logits_grid(BF16_CTAS_PER_SM, rows, 1, MAX_LEN as u64, 132);
            let score = Launch::named("logits", &programs.logits[format], grid);
            let score = pages(score.buffer(&q)?)?.buffer(&w)?.buffer(&kept.lens)?;
            let score = score.rows(&kept.table, 0, table_stride)?.rows(&logits, 0, MAX_LEN as i64)?;
            self.run(g, side, score.scalar(I32(table_stride as i32))?.scalar(I32(0))?)?;
            let topk = Launch::named("top-k", &programs.topk, topk_grid(rows)).rows(&logits, 0, MAX_LEN as i64)?;
            let topk = topk.buffer(&kept.lens)?.rows(&kept.table, 0, table_stride)?.buffer(&picks)?;
            self.run(g, side, topk.scalar(I32(1))?)?;

            embed!("keep residual", embed, 8, HIDDEN, 5, &residual);
            let add = Launch::named("add", &programs.pass, [HIDDEN.div_ceil(1024) as u32, rows as u32, 1]);
            let add = add.rows(&residual, 0, HIDDEN as i64)?.rows(&hidden, 0, HIDDEN as i64)?;
            self.run(g, main, add.scalar(I32(HIDDEN as i32))?)?;
            g.order(side, main);
            for (name, from, half) in [("attend", &kv, 0), ("open", &gate, 1)] {
                let attend = Launch::named(name, &programs.pass, [1, rows as u32, 1]).rows(from, 0, KEY as i64)?;
                let attend = attend.rows(&attended, half * 2 * KEY as u64, 2 * KEY as i64)?;
                self.run(g, main, attend.scalar(I32(KEY as i32))?)?;
            }
            Ok((picks.id(), [mixed.id(), hidden.id(), attended.id()]))
        })
    }
}

#[cfg(test)]
mod tests {
    use lathe_graph::check::check;
    use lathe_graph::explore::Schedule;
    use lathe_graph::finding::Code;
    use lathe_runtime::instrument::forced;
    use lathe_runtime::nvrtc::Compiler;
    use lathe_runtime::replay::EmulatedStep;
    use lathe_runtime::toolchain::Toolchain;

    use super::*;
    use crate::gpu_test::scenario::{disjoint, framework, planned};

    fn program(kernel: &Kernel) -> Result<Program, Failure> {
        let toolchain = Toolchain::new(false, |_| {});
        Ok(Program::compile(&Compiler::load(&toolchain)?, kernel, Target::Sm90a)?)
    }

    #[test]
    fn sizes_decide_whether_the_frameworks_addresses_are_harmless() -> Result<(), Failure> {
        let programs = Programs::compile(Target::Sm90a, program)?;
        for (keys, rows, harmful) in [
            (KeyFormat::Bf16, 1, false),
            (KeyFormat::Bf16, 2, true),
            (KeyFormat::Bf16, 4, true),
            (KeyFormat::Fp8, 1, false),
            (KeyFormat::Fp8, 2, false),
            (KeyFormat::Fp8, 4, false),
        ] {
            for late in [0, 100] {
                let layer = Layer::record(&programs, Setup { keys, rows, pages: 40, late })?;
                let report = check(&layer.pool, Some(&framework(&layer.pool)?))?;
                assert_eq!(report.of(Code::E2).count() > 0, harmful, "{keys:?} {rows} {:?}", report.findings);
                assert!(check(&layer.pool, Some(&planned(&layer.pool)?))?.is_clean());
                assert!(check(&layer.pool, Some(&disjoint(&layer.pool)?))?.is_clean());
            }
        }
        Ok(())
    }

    #[test]
    fn the_pair_that_shares_bytes_decides_what_is_stored() -> Result<(), Failure> {
        let programs = Programs::compile(Target::Sm90a, program)?;
        let setup = Setup { keys: KeyFormat::Bf16, rows: 2, pages: 40, late: 0 };
        let mut layer = Layer::record(&programs, setup)?;
        let bytes = |values: &[i32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
        layer.bindings.contents(layer.tokens, bytes(&[11, 12]));
        layer.bindings.contents(layer.lens, bytes(&[70, 65]));
        layer.bindings.contents(layer.slots, [197i64, 320].iter().flat_map(|slot| slot.to_le_bytes()).collect());
        let mut table = [0; 2 * MAX_LEN / PAGE];
        (table[0], table[1], table[16], table[17]) = (2, 3, 4, 5);
        layer.bindings.contents(layer.table, bytes(&table));
        let schedule = Schedule::new(&layer.pool, layer.graph);
        let find = |name| layer.pool.find_node(name).unwrap();
        let (store, keep) = (find("store k"), find("keep residual"));
        for (placement, harmed) in [(framework(&layer.pool)?, true), (planned(&layer.pool)?, false)] {
            let mut step = EmulatedStep::new(&layer.pool, &placement, &layer.bindings)?;
            let seen = forced(&mut step, &schedule, store, keep)?;
            assert_eq!((seen.first_before_second, seen.second_before_first), (Some(true), Some(!harmed)));
        }
        Ok(())
    }
}
