//! The example `mcp` as a program.

use std::process::{Command, Stdio};

use crate::programs::example_program;

fn run_example(args: &[&str]) -> String {
    let mut command = Command::new(example_program("mcp"));
    let output = command.args(args).stdin(Stdio::null()).output().unwrap();
    let out = String::from_utf8(output.stdout).unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{out}\n{err}");
    out
}

/// Checks that the lines are in the output, in this order.
#[track_caller]
fn assert_lines_in_order(out: &str, expected: &[&str]) {
    let mut lines = out.lines();
    for line in expected {
        assert!(lines.any(|it| it.contains(line)), "`{line}` is missing, or not in order: {out}");
    }
}

#[test]
fn mcp_shows_the_server_and_the_progress_of_an_approved_call() {
    let out = run_example(&["--yes"]);
    let lines = [
        "The server: turnstream-scripted, 2026-07-28 (Modern)",
        "  tool tea__brew: Brews tea",
        "  resource tea://list: teas",
        "  prompt recommend: Asks for a tea",
        "May `tea__brew` run with {}? [y/N] --yes",
        "  tea__brew: {\"progress\":2.0,\"total\":3.0,\"message\":\"tea steeps\"}",
        "The model reads: One cup of tea, made up.",
        "The run ends as completed: `tea__brew` is done.",
    ];
    assert_lines_in_order(&out, &lines);
}

#[test]
fn mcp_uses_the_server_of_its_command_line() {
    let server = example_program("mcp_server");
    let out = run_example(&["--", server.to_str().unwrap(), "--era", "legacy"]);
    let lines = [
        "(Legacy)",
        "  tool mcp_server__add: Adds two numbers",
        "May `mcp_server__ask_name` run with {}? [y/N] The model reads: Denied",
    ];
    assert_lines_in_order(&out, &lines);
}
