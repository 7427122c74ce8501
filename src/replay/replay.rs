//! A provider that replays a recording.

use std::path::Path;
use std::sync::{Arc, Mutex};

use crate::error::{Error, ErrorKind};
use crate::lock::lock_ignoring_poison;
use crate::provider::{Provider, start_at_first_poll};
use crate::replay::masker::Masker;
use crate::replay::recorded_request::RecordedRequest;
use crate::replay::recorded_turns::{RecordedTurn, read_turns};
use crate::replay::recording::{parse_error, read_recording_file};
use crate::replay::replay_mismatch::ReplayMismatch;
use crate::request::Request;
use crate::stream::TurnStream;
use crate::world::ReplayedTurn;

/// A provider that replays the turns in a recording made by [`Record`](super::Record), or the turns
/// of the runs in a recording made by a [`Recorder`](super::Recorder). If a request matches a
/// recorded request, the provider returns the recorded events or the recorded error, without using
/// the network or waiting.
///
/// A request is answered with the first recorded turn that has not been replayed yet and has the
/// same model, system prompt, tools, options and context. Requests may arrive in any order, and
/// history ids may differ. If no recorded turn matches a request, the turn fails with an error of
/// kind [`ReplayMismatch`](ErrorKind::ReplayMismatch). The error's source is a [`ReplayMismatch`],
/// which describes the first difference between the request and the first recorded request that has
/// not been replayed.
///
/// - The tool calls in a replayed turn are allowed to run if they were allowed to run when the turn
///   was recorded. For this purpose, the turn is rebuilt from its items and its recorded end.
/// - A turn that was dropped during recording, or whose last line is truncated, ends with an
///   [`IncompleteTurn`](ErrorKind::IncompleteTurn) error.
/// - A recorded error is replayed with all of its details; of its sources, however, only the
///   [`PartialTurn`](crate::turn::PartialTurn) is restored.
/// - Text that was masked in the recording remains masked when it is replayed. Pass the same
///   secrets to [`with_secret`](Self::with_secret), so that the secrets are also masked in the
///   requests.
/// - The recording of a run contains no requests from its sub-agents, so these cannot be replayed.
///
/// Clones of a `Replay` share the recording. Each recorded turn is replayed only once.
///
/// ```
/// use turnstream::provider::Provider;
/// use turnstream::replay::{Replay, ReplayMismatch};
/// use turnstream::stream::TurnStreamExt;
/// use turnstream::{ErrorKind, History, Item, Request};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), turnstream::Error> {
/// let replay = Replay::from_text(
///     r#"{"type":"recording","version":1,"model":"m"}
/// {"type":"request","turn":1,"request":{"context":[{"type":"user","content":"Hi"}]}}
/// {"type":"event","turn":1,"event":{"type":"text_delta","index":0,"text":"Hello!"}}
/// {"type":"event","turn":1,"event":{"type":"turn_complete","turn":{"items":[{"type":"text","text":"Hello!"}],"stop_reason":"stop"}}}
/// "#,
/// )?;
/// let ask = |text: &str| {
///     let request = Request::new(History::from_items("another", [Item::user(text)]));
///     replay.stream_turn(request).into_turn()
/// };
/// let error = ask("Ho").await.unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::ReplayMismatch);
/// let mismatch = error.find_source::<ReplayMismatch>().unwrap();
/// assert_eq!(mismatch.part, "request.context[0].content");
/// assert_eq!(ask("Hi").await?.text(), "Hello!");
/// assert_eq!(replay.remaining(), 0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Replay {
    model: Arc<str>,
    has_torn_line: bool,
    has_tool_search: bool,
    masker: Arc<Masker>,
    /// The recorded turns that have not been replayed yet.
    turns: Arc<Mutex<Vec<RecordedTurn>>>,
}

impl Replay {
    /// Reads a recording from a file.
    ///
    /// # Errors
    ///
    /// Returns an error of kind [`Store`](ErrorKind::Store) if the file cannot be read, or is not a
    /// recording in a known format version. A truncated last line does not cause an error until a
    /// turn that may be affected by it is replayed.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::from_text(&read_recording_file(path.as_ref())?)
    }

    /// Reads a recording from a string.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`from_file`](Self::from_file), except for errors from reading
    /// the file.
    pub fn from_text(text: &str) -> Result<Self, Error> {
        let recorded = read_turns(text)?;
        Ok(Self {
            model: recorded.model.into(),
            has_torn_line: recorded.has_torn_line,
            has_tool_search: recorded.turns.iter().any(|turn| turn.request.has_deferred_tools()),
            masker: Arc::default(),
            turns: Arc::new(Mutex::new(recorded.turns)),
        })
    }

    /// Masks a secret in each request before it is compared with the recording. Use the same
    /// secrets that were passed to [`Record::with_secret`](super::Record::with_secret),
    /// which masks them before a request is recorded.
    pub fn with_secret(mut self, secret: impl AsRef<str>) -> Self {
        Arc::make_mut(&mut self.masker).add_secret(secret.as_ref());
        self
    }

    /// Returns the number of turns in the recording that have not been replayed yet.
    pub fn remaining(&self) -> usize {
        lock_ignoring_poison(&self.turns).len()
    }

    /// Removes and returns the recorded turn that matches a request.
    fn take_turn(&self, request: &Request) -> Result<ReplayedTurn, Error> {
        let sent = RecordedRequest::new(request).masked(&self.masker).map_err(parse_error)?;
        let mut turns = lock_ignoring_poison(&self.turns);
        let mut first = None;
        for at in 0..turns.len() {
            let RecordedTurn { number, request, .. } = &turns[at];
            match sent.first_difference(request, 0) {
                None => return Ok(turns.remove(at).replayed_turn),
                Some(difference) => drop(first.get_or_insert((*number, difference))),
            }
        }
        Err(match first {
            Some((turn, difference)) => {
                ReplayMismatch::from_request(turn, 0, &difference).into_error()
            }
            None => {
                let torn = if self.has_torn_line { ", and its last line is cut off" } else { "" };
                let message = format!("every turn of the recording was already replayed{torn}");
                Error::new(ErrorKind::ReplayMismatch, message)
            }
        })
    }
}

impl Provider for Replay {
    fn stream_turn(&self, request: Request) -> TurnStream {
        let replay = self.clone();
        start_at_first_poll(request, move |request, _| replay.take_turn(&request))
    }

    fn model(&self) -> &str {
        &self.model
    }

    /// Returns whether a recorded request contains tools that the provider itself searches.
    fn has_tool_search(&self) -> bool {
        self.has_tool_search
    }
}

impl_debug!(Replay(it), model = it.model, remaining = it.remaining());
