//! The program as a test runs it.

use std::process::Command;

use crate::programs::example_program;

/// Runs an example that is this program, and checks its last line and its exit code.
#[track_caller]
pub fn assert_nothing_lost(example: &str, args: &[&str], kills: u32) {
    let output = Command::new(example_program(example)).args(args).output().unwrap();
    let out = String::from_utf8(output.stdout).unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    let expected = format!("kills {kills}, lost 0, doubled 0");
    assert_eq!(out.lines().last(), Some(&*expected), "{out}{err}");
    assert_eq!(output.status.code(), Some(0), "{err}");
}
