//! Where in a source file a node or a buffer was declared.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// A place in a source file. Lines and columns count from 1; 0 means "not known".
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Location {
    /// Path of the file, as its author would write it.
    pub file: Arc<str>,
    /// Line, from 1; 0 if unknown.
    pub line: u32,
    /// Column in characters, from 1; 0 if unknown.
    pub column: u32,
}

impl Location {
    /// The place `file:line:column`.
    pub fn new(file: impl Into<Arc<str>>, line: u32, column: u32) -> Self {
        Self { file: file.into(), line, column }
    }

    /// The caller of the function that calls this (each in between must be `#[track_caller]`).
    #[track_caller]
    pub fn caller() -> Self {
        let at = std::panic::Location::caller();
        Self::new(at.file(), at.line(), at.column())
    }

    /// No place at all, for what nobody wrote down.
    pub fn unknown() -> Self {
        Self::new("", 0, 0)
    }

    /// False for [`Location::unknown`].
    pub fn is_known(&self) -> bool {
        !self.file.is_empty()
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.is_known(), self.line, self.column) {
            (false, ..) => f.write_str("(unknown place)"),
            (_, 0, _) => f.write_str(&self.file),
            (_, line, 0) => write!(f, "{}:{line}", self.file),
            (_, line, column) => write!(f, "{}:{line}:{column}", self.file),
        }
    }
}

/// The text is not `file`, `file:line` or `file:line:column`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a place in a file: write `file`, `file:line` or `file:line:column`")]
pub struct LocationError(String);

impl FromStr for Location {
    type Err = LocationError;

    fn from_str(text: &str) -> Result<Self, LocationError> {
        let (head, last) = split_number(text);
        let (file, line, column) = match last {
            None => (text, 0, 0),
            Some(last) => match split_number(head) {
                (file, Some(line)) => (file, line, last),
                (file, None) => (file, last, 0),
            },
        };
        if file.is_empty() {
            return Err(LocationError(text.to_string()));
        }
        Ok(Self::new(file, line, column))
    }
}

/// Splits `a:12` into `a` and 12.
fn split_number(text: &str) -> (&str, Option<u32>) {
    match text.rsplit_once(':') {
        Some((head, tail)) => match tail.parse() {
            Ok(number) => (head, Some(number)),
            Err(_) => (text, None),
        },
        None => (text, None),
    }
}

impl From<Location> for String {
    fn from(location: Location) -> String {
        if location.is_known() { location.to_string() } else { String::new() }
    }
}

impl TryFrom<String> for Location {
    type Error = LocationError;

    fn try_from(text: String) -> Result<Self, LocationError> {
        if text.is_empty() { Ok(Self::unknown()) } else { text.parse() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_reads_back_as_it_was_written() {
        for text in ["indexer.py", "indexer.py:12", "src/a b.rs:12:5", "C:/x.py:3"] {
            assert_eq!(text.parse::<Location>().unwrap().to_string(), text);
        }
        assert!(":12".parse::<Location>().is_err());
    }

    #[test]
    fn the_caller_is_this_line() {
        let here = Location::caller();
        assert!(here.file.ends_with("location.rs"), "{here}");
        assert_eq!(here.line + 2, Location::caller().line);
    }
}
