//! Guesses the intent of a question from its words.

use crate::offline::words::{STOP_WORDS, trim_punctuation};
use crate::offline::write::WriteRequest;

/// An action that answers a question.
#[derive(Debug, PartialEq)]
pub(crate) enum Intent {
    /// The number of lines in a path, or its longest file.
    CountLines { path: String, extension: Option<String> },
    /// An expression to calculate.
    Calculate(String),
    /// A text to write to a file.
    WriteFile(WriteRequest),
    /// Anything else: words to search for.
    Search(Vec<String>),
    /// The question has no words to search for.
    Unknown,
}

const LANGUAGE_EXTENSIONS: &[(&str, &str)] = &[
    ("rust", "rs"),
    ("python", "py"),
    ("javascript", "js"),
    ("typescript", "ts"),
    ("golang", "go"),
    ("java", "java"),
    ("kotlin", "kt"),
    ("swift", "swift"),
    ("ruby", "rb"),
    ("php", "php"),
    ("html", "html"),
    ("css", "css"),
    ("shell", "sh"),
    ("markdown", "md"),
    ("toml", "toml"),
    ("json", "json"),
    ("yaml", "yml"),
];

/// Words for the working directory itself, and words that name no directory.
const NON_PATH_WORDS: &[&str] = &[
    "all",
    "code",
    "codebase",
    "crate",
    "directory",
    "each",
    "everything",
    "file",
    "files",
    "folder",
    "general",
    "here",
    "it",
    "lines",
    "project",
    "repo",
    "repository",
    "there",
    "total",
    "tree",
    "working",
    "workspace",
    "which",
    "what",
    "how",
    "one",
    "source",
    "sources",
];

/// Directories that are recognized by name, whatever precedes them.
const COMMON_DIRECTORIES: &[&str] = &["src", "tests", "examples", "benches", "docs", "lib"];

const PATH_FILLER_WORDS: &[&str] =
    &["the", "a", "an", "this", "that", "my", "our", "your", "directory", "folder", "file"];

impl Intent {
    pub(crate) fn parse(text: &str) -> Self {
        if let Some(expression) = find_expression(text) {
            return Self::Calculate(expression);
        }
        if let Some(write) = WriteRequest::parse(text) {
            return Self::WriteFile(write);
        }
        let words: Vec<String> = text.split_whitespace().map(trim_punctuation).collect();
        let lower: Vec<String> = words.iter().map(|word| word.to_lowercase()).collect();
        let has = |wanted: &[&str]| lower.iter().any(|word| wanted.contains(&word.as_str()));
        let counts = has(&["lines", "loc"]) && has(&["how", "many", "count", "number", "total"]);
        let compares = has(&["file", "files", "lines"]) && has(&["longest", "largest", "biggest"]);
        if counts || compares {
            return Self::CountLines {
                path: find_path(&words, &lower).unwrap_or_else(|| ".".to_owned()),
                extension: lower.iter().find_map(|word| find_extension(word)),
            };
        }
        match search_words(text) {
            words if words.is_empty() => Self::Unknown,
            words => Self::Search(words),
        }
    }
}

/// The tool that passes a task to a sub-agent.
pub(super) const RESEARCH_TOOL: &str = "research";

/// The task for a sub-agent, if the question asks for one and the tool is available.
pub(super) fn delegated_task(question: &str, tool_names: &[String]) -> Option<String> {
    let (verb, task) = question.trim().split_once(char::is_whitespace)?;
    let is_task = trim_punctuation(verb).eq_ignore_ascii_case(RESEARCH_TOOL);
    let is_there = tool_names.iter().any(|name| name == RESEARCH_TOOL);
    (is_task && is_there).then(|| task.trim().to_owned())
}

