//! Fixes, and what they cost.

use crate::model::{
    Access, Basis, Buffer, BufferId, DroppedWait, Edge, EdgeKind, Effect, Lifetime, Node, NodeId, NodeKind, PdlWait,
    Phase, Placement, Pool, Release, Site, StreamId,
};

/// A way to remove a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Record an event after `from`, wait for it before `to`.
    Event {
        /// Completes first.
        from: NodeId,
        /// Starts second.
        to: NodeId,
    },
    /// Make the programmatic edges into `to` full.
    FullEdge {
        /// The kernel launched programmatically.
        to: NodeId,
    },
    /// Make every CTA of `node` wait before it touches the buffer.
    WaitFirst {
        /// The kernel launched programmatically.
        node: NodeId,
        /// The buffer it touches too early.
        buffer: BufferId,
    },
    /// Give `buffer` bytes that nothing else uses.
    OwnBytes {
        /// The buffer to move.
        buffer: BufferId,
    },
    /// Give what `node` writes, and what reads that, a buffer of its own.
    OwnBuffer {
        /// The node whose write starts a new value.
        node: NodeId,
        /// The buffer now shared by two values.
        buffer: BufferId,
    },
    /// Keep `buffer` until `until` is complete, so that its bytes are not given away before.
    LongerLife {
        /// The buffer that dies too early.
        buffer: BufferId,
        /// The last node that must find it alive.
        until: NodeId,
        /// The buffer that got its bytes, if one did.
        instead_of: Option<BufferId>,
    },
    /// Release the output before another graph replays: copy it out, or synchronise first.
    ReleaseEarlier {
        /// The output.
        buffer: BufferId,
    },
    /// Declare that the buffer's content survives from replay to replay.
    DeclareCarried {
        /// The buffer.
        buffer: BufferId,
    },
    /// Fill the buffer in the graph before `before` reads it.
    Define {
        /// The buffer.
        buffer: BufferId,
        /// The node that reads it.
        before: NodeId,
    },
    /// Declare the buffer persistent, because it is used outside its graph.
    DeclarePersistent {
        /// The buffer.
        buffer: BufferId,
    },
    /// Serialise the replays of the two graphs.
    SerialiseReplays {
        /// One.
        a: crate::model::GraphId,
        /// The other, or the same.
        b: crate::model::GraphId,
    },
    /// Do the outside work only while no graph replays.
    Quiesce {
        /// The outside work.
        node: NodeId,
    },
    /// Let the stream wait for captured work before its first node, and the origin for its last node.
    ForkAndJoin {
        /// The graph.
        graph: crate::model::GraphId,
        /// The stream.
        stream: StreamId,
    },
    /// Drop the wait, or record its event inside the capture.
    DropWait {
        /// Row in [`Pool::dropped_waits`].
        wait: usize,
    },
    /// Capture again, now that what the graph points to has changed.
    Recapture,
}

/// What a fix costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Price {
    /// How much longer the critical path gets: nanoseconds if every node's time is known, otherwise nodes.
    pub critical_path: Option<u64>,
    /// Is `critical_path` in nanoseconds?
    pub timed: bool,
    /// How many more bytes are used at most.
    pub bytes: Option<u64>,
}

impl Price {
    /// Bytes only.
    pub fn bytes(bytes: u64) -> Self {
        Self { bytes: Some(bytes), ..Self::default() }
    }

    /// Nothing at all, or nothing that can be counted here.
    pub fn unknown() -> Self {
        Self::default()
    }

    /// A few words.
    pub fn describe(&self) -> Option<String> {
        let path = self.critical_path.map(|more| match (more, self.timed) {
            (0, _) => "does not lengthen the critical path".to_string(),
            (ns, true) => format!("lengthens the critical path by {:.1} us", ns as f64 / 1000.0),
            (1, false) => "lengthens the critical path by 1 node".to_string(),
            (n, false) => format!("lengthens the critical path by {n} nodes"),
        });
        let bytes = self.bytes.map(|bytes| match bytes {
            0 => "costs no memory".to_string(),
            bytes => format!("costs at most {bytes} bytes"),
        });
        match (path, bytes) {
            (Some(path), Some(bytes)) => Some(format!("{path}, {bytes}")),
            (path, bytes) => path.or(bytes),
        }
    }
}

/// A remedy and its price.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fix {
    /// What to do.
    pub remedy: Remedy,
    /// What it costs.
    pub price: Price,
}

