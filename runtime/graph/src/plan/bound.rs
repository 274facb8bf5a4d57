//! The exact maximum-live bound: no plan can use fewer bytes.
//!
//! Buffers that are pairwise unordered may all be live at once under some schedule, so the heaviest such
//! set (a maximum-weight antichain) bounds every plan from below. By Dilworth's theorem with weights it
//! equals the total weight minus a maximum flow from each buffer to those after it.

use std::collections::VecDeque;

use super::problem::Precedence;
use crate::bits::{BitMatrix, ones};

/// The heaviest set of pairwise unordered buffers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MaxLive {
    /// Its bytes: a lower bound on every plan.
    pub bytes: u64,
    /// The buffers in it, ascending: the certificate.
    pub buffers: Vec<usize>,
}

/// The maximum-weight antichain of `order`.
pub fn max_live(sizes: &[u64], order: &Precedence) -> MaxLive {
    let mut flow = Flow::new(sizes, order.before());
    flow.start_greedily();
    while flow.layer() {
        flow.block();
    }
    let buffers = flow.antichain();
    MaxLive { bytes: buffers.iter().map(|&b| sizes[b]).sum(), buffers }
}

/// The same bound for half-open lifetimes, by one sweep over time.
pub fn max_live_of_intervals(sizes: &[u64], intervals: &[(u64, u64)]) -> MaxLive {
    // An end sorts before a start at the same time: the lifetimes are half-open.
    let mut events: Vec<(u64, bool, usize)> =
        intervals.iter().enumerate().flat_map(|(b, &(lower, upper))| [(lower, true, b), (upper, false, b)]).collect();
    events.sort_unstable();
    let (mut live, mut bytes, mut peak_at) = (0, 0, 0);
    for &(time, starts, b) in &events {
        if starts {
            live += sizes[b];
            if live > bytes {
                (bytes, peak_at) = (live, time);
            }
        } else {
            live -= sizes[b];
        }
    }
    let alive = |&b: &usize| intervals[b].0 <= peak_at && peak_at < intervals[b].1;
    MaxLive { bytes, buffers: (0..sizes.len()).filter(alive).collect() }
}

const UNREACHED: u32 = u32::MAX;

/// Dinic's algorithm on source -> left(u) -> right(v) -> sink for every `u` before `v`, both outer arcs of
/// capacity `size`, the middle ones unbounded. The middle arcs stay a bit matrix; only those that carry flow are listed.
struct Flow<'a> {
    sizes: &'a [u64],
    after: &'a BitMatrix,
    /// Left over of source -> left.
    supply: Vec<u64>,
    /// Left over of right -> sink.
    demand: Vec<u64>,
    /// For each right vertex, the left ones that send it flow.
    carried: Vec<Vec<(u32, u64)>>,
    left_level: Vec<u32>,
    right_level: Vec<u32>,
    /// Right vertices of each level that the blocking search has not given up.
    alive: Vec<Vec<u64>>,
}

impl<'a> Flow<'a> {
    fn new(sizes: &'a [u64], after: &'a BitMatrix) -> Self {
        let n = sizes.len();
        Self {
            sizes,
            after,
            supply: sizes.to_vec(),
            demand: sizes.to_vec(),
            carried: vec![Vec::new(); n],
            left_level: vec![UNREACHED; n],
            right_level: vec![UNREACHED; n],
            alive: Vec::new(),
        }
    }

    fn push(&mut self, left: usize, right: usize, amount: u64) {
        match self.carried[right].iter_mut().find(|(u, _)| *u as usize == left) {
            Some((_, flow)) => *flow += amount,
            None => self.carried[right].push((left as u32, amount)),
        }
    }

    /// Sends what needs no detour; most of the flow of a real graph is found here.
    fn start_greedily(&mut self) {
        for left in 0..self.sizes.len() {
            for right in self.after.iter_row(left) {
                let amount = self.supply[left].min(self.demand[right]);
                if amount > 0 {
                    self.supply[left] -= amount;
                    self.demand[right] -= amount;
                    self.push(left, right, amount);
                    if self.supply[left] == 0 {
                        break;
                    }
                }
            }
        }
    }

