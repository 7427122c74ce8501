//! Converts the script for a turn into a streamed response in a wire format.

use turnstream::Error;
use turnstream::provider::ReplyStep;
use turnstream::provider::server::{ContentDelta, Frame, TurnStart, TurnWriter};
use turnstream::usage::Usage;

use crate::ReceivedRequest;
use crate::http::BodyPart;
use crate::response_stream::{BodyStep, count_frames};
use crate::signatures::{Signatures, sign_text};

/// The creation time of every response, in seconds since 1970. A constant time ensures that the
/// same script always produces the same bytes.
const CREATED_AT: u64 = 1_700_000_000;

/// Returns the steps of the stream that answers a request, and adds the stream's signatures to
/// `signatures`. If the wire format cannot express the script, returns an error message for the
/// script's author that names the content in question.
pub(super) fn script_to_body_steps(
    script: Vec<ReplyStep>,
    request: &ReceivedRequest,
    signatures: &mut Signatures,
) -> Result<Vec<BodyStep>, String> {
    let usage = script.iter().rev().find_map(|next| match next {
        ReplyStep::Usage(usage) => Some(*usage),
        _ => None,
    });
    let signed = script.iter().filter_map(|next| match next {
        ReplyStep::Delta(index, ContentDelta::Signature(of, signature)) => {
            Some((*index, *of, signature.clone()))
        }
        _ => None,
    });
    let writer = TurnWriter::new(
        request.wire,
        TurnStart {
            id: &format!("{:04}", request.index),
            model: &request.model,
            created_at: CREATED_AT,
            request: &request.body,
            usage: usage.unwrap_or_default(),
            signatures: &signed.collect::<Vec<_>>(),
            sign: Box::new(|content| Some(sign_text(content))),
        },
    );
    let steps = write_script(writer, script, request)
        .map_err(|error| format!("the script has {}", error.message()))?;
    for step in &steps {
        if let BodyStep::Frame(frame) = step {
            signatures.record_response(frame.issued.iter().cloned());
        }
    }
    Ok(steps)
}

fn write_script(
    mut writer: TurnWriter,
    script: Vec<ReplyStep>,
    request: &ReceivedRequest,
) -> Result<Vec<BodyStep>, Error> {
    let frames = |frames: Vec<Frame>| frames.into_iter().map(BodyStep::Frame);
    let mut steps = Vec::new();
    let mut usage = Usage::default();
    // The pieces since the last step that is not one: they are sent together.
    let mut deltas = Vec::new();
    for next in script {
        let part = match next {
            ReplyStep::Delta(index, delta) => {
                deltas.push((index, delta));
                continue;
            }
            ReplyStep::Usage(so_far) => {
                usage = so_far;
                continue;
            }
            ReplyStep::Stop(reason) => {
                steps.extend(frames(writer.write(deltas)?));
                steps.extend(frames(writer.stop(&reason, usage)?));
                break;
            }
            ReplyStep::Error(error) => {
                steps.extend(frames(writer.write(deltas)?));
                let frame = request.wire.error_frame(&error, count_frames(&steps));
                steps.push(BodyStep::Frame(frame));
                break;
            }
            ReplyStep::Disconnect => BodyPart::Cut,
            ReplyStep::Delay(time) => BodyPart::Delay(time),
            ReplyStep::Hang => BodyPart::Hang,
            ReplyStep::Event(_) => return Err(unsupported(request, "an event as it is")),
            ReplyStep::Billing(_) => return Err(unsupported(request, "billing information")),
            ReplyStep::Retract(_) => return Err(unsupported(request, "a retraction")),
            _ => return Err(unsupported(request, "a step that is newer than this server")),
        };
        steps.extend(frames(writer.write(std::mem::take(&mut deltas))?));
        steps.push(BodyStep::Part(part));
    }
    Ok(steps)
}

fn unsupported(request: &ReceivedRequest, what: &str) -> Error {
    let message = format!("content that the {} wire cannot express: {what}", request.wire);
    Error::new(turnstream::ErrorKind::Unsupported, message)
}
