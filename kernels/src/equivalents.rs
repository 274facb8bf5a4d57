//! Faults of the kernels that no caller could see, each with its reason: mutants that are right to survive.

use lathe_codegen::mutate::Equivalent;

const fn same(line: &'static str, edit: &'static str, reason: &'static str) -> Equivalent {
    Equivalent { line, edit, reason }
}

pub(crate) const LOGITS: &[Equivalent] = &[
    same(
        "q.at(row.to::<i64>() * i64::from(heads * 128))",
        "`mul` keeps 32 bits",
        "a launch has at most 65,535 rows, of at most 64 heads: fewer than 2^31 elements",
    ),
    same("warpgroup::id()", "0 becomes 1", "any lane of a warp may tell the others its warpgroup: all have the same"),
    same("warp::sync(); // or the assembler", "drop `barrier.warp`", "it orders nothing but the instructions"),
    same(
        "warp::sync(); // or the assembler",
        "`barrier.warp` comes after `cp_async.tile`",
        "it orders nothing but the instructions",
    ),
    same(".load_if(my_page.lt(table_pages), 0)", "0 becomes 1", "the lanes that get this value are never asked for it"),
];

const SPAN: &str = "any masks that span the 16 lanes combine the same 16 values";
const LAST_ROW: &str = "lanes past the rows hold the last row, and store it once more";
const EVERY_LANE: &str = "every lane of the half-warp holds the scale";
const PAGE_ID: &str = "a page id of 31 bits: the slots of a pool that needs more would fill 2^45 bytes";
const IN_PAGE: &str = "an offset inside a page is below 8,192";

pub(crate) const BF16_STORE: &[Equivalent] = &[
    same("k_pages.row(place / 64)", "`div` keeps 32 bits", PAGE_ID),
    same(".at(place % 64 * 128)", "`mul` keeps 32 bits", IN_PAGE),
];

pub(crate) const FP8_STORE: &[Equivalent] = &[
    same("[8, 4, 2, 1].into_iter()", "8 becomes 9", SPAN),
    same("[8, 4, 2, 1].into_iter()", "4 becomes 5", SPAN),
    same("[8, 4, 2, 1].into_iter()", "2 becomes 3", SPAN),
    same("if row < rows && slot >= 0 {", "`lt` becomes `le`", LAST_ROW),
    same("k_pages.row(place / 64)", "`div` keeps 32 bits", PAGE_ID),
    same("k_scales.row(place / 64)", "`div` keeps 32 bits", PAGE_ID),
    same(".at(place % 64 * 128)", "`mul` keeps 32 bits", IN_PAGE),
    same("if part == 0 {", "`if` becomes true", EVERY_LANE),
    same("if part == 0 {", "0 becomes 1", EVERY_LANE),
    same("if part == 0 {", "`eq` becomes `ne`", EVERY_LANE),
];

pub(crate) const FUSED_STORE: &[Equivalent] = &[
    same("[8, 4, 2, 1].into_iter()", "8 becomes 9", SPAN),
    same("[8, 4, 2, 1].into_iter()", "4 becomes 5", SPAN),
    same("[8, 4, 2, 1].into_iter()", "2 becomes 3", SPAN),
    same("if row < rows && main_slot >= 0 && completes {", "`lt` becomes `le`", LAST_ROW),
    same("let place = main_slot.to::<u64>() / 4;", "`div` keeps 32 bits", PAGE_ID),
    same("k_pages.row(place / 64)", "`div` keeps 32 bits", PAGE_ID),
    same("k_scales.row(place / 64)", "`div` keeps 32 bits", PAGE_ID),
    same(".at(place % 64 * 128)", "`mul` keeps 32 bits", IN_PAGE),
    same("if part == 0 {", "`if` becomes true", EVERY_LANE),
    same("if part == 0 {", "0 becomes 1", EVERY_LANE),
    same("if part == 0 {", "`eq` becomes `ne`", EVERY_LANE),
    same("seq_len > 0 && seq_len % 4 == 0", "0 becomes 1", "a multiple of 4 above 0 is above 1"),
    same("completes.select(seq_len - 4, 0)", "0 becomes 1", "a token that stores nothing may turn by anything"),
];

pub(crate) const TOPK: &[Equivalent] = &[
    same("for i in (start..k).step_by(THREADS)", "512 becomes 513", "of 512 entries each thread writes one"),
    same(".load_if(within, 0)", "0 becomes 1", "positions past the length store -1, whatever the page"),
    same("for pass in Scalar::from(0)..3 {", "3 becomes 4", "a digit of no bits selects nothing more"),
    same(
        "for bin in (start..BINS).step_by(THREADS)",
        "2048 becomes 2049",
        "clears one element of the next tile, which is written before it is read",
    ),
    same("if above < wanted && above + own >= wanted {", "`lt` becomes `le`", "the same test decides again inside"),
    same("if above < wanted && above + own >= wanted {", "`if` becomes true", "the same test decides again inside"),
    same(
        "let out = indices.at(row.to::<i64>() * i64::from(k));",
        "`mul` keeps 32 bits",
        "shows from 2^20 rows at K 2,048 on, 40 times the largest batch of any engine: too many to emulate",
    ),
    same("let at = taken.at(0, equal.select(1, 0))", "swap the operands of `select`", "the two counters change roles"),
    same("out.at(equal.select(k - 1 - at, at))", "swap the operands of `select`", "the order of entries is free"),
];
