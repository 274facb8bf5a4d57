//! Building graphs in Rust: record, check, plan, replay, each step a type.
//!
//! ```
//! use lathe_graph::build::{Recording, Work};
//!
//! let mut recording = Recording::new();
//! let keys = recording.persistent("keys", 4096);
//! let tokens = recording.input("tokens", 512);
//! recording.capture("decode", "main", |g| {
//!     let (main, side) = (g.main(), g.stream("indexer"));
//!     let scores = g.output("scores", 1024);
//!     g.transient("q", 512, |g, q| {
//!         g.launch(main, Work::kernel("project").reads(&tokens).writes(&q));
//!         g.order(main, side);
//!         g.launch(side, Work::kernel("logits").reads(&q).reads(&keys).writes(&scores));
//!     });
//!     g.order(side, main);
//! });
//! let planned = recording.check().unwrap().plan(&Default::default()).unwrap();
//! assert!(planned.address(&keys).is_some());
//! ```
//!
//! A transient exists only inside the closure it is given to, so it cannot be used elsewhere. Only a
//! recording that was [checked](Recording::check) can be planned, and only a [`Planned`] one, whose bytes
//! were checked too, can be captured and replayed by a runtime.

mod handle;
mod stage;
mod work;

pub use handle::{Bytes, Lasting, Slice, Transient};
pub use stage::{Checked, Planned, Refused};
pub use work::{Accesses, BindError, KernelAccesses, ParameterAccess, Work};

use crate::location::Location;
use crate::model::{Buffer, Discipline, EventId, GraphId, Lifetime, NodeId, Pool, Release, Site, StreamId};
use crate::record::Recorder;
use std::marker::PhantomData;

/// A pool being recorded.
#[derive(Debug, Default)]
pub struct Recording {
    rec: Recorder,
}

/// A stream of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream(StreamId);

/// A recorded event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event(EventId);

impl Recording {
    /// Nothing recorded.
    pub fn new() -> Self {
        Self::default()
    }

    /// What is recorded so far.
    pub fn pool(&self) -> &Pool {
        self.rec.pool()
    }

    #[track_caller]
    fn lasting(&mut self, name: &str, bytes: u64, lifetime: Lifetime) -> Lasting {
        let buffer = Buffer::new(name, bytes, lifetime, Location::caller());
        Lasting(self.rec.pool_mut().add_buffer(buffer))
    }

    /// A buffer whose content survives from replay to replay.
    #[track_caller]
    pub fn persistent(&mut self, name: &str, bytes: u64) -> Lasting {
        self.lasting(name, bytes, Lifetime::Persistent { carried: true })
    }

    /// A buffer with bytes of its own, whose content is worth nothing after a replay.
    #[track_caller]
    pub fn scratch(&mut self, name: &str, bytes: u64) -> Lasting {
        self.lasting(name, bytes, Lifetime::Persistent { carried: false })
    }

    /// A buffer that the caller fills before a replay.
    #[track_caller]
    pub fn input(&mut self, name: &str, bytes: u64) -> Lasting {
        self.lasting(name, bytes, Lifetime::Input)
    }

    /// A buffer that someone outside the graphs uses too, kept apart by `discipline`.
    #[track_caller]
    pub fn external(&mut self, name: &str, bytes: u64, discipline: Discipline) -> Lasting {
        self.lasting(name, bytes, Lifetime::External { discipline })
    }

    /// Records a graph with origin stream `origin`.
    #[track_caller]
    pub fn capture(&mut self, name: &str, origin: &str, body: impl FnOnce(&mut Capture)) -> GraphId {
        let stream = self.rec.pool_mut().stream_named(origin);
        let graph = self.rec.begin(name, stream, Location::caller());
        body(&mut Capture { rec: &mut self.rec, graph, main: Stream(stream) });
        self.rec.end();
        graph
    }

    /// Records eager work on a stream outside the captures; [`Site`] says when it runs.
    #[track_caller]
    pub fn eager(&mut self, site: Site, stream: &str, work: Work) -> NodeId {
        let stream = self.rec.pool_mut().stream_named(stream);
        record(&mut self.rec, work, site, stream)
    }

    /// Records an event after the eager work of `stream`, which a capture may
    /// [wait for](Capture::wait_external) at each replay.
    #[track_caller]
    pub fn eager_event(&mut self, name: &str, stream: &str) -> Event {
        let stream = self.rec.pool_mut().stream_named(stream);
        let event = self.rec.pool_mut().add_event(name, Location::caller());
        self.rec.record_eagerly(event, stream);
        Event(event)
    }

