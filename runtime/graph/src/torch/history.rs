//! The allocator's history: one allocation each time a block is handed out, and which allocation a pointer means.
//!
//! Two tensors on the same bytes are two allocations with two lives. A node's pointers do not say which of the two they mean, so
//! nodes and allocator events are merged into one time line ([`TimeLine`]), both being in the order in which the host made them.

use std::collections::HashMap;

use super::dump::{Action, Dump, Event, FrameId, GraphDump, Role, Span, Tensor};
use super::rules::Use;

/// Index into [`Allocations::list`].
pub type AllocationId = usize;

/// How an allocation is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The allocator handed it out during the capture.
    Capture,
    /// It was there before the capture: a tensor the user named, or a block of the allocator's snapshot.
    Before,
    /// Only a node's own parameters mention it.
    Unlisted,
}

/// One life of a range of bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allocation {
    /// The bytes.
    pub span: Span,
    /// How it is known.
    pub origin: Origin,
    /// The name the user gave to a tensor in it.
    pub name: Option<String>,
    /// The role of that tensor.
    pub role: Option<Role>,
    /// The stream it was allocated on.
    pub stream: Option<u32>,
    /// Position of its allocation in the history; `None` when it was there before.
    pub born: Option<usize>,
    /// Position at which the host dropped it; `None` when it outlived the capture.
    pub dropped: Option<usize>,
    /// The Python line that allocated it.
    pub at: Option<FrameId>,
    /// The Python line that dropped it.
    pub dropped_at: Option<FrameId>,
    /// Pool of its block, where the snapshot knows it; `Some(None)` is the general pool.
    pub pool: Option<Option<String>>,
    /// Whether a tensor still held the block when the file was written, where the snapshot knows it.
    pub live_at_dump: Option<bool>,
}

impl Allocation {
    /// Whether the program could use it after `position` events.
    fn alive(&self, position: usize) -> bool {
        self.born.is_none_or(|born| born < position) && self.dropped.is_none_or(|dropped| dropped >= position)
    }
}

/// Every allocation a graph can mean.
#[derive(Debug, Default)]
pub struct Allocations {
    /// In order of birth, those from before the capture first.
    pub list: Vec<Allocation>,
    /// Merged ranges, to reject most words at once.
    known: Vec<Span>,
    /// Ids in order of address.
    by_address: Vec<AllocationId>,
    /// Ids of what the capture handed out, in order of birth.
    births: Vec<AllocationId>,
}

impl Allocations {
    /// Collects them from the history, the named tensors and the snapshot.
    pub fn of(graph: &GraphDump, dump: &Dump) -> Allocations {
        let mut born = lives(&graph.events);
        let mut before = name_tensors(&graph.tensors, &mut born);
        add_blocks(dump, &mut before, &mut born);
        before.append(&mut born);
        let mut allocations = Allocations { list: before, ..Allocations::default() };
        allocations.index();
        allocations
    }

    fn index(&mut self) {
        self.by_address = (0..self.list.len()).collect();
        self.by_address.sort_by_key(|&id| self.list[id].span);
        self.known = merged(self.list.iter().map(|life| life.span));
        self.births = (0..self.list.len()).filter(|&id| self.list[id].born.is_some()).collect();
        self.births.sort_by_key(|&id| self.list[id].born);
    }

    /// Whether any allocation, at any time, held this address.
    pub fn knows(&self, addr: u64) -> bool {
        let after = self.known.partition_point(|span| span.addr <= addr);
        after > 0 && self.known[after - 1].contains(addr)
    }

    /// All allocations that ever held this address, in order of birth.
    pub fn holding(&self, addr: u64) -> Vec<AllocationId> {
        let after = self.by_address.partition_point(|&id| self.list[id].span.addr <= addr);
        let mut ids: Vec<_> =
            self.by_address[..after].iter().copied().filter(|&id| self.list[id].span.contains(addr)).collect();
        ids.sort_unstable();
        ids
    }

    /// Whether an allocation that holds this address was handed out between two positions of the history.
    pub fn handed_out(&self, addr: u64, (low, high): (usize, usize)) -> bool {
        let first = self.births.partition_point(|&id| self.list[id].born < Some(low));
        let between = self.births[first..].iter().take_while(|&&id| self.list[id].born < Some(high));
        between.into_iter().any(|&id| self.list[id].span.contains(addr))
    }

