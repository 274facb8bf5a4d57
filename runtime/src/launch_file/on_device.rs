//! The same launch on a CUDA device, and how far its results are from the emulator's.

use std::time::Duration;

use lathe_codegen::contract::{Buffer as Memory, POISON, Segment};
use lathe_codegen::dtype::Dtype;

use super::{BufferAfter, LaunchFileError, Prepared};
use crate::backend::device_memory::{Rest, stray_write, upload};
use crate::device::{Allocation, Device, DeviceError, Function, LaunchShape};

/// What a launch on a device left.
#[derive(Debug)]
pub struct DeviceOutcome {
    /// The buffers that the kernel may write.
    pub buffers: Vec<BufferAfter>,
    /// Buffers beside which the kernel wrote: where, and what stands there.
    pub stray_writes: Vec<String>,
    /// How long the launch took, by the device's clock.
    pub elapsed: Duration,
}

/// Why a launch on a device did not happen or did not end.
#[derive(Debug, thiserror::Error)]
pub enum DeviceLaunchError {
    /// The arguments do not fit.
    #[error(transparent)]
    File(#[from] LaunchFileError),
    /// The device refused or failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// How far the same buffer is apart after two launches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// Elements whose bytes differ, of those that both launches defined.
    pub elements: usize,
    /// The largest difference of two numbers, relative to the largest magnitude in the buffer; nothing for integers, and
    /// where only one of two is a finite number.
    pub largest: Option<f64>,
}

impl Prepared {
    /// Puts the kernel on a device: its PTX, which the driver assembles.
    ///
    /// # Errors
    /// [`DeviceError`], with the assembler's own words where it refuses the text.
    pub fn load(&self, device: &Device, ptx: &str) -> Result<Function, DeviceError> {
        device.load_ptx(ptx, self.kernel().name(), self.file().dynamic_shared)
    }

    /// Launches the kernel once on fresh memory of the device. `bare` memory has no guard zones, and is never written where
    /// a buffer that the kernel only reads is undefined, so that compute-sanitizer sees what they would hide.
    ///
    /// # Errors
    /// [`DeviceLaunchError`] with the driver function that failed. A kernel that does not end is not ended.
    pub fn run_on(&self, device: &Device, function: &Function, bare: bool) -> Result<DeviceOutcome, DeviceLaunchError> {
        let memories: Vec<Memory> = (0..self.contents().len()).map(|index| self.memory(index)).collect();
        let may_write = |index: usize| self.file().buffers[index].access.is_some_and(|access| access.writes());
        let uploads = memories.iter().enumerate();
        let uploads = uploads.map(|(index, memory)| upload(device, memory, Rest::of(bare, may_write(index))));
        let allocations = uploads.collect::<Result<Vec<_>, _>>()?;
        let bases: Vec<u64> = allocations.iter().map(Allocation::address).collect();
        let encode = |map: &_| Ok(device.encode(map)?);
        let mut arguments = self.arguments::<DeviceLaunchError>(&bases, &encode)?;
        let shape = LaunchShape { grid: self.grid(), block: self.block(), programmatic: false };

        device.synchronize()?;
        let start = device.record()?;
        // SAFETY: the arguments have the sizes of the kernel's parameters, and the allocations live until after the
        // synchronisation. What a kernel from anywhere does with its pointers is what this launch is to show.
        unsafe { device.launch(function, shape, &mut arguments)? };
        let end = device.record()?;
        device.synchronize()?;
        let elapsed = Duration::from_secs_f32(device.elapsed(&start, &end)?.max(0.0) / 1e3);

        let mut stray_writes = Vec::new();
        for (memory, allocation) in memories.iter().zip(&allocations).filter(|_| !bare) {
            stray_writes.extend(stray_write(allocation, memory)?);
        }
        let buffers = self.writable().map(|index| self.copy_back(index, &memories[index], &allocations[index]));
        Ok(DeviceOutcome { buffers: buffers.collect::<Result<_, _>>()?, stray_writes, elapsed })
    }

