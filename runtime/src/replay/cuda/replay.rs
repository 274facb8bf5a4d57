//! A graph of a step, captured and ready to be replayed.

use lathe_graph::driver::{CapturedGraph, Second, read_back};
use lathe_graph::finding::Finding;
use lathe_graph::model::{GraphId, NodeId, Placement, Pool, Site, StreamId};

use super::{CudaStep, InFlight};
use crate::device::{DeviceError, DriverGraph, Event, Executable, GUARD, Stream};
use crate::replay::lanes::{Command, commands};
use crate::replay::mode::Realised;
use crate::replay::{Mode, StepError};

/// How far everything is moved for a second capture, which is read and never replayed: then pointers have moved, and
/// numbers have not. Inside the guard zones, so that every address stays one of an allocation.
const SHIFT: u64 = GUARD as u64 / 2;

/// A graph of a [`CudaStep`], in one mode, ready to be replayed.
pub struct Replay {
    step: u64,
    /// The context, by address.
    context: usize,
    generation: u64,
    graph: GraphId,
    name: String,
    origin: StreamId,
    realised: Realised,
    segments: Vec<Segment>,
}

enum Segment {
    Captured { nodes: Vec<NodeId>, graph: DriverGraph, executable: Executable },
    Eager { commands: Vec<Command>, events: Vec<Event> },
}

impl CudaStep<'_> {
    /// Captures `graph` as `mode` says, compares what the driver captured with what was recorded (E11, E12), and makes
    /// it ready to be replayed. Nothing runs yet.
    ///
    /// # Errors
    /// [`StepError::Mode`] if the graph cannot run so, [`StepError::CaptureBroken`], [`StepError::Differs`], or the
    /// device's.
    pub fn prepare(&self, graph: GraphId, mode: &Mode) -> Result<Replay, StepError> {
        self.prepare_watched(graph, mode, &mut |_| ())
    }

    /// The same, telling `captured` of each node after it was put into the capture.
    ///
    /// # Errors
    /// As [`CudaStep::prepare`].
    pub fn prepare_watched(
        &self,
        graph: GraphId,
        mode: &Mode,
        captured: &mut dyn FnMut(NodeId),
    ) -> Result<Replay, StepError> {
        if self.arena.is_none() {
            return Err(StepError::Freed);
        }
        let realised = mode.realise(&self.pool, graph)?;
        let row = self.pool.graph(graph);
        let first = realised.segments.iter().flat_map(|(nodes, _)| nodes).next();
        let origin = row.lanes.first().map(|lane| lane.stream).or(first.map(|id| self.pool.node(*id).stream));
        let Some(origin) = origin else {
            return Err(StepError::Mode(format!("`{}` has no nodes: there is nothing to capture", row.name)));
        };
        let mut replay = Replay {
            step: self.id,
            context: self.device.context_address(),
            generation: self.generation,
            graph,
            name: row.name.clone(),
            origin,
            realised,
            segments: Vec::new(),
        };
        for (nodes, is_captured) in &replay.realised.segments {
            let (commands, events) = commands(&replay.realised.pool, nodes, origin, replay.realised.one_lane);
            let events: Vec<Event> = (0..events).map(|_| self.device.new_event()).collect::<Result<_, _>>()?;
            replay.segments.push(if *is_captured {
                let graph = replay.capture(self, nodes, (&commands, &events), captured)?;
                let executable = graph.instantiate()?;
                Segment::Captured { nodes: nodes.clone(), graph, executable }
            } else {
                Segment::Eager { commands, events }
            });
        }
        Ok(replay)
    }

    fn execute(
        &self,
        (commands, events): (&[Command], &[Event]),
        bases: &[u64],
        ran: &mut dyn FnMut(NodeId),
    ) -> Result<(), StepError> {
        for command in commands {
            match *command {
                Command::Record { stream, event } => self.lane(stream).record(&events[event])?,
                Command::Wait { stream, event } => self.lane(stream).wait(&events[event])?,
                Command::Run { stream, node, programmatic } => {
                    self.enqueue(node, bases, self.lane(stream), programmatic)?;
                    ran(node);
                }
            }
        }
        Ok(())
    }
}

