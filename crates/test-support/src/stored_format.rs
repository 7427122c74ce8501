//! Formats of stored data, each with an example file: the code still writes the same bytes.
//!
//! With the environment variable `UPDATE_FORMATS`, the tests write the files. After the first
//! release, a file may only change by additions that an earlier version of the crate ignores.

use std::fs;
use std::path::Path;

/// Checks that the written bytes are those of an example file.
#[track_caller]
pub fn assert_written(path: &Path, written: &str) {
    if std::env::var_os("UPDATE_FORMATS").is_some() {
        fs::write(path, written).unwrap();
    }
    let stored = fs::read_to_string(path).unwrap();
    for (number, (written, stored)) in (1..).zip(written.lines().zip(stored.lines())) {
        assert_eq!(written, stored, "{}, line {number}", path.display());
    }
    assert_eq!(written, stored, "{}", path.display());
}
