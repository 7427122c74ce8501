//! From what a scripted model does to the events of a wire.

mod anthropic;
mod gemini;
mod openai_chat;
mod openai_responses;

pub(super) use gemini::signed_call;

use bytes::Bytes;

use crate::error::Error;
use crate::item::StopReason;
use crate::provider::Move;
use crate::testing::http::Part;
use crate::testing::mishap::LineEnd;
use crate::testing::proof::Proofs;
use crate::testing::{Asked, Wire, refusal};
use crate::usage::Usage;

/// When every answer was made, in seconds since 1970: the same script gives the same bytes.
const CREATED: u32 = 1_700_000_000;

/// One thing that is sent, or happens, in a stream of events.
#[derive(Debug)]
pub(super) enum Step {
    /// An event of the wire.
    Frame(Frame),
    /// Bytes that mean nothing.
    Noise(Bytes),
    /// A wait, or the end.
    Part(Part),
}

/// An event of a wire.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) event: Option<&'static str>,
    /// One line.
    pub(super) data: String,
    pub(super) role: Role,
}

/// What an event means for the end of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Event,
    /// It says that the turn is complete.
    Terminal,
    /// It says that nothing follows.
    LastWord,
}

impl Frame {
    pub(super) fn bytes(&self, end: LineEnd) -> Bytes {
        let end = end.as_str();
        let event = self.event.map(|event| format!("event: {event}{end}")).unwrap_or_default();
        format!("{event}data: {}{end}{end}", self.data).into()
    }
}

/// What cannot be said on the wire, for whoever wrote the script.
pub(super) type Unsayable = String;

/// Writes the stream that answers a request. `proofs` learns what was signed.
pub(super) fn steps(
    moves: Vec<Move>,
    asked: &Asked,
    proofs: &mut Proofs,
) -> Result<Vec<Step>, Unsayable> {
    match asked.wire {
        Wire::Anthropic => play(anthropic::Writer::new(asked, usage(&moves), proofs), moves),
        Wire::OpenAiChat => play(openai_chat::Writer::new(asked, &moves, proofs), moves),
        Wire::OpenAiResponses => play(openai_responses::Writer::new(asked, proofs), moves),
        Wire::Gemini => play(gemini::Writer::new(asked, usage(&moves), proofs), moves),
    }
}

/// A wire, as a script sees it.
trait Write {
    /// The wire that it writes.
    const WIRE: Wire;

    /// The events so far.
    fn out(&mut self) -> &mut Vec<Step>;

    /// Says what a model does. Never called with what [`play`] does itself.
    fn say(&mut self, said: Move) -> Result<(), Unsayable>;

    /// Ends the turn.
    fn stop(&mut self, reason: &StopReason, usage: Usage) -> Result<(), Unsayable>;

    /// Writes what was held back so far: what comes next is no event.
    fn flush(&mut self) {}
}

fn play<W: Write>(mut writer: W, moves: Vec<Move>) -> Result<Vec<Step>, Unsayable> {
    let mut usage = Usage::default();
    for said in moves {
        match said {
            Move::Usage(so_far) => usage = so_far,
            Move::Stop { reason, .. } => {
                writer.stop(&reason, usage)?;
                break;
            }
            Move::Error(error) => {
                writer.flush();
                fail(&mut writer, &error);
                break;
            }
            Move::Cut => end_by(&mut writer, Part::Cut),
            Move::Delay(time) => end_by(&mut writer, Part::Delay(time)),
            Move::Hang => end_by(&mut writer, Part::Hang),
            Move::Event(_) => return Err(cannot(W::WIRE, "an event as it is")),
            Move::Retract(_) => return Err(cannot(W::WIRE, "a retraction")),
            said => writer.say(said)?,
        }
    }
    Ok(std::mem::take(writer.out()))
}

fn end_by(writer: &mut impl Write, part: Part) {
    writer.flush();
    writer.out().push(Step::Part(part));
}

fn fail<W: Write>(writer: &mut W, error: &Error) {
    let frames = writer.out().iter().filter(|step| matches!(step, Step::Frame(_))).count();
    writer.out().push(Step::Frame(refusal::frame(W::WIRE, error, frames)));
}

/// What was counted in the end.
fn usage(moves: &[Move]) -> Usage {
    let counted = moves.iter().rev().find_map(|said| match said {
        Move::Usage(usage) => Some(*usage),
        _ => None,
    });
    counted.unwrap_or_default()
}

fn cannot(wire: Wire, what: &str) -> Unsayable {
    format!("the script says what the {wire} wire cannot say: {what}")
}

/// The id of a call: that of the script, or one of ours.
fn call_id(prefix: &str, scripted: String, n: usize, index: u32) -> String {
    match scripted.as_str() {
        "" => format!("{prefix}_{n:04}_{index}"),
        _ => scripted,
    }
}
