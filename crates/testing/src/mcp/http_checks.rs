//! Checks a request's HTTP headers.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::http::HttpRequest;
use crate::mcp::dispatch::VERSION_KEY;
use crate::mcp::message::Request;
use crate::mcp::state::State;

/// Returns whether the request's `Origin` header names a local origin or is missing.
pub(super) fn is_origin_local(request: &HttpRequest) -> bool {
    let Some(origin) = request.header("origin") else {
        return true;
    };
    let host = origin.split_once("://").map_or(origin, |(_, host)| host);
    let host = host.rsplit_once(':').map_or(host, |(host, _)| host);
    matches!(host, "localhost" | "127.0.0.1" | "[::1]")
}

/// Returns whether the client accepts responses of this media type.
pub(super) fn accepts(request: &HttpRequest, media_type: &str) -> bool {
    let group = media_type.split('/').next().unwrap_or_default();
    let accepted = request.headers.iter().filter(|(name, _)| name == "accept");
    accepted.flat_map(|(_, value)| value.split(',')).any(|range| {
        let range = range.split(';').next().unwrap_or_default().trim();
        range.eq_ignore_ascii_case(media_type)
            || range == "*/*"
            || range.strip_suffix("/*").is_some_and(|known| known.eq_ignore_ascii_case(group))
    })
}

/// Returns whether the body's content type is JSON.
pub(super) fn is_json(request: &HttpRequest) -> bool {
    let media_type = request.header("content-type").unwrap_or_default();
    let media_type = media_type.split(';').next().unwrap_or_default().trim();
    media_type.eq_ignore_ascii_case("application/json")
}

/// Checks that a modern-era request's headers match its body. An `Err` describes the first header
/// that does not match.
pub(super) fn check_modern_headers(
    state: &State,
    http: &HttpRequest,
    request: &Request,
) -> Result<(), String> {
    let version = request.meta().and_then(|meta| meta.get(VERSION_KEY));
    check_header(http, "MCP-Protocol-Version", version.and_then(Value::as_str))?;
    check_header(http, "Mcp-Method", Some(&request.method))?;
    match request.method.as_str() {
        "tools/call" => {
            let name = request.param("name");
            check_header(http, "Mcp-Name", name)?;
            let tool = name.and_then(|name| state.tool(name));
            tool.map_or(Ok(()), |tool| check_param_headers(http, &tool.listed, request))
        }
        "prompts/get" => check_header(http, "Mcp-Name", request.param("name")),
        "resources/read" => check_header(http, "Mcp-Name", request.param("uri")),
        _ => Ok(()),
    }
}

/// Checks the headers of the arguments that the schema marks with `x-mcp-header`.
fn check_param_headers(
    http: &HttpRequest,
    tool: &serde_json::Map<String, Value>,
    request: &Request,
) -> Result<(), String> {
    let properties = tool.get("inputSchema").and_then(|schema| schema["properties"].as_object());
    for (name, schema) in properties.into_iter().flatten() {
        let Some(header) = schema.get("x-mcp-header").and_then(Value::as_str) else {
            continue;
        };
        let argument = request.params.get("arguments").and_then(|arguments| arguments.get(name));
        let expected = match argument {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(text.clone()),
            Some(other) => Some(other.to_string()),
        };
        check_header(http, &format!("Mcp-Param-{header}"), expected.as_deref())?;
    }
    Ok(())
}

fn check_header(http: &HttpRequest, name: &str, expected: Option<&str>) -> Result<(), String> {
    let found = http.header(name).map(decode_value).transpose();
    let found = found.map_err(|()| format!("the header {name} is not encoded as it must be"))?;
    if found.as_deref() == expected {
        return Ok(());
    }
    let shown = |value: Option<&str>| value.map_or("nothing".to_owned(), |v| format!("{v:?}"));
    let (found, expected) = (shown(found.as_deref()), shown(expected));
    Err(format!("the header {name} has {found}, and the body has {expected}"))
}

/// Decodes a header value if it is encoded as `=?base64?…?=`.
fn decode_value(value: &str) -> Result<String, ()> {
    let encoded = value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?="));
    let Some(encoded) = encoded else {
        return Ok(value.to_owned());
    };
    let bytes = STANDARD.decode(encoded).map_err(drop)?;
    String::from_utf8(bytes).map_err(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_header(name: &str, value: &str) -> HttpRequest {
        let headers = vec![(name.to_owned(), value.to_owned())];
        HttpRequest { headers, ..HttpRequest::default() }
    }

    #[test]
    fn only_local_origins_pass() {
        assert!(is_origin_local(&HttpRequest::default()));
        for local in ["http://localhost", "http://127.0.0.1:80", "http://[::1]:80"] {
            assert!(is_origin_local(&with_header("origin", local)), "{local}");
        }
        for remote in ["http://evil.example", "http://localhost.evil.example", "null"] {
            assert!(!is_origin_local(&with_header("origin", remote)), "{remote}");
        }
    }

    #[test]
    fn a_media_range_covers_its_types() {
        for accepted in ["text/event-stream", "a/b, text/*;q=0.5", "*/*"] {
            assert!(accepts(&with_header("accept", accepted), "text/event-stream"), "{accepted}");
        }
        assert!(!accepts(&with_header("accept", "application/json"), "text/event-stream"));
        assert!(!accepts(&HttpRequest::default(), "text/event-stream"));
    }

    #[test]
    fn a_header_value_may_be_encoded() {
        assert_eq!(decode_value("=?base64?Z3LDvG4=?=").unwrap(), "grün");
        assert_eq!(decode_value("plain").unwrap(), "plain");
        assert!(decode_value("=?base64?!?=").is_err());
    }
}
