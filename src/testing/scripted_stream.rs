//! From the script of a turn to its stream on a wire.

use crate::provider::Move;
use crate::provider::content_delta::ContentDelta;
use crate::provider::server::{TurnStart, TurnWriter, UnsupportedContent};
use crate::testing::ReceivedRequest;
use crate::testing::http::Part;
use crate::testing::response_stream::{Step, frames};
use crate::testing::signatures::{Signatures, sign};
use crate::usage::Usage;

/// When every answer was made, in seconds since 1970: the same script gives the same bytes.
const CREATED: u64 = 1_700_000_000;

/// Writes the stream that answers a request. `signatures` learns what was signed. The error is what
/// cannot be said on the wire, for the author of the script.
pub(super) fn steps(
    moves: Vec<Move>,
    asked: &ReceivedRequest,
    signatures: &mut Signatures,
) -> Result<Vec<Step>, String> {
    let usage = moves.iter().rev().find_map(|next| match next {
        Move::Usage(usage) => Some(*usage),
        _ => None,
    });
    let signed = moves.iter().filter_map(|next| match next {
        Move::Say(index, ContentDelta::Signature(of, signature)) => {
            Some((*index, *of, signature.clone()))
        }
        _ => None,
    });
    let writer = (asked.wire.server().turn_writer)(&TurnStart {
        id: &format!("{:04}", asked.n),
        created: CREATED,
        model: &asked.model,
        request: &asked.body,
        usage: usage.unwrap_or_default(),
        signatures: &signed.collect::<Vec<_>>(),
        sign_fn: |said| Some(sign(said)),
    });
    play(writer, moves, asked, signatures)
        .map_err(|what| format!("the script says what the {} wire cannot say: {what}", asked.wire))
}

fn play(
    mut writer: Box<dyn TurnWriter>,
    moves: Vec<Move>,
    asked: &ReceivedRequest,
    signatures: &mut Signatures,
) -> Result<Vec<Step>, UnsupportedContent> {
    let mut steps = Vec::new();
    let mut usage = Usage::default();
    for next in moves {
        let part = match next {
            Move::Say(index, delta) => {
                writer.write(index, delta)?;
                continue;
            }
            Move::Usage(so_far) => {
                usage = so_far;
                continue;
            }
            Move::Stop { reason, .. } => {
                writer.stop(&reason, usage)?;
                break;
            }
            Move::Error(error) => {
                writer.flush();
                take_frames(&mut *writer, &mut steps);
                let frame = asked.wire.server().error_response(&error, frames(&steps));
                steps.push(Step::Frame(frame));
                break;
            }
            Move::Cut => Part::Cut,
            Move::Delay(time) => Part::Delay(time),
            Move::Hang => Part::Hang,
            Move::Event(_) => return Err("an event as it is"),
            Move::Retract(_) => return Err("a retraction"),
        };
        writer.flush();
        take_frames(&mut *writer, &mut steps);
        steps.push(Step::Part(part));
    }
    take_frames(&mut *writer, &mut steps);
    signatures.learn(writer.output().issued.drain(..));
    Ok(steps)
}

fn take_frames(writer: &mut dyn TurnWriter, steps: &mut Vec<Step>) {
    steps.extend(writer.output().frames.drain(..).map(Step::Frame));
}
