//! Recognizes JSON that does not change when it is parsed and written again.

/// The maximum nesting depth of arrays and objects. More deeply nested JSON is left to the parser,
/// which has a limit of its own.
const MAX_DEPTH: u32 = 64;

/// The maximum number of digits of an integer. Integers with fewer digits fit into 64 bits.
const MAX_DIGITS: usize = 19;

/// Returns whether `text` is a single JSON value that `serde_json` would write in the same way:
/// without white space, with integers as its only numbers, and without unusual escapes. Returns
/// `false` for text that is not JSON.
///
/// `false` may also be returned for JSON that is normalized, for example if it contains a float.
pub(super) fn is_normalized(text: &str) -> bool {
    Scanner { bytes: text.as_bytes(), at: 0, depth: 0, objects: 0 }.scan().is_some()
}

/// Returns the number of bytes before the first quote, backslash or control character: the part of
/// a string literal that stands for itself.
#[inline]
pub(crate) fn plain_text_len(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::MAX / 0xff;
    // Sets the highest bit of the lowest byte that is zero.
    let mark_zero = |word: u64| word.wrapping_sub(ONES) & !word;
    // Most texts are too short for a vectorized search, so eight bytes are compared at once.
    let (chunks, _) = bytes.as_chunks::<8>();
    let is_plain = |chunk: &&[u8; 8]| {
        let word = u64::from_le_bytes(**chunk);
        let quote = mark_zero(word ^ (ONES * u64::from(b'"')));
        let backslash = mark_zero(word ^ (ONES * u64::from(b'\\')));
        let control = word.wrapping_sub(ONES * u64::from(b' ')) & !word;
        (quote | backslash | control) & (ONES << 7) == 0
    };
    let start = 8 * chunks.iter().take_while(is_plain).count();
    let ends = |byte: &u8| matches!(byte, b'"' | b'\\' | ..b' ');
    let rest = &bytes[start..];
    start + rest.iter().position(ends).unwrap_or(rest.len())
}

/// Reads JSON from left to right. Each method returns `None` if the JSON may not be normalized.
struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The number of open arrays and objects.
    depth: u32,
    /// For each level, a bit that is set if an object is open at that level. The lowest bit belongs
    /// to the innermost level.
    objects: u64,
}

