//! A segment of a step as what a host does to streams and events, in order.
//!
//! Captured, these commands make a graph with the segment's edges; uncaptured, they run it. Which streams and events
//! they go to is not known here, so that a model of stream capture can play the driver in tests.

use std::collections::HashMap;

use lathe_graph::model::{EdgeKind, NodeId, Pool, StreamId};
use lathe_graph::order::Adjacency;

/// An event of one run of commands, by number.
pub(super) type EventNumber = usize;

/// What the host does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// Marks everything on the stream so far.
    Record { stream: StreamId, event: EventNumber },
    /// What follows on the stream waits for the event.
    Wait { stream: StreamId, event: EventNumber },
    /// Puts the node's work on the stream; `programmatic`: it may start before the stream's last node has ended.
    Run { stream: StreamId, node: NodeId, programmatic: bool },
}

/// The commands that run `nodes`, in their order, and the number of events these take.
///
/// Every stream forks from `origin` before the first node, and joins it after the last. With `one_lane` everything goes
/// to `origin`.
pub(super) fn commands(pool: &Pool, nodes: &[NodeId], origin: StreamId, one_lane: bool) -> (Vec<Command>, usize) {
    let stream_of = |id: NodeId| if one_lane { origin } else { pool.node(id).stream };
    let position: HashMap<NodeId, usize> = nodes.iter().enumerate().map(|(at, id)| (*id, at)).collect();
    let mut sides: Vec<StreamId> = nodes.iter().map(|id| stream_of(*id)).filter(|stream| *stream != origin).collect();
    sides.sort_unstable();
    sides.dedup();

    let mut commands = Vec::new();
    let mut events = 0;
    let mut new_event = || {
        events += 1;
        events - 1
    };
    if !sides.is_empty() {
        let fork = new_event();
        commands.push(Command::Record { stream: origin, event: fork });
        commands.extend(sides.iter().map(|&stream| Command::Wait { stream, event: fork }));
    }

    let adjacency = Adjacency::of(pool);
    let mut done: HashMap<NodeId, EventNumber> = HashMap::new();
    let mut last: HashMap<StreamId, NodeId> = HashMap::new();
    for &node in nodes {
        let stream = stream_of(node);
        let before = || adjacency.predecessors(node).iter().filter(|(id, _)| position.contains_key(id));
        let waits: Vec<Command> = before()
            .filter(|(id, _)| stream_of(*id) != stream)
            .filter_map(|(id, _)| done.get(id).map(|&event| Command::Wait { stream, event }))
            .collect();
        // Only the launch right after it on the same stream can be programmatic, and only if nothing else must have ended:
        // the driver makes *every* edge into a programmatic launch weak, those of events too. Elsewhere the full order is
        // taken, which is the stronger one.
        let own = || before().filter(|(id, _)| stream_of(*id) == stream);
        let is_weak =
            |(id, kind): &(NodeId, EdgeKind)| *kind == EdgeKind::Programmatic && last.get(&stream) == Some(id);
        let programmatic = waits.is_empty() && own().count() > 0 && own().all(is_weak);
        commands.extend(waits);
        commands.push(Command::Run { stream, node, programmatic });
        last.insert(stream, node);
        let is_awaited = |&(after, _): &(NodeId, EdgeKind)| position.contains_key(&after) && stream_of(after) != stream;
        if adjacency.successors(node).iter().any(is_awaited) {
            let event = new_event();
            commands.push(Command::Record { stream, event });
            done.insert(node, event);
        }
    }

    for stream in sides {
        let event = new_event();
        commands.push(Command::Record { stream, event });
        commands.push(Command::Wait { stream: origin, event });
    }
    (commands, events)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use lathe_graph::build::{Bytes, Recording, Work};
    use lathe_graph::driver::{CapturedEdge, CapturedGraph, CapturedKind, CapturedNode, Word, read_back};
    use lathe_graph::model::{GraphId, Placement, Site};
    use proptest::prelude::*;

    use super::*;
    use crate::replay::{Captured, Edges, Mode, StepError};

    /// What stream capture makes of `commands`: a stream's next node comes after all that the stream has seen. Every edge
    /// into a programmatic launch comes out programmatic, as on an H200 with driver 580.
    fn captured(pool: &Pool, commands: &[Command], placement: &Placement) -> CapturedGraph {
        let mut graph = CapturedGraph::default();
        let mut frontier: HashMap<StreamId, BTreeSet<usize>> = HashMap::new();
        let mut marks: HashMap<EventNumber, BTreeSet<usize>> = HashMap::new();
        for command in commands {
            match *command {
                Command::Record { stream, event } => {
                    marks.insert(event, frontier.get(&stream).cloned().unwrap_or_default());
                }
                Command::Wait { stream, event } => frontier.entry(stream).or_default().extend(&marks[&event]),
                Command::Run { stream, node, programmatic } => {
                    let index = graph.nodes.len();
                    let row = pool.node(node);
                    graph.nodes.push(CapturedNode::new(CapturedKind::Kernel, row.name.clone()));
                    let pointers = row.accesses.iter().enumerate().map(|(at, access)| Word {
                        parameter: at as u32,
                        offset: 0,
                        value: placement.address(access.buffer).unwrap(),
                    });
                    graph.words.push(pointers.collect());
                    for &from in &std::mem::take(frontier.entry(stream).or_default()) {
                        graph.edges.push(CapturedEdge {
                            from,
                            to: index,
                            from_port: programmatic.into(),
                            programmatic,
                        });
                    }
                    frontier.entry(stream).or_default().insert(index);
                }
            }
        }
        graph
    }

    #[derive(Clone, Copy, Debug)]
    enum Op {
        Launch { stream: usize, programmatic: bool },
        Order { from: usize, to: usize },
    }

    const STREAMS: [&str; 3] = ["main", "side", "other"];

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            3 => (0..3usize, any::<bool>()).prop_map(|(stream, programmatic)| Op::Launch { stream, programmatic }),
            2 => (0..3usize, 0..3usize).prop_map(|(from, to)| Op::Order { from, to }),
        ]
    }

    /// A recording of kernels that all use buffers of their own.
    fn recorded(ops: &[Op]) -> (Pool, Placement) {
        let mut recording = Recording::new();
        let buffers: Vec<_> = (0..ops.len() + 1).map(|i| recording.persistent(&format!("b{i}"), 256)).collect();
        recording.capture("g", "main", |g| {
            let streams = STREAMS.map(|name| g.stream(name));
            g.launch(streams[0], Work::kernel("first").writes(&buffers[0]));
            g.order(streams[0], streams[1]);
            g.order(streams[0], streams[2]);
            for (i, op) in ops.iter().enumerate() {
                match *op {
                    Op::Launch { stream, programmatic } => {
                        let work = Work::kernel(&format!("k{i}")).writes(&buffers[i + 1]);
                        g.launch(streams[stream], if programmatic { work.programmatic() } else { work });
                    }
                    Op::Order { from, to } if from != to => g.order(streams[from], streams[to]),
                    Op::Order { .. } => {}
                }
            }
            g.order(streams[1], streams[0]);
            g.order(streams[2], streams[0]);
        });
        let pool = recording.pool().clone();
        let mut placement = Placement::empty(&pool);
        buffers.iter().enumerate().for_each(|(i, buffer)| placement.set(buffer.id(), 0x10000 + 256 * i as u64));
        (pool, placement)
    }

    const G: GraphId = GraphId(0);

    /// What a driver captures of each segment agrees with the recording that the mode realises.
    fn agrees(pool: &Pool, placement: &Placement, mode: &Mode) -> Result<(), StepError> {
        let realised = mode.realise(pool, G)?;
        let origin = pool.graph(G).lanes[0].stream;
        for (nodes, is_captured) in &realised.segments {
            let mut of_segment = realised.pool.clone();
            for id in pool.nodes_of(G).filter(|id| !nodes.contains(id)) {
                of_segment.node_mut(id).site = Site::Between;
            }
            let (commands, _) = commands(&realised.pool, nodes, origin, realised.one_lane);
            let graph = captured(pool, &commands, placement);
            let findings = read_back(&of_segment, G, placement, &graph, None).unwrap();
            assert_eq!(findings, [], "{is_captured} {commands:#?}");
        }
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

        #[test]
        fn capture_orders_exactly_what_was_recorded(ops in prop::collection::vec(op(), 0..24)) {
            let (pool, placement) = recorded(&ops);
            agrees(&pool, &placement, &Mode::default()).unwrap();
            let serialised = Mode { edges: Edges::Serialised, ..Mode::default() };
            agrees(&pool, &placement, &serialised).unwrap();
        }

        #[test]
        fn one_edge_more_can_be_forced_where_no_path_forbids_it(ops in prop::collection::vec(op(), 2..16), a: prop::sample::Index, b: prop::sample::Index) {
            let (pool, placement) = recorded(&ops);
            let nodes: Vec<_> = pool.nodes_of(G).collect();
            let (first, second) = (*a.get(&nodes), *b.get(&nodes));
            prop_assume!(first != second);
            let mode = Mode { edges: Edges::Forced { first, second }, ..Mode::default() };
            let has_path_back = {
                let adjacency = Adjacency::of(&pool);
                let mut open = vec![second];
                let mut seen = BTreeSet::new();
                while let Some(node) = open.pop() {
                    open.extend(adjacency.successors(node).iter().map(|(id, _)| *id).filter(|id| seen.insert(*id)));
                }
                seen.contains(&first)
            };
            match agrees(&pool, &placement, &mode) {
                Ok(()) => prop_assert!(!has_path_back),
                Err(StepError::Mode(message)) => prop_assert!(has_path_back, "{}", message),
                Err(other) => panic!("{other}"),
            }
        }

        #[test]
        fn a_region_runs_between_what_leads_to_it_and_what_follows(ops in prop::collection::vec(op(), 2..16), a: prop::sample::Index) {
            let (pool, placement) = recorded(&ops);
            let nodes: Vec<_> = pool.nodes_of(G).collect();
            let middle = *a.get(&nodes);
            let mode = Mode { captured: Captured::AllBut([middle].into()), ..Mode::default() };
            agrees(&pool, &placement, &mode).unwrap();
            let realised = mode.realise(&pool, G).unwrap();
            let flat: Vec<_> = realised.segments.iter().flat_map(|(nodes, _)| nodes.clone()).collect();
            prop_assert_eq!(flat.len(), nodes.len());
            let at = |id| flat.iter().position(|of| *of == id).unwrap();
            for edge in pool.edges() {
                prop_assert!(at(edge.from) < at(edge.to));
            }
        }
    }

    #[test]
    fn a_region_that_a_path_leaves_and_enters_again_is_refused() {
        let launch = |stream| Op::Launch { stream, programmatic: false };
        let (pool, placement) = recorded(&[launch(0), launch(0), launch(0)]);
        let nodes: Vec<_> = pool.nodes_of(G).collect();
        let mode = Mode { captured: Captured::AllBut([nodes[0], nodes[2]].into()), ..Mode::default() };
        let error = agrees(&pool, &placement, &mode).unwrap_err().to_string();
        assert!(error.contains("`k0` comes after a node of the eager region and before another"), "{error}");
    }

    #[test]
    fn streams_fork_from_the_origin_and_join_it() {
        let (pool, _) = recorded(&[Op::Launch { stream: 1, programmatic: false }]);
        let nodes: Vec<_> = pool.nodes_of(G).collect();
        let origin = pool.graph(G).lanes[0].stream;
        let (forked, events) = commands(&pool, &nodes, origin, false);
        assert!(matches!(forked[0], Command::Record { stream, .. } if stream == origin));
        assert!(matches!(forked.last(), Some(Command::Wait { stream, .. }) if *stream == origin));
        assert!(events >= 2);
        let (single, events) = commands(&pool, &nodes, origin, true);
        assert_eq!((single.len(), events), (nodes.len(), 0), "one stream takes no event");
    }
}
