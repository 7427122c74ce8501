//! Drives a decoder: polls the body for bytes and pushes the decoded content into the turn.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::Stream;
use pin_project::pin_project;
use serde::de::IgnoredAny;

use crate::env::Deadline;
use crate::error::{Error, ErrorKind};
use crate::framing::{FrameReader, Framing};
use crate::http::{DRAIN_TIMEOUT, MAX_DRAIN_BYTES, TurnDeadlines};
use crate::item::has_more_values_than;
use crate::provider::codec::failure;
use crate::sse::Frame;
use crate::stream::{TurnPoll, TurnSource};
use crate::turn::TurnBuilder;

/// The maximum number of bytes that a turn may receive in frames that produce no event. Decoders
/// buffer parts of such frames, for example call arguments that arrive before the tool's name.
const MAX_SILENT_BYTES: usize = 256 << 20;

/// The maximum number of JSON values in a frame. Decoders build lists from a frame's values, whose
/// elements are larger than a value of a few bytes.
const MAX_FRAME_VALUES: usize = 1_000_000;

/// The maximum number of chunks that a single poll reads without producing an event before it
/// yields to other tasks.
const MAX_CHUNKS_PER_POLL: usize = 128;

/// Decodes a single response in a vendor's wire format. A decoder is a state machine that performs
/// no I/O and is driven by [`Decoding`].
///
/// A decoder pushes text, reasoning, tool calls and usage into the [`TurnBuilder`] as they arrive.
/// When a frame reports why the model stopped, the decoder calls [`TurnBuilder::stop`]. The decoder
/// does not complete the turn: [`Decoding`] completes it after the end-of-stream marker or the end
/// of the body. If the body ends without a stop reason, the turn is incomplete, and none of its
/// tool calls run.
///
/// A decoder does not have to make ids unique or check that arguments are valid JSON: the builder
/// makes ids unique, and the tools check the arguments. The `own_wire` example contains a complete
/// decoder.
pub trait Decode {
    /// Decodes a frame and pushes its content into the turn.
    ///
    /// An implementation first calls [`TurnBuilder::set_provider`] with the name of the wire format
    /// and [`TurnBuilder::set_model`] with the name of the model. Repeating these calls for each
    /// frame is cheap. Unknown frames and fields must be ignored, because a later version of the
    /// wire format may contain them.
    ///
    /// In every wire format, a frame with the event type `error` reports an error, and is passed to
    /// this method only if the frame's data is empty. In a framing without event types, such as
    /// [`NdJson`](crate::framing::NdJson), all frames have the type `message`, so the decoder must
    /// detect error frames itself and parse them with
    /// [`error_in_stream`](crate::provider::error_in_stream).
    ///
    /// # Errors
    ///
    /// Returns an error, which ends the turn, if the provider reports an error or a frame violates
    /// the wire format. The content pushed so far is attached to the error as a
    /// [`PartialTurn`](crate::turn::PartialTurn).
    fn frame(&mut self, frame: Frame<'_>, turn: &mut TurnBuilder) -> Result<FrameOutcome, Error>;

    /// Handles a frame received after the end-of-stream marker. The default implementation ignores
    /// the frame. To continue the turn, return [`FrameOutcome::Continue`].
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`frame`](Self::frame).
    fn after_done(
        &mut self,
        _frame: Frame<'_>,
        _turn: &mut TurnBuilder,
    ) -> Result<FrameOutcome, Error> {
        Ok(FrameOutcome::Done)
    }

    /// Handles the end of a body that ended without an end-of-stream marker and without an error.
    /// This method is called at most once. If the wire format allows a body to end without the
    /// marker, an implementation pushes the missing stop reason. The default implementation does
    /// nothing.
    ///
    /// # Errors
    ///
    /// Returns an error if the frames received so far do not form a valid turn.
    fn body_ended(&mut self, turn: &mut TurnBuilder) -> Result<(), Error> {
        let _ = turn;
        Ok(())
    }

    /// Handles the end of the turn. This method is called once, before the turn is completed. At
    /// the time of the call, either the end-of-stream marker has arrived, or the body has ended,
    /// failed or timed out after a stop reason. The default implementation does nothing.
    ///
    /// # Errors
    ///
    /// Returns an error if the frames received so far do not form a valid turn.
    fn finish(&mut self, turn: &mut TurnBuilder) -> Result<(), Error> {
        let _ = turn;
        Ok(())
    }
}

/// Indicates whether more frames are expected after the decoded frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameOutcome {
    /// More frames may follow, even after a stop reason, for example a frame that reports the token
    /// usage.
    Continue,
    /// The frame was the end-of-stream marker, for example `[DONE]`. The turn is complete if a stop
    /// reason was pushed, and incomplete otherwise.
    Done,
}

