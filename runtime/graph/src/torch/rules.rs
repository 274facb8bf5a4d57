//! The rule table: what library kernels do with their pointers.
//!
//! A default table is compiled in; users put their own in front of it with a TOML file of the same form.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

use regex::Regex;
use serde::Deserialize;

use super::dump::Function;
use super::names;

/// Why a rule table was refused.
#[derive(Debug, thiserror::Error)]
pub enum RuleError {
    /// The file could not be read.
    #[error("cannot read the rule table {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// Not TOML, or a field that rules do not have.
    #[error("{}: {message}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The parser's message, with line and column.
        message: String,
    },
    /// A rule that says too little, too much, or something unknown.
    #[error("{}: rule \"{rule}\": {message}", path.display())]
    Rule {
        /// The file.
        path: PathBuf,
        /// The rule's name.
        rule: String,
        /// What is wrong, and what is accepted.
        message: String,
    },
}

/// What a kernel does through one pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Hash)]
#[serde(rename_all = "snake_case")]
pub enum Use {
    /// Reads.
    Read,
    /// Writes every byte before it reads any.
    Write,
    /// Writes some bytes.
    WritePart,
    /// Reads and writes.
    ReadWrite,
    /// Carries the pointer and does not follow it.
    None,
}

impl Use {
    /// Whether bytes may change.
    pub fn writes(self) -> bool {
        matches!(self, Use::Write | Use::WritePart | Use::ReadWrite)
    }

    /// Whether bytes may be read.
    pub fn reads(self) -> bool {
        matches!(self, Use::Read | Use::ReadWrite)
    }

    /// The use of a kernel that does both.
    pub fn and(self, other: Use) -> Use {
        match (self, other) {
            (Use::None, use_) | (use_, Use::None) => use_,
            (a, b) if a == b => a,
            (a, b) if a.reads() || b.reads() => Use::ReadWrite,
            _ => Use::WritePart,
        }
    }
}

/// A word of the parameter buffer that holds an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Word {
    /// Byte offset in the parameter buffer.
    pub offset: usize,
    /// The address.
    pub addr: u64,
}

/// A rule table, most specific first.
#[derive(Debug)]
pub struct Rules {
    rules: Vec<Rule>,
}

#[derive(Debug)]
struct Rule {
    name: String,
    kernel: Regex,
    param_bytes: Option<usize>,
    min_grid_z: u32,
    roles: Roles,
    run: bool,
    elements_at: Option<usize>,
    whole: bool,
    /// Given by the user: worth a word when it fits nothing.
    own: bool,
    used: AtomicBool,
}

#[derive(Debug)]
enum Roles {
    /// By byte offset; a negative one counts from the end of the parameter buffer.
    At(Vec<(isize, Use)>),
    /// By parameter; a negative index counts from the end.
    Param(Vec<(isize, Inside)>),
    Order(Sequence),
}

/// Which words of a parameter are pointers.
#[derive(Debug)]
enum Inside {
    /// All that lie in known memory.
    Known(Use),
    /// The first words, one role each.
    Words(Sequence),
}

/// Roles of pointers in order; the last repeats when `repeats`.
#[derive(Debug)]
struct Sequence {
    roles: Vec<Use>,
    repeats: bool,
}

impl Sequence {
    fn get(&self, index: usize) -> Option<Use> {
        self.roles.get(index).copied().or_else(|| if self.repeats { self.roles.last().copied() } else { None })
    }
}

/// A rule that fits a kernel.
#[derive(Debug, Clone, Copy)]
pub struct Fit<'a>(&'a Rule);

