//! Steps on a CUDA device.

mod arena;
mod outside;
mod replay;
mod world;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use lathe_codegen::contract::{Arg, POISON, ScalarValue};
use lathe_codegen::ir::ParamKind;
use lathe_graph::build::Planned;
use lathe_graph::check::check;
use lathe_graph::model::{BufferId, GraphId, Lifetime, NodeId, NodeKind, Placement, Pool, StreamId};

use super::dead::DeadBytes;
use super::launch::scalars;
use super::{Action, Bindings, StepError};
use crate::backend::marshal;
use crate::device::{Allocation, Device, Event, Function, GRAPH_SYMBOLS, LaunchShape, Stream};
use crate::program::Program;
use arena::Arena;
pub use replay::Replay;

/// A recorded step on a device, in one arena where each buffer lies at its place of the plan.
///
/// [`CudaStep::prepare`] makes a [`Replay`] of one of its graphs in a [`Mode`](super::Mode). As a
/// [`World`](lathe_graph::explore::World) the step also runs node by node, in any order, on the same addresses, so that
/// every instrument works on it as on an [`EmulatedStep`](super::EmulatedStep).
pub struct CudaStep<'a> {
    id: u64,
    device: &'a Device,
    pool: Pool,
    /// Device addresses.
    placement: Placement,
    /// Whether the checker has passed the placement, so that it must pass each change of it.
    proved: bool,
    actions: HashMap<NodeId, Work<'a>>,
    contents: BTreeMap<BufferId, Vec<u8>>,
    arena: Option<Arena>,
    /// Memory of buffers that were given another address than the plan's.
    elsewhere: HashMap<BufferId, Rc<Allocation>>,
    /// One for each stream of the pool.
    lanes: Vec<Stream>,
    /// How often parameters have changed.
    generation: u64,
    in_flight: RefCell<Option<InFlight>>,
    /// Where dead bytes are to be poisoned, when the step runs node by node.
    dead: Option<DeadBytes>,
}

/// What a node does, ready to run.
enum Work<'a> {
    Kernel { program: &'a Program, function: Rc<Function>, grid: [u32; 3], args: Vec<Arg> },
    Copy { from: BufferId, to: BufferId },
    Fill,
}

/// The last replay of an arena that several graphs share.
struct InFlight {
    graph: GraphId,
    stream: Stream,
    end: Event,
}

impl<'a> CudaStep<'a> {
    /// Puts a checked, planned recording on the device: allocates its arena, loads its kernels, compares what each is
    /// passed with what the compiled function takes, and fills the buffers.
    ///
    /// # Errors
    /// [`StepError`] if a node is not bound, arguments do not fit, or the device refuses: too small, too old a driver.
    pub fn new(device: &'a Device, planned: &Planned, bindings: &'a Bindings<'a>) -> Result<Self, StepError> {
        let mut step = Self::unproved(device, planned.pool(), planned.placement(), bindings)?;
        step.proved = true;
        Ok(step)
    }

    /// The same at addresses that nobody checked, to show what they break. For experiments: nothing here keeps one
    /// buffer's bytes from another's.
    ///
    /// # Errors
    /// As [`CudaStep::new`], and [`StepError::Unplaced`].
    pub fn unproved(
        device: &'a Device,
        pool: &Pool,
        placement: &Placement,
        bindings: &'a Bindings<'a>,
    ) -> Result<Self, StepError> {
        static STEPS: AtomicU64 = AtomicU64::new(0);
        device.require(&GRAPH_SYMBOLS)?;
        let uses = pool.uses();
        let is_lost = |id: &BufferId| placement.address(*id).is_none() && !uses.of(*id).is_empty();
        if let Some(id) = pool.buffer_ids().find(is_lost) {
            return Err(StepError::Unplaced(pool.buffer(id).name.clone()));
        }
        let arena = Arena::of(device, pool, placement)?;
        let mut step = CudaStep {
            id: STEPS.fetch_add(1, Ordering::Relaxed),
            device,
            placement: arena.place(placement),
            pool: pool.clone(),
            proved: false,
            actions: HashMap::new(),
            contents: bindings.contents.iter().map(|(id, bytes)| (*id, bytes.clone())).collect(),
            arena: Some(arena),
            elsewhere: HashMap::new(),
            lanes: pool.streams().iter().map(|_| device.new_stream()).collect::<Result<_, _>>()?,
            generation: 0,
            in_flight: RefCell::new(None),
            dead: None,
        };
        step.check_contents()?;
        step.bind(bindings)?;
        step.restore()?;
        Ok(step)
    }

