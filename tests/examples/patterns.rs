//! The examples of patterns as programs: their output and their exit codes.

use std::process::{Command, Stdio};

use turnstream_test_support::programs::example_program;

/// Runs an example, and checks that it exits with 0, writes nothing to stderr, and prints these
/// lines in this order, maybe with others between them.
#[track_caller]
fn assert_prints_lines(name: &str, lines: &[&str]) {
    let program = example_program(name);
    let mut command = Command::new(program);
    for name in ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "NO_PROXY", "no_proxy"] {
        command.env_remove(name);
    }
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (out, err) = (text(output.stdout), text(output.stderr));
    assert_eq!((output.status.code(), err.as_str()), (Some(0), ""), "{out}");
    assert!(out.lines().next().is_some_and(|line| line.contains("scripted")), "{out}");
    let mut said = out.lines().map(str::trim);
    for line in lines {
        assert!(said.any(|said| said == *line), "`{line}` is not printed:\n{out}");
    }
}

#[test]
fn a_chat_steers_follows_up_interrupts_and_loses_no_message() {
    assert_prints_lines(
        "chat",
        &[
            "> How is the log? (Input)",
            "Let me look. [look runs]",
            "> Only the errors, please (Steer)",
            "You said: Only the errors, please",
            "> Thanks! (FollowUp)",
            "You said: Thanks! (completed)",
            "> Tell me a story without an end (Input)",
            "You said: (interrupted)",
            "> Sorry, I had to go (Input)",
            "You said: Sorry, I had to go (completed)",
            "12 items are in the history, settled: true",
        ],
    );
}

#[test]
fn a_matched_word_in_the_stream_closes_the_connection_and_leaves_a_settled_history() {
    let closed = "the server saw 1 connection close early";
    let paired = "1 call, 1 result, settled: true";
    assert_prints_lines(
        "mid_stream_abort",
        &[
            "By a drop:",
            "look_up runs",
            "received: The password",
            closed,
            paired,
            "By an interrupt:",
            "look_up runs",
            "received: The password",
            "the outcome: interrupted, 2 requests",
            closed,
            paired,
        ],
    );
}

#[test]
fn council_members_stream_concurrently_and_a_drop_cancels_all_of_them() {
    assert_prints_lines(
        "model_council",
        &[
            "quick | In",
            "careful | In",
            "quick | file.",
            "careful | factor.",
            "of 2 answers the best is careful's: a file can be read",
            "2 requests were streaming; after the drop 0 are",
        ],
    );
    assert_prints_lines("model_council", &["absent does not answer: no key", "quick | file."]);
}

#[test]
fn a_custom_body_reports_its_decisions() {
    assert_prints_lines(
        "own_body",
        &[
            "iteration 1: RunTools",
            "iteration 2: RunTools",
            "iteration 3: Stop",
            "completed after 3 turns: Six and four.",
        ],
    );
}

#[test]
fn a_run_paused_or_dropped_in_a_tool_is_continued_by_another_process() {
    assert_prints_lines(
        "pause_and_resume",
        &[
            "count has started; it is not polled for a while, and nothing happens",
            "1 request, 1 open call",
            "stopped after turn 1",
            "another process begins with 4 items",
            "That was all. The counts: [\"7\", \"5\"]",
            "dropped: 1 call is open, settled: false",
            "answered: `Interrupted mid-execution`, settled: true",
            "continued: That was all.",
        ],
    );
}

#[test]
fn objects_are_used_while_they_stream_and_discarded_when_the_turn_is_retracted() {
    assert_prints_lines(
        "streaming_structured_output",
        &[
            "Atlantis has 0 people",
            "discarded: 1 city",
            "skipped: line 1: the answer is not JSON: expected value at line 1 column 1",
            "Oslo has 717710 people",
            "Trondheim has 214565 people",
            "3 cities are left, in 1 item of the turn",
            r#"form: Some("Oslo") None []"#,
            r#"form: Some("Oslo") Some(717710) []"#,
            r#"form: Some("Oslo") Some(717710) ["Frog"]"#,
            "the largest is Oslo: true",
            "one of its districts: Frogner",
        ],
    );
}

#[test]
fn a_recorded_run_is_replayed_stopped_and_continued_with_another_result() {
    assert_prints_lines(
        "replay",
        &[
            "recorded: It takes 9 hours.",
            "at step 2: 4 items, 1 request sent",
            "changed: It takes 11 hours.",
        ],
    );
}
