//! Encodes a response's steps as frames, and injects faults into them.

use std::time::Duration;

use bytes::BytesMut;
use turnstream::env::{Random, SeededRandom};
use turnstream::provider::server::{Frame, Wire};

use crate::body_format::BodyFormat;
use crate::fault::{Fault, FaultPosition};
use crate::gzip::Gzip;
use crate::http::BodyPart;
use crate::response_stream::{BodyStep, ResponseBody, count_frames};
use crate::wire::profile;

/// Injects all faults into a body, and returns the parts to send.
pub(super) fn inject(body: ResponseBody, faults: &[Fault], wire: Wire) -> Vec<BodyPart> {
    let mut parts = match body {
        ResponseBody::Stream(steps, format) => {
            let format = faults.iter().fold(format, |format, fault| match fault {
                Fault::LineEnds(end) => format.with_line_end(*end),
                _ => format,
            });
            encode_frames(inject_frame_faults(steps, faults, wire, format), faults, format)
        }
        ResponseBody::Raw(bytes) => {
            let mut parts = vec![BodyPart::Bytes(bytes)];
            for fault in faults {
                if let Some((FaultPosition::Events(_), end)) = fault_position(fault) {
                    parts.extend(end);
                }
            }
            parts
        }
    };
    if faults.contains(&Fault::Gzip) {
        parts = compress(parts);
    }
    for fault in faults {
        if let Some((FaultPosition::Bytes(n), end)) = fault_position(fault) {
            parts = truncate_at(parts, n, end);
        }
    }
    for fault in faults {
        parts = match fault {
            Fault::FixedSizeChunks(size) => split_into_parts(parts, || *size),
            Fault::RandomSizeChunks { seed, max_len: most } => {
                let random = SeededRandom::new(*seed);
                let most = u64::try_from(*most).unwrap_or(u64::MAX).max(1);
                split_into_parts(parts, || {
                    usize::try_from(random.next_u64() % most).unwrap_or(0) + 1
                })
            }
            _ => parts,
        };
    }
    for fault in faults {
        if let Fault::DelayPerChunk(wait) = fault {
            parts = slow_down(parts, *wait);
        }
    }
    parts
}

/// Returns the position at which a fault interrupts a body, and the part to send at that position.
/// Returns `None` for an error within the stream, because such an error is an event.
fn fault_position(fault: &Fault) -> Option<(FaultPosition, Option<BodyPart>)> {
    match fault {
        Fault::Cut(after) => Some((*after, Some(BodyPart::Cut))),
        Fault::EndEarly(after) => Some((*after, None)),
        Fault::Stall(after) => Some((*after, Some(BodyPart::Hang))),
        Fault::Reset(after) => Some((*after, Some(BodyPart::Reset))),
        Fault::Error(..)
        | Fault::NoTerminalMarker
        | Fault::NoDoneMarker
        | Fault::InsertNoise(_)
        | Fault::LineEnds(_)
        | Fault::NoFinalBlankLine
        | Fault::Gzip
        | Fault::FixedSizeChunks(_)
        | Fault::RandomSizeChunks { .. }
        | Fault::DelayPerChunk(_) => None,
    }
}

/// Applies the faults that change the frames.
fn inject_frame_faults(
    mut steps: Vec<BodyStep>,
    faults: &[Fault],
    wire: Wire,
    format: BodyFormat,
) -> Vec<BodyStep> {
    let profile = profile(wire);
    let first_of = |steps: &[BodyStep], is: &dyn Fn(&Frame) -> bool| {
        steps.iter().position(|step| matches!(step, BodyStep::Frame(frame) if is(frame)))
    };
    for fault in faults {
        let gone = match fault {
            Fault::NoTerminalMarker => first_of(&steps, &|frame| {
                (profile.is_terminal)(frame) || (profile.is_done_marker)(frame)
            }),
            Fault::NoDoneMarker => first_of(&steps, &profile.is_done_marker),
            _ => None,
        };
        steps.truncate(gone.unwrap_or(steps.len()));
    }
    for fault in faults {
        match fault {
            Fault::Error(after, error) => {
                // An error is sent after the complete event that contains the byte at this
                // position.
                let n = match after {
                    FaultPosition::Events(n) => *n,
                    FaultPosition::Bytes(n) => count_events_within(&steps, *n, format),
                };
                truncate_after_frames(&mut steps, n);
                let frame = wire.error_frame(error, count_frames(&steps));
                steps.push(BodyStep::Frame(frame));
            }
            fault => {
                if let Some((FaultPosition::Events(n), end)) = fault_position(fault) {
                    truncate_after_frames(&mut steps, n);
                    steps.extend(end.map(BodyStep::Part));
                }
            }
        }
    }
    let noise = faults.iter().filter_map(|fault| match fault {
        Fault::InsertNoise(noise) if format.accepts_extra_lines() => Some(*noise),
        _ => None,
    });
    for noise in noise {
        let with_noise = |(n, step)| match step {
            step @ BodyStep::Frame(_) => {
                vec![BodyStep::Noise(format.encode_noise(noise, n).into()), step]
            }
            step => vec![step],
        };
        steps = steps.into_iter().enumerate().flat_map(with_noise).collect();
    }
    steps
}