    fn memory(&self, index: usize) -> Memory {
        let (buffer, contents) = (&self.file().buffers[index], &self.contents()[index]);
        let len = self.len(buffer, contents);
        let bytes = contents.bytes.clone().unwrap_or_else(|| vec![POISON; len as usize]);
        let segments = vec![Segment { offset: 0, bytes, defined: contents.bytes.is_some() }];
        Memory { name: buffer.name.clone(), dtype: Dtype::U8, len, segments, racy: 0..0 }
    }

    fn copy_back(&self, index: usize, before: &Memory, allocation: &Allocation) -> Result<BufferAfter, DeviceError> {
        let (buffer, contents) = (&self.file().buffers[index], &self.contents()[index]);
        let mut bytes = vec![0; before.len as usize];
        allocation.read(0, &mut bytes)?;
        let changed = buffer.element.differ(&before.segments[0].bytes, &bytes);
        let (name, element, shape) = (buffer.name.clone(), buffer.element, contents.shape.clone());
        Ok(BufferAfter { name, element, shape, bytes, changed, defined: None })
    }
}

impl BufferAfter {
    /// How far the same buffer is apart after another launch, at the elements that both are known to have defined.
    ///
    /// # Panics
    /// If it is another buffer.
    pub fn difference(&self, other: &BufferAfter) -> Difference {
        assert_eq!((&self.name, self.bytes.len()), (&other.name, other.bytes.len()), "one buffer is compared");
        let size = self.element.size();
        let is_defined = |after: &BufferAfter, at: usize| after.defined.as_ref().is_none_or(|defined| defined[at]);
        let pairs = || {
            let both = self.bytes.chunks_exact(size).zip(other.bytes.chunks_exact(size)).enumerate();
            both.filter(|(at, _)| is_defined(self, *at) && is_defined(other, *at)).map(|(_, pair)| pair)
        };
        let elements = pairs().filter(|(a, b)| a != b).count();
        let number = |bytes| self.element.decode_float(bytes);
        let finite = pairs().flat_map(|(a, b)| [number(a), number(b)]).flatten().filter(|value| value.is_finite());
        let magnitude = finite.fold(0.0, |most: f64, value| most.max(value.abs()));
        let apart = |(a, b)| {
            let (a, b) = (number(a)?, number(b)?);
            match a == b || a.is_nan() && b.is_nan() {
                true => Some(0.0),
                false => (a.is_finite() && b.is_finite()).then(|| (a - b).abs() / magnitude),
            }
        };
        let largest = pairs().filter(|(a, b)| a != b).try_fold(0.0_f64, |most, pair| Some(most.max(apart(pair)?)));
        Difference { elements, largest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch_file::Element;

    fn after(element: Element, bytes: Vec<u8>, defined: Option<Vec<bool>>) -> BufferAfter {
        let shape = vec![(bytes.len() / element.size()) as u64];
        BufferAfter { name: "out".into(), element, shape, bytes, changed: 0, defined }
    }

    fn floats(values: &[f32], defined: Option<Vec<bool>>) -> BufferAfter {
        after(Element::F32, values.iter().flat_map(|value| value.to_le_bytes()).collect(), defined)
    }

    #[test]
    fn what_nobody_defined_is_not_compared() {
        let emulated = floats(&[1.0, -4.0, 7.0], Some(vec![true, true, false]));
        let device = floats(&[1.5, -4.0, 9.0], None);
        assert_eq!(emulated.difference(&device), Difference { elements: 1, largest: Some(0.125) });
        assert_eq!(device.difference(&emulated), Difference { elements: 1, largest: Some(0.125) });
    }

    #[test]
    fn nans_are_one_number_and_their_bits_are_not() {
        let other_nan = f32::from_bits(0x7fff_ffff);
        let found = floats(&[f32::NAN, 1.0], None).difference(&floats(&[other_nan, 1.0], None));
        assert_eq!(found, Difference { elements: 1, largest: Some(0.0) });
    }

    #[test]
    fn a_number_against_a_nan_and_integers_have_no_distance() {
        assert_eq!(floats(&[1.0], None).difference(&floats(&[f32::NAN], None)).largest, None);
        let integer = |value: i32| after(Element::I32, value.to_le_bytes().to_vec(), None);
        assert_eq!(integer(1).difference(&integer(2)), Difference { elements: 1, largest: None });
        assert_eq!(integer(1).difference(&integer(1)), Difference { elements: 0, largest: Some(0.0) });
    }
}
