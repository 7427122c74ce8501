//! "Fix one failing unit test and verify": the tests run and fail, the fix is applied, and the run
//! stops only when the test command has passed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::StreamExt;
use serde_json::{Value, json};
use turnstream::agent::Limits;
use turnstream::agent::evidence::RequireEvidence;
use turnstream::item::Evidence;
use turnstream::provider::{Reply, Scripted};
use turnstream::tool::{Tool, ToolContext, Toolkit};
use turnstream::{Agent, EventStreamExt};

use turnstream_test_support::tools::{constant_tool, spec};

const FAILURE: &str = "E   AssertionError: expected 3, got 4";

/// The tools of a repository whose test fails until a patch is applied.
fn repository_tools() -> [Tool; 3] {
    let is_fixed = Arc::new(AtomicBool::new(false));
    let patched = Arc::clone(&is_fixed);
    let apply_patch = Tool::raw(spec("apply_patch"), move |_, cx: ToolContext| {
        patched.store(true, Ordering::SeqCst);
        cx.record_change("src/count.py");
        async { "applied" }
    });
    let run_tests = Tool::raw(spec("run_tests"), move |_, cx: ToolContext| {
        let passes = is_fixed.load(Ordering::SeqCst);
        let evidence = Evidence::from_command("pytest -q", i32::from(!passes));
        cx.record_evidence(if passes { evidence } else { evidence.with_stderr(FAILURE) });
        async move { if passes { Ok("1 passed") } else { Err(FAILURE) } }
    });
    [run_tests.unwrap(), constant_tool("read_file", "return 4"), apply_patch.unwrap()]
}

fn action(tool: &str, expected: &str) -> Reply {
    Reply::new().call(tool, json!({ "_why": { "expected_outcome": expected } }))
}

#[tokio::test]
async fn the_run_stops_only_when_the_test_command_exits_with_0() {
    let model = Scripted::new([
        action("run_tests", "Test suite passes"),
        action("read_file", "The defect is known"),
        // A claim without a passing test is rejected.
        Reply::text("The test must be wrong."),
        action("apply_patch", "Defect fixed"),
        action("run_tests", "Test suite passes"),
        Reply::text("`pytest -q` passes."),
    ]);
    let mut policy = RequireEvidence::new();
    policy.read_only_tools = ["run_tests", "read_file"].map(str::to_owned).to_vec();
    let agent = Agent::new(model)
        .with_toolkit(Toolkit::new(repository_tools()).first_call_only().with_required_rationale())
        .with_limits(Limits { max_turns: Some(20), ..Limits::default() })
        .with_evidence(policy);
    let trace = agent.new_trace();
    agent.run("Fix one failing unit test and verify").trace_to(&trace).for_each(|_| async {}).await;

    let steps: Vec<Value> =
        trace.events().iter().map(|step| serde_json::to_value(step).unwrap()).collect();
    let first = json!({
        "tool_exit": "failure",
        "evidence": { "command": "pytest -q", "exit_code": 1, "stderr_snippet": FAILURE },
    });
    let shown = |step: &Value| json!({ "tool_exit": step["result"]["tool_exit"], "evidence": step["result"]["evidence"] });
    assert_eq!(shown(&steps[0]), first);
    assert_eq!(steps[0]["action"]["expected_outcome"], "Test suite passes");
    assert_eq!(steps[0]["budgets"]["steps_remaining"], 19);
    assert_eq!(steps[2]["action"]["type"], "say");
    let passed = json!({ "command": "pytest -q", "exit_code": 0 });
    assert_eq!(shown(&steps[4]), json!({ "tool_exit": "success", "evidence": passed }));
    let last = steps.last().unwrap();
    assert_eq!(last["action"]["stop_reason"], "success");
    assert_eq!(last["result"]["verification_evidence"], passed);
}
