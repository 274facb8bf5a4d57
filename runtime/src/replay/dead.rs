//! Which transients are over, use by use.

use lathe_graph::model::{BufferId, Lifetime, NodeId, Pool};

/// Counts down the uses of each buffer in one replay.
pub(super) struct DeadBytes {
    uses_left: Vec<usize>,
}

impl DeadBytes {
    /// Before the replay.
    pub fn of(pool: &Pool) -> Self {
        let uses = pool.uses();
        DeadBytes { uses_left: pool.buffer_ids().map(|id| uses.of(id).len()).collect() }
    }

    /// The transients whose last use was `node`, which has just run.
    pub fn after(&mut self, pool: &Pool, node: NodeId) -> Vec<BufferId> {
        let mut dead = Vec::new();
        for access in &pool.node(node).accesses {
            let left = &mut self.uses_left[access.buffer.index()];
            *left -= 1;
            if *left == 0 && matches!(pool.buffer(access.buffer).lifetime, Lifetime::Transient { .. }) {
                dead.push(access.buffer);
            }
        }
        dead
    }
}
