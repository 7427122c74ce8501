//! Runs that wait for verdicts, on a real server: they use no resources, and survive the death of
//! the server and of their worker.
//!
//! By default there are 100 runs, and with `TURNSTREAM_CASES=all` 1,000.

mod support;

use std::collections::BTreeSet;
use std::env;
use std::fs::{self, OpenOptions};
use std::future::pending;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use futures::future::join;
use futures::{StreamExt, stream};
use serde_json::json;
use support::{RestateServer, TempDir, Worker as Process};
use turnstream::event::EndReason;
use turnstream::item::PendingCall;
use turnstream::provider::{Reply, Scripted};
use turnstream::request::Request;
use turnstream::session::{SessionState, restore_history};
use turnstream::tool::{Tool, ToolSpec, Verdict};
use turnstream::{Agent, ErrorKind};
use turnstream_restate::{Client, Worker};
use turnstream_test_support::cases;

const LIMIT: Duration = Duration::from_mins(2);
/// The number of concurrent requests.
const CONCURRENCY: usize = 16;
/// Set in a worker process: the file to which its tool writes.
const LOG: &str = "TURNSTREAM_RESTATE_WAITING_LOG";
/// Set in a worker process: its address.
const ADDRESS: &str = "TURNSTREAM_RESTATE_WAITING_ADDRESS";

// ---- Helpers

/// An agent that pays once for each of `calls` after an approval. Each payment is a line in the
/// log.
fn payer(calls: usize, log: &Path) -> Agent {
    let model = Scripted::from_fn(move |request: &Request, _| {
        let results = request.history.iter().filter(|item| item.as_tool_result().is_some());
        match results.count() {
            0 => (1..=calls).fold(Reply::new(), |reply, n| {
                reply.call_raw(&format!("c{n}"), "pay", &format!("{{\"amount\":{n}}}"))
            }),
            _ => Reply::text("It is paid."),
        }
    });
    let spec = ToolSpec::new("pay", "Pays", json!({ "type": "object" }));
    let log = log.to_owned();
    let pay = Tool::raw(spec, move |_args, cx| {
        let log = log.clone();
        async move {
            let mut file = OpenOptions::new().create(true).append(true).open(log).unwrap();
            writeln!(file, "{}", cx.idempotency_key()).unwrap();
            "paid"
        }
    });
    Agent::new(model).with_tool(pay.expect("the tool is valid").requires_approval())
}

fn worker(log: &Path) -> Worker {
    Worker::new().with_agent("payer", payer(1, log)).with_agent("payer of two", payer(2, log))
}

/// A worker in a process of its own, which can be killed with SIGKILL.
struct WorkerProcess {
    process: Child,
    /// The other end of the process's standard output. If it were dropped, the test harness in the
    /// process would end the process when it reports, after a minute, that the test is still
    /// running.
    _output: BufReader<ChildStdout>,
    address: SocketAddr,
}

