//! The program with MCP servers: its model's calls, the approval questions, and the
//! processes that are left.

use std::fs;
use std::process::{Command, Output};

use serde_json::json;
use turnstream::Event;
use turnstream::event::EndReason;
use turnstream_test_support::programs::example_program;
#[cfg(target_os = "linux")]
use turnstream_test_support::terminal::Terminal;
use turnstream_testing::http::{HttpResponse, LoopbackServer};
use turnstream_testing::mcp::{McpAnswer, McpRequestStatus, McpServer, McpTool};

#[cfg(target_os = "linux")]
use crate::output::{QUESTION_END, run_on_terminal};
use crate::output::{
    TempProject, agent_command, assert_bad_usage, assert_exit_code, parse_json_output, utf8_str,
};

const ADD_PROMPT: &str = "add 2 and 3";
const PENDING_ADD: &str = r#"mcp_server__add {"a":2,"b":3}"#;

/// The program with the example `mcp_server` as its server.
fn agent_with_server(temp: &TempProject, args: &[&str]) -> Command {
    let server = format!("'{}'", example_program("mcp_server").display());
    agent_command(&temp.0, &[&["--mcp", server.as_str()], args].concat())
}

/// The command of a server that starts another process, writes its id to the file `pid`, and ends
/// without ending it.
#[cfg(target_os = "linux")]
fn server_with_child() -> String {
    let program = example_program("mcp_server");
    format!(r#"sh -c "sleep 1000 & echo \$! > pid; exec {}""#, program.display())
}

/// Whether the process whose id is in the file `pid` is running.
#[cfg(target_os = "linux")]
#[track_caller]
fn is_child_running(temp: &TempProject) -> bool {
    let pid = fs::read_to_string(temp.0.join("pid")).unwrap();
    let status = fs::read_to_string(format!("/proc/{}/status", pid.trim())).unwrap_or_default();
    // A process that has ended and was not reaped is still listed.
    let state = status.lines().find_map(|line| line.strip_prefix("State:"));
    state.is_some_and(|state| !state.trim_start().starts_with(['Z', 'X']))
}

/// Waits for the program while the runtime of the test serves it.
async fn output_of(mut command: Command) -> Output {
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

#[test]
fn the_offline_model_answers_with_the_result_of_a_stdio_server() {
    let temp = TempProject::new();
    for (question, result) in [
        ("What is the weather in Oslo?", "Oslo: snow, -3 degrees (made up)"),
        (ADD_PROMPT, "`mcp_server__add` says: 5"),
        ("count slowly to 3 in 1 ms", "counted to 3"),
    ] {
        let mut agent = agent_with_server(&temp, &["--yes", question]);
        let output = agent.output().unwrap();
        assert_exit_code(&output, 0);
        let (out, err) = (utf8_str(&output.stdout), utf8_str(&output.stderr));
        assert!(out.contains(result) && out.contains("my words are scripted"), "{out}");
        let line = "\nmcp: mcp_server (2026-07-28): add, ask_name, count_slowly, ";
        assert!(err.contains(line), "{err}");
        // A slow consumer receives only the newest progress.
        assert!(!question.contains("count") || err.contains(" step 3 of 3\n"), "{err}");
    }
}

#[test]
fn without_a_terminal_a_call_of_a_server_ends_the_run_as_pending() {
    let temp = TempProject::new();
    let mut agent = agent_with_server(&temp, &[ADD_PROMPT]);
    let output = agent.output().unwrap();
    assert_exit_code(&output, 1);
    let err = utf8_str(&output.stderr);
    assert!(err.contains(&format!("  ? {PENDING_ADD} needs approval\n")), "{err}");
    assert!(err.contains("error: nothing was called: `mcp_server__add` must be approved"), "{err}");
}

#[test]
fn with_json_only_events_are_on_stdout_and_the_pending_call_is_in_the_outcome() {
    let temp = TempProject::new();
    for (yes, reason) in [(None, EndReason::Pending), (Some("--yes"), EndReason::Completed)] {
        let args = ["--json", ADD_PROMPT].into_iter().chain(yes).collect::<Vec<_>>();
        let mut agent = agent_with_server(&temp, &args);
        let output = agent.output().unwrap();
        assert_exit_code(&output, i32::from(yes.is_none()));
        let (events, error, outcome) = parse_json_output(&output.stdout);
        assert_eq!((error, outcome.reason), (None, reason));
        let pending: Vec<_> = outcome.pending.iter().map(|call| call.name.as_str()).collect();
        assert_eq!(pending, if yes.is_none() { vec!["mcp_server__add"] } else { vec![] });
        let results = events.iter().filter_map(Event::tool_output);
        let results: Vec<_> = results.map(|result| result.content.text()).collect();
        assert_eq!(results, if yes.is_none() { vec![] } else { vec!["5"] });
    }
}

#[test]
fn flags_without_a_server_are_bad_usage() {
    let temp = TempProject::new();
    temp.write_file("bad.json", "{}");
    for (args, words) in [
        (&["--mcp"][..], "`--mcp` needs a value"),
        (&["--mcp", " ", "Hi"], "`--mcp` is empty"),
        (&["--mcp", "server 'a", "Hi"], "has an unterminated quote or escape"),
        (&["--mcp", "ftp://server", "Hi"], "an http or https URL, or a command, not ftp"),
        (&["--mcp", "server", "--no-tools", "Hi"], "--mcp needs tools"),
        (&["--mcp-config", "missing.json", "Hi"], "`missing.json` cannot be read"),
        (&["--mcp-config", "bad.json", "Hi"], "`bad.json`: the MCP configuration"),
    ] {
        let mut agent = agent_command(&temp.0, args);
        assert_bad_usage(&agent.output().unwrap(), words);
    }
}

#[test]
fn a_server_start_failure_is_one_line_on_stderr() {
    let temp = TempProject::new();
    for (server, words) in [
        ("/nonexistent/server", "`/nonexistent/server` could not be started"),
        ("sh -c 'echo no key >&2; exit 3'", "no key"),
        ("http://127.0.0.1:1/mcp", "could not be reached"),
    ] {
        let mut agent = agent_command(&temp.0, &["--mcp", server, "Hi"]);
        let output = agent.output().unwrap();
        assert_exit_code(&output, 1);
        let (out, err) = (utf8_str(&output.stdout), utf8_str(&output.stderr));
        assert_eq!((out, err.lines().count()), ("", 1), "{err}");
        assert!(err.starts_with("error: ") && err.contains(words), "{err}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn no_child_process_of_a_server_outlives_the_program() {
    let ctrl_c = "\u{3}";
    let temp = TempProject::new();
    let server = server_with_child();
    for (args, code) in [
        (&["--yes", ADD_PROMPT][..], 0),
        (&[ADD_PROMPT], 1),
        (&["--mcp", "/nonexistent/server", "Hi"], 1),
        (&["--provider", "openai", "--base-url", "http://127.0.0.1:1", "Hi"], 1),
        (&["--session", ".", "Hi"], 1),
    ] {
        let args = [&["--mcp", server.as_str()], args].concat();
        let mut agent = agent_command(&temp.0, &args);
        let output = agent.output().unwrap();
        assert_exit_code(&output, code);
        assert!(!is_child_running(&temp), "{args:?}");
        fs::remove_file(temp.0.join("pid")).unwrap();
    }
    // The first one interrupts the run; two at the chat's prompt end the program.
    let args = ["--mcp", &server];
    let agent = agent_command(&temp.0, &args);
    let mut terminal = Terminal::start(&agent);
    terminal.wait_for("\n> ");
    terminal.type_keys("count slowly to 1000\n");
    terminal.wait_for(QUESTION_END);
    terminal.type_keys("y\n");
    terminal.wait_for("step 1 of 1000");
    assert!(is_child_running(&temp));
    terminal.type_keys(ctrl_c);
    terminal.wait_for("the history can be sent again");
    terminal.wait_for("\n> ");
    terminal.type_keys(ctrl_c);
    while terminal.wait_for_text_or_exit("again within 2 s").is_some() {
        terminal.type_keys(ctrl_c);
    }
    let (shown, code) = terminal.wait_for_exit();
    assert_eq!(code, 130, "{shown}");
    assert!(!is_child_running(&temp), "{shown}");
}

#[test]
fn the_servers_of_a_configuration_file_keep_their_names() {
    let temp = TempProject::new();
    let program = example_program("mcp_server");
    let args = json!(["--tools", "weather"]);
    let servers = json!({
        "sky": { "command": program, "args": args },
        "sky.2": { "command": program, "args": args },
        "off": { "command": "/nonexistent", "disabled": true },
    });
    temp.write_file("servers.json", &json!({ "mcpServers": servers }).to_string());
    let args = ["--mcp-config", "servers.json", "--yes", "weather in Paris"];
    let mut agent = agent_with_server(&temp, &args);
    let output = agent.output().unwrap();
    assert_exit_code(&output, 0);
    let lines = utf8_str(&output.stderr).lines().take(4).collect::<Vec<_>>();
    assert!(lines[1].starts_with("mcp: mcp_server (2026-07-28): add, "), "{lines:?}");
    assert_eq!(lines[2..], ["mcp: sky (2026-07-28): weather", "mcp: sky-2 (2026-07-28): weather"]);
    assert!(utf8_str(&output.stdout).contains("Paris: cloudy"));
}

/// A server with one tool, which returns its arguments.
async fn echo_server() -> turnstream_testing::mcp::McpHttpServer {
    let schema = json!({
        "type": "object",
        "properties": { "word": { "type": "string" } },
        "required": ["word"],
    });
    let echo = McpTool::new("echo", "", schema, async |args: serde_json::Value, _call| {
        McpAnswer::text(format!("heard {}", args["word"]))
    });
    McpServer::new().with_tool(echo).start_http().await.unwrap()
}

#[tokio::test]
async fn a_server_over_http_is_called() {
    let temp = TempProject::new();
    let server = echo_server().await;
    let args = ["--mcp", &server.url(), "--yes", "echo \"x y\""];
    let agent = agent_command(&temp.0, &args);
    let output = output_of(agent).await;
    assert_exit_code(&output, 0);
    assert!(utf8_str(&output.stdout).contains(r#"`server__echo` says: heard "x y""#));
    let received = server.handle().received();
    assert_eq!(received.iter().filter(|message| message.is_call("echo")).count(), 1);
    assert_eq!(server.handle().violations(), [""; 0]);
}

#[tokio::test]
async fn a_wrong_address_of_a_server_is_reported_with_the_usual_mistake() {
    let temp = TempProject::new();
    let server = LoopbackServer::start(|_| HttpResponse::text(404, "Not Found")).await.unwrap();
    let url = server.url();
    let agent = agent_command(&temp.0, &["--mcp", &url, "Hi"]);
    let output = output_of(agent).await;
    assert_exit_code(&output, 1);
    let err = utf8_str(&output.stderr);
    assert_eq!(err.lines().count(), 1, "{err}");
    let expected = format!(
        "Not Found; the request was sent to {url}; the URL of most MCP servers ends in `/mcp`\n"
    );
    assert!(err.contains("404") && err.ends_with(&expected), "{err}");
}

#[tokio::test]
async fn a_pending_call_of_a_session_runs_when_it_is_allowed() {
    let temp = TempProject::new();
    let server = echo_server().await;
    let calls = || {
        let received = server.handle().received();
        received.iter().filter(|message| message.is_call("echo")).count()
    };
    let args = ["--mcp", &server.url(), "--session", "s.jsonl"];
    for (more, code, ran) in [(&["echo \"x y\""][..], 1, 0), (&[], 1, 0), (&["--yes"], 0, 1)] {
        let agent = agent_command(&temp.0, &[&args[..], more].concat());
        let output = output_of(agent).await;
        assert_exit_code(&output, code);
        let (out, err) = (utf8_str(&output.stdout), utf8_str(&output.stderr));
        assert_eq!(calls(), ran, "{err}");
        assert_eq!(out.contains(r#"says: heard "x y""#), ran == 1, "{out}");
        assert_eq!(
            err.contains("waiting for approval of `server__echo`"),
            more != ["echo \"x y\""],
            "{err}"
        );
    }
}

#[cfg(target_os = "linux")]
#[test]
fn the_question_shows_server_tool_and_arguments() {
    for (answer, words) in
        [("y\n", "< mcp_server__add 5"), ("\n", "Denied: the user did not approve it")]
    {
        let temp = TempProject::new();
        let program = example_program("mcp_server");
        let args = ["--mcp", program.to_str().unwrap(), ADD_PROMPT];
        let typed = [(QUESTION_END, answer)];
        let (shown, code) = run_on_terminal(&temp, &args, &typed);
        assert_eq!(code, 0, "{shown}");
        let notice = "a file is written, and before a tool of a server is called. A question";
        for part in [notice, "`add` of the MCP server `mcp_server`", "| a: 2", "| b: 3", words] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn ctrl_c_cancels_the_call_on_the_server() {
    let temp = TempProject::new();
    let schema = json!({ "type": "object" });
    let wait = McpTool::new("wait", "", schema, async |_args, call| {
        call.progress(1.0, None, Some("waiting")).await;
        std::future::pending::<McpAnswer>().await
    });
    let server = McpServer::new().with_tool(wait).start_http().await.unwrap();
    let args = ["--mcp", &server.url(), "--yes", "wait"];
    let agent = agent_command(&temp.0, &args);
    let mut terminal = Terminal::start(&agent);
    let ended = tokio::task::spawn_blocking(move || {
        terminal.wait_for("waiting (1)");
        terminal.type_keys("\u{3}");
        terminal.wait_for_exit()
    });
    let (shown, code) = ended.await.unwrap();
    assert_eq!(code, 1, "{shown}");
    assert!(shown.contains("interrupted: 1 tool calls, 1 results"), "{shown}");
    let is_cancelled = |received: &[turnstream_testing::mcp::McpReceived]| {
        let cancelled = Some(McpRequestStatus::Cancelled);
        received.iter().any(|message| message.is_call("wait") && message.status == cancelled)
    };
    server.handle().wait_until(is_cancelled).await;
}
