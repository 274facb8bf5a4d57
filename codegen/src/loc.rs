//! Where in the author's Rust source something was written.

use std::fmt;
use std::panic::Location;

/// A place in the author's source: what every IR node, finding and error carries.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Loc {
    /// Path as rustc was given it, relative to the workspace root.
    pub file: &'static str,
    /// 1-based line.
    pub line: u32,
    /// 1-based column.
    pub column: u32,
}

impl Loc {
    /// The caller of the innermost `#[track_caller]` chain.
    #[track_caller]
    pub fn caller() -> Self {
        let at = Location::caller();
        Loc { file: at.file(), line: at.line(), column: at.column() }
    }
}

impl fmt::Display for Loc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

impl fmt::Debug for Loc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
