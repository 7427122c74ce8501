//! A line that is edited at its end, with the keys of a terminal's own line mode.

use unicode_width::UnicodeWidthChar;

use crate::text::replace_control_char;

/// A key, or a part of a pasted text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Key {
    Char(char),
    Enter,
    Backspace,
    /// Ctrl-W.
    DeleteWord,
    /// Ctrl-U.
    DeleteLine,
    /// Ctrl-D.
    EndOfInput,
    /// A key without an effect, such as an arrow key.
    Other,
}

/// Takes a key from the bytes that a terminal sent. `None` if the bytes of a key are incomplete.
pub(super) fn take_key(bytes: &mut Vec<u8>) -> Option<Key> {
    let (key, len) = match *bytes.first()? {
        b'\r' | b'\n' => (Key::Enter, 1),
        0x08 | 0x7f => (Key::Backspace, 1),
        0x17 => (Key::DeleteWord, 1),
        0x15 => (Key::DeleteLine, 1),
        0x04 => (Key::EndOfInput, 1),
        b'\t' => (Key::Char(' '), 1),
        0x1b => (Key::Other, escape_sequence_len(bytes)?),
        0..0x20 => (Key::Other, 1),
        first => {
            let len = match first {
                0xc2..=0xdf => 2,
                0xe0..=0xef => 3,
                0xf0..=0xf4 => 4,
                _ => 1,
            };
            let text = String::from_utf8_lossy(bytes.get(..len)?);
            match (text.chars().next()?, text.chars().count()) {
                (c, 1) => (Key::Char(c), len),
                // The first byte is not followed by the rest of its character.
                _ => (Key::Char(char::REPLACEMENT_CHARACTER), 1),
            }
        }
    };
    bytes.drain(..len);
    Some(key)
}

/// The length of a sequence such as `ESC [ 1 ; 5 D`. `None` if it is incomplete.
fn escape_sequence_len(bytes: &[u8]) -> Option<usize> {
    match bytes.get(1) {
        Some(b'[' | b'O') => {
            let end = bytes[2..].iter().position(|byte| (0x40..=0x7e).contains(byte))?;
            Some(2 + end + 1)
        }
        _ => Some(1),
    }
}

/// The line, and its position on the terminal.
pub(super) struct EditedLine<'a> {
    /// Printed before the line.
    prompt: &'a str,
    text: String,
    /// The columns of the terminal, if they are known.
    columns: Option<usize>,
}

impl<'a> EditedLine<'a> {
    pub(super) fn new(prompt: &'a str, text: String, columns: Option<usize>) -> Self {
        Self { prompt, text, columns }
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }

    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// The line as it is printed: line breaks are visible, and nothing acts on the terminal.
    pub(super) fn printed(&self) -> String {
        let text: String = self.text.chars().map(printed_char).collect();
        format!("{}{text}", self.prompt)
    }

    /// Changes the line as a key does, and returns the text that shows the change.
    pub(super) fn apply(&mut self, key: Key) -> String {
        match key {
            Key::Char(c) => self.add(c),
            // The caller knows that it does not end the entry.
            Key::Enter => self.add('\n'),
            Key::Backspace => self.delete_char(),
            Key::DeleteWord => self.delete_word(),
            Key::DeleteLine => self.truncate(0),
            Key::EndOfInput | Key::Other => String::new(),
        }
    }

    fn add(&mut self, c: char) -> String {
        self.text.push(c);
        printed_char(c).to_string()
    }

    fn delete_char(&mut self) -> String {
        let mut remaining = self.text.chars();
        // A mark without a width belongs to the character before it.
        while let Some(c) = remaining.next_back() {
            if width(c) > 0 {
                break;
            }
        }
        let len = remaining.as_str().len();
        self.truncate(len)
    }

    fn delete_word(&mut self) -> String {
        let words = self.text.trim_end();
        let remaining = words
            .rfind(char::is_whitespace)
            .map_or(0, |at| at + words[at..].chars().next().map_or(0, char::len_utf8));
        self.truncate(remaining)
    }

    /// Moves the cursor back within its row. If the deleted text began on an earlier row, where
    /// the cursor cannot go back to, the line is printed again.
    fn truncate(&mut self, len: usize) -> String {
        let before = self.row();
        let deleted: usize = self.text.split_off(len).chars().map(width).sum();
        match (before, self.row()) {
            (Some(before), Some(after)) if before == after => "\u{8} \u{8}".repeat(deleted),
            _ if deleted == 0 => String::new(),
            _ => format!("\n{}", self.printed()),
        }
    }

    /// The row of the cursor. A cursor at the end of a full row is on neither row.
    fn row(&self) -> Option<usize> {
        let Some(columns) = self.columns else { return Some(0) };
        let mut column = 0;
        let mut row = 0;
        for c in self.printed().chars() {
            let width = width(c);
            if column + width > columns {
                (row, column) = (row + 1, 0);
            }
            column += width;
        }
        (column < columns).then_some(row)
    }
}

