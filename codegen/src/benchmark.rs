//! What a kernel is timed with: sizes, memory that is cheap to fill, the work that a size asks for, and the ways to
//! launch the kernel there. Plain data, as [`contract`](crate::contract) is: no device is known here.

use std::fmt;
use std::sync::Arc;

use crate::contract::{Arg, Buffer, Case, Verdict};
use crate::dtype::Dtype;
use crate::ir::Kernel;
use crate::target::Target;
use crate::trace::TraceErrors;

/// How a kernel is timed; part of its [`Entry`](crate::entry::Entry).
#[derive(Clone, Copy)]
pub struct Benchmark {
    /// What a size of this kernel is made of; the other figures of a [`Size`] mean nothing to it.
    pub axes: &'static [Axis],
    /// The sizes of a sweep, unless others are asked for.
    pub sizes: fn() -> Vec<Size>,
    /// Every way to launch the kernel at a size on a machine, the launch rule's choice first.
    pub configurations: fn(&Size, Machine) -> Vec<Configuration>,
    /// What a size asks for, whatever computes it.
    pub work: fn(&Size) -> Result<Work, SizeError>,
    /// Memory, arguments and judge of a size: the same for every configuration.
    pub workload: fn(&Size) -> Result<Workload, SizeError>,
}

/// One figure of a [`Size`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// Requests of a batch.
    Batch,
    /// Keys of a request; of a store, the rows stored.
    Keys,
    /// Query tokens a request.
    NextN,
    /// Query heads.
    Heads,
    /// Entries selected a row.
    TopK,
}

/// One point of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Size {
    /// Requests of the batch.
    pub batch: u32,
    /// Keys of each request; of a store, the rows stored.
    pub keys: u32,
    /// Query tokens a request.
    pub next_n: u32,
    /// Query heads.
    pub heads: u32,
    /// Entries selected a row.
    pub top_k: u32,
    /// Keys of the first request where it has more than the others.
    pub long_row: Option<u32>,
    /// Longest length that the launch is captured for, where that is more than the longest there is.
    pub captured_for: Option<u32>,
}

impl Size {
    /// A batch of equal rows, with a query token of 64 heads each and 2,048 entries selected.
    pub const fn new(batch: u32, keys: u32) -> Size {
        Size { batch, keys, next_n: 1, heads: 64, top_k: 2048, long_row: None, captured_for: None }
    }

    /// Keys of each request.
    pub fn lengths(&self) -> Vec<u32> {
        let mut lengths = vec![self.keys; self.batch as usize];
        if let (Some(first), Some(long)) = (lengths.first_mut(), self.long_row) {
            *first = long;
        }
        lengths
    }

    /// Longest length that the launch must serve.
    pub fn max_len(&self) -> u32 {
        self.keys.max(self.long_row.unwrap_or(0)).max(self.captured_for.unwrap_or(0))
    }
}

/// Names what is out of the ordinary: `B=64 keys=16384 next_n=2`.
impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Size { batch, keys, next_n, heads, top_k, long_row, captured_for } = *self;
        let usual = Size::new(batch, keys);
        write!(f, "B={batch} keys={keys}")?;
        for (name, given, usual) in
            [("next_n", next_n, usual.next_n), ("H", heads, usual.heads), ("K", top_k, usual.top_k)]
        {
            if given != usual {
                write!(f, " {name}={given}")?;
            }
        }
        for (name, given) in [("long_row", long_row), ("captured_for", captured_for)] {
            if let Some(given) = given {
                write!(f, " {name}={given}")?;
            }
        }
        Ok(())
    }
}

/// A size that a kernel does not compute.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} is {given}, accepted: {accepted}")]
pub struct SizeError {
    /// The figure.
    pub name: &'static str,
    /// Its value.
    pub given: u64,
    /// What would be accepted.
    pub accepted: String,
}

/// What a launch rule may know of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// What the kernel is compiled for.
    pub target: Target,
    /// Streaming multiprocessors.
    pub sms: u32,
}

/// One way to launch a kernel: its comptime parameters and its grid.
pub struct Configuration {
    /// The schedule parameters by name, in the order of the search.
    pub parameters: Vec<(&'static str, u32)>,
    /// The kernel with them, or why there is none.
    pub kernel: Result<Kernel, TraceErrors>,
    /// CTAs in x, y, z.
    pub grid: [u32; 3],
}

impl Configuration {
    /// `pages_per_cta=4 stages=2`.
    pub fn label(&self) -> String {
        self.parameters.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
    }
}

/// A launch to be timed: memory, arguments, and a judge.
pub struct Workload {
    /// What the arguments point into.
    pub memory: Vec<Memory>,
    /// Arguments, in the order of the kernel's parameters.
    pub args: Vec<Arg>,
    /// Judges memory after a launch, given what each [output](Role::Output) holds, in order.
    pub judge: Judge,
}

/// Judges memory after a launch.
pub type Judge = Box<dyn Fn(&[Vec<u8>]) -> Verdict + Send + Sync>;

/// Memory that a workload's arguments point into.
#[derive(Clone, Debug)]
pub struct Memory {
    /// The kernel argument this memory backs, for messages.
    pub name: String,
    /// Element type.
    pub dtype: Dtype,
    /// Bytes.
    pub len: u64,
    /// What they hold before a launch.
    pub content: Content,
    /// What launches do to them.
    pub role: Role,
}

/// What launches do to a workload's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Read it only.
    Input,
    /// Write to it, for launches behind them to read: it is restored before a replay that is judged.
    Updated,
    /// Write it for the judge: it is restored before a replay that is judged, and read back after.
    Output,
}

