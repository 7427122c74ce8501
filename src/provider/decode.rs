//! The driver that polls every decoder: bytes in, pushes into the turn.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::Stream;
use pin_project::pin_project;
use serde::de::IgnoredAny;

use crate::env::Deadline;
use crate::error::{Error, ErrorKind};
use crate::framing::{Framing, ServerSentEvents};
use crate::http::{DRAIN_TIMEOUT, MAX_DRAIN_BYTES, TurnDeadlines};
use crate::provider::failure;
use crate::sse::Frame;
use crate::stream::{TurnPoll, TurnSource};
use crate::turn::TurnBuilder;

/// How many bytes of frames that give no event are read in one turn. Decoders keep parts of them, such
/// as arguments of which the name has not come.
const MAX_SILENT_BYTES: usize = 256 << 20;

/// So many pieces without an event are read in one poll; then others have their turn.
const MAX_CHUNKS_PER_POLL: usize = 128;

/// A wire's state machine, one for each answer: it does no I/O and is called by [`Decoding`].
///
/// A decoder pushes text, reasoning, calls and usage into the [`TurnBuilder`] as they come. It does
/// not complete the turn: it calls [`TurnBuilder::stop`] when the wire says why the model stopped, and
/// [`Decoding`] completes the turn once the wire's last word, or the end of the body, follows. A body
/// that ends without a stop reason is a turn that broke off, and none of its calls run.
///
/// It need not keep ids apart, nor check that arguments are JSON: the builder and the tools do. The
/// example `own_wire` has a whole one.
pub trait Decode {
    /// Reads one frame and pushes what it says.
    ///
    /// It calls [`TurnBuilder::set_provider`] with the name of the wire and [`TurnBuilder::set_model`] with
    /// that of the model before anything else; doing so again for each frame is cheap. Frames and
    /// fields that it does not know are passed over, since a later version of a wire may send them.
    ///
    /// A frame whose event type is `error` is an error on every wire, and does not come here unless its
    /// data is empty. Frames of a framing without types, such as
    /// [`NdJson`](crate::framing::NdJson), have the type `message`: a decoder for one finds
    /// errors itself, and [`error_in_stream`](crate::provider::error_in_stream) reads them.
    ///
    /// # Errors
    ///
    /// What ends the turn: an error that the provider reports, or a breach of its protocol. What was
    /// pushed before is part of the error, as a [`PartialTurn`](crate::turn::PartialTurn).
    fn frame(&mut self, frame: Frame<'_>, turn: &mut TurnBuilder) -> Result<FrameOutcome, Error>;

    /// Reads a frame that came behind the wire's last word. Few wires have anything to say there:
    /// [`FrameOutcome::Continue`] is for those that go on.
    ///
    /// # Errors
    ///
    /// As [`frame`](Self::frame).
    fn after_done(
        &mut self,
        _frame: Frame<'_>,
        _turn: &mut TurnBuilder,
    ) -> Result<FrameOutcome, Error> {
        Ok(FrameOutcome::Done)
    }

    /// Called once when a body has ended without the wire's last word and without an error. What
    /// it takes for the end of the turn it pushes; by default that is nothing.
    ///
    /// # Errors
    ///
    /// If what came does not make a turn.
    fn body_ended(&mut self, turn: &mut TurnBuilder) -> Result<(), Error> {
        let _ = turn;
        Ok(())
    }

    /// Called once when a turn with its terminal marker is about to be completed. By default it does
    /// nothing.
    ///
    /// # Errors
    ///
    /// If what came does not make a turn.
    fn finish(&mut self, turn: &mut TurnBuilder) -> Result<(), Error> {
        let _ = turn;
        Ok(())
    }
}

/// What a frame was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameOutcome {
    /// More may come, also after a stop reason: usage, for example.
    Continue,
    /// The wire's last word, for example `[DONE]`. The turn is completed if there was a stop reason,
    /// and is one that broke off if there was none.
    Done,
}

/// A turn read from the bytes of a body by a decoder.
///
/// With only a stop reason seen it waits for the wire's last word or the end of the body. A broken
/// connection behind a stop reason does not fail the turn; before it, it is an
/// [`IncompleteTurn`](ErrorKind::IncompleteTurn). A [`Timeout`](ErrorKind::Timeout) of the body
/// stays one. The last frame may be cut off by the end of the body. It is decoded
/// as well; if [`frame`](Decode::frame) then returns a [`Protocol`](ErrorKind::Protocol) error, the turn is incomplete.
#[pin_project]
#[derive(Debug)]
pub struct Decoding<B, D, F = ServerSentEvents> {
    #[pin]
    body: B,
    decoder: D,
    framing: F,
    stage: Stage,
    deadlines: TurnDeadlines,
    /// How many bytes the frames had that gave no event.
    silent_bytes: usize,
}

#[derive(Debug)]
enum Stage {
    Reading,
    /// The body has ended; the frames that are left are read.
    BodyEnded,
    /// The last word was heard.
    Draining {
        bytes: usize,
        deadline: Option<Deadline>,
    },
}

impl<B, D> Decoding<B, D> {
    /// Reads the server-sent events of `body` with `decoder`, for as long as it takes.
    pub fn new(body: B, decoder: D) -> Self {
        Self::from_frames(body, ServerSentEvents::new(), decoder)
    }
}

impl<B, D, F> Decoding<B, D, F> {
    /// Reads the frames of `body` with `decoder`, for as long as it takes.
    pub fn from_frames(body: B, frames: F, decoder: D) -> Self {
        let deadlines = TurnDeadlines::default();
        Self { body, decoder, framing: frames, stage: Stage::Reading, deadlines, silent_bytes: 0 }
    }

    /// Waits no longer than this.
    #[cfg(feature = "http")]
    pub(super) fn with_deadlines(mut self, deadlines: TurnDeadlines) -> Self {
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
            if let Stage::Draining { bytes, deadline: alarm } = this.stage {
                if let Some(Ok(frame)) = this.framing.next_frame() {
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
                        *alarm = alarm.take().or_else(|| Deadline::try_start(DRAIN_TIMEOUT));
                        if let Some(alarm) = alarm {
                            ready!(alarm.poll(cx));
                        }
                    }
                }
                return complete_turn(this.decoder, turn);
            }
            let ending = matches!(this.stage, Stage::BodyEnded);
            let frame = if ending { this.framing.finish() } else { this.framing.next_frame() };
            match frame {
                Some(Ok(frame)) => {
                    // Only the frame that the end of the body cut off is left then: many a gateway
                    // closes an answer that broke off as if it had come to its end.
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

/// Counts a frame that gave no event.
fn count_silent_bytes(silent: &mut usize, bytes: usize) -> Result<(), Error> {
    *silent = silent.saturating_add(bytes);
    if *silent <= MAX_SILENT_BYTES {
        return Ok(());
    }
    let message = format!("the answer has more than {MAX_SILENT_BYTES} bytes that say nothing");
    Err(Error::new(ErrorKind::TooLarge, message))
}

/// Hands a frame to the decoder, unless it tells of an error.
fn decode_frame(
    decoder: &mut impl Decode,
    frame: Frame<'_>,
    turn: &mut TurnBuilder,
) -> Result<FrameOutcome, Error> {
    match frame.event == "error" && !frame.data.trim().is_empty() {
        true => Err(failure::error_in_stream(frame.data)),
        false => decoder.frame(frame, turn),
    }
}

/// The next piece of the body, or the error of having waited for it too long.
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

/// The key of an item in its turn, by its place among others of a wire; no turn has as many.
pub(super) fn item_key(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

#[cfg(all(test, feature = "http"))]
mod tests;
