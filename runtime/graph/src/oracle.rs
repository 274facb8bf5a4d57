//! Happens-before by plain search: slow, obvious, and independent of [`Order`](crate::order::Order), whose
//! test oracle it is.

use crate::model::{EdgeKind, NodeId, PdlWait, Phase, Pool};

/// A moment of a node's execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    Start,
    Waited,
    End,
}

/// Is `first` complete before `second` does what it does in `phase`? Walks the pool's edges backwards,
/// moment by moment.
pub fn before_phase(pool: &Pool, first: NodeId, second: NodeId, phase: Phase) -> bool {
    let goal = (first, Moment::End);
    let from = match phase {
        Phase::BeforeWait => Moment::Start,
        Phase::AfterWait => Moment::Waited,
    };
    let mut stack = vec![(second, from)];
    let mut seen = Vec::new();
    while let Some(here) = stack.pop() {
        if seen.contains(&here) {
            continue;
        }
        seen.push(here);
        let before = just_before(pool, here);
        if before.contains(&goal) {
            return true;
        }
        stack.extend(before);
    }
    false
}

/// The moments that are over when `moment` of `node` comes, one step back.
fn just_before(pool: &Pool, (node, moment): (NodeId, Moment)) -> Vec<(NodeId, Moment)> {
    let ends = |kind: EdgeKind| {
        let into = move |e: &&crate::model::Edge| e.to == node && e.kind == kind;
        pool.edges().iter().filter(into).map(|e| (e.from, Moment::End))
    };
    let waits = pool.node(node).pdl_wait;
    match moment {
        Moment::Start => ends(EdgeKind::Full).collect(),
        Moment::Waited if waits == PdlWait::Never => vec![(node, Moment::Start)],
        Moment::Waited => {
            let programmatic = ends(EdgeKind::Programmatic);
            programmatic.chain([(node, Moment::Start)]).collect()
        }
        Moment::End if waits == PdlWait::Every => vec![(node, Moment::Waited)],
        Moment::End => vec![(node, Moment::Start)],
    }
}