/// Decodes a turn from the bytes of a response body.
///
/// After a stop reason, the turn still waits for the end-of-stream marker or the end of the body.
/// If the connection breaks after a stop reason, the turn does not fail. If the connection breaks
/// before a stop reason, the turn fails with an [`IncompleteTurn`](ErrorKind::IncompleteTurn)
/// error, but a [`Timeout`](ErrorKind::Timeout) error from the body is returned unchanged. If the
/// end of the body cuts off the last frame, the truncated frame is decoded as well. If
/// [`frame`](Decode::frame) returns a [`Protocol`](ErrorKind::Protocol) error for the truncated
/// frame, a turn without a stop reason fails as incomplete; otherwise, the error is ignored.
///
/// The fields that every frame uses come first, so that they share cache lines.
#[pin_project]
#[derive(Debug)]
#[repr(C)]
pub struct Decoding<B, D, F = FrameReader> {
    stage: Stage,
    framing: F,
    decoder: D,
    deadlines: TurnDeadlines,
    #[pin]
    body: B,
    /// The total size, in bytes, of the frames that produced no event.
    silent_bytes: usize,
}

#[derive(Debug)]
enum Stage {
    Reading,
    /// The body has ended, and the buffered frames are being decoded.
    BodyEnded,
    /// The end-of-stream marker has been received.
    Draining {
        bytes: usize,
        deadline: Option<Box<Deadline>>,
    },
}

impl<B, D> Decoding<B, D> {
    /// Creates a turn that uses `decoder` to decode the server-sent events in `body`, without a
    /// time limit.
    pub fn new(body: B, decoder: D) -> Self {
        Self::from_frames(body, FrameReader::new(), decoder)
    }
}

impl<B, D, F> Decoding<B, D, F> {
    /// Creates a turn that uses `decoder` to decode the frames in `body`, without a time limit.
    pub fn from_frames(body: B, frames: F, decoder: D) -> Self {
        let deadlines = TurnDeadlines::default();
        Self { body, decoder, framing: frames, stage: Stage::Reading, deadlines, silent_bytes: 0 }
    }

    /// Sets the deadlines that limit how long the turn may wait for the body.
    #[cfg(feature = "http")]
    pub(in crate::provider) fn with_deadlines(mut self, deadlines: TurnDeadlines) -> Self {
        self.deadlines = deadlines;
        self
    }
}

