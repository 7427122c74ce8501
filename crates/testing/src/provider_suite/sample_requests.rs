//! The suite's requests, and helpers for reading the turns that result from them.

use std::sync::{Arc, Mutex};

use futures::StreamExt;
use serde_json::{Value, json};
use turnstream::agent::{Agent, Limits};
use turnstream::error::Error;
use turnstream::event::Outcome;
use turnstream::item::{History, Item, StopReason};
use turnstream::provider::{Piece, Provider};
use turnstream::request::{Cache, Options, Request, Retries, ToolSpec};
use turnstream::stream::TurnStream;
use turnstream::tool::Tool;
use turnstream::turn::{Turn, TurnEvent};

use crate::http::HttpResponse;
use crate::lock::lock_ignoring_poison;
use crate::provider_suite::report::{UnmetClaim, ensure_that};
use crate::provider_suite::server::{SuiteServer, bytes_part, stream_response, with_timeout};
use crate::provider_suite::subject::Subject;

/// The user's message in every request.
pub(super) const USER_TEXT: &str = "suite-user-4711";
/// The argument value of every tool call in the suite.
pub(super) const ARGUMENT_VALUE: &str = "suite-argument-0815";
/// The result of every tool call in the suite.
pub(super) const RESULT_TEXT: &str = "suite-result-1234";
/// The id of every tool call in the suite.
pub(super) const CALL_ID: &str = "call_suite1";

/// Returns the tool that the model calls in the suite's tests.
pub(super) fn sample_tool() -> ToolSpec {
    ToolSpec::new(
        "look_up",
        "Looks a word up",
        json!({
            "type": "object",
            "properties": { "word": { "type": "string" } },
            "required": ["word"],
        }),
    )
}

/// Creates a request with this history and with retries disabled.
pub(super) fn request_about(history: History) -> Request {
    let options = Options { cache: Cache::Off, ..Options::default() };
    let request = Request::new(history).with_system("Be brief.").with_tools([sample_tool()]);
    Request { retries: Retries::none(), ..request.with_options(options) }
}

/// Returns a history that contains only a user message.
pub(super) fn sample_history() -> History {
    History::from_items("suite", [Item::user(USER_TEXT)])
}

pub(super) fn text(text: &str) -> Piece {
    Piece::Text(text.to_owned())
}

pub(super) fn call_piece(id: &str, word: &str) -> Piece {
    let arguments = json!({ "word": word }).to_string();
    Piece::ToolCall { id: id.to_owned(), name: sample_tool().name, arguments }
}

pub(super) fn stop_piece() -> Piece {
    Piece::Stop(StopReason::Stop)
}

pub(super) fn tool_calls_stop_piece() -> Piece {
    Piece::Stop(StopReason::ToolCalls)
}

/// Returns the body of a response that consists of `pieces`, or skips the check if the wire format
/// cannot represent one of them.
pub(super) fn response_body_or_skip<S: Subject>(
    subject: &S,
    what: &str,
    pieces: &[Piece],
) -> Result<Vec<u8>, UnmetClaim> {
    let skipped = || UnmetClaim::Skipped(format!("the wire has no {what}"));
    subject.response_body(pieces).ok_or_else(skipped)
}

/// Returns a response that consists of `pieces`, or skips the check if the wire format cannot
/// represent one of them.
pub(super) fn response_of_pieces<S: Subject>(
    subject: &S,
    what: &str,
    pieces: &[Piece],
) -> Result<HttpResponse, UnmetClaim> {
    Ok(stream_response(subject, vec![bytes_part(&response_body_or_skip(subject, what, pieces)?)]))
}

/// Returns a complete response that contains text.
pub(super) fn text_response<S: Subject>(subject: &S) -> Result<HttpResponse, UnmetClaim> {
    response_of_pieces(subject, "text", &[text("Hello "), text("there."), stop_piece()])
}

/// Returns a complete response that contains a tool call.
pub(super) fn tool_call_response<S: Subject>(subject: &S) -> Result<HttpResponse, UnmetClaim> {
    response_of_pieces(
        subject,
        "calls",
        &[call_piece(CALL_ID, ARGUMENT_VALUE), tool_calls_stop_piece()],
    )
}

/// A turn that has been read to its end.
pub(super) struct ReadTurn {
    /// All of the turn's events, except a final `TurnComplete`.
    pub(super) events: Vec<TurnEvent>,
    /// The complete turn, or the error with which the turn failed.
    pub(super) end: Result<Arc<Turn>, Error>,
}

