//! Global memory: named allocations with gaps between them, so that an overrun is never somebody else's buffer by accident.

use std::sync::atomic::Ordering::Relaxed;

use super::page::{PAGE_BYTES, Page, Pages};
use crate::check::Owners;
use crate::error::{Error, Result};

/// What an allocation holds before the kernel runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Init<'a> {
    /// Zeros.
    Zero,
    /// These bytes; the length must be the allocation's.
    Bytes(&'a [u8]),
    /// One byte, repeated.
    Fill(u8),
    /// Nothing: reading it is a finding once the value matters. The bytes are `0xCB`.
    Undefined,
}

/// What kernels may do with an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rights {
    /// Loads only; a store is a finding and does nothing.
    ReadOnly,
    /// Loads and stores.
    ReadWrite,
}

const UNDEFINED_FILL: u8 = 0xcb;
/// Bytes left unmapped between allocations made by [`GlobalMemory::allocate`].
const GUARD_BYTES: u64 = 1 << 16;
/// Bytes within which an address counts as a slip off an allocation.
const NEAR: u64 = 1 << 20;
const FIRST_ADDRESS: u64 = 0x7_0000_0000;
/// Addresses of global memory stop here.
const LAST_ADDRESS: u64 = 1 << 62;

pub(crate) struct Allocation {
    pub name: String,
    pub base: u64,
    pub len: u64,
    pub rights: Rights,
    pages: Pages,
}

impl Allocation {
    pub fn is_read_only(&self) -> bool {
        self.rights == Rights::ReadOnly
    }

    /// For the race check: who touched the word.
    pub fn owners(&self, word: u64) -> &Owners {
        let offset = word * 4;
        self.pages.page(offset / PAGE_BYTES).owners((offset % PAGE_BYTES / 4) as usize)
    }
}

/// The global memory that kernels run on. Sparse: only pages that hold something take space, so an address range of
/// terabytes is as cheap as its contents.
///
/// ```
/// use lathe_emulator::{GlobalMemory, Init};
/// let mut memory = GlobalMemory::default();
/// memory.map("pool", 0x10_0000_0000, 1 << 40, Init::Undefined)?;
/// memory.write(0x10_0000_0000 + (1 << 39), &[1, 2, 3])?;
/// let mut back = [0; 3];
/// memory.read(0x10_0000_0000 + (1 << 39), &mut back)?;
/// assert_eq!(back, [1, 2, 3]);
/// # Ok::<(), lathe_emulator::Error>(())
/// ```
#[derive(Default)]
pub struct GlobalMemory {
    /// By base address.
    allocations: Vec<Allocation>,
}

impl GlobalMemory {
    /// Maps `len` bytes at `address`.
    ///
    /// # Errors
    /// [`Error::Map`] when the range is empty, not 16-byte aligned, out of the address space, overlaps another
    /// allocation, or `Init::Bytes` has another length.
    pub fn map(&mut self, name: &str, address: u64, len: u64, init: Init<'_>) -> Result<()> {
        let fail = |what: String| Err(Error::Map { name: name.into(), address, len, what });
        if len == 0 {
            return fail("it is empty".into());
        }
        if address == 0 || !address.is_multiple_of(16) {
            return fail("the address must be a multiple of 16, and not 0".into());
        }
        if address.checked_add(len).is_none_or(|end| end > super::MODULE_BASE + (1 << 40))
            || (LAST_ADDRESS..super::MODULE_BASE).contains(&address)
        {
            return fail(format!("global addresses stop at {LAST_ADDRESS:#x}"));
        }
        let at = self.allocations.partition_point(|a| a.base < address);
        let below = at.checked_sub(1).map(|i| &self.allocations[i]).filter(|a| a.base + a.len > address);
        if let Some(other) = below.or(self.allocations.get(at).filter(|a| a.base < address + len)) {
            return fail(format!("it overlaps `{}` at {:#x} with {} bytes", other.name, other.base, other.len));
        }
        let (fill, undefined) = match init {
            Init::Fill(byte) => (byte, false),
            Init::Undefined => (UNDEFINED_FILL, true),
            Init::Zero | Init::Bytes(_) => (0, false),
        };
        let pages = Pages::new(len, fill, undefined);
        if let Init::Bytes(bytes) = init
            && bytes.len() as u64 != len
        {
            return fail(format!("its initial contents have {} bytes", bytes.len()));
        }
        self.allocations
            .insert(at, Allocation { name: name.into(), base: address, len, rights: Rights::ReadWrite, pages });
        match init {
            Init::Bytes(bytes) => self.write(address, bytes),
            _ => Ok(()),
        }
    }