impl<B, D, F> TurnSource for Decoding<B, D, F>
where
    B: Stream<Item = Result<Bytes, Error>>,
    D: Decode,
    F: Framing,
{
    fn poll_turn(self: Pin<&mut Self>, cx: &mut Context<'_>, turn: &mut TurnBuilder) -> TurnPoll {
        let mut this = self.project();
        let mut pieces = 0;
        loop {
            if let Stage::Draining { bytes, deadline: drain_deadline } = this.stage {
                if let Some(Ok(frame)) = this.framing.next_frame() {
                    check_value_count(frame)?;
                    match this.decoder.after_done(frame, turn)? {
                        FrameOutcome::Done => {}
                        FrameOutcome::Continue => *this.stage = Stage::Reading,
                    }
                    if turn.has_events() {
                        return Poll::Ready(Some(Ok(())));
                    }
                    continue;
                }
                match this.body.as_mut().poll_next(cx) {
                    Poll::Ready(Some(Ok(piece))) if *bytes + piece.len() <= MAX_DRAIN_BYTES => {
                        *bytes += piece.len();
                        this.framing.feed(piece);
                        continue;
                    }
                    Poll::Ready(_) => {}
                    Poll::Pending => {
                        *drain_deadline = drain_deadline
                            .take()
                            .or_else(|| Deadline::try_start(DRAIN_TIMEOUT).map(Box::new));
                        if let Some(drain_deadline) = drain_deadline {
                            ready!(drain_deadline.poll(cx));
                        }
                    }
                }
                return complete_turn(this.decoder, turn);
            }
            let ending = matches!(this.stage, Stage::BodyEnded);
            let frame = if ending { this.framing.finish() } else { this.framing.next_frame() };
            match frame {
                Some(Ok(frame)) => {
                    // The end of the body cut off the only remaining frame. Many gateways close a
                    // broken response as if it had ended normally.
                    let is_half =
                        ending && serde_json::from_str::<IgnoredAny>(frame.data.trim()).is_err();
                    let bytes = frame.data.len();
                    match decode_frame(this.decoder, frame, turn) {
                        Ok(FrameOutcome::Continue) if turn.has_events() || turn.is_finished() => {
                            if turn.has_output() {
                                this.deadlines.on_output();
                            }
                            return Poll::Ready(Some(Ok(())));
                        }
                        Ok(FrameOutcome::Continue) => count_silent_bytes(this.silent_bytes, bytes)?,
                        Ok(FrameOutcome::Done) => {
                            *this.stage = Stage::Draining { bytes: 0, deadline: None };
                        }
                        Err(error) if is_half && error.kind() == ErrorKind::Protocol => {
                            if !turn.is_stopped() {
                                return Poll::Ready(Some(Err(turn.fail_incomplete(Some(error)))));
                            }
                        }
                        Err(error) => return Poll::Ready(Some(Err(error))),
                    }
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None if ending => {
                    this.decoder.body_ended(turn)?;
                    return match turn.is_stopped() {
                        true => complete_turn(this.decoder, turn),
                        false => Poll::Ready(None),
                    };
                }
                None if pieces == MAX_CHUNKS_PER_POLL => match this.deadlines.poll(cx) {
                    Poll::Ready(_) if turn.is_stopped() => {
                        return complete_turn(this.decoder, turn);
                    }
                    Poll::Ready(error) => return Poll::Ready(Some(Err(error))),
                    Poll::Pending => {
                        cx.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                },
                None => match ready!(poll_chunk(this.body.as_mut(), this.deadlines, cx)) {
                    Some(Ok(piece)) => {
                        pieces += 1;
                        this.framing.feed(piece);
                    }
                    None => *this.stage = Stage::BodyEnded,
                    Some(Err(_)) if turn.is_stopped() => return complete_turn(this.decoder, turn),
                    Some(Err(error)) => {
                        let is_timeout = error.kind() == ErrorKind::Timeout;
                        let error =
                            if is_timeout { error } else { turn.fail_incomplete(Some(error)) };
                        return Poll::Ready(Some(Err(error)));
                    }
                },
            }
        }
    }
}

/// Adds a frame's size to the number of bytes that produced no event, and returns an error if the
/// total exceeds the maximum.
fn count_silent_bytes(silent: &mut usize, bytes: usize) -> Result<(), Error> {
    *silent = silent.saturating_add(bytes);
    if *silent <= MAX_SILENT_BYTES {
        return Ok(());
    }
    let message = format!("the response has more than {MAX_SILENT_BYTES} bytes without content");
    Err(Error::new(ErrorKind::TooLarge, message))
}

/// Passes a frame to the decoder, unless its event type is `error` or it has too many values.
fn decode_frame(
    decoder: &mut impl Decode,
    frame: Frame<'_>,
    turn: &mut TurnBuilder,
) -> Result<FrameOutcome, Error> {
    check_value_count(frame)?;
    match frame.event == "error" && !frame.data.trim().is_empty() {
        true => Err(failure::error_in_stream(frame.data)),
        false => decoder.frame(frame, turn),
    }
}

/// Returns an error if a frame has more than [`MAX_FRAME_VALUES`] values.
#[inline]
fn check_value_count(frame: Frame<'_>) -> Result<(), Error> {
    // Almost all frames are too short to have that number of values.
    if frame.data.len() / 2 < MAX_FRAME_VALUES { Ok(()) } else { check_large_frame(frame.data) }
}

/// Counts the values of a large frame.
#[cold]
fn check_large_frame(data: &str) -> Result<(), Error> {
    if !has_more_values_than(data.as_bytes(), MAX_FRAME_VALUES) {
        return Ok(());
    }
    let message = format!("a frame has more than {MAX_FRAME_VALUES} JSON values");
    Err(Error::new(ErrorKind::TooLarge, message))
}

/// Returns the next chunk of the body, or an error if a deadline has passed.
fn poll_chunk<B: Stream<Item = Result<Bytes, Error>>>(
    body: Pin<&mut B>,
    deadlines: &mut TurnDeadlines,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<Bytes, Error>>> {
    match body.poll_next(cx) {
        Poll::Pending => deadlines.poll(cx).map(|error| Some(Err(error))),
        piece @ Poll::Ready(_) => {
            deadlines.on_bytes();
            piece
        }
    }
}

fn complete_turn(decoder: &mut impl Decode, turn: &mut TurnBuilder) -> TurnPoll {
    Poll::Ready(Some(decoder.finish(turn).and_then(|()| turn.complete())))
}

/// Converts an item's index in the wire format to the item's key in the turn, saturating at
/// `u32::MAX`.
pub(in crate::provider) fn item_key(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

#[cfg(all(test, feature = "http"))]
mod tests;
