//! The A/B table: a decode loop over every axis that a corruption may hang on, and how often it is wrong in each cell.
//!
//! A conversation is a sequence of steps on one cache: sequences grow, take pages, end, and give pages to the next ones.
//! Each step runs twice, in the cell's way and, as the reference, one kernel after the other with bytes for every tensor;
//! what differs is counted per step and per conversation.

pub mod decode;
mod soak;

use std::collections::BTreeMap;
use std::fmt;

use lathe_codegen::contract::POISON;
use lathe_graph::model::BufferId;
use lathe_graph::order::Order;
use lathe_graph::plan::{Options, Planner};
use lathe_kernels::cases::Noise;
use lathe_kernels::contract::KeyFormat;
use lathe_runtime::device::{Allocation, Event, Stream};
use lathe_runtime::instrument::Rate;
use lathe_runtime::replay::{Captured, CudaStep, Edges, Mode, Replay};
use serde::{Deserialize, Serialize};

use crate::gpu_test::scenario::{disjoint, framework};
use crate::gpu_test::{Failure, Gpu};
use decode::{K, Layer, MAX_LEN, PAGE, Programs, Setup};
pub use soak::{Soak, soak};

/// What of the step is captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Capture {
    /// Nothing.
    Eager,
    /// All but the indexer.
    IndexerEager,
    /// Everything.
    Captured,
}

/// What keeps someone outside the step, who evicts a page of keys and loads it again, apart from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Writer {
    /// There is nobody.
    Off,
    /// Events, both ways.
    Event,
    /// It works while nothing replays.
    Quiescent,
    /// It works beside the replay, on pages that no sequence has.
    Lease,
    /// Nothing: the control that must fail.
    Unordered,
}

/// Who places the tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Allocator {
    /// Lathe's planner.
    Ours,
    /// A caching allocator that knows streams and not graphs.
    Framework,
}

/// One way of decoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Cell {
    /// Whether keys and queries are fp8; bf16 otherwise.
    pub fp8: bool,
    /// What is captured.
    pub capture: Capture,
    /// Requests.
    pub batch: usize,
    /// Whether the indexer has a stream of its own.
    pub two_streams: bool,
    /// Who else writes.
    pub writer: Writer,
    /// Who places the tensors.
    pub allocator: Allocator,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = if self.fp8 { "fp8" } else { "bf16" };
        let streams = if self.two_streams { "two-streams" } else { "one-stream" };
        let word = |value: serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let capture = word(serde_json::to_value(self.capture).unwrap_or_default());
        let writer = word(serde_json::to_value(self.writer).unwrap_or_default());
        let allocator = word(serde_json::to_value(self.allocator).unwrap_or_default());
        write!(f, "{keys} {capture} batch={} {streams} writer={writer} {allocator}", self.batch)
    }
}

/// What a cell has shown so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Steps.
    pub steps: u64,
    /// Those that left something else than the reference.
    pub corrupted_steps: u64,
    /// Conversations.
    pub conversations: u64,
    /// Those with a corrupted step, or a corrupted cache at the end.
    pub corrupted_conversations: u64,
}

impl Tally {
    /// Per step.
    pub fn per_step(self) -> Rate {
        Rate { events: self.corrupted_steps, trials: self.steps }
    }

    /// Per conversation.
    pub fn per_conversation(self) -> Rate {
        Rate { events: self.corrupted_conversations, trials: self.conversations }
    }
}

/// What a run has shown so far, cell by cell: kept between runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// By the cell's name.
    pub cells: BTreeMap<String, Tally>,
    /// The long run of one step.
    #[serde(default)]
    pub soak: Soak,
}

/// How a conversation goes.
#[derive(Clone, Copy, Debug)]
pub struct Talk {
    /// Steps of a conversation.
    pub steps: u64,
    /// Loads that other work on the side stream takes before the indexer's.
    pub late: i32,
}

/// A cell ready to run, beside its reference.
pub struct Bench<'a, 'p> {
    cell: Cell,
    layer: &'a Layer<'p>,
    page_bytes: u64,
    pages: usize,
    tested: CudaStep<'a>,
    reference: CudaStep<'a>,
    replay: Replay,
    right: Replay,
    outsider: Outsider,
}

/// Someone outside the step, with a stream and memory of their own.
struct Outsider {
    stream: Stream,
    stash: Allocation,
    done: Event,
    replayed: Event,
}

/// Rows of the bucket that `batch` requests run in.
fn bucket(batch: usize) -> usize {
    batch.next_power_of_two()
}

/// What a cell decodes.
pub fn setup(cell: Cell, talk: Talk) -> Setup {
    let keys = if cell.fp8 { KeyFormat::Fp8 } else { KeyFormat::Bf16 };
    let rows = bucket(cell.batch);
    Setup { keys, rows, pages: 2 + rows * (MAX_LEN / PAGE + 2), late: talk.late }
}

