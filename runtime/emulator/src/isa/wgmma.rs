//! wgmma: products that a warpgroup starts and waits for, the right operand read from shared memory.
//!
//! Each warp computes its 16 rows. The values are there at once, but count as undefined until their group has been waited for,
//! and shared memory is noted as read both when the product starts and when it ends: whoever changes it in between races.

use std::collections::{HashMap, VecDeque};

use super::matrix::whole;
use super::mma::{read_c, write_d};
use super::number::e4m3_to_f32;
use super::{Row, row};
use crate::check::AccessKind;
use crate::decode::{Form, Inst, Taint, Ty};
use crate::error::Result;
use crate::exec::lanes::{LANES, Lane, Run, whole_warp};
use crate::exec::{Cx, Flow};
use crate::finding::FindingKind;

pub(super) const ROWS: &[Row] = &[
    row("wgmma.fence.sync.aligned", "all", fence),
    row(
        "wgmma.mma_async.sync.aligned",
        ".m64n8k32 to .m64n64k32 of e4m3 to f32, A in registers, B by a descriptor of rows of 128 bytes under the 128-byte \
         swizzle; summed in full f32, where the tensor cores keep about 13 bits",
        mma_async,
    ),
    row("wgmma.commit_group.sync.aligned", "all", commit),
    row("wgmma.wait_group.sync.aligned", "all", wait),
];

const COLS: [(&str, u32); 8] = [
    ("m64n8k32", 8),
    ("m64n16k32", 16),
    ("m64n24k32", 24),
    ("m64n32k32", 32),
    ("m64n40k32", 40),
    ("m64n48k32", 48),
    ("m64n56k32", 56),
    ("m64n64k32", 64),
];

/// A warp's products in flight.
#[derive(Default)]
pub(crate) struct Products {
    /// A fence stands before the next product, and nothing has been waited for since.
    fenced: bool,
    /// Products of the group that is still open.
    open: Vec<Product>,
    groups: VecDeque<Vec<Product>>,
    /// What is known of the registers in flight: their undefined bits once they arrive.
    shadows: HashMap<u16, [u32; LANES]>,
}

