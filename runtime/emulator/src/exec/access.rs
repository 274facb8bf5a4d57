//! Loads and stores of lanes: address windows, bounds, alignment.

use super::Cx;
use super::lanes::{LANES, Lane};
use crate::check::AccessKind;
use crate::finding::{Address, FindingKind};
use crate::memory::{
    Allocation, Cursor, LOCAL_WINDOW, PARAM_WINDOW, Rights, SHARED_BASE, SHARED_WINDOW, WINDOW_BYTES, byte_mask,
};

/// State space of an access, as the opcode gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Space {
    Generic,
    Global,
    Shared,
    Local,
    Param,
}

impl Space {
    pub fn code(self) -> u32 {
        self as u32
    }

    pub fn of(code: u32) -> Self {
        match code {
            0 => Self::Generic,
            1 => Self::Global,
            2 => Self::Shared,
            3 => Self::Local,
            _ => Self::Param,
        }
    }
}

/// What an access does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Intent {
    Read,
    Write,
    Atomic,
}

/// Where a lane's access goes, after all checks.
#[derive(Clone, Copy)]
pub(crate) enum Target<'m> {
    /// Byte offset in the allocation.
    Global(&'m Allocation, u64),
    /// Byte offset in the CTA's shared memory.
    Shared(u32),
    /// Byte offset in the lane's local memory.
    Local(u32),
    /// Byte offset in the parameters.
    Param(u32),
}

/// Words of the widest access: 32 bytes.
pub(crate) const WORDS: usize = 8;

impl<'a> Cx<'a> {
    /// The address of each lane: register plus immediate.
    #[inline(always)]
    pub fn addresses(&self, slot: u16, rows: u8, offset: i64) -> [u64; LANES] {
        let mut out = [0u64; LANES];
        if rows == 1 {
            let base = u32::read(&self.warp.rows, slot);
            for i in 0..LANES {
                out[i] = base[i].wrapping_add(offset as u32).into();
            }
        } else {
            let base = u64::read(&self.warp.rows, slot);
            for i in 0..LANES {
                out[i] = base[i].wrapping_add(offset as u64);
            }
        }
        out
    }

