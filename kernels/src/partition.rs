//! Which pages a CTA of a logits kernel walks, computed by the kernel itself from the lengths that it finds.
//!
//! The pages of a row are cut into walks, which take them in turn, and the walks of all rows, one row after the other, are
//! shared out to the CTAs: a long row beside short ones gets more CTAs, and a graph that was captured for long rows spreads
//! short ones as one captured for them would. A CTA without a walk leaves before it has touched anything but lengths. What
//! is computed does not depend on any of this.

use lathe_codegen::prelude::*;
use lathe_codegen::trace::Unroll;
use lathe_codegen::trace::control::RunTimeRange;
use lathe_dsl::{Traced, device};

use crate::launch::MAX_WALK;

/// Requests whose walks are shared out together; a larger batch is cut into groups of so many, each with CTAs of its own.
pub const GROUP: i32 = 256;

/// The binary logarithm of the pages of a walk, where there are far more than the device has CTAs for at once.
const USUAL: i32 = 4;

/// Pages of a row: `first`, `first + step`, `first + 2 * step`, ... up to the row's length.
#[derive(Clone, Copy, Traced)]
pub struct Walk {
    /// The request whose row it is.
    pub request: Scalar<i32>,
    /// Its first page.
    pub first: Scalar<i32>,
    /// From each page to the next: the number of walks of the row.
    pub step: Scalar<i32>,
    /// Length of the row, in keys.
    pub len: Scalar<i32>,
}

/// The walks of a CTA, by their index among those of its group.
#[derive(Clone, Copy)]
pub struct Share {
    group: Group,
    first: Scalar<i32>,
    end: Scalar<i32>,
    /// The binary logarithm of the most pages that a walk has.
    shift: Scalar<i32>,
    /// Walks of the lane's requests.
    own: Scalar<i32>,
    /// Walks of the requests up to the lane's last.
    through: Scalar<i32>,
}

/// The requests of a CTA's group, for a grid of `[next_n, CTAs a request, requests]`: CTAs with the same x share out the
/// x-th row of each.
#[derive(Clone, Copy)]
struct Group {
    first: Scalar<i32>,
    requests: Scalar<i32>,
    lens: SharedTile<i32>,
}

impl Share {
    /// This CTA's share of the rows of these lengths. The CTAs of a launch fill the device `waves` times.
    #[device]
    pub fn of_cta(context_lens: Slice<i32>, waves: i32) -> Share {
        let first = cta::z() / GROUP * GROUP;
        let requests = (grid::z() - first).min(GROUP);
        let lens = shared::<i32>([1, GROUP]);
        for request in [0, GROUP / 2].map(|more| thread::id() + more) {
            let row = (first + request) * grid::x() + cta::x();
            lens.at(0, request).store(context_lens.at(row).load_if(request.lt(requests), 0).max(0));
        }
        cta::sync();

        let group = Group { first, requests, lens };
        let (ctas, slots) = (requests * grid::y(), (requests * grid::y() / waves).max(1));
        let (mine, after) = group.of_lane();
        let mut pages = Scalar::from(0);
        for counted in mine..after {
            pages += lens.at(0, counted).load().div_ceil(64);
        }
        let shift = pages_of_walk(pages.warp_sum(), slots);
        let mut own = Scalar::from(0);
        for request in mine..after {
            own += walks_of(lens.at(0, request).load(), shift);
        }
        let through = scan(own);
        let walks = through.of_lane(31);

        // Where there are more walks than CTAs, those of the first wave take several and the others one each: SMs do not get
        // equal bandwidth, and the faster come to take more.
        let cta = (cta::z() - first) * grid::y() + cta::y();
        let (mut begin, mut end) = (cta, cta + 1);
        if walks > ctas {
            let several = walks.div_ceil(slots) // a CTA of the first wave,
                - (ctas / slots - 1); // where one of each later wave takes one
            begin = (cta < slots).select(cta * several, slots * several + cta - slots);
            end = (cta < slots).select(begin + several, begin + 1);
        }
        Share { group, first: begin, end: end.min(walks), shift, own, through }
    }

    /// A run-time loop over them.
    pub fn walks(self) -> impl Iterator<Item = Walk> {
        let indices = RunTimeRange::new(self.first, self.end).unroll(Unroll::Never);
        indices.into_iter().map(move |index| self.walk(index))
    }

    /// The walk of this index.
    #[device]
    fn walk(self, index: Scalar<i32>) -> Walk {
        // The lane that has it finds the last of its requests that begins at it or before, and has walks.
        let holder = self.through.le(index).ballot().count_ones();
        let (mine, after) = self.group.of_lane();
        let mut begin = self.through - self.own;
        let mut found = Walk { request: mine, first: Scalar::from(0), step: Scalar::from(1), len: Scalar::from(0) };
        for request in mine..after {
            let len = self.group.lens.at(0, request).load();
            let walks = walks_of(len, self.shift);
            if begin <= index && walks > 0 {
                found = Walk { request, first: index - begin, step: walks, len };
            }
            begin += walks;
        }
        Walk {
            request: self.group.first + found.request.of_lane(holder),
            first: found.first.of_lane(holder),
            step: found.step.of_lane(holder),
            len: found.len.of_lane(holder),
        }
    }
}

impl Group {
    /// The requests, counted in the group, that this lane looks after.
    #[device]
    fn of_lane(self) -> (Scalar<i32>, Scalar<i32>) {
        let each = self.requests.div_ceil(32);
        let first = lane::id() * each;
        (first, first + each)
    }
}

/// Walks of a row, each of at most 2 to the `shift` pages.
#[device]
fn walks_of(len: Scalar<i32>, shift: Scalar<i32>) -> Scalar<i32> {
    (len.div_ceil(64) + (Scalar::from(1) << shift) - 1) >> shift
}

/// The binary logarithm of the most pages that a walk has, as [`launch`](crate::launch) chooses it.
#[device]
fn pages_of_walk(pages: Scalar<i32>, slots: Scalar<i32>) -> Scalar<i32> {
    let most = MAX_WALK.ilog2() as i32;
    let leading_zeros = |x: Scalar<i32>| x.to::<u32>().leading_zeros();
    let mut shift = (leading_zeros(slots) - leading_zeros(pages)).max(0);
    if slots << shift < pages {
        shift += 1;
    }
    if shift > most {
        shift = (shift == most + 1).select(most, USUAL);
    }
    shift
}

/// Inclusive sums over the lanes of a warp.
#[device]
fn scan(x: Scalar<i32>) -> Scalar<i32> {
    [1, 2, 4, 8, 16].into_iter().fold(x, |sum, by| sum + (lane::id() >= by).select(sum.shuffle_up(by), 0))
}