    /// Adds memory that only a node's parameters mention.
    pub fn add_unlisted(&mut self, spans: &[Span]) {
        let unknown = spans.iter().filter(|span| span.bytes > 0 && !self.knows(span.addr));
        // It ends where memory begins that somebody else vouches for.
        let clipped = unknown.map(|span| {
            let next = self.known.get(self.known.partition_point(|known| known.addr <= span.addr));
            let end = next.map_or(span.end(), |next| span.end().min(next.addr));
            Span { addr: span.addr, bytes: end - span.addr }
        });
        self.list.extend(overlaps_joined(clipped).into_iter().map(|span| blank(span, Origin::Unlisted)));
        self.index();
    }
}

/// Overlapping spans joined, in order of address.
fn overlaps_joined(spans: impl Iterator<Item = Span>) -> Vec<Span> {
    let mut spans: Vec<Span> = spans.collect();
    spans.sort_unstable();
    let mut joined: Vec<Span> = Vec::new();
    for span in spans {
        match joined.last_mut() {
            Some(last) if span.addr < last.end() => last.bytes = last.bytes.max(span.end() - last.addr),
            _ => joined.push(span),
        }
    }
    joined
}

/// Touching spans joined, in order of address.
fn merged(spans: impl Iterator<Item = Span>) -> Vec<Span> {
    let mut spans: Vec<Span> = spans.collect();
    spans.sort_unstable();
    let mut joined: Vec<Span> = Vec::new();
    for span in spans {
        match joined.last_mut() {
            Some(last) if span.addr <= last.end() => last.bytes = last.bytes.max(span.end() - last.addr),
            _ => joined.push(span),
        }
    }
    joined
}

fn blank(span: Span, origin: Origin) -> Allocation {
    Allocation {
        span,
        origin,
        name: None,
        role: None,
        stream: None,
        born: None,
        dropped: None,
        at: None,
        dropped_at: None,
        pool: None,
        live_at_dump: None,
    }
}

/// One allocation per `alloc` event, and one for each block from before that was dropped.
fn lives(events: &[Event]) -> Vec<Allocation> {
    let mut list: Vec<Allocation> = Vec::new();
    let mut open: HashMap<u64, usize> = HashMap::new();
    for (position, event) in events.iter().enumerate() {
        match event.action {
            Action::Alloc if event.span.bytes > 0 => {
                open.insert(event.span.addr, list.len());
                let life = blank(event.span, Origin::Capture);
                list.push(Allocation { stream: Some(event.stream), born: Some(position), at: event.at, ..life });
            }
            Action::Alloc => {}
            Action::FreeRequested | Action::FreeCompleted => {
                let index = *open.entry(event.span.addr).or_insert_with(|| {
                    // Dropped but never handed out here: it was there before the capture.
                    list.push(blank(event.span, Origin::Before));
                    list.len() - 1
                });
                let life = &mut list[index];
                if life.dropped.is_none() {
                    life.dropped = Some(position);
                    life.dropped_at = event.at;
                }
            }
        }
    }
    list
}

/// Gives the user's names to allocations and returns those tensors that were there before the capture.
///
/// A name goes to the allocation that was alive when the tensor was named; when the dump does not say when that was, to the first
/// unnamed one of its exact bytes, then to the first unnamed one that holds it (a view).
fn name_tensors(tensors: &[Tensor], born: &mut [Allocation]) -> Vec<Allocation> {
    let mut before: Vec<Allocation> = Vec::new();
    for tensor in tensors.iter().filter(|tensor| tensor.span.bytes > 0) {
        let holds = |life: &Allocation| life.span.contains(tensor.span.addr) && tensor.span.end() <= life.span.end();
        let found = match tensor.event {
            Some(event) => born.iter().position(|life| holds(life) && life.alive(event)),
            None => {
                let free = |life: &Allocation| life.name.is_none();
                let exact = born.iter().position(|life| free(life) && life.span == tensor.span);
                exact
                    .or_else(|| born.iter().position(|life| free(life) && holds(life)))
                    .or_else(|| born.iter().position(holds))
            }
        };
        match found {
            Some(index) => {
                let life = &mut born[index];
                life.name = Some(joined(life.name.take(), &tensor.name));
                life.role = life.role.or(Some(tensor.role));
            }
            None => before.push(Allocation {
                name: Some(tensor.name.clone()),
                role: Some(tensor.role),
                ..blank(tensor.span, Origin::Before)
            }),
        }
    }
    merge_views(before)
}

