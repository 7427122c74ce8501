//! What the model says, word for word.

use serde_json::{Value, json};
use turnstream::provider::{Reply, Scripted};

use crate::FILE;

const ADD: &str = " One event for every step.
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

const MEND: &str = " # Glossary

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

const STOP: &str = "After the markdown check passes";

fn act(tool: &str, expected: &str, risk: &str, mut args: Value) -> Reply {
    args["path"] = json!(FILE);
    args["_why"] = json!({ "expected_outcome": expected, "stop_condition": STOP, "risk": risk });
    Reply::new().call(tool, args)
}

fn check() -> Reply {
    act("markdown_check", "No markdown errors", "low", json!({}))
}

/// Learns the format, adds the terms, checks, and mends what the check complains of.
fn begin() -> Vec<Reply> {
    let added = "Glossary updated with Acceptance criteria and Budget";
    let mended = "Fix ordering/blank lines; markdown check passes";
    vec![
        act("read_file", "The current format is known", "low", json!({})),
        act("apply_patch", added, "low", json!({ "input": ADD })),
        check(),
        act("apply_patch", mended, "low", json!({ "input": MEND })),
    ]
}

/// Stops when the check has passed.
pub(crate) fn thorough() -> Scripted {
    let done = Reply::text("The terms are added, and `minimal_loop --check` passes.");
    Scripted::new(begin().into_iter().chain([check(), done]))
}

/// Takes its intention for the outcome, and insists on it.
pub(crate) fn hasty() -> Scripted {
    let done = ["The terms are added and everything is in order.", "It is certainly in order."];
    Scripted::new(begin().into_iter().chain(done.map(Reply::text)))
}
