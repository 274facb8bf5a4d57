//! Messages in rustc's form: what is wrong, the author's lines, and what would repair it.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};
use lathe_codegen::loc::Loc;
use lathe_codegen::trace::TraceErrors;
use lathe_runtime::backend::{Access, Finding, FindingKind};
use lathe_runtime::program::ProgramError;

use super::sources::Sources;

/// One message.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Diagnostic {
    /// A short name of the class of fault, shown in brackets.
    pub code: Option<String>,
    /// What is wrong.
    pub title: String,
    /// Where, the main place first.
    pub places: Vec<Place>,
    /// A line of the generated CUDA, by number, with the whole text.
    pub cuda: Option<(u32, String)>,
    /// Facts that help to find the cause.
    pub notes: Vec<String>,
    /// What would repair it.
    pub help: Option<String>,
}

/// A place in the author's source.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    pub file: Cow<'static, str>,
    /// 1-based.
    pub line: u32,
    pub mark: Mark,
    pub label: String,
}

/// What of a line is marked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mark {
    /// The token at this 1-based column, with the arguments of a call.
    Token { column: u32 },
    /// Characters from the first to, not including, the second 0-based column; all of the line if they are none.
    Columns(u32, u32),
    /// All of the line.
    Line,
}

impl Place {
    pub fn new(loc: Loc, label: impl Into<String>) -> Self {
        let mark = Mark::Token { column: loc.column };
        Place { file: Cow::Borrowed(loc.file), line: loc.line, mark, label: label.into() }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)?;
        if let Mark::Token { column } = self.mark {
            write!(f, ":{column}")?;
        }
        Ok(())
    }
}

impl Diagnostic {
    /// The message for a finding of a backend.
    pub fn of_finding(finding: &Finding) -> Self {
        let place = |access: &Access| Some(Place::new(access.rust?, describe(access)));
        let mut places: Vec<Place> = finding.access.iter().filter_map(place).collect();
        places.extend(finding.other.iter().filter_map(place));
        let element = finding.element.as_ref().map(|element| format!(" on {element}")).unwrap_or_default();
        let mut notes = vec![finding.detail.clone()];
        for access in finding.access.iter().chain(&finding.other).filter(|access| access.rust.is_none()) {
            notes.push(format!("{}, line {} of the PTX", describe(access), access.ptx_line));
        }
        Diagnostic {
            code: code(finding.kind),
            title: format!("{}{element} in `{}`", finding.kind.title(), finding.kernel),
            places,
            cuda: None,
            notes,
            help: finding.help.clone(),
        }
    }

    /// The messages for the mistakes of a kernel that could not be traced.
    pub fn of_trace(errors: &TraceErrors) -> Vec<Self> {
        let one = |error: &lathe_codegen::trace::TraceError| {
            let mut places = vec![Place::new(error.loc, "")];
            places.extend(error.related.iter().map(|(loc, why)| Place::new(*loc, why)));
            let notes = vec![format!("in kernel `{}`", errors.kernel)];
            Diagnostic { title: error.message.clone(), places, notes, ..Diagnostic::default() }
        };
        errors.errors.iter().map(one).collect()
    }

    /// The messages for a kernel that could not be printed or compiled.
    pub fn of_program(error: &ProgramError) -> Vec<Self> {
        let messages = error.messages();
        let cuda = match error {
            ProgramError::Compile { cuda, .. } => cuda,
            ProgramError::Cuda(error) => {
                // The place is shown with its line.
                let (text, loc) = (error.to_string(), error.loc());
                let title = text.strip_prefix(&format!("{loc}: ")).unwrap_or(&text).to_owned();
                let places = vec![Place::new(loc, "")];
                return vec![Diagnostic { title, places, ..Diagnostic::default() }];
            }
        };
        if messages.is_empty() {
            return vec![Diagnostic { title: error.to_string(), ..Diagnostic::default() }];
        }
        let one = |message: lathe_runtime::program::CompilerMessage| Diagnostic {
            title: format!("NVRTC: {}", message.text),
            places: message.rust.map(|loc| Place::new(loc, "this became the CUDA below")).into_iter().collect(),
            cuda: Some((message.cuda_line, cuda.source.clone())),
            notes: vec![format!("in kernel `{}`", cuda.entry)],
            ..Diagnostic::default()
        };
        messages.into_iter().filter(|message| !message.severity.contains("warning")).map(one).collect()
    }

