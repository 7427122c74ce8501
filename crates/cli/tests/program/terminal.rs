//! The program on a terminal: Ctrl-C, the input line, approval questions and narrow
//! terminals.

use std::collections::HashSet;

use serde_json::json;
use turnstream::provider::Reply;
use turnstream_test_support::terminal::Terminal;
use turnstream_testing::ModelServer;

use crate::output::{
    LINE_COUNT_PROMPT, QUESTION_END, TempProject, WRITE_PROMPT, agent_command, assert_exit_code,
    run_on_terminal,
};

const CTRL_C: &str = "\u{3}";
const CTRL_D: &str = "\u{4}";
const BACKSPACE: &str = "\u{7f}";

/// Presses Ctrl-C at the prompt of the chat until the program ends: the time between two presses
/// is not known.
fn press_ctrl_c_until_exit(mut terminal: Terminal) -> (String, i32) {
    terminal.type_keys(CTRL_C);
    while terminal.wait_for_text_or_exit("Press Ctrl-C again within 2 s").is_some() {
        terminal.type_keys(CTRL_C);
    }
    terminal.wait_for_exit()
}

#[test]
fn one_ctrl_c_at_the_prompt_discards_the_line_and_two_end_the_chat() {
    let temp = TempProject::new();
    let mut terminal = Terminal::start(&agent_command(&temp.0, &[]));
    terminal.wait_for("\n> ");
    terminal.type_keys("half a line");
    terminal.wait_for("half a line");
    terminal.type_keys(CTRL_C);
    terminal.wait_for("Press Ctrl-C again within 2 s to end the chat.");
    terminal.wait_for("\n> ");
    terminal.type_keys("What is 2 + 3?\n");
    terminal.wait_for("2 + 3 is 5.");
    terminal.wait_for("-- completed");
    terminal.wait_for("\n> ");
    let (shown, code) = press_ctrl_c_until_exit(terminal);
    assert_eq!(code, 130, "{shown}");
    assert!(shown.ends_with("ended by Ctrl-C\r\n"), "{shown}");
}

/// Starts a chat with the model at `url`, whose first answer begins and does not end. The folder
/// exists as long as the first value.
fn start_unfinished_answer(url: &str) -> (TempProject, Terminal) {
    let temp = TempProject::new();
    let args = ["--provider", "anthropic", "--base-url", url];
    let mut terminal = Terminal::start(&agent_command(&temp.0, &args));
    terminal.wait_for("\n> ");
    terminal.type_keys("Hi\n");
    terminal.wait_for("So it begins");
    (temp, terminal)
}

/// A model whose first answer does not end. The chat is interrupted during this answer, after the
/// user has typed `typed`, and the text in the input line is sent after `keys`. Returns what was
/// printed, and the text that the model received then.
async fn interrupt_and_send(
    typed: &'static str,
    read_as: &'static str,
    restored: &'static str,
    keys: &'static str,
) -> (String, String) {
    let server = ModelServer::anthropic(|_, n| match n {
        0 => Reply::text("So it begins").hang(),
        _ => Reply::text("Done."),
    });
    let server = server.await.unwrap();
    let url = server.url();
    let ran = tokio::task::spawn_blocking(move || {
        let (_temp, mut terminal) = start_unfinished_answer(&url);
        terminal.type_keys(typed);
        terminal.wait_for(read_as);
        terminal.type_keys(CTRL_C);
        terminal.wait_for("can be sent again");
        terminal.wait_for("This text was not sent. Edit it, or press Enter to send it:");
        terminal.wait_for(&format!("\n> {restored}"));
        terminal.type_keys(keys);
        terminal.wait_for("-- completed");
        terminal.wait_for("\n> ");
        terminal.type_keys(CTRL_D);
        let (shown, code) = terminal.wait_for_exit();
        assert_eq!(code, 0, "{shown}");
        shown
    });
    let shown = ran.await.unwrap();
    let sent = server.requests();
    assert_eq!(sent.len(), 2, "{shown}");
    let last = sent[1]["messages"].as_array().unwrap().last().unwrap();
    let text = last["content"].as_array().unwrap().last().unwrap()["text"].as_str().unwrap();
    (shown, text.to_owned())
}

