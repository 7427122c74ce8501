//! Breaks lines between words; a terminal itself breaks them within words.

use std::io::{self, Write};

use unicode_width::UnicodeWidthChar;

/// Lines are not wrapped on a narrower terminal.
const MIN_COLUMNS: usize = 16;

/// A tab ends at a multiple of this column.
const TAB_STOP: usize = 8;

/// The width for which the text of `--help` is written, and the column of its descriptions.
const HELP_COLUMNS: usize = 100;
const HELP_DESCRIPTION_COLUMN: usize = 22;

/// A word that is too long for a line is broken after the first of these characters, and a part
/// that is still too long after the others.
const BREAK_AFTER: [&[char]; 2] = [&[',', ';'], &[':', '/', '\\', '-', '_', '=', '&', '?']];

/// The columns of the terminal to which stdout is written; `None` if the output is not to be
/// wrapped.
pub(crate) fn stdout_columns() -> Option<usize> {
    terminal_columns(&io::stdout())
}

/// The columns of the terminal to which stderr is written; `None` if the output is not to be
/// wrapped.
pub(crate) fn stderr_columns() -> Option<usize> {
    terminal_columns(&io::stderr())
}

/// Prints lines to stderr, and ignores its errors.
pub(crate) fn print_lines(text: &str) {
    let _ = writeln!(io::stderr(), "{}", wrap_lines(text, stderr_columns()));
}

#[cfg(unix)]
fn terminal_columns(output: &impl std::os::fd::AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(output).ok()?;
    // The width of a terminal that does not know it is 0.
    Some(usize::from(size.ws_col)).filter(|columns| *columns >= MIN_COLUMNS)
}

#[cfg(not(unix))]
fn terminal_columns<T>(_output: &T) -> Option<usize> {
    None
}

/// Wraps a text that arrives in pieces. A word is returned when it is complete.
#[derive(Default)]
pub(crate) struct WordWrap {
    /// Printed at the start of each line that continues another one.
    indent: String,
    /// The number of columns that are used on the current line.
    column: usize,
    /// The spaces between the printed text and the incomplete word.
    spaces: String,
    word: String,
}

impl WordWrap {
    fn with_indent(indent: &str) -> Self {
        Self { indent: indent.to_owned(), ..Self::default() }
    }

    /// Adds a piece of text, and returns the text that can be printed. `columns` is the width of
    /// the terminal; without it, nothing is wrapped or held back.
    pub(crate) fn push(&mut self, text: &str, columns: Option<usize>) -> String {
        let mut printed = String::new();
        let Some(columns) = columns else {
            printed.extend([&*std::mem::take(&mut self.spaces), &*std::mem::take(&mut self.word)]);
            printed.push_str(text);
            return printed;
        };
        for c in text.chars() {
            match c {
                '\n' => {
                    self.place_word(columns, &mut printed);
                    printed.push('\n');
                    self.start_line();
                }
                ' ' | '\t' => {
                    self.place_word(columns, &mut printed);
                    self.spaces.push(c);
                }
                c => {
                    self.word.push(c);
                    // Languages that are written without spaces have wide characters.
                    if c.width() == Some(2) {
                        self.place_word(columns, &mut printed);
                    }
                }
            }
        }
        printed
    }

    /// Returns the incomplete word, which is printed as it is.
    pub(crate) fn take_word(&mut self, columns: Option<usize>) -> String {
        let mut printed = String::new();
        self.place_word(columns.unwrap_or(usize::MAX), &mut printed);
        printed
    }

    /// Continues at the start of a line.
    pub(crate) fn start_line(&mut self) {
        self.column = 0;
        self.spaces.clear();
    }

