//! How the logits kernels share out pages, by a kernel that does nothing else: every page of every row is somebody's, nobody
//! shares one, and no CTA has much more than its part.

use lathe::contract::{Arg, Buffer, Case, Verdict};
use lathe::dtype::Dtype;
use lathe::kernels::partition::{GROUP, Share};
use lathe::prelude::*;
use lathe::runtime::backend::{Backend, EmulatorBackend, Loaded, Schedule};
use lathe::runtime::nvrtc::Compiler;
use lathe::runtime::program::Program;
use lathe::runtime::toolchain::Toolchain;
use lathe::target::Target;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// Each CTA writes its number, counted from 1, at every page that it walks, and leaves how many there were and how many the
/// longest walk had.
#[kernel(warps = 4)]
fn own_pages(
    #[comptime] waves: i32,
    #[read] context_lens: Slice<i32>,
    #[read_write] owners: Rows<i32>,
    #[write_all] counts: Slice<i32>,
) {
    pdl::wait();
    let cta = (cta::z() * grid::y() + cta::y()) * grid::x() + cta::x();
    let mut pages = Scalar::from(0);
    let mut longest = Scalar::from(0);
    for walk in Share::of_cta(context_lens, waves).walks() {
        let mut length = Scalar::from(0);
        for page in (walk.first..walk.len.div_ceil(64)).step_by(walk.step) {
            if thread::id() == 0 {
                let owner = owners.row(walk.request * grid::x() + cta::x()).at(page);
                owner.store(owner.load() + cta + 1);
            }
            length += 1;
        }
        pages += length;
        longest = longest.max(length);
    }
    if thread::id() == 0 {
        counts.at(cta * 2).store(pages);
        counts.at(cta * 2 + 1).store(longest);
    }
}

/// Lengths of `[requests, next_n]` rows, and the CTAs of a request.
#[derive(Clone, Debug)]
struct Launch {
    next_n: usize,
    lens: Vec<i32>,
    splits: usize,
}

const WAVES: i32 = 4;

impl Launch {
    fn requests(&self) -> usize {
        self.lens.len() / self.next_n
    }

    fn pages(&self, row: usize) -> usize {
        self.lens[row].max(0) as usize / 64 + usize::from(self.lens[row] > 0 && self.lens[row] % 64 != 0)
    }

    fn case(&self) -> Case {
        let stride = (0..self.lens.len()).map(|row| self.pages(row)).max().unwrap_or(0) + 1;
        let ctas = self.lens.len() * self.splits;
        let pointer = |buffer, strides| Arg::Pointer { buffer, offset: 0, strides };
        Case {
            name: format!("{self:?}"),
            grid: [self.next_n as u32, self.splits as u32, self.requests() as u32],
            buffers: vec![
                Buffer::from_bytes(
                    "context_lens",
                    Dtype::I32,
                    self.lens.iter().flat_map(|l| l.to_le_bytes()).collect(),
                ),
                Buffer::from_bytes("owners", Dtype::I32, vec![0; self.lens.len() * stride * 4]),
                Buffer::poisoned("counts", Dtype::I32, ctas * 8),
            ],
            args: vec![pointer(0, vec![]), pointer(1, vec![stride as i64]), pointer(2, vec![])],
            verify: Box::new(|_| Verdict::default()),
        }
    }

    /// Runs it, and holds what it left to the rules.
    fn check(&self, loaded: &dyn Loaded) {
        let run = loaded.run(&self.case(), Schedule::default()).expect("runs");
        // Two CTAs at one page race for it.
        assert!(run.findings.is_empty(), "{self:?}: {:#?}", run.findings);
        let words = |buffer: usize| -> Vec<i32> {
            let bytes = &run.buffers[buffer].segments.iter().flat_map(|s| s.bytes.clone()).collect::<Vec<u8>>();
            bytes.as_chunks::<4>().0.iter().map(|bytes| i32::from_le_bytes(*bytes)).collect()
        };
        let (owners, counts) = (words(1), words(2));
        let stride = owners.len() / self.lens.len().max(1);
        let ctas = (self.lens.len() * self.splits) as i32;
        for (row, owners) in owners.chunks(stride.max(1)).enumerate() {
            let (of_row, behind) = owners.split_at(self.pages(row));
            assert!(of_row.iter().all(|owner| (1..=ctas).contains(owner)), "{self:?}: row {row} has {of_row:?}");
            assert!(behind.iter().all(|owner| *owner == 0), "{self:?}: row {row} has {behind:?} past its pages");
        }
        assert!(counts.chunks(2).all(|of_cta| of_cta[1] <= 32), "a warp has 32 lanes for page ids: {counts:?}");

        let groups = (0..self.requests()).collect::<Vec<_>>();
        for token in 0..self.next_n {
            for group in groups.chunks(GROUP as usize) {
                self.check_parts(token, group, &counts);
            }
        }
    }

