//! What can be wrong with a graph file.

use crate::location::Location;
use crate::model::{MAX_BYTES, ModelError};

/// A problem and its place: line and column in the file, and the JSON pointer of the value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{location}: {}{problem}", if .pointer.is_empty() { String::new() } else { format!("{}: ", .pointer) })]
pub struct FileError {
    /// Line and column.
    pub location: Location,
    /// JSON pointer, such as `/graphs/0/record/3/read/0`; empty for the whole file.
    pub pointer: String,
    /// What is wrong.
    pub problem: Box<Problem>,
}

/// What is wrong with a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum Problem {
    #[error("expected {expected}, found {found}")]
    Syntax { expected: &'static str, found: String },
    #[error("expected {expected}, found {found}")]
    Type { expected: &'static str, found: &'static str },
    #[error("the field `{field}` is missing: {what} needs it")]
    Missing { field: &'static str, what: &'static str },
    #[error("{what} has no field `{field}`: it takes {}", list(.known))]
    UnknownField { what: &'static str, field: String, known: Vec<String> },
    #[error("the field `{field}` is given twice")]
    DuplicateField { field: String },
    #[error("there is no {what} `{name}`{}", did_you_mean(.name, .known))]
    UnknownName { what: &'static str, name: String, known: Vec<String> },
    #[error("a second {what} is called `{name}`: give each its own name")]
    DuplicateName { what: &'static str, name: String },
    #[error("`{found}` is no {what}: write {}", list(.known))]
    UnknownWord { what: &'static str, found: String, known: Vec<String> },
    #[error("{found} is no {what}: write a whole number from 0 to {}", MAX_BYTES)]
    Bytes { what: &'static str, found: String },
    #[error("`{found}` is no address: write a number, or hexadecimal in quotes such as \"0x7f00\"")]
    Address { found: String },
    #[error("`{found}` names no bytes: write `buffer` or `buffer[first..end]` with first < end")]
    BadRange { found: String },
    #[error("`{found}` names no node of a graph: write `graph/node`")]
    BadNodePath { found: String },
    #[error("`{field}` says nothing about {what}")]
    Misplaced { field: &'static str, what: String },
    #[error("this is version {found} of the format, and only version 1 is known")]
    Version { found: String },
    #[error("{0}")]
    Place(#[from] crate::location::LocationError),
    #[error("{0}")]
    Model(#[from] ModelError),
}

fn list(words: &[String]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    match &quoted[..] {
        [] => "nothing".to_string(),
        [only] => only.clone(),
        [most @ .., last] => format!("{} or {last}", most.join(", ")),
    }
}

fn did_you_mean(name: &str, known: &[String]) -> String {
    let close = known.iter().map(|k| (distance(name, k), k)).min();
    match close {
        Some((edits, close)) if edits * 2 <= name.chars().count() => format!(": did you mean `{close}`?"),
        _ if known.is_empty() => ": none is declared".to_string(),
        _ if known.len() <= 8 => format!(": there is {}", list(known).replace(" or ", " and ")),
        _ => String::new(),
    }
}

/// Edits between two short words.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let change = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
