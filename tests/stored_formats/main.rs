//! The formats of stored data. Each format has an example file in this folder: the crate still
//! writes the same bytes, and still reads them.
//!
//! | module | formats |
//! |---|---|
//! | `recordings` | recordings of runs, and of a provider's turns |
//! | `sessions` | session entries, and files of JSON lines |
//! | `durable_state` | the state that an engine stores for a session: commands, verdicts, segments |
//! | `databases` | the tables in SQLite |
//!
//! Two more formats are tested next to their types: `durable_steps.jsonl` in
//! `durable/step_record.rs` and `hub_log.jsonl` in `hub/backend/content_json.rs`. The crate
//! `turnstream-postgres` tests the tables in PostgreSQL.
//!
//! With the environment variable `UPDATE_FORMATS`, the tests write the files. After the
//! first release, a file may only change by additions that an earlier version of the crate ignores.

mod databases;
mod durable_state;
mod recordings;
mod sessions;
#[path = "../support/mod.rs"]
mod support;

use std::fs;
use std::path::{Path, PathBuf};

fn format_path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stored_formats").join(name)
}

/// The content of a format's example file.
fn stored(name: &str) -> String {
    fs::read_to_string(format_path(name)).unwrap()
}

/// Checks that the crate writes the bytes of an example file.
#[track_caller]
fn assert_written(name: &str, written: &str) {
    if std::env::var_os("UPDATE_FORMATS").is_some() {
        fs::write(format_path(name), written).unwrap();
    }
    let stored = stored(name);
    for (number, (written, stored)) in (1..).zip(written.lines().zip(stored.lines())) {
        assert_eq!(written, stored, "{name}, line {number}");
    }
    assert_eq!(written, stored, "{name}");
}
