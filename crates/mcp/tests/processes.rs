//! Servers that are processes: their environment, and that none of their processes is left.

#![cfg(unix)]

use std::time::Duration;

use serde_json::json;
use turnstream::provider::Scripted;
use turnstream::{Agent, ErrorKind};
use turnstream_mcp::{Client, ClientBuilder, Limits, ServerCommand};

use crate::support::{call_text, run_call};
use turnstream_test_support::programs::example_program;

/// A client of the example server.
fn example_client(args: &[&str]) -> Client {
    example_builder(args).build().trusted()
}

fn example_builder(args: &[&str]) -> ClientBuilder {
    let command = ServerCommand::new(example_program("mcp_server")).args(args);
    Client::stdio(command).with_name("s")
}

/// Whether a process is running.
fn is_alive(pid: &str) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let state = status.lines().find_map(|line| line.strip_prefix("State:"));
    state.is_some_and(|state| !state.trim_start().starts_with(['Z', 'X']))
}

/// Waits until a process is gone. The test's own time limit ends a wait that takes too long.
async fn wait_until_gone(pid: &str) {
    while is_alive(pid) {
        tokio::task::yield_now().await;
    }
}

/// The id of a process that the server has started, and that would outlive it.
async fn start_grandchild(client: &Client) -> String {
    let text = call_text(client.toolkit().await.unwrap(), "s__spawn_child", json!({})).await;
    let pid: String = text.chars().filter(char::is_ascii_digit).collect();
    assert!(is_alive(&pid), "{text}");
    pid
}

#[tokio::test]
async fn closing_leaves_no_process_in_the_servers_group() {
    let client = example_client(&[]);
    let pid = start_grandchild(&client).await;
    client.close().await;
    assert!(!is_alive(&pid));
}

#[test]
fn closing_kills_the_process_group_even_if_the_connections_runtime_is_idle() {
    let client = example_builder(&[]);
    let client = client
        .with_limits(Limits { close: Duration::from_millis(50), ..Limits::default() })
        .build()
        .trusted();
    let new_runtime =
        || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (first, second) = (new_runtime(), new_runtime());
    let pid = first.block_on(start_grandchild(&client));
    let closing = async {
        client.close().await;
        wait_until_gone(&pid).await;
    };
    let gone =
        second.block_on(async { tokio::time::timeout(Duration::from_secs(20), closing).await });
    assert!(gone.is_ok(), "the process {pid} is there");
    drop(first);
}

#[tokio::test]
async fn dropping_the_last_clone_leaves_no_process_in_the_servers_group() {
    let client = example_client(&[]);
    let pid = start_grandchild(&client).await;
    drop(client);
    wait_until_gone(&pid).await;
}

#[test]
fn a_runtime_that_ends_first_kills_the_servers_group() {
    let client = example_client(&[]);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let pid = runtime.block_on(start_grandchild(&client));
    drop(runtime);
    let other = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    other.block_on(wait_until_gone(&pid));
    // In the next runtime the client connects again.
    assert!(other.block_on(client.toolkit()).is_ok());
    other.block_on(client.close());
}

#[tokio::test]
async fn a_server_that_does_not_exit_is_killed_after_the_limit() {
    // The process neither reads, so it does not see the end of its input, nor reacts to SIGTERM.
    let script = "trap '' TERM; echo $$ >&2; while :; do sleep 0.05; done";
    let limits = Limits {
        start: Duration::from_millis(300),
        close: Duration::from_millis(100),
        ..Limits::default()
    };
    let client =
        Client::stdio(ServerCommand::new("sh").args(["-c", script])).with_limits(limits).build();
    let error = client.toolkit().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
}

