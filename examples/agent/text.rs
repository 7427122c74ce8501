//! Text of models, tools and files, made fit for a terminal.

/// What stands where a character was that a terminal would act on.
const HIDDEN: char = '\u{fffd}';

/// One line of at most `most` characters: white space collapses, control characters are hidden.
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
            line.push(shown(c));
            chars += 1;
        }
    }
    line
}

/// The same text with its lines and tabs, and without anything else that moves a cursor.
pub(crate) fn many_lines(text: &str) -> String {
    text.chars()
        .filter(|c| *c != '\r')
        .map(|c| if matches!(c, '\n' | '\t') { c } else { shown(c) })
        .collect()
}

fn shown(c: char) -> char {
    // Marks of direction are no control characters, but can make a line read as another one.
    let directs = matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(c, '\u{2066}'..='\u{2069}');
    if c.is_control() || directs { HIDDEN } else { c }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_escape_sequence_passes() {
        let evil = "a\u{1b}[31mb\u{9b}2Jc\u{202e}d\u{7}";
        assert_eq!(one_line(evil, 99), "a\u{fffd}[31mb\u{fffd}2Jc\u{fffd}d\u{fffd}");
        assert_eq!(many_lines("a\r\n\tb\u{1b}]0;x\u{7}"), "a\n\tb\u{fffd}]0;x\u{fffd}");
    }

    #[test]
    fn a_line_is_one_line_and_short() {
        assert_eq!(one_line("  a \n\n b\tc ", 99), "a b c");
        assert_eq!(one_line("äöüß", 3), "äöü…");
        assert_eq!(one_line("äöü", 3), "äöü");
        assert_eq!(one_line("", 0), "");
    }
}
