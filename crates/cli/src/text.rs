//! Sanitizes text of models, tools and files for a terminal.

/// Stands for a character that a terminal would act on.
const REPLACEMENT_CHAR: char = '\u{fffd}';

/// Returns one line of at most `most` characters: white space collapses, control characters are
/// replaced.
pub(crate) fn one_line(text: &str, most: usize) -> String {
    let mut line = String::new();
    let mut chars = 0;
    for word in text.split_whitespace() {
        let gap = (!line.is_empty()).then_some(' ');
        for c in gap.into_iter().chain(word.chars()) {
            if chars == most {
                line.push('…');
                return line;
            }
            line.push(replace_control_char(c));
            chars += 1;
        }
    }
    line
}

/// Returns the text with its line breaks and tabs, and without anything else that moves a cursor.
pub(crate) fn sanitize_lines(text: &str) -> String {
    text.chars()
        .filter(|c| *c != '\r')
        .map(|c| if matches!(c, '\n' | '\t') { c } else { replace_control_char(c) })
        .collect()
}

/// Replaces a character that a terminal would act on.
pub(crate) fn replace_control_char(c: char) -> char {
    if is_control_or_bidi(c) { REPLACEMENT_CHAR } else { c }
}

/// Whether a terminal acts on the character, or the character changes how its neighbors are
/// displayed: control characters, including C1, and directional marks.
fn is_control_or_bidi(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(c, '\u{2066}'..='\u{2069}')
}

/// Whether the character is displayed as nothing.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{34f}' | '\u{200b}'..='\u{200d}' | '\u{2060}'..='\u{206f}')
        || matches!(c, '\u{115f}' | '\u{1160}' | '\u{2800}' | '\u{3164}' | '\u{ffa0}')
        || matches!(c, '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{feff}')
        || matches!(c, '\u{fe00}'..='\u{fe0f}' | '\u{fff0}'..='\u{fffb}')
        || matches!(c, '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}')
        || matches!(c, '\u{e0000}'..='\u{e0fff}')
        || (c.is_whitespace() && c != ' ')
}

/// Returns the text with all characters visible: invisible ones are written as `\u{202e}`. A text
/// of more than `most` characters is shortened to most of its beginning and some of its end.
pub(crate) fn escape_invisible(text: &str, most: usize) -> String {
    let escaped = |c: char, into: &mut String| match is_control_or_bidi(c) || is_invisible(c) {
        true => into.extend(c.escape_default()),
        false => into.push(c),
    };
    let all = text.chars().count();
    let mut line = String::new();
    if all <= most {
        text.chars().for_each(|c| escaped(c, &mut line));
        return line;
    }
    let tail = most / 3;
    text.chars().take(most - tail).for_each(|c| escaped(c, &mut line));
    line.extend([" … (", &(all - most).to_string(), " more characters) … "]);
    text.chars().skip(all - tail).for_each(|c| escaped(c, &mut line));
    line
}

/// Returns a line of JSON in which characters that a terminal acts on are escaped; its value is the
/// same for a program.
pub(crate) fn escape_json_line(json: &str) -> String {
    let mut line = String::with_capacity(json.len());
    for c in json.chars() {
        // Such characters occur only within strings, and each is one UTF-16 unit.
        match is_control_or_bidi(c) {
            true => line.extend(["\\u", &format!("{:04x}", u32::from(c))]),
            false => line.push(c),
        }
    }
    line
}

/// Returns a path in quotes, so that its end is visible. Printable ASCII characters other than `"`
/// and `\`, and visible letters and digits, are written as they are. All else is escaped, and so
/// are spaces that are repeated or at either end.
pub(crate) fn quote_path(path: &str) -> String {
    let is_mark = |c| matches!(c, '\u{300}'..='\u{36f}');
    let is_plain = |c: char| match c {
        '"' | '\\' => false,
        c => c.is_ascii_graphic() || (c.is_alphanumeric() && !is_invisible(c) && !is_mark(c)),
    };
    let mut line = String::from('"');
    let mut chars = path.chars().peekable();
    let mut before = ' ';
    while let Some(c) = chars.next() {
        let is_between_words = before != ' ' && chars.peek().is_some_and(|after| *after != ' ');
        match c {
            ' ' if is_between_words => line.push(c),
            ' ' => line.extend(c.escape_unicode()),
            c if is_plain(c) => line.push(c),
            c => line.extend(c.escape_default()),
        }
        before = c;
    }
    line.push('"');
    line
}

