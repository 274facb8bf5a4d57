//! Looks for tools that are already on the machine.

use std::ffi::{c_int, c_uint};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use libloading::Library;

use super::{Home, Nvdisasm, NvrtcLibrary, Version, Wheel, file_with_prefix};

/// The oldest NVRTC that knows every target: `sm_120f` came with it.
pub const MIN_NVRTC: Version = (12, 9);

/// The names under which cudarc asks the loader for NVRTC, in its order: what one of them finds wins there, so it
/// must win here as well.
const LOADER_NAMES: [&str; 3] = ["libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12"];

pub(super) fn nvrtc(home: &Home) -> Option<NvrtcLibrary> {
    // A library stays loaded under its name for the life of the process, so the search happens once per process and
    // is repeated only while it finds nothing.
    static FOUND: OnceLock<NvrtcLibrary> = OnceLock::new();
    if let Some(found) = FOUND.get() {
        return Some(found.clone());
    }
    let found = search_nvrtc(home)?;
    Some(FOUND.get_or_init(|| found).clone())
}

fn search_nvrtc(home: &Home) -> Option<NvrtcLibrary> {
    let named = LOADER_NAMES.iter().find_map(|name| load_nvrtc(Path::new(name), "on the loader's path"));
    let in_folder = |folder: PathBuf, origin| {
        let library = file_with_prefix(&folder, "libnvrtc.so", ".alt.")?;
        load_nvrtc(&library, origin)
    };
    named
        .or_else(|| toolkits().into_iter().find_map(|root| in_folder(root.join("lib64"), "CUDA toolkit")))
        .or_else(|| in_folder(Wheel::NVRTC.folder(home).join("nvidia/cu13/lib"), "installed by lathe"))
        .or_else(|| {
            python_nvidia_folders().into_iter().find_map(|folder| in_folder(folder.join("lib"), "Python package"))
        })
}

pub(super) fn nvdisasm(home: &Home) -> Option<Nvdisasm> {
    let in_home = Wheel::NVDISASM.folder(home).join("nvidia/cu13/bin");
    let on_path = std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect()).unwrap_or_default();
    let try_folders = |folders: Vec<PathBuf>| {
        folders.into_iter().map(|folder| folder.join("nvdisasm")).filter(|p| p.is_file()).find_map(disassembler)
    };
    try_folders(vec![in_home])
        .or_else(|| try_folders(on_path))
        .or_else(|| try_folders(toolkits().into_iter().map(|root| root.join("bin")).collect()))
        .or_else(|| try_folders(python_nvidia_folders().into_iter().map(|f| f.join("bin")).collect()))
}

/// Asks a disassembler for its version; `None` if it cannot run here or is older than the targets.
fn disassembler(path: PathBuf) -> Option<Nvdisasm> {
    let output = Command::new(&path).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let version = text.split(", V").nth(1)?.split_whitespace().next()?.to_owned();
    let (major, rest) = version.split_once('.')?;
    let minor = rest.split('.').next()?;
    let enough = (major.parse().ok()?, minor.parse().ok()?) >= MIN_NVRTC;
    enough.then_some(Nvdisasm { path, version })
}

/// Loads an NVRTC with its builtins and keeps both loaded if it is new enough, so that later loads by name get them.
fn load_nvrtc(path: &Path, origin: &'static str) -> Option<NvrtcLibrary> {
    // 13.0 cannot find its builtins beside itself, only among what is already loaded.
    let builtins = path.parent().and_then(|folder| file_with_prefix(folder, "libnvrtc-builtins.so", ".alt."));
    // SAFETY: these are NVIDIA's compiler libraries, whose initialisers only set up their own state, and the
    // signature of `nvrtcVersion` has been the same since CUDA 7.
    unsafe {
        let builtins = builtins.and_then(|path| Library::new(path).ok());
        let library = Library::new(path).ok()?;
        let mut version: (c_int, c_int) = (0, 0);
        let ask = library.get::<unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_uint>(b"nvrtcVersion\0").ok()?;
        if ask(&mut version.0, &mut version.1) != 0 {
            return None;
        }
        let version = (u32::try_from(version.0).ok()?, u32::try_from(version.1).ok()?);
        if version < MIN_NVRTC {
            return None;
        }
        std::mem::forget((builtins, library));
        Some(NvrtcLibrary { path: path.to_owned(), version, origin })
    }
}

/// Roots of installed CUDA toolkits.
fn toolkits() -> Vec<PathBuf> {
    let from_env = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(std::env::var_os).map(PathBuf::from);
    from_env.chain([PathBuf::from("/usr/local/cuda")]).filter(|root| root.is_dir()).collect()
}

/// `nvidia/*` in every folder that Python imports from: PyTorch's wheels bring NVRTC there.
fn python_nvidia_folders() -> Vec<PathBuf> {
    let list = "import sys; print('\\n'.join(p for p in sys.path if p))";
    let output = ["python3", "python"].iter().find_map(|python| {
        let output = Command::new(python).args(["-c", list]).output().ok()?;
        output.status.success().then_some(output.stdout)
    });
    let output = output.unwrap_or_default();
    let paths = String::from_utf8_lossy(&output);
    let mut folders: Vec<PathBuf> = paths
        .lines()
        .filter_map(|path| Path::new(path).join("nvidia").read_dir().ok())
        .flat_map(|entries| entries.flatten().map(|e| e.path()))
        .collect();
    folders.sort();
    folders
}