    /// Declares that replays of `a` and `b` may overlap in time. Without it replays are serialised.
    pub fn may_replay_at_once(&mut self, a: GraphId, b: GraphId) {
        self.rec.pool_mut().may_replay_at_once(a, b);
    }

    /// Checks order and lifetimes. What shares bytes is checked once buffers are placed.
    ///
    /// # Errors
    /// [`Refused`], with the recording's pool and the findings.
    pub fn check(self) -> Result<Checked, Refused> {
        Checked::new(self.rec.finish())
    }
}

#[track_caller]
fn record(rec: &mut Recorder, work: Work, site: Site, stream: StreamId) -> NodeId {
    let node = work.into_node(site, stream, Location::caller(), rec.pool());
    rec.node(node)
}

/// A graph being recorded.
#[derive(Debug)]
pub struct Capture<'r> {
    rec: &'r mut Recorder,
    graph: GraphId,
    main: Stream,
}

impl Capture<'_> {
    /// The origin stream.
    pub fn main(&self) -> Stream {
        self.main
    }

    /// The stream of that name. It takes part in the capture once it waits for captured work.
    pub fn stream(&mut self, name: &str) -> Stream {
        Stream(self.rec.pool_mut().stream_named(name))
    }

    /// An output of this graph, live until its next replay, also while other graphs replay.
    #[track_caller]
    pub fn output(&mut self, name: &str, bytes: u64) -> Lasting {
        self.output_until(name, bytes, Release::Held)
    }

    /// An output of this graph, with the caller's promise when it is released.
    #[track_caller]
    pub fn output_until(&mut self, name: &str, bytes: u64, release: Release) -> Lasting {
        let lifetime = Lifetime::Output { graph: self.graph, release };
        let buffer = Buffer::new(name, bytes, lifetime, Location::caller());
        Lasting(self.rec.pool_mut().add_buffer(buffer))
    }

    /// A transient that lives in `body`.
    #[track_caller]
    pub fn transient<R>(
        &mut self,
        name: &str,
        bytes: u64,
        body: impl for<'s> FnOnce(&mut Self, Transient<'s>) -> R,
    ) -> R {
        let transient = self.new_transient(name, bytes);
        body(self, transient)
    }

    /// Several transients that live in `body`, each with its size.
    #[track_caller]
    pub fn transients<R, const N: usize>(
        &mut self,
        sizes: [(&str, u64); N],
        body: impl for<'s> FnOnce(&mut Self, [Transient<'s>; N]) -> R,
    ) -> R {
        let mut made = Vec::with_capacity(N);
        for (name, bytes) in sizes {
            made.push(self.new_transient(name, bytes).id());
        }
        body(self, std::array::from_fn(|i| Transient(made[i], PhantomData)))
    }

    #[track_caller]
    fn new_transient<'s>(&mut self, name: &str, bytes: u64) -> Transient<'s> {
        let lifetime = Lifetime::Transient { graph: self.graph, alloc: None, free: None };
        let buffer = Buffer::new(name, bytes, lifetime, Location::caller());
        Transient(self.rec.pool_mut().add_buffer(buffer), PhantomData)
    }

    /// Records `work` on `stream`, after all that the stream waits for.
    #[track_caller]
    pub fn launch(&mut self, stream: Stream, work: Work) -> NodeId {
        if work.is_programmatic() {
            self.rec.launch_next_programmatically(stream.0);
        }
        record(self.rec, work, Site::Graph(self.graph), stream.0)
    }

    /// Records an event after all work of `stream` so far.
    #[track_caller]
    pub fn record(&mut self, name: &str, stream: Stream) -> Event {
        let event = self.rec.pool_mut().add_event(name, Location::caller());
        self.rec.record(event, stream.0);
        Event(event)
    }

    /// Lets what follows on `stream` wait for `event`.
    #[track_caller]
    pub fn wait(&mut self, event: Event, stream: Stream) {
        self.rec.wait(event.0, stream.0, Location::caller());
    }

    /// Lets what follows on `stream` wait, at each replay, for an event recorded outside.
    pub fn wait_external(&mut self, event: Event, stream: Stream) {
        self.rec.wait_external(event.0, stream.0);
    }

    /// All work of `first` so far comes before what follows on `second`: how a stream forks and joins.
    #[track_caller]
    pub fn order(&mut self, first: Stream, second: Stream) {
        let names = [first, second].map(|s| self.rec.pool().stream(s.0).name.clone());
        let event = self.rec.pool_mut().add_event(names.join(" to "), Location::caller());
        self.rec.record(event, first.0);
        self.rec.wait(event, second.0, Location::caller());
    }
}