impl WorkerProcess {
    /// Runs the test with this name in a process that recognizes itself as a worker.
    fn start(test: &str, log: &Path, address: SocketAddr) -> Self {
        let mut process = Command::new(env::current_exe().expect("the test is a program"))
            .args(["--exact", test, "--ignored", "--nocapture"])
            .env(LOG, log)
            .env(ADDRESS, address.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the test can be started again");
        let mut output = BufReader::new(process.stdout.take().expect("a pipe"));
        let address = (&mut output)
            .lines()
            .map_while(Result::ok)
            .find_map(|line| line.split_once("listens on ").map(|(_, address)| address.to_owned()));
        let address = address.expect("the worker listens").parse().expect("an address");
        Self { process, _output: output, address }
    }

    /// Serves until the process is killed, or its parent has ended.
    async fn serve(log: PathBuf) {
        std::thread::spawn(|| {
            // The parent holds the other end and never writes.
            let _ = std::io::stdin().read(&mut [0]);
            std::process::exit(0);
        });
        let address = env::var(ADDRESS).expect("the parent has set it");
        let listener = Worker::listen(address.parse().expect("an address"));
        let listener = listener.expect("the worker can listen");
        println!("\nlistens on {}", listener.local_addr().expect("an address"));
        worker(&log).serve(listener, pending::<()>()).await;
    }

    fn memory_kib(&self) -> u64 {
        support::memory_kib(self.process.id())
    }

    fn kill(&mut self) {
        let _ = self.process.kill();
        self.process.wait().expect("a child of ours can be waited for");
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Calls `act` for each session, for several of them concurrently.
async fn for_each(runs: usize, act: impl AsyncFn(String)) {
    let acts = (0..runs).map(|number| act(session(number)));
    stream::iter(acts).buffer_unordered(CONCURRENCY).collect::<()>().await;
}

fn session(number: usize) -> String {
    format!("order-{number}")
}

/// Waits until no invocation is active, and returns the number of completed ones.
async fn wait_until_idle(server: &RestateServer) -> u64 {
    support::wait_for("no invocation is active", LIMIT, async || {
        let counts = support::count_by_status(&server.admin_url()).await;
        let is_idle = counts.keys().all(|status| status == "completed");
        if is_idle { Ok(counts.values().sum()) } else { Err(format!("{counts:?}")) }
    })
    .await
}

/// The lines of the log, which are distinct if each payment was made once.
fn payments(log: &Path) -> Vec<String> {
    fs::read_to_string(log).unwrap_or_default().lines().map(str::to_owned).collect()
}

#[expect(clippy::cast_precision_loss, reason = "they are small numbers")]
fn per_run(before: u64, after: u64, runs: usize) -> f64 {
    (after as f64 - before as f64) / runs as f64
}

// ---- Many runs

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn waiting_runs_use_no_resources_and_complete_after_a_restart_of_worker_and_server() {
    if let Some(log) = env::var_os(LOG) {
        return WorkerProcess::serve(log.into()).await;
    }
    let runs = if cases::all_are_run() { 1_000 } else { 100 };
    let test = "waiting_runs_use_no_resources_and_complete_after_a_restart_of_worker_and_server";
    let folder = TempDir::new();
    let log = folder.path().join("payments");
    let mut server = RestateServer::start().await;
    let mut worker = WorkerProcess::start(test, &log, (Ipv4Addr::LOCALHOST, 0).into());
    let url = format!("http://{}", worker.address);
    support::register(&server.admin_url(), &url).await;
    let client = Client::new(&server.ingress_url()).unwrap();
    // Warms up: allocators keep the memory that they requested for the first runs.
    for number in 0..CONCURRENCY {
        client.run(&format!("warm-up-{number}"), "payer", "Pay.").await.unwrap();
    }
    wait_until_idle(&server).await;
    let before = [worker.memory_kib(), support::memory_kib(server.pid())];
    let disk_before = support::disk_bytes(&server.base_dir());

    let since = Instant::now();
    for_each(runs, async |session| {
        let outcome = client.run(&session, "payer", "Pay.").await.unwrap();
        assert_eq!((outcome.reason, outcome.pending.len()), (EndReason::Pending, 1));
    })
    .await;
    println!("{runs} runs have ended pending in {:.1?}", since.elapsed());
    let invocations = wait_until_idle(&server).await;
    println!("no invocation is active, {invocations} have ended");
    let after = [worker.memory_kib(), support::memory_kib(server.pid())];
    let disk_after = support::disk_bytes(&server.base_dir());
    for (name, before, after) in [("worker", before[0], after[0]), ("server", before[1], after[1])]
    {
        let growth = per_run(before, after, runs);
        println!(
            "memory of the {name}: {before} KiB before, {after} KiB after, {growth:.1} KiB per run"
        );
    }
    let growth = per_run(disk_before, disk_after, runs) / 1024.0;
    println!("disk of the server: {growth:.1} KiB per run");

    worker.kill();
    server.kill();
    let address = worker.address;
    worker = WorkerProcess::start(test, &log, address);
    server.restart().await;
    let client = Client::new(&server.ingress_url()).unwrap();
    let since = Instant::now();
    for_each(runs, async |session| {
        let status = client.status(&session).await.unwrap();
        let [call] = status.pending_calls() else { panic!("one call is pending: {status:?}") };
        let judged = client.judge(&session, "payer", call.clone(), Verdict::Approve).await;
        assert!(judged.unwrap().is_some(), "it was the last call");
    })
    .await;
    for_each(runs, async |session| {
        support::wait_until("the run has resumed", LIMIT, async || {
            let status = client.status(&session).await.unwrap();
            (status.state, status.run) == (SessionState::Idle, None)
        })
        .await;
        let history = restore_history("s", client.history(&session, 0).await.unwrap());
        assert_eq!(history.last().and_then(|item| item.as_text()), Some("It is paid."));
    })
    .await;
    println!("all have been judged and have completed in {:.1?}", since.elapsed());
    wait_until_idle(&server).await;
    let payments = payments(&log);
    assert_eq!(payments.len(), runs);
    assert_eq!(payments.iter().collect::<BTreeSet<_>>().len(), runs, "each was paid once");
    drop(worker);
}

// ---- Verdicts

/// A server, and a worker in this process.
struct Fixture {
    client: Client,
    log: PathBuf,
    server: RestateServer,
    /// The calls of the session `s` that were pending first.
    calls: Vec<PendingCall>,
    _worker: Process,
    _folder: TempDir,
}

impl Fixture {
    async fn start() -> Self {
        let server = RestateServer::start().await;
        let folder = TempDir::new();
        let log = folder.path().join("payments");
        let worker = Process::start(worker(&log).endpoint());
        support::register(&server.admin_url(), &worker.url()).await;
        let client = Client::new(&server.ingress_url()).unwrap();
        Self { client, log, server, calls: Vec::new(), _worker: worker, _folder: folder }
    }

    /// A session with two pending calls.
    async fn with_pending_calls() -> Self {
        let mut fixture = Self::start().await;
        fixture.calls = fixture.client.run("s", "payer of two", "Pay.").await.unwrap().pending;
        assert_eq!(fixture.calls.len(), 2);
        assert_eq!(fixture.client.status("s").await.unwrap().pending_calls(), fixture.calls);
        fixture
    }

    /// The pending call with this number, from 1.
    fn call(&self, number: usize) -> PendingCall {
        self.calls[number - 1].clone()
    }

    /// Whether a run resumes the calls with this verdict.
    async fn judge(&self, call: PendingCall, verdict: Verdict) -> Result<bool, ErrorKind> {
        let judged = self.client.judge("s", "payer of two", call, verdict).await;
        judged.map(|run| run.is_some()).map_err(|error| error.kind())
    }

    async fn wait_until_resumed(&self) {
        support::wait_until("the run has resumed", LIMIT, async || {
            let status = self.client.status("s").await.unwrap();
            (status.state, status.run) == (SessionState::Idle, None)
        })
        .await;
        wait_until_idle(&self.server).await;
    }

    async fn count_resumed_runs(&self) -> Option<u64> {
        let sql = "SELECT COUNT(*) AS count FROM sys_invocation \
                   WHERE target_service_name = 'Session' AND target_handler_name = 'resume'";
        support::query(&self.server.admin_url(), sql).await[0]["count"].as_u64()
    }
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn a_second_different_verdict_is_a_conflict() {
    let fixture = Fixture::with_pending_calls().await;
    let deny = || Verdict::Deny("no".to_owned());
    assert_eq!(fixture.judge(fixture.call(1), Verdict::Approve).await, Ok(false));
    assert_eq!(fixture.judge(fixture.call(1), deny()).await, Err(ErrorKind::Conflict));
    // The first verdict on a call counts.
    assert_eq!(fixture.judge(fixture.call(2), deny()).await, Ok(true));
    fixture.wait_until_resumed().await;
    assert_eq!(payments(&fixture.log), ["s/c1"]);
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn a_verdict_on_different_arguments_is_refused() {
    let fixture = Fixture::with_pending_calls().await;
    let other = PendingCall { arguments: r#"{"amount":100}"#.to_owned(), ..fixture.call(1) };
    let judged = fixture.judge(other, Verdict::Approve).await;
    assert_eq!(judged, Err(ErrorKind::Conflict));
    let other = PendingCall { call_id: "c3".to_owned(), ..fixture.call(1) };
    assert_eq!(fixture.judge(other, Verdict::Approve).await, judged, "no such call");
    assert_eq!(fixture.judge(fixture.call(1), Verdict::Approve).await, Ok(false));
    assert_eq!(payments(&fixture.log), [""; 0]);
    assert_eq!(fixture.count_resumed_runs().await, Some(0));
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn repeating_a_verdict_starts_one_run() {
    let fixture = Fixture::with_pending_calls().await;
    let judge = |number| fixture.judge(fixture.call(number), Verdict::Approve);
    assert_eq!(judge(1).await, Ok(false));
    assert_eq!(judge(1).await, Ok(false));
    let (first, second) = join(judge(2), judge(2)).await;
    assert!([first, second].contains(&Ok(true)), "{first:?}, {second:?}");
    fixture.wait_until_resumed().await;
    assert_eq!(payments(&fixture.log).len(), 2);
    assert_eq!(fixture.count_resumed_runs().await, Some(1));
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn a_verdict_repeated_after_the_run_has_resumed_starts_no_run() {
    let fixture = Fixture::with_pending_calls().await;
    assert_eq!(fixture.judge(fixture.call(1), Verdict::Approve).await, Ok(false));
    let judge = || fixture.client.judge("s", "payer of two", fixture.call(2), Verdict::Approve);
    let run = judge().await.unwrap().expect("all calls have a verdict");
    let outcome = fixture.client.outcome(&run).await.unwrap();
    assert_eq!((outcome.reason, &*outcome.text), (EndReason::Completed, "It is paid."));
    fixture.wait_until_resumed().await;
    // A client that has lost the answer sends its verdict again.
    assert_eq!(judge().await.unwrap(), Some(run));
    assert_eq!(fixture.count_resumed_runs().await, Some(1));
    assert_eq!(payments(&fixture.log).len(), 2);
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn a_verdict_for_an_unknown_agent_is_refused_and_blocks_nothing() {
    let fixture = Fixture::with_pending_calls().await;
    for number in [1, 2] {
        let call = fixture.call(number);
        let judged = fixture.client.judge("s", "nobody", call, Verdict::Approve).await;
        assert_eq!(judged.map_err(|error| error.kind()), Err(ErrorKind::Unsupported));
    }
    assert_eq!(fixture.judge(fixture.call(1), Verdict::Approve).await, Ok(false));
    assert_eq!(fixture.judge(fixture.call(2), Verdict::Approve).await, Ok(true));
    fixture.wait_until_resumed().await;
    assert_eq!(payments(&fixture.log).len(), 2);
}
