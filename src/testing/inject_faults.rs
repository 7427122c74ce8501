//! From what an answer says to what is sent: framing, and everything that goes wrong.

use std::time::Duration;

use bytes::BytesMut;

use crate::env::{Random, SeededRandom};
use crate::provider::server::{FrameFormat, FrameRole, ServerFrame};
use crate::testing::Wire;
use crate::testing::fault::{After, Fault, Noise};
use crate::testing::gzip::Gzip;
use crate::testing::http::Part;
use crate::testing::response_stream::{Body, Step, frames};

/// Makes the parts that are sent, with all that goes wrong.
pub(super) fn disturb(body: Body, mishaps: &[Fault], wire: Wire) -> Vec<Part> {
    let mut parts = match body {
        Body::Stream(steps, format) => {
            let format = mishaps.iter().fold(format, |format, mishap| match mishap {
                Fault::LineEnds(end) => format.with_line_end(end.as_str()),
                _ => format,
            });
            framed(disturbed(steps, mishaps, wire, format), mishaps, format)
        }
        Body::Raw(bytes) => {
            let mut parts = vec![Part::Bytes(bytes)];
            for mishap in mishaps {
                if let Some((After::Events(_), end)) = place(mishap) {
                    parts.extend(end);
                }
            }
            parts
        }
    };
    if mishaps.contains(&Fault::Gzip) {
        parts = gzipped(parts);
    }
    for mishap in mishaps {
        if let Some((After::Bytes(n), end)) = place(mishap) {
            parts = cut(parts, n, end);
        }
    }
    for mishap in mishaps {
        parts = match mishap {
            Fault::Pieces(size) => pieces(parts, || *size),
            Fault::RandomPieces { seed, most } => {
                let random = SeededRandom::new(*seed);
                let most = u64::try_from(*most).unwrap_or(u64::MAX).max(1);
                pieces(parts, || usize::try_from(random.next_u64() % most).unwrap_or(0) + 1)
            }
            _ => parts,
        };
    }
    for mishap in mishaps {
        if let Fault::Slow(wait) = mishap {
            parts = slowed(parts, *wait);
        }
    }
    parts
}

/// Where a mishap breaks a body off, and what comes there. An error in the stream is none of them:
/// it is an event.
fn place(mishap: &Fault) -> Option<(After, Option<Part>)> {
    match mishap {
        Fault::Cut(after) => Some((*after, Some(Part::Cut))),
        Fault::End(after) => Some((*after, None)),
        Fault::Stall(after) => Some((*after, Some(Part::Hang))),
        Fault::Reset(after) => Some((*after, Some(Part::Reset))),
        Fault::Error(..)
        | Fault::NoTerminal
        | Fault::NoLastWord
        | Fault::Between(_)
        | Fault::LineEnds(_)
        | Fault::NoFinalBlankLine
        | Fault::Gzip
        | Fault::Pieces(_)
        | Fault::RandomPieces { .. }
        | Fault::Slow(_) => None,
    }
}

/// What the wire says, changed.
fn disturbed(
    mut steps: Vec<Step>,
    mishaps: &[Fault],
    wire: Wire,
    format: FrameFormat,
) -> Vec<Step> {
    let first_of = |steps: &[Step], roles: &[FrameRole]| {
        let is = |step: &Step| matches!(step, Step::Frame(frame) if roles.contains(&frame.role));
        steps.iter().position(is)
    };
    for mishap in mishaps {
        let gone = match mishap {
            Fault::NoTerminal => first_of(&steps, &[FrameRole::Terminal, FrameRole::Done]),
            Fault::NoLastWord => first_of(&steps, &[FrameRole::Done]),
            _ => None,
        };
        steps.truncate(gone.unwrap_or(steps.len()));
    }
    for mishap in mishaps {
        match mishap {
            Fault::Error(after, error) => {
                // Whole events only: behind the one that the byte stands in.
                let n = match after {
                    After::Events(n) => *n,
                    After::Bytes(n) => events_within(&steps, *n, format),
                };
                break_off(&mut steps, n);
                let frame = wire.server().error_response(error, frames(&steps));
                steps.push(Step::Frame(frame));
            }
            mishap => {
                if let Some((After::Events(n), end)) = place(mishap) {
                    break_off(&mut steps, n);
                    steps.extend(end.map(Step::Part));
                }
            }
        }
    }
    let noise = mishaps.iter().filter_map(|mishap| match mishap {
        Fault::Between(noise) if format.accepts_noise() => Some(*noise),
        _ => None,
    });
    for noise in noise {
        let with_noise = |(n, step)| match step {
            step @ Step::Frame(_) => vec![Step::Noise(noisy(noise, wire, n, format).into()), step],
            step => vec![step],
        };
        steps = steps.into_iter().enumerate().flat_map(with_noise).collect();
    }
    steps
}

