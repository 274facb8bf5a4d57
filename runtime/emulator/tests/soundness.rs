//! The race check against exhaustive search: on small random programs the verdict must be the one that trying every interleaving
//! of the lanes gives.

mod common;

use common::Memory;
use lathe_emulator::{CpAsync, FindingKind, Launch, Module, Options};
use proptest::prelude::*;

/// Threads that access memory: two lanes of each of two warps. All other threads only take part in barriers.
const ACTORS: [u32; 4] = [0, 1, 32, 33];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Read {
        actor: usize,
        word: u32,
    },
    Write {
        actor: usize,
        word: u32,
    },
    /// cp.async of a word, in a group of its own.
    Copy {
        actor: usize,
        word: u32,
    },
    /// cp.async.wait_group.
    Wait {
        actor: usize,
        allowed: u32,
    },
    /// bar.sync of the CTA.
    CtaBarrier,
    /// bar.warp.sync in each warp.
    WarpBarrier,
    /// Warp 0 arrives at a named barrier, warp 1 waits there.
    HandOver,
    /// Warp 0 arrives at an mbarrier, warp 1 waits for it.
    Signal,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let actor = 0..ACTORS.len();
    let word = 0u32..2;
    let step = prop_oneof![
        3 => (actor.clone(), word.clone()).prop_map(|(actor, word)| Step::Read { actor, word }),
        3 => (actor.clone(), word.clone()).prop_map(|(actor, word)| Step::Write { actor, word }),
        2 => (actor.clone(), word).prop_map(|(actor, word)| Step::Copy { actor, word }),
        2 => (actor, 0u32..2).prop_map(|(actor, allowed)| Step::Wait { actor, allowed }),
        2 => Just(Step::CtaBarrier),
        2 => Just(Step::WarpBarrier),
        1 => Just(Step::HandOver),
        1 => Just(Step::Signal),
    ];
    proptest::collection::vec(step, 2..9).prop_map(|mut steps| {
        // One phase of the mbarrier is enough.
        let first = steps.iter().position(|s| *s == Step::Signal);
        let mut at = 0;
        steps.retain(|s| {
            at += 1;
            *s != Step::Signal || Some(at - 1) == first
        });
        steps
    })
}

fn ptx(steps: &[Step]) -> String {
    let mut text = String::from(
        ".version 9.0\n.target sm_120a\n.address_size 64\n.visible .entry k(.param .u64 source)\n{\n\
         .reg .b32 %r<9>;\n.reg .b64 %rd<4>;\n.reg .pred %p<9>;\n.shared .align 16 .b8 words[16];\n.shared .align 8 .b8 bar[8];\n\
         mov.u32 %r1, %tid.x;\nld.param.u64 %rd1, [source];\nmov.u32 %r2, words;\nmov.u32 %r3, bar;\n\
         setp.eq.u32 %p0, %r1, 0;\nsetp.eq.u32 %p1, %r1, 1;\nsetp.eq.u32 %p2, %r1, 32;\nsetp.eq.u32 %p3, %r1, 33;\nsetp.lt.u32 %p4, %r1, 32;\n\
         @%p0 mbarrier.init.shared::cta.b64 [%r3], 32;\nbar.sync 0;\n",
    );
    for (i, step) in steps.iter().enumerate() {
        text += &match *step {
            Step::Read { actor, word } => format!("@%p{actor} ld.shared.u32 %r4, [%r2+{}];\n", 4 * word),
            Step::Write { actor, word } => {
                format!("@%p{actor} st.shared.u32 [%r2+{}], {};\n", 4 * word, 100 * i + actor)
            }
            Step::Copy { actor, word } => {
                format!(
                    "@%p{actor} cp.async.ca.shared.global [%r2+{}], [%rd1], 4;\n@%p{actor} cp.async.commit_group;\n",
                    4 * word
                )
            }
            Step::Wait { actor, allowed } => format!("@%p{actor} cp.async.wait_group {allowed};\n"),
            Step::CtaBarrier => "bar.sync 0;\n".into(),
            Step::WarpBarrier => "bar.warp.sync -1;\n".into(),
            Step::HandOver => format!("@%p4 bar.arrive {0}, 64;\n@!%p4 bar.sync {0}, 64;\n", i + 1),
            Step::Signal => format!(
                "@%p4 mbarrier.arrive.shared::cta.b64 _, [%r3];\n@%p4 bra PAST{i};\nPOLL{i}:\n\
                 mbarrier.try_wait.parity.shared::cta.b64 %p5, [%r3], 0;\n@!%p5 bra POLL{i};\nPAST{i}:\n"
            ),
        };
    }
    text + "ret;\n}\n"
}

/// What one actor does, in order. Barriers carry the number of the step, so that everybody meets at the same one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Access { word: u32, write: bool },
    Copy { copy: usize },
    Wait { done: usize },
    Arrive { at: usize },
    Await { at: usize },
}

/// Who must have arrived at the barrier of a step before those who wait may go on.
fn arrivals(step: Step, actor: usize) -> Vec<usize> {
    match step {
        Step::CtaBarrier => (0..4).collect(),
        Step::WarpBarrier => {
            if actor < 2 {
                vec![0, 1]
            } else {
                vec![2, 3]
            }
        }
        // The named barrier also waits for the waiting warp itself.
        Step::HandOver => (0..4).collect(),
        _ => vec![0, 1],
    }
}

