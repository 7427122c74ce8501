//! The examples as programs.

use std::path::PathBuf;

/// The path of an example's program.
///
/// # Panics
///
/// Panics if the program is not built: `cargo test` builds the examples, but with `--test NAME`, it
/// builds only that test.
#[track_caller]
pub fn example_program(name: &str) -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let target = tests.ancestors().nth(2).unwrap();
    let program = target.join("examples").join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
    assert!(
        program.exists(),
        "{} does not exist: run `cargo build --example {name}` with the features of the test first",
        program.display()
    );
    program
}
