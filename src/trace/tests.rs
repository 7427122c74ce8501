//! The JSON of a step.

use serde_json::{Value, json};

use super::*;
use crate::item::{Evidence, RawJson, SideEffect};
use crate::tool::Rationale;

fn step(
    step: u32,
    action: TraceAction,
    result: TraceResult,
    steps_remaining: Option<u64>,
) -> TraceEvent {
    TraceEvent {
        step,
        turn: 0,
        model: String::new(),
        within: Vec::new(),
        inputs: Vec::new(),
        action,
        result,
        time: None,
        budgets: RemainingBudget { steps_remaining, ..RemainingBudget::default() },
    }
}

fn tool(tool: &str, expected: &str) -> TraceAction {
    let why = Rationale { expected_outcome: Some(expected.to_owned()), ..Rationale::default() };
    TraceAction::Tool {
        tool: tool.to_owned(),
        call_id: String::new(),
        args: None,
        why,
        grant_id: None,
    }
}

fn exit(exit: ToolExit) -> TraceResult {
    TraceResult { tool_exit: Some(exit), ..TraceResult::default() }
}

fn patched() -> TraceResult {
    TraceResult { changed_files: vec!["book/glossary.md".to_owned()], ..exit(ToolExit::Success) }
}

fn evidence(command: &str, exit_code: i32, stderr: &str) -> RawJson {
    RawJson::new(&Evidence::from_command(command, exit_code).with_stderr(stderr)).unwrap()
}

/// Checks the JSON of a step, and that it is parsed to the same step.
#[track_caller]
fn check(event: &TraceEvent, json: &Value) {
    assert_eq!(event.to_string(), json.to_string());
    assert_eq!(serde_json::from_value::<TraceEvent>(json.clone()).unwrap(), *event);
}

#[test]
fn a_step_that_changes_files_lists_them() {
    let action = tool("apply_patch", "Glossary updated with Acceptance criteria and Budget");
    check(
        &step(2, action, patched(), Some(17)),
        &json!({
            "step": 2,
            "action": {
                "type": "tool",
                "tool": "apply_patch",
                "expected_outcome": "Glossary updated with Acceptance criteria and Budget",
            },
            "result": { "changed_files": ["book/glossary.md"], "tool_exit": "success" },
            "budgets": { "steps_remaining": 17 },
        }),
    );
}

#[test]
fn a_failed_check_shows_its_error() {
    let stderr =
        "MD012/no-multiple-blanks: Multiple consecutive blank lines [Expected: 1; Actual: 2]";
    let error = NormalizedError {
        kind: FailureKind::Validation,
        summary: "Glossary terms not in alphabetical order".to_owned(),
    };
    let result = TraceResult {
        normalized_error: Some(error),
        evidence: vec![evidence("markdownlint book/glossary.md", 1, stderr)],
        ..exit(ToolExit::Failure)
    };
    check(
        &step(3, tool("markdown_check", "No markdown errors"), result, Some(16)),
        &json!({
            "step": 3,
            "action": {
                "type": "tool",
                "tool": "markdown_check",
                "expected_outcome": "No markdown errors",
            },
            "result": {
                "tool_exit": "failure",
                "normalized_error": {
                    "kind": "validation",
                    "summary": "Glossary terms not in alphabetical order",
                },
                "evidence": {
                    "command": "markdownlint book/glossary.md",
                    "exit_code": 1,
                    "stderr_snippet": stderr,
                },
            },
            "budgets": { "steps_remaining": 16 },
        }),
    );
}

#[test]
fn a_fix_is_shown_as_a_change() {
    let action = tool("apply_patch", "Fix ordering/blank lines; markdown check passes");
    check(
        &step(4, action, patched(), Some(15)),
        &json!({
            "step": 4,
            "action": {
                "type": "tool",
                "tool": "apply_patch",
                "expected_outcome": "Fix ordering/blank lines; markdown check passes",
            },
            "result": { "changed_files": ["book/glossary.md"], "tool_exit": "success" },
            "budgets": { "steps_remaining": 15 },
        }),
    );
}

#[test]
fn a_successful_end_shows_the_passing_check() {
    let action = TraceAction::Stop {
        stop_reason: "success".to_owned(),
        text: String::new(),
        stop_action: None,
    };
    let result = TraceResult {
        verification_evidence: Some(Evidence::from_command("markdownlint book/glossary.md", 0)),
        ..TraceResult::default()
    };
    check(
        &step(5, action, result, None),
        &json!({
            "step": 5,
            "action": { "type": "stop", "stop_reason": "success" },
            "result": {
                "verification_evidence": {
                    "command": "markdownlint book/glossary.md",
                    "exit_code": 0,
                },
            },
        }),
    );
}

