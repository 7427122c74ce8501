//! The example `crash`: a process that is killed in the middle of a session loses nothing and does
//! nothing twice.

use std::process::{Command, Output};

use turnstream_test_support::programs::example_program;

fn run_crash(args: &[&str]) -> Output {
    Command::new(example_program("crash")).args(args).output().unwrap()
}

fn assert_nothing_lost(store: &str) {
    let output = run_crash(&["--store", store, "--kills", "20", "--seed", "7"]);
    let out = String::from_utf8(output.stdout).unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(out.lines().last(), Some("kills 20, lost 0, doubled 0"), "{out}{err}");
    assert_eq!(output.status.code(), Some(0), "{err}");
}

#[test]
fn twenty_kills_lose_and_duplicate_nothing_in_a_json_lines_session() {
    assert_nothing_lost("jsonl");
}

#[cfg(feature = "sqlite")]
#[test]
fn twenty_kills_lose_and_duplicate_nothing_in_a_sqlite_session() {
    assert_nothing_lost("sqlite");
}

#[test]
fn the_default_store_is_json_lines() {
    let output = run_crash(&["--kills", "2"]);
    let out = String::from_utf8(output.stdout).unwrap();
    assert_eq!(out.lines().last(), Some("kills 2, lost 0, doubled 0"), "{out}");
}

#[test]
fn bad_usage_is_one_line_and_exit_code_2() {
    let mut all = vec![
        (&["--store", "paper"][..], "`paper`"),
        (&["--store", "jsonl", "--kills", "many"], "`--kills` needs a number"),
        (&["--store", "jsonl", "--fast"], "`--fast`"),
    ];
    if cfg!(not(feature = "sqlite")) {
        all.push((&["--store", "sqlite"], "needs the feature `sqlite`"));
    }
    for (args, wrong) in all {
        let output = run_crash(args);
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {err}");
        assert!(err.contains(wrong) && err.lines().count() == 1, "{args:?}: {err}");
    }
}
