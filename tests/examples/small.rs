//! The small examples, run as a new user would run them: the essential lines of their output, and a
//! successful exit.

use std::process::{Command, Stdio};

use turnstream_test_support::programs::example_program;
#[cfg(target_os = "linux")]
use turnstream_test_support::terminal::Terminal;

/// The output of an example without input.
#[track_caller]
fn run_example(name: &str, args: &[&str]) -> String {
    let output =
        Command::new(example_program(name)).args(args).stdin(Stdio::null()).output().unwrap();
    let out = String::from_utf8(output.stdout).unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{name}: {out}\n{err}");
    assert!(out.contains("scripted"), "it says whose words these are: {out}");
    out
}

/// Checks that the lines are in the output, in this order.
#[track_caller]
fn assert_lines_in_order(out: &str, expected: &[&str]) {
    let mut lines = out.lines();
    for line in expected {
        assert!(lines.any(|it| it.contains(line)), "`{line}` is missing, or not in order: {out}");
    }
}

#[cfg(feature = "http")]
#[test]
fn agent_reads_a_file_that_it_found_in_the_working_directory() {
    let folder = std::env::temp_dir().join(format!("turnstream-agent-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("leaves")).unwrap();
    std::fs::write(folder.join("tea.md"), "# Tea\n\nIt is hot.\n").unwrap();
    let mut command = Command::new(example_program("agent"));
    command.current_dir(&folder).arg("What is here?").stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().ends_with("_API_KEY") {
            command.env_remove(name);
        }
    }
    let output = command.output().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let out = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{out}");
    let expected = [
        "No API key is set: the model's words are scripted, the files are real.",
        "I have not seen this directory yet, so I list it.",
        r#"[list_directory {"path":"."}]"#,
        "[2 lines]",
        "The page tea.md may describe it.",
        r#"[read_file {"path":"tea.md"}]"#,
        "[3 lines]",
        "The page begins with the line: # Tea",
        "completed: 3 requests, 600 tokens sent, 60 received",
    ];
    assert_eq!(out.lines().collect::<Vec<_>>(), expected);
}

#[cfg(feature = "skills")]
#[test]
fn skills_are_listed_loaded_and_read() {
    let out = run_example("skills", &[]);
    let expected = [
        "> - commit: Writes commit messages.",
        "[load_skill]",
        "files: types.md",
        "Write one line in the imperative",
        "[read_skill_file]",
        "fix: for bugs",
        "fix: accept CRLF line ends",
    ];
    assert_lines_in_order(&out, &expected);
}

#[test]
fn approval_runs_approved_calls_in_both_forms() {
    let out = run_example("approval", &["--yes"]);
    let form = ["draft.txt\"}? [y/N] --yes", "thesis.txt\"}? [y/N] --yes", "completed: I did"];
    let suspended =
        ["# suspended", "ends as pending, 2 calls wait for a verdict"].iter().chain(&form);
    let interactive = ["# interactive"].iter().chain(&form);
    let lines: Vec<&str> = suspended.chain(interactive).copied().collect();
    assert_lines_in_order(&out, &lines);
    assert_eq!(out.matches("Files left: 0").count(), 2, "{out}");
}

#[test]
fn approval_runs_no_denied_call() {
    for args in [&["--no"][..], &[]] {
        let out = run_example("approval", args);
        let denied = "The model reads: Denied: the user wants to keep it";
        assert_eq!(out.matches(denied).count(), 4, "{out}");
        assert_eq!(out.matches("Files left: 2").count(), 2, "{out}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn approval_ignores_input_typed_before_its_question() {
    let program = example_program("approval");
    let mut terminal = Terminal::start(&Command::new(program));
    // Two answers to the first of four questions.
    terminal.wait_for("draft.txt\"}? [y/N] ");
    terminal.type_keys("y\ny\n");
    for question in ["thesis.txt\"}? [y/N] ", "draft.txt\"}? [y/N] ", "thesis.txt\"}? [y/N] "] {
        terminal.wait_for(question);
        terminal.type_keys("\n");
    }
    let (shown, code) = terminal.wait_for_exit();
    assert_eq!(code, 0, "{shown}");
    let left: Vec<_> = shown.lines().filter(|line| line.starts_with("Files left: ")).collect();
    assert_eq!(left, ["Files left: 1", "Files left: 2"], "{shown}");
}

#[cfg(target_os = "linux")]
#[test]
fn on_a_terminal_the_chat_shows_a_prompt() {
    let program = example_program("chat");
    let mut terminal = Terminal::start(&Command::new(program));
    terminal.wait_for("\n> ");
    terminal.type_keys("Hi\n");
    let answer = terminal.wait_for("\n> ");
    assert!(answer.contains("You said: Hi (completed)"), "{answer}");
    terminal.type_keys("\u{4}");
    let (shown, code) = terminal.wait_for_exit();
    assert_eq!(code, 0, "{shown}");
    assert!(shown.contains("2 items are in the history, settled: true"), "{shown}");
}

#[cfg(target_os = "linux")]
#[test]
fn on_a_terminal_the_trace_example_prints_that_it_reads_stdin() {
    let program = example_program("trace");
    let mut terminal = Terminal::start(&Command::new(program));
    terminal.wait_for("Waiting for a trace on stdin, JSON lines; Ctrl-D ends it.");
    terminal.type_keys("\u{4}");
    let (shown, code) = terminal.wait_for_exit();
    assert_eq!(code, 0, "{shown}");
}

#[test]
fn auto_compaction_preserves_early_facts_in_the_summary() {
    let out = run_example("auto_compaction", &[]);
    assert_lines_in_order(
        &out,
        &[
            "is nearly full at 1600",
            "with the page",
            "compacted: ",
            "Summary of the conversation up to here",
            "completed, ",
            "> What is my boat called?",
            "It is called Ondine: the summary says so.",
            "items are in the history, settled: true",
        ],
    );
}

#[test]
fn own_store_keeps_the_conversation_for_the_next_process() {
    let out = run_example("own_store", &[]);
    let question = r#"{"type":"user","content":"What is a store?"}"#;
    let answer = r#""text":"A store is a list that only grows.""#;
    assert_lines_in_order(&out, &[question, answer]);
    assert_eq!(out.lines().count(), 2, "{out}");
}

#[test]
fn own_wire_runs_a_tool_and_answers_from_its_result() {
    let out = run_example("own_wire", &[]);
    assert_lines_in_order(
        &out,
        &["Quillworks is made up", "completed: quill-1 says 10, after 2 turns"],
    );
}

#[test]
fn budget_prints_the_usage_and_the_limit_that_ended_the_run() {
    let out = run_example("budget", &[]);
    assert_lines_in_order(
        &out,
        &[
            "# token limit",
            "budget after",
            "ended by TotalTokens",
            "# cost limit",
            "that I could afford",
            "tokens, $0.0",
            "ended by Money: $0.0",
            "# a pool",
            "My reader ran out of tokens, and so did I.",
            "sub-agents: ",
            "ended by Pool",
            "the boss reads: That is what I found in the pages that I could afford. [stopped early: its budget was spent",
            "of 4000 tokens used",
        ],
    );
}

#[test]
fn fallback_discards_retracted_output_and_continues_with_the_other_model() {
    let out = run_example("fallback", &[]);
    let retracted = "retracted: \"The clock says that it \"";
    let mut lines = vec!["# with_fallback", "shaky has answered"];
    lines.extend([retracted, "request to steady: fallback"]);
    lines.extend(["steady has answered", "request to steady: next_turn"]);
    lines.extend(["completed, 46 tokens", "# Fallback"]);
    lines.extend([retracted, "overloaded, trying again in ", retracted]);
    lines.extend(["steady has answered", "request to shaky: next_turn"]);
    lines.extend([retracted, "overloaded, trying again in ", retracted]);
    lines.push("completed, 184 tokens");
    assert_lines_in_order(&out, &lines);
    let screens: Vec<_> = out.lines().filter(|line| line.starts_with("The screen: ")).collect();
    assert_eq!(screens.len(), 2, "{out}");
    for screen in screens {
        let begins = "The screen: I look at the clock. / Let me look again. / It is ";
        assert!(screen.starts_with(begins) && !screen.contains("says that it"), "{screen}");
    }
}

#[test]
fn model_escalation_stays_with_the_stronger_model() {
    let out = run_example("model_escalation", &[]);
    let lines = [
        "turn 1, cheap:",
        "[escalate]",
        "turn 2, strong:",
        "turn 3, strong: The 10,001st prime is 104743.",
        "The next run on this history uses strong.",
    ];
    for line in lines {
        assert!(out.contains(line), "{out}");
    }
}

#[test]
fn sub_agents_are_distinguished_and_leave_their_transcripts() {
    let out = run_example("sub_agents", &[]);
    for name in ["benches", "examples", "tests"] {
        assert_lines_in_order(
            &out,
            &[
                "coordinator: I ask all three.",
                &format!("coordinator/{name}: I count `{name}`."),
                &format!("({name}: `count` returned "),
                &format!("(coordinator: `{name}` returned "),
                "coordinator: The answers: ",
                "coordinator is done: completed, 2 turns",
                "The transcripts:",
            ],
        );
    }
    assert!(out.contains("[stopped early: the step limit was reached"), "{out}");
    assert!(out.contains("coordinator/tests is done: max_turns, 2 turns"), "{out}");
    assert_eq!(out.lines().filter(|line| line.contains("items, the last text: ")).count(), 3);
}
