//! The scripted replies of the model.

use serde_json::{Value, json};
use turnstream::provider::{Reply, Scripted};

use crate::GLOSSARY_PATH;

const ADD_PATCH: &str = " One event for every step.
+
+
+## Budget
+
+What a run may spend.
+
+## Acceptance criteria
+
+What has to be true before the work is done.
";

const FIX_PATCH: &str = " # Glossary

+## Acceptance criteria
+
+What has to be true before the work is done.
+
 ## Agent loop
@@
+## Budget
+
+What a run may spend.
+
 ## Evidence
@@
 One event for every step.
-
-
-## Budget
-
-What a run may spend.
-
-## Acceptance criteria
-
-What has to be true before the work is done.
";

const STOP_CONDITION: &str = "After the markdown check passes";

fn tool_call_reply(tool: &str, expected: &str, risk: &str, mut args: Value) -> Reply {
    args["path"] = json!(GLOSSARY_PATH);
    args["_why"] =
        json!({ "expected_outcome": expected, "stop_condition": STOP_CONDITION, "risk": risk });
    Reply::new().call(tool, args)
}

fn check_reply() -> Reply {
    tool_call_reply("markdown_check", "No markdown errors", "low", json!({}))
}

/// Reads the format, adds the terms, runs the check, and corrects what the check reports.
fn editing_replies() -> Vec<Reply> {
    let added = "Glossary updated with Acceptance criteria and Budget";
    let mended = "Fix ordering/blank lines; markdown check passes";
    vec![
        tool_call_reply("read_file", "The current format is known", "low", json!({})),
        tool_call_reply("apply_patch", added, "low", json!({ "input": ADD_PATCH })),
        check_reply(),
        tool_call_reply("apply_patch", mended, "low", json!({ "input": FIX_PATCH })),
    ]
}

/// Stops when the check has passed, with the command of the check as evidence.
fn stop_reply() -> Reply {
    let action = json!({
        "reason": "success",
        "summary": "The terms are added, and the check passes.",
        "evidence": format!("minimal_loop --check {GLOSSARY_PATH}"),
        "stop_condition": "the markdown check passes",
        "_why": { "expected_outcome": "The goal is reached" },
    });
    Reply::new().call("stop", action)
}

pub(crate) fn thorough_model() -> Scripted {
    Scripted::new(editing_replies().into_iter().chain([check_reply(), stop_reply()]))
}

/// Claims success without running the check again, and repeats the claim.
pub(crate) fn hasty_model() -> Scripted {
    let done = ["The terms are added and everything is in order.", "It is certainly in order."];
    Scripted::new(editing_replies().into_iter().chain(done.map(Reply::text)))
}
