//! The disk cache of compiled kernels.
//!
//! An entry is one file: a checksum, the length of a JSON head, the head (log, PTX, figures), the cubin. Anything
//! that does not match its checksum counts as absent, so a damaged entry is simply built again. Entries are
//! written beside their place and renamed, so that a reader never sees half of one.

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
    let file = key.file(folder);
    let bytes = fs::read(&file).ok()?;
    let entry = decode(&bytes, target);
    if entry.is_none() {
        tracing::warn!(file = %file.display(), "corrupt cache entry, compiling again");
    }
    entry
}

/// A cache that cannot be written makes the next run slower, not this one wrong.
pub(crate) fn store(folder: &Path, key: &Key, compiled: &Compiled) {
    let file = key.file(folder);
    if let Err(error) = write(folder, &file, &encode(compiled)) {
        tracing::warn!(file = %file.display(), %error, "cannot cache a compilation");
    }
}

fn write(folder: &Path, file: &Path, bytes: &[u8]) -> std::io::Result<()> {
    fs::create_dir_all(folder)?;
    let mut temporary = tempfile::NamedTempFile::new_in(folder)?;
    temporary.write_all(bytes)?;
    temporary.persist(file)?;
    Ok(())
}

fn encode(compiled: &Compiled) -> Vec<u8> {
    let Compiled { ptx, log, resources, milliseconds, .. } = compiled.clone();
    let head = serde_json::to_vec(&Head { ptx, log, resources, milliseconds }).expect("plain data serialises");
    let mut body = (head.len() as u64).to_le_bytes().to_vec();
    body.extend(head);
    body.extend(&compiled.cubin);
    let mut bytes = blake3::hash(&body).as_bytes().to_vec();
    bytes.extend(body);
    bytes
}

fn decode(bytes: &[u8], target: Target) -> Option<Compiled> {
    let (checksum, body) = bytes.split_first_chunk::<{ blake3::OUT_LEN }>()?;
    if blake3::hash(body).as_bytes() != checksum {
        return None;
    }
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
        let bytes = encode(&compiled());
        for i in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[i] ^= 0x10;
            assert_eq!(decode(&damaged, Target::Sm120a), None, "byte {i}");
            assert_eq!(decode(&bytes[..i], Target::Sm120a), None, "cut at {i}");
        }
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
