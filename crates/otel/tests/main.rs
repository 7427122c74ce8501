//! Tests of spans and metrics, over a grid of scripted runs.

mod attempts;
mod content;
mod drops;
mod exporters;
mod log;
mod metrics;
mod otlp;
mod pictures;
mod propagation;
mod recorder;
mod scenarios;
mod settings;
mod small_worlds;
mod spans;
mod trees;
