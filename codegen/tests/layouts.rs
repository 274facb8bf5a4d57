//! Where lanes read and write: the printed address arithmetic, evaluated for every lane, against the layouts of the PTX
//! manual (section "Matrix fragments for mma.m16n8k16" and `ldmatrix`).
//!
//! With `g = lane / 4` and `t = lane % 4`: A holds rows g and g + 8, columns 2t, 2t + 1 and 8 more; B (transposed) holds
//! column g, depths 2t, 2t + 1 and 8 more; the accumulator holds rows g and g + 8, columns 2t and 2t + 1. `ldmatrix`
//! hands lane l the elements 2t, 2t + 1 of row g of matrix i, whose row r has the address that lane 8i + r gives.

mod common;

use common::{Names, declare, eval, split_top};
use lathe_codegen::handles::Argument;
use lathe_codegen::ir::{Kernel, Phase, SharedTile};
use lathe_codegen::loc::Loc;
use lathe_codegen::prelude::*;
use lathe_codegen::target::Target;
use lathe_codegen::trace::{KernelSpec, trace};

fn argument<A: Argument>(name: &str) -> A {
    A::declare(name, Phase::AfterWait, Loc::caller())
}

/// Copies a tile of each operand, multiplies, and stores the sums of rows.
fn product(rows: i32, cols: i32, depth: i32) -> Kernel {
    let spec = KernelSpec { name: "product", doc: "", warps: 4, ctas_per_sm: 1, loc: Loc::caller() };
    trace(spec, || {
        let a: Slice<bf16> = argument("a_in");
        let b: Slice<bf16> = argument("b_in");
        let w: Slice<f32> = argument("w_in");
        let out: Slice<f32, WritePart> = argument("out");
        let a_tile = shared::<bf16>([rows, depth]).per_warp().swizzle(Xor16);
        let b_tile = shared::<bf16>([cols, depth]).swizzle(Xor16);
        a_tile.copy_async(a.start());
        b_tile.copy_async(b.start());
        commit();
        wait_all_but(0);
        cta::sync();
        let dots = mma_abt(a_tile.load_a(), b_tile.load_b());
        let w = w.start().load_cols(cols);
        out.start().store_rows((relu(dots) * w).sum_cols(), below(rows));
    })
    .expect("traces")
}

fn source(kernel: &Kernel) -> String {
    kernel.cuda(Target::Sm120a).expect("prints").source
}

/// The arguments of the only call of `function` in `text`.
fn call<'a>(text: &'a str, function: &str) -> Vec<String> {
    let at = text.find(function).unwrap_or_else(|| panic!("no call of {function} in {text}"));
    let rest: &'a str = &text[at + function.len()..];
    split_top(rest.strip_prefix('(').unwrap_or(rest).split(");").next().expect("ends"), ',')
}

/// The names that hold for a lane of warp 0 at the start of the kernel, with both tiles at their offsets.
fn lane_names(kernel: &Kernel, lane: i64) -> Names {
    let mut names: Names = [("lane", lane), ("warp", 0), ("shared", 0)].map(|(n, v)| (n.to_owned(), v)).into();
    names.insert("threadIdx.x".to_owned(), lane);
    for tile in &kernel.tiles {
        names.insert(tile.name.clone(), tile.offset.into());
    }
    names
}

/// The row and column that a shared-memory address holds.
fn element(tile: &SharedTile, address: i64) -> (u32, u32) {
    let [_, _, row, column] = tile.element_at(address as u32 - tile.offset).expect("inside the tile");
    (row, column)
}

#[test]
fn a_fragments_are_those_of_the_manual() {
    for (rows, depth) in [(16, 128), (16, 64), (32, 128), (64, 64)] {
        let kernel = product(rows, 16, depth);
        let text = source(&kernel);
        let loads = &text[text.find("unsigned a[").expect("the fragment")..];
        let address = call(loads, "ldmatrix_x4(a")[1].clone();
        let declared = text.lines().find(|line| line.contains("tile0_lane =")).expect("the lane's address");
        for lane in 0..32 {
            let mut names = lane_names(&kernel, lane);
            declare(declared, &mut names);
            for m in 0..rows / 16 {
                for k in 0..depth / 16 {
                    names.extend([("m".to_owned(), m.into()), ("k".to_owned(), k.into())]);
                    // Register i of lane l: row g + 8 (i % 2), column 2t + 8 (i / 2); matrix i, row g, element 2t.
                    let (matrix, row) = (lane as u32 / 8, lane as u32 % 8);
                    let expected = (16 * m as u32 + row + 8 * (matrix % 2), 16 * k as u32 + 8 * (matrix / 2));
                    assert_eq!(element(&kernel.tiles[0], eval(&address, &names)), expected, "lane {lane} m {m} k {k}");
                }
            }
        }
    }
}

