//! Lazily created pages of 32-bit words. Words are atomics, so CTAs on several threads need no lock and a racy kernel
//! stays defined behaviour of the emulator.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering::Relaxed};

use crate::check::Owners;

pub(crate) const PAGE_BYTES: u64 = 1 << 16;
const WORDS: usize = (PAGE_BYTES / 4) as usize;
const PAGES_IN_CHUNK: usize = 1024;
const CHUNK_BYTES: u64 = PAGE_BYTES * PAGES_IN_CHUNK as u64;

pub(crate) struct Page {
    words: Box<[AtomicU32]>,
    /// For each word, a bit for each byte that nobody has defined; absent while all bytes are defined.
    undefined: OnceLock<Box<[AtomicU8]>>,
    /// Who touched each word in this launch, for the race check.
    owners: OnceLock<Box<[Owners]>>,
}

impl Page {
    fn new(fill: u32, undefined: bool) -> Self {
        let words = (0..WORDS).map(|_| AtomicU32::new(fill)).collect();
        let page = Self { words, undefined: OnceLock::new(), owners: OnceLock::new() };
        if undefined {
            page.mask_or_create(0xf);
        }
        page
    }

    fn mask_or_create(&self, initial: u8) -> &[AtomicU8] {
        self.undefined.get_or_init(|| (0..WORDS).map(|_| AtomicU8::new(initial)).collect())
    }

    #[inline]
    pub fn word(&self, index: usize) -> &AtomicU32 {
        &self.words[index]
    }

    /// Undefined bytes of a word, a bit each.
    #[inline]
    pub fn undefined(&self, index: usize) -> u8 {
        self.undefined.get().map_or(0, |m| m[index].load(Relaxed))
    }

    #[inline]
    pub fn owners(&self, index: usize) -> &Owners {
        &self.owners.get_or_init(|| (0..WORDS).map(|_| Owners::default()).collect())[index]
    }

    #[inline]
    pub fn tracks(&self) -> bool {
        self.undefined.get().is_some()
    }

    /// Sets which of the bytes in `bytes` are undefined.
    #[inline]
    pub fn set_undefined(&self, index: usize, bytes: u8, undefined: u8) {
        if undefined == 0 && self.undefined.get().is_none() {
            return;
        }
        let mask = &self.mask_or_create(0)[index];
        if bytes == 0xf {
            mask.store(undefined, Relaxed);
        } else {
            mask.fetch_and(!bytes, Relaxed);
            mask.fetch_or(undefined & bytes, Relaxed);
        }
    }
}

/// The pages of one allocation.
pub(crate) struct Pages {
    fill: u32,
    undefined: bool,
    chunks: Vec<OnceLock<Box<[OnceLock<Page>]>>>,
}

impl Pages {
    pub fn new(len: u64, fill: u8, undefined: bool) -> Self {
        let chunks = (0..len.div_ceil(CHUNK_BYTES)).map(|_| OnceLock::new()).collect();
        Self { fill: u32::from_ne_bytes([fill; 4]), undefined, chunks }
    }

    pub fn forget_owners(&mut self) {
        let chunks = self.chunks.iter_mut().filter_map(OnceLock::get_mut);
        chunks.flat_map(|c| c.iter_mut()).filter_map(OnceLock::get_mut).for_each(|page| {
            page.owners.take();
        });
    }

    pub fn fill(&self) -> u32 {
        self.fill
    }

    pub fn undefined(&self) -> bool {
        self.undefined
    }

    /// The page, if anybody has written to it.
    #[inline]
    pub fn existing(&self, index: u64) -> Option<&Page> {
        let chunk = self.chunks.get(index as usize / PAGES_IN_CHUNK)?.get()?;
        chunk[index as usize % PAGES_IN_CHUNK].get()
    }

    #[inline]
    pub fn page(&self, index: u64) -> &Page {
        let chunk = self.chunks[index as usize / PAGES_IN_CHUNK]
            .get_or_init(|| (0..PAGES_IN_CHUNK).map(|_| OnceLock::new()).collect());
        chunk[index as usize % PAGES_IN_CHUNK].get_or_init(|| Page::new(self.fill, self.undefined))
    }
}
