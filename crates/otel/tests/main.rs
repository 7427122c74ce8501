//! Tests of spans and metrics, over a grid of scripted runs.

mod content;
mod drops;
mod metrics;
mod otlp;
mod propagation;
mod recorder;
mod scenarios;
mod spans;
mod trees;
