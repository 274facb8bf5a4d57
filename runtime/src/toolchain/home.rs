//! The folder that holds what Lathe downloads and what it caches.

use std::path::{Path, PathBuf};

/// `$LATHE_HOME`, or `.lathe` in the project around the current folder, or `lathe` in the user's cache folder.
#[derive(Clone, Debug)]
pub struct Home {
    root: PathBuf,
}

impl Home {
    /// The home for the current folder and environment. Nothing is created.
    pub fn find() -> Self {
        if let Some(root) = std::env::var_os("LATHE_HOME").filter(|v| !v.is_empty()) {
            return Home { root: root.into() };
        }
        let here = std::env::current_dir().unwrap_or_default();
        Home { root: Self::of_project(&here).unwrap_or_else(Self::of_user) }
    }

    /// A home at `root`.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Home { root: root.into() }
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.root
    }

    /// The folder of compiled kernels.
    pub fn cache(&self) -> PathBuf {
        self.root.join("cache")
    }

    /// A project is where cargo keeps its lock file: the root of a workspace.
    fn of_project(from: &Path) -> Option<PathBuf> {
        from.ancestors().find(|folder| folder.join("Cargo.lock").is_file()).map(|folder| folder.join(".lathe"))
    }

    fn of_user() -> PathBuf {
        let var = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        var("XDG_CACHE_HOME")
            .or_else(|| var("HOME").map(|home| home.join(".cache")))
            .unwrap_or_else(std::env::temp_dir)
            .join("lathe")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_inside_a_workspace_shares_the_home_of_the_workspace() {
        let workspace = tempfile::tempdir().unwrap();
        let member = workspace.path().join("kernels/src");
        std::fs::create_dir_all(&member).unwrap();
        std::fs::write(workspace.path().join("Cargo.lock"), "").unwrap();
        assert_eq!(Home::of_project(&member), Some(workspace.path().join(".lathe")));
    }

    #[test]
    fn outside_any_project_there_is_no_project_home() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Home::of_project(folder.path()), None);
    }
}