/// What memory holds before a launch.
#[derive(Clone, Debug)]
pub enum Content {
    /// These bytes.
    Bytes(Arc<[u8]>),
    /// These bytes over and over: random data of any size for the price of a block.
    Repeated(Arc<[u8]>),
    /// [`POISON`](crate::contract::POISON).
    Poison,
}

/// What a launch must do at least, whatever computes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Bytes read from device memory.
    pub read: u64,
    /// Bytes written to device memory.
    pub written: u64,
    /// Bytes that have to come from device memory again in every call, so that rotating inputs must outgrow the L2.
    pub streamed: u64,
    /// Operations of the tensor cores; a multiply-add counts 2.
    pub flops: u64,
    /// What the tensor cores multiply, if they do.
    pub multiplies: Option<Dtype>,
    /// Loads that wait for each other before the first result: an index, then what it points at, count 2.
    pub chain: u32,
    /// Turns that a warp makes of its main loop, summed over all warps; 0 where no loop is timed by turns.
    pub turns: u64,
}

impl Workload {
    /// The memory, arguments and judge of a case whose buffers are mapped whole.
    ///
    /// # Panics
    /// If a buffer of the case has a gap: such a case checks addresses, and is no measure of speed.
    pub fn of_case(case: Case) -> Workload {
        let Case { buffers, args, verify, .. } = case;
        let memory = buffers.iter().map(Memory::of_buffer).collect();
        let about: Vec<(String, Dtype)> = buffers.into_iter().map(|buffer| (buffer.name, buffer.dtype)).collect();
        let judge = move |after: &[Vec<u8>]| {
            let buffers = about.iter().zip(after);
            let buffers = buffers.map(|((name, dtype), bytes)| Buffer::from_bytes(name.clone(), *dtype, bytes.clone()));
            verify(&buffers.collect::<Vec<_>>())
        };
        Workload { memory, args, judge: Box::new(judge) }
    }
}

impl Memory {
    fn of_buffer(buffer: &Buffer) -> Memory {
        let content = match &buffer.segments[..] {
            [] if buffer.len == 0 => Content::Poison,
            [only] if only.offset == 0 && only.bytes.len() as u64 == buffer.len => match only.defined {
                true => Content::Bytes(only.bytes.clone().into()),
                false => Content::Poison,
            },
            _ => panic!("`{}` is not mapped whole", buffer.name),
        };
        Memory { name: buffer.name.clone(), dtype: buffer.dtype, len: buffer.len, content, role: Role::Output }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_named_by_what_is_out_of_the_ordinary() {
        assert_eq!(Size::new(64, 16_384).to_string(), "B=64 keys=16384");
        let uneven = Size { long_row: Some(65_536), next_n: 2, heads: 32, ..Size::new(32, 1_024) };
        assert_eq!(uneven.to_string(), "B=32 keys=1024 next_n=2 H=32 long_row=65536");
        assert_eq!(uneven.lengths()[..2], [65_536, 1_024]);
        assert_eq!(uneven.max_len(), 65_536);
    }

    #[test]
    fn a_case_becomes_memory_and_its_judge_sees_what_came_back() {
        let case = Case {
            name: String::new(),
            grid: [1, 1, 1],
            buffers: vec![
                Buffer::from_bytes("x", Dtype::U8, vec![1, 2]),
                Buffer::poisoned("out", Dtype::U8, 3),
                Buffer::from_bytes("none", Dtype::U8, vec![]),
            ],
            args: Vec::new(),
            verify: Box::new(|after| Verdict {
                failures: vec![format!("{:?}", after.iter().map(|b| b.slice(0, 1)).collect::<Vec<_>>())],
                ..Verdict::default()
            }),
        };
        let workload = Workload::of_case(case);
        assert!(matches!(&workload.memory[0].content, Content::Bytes(bytes) if bytes[..] == [1, 2]));
        assert!(matches!(workload.memory[1].content, Content::Poison));
        let verdict = (workload.judge)(&[vec![1, 2], vec![7, 8, 9], vec![]]);
        assert_eq!(verdict.failures, ["[Some([1]), Some([7]), None]"]);
    }
}
