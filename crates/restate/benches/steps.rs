//! The cost of a durable run's step, compared with a plain step of the SDK of the same size; the
//! time of replaying a long journal; and the time of a whole run of one turn.
//!
//! ```text
//! TURNSTREAM_RESTATE_SERVER=$(crates/restate/tests/install.sh) \
//!     cargo bench -p turnstream-restate --bench steps
//! ```
//!
//! It starts a server of its own, which writes to the disk as it does by default. Times are in
//! milliseconds.

#![expect(missing_docs, reason = "the macros of the SDK generate methods without docs")]

#[path = "../tests/support/mod.rs"]
mod support;

use std::env;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use restate_sdk::prelude::*;
use serde_json::{Value, json};
use support::{RestateServer, Worker as Process};
use turnstream::agent::Limits;
use turnstream::provider::{Reply, Scripted};
use turnstream::tool::{RunData, Tool, ToolSpec};
use turnstream::turn::StopReason;
use turnstream::{Agent, Error, Outcome};
use turnstream_restate::{Client, Worker};

const SIZES: [usize; 4] = [1 << 10, 16 << 10, 64 << 10, 1 << 20];
/// The difference in turns between a short run and a long one.
const MORE_TURNS: usize = 10;
const ROUNDS: usize = 9;
const INGRESS_ROUNDS: usize = 100;
/// The numbers of turns of the replayed runs.
const REPLAYED_TURNS: [usize; 3] = [50, 334, 500];
const REPLAYS: usize = 5;

fn main() {
    // `cargo test --benches` only checks that the bench starts.
    if !env::args().any(|argument| argument == "--bench") {
        return;
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let server = RestateServer::start().await;
        measure_steps(&server).await;
        measure_ingress(&server).await;
        for turns in REPLAYED_TURNS {
            measure_replay(&server, turns).await;
        }
    });
}

/// The service with plain SDK steps.
struct Plain;

#[service]
impl Plain {
    /// The duration of each step, in milliseconds.
    #[handler]
    async fn steps(
        &self,
        ctx: Context<'_>,
        Json((bytes, count)): Json<(usize, usize)>,
    ) -> HandlerResult<Json<Vec<f64>>> {
        let mut times = Vec::new();
        for _ in 0..count {
            let value = text(bytes);
            let since = Instant::now();
            ctx.run(|| async { Ok(value) }).await?;
            times.push(millis(since));
        }
        Ok(Json(times))
    }

    #[handler]
    #[expect(clippy::unused_async, reason = "a handler is async even if it awaits nothing")]
    async fn nothing(&self, _ctx: Context<'_>) -> HandlerResult<()> {
        Ok(())
    }
}

/// A text of 63-letter words, so that most of a turn is text.
fn text(bytes: usize) -> String {
    format!("{} ", "x".repeat(63)).repeat(bytes / 64)
}

fn millis(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1000.0
}

/// The value at this percentile.
fn percentile(values: &mut [f64], percent: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    values[(values.len() * percent / 100).min(values.len() - 1)]
}

/// The times at which the model received requests. Clones share them.
#[derive(Clone, Default)]
struct Clock(Arc<Mutex<Vec<Instant>>>);

impl Clock {
    fn push(&self) {
        self.0.lock().unwrap().push(Instant::now());
    }

