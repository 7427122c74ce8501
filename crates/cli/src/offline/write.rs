//! Parses requests to write a file, as users phrase them.

use crate::offline::words::trim_punctuation;

/// A text to write to a file.
#[derive(Debug, PartialEq)]
pub(crate) struct WriteRequest {
    pub(crate) text: String,
    pub(crate) path: String,
    /// Whether the text is appended to the existing content.
    pub(crate) is_append: bool,
}

/// Polite words before the request itself.
const POLITE_WORDS: &[&str] = &[
    "please", "can", "could", "would", "will", "you", "i", "want", "need", "like", "to", "kindly",
    "now", "then", "just", "and", "let", "us", "let's", "hey", "hi", "hello", "ok", "okay", "i'd",
];

const WRITE_VERBS: &[&str] = &[
    "write", "save", "create", "make", "append", "add", "put", "store", "generate", "record",
    "note", "produce",
];

/// Words before the name of a file.
const FILE_MARKERS: &[&str] =
    &["to", "into", "in", "as", "at", "on", "onto", "called", "named", "file"];

/// Words between a file marker and the name.
const FILE_FILLER_WORDS: &[&str] = &[
    "the", "a", "an", "this", "my", "new", "empty", "text", "end", "of", "file", "called", "named",
    "bottom",
];

/// Words before the text, and filler words between such a word and the text.
const TEXT_MARKERS: &[&str] = &["with", "containing", "contains", "saying", "says", "reading"];
const TEXT_FILLER_WORDS: &[&str] =
    &["the", "text", "content", "contents", "word", "words", "line", "following", "of", "just"];

/// A word, or several words in quotes.
struct Token {
    text: String,
    is_quoted: bool,
}

impl Token {
    fn is_one_of(&self, words: &[&str]) -> bool {
        !self.is_quoted
            && words.contains(&self.text.trim_matches([',', ':', '.']).to_lowercase().as_str())
    }

    /// Whether the word looks like a file name even without a marker word.
    fn is_file_name(&self) -> bool {
        let name = trim_punctuation(&self.text);
        let last = name.rsplit('/').next().unwrap_or_default();
        let ends = last
            .rsplit_once('.')
            .is_some_and(|(_, end)| !end.is_empty() && end.chars().all(char::is_alphanumeric));
        (ends && last.chars().any(char::is_alphabetic)) || (name.contains('/') && !last.is_empty())
    }
}

impl WriteRequest {
    /// `None` if the question is not such a request, or names no file.
    pub(crate) fn parse(question: &str) -> Option<Self> {
        let pieces = tokenize(question);
        let verb = pieces.iter().position(|piece| !piece.is_one_of(POLITE_WORDS))?;
        if !pieces[verb].is_one_of(WRITE_VERBS) {
            return None;
        }
        let rest = &pieces[verb + 1..];
        let (before, file) = find_file(rest)?;
        let append = pieces[verb].is_one_of(&["append", "add"])
            || rest[before..file].iter().any(|piece| piece.is_one_of(&["end", "bottom"]));
        let path = match rest[file].is_quoted {
            true => rest[file].text.clone(),
            false => trim_punctuation(&rest[file].text),
        };
        Some(Self { text: find_text(rest, before, file), path, is_append: append })
    }
}

/// The index at which the words about the file begin, and the index of its name.
fn find_file(rest: &[Token]) -> Option<(usize, usize)> {
    let ends = |at: usize| rest.get(at + 1).is_none_or(|next| next.is_one_of(TEXT_MARKERS));
    if rest.first()?.is_file_name() && !rest[0].is_quoted && ends(0) {
        return Some((0, 0));
    }
    (0..rest.len()).filter(|at| rest[*at].is_one_of(FILE_MARKERS)).find_map(|before| {
        let between = rest[before + 1..]
            .iter()
            .take_while(|piece| piece.is_one_of(FILE_FILLER_WORDS))
            .count();
        let at = before + 1 + between;
        let name = rest.get(at)?;
        let is_said = rest[at - 1].is_one_of(&["file", "called", "named"]);
        let is_last = rest[before].is_one_of(&["to", "into", "in", "as"]) && ends(at);
        let is_name = name.is_quoted || name.is_file_name() || is_said || is_last;
        (is_name && !name.is_one_of(TEXT_MARKERS)).then_some((before, at))
    })
}

fn find_text(rest: &[Token], before: usize, file: usize) -> String {
    let quoted = rest.iter().enumerate().find(|(at, piece)| piece.is_quoted && *at != file);
    if let Some((_, piece)) = quoted {
        return piece.text.clone();
    }
    let named = rest[file].text.ends_with(':').then_some(file);
    let marked = named.or_else(|| rest.iter().position(|piece| piece.is_one_of(TEXT_MARKERS)));
    let (from, to) = match marked {
        Some(mark) if mark < before => (mark + 1, before),
        Some(mark) => (mark + 1, rest.len()),
        None => (0, before),
    };
    let mut words = &rest[from..to];
    match marked {
        Some(_) => {
            let skipped =
                words.iter().take_while(|piece| piece.is_one_of(TEXT_FILLER_WORDS)).count();
            words = &words[skipped..];
            if let [text @ .., inside, it] = words
                && inside.is_one_of(&["in", "inside"])
                && it.is_one_of(&["it"])
            {
                words = text;
            }
        }
        // `a new file` is not the text.
        None if words.iter().all(|piece| piece.is_one_of(FILE_FILLER_WORDS)) => words = &[],
        None => {}
    }
    words.iter().map(|piece| piece.text.as_str()).collect::<Vec<_>>().join(" ")
}

fn tokenize(question: &str) -> Vec<Token> {
    const QUOTE_PAIRS: &[(char, char)] =
        &[('"', '"'), ('`', '`'), ('\'', '\''), ('“', '”'), ('‘', '’'), ('«', '»')];
    let mut pieces = Vec::new();
    let mut rest = question.trim_start();
    while let Some(first) = rest.chars().next() {
        let closing = QUOTE_PAIRS.iter().find(|(open, _)| *open == first).map(|(_, close)| *close);
        let inside = &rest[first.len_utf8()..];
        if let Some((text, after)) = closing.and_then(|close| inside.split_once(close)) {
            pieces.push(Token { text: text.to_owned(), is_quoted: true });
            // Punctuation after the closing quote is ignored.
            rest = after.trim_start_matches([',', '.', ':', '?', '!']).trim_start();
            continue;
        }
        let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
        pieces.push(Token { text: rest[..end].to_owned(), is_quoted: false });
        rest = rest[end..].trim_start();
    }
    pieces
}