#[test]
fn b_fragments_are_those_of_the_manual() {
    for (cols, depth) in [(16, 128), (64, 128), (32, 64)] {
        let kernel = product(16, cols, depth);
        let text = source(&kernel);
        let loads = &text[text.find("unsigned b[").expect("the fragment")..];
        let arguments = call(loads, "ldmatrix_x4(b");
        let declared = text.lines().find(|line| line.contains("tile1_lane =")).expect("the lane's address");
        assert!(arguments[0].ends_with("[k * 2]") && arguments[1].ends_with("[k * 2 + 1]"), "{arguments:?}");
        for lane in 0..32 {
            let mut names = lane_names(&kernel, lane);
            declare(declared, &mut names);
            for n in 0..cols / 8 {
                for pair in 0..depth / 32 {
                    names.extend([("n".to_owned(), n.into()), ("k".to_owned(), pair.into())]);
                    // Register i of step s: column g, depth 16 s + 2t + 8 i; matrices 0, 1 are step 2k, 2, 3 step 2k + 1.
                    let (matrix, row) = (lane as u32 / 8, lane as u32 % 8);
                    let expected = (8 * n as u32 + row, 32 * pair as u32 + 8 * matrix);
                    let found = element(&kernel.tiles[1], eval(&arguments[2], &names));
                    assert_eq!(found, expected, "lane {lane} n {n} pair {pair}");
                }
            }
        }
    }
}

/// Two lanes whose 16-byte chunks start in the same banks of one row of 8 would take turns.
#[test]
fn ldmatrix_and_copies_are_free_of_bank_conflicts() {
    let kernel = product(16, 16, 128);
    let text = source(&kernel);
    let declared = text.lines().find(|line| line.contains("tile0_lane =")).expect("the lane's address");
    for matrix in 0..4 {
        let mut banks: Vec<i64> = (0..8)
            .map(|row| {
                let mut names = lane_names(&kernel, matrix * 8 + row);
                declare(declared, &mut names);
                names["tile0_lane"] % 128 / 16
            })
            .collect();
        banks.sort_unstable();
        assert_eq!(banks, [0, 1, 2, 3, 4, 5, 6, 7]);
    }
}

#[test]
fn a_copied_tile_has_every_element_in_its_place() {
    for (rows, cols, depth) in [(16, 64, 128), (32, 16, 64), (16, 128, 256)] {
        let kernel = product(rows, cols, depth);
        let text = source(&kernel);
        let helper = &text[text.find("void copy_tile_xor16").expect("the helper")..];
        let helper = &helper[..helper.find("\n}\n").expect("ends")];
        let arguments = call(&helper[helper.find("++i)").expect("the loop")..], "cp_async_16");
        for (tile, workers) in [(&kernel.tiles[0], 32u32), (&kernel.tiles[1], 128)] {
            let mut written = vec![false; (tile.stage_bytes() / 16) as usize];
            for worker in 0..workers {
                let mut names = Names::new();
                for (name, value) in
                    [("rows", tile.rows), ("row_bytes", tile.row_bytes()), ("workers", workers), ("worker", worker)]
                {
                    names.insert(name.to_owned(), value.into());
                }
                names.extend([("to".to_owned(), 0), ("source".to_owned(), i64::from(worker) * 16)]);
                declare(helper, &mut names);
                for i in 0..i64::from(tile.rows) / names["step"] {
                    names.insert("i".to_owned(), i);
                    let from = eval(&arguments[1], &names) as u32;
                    let [_, _, row, column] = tile.element_at(eval(&arguments[0], &names) as u32).expect("inside");
                    assert_eq!(row * tile.row_bytes() + column * 2, from, "worker {worker} turn {i}");
                    assert!(!std::mem::replace(&mut written[(from / 16) as usize], true), "written twice");
                }
            }
            assert!(written.iter().all(|w| *w), "a chunk of {} x {} is not copied", tile.rows, tile.cols);
        }
    }
}

#[test]
fn columns_and_row_sums_are_those_of_the_accumulator() {
    for rows in [16, 32, 64] {
        let kernel = product(rows, 32, 128);
        let text = source(&kernel);
        let column = call(&text[text.find("float cols").expect("the columns")..], "load_x2(cols[n]")[1].clone();
        let column = column.trim().strip_prefix("w_in + ").expect("an offset").to_owned();
        let row = text.lines().find(|line| line.contains("int lane_row =")).expect("the lane's row");
        let mut stored = vec![0; rows as usize];
        for lane in 0..32i64 {
            let (g, t) = (lane / 4, lane % 4);
            let mut names = lane_names(&kernel, lane);
            for n in 0..4 {
                names.insert("n".to_owned(), n);
                assert_eq!(eval(&column, &names), 8 * n + 2 * t);
            }
            for m in 0..(i64::from(rows) + 31) / 32 {
                names.insert("m".to_owned(), m);
                declare(row, &mut names);
                let row = names["lane_row"];
                // Of 16 rows, even lanes hold row g and odd lanes row g + 8, twice; of 32, lane t of four holds row
                // g + 8t, as `quad_sum` returns them.
                let expected = if rows == 16 { g + 8 * (t % 2) } else { 32 * m + g + 8 * t };
                assert_eq!(row, expected, "rows {rows} lane {lane} m {m}");
                stored[row as usize] += 1;
            }
        }
        assert!(stored.iter().all(|&times| times == if rows == 16 { 2 } else { 1 }), "{stored:?}");
    }
}
