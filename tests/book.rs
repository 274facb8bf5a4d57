//! The pages in `docs/` are a book: each is in its table of contents, under its own title or a shorter one, and every link
//! leads somewhere.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The targets of a page's links, without those of its code.
fn links(text: &str) -> Vec<String> {
    let mut links = Vec::new();
    let mut in_code = false;
    for line in text.lines() {
        in_code ^= line.trim_start().starts_with("```");
        if in_code || line.starts_with("    ") {
            continue;
        }
        let outside_spans: String = line.split('`').step_by(2).collect::<Vec<_>>().join(" ");
        let targets = outside_spans.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        links.extend(targets.map(str::to_owned));
    }
    links
}

/// The anchor that a heading gets: its letters and digits in lower case, with hyphens for spaces.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let anchor = |heading: &str| {
        let kept = heading.to_lowercase();
        let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(anchor).collect()
}

fn pages() -> BTreeSet<PathBuf> {
    let files = fs::read_dir(docs()).expect("docs is here").map(|entry| entry.expect("readable").path());
    files.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect()
}

#[test]
fn every_page_is_in_the_table_of_contents_once() {
    let summary = docs().join("SUMMARY.md");
    let listed: Vec<PathBuf> = links(&read(&summary)).into_iter().map(|link| docs().join(link)).collect();
    let unique: BTreeSet<PathBuf> = listed.iter().cloned().collect();
    assert_eq!(unique.len(), listed.len(), "a page is listed twice");
    let mut pages = pages();
    pages.remove(&summary);
    assert_eq!(unique, pages);
}

#[test]
fn every_link_leads_somewhere() {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let mut followed = 0;
    for page in pages().into_iter().chain([readme]) {
        let text = read(&page);
        for link in links(&text).into_iter().filter(|link| !link.contains("://")) {
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if file.is_empty() { page.clone() } else { page.parent().expect("a folder").join(file) };
            assert!(target.exists(), "{} links to {link}, which is not there", page.display());
            assert!(
                anchor.is_empty() || anchors(&read(&target)).contains(anchor),
                "{} links to {link}, and there is no such heading",
                page.display()
            );
            followed += 1;
        }
    }
    assert!(followed > 10, "only {followed} links were followed");
}