    /// Checks a lane's access of `bytes` bytes and says where it goes; `None` after a finding.
    #[inline]
    pub fn target(
        &mut self,
        space: Space,
        address: u64,
        bytes: u32,
        intent: Intent,
        lane: u32,
        last: &mut usize,
    ) -> Option<Target<'a>> {
        if address & u64::from(bytes - 1) != 0 {
            return self.misaligned(space, address, bytes, lane);
        }
        let (space, address) = match space {
            Space::Generic => generic(address),
            space => (space, address),
        };
        match space {
            Space::Shared => {
                let offset = (address as u32).wrapping_sub(SHARED_BASE);
                let end = u64::from(offset) + u64::from(bytes);
                if end > self.env.shared_bytes.into() || address >= WINDOW_BYTES {
                    return self.outside_shared(offset, bytes, lane);
                }
                Some(Target::Shared(offset))
            }
            Space::Local if within(address, bytes, self.env.code.local_bytes.into()) => {
                Some(Target::Local(address as u32))
            }
            Space::Param if within(address, bytes, self.env.params.len() as u64 * 4) => {
                Some(Target::Param(address as u32))
            }
            Space::Local | Space::Param => {
                self.outside("local memory or the parameters", address, bytes, lane);
                None
            }
            _ => self.global_target(address, bytes, intent, lane, last),
        }
    }

    /// [`Cx::target`] for global memory, without a check of the alignment.
    #[inline]
    pub fn global_target(
        &mut self,
        address: u64,
        bytes: u32,
        intent: Intent,
        lane: u32,
        last: &mut usize,
    ) -> Option<Target<'a>> {
        let memory = self.env.memory;
        let hit = memory.get(*last).filter(|a| address.wrapping_sub(a.base) < a.len);
        let allocation = match hit {
            Some(a) => a,
            None => match memory.find(address) {
                Some(at) => {
                    *last = at;
                    memory.get(at)?
                }
                None => return self.outside_global(address, bytes, lane),
            },
        };
        let offset = address - allocation.base;
        if offset + u64::from(bytes) > allocation.len {
            return self.outside_global(address, bytes, lane);
        }
        if intent != Intent::Read && allocation.rights == Rights::ReadOnly {
            let place = self.global_address(address);
            self.report(
                FindingKind::ReadOnly,
                lane,
                Some(place),
                None,
                format!("`{}` may only be read", allocation.name),
            );
            return None;
        }
        self.check_declared(address, bytes, intent, lane);
        self.global_touched(allocation, offset, bytes, intent, lane);
        Some(Target::Global(allocation, offset))
    }

    /// Reads up to 32 bytes, a multiple of 4 unless fewer than 4.
    #[inline]
    pub fn read(&mut self, target: Target<'a>, bytes: u32, lane: u32, cursor: &mut Cursor<'a>) -> [u32; WORDS] {
        let mut out = [0; WORDS];
        let words = bytes.div_ceil(4) as usize;
        match target {
            Target::Global(allocation, offset) => {
                for (i, word) in out[..words].iter_mut().enumerate() {
                    *word = cursor.load(allocation, (offset & !3) + 4 * i as u64);
                }
                shift_in(&mut out[0], offset as u32, bytes);
            }
            Target::Shared(offset) => {
                let at = offset as usize / 4;
                out[..words].copy_from_slice(&self.cta.shared[at..at + words]);
                shift_in(&mut out[0], offset, bytes);
            }
            Target::Local(offset) => {
                for (i, word) in out[..words].iter_mut().enumerate() {
                    *word = self.warp.local[(offset as usize / 4 + i) * LANES + lane as usize];
                }
                shift_in(&mut out[0], offset, bytes);
            }
            Target::Param(offset) => {
                let at = offset as usize / 4;
                out[..words].copy_from_slice(&self.env.params[at..at + words]);
                shift_in(&mut out[0], offset, bytes);
            }
        }
        out
    }

    /// The undefined bits of what [`Cx::read`] reads.
    #[inline]
    pub fn read_shadow(&mut self, target: Target<'a>, bytes: u32, lane: u32, cursor: &mut Cursor<'a>) -> [u32; WORDS] {
        let mut out = [0; WORDS];
        let words = bytes.div_ceil(4) as usize;
        match target {
            Target::Global(allocation, offset) => {
                for (i, word) in out[..words].iter_mut().enumerate() {
                    *word = byte_mask(cursor.undefined(allocation, (offset & !3) + 4 * i as u64));
                }
                shift_in(&mut out[0], offset as u32, bytes);
            }
            Target::Shared(offset) => {
                let at = offset as usize / 4;
                out[..words].copy_from_slice(&self.cta.shared_shadow[at..at + words]);
                shift_in(&mut out[0], offset, bytes);
            }
            Target::Local(offset) => {
                for (i, word) in out[..words].iter_mut().enumerate() {
                    *word = self.warp.local_shadow[(offset as usize / 4 + i) * LANES + lane as usize];
                }
                shift_in(&mut out[0], offset, bytes);
            }
            Target::Param(_) => {}
        }
        out
    }

    /// Notes which bits of a write were undefined. To global memory they go with the write itself.
    #[inline]
    pub fn write_shadow(&mut self, target: Target<'a>, bytes: u32, lane: u32, values: &[u32; WORDS]) {
        let words = bytes.div_ceil(4) as usize;
        match target {
            Target::Shared(offset) => {
                let at = offset as usize / 4;
                if bytes < 4 {
                    merge(&mut self.cta.shared_shadow[at], offset, bytes, values[0]);
                } else {
                    self.cta.shared_shadow[at..at + words].copy_from_slice(&values[..words]);
                }
            }
            Target::Local(offset) => {
                let at = (offset as usize / 4) * LANES + lane as usize;
                if bytes < 4 {
                    merge(&mut self.warp.local_shadow[at], offset, bytes, values[0]);
                } else {
                    for (i, &value) in values[..words].iter().enumerate() {
                        self.warp.local_shadow[at + i * LANES] = value;
                    }
                }
            }
            Target::Global(..) | Target::Param(_) => {}
        }
    }

    /// Writes what [`Cx::read`] reads.
    #[inline]
    pub fn write(
        &mut self,
        target: Target<'a>,
        bytes: u32,
        lane: u32,
        values: &[u32; WORDS],
        undefined: &[u32; WORDS],
        cursor: &mut Cursor<'a>,
    ) {
        let words = bytes.div_ceil(4) as usize;
        match target {
            Target::Global(allocation, offset) => {
                if bytes < 4 {
                    let shift = (offset & 3) as u32;
                    let mask = (((1u32 << bytes) - 1) << shift) as u8;
                    cursor.store(
                        allocation,
                        offset & !3,
                        values[0] << (8 * shift),
                        mask,
                        undefined_bytes(undefined[0] << (8 * shift)),
                    );
                } else {
                    for (i, &value) in values[..words].iter().enumerate() {
                        cursor.store(allocation, offset + 4 * i as u64, value, 0xf, undefined_bytes(undefined[i]));
                    }
                }
            }
            Target::Shared(offset) => {
                let at = offset as usize / 4;
                if bytes < 4 {
                    merge(&mut self.cta.shared[at], offset, bytes, values[0]);
                } else {
                    self.cta.shared[at..at + words].copy_from_slice(&values[..words]);
                }
            }
            Target::Local(offset) => {
                let at = (offset as usize / 4) * LANES + lane as usize;
                if bytes < 4 {
                    merge(&mut self.warp.local[at], offset, bytes, values[0]);
                } else {
                    for (i, &value) in values[..words].iter().enumerate() {
                        self.warp.local[at + i * LANES] = value;
                    }
                }
            }
            Target::Param(_) => {}
        }
    }

    /// Checks the shared side of a bulk copy and gives its offset.
    pub fn shared_range(&mut self, address: u64, bytes: u32, lane: u32) -> Option<u32> {
        let offset = (address as u32).wrapping_sub(SHARED_BASE);
        if u64::from(offset) + u64::from(bytes) > self.env.shared_bytes.into() {
            self.outside_shared(offset, bytes, lane)?;
            return None;
        }
        Some(offset)
    }

    /// Checks the global side of a bulk copy.
    pub fn global_range(&mut self, address: u64, bytes: u32, intent: Intent, lane: u32) -> bool {
        let Some(target) = self.global_target(address, bytes, intent, lane, &mut 0) else { return false };
        let kind = if intent == Intent::Read { AccessKind::Read } else { AccessKind::Write };
        self.touched_within(target, bytes, kind, lane);
        true
    }

    /// Checks a condition that PTX puts on an address.
    #[cold]
    pub fn misaligned(&mut self, space: Space, address: u64, bytes: u32, lane: u32) -> Option<Target<'a>> {
        let place = self.place_of(space, address);
        let detail = format!("an access of {bytes} bytes at {address:#x}, which is not a multiple of {bytes}");
        self.report(FindingKind::Misaligned, lane, Some(place), None, detail);
        None
    }

    #[cold]
    fn outside_shared(&mut self, offset: u32, bytes: u32, lane: u32) -> Option<Target<'a>> {
        let have = self.env.shared_bytes;
        let detail =
            format!("{bytes} bytes at shared offset {}; the CTA has {have} bytes of shared memory", offset as i32);
        self.report(FindingKind::OutOfBounds, lane, Some(Address::Shared { offset, variable: None }), None, detail);
        None
    }

    #[cold]
    fn outside_global(&mut self, address: u64, bytes: u32, lane: u32) -> Option<Target<'a>> {
        let place = self.global_address(address);
        let detail = match self.env.memory.nearest(address) {
            Some(a) if address >= a.base => {
                format!("{bytes} bytes at offset {} of `{}`, which has {} bytes", address - a.base, a.name, a.len)
            }
            Some(a) => format!("{bytes} bytes at {address:#x}, {} bytes before `{}`", a.base - address, a.name),
            None => format!("{bytes} bytes at {address:#x}; nothing near it is mapped"),
        };
        self.report(FindingKind::OutOfBounds, lane, Some(place), None, detail);
        None
    }

    #[cold]
    fn outside(&mut self, what: &str, address: u64, bytes: u32, lane: u32) {
        self.report(
            FindingKind::OutOfBounds,
            lane,
            Some(Address::Raw(address)),
            None,
            format!("{bytes} bytes outside {what}"),
        );
    }

    pub fn place_of(&self, space: Space, address: u64) -> Address {
        let (space, address) = if space == Space::Generic { generic(address) } else { (space, address) };
        match space {
            Space::Shared => self.shared_address((address as u32).wrapping_sub(SHARED_BASE)),
            Space::Local | Space::Param => Address::Raw(address),
            _ => self.global_address(address),
        }
    }

    pub fn shared_address(&self, offset: u32) -> Address {
        let holds =
            |v: &&crate::decode::SharedVariable| offset >= v.offset && (v.size == 0 || offset - v.offset < v.size);
        let variable = self.env.code.shared.iter().find(holds).map(|v| (v.name.clone(), offset - v.offset));
        Address::Shared { offset, variable }
    }

    pub fn global_address(&self, address: u64) -> Address {
        let memory = self.env.memory;
        let allocation = memory.find(address).and_then(|i| memory.get(i)).or(memory.nearest(address));
        Address::Global {
            address,
            allocation: allocation.map(|a| a.name.clone()),
            offset: allocation.map_or(0, |a| address.wrapping_sub(a.base) as i64),
        }
    }
}