impl Remedy {
    /// One word for files: `event`, `own_bytes`, ...
    pub fn word(&self) -> &'static str {
        match self {
            Self::Event { .. } => "event",
            Self::FullEdge { .. } => "full_edge",
            Self::WaitFirst { .. } => "wait_first",
            Self::OwnBytes { .. } => "own_bytes",
            Self::OwnBuffer { .. } => "own_buffer",
            Self::LongerLife { .. } => "longer_life",
            Self::ReleaseEarlier { .. } => "release_earlier",
            Self::DeclareCarried { .. } => "declare_carried",
            Self::Define { .. } => "define",
            Self::DeclarePersistent { .. } => "declare_persistent",
            Self::SerialiseReplays { .. } => "serialise_replays",
            Self::Quiesce { .. } => "quiesce",
            Self::ForkAndJoin { .. } => "fork_and_join",
            Self::DropWait { .. } => "drop_wait",
            Self::Recapture => "recapture",
        }
    }

    /// What to do, in a sentence.
    pub fn describe(&self, pool: &Pool) -> String {
        let node = |id: &NodeId| format!("`{}`", pool.node(*id).name);
        let on = |id: &NodeId| format!("`{}`", pool.stream(pool.node(*id).stream).name);
        let buffer = |id: &BufferId| format!("`{}`", pool.buffer(*id).name);
        let graph = |id: &crate::model::GraphId| format!("`{}`", pool.graph(*id).name);
        match self {
            Self::Event { from, to } => format!(
                "record an event on {} after {}, and let {} wait for it before {}",
                on(from),
                node(from),
                on(to),
                node(to)
            ),
            Self::FullEdge { to } => {
                format!("launch {} without the programmatic attribute, so that its edge is full", node(to))
            }
            Self::WaitFirst { node: id, buffer: b } => {
                format!("let every CTA of {} execute `griddepcontrol.wait` before it touches {}", node(id), buffer(b))
            }
            Self::OwnBytes { buffer: b } => format!("give {} bytes of its own", buffer(b)),
            Self::OwnBuffer { node: id, buffer: b } => format!(
                "let {} write a buffer of its own instead of {}, and let what reads its result read that",
                node(id),
                buffer(b)
            ),
            Self::LongerLife { buffer: b, until, instead_of } => match instead_of {
                Some(other) => format!(
                    "keep {} alive until {} is complete, so that {} gets other bytes",
                    buffer(b),
                    node(until),
                    buffer(other)
                ),
                None => format!("free {} only after {}", buffer(b), node(until)),
            },
            Self::ReleaseEarlier { buffer: b } => format!(
                "be done with {} before another graph of the pool replays (copy it out), and declare that",
                buffer(b)
            ),
            Self::DeclareCarried { buffer: b } => {
                format!("declare {} carried, if its content is meant to survive from replay to replay", buffer(b))
            }
            Self::Define { buffer: b, before } => {
                format!("fill {} in the graph, before {}", buffer(b), node(before))
            }
            Self::DeclarePersistent { buffer: b } => {
                format!("declare {} persistent and carried: it is used outside its graph", buffer(b))
            }
            Self::SerialiseReplays { a, b } if a == b => {
                format!("never replay {} while an earlier replay of it still runs", graph(a))
            }
            Self::SerialiseReplays { a, b } => {
                format!("never replay {} and {} at once", graph(a), graph(b))
            }
            Self::Quiesce { node: id } => {
                format!("run {} only while no graph replays", node(id))
            }
            Self::ForkAndJoin { graph: g, stream } => format!(
                "let `{name}` wait for an event of the origin stream before its first node in {}, and the origin for one of `{name}` after its last",
                graph(g),
                name = pool.stream(*stream).name
            ),
            Self::DropWait { wait } => {
                let wait = &pool.dropped_waits()[*wait];
                format!(
                    "record `{}` inside the capture of {}, or make it an external event",
                    pool.event(wait.event).name,
                    graph(&wait.graph)
                )
            }
            Self::Recapture => "capture the graph again, and keep what it points to in place".to_string(),
        }
    }

    /// Changes the pool and the placement as the remedy says. `false`: it is for a person to do.
    pub fn apply(&self, pool: &mut Pool, placement: &mut Placement) -> bool {
        match self {
            Self::Event { from, to } => {
                pool.add_edge(*from, *to, EdgeKind::Full);
                pool.forget_dropped_waits(|w| w.after == Some(*from) && w.before == Some(*to));
            }
            Self::FullEdge { to } => {
                for edge in pool.edges_mut().iter_mut().filter(|e| e.to == *to) {
                    edge.kind = EdgeKind::Full;
                }
            }
            Self::WaitFirst { node, .. } => {
                let node = pool.node_mut(*node);
                node.pdl_wait = PdlWait::Every;
                node.accesses.iter_mut().for_each(|a| a.phase = Phase::AfterWait);
            }
            Self::OwnBytes { buffer } => move_to_the_end(pool, placement, *buffer),
            Self::OwnBuffer { node, buffer } => own_buffer(pool, placement, *node, *buffer),
            Self::LongerLife { buffer, until, instead_of } => {
                if let Lifetime::Transient { free: Some(free), .. } = pool.buffer(*buffer).lifetime {
                    pool.add_edge(*until, free, EdgeKind::Full);
                }
                if let Some(other) = instead_of {
                    move_to_the_end(pool, placement, *other);
                }
            }
            Self::ReleaseEarlier { buffer } => {
                if let Lifetime::Output { release, .. } = &mut pool.buffer_mut(*buffer).lifetime {
                    *release = Release::BeforeNextReplay;
                }
            }
            Self::DeclareCarried { buffer } | Self::DeclarePersistent { buffer } => {
                pool.buffer_mut(*buffer).lifetime = Lifetime::Persistent { carried: true };
            }
            Self::Define { buffer, before } => define(pool, *buffer, *before),
            Self::SerialiseReplays { a, b } => pool.serialise_replays(*a, *b),
            Self::Quiesce { node } => {
                pool.node_mut(*node).site = Site::Between;
                pool.forget_dropped_waits(|w| w.after == Some(*node));
            }
            Self::ForkAndJoin { graph, stream } => {
                let lanes = &mut pool.graph_mut(*graph).lanes;
                for lane in lanes.iter_mut().filter(|l| l.stream == *stream) {
                    (lane.forked, lane.joined) = (true, true);
                }
            }
            Self::DropWait { wait } => {
                let gone = pool.dropped_waits()[*wait].clone();
                pool.forget_dropped_waits(|w: &DroppedWait| *w == gone);
            }
            Self::Recapture => return false,
        }
        true
    }
}

