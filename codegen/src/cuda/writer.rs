//! Lines of text with the Rust source location each came from.

use crate::loc::Loc;

#[derive(Debug, Default)]
pub struct Writer {
    lines: Vec<(String, Option<Loc>)>,
    depth: usize,
}

impl Writer {
    pub fn line(&mut self, text: &str, loc: Option<Loc>) {
        for text in text.lines() {
            let pad = if text.is_empty() { 0 } else { 2 * self.depth };
            self.lines.push((format!("{:pad$}{text}", ""), loc));
        }
    }

    /// An empty line, unless the last one is empty or opens a block.
    pub fn gap(&mut self) {
        if self.lines.last().is_some_and(|(last, _)| !last.is_empty() && !last.ends_with('{')) {
            self.lines.push((String::new(), None));
        }
    }

    pub fn indent(&mut self) {
        self.depth += 1;
    }

    pub fn outdent(&mut self) {
        self.depth -= 1;
    }

    pub fn append(&mut self, other: Writer) {
        self.lines.extend(other.lines);
    }

    pub fn finish(self) -> (String, Vec<Option<Loc>>) {
        let (mut text, mut locs) = (String::new(), Vec::new());
        for (line, loc) in self.lines {
            text.push_str(&line);
            text.push('\n');
            locs.push(loc);
        }
        (text, locs)
    }
}
