//! Escapes the characters in JSON that some readers take for the end of a line.

use memchr::memchr2;

/// The characters beside LF and CR at which readers split lines, and how JSON escapes them. For
/// example, Python's `str.splitlines` splits at them, although server-sent events and JSON lines
/// end at LF and CR only.
const SEPARATORS: [(&str, &str); 3] =
    [("\u{85}", r"\u0085"), ("\u{2028}", r"\u2028"), ("\u{2029}", r"\u2029")];

/// Escapes the line separators in the JSON that begins at `start`. They occur only in the strings
/// of JSON, so that the values stay the same.
pub(crate) fn escape_line_separators(out: &mut Vec<u8>, start: usize) {
    // Most texts are ASCII, for which this costs a fraction of a search.
    if out[start..].is_ascii() {
        return;
    }
    let Some(first) = find_separator(&out[start..]) else { return };
    let rest = out.split_off(start + first.0);
    let (mut rest, mut found) = (&rest[..], Some((0, first.1)));
    while let Some((at, (separator, escape))) = found {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(escape.as_bytes());
        rest = &rest[at + separator.len()..];
        found = find_separator(rest);
    }
    out.extend_from_slice(rest);
}

/// Returns the place of the first separator, and the separator with its escape.
fn find_separator(text: &[u8]) -> Option<(usize, (&'static str, &'static str))> {
    let mut searched = 0;
    loop {
        // The first bytes of the separators.
        let at = searched + memchr2(0xc2, 0xe2, &text[searched..])?;
        let is_here = |(separator, _): &(&str, &str)| text[at..].starts_with(separator.as_bytes());
        match SEPARATORS.into_iter().find(is_here) {
            Some(found) => return Some((at, found)),
            None => searched = at + 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_line_separators_are_escaped() {
        for (json, escaped) in [
            ("", ""),
            ("\"plain\"", "\"plain\""),
            ("\"\u{2028}\"", r#""\u2028""#),
            ("\"a\u{2029}\u{85}b\u{2028}\"", r#""a\u2029\u0085b\u2028""#),
            ("\"“é©\u{2027}\u{202a}\u{84}…”\"", "\"“é©\u{2027}\u{202a}\u{84}…”\""),
        ] {
            let mut out = b"data: \xe2\x80\xa8".to_vec();
            let start = out.len();
            out.extend_from_slice(json.as_bytes());
            escape_line_separators(&mut out, start);
            assert_eq!(out[..start], *b"data: \xe2\x80\xa8");
            assert_eq!(out[start..], *escaped.as_bytes());
        }
    }
}
