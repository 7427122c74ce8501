//! The body in the example `own_body` is the agent's own, except for the marked line.

use std::path::Path;

const AGENT_BODY_SOURCE: &str = include_str!("../../src/agent/body.rs");
const EXAMPLE_SOURCE: &str = include_str!("../../examples/own_body.rs");
/// The text at which the body starts in both files.
const BODY_START_MARKER: &str = "/// Runs one iteration";
const OWN_LINE_MARKER: &str = "// the line that is ours";

/// The names that a file imports from this crate.
fn crate_imports(file: &str) -> Vec<String> {
    let uses = file.lines().filter_map(|line| line.strip_prefix("use "));
    uses.map(|line| line.replace("crate::", "turnstream::")).collect()
}

/// The expected example: its own part, then the agent's body, with the marked line before the line
/// that it precedes in the example. `None` if that line cannot be found.
fn expected_example() -> Option<String> {
    let (head, copied) = EXAMPLE_SOURCE.split_at(EXAMPLE_SOURCE.find(BODY_START_MARKER)?);
    let body = AGENT_BODY_SOURCE.get(AGENT_BODY_SOURCE.find(BODY_START_MARKER)?..)?;
    let body =
        body.replace("crate::", "turnstream::").replacen("pub fn loop_body(", "fn loop_body(", 1);
    let (before, behind) = copied.split_once(OWN_LINE_MARKER)?;
    let ours = before.lines().last()?;
    let follows = behind.lines().nth(1)?;
    let at = body.find(follows)?;
    Some(format!("{head}{}{ours}{OWN_LINE_MARKER}\n{}", &body[..at], &body[at..]))
}

#[test]
fn the_example_body_differs_from_the_builtin_in_one_marked_line() {
    assert_eq!(
        EXAMPLE_SOURCE.matches(OWN_LINE_MARKER).count(),
        2,
        "in the head, and after the line"
    );
    let (head, _) = EXAMPLE_SOURCE.split_at(EXAMPLE_SOURCE.find(BODY_START_MARKER).unwrap());
    assert!(head.contains(OWN_LINE_MARKER));
    let example =
        expected_example().expect("the marked line stands in front of a line of the agent's body");
    if example != EXAMPLE_SOURCE {
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("own_body.rs");
        std::fs::write(&file, example).unwrap();
        panic!("the agent's body has changed; copy {} to examples/own_body.rs", file.display());
    }
}

#[test]
fn the_example_body_has_the_same_imports_as_the_builtin_body() {
    let example = crate_imports(EXAMPLE_SOURCE);
    for import in crate_imports(AGENT_BODY_SOURCE) {
        assert!(example.contains(&import), "the example does not import {import}");
    }
}
