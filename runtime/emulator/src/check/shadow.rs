//! Who last touched each word of memory.
//!
//! Nearly always a word has one writer and one reader of all four bytes; these are packed into 16 bytes. Everything else (several
//! readers, parts of a word, atomics) moves to a list of its own.

use super::clock::Clock;

/// Epoch of an access that is still going on: an asynchronous copy nobody has waited for.
pub(crate) const IN_FLIGHT: u32 = u32::MAX;

const AGENT_BITS: u32 = 12;
const AGENTS: u32 = 1 << AGENT_BITS;
/// Marks a packed entry whose epoch is the number of a list.
const LISTED: u32 = AGENTS - 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
    Atomic,
}

/// One access to (part of) a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Touch {
    /// Thread, or agent of an mbarrier.
    pub agent: u32,
    pub epoch: u32,
    pub pc: u32,
    /// A bit for each byte.
    pub bytes: u8,
    pub kind: Kind,
}

/// One agent and pc in a word, and its epoch; epoch 0 is nobody.
#[derive(Debug, Clone, Copy, Default)]
struct Packed {
    tag: u32,
    epoch: u32,
}

impl Packed {
    fn new(agent: u32, pc: u32, epoch: u32) -> Self {
        Self { tag: agent | pc << AGENT_BITS, epoch }
    }

    #[inline(always)]
    fn agent(self) -> u32 {
        self.tag & (AGENTS - 1)
    }

    #[inline(always)]
    fn pc(self) -> u32 {
        self.tag >> AGENT_BITS
    }

    /// Ordered before whatever `me`, who knows `clock`, does next.
    #[inline(always)]
    fn before(self, me: u32, clock: &Clock) -> bool {
        ordered(self.agent(), self.epoch, me, clock)
    }
}

#[inline(always)]
fn ordered(agent: u32, epoch: u32, me: u32, clock: &Clock) -> bool {
    epoch <= clock.of(agent) || agent == me && epoch != IN_FLIGHT
}

#[derive(Debug, Clone, Copy, Default)]
struct Word {
    write: Packed,
    read: Packed,
}

#[derive(Default)]
pub(crate) struct Shadow {
    words: Vec<Word>,
    lists: Vec<Vec<Group>>,
    free: Vec<u32>,
}

/// The earlier access of a conflict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Conflict {
    pub earlier: Touch,
}

impl Shadow {
    pub fn reset(&mut self, words: usize) {
        self.words.clear();
        self.words.resize(words, Word::default());
        self.free.clear();
        for (i, list) in self.lists.iter_mut().enumerate() {
            list.clear();
            self.free.push(i as u32);
        }
    }

    /// Makes room for so many words.
    pub fn grow(&mut self, words: usize) {
        self.words.resize(words, Word::default());
    }

    /// Notes an access, and returns an earlier one that it is not ordered after and conflicts with.
    #[inline(always)]
    pub fn touch(&mut self, word: usize, touch: Touch, clock: &Clock) -> Option<Conflict> {
        let w = &mut self.words[word];
        let plain = touch.bytes == 0xf && touch.kind != Kind::Atomic && w.write.tag != LISTED;
        if !plain {
            return self.touch_listed(word, touch, clock);
        }
        let me = touch.agent;
        let new = Packed::new(me, touch.pc, touch.epoch);
        let mut conflict = None;
        if !w.write.before(me, clock) {
            conflict = Some(unpack(w.write, Kind::Write));
        }
        if touch.kind == Kind::Write {
            if conflict.is_none() && !w.read.before(me, clock) {
                conflict = Some(unpack(w.read, Kind::Read));
            }
            w.write = new;
            w.read = Packed::default();
        } else if w.read.before(me, clock) {
            w.read = new;
        } else if conflict.is_none() {
            return self.touch_listed(word, touch, clock);
        }
        conflict.map(|earlier| Conflict { earlier })
    }

