//! The trace contexts that connect a run's requests and tools to a distributed trace.
//!
//! Telemetry code that starts spans for a run's operations, such as the crate `turnstream-otel`,
//! stores their contexts in a [`TraceContexts`], which is part of the [run's
//! data](crate::Run::with_data). The context is sent with requests to models in the header
//! `traceparent`, and a tool reads it with
//! [`ToolContext::trace_context`](crate::tool::ToolContext::trace_context). No context is ever read
//! from the current thread or task.

mod trace_context;
mod trace_contexts;

pub use trace_context::TraceContext;
pub use trace_contexts::{InterruptLane, TraceContexts};
