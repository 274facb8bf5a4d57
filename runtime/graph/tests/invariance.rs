//! An instrument must not move a buffer or order two nodes.

use lathe_graph::build::{Recording, Work};
use lathe_graph::check::{Layout, invariance};
use lathe_graph::finding::Code;
use lathe_graph::model::{Access, BufferId, EdgeKind, Effect, Node, NodeId, NodeKind, Placement, Pool};

/// Two kernels on two streams, in no order.
fn original() -> (Pool, Placement) {
    let mut recording = Recording::new();
    let keys = recording.persistent("keys", 4096);
    recording.capture("g", "m", |g| {
        let (m, a) = (g.main(), g.stream("a"));
        let y = g.output("y", 64);
        g.order(m, a);
        g.launch(m, Work::kernel("store").updates(&keys));
        g.launch(a, Work::kernel("other").writes(&y));
        g.order(a, m);
    });
    let pool = recording.pool().clone();
    let mut placement = Placement::empty(&pool);
    pool.buffer_ids().zip([0x1000, 0x8000]).for_each(|(id, address)| placement.set(id, address));
    (pool, placement)
}

/// Adds a node that reads `keys` after `after`.
fn observer(pool: &mut Pool, after: NodeId) -> NodeId {
    let stored = pool.node(after).clone();
    let mut node = Node::new("canary", NodeKind::Kernel, stored.site, stored.stream, stored.location);
    node.accesses.push(Access::new(BufferId(0), 0..4096, Effect::Read));
    let canary = pool.add_node(node);
    pool.add_edge(after, canary, EdgeKind::Full);
    canary
}

fn messages(off: &(Pool, Placement), on: &(Pool, Placement)) -> Vec<String> {
    let layout = |(pool, placement)| Layout { pool, placement };
    let (off, on) = ((&off.0, &off.1), (&on.0, &on.1));
    let findings = invariance(layout(off), layout(on)).unwrap();
    assert!(findings.iter().all(|f| f.code == Code::E13));
    findings.into_iter().map(|f| f.message).collect()
}

#[test]
fn an_observer_after_the_last_use_is_invisible() {
    let off = original();
    let mut on = off.clone();
    observer(&mut on.0, NodeId(0));
    assert_eq!(messages(&off, &on), [""; 0]);
}

#[test]
fn an_instrument_that_clones_a_buffer_moves_its_neighbour() {
    let off = original();
    let mut on = off.clone();
    on.1.set(BufferId(1), 0x9000);
    assert_eq!(messages(&off, &on), ["`y` is at 0x8000 without the instrument and at 0x9000 with it"]);
}

#[test]
fn an_instrument_that_other_work_waits_for_orders_it() {
    let off = original();
    let mut on = off.clone();
    let canary = observer(&mut on.0, NodeId(0));
    on.0.add_edge(canary, NodeId(1), EdgeKind::Full);
    assert_eq!(messages(&off, &on), ["the instrument orders `store` before `other`"]);
}

#[test]
fn an_instrument_that_breaks_an_order_is_told() {
    let mut off = original();
    let on = off.clone();
    off.0.add_edge(NodeId(0), NodeId(1), EdgeKind::Full);
    assert_eq!(messages(&off, &on), ["the instrument no longer orders `store` before `other`"]);
}
