//! Reads a trace as JSON lines, and prints it for people, one line for each step, and one at the
//! end of each iteration of the loop.
//!
//! ```text
//! cargo run --example minimal_loop -- --json > run.jsonl
//! cargo run --example trace -- run.jsonl
//! cargo run --example trace -- --all < run.jsonl    all fields, as indented JSON
//! ```

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::process::ExitCode;

use turnstream::trace::{IterationSpan, TraceAction, TraceEvent, TraceLine, read_jsonl};

fn main() -> ExitCode {
    match print_trace() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn print_trace() -> Result<(), Box<dyn std::error::Error>> {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let whole = args.iter().position(|arg| arg == "--all").map(|at| args.remove(at)).is_some();
    let from: Box<dyn BufRead> = match &args[..] {
        [] => {
            if io::stdin().is_terminal() {
                eprintln!("Waiting for a trace on stdin, JSON lines; Ctrl-D ends it.");
            }
            Box::new(io::stdin().lock())
        }
        [path] => {
            let file = File::open(path).map_err(|error| format!("`{path}`: {error}"))?;
            Box::new(BufReader::new(file))
        }
        _ => return Err("usage: trace [--all] [FILE]".into()),
    };
    let mut out = io::stdout().lock();
    for line in read_jsonl(from) {
        match line? {
            // The arguments of calls are indented too.
            TraceLine::Step(step) if whole => {
                writeln!(out, "{:#}", serde_json::to_value(&step)?)?;
            }
            TraceLine::Step(step) => writeln!(out, "{}", summary(&step))?,
            TraceLine::Iteration(iteration) => writeln!(out, "{}", iteration_end(&iteration))?,
            _ => {}
        }
    }
    Ok(())
}

/// Describes the end of an iteration on one line: its request, how long it took, and why another
/// one follows.
fn iteration_end(iteration: &IterationSpan) -> String {
    let time = iteration.time.map(|time| format!(" after {} ms", time.duration_ms));
    let next = iteration.continued.map_or_else(|| "the end".to_owned(), |why| why.to_string());
    format!("     turn {}{}: {next}", iteration.turn, time.unwrap_or_default())
}

/// Summarizes a step on one line: its number, what was done, how it ended, and what it changed.
fn summary(step: &TraceEvent) -> String {
    let (action, details) = match &step.action {
        TraceAction::Tool { tool, .. } => (tool.as_str(), None),
        TraceAction::Say { text, .. } => ("say", Some(text.clone())),
        TraceAction::Stop { stop_reason, .. } => ("stop", Some(stop_reason.clone())),
        TraceAction::Helper { usage, .. } => ("helper", Some(format!("{} tokens", usage.total()))),
        _ => ("?", None),
    };
    let result = &step.result;
    let changed = result.changed_files.iter().map(|file| format!("changed {file}"));
    let error = result.normalized_error.iter().map(|error| error.summary.clone());
    let missing = result.missing.iter().map(|missing| format!("missing: {missing}"));
    let proof = result.verification_evidence.iter().map(|proof| format!("`{}`", proof.command));
    let exit = result.tool_exit.iter();
    let exit = exit.filter_map(|exit| Some(serde_json::to_value(exit).ok()?.as_str()?.to_owned()));
    let details: Vec<String> =
        exit.chain(details).chain(changed).chain(error).chain(missing).chain(proof).collect();
    format!("{:>3}  {action:<16}  {}", step.step, details.join("; "))
}
