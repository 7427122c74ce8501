//! Reads rate limits from the headers of a response.

use std::time::{Duration, SystemTime};

use crate::error::RateLimitScope;
use crate::http::parse_delay::parse_delay;

/// The headers for each rate limit. The placeholder `{}` stands for `remaining` or `reset`.
///
/// The values of `x-ratelimit-reset-*` are durations (`6m0s`; Azure sends seconds), and Anthropic's
/// reset times are RFC 3339 dates. The value of `x-ratelimit-reset` is a number of seconds or, from
/// `OpenRouter`, a Unix time in milliseconds.
const RATE_LIMIT_HEADERS: &[(&str, Option<RateLimitScope>)] = &[
    ("x-ratelimit-{}-requests", Some(RateLimitScope::Requests)),
    ("x-ratelimit-{}-tokens", Some(RateLimitScope::Tokens)),
    ("anthropic-ratelimit-requests-{}", Some(RateLimitScope::Requests)),
    ("anthropic-ratelimit-input-tokens-{}", Some(RateLimitScope::InputTokens)),
    ("anthropic-ratelimit-output-tokens-{}", Some(RateLimitScope::OutputTokens)),
    ("anthropic-ratelimit-tokens-{}", Some(RateLimitScope::Tokens)),
    // Mistral's headers, which include no reset time.
    ("x-ratelimit-{}-req-minute", Some(RateLimitScope::Requests)),
    ("x-ratelimit-{}", None),
];

/// Returns the exhausted rate limit and the time until it resets, as read from a response's rate
/// limit headers. Rate limit headers are less precise than [`retry_after`] and an error's message.
///
/// If several limits are exhausted, the limit with the longest reset time is returned. The reset
/// time of a limit with remaining capacity is ignored. If the headers contain only one reset time,
/// and the limit's remaining count is unknown, the limit is assumed to be exhausted.
pub(crate) fn exhausted_rate_limit<'a>(
    header: impl Fn(&str) -> Option<&'a str>,
    now: SystemTime,
) -> (Option<RateLimitScope>, Option<Duration>) {
    let limits: Vec<_> = RATE_LIMIT_HEADERS
        .iter()
        .filter_map(|(name, scope)| {
            let wait =
                header(&name.replace("{}", "reset")).and_then(|reset| parse_delay(reset, now));
            let wait = wait.filter(|wait| !wait.is_zero());
            let remaining = header(&name.replace("{}", "remaining")).map(str::trim);
            (wait.is_some() || remaining == Some("0")).then_some((*scope, wait, remaining))
        })
        .collect();
    let used_up = limits.iter().filter(|(.., remaining)| *remaining == Some("0"));
    match (used_up.max_by_key(|(_, wait, _)| *wait), limits.as_slice()) {
        (Some((scope, wait, _)), _) => (*scope, *wait),
        (None, [(_, wait, None)]) => (None, *wait),
        (None, _) => (None, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::UNIX_EPOCH;

    /// 2026-01-01.
    const NOW: u64 = 1_767_225_600;

    fn now() -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(NOW)
    }

    fn header<'a>(headers: &'a [(&str, &'a str)]) -> impl Fn(&str) -> Option<&'a str> {
        |wanted| headers.iter().find(|(name, _)| *name == wanted).map(|(_, value)| *value)
    }

    #[track_caller]
    fn check(headers: &[(&str, &str)], scope: Option<RateLimitScope>, millis: Option<u64>) {
        let expected = (scope, millis.map(Duration::from_millis));
        assert_eq!(exhausted_rate_limit(header(headers), now()), expected, "{headers:?}");
    }

    #[test]
    fn the_delay_is_the_reset_time_of_the_exhausted_allowance() {
        use RateLimitScope::*;
        check(
            &[
                ("x-ratelimit-remaining-requests", "0"),
                ("x-ratelimit-reset-requests", "6m0s"),
                ("x-ratelimit-remaining-tokens", "149984"),
                ("x-ratelimit-reset-tokens", "88ms"),
            ],
            Some(Requests),
            Some(360_000),
        );
        check(
            &[
                ("anthropic-ratelimit-input-tokens-remaining", "0"),
                ("anthropic-ratelimit-input-tokens-reset", "2026-01-01T00:00:09Z"),
                ("anthropic-ratelimit-output-tokens-remaining", "0"),
                ("anthropic-ratelimit-output-tokens-reset", "2026-01-01T00:00:05Z"),
                ("anthropic-ratelimit-requests-remaining", "49"),
                ("anthropic-ratelimit-requests-reset", "2026-01-01T00:00:59Z"),
            ],
            Some(InputTokens),
            Some(9_000),
        );
        let epoch = [("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1767225630000")];
        check(&epoch, None, Some(30_000));
    }

    #[test]
    fn unexhausted_allowances_yield_no_delay() {
        check(&[("x-ratelimit-reset-tokens", "1.5s")], None, Some(1_500));
        let left = [("x-ratelimit-remaining-tokens", "9"), ("x-ratelimit-reset-tokens", "1.5s")];
        check(&left, None, None);
        check(
            &[
                ("x-ratelimit-remaining-requests", "9"),
                ("x-ratelimit-reset-requests", "1s"),
                ("x-ratelimit-remaining-tokens", "9"),
                ("x-ratelimit-reset-tokens", "2s"),
            ],
            None,
            None,
        );
        check(&[("x-ratelimit-remaining-req-minute", "0")], Some(RateLimitScope::Requests), None);
        // Azure sends this for unknown limits.
        check(
            &[("x-ratelimit-remaining-tokens", "-1"), ("x-ratelimit-reset-tokens", "0")],
            None,
            None,
        );
        check(&[], None, None);
    }
}
