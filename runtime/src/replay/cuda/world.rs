//! A step node by node, and its memory: what the instruments look at.

use std::hash::{DefaultHasher, Hasher};

use lathe_codegen::contract::POISON;
use lathe_graph::explore::World;
use lathe_graph::finding::Step;
use lathe_graph::model::{BufferId, NodeId};

use super::{CudaStep, DeadBytes};
use crate::replay::{Inspect, StepError};

impl CudaStep<'_> {
    /// Puts memory into the state before the first replay, and waits until it is.
    ///
    /// # Errors
    /// [`StepError::Freed`], or the device's.
    pub fn restore(&mut self) -> Result<(), StepError> {
        self.wait()?;
        self.dead = self.dead.as_ref().map(|_| DeadBytes::of(&self.pool));
        self.arena.as_mut().ok_or(StepError::Freed)?.fill(POISON)?;
        let contents = std::mem::take(&mut self.contents);
        let written = contents.iter().try_for_each(|(id, bytes)| self.write(*id, bytes));
        self.contents = contents;
        written?;
        self.wait()
    }

    /// Writes the first bytes of a buffer, after everything on the step's streams.
    ///
    /// # Errors
    /// [`StepError::Freed`], [`StepError::Contents`] if they do not fit, or the device's.
    pub fn write(&mut self, buffer: BufferId, bytes: &[u8]) -> Result<(), StepError> {
        let of = self.pool.buffer(buffer);
        if bytes.len() as u64 > of.size {
            return Err(StepError::Contents { buffer: of.name.clone(), size: of.size, given: bytes.len() });
        }
        self.wait()?;
        let address = self.address(buffer)?;
        match self.elsewhere.get(&buffer) {
            // SAFETY: the memory has at least the buffer's size, which `move_buffer` compared, and the step keeps it.
            Some(_) => unsafe { self.device.write_at(address, bytes)? },
            None => self.arena.as_mut().ok_or(StepError::Freed)?.write(address, bytes)?,
        }
        self.wait()
    }

    /// What the bytes of `buffer` hold once everything on the step's streams has ended.
    ///
    /// # Errors
    /// [`StepError::Freed`], or the device's.
    pub fn read(&self, buffer: BufferId) -> Result<Vec<u8>, StepError> {
        self.wait()?;
        let mut bytes = vec![0; self.pool.buffer(buffer).size as usize];
        let address = self.address(buffer)?;
        match self.elsewhere.get(&buffer) {
            Some(memory) => memory.read(0, &mut bytes)?,
            None => self.arena.as_ref().ok_or(StepError::Freed)?.read(address, &mut bytes)?,
        }
        Ok(bytes)
    }

    /// A digest of each buffer that somebody looks at after a replay.
    ///
    /// # Errors
    /// [`StepError::Freed`], or the device's.
    pub fn digests(&self) -> Result<Vec<(BufferId, u64)>, StepError> {
        let placed = |id: &BufferId| self.placement.address(*id).is_some();
        let observed = |id: &BufferId| self.pool.buffer(*id).lifetime.is_observed() && placed(id);
        let digest = |id: BufferId| {
            let mut hasher = DefaultHasher::new();
            hasher.write(&self.read(id)?);
            Ok((id, hasher.finish()))
        };
        self.pool.buffer_ids().filter(observed).map(digest).collect()
    }

    fn address(&self, buffer: BufferId) -> Result<u64, StepError> {
        let unplaced = || StepError::Unplaced(self.pool.buffer(buffer).name.clone());
        self.placement.address(buffer).ok_or_else(unplaced)
    }

    fn run_alone(&mut self, node: NodeId) -> Result<(), StepError> {
        if self.arena.is_none() {
            return Err(StepError::Freed);
        }
        let (bases, stream) = (self.bases(0), self.device.stream());
        self.enqueue(node, &bases, &stream, false)?;
        let Some(dead) = &mut self.dead else { return Ok(()) };
        for buffer in dead.after(&self.pool, node) {
            let (address, size) = (self.address(buffer)?, self.pool.buffer(buffer).size);
            // SAFETY: the range is a buffer of the arena.
            unsafe { self.device.fill_on(&stream, address, POISON, size)? };
        }
        Ok(())
    }
}

impl World for CudaStep<'_> {
    type Error = StepError;

    fn reset(&mut self) -> Result<(), StepError> {
        self.restore()
    }

    /// On one stream: the order of the calls is the order on the device.
    fn run(&mut self, step: Step) -> Result<(), StepError> {
        match step {
            Step::BeforeWait(_) => Ok(()),
            Step::Node(node) | Step::AfterWait(node) => self.run_alone(node),
        }
    }

    fn observe(&mut self) -> Result<Vec<(BufferId, u64)>, StepError> {
        self.digests()
    }
}

impl Inspect for CudaStep<'_> {
    fn bytes(&mut self, buffer: BufferId) -> Result<Vec<u8>, StepError> {
        self.read(buffer)
    }
}
