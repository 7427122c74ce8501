//! The body in the example `own_body` is the agent's own, but for the one line that is marked.

const AGENTS: &str = include_str!("../src/agent/body.rs");
const EXAMPLES: &str = include_str!("../examples/own_body.rs");
const MARK: &str = "// the line that is ours";

/// The part of a file from the documentation of the body on. Visibility and paths do not count.
fn lines(file: &str) -> Vec<String> {
    let lines = file.lines().skip_while(|line| !line.starts_with("/// One lap:"));
    let lines = lines.map(|line| line.replace("crate::", "turnstream::"));
    lines.map(|line| line.replace("pub fn body(", "fn body(")).collect()
}

/// The names that a file imports of this crate.
fn imports(file: &str) -> Vec<String> {
    let uses = file.lines().filter_map(|line| line.strip_prefix("use "));
    uses.map(|line| line.replace("crate::", "turnstream::")).collect()
}

#[test]
fn the_copy_differs_in_the_one_line_that_is_marked() {
    let (agents, mut copied) = (lines(AGENTS), lines(EXAMPLES));
    let (before, copied_before) = (copied.len(), &mut copied);
    copied_before.retain(|line| !line.ends_with(MARK));
    assert_eq!(before - copied.len(), 1, "one line of the example ends with `{MARK}`");
    let differs = agents.iter().zip(&copied).find(|(agents, copied)| agents != copied);
    assert_eq!(differs, None, "copy src/agent/body.rs into the example again, and mark the line");
    assert_eq!(agents.len(), copied.len());
}

#[test]
fn the_copy_needs_no_import_that_the_agents_own_body_has_not() {
    let example = imports(EXAMPLES);
    for import in imports(AGENTS) {
        assert!(example.contains(&import), "the example does not import {import}");
    }
}