    /// Levels by breadth-first search; whether some right vertex with demand is reached.
    fn layer(&mut self) -> bool {
        let n = self.sizes.len();
        self.left_level.fill(UNREACHED);
        self.right_level.fill(UNREACHED);
        self.alive.clear();
        let mut unseen = full_set(n);
        let mut queue: VecDeque<usize> = (0..n).filter(|&u| self.supply[u] > 0).collect();
        for &u in &queue {
            self.left_level[u] = 0;
        }
        let mut goal = UNREACHED;
        while let Some(u) = queue.pop_front() {
            let level = self.left_level[u];
            if level >= goal {
                break;
            }
            if self.alive.len() <= level as usize {
                self.alive.push(vec![0; unseen.len()]);
            }
            for (w, &row) in self.after.row(u).iter().enumerate() {
                let fresh = row & unseen[w];
                unseen[w] &= !fresh;
                self.alive[level as usize][w] |= fresh;
                for v in ones(&[fresh]).map(|bit| w * 64 + bit) {
                    self.right_level[v] = level;
                    if self.demand[v] > 0 {
                        goal = goal.min(level + 1);
                    }
                    for &(left, _) in &self.carried[v] {
                        if self.left_level[left as usize] == UNREACHED {
                            self.left_level[left as usize] = level + 1;
                            queue.push_back(left as usize);
                        }
                    }
                }
            }
        }
        goal != UNREACHED
    }

    /// A blocking flow over the levels.
    fn block(&mut self) {
        for root in 0..self.sizes.len() {
            if self.left_level[root] != 0 {
                continue;
            }
            while self.supply[root] > 0 {
                let sent = self.send(root, self.supply[root]);
                if sent == 0 {
                    break;
                }
                self.supply[root] -= sent;
            }
        }
    }

    /// Sends up to `limit` from `left` towards the sink. A path alternates left -> right by the order and right -> left
    /// by giving back flow; its length is bounded by the levels, so the stack is explicit.
    fn send(&mut self, root: usize, limit: u64) -> u64 {
        let mut path: Vec<(usize, usize, u64)> = Vec::new(); // (left, right, limit at left)
        let (mut left, mut limit) = (root, limit);
        loop {
            let level = self.left_level[left] as usize;
            let next = self.alive.get(level).and_then(|alive| {
                self.after.row(left).iter().zip(alive).enumerate().find_map(|(w, (row, alive))| {
                    let both = row & alive;
                    (both != 0).then(|| w * 64 + both.trailing_zeros() as usize)
                })
            });
            let Some(right) = next else {
                // Nothing leaves `left`: take it out of the level graph and step back.
                self.left_level[left] = UNREACHED;
                let Some((previous, _, previous_limit)) = path.pop() else { return 0 };
                (left, limit) = (previous, previous_limit);
                continue;
            };
            if self.demand[right] > 0 {
                let amount = limit.min(self.demand[right]);
                self.demand[right] -= amount;
                path.push((left, right, limit));
                self.augment(&path, amount);
                return amount;
            }
            let detour = self.carried[right]
                .iter()
                .find(|&&(u, flow)| flow > 0 && self.left_level[u as usize] == level as u32 + 1)
                .copied();
            match detour {
                Some((u, flow)) => {
                    path.push((left, right, limit));
                    (left, limit) = (u as usize, limit.min(flow));
                }
                None => self.alive[level][right / 64] &= !(1 << (right % 64)),
            }
        }
    }

    fn augment(&mut self, path: &[(usize, usize, u64)], amount: u64) {
        for (step, &(left, right, _)) in path.iter().enumerate() {
            self.push(left, right, amount);
            if let Some(&(giver, _, _)) = path.get(step + 1) {
                let entry = self.carried[right].iter().position(|&(u, _)| u as usize == giver);
                let entry = entry.expect("the path came back over an arc with flow");
                self.carried[right][entry].1 -= amount;
                if self.carried[right][entry].1 == 0 {
                    self.carried[right].swap_remove(entry);
                }
            }
        }
    }

    /// The minimum cut: left vertices that still get flow whose right twin does not.
    fn antichain(&self) -> Vec<usize> {
        let reached = |b: &usize| self.left_level[*b] != UNREACHED && self.right_level[*b] == UNREACHED;
        (0..self.sizes.len()).filter(reached).collect()
    }
}

fn full_set(n: usize) -> Vec<u64> {
    let mut set = vec![u64::MAX; n.div_ceil(64)];
    if !n.is_multiple_of(64) {
        set[n / 64] = (1 << (n % 64)) - 1;
    }
    set
}
