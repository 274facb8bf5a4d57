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
    same("warp::sync(); // or the assembler", "drop `barrier.warp`", "it orders nothing but the instructions"),
    same(
        "warp::sync(); // or the assembler",
        "`barrier.warp` comes after `cp_async.tile`",
        "it orders nothing but the instructions",
    ),
    same(".load_if(my_page.lt(table_pages), 0)", "0 becomes 1", NEVER_ASKED),
    same(".load_if(within, 0)", "0 becomes 1", NEVER_ASKED),
    same("let (ctas, slots) = ", "4 becomes 5", WHO_WALKS),
    same("let (ctas, slots) = ", "1 becomes 2", WHO_WALKS),
    same("let (ctas, slots) = ", "`max` becomes `min`", WHO_WALKS),
    same("let (ctas, slots) = ", "swap the operands of `div`", WHO_WALKS),
    same("let mut pages = Scalar::from(0);", "0 becomes 1", WHO_WALKS),
    same("for counted in mine..after {", "1 becomes 2", WHO_WALKS),
    same("pages += ", "64 becomes 65", WHO_WALKS),
    same("pages += ", "63 becomes 64", WHO_WALKS),
    same("pages += ", "`add` becomes `sub`", WHO_WALKS),
    same("pages += ", "swap the operands of `div`", WHO_WALKS),
    same("let mut shift = (leading_zeros(slots)", "swap the operands of `sub`", WHO_WALKS),
    same("let mut shift = (leading_zeros(slots)", "0 becomes 1", WHO_WALKS),
    same("if slots << shift < pages {", "swap the operands of `shl`", WHO_WALKS),
    same("if slots << shift < pages {", "`lt` becomes `le`", WHO_WALKS),
    same("if slots << shift < pages {", "`if` becomes true", WHO_WALKS),
    same("shift += 1;", "1 becomes 2", WHO_WALKS),
    same("if shift > most {", "`gt` becomes `ge`", WHO_WALKS),
    same("if shift > most {", "`if` becomes true", WHO_WALKS),
    same("shift = (shift == most + 1)", "6 becomes 7", WHO_WALKS),
    same("shift = (shift == most + 1)", "4 becomes 5", WHO_WALKS),
    same("shift = (shift == most + 1)", "`eq` becomes `ne`", WHO_WALKS),
    same("shift = (shift == most + 1)", "swap the operands of `select`", WHO_WALKS),
    same("if walks > ctas {", "`gt` becomes `ge`", WHO_WALKS),
    same("if walks > ctas {", "`if` becomes true", WHO_WALKS),
    same("- (ctas / slots - 1);", "1 becomes 2", WHO_WALKS),
    same("- (ctas / slots - 1);", "swap the operands of `div`", WHO_WALKS),
    same("- (ctas / slots - 1);", "swap the operands of `sub`", WHO_WALKS),
    same("begin = (cta < slots)", "`lt` becomes `le`", "where the first wave ends, both give the same"),
    same("let mut found = Walk {", "0 becomes 1", "the lane that is asked has found a walk"),
    same("let mut found = Walk {", "1 becomes 2", "the lane that is asked has found a walk"),
    same(
        "if begin <= index && walks > 0 {",
        "`gt` becomes `ge`",
        "a request without walks comes before the one that counts",
    ),
];

const NEVER_ASKED: &str = "the lanes that get this value are never asked for it";
const WHO_WALKS: &str = "changes who walks a page, and no result: `tests/partition.rs` holds the balance";

const SPAN: &str = "any masks that span the 16 lanes combine the same 16 values";
const LAST_ROW: &str = "lanes past the rows hold the last row, and store it once more";
const EVERY_LANE: &str = "every lane of the half-warp holds the scale";
const PAGE_ID: &str = "a page id of 31 bits: the slots of a pool that needs more would fill 2^45 bytes";
const IN_PAGE: &str = "an offset inside a page is below 8,192";

const QUANTISE: &str = "let (payload, scale) = quantise(";
const SMALLEST: &str = "the bits of every lane's value are larger than either";
const CORRECTED: &str = "what the near quotient is off by is made up for";
const SOONER: &str = "the threads share nothing: what is fetched before it is only fetched sooner";

pub(crate) const BF16_STORE: &[Equivalent] = &[
    same("warp::sync();", "drop `barrier.warp`", SOONER),
    same("warp::sync();", "`barrier.warp` comes after `if`", SOONER),
    same("if row < rows && slot >= 0 {", "`lt` becomes `le`", LAST_ROW),
    same("k_pages.row(place / 64)", "`div` keeps 32 bits", PAGE_ID),
    same(".at(place % 64 * 128)", "`mul` keeps 32 bits", IN_PAGE),
];

pub(crate) const FP8_STORE: &[Equivalent] = &[
    same(QUANTISE, "0 becomes 1", SMALLEST),
    same(QUANTISE, "0.0022321429569274187 becomes 0.002254464386496693", CORRECTED),
    same("if row < rows && slot >= 0 {", "`lt` becomes `le`", LAST_ROW),
    same("k_pages.row(place / 64)", "`div` keeps 32 bits", PAGE_ID),
    same("k_scales.row(place / 64)", "`div` keeps 32 bits", PAGE_ID),
    same(".at(place % 64 * 128)", "`mul` keeps 32 bits", IN_PAGE),
    same("if part == 0 {", "`if` becomes true", EVERY_LANE),
    same("if part == 0 {", "0 becomes 1", EVERY_LANE),
    same("if part == 0 {", "`eq` becomes `ne`", EVERY_LANE),
];

