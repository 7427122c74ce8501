//! Iterates over an error and its sources.

use std::error::Error as StdError;

use super::Error;

/// The maximum number of sources to visit, which no error exceeds in practice. This limit ends the
/// iteration over a cyclic chain.
const MAX_SOURCES: usize = 32;

/// Returns an iterator over an error, its source, the source's source, and so on, including sources
/// that [`Error`] does not return because its message repeats them.
pub(crate) fn source_chain<'a>(
    error: &'a (dyn StdError + 'static),
) -> impl Iterator<Item = &'a (dyn StdError + 'static)> + Clone {
    std::iter::successors(Some(error), |&error| match error.downcast_ref::<Error>() {
        Some(error) => error.direct_source(),
        None => error.source(),
    })
}

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

/// Returns the first source whose message is not part of the error's own message. Many messages end
/// with the message of a source, such as "could not connect: connection refused". Reports that join
/// the messages of all sources would otherwise contain that text twice.
pub(super) fn unrepeated_source(error: &Error) -> Option<&(dyn StdError + 'static)> {
    let sources: Vec<_> = source_chain(error).skip(1).take(MAX_SOURCES).collect();
    let is_repeated =
        |source: &&(dyn StdError + 'static)| error.message().ends_with(source.to_string().as_str());
    match sources.iter().rposition(is_repeated) {
        Some(at) => sources.get(at + 1).copied(),
        None => sources.first().copied(),
    }
}