impl<'a, 'p> Bench<'a, 'p> {
    /// Prepares `cell` on `layer`, which [`setup`] described.
    ///
    /// # Errors
    /// The device's.
    pub fn new(gpu: &'a Gpu, layer: &'a Layer<'p>, setup: Setup, cell: Cell) -> Result<Self, Failure> {
        let placement = match cell.allocator {
            Allocator::Ours => Planner::new(&layer.pool, &Order::of(&layer.pool)?).plan(&Options::default()).placement,
            Allocator::Framework => framework(&layer.pool)?,
        };
        let tested = CudaStep::unproved(gpu.device, &layer.pool, &placement, &layer.bindings)?;
        let reference = CudaStep::unproved(gpu.device, &layer.pool, &disjoint(&layer.pool)?, &layer.bindings)?;
        let captured = match cell.capture {
            Capture::Eager => Captured::Nothing,
            Capture::IndexerEager => Captured::AllBut(layer.indexer.iter().copied().collect()),
            Capture::Captured => Captured::Whole,
        };
        let edges = if cell.two_streams { Edges::Recorded } else { Edges::Serialised };
        let replay = tested.prepare(layer.graph, &Mode { captured, edges })?;
        let serial = Mode { captured: Captured::Nothing, edges: Edges::Serialised };
        let right = reference.prepare(layer.graph, &serial)?;
        let outsider = Outsider {
            stream: gpu.device.new_stream()?,
            stash: gpu.device.allocate("stash", setup.page_bytes())?,
            done: gpu.device.new_event()?,
            replayed: gpu.device.new_event()?,
        };
        let (page_bytes, pages) = (setup.page_bytes(), setup.pages);
        Ok(Bench { cell, layer, page_bytes, pages, tested, reference, replay, right, outsider })
    }

    /// Runs one conversation, and counts it.
    ///
    /// # Errors
    /// The device's.
    pub fn converse(&mut self, talk: Talk, seed: u64, tally: &mut Tally) -> Result<(), Failure> {
        self.tested.restore()?;
        self.reference.restore()?;
        let mut host = Host::new(self.cell.batch, bucket(self.cell.batch), self.pages, seed);
        let mut is_corrupted = false;
        for _ in 0..talk.steps {
            host.advance();
            for (buffer, bytes) in host.inputs(self.layer) {
                self.tested.write(buffer, &bytes)?;
                self.reference.write(buffer, &bytes)?;
            }
            self.right.run(&self.reference)?;
            self.step(&host)?;
            let is_wrong = self.outputs(&self.tested)? != self.outputs(&self.reference)?;
            tally.steps += 1;
            tally.corrupted_steps += u64::from(is_wrong);
            is_corrupted |= is_wrong;
        }
        is_corrupted |= self.tested.read(self.layer.keys)? != self.reference.read(self.layer.keys)?;
        tally.conversations += 1;
        tally.corrupted_conversations += u64::from(is_corrupted);
        Ok(())
    }

    /// One replay, and what the one outside does around it.
    fn step(&self, host: &Host) -> Result<(), Failure> {
        let Outsider { stream, done, replayed, .. } = &self.outsider;
        let lane = self.tested.lane(self.layer.pool.graph(self.layer.graph).lanes[0].stream);
        match self.cell.writer {
            Writer::Off => self.replay.launch(&self.tested)?,
            Writer::Quiescent => {
                self.tested.wait()?;
                self.evict_and_load(host.page_in_use())?;
                stream.synchronize()?;
                self.replay.launch(&self.tested)?;
            }
            Writer::Event => {
                lane.record(replayed)?;
                stream.wait(replayed)?;
                self.evict_and_load(host.page_in_use())?;
                stream.record(done)?;
                lane.wait(done)?;
                self.replay.launch(&self.tested)?;
            }
            Writer::Lease => {
                self.replay.launch(&self.tested)?;
                self.evict_and_load(host.leased_page())?;
            }
            Writer::Unordered => {
                self.replay.launch(&self.tested)?;
                self.evict_and_load(host.page_in_use())?;
            }
        }
        stream.synchronize()?;
        Ok(self.tested.wait()?)
    }

    /// Saves a page, spoils it, and brings it back, a few times over.
    fn evict_and_load(&self, page: i32) -> Result<(), Failure> {
        let Outsider { stream, stash, .. } = &self.outsider;
        let start = page as u64 * self.page_bytes;
        let range = start..start + self.page_bytes;
        self.tested.save(stream, self.layer.keys, range.clone(), stash)?;
        for _ in 0..4 {
            self.tested.fill(stream, self.layer.keys, range.clone(), POISON)?;
            self.tested.load(stream, self.layer.keys, range.clone(), stash)?;
        }
        Ok(())
    }

