//! Memory maps: well-formed, complete, and red exactly where something is wrong.

mod common;

use common::Tape;
use lathe_graph::allocator::{allocate, as_recorded};
use lathe_graph::check::check;
use lathe_graph::draw::{bytes, memory_map};
use lathe_graph::model::{Placement, Pool};
use lathe_graph::order::Order;
use svg::parser::Event;

fn draw(pool: &Pool, placement: &Placement) -> String {
    memory_map(pool, &check(pool, Some(placement)).unwrap(), placement, "a <title> & more")
}

/// A side stream still reads `q` when the main stream gets its bytes for `x`, unless it is joined first.
fn fork(joined_first: bool) -> (Pool, Placement) {
    let mut tape = Tape::new("step", "main");
    let (main, side) = (tape.stream("main"), tape.stream("side"));
    let (q, x) = (tape.transient("q", 4096), tape.transient("x <1>", 4096));
    tape.kernel("project", main, &[], &[q]);
    tape.order(main, side);
    tape.kernel("logits", side, &[q], &[]);
    if joined_first {
        tape.order(side, main);
    }
    tape.kernel("norm", main, &[], &[x]);
    tape.order(side, main);
    tape.kernel("last", main, &[], &[]);
    let pool = tape.finish();
    let placement = allocate(&pool, &as_recorded(&pool), 0).unwrap().placement;
    assert_eq!(placement.address(q), placement.address(x));
    (pool, placement)
}

#[test]
fn the_picture_is_well_formed_and_names_everything() {
    let (pool, placement) = fork(true);
    let picture = draw(&pool, &placement);
    let events: Vec<Event> = svg::read(&picture).unwrap().collect();
    assert!(!events.iter().any(|event| matches!(event, Event::Error(_))));
    for text in ["a &lt;title&gt; &amp; more", "project", "logits", "norm", "x &lt;1&gt; · 4 KiB", "side", "main"] {
        assert!(picture.contains(text), "{text}");
    }
    assert_eq!(picture, draw(&pool, &placement));
}

#[test]
fn bytes_used_without_order_are_red_and_named() {
    let [racy, joined] = [false, true].map(|joined| {
        let (pool, placement) = fork(joined);
        draw(&pool, &placement)
    });
    assert!(racy.contains("E2 logits ∥ norm") && !joined.contains("E2"));
    assert!(racy.contains("1 finding") && joined.contains("no findings"));
}

#[test]
fn an_empty_placement_and_a_large_one_can_be_drawn() {
    let (pool, _) = fork(true);
    assert!(svg::read(&draw(&pool, &Placement::empty(&pool))).is_ok());
    let pool = common::decode(8, 2);
    let plan = lathe_graph::plan::Planner::new(&pool, &Order::of(&pool).unwrap()).plan(&Default::default());
    assert!(draw(&pool, &plan.placement).contains("attention 1"));
}

#[test]
fn sizes_are_written_for_people() {
    for (n, text) in
        [(0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (1536, "1.5 KiB"), (3 << 20, "3 MiB"), (1 << 40, "1 TiB")]
    {
        assert_eq!(bytes(n), text);
    }
}
