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

    /// A comment of the author's words, as many lines as they take.
    pub fn comment(&mut self, text: &str, loc: Option<Loc>) {
        let is_end = |c| matches!(c, '\n' | '\r' | '\x0b' | '\x0c' | '\u{85}' | '\u{2028}' | '\u{2029}');
        for line in text.replace("\r\n", "\n").split(is_end) {
            let line: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
            let line = format!("// {}", line.trim());
            // A backslash, also as a trigraph, would make the next line a part of the comment.
            let open = line.ends_with('\\') || line.ends_with("??/");
            self.line(if open { format!("{line} //") } else { line }.trim_end(), loc);
        }
    }

    /// The lines so far.
    pub fn lines(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().map(|(line, _)| line.as_str())
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
