//! MiniMalloc's inputs: buffers with half-open lifetimes on one stream, as CSV.
//!
//! ```text
//! id,lower,upper,size
//! a,0,3,4096
//! ```
//! The columns may come in any order; lines that are empty or start with `#` are skipped.

use crate::model::MAX_BYTES;
use crate::plan::{MaxLive, Offsets, Problem, max_live_of_intervals, solve};

/// A static allocation problem: which bytes each buffer gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Instance {
    /// Name of each buffer, unique.
    pub names: Vec<String>,
    /// Half-open lifetime `[lower, upper)` of each.
    pub lifetimes: Vec<(u64, u64)>,
    /// Bytes of each.
    pub sizes: Vec<u64>,
}

/// Why a CSV is no static allocation problem. `line` counts from 1.
#[derive(Debug, thiserror::Error)]
pub enum CsvError {
    /// The text has no header or no rows.
    #[error("the CSV holds no buffers: give a header `id,lower,upper,size` and one line a buffer")]
    Empty,
    /// A column is missing from the header, or not known, or named twice.
    #[error("line {line}: the header is `{header}`: it must name the columns id, lower, upper and size, each once")]
    Header {
        /// Where.
        line: u64,
        /// What stands there.
        header: String,
    },
    /// The file breaks the CSV format itself.
    #[error("line {line}: {reason}")]
    Malformed {
        /// Where.
        line: u64,
        /// What the CSV reader says.
        reason: String,
    },
    /// A field is not a whole number.
    #[error("line {line}: {column} is `{text}`: it must be a whole number from 0 to 2^64 - 1")]
    Number {
        /// Where.
        line: u64,
        /// Which field.
        column: &'static str,
        /// What stands there.
        text: String,
    },
    /// A buffer has no size, or an impossible one.
    #[error("line {line}: buffer `{id}` is {size} bytes: a size is 1 to 2^40")]
    Size {
        /// Where.
        line: u64,
        /// The buffer.
        id: String,
        /// Its size.
        size: u64,
    },
    /// A lifetime is empty or ends before it begins.
    #[error(
        "line {line}: buffer `{id}` lives from {lower} to {upper}: lifetimes are half-open, so upper must be greater than lower"
    )]
    Lifetime {
        /// Where.
        line: u64,
        /// The buffer.
        id: String,
        /// First moment.
        lower: u64,
        /// First moment after.
        upper: u64,
    },
    /// Two lines name the same buffer.
    #[error("line {line}: buffer `{id}` was already given on line {first}")]
    Duplicate {
        /// Where.
        line: u64,
        /// The buffer.
        id: String,
        /// Where it was first.
        first: u64,
    },
}

const COLUMNS: [&str; 4] = ["id", "lower", "upper", "size"];

impl Instance {
    /// Reads a CSV.
    ///
    /// # Errors
    /// [`CsvError`], with the line.
    pub fn parse(text: &str) -> Result<Self, CsvError> {
        let mut reader = csv::ReaderBuilder::new()
            .has_headers(false)
            .comment(Some(b'#'))
            .trim(csv::Trim::All)
            .from_reader(text.as_bytes());
        let mut rows = reader.records().map(|row| {
            row.map_err(|error| CsvError::Malformed {
                line: error.position().map_or(0, csv::Position::line),
                reason: error.to_string(),
            })
        });
        let places = columns(&rows.next().ok_or(CsvError::Empty)??)?;
        let mut instance = Self::default();
        let mut lines = std::collections::HashMap::new();
        for row in rows {
            let row = row?;
            let line = line_of(&row);
            let id = row[places[0]].to_string();
            let [lower, upper, size] = [1, 2, 3].map(|column| number(&row, line, COLUMNS[column], places[column]));
            let (lower, upper, size) = (lower?, upper?, size?);
            if size == 0 || size > MAX_BYTES {
                return Err(CsvError::Size { line, id, size });
            }
            if upper <= lower {
                return Err(CsvError::Lifetime { line, id, lower, upper });
            }
            if let Some(first) = lines.insert(id.clone(), line) {
                return Err(CsvError::Duplicate { line, id, first });
            }
            instance.names.push(id);
            instance.lifetimes.push((lower, upper));
            instance.sizes.push(size);
        }
        if instance.names.is_empty() { Err(CsvError::Empty) } else { Ok(instance) }
    }

    /// The bytes live at once at the worst moment: no placement needs fewer.
    pub fn max_live(&self) -> MaxLive {
        max_live_of_intervals(&self.sizes, &self.lifetimes)
    }

    /// Places the buffers; see [`solve`] for `steps`.
    pub fn place(&self, steps: u64) -> Offsets {
        solve(&Problem::of_intervals(&self.sizes, &self.lifetimes), self.max_live().bytes, steps)
    }
}

fn line_of(row: &csv::StringRecord) -> u64 {
    row.position().map_or(0, csv::Position::line)
}

/// Where each of [`COLUMNS`] stands in the header.
fn columns(header: &csv::StringRecord) -> Result<[usize; 4], CsvError> {
    let found = COLUMNS.map(|name| header.iter().position(|field| field == name));
    match found {
        [Some(id), Some(lower), Some(upper), Some(size)] if header.len() == 4 => Ok([id, lower, upper, size]),
        _ => {
            let header_text = header.iter().collect::<Vec<_>>().join(",");
            Err(CsvError::Header { line: line_of(header), header: header_text })
        }
    }
}

fn number(row: &csv::StringRecord, line: u64, column: &'static str, at: usize) -> Result<u64, CsvError> {
    let text = &row[at];
    text.parse().map_err(|_| CsvError::Number { line, column, text: text.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn columns_come_in_any_order_and_comments_are_skipped() {
        let instance = Instance::parse("size,id,upper,lower\n# three\n4, a ,3,0\n\n8,b,9,3\n").unwrap();
        assert_eq!(instance.names, ["a", "b"]);
        assert_eq!(instance.lifetimes, [(0, 3), (3, 9)]);
        assert_eq!(instance.sizes, [4, 8]);
    }

    #[test]
    fn errors_name_the_line_and_the_value() {
        let refused = |text: &str| Instance::parse(text).unwrap_err().to_string();
        let head = "id,lower,upper,size\n";
        for (row, expected) in [
            ("a,0,3,x", "line 2: size is `x`: it must be a whole number from 0 to 2^64 - 1"),
            ("a,-1,3,4", "line 2: lower is `-1`"),
            ("a,0,3,0", "line 2: buffer `a` is 0 bytes: a size is 1 to 2^40"),
            ("a,0,3,1099511627777", "line 2: buffer `a` is 1099511627777 bytes"),
            ("a,3,3,4", "line 2: buffer `a` lives from 3 to 3"),
            ("a,0,3,4\na,4,5,6", "line 3: buffer `a` was already given on line 2"),
            ("a,0,3", "line 2: "),
        ] {
            let message = refused(&format!("{head}{row}\n"));
            assert!(message.contains(expected), "{message}");
        }
        assert!(refused("id,lower,upper\n").contains("line 1: the header is `id,lower,upper`"));
        assert!(refused("").contains("holds no buffers"));
        assert!(refused(head).contains("holds no buffers"));
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "(id,lower,upper,size\n)?[-0-9a-z,\"\n\r# .]{0,80}") {
            let _ = Instance::parse(&text);
        }
    }
}