    fn check_contents(&self) -> Result<(), StepError> {
        for (id, bytes) in &self.contents {
            let buffer = self.pool.buffer(*id);
            if buffer.size != bytes.len() as u64 {
                let (buffer, size, given) = (buffer.name.clone(), buffer.size, bytes.len());
                return Err(StepError::Contents { buffer, size, given });
            }
        }
        Ok(())
    }

    fn bind(&mut self, bindings: &'a Bindings<'a>) -> Result<(), StepError> {
        // A kernel that many nodes launch is loaded once.
        let mut functions: HashMap<*const Program, Rc<Function>> = HashMap::new();
        let captured = |id: &NodeId| self.pool.node(*id).site.graph().is_some();
        for id in self.pool.node_ids().filter(captured).collect::<Vec<_>>() {
            let node = self.pool.node(id);
            let work = match bindings.actions.get(&id) {
                None if node.kind == NodeKind::Memset => Work::Fill,
                None if node.accesses.is_empty() => continue,
                None => return Err(StepError::Unbound(node.name.clone())),
                Some(Action::Copy { from, to }) => {
                    let (source, target) = (self.pool.buffer(*from), self.pool.buffer(*to));
                    if source.size > target.size {
                        return Err(StepError::Copy {
                            node: node.name.clone(),
                            from: source.name.clone(),
                            bytes: source.size,
                            to: target.name.clone(),
                            room: target.size,
                        });
                    }
                    Work::Copy { from: *from, to: *to }
                }
                Some(Action::Kernel { grid, .. }) if grid.contains(&0) => {
                    return Err(StepError::EmptyGrid { node: node.name.clone(), grid: *grid });
                }
                Some(Action::Kernel { program, grid, args }) => {
                    let program: &'a Program = program;
                    let function = match functions.get(&std::ptr::from_ref(program)) {
                        Some(function) => function.clone(),
                        None => {
                            let cuda = &program.cuda;
                            let loaded = self.device.load(&program.compiled.cubin, &cuda.entry, cuda.shared_bytes)?;
                            let loaded = Rc::new(loaded);
                            functions.insert(program, loaded.clone());
                            loaded
                        }
                    };
                    let given = marshal(args, &self.bases(0), |map| self.device.encode(map))?;
                    let given: Vec<usize> = given.iter().map(Vec::len).collect();
                    let expected = function.parameter_sizes();
                    if given != expected {
                        return Err(StepError::Parameters { node: node.name.clone(), expected, given });
                    }
                    Work::Kernel { program, function, grid: *grid, args: args.clone() }
                }
            };
            self.actions.insert(id, work);
        }
        Ok(())
    }

