//! The formats of stored data. Each format has an example file in this folder: the crate still
//! writes the same bytes, and still reads them.
//!
//! | module | formats |
//! |---|---|
//! | `recordings` | recordings of runs, and of a provider's turns |
//! | `sessions` | session entries, and files of JSON lines |
//! | `traces` | the steps and iterations of a run |
//! | `durable_state` | the state that an engine stores for a session: commands, verdicts, segments |
//!
//! Two more formats are tested next to their types: `durable_steps.jsonl` in
//! `durable/step_record.rs` and `hub_log.jsonl` in `hub/backend/content_json.rs`. The crates
//! `turnstream-sqlite` and `turnstream-postgres` test the tables of their databases.
//!
//! With the environment variable `UPDATE_FORMATS`, the tests write the files. After the
//! first release, a file may only change by additions that an earlier version of the crate ignores.

mod durable_state;
mod recordings;
mod sessions;
mod traces;
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
    turnstream_test_support::stored_format::assert_written(&format_path(name), written);
}