#[tokio::test]
async fn the_keys_of_this_process_never_reach_a_server() {
    let program = example_program("mcp_server");
    // The key is set in a separate process, so that no other test sees it: the server inherits the
    // environment.
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some(), "Cargo sets it for tests");
    let command = ServerCommand::new(program).env("GRANTED", "1");
    let client = Client::stdio(command).with_name("s").build().trusted();
    let names = call_text(client.toolkit().await.unwrap(), "s__secret_env", json!({})).await;
    assert!(names.contains("GRANTED") && names.contains("PATH"), "{names}");
    assert!(!names.contains("CARGO_MANIFEST_DIR"), "{names}");
    client.close().await;
}

#[tokio::test]
async fn a_program_that_does_not_exist_is_an_error_at_once() {
    let client = Client::stdio(ServerCommand::new("no-such-program-here")).build();
    let error = client.toolkit().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connect);
    assert!(
        error.message().starts_with("the server `no-such-program-here` could not be started"),
        "{error}"
    );
    assert!(!error.is_retryable());
}

#[tokio::test]
async fn an_exit_error_has_the_last_400_bytes_of_stderr() {
    let script = "printf 'y%.0s' $(seq 5000) >&2; printf 'z%.0s' $(seq 390) >&2; exit 3";
    let client =
        Client::stdio(ServerCommand::new("sh").args(["-c", script])).with_name("s").build();
    let error = client.toolkit().await.unwrap_err();
    let kept_bytes = |letter: char| error.message().matches(letter).count();
    assert_eq!(kept_bytes('z'), 390, "{error}");
    assert!(kept_bytes('y') < 20, "{error}");
}

#[tokio::test]
async fn an_exit_error_has_the_status_and_the_last_lines_of_stderr() {
    let script = "echo 'Usage: server FOLDER' >&2; exit 3";
    let client =
        Client::stdio(ServerCommand::new("sh").args(["-c", script])).with_name("s").build();
    let error = client.toolkit().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connect);
    let message = error.message();
    assert!(
        message.contains("exit status: 3") && message.contains("Usage: server FOLDER"),
        "{message}"
    );
}

#[tokio::test]
async fn the_stderr_of_a_server_that_dies_reaches_the_outcome_of_a_run() {
    for script in ["exit 1", "read -r line; exit 3"] {
        let script = format!("echo 'ModuleNotFoundError: foo' >&2; {script}");
        let client =
            Client::stdio(ServerCommand::new("sh").args(["-c", &script])).with_name("s").build();
        let agent = Agent::new(Scripted::new(["done"])).with_tool_source(client);
        let error = agent.run("go").outcome().await.error.unwrap();
        assert!(error.message().contains("ModuleNotFoundError: foo"), "{error}");
    }
}

#[tokio::test]
async fn a_program_that_repeats_its_input_is_not_a_server() {
    let client = Client::stdio(ServerCommand::new("cat")).with_name("s").build();
    let error = client.toolkit().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
}

#[tokio::test]
async fn a_server_that_floods_stderr_keeps_running_and_the_newest_lines_are_kept() {
    let client = example_client(&["--fault", "stderr-flood"]);
    let add = call_text(client.toolkit().await.unwrap(), "s__add", json!({ "a": 1, "b": 2 })).await;
    assert_eq!(add, "3");
    let kept = client.stderr().unwrap();
    assert!(kept.len() <= 64 << 10, "{}", kept.len());
    client.close().await;
}

#[tokio::test]
async fn dropping_a_run_leaves_the_server_for_the_next() {
    let client = example_client(&[]);
    let kit = client.toolkit().await.unwrap();
    let mut run = run_call(kit.clone(), "s__count_slowly", json!({ "to": 1000, "ms": 20 }));
    loop {
        let event = futures::StreamExt::next(&mut run).await.unwrap().unwrap();
        if let turnstream::Event::Tool(turnstream::event::ToolEvent::Progress { .. }) = event {
            break;
        }
    }
    drop(run);
    assert_eq!(call_text(kit, "s__add", json!({ "a": 1, "b": 2 })).await, "3");
    client.close().await;
}
