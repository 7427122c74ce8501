//! Reads JSON lines.

use std::fmt::Display;
use std::io::{self, BufRead};

use memchr::memchr;
use serde::de::{DeserializeOwned, IgnoredAny};

/// A line, together with its line number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line<T> {
    /// The line number, counted from 1.
    pub(crate) number: usize,
    /// The content of the line, without the LF.
    pub(crate) text: T,
    /// Whether the line ends with an LF.
    pub(crate) is_terminated: bool,
}

/// Splits bytes into lines.
pub(crate) fn split_lines(text: &[u8]) -> impl Iterator<Item = Line<&[u8]>> {
    let (mut left, mut number) = (text, 0);
    std::iter::from_fn(move || {
        if left.is_empty() {
            return None;
        }
        number += 1;
        let (text, behind, is_ended) = match memchr(b'\n', left) {
            Some(end) => (&left[..end], &left[end + 1..], true),
            None => (left, &[][..], false),
        };
        left = behind;
        Some(Line { number, text, is_terminated: is_ended })
    })
}

/// Reads lines from a reader until an error occurs. The error is returned with the line number.
pub(crate) fn read_lines(
    mut from: impl BufRead,
) -> impl Iterator<Item = Result<Line<Vec<u8>>, (usize, io::Error)>> {
    let (mut number, mut is_over) = (0, false);
    std::iter::from_fn(move || {
        if is_over {
            return None;
        }
        number += 1;
        let mut text = Vec::new();
        match from.read_until(b'\n', &mut text) {
            Ok(0) => None,
            Ok(_) => {
                let is_ended = text.pop_if(|last| *last == b'\n').is_some();
                Some(Ok(Line { number, text, is_terminated: is_ended }))
            }
            Err(error) => {
                is_over = true;
                Some(Err((number, error)))
            }
        }
    })
}

/// Deserializes each line and passes the value to `take`; blank lines are skipped. Returns the last
/// line if it is torn, that is, if it has no LF and is invalid.
///
/// # Errors
///
/// Returns an error with the line number and the reason if a line is invalid or `take` rejects its
/// value.
pub(crate) fn parse_values<V: DeserializeOwned>(
    text: &str,
    mut take: impl FnMut(V) -> Result<(), String>,
) -> Result<Option<&[u8]>, String> {
    let whole = |line: &Line<&[u8]>| !line.is_blank();
    for line in split_lines(text.as_bytes()).filter(whole) {
        let refused = |why: &dyn Display| format!("line {}: {why}", line.number);
        match serde_json::from_slice(line.text) {
            Ok(value) => take(value).map_err(|why| refused(&why))?,
            // A line without an LF was not completely written.
            Err(_) if !line.is_terminated && line.number > 1 => return Ok(Some(line.text)),
            Err(error) => return Err(refused(&error)),
        }
    }
    Ok(None)
}

impl<T: AsRef<[u8]>> Line<T> {
    pub(crate) fn is_blank(&self) -> bool {
        self.text.as_ref().iter().all(u8::is_ascii_whitespace)
    }
}

/// Returns whether `tail` may be a line that was cut off by a crash, that is, whether `tail` is the
/// start of a compact JSON object.
pub(crate) fn is_truncated_object(tail: &[u8]) -> bool {
    let text = match str::from_utf8(tail) {
        Ok(text) => text,
        // The text ends in the middle of a character.
        Err(error) if error.error_len().is_none() => {
            str::from_utf8(&tail[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(_) => return false,
    };
    let needs_more = |text: &str| {
        let parsed = serde_json::from_str::<IgnoredAny>(text);
        parsed.is_err_and(|error| error.is_eof())
    };
    // `serde_json` rejects `1.` and `1e` as numbers, even at the end of the input.
    let number = |c: char| matches!(c, '0'..='9' | '-' | '+' | '.' | 'e' | 'E');
    text.starts_with('{')
        && (is_complete_object(tail)
            || needs_more(text)
            || needs_more(text.trim_end_matches(number)))
}

/// Returns whether `tail` is a complete line that lacks only its LF.
fn is_complete_object(tail: &[u8]) -> bool {
    tail.ends_with(b"}") && serde_json::from_slice::<IgnoredAny>(tail).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asserts that [`parse_values`] reads the expected numbers and returns the expected torn line,
    /// or fails with the expected error.
    fn check(text: &str, expected: Result<(&[u32], Option<&str>), &str>) {
        let mut read = Vec::new();
        let torn = parse_values(text, |number: u32| match number {
            13 => Err("it is 13".to_owned()),
            number => {
                read.push(number);
                Ok(())
            }
        });
        match (torn, expected) {
            (Ok(torn), Ok(expected)) => {
                assert_eq!((&*read, torn), (expected.0, expected.1.map(str::as_bytes)), "{text:?}");
            }
            (torn, Err(expected)) => {
                let error = torn.expect_err(text);
                assert!(error.starts_with(expected), "{text:?}: {error}");
            }
            (Err(error), Ok(_)) => panic!("{text:?}: {error}"),
        }
    }

    #[test]
    fn values_are_parsed_with_line_numbers_and_a_truncated_last_line_is_returned() {
        check("", Ok((&[], None)));
        check("1\n\n \r\n2\n", Ok((&[1, 2], None)));
        check("1\n2", Ok((&[1, 2], None)));
        check("1\n\"", Ok((&[1], Some("\""))));
        check("1\nx\n", Err("line 2: expected value"));
        check("1\n\n13\n", Err("line 3: it is 13"));
        // Invalid text in the first line is not treated as truncated.
        check("x", Err("line 1: "));
    }

    #[test]
    fn lines_from_a_reader_equal_those_of_its_text() {
        for text in ["", "\n", "a", "a\n\nb\r\n", "a\nb"] {
            let read: Vec<_> = read_lines(text.as_bytes()).map(Result::unwrap).collect();
            let split = split_lines(text.as_bytes());
            let split = split.map(|line| Line {
                number: line.number,
                text: line.text.to_vec(),
                is_terminated: line.is_terminated,
            });
            assert_eq!(read, split.collect::<Vec<_>>(), "{text:?}");
        }
    }
}
