//! Operations of warps and of bits, from the kernel's line to the value that the emulator computes for it.

use std::sync::LazyLock;

use lathe::contract::{Arg, Buffer, Case, Verdict};
use lathe::dtype::Dtype;
use lathe::ir::Kernel;
use lathe::prelude::*;
use lathe::runtime::backend::{Backend, EmulatorBackend, FindingKind, Schedule};
use lathe::runtime::nvrtc::Compiler;
use lathe::runtime::program::Program;
use lathe::runtime::toolchain::Toolchain;
use lathe::target::Target;

static TOOLCHAIN: LazyLock<Toolchain> = LazyLock::new(|| Toolchain::new(false, |_| {}));

/// Runs a kernel over `words` and an output of as many words as `expected` has; the kinds of findings, and the output.
fn run(kernel: &Kernel, target: Target, words: &[u32], len: usize) -> (Vec<FindingKind>, Vec<u32>) {
    let compiler = Compiler::load(&TOOLCHAIN).expect("NVRTC is here or can be installed");
    let program = Program::compile(&compiler, kernel, target).unwrap_or_else(|error| panic!("{error}"));
    let pointer = |buffer| Arg::Pointer { buffer, offset: 0, strides: vec![] };
    let case = Case {
        name: String::new(),
        grid: [1; 3],
        buffers: vec![
            Buffer::from_bytes("x", Dtype::U32, words.iter().flat_map(|word| word.to_le_bytes()).collect()),
            Buffer::poisoned("out", Dtype::U32, 4 * len),
        ],
        args: vec![pointer(0), pointer(1)],
        verify: Box::new(|_| Verdict::default()),
    };
    let backend = EmulatorBackend::default();
    let run = backend.load(&program).expect("loads").run(&case, Schedule { seed: 1, late_copies: true }).expect("runs");
    let bytes = run.buffers[1].slice(0, 4 * len).expect("mapped");
    let out = bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().expect("four"))).collect();
    (run.findings.into_iter().map(|finding| finding.kind).collect(), out)
}

/// Numbers with repetitions, and with bits everywhere.
fn words() -> Vec<u32> {
    (0..32u32).map(|i| (i % 7).wrapping_mul(0x9e37_79b9).rotate_left(i % 7)).collect()
}

/// out[k * 32 + lane] is the k-th of these of x[lane].
#[kernel(warps = 1)]
fn of_warp(#[read] x: Slice<u32>, #[write_all] out: Slice<u32>) {
    let lane = lane::id();
    let value = x.at(lane).load();
    let signed = value.to::<i32>();
    let odd = (value & 1u32).eq(1u32);
    let results = [
        odd.ballot(),
        odd.any_lane().select(1u32, 0u32),
        odd.all_lanes().select(1u32, 0u32),
        value.match_lanes(),
        value.warp_sum(),
        signed.warp_min().to::<u32>(),
        signed.warp_max().to::<u32>(),
        value.warp_min(),
        value.warp_and(),
        value.warp_or(),
        value.warp_xor(),
        value.count_ones().to::<u32>(),
        value.leading_zeros().to::<u32>(),
        value.find_first().to::<u32>(),
        value.permute_bytes(!value, 0x0361u32),
    ];
    for (k, result) in results.into_iter().enumerate() {
        out.at(lane + k as i32 * 32).store(result);
    }
}

fn expected_of_warp(x: &[u32]) -> Vec<u32> {
    let odd = |x: &u32| x & 1 == 1;
    let ballot = x.iter().enumerate().fold(0, |mask, (lane, x)| mask | (x & 1) << lane);
    let same = |value: u32| x.iter().enumerate().fold(0, |mask, (lane, x)| mask | u32::from(*x == value) << lane);
    let signed = || x.iter().map(|x| x.cast_signed());
    let all: Vec<Box<dyn Fn(u32) -> u32>> = vec![
        Box::new(|_| ballot),
        Box::new(|_| x.iter().any(odd).into()),
        Box::new(|_| x.iter().all(odd).into()),
        Box::new(same),
        Box::new(|_| x.iter().fold(0, |sum: u32, x| sum.wrapping_add(*x))),
        Box::new(|_| signed().min().unwrap_or(0).cast_unsigned()),
        Box::new(|_| signed().max().unwrap_or(0).cast_unsigned()),
        Box::new(|_| x.iter().copied().min().unwrap_or(0)),
        Box::new(|_| x.iter().fold(u32::MAX, |a, b| a & b)),
        Box::new(|_| x.iter().fold(0, |a, b| a | b)),
        Box::new(|_| x.iter().fold(0, |a, b| a ^ b)),
        Box::new(|x| x.count_ones()),
        Box::new(|x| x.leading_zeros()),
        Box::new(|x| if x == 0 { 0 } else { x.trailing_zeros() + 1 }),
        Box::new(|x| {
            let bytes = [x.to_le_bytes(), (!x).to_le_bytes()].concat();
            u32::from_le_bytes([bytes[1], bytes[6], bytes[3], bytes[0]])
        }),
    ];
    all.iter().flat_map(|of| x.iter().map(|x| of(*x))).collect()
}

