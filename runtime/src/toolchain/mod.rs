//! The compiler and the disassembler that Lathe drives, found on this machine or installed into the project.
//!
//! No CUDA toolkit is needed: NVRTC and `nvdisasm` come as Python wheels of a few megabytes each, pinned, unpacked
//! into [`Home`] by pip. A toolkit that is already here and new enough is used instead.

mod home;
mod locate;
mod provision;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

pub use home::Home;
pub use locate::MIN_NVRTC;
pub use provision::{Event, ProvisionError, Wheel};

/// A CUDA version, major and minor.
pub type Version = (u32, u32);

/// Finds tools, and installs what is missing unless that is forbidden.
pub struct Toolchain {
    home: Home,
    offline: bool,
    announce: Box<dyn Fn(Event) + Send + Sync>,
    /// Found once: asking for a version starts a process.
    nvdisasm: OnceLock<Nvdisasm>,
}

/// An NVRTC library on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NvrtcLibrary {
    /// The library, as the loader is asked for it: an absolute path, or a bare name on the loader's path.
    pub path: PathBuf,
    /// What the library says its version is.
    pub version: Version,
    /// Where it comes from, for people.
    pub origin: &'static str,
}

/// A disassembler on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nvdisasm {
    /// The program.
    pub path: PathBuf,
    /// What it says its version is.
    pub version: String,
}

impl Toolchain {
    /// The toolchain of the project around the current folder.
    ///
    /// `offline` forbids downloads; `announce` is told when one starts and ends.
    pub fn new(offline: bool, announce: impl Fn(Event) + Send + Sync + 'static) -> Self {
        Self::at(Home::find(), offline, announce)
    }

    /// The same over another folder.
    pub fn at(home: Home, offline: bool, announce: impl Fn(Event) + Send + Sync + 'static) -> Self {
        Toolchain { home, offline, announce: Box::new(announce), nvdisasm: OnceLock::new() }
    }

    /// The folder that holds wheels and cached compilations.
    pub fn home(&self) -> &Home {
        &self.home
    }

    /// The NVRTC that is here, if one new enough is; installs nothing.
    pub fn find_nvrtc(&self) -> Option<NvrtcLibrary> {
        locate::nvrtc(&self.home)
    }

    /// The NVRTC that is here, or the pinned one, installed now.
    pub fn nvrtc(&self) -> Result<NvrtcLibrary, ProvisionError> {
        self.find_or_install(&Wheel::NVRTC, |t| t.find_nvrtc())
    }

    /// The disassembler that is here, if there is one; installs nothing.
    pub fn find_nvdisasm(&self) -> Option<Nvdisasm> {
        locate::nvdisasm(&self.home)
    }

    /// The disassembler that is here, or the pinned one, installed now.
    pub fn nvdisasm(&self) -> Result<Nvdisasm, ProvisionError> {
        if let Some(found) = self.nvdisasm.get() {
            return Ok(found.clone());
        }
        let found = self.find_or_install(&Wheel::NVDISASM, |t| t.find_nvdisasm())?;
        Ok(self.nvdisasm.get_or_init(|| found).clone())
    }

    /// Installs `wheel` into [`Home`] unless it is there, and gives its folder.
    pub fn install(&self, wheel: &Wheel) -> Result<PathBuf, ProvisionError> {
        provision::install(&self.home, wheel, self.offline, &*self.announce)
    }

    fn find_or_install<T>(&self, wheel: &Wheel, find: impl Fn(&Self) -> Option<T>) -> Result<T, ProvisionError> {
        if let Some(tool) = find(self) {
            return Ok(tool);
        }
        let folder = self.install(wheel)?;
        find(self).ok_or_else(|| ProvisionError::Unusable { wheel: wheel.to_string(), folder })
    }
}

/// The first file in `folder` whose name starts with `prefix` and does not contain `except`.
fn file_with_prefix(folder: &Path, prefix: &str, except: &str) -> Option<PathBuf> {
    let mut names: Vec<_> = folder.read_dir().ok()?.flatten().map(|e| e.path()).collect();
    names.sort();
    names.into_iter().find(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(prefix) && !name.contains(except)
    })
}