    fn take(&self) -> Vec<Instant> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// An agent whose turns have `bytes` of text. Each turn except the last is truncated, so the model
/// continues in another turn; thus each turn is one step without tools.
fn talker(bytes: usize, turns: usize, clock: &Clock) -> Agent {
    let (text, clock) = (text(bytes), clock.clone());
    let model = Scripted::from_fn(move |request, _| {
        clock.push();
        let said = request.history.iter().filter(|item| item.as_text().is_some()).count();
        let reply = Reply::text(&text);
        if said + 1 < turns { reply.stop(StopReason::MaxTokens) } else { reply }
    });
    let limits =
        Limits { max_turns: Some(u32::MAX), max_continuations: u32::MAX, ..Limits::default() };
    Agent::new(model).with_limits(limits)
}

async fn measure_steps(server: &RestateServer) {
    let clock = Clock::default();
    let mut worker = Worker::new();
    for bytes in SIZES {
        for turns in [1, 1 + MORE_TURNS] {
            worker = worker.with_agent(format!("{bytes}/{turns}"), talker(bytes, turns, &clock));
        }
    }
    let worker = Process::start(worker.endpoint());
    let plain = Process::start(Endpoint::builder().bind(Plain).build());
    for worker in [&worker, &plain] {
        support::register(&server.admin_url(), &worker.url()).await;
    }
    let client = Client::new(&server.ingress_url()).unwrap();
    println!("milliseconds a step adds, as its median and its 95th percentile");
    println!(
        "   bytes    SDK p50   p95   turn p50   p95   longer run p50   p95   without Restate p50"
    );
    for bytes in SIZES {
        let mut times = [(); 4].map(|()| Vec::new());
        for round in 0..=ROUNDS {
            let steps = plain_steps(server, bytes, MORE_TURNS).await;
            let short = run(&client, &clock, bytes, 1, round).await;
            let long = run(&client, &clock, bytes, 1 + MORE_TURNS, round).await;
            let offline = run_offline(&clock, bytes).await;
            // The first round opens the connection.
            if round == 0 {
                continue;
            }
            times[0].extend(steps);
            times[1].extend(long.turns);
            #[expect(clippy::cast_precision_loss, reason = "it is a small number")]
            times[2].push((long.whole - short.whole) / MORE_TURNS as f64);
            times[3].extend(offline);
        }
        let [sdk, turn, longer, offline] =
            times.map(|mut times| [50, 95].map(|percent| percentile(&mut times, percent)));
        println!(
            "{bytes:8} {:10.2} {:5.2} {:10.2} {:5.2} {:16.2} {:5.2} {:21.2}",
            sdk[0], sdk[1], turn[0], turn[1], longer[0], longer[1], offline[0]
        );
    }
}

async fn plain_steps(server: &RestateServer, bytes: usize, count: usize) -> Vec<f64> {
    let input = json!([bytes, count]);
    let reply = support::call(&server.ingress_url(), "Plain/steps", &input).await;
    serde_json::from_str(&reply.body).unwrap_or_else(|_| panic!("{}", reply.body))
}

struct RunTimes {
    whole: f64,
    /// The time from one request to the next.
    turns: Vec<f64>,
}

async fn run(client: &Client, clock: &Clock, bytes: usize, turns: usize, round: usize) -> RunTimes {
    clock.take();
    let since = Instant::now();
    let session = format!("steps-{bytes}-{turns}-{round}");
    let outcome = client.run(&session, &format!("{bytes}/{turns}"), "Go on.").await.unwrap();
    let whole = millis(since);
    ensure_turns(&outcome, turns);
    RunTimes { whole, turns: intervals(clock) }
}

/// The turns of the same run without an engine: the time that streaming them takes.
async fn run_offline(clock: &Clock, bytes: usize) -> Vec<f64> {
    clock.take();
    let outcome = talker(bytes, 1 + MORE_TURNS, clock).run("Go on.").outcome().await;
    ensure_turns(&outcome, 1 + MORE_TURNS);
    intervals(clock)
}

fn ensure_turns(outcome: &Outcome, turns: usize) {
    assert_eq!(outcome.turns as usize, turns, "the run has ended otherwise: {:?}", outcome.reason);
}

fn intervals(clock: &Clock) -> Vec<f64> {
    let times = clock.take();
    times.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64() * 1000.0).collect()
}

async fn measure_ingress(server: &RestateServer) {
    let agent = Agent::new(Scripted::from_fn(|_, _| "It is done."));
    let worker = Process::start(Worker::new().with_agent("short", agent).endpoint());
    let plain = Process::start(Endpoint::builder().bind(Plain).build());
    for worker in [&worker, &plain] {
        support::register(&server.admin_url(), &worker.url()).await;
    }
    let client = Client::new(&server.ingress_url()).unwrap();
    let [mut nothing, mut runs] = [(); 2].map(|()| Vec::new());
    for round in 0..=INGRESS_ROUNDS {
        let since = Instant::now();
        support::call(&server.ingress_url(), "Plain/nothing", &Value::Null).await;
        let call = millis(since);
        let since = Instant::now();
        client.run(&format!("ingress-{round}"), "short", "Do it.").await.unwrap();
        let run = millis(since);
        if round > 0 {
            nothing.push(call);
            runs.push(run);
        }
    }
    println!(
        "through the ingress: a call of an empty handler {:.1}, p95 {:.1}; a run of one turn {:.1}, p95 {:.1}",
        percentile(&mut nothing, 50),
        percentile(&mut nothing, 95),
        percentile(&mut runs, 50),
        percentile(&mut runs, 95),
    );
}

