//! Requests, errors and usage for tests of providers.

use futures::StreamExt;
use turnstream::stream::TurnStream;
use turnstream::{Error, ErrorKind, History, Item, Request, TurnEvent, Usage};

/// An error whose message is the name of its kind.
pub fn error_of_kind(kind: ErrorKind) -> Error {
    Error::new(kind, kind.as_str())
}

/// The usage of a request with ten input tokens.
pub fn usage_with_output(output_tokens: u64) -> Usage {
    Usage { input_tokens: 10, output_tokens, ..Usage::default() }
}

/// A request with one message of the user.
pub fn user_request() -> Request {
    Request::new(History::from_items("h", [Item::user("hi")]))
}

/// The events of a turn, and its error, after which the stream must end.
pub async fn collect_turn(mut turn: TurnStream) -> (Vec<TurnEvent>, Option<Error>) {
    let mut events = Vec::new();
    while let Some(event) = turn.next().await {
        match event {
            Ok(event) => events.push(event),
            Err(error) => {
                assert!(turn.next().await.is_none());
                return (events, Some(error));
            }
        }
    }
    (events, None)
}
