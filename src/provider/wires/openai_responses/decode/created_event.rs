//! Recognizes an event that repeats the first event of a response.

use crate::provider::codec::frame_template::borrowed_range;
use crate::sse::Frame;

/// The event `response.created`, whose response is repeated by the next event,
/// `response.in_progress`. The response contains all instructions and tools of the request, so it
/// is often the largest part of the answer.
///
/// The repetition differs only in its type and in its sequence number. If it equals the first event
/// otherwise, it is the same JSON apart from these two values, for the same reason as a frame that
/// matches a [`FrameTemplate`](crate::provider::codec::frame_template::FrameTemplate): a parser is
/// in the same state after equal bytes, and the values that differ are single tokens.
#[derive(Debug)]
pub(super) struct CreatedEvent {
    /// The data up to the type, without its opening quote.
    before: Box<str>,
    /// The data after the type, from its closing quote on.
    after: Box<str>,
}

const CREATED: &str = "response.created";
const IN_PROGRESS: &str = "response.in_progress";
/// The text before the sequence number.
const NUMBER_KEY: &str = "\"sequence_number\":";

impl CreatedEvent {
    /// Keeps the data of an event. `kind` is the event's type. Returns `None` if `kind` was not
    /// borrowed from `data`.
    pub(super) fn new(data: &str, kind: &str) -> Option<Self> {
        let range = borrowed_range(data, kind).filter(|_| kind == CREATED)?;
        Some(Self { before: data[..range.start].into(), after: data[range.end..].into() })
    }

    /// Returns whether the next event is `response.in_progress` with the same response.
    pub(super) fn is_repeated_in_progress(&self, frame: &Frame<'_>) -> bool {
        let Some(rest) = frame.data.strip_prefix(&*self.before) else { return false };
        let Some(rest) = rest.strip_prefix(IN_PROGRESS) else { return false };
        // The number precedes or follows the type.
        rest == &*self.after || self.differs_only_in_number(rest)
    }

    /// Returns whether `after` equals the data after the type, apart from the sequence number.
    fn differs_only_in_number(&self, after: &str) -> bool {
        let Some((known, known_rest)) = split_at_number(&self.after) else { return false };
        let Some(rest) = after.strip_prefix(known) else { return false };
        let known_end = skip_number(known_rest);
        known_end.is_some() && known_end == skip_number(rest)
    }
}

/// Splits the data in front of the sequence number.
fn split_at_number(data: &str) -> Option<(&str, &str)> {
    let at = data.find(NUMBER_KEY)? + NUMBER_KEY.len();
    Some(data.split_at(at))
}

/// Returns the data after an unsigned integer.
fn skip_number(data: &str) -> Option<&str> {
    let len = data.bytes().take_while(u8::is_ascii_digit).count();
    // Zero has no other digit after it.
    let is_number = (1..=18).contains(&len) && (len == 1 || !data.starts_with('0'));
    let rest = &data[len..];
    (is_number && rest.starts_with([',', '}'])).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATA: &str =
        r#"{"type":"response.created","sequence_number":0,"response":{"id":"r","tools":[1]}}"#;

    #[track_caller]
    fn check(created: &str, next: &str, expected: bool) {
        let at = created.find(CREATED).expect("the event has a type");
        let event = CreatedEvent::new(created, &created[at..at + CREATED.len()]).expect("an event");
        let frame = Frame { event: "message", data: next };
        assert_eq!(event.is_repeated_in_progress(&frame), expected, "{next}");
    }

    #[test]
    fn only_the_type_and_the_number_of_a_repetition_may_differ() {
        let next = DATA.replace(CREATED, IN_PROGRESS);
        check(DATA, &next, true);
        check(DATA, &next.replace(":0,", ":1,"), true);
        let last = r#"{"response":{"id":"r"},"type":"response.created","sequence_number":9}"#;
        check(last, &last.replace(CREATED, IN_PROGRESS).replace(":9}", ":10}"), true);
        for (from, to) in [
            (":0,", ":01,"),
            (":0,", ":-1,"),
            (":0,", ":0.5,"),
            (":0,", ":\"0\","),
            ("\"r\"", "\"s\""),
            ("[1]", "[1,2]"),
            ("}}", "}} "),
            ("}}", "}"),
            (IN_PROGRESS, CREATED),
            (IN_PROGRESS, "response.queued"),
        ] {
            check(DATA, &next.replace(from, to), false);
        }
    }

    #[test]
    fn a_type_that_does_not_come_from_the_data_is_not_kept() {
        assert!(CreatedEvent::new(DATA, CREATED).is_none());
        assert!(CreatedEvent::new(DATA, &DATA[9..12]).is_none());
    }
}
