//! When the server wants to be asked again.

use std::time::Duration;

/// Reads how long to wait from the values of `retry-after-ms` and `retry-after`, the former first.
///
/// `retry-after` may also be a date (RFC 9110, section 10.2.3); without a clock it says nothing.
///
/// ```
/// use std::time::Duration;
/// use turnstream::http::retry_after;
///
/// assert_eq!(retry_after(None, Some("2")), Some(Duration::from_secs(2)));
/// assert_eq!(retry_after(Some("1500"), Some("2")), Some(Duration::from_millis(1500)));
/// assert_eq!(retry_after(None, Some("Fri, 31 Dec 1999 23:59:59 GMT")), None);
/// ```
pub fn retry_after(millis: Option<&str>, seconds: Option<&str>) -> Option<Duration> {
    let read = |value: &str, unit: f64| {
        let number: f64 = value.trim().parse().ok()?;
        Duration::try_from_secs_f64(number / unit).ok()
    };
    let millis = millis.and_then(|value| read(value, 1000.0));
    millis.or_else(|| seconds.and_then(|value| read(value, 1.0)))
}
