//! A search for a placement within a given capacity.
//!
//! Every placement can be pushed down until each buffer rests on the floor or on a rival (a buffer it may not share bytes
//! with), and can then be built in order of offset, each buffer at the lowest byte that its placed rivals leave. So it is enough to choose, again and
//! again, who comes next; offsets follow, and none is below the one before. A branch dies when the buffers still to come
//! in some clique cannot fit under the capacity, when another buffer would have fitted below the chosen one, or when a
//! buffer that was passed over has nothing left to rest on. Parts without conflicts between them are searched apart.

use super::problem::Problem;

/// What there is to know about a problem before any search of it.
pub struct Searcher<'a> {
    problem: &'a Problem,
    /// For each buffer, the cliques it is in.
    cliques_of: Vec<Vec<u32>>,
    /// For each buffer, the bytes of its heaviest clique.
    pressure: Vec<u64>,
    cliques: usize,
}

impl<'a> Searcher<'a> {
    /// Prepares the search of `problem`.
    pub fn new(problem: &'a Problem) -> Self {
        let cliques = problem.cliques();
        let mut cliques_of = vec![Vec::new(); problem.len()];
        let mut pressure = problem.sizes.clone();
        for (c, clique) in cliques.iter().enumerate() {
            let weight = clique.iter().map(|&b| problem.sizes[b as usize]).sum();
            for &b in clique {
                cliques_of[b as usize].push(c as u32);
                pressure[b as usize] = pressure[b as usize].max(weight);
            }
        }
        Self { problem, cliques_of, pressure, cliques: cliques.len() }
    }

    /// Offsets that end at or below `capacity`, if one of the preferences finds them within `steps` placements in all.
    /// Each preference gets a short try, then each a longer one: a good one is usually quick.
    pub fn fit(&self, capacity: u64, mut steps: u64) -> Option<Vec<u64>> {
        let ranks = self.preferences();
        let mut slice = 2_000;
        while steps > 0 {
            for rank in &ranks {
                let allowed = slice.min(steps);
                let mut search = Search {
                    of: self,
                    capacity,
                    rank,
                    steps_left: allowed,
                    offsets: vec![0; self.problem.len()],
                    weight: vec![0; self.cliques],
                    low: vec![u64::MAX; self.cliques],
                };
                match search.run() {
                    Verdict::Done => return Some(search.offsets),
                    Verdict::DeadEnd => return None,
                    Verdict::OutOfSteps => steps -= allowed,
                }
            }
            slice *= 4;
        }
        None
    }

    /// Ranks by which candidates at the same offset are tried: buffers of crowded moments, long-lived and large ones first.
    fn preferences(&self) -> Vec<Vec<u32>> {
        let n = self.problem.len();
        let span = |b: usize| self.cliques_of[b].len() as u64;
        let area = |b: usize| span(b) * self.problem.sizes[b];
        let degree = |b: usize| self.problem.conflicts.iter_row(b).count() as u64;
        let keys: [&dyn Fn(usize) -> [u64; 3]; 6] = [
            &|b| [self.pressure[b], span(b), area(b)],
            &|b| [self.pressure[b], area(b), 0],
            &|b| [self.pressure[b], degree(b), 0],
            &|b| [span(b), self.pressure[b], 0],
            &|b| [span(b), area(b), self.pressure[b]],
            &|b| [area(b), 0, 0],
        ];
        keys.iter()
            .map(|key| {
                let mut order: Vec<usize> = (0..n).collect();
                order.sort_by_cached_key(|&b| (std::cmp::Reverse(key(b)), b));
                let mut rank = vec![0; n];
                order.iter().enumerate().for_each(|(at, &b)| rank[b] = at as u32);
                rank
            })
            .collect()
    }
}

enum Verdict {
    Done,
    DeadEnd,
    OutOfSteps,
}

/// A buffer not placed yet.
#[derive(Clone, Copy)]
struct Open {
    buffer: u32,
    /// The lowest byte it can still take.
    low: u64,
    /// Whether it would rest on something there: the floor or a placed rival.
    rests: bool,
}

struct Search<'a> {
    of: &'a Searcher<'a>,
    capacity: u64,
    rank: &'a [u32],
    steps_left: u64,
    offsets: Vec<u64>,
    /// Scratch per clique: bytes still to place, and the lowest byte that any of them can take.
    weight: Vec<u64>,
    low: Vec<u64>,
}

