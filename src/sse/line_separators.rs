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
    if is_ascii(&out[start..]) {
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

/// Returns whether a text is ASCII, as most texts are. For the length of an event, this takes fewer
/// instructions than a search, and than `[u8]::is_ascii`, which reads the last bytes one by one.
fn is_ascii(text: &[u8]) -> bool {
    let (chunks, _) = text.as_chunks::<8>();
    // The last chunk overlaps the one before it.
    let Some(last) = text.last_chunk::<8>() else { return text.is_ascii() };
    let bits = |bits, chunk: &[u8; 8]| bits | u64::from_ne_bytes(*chunk);
    chunks.iter().fold(bits(0, last), bits) & 0x8080_8080_8080_8080 == 0
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

    #[test]
    fn a_separator_is_found_at_each_place_of_a_text_of_each_length() {
        for (separator, escape) in SEPARATORS {
            for other in 0..40 {
                for at in 0..=other {
                    let (before, after) = ("a".repeat(at), "b".repeat(other - at));
                    let mut out = format!("{before}{separator}{after}").into_bytes();
                    escape_line_separators(&mut out, 0);
                    assert_eq!(out, format!("{before}{escape}{after}").into_bytes());
                }
            }
        }
    }

    #[test]
    fn a_text_is_ascii_if_each_of_its_bytes_is() {
        for len in 0..40 {
            let mut text = vec![0x7f; len];
            assert!(is_ascii(&text), "{len} bytes");
            for at in 0..len {
                text[at] = 0x80;
                assert!(!is_ascii(&text), "byte {at} of {len}");
                text[at] = 0x7f;
            }
        }
    }
}
