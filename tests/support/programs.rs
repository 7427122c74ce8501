//! The examples as programs.

use std::path::PathBuf;

/// The path of an example's program; `None`, with a message, if `cargo` did not build it.
pub(crate) fn example_program(name: &str) -> Option<PathBuf> {
    let tests = std::env::current_exe().unwrap();
    let file = format!("{name}{}", std::env::consts::EXE_SUFFIX);
    let program = tests.ancestors().nth(2)?.join("examples").join(file);
    if !program.exists() {
        eprintln!("skipped: {} is not built", program.display());
        return None;
    }
    Some(program)
}