/// The directory or file that a question names.
fn find_path(words: &[String], lower: &[String]) -> Option<String> {
    let is_path = |word: &&String| {
        let name = word.trim_start_matches('.');
        let has_end =
            name.split_once('.').is_some_and(|(stem, end)| !stem.is_empty() && !end.is_empty());
        let is_word_pair = name.chars().all(|c| c.is_ascii_digit() || c == '.');
        !word.contains("://") && (word.contains('/') || (has_end && !is_word_pair))
    };
    if let Some(path) = words.iter().find(is_path) {
        return Some(path.clone());
    }
    let prepositions = ["in", "under", "inside", "within", "below"];
    let behind = |at: usize| {
        let mut rest =
            (at + 1..words.len()).skip_while(|at| PATH_FILLER_WORDS.contains(&lower[*at].as_str()));
        rest.next().filter(|at| {
            let word = lower[*at].as_str();
            !word.is_empty() && !NON_PATH_WORDS.contains(&word) && find_extension(word).is_none()
        })
    };
    (0..words.len())
        .filter(|at| prepositions.contains(&lower[*at].as_str()))
        .find_map(behind)
        .or_else(|| (0..words.len()).find(|at| COMMON_DIRECTORIES.contains(&words[*at].as_str())))
        .map(|at| words[at].clone())
}

/// The extension that a word names: a language's extension, or one with its dot.
fn find_extension(word: &str) -> Option<String> {
    let language = LANGUAGE_EXTENSIONS
        .iter()
        .find(|(name, end)| word == *name || (word == *end && end.len() < 5));
    if let Some((_, end)) = language {
        return Some((*end).to_owned());
    }
    let end = word.strip_prefix('.')?;
    (!end.is_empty() && end.chars().all(char::is_alphanumeric)).then(|| end.to_owned())
}

/// The expression, if the question consists of one.
fn find_expression(text: &str) -> Option<String> {
    const FILLER_WORDS: &[&str] = &[
        "what",
        "is",
        "what's",
        "whats",
        "calculate",
        "compute",
        "evaluate",
        "how",
        "much",
        "the",
        "result",
        "value",
        "of",
        "please",
        "tell",
        "me",
        "can",
        "you",
    ];
    const OPERATOR_WORDS: &[(&str, &str)] = &[
        ("plus", "+"),
        ("minus", "-"),
        ("times", "*"),
        ("divided", "/"),
        ("multiplied", "*"),
        ("over", "/"),
        ("by", ""),
        ("x", "*"),
    ];
    let mut parts: Vec<String> = Vec::new();
    for word in text.to_lowercase().split_whitespace() {
        let word = word.trim_end_matches(['?', '!', '=', ':']);
        let word = word.trim_end_matches('.').trim_matches('`');
        if FILLER_WORDS.contains(&word) || word.is_empty() {
            continue;
        }
        let sign = OPERATOR_WORDS.iter().find(|(name, _)| *name == word).map(|(_, sign)| *sign);
        parts.push(
            sign.unwrap_or(word)
                .replace(['×', '·'], "*")
                .replace(['÷', ':'], "/")
                .replace('−', "-"),
        );
    }
    let sum = parts.join(" ").replace("  ", " ");
    let is_sum = sum.chars().all(|c| c.is_ascii_digit() || " +-*/().".contains(c))
        && sum.contains(|c: char| c.is_ascii_digit())
        && sum.contains(['+', '-', '*', '/']);
    is_sum.then_some(sum)
}

/// Up to four words to search for: quoted text, or else the longest words that are not stop words.
fn search_words(text: &str) -> Vec<String> {
    for quote in ['`', '"'] {
        let quoted = text.split(quote).skip(1).step_by(2).map(str::trim);
        // Without a closing quote, the last piece is not quoted.
        let closed = text.matches(quote).count() / 2;
        let quoted: Vec<_> = unique_words(quoted.take(closed).filter(|word| !word.is_empty()));
        if !quoted.is_empty() {
            return quoted.into_iter().take(4).collect();
        }
    }
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| {
        word.chars().count() >= 3 && !STOP_WORDS.contains(&word.to_lowercase().as_str())
    });
    let words = unique_words(words);
    let mut by_length: Vec<usize> = (0..words.len()).collect();
    by_length.sort_by_key(|at| std::cmp::Reverse(words[*at].chars().count()));
    by_length.truncate(4);
    by_length.sort_unstable();
    by_length.into_iter().map(|at| words[at].clone()).collect()
}

fn unique_words<'a>(words: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut unique: Vec<String> = Vec::new();
    for word in words {
        if !unique.iter().any(|other| other.to_lowercase() == word.to_lowercase()) {
            unique.push(word.to_owned());
        }
    }
    unique
}
