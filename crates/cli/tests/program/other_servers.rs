//! The program uses every wire with a server that is not part of this repository.
//!
//! `TURNSTREAM_OTHER_SERVER` is the address of a server that supports all four wires and plays
//! `tests/aimock/fixtures.json`: a turn with text and two parallel calls, then a turn of text.
//! `tests/aimock/run.sh` installs and starts such a server.

use std::process::{Command, Stdio};

use serde_json::Value;

const PROMPT: &str = "How many lines of Rust are in src?";

#[test]
#[ignore = "needs npm: tests/aimock/run.sh"]
fn the_program_drives_anthropic_over_two_turns_with_parallel_calls() {
    check_program("anthropic", "");
}

#[test]
#[ignore = "needs npm: tests/aimock/run.sh"]
fn the_program_drives_openai_over_two_turns_with_parallel_calls() {
    check_program("openai", "/v1");
}

#[test]
#[ignore = "needs npm: tests/aimock/run.sh"]
fn the_program_drives_openai_responses_over_two_turns_with_parallel_calls() {
    check_program("openai-responses", "/v1");
}

#[test]
#[ignore = "needs npm: tests/aimock/run.sh"]
fn the_program_drives_gemini_over_two_turns_with_parallel_calls() {
    check_program("gemini", "");
}

fn check_program(provider: &str, path: &str) {
    let server = std::env::var("TURNSTREAM_OTHER_SERVER").expect("run.sh starts the server");
    let url = format!("{server}{path}");
    let output = Command::new(env!("CARGO_BIN_EXE_turnstream"))
        .args(["--provider", provider, "--base-url", &url, "--model", "any", "--json", PROMPT])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{provider}: {err}\n{out}");
    let events: Vec<Value> =
        out.lines().map(|line| serde_json::from_str(line).expect("a JSON line")).collect();
    let of_type = |wanted: &'static str| events.iter().filter(move |e| e["type"] == wanted);

    let turns: Vec<_> = of_type("turn_complete").map(|event| &event["turn"]).collect();
    assert_eq!(turns.len(), 2, "{provider}: {out}");
    let calls = |turn: &Value| {
        let items = turn["items"].as_array().cloned().unwrap_or_default();
        let calls = items.into_iter().filter(|item| item["type"] == "tool_call");
        calls.map(|call| call["name"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(calls(turns[0]), ["list_directory", "count_lines"], "{provider}");
    assert_eq!(calls(turns[1]), [""; 0], "{provider}");

    let outputs: Vec<_> = of_type("tool_output").collect();
    assert_eq!(outputs.len(), 2, "{provider}");
    assert!(outputs.iter().all(|output| output["kind"] == "ok"), "{provider}: {outputs:?}");
    let text: String = of_type("text_delta").filter_map(|event| event["text"].as_str()).collect();
    assert!(text.starts_with("I look and count."), "{provider}: {text}");

    let outcome = &events.last().expect("events")["outcome"];
    assert_eq!(outcome["reason"], "completed", "{provider}: {outcome}");
    assert_eq!(outcome["text"], "Both tools have answered. That is all I wanted to know.");
    println!("{provider}: two turns, two parallel calls, {} events", events.len());
}