#[test]
fn votes_matches_reductions_and_bits_are_what_they_say() {
    let (x, kernel) = (words(), of_warp().unwrap());
    let expected = expected_of_warp(&x);
    for target in Target::ALL {
        assert_eq!(run(&kernel, target, &x, expected.len()), (vec![], expected.clone()), "{target}");
    }
}

/// Some lanes stay away from a ballot.
#[kernel(warps = 1)]
fn half_a_ballot(#[read] x: Slice<u32>, #[write_all] out: Slice<u32>) {
    let value = x.at(lane::id()).load();
    let mut odd = Scalar::from(0u32);
    if value > 0u32 {
        odd = (value & 1u32).eq(1u32).ballot();
    }
    warp::sync();
    out.at(lane::id()).store(odd);
}

#[test]
fn a_vote_that_some_lanes_miss_is_found() {
    let (findings, _) = run(&half_a_ballot().unwrap(), Target::Sm120a, &words(), 32);
    assert!(findings.contains(&FindingKind::DivergentCollective), "{findings:?}");
}

/// out = x, by way of shared memory: 16 bytes a lane in, and out from another lane's place in a permuted tile.
#[kernel(warps = 1)]
fn through_shared(#[comptime] sync: bool, #[read] x: Slice<u32>, #[write_all] out: Slice<u32>) {
    let tile = shared::<u32>([4, 32]).swizzle(Xor16);
    let (row, column) = (lane::id() / 8, lane::id() % 8 * 4);
    tile.at(row, column).store_vector(x.at(lane::id() * 4).load_vector(4));
    if sync {
        warp::sync();
    }
    let (row, column) = (3 - row, 28 - column);
    out.at(row * 32 + column).store_vector(tile.at(row, column).load_vector(4));
}

#[test]
fn vectors_go_through_permuted_tiles() {
    let x: Vec<u32> = (0..128).map(|i| i * 3 + 1).collect();
    assert_eq!(run(&through_shared(true).unwrap(), Target::Sm120a, &x, 128), (vec![], x.clone()));
    let (findings, _) = run(&through_shared(false).unwrap(), Target::Sm120a, &x, 128);
    assert_eq!(findings, [FindingKind::SharedRace]);
}

/// Two warps hand numbers over at named barriers: one arrives and goes on, the other waits. The registers that the first
/// four give up are for the others.
#[kernel(warps = 8)]
fn hand_over(#[comptime] arrive: bool, #[read] x: Slice<u32>, #[write_all] out: Slice<u32>) {
    let tile = shared::<u32>([1, 128]);
    warp::role("give", 0..4, || {
        warp::give_registers(40);
        tile.at(0, thread::id()).store(x.at(thread::id()).load() * 2u32);
        if arrive {
            cta::arrive_warps(1, 8);
        }
    });
    warp::role("take", 4..8, || {
        warp::take_registers(104);
        cta::sync_warps(1, if arrive { 8 } else { 4 });
        out.at(thread::id() - 128).store(tile.at(0, 255 - thread::id()).load());
    });
}

#[test]
fn roles_hand_over_at_named_barriers() {
    let x: Vec<u32> = (0..128).collect();
    let doubled: Vec<u32> = x.iter().rev().map(|x| 2 * x).collect();
    for target in Target::ALL {
        assert_eq!(run(&hand_over(true).unwrap(), target, &x, 128), (vec![], doubled.clone()), "{target}");
    }
    let (findings, _) = run(&hand_over(false).unwrap(), Target::Sm120a, &x, 128);
    assert!(findings.contains(&FindingKind::SharedRace), "{findings:?}");
}
