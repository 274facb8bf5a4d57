//! Counts of memory traffic, for performance: shared-memory wavefronts and global sectors of each access.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Cx;
use super::access::Space;
use super::lanes::LANES;
use crate::finding::SourceLocation;
use crate::memory::SHARED_BASE;

/// What the accesses of one instruction cost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Line of the PTX.
    pub ptx_line: u32,
    /// Opcode.
    pub opcode: String,
    /// Place in the CUDA text, the innermost first.
    pub sources: Vec<SourceLocation>,
    /// The counts.
    pub counts: Counts,
}

/// Sums over the executions of an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Times that a warp executed it.
    pub executions: u64,
    /// Bytes that lanes asked for.
    pub bytes: u64,
    /// Shared memory: passes through the 32 banks.
    pub wavefronts: u64,
    /// Shared memory: passes that the bytes alone would take; what `wavefronts` has more are bank conflicts.
    pub ideal_wavefronts: u64,
    /// Global memory: 32-byte sectors.
    pub sectors: u64,
    /// Global memory: sectors that the distinct bytes alone would fill.
    pub ideal_sectors: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, o: Self) {
        self.executions += o.executions;
        self.bytes += o.bytes;
        self.wavefronts += o.wavefronts;
        self.ideal_wavefronts += o.ideal_wavefronts;
        self.sectors += o.sectors;
        self.ideal_sectors += o.ideal_sectors;
    }
}

/// Counts by pc.
pub(crate) type Tally = BTreeMap<u32, Counts>;

impl Cx<'_> {
    /// Counts an access of `bytes` bytes a lane.
    #[inline]
    pub fn count_traffic(&mut self, space: Space, addresses: &[u64; LANES], lanes: u32, bytes: u32) {
        if self.env.options.traffic {
            self.count(space, addresses, lanes, bytes);
        }
    }

    #[cold]
    fn count(&mut self, space: Space, addresses: &[u64; LANES], lanes: u32, bytes: u32) {
        let taking = || (0..LANES).filter(|i| lanes >> i & 1 != 0).map(|i| addresses[i]);
        let mut counts = Counts { executions: 1, bytes: u64::from(lanes.count_ones() * bytes), ..Counts::default() };
        match space {
            Space::Shared => {
                // Wide accesses go through in parts of 128 bytes: 16 lanes at 8 bytes, 8 at 16.
                let group = (128 / bytes.max(4)).clamp(1, 32) as usize;
                for first in (0..LANES).step_by(group) {
                    let part = (first..first + group)
                        .filter(|i| lanes >> i & 1 != 0)
                        .map(|i| addresses[i].wrapping_sub(SHARED_BASE.into()));
                    let mut words: Vec<u64> = part.flat_map(|a| a / 4..(a + u64::from(bytes)).div_ceil(4)).collect();
                    words.sort_unstable();
                    words.dedup();
                    let mut banks = [0u64; 32];
                    words.iter().for_each(|w| banks[(w % 32) as usize] += 1);
                    counts.wavefronts += banks.iter().max().copied().unwrap_or(0);
                    counts.ideal_wavefronts += (words.len() as u64).div_ceil(32);
                }
            }
            Space::Global => {
                let mut sectors: Vec<u64> =
                    taking().flat_map(|a| a / 32..(a + u64::from(bytes)).div_ceil(32)).collect();
                sectors.sort_unstable();
                sectors.dedup();
                let mut starts: Vec<u64> = taking().collect();
                starts.sort_unstable();
                starts.dedup();
                counts.sectors = sectors.len() as u64;
                counts.ideal_sectors = (starts.len() as u64 * u64::from(bytes)).div_ceil(32);
            }
            _ => return,
        }
        *self.cta.traffic.entry(self.pc).or_default() += counts;
    }
}
