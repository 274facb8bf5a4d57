//! The results of a search on disk: a head that says what they are results of, then a line for each configuration.
//!
//! Lines are appended as they are measured, so a search that was stopped goes on where it was. Files of the shards of
//! one search have the same head, and merge.

use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use lathe_codegen::benchmark::Size;
use serde::{Deserialize, Serialize};

/// Changes whenever the meaning of a file does.
const FORMAT: u32 = 1;

/// What results belong to: others cannot be compared with them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// Format of the file.
    pub format: u32,
    /// Version of Lathe.
    pub lathe: String,
    /// The device, as its driver calls it.
    pub device: String,
    /// What was compiled for.
    pub target: String,
    /// Version of the compiler.
    pub nvrtc: (u32, u32),
    /// The edges between calls, `plain` or `pdl`.
    pub edges: String,
    /// Whether calls found their inputs in the L2.
    pub warm_l2: bool,
}

impl Head {
    /// The head of a search with this program.
    pub fn new(device: &str, target: &str, nvrtc: (u32, u32), edges: &str, warm_l2: bool) -> Head {
        Head {
            format: FORMAT,
            lathe: env!("CARGO_PKG_VERSION").to_owned(),
            device: device.to_owned(),
            target: target.to_owned(),
            nvrtc,
            edges: edges.to_owned(),
            warm_l2,
        }
    }

    /// The first thing in which `other` differs, with both values.
    fn difference(&self, other: &Head) -> Option<(&'static str, String, String)> {
        let both = |head: &Head| {
            [
                ("format", head.format.to_string()),
                ("version of Lathe", head.lathe.clone()),
                ("device", head.device.clone()),
                ("target", head.target.clone()),
                ("version of NVRTC", format!("{}.{}", head.nvrtc.0, head.nvrtc.1)),
                ("kind of edges", head.edges.clone()),
                ("warmth of the L2", head.warm_l2.to_string()),
            ]
        };
        let differing = both(self).into_iter().zip(both(other)).find(|(a, b)| a.1 != b.1);
        differing.map(|((what, own), (_, theirs))| (what, own, theirs))
    }
}

/// A configuration of a kernel at a size: its time, or why it has none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// The kernel.
    pub kernel: String,
    /// The shape class: the size that was timed.
    pub size: SizeRecord,
    /// The parameters, as `lathe bench --configuration` takes them.
    pub configuration: String,
    /// Whether the launch rule chooses it.
    pub rule: bool,
    /// Hash of the kernel's CUDA text: another text makes the line void. Empty where there is no text.
    pub source: String,
    /// Median, microseconds a call.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub us: Option<f64>,
    /// Half the distance between the 10th and the 90th percentile, as a part of the median.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub spread: Option<f64>,
    /// Why there is no time.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub failed: Option<String>,
    /// Which GPU of the machine.
    pub ordinal: usize,
    /// When, in seconds since 1970.
    pub at: u64,
}

/// A [`Size`] as a line holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SizeRecord {
    pub batch: u32,
    pub keys: u32,
    pub next_n: u32,
    pub heads: u32,
    pub top_k: u32,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub long_row: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub captured_for: Option<u32>,
}

impl From<Size> for SizeRecord {
    fn from(size: Size) -> Self {
        let Size { batch, keys, next_n, heads, top_k, long_row, captured_for } = size;
        SizeRecord { batch, keys, next_n, heads, top_k, long_row, captured_for }
    }
}

impl From<SizeRecord> for Size {
    fn from(size: SizeRecord) -> Self {
        let SizeRecord { batch, keys, next_n, heads, top_k, long_row, captured_for } = size;
        Size { batch, keys, next_n, heads, top_k, long_row, captured_for }
    }
}

impl Record {
    fn key(&self) -> (String, SizeRecord, String) {
        (self.kernel.clone(), self.size, self.configuration.clone())
    }
}

/// Why results cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ResultsError {
    #[error("{}: {error}", path.display())]
    Io { path: PathBuf, error: std::io::Error },
    #[error("{} holds no results of `lathe tune`: its first line does not parse: {error}", path.display())]
    Head { path: PathBuf, error: serde_json::Error },
    #[error("{} line {line} does not parse: {error}; `--fresh` starts over", path.display())]
    Line { path: PathBuf, line: usize, error: serde_json::Error },
    #[error(
        "{} holds results of another {what}: {theirs}, and this is {own}; \
         name another file with `--results`, or start over with `--fresh`",
        path.display()
    )]
    Foreign { path: PathBuf, what: &'static str, own: String, theirs: String },
    #[error("`--merge` was given no file")]
    NothingToMerge,
}

