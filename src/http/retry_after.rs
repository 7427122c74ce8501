//! Reads the retry delay from the headers of a response.

use std::time::{Duration, SystemTime};

use crate::http::parse_delay::parse_delay;

/// Reads the retry delays from the `retry-after-ms` and `retry-after` headers, and returns the
/// longer delay.
///
/// The value of `retry-after` is a number of seconds or a date (RFC 9110, section 10.2.3), which is
/// why the current time `now` is required. A date in the past yields a delay of zero.
///
/// ```
/// use std::time::{Duration, UNIX_EPOCH};
/// use turnstream::http::retry_after;
///
/// let now = UNIX_EPOCH + Duration::from_secs(784_111_777);
/// let read = |name, value| retry_after(|asked| (asked == name).then_some(value), now);
/// assert_eq!(read("retry-after-ms", "1500"), Some(Duration::from_millis(1500)));
/// assert_eq!(read("retry-after", "2.5"), Some(Duration::from_millis(2500)));
/// let date = "Sun, 06 Nov 1994 08:50:37 GMT";
/// assert_eq!(read("retry-after", date), Some(Duration::from_secs(60)));
/// assert_eq!(read("date", date), None);
/// ```
pub fn retry_after<'a>(
    header: impl Fn(&str) -> Option<&'a str>,
    now: SystemTime,
) -> Option<Duration> {
    let millis = header("retry-after-ms").and_then(|value| value.trim().parse::<f64>().ok());
    let millis = millis.and_then(|millis| Duration::try_from_secs_f64(millis / 1000.0).ok());
    millis.max(header("retry-after").and_then(|value| parse_delay(value, now)))
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

    #[test]
    fn of_two_retry_headers_the_longer_delay_applies() {
        let read = |headers: &[(&str, &str)]| retry_after(header(headers), now());
        let both = [("retry-after-ms", "1500"), ("retry-after", "2")];
        assert_eq!(read(&both), Some(Duration::from_secs(2)));
        let precise = [("retry-after-ms", "2500"), ("retry-after", "2")];
        assert_eq!(read(&precise), Some(Duration::from_millis(2500)));
        let odd = [("retry-after-ms", "-1"), ("retry-after", "2")];
        assert_eq!(read(&odd), Some(Duration::from_secs(2)));
        assert_eq!(read(&[("retry-after", "whenever")]), None);
        assert_eq!(read(&[]), None);
    }
}