    /// What the requests see: their picks in ascending order, and the rest as it is.
    fn outputs(&self, step: &CudaStep) -> Result<(Vec<i32>, [Vec<u8>; 3]), Failure> {
        let bytes = step.read(self.layer.picks)?;
        let mut picks: Vec<i32> = bytes.as_chunks().0.iter().map(|bytes| i32::from_le_bytes(*bytes)).collect();
        picks.truncate(self.cell.batch * K);
        picks.chunks_mut(K).for_each(<[i32]>::sort_unstable);
        let [mixed, hidden, attended] = self.layer.outputs;
        Ok((picks, [step.read(mixed)?, step.read(hidden)?, step.read(attended)?]))
    }
}

/// The engine's host side: who has which pages.
struct Host {
    noise: Noise,
    drawn: u64,
    rows: usize,
    free: Vec<i32>,
    requests: Vec<Request>,
}

struct Request {
    pages: Vec<i32>,
    len: usize,
    token: i32,
}

impl Host {
    fn new(batch: usize, rows: usize, pages: usize, seed: u64) -> Self {
        // Page 0 is nobody's, and the last one is always leased.
        let free = (1..pages as i32 - 1).rev().collect();
        let mut host = Host { noise: Noise::new(seed), drawn: 0, rows, free, requests: Vec::new() };
        for _ in 0..batch {
            let request = host.begin();
            host.requests.push(request);
        }
        host
    }

    fn below(&mut self, n: u64) -> u64 {
        self.drawn += 1;
        self.noise.below(self.drawn, n)
    }

    /// A request whose prompt is in the cache already.
    fn begin(&mut self) -> Request {
        let len = 600 + self.below(200) as usize;
        let pages = self.free.split_off(self.free.len() - len.div_ceil(PAGE));
        Request { pages, len, token: self.below(50_000) as i32 }
    }

    /// Each request grows by a token; now and then one ends, and its pages go to the next.
    fn advance(&mut self) {
        for at in 0..self.requests.len() {
            if self.requests[at].len == MAX_LEN || self.below(24) == 0 {
                let ended = std::mem::take(&mut self.requests[at].pages);
                self.free.extend(ended);
                self.requests[at] = self.begin();
            }
            let token = self.below(50_000) as i32;
            let request = &mut self.requests[at];
            request.len += 1;
            request.token = token;
            if request.len.div_ceil(PAGE) > request.pages.len() {
                request.pages.extend(self.free.pop());
            }
        }
    }

    /// What the step is given; rows up to the bucket's are padding.
    fn inputs(&self, layer: &Layer) -> [(BufferId, Vec<u8>); 4] {
        let padding = Request { pages: Vec::new(), len: 0, token: 0 };
        let rows: Vec<&Request> = self.requests.iter().chain(std::iter::repeat(&padding)).take(self.rows).collect();
        let slot = |request: &Request| match request.len.checked_sub(1) {
            Some(last) => i64::from(request.pages[last / PAGE]) * PAGE as i64 + (last % PAGE) as i64,
            None => -1,
        };
        let table = rows.iter().flat_map(|request| {
            (0..MAX_LEN / PAGE).flat_map(|at| request.pages.get(at).copied().unwrap_or(0).to_le_bytes())
        });
        [
            (layer.tokens, rows.iter().flat_map(|request| request.token.to_le_bytes()).collect()),
            (layer.slots, rows.iter().flat_map(|request| slot(request).to_le_bytes()).collect()),
            (layer.lens, rows.iter().flat_map(|request| (request.len as i32).to_le_bytes()).collect()),
            (layer.table, table.collect()),
        ]
    }

    /// A page that the step reads and does not write.
    fn page_in_use(&self) -> i32 {
        self.requests[0].pages[0]
    }

    /// A page that no request can get.
    fn leased_page(&self) -> i32 {
        self.rows as i32 * (MAX_LEN / PAGE + 2) as i32 + 1
    }
}

/// Every cell of these axes.
pub fn cells(
    keys: &[bool],
    captures: &[Capture],
    batches: &[usize],
    streams: &[bool],
    writers: &[Writer],
    allocators: &[Allocator],
) -> Vec<Cell> {
    let mut cells = Vec::new();
    for (&fp8, &capture) in keys.iter().flat_map(|key| captures.iter().map(move |capture| (key, capture))) {
        for (&batch, &two_streams) in batches.iter().flat_map(|batch| streams.iter().map(move |two| (batch, two))) {
            for (&writer, &allocator) in writers.iter().flat_map(|w| allocators.iter().map(move |a| (w, a))) {
                cells.push(Cell { fp8, capture, batch, two_streams, writer, allocator });
            }
        }
    }
    cells
}

/// Compiles the kernels that every cell runs.
///
/// # Errors
/// What tracing or compiling says.
pub fn programs(gpu: &Gpu) -> Result<Programs, Failure> {
    Programs::compile(gpu.target, |kernel| gpu.program(kernel))
}
