//! From what a provider says went wrong to an error that a caller can act on.

use serde::Deserialize;

use crate::error::{Error, ErrorKind};
use crate::provider::lenient::{Lax, Num, Str};

/// The words of an error, as all wires have them in one shape or another.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Failure<'a> {
    #[serde(borrow)]
    message: Str<'a>,
    #[serde(borrow)]
    r#type: Str<'a>,
    #[serde(borrow, rename = "code")]
    code: Str<'a>,
    #[serde(rename = "status")]
    status: Num,
    #[serde(borrow)]
    param: Str<'a>,
}

/// `{"error": {…}}`, or `{"error": "…"}`, or the bare object.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Envelope<'a> {
    #[serde(borrow)]
    error: Option<&'a serde_json::value::RawValue>,
    #[serde(borrow)]
    message: Str<'a>,
    #[serde(borrow)]
    detail: Str<'a>,
}

/// How much of a message is shown.
const LONGEST: usize = 500;

/// Reads the body of an answer that is an error by its status.
#[cfg(any(feature = "http", test))]
pub(super) fn of_status(status: u16, body: &str) -> Error {
    let said = said(body).unwrap_or_default();
    let kind = kind(Some(status), &said.words, &said.message);
    let message = match said.message.as_str() {
        "" => format!("the provider answered with status {status}"),
        message => format!("the provider answered with status {status}: {message}"),
    };
    with_parameter(Error::new(kind, message).with_status(status), said.parameter)
}

/// Reads an error that stands in a stream whose status was fine, or in a body that is no stream.
/// `json` is the value of `error`, or an object that holds it.
pub(super) fn in_stream(json: &str) -> Error {
    let said = said(json).unwrap_or_default();
    let kind = match kind(said.code, &said.words, &said.message) {
        // What a server says in the middle of its own answer is its own failure.
        ErrorKind::Other => ErrorKind::Server,
        kind => kind,
    };
    let message = match said.message.as_str() {
        "" => "the provider broke off with an error".to_owned(),
        message => format!("the provider broke off: {message}"),
    };
    with_parameter(Error::new(kind, message), said.parameter)
}

/// Whether a JSON body tells of an error.
#[cfg(feature = "http")]
pub(super) fn tells_of_error(json: &str) -> bool {
    serde_json::from_str::<Envelope<'_>>(json).is_ok_and(|envelope| envelope.error.is_some())
}

#[derive(Default)]
struct Said {
    words: String,
    message: String,
    code: Option<u16>,
    parameter: Option<String>,
}

fn said(body: &str) -> Option<Said> {
    // Some servers put their one error into a list.
    if let Ok(list) = serde_json::from_str::<Vec<&serde_json::value::RawValue>>(body) {
        return list.first().and_then(|first| said(first.get()));
    }
    let envelope: Envelope<'_> = serde_json::from_str(body).unwrap_or_default();
    let inner = envelope.error.map_or(body, serde_json::value::RawValue::get);
    if let Ok(text) = serde_json::from_str::<String>(inner) {
        return Some(Said { message: one_line(&text), ..Said::default() });
    }
    let Lax(failure) = serde_json::from_str::<Lax<Failure<'_>>>(inner).ok()?;
    let failure = failure?;
    let message = [&failure.message, &envelope.message, &envelope.detail];
    let message = message.iter().find_map(|text| text.get()).unwrap_or_default();
    // A code may be a word or an HTTP status in either form.
    let numeric = serde_json::from_str::<NumericCode>(inner).ok().and_then(|code| code.code.0);
    let code = numeric.or_else(|| failure.code.or_empty().parse().ok()).or(failure.status.0);
    Some(Said {
        words: format!("{} {}", failure.r#type.or_empty(), failure.code.or_empty()),
        message: one_line(message),
        code: code.and_then(|code| u16::try_from(code).ok()),
        parameter: failure.param.get().map(str::to_owned),
    })
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NumericCode {
    code: Num,
}

fn with_parameter(error: Error, parameter: Option<String>) -> Error {
    match parameter {
        Some(name) => error.with_parameter(name),
        None => error,
    }
}

/// `words` are the type and code that the provider gives; they tell more than the status.
fn kind(status: Option<u16>, words: &str, message: &str) -> ErrorKind {
    let says = |word: &str| words.contains(word);
    let message = message.to_ascii_lowercase();
    let too_long = ["prompt is too long", "maximum context length", "context window"];
    if says("context_length_exceeded") || too_long.iter().any(|text| message.contains(text)) {
        return ErrorKind::ContextWindow;
    }
    let by_word = [
        ("content_filter", ErrorKind::Filtered),
        ("content_policy", ErrorKind::Filtered),
        ("insufficient_quota", ErrorKind::Billing),
        ("billing", ErrorKind::Billing),
        ("overloaded", ErrorKind::Overloaded),
        ("rate_limit", ErrorKind::RateLimited),
        ("authentication", ErrorKind::Auth),
        ("invalid_api_key", ErrorKind::Auth),
        ("permission", ErrorKind::Auth),
        ("timeout", ErrorKind::Timeout),
    ];
    if let Some((_, kind)) = by_word.into_iter().find(|(word, _)| says(word)) {
        return kind;
    }
    match status {
        Some(401 | 403) => ErrorKind::Auth,
        Some(402) => ErrorKind::Billing,
        Some(408 | 504) => ErrorKind::Timeout,
        Some(429) => ErrorKind::RateLimited,
        Some(503 | 529) => ErrorKind::Overloaded,
        Some(500..) => ErrorKind::Server,
        Some(400..) => ErrorKind::InvalidRequest,
        Some(_) => ErrorKind::Protocol,
        None if says("invalid_request") || says("not_found") => ErrorKind::InvalidRequest,
        None if says("api_error") || says("server_error") => ErrorKind::Server,
        None => ErrorKind::Other,
    }
}

/// A message is one line of a length that a person reads.
fn one_line(text: &str) -> String {
    let mut line = String::new();
    for word in text.split_whitespace() {
        if line.len() + word.len() > LONGEST {
            line.push('…');
            break;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.extend(word.chars().filter(|c| !c.is_control()));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_status(status: u16, body: &str, kind: ErrorKind, message: &str) {
        let error = of_status(status, body);
        assert_eq!((error.kind(), error.status()), (kind, Some(status)));
        assert!(error.message().ends_with(message), "{error}");
    }

    #[test]
    fn a_status_and_its_words_give_the_kind() {
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
    fn an_error_in_a_stream_gives_its_kind_by_its_words() {
        let kind = |json| in_stream(json).kind();
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
        assert!(error.message().len() < LONGEST + 100);
        assert!(!error.message().contains(['\n', '\u{1b}']));
    }
}
