//! Counts the instructions that telemetry adds to a token of an agent's run.
//!
//! ```text
//! cargo bench -p turnstream-otel --bench tokens
//! ```
//!
//! With a tracer and a meter that do nothing, a token may cost at most 200 instructions more. The
//! bench needs Valgrind: without it nothing is measured, and the bench says so (with
//! `-- --required` that is an error).

#[path = "../../../benches/measured/callgrind.rs"]
mod callgrind;

use std::{env, hint, process};

use futures::{Stream, StreamExt};
use opentelemetry::metrics::{Meter, MeterProvider};
use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter};
use tokio::runtime::Runtime;
use turnstream::Agent;
use turnstream::provider::{Reply, Scripted};
use turnstream::turn::TurnEvent;
use turnstream_otel::Telemetry;

use self::callgrind::{count_instructions, find_valgrind};

/// The limit on the additional instructions of a token, with a tracer and a meter that do nothing.
const MAX_ADDED: f64 = 200.0;
/// The number of tokens in the shorter of the two runs that are compared.
const TOKENS: u64 = 1_000;

/// The kinds of runs that are measured.
const KINDS: [&str; 5] =
    ["no telemetry", "a tracer that does nothing", "the SDK", "the SDK, with chunk times", "a log"];

fn main() {
    let args: Vec<String> = env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--task", kind, tokens] => run_task(kind, tokens.parse().expect("a number")),
        _ => measure_all(args.iter().any(|arg| arg == "--required")),
    }
}

fn measure_all(is_required: bool) {
    find_valgrind(is_required);
    let counts = KINDS.map(|kind| {
        let count = instructions(kind, 3 * TOKENS) - instructions(kind, TOKENS);
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let (count, tokens) = (count as f64, (2 * TOKENS) as f64);
        count / tokens
    });
    for (kind, count) in KINDS.iter().zip(counts) {
        println!("{kind:28} {count:>7.0} instructions a token, {:>+6.0}", count - counts[0]);
    }
    if counts[1] - counts[0] > MAX_ADDED {
        println!("a tracer that does nothing adds more than {MAX_ADDED} instructions");
        process::exit(1);
    }
}

/// Counts the instructions of a run with this number of tokens.
fn instructions(kind: &str, tokens: u64) -> u64 {
    count_instructions(&["--task", kind, &tokens.to_string()], true)
}

/// An exporter that drops its spans.
#[derive(Debug)]
struct Discard;

impl SpanExporter for Discard {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        hint::black_box(batch);
        Ok(())
    }
}

fn silent_meter() -> Meter {
    opentelemetry::metrics::noop::NoopMeterProvider::new().meter("bench")
}

fn run_task(kind: &str, tokens: usize) {
    let spans = SdkTracerProvider::builder().with_simple_exporter(Discard).build();
    let meters = SdkMeterProvider::builder().build();
    let sdk = || Telemetry::new(spans.tracer("bench"), &meters.meter("bench"));
    let silent = opentelemetry::trace::noop::NoopTracer::new();
    let silent = Telemetry::new(silent, &silent_meter());

    let deltas = (0..tokens).map(|_| TurnEvent::TextDelta { index: 0, text: "word".into() });
    let reply = deltas.fold(Reply::new(), Reply::event);
    let agent = Agent::new(Scripted::new([reply]));
    let agent = match kind {
        "a tracer that does nothing" => agent.with_run_observer(silent),
        "the SDK" => agent.with_run_observer(sdk()),
        "the SDK, with chunk times" => agent.with_run_observer(sdk().with_chunk_times()),
        _ => agent,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let runtime = runtime.expect("a runtime can be built");
    let run = agent.run("Go.");
    let count = match kind {
        "a log" => measured_part(&runtime, run.with_tracing()),
        _ => measured_part(&runtime, run),
    };
    assert!(count > tokens, "{count} events");
}

/// The part of the task whose instructions are counted. Valgrind finds it by its name.
#[inline(never)]
fn measured_part(runtime: &Runtime, events: impl Stream) -> usize {
    runtime.block_on(events.count())
}
