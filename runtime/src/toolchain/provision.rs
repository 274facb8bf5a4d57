//! Installs pinned wheels with pip, so that two processes at once and a killed one leave nothing half done.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Home;

/// A pinned Python wheel that holds a tool.
#[derive(Clone, Copy, Debug)]
pub struct Wheel {
    /// Its name in the package index.
    pub package: &'static str,
    /// The exact version.
    pub version: &'static str,
    /// Size of the download, for the announcement.
    pub megabytes: u32,
}

impl Wheel {
    /// The run-time compiler.
    pub const NVRTC: Wheel = Wheel { package: "nvidia-cuda-nvrtc", version: "13.0.88", megabytes: 86 };
    /// The disassembler.
    pub const NVDISASM: Wheel = Wheel { package: "nvidia-cuda-nvdisasm", version: "13.2.78", megabytes: 5 };
    /// Everything that `lathe setup` installs.
    pub const ALL: [Wheel; 2] = [Wheel::NVRTC, Wheel::NVDISASM];

    /// Where it lies once installed.
    pub fn folder(&self, home: &Home) -> PathBuf {
        home.path().join(format!("{}-{}", self.package, self.version))
    }
}

impl fmt::Display for Wheel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.package, self.version)
    }
}

/// A step of an installation, for whoever watches.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub enum Event<'a> {
    Installing { wheel: &'a Wheel, home: &'a Path },
    Installed { wheel: &'a Wheel },
}

impl fmt::Display for Event<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Installing { wheel, home } => {
                write!(f, "installing {wheel} ({} MB, once) into {}", wheel.megabytes, home.display())
            }
            Event::Installed { wheel } => write!(f, "installed {wheel}"),
        }
    }
}

/// Why a tool is not here and could not be installed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum ProvisionError {
    #[error(
        "{wheel} is not installed and --offline forbids the download; run `lathe setup` once with a network, or \
         unpack the wheel into {}", folder.display()
    )]
    Offline { wheel: String, folder: PathBuf },
    #[error(
        "neither `python3 -m pip` nor `pip` runs here, and {wheel} is missing; install pip, or unpack the wheel into {}",
        folder.display()
    )]
    NoPip { wheel: String, folder: PathBuf },
    #[error("pip could not install {wheel}:\n{output}")]
    Pip { wheel: String, output: String },
    #[error("{wheel} in {} cannot be used on this machine; delete the folder and run `lathe setup`", folder.display())]
    Unusable { wheel: String, folder: PathBuf },
    #[error("{}: {error}; set LATHE_HOME to a folder that can be written", path.display())]
    Io { path: PathBuf, error: io::Error },
}

/// Temporary folders carry it, so that the next installation can sweep those of killed processes.
const TEMPORARY: &str = ".installing-";

pub(super) fn install(
    home: &Home,
    wheel: &Wheel,
    offline: bool,
    announce: &dyn Fn(Event),
) -> Result<PathBuf, ProvisionError> {
    let folder = wheel.folder(home);
    if folder.is_dir() {
        return Ok(folder);
    }
    if offline {
        return Err(ProvisionError::Offline { wheel: wheel.to_string(), folder });
    }
    let at = |path: &Path| {
        let path = path.to_owned();
        move |error| ProvisionError::Io { path, error }
    };
    let root = home.path();
    fs::create_dir_all(root).map_err(at(root))?;

    // Whoever comes second waits here for the first, then finds the folder.
    let lock_path = root.join("lock");
    let lock = File::create(&lock_path).map_err(at(&lock_path))?;
    lock.lock().map_err(at(&lock_path))?;
    if folder.is_dir() {
        return Ok(folder);
    }
    sweep(root);

    announce(Event::Installing { wheel, home: root });
    let temporary = tempfile::Builder::new().prefix(TEMPORARY).tempdir_in(root).map_err(at(root))?;
    pip_install(wheel, temporary.path(), &folder)?;
    fs::rename(temporary.path(), &folder).map_err(at(&folder))?;
    announce(Event::Installed { wheel });
    Ok(folder)
}

/// Removes what killed installations left; only under the lock.
fn sweep(root: &Path) {
    for entry in root.read_dir().into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(TEMPORARY) {
            // A folder that cannot be removed costs disk space, nothing else.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn pip_install(wheel: &Wheel, target: &Path, folder: &Path) -> Result<(), ProvisionError> {
    let requirement = format!("{}=={}", wheel.package, wheel.version);
    let mut tried = String::new();
    for (program, leading) in [("python3", &["-m", "pip"][..]), ("python", &["-m", "pip"]), ("pip3", &[]), ("pip", &[])]
    {
        let mut command = Command::new(program);
        command.args(leading).args(["install", "--quiet", "--no-deps", "--only-binary=:all:", "--no-input"]);
        // Without a network, pip would otherwise try for minutes.
        command.args(["--retries", "2"]);
        command.arg("--disable-pip-version-check").arg("--target").arg(target).arg(&requirement);
        let Ok(output) = command.output() else { continue };
        if output.status.success() {
            return Ok(());
        }
        tried = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        if !tried.contains("No module named pip") {
            return Err(ProvisionError::Pip { wheel: wheel.to_string(), output: tried });
        }
    }
    tracing::debug!(%tried, "no pip");
    Err(ProvisionError::NoPip { wheel: wheel.to_string(), folder: folder.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHEEL: Wheel = Wheel { package: "no-such-package", version: "0", megabytes: 0 };

    #[test]
    fn offline_names_the_wheel_and_what_to_do() {
        let home = tempfile::tempdir().unwrap();
        let error = install(&Home::at(home.path()), &WHEEL, true, &|_| panic!("announced")).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("no-such-package 0") && text.contains("lathe setup"), "{text}");
    }

    #[test]
    fn an_installed_wheel_is_used_without_pip() {
        let home = tempfile::tempdir().unwrap();
        let home = Home::at(home.path());
        fs::create_dir_all(WHEEL.folder(&home)).unwrap();
        assert_eq!(install(&home, &WHEEL, true, &|_| panic!("announced")).unwrap(), WHEEL.folder(&home));
    }

    #[test]
    fn leftovers_of_a_killed_installation_are_swept() {
        let home = tempfile::tempdir().unwrap();
        let leftover = home.path().join(".installing-killed");
        fs::create_dir(&leftover).unwrap();
        sweep(home.path());
        assert!(!leftover.exists());
    }

    #[test]
    fn a_home_that_cannot_be_written_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = install(&Home::at(file.path().join("inside")), &WHEEL, false, &|_| ()).unwrap_err();
        assert!(error.to_string().contains("LATHE_HOME"), "{error}");
    }
}
