//! JSON with the place of every value, which `serde_json` does not keep.

use super::{FileError, Problem};
use crate::location::Location;

/// A value and where it begins.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Value {
    pub(super) at: usize,
    pub(super) kind: Kind,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    Null,
    Bool(bool),
    /// As written.
    Number(String),
    String(String),
    Array(Vec<Value>),
    /// Keys, each with its place, in the order of the text.
    Object(Vec<(usize, String, Value)>),
}

impl Kind {
    /// What it is, with its article.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Number(_) => "a number",
            Self::String(_) => "a string",
            Self::Array(_) => "an array",
            Self::Object(_) => "an object",
        }
    }
}

/// Nothing in a graph file nests deeper, and the parser recurses.
const MAX_DEPTH: usize = 64;

/// Line and column, from 1, of byte `at`.
pub(super) fn place(file: &str, text: &str, at: usize) -> Location {
    let before = text.get(..at).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
    Location::new(file, line as u32, column as u32)
}

/// Parses a whole text.
pub(super) fn parse(file: &str, text: &str) -> Result<Value, FileError> {
    let mut parser = Parser { text, at: 0 };
    let value = parser.value(0).and_then(|value| {
        parser.space();
        if parser.at < text.len() {
            return Err(parser.expected("the end of the file"));
        }
        Ok(value)
    });
    value.map_err(|(at, expected)| {
        let found = match text[at..].chars().next() {
            Some(c) => format!("`{}`", c.escape_debug()),
            None => "the end of the file".to_string(),
        };
        FileError {
            location: place(file, text, at),
            pointer: String::new(),
            problem: Box::new(Problem::Syntax { expected, found }),
        }
    })
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

type Wrong = (usize, &'static str);

impl Parser<'_> {
    fn expected(&self, what: &'static str) -> Wrong {
        (self.at, what)
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn eat(&mut self, byte: u8) -> bool {
        self.space();
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn value(&mut self, depth: usize) -> Result<Value, Wrong> {
        self.space();
        let at = self.at;
        if depth > MAX_DEPTH {
            return Err((at, "at most 64 levels of nesting"));
        }
        let kind = match self.peek() {
            Some(b'{') => self.object(depth)?,
            Some(b'[') => self.array(depth)?,
            Some(b'"') => Kind::String(self.string()?),
            Some(b'-' | b'0'..=b'9') => self.number()?,
            _ => self.word()?,
        };
        Ok(Value { at, kind })
    }

    fn object(&mut self, depth: usize) -> Result<Kind, Wrong> {
        self.at += 1;
        let mut fields = Vec::new();
        if self.eat(b'}') {
            return Ok(Kind::Object(fields));
        }
        loop {
            self.space();
            let at = self.at;
            if self.peek() != Some(b'"') {
                return Err(self.expected("a field name in quotes"));
            }
            let key = self.string()?;
            if !self.eat(b':') {
                return Err(self.expected("`:`"));
            }
            fields.push((at, key, self.value(depth + 1)?));
            if self.eat(b'}') {
                return Ok(Kind::Object(fields));
            }
            if !self.eat(b',') {
                return Err(self.expected("`,` or `}`"));
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<Kind, Wrong> {
        self.at += 1;
        let mut items = Vec::new();
        if self.eat(b']') {
            return Ok(Kind::Array(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            if self.eat(b']') {
                return Ok(Kind::Array(items));
            }
            if !self.eat(b',') {
                return Err(self.expected("`,` or `]`"));
            }
        }
    }

    fn number(&mut self) -> Result<Kind, Wrong> {
        let start = self.at;
        while matches!(self.peek(), Some(b'-' | b'+' | b'.' | b'0'..=b'9' | b'e' | b'E')) {
            self.at += 1;
        }
        let text = &self.text[start..self.at];
        match serde_json::from_str::<serde_json::Number>(text) {
            Ok(_) => Ok(Kind::Number(text.to_string())),
            Err(_) => Err((start, "a number")),
        }
    }

    fn word(&mut self) -> Result<Kind, Wrong> {
        let words = [("null", Kind::Null), ("true", Kind::Bool(true)), ("false", Kind::Bool(false))];
        for (word, kind) in words {
            if self.text[self.at..].starts_with(word) {
                self.at += word.len();
                return Ok(kind);
            }
        }
        Err(self.expected("a value"))
    }

    fn string(&mut self) -> Result<String, Wrong> {
        let start = self.at;
        self.at += 1;
        loop {
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => self.at += 2,
                Some(byte) if byte < 0x20 => return Err(self.expected("no control character in a string")),
                Some(_) => self.at += 1,
                None => {
                    self.at = self.text.len();
                    return Err(self.expected("`\"`"));
                }
            }
        }
        self.at += 1;
        // Escapes are left to serde_json: here only the extent matters.
        let quoted = self.text.get(start..self.at).unwrap_or("");
        serde_json::from_str(quoted).map_err(|_| (start, "a string with valid escapes"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Without the places, as `serde_json` sees it.
    fn plain(value: &Value) -> serde_json::Value {
        match &value.kind {
            Kind::Null => serde_json::Value::Null,
            Kind::Bool(b) => (*b).into(),
            Kind::Number(n) => serde_json::from_str(n).unwrap(),
            Kind::String(s) => s.clone().into(),
            Kind::Array(items) => items.iter().map(plain).collect(),
            Kind::Object(fields) => fields.iter().map(|(_, k, v)| (k.clone(), plain(v))).collect(),
        }
    }

    proptest! {
        #[test]
        fn any_text_gives_a_value_or_an_error(text in "[\\[\\]{}\",:\\\\0-9a-e.truefalsn\\n é-]{0,60}") {
            let ours = parse("f", &text).ok().map(|v| plain(&v));
            // serde_json refuses what overflows a double; a graph file refuses it later, by name.
            let theirs = serde_json::from_str::<serde_json::Value>(&text).ok();
            prop_assert_eq!(ours, theirs);
        }
    }

    #[test]
    fn a_syntax_error_names_its_place() {
        let error = parse("g.json", "{\n  \"a\": [1, 2\n}").unwrap_err();
        assert_eq!(error.to_string(), "g.json:3:1: expected `,` or `]`, found `}`");
        let error = parse("g.json", "{\"a\": \"\\").unwrap_err();
        assert_eq!(error.to_string(), "g.json:1:9: expected `\"`, found the end of the file");
        let deep = "[".repeat(100_000);
        assert!(parse("g.json", &deep).unwrap_err().to_string().contains("64 levels"));
    }
}
