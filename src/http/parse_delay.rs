//! Parses delays in the formats that servers use.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::http::date::{parse_http_date, parse_rfc3339};

/// Parses a duration with units, such as `6m0s`, `1.57s`, `88ms`, `1h2m`, or `2 minutes 3 seconds`,
/// at the start of a string. Also returns the rest of the string.
pub(crate) fn parse_duration_prefix(text: &str) -> Option<(Duration, &str)> {
    let mut total = Duration::ZERO;
    let mut rest = text.trim_start();
    let mut read = None;
    loop {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        // A period after a number is the end of a sentence.
        let number = rest[..digits].trim_end_matches('.');
        let Ok(number) = number.parse::<f64>() else { return read };
        let behind = rest[digits..].trim_start();
        let letters = behind.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(behind.len());
        let seconds = match behind[..letters].to_ascii_lowercase().as_str() {
            "ms" | "millisecond" | "milliseconds" => 0.001,
            "s" | "sec" | "secs" | "second" | "seconds" => 1.0,
            "m" | "min" | "mins" | "minute" | "minutes" => 60.0,
            "h" | "hr" | "hrs" | "hour" | "hours" => 3600.0,
            "d" | "day" | "days" => 86_400.0,
            _ => return read,
        };
        let part = Duration::try_from_secs_f64(number * seconds).ok()?;
        total = total.checked_add(part)?;
        rest = behind[letters..].trim_start();
        read = Some((total, rest));
    }
}

/// Parses a delay given as a number of seconds, a duration with units, a date, or a Unix time in
/// seconds or milliseconds. A time in the past yields a delay of zero.
pub(crate) fn parse_delay(text: &str, now: SystemTime) -> Option<Duration> {
    /// The smallest number that is interpreted as a Unix time. No server requests a delay of thirty
    /// years, so a number this large must be a Unix time.
    const MIN_UNIX_SECONDS: f64 = 1e9;
    const MIN_UNIX_MILLIS: f64 = 1e12;
    let text = text.trim();
    if let Ok(number) = text.parse::<f64>() {
        let since = |seconds| UNIX_EPOCH.checked_add(Duration::try_from_secs_f64(seconds).ok()?);
        return match number {
            number if number >= MIN_UNIX_MILLIS => Some(from(now, since(number / 1000.0)?)),
            number if number >= MIN_UNIX_SECONDS => Some(from(now, since(number)?)),
            number => Duration::try_from_secs_f64(number).ok(),
        };
    }
    if let Some((wait, "")) = parse_duration_prefix(text) {
        return Some(wait);
    }
    Some(from(now, parse_rfc3339(text).or_else(|| parse_http_date(text, now))?))
}

fn from(now: SystemTime, date: SystemTime) -> Duration {
    date.duration_since(now).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-01-01.
    const NOW: u64 = 1_767_225_600;

    #[track_caller]
    fn check(text: &str, millis: impl Into<Option<u64>>) {
        let now = UNIX_EPOCH + Duration::from_secs(NOW);
        assert_eq!(parse_delay(text, now), millis.into().map(Duration::from_millis), "{text}");
    }

    #[test]
    fn every_delay_notation_is_parsed() {
        check("2", 2_000);
        check(" 0.5 ", 500);
        check("0", 0);
        check("6m0s", 360_000);
        check("1s", 1_000);
        check("88ms", 88);
        check("1.57s", 1_570);
        check("1h2m3.5s", 3_723_500);
        check("2 minutes 3 seconds", 123_000);
        check("1d", 86_400_000);
        check("1767225630", 30_000);
        check("1767225630000", 30_000);
        check("1767225600500", 500);
        check("2026-01-01T00:01:00Z", 60_000);
        check("Thu, 01 Jan 2026 00:01:00 GMT", 60_000);
        check("Thursday, 01-Jan-26 00:01:00 GMT", 60_000);
        check("Thu Jan  1 00:01:00 2026", 60_000);
    }

    #[test]
    fn a_date_in_the_past_is_a_zero_delay() {
        check("1767225599", 0);
        check("2025-12-31T23:59:59Z", 0);
        check("Fri, 31 Dec 1999 23:59:59 GMT", 0);
    }

    #[test]
    fn an_invalid_delay_is_none() {
        for text in
            ["", "-1", "soon", "NaN", "inf", "1e400", "5 bananas", "s", "99999999999999999d"]
        {
            check(text, None);
        }
        // Beyond the range of dates.
        for power in 18..=23 {
            parse_delay(&format!("1e{power}"), UNIX_EPOCH);
        }
        check("10000000000000000000000", None);
        check("1s later", None);
    }

    #[test]
    fn a_duration_prefix_ends_after_its_last_unit() {
        let text = "2m3.5s. Visit us at 5 o'clock";
        assert_eq!(
            parse_duration_prefix(text),
            Some((Duration::from_millis(123_500), ". Visit us at 5 o'clock"))
        );
        assert_eq!(parse_duration_prefix("in 5s"), None);
        assert_eq!(parse_duration_prefix("30."), None);
    }
}