    #[inline(never)]
    fn touch_listed(&mut self, word: usize, touch: Touch, clock: &Clock) -> Option<Conflict> {
        let number = self.list_of(word);
        let list = &mut self.lists[number];
        if touch.kind == Kind::Read && touch.epoch != IN_FLIGHT && list.len() <= LONG {
            return read_listed(list, touch, clock);
        }
        let mut conflict = None;
        let mut merged = false;
        list.retain_mut(|group| {
            let late = group.unordered(touch.agent, clock);
            let together = match (group.kind, touch.kind) {
                (Kind::Read, Kind::Read) | (Kind::Atomic, Kind::Atomic) => true,
                _ => group.bytes & touch.bytes == 0,
            };
            if late != 0 && !together && conflict.is_none() {
                conflict = Some(Conflict { earlier: group.touch(late.trailing_zeros()) });
            }
            // What this access covers and comes after need not be remembered: whoever is ordered after this one is ordered after both.
            let covers = group.bytes & !touch.bytes == 0 && (touch.kind != Kind::Read || group.kind == Kind::Read);
            if covers {
                group.lanes &= if conflict.is_some() && !together { 0 } else { late };
            }
            merged |= group.lanes != 0 && group.take_in(touch);
            group.lanes != 0
        });
        if !merged {
            list.push(Group::of(touch));
        }
        conflict
    }

    /// A write of the word by an agent below `agents` that no proxy fence known to `clock` lies behind.
    pub fn unfenced_write(&self, word: usize, agents: u32, clock: &Clock) -> Option<Touch> {
        let unfenced = |agent: u32, epoch: u32| agent < agents && epoch > clock.fenced(agent);
        let w = &self.words[word];
        if w.write.tag != LISTED {
            let write = w.write;
            return (write.epoch != 0 && unfenced(write.agent(), write.epoch)).then(|| unpack(write, Kind::Write));
        }
        let writes = self.lists[w.write.epoch as usize].iter().filter(|group| group.kind != Kind::Read);
        writes
            .flat_map(|group| (0..32).filter(|lane| group.lanes >> lane & 1 != 0).map(|lane| group.touch(lane)))
            .find(|touch| unfenced(touch.agent, touch.epoch))
    }

    /// The number of the word's list, made from its packed entries if it has none.
    fn list_of(&mut self, word: usize) -> usize {
        let w = self.words[word];
        if w.write.tag == LISTED {
            return w.write.epoch as usize;
        }
        let number = self.free.pop().unwrap_or_else(|| {
            self.lists.push(Vec::new());
            self.lists.len() as u32 - 1
        });
        let list = &mut self.lists[number as usize];
        for (packed, kind) in [(w.write, Kind::Write), (w.read, Kind::Read)] {
            if packed.epoch != 0 {
                list.push(Group::of(unpack(packed, kind)));
            }
        }
        self.words[word] = Word { write: Packed { tag: LISTED, epoch: number }, read: Packed::default() };
        number as usize
    }

    /// An access that was in flight is over: from now on it counts as done by its agent in `epoch`.
    pub fn land(&mut self, word: usize, agent: u32, pc: u32, kind: Kind, epoch: u32) {
        let w = &mut self.words[word];
        if w.write.tag == LISTED {
            self.replace(word, agent, pc, kind, |touch| touch.epoch = epoch);
            return;
        }
        let packed = if kind == Kind::Write { &mut w.write } else { &mut w.read };
        if packed.epoch == IN_FLIGHT && packed.tag == Packed::new(agent, pc, 0).tag {
            packed.epoch = epoch;
        }
    }

    /// As [`Shadow::land`], but the access becomes another agent's.
    pub fn hand_over(&mut self, word: usize, agent: u32, pc: u32, to: u32, epoch: u32) {
        let w = &mut self.words[word];
        if w.write.tag == LISTED {
            self.replace(word, agent, pc, Kind::Write, |touch| (touch.agent, touch.epoch) = (to, epoch));
        } else if w.write.epoch == IN_FLIGHT && w.write.tag == Packed::new(agent, pc, 0).tag {
            w.write = Packed::new(to, pc, epoch);
        }
    }
}

