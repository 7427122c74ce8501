//! The example `mcp` as a program.

use std::io::Write;
use std::process::{Command, Stdio};

use turnstream_test_support::programs::example_program;

/// Runs the program with this input, and checks that these texts are in its output, in this order.
#[track_caller]
fn check(args: &[&str], input: &str, expected: &[&str]) {
    let mut command = Command::new(example_program("mcp"));
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let out = String::from_utf8(output.stdout).unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{out}\n{err}");
    let mut rest = &*out;
    for text in expected {
        let found = rest.split_once(text);
        (_, rest) = found.unwrap_or_else(|| panic!("`{text}` is missing, or not in order: {out}"));
    }
}

#[test]
fn mcp_shows_the_server_and_the_progress_of_an_approved_call() {
    let expected = [
        "The model is scripted. The server speaks 2026-07-28 (Modern):",
        "  tea__brew: Brews tea",
        "May `tea__brew` run with {}? [y/N] ",
        "{\"progress\":2.0,\"total\":3.0,\"message\":\"tea steeps\"}",
        "The model reads: One cup of tea, made up.",
        "The run ends as completed: `tea__brew` is done.",
    ];
    check(&[], "y\n", &expected);
}

#[test]
fn mcp_uses_the_server_of_its_command_line() {
    let server = example_program("mcp_server");
    let expected = [
        "(Legacy)",
        "  mcp_server__add: Adds two numbers",
        "May `mcp_server__ask_name` run with {}? [y/N] The model reads: Denied",
    ];
    check(&[server.to_str().unwrap(), "--era", "legacy"], "", &expected);
}