    /// Maps `len` bytes at a free address, 256-byte aligned, with an unmapped gap before and behind, and returns the address.
    ///
    /// # Errors
    /// As [`GlobalMemory::map`].
    pub fn allocate(&mut self, name: &str, len: u64, init: Init<'_>) -> Result<u64> {
        let end = self.allocations.iter().filter(|a| a.base < LAST_ADDRESS).map(|a| a.base + a.len).max();
        let address = end.map_or(FIRST_ADDRESS, |e| (e + GUARD_BYTES).next_multiple_of(256));
        self.map(name, address, len, init)?;
        Ok(address)
    }

    /// Removes the allocation that starts at `address`; later accesses to it are out of bounds.
    pub fn unmap(&mut self, address: u64) {
        self.allocations.retain(|a| a.base != address);
    }

    /// Changes what kernels may do with the allocation that starts at `address`.
    pub fn protect(&mut self, address: u64, rights: Rights) {
        if let Some(a) = self.allocations.iter_mut().find(|a| a.base == address) {
            a.rights = rights;
        }
    }

    /// Copies bytes in from the host; they are defined from then on.
    ///
    /// # Errors
    /// [`Error::NotMapped`] unless the range lies within one allocation.
    pub fn write(&mut self, address: u64, bytes: &[u8]) -> Result<()> {
        let allocation = self.range(address, bytes.len())?;
        let mut offset = address - allocation.base;
        let mut rest = bytes;
        while !rest.is_empty() {
            let room = (PAGE_BYTES - offset % PAGE_BYTES).min(rest.len() as u64) as usize;
            let (now, later) = rest.split_at(room);
            allocation.write_in_page(offset, now);
            offset += room as u64;
            rest = later;
        }
        Ok(())
    }

    /// Copies bytes out to the host.
    ///
    /// # Errors
    /// [`Error::NotMapped`] unless the range lies within one allocation.
    pub fn read(&self, address: u64, out: &mut [u8]) -> Result<()> {
        let allocation = self.range(address, out.len())?;
        let mut cursor = Cursor::default();
        let mut offset = address - allocation.base;
        let mut i = 0;
        while i < out.len() {
            let n = (4 - offset % 4).min((out.len() - i) as u64) as usize;
            let word = cursor.load(allocation, offset & !3).to_le_bytes();
            let from = (offset % 4) as usize;
            out[i..i + n].copy_from_slice(&word[from..from + n]);
            i += n;
            offset += n as u64;
        }
        Ok(())
    }

    /// Marks bytes as undefined, whatever they hold; their contents stay.
    ///
    /// # Errors
    /// [`Error::NotMapped`] unless the range lies within one allocation.
    pub fn poison(&mut self, address: u64, len: u64) -> Result<()> {
        let allocation = self.range(address, len as usize)?;
        let offset = address - allocation.base;
        for byte in offset..offset + len {
            let page = allocation.pages.page(byte / PAGE_BYTES);
            let bit = 1 << (byte % 4);
            page.set_undefined((byte % PAGE_BYTES / 4) as usize, bit, bit);
        }
        Ok(())
    }

    /// Whether every byte of the range has been defined, by the host or by a kernel.
    ///
    /// # Errors
    /// [`Error::NotMapped`] unless the range lies within one allocation.
    pub fn is_defined(&self, address: u64, len: u64) -> Result<bool> {
        let allocation = self.range(address, len as usize)?;
        let offset = address - allocation.base;
        let mut cursor = Cursor::default();
        Ok((offset..offset + len).all(|byte| cursor.undefined(allocation, byte & !3) >> (byte % 4) & 1 == 0))
    }

    /// Forgets who touched what in earlier launches.
    pub(crate) fn forget_owners(&mut self) {
        self.allocations.iter_mut().for_each(|a| a.pages.forget_owners());
    }

    /// Name, base address and length of the allocation that holds `address`.
    pub fn locate(&self, address: u64) -> Option<(&str, u64, u64)> {
        self.find(address).map(|i| &self.allocations[i]).map(|a| (a.name.as_str(), a.base, a.len))
    }

    fn range(&self, address: u64, len: usize) -> Result<&Allocation> {
        let fail = Error::NotMapped { address, len: len as u64 };
        let allocation = self.find(address).map(|i| &self.allocations[i]).ok_or(fail.clone())?;
        if len as u64 > allocation.len - (address - allocation.base) { Err(fail) } else { Ok(allocation) }
    }

