//! Writes an error and its sources as text.

use std::error::Error as StdError;

/// The maximum number of sources to visit, which no error exceeds in practice. This limit ends the
/// iteration over a cyclic chain.
pub(super) const MAX_SOURCES: usize = 32;

/// Joins the messages of an error and its sources with colons. Many errors repeat the message of
/// one of their sources. If the text built so far already ends with the message of a source, that
/// source and the sources before it are not added again.
pub(crate) fn format_source_chain(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let sources = std::iter::successors(error.source(), |&error| error.source());
    let messages: Vec<String> = sources.take(MAX_SOURCES).map(ToString::to_string).collect();
    let mut left = &messages[..];
    while let Some((next, others)) = left.split_first() {
        let repeated = left.iter().rposition(|message| text.ends_with(message.as_str()));
        left = match repeated {
            Some(at) => &left[at + 1..],
            None => {
                text.push_str(": ");
                text.push_str(next);
                others
            }
        };
    }
    text
}