impl Replay {
    /// Captures `nodes`, twice, and compares.
    fn capture(
        &self,
        step: &CudaStep,
        nodes: &[NodeId],
        work: (&[Command], &[Event]),
        captured: &mut dyn FnMut(NodeId),
    ) -> Result<DriverGraph, StepError> {
        let graph = self.capture_at(step, work, 0, captured)?;
        let moved = self.capture_at(step, work, SHIFT, &mut |_| ())?;
        let pool = self.segment_pool(nodes);
        let findings = self.compare(&pool, &step.placement, &graph, &moved)?;
        if findings.is_empty() { Ok(graph) } else { Err(StepError::Differs { findings }) }
    }

    fn capture_at(
        &self,
        step: &CudaStep,
        work: (&[Command], &[Event]),
        shift: u64,
        captured: &mut dyn FnMut(NodeId),
    ) -> Result<DriverGraph, StepError> {
        let capture = step.device.begin_capture(step.lane(self.origin))?;
        let mut last = None;
        let mut note = |node| {
            last = Some(node);
            captured(node);
        };
        let outcome = match step.execute(work, &step.bases(shift), &mut note) {
            Ok(()) => capture.end().map_err(StepError::Device),
            // Dropping the capture ends it, so that the streams and the device are usable again.
            Err(error) => Err(error),
        };
        outcome.map_err(|error| match error {
            StepError::Device(error @ DeviceError::Driver { .. }) => {
                let after = last.map_or("before its first node".to_owned(), |id| {
                    format!("after node `{}`", step.pool.node(id).name)
                });
                StepError::CaptureBroken { graph: self.name.clone(), moment: after, error }
            }
            other => other,
        })
    }

    /// The recording with only `nodes` in the graph.
    fn segment_pool(&self, nodes: &[NodeId]) -> Pool {
        let mut pool = self.realised.pool.clone();
        let of_graph: Vec<NodeId> = pool.nodes_of(self.graph).collect();
        for id in of_graph.into_iter().filter(|id| !nodes.contains(id)) {
            pool.node_mut(id).site = Site::Between;
        }
        pool
    }

    fn compare(
        &self,
        pool: &Pool,
        placement: &Placement,
        graph: &DriverGraph,
        moved: &DriverGraph,
    ) -> Result<Vec<Finding>, StepError> {
        let mut elsewhere = placement.clone();
        placement.iter().for_each(|(id, address)| elsewhere.set(id, address + SHIFT));
        let second = Second { driver: moved, placement: &elsewhere };
        Ok(read_back(pool, self.graph, placement, graph, Some(second))?)
    }

    /// The graph that it replays.
    pub fn graph(&self) -> GraphId {
        self.graph
    }

    /// What the driver holds of each captured segment, to be kept as data.
    ///
    /// # Errors
    /// [`StepError::ReadBack`] if the driver does not answer.
    pub fn dumps(&self) -> Result<Vec<CapturedGraph>, StepError> {
        let captured = self.segments.iter().filter_map(|segment| match segment {
            Segment::Captured { graph, .. } => Some(graph),
            Segment::Eager { .. } => None,
        });
        captured.map(|graph| graph.dump().map_err(|error| StepError::ReadBack(error.into()))).collect()
    }

    /// Replays it on the stream where its capture began, after what is there, without waiting for its end.
    ///
    /// # Errors
    /// [`StepError::Freed`], [`StepError::Stale`], [`StepError::OtherStep`], [`StepError::OtherContext`],
    /// [`StepError::AtOnce`], or the device's.
    pub fn launch(&self, step: &CudaStep) -> Result<(), StepError> {
        self.may_launch(step)?;
        let stream = step.lane(self.origin);
        for segment in &self.segments {
            match segment {
                Segment::Captured { executable, .. } => executable.launch(stream)?,
                Segment::Eager { commands, events } => step.execute((commands, events), &step.bases(0), &mut |_| ())?,
            }
        }
        self.note_launch(step, stream)
    }

