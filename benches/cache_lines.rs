//! Counts the cache lines that a token touches if many agents take turns.
//!
//! ```text
//! cargo bench -p turnstream-properties --bench cache_lines
//! ```
//!
//! 300 runs receive one token each, then the next token each, and so on, so that little of a run is
//! still in the first-level cache when its next token arrives. Valgrind simulates the caches of a
//! common server: 32 KiB for data and for instructions, and 1 MiB at the last level, with lines of
//! 64 bytes. The bench counts the reads and writes of data that the first level does not contain.
//!
//! The counts are those of the table in the performance guide. A count that is more than 5 % off is
//! an error; `-- --write` rewrites the table. The bench needs Valgrind: without it nothing is
//! counted, and the bench says so (with `-- --required` that is an error).

#[path = "measured/callgrind.rs"]
mod callgrind;
#[path = "measured/canned_model.rs"]
mod canned_model;
#[path = "measured/count_tables.rs"]
mod count_tables;

use std::pin::Pin;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Waker};
use std::{env, process, thread};

use futures::stream::{Stream, StreamExt};
use tokio::runtime::Runtime;
use turnstream::provider::Provider;
use turnstream::{Request, Steps, TurnStreamExt, loop_stream};
use turnstream_testing::Wire;

use self::callgrind::{find_valgrind, number_in_report};
use self::canned_model::{CannedModel, PROMPT, SYSTEM, agent, start};
use self::count_tables::{Cell, Tables};

/// The number of runs.
const RUNS: usize = 300;
/// The number of tokens of each run, in the shorter of the two measured programs. The longer one
/// has three times as many.
const TOKENS: usize = 20;
/// The tolerance of a count, in percent.
const TOLERANCE: f64 = 5.0;
/// The simulated caches: size in bytes, associativity, and size of a line in bytes.
const CACHES: [&str; 4] =
    ["--cache-sim=yes", "--I1=32768,8,64", "--D1=32768,8,64", "--LL=1048576,16,64"];

const ROWS: [&str; 2] = ["`loop_stream`", "`Agent`"];
const COLUMN: &str = "cache lines";
const TABLES: Tables = Tables {
    page: concat!(env!("CARGO_MANIFEST_DIR"), "/../../src/guide/performance.md"),
    bench: "-p turnstream-properties --bench cache_lines",
    begin: "<!-- cache lines: written by the bench `cache_lines` -->",
    end: "<!-- end of the cache lines -->",
    columns: &[&[COLUMN]],
};

fn main() {
    let args: Vec<String> = env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--serve", reader, tokens] => serve(reader, tokens.parse().expect("a number of tokens")),
        _ => measure_all(
            args.iter().any(|arg| arg == "--write"),
            args.iter().any(|arg| arg == "--required"),
        ),
    }
}

fn measure_all(writes: bool, is_required: bool) {
    find_valgrind(is_required);
    let measured: Vec<Cell> = thread::scope(|scope| {
        let counts = ROWS.map(|reader| scope.spawn(move || lines_per_token(reader)));
        let counts = counts.map(|count| count.join().expect("valgrind ran"));
        let cell = |(reader, count)| Cell {
            row: format!("a token in one of {RUNS} runs, {reader}"),
            column: COLUMN,
            tolerance: TOLERANCE,
            count,
        };
        ROWS.into_iter().zip(counts).map(cell).collect()
    });
    if !TABLES.check(&measured, writes) {
        process::exit(1);
    }
}

/// Returns the misses of the first level per token, without those before the first token.
fn lines_per_token(reader: &str) -> f64 {
    let more = count_misses(reader, 3 * TOKENS) - count_misses(reader, TOKENS);
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let (more, tokens) = (more as f64, (RUNS * 2 * TOKENS) as f64);
    more / tokens
}

fn count_misses(reader: &str, tokens: usize) -> u64 {
    let options = [&["--toggle-collect=*measured_part*"], &CACHES[..]].concat();
    number_in_report(&options, &["--serve", reader, &tokens.to_string()], "D1  misses:")
}

/// A run as this program polls it: its events are dropped.
type Run = Pin<Box<dyn Stream<Item = ()>>>;

/// Starts the runs, and serves one token of each in turn.
fn serve(reader: &str, tokens: usize) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    // More tokens than are served, so that no run ends.
    let model = CannedModel::new(Wire::OpenAiChat, 0, tokens + 8);
    model.arrived().store(0, Relaxed);
    let mut runs: Vec<Run> = (0..RUNS).map(|_| start_run(reader, &model)).collect();
    let entered = runtime.enter();
    // The requests are sent, and the first frames, which are unlike later ones, arrive.
    for arrived in 0..4 {
        model.arrived().store(arrived, Relaxed);
        runs.iter_mut().for_each(poll_until_pending);
    }
    drop(entered);
    measured_part(&runtime, &model, &mut runs, tokens);
}

/// Only cache misses inside this function are counted.
#[inline(never)]
fn measured_part(runtime: &Runtime, model: &CannedModel, runs: &mut [Run], tokens: usize) {
    let _entered = runtime.enter();
    for _ in 0..tokens {
        model.arrived().fetch_add(1, Relaxed);
        runs.iter_mut().for_each(poll_until_pending);
    }
}

/// Polls a run as its task would after a frame has arrived.
fn poll_until_pending(run: &mut Run) {
    let mut cx = Context::from_waker(Waker::noop());
    let mut is_ready = true;
    while is_ready {
        is_ready = match run.as_mut().poll_next(&mut cx) {
            Poll::Ready(event) => {
                event.expect("no run ends");
                true
            }
            Poll::Pending => false,
        };
    }
}

fn start_run(reader: &str, model: &CannedModel) -> Run {
    let (model, is_agent) = (model.clone(), reader == "`Agent`");
    if is_agent {
        let run = agent(&model).run(PROMPT);
        return run.map(|event| drop(std::hint::black_box(event.expect("an event")))).boxed_local();
    }
    let events = loop_stream(start(), move |history| {
        let request = Request::new(history).with_system(SYSTEM);
        model.stream_turn(request).on_turn_complete(async |_| Ok(Steps::stop()))
    });
    events.map(|event| drop(std::hint::black_box(event.expect("an event")))).boxed_local()
}