/// The first aligned address past everything that is placed.
fn free_address(pool: &Pool, placement: &Placement, align: u64) -> u64 {
    let end = |(id, start): (BufferId, u64)| start + pool.buffer(id).size;
    let end = placement.iter().map(end).max().unwrap_or(0);
    end.next_multiple_of(align)
}

fn move_to_the_end(pool: &Pool, placement: &mut Placement, buffer: BufferId) {
    let address = free_address(pool, placement, pool.buffer(buffer).align);
    placement.set(buffer, address);
}

/// Splits `buffer`: `node` and every later use of it by nodes recorded after `node` go to a copy.
fn own_buffer(pool: &mut Pool, placement: &mut Placement, node: NodeId, buffer: BufferId) {
    let old = pool.buffer(buffer).clone();
    let name = format!("{} of {}", old.name, pool.node(node).name);
    let address = placement.address(buffer).map(|_| free_address(pool, placement, old.align));
    let copy = pool.add_buffer(Buffer { name, address: None, ..old });
    if let Some(address) = address {
        placement.set(copy, address);
    }
    for id in pool.node_ids().skip(node.index()) {
        let uses = pool.node_mut(id).accesses.iter_mut();
        uses.filter(|a| a.buffer == buffer).for_each(|a| a.buffer = copy);
    }
}

/// Adds a fill of `buffer` before `before`, ordered like it.
fn define(pool: &mut Pool, buffer: BufferId, before: NodeId) {
    let reader = pool.node(before).clone();
    let Buffer { name, size, .. } = pool.buffer(buffer).clone();
    let fill = Access { basis: Basis::Declared, ..Access::new(buffer, 0..size, Effect::WriteAll) };
    let name = format!("fill {name}");
    let mut node = Node::new(name, NodeKind::Memset, reader.site, reader.stream, reader.location);
    node.accesses.push(fill);
    let fill = pool.add_node(node);
    let into: Vec<Edge> = pool.edges().iter().filter(|e| e.to == before).cloned().collect();
    for edge in into {
        pool.add_edge(edge.from, fill, EdgeKind::Full);
    }
    pool.add_edge(fill, before, EdgeKind::Full);
}