/// Whether an access lies in a space of `len` bytes.
fn within(address: u64, bytes: u32, len: u64) -> bool {
    address < len && len - address >= bytes.into()
}

/// A bit for each byte that has any undefined bit.
#[inline(always)]
pub(crate) fn undefined_bytes(bits: u32) -> u8 {
    if bits == 0 {
        return 0;
    }
    (0..4).fold(0, |m, i| m | u8::from(bits >> (8 * i) & 0xff != 0) << i)
}

fn generic(address: u64) -> (Space, u64) {
    for (window, space) in [(SHARED_WINDOW, Space::Shared), (LOCAL_WINDOW, Space::Local), (PARAM_WINDOW, Space::Param)]
    {
        if address.wrapping_sub(window) < WINDOW_BYTES {
            return (space, address - window);
        }
    }
    (Space::Global, address)
}

/// Brings the bytes of a narrow read to the bottom of the word.
#[inline(always)]
fn shift_in(word: &mut u32, offset: u32, bytes: u32) {
    if bytes < 4 {
        *word = *word >> (8 * (offset & 3)) & ((1 << (8 * bytes)) - 1);
    }
}

#[inline(always)]
fn merge(word: &mut u32, offset: u32, bytes: u32, value: u32) {
    let shift = offset & 3;
    let mask = byte_mask((((1u32 << bytes) - 1) << shift) as u8);
    *word = *word & !mask | (value << (8 * shift)) & mask;
}
