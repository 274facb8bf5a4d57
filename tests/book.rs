//! The pages in `docs/` are a book: each is in its table of contents, every link leads somewhere, every table and block of
//! code is one, and every command is taken by the program. Read as mdBook reads them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs")
}

/// A page, taken apart.
#[derive(Default)]
struct Page {
    path: PathBuf,
    text: String,
    /// Targets of links and images.
    links: Vec<String>,
    /// The anchors that its headings get: letters and digits in lower case, with hyphens for spaces.
    anchors: BTreeSet<String>,
    /// Language and text of each block of code; no language for an indented one.
    blocks: Vec<(Option<String>, String)>,
    /// Pieces of code in running text.
    spans: Vec<String>,
}

impl Page {
    fn read(path: PathBuf) -> Page {
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mut page = Page { path, ..Page::default() };
        let (mut heading, mut block) = (None::<String>, None::<(Option<String>, String)>);
        for event in Parser::new_ext(&text, Options::ENABLE_TABLES | Options::ENABLE_FOOTNOTES) {
            match event {
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    page.links.push(dest_url.into_string());
                }
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => page.anchors.extend(heading.take().as_deref().map(anchor)),
                Event::Start(Tag::CodeBlock(CodeBlockKind::Indented)) => block = Some((None, String::new())),
                Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(language))) => {
                    block = Some((Some(language.into_string()), String::new()));
                }
                Event::End(TagEnd::CodeBlock) => page.blocks.extend(block.take()),
                Event::Text(words) => match (&mut block, &mut heading) {
                    (Some((_, code)), _) => code.push_str(&words),
                    (None, Some(heading)) => heading.push_str(&words),
                    (None, None) => {}
                },
                Event::Code(code) => match &mut heading {
                    Some(heading) => heading.push_str(&code),
                    None => page.spans.push(code.into_string()),
                },
                _ => {}
            }
        }
        Page { text, ..page }
    }

    fn name(&self) -> String {
        self.path.file_name().expect("a file").to_string_lossy().into_owned()
    }
}

fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// The pages of the book, and the README, which leads to them.
fn pages() -> Vec<Page> {
    let files = fs::read_dir(docs()).expect("docs is here").map(|entry| entry.expect("readable").path());
    let mut paths: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|kind| kind == "md")).collect();
    paths.push(docs().with_file_name("README.md"));
    paths.into_iter().map(Page::read).collect()
}

#[test]
fn every_page_is_in_the_table_of_contents_once() {
    let summary = Page::read(docs().join("SUMMARY.md"));
    let unique: BTreeSet<&String> = summary.links.iter().collect();
    assert_eq!(unique.len(), summary.links.len(), "a page is listed twice");
    let pages: BTreeSet<String> = pages().iter().map(Page::name).collect();
    let expected: BTreeSet<&String> =
        pages.iter().filter(|name| !["SUMMARY.md", "README.md"].contains(&name.as_str())).collect();
    assert_eq!(unique, expected);
}

#[test]
fn every_link_leads_somewhere() {
    let mut followed = 0;
    for page in pages() {
        for link in page.links.iter().filter(|link| !link.contains("://")) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { page.path.clone() } else { page.path.with_file_name("").join(file) };
            assert!(target.exists(), "{} links to {link}, which is not there", page.name());
            assert!(
                anchor.is_empty() || Page::read(target).anchors.contains(anchor),
                "{} links to {link}, and there is no such heading",
                page.name()
            );
            followed += 1;
        }
    }
    assert!(followed > 10, "only {followed} links were followed");
}

/// The cells of a line of a table: a bar in a piece of code is written `\|`.
fn cells(line: &str) -> usize {
    line.trim().trim_matches('|').replace("\\|", "").matches('|').count() + 1
}

#[test]
fn the_rows_of_a_table_have_as_many_cells_as_its_head() {
    let mut rows = 0;
    for page in pages() {
        let (mut head, mut in_code) = (None, false);
        for line in page.text.lines() {
            in_code ^= line.starts_with("```");
            if in_code || !line.starts_with('|') {
                head = None;
                continue;
            }
            let head = *head.get_or_insert_with(|| cells(line));
            assert_eq!(cells(line), head, "{}: {line}", page.name());
            rows += 1;
        }
    }
    assert!(rows > 50, "only {rows} rows were seen");
}

