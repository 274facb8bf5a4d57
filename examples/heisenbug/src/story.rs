//! What was seen, in words.

use std::fmt::Write;

use crate::seen::{Study, Wrong};

const BOLD: &str = "\x1b[1m";
const RED: &str = "\x1b[1;31m";
const GREEN: &str = "\x1b[32m";
const PLAIN: &str = "\x1b[0m";

fn rate(seen: &Wrong) -> String {
    let colour = if seen.wrong > 0 { RED } else { GREEN };
    format!("{colour}{:>3} of {:<3}{PLAIN}", seen.wrong, seen.replays)
}

fn right(side: Option<bool>) -> &'static str {
    match side {
        Some(true) => "right",
        Some(false) => "wrong",
        None => "excluded by the edges",
    }
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "bytes of its own".into() } else { names.join(", ") }
}

/// The story.
pub fn tell(study: &Study) -> String {
    let mut text = String::new();
    write(study, &mut text).expect("a string takes everything");
    text
}

fn write(study: &Study, out: &mut String) -> std::fmt::Result {
    let heading = |out: &mut String, title: &str| writeln!(out, "\n{BOLD}{title}{PLAIN}");
    writeln!(out, "{BOLD}A layer with its indexer on a stream of its own{PLAIN}, on the {}", study.backend)?;

    heading(out, "1. Who is hit: captured, more than one request, bf16")?;
    writeln!(out, "   keys  batch   q bytes  residual bytes  one by one  as a graph  `residual` lies on")?;
    for row in &study.table {
        writeln!(
            out,
            "   {:<5} {:>5} {:>9} {:>15}  {}  {}  {}",
            row.keys,
            row.batch,
            row.q_bytes,
            row.residual_bytes,
            rate(&row.eager),
            rate(&row.captured),
            list(&row.residual_lies_on),
        )?;
    }
    writeln!(
        out,
        "   Wrong replays; each order is one that the graph's edges allow. The allocator gives `residual` the smallest\n   \
         free block of its stream that is large enough. With one request that is the projection's workspace; in fp8 the\n   \
         block of q is too small; in bf16, from two requests on, it is the block of q, which the indexer may still read."
    )?;

    heading(out, "2. A cloning instrument hides it")?;
    let cloning = &study.cloning;
    writeln!(out, "   `x.clone()` before, compared after the projections:  {} wrong", rate(&cloning.captured))?;
    writeln!(
        out,
        "   It moved {} tensors. The clone's block is a better fit for `residual`, which now lies on: {}",
        cloning.moved.len(),
        list(&cloning.residual_lies_on)
    )?;

    heading(out, "3. Instruments that move nothing do not")?;
    let observed = &study.observed;
    writeln!(out, "   addresses and orders changed with canary and diff on:  {}", observed.moved)?;
    writeln!(out, "   the same replays under the canary:  {} wrong", rate(&observed.captured))?;
    writeln!(
        out,
        "   canary: {} chunks of the index keys changed outside this step's slots (95 % sure to see it from {:.1} % of replays on)",
        observed.intrusions,
        100.0 * observed.would_have_seen
    )?;
    writeln!(out, "   diff against the serial order, {} unequal inputs:", observed.unequal_inputs)?;
    for changed in &observed.changed {
        let requests: Vec<String> = changed.requests.iter().map(u64::to_string).collect();
        writeln!(
            out,
            "     `{}`: {} bytes from byte {} on, request {}",
            changed.buffer,
            changed.bytes,
            changed.first,
            requests.join(" and ")
        )?;
    }
    writeln!(out, "   So no store strays: the wrong values came in through what this step's own stores read.")?;

    heading(out, "4. The two-by-two names the cause")?;
    let cells = &study.cells;
    writeln!(out, "                     addresses as allocated  no bytes shared")?;
    let row = |out: &mut String, name: &str, one: &Wrong, other: &Wrong| {
        writeln!(out, "   {name:<17} {:<30}   {}", rate(one), rate(other))
    };
    row(out, "as a graph", &cells.concurrent_planned, &cells.concurrent_disjoint)?;
    row(out, "one by one", &cells.serialised_planned, &cells.serialised_disjoint)?;
    writeln!(out, "   {BOLD}{}{PLAIN}", cells.cause)?;
    writeln!(
        out,
        "   The pair forced: `logits` before `keep residual` is {}, `keep residual` before `logits` is {}.",
        right(cells.forced.0),
        right(cells.forced.1)
    )?;

    heading(out, "5. The checker had refused it at capture")?;
    writeln!(out)?;
    study.refusal.text.lines().try_for_each(|line| writeln!(out, "   {line}"))?;
    let verdict = if study.refusal.witness_corrupts { "corrupts" } else { "does not corrupt" };
    writeln!(out, "   The first finding's order, replayed with the real kernels, {verdict}.")?;

    heading(out, "6. What removes it, and what does not")?;
    writeln!(out, "   wrong      findings  ")?;
    for repair in study.repairs.iter().chain([&study.persistent]) {
        writeln!(out, "   {}  {:>7}  {}", rate(&repair.captured), repair.findings, repair.what)?;
    }
    writeln!(out, "   Persistent is no order: {}.", study.persistent_message)
}