/// Results, in memory and on disk.
#[derive(Debug)]
pub struct Results {
    path: PathBuf,
    pub head: Head,
    records: Vec<Record>,
    known: HashMap<(String, SizeRecord, String), usize>,
}

impl Results {
    /// Opens the file for a search with this head, or starts it; `fresh` throws away what is there.
    ///
    /// # Errors
    /// [`ResultsError::Foreign`] where the file belongs to another device, version or kind of measurement.
    pub fn open(path: &Path, head: Head, fresh: bool) -> Result<Results, ResultsError> {
        if !fresh && path.exists() {
            let found = Results::read(path)?;
            found.expect(&head)?;
            // Also drops a line that a stopped search left half-written.
            found.write()?;
            return Ok(found);
        }
        let results = Results { path: path.into(), head, records: Vec::new(), known: HashMap::new() };
        results.write()?;
        Ok(results)
    }

    /// Reads a file.
    pub fn read(path: &Path) -> Result<Results, ResultsError> {
        let text = fs::read_to_string(path).map_err(|error| ResultsError::Io { path: path.into(), error })?;
        let mut lines = text.lines().enumerate();
        let first = lines.next().map_or("", |(_, line)| line);
        let head = serde_json::from_str(first).map_err(|error| ResultsError::Head { path: path.into(), error })?;
        let mut results = Results { path: path.into(), head, records: Vec::new(), known: HashMap::new() };
        for (index, line) in lines {
            match serde_json::from_str::<Record>(line) {
                Ok(record) => results.insert(record),
                // A search that was stopped while it wrote.
                Err(_) if index + 1 == text.lines().count() && !text.ends_with('\n') => {}
                Err(error) => return Err(ResultsError::Line { path: path.into(), line: index + 1, error }),
            }
        }
        Ok(results)
    }

    /// The union of files with the same head; the later measurement of a configuration counts.
    pub fn merge(paths: &[PathBuf], into: &Path) -> Result<Results, ResultsError> {
        let (first, others) = paths.split_first().ok_or(ResultsError::NothingToMerge)?;
        let mut merged = Results::read(first)?;
        for path in others {
            let other = Results::read(path)?;
            other.expect(&merged.head)?;
            for record in other.records {
                let newer = merged.known.get(&record.key()).is_none_or(|&known| merged.records[known].at <= record.at);
                if newer {
                    merged.insert(record);
                }
            }
        }
        merged.path = into.into();
        merged.write()?;
        Ok(merged)
    }

    fn expect(&self, head: &Head) -> Result<(), ResultsError> {
        match head.difference(&self.head) {
            None => Ok(()),
            Some((what, own, theirs)) => Err(ResultsError::Foreign { path: self.path.clone(), what, own, theirs }),
        }
    }

    /// Every record.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// Whether this configuration was tried with this text.
    pub fn has(&self, kernel: &str, size: &Size, configuration: &str, source: &str) -> bool {
        let key = (kernel.to_owned(), SizeRecord::from(*size), configuration.to_owned());
        self.known.get(&key).is_some_and(|&known| self.records[known].source == source)
    }

    /// Adds a record here and on disk.
    pub fn add(&mut self, record: Record) -> Result<(), ResultsError> {
        let line = to_line(&record);
        let file = OpenOptions::new().append(true).open(&self.path);
        let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
        written.map_err(|error| ResultsError::Io { path: self.path.clone(), error })?;
        self.insert(record);
        Ok(())
    }

    fn insert(&mut self, record: Record) {
        match self.known.get(&record.key()) {
            Some(&place) => self.records[place] = record,
            None => {
                self.known.insert(record.key(), self.records.len());
                self.records.push(record);
            }
        }
    }

    fn write(&self) -> Result<(), ResultsError> {
        let attempt = || {
            let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            fs::create_dir_all(folder)?;
            let mut text = to_line(&self.head);
            text.extend(self.records.iter().map(to_line));
            let mut temporary = tempfile::NamedTempFile::new_in(folder)?;
            temporary.write_all(text.as_bytes())?;
            temporary.persist(&self.path)?;
            Ok::<_, std::io::Error>(())
        };
        attempt().map_err(|error| ResultsError::Io { path: self.path.clone(), error })
    }
}

