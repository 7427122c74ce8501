use super::*;
use std::time::{Duration, UNIX_EPOCH};

fn of_status(status: u16, body: &str) -> Error {
    super::error_for_status(status, body, UNIX_EPOCH)
}

#[track_caller]
fn check_status(status: u16, body: &str, kind: ErrorKind, message: &str) {
    let error = of_status(status, body);
    assert_eq!((error.kind(), error.status()), (kind, Some(status)));
    assert!(error.message().ends_with(message), "{error}");
}

#[test]
fn status_and_error_body_determine_the_kind() {
    use ErrorKind::*;
    let anthropic = |kind: &str, text: &str| {
        format!(r#"{{"type":"error","error":{{"type":"{kind}","message":"{text}"}}}}"#)
    };
    check_status(401, &anthropic("authentication_error", "bad key"), Auth, ": bad key");
    check_status(529, &anthropic("overloaded_error", "Overloaded"), Overloaded, "Overloaded");
    check_status(400, &anthropic("invalid_request_error", "no"), InvalidRequest, ": no");
    check_status(
        400,
        &anthropic("invalid_request_error", "prompt is too long: 9 > 8"),
        ContextWindow,
        "9 > 8",
    );
    let openai = |code: &str| {
        format!(r#"{{"error":{{"message":"m","type":"t","param":"p","code":"{code}"}}}}"#)
    };
    check_status(429, &openai("rate_limit_exceeded"), RateLimited, ": m");
    check_status(429, &openai("insufficient_quota"), Billing, ": m");
    check_status(400, &openai("context_length_exceeded"), ContextWindow, ": m");
    assert_eq!(of_status(400, &openai("x")).parameter(), Some("p"));
    check_status(502, "<html>bad\ngateway</html>", Server, "status 502");
    check_status(500, r#"{"error":"out of memory"}"#, Server, ": out of memory");
    check_status(422, r#"{"detail":"no such field"}"#, InvalidRequest, "no such field");
    check_status(429, r#"[{"error":{"message":"used up"}}]"#, RateLimited, ": used up");
    check_status(301, "", Protocol, "301");
}

#[test]
fn the_body_of_a_stream_error_determines_its_kind() {
    let kind = |json| error_in_stream(json).kind();
    assert_eq!(kind(r#"{"type":"overloaded_error"}"#), ErrorKind::Overloaded);
    assert_eq!(kind(r#"{"error":{"code":429,"message":"m"}}"#), ErrorKind::RateLimited);
    assert_eq!(kind(r#"{"code":"502","message":"m"}"#), ErrorKind::Server);
    assert_eq!(kind(r#""something broke""#), ErrorKind::Server);
    assert_eq!(kind("{}"), ErrorKind::Server);
}

#[test]
fn a_message_is_one_short_line() {
    let long = format!(r#"{{"error":{{"message":"a\nb \u001b[31m{}"}}}}"#, "x y ".repeat(900));
    let error = of_status(500, &long);
    assert!(error.message().len() < 600);
    assert!(!error.message().contains(['\n', '\u{1b}']));
}

#[test]
fn errors_of_the_responses_wire_are_decoded_in_every_shape() {
    let flat = r#"{"type":"error","code":"rate_limit_exceeded","message":"Rate limit reached for
        gpt on tokens per min (TPM): Limit 5, Used 4, Requested 2. Please try again in 1.2s.",
        "param":null,"sequence_number":3}"#;
    let nested = r#"{"type":"error","sequence_number":3,"error":{"type":"tokens","code":
        "rate_limit_exceeded","message":"Please try again in 1.2s.","param":null}}"#;
    let failed = r#"{"type":"response.failed","response":{"id":"r","status":"failed","error":{
        "code":"rate_limit_exceeded","message":"(TPM): Please try again in 1.2s."}}}"#;
    for json in [flat, nested, failed] {
        let error = error_in_stream(&json.replace('\n', " "));
        assert_eq!(error.kind(), ErrorKind::RateLimited, "{json}");
        assert_eq!(error.rate_limit_scope(), Some(crate::error::RateLimitScope::Tokens), "{json}");
        assert_eq!(error.retry_after(), Some(Duration::from_millis(1200)), "{json}");
    }
    let server = r#"{"code":"server_error","message":"The server had an error"}"#;
    assert_eq!(error_in_stream(server).kind(), ErrorKind::Server);
    let flagged = r#"{"code":"invalid_prompt","message":"Invalid prompt"}"#;
    assert_eq!(error_in_stream(flagged).kind(), ErrorKind::Filtered);
    let long = r#"{"code":"context_length_exceeded","message":"Your input exceeds the context
        window of this model. Please adjust your input and try again."}"#;
    assert_eq!(error_in_stream(&long.replace('\n', " ")).kind(), ErrorKind::ContextWindow);
}

#[test]
fn a_stream_error_may_have_a_relative_retry_delay() {
    let error = error_in_stream(
        r#"{"error":{"code":429,"message":"m","metadata":{"headers":{"Retry-After":"7"}}}}"#,
    );
    assert_eq!(error.retry_after(), Some(Duration::from_secs(7)));
    assert_eq!(error.status(), None);
}

#[test]
fn no_error_body_causes_a_panic() {
    let odd = [
        "",
        "null",
        "0",
        "\"",
        "{",
        "[",
        "[]",
        "[[]]",
        "[null]",
        "{}",
        "true",
        "\"{\"",
        "\"[1]\"",
        r#"{"error":{}}"#,
        r#"{"error":[]}"#,
        r#"{"error":null}"#,
        r#"{"error":7}"#,
        r#"{"error":{"code":99999999999999999999,"message":[{"message":{}}],"details":[1,{}]}}"#,
        r#"{"error":{"code":-1,"metadata":{"headers":{"x-ratelimit-reset":[]},"raw":7}}}"#,
        r#"{"detail":[{"loc":[],"msg":""},3]}"#,
        r#"{"detail":[3]}"#,
        r#"{"detail":[]}"#,
        r#"{"details":[{"violations":[1],"retryDelay":7}],"error":{"details":{}}}"#,
        "maximum context length is 5 tokens é 9",
        "retry in é",
        "\u{0}\u{7f}",
    ];
    for body in odd {
        for status in [200, 301, 400, 401, 429, 500, 999] {
            let error = of_status(status, body);
            assert_eq!(error.status(), Some(status), "{body}");
        }
        assert!(!error_in_stream(body).message().is_empty(), "{body}");
    }
    let deep = format!("{}{}", r#"{"error":"#.repeat(100), "}".repeat(100));
    assert_eq!(error_in_stream(&deep).kind(), ErrorKind::Server);
    let deep = "[".repeat(100_000);
    assert_eq!(of_status(500, &deep).kind(), ErrorKind::Server);
}
