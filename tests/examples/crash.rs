//! The example `crash`: a process that is killed in the middle of a session loses nothing and does
//! nothing twice.

use std::process::Command;

use turnstream_test_support::crash::assert_nothing_lost;
use turnstream_test_support::programs::example_program;

#[test]
fn twenty_kills_lose_and_duplicate_nothing_in_a_json_lines_session() {
    assert_nothing_lost("crash", &["--store", "jsonl", "--kills", "20", "--seed", "7"], 20);
}

#[test]
fn the_default_store_is_json_lines() {
    assert_nothing_lost("crash", &["--kills", "2"], 2);
}

#[test]
fn bad_usage_is_one_line_and_exit_code_2() {
    let all = [
        (&["--store", "paper"][..], "`paper`"),
        (&["--store", "jsonl", "--kills", "many"], "`--kills` needs a number"),
        (&["--store", "jsonl", "--fast"], "`--fast`"),
    ];
    for (args, wrong) in all {
        let output = Command::new(example_program("crash")).args(args).output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {err}");
        assert!(err.contains(wrong) && err.lines().count() == 1, "{args:?}: {err}");
    }
}
