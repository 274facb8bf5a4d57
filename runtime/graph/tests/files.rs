//! Graph files that are wrong: each error names its place, and nothing panics.

use lathe_graph::file::GraphFile;
use proptest::prelude::*;

const GOOD: &str = r#"{
  "lathe_graph": 1,
  "streams": ["m", "a"],
  "buffers": [
    {"name": "x", "size": 64, "lifetime": "persistent"},
    {"name": "t", "size": 64, "lifetime": "transient", "graph": "g"}
  ],
  "graphs": [
    {"name": "g", "origin": "m", "record": [
      {"kernel": "K1", "stream": "m", "read": ["x"], "write_all": ["t"]},
      {"record": "e", "stream": "m"},
      {"wait": "e", "stream": "a"},
      {"kernel": "K2", "stream": "a", "read": ["t[0..32]"]},
      {"record": "j", "stream": "a"},
      {"wait": "j", "stream": "m"}
    ]}
  ]
}"#;

/// The good file with one text replaced, and what its error says.
#[track_caller]
fn error_with(from: &str, to: &str) -> String {
    let text = GOOD.replacen(from, to, 1);
    assert_ne!(text, GOOD, "{from} is in the good file");
    GraphFile::parse("g.json", &text).expect_err("a wrong file").to_string()
}

#[test]
fn the_good_file_is_good() {
    let file = GraphFile::parse("g.json", GOOD).unwrap();
    assert!(file.check().unwrap().is_clean());
    assert_eq!((file.pool.nodes().len(), file.pool.edges().len()), (2, 1));
    assert_eq!(file.pool.nodes()[0].location.to_string(), "g.json:10:18");
}

#[test]
fn every_wrong_file_names_the_place_and_what_to_write() {
    let cases = [
        (
            "\"lathe_graph\": 1",
            "\"lathe_graph\": 2",
            "g.json:2:18: /lathe_graph: this is version 2 of the format, and only version 1 is known",
        ),
        ("  \"lathe_graph\": 1,\n", "", "g.json:1:1: the field `lathe_graph` is missing: a graph file needs it"),
        (
            "\"streams\": [",
            "\"strams\": [",
            "g.json:3:3: a graph file has no field `strams`: it takes `lathe_graph`, `streams`, `buffers`, `graphs`, `eager`, `at_once`, `source`, `description` or `expect`",
        ),
        (
            "\"stream\": \"a\", \"read\"",
            "\"stream\": \"aa\", \"read\"",
            "g.json:13:34: /graphs/0/record/3/stream: there is no stream `aa`: did you mean `a`?",
        ),
        (
            "\"read\": [\"x\"]",
            "\"read\": [\"y\"]",
            "g.json:10:48: /graphs/0/record/0/read/0: there is no buffer `y`: there is `t` and `x`",
        ),
        (
            "\"read\": [\"x\"]",
            "\"read\": \"x\"",
            "g.json:10:47: /graphs/0/record/0/read: expected an array, found a string",
        ),
        (
            "t[0..32]",
            "t[0..65]",
            "g.json:13:48: /graphs/0/record/3/read/0: 0..65 is no part of buffer `t`, which is 64 bytes: an access of node `K2` takes a non-empty range inside 0..64",
        ),
        (
            "t[0..32]",
            "t[9..9]",
            "g.json:13:48: /graphs/0/record/3/read/0: `t[9..9]` names no bytes: write `buffer` or `buffer[first..end]` with first < end",
        ),
        (
            "\"size\": 64",
            "\"size\": 1099511627777",
            "g.json:5:27: /buffers/0/size: 1099511627777 is no size: write a whole number from 0 to 1099511627776",
        ),
        (
            "\"size\": 64",
            "\"size\": 1.5",
            "g.json:5:27: /buffers/0/size: 1.5 is no size: write a whole number from 0 to 1099511627776",
        ),
        ("\"size\": 64", "\"size\": 0", "g.json:5:14: /buffers/0/name: buffer `x` is 0 bytes: a size is 1 to 2^40"),
        (
            "\"persistent\"",
            "\"eternal\"",
            "g.json:5:43: /buffers/0/lifetime: `eternal` is no lifetime: write `persistent`, `transient`, `input`, `output` or `external`",
        ),
        (
            "\"persistent\"}",
            "\"persistent\", \"graph\": \"g\"}",
            "g.json:5:66: /buffers/0/graph: `graph` says nothing about a buffer that is persistent",
        ),
        ("\"graph\": \"g\"", "\"graph\": \"h\"", "g.json:6:65: /buffers/1/graph: there is no graph `h`: there is `g`"),
        (
            "{\"wait\": \"e\"",
            "{\"wait\": \"f\"",
            "g.json:12:16: /graphs/0/record/2/wait: there is no event `f`: there is `e`",
        ),
        (
            "\"K2\"",
            "\"K1\"",
            "g.json:13:18: /graphs/0/record/3/kernel: a second node is called `K1`: give each its own name",
        ),
        (
            "\"name\": \"t\"",
            "\"name\": \"x\"",
            "g.json:6:14: /buffers/1/name: a second buffer is called `x`: give each its own name",
        ),
        (
            "\"read\": [\"x\"], \"write_all\": [\"t\"]",
            "\"read\": [\"x\"], \"write_all\": [\"x[8..16]\"]",
            "g.json:10:68: /graphs/0/record/0/write_all/0: node `K1` declares bytes 8..16 of `x` twice (read and write_all): declare read_write once, or split the ranges",
        ),
        ("\"origin\": \"m\", ", "", "g.json:9:5: /graphs/0: the field `origin` is missing: a graph needs it"),
        ("    ]}\n  ]", "    ]}\n", "g.json:18:1: expected `,` or `]`, found `}`"),
    ];
    for (from, to, expected) in cases {
        assert_eq!(error_with(from, to), expected);
    }
}

