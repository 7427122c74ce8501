//! The program as other programs run it: its output and its exit codes.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use turnstream::event::EndReason;
use turnstream::provider::Reply;
use turnstream::session::{JsonLinesStore, Store};
use turnstream::turn::{StopReason, Text};
use turnstream::{Error, ErrorKind, Event, Outcome};
#[cfg(target_os = "linux")]
use turnstream_test_support::terminal::Terminal;
use turnstream_testing::ModelServer;

pub(crate) const LINE_COUNT_PROMPT: &str =
    "How many lines of Rust are in src, and which file is the longest?";

/// A directory to ask about, removed on drop.
pub(crate) struct TempProject(pub(crate) PathBuf);

impl TempProject {
    pub(crate) fn new() -> Self {
        static NEXT_NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("turnstream-program-{}-{number}", std::process::id());
        let temp = Self(std::env::temp_dir().join(name));
        temp.write_file("src/short.rs", "fn a() {}\n");
        temp.write_file("src/deep/long.rs", &"// line\n".repeat(321));
        temp.write_file("src/notes.md", &"text\n".repeat(1_000));
        temp.write_file("other.rs", &"// line\n".repeat(2_000));
        temp
    }

    pub(crate) fn write_file(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

impl Drop for TempProject {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The program, without a key.
pub(crate) fn agent_command(directory: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_turnstream"));
    command.current_dir(directory).args(args).stdin(Stdio::null());
    for name in ["ANTHROPIC", "OPENAI", "GEMINI", "OLLAMA"] {
        command.env_remove(format!("{name}_API_KEY")).env_remove(format!("{name}_BASE_URL"));
    }
    command.env_remove("RUST_LOG");
    for name in ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "NO_PROXY", "no_proxy"] {
        command.env_remove(name);
    }
    command
}

pub(crate) fn utf8_str(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[track_caller]
pub(crate) fn assert_exit_code(output: &Output, code: i32) {
    let (out, err) = (utf8_str(&output.stdout), utf8_str(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "stdout: {out}\nstderr: {err}");
}

/// Checks for a one-line error on stderr, and no output on stdout.
#[track_caller]
pub(crate) fn assert_bad_usage(output: &Output, words: &str) {
    assert_exit_code(output, 2);
    let err = utf8_str(&output.stderr);
    assert_eq!(utf8_str(&output.stdout), "");
    assert!(err.starts_with("error: ") && err.lines().count() == 1, "{err}");
    assert!(err.contains(words), "{err}");
}

/// The events of `--json`, the error on the line before `finished`, and the outcome.
#[track_caller]
pub(crate) fn parse_json_output(stdout: &[u8]) -> (Vec<Event>, Option<Error>, Outcome) {
    let (mut events, mut error) = (Vec::new(), None);
    for line in utf8_str(stdout).lines() {
        assert!(error.is_none() || line.starts_with(r#"{"type":"finished""#), "{line}");
        if line.starts_with(r#"{"type":"error""#) {
            error = Some(serde_json::from_str(line).unwrap());
            continue;
        }
        let event: Event = serde_json::from_str(line).unwrap();
        assert_ne!(event, Event::Unknown, "{line}");
        events.push(event);
    }
    let outcome = events.last().and_then(Event::outcome).expect("`finished` comes last").clone();
    assert_eq!(events.iter().filter(|event| event.outcome().is_some()).count(), 1);
    (events, error, outcome)
}

fn run_with_stdin(mut command: Command, input: &[u8]) -> Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn the_printed_counts_match_the_source_tree() {
    let temp = TempProject::new();
    let mut agent = agent_command(&temp.0, &[LINE_COUNT_PROMPT]);
    // The proxy of the environment is not used for the loopback device.
    let output = agent.env("HTTP_PROXY", "http://127.0.0.1:1").output().unwrap();
    assert_exit_code(&output, 0);
    let (out, err) = (utf8_str(&output.stdout), utf8_str(&output.stderr));
    for part in ["322 lines of Rust", "2 files", "`src/deep/long.rs` with 321 lines", "scripted"] {
        assert!(out.contains(part), "{out}");
    }
    for part in ["> count_lines", "< count_lines", "> list_directory", "-- completed: 2 turns"] {
        assert!(err.contains(part) && !out.contains(part), "{err}");
    }
    assert!(!out.contains('\u{1b}') && !err.contains('\u{1b}'), "no colors without a terminal");
}

#[test]
fn with_json_every_line_is_an_event_and_finished_comes_last() {
    let temp = TempProject::new();
    let mut agent = agent_command(&temp.0, &["--json", LINE_COUNT_PROMPT]);
    let output = agent.output().unwrap();
    assert_exit_code(&output, 0);
    assert_eq!(utf8_str(&output.stderr), "");
    let (events, error, outcome) = parse_json_output(&output.stdout);
    assert_eq!((error, outcome.reason, outcome.turns), (None, EndReason::Completed, 2));
    assert!(outcome.text.contains("322") && outcome.usage.total() > 0);
    let streamed: String = events.iter().filter_map(Event::text_delta).map(Text::as_str).collect();
    assert!(streamed.ends_with(&outcome.text), "{streamed}");
    assert_eq!(events.iter().filter(|event| event.tool_output().is_some()).count(), 2);
}

#[tokio::test]
async fn with_json_no_terminal_control_character_is_printed() {
    const UNSAFE_TEXT: &str = "a\u{9b}2J\u{7f}\u{2028}\u{202e}b";
    for reply in
        [|| Reply::text(UNSAFE_TEXT), || Reply::error(Error::new(ErrorKind::Auth, UNSAFE_TEXT))]
    {
        let output = run_against_reply(reply, true).await;
        let out = utf8_str(&output.stdout);
        let is_raw = |c: char| (c.is_control() && c != '\n') || "\u{2028}\u{202e}".contains(c);
        assert!(!out.contains(is_raw) && out.contains(r"\u202e"), "{}", out.escape_default());
        let (.., outcome) = parse_json_output(&output.stdout);
        let said = outcome.error.map_or(outcome.text, |error| error.message().to_owned());
        assert!(said.contains('\u{202e}'), "{}", said.escape_default());
    }
}

#[test]
fn with_json_an_error_is_printed_on_the_line_before_finished() {
    let temp = TempProject::new();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("http://{closed}");
    for provider in ["openai", "anthropic"] {
        let args = ["--json", "--base-url", &url, "--provider", provider, "Hi"];
        let mut agent = agent_command(&temp.0, &args);
        let output = agent.output().unwrap();
        assert_exit_code(&output, 1);
        let (_, error, outcome) = parse_json_output(&output.stdout);
        assert_eq!(error.as_ref().map(Error::kind), Some(ErrorKind::Connect));
        assert_eq!((outcome.error, outcome.reason), (error, EndReason::ProviderError));
        let err = utf8_str(&output.stderr);
        assert!(err.starts_with("error: ") && err.lines().count() == 1, "{err}");
    }
}

#[test]
fn bad_usage_is_one_line_and_exit_code_2() {
    let temp = TempProject::new();
    for (args, words) in [
        (&["--nonsense"][..], "--nonsense"),
        (&["--provider", "acme", "Hi"], "there is no provider `acme`"),
        (&["--provider", "acme\n\u{1b}[2J", "Hi"], "acme \u{fffd}[2J"),
        (&["--max-turns", "few", "Hi"], "few"),
        (&["--base-url", "no url", "Hi"], "base URL"),
        (&["--provider", "offline", "--base-url", "http://localhost", "Hi"], "--base-url"),
        (&["--model"], "--model"),
        (&[" "], "empty"),
    ] {
        let mut agent = agent_command(&temp.0, args);
        assert_bad_usage(&agent.output().unwrap(), words);
    }
}

#[cfg(not(feature = "mcp"))]
#[test]
fn without_the_feature_mcp_a_server_is_bad_usage() {
    let temp = TempProject::new();
    for flag in ["--mcp", "--mcp-config"] {
        let mut agent = agent_command(&temp.0, &[flag, "server", "Hi"]);
        let words = "this build has no MCP: run it with --features mcp";
        assert_bad_usage(&agent.output().unwrap(), words);
    }
}

#[tokio::test]
async fn an_api_key_is_sent_over_plain_http_to_another_host_only_with_the_named_flag() {
    // The model server acts as the proxy.
    let server = ModelServer::anthropic(|_, _| Reply::text("Hello.")).await.unwrap();
    let temp = TempProject::new();
    let url = "http://gpu.example:8000";
    for (flag, code) in [(None, 1), (Some("--plain-http"), 0)] {
        let mut args = vec!["--provider", "anthropic", "--base-url", url, "Hi"];
        args.extend(flag);
        let mut agent = agent_command(&temp.0, &args);
        agent.env("ANTHROPIC_API_KEY", "sk-ant-top-secret").env("HTTP_PROXY", server.url());
        let ran = tokio::task::spawn_blocking(move || agent.output().unwrap()).await.unwrap();
        assert_exit_code(&ran, code);
        let err = utf8_str(&ran.stderr);
        assert_eq!(err.contains("allow it with `--plain-http`"), flag.is_none(), "{err}");
        assert_eq!(utf8_str(&ran.stdout).contains("Hello."), flag.is_some(), "{err}");
        assert_eq!(server.requests().len(), usize::from(flag.is_some()));
    }
}

#[tokio::test]
async fn an_ollama_server_is_used_over_its_own_wire_without_a_key_and_tools_run() {
    let server = ModelServer::ollama(|_, n| match n {
        0 => Reply::new().call("read_file", json!({ "path": "src/short.rs" })),
        _ => Reply::text("It is short."),
    });
    let server = server.await.unwrap();
    let temp = TempProject::new();
    let mut agent = agent_command(&temp.0, &["--json", "--provider=ollama", "Hi"]);
    agent.env("OLLAMA_BASE_URL", server.url());
    let ran = tokio::task::spawn_blocking(move || agent.output().unwrap()).await.unwrap();
    assert_exit_code(&ran, 0);
    let (.., outcome) = parse_json_output(&ran.stdout);
    assert_eq!((outcome.text.as_str(), outcome.turns), ("It is short.", 2));
    let sent = server.requests();
    assert_eq!((sent.len(), &sent[0]["model"]), (2, &json!("qwen3:8b")));
    assert!(sent[1].to_string().contains("fn a() {}"), "{}", sent[1]);
    assert_eq!(server.violations(), [""; 0]);
}

#[test]
fn a_missing_key_error_names_the_environment_variable() {
    let temp = TempProject::new();
    for (args, variable) in [
        (["--provider=openai", "Hi"], "`OPENAI_API_KEY`"),
        (["--provider=gemini", "Hi"], "`GEMINI_API_KEY`"),
        (["--dialect=deepseek", "Hi"], "`DEEPSEEK_API_KEY`"),
    ] {
        let mut agent = agent_command(&temp.0, &args);
        let output = agent.env_remove("DEEPSEEK_API_KEY").output().unwrap();
        assert_exit_code(&output, 1);
        let err = utf8_str(&output.stderr);
        let line = err.lines().find(|line| line.starts_with("error: ")).unwrap();
        assert!(line.contains("needs a key") && line.contains(variable), "{line}");
    }
}

#[test]
fn help_goes_to_stdout() {
    let temp = TempProject::new();
    let mut agent = agent_command(&temp.0, &["--help"]);
    let output = agent.output().unwrap();
    assert_exit_code(&output, 0);
    assert!(utf8_str(&output.stdout).contains("--base-url URL") && output.stderr.is_empty());
}

#[test]
fn without_arguments_the_prompt_is_read_from_stdin() {
    let temp = TempProject::new();
    for args in [&["--json"][..], &["--json", "--"]] {
        let agent = agent_command(&temp.0, args);
        let output = run_with_stdin(agent, format!("\n  {LINE_COUNT_PROMPT}\n\n").as_bytes());
        assert_exit_code(&output, 0);
        let (events, _, outcome) = parse_json_output(&output.stdout);
        assert!(outcome.text.contains("322"));
        let Event::Appended { items, .. } = &events[0] else { panic!("{:?}", events[0]) };
        assert_eq!(items, &[turnstream::Item::user(LINE_COUNT_PROMPT)]);
    }
}

#[test]
fn an_empty_or_unreadable_stdin_is_bad_usage() {
    let temp = TempProject::new();
    for (input, words) in [(&b""[..], "empty"), (b" \n\t\n", "empty"), (b"\xff\xfe", "UTF-8")] {
        for args in [&[][..], &["--json"]] {
            let agent = agent_command(&temp.0, args);
            assert_bad_usage(&run_with_stdin(agent, input), words);
        }
    }
}

#[test]
fn the_first_line_of_the_output_describes_the_run() {
    let temp = TempProject::new();
    let begins = "agent: the offline model, whose words are scripted, ";
    for (flag, rest) in
        [("--yes", format!("in {}", temp.0.display())), ("--no-tools", "without tools".to_owned())]
    {
        let output = agent_command(&temp.0, &[flag, "2 + 3"]).output().unwrap();
        assert_exit_code(&output, 0);
        let first = utf8_str(&output.stderr).lines().next().unwrap();
        assert_eq!(first, format!("{begins}{rest}"));
    }
}

#[tokio::test]
async fn an_unknown_number_of_tokens_is_not_shown_as_zero() {
    let output = run_against_reply(|| Reply::text("Hello."), false).await;
    assert_exit_code(&output, 0);
    let err = utf8_str(&output.stderr);
    assert!(err.ends_with("-- completed: 1 turn, number of tokens unknown\n"), "{err}");
}

#[tokio::test]
async fn an_unknown_address_is_reported_with_the_url_and_the_usual_mistake() {
    let reply = |_: &serde_json::Value, _| {
        let error = Error::new(ErrorKind::InvalidRequest, "page not found");
        Reply::error(error.with_status(404))
    };
    let server = ModelServer::openai_chat(reply).await.unwrap();
    let temp = TempProject::new();
    let url = server.url();
    let mut agent = agent_command(&temp.0, &["--base-url", &url, "Hi"]);
    let output = tokio::task::spawn_blocking(move || agent.output().unwrap()).await.unwrap();
    assert_exit_code(&output, 1);
    let err = utf8_str(&output.stderr);
    let line = err.lines().last().unwrap();
    let expected = format!(
        "404: page not found; the request was sent to {url}/chat/completions; with most servers \
         of this kind, the base URL ends in `/v1`"
    );
    assert!(line.starts_with("error: ") && line.ends_with(&expected), "{err}");
}

#[test]
fn a_run_that_is_not_completed_exits_with_1() {
    let temp = TempProject::new();
    let mut agent = agent_command(&temp.0, &["--max-turns", "1", LINE_COUNT_PROMPT]);
    let output = agent.output().unwrap();
    assert_exit_code(&output, 1);
    let errors = utf8_str(&output.stderr).lines().filter(|line| line.starts_with("error: "));
    assert_eq!(errors.collect::<Vec<_>>(), ["error: stopped at the limit of --max-turns"]);
}

#[tokio::test]
async fn an_answer_that_ends_for_an_unknown_reason_exits_with_0_and_names_the_reason() {
    let server = ModelServer::anthropic(|_, _| {
        Reply::text("Half an answer").stop(StopReason::Other("moon_phase".into()))
    });
    let server = server.await.unwrap();
    let temp = TempProject::new();
    let command = |args: &[&str]| {
        let mut agent = agent_command(&temp.0, args);
        agent.env("ANTHROPIC_API_KEY", "sk-ant-key").env("ANTHROPIC_BASE_URL", server.url());
        tokio::task::spawn_blocking(move || agent.output().unwrap())
    };
    let output = command(&["Hi"]).await.unwrap();
    assert_exit_code(&output, 0);
    assert_eq!(utf8_str(&output.stdout).trim(), "Half an answer");
    let err = utf8_str(&output.stderr);
    assert!(err.lines().any(|line| line.contains("`moon_phase`")), "{err}");
    let output = command(&["--json", "Hi"]).await.unwrap();
    assert_exit_code(&output, 0);
    let (.., outcome) = parse_json_output(&output.stdout);
    assert_eq!((outcome.reason, outcome.partial), (EndReason::Completed, true));
    assert_eq!(outcome.unknown_stop_reason.as_deref(), Some("moon_phase"));
    assert!(utf8_str(&output.stderr).contains("`moon_phase`"));
}

#[tokio::test]
async fn an_empty_answer_with_an_unknown_reason_exits_with_1_and_names_the_reason() {
    let server =
        ModelServer::anthropic(|_, _| Reply::new().stop(StopReason::Other("moon_phase".into())));
    let server = server.await.unwrap();
    let temp = TempProject::new();
    let mut agent = agent_command(&temp.0, &["Hi"]);
    agent.env("ANTHROPIC_API_KEY", "sk-ant-key").env("ANTHROPIC_BASE_URL", server.url());
    let output = tokio::task::spawn_blocking(move || agent.output().unwrap()).await.unwrap();
    assert_exit_code(&output, 1);
    let err = utf8_str(&output.stderr);
    let line = err.lines().find(|line| line.starts_with("error: ")).unwrap();
    assert!(line.contains("`moon_phase`"), "{line}");
}

/// The end of an approval question.
#[cfg(target_os = "linux")]
pub(crate) const QUESTION_END: &str = "approve it? [y/N/always or why] ";

pub(crate) const WRITE_PROMPT: &str = r#"Write "some words" to notes.txt"#;

#[test]
fn without_a_terminal_a_call_that_needs_approval_ends_the_run_as_pending() {
    let temp = TempProject::new();
    let mut agent = agent_command(&temp.0, &[WRITE_PROMPT]);
    let output = agent.output().unwrap();
    assert_exit_code(&output, 1);
    let err = utf8_str(&output.stderr);
    let call = r#"write_file {"path":"notes.txt","text":"some words"}"#;
    for line in [format!("  ? {call} needs approval"), format!("   waiting: {call}")] {
        assert!(err.lines().any(|it| it == line), "{err}");
    }
    let errors: Vec<_> = err.lines().filter(|line| line.starts_with("error: ")).collect();
    assert_eq!(errors.len(), 1, "{err}");
    assert!(
        errors[0].contains("nothing was written: `write_file`") && errors[0].contains("--yes"),
        "{err}"
    );
    assert!(!temp.0.join("notes.txt").exists());
}

#[test]
fn with_json_the_outcome_contains_the_pending_call() {
    let temp = TempProject::new();
    let agent = agent_command(&temp.0, &["--json"]);
    // A pipe is not a user who can be asked, whatever is sent through it.
    let output = run_with_stdin(agent, WRITE_PROMPT.as_bytes());
    assert_exit_code(&output, 1);
    let (events, error, outcome) = parse_json_output(&output.stdout);
    assert_eq!((error, outcome.reason), (None, EndReason::Pending));
    let [call] = outcome.pending.as_slice() else { panic!("{:?}", outcome.pending) };
    assert_eq!(call.name, "write_file");
    let asked = events.iter().find_map(Event::approval_request);
    assert_eq!(asked.as_ref(), Some(call));
    assert!(!temp.0.join("notes.txt").exists());
}

#[test]
fn an_answer_on_a_pipe_never_approves_a_call() {
    let temp = TempProject::new();
    let agent = agent_command(&temp.0, &[WRITE_PROMPT]);
    let output = run_with_stdin(agent, b"y\nyes\ny\n");
    assert_exit_code(&output, 1);
    assert!(utf8_str(&output.stderr).contains("with --yes or on a terminal"));
    assert!(!temp.0.join("notes.txt").exists());
}

#[tokio::test]
async fn long_arguments_do_not_hide_the_path_of_a_pending_call() {
    let long = "a word ".repeat(2_000);
    let arguments =
        json!({ "a_note": long, "text": long }).to_string().replace('}', r#","path":"notes.txt"}"#);
    let server = ModelServer::anthropic(move |_, _| {
        Reply::text("Now.").call_raw("w", "write_file", &arguments)
    });
    let server = server.await.unwrap();
    let temp = TempProject::new();
    let args = ["--provider", "anthropic", "--base-url", &server.url(), "Hi"];
    let mut agent = agent_command(&temp.0, &args);
    let output = tokio::task::spawn_blocking(move || agent.output().unwrap()).await.unwrap();
    assert_exit_code(&output, 1);
    let err = utf8_str(&output.stderr);
    for begins in ["  ? write_file", "   waiting: write_file"] {
        let line = err.lines().find(|line| line.starts_with(begins));
        let line = line.unwrap_or_else(|| panic!("no `{begins}`: {err}"));
        assert!(line.contains(r#""path":"notes.txt""#), "{line}");
    }
}

#[test]
fn with_yes_every_call_is_allowed() {
    let temp = TempProject::new();
    for args in [&["--yes", WRITE_PROMPT][..], &["--json", "--yes", WRITE_PROMPT]] {
        let mut agent = agent_command(&temp.0, args);
        let output = agent.output().unwrap();
        assert_exit_code(&output, 0);
        assert!(utf8_str(&output.stdout).contains("notes.txt"), "{}", utf8_str(&output.stdout));
        let written = temp.0.join("notes.txt");
        assert_eq!(fs::read_to_string(&written).unwrap(), "some words");
        assert!(
            !utf8_str(&output.stderr).contains("needs approval"),
            "{}",
            utf8_str(&output.stderr)
        );
        fs::remove_file(written).unwrap();
    }
}

/// Runs the program on a terminal, and returns the terminal's content and the exit code. Each pair
/// is a text to wait for, and the text to type then.
#[cfg(target_os = "linux")]
pub(crate) fn run_on_terminal(
    temp: &TempProject,
    args: &[&str],
    typed: &[(&str, &str)],
) -> (String, i32) {
    let mut terminal = Terminal::start(&agent_command(&temp.0, args));
    for (text, keys) in typed {
        terminal.wait_for(text);
        terminal.type_keys(keys);
    }
    terminal.wait_for_exit()
}

#[cfg(target_os = "linux")]
#[test]
fn on_a_terminal_the_user_is_asked_for_approval() {
    let ctrl_c = "\u{3}";
    for (answer, code, writes, words) in [
        ("y\n", 0, true, "-- completed"),
        ("Yes\n", 0, true, "-- completed"),
        ("\n", 0, false, "Denied: the user did not approve it"),
        ("not here\n", 0, false, "Denied: the user did not approve it, and answered: not here"),
        (ctrl_c, 1, false, "interrupted: 1 tool calls, 1 results, the history can be sent again"),
    ] {
        let temp = TempProject::new();
        let typed = [(QUESTION_END, answer)];
        let (shown, ended) = run_on_terminal(&temp, &[WRITE_PROMPT], &typed);
        assert_eq!((ended, temp.0.join("notes.txt").exists()), (code, writes), "{shown}");
        assert!(shown.contains(words), "{shown}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn in_the_chat_an_approval_question_can_be_answered_or_interrupted_and_the_chat_continues() {
    let temp = TempProject::new();
    let (write, ctrl_c, ctrl_d) = (format!("{WRITE_PROMPT}\n"), "\u{3}", "\u{4}");
    let typed = [
        ("\n> ", write.as_str()),
        (QUESTION_END, ctrl_c),
        ("can be sent again", ""),
        ("\n> ", &write),
        (QUESTION_END, "y\n"),
        ("-- completed", ""),
        ("\n> ", ctrl_d),
    ];
    let (shown, code) = run_on_terminal(&temp, &[], &typed);
    assert_eq!(code, 0, "{shown}");
    assert_eq!(fs::read_to_string(temp.0.join("notes.txt")).unwrap(), "some words");
}

/// A model that first reads, and in its second turn writes a file, when `go` is sent.
#[cfg(target_os = "linux")]
struct GatedModel {
    server: ModelServer,
    release: std::sync::mpsc::Sender<()>,
}

#[cfg(target_os = "linux")]
impl GatedModel {
    /// `arguments` are those of its call of `write_file`.
    async fn start(says: &'static str, arguments: &'static str) -> Self {
        let (go, gone) = std::sync::mpsc::channel();
        let gone = std::sync::Mutex::new(gone);
        let server = ModelServer::anthropic(move |_, n| match n {
            0 => Reply::text(says).call("list_directory", json!({})),
            1 => {
                gone.lock().unwrap().recv().unwrap();
                Reply::text("Now.").call_raw("w", "write_file", arguments)
            }
            _ => Reply::text("So be it."),
        });
        Self { server: server.await.unwrap(), release: go }
    }

    /// Runs the program on a terminal with this model.
    async fn run_on_terminal(
        &self,
        temp: &Arc<TempProject>,
        user: impl FnOnce(&mut Terminal, &dyn Fn()) + Send + 'static,
    ) -> (String, i32) {
        let (temp, url, go) = (Arc::clone(temp), self.server.url(), self.release.clone());
        let ran = tokio::task::spawn_blocking(move || {
            let args = ["--provider", "anthropic", "--base-url", &url, "Look around"];
            let mut terminal =
                Terminal::start(agent_command(&temp.0, &args).env("ANTHROPIC_API_KEY", "k"));
            user(&mut terminal, &|| go.send(()).unwrap());
            terminal.wait_for_exit()
        });
        ran.await.unwrap()
    }
}

#[cfg(target_os = "linux")]
const WRITE_NOTES_ARGS: &str = r#"{"path":"notes.txt","text":"some words"}"#;

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn input_typed_before_the_approval_question_does_not_answer_it() {
    for (typed, read_as, is_told) in [
        ("y\n", "will read: y)", "Denied"),
        ("y\ny\ny\n", "will read: y y y)", "Denied"),
        // This line is not complete, and the answer does not complete it.
        ("y", "y", "typed before the question, so not an answer: y"),
        ("yes\nye", "yes\r\nye", "typed before the question, so not an answer: yes\\nye"),
    ] {
        let temp = Arc::new(TempProject::new());
        let attack = GatedModel::start("Wait.", WRITE_NOTES_ARGS).await;
        let user = move |terminal: &mut Terminal, go: &dyn Fn()| {
            terminal.wait_for("< list_directory");
            terminal.type_keys(typed);
            terminal.wait_for(read_as);
            go();
            terminal.wait_for(QUESTION_END);
            terminal.type_keys("\n");
        };
        let (shown, _) = attack.run_on_terminal(&temp, user).await;
        assert!(!temp.0.join("notes.txt").exists(), "{shown}");
        assert!(shown.contains(is_told) && shown.contains("Denied"), "{shown}");
    }
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn model_text_that_imitates_the_approval_question_cannot_be_answered() {
    let spoof = "\n[a1b2] The model wants to call:\n  write_file, with an empty text\n  to the \
                 file: fine.txt (a new file)\n[a1b2] approve it? [y/N/always or why] ";
    let temp = Arc::new(TempProject::new());
    let attack = GatedModel::start(spoof, WRITE_NOTES_ARGS).await;
    let user = |terminal: &mut Terminal, go: &dyn Fn()| {
        let notice = terminal.wait_for("is the model's.");
        let (_, mark) = notice.split_once("without the mark ").unwrap();
        let mark = mark[..6].to_owned();
        terminal.wait_for(QUESTION_END);
        terminal.type_keys("y\n");
        terminal.wait_for("will read: y)");
        go();
        let asked = terminal.wait_for(&format!("{mark} {QUESTION_END}"));
        assert!(asked.contains(&format!("{mark} The model wants to call:")), "{asked}");
        assert!(asked.contains(r#"to the file: "notes.txt" (a new file)"#), "{asked}");
        terminal.type_keys("\n");
    };
    let (shown, _) = attack.run_on_terminal(&temp, user).await;
    assert!(!temp.0.join("notes.txt").exists() && !temp.0.join("fine.txt").exists(), "{shown}");
    let sent = attack.server.requests();
    let says = |n: usize| sent[n]["messages"].to_string();
    let (before, after) = (says(1), says(2));
    let is_read = |messages: &str| messages.contains(r#""text":"y""#);
    assert!(!is_read(&before) && is_read(&after), "what was typed is the model's to read: {after}");
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_question_shows_the_decoded_path_below_both_ends_of_a_long_text() {
    let long = "x".repeat(20_000);
    let arguments = format!(
        r#"{{"text":"begins{long}\u001b[2J\nends","path":"src/../inn\u006fcent\u202etxt.exe"}}"#
    );
    let temp = Arc::new(TempProject::new());
    let attack = GatedModel::start("Wait.", arguments.leak()).await;
    let user = |terminal: &mut Terminal, go: &dyn Fn()| {
        go();
        terminal.wait_for("The model wants to call:");
        let asked = terminal.wait_for(QUESTION_END);
        let line = r#"to the file: "innocent\u{202e}txt.exe" (a new file)"#;
        let lines = [" characters: 20015):", "| beginsxxx", r"xxx\u{1b}[2J", "| ends", line];
        let found: Vec<_> = lines.iter().map(|line| asked.find(line)).collect();
        assert!(found.is_sorted() && found[0].is_some(), "{found:?} {asked}");
        assert!(!asked.contains(['\u{1b}', '\u{202e}']) && asked.len() < 2_000, "{asked}");
        terminal.type_keys("n\n");
    };
    let (shown, _) = attack.run_on_terminal(&temp, user).await;
    assert_eq!(fs::read_dir(&temp.0).unwrap().count(), 2, "{shown}");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_second_question_about_a_file_mentions_the_already_approved_write() {
    for (answer, expected) in [
        ("y\n", "(replaces the text of an earlier call that you approved)"),
        ("n\n", "(a new file)"),
    ] {
        let server = ModelServer::anthropic(|_, n| match n {
            0 => Reply::new()
                .call("write_file", json!({ "path": "notes.txt", "text": "first" }))
                .call("write_file", json!({ "path": "./src/../notes.txt", "text": "second" })),
            1 => Reply::new().call("write_file", json!({ "path": "notes.txt", "text": "third" })),
            _ => Reply::text("So be it."),
        });
        let server = server.await.unwrap();
        let url = server.url();
        let ran = tokio::task::spawn_blocking(move || {
            let temp = TempProject::new();
            let args = ["--provider", "anthropic", "--base-url", &url, "Hi"];
            let mut terminal = Terminal::start(&agent_command(&temp.0, &args));
            let mut asked = Vec::new();
            for answer in [answer, "y\n", "n\n"] {
                asked.push(terminal.wait_for(QUESTION_END));
                terminal.type_keys(answer);
            }
            terminal.wait_for_exit();
            asked
        });
        let asked = ran.await.unwrap();
        assert!(asked[0].contains(r#""notes.txt" (a new file)"#), "{}", asked[0]);
        assert!(asked[1].contains(expected), "{answer} {}", asked[1]);
        assert!(asked[2].contains("(replaces 6 bytes of an existing file)"), "{}", asked[2]);
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn no_escape_sequence_reaches_the_terminal_of_the_question_through_another_program() {
    let server = ModelServer::anthropic(|_, n| match n {
        0 => Reply::text("\u{1b}[2Jhidden\u{9b}1A").call_raw("w", "write_file", WRITE_NOTES_ARGS),
        _ => Reply::text("\u{1b}[8mSo be it."),
    });
    let server = server.await.unwrap();
    let url = server.url();
    let ran = tokio::task::spawn_blocking(move || {
        let temp = TempProject::new();
        let program =
            agent_command(&temp.0, &["--provider", "anthropic", "--base-url", &url, "Hi"]);
        let mut shell = Command::new("sh");
        shell.current_dir(&temp.0).args(["-c", r#""$0" "$@" | cat"#]);
        shell.arg(program.get_program()).args(program.get_args());
        for (name, _) in program.get_envs() {
            shell.env_remove(name);
        }
        let mut terminal = Terminal::start(&shell);
        terminal.wait_for(QUESTION_END);
        terminal.type_keys("n\n");
        terminal.wait_for_exit()
    });
    let (shown, _) = ran.await.unwrap();
    // The output of the other program may come between the lines of this one.
    assert!(shown.contains("hidden") && shown.contains("So"), "{shown}");
    assert!(!shown.contains(['\u{1b}', '\u{9b}']), "{shown:?}");
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn input_typed_during_a_run_is_steered_to_the_model() {
    let temp = Arc::new(TempProject::new());
    let attack = GatedModel::start("Wait.", r#"{"path":"../x","text":""}"#).await;
    let user = |terminal: &mut Terminal, go: &dyn Fn()| {
        terminal.wait_for("< list_directory");
        terminal.type_keys("Only in src,\nplease\n");
        terminal.wait_for("will read: Only in src, please)");
        go();
        terminal.wait_for(QUESTION_END);
        terminal.type_keys("n\n");
    };
    let (shown, code) = attack.run_on_terminal(&temp, user).await;
    assert_eq!(code, 0, "{shown}");
    let sent = attack.server.requests();
    let last = sent[2]["messages"].as_array().unwrap().last().unwrap().to_string();
    assert!(last.contains(r"Only in src,\nplease"), "{last}");
    assert!(!sent[1]["messages"].to_string().contains("please"));
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn input_typed_too_late_for_the_model_is_shown_again() {
    let (go, gone) = std::sync::mpsc::channel();
    let gone = std::sync::Mutex::new(gone);
    let server = ModelServer::anthropic(move |_, _| {
        gone.lock().unwrap().recv().unwrap();
        Reply::text("Done.")
    });
    let server = server.await.unwrap();
    let url = server.url();
    let ran = tokio::task::spawn_blocking(move || {
        let temp = TempProject::new();
        let args = ["--provider", "anthropic", "--base-url", &url, "--max-turns", "1", "Hi"];
        let mut terminal = Terminal::start(&agent_command(&temp.0, &args));
        terminal.wait_for("is the model's.");
        terminal.type_keys("And thanks\n");
        terminal.wait_for("will read: And thanks)");
        go.send(()).unwrap();
        terminal.wait_for_exit()
    });
    let (shown, _) = ran.await.unwrap();
    assert!(shown.contains("not sent to the model: And thanks"), "{shown}");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn pasted_lines_are_one_prompt() {
    let server = ModelServer::anthropic(|_, _| Reply::text("Hello.")).await.unwrap();
    let url = server.url();
    let ran = tokio::task::spawn_blocking(move || {
        let args = ["--provider", "anthropic", "--base-url", &url];
        let typed = [("\n> ", "one\ntwo\n\nthree\n"), ("-- completed", ""), ("\n> ", "\u{4}")];
        run_on_terminal(&TempProject::new(), &args, &typed)
    });
    let (shown, code) = ran.await.unwrap();
    assert_eq!(code, 0, "{shown}");
    let sent = server.requests();
    assert_eq!(sent.len(), 1, "{shown}");
    let prompt = sent[0]["messages"].to_string();
    assert!(prompt.contains(r"one\ntwo\n\nthree"), "{prompt}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_dumb_terminal_gets_no_escape_sequence() {
    for (term, coloured) in [("dumb", false), ("xterm", true)] {
        let temp = TempProject::new();
        let mut agent = agent_command(&temp.0, &[LINE_COUNT_PROMPT]);
        let agent = agent.env("TERM", term).env("NO_COLOR", "");
        let terminal = Terminal::start(agent);
        let (shown, code) = terminal.wait_for_exit();
        assert_eq!((code, shown.contains('\u{1b}')), (0, coloured), "{term}: {shown}");
    }
}

#[test]
fn without_tools_the_offline_model_states_that_files_are_not_readable() {
    let temp = TempProject::new();
    let mut agent = agent_command(&temp.0, &["--no-tools", LINE_COUNT_PROMPT]);
    let output = agent.output().unwrap();
    assert_exit_code(&output, 0);
    assert!(utf8_str(&output.stdout).contains("Without tools I cannot look"));
    assert!(!utf8_str(&output.stderr).contains("count_lines"));
}

#[test]
fn an_empty_key_counts_as_missing() {
    let temp = TempProject::new();
    let mut agent = agent_command(&temp.0, &["--json", "Hi"]);
    let output = agent.env("ANTHROPIC_API_KEY", "").env("OPENAI_BASE_URL", "").output().unwrap();
    assert_exit_code(&output, 0);
    assert!(utf8_str(&output.stdout).contains(r#""model":"offline""#));
}

#[cfg(unix)]
#[test]
fn no_escape_sequence_of_a_file_reaches_the_lines_about_tools() {
    let temp = TempProject::new();
    temp.write_file("evil\u{1b}[2J\u{7}.txt", "needle \u{1b}]0;owned\u{7}\n");
    let mut agent = agent_command(&temp.0, &["where is the `needle`"]);
    let output = agent.output().unwrap();
    assert_exit_code(&output, 0);
    let (out, err) = (utf8_str(&output.stdout), utf8_str(&output.stderr));
    assert!(
        out.contains("needle") && out.contains(":1:") && err.contains("> search_text"),
        "{out}"
    );
    assert!(!err.contains(['\u{1b}', '\u{7}']) && !out.contains(['\u{1b}', '\u{7}']));
}

#[test]
fn a_closed_stdout_ends_the_program_quietly() {
    let temp = TempProject::new();
    for args in [&[LINE_COUNT_PROMPT][..], &["--json", LINE_COUNT_PROMPT]] {
        let mut agent = agent_command(&temp.0, args);
        agent.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = agent.spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let err = utf8_str(&output.stderr);
        assert!(!err.contains("panicked") && !err.contains("error:"), "{err}");
    }
}

#[cfg(unix)]
fn press_ctrl_c(child: &Child) {
    let pid = child.id().to_string();
    assert!(Command::new("sh").args(["-c", "kill -INT $0", &pid]).status().unwrap().success());
}

/// A run that waits for a server that never answers.
fn spawn_waiting_agent(temp: &TempProject, json: bool) -> (Child, TcpListener) {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let mut args = vec!["--base-url", &url, "Hi"];
    args.extend(json.then_some("--json"));
    let mut agent = agent_command(&temp.0, &args);
    agent.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = agent.spawn().unwrap();
    let (mut connection, _) = silent.accept().unwrap();
    // The request was sent, so the run is being polled and the key is being listened for.
    connection.read_exact(&mut [0]).unwrap();
    std::thread::spawn(move || std::io::copy(&mut connection, &mut std::io::sink()));
    (child, silent)
}

#[cfg(unix)]
#[test]
fn ctrl_c_interrupts_the_run_and_leaves_a_settled_history() {
    let temp = TempProject::new();
    for json in [false, true] {
        let (child, _silent) = spawn_waiting_agent(&temp, json);
        press_ctrl_c(&child);
        let output = child.wait_with_output().unwrap();
        assert_exit_code(&output, 1);
        let err = utf8_str(&output.stderr);
        let expected = "interrupted: 0 tool calls, 0 results, the history can be sent again";
        assert!(err.lines().any(|line| line == expected), "{err}");
        if json {
            let (_, _, outcome) = parse_json_output(&output.stdout);
            assert!(matches!(outcome.reason, EndReason::Interrupted(_)));
        }
    }
}

#[cfg(unix)]
#[tokio::test]
async fn an_interrupt_in_a_later_turn_keeps_the_calls_with_their_results() {
    let server = ModelServer::anthropic(|_, n| match n {
        0 => {
            Reply::new().call("count_lines", json!({})).call("count_lines", json!({ "path": "?" }))
        }
        _ => Reply::text("So ").call_unfinished("c", "count_lines", "{").hang(),
    });
    let server = server.await.unwrap();
    let temp = TempProject::new();
    let args = ["--provider", "anthropic", "--base-url", &server.url(), "Hi"];
    let mut agent = agent_command(&temp.0, &args);
    // On another thread, because the server needs this one.
    let output = tokio::task::spawn_blocking(move || {
        agent.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = agent.spawn().unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0; 3]).unwrap();
        press_ctrl_c(&child);
        child.wait_with_output().unwrap()
    });
    let output = output.await.unwrap();
    assert_exit_code(&output, 1);
    let err = utf8_str(&output.stderr);
    let expected = "interrupted: 2 tool calls, 2 results, the history can be sent again";
    assert!(err.lines().any(|line| line == expected), "{err}");
}

/// The program's output for a server that answers with `reply`, with an API key.
async fn run_against_reply(reply: fn() -> Reply, json: bool) -> Output {
    let server = ModelServer::anthropic(move |_, _| reply()).await.unwrap();
    let temp = TempProject::new();
    let url = server.url();
    let mut args = vec!["--provider", "anthropic", "--base-url", &url, "hi"];
    args.extend(json.then_some("--json"));
    let mut agent = agent_command(&temp.0, &args);
    agent.env("ANTHROPIC_API_KEY", "sk-ant-top-secret");
    // The server runs on this runtime, so another thread waits for the program.
    let ran = tokio::task::spawn_blocking(move || agent.output().unwrap()).await.unwrap();
    for bytes in [&ran.stdout, &ran.stderr] {
        assert!(!utf8_str(bytes).contains("top-secret"), "{}", utf8_str(bytes));
    }
    ran
}

async fn assert_failure(reply: fn() -> Reply, reason: EndReason, kind: ErrorKind, line: &str) {
    let output = run_against_reply(reply, true).await;
    assert_exit_code(&output, 1);
    let (_, error, outcome) = parse_json_output(&output.stdout);
    assert_eq!((outcome.reason, outcome.error.as_ref()), (reason, error.as_ref()));
    assert_eq!(error.unwrap().kind(), kind);
    let output = run_against_reply(reply, false).await;
    assert_exit_code(&output, 1);
    let err = utf8_str(&output.stderr);
    let lines: Vec<_> = err.lines().filter(|line| line.starts_with("error: ")).collect();
    assert_eq!(lines.len(), 1, "{err}");
    assert!(lines[0].contains(line), "{err}");
    assert!(!err.contains("panicked"), "{err}");
}

#[tokio::test]
async fn a_rejected_key_is_reported_on_one_line_without_the_key() {
    let reply = || {
        let error = Error::new(ErrorKind::Auth, "invalid x-api-key sk-ant-top-secret");
        Reply::error(error.with_status(401))
    };
    let line = "status 401: invalid x-api-key";
    assert_failure(reply, EndReason::ProviderError, ErrorKind::Auth, line).await;
}

#[tokio::test]
async fn too_many_requests_is_reported_on_one_line() {
    // The program leaves such a long wait to the user.
    let reply = || Reply::error(rate_limit_error(300));
    let line = "status 429: slow down (try again in 300 s)";
    assert_failure(reply, EndReason::ProviderError, ErrorKind::RateLimited, line).await;
}

#[tokio::test]
async fn a_finished_retry_delay_is_not_shown() {
    let reply = || Reply::error(rate_limit_error(0));
    let output = run_against_reply(reply, false).await;
    assert_exit_code(&output, 1);
    let err = utf8_str(&output.stderr);
    assert!(err.contains("slow down") && !err.contains("(try again in"), "{err}");
}

/// A refusal with this number of seconds to wait.
fn rate_limit_error(seconds: u64) -> Error {
    let error = Error::new(ErrorKind::RateLimited, "slow down").with_status(429);
    error.with_retry_after(Duration::from_secs(seconds))
}

#[tokio::test]
async fn a_retry_delay_is_shown_when_it_starts() {
    let server = ModelServer::anthropic(|_, _| Reply::error(rate_limit_error(60))).await.unwrap();
    let temp = TempProject::new();
    let url = server.url();
    let args = ["--provider", "anthropic", "--base-url", &url, "hi"];
    let mut agent = agent_command(&temp.0, &args);
    agent.env("ANTHROPIC_API_KEY", "sk-ant-top-secret");
    let said = tokio::task::spawn_blocking(move || {
        let mut child = agent.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let line = lines.map(Result::unwrap).find(|line| line.contains("trying again"));
        child.kill().unwrap();
        child.wait().unwrap();
        line
    });
    let line = said.await.unwrap().expect("a line about the wait");
    assert!(line.contains("rate limited, trying again in 60 s"), "{line}");
}

#[tokio::test]
async fn a_truncated_stream_is_reported_as_incomplete_on_one_line() {
    let reply = || Reply::text("Half a").disconnect();
    assert_failure(reply, EndReason::Incomplete, ErrorKind::IncompleteTurn, "cut off").await;
}

#[tokio::test]
async fn an_error_in_the_stream_is_reported_on_one_line() {
    let reply = || Reply::text("Half a").fail(Error::new(ErrorKind::Overloaded, "Overloaded"));
    assert_failure(reply, EndReason::ProviderError, ErrorKind::Overloaded, "Overloaded").await;
}

/// Stores entries, given as JSON, in the session `talk.jsonl`.
fn write_session(temp: &TempProject, entries: &[&str]) {
    let (store, id) = JsonLinesStore::open_file(temp.0.join("talk.jsonl")).unwrap();
    let entries = entries.iter().map(|json| serde_json::from_str(json).unwrap()).collect();
    futures::executor::block_on(store.append(&id, 0, entries)).unwrap();
}

/// The lines of a session's file as JSON: the header and the entries.
fn session_lines(temp: &TempProject) -> Vec<serde_json::Value> {
    let text = fs::read_to_string(temp.0.join("talk.jsonl")).unwrap();
    assert!(text.ends_with('\n'), "{text}");
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    lines.filter(|line: &serde_json::Value| line["type"] != "append").collect()
}

#[test]
fn a_session_continues_and_stores_nothing_twice() {
    let temp = TempProject::new();
    let ask = |args: &[&str]| {
        let mut agent = agent_command(&temp.0, &[&["--session", "talk.jsonl"], args].concat());
        let output = agent.output().unwrap();
        assert_exit_code(&output, 0);
        output
    };
    let first = ask(&[LINE_COUNT_PROMPT]);
    assert!(!utf8_str(&first.stderr).contains("session:"), "{}", utf8_str(&first.stderr));
    let before = session_lines(&temp);
    let second = ask(&["--json", "What is 2 + 3?"]);
    let (events, error, outcome) = parse_json_output(&second.stdout);
    assert!(error.is_none() && !events.is_empty());
    let after = session_lines(&temp);
    assert_eq!(after[..before.len()], before, "what is there stays");
    assert_eq!(after.len() - before.len(), outcome.new_items().len());
}

#[test]
fn a_call_that_would_replace_the_file_of_the_session_fails() {
    let temp = TempProject::new();
    let args = ["--session", "talk.jsonl", "--yes", r#"Write "some words" to talk.jsonl"#];
    let mut agent = agent_command(&temp.0, &args);
    let output = agent.output().unwrap();
    assert_exit_code(&output, 0);
    let err = utf8_str(&output.stderr);
    assert!(err.contains("! write_file") && err.contains("stores this conversation"), "{err}");
    assert!(session_lines(&temp).len() > 3, "the conversation is there");
}

#[test]
fn a_pending_call_can_be_approved_in_a_later_invocation() {
    let temp = TempProject::new();
    let session = ["--session", "talk.jsonl"];
    let mut waits = agent_command(&temp.0, &[&session[..], &[WRITE_PROMPT]].concat());
    assert_exit_code(&waits.output().unwrap(), 1);
    assert!(!temp.0.join("notes.txt").exists());
    let args = [&session[..], &["--yes", "What is 2 + 3?"]].concat();
    let mut goes_on = agent_command(&temp.0, &args);
    let output = goes_on.output().unwrap();
    assert_exit_code(&output, 0);
    let err = utf8_str(&output.stderr);
    assert!(err.contains("session: the last run is waiting for approval of `write_file`"), "{err}");
    assert_eq!(fs::read_to_string(temp.0.join("notes.txt")).unwrap(), "some words");
    assert!(utf8_str(&output.stdout).contains('5'), "{}", utf8_str(&output.stdout));
}

#[test]
fn an_interrupted_session_is_settled_and_the_user_is_informed() {
    let temp = TempProject::new();
    let arguments = r#"{\"path\":\"notes.txt\",\"text\":\"some words\"}"#;
    let turn = r#"{"usage":{},"stop_reason":"tool_calls"}"#;
    let call = format!(
        r#"{{"type":"tool_call","call_id":"c1","name":"write_file","arguments":"{arguments}","turn":{turn}}}"#
    );
    write_session(&temp, &[r#"{"type":"user","content":"Write it"}"#, &call]);
    let args = ["--session", "talk.jsonl", "--yes", "--json", "What is 2 + 3?"];
    let mut agent = agent_command(&temp.0, &args);
    let output = agent.output().unwrap();
    assert_exit_code(&output, 0);
    let err = utf8_str(&output.stderr);
    assert!(
        err.contains("session: the last run did not finish: results are missing for `write_file`"),
        "{err}"
    );
    assert!(!temp.0.join("notes.txt").exists(), "what may have run does not run again");
    let (events, ..) = parse_json_output(&output.stdout);
    let result = events[0].tool_output().expect("the interrupted call comes first");
    assert_eq!(result.kind, turnstream::item::ResultKind::Interrupted);
    assert_eq!(session_lines(&temp)[3]["call_id"], "c1");
}

#[test]
fn a_killed_run_continues_without_a_new_prompt() {
    let question = r#"{"type":"user","content":"How many lines of Rust are in src?"}"#;
    let turn = r#"{"usage":{},"stop_reason":"tool_calls"}"#;
    let call = format!(
        r#"{{"type":"tool_call","call_id":"c1","name":"count_lines","arguments":"{{\"path\":\"src\"}}","idempotent":true,"turn":{turn}}}"#
    );
    for (lines, told) in [
        (vec![question], "the last run did not finish: its answer is missing"),
        (
            vec![question, &call],
            "the last run did not finish: results are missing for `count_lines`",
        ),
    ] {
        let temp = TempProject::new();
        write_session(&temp, &lines);
        let mut goes_on = agent_command(&temp.0, &["--session", "talk.jsonl"]);
        let output = goes_on.output().unwrap();
        assert_exit_code(&output, 0);
        assert!(utf8_str(&output.stderr).contains(told), "{}", utf8_str(&output.stderr));
        assert!(utf8_str(&output.stdout).contains(" lines"), "{}", utf8_str(&output.stdout));
        // The run has finished, so there is nothing to continue.
        let mut again = agent_command(&temp.0, &["--session", "talk.jsonl"]);
        assert_bad_usage(&again.output().unwrap(), "there is no prompt");
    }
}

#[test]
fn an_approved_pending_call_continues_without_a_new_prompt() {
    let temp = TempProject::new();
    let session = ["--session", "deep/er/talk.jsonl"];
    let mut waits = agent_command(&temp.0, &[&session[..], &[WRITE_PROMPT]].concat());
    assert_exit_code(&waits.output().unwrap(), 1);
    let output = agent_command(&temp.0, &session).output().unwrap();
    assert_exit_code(&output, 1);
    assert!(
        utf8_str(&output.stderr).contains("nothing was written: `write_file` must be approved")
    );
    assert!(!temp.0.join("notes.txt").exists());
    let output = agent_command(&temp.0, &[&session[..], &["--yes"]].concat()).output().unwrap();
    assert_exit_code(&output, 0);
    let starts = r#"  > write_file {"path":"notes.txt","text":"some words"}"#;
    assert!(
        utf8_str(&output.stderr).lines().any(|line| line == starts),
        "{}",
        utf8_str(&output.stderr)
    );
    assert_eq!(fs::read_to_string(temp.0.join("notes.txt")).unwrap(), "some words");
}

#[test]
fn a_missing_working_directory_is_reported_on_one_line() {
    let temp = TempProject::new();
    let gone = temp.0.join("gone");
    fs::create_dir(&gone).unwrap();
    let mut program = agent_command(&temp.0, &[]);
    let line = format!(
        "rmdir '{}' && exec '{}' Hi",
        gone.display(),
        program.get_program().to_str().unwrap()
    );
    if cfg!(unix) {
        program = Command::new("sh");
        let output = program.args(["-c", &line]).current_dir(&gone).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let err = utf8_str(&output.stderr);
        assert!(err.starts_with("error: the working directory cannot be read"), "{err}");
        assert_eq!(err.lines().count(), 1, "{err}");
    }
}

#[cfg(not(feature = "sqlite"))]
#[test]
fn an_sqlite_file_without_the_feature_is_bad_usage() {
    let temp = TempProject::new();
    for file in ["talk.db", "talk.SQLite"] {
        let mut agent = agent_command(&temp.0, &["--session", file, "Hi"]);
        assert_bad_usage(&agent.output().unwrap(), "needs the feature `sqlite`");
        assert!(!temp.0.join(file).exists());
    }
}

#[cfg(feature = "sqlite")]
#[test]
fn a_session_in_sqlite_continues() {
    let temp = TempProject::new();
    for (prompt, expected) in [("What is 2 + 3?", 0), ("What is 4 + 5?", 4)] {
        let args = ["--session", "talk.db", "--json", prompt];
        let mut agent = agent_command(&temp.0, &args);
        let output = agent.output().unwrap();
        assert_exit_code(&output, 0);
        let store = turnstream_sqlite::SqliteStore::open(temp.0.join("talk.db")).unwrap();
        let session = turnstream::session::Session::open(store, "agent");
        let version = futures::executor::block_on(session).unwrap().version();
        let (.., outcome) = parse_json_output(&output.stdout);
        assert!(version >= expected + outcome.new_items().len() as u64, "{version}");
    }
}

#[tokio::test]
async fn a_conflicting_write_to_the_session_is_reported_on_one_line_with_exit_code_1() {
    use turnstream::Item;
    use turnstream::session::{JsonLinesStore, Store};
    let temp = TempProject::new();
    let path = temp.0.join("talk.jsonl");
    let server = ModelServer::anthropic(move |_, _| {
        // The question appears before the request to the model.
        let (store, id) = JsonLinesStore::open_file(&path).unwrap();
        let other = vec![Item::user("Me too").into()];
        assert_eq!(futures::executor::block_on(store.append(&id, 1, other)).unwrap(), 2);
        Reply::text("Hello!")
    });
    let server = server.await.unwrap();
    let url = server.url();
    let args = ["--provider", "anthropic", "--base-url", &url, "--session", "talk.jsonl", "hi"];
    let mut agent = agent_command(&temp.0, &args);
    agent.env("ANTHROPIC_API_KEY", "sk-ant-top-secret");
    let output = tokio::task::spawn_blocking(move || agent.output().unwrap()).await.unwrap();
    assert_exit_code(&output, 1);
    let err = utf8_str(&output.stderr);
    let errors: Vec<_> = err.lines().filter(|line| line.contains("error: ")).collect();
    assert_eq!(errors.len(), 1, "{err}");
    assert!(errors[0].contains("another program has written to the session"), "{err}");
    assert_eq!(session_lines(&temp).len(), 3);
}

#[tokio::test]
async fn the_log_of_a_run_over_http_has_neither_the_key_nor_the_prompt() {
    // The second answer is an error that quotes the prompt.
    let server = ModelServer::anthropic(|_, n| match n {
        0 => Reply::text("Hello plugh!"),
        _ => Reply::error(Error::new(ErrorKind::InvalidRequest, "the prompt was: xyzzy")),
    });
    let server = server.await.unwrap();
    for exit_code in [0, 1] {
        let project = TempProject::new();
        let url = server.url();
        let args = ["--provider", "anthropic", "--base-url", &url, "--json", "What is xyzzy?"];
        let mut agent = agent_command(&project.0, &args);
        agent.env("ANTHROPIC_API_KEY", "sk-ant-top-secret").env("RUST_LOG", "turnstream=debug");
        let output = tokio::task::spawn_blocking(move || agent.output().unwrap()).await.unwrap();
        assert_exit_code(&output, exit_code);
        let errors = utf8_str(&output.stderr);
        // The program's own message about the error follows the log.
        let log: Vec<_> = errors.lines().filter(|line| line.contains("turnstream::")).collect();
        assert!(log.len() > 2, "{errors}");
        for line in log {
            for private in ["xyzzy", "plugh", "sk-ant"] {
                assert!(!line.contains(private), "{line}");
            }
        }
        assert!(!errors.contains("sk-ant"), "{errors}");
    }
}

#[test]
fn a_log_of_the_run_is_written_to_stderr_without_its_text() {
    let project = TempProject::new();
    let mut agent = agent_command(&project.0, &["--json", LINE_COUNT_PROMPT]);
    let output = agent.env("RUST_LOG", "turnstream=debug").output().unwrap();
    let log = String::from_utf8(output.stderr).unwrap();
    for step in
        ["a request is sent", "the turn is complete", "the tool starts", "the run has ended"]
    {
        assert!(log.contains(step), "{step}: {log}");
    }
    // A line starts with the time, whose digits are those of any number.
    let without_times: String =
        log.lines().flat_map(|line| [line.split_once(' ').unwrap().1, "\n"]).collect();
    for text in ["How many lines", "long.rs", "321"] {
        assert!(!without_times.contains(text), "{text}: {log}");
    }
    let invalid = agent_command(&project.0, &["--json", LINE_COUNT_PROMPT])
        .env("RUST_LOG", "turnstream=loud")
        .output()
        .unwrap();
    let error = String::from_utf8(invalid.stderr).unwrap();
    assert!(error.contains("`RUST_LOG` is ignored: "), "{error}");
    assert_eq!(invalid.status.code(), output.status.code());
    let silent = agent_command(&project.0, &["--json", LINE_COUNT_PROMPT]).output().unwrap();
    assert!(!String::from_utf8(silent.stderr).unwrap().contains("the turn is complete"));
    assert_eq!(silent.status.code(), output.status.code());
}
