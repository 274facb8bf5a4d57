//! The disk cache of compiled and of disassembled kernels.
//!
//! An entry is one file: a checksum, then the body. Anything that does not match its checksum counts as absent, so a
//! damaged entry is simply built again. Entries are written beside their place and renamed, so that a reader never
//! sees half of one. The body of a compiled kernel is the length of a JSON head, the head (log, PTX, figures), the
//! cubin; that of a disassembled one is the listing.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use lathe_codegen::target::Target;
use serde::{Deserialize, Serialize};

use crate::nvrtc::Compiled;
use crate::ptxas::Resources;
use crate::toolchain::Version;

/// Changes whenever the meaning of an entry does.
const FORMAT: u32 = 1;

/// What a compilation depends on.
pub(crate) struct Key(blake3::Hash);

impl Key {
    pub(crate) fn new(source: &str, options: &[String], compiler: Version) -> Self {
        let mut hasher = blake3::Hasher::new();
        let mut field = |bytes: &[u8]| {
            hasher.update(&(bytes.len() as u64).to_le_bytes());
            hasher.update(bytes);
        };
        field(&FORMAT.to_le_bytes());
        field(&compiler.0.to_le_bytes());
        field(&compiler.1.to_le_bytes());
        options.iter().for_each(|option| field(option.as_bytes()));
        field(source.as_bytes());
        Key(hasher.finalize())
    }

    fn file(&self, folder: &Path) -> PathBuf {
        folder.join(format!("{}.kernel", self.0.to_hex()))
    }
}

#[derive(Serialize, Deserialize)]
struct Head {
    ptx: String,
    log: String,
    resources: Resources,
    milliseconds: f64,
}

pub(crate) fn load(folder: &Path, key: &Key, target: Target) -> Option<Compiled> {
    decode(&read(&key.file(folder))?, target)
}

pub(crate) fn store(folder: &Path, key: &Key, compiled: &Compiled) {
    write(folder, &key.file(folder), &encode(compiled));
}

/// The listing of `cubin` by this version of the disassembler.
pub(crate) fn load_listing(folder: &Path, cubin: &[u8], disassembler: &str) -> Option<String> {
    String::from_utf8(read(&listing_file(folder, cubin, disassembler))?).ok()
}

pub(crate) fn store_listing(folder: &Path, cubin: &[u8], disassembler: &str, listing: &str) {
    write(folder, &listing_file(folder, cubin, disassembler), listing.as_bytes());
}

fn listing_file(folder: &Path, cubin: &[u8], disassembler: &str) -> PathBuf {
    folder.join(format!("{}-{disassembler}.sass", blake3::hash(cubin).to_hex()))
}

/// The body of an entry that is there and whole.
fn read(file: &Path) -> Option<Vec<u8>> {
    let bytes = fs::read(file).ok()?;
    let body = checked(&bytes);
    if body.is_none() {
        tracing::warn!(file = %file.display(), "corrupt cache entry, made again");
    }
    body.map(<[u8]>::to_vec)
}

fn checked(entry: &[u8]) -> Option<&[u8]> {
    let (checksum, body) = entry.split_first_chunk::<{ blake3::OUT_LEN }>()?;
    (blake3::hash(body).as_bytes() == checksum).then_some(body)
}

/// A cache that cannot be written makes the next run slower, not this one wrong.
fn write(folder: &Path, file: &Path, body: &[u8]) {
    let attempt = || {
        fs::create_dir_all(folder)?;
        let mut temporary = tempfile::NamedTempFile::new_in(folder)?;
        temporary.write_all(blake3::hash(body).as_bytes())?;
        temporary.write_all(body)?;
        temporary.persist(file)?;
        Ok::<_, std::io::Error>(())
    };
    if let Err(error) = attempt() {
        tracing::warn!(file = %file.display(), %error, "cannot write to the cache");
    }
}

fn encode(compiled: &Compiled) -> Vec<u8> {
    let Compiled { ptx, log, resources, milliseconds, .. } = compiled.clone();
    let head = serde_json::to_vec(&Head { ptx, log, resources, milliseconds }).expect("plain data serialises");
    let mut body = (head.len() as u64).to_le_bytes().to_vec();
    body.extend(head);
    body.extend(&compiled.cubin);
    body
}

fn decode(body: &[u8], target: Target) -> Option<Compiled> {
    let (head_len, rest) = body.split_first_chunk::<8>()?;
    let (head, cubin) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*head_len)).ok()?)?;
    let Head { ptx, log, resources, milliseconds } = serde_json::from_slice(head).ok()?;
    Some(Compiled { target, cubin: cubin.to_vec(), ptx, log, resources, milliseconds, cached: true })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compiled() -> Compiled {
        Compiled {
            target: Target::Sm120a,
            cubin: vec![0x7f, b'E', b'L', b'F', 0, 255],
            ptx: ".version 9.0".into(),
            log: "ptxas info".into(),
            resources: Resources { registers: 48, ..Resources::default() },
            milliseconds: 12.5,
            cached: true,
        }
    }

    fn key() -> Key {
        Key::new("source", &["-a".into()], (13, 0))
    }

    #[test]
    fn what_is_stored_is_loaded() {
        let folder = tempfile::tempdir().unwrap();
        store(folder.path(), &key(), &compiled());
        assert_eq!(load(folder.path(), &key(), Target::Sm120a), Some(compiled()));
    }

    #[test]
    fn any_flipped_byte_and_any_cut_makes_an_entry_absent() {
        let folder = tempfile::tempdir().unwrap();
        store(folder.path(), &key(), &compiled());
        let bytes = fs::read(key().file(folder.path())).unwrap();
        assert_eq!(checked(&bytes), Some(&encode(&compiled())[..]));
        for i in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[i] ^= 0x10;
            assert_eq!(checked(&damaged), None, "byte {i}");
            assert_eq!(checked(&bytes[..i]), None, "cut at {i}");
        }
    }

    #[test]
    fn a_listing_belongs_to_its_cubin_and_its_disassembler() {
        let folder = tempfile::tempdir().unwrap();
        store_listing(folder.path(), b"cubin", "13.2", "EXIT");
        assert_eq!(load_listing(folder.path(), b"cubin", "13.2").as_deref(), Some("EXIT"));
        assert_eq!(load_listing(folder.path(), b"cubin", "13.3"), None);
        assert_eq!(load_listing(folder.path(), b"other", "13.2"), None);
    }

    #[test]
    fn source_options_and_compiler_each_change_the_key() {
        let folder = Path::new("");
        let base = key().file(folder);
        assert_ne!(base, Key::new("source ", &["-a".into()], (13, 0)).file(folder));
        assert_ne!(base, Key::new("source", &["-b".into()], (13, 0)).file(folder));
        assert_ne!(base, Key::new("source", &["-a".into()], (13, 1)).file(folder));
        assert_ne!(
            Key::new("b", &["a".into()], (13, 0)).file(folder),
            Key::new("", &["a".into(), "b".into()], (13, 0)).file(folder)
        );
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_no_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        store(&file.path().join("cache"), &key(), &compiled());
    }
}
