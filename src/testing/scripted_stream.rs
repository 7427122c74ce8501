//! Converts the script for a turn into a streamed response in a wire format.

use crate::provider::ReplyStep;
use crate::provider::content_delta::ContentDelta;
use crate::provider::server::{TurnStart, TurnWriter, UnsupportedContent};
use crate::testing::ReceivedRequest;
use crate::testing::http::BodyPart;
use crate::testing::response_stream::{BodyStep, count_frames};
use crate::testing::signatures::{Signatures, sign_text};
use crate::usage::Usage;

/// Returns the steps of the stream that answers a request, and adds the stream's signatures to
/// `signatures`. If the wire format cannot express the script, returns an error message for the
/// script's author that names the content in question.
pub(super) fn script_to_body_steps(
    moves: Vec<ReplyStep>,
    request: &ReceivedRequest,
    signatures: &mut Signatures,
) -> Result<Vec<BodyStep>, String> {
    let usage = moves.iter().rev().find_map(|next| match next {
        ReplyStep::Usage(usage) => Some(*usage),
        _ => None,
    });
    let signed = moves.iter().filter_map(|next| match next {
        ReplyStep::Delta(index, ContentDelta::Signature(of, signature)) => {
            Some((*index, *of, signature.clone()))
        }
        _ => None,
    });
    let writer = (request.wire.server_wire().new_turn_writer)(&TurnStart {
        id: &format!("{:04}", request.index),
        model: &request.model,
        request: &request.body,
        usage: usage.unwrap_or_default(),
        signatures: &signed.collect::<Vec<_>>(),
        sign_fn: |content| Some(sign_text(content)),
    });
    write_script_steps(writer, moves, request, signatures).map_err(|what| {
        format!("the script has content that the {} wire cannot express: {what}", request.wire)
    })
}

fn write_script_steps(
    mut writer: Box<dyn TurnWriter>,
    moves: Vec<ReplyStep>,
    request: &ReceivedRequest,
    signatures: &mut Signatures,
) -> Result<Vec<BodyStep>, UnsupportedContent> {
    let mut steps = Vec::new();
    let mut usage = Usage::default();
    for next in moves {
        let part = match next {
            ReplyStep::Delta(index, delta) => {
                writer.write(index, delta)?;
                continue;
            }
            ReplyStep::Usage(so_far) => {
                usage = so_far;
                continue;
            }
            ReplyStep::Stop { reason, .. } => {
                writer.stop(&reason, usage)?;
                break;
            }
            ReplyStep::Error(error) => {
                writer.flush();
                take_written_frames(&mut *writer, &mut steps);
                let frame =
                    request.wire.server_wire().stream_error_frame(&error, count_frames(&steps));
                steps.push(BodyStep::Frame(frame));
                break;
            }
            ReplyStep::Disconnect => BodyPart::Cut,
            ReplyStep::Delay(time) => BodyPart::Delay(time),
            ReplyStep::Hang => BodyPart::Hang,
            ReplyStep::Event(_) => return Err("an event as it is"),
            ReplyStep::Retract(_) => return Err("a retraction"),
        };
        writer.flush();
        take_written_frames(&mut *writer, &mut steps);
        steps.push(BodyStep::Part(part));
    }
    take_written_frames(&mut *writer, &mut steps);
    signatures.record_response(writer.output().issued.drain(..));
    Ok(steps)
}

fn take_written_frames(writer: &mut dyn TurnWriter, steps: &mut Vec<BodyStep>) {
    steps.extend(writer.output().frames.drain(..).map(BodyStep::Frame));
}
