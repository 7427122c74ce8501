//! From what an answer says to what is sent: framing, and everything that goes wrong.

use std::time::Duration;

use bytes::{Bytes, BytesMut};

use crate::env::{Random, SeededRandom};
use crate::testing::Wire;
use crate::testing::gzip::Gzip;
use crate::testing::http::Part;
use crate::testing::mishap::{After, LineEnd, Mishap, Noise};
use crate::testing::refusal;
use crate::testing::write::{Frame, Role, Step};

/// What is said, before it is bytes.
pub(super) enum Body {
    /// Frames of a stream of events.
    Events(Vec<Step>),
    /// The same as one JSON array.
    Array(Vec<Step>),
    /// Bytes that are no stream of ours.
    Raw(Bytes),
}

/// Makes the parts that are sent, with all that goes wrong.
pub(super) fn disturb(body: Body, mishaps: &[Mishap], wire: Wire) -> Vec<Part> {
    let mut parts = match body {
        Body::Events(steps) => framed(disturbed(steps, mishaps, wire), mishaps, wire),
        Body::Array(steps) => array(disturbed(steps, mishaps, wire)),
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
    if mishaps.contains(&Mishap::Gzip) {
        parts = gzipped(parts);
    }
    for mishap in mishaps {
        if let Some((After::Bytes(n), end)) = place(mishap) {
            parts = cut(parts, n, end);
        }
    }
    for mishap in mishaps {
        parts = match mishap {
            Mishap::Pieces(size) => pieces(parts, || *size),
            Mishap::RandomPieces { seed, most } => {
                let random = SeededRandom::new(*seed);
                let most = u64::try_from(*most).unwrap_or(u64::MAX).max(1);
                pieces(parts, || usize::try_from(random.bits() % most).unwrap_or(0) + 1)
            }
            _ => parts,
        };
    }
    for mishap in mishaps {
        if let Mishap::Slow(wait) = mishap {
            parts = slowed(parts, *wait);
        }
    }
    parts
}

/// Where a mishap breaks a body off, and what comes there. An error in the stream is none of them:
/// it is an event.
fn place(mishap: &Mishap) -> Option<(After, Option<Part>)> {
    match mishap {
        Mishap::Cut(after) => Some((*after, Some(Part::Cut))),
        Mishap::End(after) => Some((*after, None)),
        Mishap::Stall(after) => Some((*after, Some(Part::Hang))),
        Mishap::Reset(after) => Some((*after, Some(Part::Reset))),
        Mishap::Error(..)
        | Mishap::NoTerminal
        | Mishap::NoLastWord
        | Mishap::Between(_)
        | Mishap::LineEnds(_)
        | Mishap::NoFinalBlankLine
        | Mishap::Gzip
        | Mishap::Pieces(_)
        | Mishap::RandomPieces { .. }
        | Mishap::Slow(_) => None,
    }
}

/// What the wire says, changed.
fn disturbed(mut steps: Vec<Step>, mishaps: &[Mishap], wire: Wire) -> Vec<Step> {
    let first_of = |steps: &[Step], roles: &[Role]| {
        let is = |step: &Step| matches!(step, Step::Frame(frame) if roles.contains(&frame.role));
        steps.iter().position(is)
    };
    for mishap in mishaps {
        let gone = match mishap {
            Mishap::NoTerminal => first_of(&steps, &[Role::Terminal, Role::LastWord]),
            Mishap::NoLastWord => first_of(&steps, &[Role::LastWord]),
            _ => None,
        };
        steps.truncate(gone.unwrap_or(steps.len()));
    }
    for mishap in mishaps {
        match mishap {
            Mishap::Error(after, error) => {
                // Whole events only: behind the one that the byte stands in.
                let n = match after {
                    After::Events(n) => *n,
                    After::Bytes(n) => events_within(&steps, *n),
                };
                break_off(&mut steps, n);
                let frames = steps.iter().filter(|step| matches!(step, Step::Frame(_))).count();
                steps.push(Step::Frame(refusal::frame(wire, error, frames)));
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
        Mishap::Between(noise) => Some(*noise),
        _ => None,
    });
    for noise in noise {
        let with_noise = |(n, step)| match step {
            step @ Step::Frame(_) => vec![noisy(noise, wire, n), step],
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
fn events_within(steps: &[Step], bytes: usize) -> usize {
    let mut room = bytes;
    let frames = steps.iter().filter_map(|step| match step {
        Step::Frame(frame) => Some(frame.bytes(LineEnd::Lf).len()),
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

fn noisy(noise: Noise, wire: Wire, n: usize) -> Step {
    let event = |name: Option<&'static str>, data: &str| {
        Step::Noise(
            Frame { event: name, data: data.to_owned(), role: Role::Event }.bytes(LineEnd::Lf),
        )
    };
    let comment = || Step::Noise(Bytes::from_static(b": keep-alive\n\n"));
    match (noise, wire) {
        (Noise::BlankLines, _) => Step::Noise(Bytes::from_static(b"\n\n")),
        (Noise::Comments, _) | (Noise::Pings, Wire::OpenAiChat | Wire::Gemini) => comment(),
        (Noise::Pings, Wire::Anthropic) => event(Some("ping"), r#"{"type":"ping"}"#),
        (Noise::Pings, Wire::OpenAiResponses) => {
            event(Some("keepalive"), &format!(r#"{{"type":"keepalive","sequence_number":{n}}}"#))
        }
        (Noise::UnknownEvents, Wire::Anthropic) => {
            event(Some("weather"), r#"{"type":"weather","index":0,"sky":["blue"]}"#)
        }
        (Noise::UnknownEvents, Wire::OpenAiResponses) => {
            event(Some("response.weather"), r#"{"type":"response.weather","sky":["blue"]}"#)
        }
        (Noise::UnknownEvents, Wire::OpenAiChat) => {
            event(None, r#"{"choices":[],"weather":{"sky":["blue"]}}"#)
        }
        (Noise::UnknownEvents, Wire::Gemini) => event(None, r#"{"weather":{"sky":["blue"]}}"#),
    }
}

/// Frames as bytes.
fn framed(steps: Vec<Step>, mishaps: &[Mishap], wire: Wire) -> Vec<Part> {
    let asked = mishaps.iter().rev().find_map(|mishap| match mishap {
        Mishap::LineEnds(end) => Some(*end),
        _ => None,
    });
    let natural = match wire {
        Wire::Gemini => LineEnd::CrLf,
        Wire::Anthropic | Wire::OpenAiChat | Wire::OpenAiResponses => LineEnd::Lf,
    };
    let end = asked.unwrap_or(natural);
    let mut parts: Vec<Part> = steps
        .into_iter()
        .map(|step| match step {
            Step::Frame(frame) => Part::Bytes(frame.bytes(end)),
            Step::Noise(bytes) => Part::Bytes(with_line_ends(&bytes, end)),
            Step::Part(part) => part,
        })
        .collect();
    if mishaps.contains(&Mishap::NoFinalBlankLine)
        && let Some(Part::Bytes(last)) =
            parts.iter_mut().rfind(|part| matches!(part, Part::Bytes(_)))
    {
        last.truncate(last.len().saturating_sub(end.as_str().len()));
    }
    parts
}

fn with_line_ends(bytes: &[u8], end: LineEnd) -> Bytes {
    String::from_utf8_lossy(bytes).replace('\n', end.as_str()).into()
}

/// Frames as one JSON array, as Gemini sends it without `alt=sse`.
fn array(steps: Vec<Step>) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut before = "[";
    for step in steps {
        match step {
            Step::Frame(frame) => {
                parts.push(Part::Bytes(format!("{before}{}", frame.data).into()));
                before = ",\r\n";
            }
            Step::Noise(_) => {}
            Step::Part(part) => parts.push(part),
        }
    }
    parts.push(Part::Bytes("]".into()));
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
