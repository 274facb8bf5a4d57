//! The author's source files, for excerpts: from disk if they are near, else as they were compiled in.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Mutex;

use lathe_codegen::entry::Entry;

/// Source files by the path that rustc was given.
pub struct Sources<'a> {
    entries: &'a [Entry],
    read: Mutex<HashMap<String, Option<String>>>,
}

impl<'a> Sources<'a> {
    pub fn new(entries: &'a [Entry]) -> Self {
        Sources { entries, read: Mutex::default() }
    }

    /// The text of `file`, if it can be had.
    pub fn text(&self, file: &str) -> Option<String> {
        let mut read = self.read.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        read.entry(file.to_owned()).or_insert_with(|| self.find(file)).clone()
    }

    fn find(&self, file: &str) -> Option<String> {
        // Paths are relative to the workspace, which is here or above.
        let here = std::env::current_dir().unwrap_or_default();
        let on_disk = || here.ancestors().find_map(|folder| std::fs::read_to_string(folder.join(Path::new(file))).ok());
        // What was compiled in is what the program runs: a file changed since would be quoted wrongly.
        let compiled_in = self.entries.iter().find(|entry| entry.file == file).map(|entry| entry.source.to_owned());
        compiled_in.or_else(on_disk)
    }
}
