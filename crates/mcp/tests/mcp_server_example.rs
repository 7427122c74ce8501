//! The example `mcp_server` as a program.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use turnstream_test_support::programs::example_program;

fn request(id: i32, method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

fn call(id: i32, tool: &str, arguments: &Value) -> Value {
    request(id, "tools/call", &json!({ "name": tool, "arguments": arguments }))
}

/// Adds the required metadata of every modern request.
fn modern(mut message: Value) -> Value {
    let meta = &mut message["params"]["_meta"];
    meta["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
    meta["io.modelcontextprotocol/clientCapabilities"] = json!({ "elicitation": {}, "roots": {} });
    message
}

fn initialize(version: &str) -> Value {
    let client = json!({ "name": "test", "version": "0" });
    let params = json!({ "protocolVersion": version, "capabilities": { "roots": {} }, "clientInfo": client });
    request(0, "initialize", &params)
}

fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {answer}"))
}

/// Runs the program with these messages as its input, until it ends.
fn run(arguments: &[&str], messages: &[Value]) -> Output {
    let mut command = Command::new(example_program("mcp_server"));
    command.args(arguments).env("SECRET_OF_THE_TEST", "the value");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    for message in messages {
        // A server that dies does not read them all.
        let _ = writeln!(stdin, "{message}");
    }
    drop(stdin);
    child.wait_with_output().unwrap()
}

fn answers(output: &Output) -> Vec<Value> {
    let lines = std::str::from_utf8(&output.stdout).unwrap().lines();
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn the_demo_tools_answer() {
    let messages = [
        modern(call(0, "add", &json!({ "a": 1, "b": 2 }))),
        modern(call(1, "weather", &json!({ "city": "Oslo" }))),
        modern(call(2, "weather", &json!({ "city": "Atlantis" }))),
        modern(call(3, "picture", &json!({}))),
        modern(call(4, "secret_env", &json!({}))),
        modern(call(5, "ask_name", &json!({}))),
        modern(call(6, "count_slowly", &json!({ "to": 0 }))),
    ];
    let output = run(&[], &messages);
    assert_eq!(output.status.code(), Some(0));
    let answers = answers(&output);
    assert_eq!(answers[0]["result"]["structuredContent"], json!({ "sum": 3.0 }));
    assert_eq!(text(&answers[1]), "Oslo: snow, -3 degrees (made up)");
    assert_eq!(answers[2]["result"]["isError"], true);
    assert_eq!(answers[3]["result"]["content"][1]["mimeType"], "image/png");
    assert!(text(&answers[4]).lines().any(|name| name == "SECRET_OF_THE_TEST"));
    assert!(!text(&answers[4]).contains("the value"));
    assert_eq!(answers[5]["result"]["resultType"], "input_required");
    assert_eq!(text(&answers[6]), "counted to 0");
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.starts_with("mcp_server: a scripted server, process "), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
}

#[test]
#[cfg(unix)]
fn a_child_outlives_the_server() {
    let messages = [modern(call(0, "spawn_child", &json!({})))];
    let output = run(&[], &messages);
    let pid = text(&answers(&output)[0]).to_owned();
    let killed = Command::new("kill").arg(&pid).status().unwrap();
    assert!(killed.success(), "there was a process {pid}");
}

#[test]
fn options_select_the_era_the_tools_and_the_faults() {
    let list = modern(request(1, "tools/list", &json!({})));
    let count = |options: &[&str]| {
        let answers = answers(&run(options, std::slice::from_ref(&list)));
        answers[0]["result"]["tools"].as_array().unwrap().len()
    };
    assert_eq!(count(&[]), 7);
    assert_eq!(count(&["--tools", "weather"]), 1);
    assert_eq!(count(&["--tools", "many"]), 207);
    assert_eq!(count(&["--fault", "many-tools:3"]), 10);

    let legacy = run(&["--era", "legacy"], &[list.clone(), initialize("2025-06-18")]);
    assert_eq!(answers(&legacy)[1]["result"]["protocolVersion"], "2025-06-18");
    let stderr = String::from_utf8(legacy.stderr).unwrap();
    assert!(stderr.contains("broke the protocol: `tools/list` came before"), "{stderr}");

    let dead = run(&["--fault", "dies-at:2"], &[list.clone(), list.clone()]);
    assert_eq!((dead.status.code(), answers(&dead).len()), (Some(0), 1));
    let flood = run(&["--fault", "stderr-flood"], &[list]);
    assert!(flood.stderr.len() > 1 << 20);
}

#[test]
fn unknown_options_end_the_program() {
    for options in
        [&["--fault", "none"][..], &["--era"], &["--era", "none"], &["--header", "x"], &["x", "y"]]
    {
        let output = run(options, &[]);
        assert_eq!(output.status.code(), Some(2), "{options:?}");
    }
    let help = run(&["--help"], &[]);
    assert!(String::from_utf8(help.stdout).unwrap().contains("scripted"));
}