    fn place_word(&mut self, columns: usize, printed: &mut String) {
        if self.word.is_empty() {
            return;
        }
        let word = std::mem::take(&mut self.word);
        let spaces = std::mem::take(&mut self.spaces);
        let end = column_after(column_after(self.column, &spaces), &word);
        if end <= columns || self.column == 0 {
            printed.extend([spaces, word]);
            self.column = end;
        } else {
            self.column = column_after(column_after(0, &self.indent), &word);
            printed.extend(["\n", self.indent.as_str(), word.as_str()]);
        }
        // The terminal breaks a word that is longer than a line.
        if self.column > columns {
            self.column = (self.column - 1) % columns + 1;
        }
    }
}

/// The column at which a text ends that begins at `column`.
fn column_after(column: usize, text: &str) -> usize {
    text.chars().fold(column, |column, c| match c {
        '\t' => (column / TAB_STOP + 1) * TAB_STOP,
        c => column + c.width().unwrap_or(0),
    })
}

/// Wraps complete lines. A line that continues another one is indented, and a line of a quoted
/// text, which begins with `|`, is continued by such a line.
pub(crate) fn wrap_lines(text: &str, columns: Option<usize>) -> String {
    let Some(columns) = columns else { return text.to_owned() };
    let wrapped = text.split('\n').map(|line| {
        let text = line.trim_start_matches(' ');
        let margin = &line[..line.len() - text.len()];
        let more = if text.starts_with("| ") { "|   " } else { "  " };
        wrap_line(line, &format!("{margin}{more}"), columns)
    });
    wrapped.collect::<Vec<_>>().join("\n")
}

fn wrap_line(line: &str, indent: &str, columns: usize) -> String {
    let indent = if indent.len() * 2 > columns { "" } else { indent };
    let mut wrap = WordWrap::with_indent(indent);
    let mut wrapped = String::new();
    for word in line.split_inclusive(' ') {
        let fits = column_after(indent.len(), word.trim_end()) <= columns;
        let breaks = if fits { &[][..] } else { &BREAK_AFTER };
        push_parts(&mut wrap, word, breaks, columns, &mut wrapped);
    }
    wrapped + &wrap.take_word(Some(columns))
}

/// Adds a word, or each of its parts as a word.
fn push_parts(
    wrap: &mut WordWrap,
    word: &str,
    breaks: &[&[char]],
    columns: usize,
    wrapped: &mut String,
) {
    match breaks.split_first() {
        Some((first, others)) => {
            for part in word.split_inclusive(*first) {
                let fits = column_after(wrap.indent.len(), part.trim_end()) <= columns;
                push_parts(wrap, part, if fits { &[] } else { others }, columns, wrapped);
                *wrapped += &wrap.take_word(Some(columns));
            }
        }
        None => *wrapped += &wrap.push(word, Some(columns)),
    }
}

