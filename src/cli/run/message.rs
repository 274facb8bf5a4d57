//! Messages about PTX from anywhere, and about its launch file.

use std::borrow::Cow;
use std::ops::Range;
use std::path::Path;

use lathe_emulator::{Access, Error, Finding, FindingKind, SourceLocation};
use lathe_runtime::launch_file::{LaunchFileError, Prepared};

use crate::cli::diagnostic::{Diagnostic, Mark, Place, code, described};

/// A finding, at the lines of the source where `.loc` names them, and of the PTX.
pub fn of_finding(finding: &Finding, prepared: &Prepared, ptx: &Path) -> Diagnostic {
    let accesses = || std::iter::once(&finding.access).chain(&finding.other);
    let label = |access: &Access| described(&access.opcode, access.cta, access.warp, access.lane);
    let source = |access: &Access| {
        let at = author(&access.sources)?;
        // Compilers count columns from 1, and give 0 where they know none.
        let mark = if at.column == 0 { Mark::Line } else { Mark::Token { column: at.column } };
        Some(Place { file: Cow::Owned(near(&at.file, ptx)), line: at.line, mark, label: label(access) })
    };
    let line = |access: &Access| {
        let file = Cow::Owned(ptx.display().to_string());
        Place { file, line: access.ptx_line, mark: Mark::Line, label: label(access) }
    };
    let mut places: Vec<Place> = accesses().filter_map(source).collect();
    places.extend(accesses().map(line));
    let element = finding.address.as_ref().and_then(|address| prepared.element(address));
    let element = element.map_or(String::new(), |element| format!(" on {element}"));
    let mut notes = vec![finding.detail.clone()];
    if let Some(inner) = finding.access.sources.first().filter(|inner| Some(*inner) != author(&finding.access.sources))
    {
        notes.push(format!("inlined from {}:{}", inner.file, inner.line));
    }
    if finding.count > 1 {
        notes.push(format!("met {} times in all launches", finding.count));
    }
    Diagnostic {
        code: code(finding.kind),
        title: format!("{}{element} in `{}`", finding.kind.title(), finding.kernel),
        places,
        cuda: None,
        notes,
        help: help(finding).map(str::to_owned),
    }
}

/// The innermost place in the file that the kernel itself stands in: not inside a library that was inlined.
pub fn author(sources: &[SourceLocation]) -> Option<&SourceLocation> {
    let own = &sources.last()?.file;
    sources.iter().find(|place| place.file == *own)
}

/// The source file that the PTX names, beside the PTX if it is there.
fn near(file: &str, ptx: &Path) -> String {
    let beside = ptx.parent().map(|folder| folder.join(file)).filter(|path| path.exists());
    beside.map_or_else(|| file.to_owned(), |path| path.display().to_string())
}

/// What would repair a finding, in the terms of CUDA and PTX.
pub fn help(finding: &Finding) -> Option<&'static str> {
    let (access, other) = (&finding.access, finding.other.as_ref());
    let same_warp = other.is_some_and(|other| (other.cta, other.warp) == (access.cta, access.warp));
    let same_lane = same_warp && other.is_some_and(|other| other.lane == access.lane);
    Some(match finding.kind {
        FindingKind::SharedRace if same_warp => {
            "order the two by bar.warp.sync (__syncwarp) or a CTA barrier: lanes of a warp are not ordered by running in step"
        }
        FindingKind::SharedRace => "order the two by a CTA barrier (__syncthreads): they are in different warps",
        FindingKind::CopyInFlight if same_lane => "wait for the copy first: cp.async.wait_group, or its mbarrier",
        FindingKind::CopyInFlight => {
            "wait for the copy and then pass a barrier: cp.async.wait_group serves only the lane that issued the copy"
        }
        FindingKind::GlobalRace if same_warp => {
            "order the two by bar.warp.sync (__syncwarp) or a CTA barrier, or let one lane do both"
        }
        FindingKind::GlobalRace if other.is_some_and(|other| other.cta == access.cta) => {
            "order the two by a CTA barrier (__syncthreads)"
        }
        FindingKind::GlobalRace => "CTAs of a launch are not ordered: give each its own part, or use atomics",
        FindingKind::BeforeWait => {
            "move it below griddepcontrol.wait, or declare `before_wait = true` if no earlier kernel writes the buffer"
        }
        FindingKind::DivergentCollective => "move it out of the branch, so that every lane that it names takes part",
        FindingKind::OutOfBounds => {
            "if the kernel is right, the launch file describes a smaller buffer, or other arguments, than it expects"
        }
        FindingKind::Undeclared => "correct `access` in the launch file, or the kernel",
        FindingKind::Undefined => "give the buffer a `fill`, if an earlier kernel would have written it",
        _ => return None,
    })
}

/// An error about the PTX, at its line where it has one.
pub fn of_error(error: &Error, ptx: &Path) -> Diagnostic {
    let place = |line| Place {
        file: Cow::Owned(ptx.display().to_string()),
        line,
        mark: Mark::Line,
        label: if matches!(error, Error::StepLimit { .. }) { "still running here".into() } else { String::new() },
    };
    let places = error.line().map(place).into_iter().collect();
    let notes = if error.line().is_none() { vec![format!("in {}", ptx.display())] } else { Vec::new() };
    Diagnostic { title: error.to_string(), places, notes, ..Diagnostic::default() }
}

/// An error about the launch file, at its place in the text.
pub fn of_launch_file(error: &LaunchFileError, path: &Path, text: &str) -> Diagnostic {
    let place = |span: &Range<usize>| {
        let before = text.get(..span.start).unwrap_or(text);
        let line = before.matches('\n').count();
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() as u32;
        let marked = text.get(span.clone()).unwrap_or_default().lines().next().unwrap_or_default().chars().count();
        let mark = Mark::Columns(column, column + marked as u32);
        Place { file: Cow::Owned(path.display().to_string()), line: line as u32 + 1, mark, label: String::new() }
    };
    let places: Vec<Place> = error.span.iter().map(place).collect();
    let mut notes = Vec::new();
    let mut cause = std::error::Error::source(&*error.problem);
    while let Some(inner) = cause {
        notes.push(inner.to_string());
        cause = inner.source();
    }
    if places.is_empty() {
        notes.push(format!("in {}", path.display()));
    }
    Diagnostic { title: error.to_string(), places, notes, ..Diagnostic::default() }
}