impl Scanner<'_> {
    fn scan(mut self) -> Option<()> {
        loop {
            if self.value_begins()? {
                continue;
            }
            // A value has ended, and with it perhaps the arrays and objects that contain it.
            loop {
                if self.depth == 0 {
                    return (self.at == self.bytes.len()).then_some(());
                }
                match (self.next()?, self.objects & 1) {
                    (b',', 1) => {
                        self.key()?;
                        break;
                    }
                    (b',', 0) => break,
                    (b'}', 1) | (b']', 0) => self.leave(),
                    _ => return None,
                }
            }
        }
    }

    /// Reads a value, or the start of an array or object that is not empty. Returns whether another
    /// value must follow, because the value is such an array or object.
    fn value_begins(&mut self) -> Option<bool> {
        match self.next()? {
            b'"' => self.string()?,
            b'{' if self.peek()? == b'}' => self.at += 1,
            b'{' => {
                self.enter(1)?;
                self.key()?;
                return Some(true);
            }
            b'[' if self.peek()? == b']' => self.at += 1,
            b'[' => {
                self.enter(0)?;
                return Some(true);
            }
            b'0' => self.end_of_number()?,
            b'1'..=b'9' => {
                let rest = &self.bytes[self.at..];
                let more = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
                self.at += more;
                if more >= MAX_DIGITS {
                    return None;
                }
                self.end_of_number()?;
            }
            b't' => self.literal(b"rue")?,
            b'f' => self.literal(b"alse")?,
            b'n' => self.literal(b"ull")?,
            _ => return None,
        }
        Some(false)
    }

    fn enter(&mut self, object: u64) -> Option<()> {
        if self.depth == MAX_DEPTH {
            return None;
        }
        self.depth += 1;
        self.objects = (self.objects << 1) | object;
        Some(())
    }

    fn leave(&mut self) {
        self.depth -= 1;
        self.objects >>= 1;
    }

    /// Reads a key and the colon after it.
    fn key(&mut self) -> Option<()> {
        if self.next()? != b'"' {
            return None;
        }
        // The parser represents some numbers as objects with a key that begins like this.
        if self.peek()? == b'$' {
            return None;
        }
        self.string()?;
        (self.next()? == b':').then_some(())
    }

    /// Reads the rest of a string, after its opening quote.
    fn string(&mut self) -> Option<()> {
        loop {
            self.at += plain_text_len(&self.bytes[self.at..]);
            match self.next()? {
                b'"' => return Some(()),
                b'\\'
                    if matches!(self.next()?, b'"' | b'\\' | b'b' | b'f' | b'n' | b'r' | b't') => {}
                _ => return None,
            }
        }
    }

    /// Checks that an integer has neither a fraction, an exponent nor another digit.
    fn end_of_number(&self) -> Option<()> {
        let is_part = |byte: &u8| matches!(byte, b'.' | b'e' | b'E' | b'0'..=b'9');
        (!self.bytes.get(self.at).is_some_and(is_part)).then_some(())
    }

    fn literal(&mut self, rest: &[u8]) -> Option<()> {
        self.bytes[self.at..].starts_with(rest).then(|| self.at += rest.len())
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::RawJson;

    #[test]
    fn plain_text_ends_before_the_first_quote_backslash_or_control_character() {
        for end in 0..=u8::MAX {
            for (start, len) in (0..20).flat_map(|start| [(start, 20), (start, start + 1)]) {
                // No byte next to the special one is mistaken for it.
                for other in [b' ', b'!', b'#', b'[', b']', 0x7f, 0x80, 0xa2, 0xdc, 0xff] {
                    let mut bytes = vec![other; len];
                    bytes[start] = end;
                    let ends = matches!(end, b'"' | b'\\') || end < b' ';
                    let expected = if ends { start } else { len };
                    assert_eq!(plain_text_len(&bytes), expected, "{bytes:?}");
                }
            }
        }
        assert_eq!(plain_text_len(b""), 0);
    }

    #[test]
    fn normalized_json_is_recognized() {
        for json in [
            "0",
            "9999999999999999999",
            "\"\"",
            "null",
            "{}",
            "[]",
            r#"{"a":[{},[],"b\"\\\n",12,true],"é":{"a":false,"a":null}}"#,
        ] {
            assert!(is_normalized(json), "{json}");
        }
        let nested = |levels| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
        assert!(is_normalized(&nested(64)) && !is_normalized(&nested(65)));
    }

    /// The parser decides about everything else.
    #[test]
    fn text_that_is_not_json_or_changes_when_it_is_written_is_not_normalized() {
        for json in [
            "",
            " ",
            "1 ",
            " 1",
            "01",
            "00",
            "-0",
            "1.0",
            "1e2",
            "1E2",
            "99999999999999999999",
            "tru",
            "nul",
            "falsey",
            "1 2",
            "1,2",
            "{",
            "[",
            "\"",
            "\"\\",
            "\"\\u0041\"",
            "\"\\/\"",
            "\"\u{1}\"",
            "[1,]",
            "[,1]",
            "[1",
            "[1}",
            "{\"a\":1]",
            "{\"a\"}",
            "{\"a\":}",
            "{a:1}",
            "{\"a\":1,}",
            "{,}",
            "{\"a\":1}}",
            "[]]",
            "{\"a\": 1}",
            "[1, 2]",
            "{1:2}",
            "{\"$serde_json::private::Number\":\"1e2\"}",
            "\u{feff}1",
        ] {
            assert!(!is_normalized(json), "{json}");
        }
    }

    #[test]
    fn what_is_recognized_is_what_the_parser_writes() {
        // Every sequence of a few tokens.
        let tokens = ["{", "}", "[", "]", "\"a\"", ":", ",", "1", "0", "null", " ", "\\"];
        let mut recognized = 0;
        let mut texts = vec![String::new()];
        for _ in 0..5 {
            texts = texts
                .iter()
                .flat_map(|text| tokens.map(|token| format!("{text}{token}")))
                .collect();
            for text in texts.iter().filter(|text| is_normalized(text)) {
                recognized += 1;
                let parsed: RawJson = serde_json::from_str(text).expect(text);
                assert_eq!(parsed.as_str(), text);
            }
        }
        assert!(recognized > 20, "{recognized}");
    }
}