impl Products {
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

struct Product {
    /// Shared offsets of the 16-byte chunks that it reads.
    chunks: Vec<u32>,
    registers: Vec<u16>,
}

fn fence(f: &mut Form<'_, '_>) -> Result<Run> {
    f.taint = Taint::Own;
    fn run(cx: &mut Cx<'_>, _: &Inst) -> Flow {
        if !whole(cx) {
            return Flow::Park;
        }
        cx.warp.products.fenced = true;
        Flow::Next
    }
    Ok(run)
}

fn commit(f: &mut Form<'_, '_>) -> Result<Run> {
    f.taint = Taint::Own;
    fn run(cx: &mut Cx<'_>, _: &Inst) -> Flow {
        if !whole(cx) {
            return Flow::Park;
        }
        let group = std::mem::take(&mut cx.warp.products.open);
        cx.warp.products.groups.push_back(group);
        Flow::Next
    }
    Ok(run)
}

fn wait(f: &mut Form<'_, '_>) -> Result<Run> {
    f.aux = f.constant()?.clamp(0, i128::from(u32::MAX)) as u32;
    f.taint = Taint::Own;
    fn run(cx: &mut Cx<'_>, inst: &Inst) -> Flow {
        if !whole(cx) {
            return Flow::Park;
        }
        cx.warp.products.fenced = false;
        while cx.warp.products.groups.len() > inst.aux as usize {
            for product in cx.warp.products.groups.pop_front().unwrap_or_default() {
                finish(cx, &product);
            }
        }
        Flow::Next
    }
    Ok(run)
}

/// A product arrives: it reads shared memory until now, and its registers may be used from now on.
fn finish(cx: &mut Cx<'_>, product: &Product) {
    for (i, &offset) in product.chunks.iter().enumerate() {
        cx.shared_touched(i as u32 % LANES as u32, offset, 16, AccessKind::Read);
    }
    for &slot in &product.registers {
        // A register of several products arrives with the last of them.
        let later = |p: &Product| p.registers.contains(&slot);
        if cx.warp.products.groups.iter().flatten().chain(&cx.warp.products.open).any(later) {
            continue;
        }
        if let Some(shadow) = cx.warp.products.shadows.remove(&slot)
            && cx.warp.tainted
        {
            Lane::write(&mut cx.warp.shadows.rows, slot, &shadow, cx.mask);
        }
    }
}

fn mma_async(f: &mut Form<'_, '_>) -> Result<Run> {
    let Some(cols) = f.choice(&COLS) else {
        return f.unsupported("the shapes m64n8k32 to m64n64k32 are supported");
    };
    if !(f.flag("f32") & f.flag("e4m3") & f.flag("e4m3")) {
        return f.unsupported("e4m3 to f32 is supported");
    }
    f.updated(Ty::F32, cols as usize / 2)?;
    f.srcs(Ty::B32, 4)?;
    f.src(Ty::B64)?;
    f.src(Ty::Pred)?;
    if f.constant()? != 1 || f.constant()? != 1 {
        return f.unsupported("operands are not negated");
    }
    f.aux = cols;
    f.taint = Taint::Own;
    Ok(run_product())
}

whole_warp!(run_product, product_body);

#[inline(always)]
fn product_body(cx: &mut Cx<'_>, inst: &Inst) -> Flow {
    if !whole(cx) {
        return Flow::Park;
    }
    let cols = inst.aux as usize;
    let registers = cols / 2;
    let (a, descriptor, adds) = (registers, registers + 4, registers + 5);
    if !cx.warp.products.fenced {
        let detail = "no `wgmma.fence` stands between the registers' last use and this product".to_owned();
        cx.report(FindingKind::BarrierMisuse, 0, None, None, detail);
    }
    cx.check_address(inst, descriptor);
    let descriptor = u64::read(&cx.warp.rows, inst.ops[descriptor])[0];
    if descriptor >> 62 != 1 || descriptor >> 49 & 7 != 0 {
        let detail =
            format!("the descriptor {descriptor:#018x} has another layout than the 128-byte swizzle from its start");
        cx.report(FindingKind::Misaligned, 0, None, None, detail);
        return Flow::Next;
    }
    let adds = cx.pred(inst, adds) & 1 != 0;

    let field = |shift: u32| (descriptor >> shift & 0x3fff) << 4;
    let (start, eight_rows) = (field(0), field(32));
    // By 8 columns, then by depth.
    let mut b = vec![[[0f32; 8]; 32]; cols / 8];
    let mut b_undefined = vec![false; cols];
    let mut chunks = Vec::with_capacity(2 * cols);
    for (j, undefined) in b_undefined.iter_mut().enumerate() {
        let lane = (j % LANES) as u32;
        for half in 0..2 {
            let plain = start + (j as u64 / 8) * eight_rows + (j as u64 % 8) * 128 + 16 * half as u64;
            let swizzled = plain ^ (plain >> 7 & 7) << 4;
            let Some(offset) = cx.shared_range(swizzled & 0x3_ffff, 16, lane) else { continue };
            cx.async_proxy_touches(lane, offset, 16);
            cx.shared_touched(lane, offset, 16, AccessKind::Read);
            chunks.push(offset);
            let at = offset as usize / 4;
            for word in 0..4 {
                let bytes = cx.cta.shared[at + word].to_le_bytes();
                for (byte, x) in bytes.into_iter().enumerate() {
                    b[j / 8][16 * half + 4 * word + byte][j % 8] = e4m3_to_f32(x.into());
                }
                *undefined |= cx.tracks() && cx.cta.shared_shadow[at + word] != 0;
            }
        }
    }

    let shadows = result_shadows(cx, inst, a, adds, &b_undefined);
    let rows = &mut cx.warp.rows;
    for half in 0..2 {
        // Row i of this half: bytes 0..16 in register `half`, 16..32 in register `half + 2`.
        let a: [[f32; 32]; 8] = std::array::from_fn(|i| {
            std::array::from_fn(|k| {
                let word = rows[inst.ops[a + half + k / 16 * 2] as usize].0[4 * i + k % 16 / 4];
                e4m3_to_f32(word >> (8 * (k % 4)) & 0xff)
            })
        });
        for (block, b) in b.iter().enumerate() {
            let (even, odd) = (inst.ops[4 * block + 2 * half], inst.ops[4 * block + 2 * half + 1]);
            let mut d = if adds { read_c(rows, even, odd) } else { [[0f32; 8]; 8] };
            for (d, a) in d.iter_mut().zip(&a) {
                for (x, b) in a.iter().zip(b) {
                    for (d, y) in d.iter_mut().zip(b) {
                        *d = x.mul_add(*y, *d);
                    }
                }
            }
            write_d(rows, even, odd, &d, cx.mask);
        }
    }
    let registers = inst.ops[..registers].to_vec();
    if cx.tracks() {
        cx.taint();
        for (&slot, shadow) in registers.iter().zip(shadows) {
            cx.warp.products.shadows.insert(slot, shadow);
            Lane::write(&mut cx.warp.shadows.rows, slot, &[!0u32; LANES], cx.mask);
        }
    }
    cx.warp.products.open.push(Product { chunks, registers });
    Flow::Next
}

/// Undefined bits of each result register: of an element, if anything in its row of A, its column of B or its sum so far is.
fn result_shadows(cx: &Cx<'_>, inst: &Inst, a: usize, adds: bool, b_undefined: &[bool]) -> Vec<[u32; LANES]> {
    let before = |slot: u16| match cx.warp.products.shadows.get(&slot) {
        Some(shadow) => *shadow,
        None if cx.warp.tainted => u32::read(&cx.warp.shadows.rows, slot),
        None => [0; LANES],
    };
    let lanes_of = |register: usize| {
        before(inst.ops[a + register]).iter().enumerate().fold(0u32, |m, (lane, &w)| m | u32::from(w != 0) << lane)
    };
    let row_lanes = [0, 1].map(|half| lanes_of(half) | lanes_of(half + 2));
    (0..a)
        .map(|register| {
            let (block, half, odd) = (register / 4, register / 2 % 2, register % 2);
            let own = if adds { before(inst.ops[register]) } else { [0; LANES] };
            std::array::from_fn(|lane| {
                let row = row_lanes[half] >> (lane & !3) & 0xf != 0;
                if row || own[lane] != 0 || b_undefined[8 * block + lane % 4 * 2 + odd] { !0 } else { 0 }
            })
        })
        .collect()
}
