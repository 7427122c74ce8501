//! The words of a question.

/// Words that do not identify the subject of a question.
pub(super) const STOP_WORDS: &[&str] = &[
    "about", "all", "and", "any", "are", "can", "could", "did", "does", "explain", "file", "files",
    "find", "for", "from", "get", "give", "has", "have", "hello", "here", "hey", "hi", "how",
    "into", "its", "know", "many", "me", "much", "not", "one", "our", "out", "please", "see",
    "shall", "should", "show", "some", "tell", "than", "thank", "thanks", "that", "the", "their",
    "them", "then", "there", "these", "they", "thing", "things", "this", "those", "use", "used",
    "very", "want", "was", "way", "were", "what", "when", "where", "which", "who", "why", "will",
    "with", "work", "works", "would", "you", "your",
];

/// A word without the punctuation around it.
pub(super) fn trim_punctuation(word: &str) -> String {
    let word = word.trim_matches(|c: char| "?,!;:\"'`()[]*".contains(c));
    match word.trim_end_matches('.') {
        "" => word.to_owned(),
        trimmed => trimmed.to_owned(),
    }
}