#[tokio::test]
async fn a_message_that_an_interrupted_run_did_not_send_is_back_in_the_input_line() {
    let sent = "Only in sec\n";
    let (_, text) = interrupt_and_send(sent, "will read: Only in sec)", "Only in sec", "\n").await;
    assert_eq!(text, "Only in sec");
    let keys = "\u{7f}\u{7f}rc\n";
    let (shown, text) =
        interrupt_and_send(sent, "will read: Only in sec)", "Only in sec", keys).await;
    assert_eq!(text, "Only in src", "{shown}");
    assert!(!shown.contains("not sent to the model"), "{shown}");
    let pasted = "one\ntwo\n";
    let (_, text) = interrupt_and_send(pasted, "will read: one two)", "one\u{23ce}two", "\n").await;
    assert_eq!(text, "one\ntwo");
}

#[tokio::test]
async fn a_line_that_is_being_typed_when_a_run_is_interrupted_is_not_lost() {
    let half = "only in sr";
    let (_, text) = interrupt_and_send(half, half, half, "c\n").await;
    assert_eq!(text, "only in src");
}

#[tokio::test]
async fn a_text_in_the_input_line_can_be_discarded() {
    let server = ModelServer::anthropic(|_, _| Reply::text("So it begins").hang()).await.unwrap();
    let url = server.url();
    let ran = tokio::task::spawn_blocking(move || {
        let (_temp, mut terminal) = start_unfinished_answer(&url);
        terminal.type_keys("more\n");
        terminal.wait_for("will read: more)");
        terminal.type_keys(CTRL_C);
        terminal.wait_for("\n> more");
        terminal.type_keys(CTRL_C);
        terminal.wait_for("Press Ctrl-C again");
        let prompt = terminal.wait_for("\n> ");
        // The terminal prints what is typed.
        terminal.type_keys(&format!("x{BACKSPACE}{CTRL_D}"));
        let (shown, code) = terminal.wait_for_exit();
        assert_eq!(code, 0, "{shown}");
        prompt
    });
    let prompt = ran.await.unwrap();
    assert!(!prompt.contains("more"), "{prompt}");
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn the_text_that_answers_an_approval_question_reaches_the_model_as_the_reason() {
    let server = ModelServer::anthropic(|_, n| match n {
        0 => Reply::new().call("write_file", json!({ "path": "notes.txt", "text": "x" })),
        _ => Reply::text("So be it."),
    });
    let server = server.await.unwrap();
    let url = server.url();
    let ran = tokio::task::spawn_blocking(move || {
        let args = ["--provider", "anthropic", "--base-url", &url, "Hi"];
        run_on_terminal(&TempProject::new(), &args, &[(QUESTION_END, "Put it in src\n")])
    });
    let (shown, code) = ran.await.unwrap();
    assert_eq!(code, 0, "{shown}");
    let reason = "Denied: the user did not approve it, and answered: Put it in src";
    assert!(shown.contains(&format!("! write_file {reason}")), "{shown}");
    let sent = server.requests()[1]["messages"].to_string();
    assert!(sent.contains(reason), "{sent}");
}

/// A model that writes a file for each message of the user. Its answer to the message with the
/// number `endless` does not end. Returns what was printed, and the requests.
async fn chat_with_writer(
    endless: Option<usize>,
    typed: &'static [(&'static str, &'static str)],
) -> (String, Vec<serde_json::Value>) {
    let server = ModelServer::anthropic(move |_, n| match n % 2 {
        _ if endless.is_some_and(|message| n == 2 * message) => Reply::text("So it begins").hang(),
        0 => {
            let path = format!("{n}.txt");
            Reply::new().call("write_file", json!({ "path": path, "text": "x" }))
        }
        _ => Reply::text("Written."),
    });
    let server = server.await.unwrap();
    let url = server.url();
    let ran = tokio::task::spawn_blocking(move || {
        let args = ["--provider", "anthropic", "--base-url", &url];
        run_on_terminal(&TempProject::new(), &args, typed)
    });
    let (shown, code) = ran.await.unwrap();
    assert_eq!(code, 0, "{shown}");
    (shown, server.requests())
}

#[tokio::test]
async fn a_tool_that_is_always_allowed_asks_again_after_the_permission_was_revoked() {
    let (shown, requests) = chat_with_writer(
        None,
        &[
            ("\n> ", "/revoke 1\n"),
            ("error: nothing was revoked: no call is always allowed", ""),
            ("\n> ", "Write one\n"),
            (QUESTION_END, "always\n"),
            ("-- completed", ""),
            ("\n> ", "Write two\n"),
            ("-- completed", ""),
            ("\n> ", "/grants\n"),
            ("Always allowed:\r\n  1. write_file with any arguments\r\n", ""),
            ("\n> ", "/revoke 7\n"),
            ("error: nothing was revoked: `/revoke` needs the number 1, as `/grants` shows", ""),
            ("\n> ", "/revoke 1\n"),
            ("revoked: write_file with any arguments", ""),
            ("\n> ", "/grants\n"),
            ("No call is always allowed.", ""),
            ("\n> ", "Write three\n"),
            (QUESTION_END, "n\n"),
            ("-- completed", ""),
            ("\n> ", CTRL_D),
        ],
    )
    .await;
    assert_eq!(shown.matches(QUESTION_END).count(), 2, "{shown}");
    assert_eq!(requests.len(), 6, "{shown}");
    let last = requests[5]["messages"].to_string();
    assert!(!last.contains("/grants") && !last.contains("/revoke"), "{last}");
}

#[tokio::test]
async fn a_permission_can_be_listed_and_revoked_while_the_model_answers() {
    let (shown, requests) = chat_with_writer(
        Some(1),
        &[
            ("\n> ", "Write one\n"),
            (QUESTION_END, "always\n"),
            ("-- completed", ""),
            ("\n> ", "Wait\n"),
            ("So it begins", "/grants\n"),
            ("  1. write_file with any arguments", "/revoke 1\n"),
            ("revoked: write_file with any arguments", CTRL_C),
            ("\n> ", "/grants\n"),
            ("No call is always allowed.", ""),
            ("\n> ", CTRL_D),
        ],
    )
    .await;
    assert_eq!(requests.len(), 3, "{shown}");
}

#[test]
fn ctrl_c_at_a_question_about_a_stored_call_ends_only_a_program_without_a_chat() {
    let temp = TempProject::new();
    let session = ["--session", "talk.jsonl"];
    let mut waits = agent_command(&temp.0, &[&session[..], &[WRITE_PROMPT]].concat());
    assert_exit_code(&waits.output().unwrap(), 1);
    let with_prompt = [&session[..], &["What is 2 + 3?"]].concat();
    let (shown, code) = run_on_terminal(&temp, &with_prompt, &[(QUESTION_END, CTRL_C)]);
    assert_eq!(code, 130, "{shown}");
    assert!(shown.ends_with("ended by Ctrl-C\r\n"), "{shown}");
    let typed = [
        (QUESTION_END, CTRL_C),
        ("session: the calls do not run unless", ""),
        ("\n> ", "What is 2 + 3?\n"),
        ("2 + 3 is 5.", ""),
        ("\n> ", CTRL_D),
    ];
    let (shown, code) = run_on_terminal(&temp, &session, &typed);
    assert_eq!(code, 0, "{shown}");
    assert!(!temp.0.join("notes.txt").exists(), "{shown}");
}

#[test]
fn the_first_line_on_a_terminal_describes_the_run() {
    for (args, typed) in [(&["2 + 3"][..], &[][..]), (&[], &[("\n> ", CTRL_D)])] {
        let temp = TempProject::new();
        let (shown, code) = run_on_terminal(&temp, args, typed);
        assert_eq!(code, 0, "{shown}");
        let mut lines = shown.lines();
        let first = lines.next().unwrap();
        let expected = "agent: the offline model, whose words are scripted, in ";
        assert_eq!(first, format!("{expected}{}", temp.0.display()), "{shown}");
        assert!(lines.next().unwrap().starts_with("You are asked before"), "{shown}");
    }
}

#[test]
fn the_slowed_offline_model_can_be_steered_and_interrupted() {
    let temp = TempProject::new();
    // The model does not reach its second word.
    let args = ["--offline-delay", "600000", LINE_COUNT_PROMPT];
    let typed = [("This", "In other.rs\n"), ("will read: In other.rs)", CTRL_C)];
    let (shown, code) = run_on_terminal(&temp, &args, &typed);
    assert_eq!(code, 1, "{shown}");
    for line in [
        "-- interrupted: 1 turn, at least ",
        "interrupted: 0 tool calls, 0 results, the history can be sent again",
        "not sent to the model: In other.rs",
    ] {
        assert!(shown.contains(line), "{shown}");
    }
}

#[test]
fn an_empty_line_interrupts_the_answer_so_that_the_typed_text_is_read_at_once() {
    let temp = TempProject::new();
    // The model does not reach its second word.
    let args = ["--offline-delay", "600000", LINE_COUNT_PROMPT];
    let typed = [
        ("This", "\nIn other.rs\n"),
        ("will read: In other.rs)", "\n"),
        ("(the answer is interrupted)", ""),
        // The first word of the next answer.
        ("I ", CTRL_C),
    ];
    let (shown, code) = run_on_terminal(&temp, &args, &typed);
    assert_eq!(code, 1, "{shown}");
    assert!(shown.contains("-- interrupted: 2 turns, at least "), "{shown}");
    assert!(!shown.contains("not sent to the model"), "{shown}");
}

/// The output of the program on a terminal with this number of columns.
fn shown_on(temp: &TempProject, columns: u16, args: &[&str], typed: &[(&str, &str)]) -> String {
    let mut terminal = Terminal::start_with_columns(columns, &agent_command(&temp.0, args));
    for (text, keys) in typed {
        terminal.wait_for(text);
        terminal.type_keys(keys);
    }
    let (shown, code) = terminal.wait_for_exit();
    assert_eq!(code, 0, "{shown}");
    shown
}

#[test]
fn no_word_is_broken_on_a_terminal_with_40_columns() {
    let temp = TempProject::new();
    let denies = [(QUESTION_END, "n\n")];
    let chats = [("\n> ", "What is 2 + 3?\n"), ("-- completed", ""), ("\n> ", CTRL_D)];
    for (args, typed) in [
        (&[LINE_COUNT_PROMPT][..], &[][..]),
        (&["where is `line`?"], &[]),
        (&[WRITE_PROMPT], &denies),
        (&[], &chats),
        (&["--help"], &[]),
    ] {
        let wide = shown_on(&temp, 1_000, args, typed);
        let narrow = shown_on(&temp, 40, args, typed);
        let too_long: Vec<&str> = narrow.lines().filter(|line| line.chars().count() > 40).collect();
        assert_eq!(too_long, [""; 0], "{narrow}");
        // The mark of a question differs, and long JSON is broken after its punctuation.
        let is_word = |word: &&str| {
            word.len() < 30 && word.chars().all(|c| c.is_alphanumeric() || "-./`'".contains(c))
        };
        let words: HashSet<&str> = narrow.split_whitespace().collect();
        let broken: Vec<&str> =
            wide.split_whitespace().filter(is_word).filter(|word| !words.contains(word)).collect();
        assert_eq!(broken, [""; 0], "{narrow}");
    }
}