impl Search<'_> {
    fn run(&mut self) -> Verdict {
        let sizes = &self.of.problem.sizes;
        let mut open: Vec<Open> = (0..sizes.len() as u32)
            .filter(|&b| sizes[b as usize] > 0)
            .map(|buffer| Open { buffer, low: 0, rests: true })
            .collect();
        open.sort_by_key(|open| self.rank[open.buffer as usize]);
        self.solve(open, 0, 0)
    }

    fn size(&self, open: &Open) -> u64 {
        self.of.problem.sizes[open.buffer as usize]
    }

    fn rivals(&self, a: u32, b: u32) -> bool {
        self.of.problem.conflicts.get(a as usize, b as usize)
    }

    /// Places all of `open`, nothing below `floor`, and at `floor` nothing of a lower rank than `rank`.
    fn solve(&mut self, mut open: Vec<Open>, floor: u64, rank: u32) -> Verdict {
        if !self.raise_to_rest(&mut open) {
            return Verdict::DeadEnd;
        }
        let parts = self.split(open);
        if !parts.iter().all(|part| self.may_fit(part)) {
            return Verdict::DeadEnd;
        }
        for part in &parts {
            match self.choose(part, floor, rank) {
                Verdict::Done => {}
                other => return other,
            }
        }
        Verdict::Done
    }

    /// A buffer with nothing under it at its lowest byte must come to rest on a rival that is still open.
    fn raise_to_rest(&self, open: &mut [Open]) -> bool {
        for i in 0..open.len() {
            if open[i].rests {
                continue;
            }
            let tops = open
                .iter()
                .filter(|other| self.rivals(open[i].buffer, other.buffer))
                .map(|other| other.low + self.size(other));
            let Some(lowest) = tops.min() else { return false };
            open[i].low = open[i].low.max(lowest);
        }
        true
    }

    /// The parts of `open` that have no conflict with each other, smallest first: it fails soonest.
    fn split(&self, open: Vec<Open>) -> Vec<Vec<Open>> {
        let conflicts = &self.of.problem.conflicts;
        let words = conflicts.len().div_ceil(64);
        let mut left = vec![0u64; words];
        open.iter().for_each(|o| left[o.buffer as usize / 64] |= 1 << (o.buffer % 64));
        let has = |set: &[u64], b: u32| set[b as usize / 64] >> (b % 64) & 1 == 1;
        let mut parts = Vec::new();
        let mut stack = Vec::new();
        for o in &open {
            if !has(&left, o.buffer) {
                continue;
            }
            let mut part = vec![0u64; words];
            part[o.buffer as usize / 64] |= 1 << (o.buffer % 64);
            stack.push(o.buffer);
            while let Some(b) = stack.pop() {
                for (w, row) in conflicts.row(b as usize).iter().enumerate() {
                    let fresh = row & left[w] & !part[w];
                    part[w] |= fresh;
                    stack.extend(crate::bits::ones(&[fresh]).map(|bit| (w * 64 + bit) as u32));
                }
            }
            left.iter_mut().zip(&part).for_each(|(l, p)| *l &= !p);
            if parts.is_empty() && left.iter().all(|&w| w == 0) {
                return vec![open];
            }
            parts.push(open.iter().filter(|o| has(&part, o.buffer)).copied().collect::<Vec<_>>());
        }
        parts.sort_by_key(Vec::len);
        parts
    }

    /// Whether what is still to come in each clique fits between its lowest byte and the capacity.
    fn may_fit(&mut self, part: &[Open]) -> bool {
        let of = self.of;
        for open in part {
            for &c in &of.cliques_of[open.buffer as usize] {
                self.weight[c as usize] += of.problem.sizes[open.buffer as usize];
                self.low[c as usize] = self.low[c as usize].min(open.low);
            }
        }
        let mut fits = true;
        for open in part {
            for &c in &of.cliques_of[open.buffer as usize] {
                let (weight, low) = (&mut self.weight[c as usize], &mut self.low[c as usize]);
                if *weight > 0 {
                    fits &= *low + *weight <= self.capacity;
                    (*weight, *low) = (0, u64::MAX);
                }
            }
        }
        fits
    }

    fn choose(&mut self, part: &[Open], floor: u64, rank: u32) -> Verdict {
        let lowest_top = part.iter().map(|o| o.low + self.size(o)).min().unwrap_or(u64::MAX);
        let in_turn = |o: &&Open| o.low > floor || self.rank[o.buffer as usize] >= rank;
        let mut candidates: Vec<Open> =
            part.iter().filter(|o| o.rests && o.low < lowest_top).filter(in_turn).copied().collect();
        candidates.sort_by_key(|o| o.low);
        for chosen in candidates {
            if self.steps_left == 0 {
                return Verdict::OutOfSteps;
            }
            self.steps_left -= 1;
            let align = self.of.problem.aligns[chosen.buffer as usize];
            let offset = chosen.low.next_multiple_of(align);
            let Some(rest) = self.without(part, &chosen, offset) else { continue };
            self.offsets[chosen.buffer as usize] = offset;
            match self.solve(rest, chosen.low, self.rank[chosen.buffer as usize]) {
                Verdict::DeadEnd => {}
                other => return other,
            }
        }
        Verdict::DeadEnd
    }

    /// What is open once `chosen` lies at `offset`; `None` if something cannot be placed any more.
    fn without(&self, part: &[Open], chosen: &Open, offset: u64) -> Option<Vec<Open>> {
        let top = offset + self.size(chosen);
        let rank = self.rank[chosen.buffer as usize];
        if top > self.capacity {
            return None;
        }
        let mut rest = Vec::with_capacity(part.len() - 1);
        for open in part.iter().filter(|o| o.buffer != chosen.buffer) {
            let mut open = *open;
            if self.rivals(chosen.buffer, open.buffer) {
                if top >= open.low {
                    (open.low, open.rests) = (top, true);
                }
            } else if (open.low, self.rank[open.buffer as usize]) < (chosen.low, rank) {
                // Passed over: what comes later lies no lower.
                (open.low, open.rests) = (chosen.low, false);
            }
            if open.low + self.size(&open) > self.capacity {
                return None;
            }
            rest.push(open);
        }
        Some(rest)
    }
}