    pub(crate) fn find(&self, address: u64) -> Option<usize> {
        let at = self.allocations.partition_point(|a| a.base <= address).checked_sub(1)?;
        let a = &self.allocations[at];
        (address - a.base < a.len).then_some(at)
    }

    pub(crate) fn get(&self, index: usize) -> Option<&Allocation> {
        self.allocations.get(index)
    }

    /// The allocation nearest to an address that is in none, for messages; none where the address is so far off that a
    /// neighbour would only mislead.
    pub(crate) fn nearest(&self, address: u64) -> Option<&Allocation> {
        let distance = |a: &Allocation| match address < a.base {
            true => a.base - address,
            false => address.saturating_sub(a.base + a.len - 1),
        };
        let nearest = self.allocations.iter().min_by_key(|a| distance(a))?;
        (distance(nearest) < NEAR).then_some(nearest)
    }
}

impl Allocation {
    fn write_in_page(&self, offset: u64, bytes: &[u8]) {
        let page = self.pages.page(offset / PAGE_BYTES);
        let mut at = (offset % PAGE_BYTES) as usize;
        let mut rest = bytes;
        while !rest.is_empty() {
            let n = (4 - at % 4).min(rest.len());
            let shift = at % 4;
            let word = page.word(at / 4);
            let mut value = word.load(Relaxed).to_le_bytes();
            value[shift..shift + n].copy_from_slice(&rest[..n]);
            word.store(u32::from_le_bytes(value), Relaxed);
            page.set_undefined(at / 4, (((1u16 << n) - 1) << shift) as u8, 0);
            at += n;
            rest = &rest[n..];
        }
    }
}

/// Remembers the last page of an access, since the lanes of a warp mostly share one.
#[derive(Default)]
pub(crate) struct Cursor<'m> {
    last: Option<(*const Allocation, u64, &'m Page)>,
}

impl<'m> Cursor<'m> {
    #[inline]
    fn existing(&mut self, allocation: &'m Allocation, offset: u64) -> Option<&'m Page> {
        let index = offset / PAGE_BYTES;
        match self.last {
            Some((a, i, page)) if std::ptr::eq(a, allocation) && i == index => Some(page),
            _ => {
                let page = allocation.pages.existing(index)?;
                self.last = Some((allocation, index, page));
                Some(page)
            }
        }
    }

    #[inline]
    fn page(&mut self, allocation: &'m Allocation, offset: u64) -> &'m Page {
        if let Some(page) = self.existing(allocation, offset) {
            return page;
        }
        let page = allocation.pages.page(offset / PAGE_BYTES);
        self.last = Some((allocation, offset / PAGE_BYTES, page));
        page
    }

    /// The 32-bit word at a byte offset that is a multiple of 4. A tail past the allocation's end reads as its fill.
    #[inline]
    pub fn load(&mut self, allocation: &'m Allocation, offset: u64) -> u32 {
        match self.existing(allocation, offset) {
            Some(page) => page.word((offset % PAGE_BYTES / 4) as usize).load(Relaxed),
            None => allocation.pages.fill(),
        }
    }

    /// Undefined bytes of the word, a bit each.
    #[inline]
    pub fn undefined(&mut self, allocation: &'m Allocation, offset: u64) -> u8 {
        match self.existing(allocation, offset) {
            Some(page) => page.undefined((offset % PAGE_BYTES / 4) as usize),
            None => {
                if allocation.pages.undefined() {
                    0xf
                } else {
                    0
                }
            }
        }
    }

    /// Stores the bytes selected by `bytes` (a bit each) of the word, and says which of them are undefined.
    #[inline]
    pub fn store(&mut self, allocation: &'m Allocation, offset: u64, value: u32, bytes: u8, undefined: u8) {
        let page = self.page(allocation, offset);
        let index = (offset % PAGE_BYTES / 4) as usize;
        let word = page.word(index);
        if bytes == 0xf {
            word.store(value, Relaxed);
        } else {
            let mask = byte_mask(bytes);
            let _ = word.fetch_update(Relaxed, Relaxed, |old| Some(old & !mask | value & mask));
        }
        if undefined != 0 || page.tracks() {
            page.set_undefined(index, bytes, undefined);
        }
    }
}

/// Spreads a bit for each byte to a mask of bits.
#[inline]
pub(crate) fn byte_mask(bytes: u8) -> u32 {
    let b = u32::from(bytes);
    (b & 1 | (b & 2) << 7 | (b & 4) << 14 | (b & 8) << 21) * 0xff
}
