//! A minimal loop that ends successfully only with evidence: one action per step, and a trace event
//! for each action.
//!
//! The goal is to add two terms to a glossary. The first edit reads well but fails the check; the
//! check's output leads to a second edit; the check passes; and the run ends and cites it. The
//! files, the patches and the check, which is a separate process, are real. The model's text is
//! scripted.
//!
//! ```text
//! cargo run --example minimal_loop              the steps, for people
//! cargo run --example minimal_loop -- --json    the same as JSON lines
//! cargo run --example minimal_loop -- --hasty   a model that does not check its second edit
//! cargo run --example minimal_loop -- --check FILE    the check alone
//! ```
//!
//! It exits with 0 only if the run succeeded and cited its evidence.

mod check;
mod model;
mod patch;
mod tools;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs, io};

use futures::StreamExt;
use serde_json::json;
use turnstream::agent::Limits;
use turnstream::agent::evidence::RequireEvidence;
use turnstream::env::SystemClock;
use turnstream::trace::TraceAction;
use turnstream::{Agent, EventStreamExt, Tool, Toolkit};

use crate::tools::{Root, apply_patch, markdown_check, read_file};

const GOAL: &str = "Add two glossary terms and ensure formatting";
const GLOSSARY_PATH: &str = "book/glossary.md";

const INITIAL_GLOSSARY: &str = "\
# Glossary

## Agent loop

Plan, act, observe, and repeat.

## Evidence

A check that was run, and its result.

## Trace

One event for every step.
";

/// How the run's events are printed.
#[derive(Clone, Copy, PartialEq)]
enum OutputFormat {
    Pretty,
    Json,
}

/// A folder that is deleted on drop.
struct TempFolder(PathBuf);

impl TempFolder {
    fn new() -> io::Result<Self> {
        let path = env::temp_dir().join(format!("minimal_loop-{}", std::process::id()));
        fs::create_dir_all(path.join("book"))?;
        fs::write(path.join(GLOSSARY_PATH), INITIAL_GLOSSARY)?;
        Ok(Self(path))
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let (shown, hasty) = match args[..] {
        ["--check", file] => return check::check_file(Path::new(file)),
        [] => (OutputFormat::Pretty, false),
        ["--json"] => (OutputFormat::Json, false),
        ["--hasty"] => (OutputFormat::Pretty, true),
        ["--json", "--hasty"] | ["--hasty", "--json"] => (OutputFormat::Json, true),
        _ => {
            eprintln!("usage: minimal_loop [--json] [--hasty] | --check FILE");
            return ExitCode::from(2);
        }
    };
    match run_agent(shown, hasty).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns a checksum of the glossary, which identifies the state before the run.
fn snapshot(root: &Path) -> io::Result<String> {
    let mut hasher = DefaultHasher::new();
    fs::read(root.join(GLOSSARY_PATH))?.hash(&mut hasher);
    Ok(format!("{:016x}", hasher.finish()))
}

/// Returns whether the run succeeded with evidence.
async fn run_agent(shown: OutputFormat, hasty: bool) -> Result<bool, Box<dyn std::error::Error>> {
    let folder = TempFolder::new()?;
    let root = Root::new(folder.0.clone());
    let tools = [read_file(&root), apply_patch(&root), markdown_check(&root), Tool::stop()];
    let mut policy = RequireEvidence::new();
    policy.read_only_tools = ["read_file", "markdown_check"].map(str::to_owned).to_vec();
    let agent = Agent::new(if hasty { model::hasty_model() } else { model::thorough_model() })
        .with_system("You keep the glossary of a book. One action at a time.")
        // A call that does not say what it expects is refused, and the fixes are bounded.
        .with_toolkit(Toolkit::new(tools).first_call_only().with_required_rationale())
        .with_limits(Limits { max_turns: Some(19), end_after_failed_fixes: 3, ..Limits::default() })
        .with_evidence(policy);

    let trace = agent.new_trace().with_clock(SystemClock);
    let mut inputs = agent.run_inputs(GOAL);
    inputs.repository = Some(folder.0.display().to_string());
    inputs.snapshot = Some(snapshot(&folder.0)?);
    trace.add_input(inputs);
    trace.add_input(json!({ "files": [GLOSSARY_PATH], "why": "the goal names the glossary" }));
    if shown == OutputFormat::Json {
        trace.write_to(io::stdout());
    } else {
        println!("The model is scripted; files, patches and the check are real.\n");
    }
    let mut steps = 0;
    let mut run = agent.run(format!("{GOAL}. The file is {GLOSSARY_PATH}.")).trace_to(&trace);
    while let Some(event) = run.next().await {
        event?;
        let all = trace.events();
        for step in all.iter().skip(steps).filter(|_| shown == OutputFormat::Pretty) {
            println!("{}\n", serde_json::to_string_pretty(step)?);
        }
        steps = all.len();
    }
    let Some(last) = trace.last_event() else { return Ok(false) };
    let TraceAction::Stop { stop_reason, .. } = &last.action else { return Ok(false) };
    let proof = last.result.verification_evidence.as_ref();
    if shown == OutputFormat::Pretty {
        let proof = proof.map_or_else(|| "none".to_owned(), |it| format!("`{}`", it.command));
        println!("{stop_reason} after {steps} steps; evidence: {proof}");
        if let Some(missing) = &last.result.missing {
            println!("missing: {missing}");
        }
    }
    trace.failure().map_or(Ok(()), Err)?;
    Ok(stop_reason == "success" && proof.is_some())
}
