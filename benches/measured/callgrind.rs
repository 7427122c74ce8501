//! Runs a part of a bench's own program under Valgrind's callgrind.

use std::env;
use std::process::{self, Command};

/// Ends the process if Valgrind is not installed, with an error if it `is_required`.
pub(crate) fn find_valgrind(is_required: bool) {
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("skipped: valgrind is not installed");
        process::exit(i32::from(is_required));
    }
}

/// Counts the instructions of this program with these arguments: all of them, or only those inside
/// the function `measured_part`.
#[allow(dead_code, reason = "not every bench uses it")]
pub(crate) fn count_instructions(task: &[&str], only_measured_part: bool) -> u64 {
    let part = only_measured_part.then_some("--toggle-collect=*measured_part*");
    let options: Vec<&str> = part.into_iter().collect();
    number_in_report(&options, task, "Collected :")
}

/// Runs this program with these arguments under callgrind with these options, and returns the
/// first number after `name` in callgrind's report.
pub(crate) fn number_in_report(options: &[&str], task: &[&str], name: &str) -> u64 {
    let ran = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .args(options)
        .arg(env::current_exe().expect("it runs"))
        .args(task)
        .output()
        .expect("valgrind runs");
    let report = String::from_utf8_lossy(&ran.stderr).into_owned();
    let found = report.lines().find_map(|line| line.split_once(name));
    let number = found.and_then(|(_, numbers)| numbers.split_whitespace().next());
    let number = number.and_then(|number| number.replace(',', "").parse().ok());
    number.unwrap_or_else(|| panic!("{task:?} failed: {report}"))
}
