//! Reads the retry delay from the body of an error response.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::http::{parse_delay, parse_duration_prefix};
use crate::provider::codec::failure::error_body::ErrorBody;

/// The phrases that precede a duration in a message, in lower case.
const DELAY_PREFIXES: &[&str] = &[
    "retry in ",
    "retry after ",
    "try again in ",
    "try again after ",
    "retry your request after ",
];

/// Reads the retry delay from the `retryDelay` field of Google's `RetryInfo`, from a message such
/// as "Please try again in 1.5s", or from headers that a gateway received. Dates are ignored if
/// `now` is `None`.
pub(super) fn read_retry_delay(
    error_body: &ErrorBody,
    now: Option<SystemTime>,
) -> Option<Duration> {
    // Without the current time, the delay until a date is measured from 1970, and such a long delay
    // is discarded.
    let read = |text: &str| match now {
        Some(now) => parse_delay(text, now),
        None => parse_delay(text, UNIX_EPOCH).filter(|wait| wait.as_secs() < 1_000_000_000),
    };
    let delay = error_body.retry_delay.as_deref().and_then(read);
    delay
        .or_else(|| delay_in_message(&error_body.text))
        .or_else(|| error_body.reset_delay.as_deref().and_then(read))
}

fn delay_in_message(text: &str) -> Option<Duration> {
    let spans = DELAY_PREFIXES.iter().flat_map(|before| {
        text.match_indices(before).filter_map(|(at, _)| text.get(at + before.len()..))
    });
    spans.filter_map(parse_duration_prefix).map(|(wait, _)| wait).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-01-01.
    const NOW: u64 = 1_767_225_600;

    #[track_caller]
    fn check(json: &str, millis: impl Into<Option<u64>>) {
        let now = UNIX_EPOCH + Duration::from_secs(NOW);
        let error_body = ErrorBody::from_json(json).unwrap();
        let expected = millis.into().map(Duration::from_millis);
        assert_eq!(read_retry_delay(&error_body, Some(now)), expected, "{json}");
    }

    #[test]
    fn retry_delays_are_read_from_every_body_format() {
        let info = r#"{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"34.4s"}"#;
        check(&format!(r#"{{"error":{{"details":[{info}]}}}}"#), 34_400);
        check(r#"{"error":{"message":"Quota exceeded. Please retry in 12.3s."}}"#, 12_300);
        check(r#"{"error":"Please retry in 547ms"}"#, 547);
        check(r#"{"error":{"message":"Limit 5. Please try again in 1.5s. Need more?"}}"#, 1_500);
        check(r#"{"error":{"message":"Please try again in 300ms."}}"#, 300);
        check(r#"{"error":{"message":"Please try again in 2m3s."}}"#, 123_000);
        check(r#"{"error":{"message":"Please try again in 7m12s. Visit"}}"#, 432_000);
        check(r#"{"error":{"message":"Please retry after 86400 seconds."}}"#, 86_400_000);
        check(r#"{"statusCode":429,"message":"Try again in 3 seconds."}"#, 3_000);
        let headers = r#"{"X-RateLimit-Remaining":"0","X-RateLimit-Reset":"1767225630000"}"#;
        check(&format!(r#"{{"error":{{"metadata":{{"headers":{headers}}}}}}}"#), 30_000);
        let headers = r#"{"Retry-After":7}"#;
        check(&format!(r#"{{"error":{{"metadata":{{"headers":{headers}}}}}}}"#), 7_000);
    }

    #[test]
    fn a_body_without_a_time_yields_no_retry_delay() {
        check(r#"{"error":{"message":"Please try again in a while."}}"#, None);
        check(r#"{"error":{"message":"Please try again later."}}"#, None);
        check(r#"{"error":{"details":[{"retryDelay":"soon"}]}}"#, None);
        let error_body = ErrorBody::from_json(
            r#"{"metadata":{"headers":{"x-ratelimit-reset":"1767225630000"}}}"#,
        );
        assert_eq!(read_retry_delay(&error_body.unwrap(), None), None);
    }
}