fn joined(first: Option<String>, second: &str) -> String {
    match first {
        Some(first) if first != second => format!("{first} / {second}"),
        _ => second.to_owned(),
    }
}

/// Named tensors that overlap are views of one buffer.
fn merge_views(mut list: Vec<Allocation>) -> Vec<Allocation> {
    list.sort_by_key(|life| life.span);
    let mut merged: Vec<Allocation> = Vec::new();
    for life in list {
        match merged.last_mut() {
            Some(last) if life.span.addr < last.span.end() => {
                last.span.bytes = last.span.bytes.max(life.span.end() - last.span.addr);
                last.name = Some(joined(last.name.take(), life.name.as_deref().unwrap_or("")));
            }
            _ => merged.push(life),
        }
    }
    merged
}

/// Adds blocks of the snapshot that nobody mentioned yet, and tells the others which pool they belong to.
fn add_blocks(dump: &Dump, before: &mut Vec<Allocation>, born: &mut [Allocation]) {
    let mut blocks: Vec<_> = dump.blocks.iter().filter(|block| block.span.bytes > 0).collect();
    blocks.sort_by_key(|block| block.span);
    let block_of = |addr: u64| {
        let after = blocks.partition_point(|block| block.span.addr <= addr);
        blocks[..after].last().filter(|block| block.span.contains(addr))
    };
    for life in before.iter_mut().chain(born.iter_mut()) {
        if let Some(block) = block_of(life.span.addr) {
            life.pool = Some(block.pool.clone());
            life.live_at_dump = Some(block.live);
            // A view names a part; the buffer is the block.
            if life.origin == Origin::Before && block.span.contains(life.span.end() - 1) {
                life.span = block.span;
            }
        }
    }
    *before = merge_views(std::mem::take(before));
    // What the capture handed out was not there before it.
    let known = merged(before.iter().chain(born.iter()).map(|life| life.span));
    for block in &blocks {
        let at = known.partition_point(|span| span.end() <= block.span.addr);
        if block.live && known.get(at).is_none_or(|span| span.intersection(block.span).is_none()) {
            let life = blank(block.span, Origin::Before);
            before.push(Allocation { pool: Some(block.pool.clone()), live_at_dump: Some(true), ..life });
        }
    }
    before.sort_by_key(|life| life.span);
}

/// Which allocation a pointer means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meaning {
    /// The allocation.
    pub allocation: AllocationId,
    /// The host had dropped it before the node was recorded: the pointer is stale.
    pub stale: bool,
}

/// Nodes and allocator events merged in host order.
///
/// A node comes after the birth of everything it points to and before its drop. Where that leaves a choice (bytes that were dropped
/// and handed out again), a node that only writes to bytes whose content was already read starts the next life of these bytes.
pub struct TimeLine<'a> {
    allocations: &'a Allocations,
    position: usize,
    end: usize,
    holding: HashMap<u64, Vec<AllocationId>>,
    /// Allocations that some node read: a further blind write opens the next life.
    read: Vec<bool>,
    used: Vec<bool>,
}

impl<'a> TimeLine<'a> {
    /// Starts before the first of `events` events.
    pub fn new(allocations: &'a Allocations, events: usize) -> Self {
        let count = allocations.list.len();
        let (read, used) = (vec![false; count], vec![false; count]);
        TimeLine { allocations, position: 0, end: events, holding: HashMap::new(), read, used }
    }

    /// Places the next node by its pointers, between the events of `window` where that is known.
    pub fn place(&mut self, pointers: &[(u64, Use)], window: Option<(usize, usize)>) {
        self.hold(pointers);
        let (low, high) = window.unwrap_or((0, self.end));
        self.position = self.position.max(low).min(high.max(self.position));
        self.advance_to_births(pointers, high);
        if let Some(window) = window {
            self.advance_to_births_inside(pointers, window);
            self.advance_to_births(pointers, high);
        }
        self.advance_to_next_life(pointers, high);
    }

    /// What pointers of the node placed last mean; `None` for an address nobody ever held.
    pub fn look(&mut self, pointers: &[(u64, Use)]) -> Vec<Option<Meaning>> {
        self.hold(pointers);
        let meanings: Vec<_> = pointers.iter().map(|&(addr, _)| self.meaning(addr)).collect();
        for (meaning, (_, use_)) in meanings.iter().zip(pointers) {
            if let Some(Meaning { allocation, .. }) = *meaning {
                self.read[allocation] |= use_.reads();
                self.used[allocation] = true;
            }
        }
        meanings
    }