fn to_line(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("plain data serialises") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> Head {
        Head::new("NVIDIA H200", "sm_90a", (13, 0), "pdl", false)
    }

    fn record(configuration: &str, us: f64, at: u64) -> Record {
        Record {
            kernel: "k".into(),
            size: Size::new(1, 1_024).into(),
            configuration: configuration.into(),
            rule: false,
            source: "abc".into(),
            us: Some(us),
            spread: Some(0.01),
            failed: None,
            ordinal: 0,
            at,
        }
    }

    #[test]
    fn a_search_goes_on_where_it_was_stopped_and_drops_half_a_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/results.jsonl");
        let mut results = Results::open(&path, head(), false).unwrap();
        results.add(record("a=1", 2.0, 1)).unwrap();
        results.add(record("a=2", 3.0, 2)).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, &text[..text.len() - 20]).unwrap();

        let again = Results::open(&path, head(), false).unwrap();
        assert_eq!(again.records(), [record("a=1", 2.0, 1)]);
        assert!(again.has("k", &Size::new(1, 1_024), "a=1", "abc"));
        assert!(!again.has("k", &Size::new(1, 1_024), "a=2", "abc"));
        assert!(!again.has("k", &Size::new(1, 1_024), "a=1", "changed"), "another text is another kernel");
        assert_eq!(Results::read(&path).unwrap().records().len(), 1, "the half line is gone from the file");
    }

    #[test]
    fn results_of_another_device_or_version_are_refused_by_name_and_fresh_replaces_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results.jsonl");
        Results::open(&path, head(), false).unwrap().add(record("a=1", 2.0, 1)).unwrap();
        let refused = |head| Results::open(&path, head, false).unwrap_err().to_string();
        let other = Head { device: "NVIDIA H100".into(), ..head() };
        assert!(
            refused(other).contains("results of another device: NVIDIA H200, and this is NVIDIA H100; name another")
        );
        let newer = Head { lathe: "9.9".into(), ..head() };
        assert!(refused(newer.clone()).contains("another version of Lathe"));
        assert!(refused(Head { edges: "plain".into(), ..head() }).contains("another kind of edges"));
        assert!(Results::open(&path, newer, true).unwrap().records().is_empty());
    }

    #[test]
    fn a_line_that_does_not_parse_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results.jsonl");
        fs::write(&path, "nonsense\n").unwrap();
        assert!(Results::read(&path).unwrap_err().to_string().contains("holds no results of `lathe tune`"));
        let head = serde_json::to_string(&head()).unwrap();
        fs::write(&path, format!("{head}\n{{\"kernel\": 3}}\n")).unwrap();
        assert!(Results::read(&path).unwrap_err().to_string().contains("line 2 does not parse: invalid type"));
    }

    #[test]
    fn shards_merge_and_the_later_measurement_counts() {
        let folder = tempfile::tempdir().unwrap();
        let paths: Vec<PathBuf> = ["1", "2"].iter().map(|name| folder.path().join(name)).collect();
        let mut one = Results::open(&paths[0], head(), false).unwrap();
        one.add(record("a=1", 2.0, 1)).unwrap();
        one.add(record("a=2", 5.0, 9)).unwrap();
        let mut two = Results::open(&paths[1], head(), false).unwrap();
        two.add(record("a=2", 4.0, 3)).unwrap();
        two.add(record("a=3", 1.0, 4)).unwrap();

        let into = folder.path().join("all");
        Results::merge(&paths, &into).unwrap();
        let merged = Results::read(&into).unwrap();
        let times: Vec<_> = merged.records().iter().map(|r| (r.configuration.as_str(), r.us.unwrap())).collect();
        assert_eq!(times, [("a=1", 2.0), ("a=2", 5.0), ("a=3", 1.0)]);

        let foreign = folder.path().join("foreign");
        Results::open(&foreign, Head { target: "sm_120a".into(), ..head() }, false).unwrap();
        let error = Results::merge(&[paths[0].clone(), foreign], &into).unwrap_err();
        assert!(error.to_string().contains("another target: sm_120a, and this is sm_90a"), "{error}");
        assert!(matches!(Results::merge(&[], &into), Err(ResultsError::NothingToMerge)));
    }
}
