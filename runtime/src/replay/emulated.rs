//! Steps on the emulator.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher};
use std::ops::Range;

use lathe_codegen::contract::POISON;
use lathe_emulator::{Checks, GlobalMemory, Init, Kernel, Launch, Module, Options, TensorMap};
use lathe_graph::explore::World;
use lathe_graph::finding::Step;
use lathe_graph::model::{Buffer, BufferId, NodeId, NodeKind, Placement, Pool};

use super::dead::DeadBytes;
use super::{Action, Bindings, Inspect, StepError};
use crate::backend::marshal;

/// Granularity of the emulator's mappings.
const UNIT: u64 = 16;
/// Where address 0 of a placement lies: plans count from there.
const ARENA: u64 = 1 << 32;

/// A recorded step whose kernels run on the emulator, in memory where each buffer lies at its address.
///
/// A kernel with a programmatic predecessor runs whole when its second half is due.
pub struct EmulatedStep<'a> {
    pool: &'a Pool,
    placement: &'a Placement,
    bindings: &'a Bindings<'a>,
    kernels: HashMap<NodeId, Kernel>,
    memory: GlobalMemory,
    /// Address of each buffer, by id; that of the arena for those without.
    bases: Vec<u64>,
    /// Where dead bytes are to be poisoned.
    dead: Option<DeadBytes>,
}

impl<'a> EmulatedStep<'a> {
    /// Decodes every kernel and maps the memory that the placement covers.
    ///
    /// # Errors
    /// [`StepError`] if a node is not bound, a buffer has no address, or PTX cannot be read.
    pub fn new(pool: &'a Pool, placement: &'a Placement, bindings: &'a Bindings<'a>) -> Result<Self, StepError> {
        let mut kernels = HashMap::new();
        for node in pool.node_ids().filter(|id| !pool.node(*id).accesses.is_empty()) {
            match bindings.actions.get(&node) {
                None if pool.node(node).kind == NodeKind::Memset => {}
                None => return Err(StepError::Unbound(pool.node(node).name.clone())),
                Some(Action::Copy { .. }) => {}
                Some(Action::Kernel { program, .. }) => {
                    let module = Module::parse(&program.compiled.ptx)?;
                    kernels.insert(node, module.entry(&program.cuda.entry)?);
                }
            }
        }
        for (buffer, bytes) in &bindings.contents {
            let Buffer { name, size, .. } = pool.buffer(*buffer);
            if *size != bytes.len() as u64 {
                return Err(StepError::Contents { buffer: name.clone(), size: *size, given: bytes.len() });
            }
        }
        let bases = pool.buffer_ids().map(|id| ARENA + placement.address(id).unwrap_or(0)).collect();
        let memory = GlobalMemory::default();
        let mut step = Self { pool, placement, bindings, kernels, memory, bases, dead: None };
        step.reset()?;
        Ok(step)
    }

    /// Poisons the bytes of each transient once all its uses are over. An observer: it changes no address and no order,
    /// and in a step without findings no result.
    #[must_use]
    pub fn poisoning_dead_bytes(mut self) -> Self {
        self.dead = Some(DeadBytes::of(self.pool));
        self
    }

    /// The step.
    pub fn pool(&self) -> &'a Pool {
        self.pool
    }

    fn range(&self, buffer: BufferId) -> Result<Range<u64>, StepError> {
        let unplaced = || StepError::Unplaced(self.pool.buffer(buffer).name.clone());
        let range = self.placement.range(self.pool, buffer).ok_or_else(unplaced)?;
        Ok(ARENA + range.start..ARENA + range.end)
    }

    fn run_node(&mut self, node: NodeId) -> Result<(), StepError> {
        match self.bindings.actions.get(&node) {
            None => {
                // A fill, or a marker, which touches nothing.
                for access in self.pool.node(node).accesses.iter().filter(|access| access.effect.writes()) {
                    let start = self.range(access.buffer)?.start;
                    let len = access.range.end - access.range.start;
                    self.memory.write(start + access.range.start, &vec![POISON; len as usize])?;
                }
            }
            Some(Action::Kernel { grid, .. }) if grid.contains(&0) => {}
            Some(Action::Kernel { program, grid, args }) => {
                let launch = Launch {
                    grid: *grid,
                    block: [program.cuda.threads, 1, 1],
                    dynamic_shared: program.cuda.shared_bytes,
                    params: marshal(args, &self.bases, TensorMap::encode)?,
                    declarations: Vec::new(),
                };
                let options = Options { checks: Checks::NONE, ..Options::default() };
                self.kernels[&node].launch(&launch, &mut self.memory, &options)?;
            }
            Some(Action::Copy { from, to }) => {
                let bytes = self.read(*from)?;
                let start = self.range(*to)?.start;
                self.memory.write(start, &bytes)?;
            }
        }
        Ok(())
    }

    fn poison_dead(&mut self, node: NodeId) -> Result<(), StepError> {
        let Some(dead) = &mut self.dead else { return Ok(()) };
        for buffer in dead.after(self.pool, node) {
            let range = self.range(buffer)?;
            self.memory.write(range.start, &vec![POISON; (range.end - range.start) as usize])?;
        }
        Ok(())
    }

    fn read(&self, buffer: BufferId) -> Result<Vec<u8>, StepError> {
        let range = self.range(buffer)?;
        let mut bytes = vec![0; (range.end - range.start) as usize];
        self.memory.read(range.start, &mut bytes)?;
        Ok(bytes)
    }
}

impl World for EmulatedStep<'_> {
    type Error = StepError;

    fn reset(&mut self) -> Result<(), StepError> {
        self.dead = self.dead.as_ref().map(|_| DeadBytes::of(self.pool));
        self.memory = GlobalMemory::default();
        let mut ranges: Vec<Range<u64>> =
            self.pool.buffer_ids().filter_map(|id| self.range(id).ok()).filter(|range| !range.is_empty()).collect();
        ranges.sort_by_key(|range| range.start);
        let mut islands: Vec<Range<u64>> = Vec::new();
        for range in ranges {
            let range = range.start / UNIT * UNIT..range.end.next_multiple_of(UNIT);
            match islands.last_mut().filter(|island| range.start <= island.end) {
                Some(island) => island.end = island.end.max(range.end),
                None => islands.push(range),
            }
        }
        for island in islands {
            self.memory.map("arena", island.start, island.end - island.start, Init::Fill(POISON))?;
        }
        for (buffer, bytes) in &self.bindings.contents {
            let start = self.range(*buffer)?.start;
            self.memory.write(start, bytes)?;
        }
        Ok(())
    }

    fn run(&mut self, step: Step) -> Result<(), StepError> {
        match step {
            Step::BeforeWait(_) => Ok(()),
            Step::Node(node) | Step::AfterWait(node) => {
                self.run_node(node)?;
                self.poison_dead(node)
            }
        }
    }

    fn observe(&mut self) -> Result<Vec<(BufferId, u64)>, StepError> {
        let placed = |id: &BufferId| self.placement.address(*id).is_some();
        let observed = |id: &BufferId| self.pool.buffer(*id).lifetime.is_observed() && placed(id);
        let digest = |id: BufferId| {
            let mut hasher = DefaultHasher::new();
            hasher.write(&self.read(id)?);
            Ok((id, hasher.finish()))
        };
        self.pool.buffer_ids().filter(observed).map(digest).collect()
    }
}

impl Inspect for EmulatedStep<'_> {
    fn bytes(&mut self, buffer: BufferId) -> Result<Vec<u8>, StepError> {
        self.read(buffer)
    }
}
