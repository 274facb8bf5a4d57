//! Moving matrices: ldmatrix, stmatrix, movmatrix.

use super::{Row, row};
use crate::check::AccessKind;
use crate::decode::{Form, Inst, Taint, Ty};
use crate::error::Result;
use crate::exec::access::{Intent, Space, Target};
use crate::exec::lanes::{LANES, Lane, Run, whole_warp};
use crate::exec::{Cx, Flow};

pub(super) const ROWS: &[Row] = &[
    row("ldmatrix.sync.aligned", ".m8n8.x1 .x2 .x4, .trans, b16", ldmatrix),
    row("stmatrix.sync.aligned", ".m8n8.x1 .x2 .x4, .trans, b16", stmatrix),
    row("movmatrix.sync.aligned", ".m8n8.trans.b16", movmatrix),
];

/// All lanes of the warp must be here.
pub(super) fn whole(cx: &mut Cx<'_>) -> bool {
    cx.converged(!0)
}

fn tiles(f: &mut Form<'_, '_>) -> Result<(usize, bool)> {
    if !f.flag("m8n8") {
        return f.unsupported(".m8n8 is supported");
    }
    let count = f.choice(&[("x1", 1), ("x2", 2), ("x4", 4)]).unwrap_or(1);
    let transposed = f.flag("trans");
    f.ignore(&["shared", "shared::cta"]);
    if f.ty()?.bytes() != 2 {
        return f.unsupported("b16 is supported");
    }
    Ok((count, transposed))
}

fn ldmatrix(f: &mut Form<'_, '_>) -> Result<Run> {
    let (count, transposed) = tiles(f)?;
    f.dsts(Ty::B32, count)?;
    f.address()?;
    f.aux = count as u32 | u32::from(transposed) << 8;
    f.taint = Taint::Own;
    Ok(ldmatrix_warp())
}

whole_warp!(ldmatrix_warp, ldmatrix_body);

/// Lane 8t + r gives the address of row r of tile t; lane 4r + c receives elements 2c and 2c + 1 of row r.
#[inline(always)]
fn ldmatrix_body(cx: &mut Cx<'_>, inst: &Inst) -> Flow {
    if !whole(cx) {
        return Flow::Park;
    }
    let (count, transposed) = ((inst.aux & 0xff) as usize, inst.aux >> 8 != 0);
    cx.check_address(inst, count);
    let addresses = cx.addresses(inst.ops[count], inst.kinds[count].rows, inst.imm);
    for tile in 0..count {
        cx.count_traffic(Space::Shared, &addresses, 0xff << (8 * tile), 16);
        let mut words = [0u32; LANES];
        let mut undefined = [0u32; LANES];
        for r in 0..8 {
            let lane = (8 * tile + r) as u32;
            let Some(Target::Shared(offset)) =
                cx.target(Space::Shared, addresses[lane as usize], 16, Intent::Read, lane, &mut 0)
            else {
                continue;
            };
            let at = offset as usize / 4;
            words[4 * r..4 * r + 4].copy_from_slice(&cx.cta.shared[at..at + 4]);
            if cx.tracks() {
                undefined[4 * r..4 * r + 4].copy_from_slice(&cx.cta.shared_shadow[at..at + 4]);
            }
            cx.shared_row(offset, r as u32, transposed, AccessKind::Read);
        }
        let out = if transposed { transpose(&words) } else { words };
        Lane::write(&mut cx.warp.rows, inst.ops[tile], &out, cx.mask);
        if undefined.iter().any(|&w| w != 0) {
            cx.taint();
        }
        if cx.warp.tainted {
            let out = if transposed { transpose(&undefined) } else { undefined };
            Lane::write(&mut cx.warp.shadows.rows, inst.ops[tile], &out, cx.mask);
        }
    }
    Flow::Next
}

/// Transposes an 8x8 tile of 16-bit elements, two in a word.
fn transpose(words: &[u32; LANES]) -> [u32; LANES] {
    let element = |row: usize, column: usize| words[4 * row + column / 2] >> (16 * (column % 2)) & 0xffff;
    std::array::from_fn(|i| {
        let (row, pair) = (i / 4, i % 4);
        element(2 * pair, row) | element(2 * pair + 1, row) << 16
    })
}

fn stmatrix(f: &mut Form<'_, '_>) -> Result<Run> {
    let (count, transposed) = tiles(f)?;
    f.address()?;
    f.srcs(Ty::B32, count)?;
    f.aux = count as u32 | u32::from(transposed) << 8;
    f.taint = Taint::Own;
    Ok(stmatrix_warp)
}

fn stmatrix_warp(cx: &mut Cx<'_>, inst: &Inst) -> Flow {
    if !whole(cx) {
        return Flow::Park;
    }
    let (count, transposed) = ((inst.aux & 0xff) as usize, inst.aux >> 8 != 0);
    cx.check_address(inst, 0);
    let addresses = cx.addresses(inst.ops[0], inst.kinds[0].rows, inst.imm);
    for tile in 0..count {
        cx.count_traffic(Space::Shared, &addresses, 0xff << (8 * tile), 16);
        let values: [u32; LANES] = Lane::read(&cx.warp.rows, inst.ops[tile + 1]);
        let words = if transposed { transpose(&values) } else { values };
        let shadow = if cx.warp.tainted { u32::read(&cx.warp.shadows.rows, inst.ops[tile + 1]) } else { [0; LANES] };
        let undefined = if transposed { transpose(&shadow) } else { shadow };
        for r in 0..8 {
            let lane = (8 * tile + r) as u32;
            let Some(Target::Shared(offset)) =
                cx.target(Space::Shared, addresses[lane as usize], 16, Intent::Write, lane, &mut 0)
            else {
                continue;
            };
            let at = offset as usize / 4;
            cx.cta.shared[at..at + 4].copy_from_slice(&words[4 * r..4 * r + 4]);
            if cx.tracks() {
                cx.cta.shared_shadow[at..at + 4].copy_from_slice(&undefined[4 * r..4 * r + 4]);
            }
            cx.shared_row(offset, r as u32, transposed, AccessKind::Write);
        }
    }
    Flow::Next
}

fn movmatrix(f: &mut Form<'_, '_>) -> Result<Run> {
    f.ignore(&["m8n8"]);
    if !f.flag("trans") {
        return f.unsupported(".trans is required");
    }
    f.ty()?;
    f.dst(Ty::B32)?;
    f.src(Ty::B32)?;
    f.taint = Taint::Own;
    fn run(cx: &mut Cx<'_>, inst: &Inst) -> Flow {
        if !whole(cx) {
            return Flow::Park;
        }
        if cx.warp.tainted {
            let shadow = u32::read(&cx.warp.shadows.rows, inst.ops[1]);
            Lane::write(&mut cx.warp.shadows.rows, inst.ops[0], &transpose(&shadow), cx.mask);
        }
        let words: [u32; LANES] = Lane::read(&cx.warp.rows, inst.ops[1]);
        Lane::write(&mut cx.warp.rows, inst.ops[0], &transpose(&words), cx.mask);
        Flow::Next
    }
    Ok(run)
}
