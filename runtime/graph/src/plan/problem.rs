//! The planner's abstract input: sizes, and which buffers may not share bytes.

use crate::bits::BitMatrix;

/// A strict partial order of buffers: `u` before `v` when every use of `u` happens before every
/// use of `v`. Two buffers may share bytes when one is before the other.
#[derive(Clone, Debug)]
pub struct Precedence {
    before: BitMatrix,
}

impl Precedence {
    /// Takes `before` as it is; it must be transitive and irreflexive.
    pub fn new(before: BitMatrix) -> Self {
        Self { before }
    }

    /// The order of half-open lifetimes `[lower, upper)` on one stream.
    pub fn of_intervals(intervals: &[(u64, u64)]) -> Self {
        let mut before = BitMatrix::new(intervals.len());
        for (u, &(_, upper)) in intervals.iter().enumerate() {
            for (v, &(lower, _)) in intervals.iter().enumerate() {
                if u != v && upper <= lower {
                    before.set(u, v);
                }
            }
        }
        Self { before }
    }

    /// How many buffers are ordered.
    pub fn len(&self) -> usize {
        self.before.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.before.is_empty()
    }

    /// Whether every use of `u` happens before every use of `v`.
    pub fn is_before(&self, u: usize, v: usize) -> bool {
        self.before.get(u, v)
    }

    /// The relation itself: row `u` holds what comes after `u`.
    pub fn before(&self) -> &BitMatrix {
        &self.before
    }

    /// The same order among some of the buffers, which get their positions in `members` as numbers.
    pub fn restricted_to(&self, members: &[usize]) -> Self {
        let mut before = BitMatrix::new(members.len());
        for (i, &u) in members.iter().enumerate() {
            for (j, &v) in members.iter().enumerate() {
                if self.before.get(u, v) {
                    before.set(i, j);
                }
            }
        }
        Self { before }
    }

    /// The pairs that may not share bytes: those that the order leaves open.
    pub fn conflicts(&self) -> BitMatrix {
        let n = self.len();
        let mut conflicts = self.before.transposed();
        for u in 0..n {
            let row = conflicts.row_mut(u);
            for (word, after) in row.iter_mut().zip(self.before.row(u)) {
                *word = !(*word | after);
            }
            row[u / 64] &= !(1 << (u % 64));
            if !n.is_multiple_of(64) {
                row[n / 64] &= (1 << (n % 64)) - 1;
            }
        }
        conflicts
    }
}

/// What an offset search works on: sizes, alignments, and which buffers may not share bytes.
#[derive(Clone, Debug)]
pub struct Problem {
    /// Bytes of each buffer.
    pub sizes: Vec<u64>,
    /// Alignment of each buffer's offset.
    pub aligns: Vec<u64>,
    /// Symmetric and irreflexive: the pairs that may not share bytes.
    pub conflicts: BitMatrix,
    /// When each buffer is first and last needed, as positions in the recorded order: hints, not constraints.
    /// Buffers whose hints overlap must conflict.
    pub spans: Vec<(u64, u64)>,
}

/// An offset for each buffer, and the end of the highest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offsets {
    /// First byte of each buffer.
    pub of: Vec<u64>,
    /// End of the highest buffer.
    pub peak: u64,
}

impl Problem {
    /// Half-open lifetimes `[lower, upper)` on one stream, offsets at any byte.
    pub fn of_intervals(sizes: &[u64], intervals: &[(u64, u64)]) -> Self {
        Self {
            sizes: sizes.to_vec(),
            aligns: vec![1; sizes.len()],
            conflicts: Precedence::of_intervals(intervals).conflicts(),
            spans: intervals.to_vec(),
        }
    }

    /// How many buffers there are.
    pub fn len(&self) -> usize {
        self.sizes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.sizes.is_empty()
    }

    /// A pair that conflicts and yet overlaps, if there is one.
    pub fn overlap(&self, offsets: &Offsets) -> Option<(usize, usize)> {
        let end = |b: usize| offsets.of[b] + self.sizes[b];
        let clash = |u: usize, v: usize| v > u && offsets.of[u] < end(v) && offsets.of[v] < end(u);
        (0..self.len()).find_map(|u| self.conflicts.iter_row(u).find(|&v| clash(u, v)).map(|v| (u, v)))
    }

    /// Sets of pairwise conflicting buffers, one for each moment of the recorded order at which the live set is
    /// largest, each grown by every further buffer that conflicts with all of it.
    pub fn cliques(&self) -> Vec<Vec<u32>> {
        let mut by_size: Vec<u32> = (0..self.len() as u32).collect();
        by_size.sort_by_key(|&b| (std::cmp::Reverse(self.sizes[b as usize]), b));
        let mut starts: Vec<u64> = self.spans.iter().map(|span| span.0).collect();
        starts.sort_unstable();
        starts.dedup();
        let mut cliques: Vec<Vec<u32>> = Vec::new();
        for time in starts {
            let live = |&b: &u32| self.spans[b as usize].0 <= time && time < self.spans[b as usize].1;
            let mut clique: Vec<u32> = (0..self.len() as u32).filter(live).collect();
            if cliques.last().is_some_and(|last| last.iter().all(|b| clique.contains(b))) {
                cliques.pop();
            }
            let mut rivals = vec![u64::MAX; self.len().div_ceil(64)];
            let narrow = |rivals: &mut Vec<u64>, b: u32| {
                rivals.iter_mut().zip(self.conflicts.row(b as usize)).for_each(|(r, row)| *r &= row);
            };
            clique.iter().for_each(|&b| narrow(&mut rivals, b));
            for &b in &by_size {
                if rivals[b as usize / 64] >> (b % 64) & 1 == 1 {
                    clique.push(b);
                    narrow(&mut rivals, b);
                }
            }
            cliques.push(clique);
        }
        cliques
    }
}