pub(crate) const FUSED_STORE: &[Equivalent] = &[
    same(QUANTISE, "0 becomes 1", SMALLEST),
    same(QUANTISE, "0.0022321429569274187 becomes 0.002254464386496693", CORRECTED),
    same("[8, 4, 2, 1].into_iter()", "8 becomes 9", SPAN),
    same("[8, 4, 2, 1].into_iter()", "4 becomes 5", SPAN),
    same("[8, 4, 2, 1].into_iter()", "2 becomes 3", SPAN),
    same("warp::sync();", "drop `barrier.warp`", SOONER),
    same("warp::sync();", "`barrier.warp` comes after `if`", SOONER),
    same("let stores = row < rows && main_slot >= 0 && completes;", "`lt` becomes `le`", LAST_ROW),
    same("if stored != 0 {", "0 becomes 1", "half a warp stores, or none of it: never the first lane alone"),
    same("if stored != 0 {", "`if` becomes true", "what is computed of a token that stores nothing goes nowhere"),
    same("let place = main_slot.to::<u64>() / 4;", "`div` keeps 32 bits", PAGE_ID),
    same("k_pages.row(token.place / 64)", "`div` keeps 32 bits", PAGE_ID),
    same("k_scales.row(token.place / 64)", "`div` keeps 32 bits", PAGE_ID),
    same(".at(token.place % 64 * 128)", "`mul` keeps 32 bits", IN_PAGE),
    same("if part == 0 {", "`if` becomes true", EVERY_LANE),
    same("if part == 0 {", "0 becomes 1", EVERY_LANE),
    same("if part == 0 {", "`eq` becomes `ne`", EVERY_LANE),
    same("seq_len > 0 && seq_len % 4 == 0", "0 becomes 1", "a multiple of 4 above 0 is above 1"),
    same("completes.select(seq_len - 4, 0)", "0 becomes 1", "a token that stores nothing may turn by anything"),
];

const ROOM: &str = "there is room for one more";
const FINDS_THE_SAME: &str = "a digit more, found in the row or among the candidates, is the same digit";
const NOTHING_LEFT: &str = "a digit of no bits selects nothing more";
const CLEARED_BEHIND: &str = "clears what is behind the counters, which is written before it is read";
const COUNTED_FOR_NOTHING: &str = "a counter that nobody reads";
const NOT_LOOKED_AT: &str = "what is added behind the candidates is not looked at";

pub(crate) const TOPK: &[Equivalent] = &[
    same("if start < 4 {", "4 becomes 5", CLEARED_BEHIND),
    same("if start < 4 {", "`lt` becomes `le`", CLEARED_BEHIND),
    same("if start < 4 {", "`if` becomes true", CLEARED_BEHIND),
    same(
        "cta::sync();",
        "`barrier.cta` comes after `global.load`",
        "it orders shared memory, which the load does not touch",
    ),
    same(
        "let out = indices.at(row.to::<i64>() * i64::from(k));",
        "`mul` keeps 32 bits",
        "shows from 2^20 rows at K 2,048 on, 40 times the largest batch of any engine: too many to emulate",
    ),
    same("for i in (start..k).step_by(THREADS)", "1024 becomes 1025", "of 512 entries each thread writes one at most"),
    same(".load_if(within, 0)", "0 becomes 1", "positions past the length store -1, whatever the page"),
    same("let shift = Scalar::from(32 - WIDTH);", "20 becomes 21", "digits may be of any width"),
    same("for digit in Scalar::from(0)..DIGITS {", "3 becomes 4", NOTHING_LEFT),
    same("if digit == 0 || kth.before", "0 becomes 1", FINDS_THE_SAME),
    same("if digit == 0 || kth.before", "`eq` becomes `ne`", FINDS_THE_SAME),
    same("if digit == 0 || kth.before", "`if` becomes true", FINDS_THE_SAME),
    same("if digit == 0 || kth.before", "8192 becomes 8193", ROOM),
    same("if digit == 0 || kth.before", "`ge` becomes `gt`", ROOM),
    same("let fits = kth.before + kth.among < CANDIDATES;", "8192 becomes 8193", ROOM),
    same("let fits = kth.before + kth.among < CANDIDATES;", "`lt` becomes `le`", ROOM),
    same("let mut from = Scalar::from(0u32);", "0 becomes 1", "that of infinity is the first rank, and above 1"),
    same("..fits.select(1, 2) {", "1 becomes 2", NOT_LOOKED_AT),
    same("..fits.select(1, 2) {", "2 becomes 3", NOT_LOOKED_AT),
    same("for _ in Scalar::from(1)..DIGITS {", "3 becomes 4", NOTHING_LEFT),
    same("if kth.among > kth.wanted {", "`gt` becomes `ge`", NOTHING_LEFT),
    same("if kth.among > kth.wanted {", "`if` becomes true", NOTHING_LEFT),
    same(
        "let i = is_there.select(first + start, 0);",
        "0 becomes 1",
        "what a thread without an entry reads is not used",
    ),
    same("let behind = ", "1 becomes 2", "behind the digits is behind them, be it by one or two"),
    same("let mut first = Scalar::from(0);", "0 becomes 1", "the lanes that keep this value are never asked"),
    same("if lane::id() < N as i32 {", "1 becomes 2", COUNTED_FOR_NOTHING),
    same("if lane::id() < N as i32 {", "2 becomes 3", COUNTED_FOR_NOTHING),
    same("if lane::id() < N as i32 {", "`lt` becomes `le`", COUNTED_FOR_NOTHING),
];
