//! Traces of runs.

use std::time::{Duration, SystemTime};

use futures::StreamExt;
use serde_json::json;
use turnstream::agent::Budget;
use turnstream::env::{Clock, CountingIds};
use turnstream::item::Evidence;
use turnstream::provider::{Reply, Scripted};
use turnstream::tool::{Tool, ToolContext};
use turnstream::trace::{TraceLine, read_jsonl};
use turnstream::{Agent, EventStreamExt, Toolkit};

use crate::{assert_written, stored};
use turnstream_test_support::buffer::SharedBuffer;
use turnstream_test_support::clock::paused_runtime;
use turnstream_test_support::tools::spec;

/// A clock that shows the same date all the time.
struct StoppedClock;

impl Clock for StoppedClock {
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000)
    }
}

/// An agent that edits a file, checks it twice, and stops with the check.
fn editing_agent() -> Agent {
    let edit = Tool::raw(spec("edit"), |_, cx: ToolContext| async move {
        cx.record_change("a.md");
        cx.record_creation("b.md");
        "edited"
    });
    let check = Tool::raw(spec("check"), |args: serde_json::Value, cx: ToolContext| async move {
        let code = i32::try_from(args["code"].as_i64().unwrap_or_default()).unwrap_or_default();
        cx.record_evidence(Evidence::from_command("lint", code).with_stderr("two blank lines"));
        "checked"
    });
    let why =
        json!({ "expected_outcome": "no errors", "stop_condition": "lint passes", "risk": "low" });
    let model = Scripted::new([
        Reply::new().call("edit", json!({ "_why": why })),
        Reply::new().call("check", json!({ "code": 1 })),
        Reply::text("A plan."),
        Reply::new().call("check", json!({})),
        Reply::new()
            .call("stop", json!({ "reason": "success", "summary": "Done.", "evidence": "lint" })),
    ]);
    let tools = [edit.unwrap(), check.unwrap(), Tool::stop()];
    Agent::new(model)
        .with_ids(CountingIds::new("id"))
        .with_toolkit(Toolkit::new(tools).with_rationale())
        .with_budget(Budget::new().with_total_tokens(1_000))
        .with_evidence(turnstream::agent::evidence::RequireEvidence::new())
}

#[test]
fn a_trace_is_written_in_its_stored_format() {
    let (agent, out) = (editing_agent(), SharedBuffer::new());
    let trace = agent.new_trace().with_clock(StoppedClock);
    trace.add_input(agent.run_inputs("Edit a.md"));
    trace.write_to(out.clone());
    paused_runtime().block_on(agent.run("go").trace_to(&trace).for_each(|_| async {}));
    assert_written("trace.jsonl", &out.text());

    let (mut steps, mut iterations) = (Vec::new(), Vec::new());
    for line in read_jsonl(stored("trace.jsonl").as_bytes()) {
        match line.unwrap() {
            TraceLine::Step(step) => steps.push(*step),
            TraceLine::Iteration(iteration) => iterations.push(iteration),
            other => panic!("{other:?}"),
        }
    }
    assert!(steps == trace.events());
    assert_eq!(iterations, trace.iterations());
    assert!(iterations.len() >= 5, "{iterations:?}");
}