    /// The message as text, with escape codes for colour.
    pub fn render(&self, sources: &Sources) -> String {
        let mut title = Level::ERROR.primary_title(&self.title);
        if let Some(code) = &self.code {
            title = title.id(code);
        }
        let mut group = Group::with_title(title);
        let mut shown: Vec<&str> = Vec::new();
        for place in &self.places {
            let file = place.file.as_ref();
            if shown.contains(&file) {
                continue;
            }
            shown.push(file);
            group = match sources.text(file) {
                Some(text) => group.element(self.excerpt(file, text)),
                None => {
                    let origin = Origin::path(file).line(place.line as usize);
                    match place.mark {
                        Mark::Token { column } => group.element(origin.char_column(column as usize)),
                        _ => group.element(origin),
                    }
                }
            };
        }
        if let Some((line, text)) = &self.cuda {
            group = group.element(cuda_excerpt(*line, text));
        }
        let unseen = self.places.iter().filter(|place| !place.label.is_empty() && sources.text(&place.file).is_none());
        group = group.elements(unseen.map(|place| Level::NOTE.message(format!("{place}: {}", place.label))));
        group = group.elements(self.notes.iter().map(|note| Level::NOTE.message(note)));
        group = group.elements(self.help.iter().map(|help| Level::HELP.message(help)));
        Renderer::styled().decor_style(DecorStyle::Unicode).render(&[group])
    }

    /// Every place in `file`, the main one marked as such.
    fn excerpt<'a>(&'a self, file: &'a str, text: String) -> Snippet<'a, annotate_snippets::Annotation<'a>> {
        let marks: Vec<_> = self
            .places
            .iter()
            .enumerate()
            .filter(|(_, place)| place.file == file)
            .filter_map(|(index, place)| {
                let kind = if index == 0 { AnnotationKind::Primary } else { AnnotationKind::Context };
                let mark = kind.span(span(&text, place.line, place.mark)?);
                Some(if place.label.is_empty() { mark } else { mark.label(&place.label) })
            })
            .collect();
        Snippet::source(text).path(file).annotations(marks)
    }
}

fn cuda_excerpt(line: u32, text: &str) -> Snippet<'_, annotate_snippets::Annotation<'_>> {
    let start: usize = text.split_inclusive('\n').take(line as usize - 1).map(str::len).sum();
    let row = text[start..].lines().next().unwrap_or_default();
    let indent = row.len() - row.trim_start().len();
    let mark = AnnotationKind::Context.span(start + indent..start + row.len()).label("generated here");
    Snippet::source(text).path("entry.cu").annotation(mark)
}

/// The name of a class of fault that is shown in brackets, as in JSON.
pub fn code(kind: FindingKind) -> Option<String> {
    serde_json::to_value(kind).ok().and_then(|kind| Some(kind.as_str()?.to_owned()))
}

/// `written here by warp 1, lane 3 of CTA (0, 2, 0) (st.shared.f32)`.
fn describe(access: &Access) -> String {
    described(&access.opcode, access.cta, access.warp, access.lane)
}

/// As `describe`, for an access of any kind.
pub fn described(opcode: &str, cta: [u32; 3], warp: u32, lane: u32) -> String {
    let verb = match opcode.split('.').next().unwrap_or_default() {
        "ld" | "ldmatrix" | "ldu" => "read here",
        "st" | "stmatrix" => "written here",
        "cp" => "copied here",
        "atom" | "red" => "updated here",
        _ => "executed here",
    };
    let [x, y, z] = cta;
    format!("{verb} by warp {warp}, lane {lane} of CTA ({x}, {y}, {z}) ({opcode})")
}

/// The marked bytes of a line.
fn span(text: &str, line: u32, mark: Mark) -> Option<Range<usize>> {
    let line = line.checked_sub(1)? as usize;
    let start_of_line: usize = text.split_inclusive('\n').take(line).map(str::len).sum();
    let row = text.get(start_of_line..)?.lines().next()?;
    let byte_of = |column: u32| row.char_indices().nth(column as usize).map_or(row.len(), |(at, _)| at);
    let range = match mark {
        Mark::Token { column } => {
            let column = row.char_indices().nth(column.checked_sub(1)? as usize)?.0;
            let rest = &row[column..];
            let name = rest.find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':').unwrap_or(rest.len());
            let len = match rest[name..].starts_with('(') {
                true => name + call_len(&rest[name..]),
                false => name.max(rest.chars().next()?.len_utf8()),
            };
            column..column + len
        }
        Mark::Columns(from, to) if from < to && byte_of(from) < row.len() => byte_of(from)..byte_of(to),
        Mark::Columns(..) | Mark::Line => row.len() - row.trim_start().len()..row.trim_end().len(),
    };
    Some(start_of_line + range.start..start_of_line + range.end)
}