/// Observations of the attempts at a run that is replayed.
#[derive(Clone, Default)]
struct ReplayProbe {
    /// The handler has read the session and starts an attempt.
    entered: Clock,
    /// The model received a request, which does not happen for a replayed turn.
    asked: Clock,
    ends: Arc<AtomicBool>,
}

impl ReplayProbe {
    /// A worker whose agent calls a tool in each turn, and hangs in the last one.
    fn worker(&self, turns: usize) -> Result<Worker, Error> {
        let probe = self.clone();
        let model = Scripted::from_fn(move |request, _| {
            let results = request.history.iter().filter(|item| item.as_tool_result().is_some());
            let results = results.count();
            if results < turns {
                return Reply::new().call_raw(
                    &format!("c{results}"),
                    "read",
                    &format!("{{\"line\":{results}}}"),
                );
            }
            probe.asked.push();
            if probe.ends.load(Ordering::Relaxed) {
                "It is done.".into()
            } else {
                Reply::new().hang()
            }
        });
        let spec = ToolSpec::new("read", "Reads a line", json!({ "type": "object" }));
        let read = Tool::raw(spec, |args, _cx| async move { format!("{args} is read") })?;
        let agent = Agent::new(model)
            .with_tool(read)
            .with_limits(Limits { max_turns: Some(u32::MAX), ..Limits::default() });
        let entered = self.entered.clone();
        Ok(Worker::new().with_agent("reader", agent).with_data(move |_| {
            entered.push();
            RunData::new()
        }))
    }

    async fn wait_until_asked(&self) -> Instant {
        support::wait_for("the run has reached its last turn", Duration::from_mins(2), async || {
            self.asked.take().pop().ok_or_else(|| "not yet".to_owned())
        })
        .await
    }
}

async fn measure_replay(server: &RestateServer, turns: usize) {
    let probe = ReplayProbe::default();
    let endpoint = || probe.worker(turns).unwrap().endpoint();
    let mut worker = Process::start(endpoint());
    support::register(&server.admin_url(), &worker.url()).await;
    let client = Client::new(&server.ingress_url()).unwrap();
    let since = Instant::now();
    let session = format!("replay-{turns}");
    let run = client.start(&session, "reader", "Read it.", "once").await.unwrap();
    probe.wait_until_asked().await;
    let performed = millis(since);
    let [mut replays, mut restarts] = [(); 2].map(|()| Vec::new());
    for round in 0..REPLAYS {
        probe.ends.store(round + 1 == REPLAYS, Ordering::Relaxed);
        probe.entered.take();
        let since = Instant::now();
        worker = Process::start_at(worker.kill(), endpoint());
        let live = probe.wait_until_asked().await;
        let entered = probe.entered.take();
        // The start of the attempt that reached the end.
        replays.push((live - *entered.last().unwrap()).as_secs_f64() * 1000.0);
        restarts.push((live - since).as_secs_f64() * 1000.0);
    }
    client.outcome(&run).await.unwrap();
    let (steps, entries) = count_entries(server, &run).await;
    println!(
        "replay of {turns} turns with a call each, {steps} steps in a journal of {entries} entries: {:.0} from the \
         handler's entry to the live point, {:.0} from the worker's death ({performed:.0} when they were performed)",
        percentile(&mut replays, 50),
        percentile(&mut restarts, 50),
    );
}

/// The number of steps and of all entries in the journal of an invocation.
async fn count_entries(server: &RestateServer, invocation: &str) -> (u64, u64) {
    let sql = format!(
        "SELECT entry_type, COUNT(*) AS count FROM sys_journal WHERE id = '{invocation}' GROUP BY entry_type"
    );
    let rows = support::query(&server.admin_url(), &sql).await;
    let count = |row: &Value| row["count"].as_u64().unwrap_or(0);
    let steps = rows.iter().filter(|row| row["entry_type"] == "Command: Run").map(count).sum();
    (steps, rows.iter().map(count).sum())
}