impl Shadow {
    /// Changes an access in flight in the word's list.
    fn replace(&mut self, word: usize, agent: u32, pc: u32, kind: Kind, change: impl Fn(&mut Touch)) {
        let list = &mut self.lists[self.words[word].write.epoch as usize];
        let is_it = |g: &Group| {
            (g.pc, g.kind, g.epoch) == (pc, kind, IN_FLIGHT)
                && agent.wrapping_sub(g.first) < 32
                && g.lanes >> (agent - g.first) & 1 != 0
        };
        if let Some(at) = list.iter().position(is_it) {
            let mut touch = list[at].touch(agent - list[at].first);
            list[at].lanes &= !(1 << (agent - list[at].first));
            if list[at].lanes == 0 {
                list.swap_remove(at);
            }
            change(&mut touch);
            list.push(Group::of(touch));
        }
    }
}

/// Groups from which on a read looks for those that need no longer be remembered.
const LONG: usize = 16;

/// A read of a word that has a list: only writes can be in conflict, and it stands for the lane's last one by the same
/// instruction, which whoever comes after it comes after too.
fn read_listed(list: &mut Vec<Group>, touch: Touch, clock: &Clock) -> Option<Conflict> {
    let mut conflict = None;
    let (first, lane) = (touch.agent & !31, 1 << (touch.agent & 31));
    let mut known = false;
    for group in list.iter_mut() {
        if group.kind != Kind::Read {
            if conflict.is_none() && group.bytes & touch.bytes != 0 {
                let late = group.unordered(touch.agent, clock);
                conflict = (late != 0).then(|| Conflict { earlier: group.touch(late.trailing_zeros()) });
            }
        } else if (group.first, group.pc, group.bytes) == (first, touch.pc, touch.bytes) && group.epoch != IN_FLIGHT {
            if group.lanes == lane {
                group.epoch = touch.epoch;
            } else if group.epoch != touch.epoch {
                group.lanes &= !lane;
                continue;
            }
            group.lanes |= lane;
            known = true;
        }
    }
    if !known {
        list.push(Group::of(touch));
    }
    conflict
}

/// The same access by several lanes of a warp.
#[derive(Debug, Clone, Copy)]
struct Group {
    /// Agent of lane 0.
    first: u32,
    lanes: u32,
    epoch: u32,
    pc: u32,
    bytes: u8,
    kind: Kind,
}

impl Group {
    fn of(touch: Touch) -> Self {
        let Touch { agent, epoch, pc, bytes, kind } = touch;
        Self { first: agent & !31, lanes: 1 << (agent & 31), epoch, pc, bytes, kind }
    }

    fn touch(&self, lane: u32) -> Touch {
        Touch { agent: self.first + lane, epoch: self.epoch, pc: self.pc, bytes: self.bytes, kind: self.kind }
    }

    /// Adds a lane's access if it is the same.
    fn take_in(&mut self, touch: Touch) -> bool {
        let same = (self.first, self.epoch, self.pc, self.bytes, self.kind)
            == (touch.agent & !31, touch.epoch, touch.pc, touch.bytes, touch.kind);
        if same {
            self.lanes |= 1 << (touch.agent & 31);
        }
        same
    }

    /// The lanes whose access is not ordered before what `me`, who knows `clock`, does next.
    fn unordered(&self, me: u32, clock: &Clock) -> u32 {
        let mut late = 0;
        let mut rest = self.lanes;
        while rest != 0 {
            let lane = rest.trailing_zeros();
            rest &= rest - 1;
            late |= u32::from(!ordered(self.first + lane, self.epoch, me, clock)) << lane;
        }
        late
    }
}

fn unpack(packed: Packed, kind: Kind) -> Touch {
    Touch { agent: packed.agent(), epoch: packed.epoch, pc: packed.pc(), bytes: 0xf, kind }
}
