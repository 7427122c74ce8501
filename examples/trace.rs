//! Reads a trace as JSON lines, and prints it for people.
//!
//! ```text
//! cargo run --example minimal_loop -- --json > run.jsonl
//! cargo run --example trace -- run.jsonl
//! cargo run --example trace -- --all < run.jsonl    with arguments, ids and models
//! ```

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::process::ExitCode;

use turnstream::trace::read_jsonl;

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
    for (at, step) in read_jsonl(from).enumerate() {
        let step = step?;
        let gap = if at == 0 { "" } else { "\n" };
        match whole {
            true => write!(out, "{gap}{}", step.as_yaml().with_all_fields())?,
            false => write!(out, "{gap}{step}")?,
        }
    }
    Ok(())
}
