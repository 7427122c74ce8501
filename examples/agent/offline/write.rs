//! Requests to write a file, in the words in which a person makes them.

use crate::offline::question::trimmed;

/// A text to write to a file.
#[derive(Debug, PartialEq)]
pub(crate) struct Write {
    pub(crate) text: String,
    pub(crate) path: String,
    /// Whether it goes to the end of what is there.
    pub(crate) append: bool,
}

/// Words before the request itself.
const POLITE: &[&str] = &[
    "please", "can", "could", "would", "will", "you", "i", "want", "need", "like", "to", "kindly",
    "now", "then", "just", "and", "let", "us", "let's", "hey", "hi", "hello", "ok", "okay", "i'd",
];

const VERBS: &[&str] = &[
    "write", "save", "create", "make", "append", "add", "put", "store", "generate", "record",
    "note", "produce",
];

/// Words before the name of a file.
const BEFORE_A_FILE: &[&str] =
    &["to", "into", "in", "as", "at", "on", "onto", "called", "named", "file"];

/// Words that may stand between those and the name.
const BETWEEN: &[&str] = &[
    "the", "a", "an", "this", "my", "new", "empty", "text", "end", "of", "file", "called", "named",
    "bottom",
];

/// Words before the text, and words that may stand between those and the text.
const BEFORE_THE_TEXT: &[&str] = &["with", "containing", "contains", "saying", "says", "reading"];
const TO_THE_TEXT: &[&str] =
    &["the", "text", "content", "contents", "word", "words", "line", "following", "of", "just"];

/// A word, or several in quotes.
struct Piece {
    text: String,
    quoted: bool,
}

impl Piece {
    fn is(&self, words: &[&str]) -> bool {
        !self.quoted
            && words.contains(&self.text.trim_matches([',', ':', '.']).to_lowercase().as_str())
    }

    /// Whether it looks like the name of a file even without a word that says so.
    fn is_file_name(&self) -> bool {
        let name = trimmed(&self.text);
        let last = name.rsplit('/').next().unwrap_or_default();
        let ends = last
            .rsplit_once('.')
            .is_some_and(|(_, end)| !end.is_empty() && end.chars().all(char::is_alphanumeric));
        (ends && last.chars().any(char::is_alphabetic)) || (name.contains('/') && !last.is_empty())
    }
}

impl Write {
    /// `None` if the question is not such a request, or names no file.
    pub(crate) fn understand(question: &str) -> Option<Self> {
        let pieces = pieces(question);
        let verb = pieces.iter().position(|piece| !piece.is(POLITE))?;
        if !pieces[verb].is(VERBS) {
            return None;
        }
        let rest = &pieces[verb + 1..];
        let (before, file) = file(rest)?;
        let append = pieces[verb].is(&["append", "add"])
            || rest[before..file].iter().any(|piece| piece.is(&["end", "bottom"]));
        let path = match rest[file].quoted {
            true => rest[file].text.clone(),
            false => trimmed(&rest[file].text),
        };
        Some(Self { text: text(rest, before, file), path, append })
    }
}

/// Where the words about the file begin, and where its name is.
fn file(rest: &[Piece]) -> Option<(usize, usize)> {
    let ends = |at: usize| rest.get(at + 1).is_none_or(|next| next.is(BEFORE_THE_TEXT));
    if rest.first()?.is_file_name() && !rest[0].quoted && ends(0) {
        return Some((0, 0));
    }
    (0..rest.len()).filter(|at| rest[*at].is(BEFORE_A_FILE)).find_map(|before| {
        let between = rest[before + 1..].iter().take_while(|piece| piece.is(BETWEEN)).count();
        let at = before + 1 + between;
        let name = rest.get(at)?;
        let is_said = rest[at - 1].is(&["file", "called", "named"]);
        let is_last = rest[before].is(&["to", "into", "in", "as"]) && ends(at);
        let is_name = name.quoted || name.is_file_name() || is_said || is_last;
        (is_name && !name.is(BEFORE_THE_TEXT)).then_some((before, at))
    })
}

fn text(rest: &[Piece], before: usize, file: usize) -> String {
    let quoted = rest.iter().enumerate().find(|(at, piece)| piece.quoted && *at != file);
    if let Some((_, piece)) = quoted {
        return piece.text.clone();
    }
    let named = rest[file].text.ends_with(':').then_some(file);
    let marked = named.or_else(|| rest.iter().position(|piece| piece.is(BEFORE_THE_TEXT)));
    let (from, to) = match marked {
        Some(mark) if mark < before => (mark + 1, before),
        Some(mark) => (mark + 1, rest.len()),
        None => (0, before),
    };
    let mut words = &rest[from..to];
    match marked {
        Some(_) => {
            let skipped = words.iter().take_while(|piece| piece.is(TO_THE_TEXT)).count();
            words = &words[skipped..];
            if let [text @ .., inside, it] = words
                && inside.is(&["in", "inside"])
                && it.is(&["it"])
            {
                words = text;
            }
        }
        // `a new file` is not the text.
        None if words.iter().all(|piece| piece.is(BETWEEN)) => words = &[],
        None => {}
    }
    words.iter().map(|piece| piece.text.as_str()).collect::<Vec<_>>().join(" ")
}

fn pieces(question: &str) -> Vec<Piece> {
    const QUOTES: &[(char, char)] =
        &[('"', '"'), ('`', '`'), ('\'', '\''), ('“', '”'), ('‘', '’'), ('«', '»')];
    let mut pieces = Vec::new();
    let mut rest = question.trim_start();
    while let Some(first) = rest.chars().next() {
        let closing = QUOTES.iter().find(|(open, _)| *open == first).map(|(_, close)| *close);
        let inside = &rest[first.len_utf8()..];
        if let Some((text, after)) = closing.and_then(|close| inside.split_once(close)) {
            pieces.push(Piece { text: text.to_owned(), quoted: true });
            // Punctuation after the quotes belongs to nothing.
            rest = after.trim_start_matches([',', '.', ':', '?', '!']).trim_start();
            continue;
        }
        let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
        pieces.push(Piece { text: rest[..end].to_owned(), quoted: false });
        rest = rest[end..].trim_start();
    }
    pieces
}