/// Length of the parenthesised arguments that `text` starts with; of all of it, if they end on another line.
fn call_len(text: &str) -> usize {
    let mut depth = 0;
    for (index, c) in text.char_indices() {
        depth += match c {
            '(' => 1,
            ')' => -1,
            _ => 0,
        };
        if depth == 0 {
            return index + 1;
        }
    }
    text.trim_end().len()
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use lathe_codegen::entry::Entry;

    use super::*;

    fn marked(text: &str, line: u32, column: u32) -> &str {
        &text[span(text, line, Mark::Token { column }).unwrap()]
    }

    #[test]
    fn a_mark_covers_the_call_at_the_column() {
        let text = "fn k() {\n    tile.at(f(x), 3).load();\n    é + cta::sync();\n}\n";
        assert_eq!(marked(text, 2, 10), "at(f(x), 3)");
        assert_eq!(marked(text, 2, 22), "load()");
        assert_eq!(marked(text, 3, 7), "+");
        assert_eq!(marked(text, 3, 9), "cta::sync()");
    }

    /// The message without colours, over a source file of these lines.
    fn rendered(diagnostic: &Diagnostic, source: &'static str) -> String {
        let variants = |_| Vec::new();
        let entry =
            Entry { name: "k", about: "", file: "kernels/k.rs", source, equivalents: &[], variants, benchmark: None };
        let entries = [entry];
        anstream::adapter::strip_str(&diagnostic.render(&Sources::new(&entries))).to_string()
    }

    fn access(line: u32, column: u32, opcode: &str, warp: u32) -> Access {
        Access {
            rust: Some(Loc { file: "kernels/k.rs", line, column }),
            cuda_line: Some(40),
            ptx_line: 99,
            opcode: opcode.into(),
            cta: [0, 2, 0],
            warp,
            lane: 5,
        }
    }

    fn race() -> Finding {
        Finding {
            kind: FindingKind::SharedRace,
            kernel: "reverse".into(),
            detail: "read of 4 bytes, written by another warp without a barrier in between".into(),
            element: Some("`tile`, [0, 31]".into()),
            access: Some(access(3, 18, "ld.shared.f32", 1)),
            other: Some(access(2, 10, "st.shared.f32", 0)),
            help: Some("put a `cta::sync()` between the two: they are in different warps".into()),
            count: 3,
        }
    }

    #[test]
    fn a_race_shows_both_accesses_and_the_barrier_that_would_order_them() {
        let source = "fn reverse() {\n    tile.at(0, lane).store(x);\n    let y = tile.at(0, 31 - lane).load();\n}\n";
        expect![[r#"
            error[shared_race]: shared-memory race on `tile`, [0, 31] in `reverse`
              ╭▸ kernels/k.rs:3:18
              │
            2 │     tile.at(0, lane).store(x);
              │          ─────────── written here by warp 0, lane 5 of CTA (0, 2, 0) (st.shared.f32)
            3 │     let y = tile.at(0, 31 - lane).load();
              │                  ━━━━━━━━━━━━━━━━ read here by warp 1, lane 5 of CTA (0, 2, 0) (ld.shared.f32)
              │
              ├ note: read of 4 bytes, written by another warp without a barrier in between
              ╰ help: put a `cta::sync()` between the two: they are in different warps"#]]
        .assert_eq(&rendered(&Diagnostic::of_finding(&race()), source));
    }

    #[test]
    fn without_the_source_a_finding_still_says_where() {
        let mut finding = race();
        finding.other = None;
        finding.access.as_mut().unwrap().rust = Some(Loc { file: "elsewhere/k.rs", line: 3, column: 18 });
        expect![[r#"
            error[shared_race]: shared-memory race on `tile`, [0, 31] in `reverse`
             ╭▸ elsewhere/k.rs:3:18
             ├ note: elsewhere/k.rs:3:18: read here by warp 1, lane 5 of CTA (0, 2, 0) (ld.shared.f32)
             ├ note: read of 4 bytes, written by another warp without a barrier in between
             ╰ help: put a `cta::sync()` between the two: they are in different warps"#]]
        .assert_eq(&rendered(&Diagnostic::of_finding(&finding), ""));
    }

    #[test]
    fn a_compile_error_shows_the_rust_line_and_the_cuda_line() {
        let diagnostic = Diagnostic {
            title: "NVRTC: identifier \"x\" is undefined".into(),
            places: vec![Place::new(Loc { file: "kernels/k.rs", line: 2, column: 5 }, "this became the CUDA below")],
            cuda: Some((2, "void k() {\n  y = x + 1;\n}\n".into())),
            ..Diagnostic::default()
        };
        expect![[r#"
            error: NVRTC: identifier "x" is undefined
              ╭▸ kernels/k.rs:2:5
              │
            2 │     add(x, 1);
              │     ━━━━━━━━━ this became the CUDA below
              │
              ⸬  entry.cu:2:3
              │
            2 │   y = x + 1;
              ╰╴  ────────── generated here"#]]
        .assert_eq(&rendered(&diagnostic, "fn k() {\n    add(x, 1);\n}\n"));
    }

    #[test]
    fn a_mark_outside_the_text_is_none() {
        assert_eq!(span("one line", 7, Mark::Token { column: 1 }), None);
        assert_eq!(span("one line", 1, Mark::Token { column: 70 }), None);
        assert_eq!(span("one line", 0, Mark::Line), None);
    }
}