#[test]
fn a_cycle_is_named_with_its_place() {
    let text = r#"{"lathe_graph": 1, "streams": [], "buffers": [], "graphs": [
  {"name": "g", "nodes": [
    {"kernel": "A", "after": ["B"]},
    {"kernel": "B", "after": ["A"]}]}]}"#;
    let error = GraphFile::parse("g.json", text).unwrap_err().to_string();
    assert!(error.starts_with("g.json:3:16: /graphs/0/nodes/0/kernel: the edges form a cycle:"), "{error}");
}

#[test]
fn overlapping_declarations_and_empty_graphs_are_refused() {
    let two = |address: u64| {
        format!(
            r#"{{"lathe_graph": 1, "streams": ["m"], "buffers": [
  {{"name": "x", "size": 64, "lifetime": "persistent", "address": 0}},
  {{"name": "y", "size": 64, "lifetime": "input", "address": {address}}}],
 "graphs": [{{"name": "g", "origin": "m", "record": [{{"kernel": "K", "stream": "m"}}]}}]}}"#
        )
    };
    assert!(GraphFile::parse("g.json", &two(64)).is_ok());
    let error = GraphFile::parse("g.json", &two(32)).unwrap_err().to_string();
    assert!(
        error.contains("/buffers/1/name: buffers `x` (persistent) and `y` (input) are both always live"),
        "{error}"
    );
    for graphs in ["[]", r#"[{"name": "g", "origin": "m", "record": []}]"#] {
        let text = format!(r#"{{"lathe_graph": 1, "streams": ["m"], "buffers": [], "graphs": {graphs}}}"#);
        let error = GraphFile::parse("g.json", &text).unwrap_err().to_string();
        assert!(error.contains("the pool holds no graph"), "{error}");
    }
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = GraphFile::read("no/such/graph.json".as_ref()).unwrap_err().to_string();
    assert!(error.starts_with("no/such/graph.json: "), "{error}");
}

/// Words of the format, and others, to build files that are nearly right.
fn token() -> impl Strategy<Value = String> {
    let words = [
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "null",
        "0",
        "64",
        "1e9",
        "-1",
        "18446744073709551615",
        "\"g\"",
        "\"m\"",
        "\"x\"",
        "\"t[0..9]\"",
        "\"t[9..0]\"",
        "\"kernel\"",
        "\"read\"",
        "\"wait\"",
        "\"stream\"",
        "\"nodes\"",
        "\"after\"",
        "\"\"",
        "\"é\"",
        "\"address\"",
        "\"lifetime\"",
        "\"transient\"",
        "\"free\"",
        "\"at_once\"",
        "true",
        "\"external\"",
    ];
    proptest::sample::select(words.map(str::to_string).to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_damaged_file_is_an_error_or_a_graph(at in 0..GOOD.len(), length in 0usize..40, put in proptest::collection::vec(token(), 0..4)) {
        let end = (at + length).min(GOOD.len());
        let text = format!("{}{}{}", &GOOD[..at], put.join(" "), &GOOD[end..]);
        match GraphFile::parse("g.json", &text) {
            Ok(file) => drop(file.check().unwrap()),
            Err(error) => prop_assert!(error.location.line >= 1, "{error}"),
        }
    }

    #[test]
    fn any_text_is_an_error_or_a_graph(tokens in proptest::collection::vec(token(), 0..60)) {
        let _ = GraphFile::parse("g.json", &tokens.join(""));
    }
}