    fn hold(&mut self, pointers: &[(u64, Use)]) {
        let allocations = self.allocations;
        for &(addr, _) in pointers {
            self.holding.entry(addr).or_insert_with(|| allocations.holding(addr));
        }
    }

    /// How many of the allocations that ever held `addr` were born before `position`; those come first.
    fn born_before(&self, addr: u64, position: usize) -> usize {
        self.holding[&addr].partition_point(|&id| self.allocations.list[id].born.is_none_or(|born| born < position))
    }

    fn alive_at(&self, addr: u64, position: usize) -> Option<AllocationId> {
        // Bytes are handed out again only after they were dropped, so only the last life can be the one.
        let last = self.born_before(addr, position).checked_sub(1)?;
        let id = self.holding[&addr][last];
        self.allocations.list[id].alive(position).then_some(id)
    }

    /// The next birth at `addr`, and the position just after it.
    fn next_birth(&self, addr: u64) -> Option<(AllocationId, usize)> {
        let next = self.born_before(addr, self.position);
        let id = *self.holding[&addr].get(next)?;
        self.allocations.list[id].born.map(|born| (id, born + 1))
    }

    /// An operator's arguments live as long as it runs: bytes that are handed out again while it runs are its results.
    fn advance_to_births_inside(&mut self, pointers: &[(u64, Use)], (low, high): (usize, usize)) {
        for &(addr, _) in pointers {
            let Some(current) = self.alive_at(addr, self.position) else { continue };
            let from_outside = self.allocations.list[current].born.is_none_or(|born| born < low);
            if let Some((_, position)) = self.next_birth(addr).filter(|&(_, position)| from_outside && position <= high)
            {
                self.position = position;
            }
        }
    }

    fn advance_to_births(&mut self, pointers: &[(u64, Use)], high: usize) {
        loop {
            let missing = pointers.iter().filter(|&&(addr, _)| self.alive_at(addr, self.position).is_none());
            let next = missing
                .filter_map(|&(addr, _)| self.next_birth(addr))
                .map(|(_, position)| position)
                .filter(|&position| position <= high)
                .max();
            match next {
                Some(position) => self.position = position,
                None => return,
            }
        }
    }

    fn advance_to_next_life(&mut self, pointers: &[(u64, Use)], high: usize) {
        let mut blind: HashMap<u64, bool> = HashMap::new();
        for &(addr, use_) in pointers {
            *blind.entry(addr).or_insert(true) &= matches!(use_, Use::Write | Use::None);
        }
        for (addr, _) in blind.into_iter().filter(|&(_, blind)| blind) {
            let Some(current) = self.alive_at(addr, self.position).filter(|&id| self.read[id]) else { continue };
            let Some((_, position)) = self.next_birth(addr).filter(|&(_, position)| position <= high) else { continue };
            let others_live = pointers.iter().all(|&(other, _)| self.alive_at(other, position).is_some());
            if self.allocations.list[current].dropped.is_some() && others_live && self.skips_no_unused_life(position) {
                self.position = position;
            }
        }
    }

    /// Whether everything that was born and dropped on the way to `position` has been used by some node.
    fn skips_no_unused_life(&self, position: usize) -> bool {
        let list = &self.allocations.list;
        let births = &self.allocations.births;
        let first = births.partition_point(|&id| list[id].born < Some(self.position));
        let on_the_way = births[first..].iter().take_while(|&&id| list[id].born < Some(position));
        on_the_way.into_iter().all(|&id| self.used[id] || list[id].dropped.is_none_or(|dropped| dropped >= position))
    }

    /// The life of these bytes that has yet to begin, which a node may mean whose place among the events is not known.
    pub fn next_life(&self, addr: u64) -> Option<Meaning> {
        let (allocation, _) = self.next_birth(addr)?;
        Some(Meaning { allocation, stale: false })
    }

    fn meaning(&self, addr: u64) -> Option<Meaning> {
        if let Some(allocation) = self.alive_at(addr, self.position) {
            return Some(Meaning { allocation, stale: false });
        }
        let ids = &self.holding[&addr];
        let past = self.born_before(addr, self.position);
        let allocation = *ids.get(past.saturating_sub(1))?;
        Some(Meaning { allocation, stale: true })
    }
}
