//! Whole numbers that are written with a fraction or an exponent.

use std::ops::Range;

use crate::item::json::unquoted_bytes;

/// Returns the integer that a JSON number stands for, if the number is written with a fraction or
/// an exponent, for example `14380` for `14380.0`. Returns `None` for other numbers, and for
/// integers that do not fit into 64 bits.
pub(super) fn whole_number(number: &str) -> Option<String> {
    let (mantissa, exponent) = match number.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (number, 0),
    };
    let (sign, mantissa) = match mantissa.strip_prefix('-') {
        Some(mantissa) => ("-", mantissa),
        None => ("", mantissa),
    };
    let (integer, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if fraction.is_empty() && !number.contains(['e', 'E']) {
        return None;
    }
    let digits = format!("{integer}{fraction}");
    let significant = digits.trim_end_matches('0');
    // The position of the decimal point in `digits`, which may be outside of them.
    let point = i32::try_from(integer.len()).ok()?.checked_add(exponent)?;
    if significant.trim_start_matches('0').is_empty() {
        return Some("0".to_owned());
    }
    let point = usize::try_from(point).ok()?;
    // A number with 20 digits after its leading zeros is at least as large as any 64-bit integer.
    if significant.len() > point || point - leading_zeros(significant).min(point) > 20 {
        return None;
    }
    let whole = format!("{sign}{significant:0<point$}").parse::<i128>().ok()?;
    (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(&whole).then(|| whole.to_string())
}

fn leading_zeros(digits: &str) -> usize {
    digits.len() - digits.trim_start_matches('0').len()
}

/// Writes each whole number in a JSON text as an integer. Returns `None` if there is no number to
/// change.
pub(super) fn with_integers(json: &str) -> Option<String> {
    let mut changed = String::new();
    let mut from = 0;
    for range in bare_words(json) {
        if let Some(integer) = whole_number(&json[range.clone()]) {
            changed.push_str(&json[from..range.start]);
            changed.push_str(&integer);
            from = range.end;
        }
    }
    (from > 0).then(|| changed + &json[from..])
}

/// Returns whether a JSON text has a value that may have to be read differently: `null`, or a whole
/// number that is not written as an integer.
pub(super) fn has_readable_value(json: &str) -> bool {
    bare_words(json).any(|range| {
        let word = &json[range];
        word == "null" || whole_number(word).is_some()
    })
}

/// Returns the positions of the numbers and of `true`, `false` and `null` in a JSON text.
fn bare_words(json: &str) -> impl Iterator<Item = Range<usize>> {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    let mut bytes = unquoted_bytes(json).filter(move |(_, byte)| is_part(*byte)).peekable();
    std::iter::from_fn(move || {
        let (start, _) = bytes.next()?;
        let mut end = start + 1;
        while bytes.next_if(|(at, _)| *at == end).is_some() {
            end += 1;
        }
        Some(start..end)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_number_is_read_exactly() {
        for (written, integer) in [
            ("14380.0", "14380"),
            ("-3.000", "-3"),
            ("0.0", "0"),
            ("-0.0", "0"),
            ("0e9", "0"),
            ("1e3", "1000"),
            ("1.5E1", "15"),
            ("1200e-2", "12"),
            ("0.05e2", "5"),
            ("9007199254740993.0", "9007199254740993"),
            ("18446744073709551615.0", "18446744073709551615"),
            ("-9223372036854775808.0", "-9223372036854775808"),
        ] {
            assert_eq!(whole_number(written).as_deref(), Some(integer), "{written}");
        }
    }

    #[test]
    fn other_numbers_and_words_are_not_whole_numbers() {
        for other in [
            "5",
            "-5",
            "5.5",
            "0.1",
            "1e-1",
            "12e-2",
            "18446744073709551616.0",
            "1e400",
            "1e99999999999",
            "-9223372036854775809.0",
            "true",
            "false",
            "null",
            "",
        ] {
            assert_eq!(whole_number(other), None, "{other}");
        }
    }

    #[test]
    fn only_numbers_outside_of_strings_become_integers() {
        let json = r#"{"a":5.0,"b 1.0":"2.0 \" 3.0","c":[-1.0,1.5, 7],"d":1e2}"#;
        let expected = r#"{"a":5,"b 1.0":"2.0 \" 3.0","c":[-1,1.5, 7],"d":100}"#;
        assert_eq!(with_integers(json).as_deref(), Some(expected));
        assert_eq!(with_integers(r#"{"a":5,"b":"5.0"}"#), None);
        assert!(has_readable_value(json) && has_readable_value("[null]"));
        assert!(!has_readable_value(r#"{"null":"null 1.0","b":[true,5,5.5]}"#));
    }
}
