//! The mistakes that were made while the tutorial's kernel was written: each is refused, in the words that the tutorial
//! shows, at its line.

use lathe::ir::Kernel;
use lathe::prelude::*;
use lathe::trace::TraceErrors;

const TUTORIAL: &str = include_str!("../../../docs/authoring.md");

/// Leaves the loop where the row ends.
#[kernel(warps = 1)]
fn leaves_the_loop(#[read] lens: Slice<i32>, #[write_part] out: Slice<i32>) {
    let len = lens.at(0).load();
    for page in cta::x()..1024 {
        if page * 64 >= len {
            break;
        }
        out.at(page).store(page);
    }
}

/// Reads the row's length before it waits.
#[kernel(warps = 1)]
fn reads_early(#[read] lens: Slice<i32>, #[write_part] out: Slice<i32>) {
    let len = lens.at(cta::x()).load();
    pdl::wait();
    out.at(cta::x()).store(len);
}

/// Keeps what a block computed, and uses it after the block.
#[kernel(warps = 1)]
fn keeps_a_value(#[read] lens: Slice<i32>, #[write_part] out: Slice<i32>) {
    let mut kept = lens.at(0).load();
    let mut of_block = vec![kept];
    if lane::id() == 0 {
        of_block.push(kept + 1);
        kept = of_block[1];
    }
    out.at(0).store(of_block[1] + kept);
}

/// Permutes a tile whose rows are too short for it.
#[kernel(warps = 4)]
fn permutes_short_rows(#[write_part] out: Slice<f32>) {
    let of_warp = shared::<f32>([1, 4]).swizzle(Xor16);
    out.at(0).store(of_warp.at(0, 0).load());
}

/// Lets one warp wait for all.
#[kernel(warps = 4)]
fn waits_alone(#[write_part] out: Slice<f32>) {
    let of_warp = shared::<f32>([1, 4]);
    warp::role("largest of four", 0..1, || {
        cta::sync();
        out.at(0).store(of_warp.at(0, 0).load());
    });
}

#[track_caller]
fn refused(kernel: Result<Kernel, TraceErrors>, line: &str) {
    let errors = kernel.unwrap_err().errors;
    let first = &errors[0];
    let text = include_str!("mistakes.rs").lines().nth(first.loc.line as usize - 1).unwrap();
    assert_eq!(text.trim(), line, "{}", first.message);
    // The tutorial breaks lines where they are long.
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words(TUTORIAL).contains(&words(&first.message)), "not in the tutorial: {}", first.message);
}

#[test]
fn each_is_refused_in_the_words_of_the_tutorial() {
    refused(leaves_the_loop(), "break;");
    refused(reads_early(), "let len = lens.at(cta::x()).load();");
    refused(keeps_a_value(), "out.at(0).store(of_block[1] + kept);");
    refused(permutes_short_rows(), "let of_warp = shared::<f32>([1, 4]).swizzle(Xor16);");
    refused(waits_alone(), "cta::sync();");
}
