//! The lints accept requests that vendors have accepted.

use serde_json::Value;
use turnstream_test_support::corpus;
use turnstream_testing::{Wire, lint};

/// Requests that other servers with the same wire accepted, and that its own vendor refuses.
const ACCEPTED_BY_OTHER_SERVERS: &[&str] = &[
    // Hugging Face accepts an empty list of tools.
    "pydantic__test_stream_close_test_cancel_recorded_provider_stream_huggingface___1",
    // The ids of DeepSeek's reasoning items do not show their type.
    "pydantic__test_deepseek_responses_test_deepseek_responses_function_tool_stream___1",
];

#[test]
#[ignore = "needs recordings: TURNSTREAM_CORPUS"]
fn requests_that_a_vendor_accepted_pass_the_lint() {
    let corpus = corpus::corpus_folder();
    let mut refused = Vec::new();
    let mut seen = 0;
    for (folder, wire) in ["anthropic", "openai-chat", "openai-responses", "gemini", "ollama"]
        .into_iter()
        .zip(Wire::ALL)
    {
        let Ok(recordings) = std::fs::read_dir(corpus.join(folder)) else { continue };
        for recording in recordings.flatten() {
            let Ok(request) = std::fs::read(recording.path().join("request.json")) else {
                continue;
            };
            let Ok(body) = serde_json::from_slice::<Value>(&request) else { continue };
            seen += 1;
            if ACCEPTED_BY_OTHER_SERVERS.iter().any(|name| recording.file_name() == *name) {
                continue;
            }
            let complaints = lint::request(wire, "", &body);
            if !complaints.is_empty() {
                refused.push(format!("{}: {complaints:?}", recording.path().display()));
            }
        }
    }
    assert!(seen > 0, "there are no requests in {}", corpus.display());
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}
