//! A square bit matrix: relations over nodes or buffers, one row a set.

/// A relation over `0..n`, one row of 64-bit words an element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BitMatrix {
    n: usize,
    words: usize,
    bits: Vec<u64>,
}

impl BitMatrix {
    /// The empty relation over `0..n`.
    pub fn new(n: usize) -> Self {
        let words = n.div_ceil(64);
        Self { n, words, bits: vec![0; n * words] }
    }

    /// How many elements the relation is over.
    pub fn len(&self) -> usize {
        self.n
    }

    /// Whether the relation is over no elements at all.
    pub fn is_empty(&self) -> bool {
        self.n == 0
    }

    /// Whether `(row, column)` is in the relation.
    #[inline]
    pub fn get(&self, row: usize, column: usize) -> bool {
        self.bits[row * self.words + column / 64] >> (column % 64) & 1 == 1
    }

    /// Puts `(row, column)` into the relation.
    #[inline]
    pub fn set(&mut self, row: usize, column: usize) {
        self.bits[row * self.words + column / 64] |= 1 << (column % 64);
    }

    /// The set of columns related to `row`, as words of 64 bits, lowest first.
    #[inline]
    pub fn row(&self, row: usize) -> &[u64] {
        &self.bits[row * self.words..(row + 1) * self.words]
    }

    /// The same set, to change.
    #[inline]
    pub fn row_mut(&mut self, row: usize) -> &mut [u64] {
        &mut self.bits[row * self.words..(row + 1) * self.words]
    }

    /// `row(into) |= row(from)`.
    pub fn union_rows(&mut self, into: usize, from: usize) {
        let (words, into, from) = (self.words, into * self.words, from * self.words);
        for w in 0..words {
            self.bits[into + w] |= self.bits[from + w];
        }
    }

    /// The columns related to `row`, ascending.
    pub fn iter_row(&self, row: usize) -> impl Iterator<Item = usize> + '_ {
        ones(self.row(row))
    }

    /// The relation read backwards.
    pub fn transposed(&self) -> Self {
        let mut out = Self::new(self.n);
        for row in 0..self.n {
            for column in self.iter_row(row) {
                out.set(column, row);
            }
        }
        out
    }
}

/// The positions of the set bits, ascending.
pub fn ones(words: &[u64]) -> impl Iterator<Item = usize> + '_ {
    words.iter().enumerate().flat_map(|(w, &word)| {
        std::iter::successors((word != 0).then_some(word), |rest| {
            let rest = rest & (rest - 1);
            (rest != 0).then_some(rest)
        })
        .map(move |rest| w * 64 + rest.trailing_zeros() as usize)
    })
}
