//! Small faults, planted one at a time: what checks and tests of a kernel are themselves tested with.
//!
//! A mutant differs from its kernel by one edit that an author could have got wrong: a barrier left out, a wait too
//! lax, an index off by one, a mask too weak. A check that lets one pass has a hole, or the mutant is equivalent.

mod change;
mod edits;

use std::collections::HashSet;
use std::fmt;

use edits::edits;

use crate::ir::{Kernel, ValueId};
use crate::loc::Loc;

/// A kernel with one fault.
#[derive(Clone, Debug)]
pub struct Mutant {
    /// What kind of fault it is.
    pub rule: Rule,
    /// What was done to which instruction, e.g. "drop `barrier.cta`".
    pub edit: String,
    /// Where the author wrote that instruction.
    pub loc: Loc,
    /// The faulty kernel.
    pub kernel: Kernel,
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.loc, self.edit)
    }
}

/// A fault that no caller could see: a mutant that is right not to be caught.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Equivalent {
    /// Text that the instruction's source line holds.
    pub line: &'static str,
    /// The mutant's edit.
    pub edit: &'static str,
    /// Why nothing changes.
    pub reason: &'static str,
}

impl Equivalent {
    /// Whether this is `mutant`, whose instruction stands on the source line `line`.
    pub fn covers(&self, mutant: &Mutant, line: &str) -> bool {
        line.contains(self.line) && mutant.edit == self.edit
    }
}

/// The kinds of faults.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Rule {
    /// A barrier is left out.
    DropBarrier,
    /// A barrier comes after the next access of memory, not before it.
    MoveBarrier,
    /// A wait, for copies, for a phase or for earlier kernels, is left out.
    DropWait,
    /// A wait comes after the next access of memory, not before it.
    MoveWait,
    /// A wait lets one more group of copies be in flight.
    LaxWait,
    /// A group of copies is not ended.
    DropCommit,
    /// A fence between proxies is left out.
    DropFence,
    /// Nobody arrives at a barrier that others wait at.
    DropArrival,
    /// A store is left out.
    DropStore,
    /// A ring has one stage less than its loop believes.
    ShortRing,
    /// A comparison includes its bound, or no longer does.
    MoveBound,
    /// A guarded block or access happens always.
    DropGuard,
    /// A 64-bit integer, or an offset computed in 64 bits, keeps 32 of them.
    NarrowInteger,
    /// A conversion gives NaN where it should saturate.
    DropSaturation,
    /// An integer constant is one more.
    ShiftConstant,
    /// A float constant is one hundredth more.
    ScaleConstant,
    /// The operands of an operation that has an order are swapped.
    SwapOperands,
    /// An operation becomes its neighbour: a sum a difference, a maximum a minimum.
    ReplaceOperation,
}

impl Rule {
    /// Every kind, in the order of tables.
    pub const ALL: [Rule; 18] = [
        Rule::DropBarrier,
        Rule::MoveBarrier,
        Rule::DropWait,
        Rule::MoveWait,
        Rule::LaxWait,
        Rule::DropCommit,
        Rule::DropFence,
        Rule::DropArrival,
        Rule::DropStore,
        Rule::ShortRing,
        Rule::MoveBound,
        Rule::DropGuard,
        Rule::NarrowInteger,
        Rule::DropSaturation,
        Rule::ShiftConstant,
        Rule::ScaleConstant,
        Rule::SwapOperands,
        Rule::ReplaceOperation,
    ];

