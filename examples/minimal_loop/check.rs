//! The check, in a process of its own: this program with `--check FILE`.
//!
//! It exits with 0 and no output, or with 1 and one line on stderr for each violation.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

pub(crate) fn check_file(file: &Path) -> ExitCode {
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) => {
            eprintln!("{}: {error}", file.display());
            return ExitCode::from(2);
        }
    };
    let violations = glossary_violations(&text);
    for violation in &violations {
        eprintln!("{violation}");
    }
    if violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The violations of a glossary, whose terms are its second-level headings.
fn glossary_violations(text: &str) -> Vec<String> {
    let mut violations = Vec::new();
    let mut last: Option<&str> = None;
    for term in text.lines().filter_map(|line| line.strip_prefix("## ")) {
        match last.map(|last| last.to_lowercase().cmp(&term.to_lowercase())) {
            Some(std::cmp::Ordering::Greater) => violations.push(format!(
                "Glossary terms not in alphabetical order: `{term}` comes after `{}`",
                last.unwrap_or_default()
            )),
            Some(std::cmp::Ordering::Equal) => {
                violations.push(format!("MD024/no-duplicate-heading: `{term}` occurs twice"));
            }
            Some(std::cmp::Ordering::Less) | None => {}
        }
        last = Some(term);
    }
    let mut blank = 0;
    for line in text.lines() {
        blank = if line.trim().is_empty() { blank + 1 } else { 0 };
        if blank == 2 {
            violations.push(
                "MD012/no-multiple-blanks: Multiple consecutive blank lines [Expected: 1; Actual: 2]"
                    .to_owned(),
            );
        }
    }
    if !text.ends_with('\n') {
        violations
            .push("MD047/single-trailing-newline: the last line has no line break".to_owned());
    }
    violations
}
