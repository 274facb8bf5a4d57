//! Walking a parsed file with the path in hand.

use super::json::{Kind, Value, place};
use super::{FileError, Problem};
use crate::location::Location;
use crate::model::MAX_BYTES;

/// The file: name and text, for places.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) name: &'a str,
    pub(super) text: &'a str,
    /// Byte offset of each line's start.
    pub(super) lines: &'a [usize],
}

impl Source<'_> {
    pub(super) fn location(&self, at: usize) -> Location {
        let line = self.lines.partition_point(|start| *start <= at).max(1);
        let start = self.lines.get(line - 1).copied().unwrap_or(0);
        let column = self.text.get(start..at).map_or(0, |before| before.chars().count());
        Location::new(self.name, line as u32, column as u32 + 1)
    }
}

/// Starts of the lines of a text.
pub(super) fn line_starts(text: &str) -> Vec<usize> {
    std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect()
}

/// A value and how one got there.
#[derive(Clone)]
pub(super) struct Cursor<'a> {
    pub(super) source: Source<'a>,
    pub(super) value: &'a Value,
    pub(super) path: String,
}

impl<'a> Cursor<'a> {
    pub(super) fn location(&self) -> Location {
        self.source.location(self.value.at)
    }

    pub(super) fn error(&self, problem: impl Into<Problem>) -> FileError {
        FileError {
            location: place(self.source.name, self.source.text, self.value.at),
            pointer: self.path.clone(),
            problem: Box::new(problem.into()),
        }
    }

    fn wrong_type(&self, expected: &'static str) -> FileError {
        self.error(Problem::Type { expected, found: self.value.kind.name() })
    }

    pub(super) fn string(&self) -> Result<&'a str, FileError> {
        match &self.value.kind {
            Kind::String(text) => Ok(text),
            _ => Err(self.wrong_type("a string")),
        }
    }

    pub(super) fn boolean(&self) -> Result<bool, FileError> {
        match &self.value.kind {
            Kind::Bool(value) => Ok(*value),
            _ => Err(self.wrong_type("true or false")),
        }
    }

    /// A size or an offset.
    pub(super) fn bytes(&self, what: &'static str) -> Result<u64, FileError> {
        match &self.value.kind {
            Kind::Number(text) => match text.parse::<u64>() {
                Ok(bytes) if bytes <= MAX_BYTES => Ok(bytes),
                _ => Err(self.error(Problem::Bytes { what, found: text.clone() })),
            },
            _ => Err(self.wrong_type("a number")),
        }
    }

    /// Any 64-bit number, also as hexadecimal text.
    pub(super) fn address(&self) -> Result<u64, FileError> {
        let (text, number) = match &self.value.kind {
            Kind::Number(text) => (text, text.parse().ok()),
            Kind::String(text) => {
                let hex = text.strip_prefix("0x").filter(|digits| !digits.starts_with('+'));
                (text, hex.and_then(|digits| u64::from_str_radix(digits, 16).ok()))
            }
            _ => return Err(self.wrong_type("an address")),
        };
        number.ok_or_else(|| self.error(Problem::Address { found: text.clone() }))
    }

    pub(super) fn items(&self) -> Result<Vec<Cursor<'a>>, FileError> {
        let Kind::Array(items) = &self.value.kind else {
            return Err(self.wrong_type("an array"));
        };
        let at = |(i, value)| Cursor { source: self.source, value, path: format!("{}/{i}", self.path) };
        Ok(items.iter().enumerate().map(at).collect())
    }

    /// `[first, end]`.
    pub(super) fn pair(&self) -> Result<[Cursor<'a>; 2], FileError> {
        let items = self.items()?;
        <[Cursor<'a>; 2]>::try_from(items).map_err(|_| self.wrong_type("an array of two"))
    }

    /// The object's fields, all of which must be `known`.
    pub(super) fn object(&self, what: &'static str, known: &[&str]) -> Result<Fields<'a>, FileError> {
        let Kind::Object(fields) = &self.value.kind else {
            return Err(self.wrong_type("an object"));
        };
        for (index, (at, key, value)) in fields.iter().enumerate() {
            let here = |problem| FileError {
                location: place(self.source.name, self.source.text, *at),
                pointer: self.path.clone(),
                problem: Box::new(problem),
            };
            if !known.contains(&key.as_str()) {
                let known = known.iter().map(|k| k.to_string()).collect();
                return Err(here(Problem::UnknownField { what, field: key.clone(), known }));
            }
            if fields[..index].iter().any(|(_, other, _)| other == key) {
                return Err(here(Problem::DuplicateField { field: key.clone() }));
            }
            let _ = value;
        }
        Ok(Fields { of: self.clone(), what, fields })
    }
}

/// The fields of an object.
#[derive(Clone)]
pub(super) struct Fields<'a> {
    pub(super) of: Cursor<'a>,
    what: &'static str,
    fields: &'a [(usize, String, Value)],
}

impl<'a> Fields<'a> {
    /// A field, unless it is absent or null.
    pub(super) fn get(&self, field: &str) -> Option<Cursor<'a>> {
        let (_, _, value) = self.fields.iter().find(|(_, key, _)| key == field)?;
        let path = format!("{}/{}", self.of.path, field.replace('~', "~0").replace('/', "~1"));
        (value.kind != Kind::Null).then_some(Cursor { source: self.of.source, value, path })
    }

    pub(super) fn need(&self, field: &'static str) -> Result<Cursor<'a>, FileError> {
        self.get(field).ok_or_else(|| self.of.error(Problem::Missing { field, what: self.what }))
    }

    /// The items of an array field; none if it is absent.
    pub(super) fn items(&self, field: &str) -> Result<Vec<Cursor<'a>>, FileError> {
        self.get(field).map_or(Ok(Vec::new()), |cursor| cursor.items())
    }

    /// One of a few words.
    pub(super) fn word<T: Copy>(
        &self,
        field: &str,
        what: &'static str,
        words: &[(&str, T)],
    ) -> Result<Option<T>, FileError> {
        let Some(cursor) = self.get(field) else {
            return Ok(None);
        };
        let text = cursor.string()?;
        match words.iter().find(|(word, _)| *word == text) {
            Some((_, value)) => Ok(Some(*value)),
            None => {
                let known = words.iter().map(|(word, _)| word.to_string()).collect();
                Err(cursor.error(Problem::UnknownWord { what, found: text.to_string(), known }))
            }
        }
    }

    /// The place that field `at` gives, or else where `fallback` stands in the file.
    pub(super) fn location(&self, fallback: &Cursor<'a>) -> Result<Location, FileError> {
        match self.get("at") {
            Some(at) => at.string()?.parse().map_err(|error: crate::location::LocationError| at.error(error)),
            None => Ok(fallback.location()),
        }
    }
}