    /// The device.
    pub fn device(&self) -> &'a Device {
        self.device
    }

    /// The step, as it is recorded and, after updates, changed.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Where each buffer lies on the device.
    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    /// The stream that stands for `stream` of the recording.
    pub fn lane(&self, stream: StreamId) -> &Stream {
        &self.lanes[stream.index()]
    }

    /// Bytes of the arena.
    pub fn arena_bytes(&self) -> u64 {
        self.arena.as_ref().map_or(0, Arena::bytes)
    }

    /// Poisons the bytes of each transient once all its uses are over, when the step runs node by node. An observer: it
    /// changes no address and no order. In captured graphs poison is a node:
    /// [`observed`](crate::instrument::observed).
    #[must_use]
    pub fn poisoning_dead_bytes(mut self) -> Self {
        self.dead = Some(DeadBytes::of(&self.pool));
        self
    }

    /// Gives the memory back to the device. Every replay of the step is refused from then on.
    ///
    /// # Errors
    /// [`StepError::Device`] if a kernel in flight failed.
    pub fn free(&mut self) -> Result<(), StepError> {
        self.wait()?;
        self.arena = None;
        self.elsewhere.clear();
        Ok(())
    }

    /// Waits for everything that runs on the step's streams.
    ///
    /// # Errors
    /// [`StepError::Device`] if one of its kernels failed.
    pub fn wait(&self) -> Result<(), StepError> {
        self.lanes.iter().try_for_each(Stream::synchronize)?;
        Ok(self.device.synchronize()?)
    }

    /// Moves an input, an output or an external buffer to `memory` of the caller, and checks the whole step again.
    /// Replays must be [updated](Replay::update) before they run again.
    ///
    /// # Errors
    /// [`StepError::Update`] if the buffer is not the caller's to move, the memory too small, or the checker finds
    /// something; [`StepError::OtherContext`]. Nothing has changed then.
    pub fn move_buffer(&mut self, buffer: BufferId, memory: Rc<Allocation>) -> Result<(), StepError> {
        let of = self.pool.buffer(buffer);
        let name = of.name.clone();
        if !matches!(of.lifetime, Lifetime::Input | Lifetime::Output { .. } | Lifetime::External { .. }) {
            let lifetime = of.lifetime.word();
            return Err(StepError::Update(format!(
                "buffer `{name}` is {lifetime}: only inputs, outputs and external buffers have addresses of the caller"
            )));
        }
        if !self.device.owns(&memory) {
            return Err(StepError::OtherContext { what: format!("the new memory of `{name}`") });
        }
        if (memory.len() as u64) < of.size || !memory.address().is_multiple_of(of.align) {
            return Err(StepError::Update(format!(
                "buffer `{name}` needs {} bytes aligned to {}, and the new memory has {} at {:#x}",
                of.size,
                of.align,
                memory.len(),
                memory.address()
            )));
        }
        let mut pool = self.pool.clone();
        let mut placement = self.placement.clone();
        let old = placement.range(&pool, buffer);
        placement.set(buffer, memory.address());
        pool.buffer_mut(buffer).retired.retain(|range| !range.contains(&memory.address()));
        pool.buffer_mut(buffer).retired.extend(old.filter(|range| range.start != memory.address()));
        if self.proved {
            let report = check(&pool, Some(&placement))?;
            if let Some(finding) = report.findings.first() {
                return Err(StepError::Update(format!(
                    "with `{name}` at {:#x} the step is not safe: {}: {}",
                    memory.address(),
                    finding.code,
                    finding.message
                )));
            }
        }
        (self.pool, self.placement) = (pool, placement);
        self.elsewhere.insert(buffer, memory);
        self.generation += 1;
        Ok(())
    }

    /// Gives argument number `argument` of `node`'s kernel, from 0, another value. Replays must be
    /// [updated](Replay::update) before they run again.
    ///
    /// # Errors
    /// [`StepError::Update`] if the node has no such scalar of that type.
    pub fn set_scalar(&mut self, node: NodeId, argument: usize, value: ScalarValue) -> Result<(), StepError> {
        let name = self.pool.node(node).name.clone();
        let Some(Work::Kernel { program, args, .. }) = self.actions.get_mut(&node) else {
            return Err(StepError::Update(format!("node `{name}` is no kernel: it has no arguments")));
        };
        match program.kernel.params.get(argument).map(|param| (param.kind, &param.name)) {
            Some((ParamKind::Scalar(dtype), _)) if dtype == value.dtype() => {}
            Some((kind, param)) => {
                return Err(StepError::Update(format!(
                    "`{param}` of `{name}` is {}, and {value:?} was given",
                    match kind {
                        ParamKind::Scalar(dtype) => format!("a scalar {dtype}"),
                        ParamKind::Pointer { .. } => "a pointer".to_owned(),
                        _ => "a tensor".to_owned(),
                    }
                )));
            }
            None => {
                let count = program.kernel.params.len();
                return Err(StepError::Update(format!("`{name}` has {count} arguments, and no number {argument}")));
            }
        }
        args[argument] = Arg::Scalar(value);
        let scalars = scalars(args);
        if let Some(launch) = &mut self.pool.node_mut(node).launch {
            launch.scalars = scalars;
        }
        self.generation += 1;
        Ok(())
    }

    /// Address of each buffer, by id, moved by `shift`.
    fn bases(&self, shift: u64) -> Vec<u64> {
        self.pool.buffer_ids().map(|id| self.placement.address(id).unwrap_or(0) + shift).collect()
    }

    /// Puts the work of `node` on `stream`, its buffers at `bases`.
    fn enqueue(&self, node: NodeId, bases: &[u64], stream: &Stream, programmatic: bool) -> Result<(), StepError> {
        match self.actions.get(&node) {
            None => {}
            Some(Work::Kernel { program, function, grid, args }) => {
                let mut arguments = marshal(args, bases, |map| self.device.encode(map))?;
                let shape = LaunchShape { grid: *grid, block: [program.cuda.threads, 1, 1], programmatic };
                // SAFETY: the sizes were compared with the function's when the step was made, and every pointer is a
                // buffer of the arena, or one in `elsewhere`, which the step keeps.
                unsafe { self.device.launch_on(stream, function, shape, &mut arguments)? };
            }
            Some(Work::Copy { from, to }) => {
                let bytes = self.pool.buffer(*from).size;
                // SAFETY: both ranges are buffers of the step; the second has room.
                unsafe { self.device.copy_on(stream, bases[to.index()], bases[from.index()], bytes)? };
            }
            Some(Work::Fill) => {
                for access in self.pool.node(node).accesses.iter().filter(|access| access.effect.writes()) {
                    let start = bases[access.buffer.index()] + access.range.start;
                    let len = access.range.end - access.range.start;
                    // SAFETY: the range is inside a buffer of the step.
                    unsafe { self.device.fill_on(stream, start, POISON, len)? };
                }
            }
        }
        Ok(())
    }
}
