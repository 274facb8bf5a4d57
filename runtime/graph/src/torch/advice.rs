//! Fixes in PyTorch's words.

use crate::finding::{Fix, Remedy};
use crate::model::{BufferId, Lifetime, NodeId};

use super::import::Imported;

/// What to write in the Python program, and what it costs.
pub fn advice(imported: &Imported, fix: &Fix) -> String {
    let what = in_python(imported, &fix.remedy);
    match fix.price.describe() {
        Some(price) => format!("{what} ({price})"),
        None => what,
    }
}

fn in_python(imported: &Imported, remedy: &Remedy) -> String {
    let pool = &imported.pool;
    let lane = |node: NodeId| pool.stream(pool.node(node).stream).name.clone();
    let buffer = |id: BufferId| pool.buffer(id).name.clone();
    let line = |node: NodeId| match imported.nodes[node.index()].at.map(|at| &imported.dump.frames[at]) {
        Some(frame) => format!("`{}` ({frame})", imported.nodes[node.index()].name),
        None => format!("node {} `{}`", imported.nodes[node.index()].label, imported.nodes[node.index()].name),
    };
    match remedy {
        Remedy::Event { from, to } if lane(*from) == lane(*to) => {
            format!("an event: record one after {}, and wait for it before {}", line(*from), line(*to))
        }
        Remedy::Event { from, to } => format!(
            "an event: `e = torch.cuda.Event(); e.record({})` after {}, then `{}.wait_event(e)` before {}",
            lane(*from),
            line(*from),
            lane(*to),
            line(*to)
        ),
        Remedy::LongerLife { buffer: old, until: _, instead_of: Some(new) } => format!(
            "a longer life: drop `{old}` only after the join (`main.wait_stream(side)`), or call `{old}.record_stream(side)` on the stream that reads it before dropping it: `{new}` then gets other bytes",
            old = buffer(*old),
            new = buffer(*new)
        ),
        Remedy::LongerLife { buffer: old, until, instead_of: None } => {
            format!("a longer life: drop `{}` only after {}", buffer(*old), line(*until))
        }
        Remedy::OwnBytes { buffer: id } => match pool.buffer(*id).lifetime {
            Lifetime::Persistent { .. } => {
                format!("bytes of its own: allocate `{}` before the capture, not inside it", buffer(*id))
            }
            _ => {
                format!("bytes of its own: allocate `{}` before the capture and write into it with `out=`", buffer(*id))
            }
        },
        Remedy::OwnBuffer { node, buffer: id } => {
            format!(
                "a buffer of its own: let {} write a second tensor instead of `{}` (double buffering)",
                line(*node),
                buffer(*id)
            )
        }
        Remedy::ReleaseEarlier { buffer: id } => {
            format!(
                "keep a reference to `{id}` while the next graph is captured, so that its block is not reused; or copy it out before the next replay",
                id = buffer(*id)
            )
        }
        Remedy::FullEdge { to } => {
            format!("launch {} without `launch_pdl=True` (programmatic stream serialization)", line(*to))
        }
        Remedy::WaitFirst { node, buffer: id } => {
            format!(
                "wait first: call `tl.extra.cuda.gdc_wait()` (griddepcontrol.wait) in {} before it touches `{}`",
                line(*node),
                buffer(*id)
            )
        }
        Remedy::Define { buffer: id, before } => {
            format!("fill `{}` inside the capture, before {}", buffer(*id), line(*before))
        }
        other => other.describe(pool),
    }
}
