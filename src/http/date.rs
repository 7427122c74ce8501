//! Converts dates in headers to seconds since 1970, without a calendar library.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Parses a date in any of HTTP's three date formats: "a recipient that parses a timestamp value in
/// an HTTP field MUST accept all three HTTP-date formats" (RFC 9110, section 5.6.7).
///
/// The current time `now` determines the century of a two-digit year: "a timestamp that appears to
/// be more than 50 years in the future" is "the most recent year in the past that had the same last
/// two digits". The day of the week is ignored.
pub(super) fn parse_http_date(text: &str, now: SystemTime) -> Option<SystemTime> {
    let (_, date) = text.trim().split_once([',', ' '])?;
    let mut words = date.split([' ', '-']).filter(|word| !word.is_empty());
    let mut word = || words.next();
    let [first, second, third, fourth] = [word()?, word()?, word()?, word()?];
    let (day, month, year, time) = if first.starts_with(|c: char| c.is_ascii_digit()) {
        // The formats "Sun, 06 Nov 1994 08:49:37 GMT" and "Sunday, 06-Nov-94 08:49:37 GMT".
        matches!(word()?, "GMT" | "UTC").then_some(())?;
        (first, second, third, fourth)
    } else {
        // The format "Sun Nov  6 08:49:37 1994".
        (second, first, fourth, third)
    };
    let month = MONTHS.iter().position(|name| name.eq_ignore_ascii_case(month))? + 1;
    let (day, month) = (parse_digits(day)?, u64::try_from(month).ok()?);
    let full = |year: u64| unix_time(year, month, day, parse_time_of_day(time)?);
    match (year.len(), parse_digits(year)?) {
        (2, year) => {
            let fifty = Duration::from_hours(24 * 365 * 50 + 24 * 12);
            full(2000 + year).filter(|date| *date <= now + fifty).or_else(|| full(1900 + year))
        }
        (4, year) => full(year),
        _ => None,
    }
}

/// Parses an RFC 3339 date, such as `2026-01-31T12:00:00Z`. The date may include fractional seconds
/// and may be in UTC or have an offset.
pub(super) fn parse_rfc3339(text: &str) -> Option<SystemTime> {
    let (date, time) = text.trim().split_once(['T', 't', ' '])?;
    let mut date = date.splitn(3, '-').map(parse_digits);
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let at = time.find(['Z', 'z', '+', '-'])?;
    let (clock_time, offset) = time.split_at_checked(at)?;
    let (whole, fraction) = clock_time.split_once('.').unwrap_or((clock_time, ""));
    let fraction = match fraction {
        "" => 0.0,
        digits if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            format!("0.{digits}").parse().ok()?
        }
        _ => return None,
    };
    let local =
        unix_time(year, month, day, parse_time_of_day(whole)?)? + Duration::from_secs_f64(fraction);
    let (sign, offset) = offset.split_at_checked(1)?;
    match (sign, offset) {
        ("Z" | "z", "") => Some(local),
        ("+", offset) => local.checked_sub(Duration::from_secs(parse_time_of_day(offset)?)),
        ("-", offset) => local.checked_add(Duration::from_secs(parse_time_of_day(offset)?)),
        _ => None,
    }
}

/// Parses a time of day, such as `08:49:37` or `08:49`, and returns the number of seconds since
/// midnight. A leap second counts as the following second.
fn parse_time_of_day(time: &str) -> Option<u64> {
    let mut parts = time.splitn(3, ':').map(parse_digits);
    let (hours, minutes) = (parts.next()??, parts.next()??);
    let seconds = parts.next().unwrap_or(Some(0))?;
    (hours < 24 && minutes < 60 && seconds <= 60).then_some(hours * 3600 + minutes * 60 + seconds)
}

/// Parses a number of at most four digits.
fn parse_digits(text: &str) -> Option<u64> {
    let digits = (1..=4).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

fn unix_time(year: u64, month: u64, day: u64, seconds: u64) -> Option<SystemTime> {
    let in_month = match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        _ => return None,
    };
    if !(1970..=9999).contains(&year) || !(1..=in_month).contains(&day) {
        return None;
    }
    // In this calculation, the year starts in March, so that the leap day is the last day of the
    // year: Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms".
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    let since_1970 = days.checked_sub(719_468)?;
    UNIX_EPOCH.checked_add(Duration::from_secs(since_1970 * 86_400 + seconds))
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    /// 2026-01-01.
    const NOW: u64 = 1_767_225_600;

    #[track_caller]
    fn check_http(text: &str, seconds: Option<u64>) {
        assert_eq!(parse_http_date(text, at(NOW)), seconds.map(at), "{text}");
    }

    #[track_caller]
    fn check_3339(text: &str, millis: Option<u64>) {
        let expected = millis.map(|millis| UNIX_EPOCH + Duration::from_millis(millis));
        assert_eq!(parse_rfc3339(text), expected, "{text}");
    }

    #[test]
    fn the_three_forms_of_http_are_read() {
        // The examples of RFC 9110.
        check_http("Sun, 06 Nov 1994 08:49:37 GMT", Some(784_111_777));
        check_http("Sunday, 06-Nov-94 08:49:37 GMT", Some(784_111_777));
        check_http("Sun Nov  6 08:49:37 1994", Some(784_111_777));
        check_http(" Thu, 01 Jan 1970 00:00:00 GMT ", Some(0));
        check_http("Thu, 29 Feb 2024 23:59:59 GMT", Some(1_709_251_199));
        check_http("Wed, 01 Mar 2000 00:00:00 GMT", Some(951_868_800));
        check_http("Friday, 01-Jan-27 00:00:00 GMT", Some(NOW + 365 * 86_400));
        check_http("Fri Dec 31 23:59:60 1999", Some(946_684_800));
    }

    #[test]
    fn a_year_of_two_digits_is_never_more_than_fifty_years_ahead() {
        check_http("Wednesday, 01-Jan-75 00:00:00 GMT", Some(3_313_526_400));
        check_http("Saturday, 01-Jan-77 00:00:00 GMT", Some(220_924_800));
    }

    #[test]
    fn invalid_dates_are_none() {
        for text in [
            "",
            "soon",
            "120",
            "Sun, 06 Nov 1994 08:49:37",
            "Sun, 06 Nov 1994 08:49:37 CET",
            "Sun, 31 Nov 1994 08:49:37 GMT",
            "Sun, 29 Feb 2023 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:00:00 GMT",
            "Sun, 06 Nov 19941 08:00:00 GMT",
            "Sun, 00 Nov 1994 08:49:37 GMT",
            "Sun, ä6 Növ 1994 08:49:37 GMT",
            "Sun, 06 Nov 1969 08:49:37 GMT",
            "\u{e9}\u{e9}",
        ] {
            check_http(text, None);
            check_3339(text, None);
        }
    }

    #[test]
    fn rfc_3339_dates_may_have_fraction_and_offset() {
        check_3339("1970-01-01T00:00:00Z", Some(0));
        check_3339("2026-01-01T00:00:00Z", Some(NOW * 1000));
        check_3339("2026-01-01T00:00:00.250Z", Some(NOW * 1000 + 250));
        check_3339("2026-01-01t01:30:00+01:30", Some(NOW * 1000));
        check_3339("2025-12-31T19:00:00-05:00", Some(NOW * 1000));
        for text in ["2026-01-01", "2026-01-01T00:00:00", "2026-13-01T00:00:00Z", "T Z", "+T+Z"] {
            check_3339(text, None);
        }
        check_3339("2026-01-01T00:00:00.Z1Z", None);
        check_3339("2026-01-01T00:00:00+é", None);
    }
}
