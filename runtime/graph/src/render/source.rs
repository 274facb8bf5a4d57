//! Source files, and the lines of them that a finding points at.

use crate::location::Location;
use annotate_snippets::{Annotation, AnnotationKind, Snippet};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// The text of source files, read once.
#[derive(Debug, Default)]
pub struct Sources {
    texts: HashMap<Arc<str>, Option<String>>,
    offline: bool,
}

impl Sources {
    /// Files are read from disk when a finding first points at them. Paths are relative to the working
    /// directory or, as rustc gives them, to a workspace around it.
    pub fn from_disk() -> Self {
        Self::default()
    }

    /// Nothing is read from disk: only what [`Sources::insert`] gives is known.
    pub fn in_memory() -> Self {
        Self { offline: true, ..Self::default() }
    }

    /// Gives the text of a file.
    pub fn insert(&mut self, file: impl Into<Arc<str>>, text: impl Into<String>) {
        self.texts.insert(file.into(), Some(text.into()));
    }

    /// Reads the files of these places.
    pub(super) fn load<'a>(&mut self, places: impl Iterator<Item = &'a Location>) {
        for place in places {
            let offline = self.offline;
            self.texts
                .entry(place.file.clone())
                .or_insert_with(|| if offline { None } else { read_here_or_above(&place.file) });
        }
    }

    fn text(&self, file: &str) -> Option<&str> {
        self.texts.get(file)?.as_deref()
    }
}

fn read_here_or_above(file: &str) -> Option<String> {
    const LEVELS: usize = 4;
    let here = std::env::current_dir().ok()?;
    here.ancestors().take(LEVELS).find_map(|folder| std::fs::read_to_string(folder.join(file)).ok())
}

/// A place to show and what to say there.
pub(super) struct Mark {
    pub(super) location: Location,
    pub(super) label: String,
    /// Is it where the finding is, or only what helps to understand it?
    pub(super) primary: bool,
    /// What stands there, to show where the source cannot be read.
    pub(super) name: String,
}

impl Mark {
    fn annotation(&self, span: Range<usize>) -> Annotation<'static> {
        let kind = if self.primary { AnnotationKind::Primary } else { AnnotationKind::Context };
        kind.span(span).label(self.label.clone())
    }
}

/// One snippet a file; where a file cannot be read, one a place, with the name that stands there.
pub(super) fn snippets<'s>(sources: &'s Sources, marks: &[Mark]) -> Vec<Snippet<'s, Annotation<'s>>> {
    let mut files: Vec<&Arc<str>> = Vec::new();
    for mark in marks {
        if !files.contains(&&mark.location.file) {
            files.push(&mark.location.file);
        }
    }
    let mut snippets = Vec::new();
    for file in files {
        let here = marks.iter().filter(|mark| mark.location.file == *file);
        let text = sources.text(file);
        let mut known: Vec<Annotation<'s>> = Vec::new();
        let mut unknown: Vec<&Mark> = Vec::new();
        for mark in here {
            match text.and_then(|text| span_in(text, &mark.location)) {
                Some(span) => known.push(mark.annotation(span)),
                None => unknown.push(mark),
            }
        }
        if let (Some(text), false) = (text, known.is_empty()) {
            snippets.push(Snippet::source(text).path(file.to_string()).annotations(known));
        }
        for mark in unknown {
            let stand_in = mark.name.clone();
            let span = 0..stand_in.len();
            let path = mark.location.file.to_string();
            let line = mark.location.line.max(1) as usize;
            snippets.push(Snippet::source(stand_in).line_start(line).path(path).annotation(mark.annotation(span)));
        }
    }
    snippets
}

/// The bytes of `text` that a place means: the string or word at its column, or the line.
fn span_in(text: &str, place: &Location) -> Option<Range<usize>> {
    let index = (place.line as usize).checked_sub(1)?;
    let line = text.split_inclusive('\n').nth(index)?;
    let start: usize = text.split_inclusive('\n').take(index).map(str::len).sum();
    let line = line.trim_end();
    let indent = line.len() - line.trim_start().len();
    let column = (place.column as usize).checked_sub(1);
    let column = column.and_then(|column| Some(line.char_indices().nth(column)?.0));
    let from = column.unwrap_or(indent);
    let rest = &line[from..];
    let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
    let length = match rest.strip_prefix('"') {
        Some(inside) => inside.find('"').map_or(rest.len(), |end| end + 2),
        None if column.is_some() && rest.starts_with(is_word) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
        None => rest.len(),
    };
    Some(start + from..start + from + length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str, line: u32, column: u32) -> Option<&str> {
        span_in(text, &Location::new("f", line, column)).map(|span| &text[span])
    }

    #[test]
    fn a_place_means_the_word_the_string_or_the_line() {
        let text = "first\n  g.kernel(\"K 1\", x)\n";
        assert_eq!(at(text, 2, 3), Some("g.kernel"));
        assert_eq!(at(text, 2, 12), Some("\"K 1\""));
        assert_eq!(at(text, 2, 0), Some("g.kernel(\"K 1\", x)"));
        assert_eq!(at(text, 2, 99), Some("g.kernel(\"K 1\", x)"));
        assert_eq!(at(text, 3, 1), None);
        assert_eq!(at(text, 0, 0), None);
    }
}
