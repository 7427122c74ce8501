//! The formats of a step, for machines and for people.

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
        budgets: RemainingBudget { steps_remaining, ..RemainingBudget::default() },
    }
}

fn tool(tool: &str, expected: &str) -> TraceAction {
    let why = Rationale { expected_outcome: Some(expected.to_owned()), ..Rationale::default() };
    TraceAction::Tool { tool: tool.to_owned(), call_id: String::new(), args: None, why }
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

/// Checks both formats of a step, and that its JSON is parsed to the same step.
#[track_caller]
fn check(event: &TraceEvent, yaml: &str, json: &Value) {
    assert_eq!(event.to_string(), yaml.trim_start());
    assert_eq!(serde_json::to_value(event).unwrap(), *json);
    assert_eq!(serde_json::from_value::<TraceEvent>(json.clone()).unwrap(), *event);
}

#[test]
fn a_step_that_changes_files_lists_them() {
    let action = tool("apply_patch", "Glossary updated with Acceptance criteria and Budget");
    check(
        &step(2, action, patched(), Some(17)),
        r#"
step: 2
action:
  type: tool
  tool: apply_patch
  expected_outcome: "Glossary updated with Acceptance criteria and Budget"
result:
  changed_files:
    - book/glossary.md
  tool_exit: success
budgets:
  steps_remaining: 17
"#,
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
        r#"
step: 3
action:
  type: tool
  tool: markdown_check
  expected_outcome: "No markdown errors"
result:
  tool_exit: failure
  normalized_error:
    kind: "validation"
    summary: "Glossary terms not in alphabetical order"
  evidence:
    command: "markdownlint book/glossary.md"
    exit_code: 1
    stderr_snippet: "MD012/no-multiple-blanks: Multiple consecutive blank lines [Expected: 1; Actual: 2]"
budgets:
  steps_remaining: 16
"#,
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
        r#"
step: 4
action:
  type: tool
  tool: apply_patch
  expected_outcome: "Fix ordering/blank lines; markdown check passes"
result:
  changed_files:
    - book/glossary.md
  tool_exit: success
budgets:
  steps_remaining: 15
"#,
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
    let action = TraceAction::Stop { stop_reason: "success".to_owned(), text: String::new() };
    let result = TraceResult {
        verification_evidence: Some(Evidence::from_command("markdownlint book/glossary.md", 0)),
        ..TraceResult::default()
    };
    check(
        &step(5, action, result, None),
        r#"
step: 5
action:
  type: stop
  stop_reason: "success"
result:
  verification_evidence:
    command: "markdownlint book/glossary.md"
    exit_code: 0
"#,
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
    let failed = TraceResult {
        evidence: vec![evidence("pytest -q", 1, "E   AssertionError: expected 3, got 4")],
        ..exit(ToolExit::Failure)
    };
    let action = tool("run_tests", "Test suite passes");
    let (first, fourth) = (
        step(1, action.clone(), failed, Some(19)),
        step(
            4,
            action,
            TraceResult { evidence: vec![evidence("pytest -q", 0, "")], ..exit(ToolExit::Success) },
            Some(16),
        ),
    );
    let yaml = r#"
step: 1
action:
  type: tool
  tool: run_tests
  expected_outcome: "Test suite passes"
result:
  tool_exit: failure
  evidence:
    command: "pytest -q"
    exit_code: 1
    stderr_snippet: "E   AssertionError: expected 3, got 4"
budgets:
  steps_remaining: 19

step: 4
action:
  type: tool
  tool: run_tests
  expected_outcome: "Test suite passes"
result:
  tool_exit: success
  evidence:
    command: "pytest -q"
    exit_code: 0
budgets:
  steps_remaining: 16
"#;
    assert_eq!(format!("{first}\n{fourth}"), yaml.trim_start());
}

/// Checks how a string is written, quoted and, if possible, plain.
#[track_caller]
fn check_text(text: &str, bare: &str, quoted: &str) {
    let action = TraceAction::Stop { stop_reason: text.to_owned(), text: String::new() };
    let result = TraceResult { changed_files: vec![text.to_owned()], ..TraceResult::default() };
    let yaml = step(1, action, result, None).to_string();
    let mut lines = yaml.lines();
    assert!(lines.any(|line| line == format!("  stop_reason: {quoted}")), "{yaml}");
    assert!(lines.any(|line| line == format!("    - {bare}")), "{yaml}");
}

#[test]
fn strings_are_quoted_if_yaml_would_read_another_type() {
    for plain in ["a", "src/lib.rs", "/tmp/x-1.md", "_why", "nothing"] {
        check_text(plain, plain, &format!("{plain:?}"));
    }
    for odd in [
        "",
        " a",
        "a ",
        "a b",
        "true",
        "No",
        "NULL",
        "1",
        "1e3",
        ".5",
        "-",
        "- a",
        "a: b",
        "a #b",
        "#",
        "&a",
        "*a",
        "!a",
        "|",
        ">",
        "%",
        "@",
        "`",
        "'a'",
        "{}",
        "[]",
        "?",
        "~",
        "2026-01-01",
        "é",
        "0x1f",
        ".inf",
        "...",
        "---",
    ] {
        let quoted = format!("\"{odd}\"");
        check_text(odd, &quoted, &quoted);
    }
    for (odd, quoted) in [
        ("a\"b", r#""a\"b""#),
        ("a\\b", r#""a\\b""#),
        ("a\nb\r\tc", r#""a\nb\r\tc""#),
        ("\u{0}\u{1b}\u{7f}", r#""\u0000\u001b\u007f""#),
        ("\u{85}\u{2028}\u{feff}", r#""\u0085\u2028\ufeff""#),
        ("🦀", "\"🦀\""),
    ] {
        check_text(odd, quoted, quoted);
    }
}

#[test]
fn recorded_json_is_shown_with_its_fields_in_order() {
    let diff = RawJson::parse(r#"{"z":[{"b":1.5,"a":null},[],{},[true,"x"]],"a b":{"c":{}}}"#);
    let result = TraceResult { evidence: vec![diff.unwrap()], ..exit(ToolExit::Success) };
    let yaml = step(1, tool("t", "x"), result, None).to_string();
    let shown = yaml.split_once("  evidence:\n").unwrap().1;
    assert_eq!(
        shown,
        r#"    z:
      - b: 1.5
        a: null
      - []
      - {}
      - - true
        - "x"
    "a b":
      c: {}
"#
    );
}

#[test]
fn a_very_long_key_uses_explicit_yaml_key_syntax() {
    let name = "n".repeat(2_000);
    let result = TraceResult {
        evidence: vec![json!({ name.clone(): { "a": 1 }, "z": 2 }).into()],
        ..exit(ToolExit::Success)
    };
    let yaml = step(1, tool("t", "x"), result, None).to_string();
    let shown = yaml.split_once("  evidence:\n").unwrap().1;
    assert_eq!(shown, format!("    ? {name}\n    :\n      a: 1\n    z: 2\n"));
}

#[test]
fn the_full_format_shows_everything_needed_to_repeat_a_step() {
    let args = Some(RawJson::parse(r#"{"path":"a.md"}"#).unwrap());
    let (tool, call_id) = ("read".to_owned(), "c1".to_owned());
    let action = TraceAction::Tool { tool, call_id, args, why: Rationale::default() };
    let mut event = step(1, action, exit(ToolExit::Success), None);
    (event.turn, event.model) = (3, "m-1".to_owned());
    event.inputs = vec![json!({ "files": ["a.md"], "why": "it is asked for" }).into()];
    let shown = |yaml: &str| {
        ["turn: 3", "model: m-1", "call_id: c1", "path: \"a.md\""].map(|it| yaml.contains(it))
    };
    assert_eq!(shown(&event.as_yaml().to_string()), [false; 4]);
    assert_eq!(shown(&event.as_yaml().with_all_fields().to_string()), [true; 4]);
    assert!(event.to_string().contains("inputs:\n  - files:\n      - \"a.md\"\n    why:"));
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
    assert_eq!((read[0].as_ref().unwrap().step, read[2].as_ref().unwrap().step), (1, 1));
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
