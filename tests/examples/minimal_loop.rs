//! The example `minimal_loop` as a program: its steps, for people and for machines, and its exit
//! codes.

use std::process::{Command, Output, Stdio};

use turnstream::trace::{ToolExit, TraceAction, TraceEvent, read_jsonl};

use crate::support::programs::example_program;

#[track_caller]
fn run_example(name: &str, args: &[&str]) -> Output {
    Command::new(example_program(name)).args(args).stdin(Stdio::null()).output().unwrap()
}

fn utf8_string(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The displayed steps: an edit, a check that fails, the corrected edit, the end.
const EXPECTED_STEPS: [&str; 4] = [
    r#"step: 2
action:
  type: tool
  tool: apply_patch
  expected_outcome: "Glossary updated with Acceptance criteria and Budget"
  stop_condition: "After the markdown check passes"
  risk: low
result:
  changed_files:
    - book/glossary.md
  tool_exit: success
budgets:
  steps_remaining: 17
"#,
    r#"step: 3
action:
  type: tool
  tool: markdown_check
  expected_outcome: "No markdown errors"
  stop_condition: "After the markdown check passes"
  risk: low
result:
  tool_exit: failure
  normalized_error:
    kind: "validation"
    summary: "Glossary terms not in alphabetical order: `Budget` comes after `Trace`"
  evidence:
    command: "minimal_loop --check book/glossary.md"
    exit_code: 1
    stderr_snippet: "#,
    r#"step: 4
action:
  type: tool
  tool: apply_patch
  expected_outcome: "Fix ordering/blank lines; markdown check passes"
  stop_condition: "After the markdown check passes"
  risk: low
result:
  changed_files:
    - book/glossary.md
  tool_exit: success
budgets:
  steps_remaining: 15
"#,
    r#"step: 6
action:
  type: stop
  stop_reason: "success"
result:
  verification_evidence:
    command: "minimal_loop --check book/glossary.md"
    exit_code: 0
"#,
];

#[test]
fn a_failed_check_leads_to_a_fix_and_the_end_cites_the_passing_check() {
    let output = run_example("minimal_loop", &[]);
    let out = utf8_string(&output.stdout);
    assert_eq!(
        (output.status.code(), utf8_string(&output.stderr).as_str()),
        (Some(0), ""),
        "{out}"
    );
    assert!(out.lines().next().is_some_and(|line| line.contains("scripted")), "{out}");
    let mut rest = out.as_str();
    for step in EXPECTED_STEPS {
        rest = rest.split_once(step).unwrap_or_else(|| panic!("{step} is not in {out}")).1;
    }
    assert!(out.contains(
        "MD012/no-multiple-blanks: Multiple consecutive blank lines [Expected: 1; Actual: 2]"
    ));
    assert!(
        rest.contains("success after 6 steps; evidence: `minimal_loop --check book/glossary.md`"),
        "{rest}"
    );
}

fn read_trace(output: &Output) -> Vec<TraceEvent> {
    read_jsonl(&output.stdout[..]).map(Result::unwrap).collect()
}

#[test]
fn the_printed_lines_are_the_trace_steps_and_sufficient_to_repeat_them() {
    let output = run_example("minimal_loop", &["--json"]);
    let steps = read_trace(&output);
    assert_eq!(output.status.code(), Some(0));
    let (yes, no) = (ToolExit::Success, ToolExit::Failure);
    let exits: Vec<_> = steps.iter().filter_map(|step| step.result.tool_exit).collect();
    assert_eq!(exits, [yes, yes, no, yes, yes]);
    for (at, step) in steps.iter().enumerate() {
        assert_eq!((step.step as usize, step.turn as usize), (at + 1, at + 1));
        match &step.action {
            TraceAction::Tool { args, call_id, .. } => {
                assert!(args.is_some() && !call_id.is_empty());
            }
            TraceAction::Stop { .. } => assert_eq!(at, 5),
            other => panic!("{other:?}"),
        }
    }
    assert!(steps[0].inputs[0].as_str().contains("Add two glossary terms"));
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
    let (lines, people) =
        (run_example("minimal_loop", &["--json"]), run_example("minimal_loop", &[]));
    let file = std::env::temp_dir().join(format!("trace-{}.jsonl", std::process::id()));
    std::fs::write(&file, &lines.stdout).unwrap();
    let path = file.to_str().unwrap();
    let (printed, whole) = (run_example("trace", &[path]), run_example("trace", &["--all", path]));
    std::fs::write(&file, [&lines.stdout[..], b"{\"step\":7}\n"].concat()).unwrap();
    let broken = run_example("trace", &[path]);
    std::fs::remove_file(&file).unwrap();
    assert!(utf8_string(&people.stdout).contains(&utf8_string(&printed.stdout)));
    assert!(utf8_string(&whole.stdout).contains("\n  args:\n    path: \"book/glossary.md\"\n"));
    assert_eq!((printed.status.code(), broken.status.code()), (Some(0), Some(1)));
    assert!(
        utf8_string(&broken.stderr).starts_with("line 7 of the trace is not a step"),
        "{broken:?}"
    );
}
