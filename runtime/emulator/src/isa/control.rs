//! Control flow.

use super::{Row, row};
use crate::decode::{Form, Inst, Taint};
use crate::error::Result;
use crate::exec::lanes::Run;
use crate::exec::{Cx, Flow};
use crate::finding::FindingKind;
use crate::parse::ast::Operand;

pub(super) const ROWS: &[Row] = &[
    row("bra", "with and without .uni", bra),
    row("ret", "from the kernel", exit),
    row("exit", "", exit),
    row("trap", "ends the lanes, with a finding", trap),
    row("brkpt", "does nothing", nothing),
    row("pmevent", "does nothing", nothing_with_operand),
    row("nanosleep", "lets other warps run", nanosleep),
    row("griddepcontrol", ".wait .launch_dependents", griddepcontrol),
    row("setmaxnreg", ".inc .dec: does nothing", setmaxnreg),
];

fn bra(f: &mut Form<'_, '_>) -> Result<Run> {
    f.ignore(&["uni"]);
    let Operand::Symbol(label, 0) = f.operand()? else {
        return f.unsupported("a label was expected");
    };
    let Some(&target) = f.decoder.body.labels.get(label) else {
        return f.unsupported(format!("label `{}` is not declared", label.split('@').next().unwrap_or(label)));
    };
    f.aux = target;
    f.targets.push(target);
    f.ends = true;
    f.taint = Taint::Own;
    Ok(jump)
}

fn jump(cx: &mut Cx<'_>, _: &Inst) -> Flow {
    if cx.mask == cx.warp.active { Flow::Jump } else { Flow::Split }
}

fn exit(f: &mut Form<'_, '_>) -> Result<Run> {
    f.ignore(&["uni"]);
    f.ends = true;
    f.taint = Taint::Own;
    Ok(exit_lanes)
}

pub(super) fn exit_lanes(cx: &mut Cx<'_>, _: &Inst) -> Flow {
    cx.cta.lanes_end(cx.env, cx.warp.id, cx.mask);
    Flow::Exit
}

fn trap(f: &mut Form<'_, '_>) -> Result<Run> {
    f.ends = true;
    Ok(trap_lanes)
}

fn trap_lanes(cx: &mut Cx<'_>, inst: &Inst) -> Flow {
    cx.report(FindingKind::Trap, cx.mask.trailing_zeros(), None, None, "the kernel gave up here".into());
    exit_lanes(cx, inst)
}

fn next(_: &mut Cx<'_>, _: &Inst) -> Flow {
    Flow::Next
}

fn nothing(f: &mut Form<'_, '_>) -> Result<Run> {
    f.taint = Taint::Own;
    Ok(next)
}

fn nothing_with_operand(f: &mut Form<'_, '_>) -> Result<Run> {
    f.ignore(&["mask"]);
    f.operand()?;
    nothing(f)
}

fn nanosleep(f: &mut Form<'_, '_>) -> Result<Run> {
    let ty = f.ty()?;
    f.src(ty)?;
    f.taint = Taint::Own;
    fn sleep(cx: &mut Cx<'_>, _: &Inst) -> Flow {
        // What it sleeps for may come from another CTA, so this never counts as hung.
        cx.cta.progress += 1;
        Flow::Yield
    }
    Ok(sleep)
}

fn griddepcontrol(f: &mut Form<'_, '_>) -> Result<Run> {
    f.taint = Taint::Own;
    match f.choice(&[("wait", true), ("launch_dependents", false)]) {
        Some(true) => {
            f.decoder.uses_pdl_wait = true;
            return Ok(wait);
        }
        Some(false) => {}
        None => return f.unsupported(".wait or .launch_dependents is required"),
    }
    Ok(next)
}

/// Everything that earlier kernels wrote is there: their launch is over before this one's starts.
fn wait(cx: &mut Cx<'_>, _: &Inst) -> Flow {
    cx.warp.waited |= cx.mask;
    cx.cta.waited = true;
    Flow::Next
}

fn setmaxnreg(f: &mut Form<'_, '_>) -> Result<Run> {
    f.ignore(&["inc", "dec", "sync", "aligned", "u32"]);
    f.constant()?;
    nothing(f)
}