struct Program {
    steps: Vec<Step>,
    actions: Vec<Vec<Action>>,
    /// Word of each asynchronous copy.
    copies: Vec<(usize, u32)>,
}

fn program(steps: &[Step]) -> Program {
    let mut actions = vec![Vec::new(); 4];
    let mut copies: Vec<(usize, u32)> = Vec::new();
    for (at, step) in steps.iter().enumerate() {
        match *step {
            Step::Read { actor, word } => actions[actor].push(Action::Access { word, write: false }),
            Step::Write { actor, word } => actions[actor].push(Action::Access { word, write: true }),
            Step::Copy { actor, word } => {
                actions[actor].push(Action::Copy { copy: copies.len() });
                copies.push((actor, word));
            }
            Step::Wait { actor, allowed } => {
                let mine = copies.iter().filter(|c| c.0 == actor).count();
                actions[actor].push(Action::Wait { done: mine.saturating_sub(allowed as usize) });
            }
            Step::CtaBarrier | Step::WarpBarrier => {
                actions.iter_mut().for_each(|a| a.extend([Action::Arrive { at }, Action::Await { at }]))
            }
            Step::HandOver | Step::Signal => {
                for (actor, a) in actions.iter_mut().enumerate() {
                    if actor < 2 || *step == Step::HandOver {
                        a.push(Action::Arrive { at });
                    }
                    if actor >= 2 {
                        a.push(Action::Await { at });
                    }
                }
            }
        }
    }
    Program { steps: steps.to_vec(), actions, copies }
}

/// Where everybody is, and which copies are under way (1) or over (2).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    at: [usize; 4],
    copies: Vec<u8>,
}

/// Whether two conflicting accesses are possible at once in some reachable state.
fn races(p: &Program) -> bool {
    let start = State { at: [0; 4], copies: vec![0; p.copies.len()] };
    let mut seen = std::collections::HashSet::from([start.clone()]);
    let mut todo = vec![start];
    while let Some(state) = todo.pop() {
        // Accesses that could happen now: (word, write, who).
        let mut now: Vec<(u32, bool)> = Vec::new();
        let mut next = Vec::new();
        for actor in 0..4 {
            let Some(action) = p.actions[actor].get(state.at[actor]) else { continue };
            let mut moved = state.clone();
            moved.at[actor] += 1;
            match *action {
                Action::Access { word, write } => now.push((word, write)),
                Action::Copy { copy } => moved.copies[copy] = 1,
                Action::Wait { done } => {
                    let mine = p.copies.iter().zip(&state.copies).filter(|(c, _)| c.0 == actor);
                    if mine.take(done).any(|(_, &s)| s != 2) {
                        continue;
                    }
                }
                Action::Arrive { .. } => {}
                Action::Await { at } => {
                    let arrived = |other: usize| {
                        let position = p.actions[other].iter().position(|a| *a == Action::Arrive { at });
                        position.is_none_or(|i| state.at[other] > i)
                    };
                    if !arrivals(p.steps[at], actor).into_iter().all(arrived) {
                        continue;
                    }
                }
            }
            next.push(moved);
        }
        for (copy, &(_, word)) in p.copies.iter().enumerate() {
            if state.copies[copy] == 1 {
                now.push((word, true));
                let mut moved = state.clone();
                moved.copies[copy] = 2;
                next.push(moved);
            }
        }
        for (i, a) in now.iter().enumerate() {
            if now[i + 1..].iter().any(|b| a.0 == b.0 && (a.1 || b.1)) {
                return true;
            }
        }
        todo.extend(next.into_iter().filter(|s| seen.insert(s.clone())));
    }
    false
}

fn emulator_races(steps: &[Step], options: &Options) -> bool {
    let kernel = Module::parse(ptx(steps)).and_then(|m| m.entry("k")).unwrap_or_else(|e| panic!("{e}\n{}", ptx(steps)));
    let mut m = Memory::default();
    let source = m.with("source", &[7u32; 4]);
    let report = common::run(&kernel, &Launch::new([1, 1, 1], [64, 1, 1]).arg(source), &mut m, options);
    let race = |k: FindingKind| matches!(k, FindingKind::SharedRace | FindingKind::CopyInFlight);
    assert!(report.findings.iter().all(|f| race(f.kind)), "{:#?}\n{}", report.findings, ptx(steps));
    !report.findings.is_empty()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

    #[test]
    fn the_verdict_is_that_of_every_interleaving(steps in steps(), seed in 0u64..4, late in any::<bool>()) {
        let cp_async = if late { CpAsync::Late } else { CpAsync::Eager };
        let options = Options { seed, cp_async, step_limit: 1_000_000, ..Options::default() };
        prop_assert_eq!(emulator_races(&steps, &options), races(&program(&steps)), "{}", ptx(&steps));
    }
}

#[test]
fn random_programs_are_of_both_kinds() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let racy =
        (0..400).filter(|_| steps().new_tree(&mut runner).is_ok_and(|tree| races(&program(&tree.current())))).count();
    assert!((80..320).contains(&racy), "{racy} of 400 race");
}