impl ReadTurn {
    /// Returns the turn, or a failure if the turn is not complete.
    pub(super) fn turn(self) -> Result<Arc<Turn>, UnmetClaim> {
        self.end.map_err(|error| {
            UnmetClaim::Failed(format!(
                "a complete answer is an error: \
            {error:#}"
            ))
        })
    }

    /// Returns the turn's error, or a failure if the turn did not end with an error.
    pub(super) fn expect_error(self, what: &str) -> Result<Error, UnmetClaim> {
        match self.end {
            Err(error) => Ok(error),
            Ok(turn) => {
                Err(UnmetClaim::Failed(format!("{what} is a complete turn: {:?}", turn.text())))
            }
        }
    }

    /// Returns the concatenated text deltas.
    pub(super) fn text(&self) -> String {
        self.events.iter().filter_map(text_delta).collect()
    }
}

pub(super) fn text_delta(event: &TurnEvent) -> Option<&str> {
    match event {
        TurnEvent::TextDelta { text, .. } => Some(text),
        _ => None,
    }
}

/// Reads a turn to its end, and checks that its stream yields nothing after the end.
pub(super) async fn read_turn(mut turn: TurnStream) -> Result<ReadTurn, UnmetClaim> {
    let mut events = Vec::new();
    let end = loop {
        match with_timeout("the next event of a turn", turn.next()).await? {
            Some(Ok(TurnEvent::TurnComplete { turn })) => break Ok(turn),
            Some(Ok(event)) => events.push(event),
            Some(Err(error)) => break Err(error),
            None => return Err(UnmetClaim::Failed("a turn ends without an end event".to_owned())),
        }
    };
    for _ in 0..3 {
        let more = with_timeout("the end of a stream", turn.next()).await?;
        ensure_that(more.is_none(), || format!("{more:?} comes after the end of the turn"))?;
    }
    Ok(ReadTurn { events, end })
}

/// Sends a request and reads the resulting turn to its end.
pub(super) async fn send_and_read<S: Subject>(
    subject: &S,
    response: HttpResponse,
) -> Result<ReadTurn, UnmetClaim> {
    let server = SuiteServer::start_repeating(response).await?;
    read_turn(server.provider(subject).stream_turn(request_about(sample_history()))).await
}

/// Reads the turn that the provider produces from a response that consists of `pieces`.
pub(super) async fn read_turn_of_pieces<S: Subject>(
    subject: &S,
    what: &str,
    pieces: &[Piece],
) -> Result<ReadTurn, UnmetClaim> {
    send_and_read(subject, response_of_pieces(subject, what, pieces)?).await
}

/// Runs an agent that has the sample tool, and returns the outcome and the arguments of each call
/// to that tool.
pub(super) async fn run_agent<S: Subject>(
    subject: &S,
    server: &SuiteServer,
) -> Result<(Outcome, Vec<Value>), UnmetClaim> {
    let ran = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&ran);
    let tool = Tool::raw(sample_tool(), move |args, _cx| {
        lock_ignoring_poison(&noted).push(args);
        async { RESULT_TEXT }
    });
    let tool = tool.map_err(|error| UnmetClaim::Failed(error.to_string()))?;
    let agent = Agent::new(server.provider(subject))
        .with_tools([tool])
        .with_limits(Limits { max_turns: Some(4), ..Limits::default() });
    let outcome = with_timeout("the end of a run", agent.run(USER_TEXT).outcome()).await?;
    let ran = lock_ignoring_poison(&ran).clone();
    Ok((outcome, ran))
}

/// Returns the positions at which to split a response body. A short body is split at every
/// position. A long body is split around line endings, where frames start and end, and at evenly
/// spaced positions.
pub(super) fn cut_positions(body: &[u8]) -> Vec<usize> {
    /// The maximum number of evenly spaced positions.
    const MAX_CUTS: usize = 128;
    let distance = body.len().div_ceil(MAX_CUTS).max(1);
    let is_line_end = |at: usize| body.get(at) == Some(&b'\n');
    let is_beside = |at: usize| is_line_end(at) || (at > 0 && is_line_end(at - 1));
    (0..body.len()).filter(|at| at % distance == 0 || is_beside(*at)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_answers_are_cut_only_near_line_ends() {
        assert_eq!(cut_positions(b"abc"), [0, 1, 2]);
        let mut long = vec![b'x'; 1_000];
        long[501] = b'\n';
        let positions = cut_positions(&long);
        assert!(
            positions.len() < 140 && positions.contains(&501) && positions.contains(&502),
            "{positions:?}"
        );
    }
}