    /// No CTA of a group has more than twice what each would have if those of one wave shared its pages evenly, and where
    /// that is more than two walks, not more than that and two walks.
    fn check_parts(&self, token: usize, group: &[usize], counts: &[i32]) {
        let pages: usize = group.iter().map(|request| self.pages(request * self.next_n + token)).sum();
        let ctas = group.len() * self.splits;
        let slots = (ctas / WAVES as usize).max(1);
        let part = pages.div_ceil(slots);
        let of_group = group.iter().flat_map(|request| {
            (0..self.splits).map(move |split| ((request * self.splits + split) * self.next_n + token) * 2)
        });
        let of_group: Vec<usize> = of_group.map(|at| counts[at] as usize).collect();
        assert_eq!(of_group.iter().sum::<usize>(), pages, "{self:?}: pages walked");
        let most = of_group.iter().copied().max().unwrap_or(0);
        let even_walks = self.splits >= 2 && part <= 64;
        let limit = if even_walks { 2 * part } else { part + 32 + 16 * group.len() / slots };
        assert!(most <= limit, "{self:?}: a CTA has {most} of {pages} pages, {slots} CTAs a wave");
    }
}

fn loaded(test: impl FnOnce(&dyn Loaded)) {
    let toolchain = Toolchain::new(false, |_| {});
    let compiler = Compiler::load(&toolchain).expect("NVRTC is here or can be installed");
    let program = Program::compile(&compiler, &own_pages(WAVES).expect("traces"), Target::Sm120a).expect("compiles");
    test(&*EmulatorBackend::default().load(&program).expect("loads"));
}

fn any_launch() -> impl Strategy<Value = Launch> {
    let len = prop_oneof![2 => Just(0), 3 => 1i32..200, 3 => 1i32..4_000, 1 => 4_000i32..40_000];
    (1usize..4, prop_oneof![4 => 1usize..40, 1 => 40usize..90], 1usize..9).prop_flat_map(
        move |(next_n, requests, splits)| {
            prop::collection::vec(len.clone(), next_n * requests).prop_map(move |lens| Launch { next_n, lens, splits })
        },
    )
}

#[test]
fn every_page_has_one_owner_whatever_the_lengths() {
    loaded(|loaded| {
        let config = Config { cases: 60, failure_persistence: None, ..Config::default() };
        let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
        let result = runner.run(&any_launch(), |launch| {
            launch.check(loaded);
            Ok(())
        });
        result.unwrap_or_else(|error| panic!("{error}"));
    });
}

#[test]
fn the_edges_have_owners_too() {
    loaded(|loaded| {
        let launches = [
            (1, vec![0; 70], 3),                                                // nothing at all
            (1, vec![-5, 64, -64, -65, 1, i32::MIN], 2),                        // lengths that no host lets through
            (1, [vec![65_536], vec![1_024; 31]].concat(), 33),                  // one long row
            (1, [vec![0; 31], vec![70_000], vec![0; 40], vec![9]].concat(), 5), // far between, in another lane's care
            (2, (0..2 * 300).map(|row| row * 7 % 500).collect(), 2),            // more than one group
            (1, (0..GROUP).map(|row| row % 130).collect(), 1),                  // exactly one
            (1, vec![200_000, 1, 200_000], 8),                                  // far more pages than the CTAs' walks
            (3, vec![64 * 32, 64 * 32 + 1, 64 * 33], 1),                        // one request
        ];
        for (next_n, lens, splits) in launches {
            Launch { next_n, lens, splits }.check(loaded);
        }
    });
}