#[test]
fn failing_and_passing_test_runs_are_shown() {
    let check_run = |n, exit_code, stderr, exit_kind, shown: &Value| {
        let evidence = vec![evidence("pytest -q", exit_code, stderr)];
        let result = TraceResult { evidence, ..exit(exit_kind) };
        let action = json!({
            "type": "tool", "tool": "run_tests", "expected_outcome": "Test suite passes",
        });
        check(
            &step(n, tool("run_tests", "Test suite passes"), result, Some(20 - u64::from(n))),
            &json!({
                "step": n, "action": action, "result": shown,
                "budgets": { "steps_remaining": 20 - n },
            }),
        );
    };
    let stderr = "E   AssertionError: expected 3, got 4";
    let failed = json!({ "command": "pytest -q", "exit_code": 1, "stderr_snippet": stderr });
    check_run(
        1,
        1,
        stderr,
        ToolExit::Failure,
        &json!({ "tool_exit": "failure", "evidence": failed }),
    );
    let passed = json!({ "command": "pytest -q", "exit_code": 0 });
    check_run(4, 0, "", ToolExit::Success, &json!({ "tool_exit": "success", "evidence": passed }));
}

#[test]
fn recorded_json_is_written_unchanged() {
    let diff = r#"{"z":[{"b":1.5,"a":null},[],{},[true,"x"]],"a b":{"c":{}}}"#;
    let evidence = vec![RawJson::parse(diff).unwrap()];
    let result = TraceResult { evidence, ..exit(ToolExit::Success) };
    let line = step(1, tool("t", "x"), result, None).to_string();
    assert!(line.contains(&format!(r#""evidence":{diff}"#)), "{line}");
}

#[test]
fn a_step_contains_everything_needed_to_repeat_it() {
    let args = Some(RawJson::parse(r#"{"path":"a.md"}"#).unwrap());
    let (tool, call_id) = ("read".to_owned(), "c1".to_owned());
    let action =
        TraceAction::Tool { tool, call_id, args, why: Rationale::default(), grant_id: None };
    let mut event = step(1, action, exit(ToolExit::Success), None);
    (event.turn, event.model) = (3, "m-1".to_owned());
    let input = json!({ "files": ["a.md"], "why": "it is asked for" });
    event.inputs = vec![input.clone().into()];
    check(
        &event,
        &json!({
            "step": 1, "turn": 3, "model": "m-1", "inputs": [input],
            "action": {
                "type": "tool", "tool": "read", "call_id": "c1", "args": { "path": "a.md" },
            },
            "result": { "tool_exit": "success" },
        }),
    );
}

#[test]
fn one_piece_of_evidence_is_a_value_and_several_are_a_list() {
    for (evidence, written) in [
        (vec![json!({ "diff": "x" })], json!({ "diff": "x" })),
        (vec![json!(1), json!("b")], json!([1, "b"])),
        (vec![json!([1])], json!([[1]])),
    ] {
        let evidence: Vec<RawJson> = evidence.into_iter().map(RawJson::from).collect();
        let result = TraceResult { evidence, ..TraceResult::default() };
        assert_eq!(serde_json::to_value(&result).unwrap(), json!({ "evidence": written }));
        let text = serde_json::to_string(&result).unwrap();
        assert_eq!(serde_json::from_str::<TraceResult>(&text).unwrap(), result);
    }
}

#[test]
fn side_effects_of_unknown_kinds_are_kept() {
    let sent = SideEffect { kind: "sent".to_owned(), target: "a@b.c".to_owned() };
    let result = TraceResult { side_effects: vec![sent], ..TraceResult::default() };
    let text = serde_json::to_string(&result).unwrap();
    assert_eq!(text, r#"{"side_effects":[{"kind":"sent","target":"a@b.c"}]}"#);
}

#[test]
fn unknown_fields_are_ignored_and_errors_have_the_line_number() {
    let good = r#"{"step":1,"later":{},"action":{"type":"say","text":"x","later":1},"result":{"later":2},"budgets":{"later":3}}"#;
    let lines = format!("{good}\r\n\n  \n{{\n{good}");
    let read: Vec<_> = read_jsonl(lines.as_bytes()).collect();
    assert_eq!(read.len(), 3);
    let step = |at: usize| read[at].clone().unwrap().into_step().unwrap().step;
    assert_eq!((step(0), step(2)), (1, 1));
    let error = read[1].as_ref().unwrap_err().to_string();
    assert!(error.contains("line 4 of the trace"), "{error}");
}

#[test]
fn a_non_utf8_line_is_an_error_and_an_io_error_ends_the_reader() {
    struct Broken;

    impl std::io::Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("gone"))
        }
    }

    assert_eq!(read_jsonl(&b"\xff\n{}"[..]).filter(Result::is_err).count(), 2);
    let read: Vec<_> = read_jsonl(std::io::BufReader::new(Broken)).collect();
    let [Err(error)] = &read[..] else { panic!("not one error") };
    assert!(error.to_string().contains("line 1 of the trace cannot be read: gone"), "{error}");
}