/// Keeps `n` frames and what comes before the next.
fn break_off(steps: &mut Vec<Step>, n: usize) {
    let mut frames = 0;
    let next = steps.iter().position(|step| {
        frames += usize::from(matches!(step, Step::Frame(_)));
        frames > n
    });
    steps.truncate(next.unwrap_or(steps.len()));
}

/// How many frames it takes to have so many bytes.
fn events_within(steps: &[Step], bytes: usize, format: FrameFormat) -> usize {
    let mut room = bytes;
    let frames = steps.iter().filter_map(|step| match step {
        Step::Frame(frame) => Some(format.frame(frame, 1).len()),
        Step::Noise(_) | Step::Part(_) => None,
    });
    frames
        .take_while(|length| {
            let fits = room > 0;
            room = room.saturating_sub(*length);
            fits
        })
        .count()
}

fn noisy(noise: Noise, wire: Wire, n: usize, format: FrameFormat) -> String {
    let frame = match noise {
        Noise::BlankLines => return format.write_lines("\n\n"),
        Noise::Comments => None,
        Noise::Pings => (wire.server().ping)(n),
        Noise::UnknownEvents => {
            let (event, data) = wire.vendor().unknown_event;
            let (event, data) = (event.map(Into::into), data.to_owned());
            Some(ServerFrame { event, data, role: FrameRole::Event })
        }
    };
    frame.map_or_else(|| format.comment_frame(), |frame| format.frame(&frame, 0))
}

/// Frames as bytes.
fn framed(steps: Vec<Step>, mishaps: &[Fault], format: FrameFormat) -> Vec<Part> {
    let mut frames = 0..;
    let part = |step| match step {
        Step::Frame(frame) => Part::Bytes(format.frame(&frame, frames.next().unwrap_or(0)).into()),
        Step::Noise(bytes) => Part::Bytes(bytes),
        Step::Part(part) => part,
    };
    let mut parts: Vec<Part> = steps.into_iter().map(part).collect();
    let (line_end, body_end) = format.closing_bytes();
    if mishaps.contains(&Fault::NoFinalBlankLine)
        && let Some(Part::Bytes(last)) =
            parts.iter_mut().rfind(|part| matches!(part, Part::Bytes(_)))
    {
        last.truncate(last.len().saturating_sub(line_end.len()));
    }
    parts.extend(body_end.map(|end| Part::Bytes(end.into())));
    parts
}

fn gzipped(parts: Vec<Part>) -> Vec<Part> {
    let mut gzip = Gzip::new();
    let pack = |part| match part {
        Part::Bytes(bytes) => Part::Bytes(gzip.pack(&bytes)),
        part @ (Part::Delay(_) | Part::Hang | Part::Cut | Part::Reset) => part,
    };
    let mut parts: Vec<Part> = parts.into_iter().map(pack).collect();
    parts.push(Part::Bytes(gzip.finish()));
    parts
}

/// Keeps `n` bytes, and `end` comes behind them.
fn cut(parts: Vec<Part>, n: usize, end: Option<Part>) -> Vec<Part> {
    let mut kept = Vec::new();
    let mut room = n;
    for part in parts {
        match part {
            Part::Bytes(mut bytes) => {
                let whole = bytes.len() <= room;
                bytes.truncate(room);
                room -= bytes.len();
                kept.push(Part::Bytes(bytes));
                if !whole {
                    break;
                }
            }
            part => kept.push(part),
        }
    }
    kept.extend(end);
    kept
}

/// Cuts what comes in one go into pieces, across frames.
fn pieces(parts: Vec<Part>, mut size: impl FnMut() -> usize) -> Vec<Part> {
    let mut out = Vec::new();
    let mut run = BytesMut::new();
    let mut flush = |run: &mut BytesMut, out: &mut Vec<Part>| {
        while !run.is_empty() {
            let piece = run.split_to(size().clamp(1, run.len()));
            out.push(Part::Bytes(piece.freeze()));
        }
    };
    for part in parts {
        match part {
            Part::Bytes(bytes) => run.extend_from_slice(&bytes),
            part @ (Part::Delay(_) | Part::Hang | Part::Cut | Part::Reset) => {
                flush(&mut run, &mut out);
                out.push(part);
            }
        }
    }
    flush(&mut run, &mut out);
    out
}

fn slowed(parts: Vec<Part>, wait: Duration) -> Vec<Part> {
    let slow = |part| match part {
        part @ Part::Bytes(_) => vec![Part::Delay(wait), part],
        part @ (Part::Delay(_) | Part::Hang | Part::Cut | Part::Reset) => vec![part],
    };
    parts.into_iter().flat_map(slow).collect()
}