#[test]
fn every_block_says_its_language() {
    let known = ["rust", "cuda", "python", "sh", "console", "text", "toml", "json", "yaml"];
    for page in pages() {
        for (language, code) in &page.blocks {
            let is_known = language.as_ref().is_none_or(|language| known.contains(&language.as_str()));
            assert!(is_known, "{}: a block in {language:?} begins {:?}", page.name(), code.lines().next());
        }
    }
}

/// The commands in blocks of shell, in indented blocks and in running text, by their arguments.
fn commands(page: &Page) -> Vec<Vec<String>> {
    let blocks = page.blocks.iter().filter(|(language, _)| {
        language.as_ref().is_none_or(|language| ["sh", "console"].contains(&language.as_str()))
    });
    let lines: Vec<String> = blocks
        .flat_map(|(_, code)| code.replace("\\\n", " ").lines().map(str::to_owned).collect::<Vec<_>>())
        .chain(page.spans.iter().cloned())
        .collect();
    lines.iter().filter_map(|line| arguments(line)).flat_map(alternatives).collect()
}

/// `graph check|plan` stands for two commands.
fn alternatives(arguments: Vec<String>) -> Vec<Vec<String>> {
    let Some(at) = arguments.iter().position(|argument| argument.contains('|')) else { return vec![arguments] };
    let one = |choice: &str| [&arguments[..at], &[choice.to_owned()], &arguments[at + 1..]].concat();
    arguments[at].split('|').map(one).collect()
}

/// What a line passes to the program, if it runs it: its own, or one with other kernels.
fn arguments(line: &str) -> Option<Vec<String>> {
    let line = line.trim_start().trim_start_matches("$ ");
    let rest = match line.split_once(' ')? {
        ("lathe", rest) => rest,
        ("cargo", rest) if rest.starts_with("run") && !rest.contains("-p heisenbug") => rest.split_once("-- ")?.1,
        _ => return None,
    };
    // A comment, a redirection, and what shells and people fill in.
    let rest = rest.split(" # ").next()?.split("  #").next()?.split(" > ").next()?.trim();
    if rest.starts_with('=') || rest.contains(" ... ") {
        return None;
    }
    let mut arguments = vec![String::new()];
    let mut quoted = false;
    for c in rest.chars() {
        match c {
            '"' | '\'' => quoted = !quoted,
            ' ' if !quoted => arguments.push(String::new()),
            c => arguments.last_mut().expect("one is there").push(c),
        }
    }
    arguments.retain(|argument| !argument.is_empty());
    Some(arguments)
}

#[test]
fn every_command_is_taken_by_the_program() {
    let (mut tried, mut refused) = (0, Vec::new());
    for page in pages() {
        for mut arguments in commands(&page) {
            // A cluster's own variables stand for numbers.
            arguments.iter_mut().for_each(|argument| {
                *argument = argument.replace("$SLURM_ARRAY_TASK_ID", "1").replace("$SLURM_ARRAY_TASK_COUNT", "4");
            });
            // With `--help` at the end everything before it is read, and nothing runs.
            let output = Command::new(env!("CARGO_BIN_EXE_lathe")).args(&arguments).arg("--help").output().unwrap();
            if !output.status.success() {
                let said = String::from_utf8_lossy(&output.stderr);
                refused.push(format!("{}: lathe {}: {said}", page.name(), arguments.join(" ")));
            }
            tried += 1;
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
    assert!(tried > 40, "only {tried} commands were tried");
}

#[test]
fn commands_are_read_out_of_their_lines() {
    let read = |line| arguments(line).map(|arguments| arguments.join("+"));
    assert_eq!(read("lathe check  # everything").as_deref(), Some("check"));
    assert_eq!(read("$ lathe run k.ptx > launch.toml").as_deref(), Some("run+k.ptx"));
    assert_eq!(read("cargo run -p own-kernel -- emit k").as_deref(), Some("emit+k"));
    assert_eq!(read("lathe gpu-test --filter \"tensor maps\"").as_deref(), Some("gpu-test+--filter+tensor maps"));
    assert_eq!(read("lathe = { path = \"../lathe\" }"), None);
    assert_eq!(read("cargo test --workspace"), None);
}