/// Returns the lines of a text as [`escape_invisible`] writes them; of a long text, the first and
/// the last lines.
pub(crate) fn head_and_tail(text: &str) -> Vec<String> {
    const HEAD_LINES: usize = 8;
    const TAIL_LINES: usize = 4;
    const MAX_LINE_CHARS: usize = 240;
    let all = text.lines().count();
    let mut lines = Vec::new();
    for (at, line) in text.lines().enumerate() {
        if all <= HEAD_LINES + TAIL_LINES + 1 || at < HEAD_LINES || at >= all - TAIL_LINES {
            lines.push(escape_invisible(line, MAX_LINE_CHARS));
        } else if at == HEAD_LINES {
            lines.push(format!("… ({} more lines) …", all - HEAD_LINES - TAIL_LINES));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_are_removed() {
        let evil = "a\u{1b}[31mb\u{9b}2Jc\u{202e}d\u{7}";
        assert_eq!(one_line(evil, 99), "a\u{fffd}[31mb\u{fffd}2Jc\u{fffd}d\u{fffd}");
        assert_eq!(sanitize_lines("a\r\n\tb\u{1b}]0;x\u{7}"), "a\n\tb\u{fffd}]0;x\u{fffd}");
    }

    #[test]
    fn c1_controls_and_bidi_marks_are_removed() {
        let marks = ('\u{80}'..='\u{9f}')
            .chain(['\u{61c}', '\u{200e}', '\u{200f}'])
            .chain('\u{202a}'..='\u{202e}')
            .chain('\u{2066}'..='\u{2069}');
        for mark in marks {
            let text = format!("a{mark}b");
            let escaped = format!("a{}b", mark.escape_default());
            assert_eq!(sanitize_lines(&text), "a\u{fffd}b", "{escaped}");
            assert!(!one_line(&text, 99).contains(mark), "{escaped}");
            assert_eq!(escape_invisible(&text, 99), escaped);
        }
    }

    #[test]
    fn exactly_escapes_invisible_characters_and_keeps_both_ends() {
        assert_eq!(escape_invisible("a  b \n\u{200b}\u{a0}c", 99), "a  b \\n\\u{200b}\\u{a0}c");
        let long = format!("{}{}{}", "a".repeat(6), "b".repeat(500), "c".repeat(3));
        assert_eq!(escape_invisible(&long, 9), "aaaaaa … (500 more characters) … ccc");
        let lines: Vec<String> = (0..100).map(|n| n.to_string()).collect();
        let shown = head_and_tail(&lines.join("\n"));
        assert_eq!((shown.len(), shown[0].as_str(), shown[12].as_str()), (13, "0", "99"));
        assert_eq!(shown[8], "… (88 more lines) …");
        assert_eq!(head_and_tail("one\ntwo"), ["one", "two"]);
    }

    #[test]
    fn a_sanitized_json_line_has_the_same_value_and_no_control_characters() {
        let evil =
            "a\u{1b}[2J\u{7f}\u{9b}2J\u{61c}\u{2028}\u{2029}\u{202e}\u{2066} \\ \" ö \u{1f600}";
        let value = serde_json::json!({ evil: [evil] });
        let line = escape_json_line(&value.to_string());
        assert!(!line.contains(is_control_or_bidi), "{}", line.escape_default());
        assert!(line.contains(r"\u009b2J\u061c\u2028\u2029\u202e\u2066"), "{line}");
        assert!(line.contains("ö \u{1f600}"), "{line}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&line).unwrap(), value);
    }

    #[test]
    fn invisible_characters_are_escaped() {
        let unseen = "\u{ad}\u{34f}\u{115f}\u{1160}\u{17b4}\u{17b5}\u{180e}\u{200b}\u{2065}\u{206a}\
                      \u{206f}\u{2800}\u{3164}\u{fe0f}\u{feff}\u{ffa0}\u{fff9}\u{fffb}\u{1d173}\
                      \u{1d17a}\u{e0001}\u{e0fff}";
        assert_eq!(escape_invisible(unseen, 99), unseen.escape_default().to_string());
        assert_eq!(quote_path(unseen), format!("\"{}\"", unseen.escape_default()));
    }

    #[test]
    fn a_path_is_shown_in_full_with_delimiters() {
        for (path, expected) in [
            ("src/a-b_1.rs", r#""src/a-b_1.rs""#),
            ("größe/文件.txt", r#""größe/文件.txt""#),
            ("my notes.txt", r#""my notes.txt""#),
            ("a.txt (a new file)   /b.sh", r#""a.txt (a new file)\u{20}\u{20}\u{20}/b.sh""#),
            (" a ", r#""\u{20}a\u{20}""#),
            (r#"a" (a new file)"#, r#""a\" (a new file)""#),
            (r"a\u{20}b", r#""a\\u{20}b""#),
            ("a\tb\u{a0}c", r#""a\tb\u{a0}c""#),
            ("\u{301}a\u{345}.txt", r#""\u{301}a\u{345}.txt""#),
            ("a\u{2044}b\u{202e}c\u{1f600}", r#""a\u{2044}b\u{202e}c\u{1f600}""#),
            ("", r#""""#),
        ] {
            assert_eq!(quote_path(path), expected);
        }
    }

    #[test]
    fn a_line_is_one_line_and_short() {
        assert_eq!(one_line("  a \n\n b\tc ", 99), "a b c");
        assert_eq!(one_line("äöüß", 3), "äöü…");
        assert_eq!(one_line("äöü", 3), "äöü");
        assert_eq!(one_line("", 0), "");
    }
}