/// Wraps the text of `--help`, whose lines are already broken for a wide terminal.
pub(crate) fn reflow_help(help: &str, columns: Option<usize>) -> String {
    let Some(columns) = columns.filter(|columns| *columns < HELP_COLUMNS) else {
        return help.to_owned();
    };
    let mut lines: Vec<String> = Vec::new();
    for line in help.lines() {
        let text = line.trim_start();
        let margin = line.len() - text.len();
        match lines.last_mut() {
            Some(last)
                if !text.is_empty()
                    && (margin == HELP_DESCRIPTION_COLUMN
                        || (margin == 0 && !last.is_empty() && !last.starts_with(' '))) =>
            {
                last.extend([" ", text]);
            }
            _ => lines.push(line.to_owned()),
        }
    }
    let mut reflowed = String::new();
    for line in lines {
        let indent = if line.starts_with(' ') { "        " } else { "" };
        reflowed.extend([&*wrap_line(&line, indent, columns), "\n"]);
    }
    reflowed
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Wraps a text that arrives in the given pieces.
    fn wrap_pieces(pieces: &[&str], columns: usize) -> String {
        let mut wrap = WordWrap::default();
        let mut printed: String =
            pieces.iter().map(|piece| wrap.push(piece, Some(columns))).collect();
        printed += &wrap.take_word(Some(columns));
        printed
    }

    #[test]
    fn a_line_is_broken_between_words_however_the_text_arrives() {
        let text =
            "The longest file is src/deep/long.rs, with 321 lines.\n\n- one\n    indented code";
        let expected = "The longest file is\nsrc/deep/long.rs,\nwith 321 lines.\n\n- one\n    \
                        indented code";
        assert_eq!(wrap_pieces(&[text], 20), expected);
        let letters: Vec<&str> = text.split("").collect();
        assert_eq!(wrap_pieces(&letters, 20), expected);
        let pairs: Vec<&str> =
            (0..text.len()).step_by(2).map(|at| &text[at..(at + 2).min(text.len())]).collect();
        assert_eq!(wrap_pieces(&pairs, 20), expected);
    }

    #[test]
    fn a_word_is_held_back_only_until_it_is_complete() {
        let mut wrap = WordWrap::default();
        assert_eq!(wrap.push("one tw", Some(20)), "one");
        assert_eq!(wrap.push("o", Some(20)), "");
        assert_eq!(wrap.push(" ", Some(20)), " two");
        assert_eq!(wrap.push("three", Some(20)), "");
        assert_eq!(wrap.take_word(Some(20)), " three");
        assert_eq!(wrap.push("one tw", None), "one tw", "nothing is wrapped");
    }

    #[test]
    fn a_word_that_exactly_fits_stays_on_its_line() {
        assert_eq!(wrap_pieces(&["0123456789 123456789 x"], 20), "0123456789 123456789\nx");
        assert_eq!(wrap_pieces(&["0123456789 1234567890"], 20), "0123456789\n1234567890");
        // The terminal breaks a word that fits on no line.
        assert_eq!(
            wrap_pieces(&["a 0123456789012345678901234 b"], 20),
            "a\n0123456789012345678901234 b"
        );
    }

    #[test]
    fn the_width_of_characters_is_counted_in_columns() {
        assert_eq!(wrap_pieces(&["ab 文件文件文件文件文 件"], 20), "ab 文件文件文件文件\n文 件");
        let accents = "e\u{301}e\u{301}e\u{301} 1234567890123456";
        assert_eq!(wrap_pieces(&[accents], 20), accents);
        assert_eq!(wrap_pieces(&["a\tb 0123456789 x"], 20), "a\tb 0123456789\nx");
    }

    #[test]
    fn continued_lines_are_indented_and_quoted_lines_stay_quoted() {
        let call = r#"  > write_file {"path":"notes.txt","text":"some words"}"#;
        let expected = "  > write_file\n    {\"path\":\"notes.txt\",\"text\":\"some\n    words\"}";
        assert_eq!(wrap_lines(call, Some(36)), expected);
        let expected = "  > write_file\n    {\"path\":\"notes.txt\",\n    \"text\":\"some words\"}";
        assert_eq!(wrap_lines(call, Some(26)), expected);
        let expected =
            "  > write_file\n    {\"path\":\n    \"notes.txt\",\n    \"text\":\"some\n    words\"}";
        assert_eq!(wrap_lines(call, Some(20)), expected);
        let quoted = "  | a text that runs on\n  to the file: \"x\"";
        let expected = "  | a text that runs\n  |   on\n  to the file: \"x\"";
        assert_eq!(wrap_lines(quoted, Some(20)), expected);
        assert_eq!(wrap_lines(call, None), call);
    }

    #[test]
    fn no_line_of_the_help_is_wider_than_the_terminal() {
        use crate::args::HELP;
        assert_eq!(reflow_help(HELP, Some(HELP_COLUMNS)), HELP);
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        for columns in [40, 60, 80] {
            let help = reflow_help(HELP, Some(columns));
            assert!(help.lines().all(|line| column_after(0, line) <= columns), "{help}");
            assert!(help.contains("\n    --yes   "), "each flag begins a line: {help}");
            assert_eq!(words(&help), words(HELP), "no word is broken");
        }
    }
}