    /// A few words for tables.
    pub const fn name(self) -> &'static str {
        match self {
            Rule::DropBarrier => "barrier left out",
            Rule::MoveBarrier => "barrier too late",
            Rule::DropWait => "wait left out",
            Rule::MoveWait => "wait too late",
            Rule::LaxWait => "wait too lax",
            Rule::DropCommit => "group not ended",
            Rule::DropFence => "fence left out",
            Rule::DropArrival => "arrival left out",
            Rule::DropStore => "store left out",
            Rule::ShortRing => "ring one stage short",
            Rule::MoveBound => "bound off by one",
            Rule::DropGuard => "guard left out",
            Rule::NarrowInteger => "integer narrowed",
            Rule::DropSaturation => "saturation left out",
            Rule::ShiftConstant => "constant off by one",
            Rule::ScaleConstant => "constant off by 1 %",
            Rule::SwapOperands => "operands swapped",
            Rule::ReplaceOperation => "operation replaced",
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The values that something does which is more than to compute them, or others, for nothing.
fn used(kernel: &Kernel) -> HashSet<ValueId> {
    let mut used = HashSet::new();
    // Uses come after what they use, but for variables, whose accesses are no pure ops.
    for (_, inst) in kernel.insts().into_iter().rev() {
        if !inst.op.is_pure() || inst.results.iter().any(|result| used.contains(result)) {
            used.extend(inst.operands.iter().copied());
        }
    }
    used
}

/// Every mutant of `kernel`, in the order of its instructions. What no check could see, such as an earlier or later
/// release of dependent kernels, is not among them.
pub fn mutants(kernel: &Kernel) -> Vec<Mutant> {
    let mut mutants = Vec::new();
    let mut planted = HashSet::new();
    let used = used(kernel);
    for (path, inst) in kernel.insts() {
        // What folded into something else is not printed.
        if !inst.results.is_empty() && inst.results.iter().all(|result| !used.contains(result)) {
            continue;
        }
        for (rule, edit, change) in edits(kernel, &path, inst) {
            // What the author wrote once may be there many times, unrolled.
            if !planted.insert((inst.loc, edit.clone())) {
                continue;
            }
            let mut mutant = kernel.clone();
            change.apply(&mut mutant, &path);
            mutants.push(Mutant { rule, edit, loc: inst.loc, kernel: mutant });
        }
    }
    for (index, tile) in kernel.tiles.iter().enumerate() {
        if let Some(stages) = tile.stages.filter(|&stages| stages > 1) {
            let mut mutant = kernel.clone();
            mutant.tiles[index].stages = Some(stages - 1);
            let edit = format!("`{}` has {} stages, not {stages}", tile.name, stages - 1);
            mutants.push(Mutant { rule: Rule::ShortRing, edit, loc: tile.loc, kernel: mutant });
        }
    }
    mutants
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handles::Handle;
    use crate::ops::example::{kernel, memory, output};
    use crate::prelude::*;

    fn original() -> Kernel {
        let traced = kernel("k", || {
            let ring = shared::<f32>([1, 32]).stages(2);
            let x = memory::<f32, Read>("x");
            pdl::wait();
            ring.stage(0).copy_async(x.at(0));
            commit();
            wait_all_but(0);
            cta::sync();
            let lane = lane::id();
            output(ring.stage(0).at(0, lane).load().max(2.0f32));
        });
        traced.expect("traces")
    }

    #[test]
    fn each_mutant_differs_by_its_edit_and_names_it() {
        let original = original();
        let mutants = mutants(&original);
        let text = original.to_string();
        for mutant in &mutants {
            let changed = mutant.kernel.to_string() != text || mutant.rule == Rule::ShortRing;
            assert!(changed, "{mutant} changes nothing");
            assert_eq!(mutant.loc.file, file!());
        }
        let count = |rule| mutants.iter().filter(|mutant| mutant.rule == rule).count();
        for (rule, expected) in [
            (Rule::DropBarrier, 1),
            (Rule::MoveBarrier, 1),
            (Rule::DropWait, 2),
            (Rule::MoveWait, 2),
            (Rule::LaxWait, 1),
            (Rule::DropCommit, 1),
            (Rule::DropStore, 1),
            (Rule::ShortRing, 1),
            (Rule::ScaleConstant, 1),
            (Rule::ReplaceOperation, 1),
        ] {
            assert_eq!(count(rule), expected, "{rule}");
        }
    }

    /// The mutants of a rule, of the kernel that `body` makes.
    fn of_rule(rule: Rule, body: impl FnOnce()) -> Vec<Kernel> {
        let original = kernel("k", body).expect("traces");
        mutants(&original).into_iter().filter(|mutant| mutant.rule == rule).map(|mutant| mutant.kernel).collect()
    }

    fn cuda(kernel: &Kernel) -> String {
        kernel.cuda(crate::target::Target::Sm120a).expect("prints").source
    }

    #[test]
    fn a_late_barrier_comes_after_the_next_access() {
        let late = of_rule(Rule::MoveBarrier, || {
            let tile = shared::<f32>([1, 32]);
            tile.at(0, lane::id()).store(1.0f32);
            warp::sync();
            output(tile.at(0, 0).load());
        });
        let text = cuda(&late[0]);
        assert!(text.find("__syncwarp").unwrap() > text.find("load_shared_float(tile0)").unwrap(), "{text}");
    }

    #[test]
    fn a_guard_left_out_is_an_if_that_always_runs_or_an_access_without_a_mask() {
        let always = of_rule(Rule::DropGuard, || {
            let x = memory::<i32, Read>("x");
            output(x.at(lane::id()).load_if(lane::id().lt(4), 0));
            memory::<i32, WritePart>("y").at(0).store_if(lane::id().eq(0), 1);
            let loc = crate::loc::Loc::caller();
            let low = lane::id().lt(3);
            crate::trace::with(|b| b.begin_if(low.id(), loc));
            output(lane::id());
            crate::trace::with(|b| b.end_if(loc));
        });
        let texts: Vec<String> = always.iter().map(cuda).collect();
        assert!(texts[0].contains("const int x_value = load(x + lane);"), "{}", texts[0]);
        assert!(texts[1].contains("  y[0] = 1;"), "{}", texts[1]);
        assert!(texts[2].contains("if (true) {"), "{}", texts[2]);
    }

    #[test]
    fn a_narrow_integer_keeps_32_bits_and_a_narrow_row_is_an_offset_of_32_bits() {
        let narrow = of_rule(Rule::NarrowInteger, || {
            let rows = crate::ops::example::rows::<f32, Read>("rows");
            let [i] = crate::ops::example::inputs::<i64, 1>();
            output(rows.row(cta::x()).at(i * 128i64).load());
        });
        let texts: Vec<String> = narrow.iter().map(cuda).collect();
        assert_eq!(texts.len(), 2);
        assert!(texts[0].contains("rows + (int)blockIdx.x * (int)rows_stride"), "{}", texts[0]);
        assert!(
            texts[1].contains("(long long)(int)(x * 128)") || texts[1].contains("(long long)(int)(x_2 * 128)"),
            "{}",
            texts[1]
        );
    }

    #[test]
    fn a_conversion_without_saturation_makes_nan() {
        let open = of_rule(Rule::DropSaturation, || {
            let x: [Scalar<f32>; 4] = memory::<f32, Read>("x").at(0).load_vector(4).elements();
            memory::<e4m3, WritePart>("y").at(0).store_vector(Vector::saturating(&[x, x].concat()));
        });
        let text = cuda(&open[0]);
        assert!(text.contains("fabsf(") && text.contains("> 448.0f ? __int_as_float(0x7fc00000)"), "{text}");
    }

    #[test]
    fn arrivals_fences_and_groups_are_left_out_one_at_a_time() {
        let count = |rule| {
            of_rule(rule, || {
                let (tile, full) = (shared::<f32>([4, 32]), mbarriers(1));
                full.init(1);
                fence::mbarrier_init();
                full.at(0).arrive_expect_tx(tile.bytes());
                tile.copy_bulk(crate::ops::example::rows::<f32, Read>("x").row(0), full.at(0));
                full.at(0).wait(0);
                fence::async_proxy();
                tile.store_bulk(memory::<f32, WritePart>("y").at(0));
                commit_bulk();
                wait_bulk_all_but(0);
            })
            .len()
        };
        let rules =
            [Rule::DropArrival, Rule::DropFence, Rule::DropStore, Rule::DropCommit, Rule::DropWait, Rule::LaxWait];
        assert_eq!(rules.map(count), [1, 2, 1, 1, 2, 1]);
    }

    #[test]
    fn a_short_ring_has_less_memory_than_its_loop_uses() {
        let original = original();
        let short = mutants(&original).into_iter().find(|mutant| mutant.rule == Rule::ShortRing).unwrap();
        assert_eq!(short.kernel.shared_bytes() * 2, original.shared_bytes());
    }
}
