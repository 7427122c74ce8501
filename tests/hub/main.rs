//! Runs that outlive their readers: what a reader gets from any number on, what a drop does, how commands arrive,
//! how a run ends that nobody reads.

#![cfg(all(feature = "hub", feature = "http"))]

#[path = "../support/mod.rs"]
mod support;

mod commands;
mod endings;
mod folds;
mod logs;
mod readers;
mod sessions;
