//! The cost of a session's length for its runs and readers, and the bytes that Restate stores for a
//! run.
//!
//! ```text
//! TURNSTREAM_RESTATE_SERVER=$(crates/restate/tests/install.sh) \
//!     cargo bench -p turnstream-restate --bench sessions
//! ```
//!
//! It starts a server of its own, which writes to the disk as it does by default. Times are
//! medians, in milliseconds.

#[path = "../tests/support/mod.rs"]
mod support;

use std::env;
use std::time::Instant;

use serde_json::json;
use support::{RestateServer, Worker as Process};
use turnstream::provider::{Reply, Scripted};
use turnstream::session::Entry;
use turnstream::tool::{Tool, ToolSpec};
use turnstream::{Agent, Item};
use turnstream_restate::{Client, Worker};

/// The numbers of entries in the sessions.
const LENGTHS: [usize; 3] = [0, 1_000, 10_000];
const ROUNDS: usize = 15;
/// The number of runs over which the bytes of a run are averaged.
const COUNTED_RUNS: u32 = 20;

fn main() {
    // `cargo test --benches` only checks that the bench starts.
    if !env::args().any(|argument| argument == "--bench") {
        return;
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let server = RestateServer::start().await;
        let worker = Process::start(worker().endpoint());
        support::register(&server.admin_url(), &worker.url()).await;
        let client = Client::new(&server.ingress_url()).unwrap();
        measure_lengths(&client).await;
        measure_bytes(&server, &client).await;
    });
}

fn worker() -> Worker {
    let short = Agent::new(Scripted::from_fn(|_, _| "It is done."));
    let model = Scripted::from_fn(|request, _| match request.history.last() {
        Some(last) if last.as_tool_result().is_none() => {
            Reply::new().call("read", json!({ "path": "src/lib.rs" }))
        }
        _ => Reply::text(sentence()),
    });
    let spec = ToolSpec::new("read", "Reads a file", json!({ "type": "object" }));
    let read = Tool::raw(spec, |_args, _cx| async { sentence().repeat(4) }).unwrap();
    let tools = Agent::new(model).with_tool(read);
    Worker::new().with_agent("short", short).with_agent("tools", tools)
}

/// A text of 264 bytes.
fn sentence() -> String {
    "I read the module, to see what it exports. ".repeat(6)
}

fn millis(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1000.0
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// A session of questions and answers.
fn entries(count: usize) -> Vec<Entry> {
    let entry = |number: usize| match number % 2 {
        0 => Item::user(sentence()).into(),
        _ => Item::text(sentence()).into(),
    };
    (0..count).map(entry).collect()
}

#[derive(Default)]
struct Times {
    run: Vec<f64>,
    history: Vec<f64>,
    /// Reads only new entries, with the others known.
    news: Vec<f64>,
    status: Vec<f64>,
}

async fn measure_lengths(client: &Client) {
    let mut times = LENGTHS.map(|_| Times::default());
    for length in LENGTHS {
        client.run(&format!("warm-{length}"), "short", "Do it.").await.unwrap();
        if length > 0 {
            client.import(&format!("long-{length}"), entries(length)).await.unwrap();
        }
    }
    for round in 0..ROUNDS {
        for (length, times) in LENGTHS.into_iter().zip(&mut times) {
            // A run adds two entries to a session; an empty session is new each time.
            let session = match length {
                0 => format!("empty-{round}"),
                _ => format!("long-{length}"),
            };
            let since = Instant::now();
            client.run(&session, "short", "Do it.").await.unwrap();
            times.run.push(millis(since));
            let since = Instant::now();
            let history = client.history(&session, 0).await.unwrap();
            times.history.push(millis(since));
            assert!(history.len() > length, "{} entries", history.len());
            let since = Instant::now();
            let news = client.history(&session, history.len() as u64 - 2).await.unwrap();
            times.news.push(millis(since));
            assert_eq!(news.len(), 2);
            let since = Instant::now();
            client.status(&session).await.unwrap();
            times.status.push(millis(since));
        }
    }
    let json = |length| serde_json::to_vec(&entries(length)).unwrap().len();
    println!("milliseconds with a session of so many entries");
    println!("entries     KiB  run of a turn  more than empty  history  last two  status");
    let mut empty = None;
    for (length, mut times) in LENGTHS.into_iter().zip(times) {
        let run = median(&mut times.run);
        let more = run - *empty.get_or_insert(run);
        println!(
            "{length:7} {:7} {run:14.1} {more:16.1} {:8.1} {:9.1} {:7.1}",
            json(length) / 1024,
            median(&mut times.history),
            median(&mut times.news),
            median(&mut times.status),
        );
    }
}

/// The bytes that a run adds, in the server's own tables.
async fn measure_bytes(server: &RestateServer, client: &Client) {
    println!(
        "bytes a run adds   entries' JSON   state of Session   of Inbox   journal of Session   of others   invocations"
    );
    for agent in ["short", "tools"] {
        let session = format!("bytes-{agent}");
        client.run(&session, agent, "Do it.").await.unwrap();
        let before = Bytes::read(server, client, &session).await;
        for _ in 0..COUNTED_RUNS {
            client.run(&session, agent, "Do it.").await.unwrap();
        }
        let after = Bytes::read(server, client, &session).await;
        let each = |of: fn(&Bytes) -> f64| (of(&after) - of(&before)) / f64::from(COUNTED_RUNS);
        println!(
            "{agent:16} {:15.0} {:18.0} {:10.0} {:20.0} {:11.0} {:13.1}",
            each(|bytes| bytes.entries),
            each(|bytes| bytes.session),
            each(|bytes| bytes.inbox),
            each(|bytes| bytes.session_journals),
            each(|bytes| bytes.other_journals),
            each(|bytes| bytes.invocations),
        );
    }
}

/// The bytes that the server stores for sessions.
struct Bytes {
    entries: f64,
    session: f64,
    inbox: f64,
    /// The journals of all session invocations.
    session_journals: f64,
    other_journals: f64,
    invocations: f64,
}

impl Bytes {
    async fn read(server: &RestateServer, client: &Client, session: &str) -> Self {
        let state = async |service: &str| {
            let sql = format!(
                "SELECT SUM(LENGTH(value_utf8)) AS sum FROM state \
                 WHERE service_name = '{service}' AND service_key = '{session}'"
            );
            sum(server, &sql).await
        };
        let journals = async |is_session: &str| {
            let sql = format!(
                "SELECT SUM(journal.raw_length) AS sum FROM sys_journal AS journal \
                 JOIN sys_invocation AS invocation ON journal.id = invocation.id \
                 WHERE invocation.target_service_name {is_session} 'Session'"
            );
            sum(server, &sql).await
        };
        // Read before this query adds to the journals.
        let (session_journals, other_journals) = (journals("=").await, journals("<>").await);
        let invocations = sum(server, "SELECT COUNT(*) AS sum FROM sys_invocation").await;
        let history = client.history(session, 0).await.unwrap();
        #[expect(clippy::cast_precision_loss, reason = "it is a small number")]
        let entries = serde_json::to_vec(&history).unwrap().len() as f64;
        Self {
            entries,
            session: state("Session").await,
            inbox: state("Inbox").await,
            session_journals,
            other_journals,
            invocations,
        }
    }
}

async fn sum(server: &RestateServer, sql: &str) -> f64 {
    let rows = support::query(&server.admin_url(), sql).await;
    rows.first().and_then(|row| row["sum"].as_f64()).unwrap_or(0.0)
}