impl Fit<'_> {
    /// The rule's name, for reports.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Whether the rule is for launches with this grid.
    pub fn takes(&self, grid: [u32; 3]) -> bool {
        grid[2] >= self.0.min_grid_z
    }

    /// Whether the rule says at which bytes pointers lie, so that a word there is one whatever it holds.
    pub fn is_exact(&self) -> bool {
        !matches!(self.0.roles, Roles::Order(_))
    }

    /// Whether pointers may lie anywhere in what they reach (kernels that walk backwards).
    pub fn reaches_whole(&self) -> bool {
        self.0.whole
    }

    /// Roles of words: `(word, use)`. `words` are all 8-byte words of the parameter buffer, and `is_pointer` tells those that look like
    /// pointers, for rules that do not say where they lie.
    pub fn uses(&self, function: &Function, words: &[Word], is_pointer: impl Fn(Word) -> bool) -> Vec<(Word, Use)> {
        match &self.0.roles {
            Roles::At(at) => {
                let end = function.params.iter().map(|&(offset, bytes)| offset + bytes).max().unwrap_or(0);
                let word_at = |offset: isize| {
                    resolve(offset, end).and_then(|offset| words.iter().find(|word| word.offset == offset))
                };
                let found = at.iter().filter_map(|&(offset, use_)| Some((*word_at(offset)?, use_)));
                found.filter(|(word, _)| word.addr != 0).collect()
            }
            Roles::Param(params) => {
                let mut uses = Vec::new();
                for (index, inside) in params {
                    let param = resolve(*index, function.params.len()).and_then(|index| function.params.get(index));
                    let Some(&(offset, bytes)) = param else { continue };
                    let here = words.iter().filter(|word| (offset..offset + bytes).contains(&word.offset));
                    match inside {
                        Inside::Known(use_) => {
                            uses.extend(here.filter(|&&word| is_pointer(word)).map(|&word| (word, *use_)))
                        }
                        Inside::Words(sequence) => {
                            let ranked = here.enumerate().filter_map(|(rank, &word)| Some((word, sequence.get(rank)?)));
                            uses.extend(ranked.filter(|(word, _)| word.addr != 0));
                        }
                    }
                }
                uses
            }
            Roles::Order(sequence) => {
                let mut pointers: Vec<Word> = words.iter().copied().filter(|&word| is_pointer(word)).collect();
                if self.0.run {
                    pointers = last_run(&pointers);
                }
                pointers.iter().enumerate().filter_map(|(rank, &word)| Some((word, sequence.get(rank)?))).collect()
            }
        }
    }

    /// Bytes each pointer can reach, when the rule knows where the element count lies and the name says the widest element.
    pub fn extent(&self, full_name: &str, params: &[u8]) -> Option<u64> {
        let at = self.0.elements_at?;
        let count = i32::from_le_bytes(params.get(at..at + 4)?.try_into().ok()?);
        let width = widest_scalar(full_name)?;
        u64::try_from(count).ok().filter(|&count| count > 0).map(|count| count * width)
    }
}

fn resolve(index: isize, count: usize) -> Option<usize> {
    if index >= 0 { Some(index as usize) } else { count.checked_sub(index.unsigned_abs()) }
}

/// The pointers that lie side by side at the end: `[a, b, gap, c, d]` gives `[c, d]`; one alone stays when there is no pair.
fn last_run(pointers: &[Word]) -> Vec<Word> {
    let runs: Vec<&[Word]> = pointers.chunk_by(|a, b| a.offset + 8 == b.offset).collect();
    runs.iter().rev().find(|run| run.len() > 1).or(runs.last()).map(|run| run.to_vec()).unwrap_or_default()
}

/// Bytes of the widest scalar type that a demangled name mentions.
fn widest_scalar(name: &str) -> Option<u64> {
    static SCALAR: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"\b(c10::complex<double>|c10::complex<float>|double|float|c10::BFloat16|c10::Half|long|int64_t|short|signed char|unsigned char|bool|OpaqueType<(\d+)>)")
            .expect("a constant pattern")
    });
    // The element count is itself an int, so a plain `int` says nothing about the elements.
    SCALAR
        .captures_iter(name)
        .map(|found| match (&found[1], found.get(2)) {
            (_, Some(bytes)) => bytes.as_str().parse().unwrap_or(16),
            ("c10::complex<double>", _) => 16,
            ("c10::complex<float>" | "double" | "long" | "int64_t", _) => 8,
            ("float", _) => 4,
            ("c10::BFloat16" | "c10::Half" | "short", _) => 2,
            _ => 1,
        })
        .max()
}

impl Rules {
    /// The text of the table compiled into Lathe.
    pub const BUILTIN: &str = include_str!("rules.toml");

    /// The table compiled into Lathe.
    pub fn builtin() -> Rules {
        Rules::parse(Rules::BUILTIN, Path::new("rules.toml")).expect("the built-in table is tested")
    }

    /// The built-in table with the user's file in front of it.
    ///
    /// # Errors
    /// [`RuleError`], naming the rule, the value and what is accepted.
    pub fn with_file(path: &Path) -> Result<Rules, RuleError> {
        let text = std::fs::read_to_string(path).map_err(|source| RuleError::Io { path: path.to_owned(), source })?;
        let mut rules = Rules::parse(&text, path)?;
        rules.rules.iter_mut().for_each(|rule| rule.own = true);
        rules.rules.extend(Rules::builtin().rules);
        Ok(rules)
    }

    /// Parses a table; `path` names it in errors.
    ///
    /// # Errors
    /// [`RuleError`], naming the rule, the value and what is accepted.
    pub fn parse(text: &str, path: &Path) -> Result<Rules, RuleError> {
        let file: RuleFile = toml::from_str(text)
            .map_err(|error| RuleError::Syntax { path: path.to_owned(), message: error.to_string() })?;
        let rules = file.rule.into_iter().map(|rule| rule.lower(path)).collect::<Result<_, _>>()?;
        Ok(Rules { rules })
    }