/// Removes the frame that follows the first `n` frames, and all steps after that frame.
fn truncate_after_frames(steps: &mut Vec<BodyStep>, n: usize) {
    let mut frames = 0;
    let next = steps.iter().position(|step| {
        frames += usize::from(matches!(step, BodyStep::Frame(_)));
        frames > n
    });
    steps.truncate(next.unwrap_or(steps.len()));
}

/// Returns the number of frames in the first `bytes` bytes, including a partial last frame.
fn count_events_within(steps: &[BodyStep], bytes: usize, format: BodyFormat) -> usize {
    let mut remaining = bytes;
    let frames = steps.iter().filter_map(|step| match step {
        BodyStep::Frame(frame) => Some(format.encode(frame, 1).len()),
        BodyStep::Noise(_) | BodyStep::Part(_) => None,
    });
    frames
        .take_while(|length| {
            let fits = remaining > 0;
            remaining = remaining.saturating_sub(*length);
            fits
        })
        .count()
}

/// Encodes frames as bytes.
fn encode_frames(steps: Vec<BodyStep>, faults: &[Fault], format: BodyFormat) -> Vec<BodyPart> {
    let mut frames = 0..;
    let part = |step| match step {
        BodyStep::Frame(frame) => {
            BodyPart::Bytes(format.encode(&frame, frames.next().unwrap_or(0)).into())
        }
        BodyStep::Noise(bytes) => BodyPart::Bytes(bytes),
        BodyStep::Part(part) => part,
    };
    let mut parts: Vec<BodyPart> = steps.into_iter().map(part).collect();
    if faults.contains(&Fault::NoFinalBlankLine)
        && let Some(BodyPart::Bytes(last)) =
            parts.iter_mut().rfind(|part| matches!(part, BodyPart::Bytes(_)))
    {
        // A JSON array has no line ending after its last frame.
        let without_end = last.strip_suffix(b"\r\n").or_else(|| last.strip_suffix(b"\n"));
        let length =
            without_end.or_else(|| last.strip_suffix(b"\r")).map_or(last.len(), <[u8]>::len);
        last.truncate(length);
    }
    if !format.body_end().is_empty() {
        parts.push(BodyPart::Bytes(format.body_end().into()));
    }
    parts
}

fn compress(parts: Vec<BodyPart>) -> Vec<BodyPart> {
    let mut gzip = Gzip::new();
    let pack = |part| match part {
        BodyPart::Bytes(bytes) => BodyPart::Bytes(gzip.compress_chunk(&bytes)),
        part => part,
    };
    let mut parts: Vec<BodyPart> = parts.into_iter().map(pack).collect();
    parts.push(BodyPart::Bytes(gzip.finish()));
    parts
}

/// Truncates the parts after their first `n` bytes, and appends `end`.
fn truncate_at(parts: Vec<BodyPart>, n: usize, end: Option<BodyPart>) -> Vec<BodyPart> {
    let mut result = Vec::new();
    let mut remaining = n;
    for part in parts {
        match part {
            BodyPart::Bytes(mut bytes) => {
                let whole = bytes.len() <= remaining;
                bytes.truncate(remaining);
                remaining -= bytes.len();
                result.push(BodyPart::Bytes(bytes));
                if !whole {
                    break;
                }
            }
            part => result.push(part),
        }
    }
    result.extend(end);
    result
}

/// Splits consecutive bytes into chunks, regardless of frame boundaries.
fn split_into_parts(parts: Vec<BodyPart>, mut size: impl FnMut() -> usize) -> Vec<BodyPart> {
    let mut out = Vec::new();
    let mut run = BytesMut::new();
    let mut flush = |run: &mut BytesMut, out: &mut Vec<BodyPart>| {
        while !run.is_empty() {
            let piece = run.split_to(size().clamp(1, run.len()));
            out.push(BodyPart::Bytes(piece.freeze()));
        }
    };
    for part in parts {
        match part {
            BodyPart::Bytes(bytes) => run.extend_from_slice(&bytes),
            part => {
                flush(&mut run, &mut out);
                out.push(part);
            }
        }
    }
    flush(&mut run, &mut out);
    out
}

fn slow_down(parts: Vec<BodyPart>, wait: Duration) -> Vec<BodyPart> {
    let slow = |part| match part {
        part @ BodyPart::Bytes(_) => vec![BodyPart::Delay(wait), part],
        part => vec![part],
    };
    parts.into_iter().flat_map(slow).collect()
}
