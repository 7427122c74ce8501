//! Compares a request with a recorded request.

use std::fmt;

use serde_json::Value;

use crate::item::RawJson;
use crate::provider::record::line::REQUEST_PARTS;

/// The first difference between a request and a recorded request.
///
/// If no recorded turn matches a request, [`Replay`](crate::provider::Replay) returns an error
/// whose source is a `RequestMismatch`. The error's message and its
/// [`parameter`](crate::Error::parameter) contain only the path, because the values may be private.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestMismatch {
    /// The number of the turn in the recording, counted from 1.
    pub turn: u32,
    /// The path to the first difference, for example `context[2].content`.
    pub path: String,
    /// The value at the path in the recorded request, or `null` if it is absent.
    pub recorded: RawJson,
    /// The value at the path in the new request, or `null` if it is absent.
    pub sent: RawJson,
}

impl fmt::Display for RequestMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { turn, path, .. } = self;
        write!(f, "the request differs from turn {turn} of the recording at `{path}`")
    }
}

impl std::error::Error for RequestMismatch {}

/// Compares the model's inputs in two requests part by part, and returns the first difference.
pub(super) fn first_mismatch(
    turn: u32,
    recorded: &Value,
    asked: &Value,
) -> Option<RequestMismatch> {
    REQUEST_PARTS.iter().find_map(|part| {
        let (path, recorded, asked) =
            first_difference(part.to_string(), &recorded[part], &asked[part])?;
        Some(RequestMismatch { turn, path, recorded: recorded.into(), sent: asked.into() })
    })
}

fn first_difference<'a>(
    path: String,
    recorded: &'a Value,
    asked: &'a Value,
) -> Option<(String, &'a Value, &'a Value)> {
    match (recorded, asked) {
        (Value::Object(a), Value::Object(b)) => {
            let mut keys: Vec<&String> = a.keys().chain(b.keys()).collect();
            keys.sort_unstable();
            keys.dedup();
            keys.into_iter().find_map(|key| {
                first_difference(format!("{path}.{key}"), &recorded[key], &asked[key])
            })
        }
        (Value::Array(a), Value::Array(b)) => (0..a.len().max(b.len()))
            .find_map(|at| first_difference(format!("{path}[{at}]"), &recorded[at], &asked[at])),
        _ => (recorded != asked).then_some((path, recorded, asked)),
    }
}