    /// Replays it, and waits for its end.
    ///
    /// # Errors
    /// As [`Replay::launch`], and the device's if a kernel failed.
    pub fn run(&self, step: &CudaStep) -> Result<(), StepError> {
        self.launch(step)?;
        Ok(step.lane(self.origin).synchronize()?)
    }

    /// Takes over what [`CudaStep::move_buffer`] and [`CudaStep::set_scalar`] changed: captures again, compares again,
    /// and gives the executable graph its new parameters.
    ///
    /// # Errors
    /// As [`CudaStep::prepare`]; the replay is as it was then, and still stale.
    pub fn update(&mut self, step: &CudaStep) -> Result<(), StepError> {
        self.is_of(step)?;
        // The mode's own edges stay; launches and addresses are the step's.
        let mut pool = self.realised.pool.clone();
        for id in pool.node_ids() {
            pool.node_mut(id).launch = step.pool.node(id).launch.clone();
        }
        for id in pool.buffer_ids() {
            pool.buffer_mut(id).retired = step.pool.buffer(id).retired.clone();
        }
        let old = std::mem::replace(&mut self.realised.pool, pool);
        match self.recapture(step) {
            Ok(()) => self.generation = step.generation,
            Err(error) => {
                self.realised.pool = old;
                return Err(error);
            }
        }
        Ok(())
    }

    fn recapture(&mut self, step: &CudaStep) -> Result<(), StepError> {
        step.wait()?;
        let mut segments = std::mem::take(&mut self.segments);
        let outcome = segments.iter_mut().try_for_each(|segment| {
            if let Segment::Captured { nodes, graph, executable } = segment {
                *graph = self.renew(step, nodes, executable)?;
            }
            Ok(())
        });
        self.segments = segments;
        outcome
    }

    fn renew(&self, step: &CudaStep, nodes: &[NodeId], executable: &mut Executable) -> Result<DriverGraph, StepError> {
        let (commands, events) = commands(&self.realised.pool, nodes, self.origin, self.realised.one_lane);
        let events: Vec<Event> = (0..events).map(|_| step.device.new_event()).collect::<Result<_, _>>()?;
        let graph = self.capture(step, nodes, (&commands, &events), &mut |_| ())?;
        if !executable.update(&graph)? {
            *executable = graph.instantiate()?;
        }
        Ok(graph)
    }

    fn is_of(&self, step: &CudaStep) -> Result<(), StepError> {
        if self.context != step.device.context_address() {
            return Err(StepError::OtherContext { what: format!("the graph `{}`", self.name) });
        }
        if self.step != step.id {
            return Err(StepError::OtherStep { graph: self.name.clone() });
        }
        Ok(())
    }

    fn may_launch(&self, step: &CudaStep) -> Result<(), StepError> {
        self.is_of(step)?;
        if step.arena.is_none() {
            return Err(StepError::Freed);
        }
        if self.generation != step.generation {
            return Err(StepError::Stale { graph: self.name.clone() });
        }
        if let Some(InFlight { graph, stream, end }) = &*step.in_flight.borrow()
            && *graph != self.graph
            && !step.pool.replay_at_once(*graph, self.graph)
            && !stream.is(step.lane(self.origin))
            && !end.is_done()?
        {
            let other = step.pool.graph(*graph).name.clone();
            return Err(StepError::AtOnce { graph: self.name.clone(), other });
        }
        Ok(())
    }

    /// Only where several graphs share the arena.
    fn note_launch(&self, step: &CudaStep, stream: &Stream) -> Result<(), StepError> {
        if step.pool.graphs().len() < 2 {
            return Ok(());
        }
        let mut in_flight = step.in_flight.borrow_mut();
        let end = match in_flight.take() {
            Some(InFlight { end, .. }) => end,
            None => step.device.new_event()?,
        };
        stream.record(&end)?;
        *in_flight = Some(InFlight { graph: self.graph, stream: stream.clone(), end });
        Ok(())
    }
}
