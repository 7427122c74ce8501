//! The example `minimal_loop` as a program: its steps, for people and for machines, and its exit
//! codes.

use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use turnstream::trace::{RunInputs, ToolExit, TraceAction, TraceEvent, TraceLine, read_jsonl};
use turnstream_test_support::programs::example_program;

#[track_caller]
fn run_example(name: &str, args: &[&str]) -> Output {
    Command::new(example_program(name)).args(args).stdin(Stdio::null()).output().unwrap()
}

fn utf8_string(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Some fields of the steps: an edit, a check that fails, the corrected edit, the end.
fn expected_steps() -> [Value; 4] {
    let stop_condition = "After the markdown check passes";
    [
        json!({
            "step": 2,
            "action": {
                "type": "tool",
                "tool": "apply_patch",
                "expected_outcome": "Glossary updated with Acceptance criteria and Budget",
                "stop_condition": stop_condition,
                "risk": "low",
            },
            "result": { "changed_files": ["book/glossary.md"], "tool_exit": "success" },
            "budgets": { "steps_remaining": 17 },
        }),
        json!({
            "step": 3,
            "action": {
                "type": "tool",
                "tool": "markdown_check",
                "expected_outcome": "No markdown errors",
                "stop_condition": stop_condition,
                "risk": "low",
            },
            "result": {
                "tool_exit": "failure",
                "normalized_error": {
                    "kind": "validation",
                    "summary":
                        "Glossary terms not in alphabetical order: `Budget` comes after `Trace`",
                },
                "evidence": {
                    "command": "minimal_loop --check book/glossary.md",
                    "exit_code": 1,
                },
            },
        }),
        json!({
            "step": 4,
            "action": {
                "type": "tool",
                "tool": "apply_patch",
                "expected_outcome": "Fix ordering/blank lines; markdown check passes",
                "stop_condition": stop_condition,
                "risk": "low",
            },
            "result": { "changed_files": ["book/glossary.md"], "tool_exit": "success" },
            "budgets": { "steps_remaining": 15 },
        }),
        json!({
            "step": 7,
            "action": {
                "type": "stop",
                "stop_reason": "success",
                "stop_action": {
                    "reason": "success",
                    "evidence": "minimal_loop --check book/glossary.md",
                    "stop_condition": "the markdown check passes",
                },
            },
            "result": {
                "verification_evidence": {
                    "command": "minimal_loop --check book/glossary.md",
                    "exit_code": 0,
                },
            },
        }),
    ]
}

/// Returns whether `value` has all fields of `part`.
fn contains(value: &Value, part: &Value) -> bool {
    match part {
        Value::Object(fields) => fields.iter().all(|(name, part)| contains(&value[name], part)),
        part => value == part,
    }
}

#[test]
fn a_failed_check_leads_to_a_fix_and_the_end_cites_the_passing_check() {
    let output = run_example("minimal_loop", &[]);
    let out = utf8_string(&output.stdout);
    assert_eq!(
        (output.status.code(), utf8_string(&output.stderr).as_str()),
        (Some(0), ""),
        "{out}"
    );
    let (head, steps) = out.split_once("\n\n").unwrap();
    assert!(head.contains("scripted"), "{out}");
    let (steps, end) = steps.rsplit_once("\n\n").unwrap();
    let steps: Vec<Value> =
        steps.split("\n\n").map(|step| serde_json::from_str(step).unwrap()).collect();
    assert_eq!(steps.len(), 7);
    for expected in expected_steps() {
        assert!(steps.iter().any(|step| contains(step, &expected)), "{expected} is not in {out}");
    }
    assert!(out.contains(
        "MD012/no-multiple-blanks: Multiple consecutive blank lines [Expected: 1; Actual: 2]"
    ));
    assert_eq!(end, "success after 7 steps; evidence: `minimal_loop --check book/glossary.md`\n");
}

fn read_trace(output: &Output) -> Vec<TraceEvent> {
    let lines = read_jsonl(&output.stdout[..]).map(Result::unwrap);
    lines.filter_map(TraceLine::into_step).collect()
}

#[test]
fn the_printed_lines_are_the_trace_steps_and_sufficient_to_repeat_them() {
    let output = run_example("minimal_loop", &["--json"]);
    let steps = read_trace(&output);
    assert_eq!(output.status.code(), Some(0));
    let (yes, no) = (ToolExit::Success, ToolExit::Failure);
    let exits: Vec<_> = steps.iter().filter_map(|step| step.result.tool_exit).collect();
    // The last call is that to `stop`.
    assert_eq!(exits, [yes, yes, no, yes, yes, yes]);
    for (at, step) in steps.iter().enumerate() {
        assert_eq!((step.step as usize, step.turn as usize), (at + 1, (at + 1).min(6)));
        assert!(step.time.is_some());
        match &step.action {
            TraceAction::Tool { args, call_id, why, .. } => {
                assert!(args.is_some() && !call_id.is_empty());
                assert!(why.expected_outcome.is_some());
            }
            TraceAction::Stop { .. } => assert_eq!(at, 6),
            other => panic!("{other:?}"),
        }
    }
    let inputs: RunInputs = steps[0].inputs[0].deserialize_as().unwrap();
    assert_eq!(inputs.goal, "Add two glossary terms and ensure formatting");
    assert_eq!(inputs.tools, ["read_file", "apply_patch", "markdown_check", "stop"]);
    assert_eq!(inputs.budgets.steps_remaining, Some(19));
    assert!(inputs.repository.is_some() && inputs.snapshot.is_some());
}

#[test]
fn a_claim_repeated_without_a_check_is_not_a_success() {
    let output = run_example("minimal_loop", &["--json", "--hasty"]);
    assert_eq!(output.status.code(), Some(1));
    let steps = read_trace(&output);
    let last = steps.last().unwrap();
    let TraceAction::Stop { stop_reason, .. } = &last.action else { panic!("no end") };
    assert_eq!(stop_reason, "unproven");
    assert!(last.result.missing.as_deref().is_some_and(|it| it.contains("has not passed since")));
    assert!(matches!(&steps[4].action, TraceAction::Say { .. }));
    assert_eq!(last.result.verification_evidence, None);
}

#[test]
fn the_check_is_an_ordinary_process() {
    let file = std::env::temp_dir().join(format!("glossary-{}.md", std::process::id()));
    let check = |text: &str| {
        std::fs::write(&file, text).unwrap();
        run_example("minimal_loop", &["--check", file.to_str().unwrap()]).status.code()
    };
    let codes = [check("## A\n\n## B\n"), check("## B\n\n\n## A\n"), check("## A")];
    std::fs::remove_file(&file).unwrap();
    let gone = run_example("minimal_loop", &["--check", file.to_str().unwrap()]);
    assert_eq!(codes, [Some(0), Some(1), Some(1)]);
    assert_eq!(gone.status.code(), Some(2));
}

#[test]
fn a_trace_file_can_be_read_and_pretty_printed() {
    let lines = run_example("minimal_loop", &["--json"]);
    let file = std::env::temp_dir().join(format!("trace-{}.jsonl", std::process::id()));
    std::fs::write(&file, &lines.stdout).unwrap();
    let path = file.to_str().unwrap();
    let (printed, whole) = (run_example("trace", &[path]), run_example("trace", &["--all", path]));
    std::fs::write(&file, [&lines.stdout[..], b"{\"step\":8}\n"].concat()).unwrap();
    let broken = run_example("trace", &[path]);
    std::fs::remove_file(&file).unwrap();
    let shown = utf8_string(&printed.stdout);
    let shown: Vec<&str> = shown.lines().collect();
    let (iterations, shown): (Vec<&str>, Vec<&str>) =
        shown.into_iter().partition(|line| line.starts_with("     turn "));
    assert_eq!((shown.len(), iterations.len()), (7, 6));
    assert!(iterations[0].starts_with("     turn 1 after "), "{iterations:?}");
    assert!(iterations[0].ends_with(" ms: next_turn") && iterations[5].ends_with(": the end"));
    assert_eq!(shown[1], "  2  apply_patch       success; changed book/glossary.md");
    assert!(
        shown[2].starts_with("  3  markdown_check    failure; Glossary terms not"),
        "{shown:?}"
    );
    assert_eq!(shown[6], "  7  stop              success; `minimal_loop --check book/glossary.md`");
    assert!(utf8_string(&whole.stdout).contains("      \"path\": \"book/glossary.md\""));
    assert_eq!((printed.status.code(), broken.status.code()), (Some(0), Some(1)));
    assert!(
        utf8_string(&broken.stderr).starts_with("line 14 of the trace is not a step"),
        "{broken:?}"
    );
}