    /// The rules that fit launches of `function`, in the order in which they are tried.
    pub fn matching(&self, function: &Function, full_name: &str) -> Vec<Fit<'_>> {
        let bytes = function.params.iter().map(|&(offset, bytes)| offset + bytes).max().unwrap_or(0);
        let fits = |rule: &&Rule| rule.param_bytes.is_none_or(|want| want == bytes) && rule.kernel.is_match(full_name);
        self.rules.iter().filter(fits).inspect(|rule| rule.used.store(true, Ordering::Relaxed)).map(Fit).collect()
    }

    /// The user's rules that fitted no kernel so far.
    pub fn unused(&self) -> impl Iterator<Item = &str> {
        self.rules.iter().filter(|rule| rule.own && !rule.used.load(Ordering::Relaxed)).map(|rule| rule.name.as_str())
    }
}

/// What a C++ signature promises: a parameter `T const*` (or a struct over `T const`) is read and not written.
/// One entry a parameter; `None` where the type promises nothing.
pub fn signature_uses(full_name: &str, params: usize) -> Vec<Option<Use>> {
    let types = names::parameter_types(full_name).filter(|types| types.len() == params).unwrap_or_default();
    let promise = |ty: &&str| {
        let pointer_to_const = ty.ends_with("const*") && ty.matches('*').count() == 1;
        let view_of_const = ty.contains("TensorInfo<") && ty.contains(" const,") && !ty.contains('*');
        (pointer_to_const || view_of_const).then_some(Use::Read)
    };
    if types.is_empty() { vec![None; params] } else { types.iter().map(promise).collect() }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleFile {
    #[serde(default)]
    rule: Vec<RuleText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleText {
    name: String,
    kernel: String,
    param_bytes: Option<usize>,
    min_grid_z: Option<u32>,
    at: Option<BTreeMap<String, String>>,
    param: Option<BTreeMap<String, OneOrMore>>,
    order: Option<Vec<String>>,
    #[serde(default)]
    run: bool,
    elements_at: Option<usize>,
    #[serde(default)]
    whole: bool,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

impl RuleText {
    fn lower(self, path: &Path) -> Result<Rule, RuleError> {
        let fail = |message: String| RuleError::Rule { path: path.to_owned(), rule: self.name.clone(), message };
        let role = |text: &str| match text {
            "read" => Ok(Use::Read),
            "write" => Ok(Use::Write),
            "write_part" => Ok(Use::WritePart),
            "read_write" => Ok(Use::ReadWrite),
            "none" => Ok(Use::None),
            other => Err(fail(format!("role {other:?} is unknown; read, write, write_part, read_write and none are"))),
        };
        let sequence = |texts: &[String]| {
            let repeats = texts.last().is_some_and(|last| last.ends_with("..."));
            let bare = |(index, text): (usize, &String)| {
                role(if index + 1 == texts.len() { text.trim_end_matches("...") } else { text })
            };
            let roles = texts.iter().enumerate().map(bare).collect::<Result<Vec<_>, _>>()?;
            if roles.is_empty() {
                Err(fail("a list of roles is empty; give at least one".into()))
            } else {
                Ok(Sequence { roles, repeats })
            }
        };
        let kernel =
            Regex::new(&self.kernel).map_err(|error| fail(format!("`kernel` is not a regular expression: {error}")))?;
        let roles = match (&self.at, &self.param, &self.order) {
            (Some(at), None, None) => {
                let entry = |(offset, text): (&String, &String)| {
                    let value = offset.parse().ok().filter(|offset| offset % 8 == 0);
                    let value = value.ok_or_else(|| {
                        fail(format!("offset {offset:?} in `at` is not a multiple of 8 such as \"280\""))
                    })?;
                    Ok((value, role(text)?))
                };
                Roles::At(at.iter().map(entry).collect::<Result<_, RuleError>>()?)
            }
            (None, Some(param), None) => {
                let entry = |(index, texts): (&String, &OneOrMore)| {
                    let value = index.parse().map_err(|_| {
                        fail(format!("index {index:?} in `param` is not a number such as \"0\" or \"-1\""))
                    })?;
                    let inside = match texts {
                        OneOrMore::One(text) => Inside::Known(role(text)?),
                        OneOrMore::More(texts) => Inside::Words(sequence(texts)?),
                    };
                    Ok((value, inside))
                };
                Roles::Param(param.iter().map(entry).collect::<Result<_, RuleError>>()?)
            }
            (None, None, Some(order)) => Roles::Order(sequence(order)?),
            _ => return Err(fail("give exactly one of `at`, `param` and `order`".into())),
        };
        if self.run && !matches!(roles, Roles::Order(_)) {
            return Err(fail("`run` goes with `order` only".into()));
        }
        Ok(Rule {
            name: self.name,
            kernel,
            param_bytes: self.param_bytes,
            min_grid_z: self.min_grid_z.unwrap_or(0),
            roles,
            run: self.run,
            elements_at: self.elements_at,
            whole: self.whole,
            own: false,
            used: AtomicBool::new(false),
        })
    }
}
