//! The closure against plain search, on random graphs with programmatic edges.

use lathe_graph::location::Location;
use lathe_graph::model::{EdgeKind, Node, NodeId, NodeKind, PdlWait, Phase, Pool, Site};
use lathe_graph::oracle;
use lathe_graph::order::Order;
use proptest::prelude::*;

#[derive(Clone, Debug)]
struct Shape {
    waits: Vec<u8>,
    edges: Vec<(usize, usize, bool)>,
}

fn shape() -> impl Strategy<Value = Shape> {
    (2usize..24).prop_flat_map(|n| {
        let edge = (0..n - 1, 1..n, any::<bool>());
        let edges = proptest::collection::vec(edge, 0..40);
        (proptest::collection::vec(0u8..6, n), edges).prop_map(|(waits, edges)| Shape { waits, edges })
    })
}

fn pool(shape: &Shape) -> Pool {
    let mut pool = Pool::new();
    let graphs = ["a", "b"].map(|name| pool.add_graph(name, Location::unknown()));
    let stream = pool.stream_named("m");
    for (i, wait) in shape.waits.iter().enumerate() {
        // A tail of the nodes belongs to a second graph, so that components are told apart.
        let site = Site::Graph(graphs[usize::from(i * 3 >= shape.waits.len() * 2)]);
        let mut node = Node::new(format!("k{i}"), NodeKind::Kernel, site, stream, Location::unknown());
        node.pdl_wait = match wait {
            0 => PdlWait::Never,
            1 => PdlWait::Some,
            _ => PdlWait::Every,
        };
        pool.add_node(node);
    }
    for &(from, to, weak) in &shape.edges {
        let (from, to) = (NodeId(from.min(to) as u32), NodeId(from.max(to) as u32));
        let kind = if weak { EdgeKind::Programmatic } else { EdgeKind::Full };
        if from != to && pool.node(from).site == pool.node(to).site {
            pool.add_edge(from, to, kind);
        }
    }
    pool
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_closure_says_what_a_search_says(shape in shape()) {
        let pool = pool(&shape);
        let order = Order::of(&pool).unwrap();
        for second in pool.node_ids() {
            for phase in [Phase::BeforeWait, Phase::AfterWait] {
                let before: Vec<NodeId> = order.ancestors(second, phase).collect();
                for first in pool.node_ids() {
                    let expected = oracle::before_phase(&pool, first, second, phase);
                    prop_assert_eq!(order.before_phase(first, second, phase), expected);
                    prop_assert_eq!(before.contains(&first), expected);
                }
            }
        }
    }

    #[test]
    fn the_serial_order_respects_every_edge(shape in shape()) {
        let pool = pool(&shape);
        let order = Order::of(&pool).unwrap();
        let serial: Vec<NodeId> = pool.node_ids().collect();
        prop_assert_eq!(order.serial(), &serial[..], "edges lead forwards, so the record order is serial");
    }
}
