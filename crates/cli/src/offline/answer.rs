//! Builds the offline model's answer from the results of its calls.

use std::fmt::Write;

use serde_json::Value;

use crate::offline::question::RESEARCH_TOOL;
use crate::offline::request::CallResult;
use crate::text::one_line;
use crate::tools::SERVER_SEPARATOR;

/// Says whose words these are.
pub(super) const OFFLINE_NOTICE: &str =
    "I am the offline model: my words are scripted, the tool results are real.";

/// The maximum number of search hits in an answer.
const MAX_REPORTED_HITS: usize = 6;

/// Returns an answer whose figures are all taken from the results.
pub(crate) fn answer_from_results(results: &[CallResult]) -> String {
    let counted = results.iter().any(|result| result.tool_name == "count_lines");
    let mut answer: Vec<String> = Vec::new();
    for result in results {
        let name = result.tool_name.as_str();
        if result.is_error {
            answer.push(format!("`{name}` failed: {}", one_line(&result.output, 300)));
            continue;
        }
        let told = match name {
            "count_lines" => describe_count(&result.output),
            "search_text" => describe_search(&result.output),
            "calculate" => {
                let expression = result.input["expression"].as_str().unwrap_or("the expression");
                Some(format!("{} is {}.", one_line(expression, 200), one_line(&result.output, 100)))
            }
            "list_directory" => {
                let path = result.input["path"].as_str().unwrap_or(".");
                let entries = match result.output.lines().count() {
                    1 => "one line".to_owned(),
                    lines => format!("{lines} lines"),
                };
                match counted {
                    // The entry was only an intermediate step.
                    true => continue,
                    false => Some(format!("The listing of `{path}` has {entries}.")),
                }
            }
            // The sub-agent's text, on lines of its own.
            RESEARCH_TOOL => Some(result.output.replace(OFFLINE_NOTICE, "").trim().to_owned()),
            _ if name.contains(SERVER_SEPARATOR) => match one_line(&result.output, 2_000) {
                text if text.is_empty() => Some(format!("`{name}` returned no text.")),
                text => Some(format!("`{name}` says: {text}")),
            },
            _ => Some(format!("`{name}` says: {}", one_line(&result.output, 300))),
        };
        answer.push(told.unwrap_or_else(|| {
            format!("I cannot read what `{name}` returned: {}", one_line(&result.output, 200))
        }));
    }
    if answer.is_empty() {
        answer.push("The tools returned nothing that I can use.".to_owned());
    }
    answer.join("\n")
}

fn describe_count(text: &str) -> Option<String> {
    let report: Value = serde_json::from_str(text).ok()?;
    let path = one_line(report["path"].as_str()?, 200);
    let total = report["total"].as_u64()?;
    let files = report["files"].as_u64()?;
    let of = match report["extension"].as_str() {
        Some("rs") => " of Rust".to_owned(),
        Some(extension) => format!(" of `.{}`", one_line(extension, 20)),
        None => String::new(),
    };
    let mut answer =
        format!("{}{of} in `{path}`, in {}.", pluralize(total, "line"), pluralize(files, "file"));
    match (report["longest_file"].as_str(), report["longest_lines"].as_u64()) {
        (Some(file), Some(lines)) => {
            let file = one_line(file, 200);
            let _ =
                write!(answer, " The longest file is `{file}` with {}.", pluralize(lines, "line"));
        }
        _ => answer.push_str(" So there is no longest file."),
    }
    Some(append_note(answer, &report))
}

fn describe_search(text: &str) -> Option<String> {
    let report: Value = serde_json::from_str(text).ok()?;
    let query = one_line(report["query"].as_str()?, 100);
    let lines = report["lines"].as_u64()?;
    let files = report["files"].as_u64()?;
    if lines == 0 {
        let searched = pluralize(report["searched"].as_u64()?, "file");
        return Some(append_note(format!("`{query}` was not found in {searched}."), &report));
    }
    let mut answer =
        format!("`{query}` is in {} of {}", pluralize(lines, "line"), pluralize(files, "file"));
    let hits = report["hits"].as_array()?;
    answer.push_str(if lines > MAX_REPORTED_HITS as u64 { ", for example:" } else { ":" });
    for hit in hits.iter().take(MAX_REPORTED_HITS) {
        let file = one_line(hit["file"].as_str()?, 200);
        let text = one_line(hit["text"].as_str()?, 120);
        let _ = write!(answer, "\n- {file}:{}: {text}", hit["line"]);
    }
    Some(append_note(answer, &report))
}

fn append_note(mut answer: String, report: &Value) -> String {
    if let Some(note) = report["note"].as_str() {
        let _ = write!(answer, " ({})", one_line(note, 200));
    }
    answer
}

fn pluralize(number: u64, thing: &str) -> String {
    match number {
        1 => format!("1 {thing}"),
        _ => format!("{number} {thing}s"),
    }
}
