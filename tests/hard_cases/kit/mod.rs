//! What the hard cases are told with.

mod models;
mod runs;
mod tools;
mod wires;
mod world;

pub(crate) use models::{Bodies, OnWire};
pub(crate) use runs::{
    agent, answers, call, call_of, calls, check, ending, events_until, is_started, kinds, outcome,
    pull, rest, results, scripted, story, types, until,
};
pub(crate) use tools::{Counter, answering, echo, endless, fine, nap, spec, strict, tool};
pub(crate) use wires::{decode, encode, encoded, frame, on_wire, read, read_frames, sendable};
pub(crate) use world::{Told, World, tokens, told, told_from, words};