fn width(c: char) -> usize {
    printed_char(c).width().unwrap_or(0)
}

fn printed_char(c: char) -> char {
    if c == '\n' { '\u{23ce}' } else { replace_control_char(c) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(bytes: &[u8]) -> (Vec<Key>, Vec<u8>) {
        let mut bytes = bytes.to_vec();
        let keys = std::iter::from_fn(|| take_key(&mut bytes)).collect();
        (keys, bytes)
    }

    #[test]
    fn bytes_are_read_as_keys_and_an_incomplete_key_is_left() {
        let (read, rest) = keys("aö\t\u{7f}\u{8}\u{17}\u{15}\u{4}\r\n\u{1}".as_bytes());
        let expected = [
            Key::Char('a'),
            Key::Char('ö'),
            Key::Char(' '),
            Key::Backspace,
            Key::Backspace,
            Key::DeleteWord,
            Key::DeleteLine,
            Key::EndOfInput,
            Key::Enter,
            Key::Enter,
            Key::Other,
        ];
        assert_eq!((read.as_slice(), rest.as_slice()), (&expected[..], &b""[..]));
        assert_eq!(keys(b"\x1b[1;5Dx").0, [Key::Other, Key::Char('x')], "an arrow key");
        assert_eq!(keys(b"\xffx").0, [Key::Char('\u{fffd}'), Key::Char('x')]);
        assert_eq!(keys(b"\xe4x!").0.len(), 3);
        for incomplete in [&b"\xc3"[..], b"\xe2\x82", b"\x1b[1"] {
            assert_eq!(keys(incomplete), (Vec::new(), incomplete.to_vec()));
        }
    }

    /// The screen of a terminal with `columns` columns on which `output` was printed.
    fn screen(output: &str, columns: usize) -> Vec<String> {
        let mut rows: Vec<Vec<char>> = vec![Vec::new()];
        let mut column = 0;
        for c in output.chars() {
            if c == '\n' || (c != '\u{8}' && column == columns) {
                rows.push(Vec::new());
                column = 0;
            }
            let row = rows.last_mut().unwrap();
            match c {
                '\n' => {}
                '\u{8}' => column = column.saturating_sub(1),
                c => {
                    row.resize(row.len().max(column + 1), ' ');
                    row[column] = c;
                    column += 1;
                }
            }
        }
        rows.iter().map(|row| row.iter().collect::<String>().trim_end().to_owned()).collect()
    }

    #[test]
    fn the_screen_shows_the_line_after_each_deletion() {
        let text = "one two three four";
        for columns in 6..24 {
            for keys in [
                &[Key::Backspace; 25][..],
                &[Key::DeleteWord, Key::DeleteWord, Key::DeleteWord, Key::DeleteWord],
                &[Key::DeleteLine],
                &[Key::Backspace, Key::Char('x'), Key::DeleteWord, Key::Char('y')],
            ] {
                let mut line = EditedLine::new("> ", text.to_owned(), Some(columns));
                let mut output = line.printed();
                for key in keys {
                    output += &line.apply(*key);
                    let expected = screen(&line.printed(), columns);
                    let shown = screen(&output, columns);
                    assert!(shown.ends_with(&expected), "{columns} {key:?} {shown:?} {expected:?}");
                }
            }
        }
    }

    #[test]
    fn a_line_is_edited_by_character_and_by_word() {
        let after = |text: &str, keys: &[Key]| {
            let mut line = EditedLine::new("> ", text.to_owned(), None);
            for key in keys {
                line.apply(*key);
            }
            line.into_text()
        };
        assert_eq!(after("ab", &[Key::Backspace, Key::Char('ö')]), "aö");
        assert_eq!(after("ae\u{301}", &[Key::Backspace]), "a");
        assert_eq!(after("one two  ", &[Key::DeleteWord]), "one ");
        assert_eq!(after("one\u{2003}two", &[Key::DeleteWord]), "one\u{2003}");
        assert_eq!(after("one", &[Key::DeleteWord, Key::Backspace, Key::Backspace]), "");
        assert_eq!(after("one", &[Key::Enter, Key::Char('x'), Key::Other]), "one\nx");
        assert_eq!(after("one\ntwo", &[Key::DeleteLine, Key::EndOfInput]), "");
    }

    #[test]
    fn no_character_of_the_line_acts_on_the_terminal() {
        let mut line = EditedLine::new("> ", "a\nb\u{1b}c\u{202e}".to_owned(), None);
        assert_eq!(line.printed(), "> a\u{23ce}b\u{fffd}c\u{fffd}");
        assert_eq!(line.apply(Key::Char('\u{9b}')), "\u{fffd}");
        assert_eq!(line.into_text(), "a\nb\u{1b}c\u{202e}\u{9b}");
    }
}
