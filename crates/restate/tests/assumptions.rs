//! Assumptions of the crate's design about the Restate server and its SDK, each as a test.
//!
//! They hold for version 1.7.12 of the server and 0.13 of the SDK. If a test fails after an update,
//! the design that depends on its claim has to be reviewed. The tests use the SDK alone, and
//! nothing of this crate.

#![expect(missing_docs, reason = "the macros of the SDK generate methods without docs")]
#![expect(clippy::unused_async, reason = "a handler is async even if it awaits nothing")]

mod support;

use futures::FutureExt;
use futures::future::{self, BoxFuture};
use restate_sdk::context::{DurableFuture, RequestTarget};
use restate_sdk::prelude::*;
use serde_json::{Value, json};
use std::future::poll_fn;
use std::io;
use std::net::Ipv4Addr;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::{Duration, Instant};
use support::{Reply, RestateCluster, RestateServer, Worker};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Semaphore, mpsc, oneshot};

/// The time limit of a wait that normally takes milliseconds.
const LIMIT: Duration = Duration::from_secs(30);

/// Restate's code for a replay that differs from the recorded journal; 570 on the wire.
const JOURNAL_MISMATCH: &str = "RT0016";

// ---- Helpers

/// A server, and a worker that is registered with it.
struct Fixture {
    server: RestateServer,
    worker: Worker,
}

impl Fixture {
    async fn start(service: impl IntoServiceDefinition) -> Self {
        Self::start_with(endpoint(service)).await
    }

    async fn start_with(endpoint: Endpoint) -> Self {
        let server = RestateServer::start().await;
        let worker = Worker::start(endpoint);
        support::register(&server.admin_url(), &worker.url()).await;
        Self { server, worker }
    }

    async fn call(&self, target: &str) -> Reply {
        support::call(&self.server.ingress_url(), target, &Value::Null).await
    }

    async fn send(&self, target: &str) -> String {
        support::send(&self.server.ingress_url(), target, &Value::Null).await
    }

    async fn attach(&self, invocation: &str) -> Reply {
        support::attach(&self.server.ingress_url(), invocation).await
    }

    /// A column of the invocation's row in `sys_invocation`. Null if it has no value.
    async fn column(&self, invocation: &str, column: &str) -> Value {
        let row = support::invocation(&self.server.admin_url(), invocation).await;
        row.and_then(|row| row.get(column).cloned()).unwrap_or(Value::Null)
    }

    async fn wait_for_status(&self, invocation: &str, status: &str) {
        let description = format!("the invocation is {status}");
        support::wait_for(&description, LIMIT, async || {
            let now = self.column(invocation, "status").await;
            if now == status { Ok(()) } else { Err(now.to_string()) }
        })
        .await;
    }

    /// Waits until the journal of the invocation has an entry of this type.
    async fn wait_for_journal_entry(&self, invocation: &str, entry_type: &str) {
        let sql = format!("SELECT entry_type FROM sys_journal WHERE id = '{invocation}'");
        support::wait_for(&format!("the journal has {entry_type}"), LIMIT, async || {
            let rows = support::query(&self.server.admin_url(), &sql).await;
            let found = rows.iter().any(|row| row["entry_type"] == entry_type);
            if found { Ok(()) } else { Err(format!("{rows:?}")) }
        })
        .await;
    }

    /// Waits until an attempt of the invocation failed with this text in the server's report.
    async fn wait_for_failure(&self, invocation: &str, text: &str) {
        support::wait_for(&format!("an attempt fails with {text:?}"), LIMIT, async || {
            let failures = support::failures(&self.server.admin_url(), invocation).await;
            let found = failures.iter().any(|failure| failure.contains(text));
            if found { Ok(()) } else { Err(format!("{failures:#?}")) }
        })
        .await;
    }

    /// Waits until an attempt failed because its operations differ from those of the attempts
    /// before it.
    async fn wait_for_mismatch(&self, invocation: &str, difference: &str) {
        self.wait_for_failure(invocation, JOURNAL_MISMATCH).await;
        self.wait_for_failure(invocation, difference).await;
    }

    /// Kills the worker, and starts one with this endpoint at the same address.
    fn replace_worker(self, endpoint: Endpoint) -> Self {
        let Self { server, worker } = self;
        let worker = Worker::start_at(worker.kill(), endpoint);
        Self { server, worker }
    }
}

/// An endpoint with this service, which retries without delay.
fn endpoint(service: impl IntoServiceDefinition) -> Endpoint {
    endpoint_with(service, ServiceOptions::new())
}

fn endpoint_with(service: impl IntoServiceDefinition, options: ServiceOptions) -> Endpoint {
    Endpoint::builder().bind(with_options(service, options)).build()
}

fn with_options(service: impl IntoServiceDefinition, options: ServiceOptions) -> ServiceDefinition {
    let delay = Duration::from_millis(20);
    service
        .into_service_definition()
        .options(options.retry_policy_initial_interval(delay).retry_policy_max_interval(delay))
}

/// A successful call with this JSON as its answer.
#[expect(clippy::needless_pass_by_value, reason = "each caller has a literal")]
fn success(body: Value) -> Reply {
    Reply { status: 200, body: body.to_string() }
}

fn retryable() -> HandlerError {
    io::Error::other("the first attempt fails").into()
}

/// Events in the handlers of a test, across all their attempts.
#[derive(Clone, Debug, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn push(&self, entry: impl Into<String>) {
        self.0.lock().unwrap().push(entry.into());
    }

    fn entries(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    fn count(&self, entry: &str) -> usize {
        self.entries().iter().filter(|e| *e == entry).count()
    }

    async fn wait_for(&self, entry: &str) {
        self.wait_for_count(entry, 1).await;
    }

    async fn wait_for_count(&self, entry: &str, count: usize) {
        let description = format!("the log has {count} times {entry:?}");
        support::wait_for(&description, LIMIT, async || {
            if self.count(entry) >= count { Ok(()) } else { Err(format!("{:?}", self.entries())) }
        })
        .await;
    }

    /// The rest of the first entry that starts with `prefix`.
    async fn wait_for_value(&self, prefix: &str) -> String {
        support::wait_for(&format!("the log has {prefix:?}"), LIMIT, async || {
            let entries = self.entries();
            let value = entries.iter().find_map(|entry| entry.strip_prefix(prefix));
            value.map(str::to_owned).ok_or_else(|| format!("{entries:?}"))
        })
        .await
    }

    /// A value that adds `entry` to the log when it is dropped.
    fn on_drop(&self, entry: &'static str) -> OnDrop {
        OnDrop { log: self.clone(), entry }
    }
}

struct OnDrop {
    log: Log,
    entry: &'static str,
}

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.log.push(self.entry);
    }
}

/// Counts the attempts of a handler, from 1.
#[derive(Clone, Debug, Default)]
struct Attempts(Arc<AtomicU64>);

impl Attempts {
    fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    fn count(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// Holds handlers back until the test opens it.
#[derive(Clone, Debug)]
struct Gate(Arc<Semaphore>);

impl Gate {
    fn closed() -> Self {
        Self(Arc::new(Semaphore::new(0)))
    }

    fn open(&self) {
        self.0.add_permits(1_000);
    }

    async fn pass(&self) {
        self.0.acquire().await.expect("the gate is never removed").forget();
    }
}

// ---- The connection

#[tokio::test]
async fn an_accepted_socket_inherits_tcp_nodelay_from_the_listener() {
    for nodelay in [true, false] {
        let any_port = (Ipv4Addr::LOCALHOST, 0).into();
        let listener = if nodelay {
            support::listen_with_nodelay(any_port).unwrap()
        } else {
            listen_without_nodelay().unwrap()
        };
        let address = listener.local_addr().unwrap();
        let (accepted, _client) = tokio::join!(listener.accept(), TcpStream::connect(address));
        let (socket, _) = accepted.unwrap();
        assert_eq!(socket.nodelay().unwrap(), nodelay);
    }
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn a_16_kib_step_is_several_times_faster_with_tcp_nodelay() {
    struct Large;

    #[service]
    impl Large {
        /// The time that ten steps take, in microseconds.
        #[handler]
        async fn measure(&self, ctx: Context<'_>) -> HandlerResult<u64> {
            let start = Instant::now();
            for _ in 0..10 {
                ctx.run(|| async { Ok("x".repeat(16 * 1024)) }).await?;
            }
            Ok(u64::try_from(start.elapsed().as_micros())?)
        }
    }

    let fixture = Fixture::start(Large).await;
    let measure = async || {
        let Reply { body, .. } = fixture.call("Large/measure").await;
        body.parse::<u64>().unwrap()
    };
    // The first call opens the connection, and other processes may slow down any single call.
    let fast = [measure().await, measure().await, measure().await].into_iter().min().unwrap();
    // New invocations of a service go to its latest deployment.
    let slow_worker = Worker::start_with(endpoint(Large), listen_without_nodelay);
    support::register(&fixture.server.admin_url(), &slow_worker.url()).await;
    let slow = [measure().await, measure().await].into_iter().min().unwrap();
    println!("ten steps of 16 KiB: {fast} µs with TCP_NODELAY, {slow} µs without");
    assert!(slow > 3 * fast, "{slow} µs without TCP_NODELAY, {fast} µs with");
}

fn listen_without_nodelay() -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
    socket.listen(16)
}

// ---- Steps and replay

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn a_recorded_step_is_not_performed_again_after_a_retryable_failure() {
    #[derive(Clone, Default)]
    struct Fails {
        attempts: Attempts,
        log: Log,
    }

    #[service]
    impl Fails {
        #[handler]
        async fn run(&self, ctx: Context<'_>) -> HandlerResult<String> {
            let attempt = self.attempts.next();
            // The closure is `called` when the SDK makes its future, and `polled` after that.
            let value = ctx
                .run(|| {
                    self.log.push("called");
                    async move {
                        self.log.push("polled");
                        Ok(format!("of attempt {attempt}"))
                    }
                })
                .await?;
            if attempt < 3 {
                return Err(retryable());
            }
            Ok(value)
        }
    }

    let service = Fails::default();
    let fixture = Fixture::start(service.clone()).await;
    assert_eq!(fixture.call("Fails/run").await, success(json!("of attempt 1")));
    assert_eq!(service.attempts.count(), 3);
    assert_eq!(service.log.entries(), ["called", "polled"]);
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn a_step_runs_again_if_the_worker_dies_before_its_value_is_stored() {
    #[derive(Clone)]
    struct Slow {
        gate: Gate,
        log: Log,
    }

    #[service]
    impl Slow {
        #[handler]
        async fn run(&self, ctx: Context<'_>) -> HandlerResult<String> {
            let step = ctx.run(|| async {
                self.log.push("step");
                self.gate.pass().await;
                Ok("done".to_owned())
            });
            Ok(step.await?)
        }
    }

    let service = Slow { gate: Gate::closed(), log: Log::default() };
    let fixture = Fixture::start(service.clone()).await;
    let invocation = fixture.send("Slow/run").await;
    service.log.wait_for("step").await;
    let fixture = fixture.replace_worker(endpoint(service.clone()));
    service.gate.open();
    assert_eq!(fixture.attach(&invocation).await, success(json!("done")));
    assert_eq!(service.log.count("step"), 2);
}

/// The pattern that the crate is built on: the handler owns the context, and a `'static` future,
/// the body, requests steps from the handler. The handler polls the step and the body in one task,
/// the step first.
///
/// If the step is new, its first poll polls its closure. From then on the handler polls the body
/// too; the body performs the step and sends the value to the closure. If the step is replayed, its
/// first poll returns the recorded value without calling the closure; the handler sends the value
/// to the body, which does not perform the step.
#[derive(Clone)]
struct Driver {
    attempts: Attempts,
    log: Log,
    /// The body passes it while it performs step 1.
    gate: Gate,
    first_attempt: FirstAttempt,
}

#[derive(Clone, Copy, PartialEq)]
enum FirstAttempt {
    Succeeds,
    FailsAfterStep1,
}

/// The body's request for a step to be performed or replayed.
#[derive(Debug)]
struct StepRequest {
    number: usize,
    /// Sent to the body if it has to perform the step.
    start: oneshot::Sender<()>,
    /// The value that the body computed, for the closure.
    performed: oneshot::Receiver<String>,
    /// Sent to the body once the server has recorded the value.
    recorded: oneshot::Sender<String>,
}

#[service]
impl Driver {
    #[handler]
    async fn run(&self, ctx: Context<'_>) -> HandlerResult<String> {
        let attempt = self.attempts.next();
        let (requests, mut received) = mpsc::channel(1);
        let mut body = body(requests, self.log.clone(), self.gate.clone()).boxed();
        loop {
            let request = tokio::select! {
                biased;
                text = &mut body => return Ok(text),
                request = received.recv() => request.expect("the body lives"),
            };
            let number = request.number;
            drive_step(&ctx, request, &mut body).await?;
            if attempt == 1 && number == 1 && self.first_attempt == FirstAttempt::FailsAfterStep1 {
                return Err(retryable());
            }
        }
    }
}

async fn drive_step(
    ctx: &Context<'_>,
    request: StepRequest,
    body: &mut BoxFuture<'static, String>,
) -> Result<(), TerminalError> {
    let StepRequest { number, start, performed, recorded } = request;
    let mut start = Some(start);
    let started = AtomicBool::new(false);
    let closure = || async {
        started.store(true, Ordering::SeqCst);
        Ok(performed.await?)
    };
    let mut step = pin!(ctx.run(closure).name(format!("step-{number}")));
    let mut polls = 0;
    let value = poll_fn(|cx| {
        polls += 1;
        if let Poll::Ready(value) = step.as_mut().poll(cx) {
            return Poll::Ready(value);
        }
        // If the SDK finds a mismatch it returns `Pending` without this, and drops the handler at
        // the next poll; these handlers have none.
        assert!(started.load(Ordering::SeqCst), "the first poll polls the closure");
        if let Some(start) = start.take() {
            start.send(()).expect("the body waits");
        }
        assert!(body.poll_unpin(cx).is_pending(), "the body waits for the server");
        Poll::Pending
    })
    .await?;
    if !started.load(Ordering::SeqCst) {
        assert_eq!(polls, 1, "the first poll returns a recorded value");
    }
    recorded.send(value).expect("the body waits");
    Ok(())
}

async fn body(requests: mpsc::Sender<StepRequest>, log: Log, gate: Gate) -> String {
    let mut text = String::new();
    for number in 0..3 {
        let (start, started) = oneshot::channel();
        let (perform, performed) = oneshot::channel();
        let (recorded, mut recorded_value) = oneshot::channel();
        let request = StepRequest { number, start, performed, recorded };
        requests.send(request).await.expect("the handler lives");
        let value = tokio::select! {
            Ok(()) = started => {
                log.push(format!("perform {number}"));
                if number == 1 {
                    gate.pass().await;
                }
                // Wakes the task that polls the step and the body.
                tokio::time::sleep(Duration::from_millis(1)).await;
                perform.send(format!("{number}.")).expect("the closure waits");
                recorded_value.await.expect("the handler lives")
            }
            value = &mut recorded_value => {
                log.push(format!("replay {number}"));
                value.expect("the handler lives")
            }
        };
        text.push_str(&value);
    }
    text
}

impl Driver {
    fn new(first_attempt: FirstAttempt) -> Self {
        let gate = Gate::closed();
        Self { attempts: Attempts::default(), log: Log::default(), gate, first_attempt }
    }
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn a_step_can_wait_for_a_future_that_the_same_task_polls() {
    let service = Driver::new(FirstAttempt::Succeeds);
    service.gate.open();
    let fixture = Fixture::start(service.clone()).await;
    assert_eq!(fixture.call("Driver/run").await, success(json!("0.1.2.")));
    assert_eq!(service.log.entries(), ["perform 0", "perform 1", "perform 2"]);
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn a_replayed_step_returns_its_value_before_the_other_future_is_polled() {
    let service = Driver::new(FirstAttempt::FailsAfterStep1);
    service.gate.open();
    let fixture = Fixture::start(service.clone()).await;
    assert_eq!(fixture.call("Driver/run").await, success(json!("0.1.2.")));
    assert_eq!(
        service.log.entries(),
        ["perform 0", "perform 1", "replay 0", "replay 1", "perform 2"]
    );
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn a_step_that_waits_for_the_other_future_survives_a_crash_of_the_worker() {
    let service = Driver::new(FirstAttempt::Succeeds);
    let fixture = Fixture::start(service.clone()).await;
    let invocation = fixture.send("Driver/run").await;
    service.log.wait_for("perform 1").await;
    let fixture = fixture.replace_worker(endpoint(service.clone()));
    service.gate.open();
    assert_eq!(fixture.attach(&invocation).await, success(json!("0.1.2.")));
    assert_eq!(
        service.log.entries(),
        ["perform 0", "perform 1", "replay 0", "perform 1", "perform 2"]
    );
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn two_steps_polled_at_once_break_the_replay_if_only_the_second_completed() {
    struct TwoAtOnce;

    #[service]
    impl TwoAtOnce {
        #[handler]
        async fn run(&self, ctx: Context<'_>) -> HandlerResult<()> {
            let never = pin!(ctx.run(future::pending::<HandlerResult<()>>));
            let quick = pin!(ctx.run(|| async { Ok(()) }));
            future::select(never, quick).await;
            Err(retryable())
        }
    }

    let fixture = Fixture::start(TwoAtOnce).await;
    let invocation = fixture.send("TwoAtOnce/run").await;
    fixture.wait_for_mismatch(&invocation, "'await' could not be replayed").await;
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn a_step_with_another_name_breaks_the_replay() {
    #[derive(Clone, Default)]
    struct Renamed {
        attempts: Attempts,
    }

    #[service]
    impl Renamed {
        #[handler]
        async fn run(&self, ctx: Context<'_>) -> HandlerResult<()> {
            let name = if self.attempts.next() == 1 { "first name" } else { "second name" };
            ctx.run(|| async { Ok(()) }).name(name).await?;
            Err(retryable())
        }
    }

    let fixture = Fixture::start(Renamed::default()).await;
    let invocation = fixture.send("Renamed/run").await;
    fixture.wait_for_mismatch(&invocation, "name: first name != second name").await;
}

/// A step that is replayed is not performed, so a message that it has sent is missing from the
/// replay. Therefore the progress of calls that are executed separately goes through the hub, not
/// the context.
#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn a_message_sent_from_inside_a_step_breaks_the_replay() {
    struct SendsInStep;

    #[service]
    impl SendsInStep {
        #[handler]
        async fn run(&self, ctx: Context<'_>) -> HandlerResult<()> {
            let send = || async {
                let target = RequestTarget::service("SendsInStep", "ignore");
                drop(ctx.request::<(), ()>(target, ()).send());
                Ok(())
            };
            ctx.run(send).name("step").await?;
            ctx.run(|| async { Ok(()) }).name("step after").await?;
            Err(retryable())
        }

        #[handler]
        async fn ignore(&self, _ctx: Context<'_>) -> HandlerResult<()> {
            Ok(())
        }
    }

    let fixture = Fixture::start(SendsInStep).await;
    let invocation = fixture.send("SendsInStep/run").await;
    fixture.wait_for_mismatch(&invocation, "one way call/send").await;
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn a_panic_in_a_handler_is_retried() {
    #[derive(Clone, Default)]
    struct Panics {
        attempts: Attempts,
    }

    #[service]
    impl Panics {
        #[handler]
        async fn run(&self, _ctx: Context<'_>) -> HandlerResult<u64> {
            match self.attempts.next() {
                attempt @ 1..=2 => panic!("attempt {attempt} panics"),
                attempt => Ok(attempt),
            }
        }
    }

    let fixture = Fixture::start(Panics::default()).await;
    assert_eq!(fixture.call("Panics/run").await, success(json!(3)));
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn the_code_of_a_terminal_error_is_the_http_status_of_the_call() {
    struct Refuses;

    #[service]
    impl Refuses {
        #[handler]
        async fn run(&self, _ctx: Context<'_>) -> HandlerResult<()> {
            Err(TerminalError::new_with_code(409, "another turn runs").into())
        }
    }

    let fixture = Fixture::start(Refuses).await;
    let Reply { status, body } = fixture.call("Refuses/run").await;
    assert_eq!(status, 409);
    assert!(body.contains("another turn runs"), "{body}");
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn a_step_with_a_value_of_32_mib_or_more_pauses_its_invocation() {
    #[derive(Clone, Default)]
    struct Large {
        log: Log,
    }

    #[service]
    impl Large {
        #[handler]
        async fn run(&self, ctx: Context<'_>, mib: u64) -> HandlerResult<()> {
            let step = ctx.run(|| async {
                self.log.push("step");
                Ok(vec![b'x'; usize::try_from(mib)? << 20])
            });
            step.await?;
            self.log.push("recorded");
            Ok(())
        }
    }

    let max_attempts = 3;
    let cases = [
        // The server refuses the value, so each attempt performs the step again.
        (33, max_attempts, "RT0003 message encoding error: hit message size limit"),
        // The server records the value, but cannot send it back.
        (32, 1, "RT0001 memory budget exhausted"),
    ];
    for (mib, performed, failure) in cases {
        let service = Large::default();
        let options = ServiceOptions::new()
            .retry_policy_max_attempts(max_attempts)
            .retry_policy_pause_on_max_attempts();
        let fixture = Fixture::start_with(endpoint_with(service.clone(), options)).await;
        let ingress = fixture.server.ingress_url();
        let invocation = support::send(&ingress, "Large/run", &json!(mib)).await;
        fixture.wait_for_status(&invocation, "paused").await;
        assert_eq!(service.log.count("step") as u64, performed, "of {mib} MiB");
        assert_eq!(service.log.count("recorded"), 0);
        fixture.wait_for_failure(&invocation, failure).await;
    }

    let fixture = Fixture::start(Large::default()).await;
    let reply = support::call(&fixture.server.ingress_url(), "Large/run", &json!(30)).await;
    assert_eq!(reply.status, 200, "30 MiB: {reply:?}");
}

// ---- State

/// Writes state between two steps, and fails at its first two attempts.
#[derive(Clone)]
struct Writes {
    attempts: Attempts,
    log: Log,
    write: fn(&ObjectContext<'_>, Attempt),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Attempt {
    First,
    Later,
}

#[object]
impl Writes {
    #[handler]
    async fn run(&self, ctx: ObjectContext<'_>) -> HandlerResult<Option<String>> {
        let number = self.attempts.next();
        let attempt = if number == 1 { Attempt::First } else { Attempt::Later };
        ctx.run(|| async { Ok(()) }).name("step before").await?;
        (self.write)(&ctx, attempt);
        self.log.push(format!("after the write of attempt {number}"));
        ctx.run(|| async { Ok(()) }).name("step after").await?;
        self.log.push(format!("after the step of attempt {number}"));
        if number < 3 {
            return Err(retryable());
        }
        Ok(ctx.get("key").await?)
    }

    #[handler]
    async fn ignore(&self, _ctx: ObjectContext<'_>, _input: String) -> HandlerResult<()> {
        Ok(())
    }
}

impl Writes {
    fn new(write: fn(&ObjectContext<'_>, Attempt)) -> Self {
        Self { attempts: Attempts::default(), log: Log::default(), write }
    }
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn equal_writes_of_state_are_replayed() {
    let fixture = Fixture::start(Writes::new(|ctx, _| {
        ctx.set("other", 1);
        ctx.clear("other");
        ctx.set("key", "value".to_owned());
    }))
    .await;
    assert_eq!(fixture.call("Writes/object/run").await, success(json!("value")));
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn a_different_write_of_state_breaks_the_replay() {
    type Case = (fn(&ObjectContext<'_>, Attempt), &'static str);
    let cases: [Case; 7] = [
        (
            // The value differs.
            |ctx, attempt| ctx.set("key", format!("{attempt:?}")),
            r#"value: '"First"' != '"Later"'"#,
        ),
        (
            // The key differs.
            |ctx, attempt| ctx.set(&format!("{attempt:?}"), 1),
            "key: 'First' != 'Later'",
        ),
        (
            // The key that is cleared differs.
            |ctx, attempt| ctx.clear(&format!("{attempt:?}")),
            "key: 'First' != 'Later'",
        ),
        (
            // A write is missing.
            |ctx, attempt| {
                if attempt == Attempt::First {
                    ctx.set("key", 1);
                }
            },
            "current execution attempts to perform the following: 'run'",
        ),
        (
            // A write is new.
            |ctx, attempt| {
                if attempt == Attempt::Later {
                    ctx.set("key", 1);
                }
            },
            "current execution attempts to perform the following: 'set state'",
        ),
        (
            // Another kind of write.
            |ctx, attempt| match attempt {
                Attempt::First => ctx.set("key", 1),
                Attempt::Later => ctx.clear("key"),
            },
            "current execution attempts to perform the following: 'clear state'",
        ),
        (
            // The argument of a call differs.
            |ctx, attempt| {
                let target = RequestTarget::object("Writes", "another", "ignore");
                drop(ctx.request::<_, ()>(target, format!("{attempt:?}")).send());
            },
            r#"parameter: '"First"' != '"Later"'"#,
        ),
    ];
    for (write, difference) in cases {
        let service = Writes::new(write);
        let fixture = Fixture::start(service.clone()).await;
        let invocation = fixture.send("Writes/object/run").await;
        fixture.wait_for_mismatch(&invocation, difference).await;
        // `set` returns nothing: the handler continues to where it next awaits the context.
        assert_eq!(service.log.count("after the write of attempt 2"), 1);
        assert_eq!(service.log.count("after the step of attempt 2"), 0);
    }
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn a_different_write_at_the_end_of_a_handler_breaks_the_replay() {
    #[derive(Clone, Default)]
    struct WritesLast {
        attempts: Attempts,
    }

    #[object]
    impl WritesLast {
        #[handler]
        async fn run(&self, ctx: ObjectContext<'_>) -> HandlerResult<()> {
            let attempt = self.attempts.next();
            ctx.set("key", attempt);
            if attempt == 1 {
                // The write is buffered until the handler awaits the context.
                ctx.run(|| async { Ok(()) }).await?;
                return Err(retryable());
            }
            Ok(())
        }
    }

    let fixture = Fixture::start(WritesLast::default()).await;
    let invocation = fixture.send("WritesLast/object/run").await;
    fixture.wait_for_mismatch(&invocation, "value: '1' != ").await;
}

/// Reads state in an attempt that fails, and again after the state was changed.
#[derive(Clone)]
struct Reads {
    attempts: Attempts,
    log: Log,
    gate: Gate,
}

#[object]
impl Reads {
    #[handler]
    async fn write(&self, ctx: ObjectContext<'_>, value: String) -> HandlerResult<()> {
        ctx.set("key", value);
        Ok(())
    }

    #[handler]
    async fn read(&self, ctx: SharedObjectContext<'_>) -> HandlerResult<()> {
        let attempt = self.attempts.next();
        self.log_value(attempt, "replayed", ctx.get("key").await?);
        if attempt == 1 {
            ctx.run(|| async { Ok(()) }).await?;
            self.gate.pass().await;
            return Err(retryable());
        }
        ctx.run(|| async { Ok(()) }).await?;
        self.log_value(attempt, "new", ctx.get("key").await?);
        Ok(())
    }

    #[handler]
    async fn write_and_read(&self, ctx: ObjectContext<'_>) -> HandlerResult<()> {
        let attempt = self.attempts.next();
        self.log_value(attempt, "before", ctx.get("key").await?);
        self.log_keys(attempt, "before", ctx.get_keys().await?);
        ctx.set("key", "written".to_owned());
        ctx.set("key 2", "written".to_owned());
        self.log_value(attempt, "after", ctx.get("key").await?);
        self.log_keys(attempt, "after", ctx.get_keys().await?);
        ctx.run(|| async { Ok(()) }).await?;
        if attempt == 1 { Err(retryable()) } else { Ok(()) }
    }
}

impl Reads {
    fn new() -> Self {
        Self { attempts: Attempts::default(), log: Log::default(), gate: Gate::closed() }
    }

    fn log_value(&self, attempt: u64, name: &str, value: Option<String>) {
        let value = value.unwrap_or_default();
        self.log.push(format!("attempt {attempt}: {name} {value}"));
    }

    fn log_keys(&self, attempt: u64, name: &str, mut keys: Vec<String>) {
        keys.sort();
        self.log.push(format!("attempt {attempt}: {name} {}", keys.join(", ")));
    }
}

const LAZY_OR_NOT: [bool; 2] = [false, true];

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn a_replayed_read_of_state_returns_the_value_of_the_first_attempt() {
    for lazy in LAZY_OR_NOT {
        let service = Reads::new();
        let options = ServiceOptions::new().enable_lazy_state(lazy);
        let fixture = Fixture::start_with(endpoint_with(service.clone(), options)).await;
        let ingress = fixture.server.ingress_url();
        support::call(&ingress, "Reads/object/write", &json!("old")).await;
        let invocation = fixture.send("Reads/object/read").await;
        service.log.wait_for("attempt 1: replayed old").await;
        support::call(&ingress, "Reads/object/write", &json!("new")).await;
        service.gate.open();
        fixture.attach(&invocation).await;
        assert_eq!(
            service.log.entries(),
            ["attempt 1: replayed old", "attempt 2: replayed old", "attempt 2: new new"],
            "lazy: {lazy}"
        );
    }
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn a_handler_reads_its_own_writes_and_its_replay_reads_the_same_values() {
    for lazy in LAZY_OR_NOT {
        let service = Reads::new();
        let options = ServiceOptions::new().enable_lazy_state(lazy);
        let fixture = Fixture::start_with(endpoint_with(service.clone(), options)).await;
        let ingress = fixture.server.ingress_url();
        support::call(&ingress, "Reads/object/write", &json!("old")).await;
        fixture.call("Reads/object/write_and_read").await;
        let of_attempt = |n| {
            ["before old", "before key", "after written", "after key, key 2"]
                .map(|entry| format!("attempt {n}: {entry}"))
        };
        assert_eq!(service.log.entries(), [of_attempt(1), of_attempt(2)].concat(), "lazy: {lazy}");
    }
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn a_write_is_visible_to_shared_handlers_before_its_handler_ends() {
    #[derive(Clone)]
    struct Early {
        gate: Gate,
    }

    #[object]
    impl Early {
        #[handler]
        async fn write(&self, ctx: ObjectContext<'_>) -> HandlerResult<()> {
            ctx.set("key", "early".to_owned());
            ctx.run(|| async {
                self.gate.pass().await;
                Ok(())
            })
            .await?;
            Ok(())
        }

        #[handler]
        async fn read(&self, ctx: SharedObjectContext<'_>) -> HandlerResult<String> {
            Ok(ctx.get("key").await?.unwrap_or_default())
        }
    }

    let service = Early { gate: Gate::closed() };
    let fixture = Fixture::start(service.clone()).await;
    let invocation = fixture.send("Early/object/write").await;
    support::wait_until("the write is visible", LIMIT, async || {
        fixture.call("Early/object/read").await == success(json!("early"))
    })
    .await;
    assert_eq!(fixture.column(&invocation, "status").await, "running");
    service.gate.open();
    fixture.attach(&invocation).await;
}

// ---- Cancel, kill and lost connections

/// Runs a step until the gate is opened, and then another one.
#[derive(Clone)]
struct TwoSteps {
    gate: Gate,
    log: Log,
}

#[service]
impl TwoSteps {
    #[handler]
    async fn run(&self, ctx: Context<'_>) -> HandlerResult<()> {
        self.log.push("attempt");
        let _dropped = self.log.on_drop("handler dropped");
        let first = ctx
            .run(|| async {
                self.log.push("first step begins");
                self.gate.pass().await;
                self.log.push("first step ends");
                Ok(())
            })
            .await;
        let code = first.as_ref().err().map(TerminalError::code);
        self.log.push(format!("first step returned {code:?}"));
        ctx.run(|| async {
            self.log.push("second step");
            Ok(())
        })
        .await?;
        Ok(first?)
    }
}

impl TwoSteps {
    fn new() -> Self {
        Self { gate: Gate::closed(), log: Log::default() }
    }
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn a_cancellation_does_not_end_a_step_and_replaces_its_value_once() {
    let service = TwoSteps::new();
    let fixture = Fixture::start(service.clone()).await;
    let invocation = fixture.send("TwoSteps/run").await;
    service.log.wait_for("first step begins").await;
    support::cancel(&fixture.server.admin_url(), &invocation).await;
    fixture.wait_for_journal_entry(&invocation, "Notification: Signal").await;
    // The time in which the worker would receive the signal. Too short a time cannot fail the test.
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(service.log.entries(), ["attempt", "first step begins"]);
    service.gate.open();
    assert_eq!(fixture.attach(&invocation).await.status, 409);
    // The first step's value is lost, and later steps are performed: the cancellation is reported
    // to the handler once.
    let expected = [
        "attempt",
        "first step begins",
        "first step ends",
        "first step returned Some(409)",
        "second step",
        "handler dropped",
    ];
    assert_eq!(service.log.entries(), expected);
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn kill_drops_the_handler_future_inside_a_step() {
    let service = TwoSteps::new();
    let fixture = Fixture::start(service.clone()).await;
    let invocation = fixture.send("TwoSteps/run").await;
    service.log.wait_for("first step begins").await;
    support::kill(&fixture.server.admin_url(), &invocation).await;
    service.log.wait_for("handler dropped").await;
    assert_eq!(fixture.attach(&invocation).await.status, 409);
    assert_eq!(service.log.entries(), ["attempt", "first step begins", "handler dropped"]);
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn a_client_that_disconnects_cancels_nothing() {
    let service = TwoSteps::new();
    let fixture = Fixture::start(service.clone()).await;
    tokio::select! {
        reply = fixture.call("TwoSteps/run") => panic!("{reply:?} before the gate was opened"),
        () = service.log.wait_for("first step begins") => {}
    }
    service.gate.open();
    service.log.wait_for("second step").await;
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn a_killed_server_drops_the_handler_future_and_a_restarted_one_replays_it() {
    let service = TwoSteps::new();
    let mut fixture = Fixture::start(service.clone()).await;
    let invocation = fixture.send("TwoSteps/run").await;
    service.log.wait_for("first step begins").await;
    fixture.server.kill();
    service.log.wait_for("handler dropped").await;
    fixture.server.restart().await;
    service.log.wait_for_count("first step begins", 2).await;
    service.gate.open();
    assert_eq!(fixture.attach(&invocation).await.status, 200);
    assert_eq!(service.log.count("second step"), 1);
}

// ---- Time limits

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn a_step_longer_than_both_time_limits_is_dropped_and_performed_again() {
    let service = TwoSteps::new();
    let options = ServiceOptions::new()
        .inactivity_timeout(Duration::from_millis(200))
        .abort_timeout(Duration::from_millis(200));
    let fixture = Fixture::start_with(endpoint_with(service.clone(), options)).await;
    let invocation = fixture.send("TwoSteps/run").await;
    service.log.wait_for_count("first step begins", 3).await;
    assert!(service.log.count("handler dropped") >= 2);
    service.gate.open();
    assert_eq!(fixture.attach(&invocation).await.status, 200);
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn a_step_between_both_time_limits_is_recorded_and_its_handler_replayed_once() {
    let service = TwoSteps::new();
    let options =
        ServiceOptions::new().inactivity_timeout(Duration::from_millis(200)).abort_timeout(LIMIT);
    let fixture = Fixture::start_with(endpoint_with(service.clone(), options)).await;
    let invocation = fixture.send("TwoSteps/run").await;
    service.log.wait_for("first step begins").await;
    // Ten times the inactivity limit.
    tokio::time::sleep(Duration::from_secs(2)).await;
    service.gate.open();
    assert_eq!(fixture.attach(&invocation).await.status, 200);
    // The server waits for the step, and suspends the handler after it, which causes one more
    // attempt.
    let expected = [
        "attempt",
        "first step begins",
        "first step ends",
        "handler dropped",
        "attempt",
        "first step returned None",
        "second step",
        "handler dropped",
    ];
    assert_eq!(service.log.entries(), expected);
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn a_handler_that_awaits_longer_than_the_inactivity_limit_is_dropped_and_replayed() {
    let service = Waits::default();
    let options = ServiceOptions::new().inactivity_timeout(Duration::from_millis(200));
    let fixture = Fixture::start_with(endpoint_with(service.clone(), options)).await;
    let invocation = fixture.send("Waits/forever").await;
    fixture.wait_for_status(&invocation, "suspended").await;
    service.log.wait_for("dropped").await;
    let id = service.awakeable_ids().pop().unwrap();
    support::resolve_awakeable(&fixture.server.ingress_url(), &id, &json!("answer")).await;
    assert_eq!(fixture.attach(&invocation).await, success(json!("answer")));
    assert_eq!(service.awakeable_ids(), [id.clone(), id], "a replay gets the same id");
}

// ---- Awakeables

/// Waits for an awakeable, whose id it logs.
#[derive(Clone, Default)]
struct Waits {
    log: Log,
}

#[service]
impl Waits {
    #[handler]
    async fn forever(&self, ctx: Context<'_>) -> HandlerResult<String> {
        let _dropped = self.log.on_drop("dropped");
        let (id, answer) = ctx.awakeable::<String>();
        self.log.push(format!("awakeable {id}"));
        Ok(answer.await?)
    }

    #[handler]
    async fn for_millis(&self, ctx: Context<'_>, millis: u64) -> HandlerResult<String> {
        let (id, answer) = ctx.awakeable::<String>();
        self.log.push(format!("awakeable {id}"));
        restate_sdk::select! {
            answer = answer => Ok(answer?),
            result = ctx.sleep(Duration::from_millis(millis)) => {
                result?;
                Ok("timed out".to_owned())
            }
        }
    }
}

impl Waits {
    fn awakeable_ids(&self) -> Vec<String> {
        let entries = self.log.entries();
        entries.iter().filter_map(|e| e.strip_prefix("awakeable ")).map(str::to_owned).collect()
    }
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn an_awakeable_selected_against_a_sleep_times_out() {
    let service = Waits::default();
    let fixture = Fixture::start(service.clone()).await;
    let ingress = fixture.server.ingress_url();
    let reply = support::call(&ingress, "Waits/for_millis", &json!(100)).await;
    assert_eq!(reply, success(json!("timed out")));
    // The resolution is too late, and has no effect.
    let id = service.awakeable_ids().pop().unwrap();
    support::resolve_awakeable(&ingress, &id, &json!("late")).await;
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn an_awakeable_selected_against_a_sleep_also_resolves_after_a_crash() {
    let service = Waits::default();
    let fixture = Fixture::start(service.clone()).await;
    let hour = json!(3_600_000);
    let invocation = support::send(&fixture.server.ingress_url(), "Waits/for_millis", &hour).await;
    support::wait_until("the handler waits", LIMIT, async || !service.log.entries().is_empty())
        .await;
    let fixture = fixture.replace_worker(endpoint(service.clone()));
    support::wait_until("the handler waits again", LIMIT, async || service.log.entries().len() > 1)
        .await;
    let id = service.awakeable_ids().pop().unwrap();
    support::resolve_awakeable(&fixture.server.ingress_url(), &id, &json!("answer")).await;
    assert_eq!(fixture.attach(&invocation).await, success(json!("answer")));
    assert_eq!(service.awakeable_ids(), [id.clone(), id]);
}

// ---- Calls of other handlers

#[derive(Clone)]
struct Parent {
    log: Log,
}

#[service]
impl Parent {
    /// Calls `Child/step` with the numbers 0, 1 and 2 at once.
    #[handler]
    async fn gather(&self, ctx: Context<'_>) -> HandlerResult<String> {
        let call = |number: u64| ctx.request::<_, u64>(child("step"), number).call();
        let mut calls: DurableFuturesUnordered<_> = (0..3).map(call).collect();
        let mut results = [0; 3];
        while let Some((index, result)) = calls.next().await? {
            results[index] = result?;
            self.log.push(format!("parent received {index}"));
        }
        Ok(format!("{results:?}"))
    }

    /// Calls a handler of `Child`, and cancels that call when an awakeable is resolved.
    #[handler]
    async fn call_and_cancel(&self, ctx: Context<'_>, handler: String) -> HandlerResult<()> {
        type Outcome<'a> = Pin<Box<dyn DurableFuture<Output = String> + Send + 'a>>;
        let call = ctx.request::<_, u64>(child(&handler), 1_u64).call();
        let child = call.invocation_handle().await?;
        let (stop_id, stop) = ctx.awakeable::<()>();
        let mut outcomes: DurableFuturesUnordered<Outcome<'_>> = DurableFuturesUnordered::new();
        let call = DurableFuture::map(call, |result| match result {
            Ok(value) => format!("child returned {value}"),
            Err(error) => format!("child returned {}", error.code()),
        });
        outcomes.push(Box::pin(call));
        outcomes.push(Box::pin(DurableFuture::map(stop, |_| "stop".to_owned())));
        self.log.push(format!("child is {}", child.invocation_id()));
        self.log.push(format!("stop is {stop_id}"));
        while let Some((_, outcome)) = outcomes.next().await? {
            if outcome == "stop" {
                child.cancel();
            }
            self.log.push(outcome);
        }
        Ok(())
    }
}

fn child(handler: &str) -> RequestTarget {
    RequestTarget::service("Child", handler)
}

#[derive(Clone)]
struct Child {
    log: Log,
    gate: Gate,
}

#[service]
impl Child {
    /// Returns ten times its number: 0 at once, other numbers after the gate, in a step.
    #[handler]
    async fn step(&self, ctx: Context<'_>, number: u64) -> HandlerResult<u64> {
        let _dropped = self.log.on_drop("child dropped");
        let step = ctx.run(|| async {
            self.log.push(format!("child {number} begins"));
            if number > 0 {
                self.gate.pass().await;
            }
            self.log.push(format!("child {number} ends"));
            Ok(number * 10)
        });
        Ok(step.await?)
    }

    /// Sleeps for an hour.
    #[handler]
    async fn sleep(&self, ctx: Context<'_>, number: u64) -> HandlerResult<u64> {
        self.log.push(format!("child {number} begins"));
        let result = ctx.sleep(Duration::from_hours(1)).await;
        self.log.push(format!("child {number} ends"));
        result?;
        Ok(number)
    }
}

fn family(log: &Log, gate: &Gate) -> Endpoint {
    let parent = Parent { log: log.clone() };
    let child = Child { log: log.clone(), gate: gate.clone() };
    Endpoint::builder()
        .bind(with_options(parent, ServiceOptions::new()))
        .bind(with_options(child, ServiceOptions::new()))
        .build()
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn gathered_calls_survive_a_crash() {
    let (log, gate) = (Log::default(), Gate::closed());
    let fixture = Fixture::start_with(family(&log, &gate)).await;
    let invocation = fixture.send("Parent/gather").await;
    for entry in ["parent received 0", "child 1 begins", "child 2 begins"] {
        log.wait_for(entry).await;
    }
    let fixture = fixture.replace_worker(family(&log, &gate));
    gate.open();
    assert_eq!(fixture.attach(&invocation).await, success(json!("[0, 10, 20]")));
    let performed = [0, 1, 2].map(|number| log.count(&format!("child {number} begins")));
    assert_eq!(performed, [1, 2, 2], "only children in flight are performed again");
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn cancelling_a_child_through_its_handle_ends_the_call_of_the_parent_that_awaits_it() {
    let (log, gate) = (Log::default(), Gate::closed());
    let fixture = Fixture::start_with(family(&log, &gate)).await;
    let ingress = fixture.server.ingress_url();
    let parent = support::send(&ingress, "Parent/call_and_cancel", &json!("sleep")).await;
    log.wait_for("child 1 begins").await;
    support::resolve_awakeable(&ingress, &log.wait_for_value("stop is ").await, &json!(null)).await;
    assert_eq!(fixture.attach(&parent).await.status, 200);
    let end = ["stop", "child 1 ends", "child returned 409"];
    assert!(log.entries().ends_with(&end.map(str::to_owned)), "{:?}", log.entries());
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn cancelling_a_child_inside_a_step_waits_for_the_end_of_the_step() {
    let (log, gate) = (Log::default(), Gate::closed());
    let fixture = Fixture::start_with(family(&log, &gate)).await;
    let ingress = fixture.server.ingress_url();
    let parent = support::send(&ingress, "Parent/call_and_cancel", &json!("step")).await;
    log.wait_for("child 1 begins").await;
    support::resolve_awakeable(&ingress, &log.wait_for_value("stop is ").await, &json!(null)).await;
    let child = log.wait_for_value("child is ").await;
    fixture.wait_for_journal_entry(&child, "Notification: Signal").await;
    gate.open();
    assert_eq!(fixture.attach(&parent).await.status, 200);
    let end = ["stop", "child 1 ends", "child dropped", "child returned 409"];
    assert!(log.entries().ends_with(&end.map(str::to_owned)), "{:?}", log.entries());
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn cancelling_a_parent_cancels_the_child_that_it_awaits() {
    let (log, gate) = (Log::default(), Gate::closed());
    let fixture = Fixture::start_with(family(&log, &gate)).await;
    let ingress = fixture.server.ingress_url();
    let parent = support::send(&ingress, "Parent/call_and_cancel", &json!("sleep")).await;
    log.wait_for("child 1 begins").await;
    let child = log.wait_for_value("child is ").await;
    support::cancel(&fixture.server.admin_url(), &parent).await;
    assert_eq!(fixture.attach(&parent).await.status, 409);
    fixture.wait_for_status(&child, "completed").await;
    assert_eq!(log.count("child 1 ends"), 1);
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn killing_a_parent_drops_the_children_that_it_awaits() {
    let (log, gate) = (Log::default(), Gate::closed());
    let fixture = Fixture::start_with(family(&log, &gate)).await;
    let parent = fixture.send("Parent/gather").await;
    for entry in ["parent received 0", "child 1 begins", "child 2 begins"] {
        log.wait_for(entry).await;
    }
    support::kill(&fixture.server.admin_url(), &parent).await;
    log.wait_for_count("child dropped", 3).await;
    assert_eq!(log.count("child 1 ends") + log.count("child 2 ends"), 0);
}

// ---- Invocations

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn calls_with_the_same_idempotency_key_share_one_execution_and_answer() {
    #[derive(Clone, Default)]
    struct Once {
        attempts: Attempts,
    }

    #[service]
    impl Once {
        #[handler]
        async fn run(&self, _ctx: Context<'_>) -> HandlerResult<u64> {
            Ok(self.attempts.next())
        }
    }

    let service = Once::default();
    let fixture = Fixture::start(service.clone()).await;
    let ingress = fixture.server.ingress_url();
    let call = || support::call_with_key(&ingress, "Once/run", &Value::Null, "key");
    let (first, second) = tokio::join!(call(), call());
    let third = call().await;
    assert_eq!([first, second, third], [1, 1, 1].map(|n| success(json!(n))));
    assert_eq!(service.attempts.count(), 1);
    assert_eq!(fixture.call("Once/run").await, success(json!(2)), "a call without the key");
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn an_invocation_that_is_out_of_attempts_is_paused_and_can_be_resumed() {
    #[derive(Clone)]
    struct Flaky {
        attempts: Attempts,
        log: Log,
        is_repaired: Arc<AtomicBool>,
    }

    #[service]
    impl Flaky {
        #[handler]
        async fn run(&self, ctx: Context<'_>) -> HandlerResult<u64> {
            let attempt = self.attempts.next();
            ctx.run(|| async {
                self.log.push("step");
                Ok(())
            })
            .await?;
            if self.is_repaired.load(Ordering::SeqCst) { Ok(attempt) } else { Err(retryable()) }
        }
    }

    let service = Flaky {
        attempts: Attempts::default(),
        log: Log::default(),
        is_repaired: Arc::new(AtomicBool::new(false)),
    };
    let options =
        ServiceOptions::new().retry_policy_max_attempts(2).retry_policy_pause_on_max_attempts();
    let fixture = Fixture::start_with(endpoint_with(service.clone(), options)).await;
    let invocation = fixture.send("Flaky/run").await;
    fixture.wait_for_status(&invocation, "paused").await;
    assert_eq!(service.attempts.count(), 2);
    service.is_repaired.store(true, Ordering::SeqCst);
    support::resume(&fixture.server.admin_url(), &invocation).await;
    assert_eq!(fixture.attach(&invocation).await, success(json!(3)));
    assert_eq!(service.log.count("step"), 1, "its steps are still recorded");
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn a_worker_that_cannot_be_reached_uses_up_attempts() {
    let service = TwoSteps::new();
    let options =
        ServiceOptions::new().retry_policy_max_attempts(3).retry_policy_pause_on_max_attempts();
    let endpoint = || endpoint_with(service.clone(), options.clone());
    let Fixture { server, worker } = Fixture::start_with(endpoint()).await;
    let ingress = server.ingress_url();
    let invocation = support::send(&ingress, "TwoSteps/run", &Value::Null).await;
    service.log.wait_for("first step begins").await;
    let address = worker.kill();
    service.gate.open();
    let paused = async || {
        let row = support::invocation(&server.admin_url(), &invocation).await;
        row.is_some_and(|row| row["status"] == "paused")
    };
    support::wait_until("the invocation is paused", LIMIT, paused).await;
    let _worker = Worker::start_at(address, endpoint());
    support::resume(&server.admin_url(), &invocation).await;
    assert_eq!(support::attach(&ingress, &invocation).await.status, 200);
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn an_object_runs_its_exclusive_handlers_one_after_another() {
    #[derive(Clone)]
    struct Exclusive {
        log: Log,
        gate: Gate,
    }

    #[object]
    impl Exclusive {
        #[handler]
        async fn run(&self, ctx: ObjectContext<'_>) -> HandlerResult<()> {
            self.log.push(format!("{} begins", ctx.key()));
            self.gate.pass().await;
            self.log.push(format!("{} ends", ctx.key()));
            Ok(())
        }
    }

    let service = Exclusive { log: Log::default(), gate: Gate::closed() };
    let fixture = Fixture::start(service.clone()).await;
    let first = fixture.send("Exclusive/a/run").await;
    let second = fixture.send("Exclusive/a/run").await;
    let other = fixture.send("Exclusive/b/run").await;
    service.log.wait_for("a begins").await;
    service.log.wait_for("b begins").await;
    let statuses =
        [fixture.column(&first, "status").await, fixture.column(&second, "status").await];
    assert!(statuses.contains(&json!("pending")), "{statuses:?}");
    service.gate.open();
    for invocation in [first, second, other] {
        assert_eq!(fixture.attach(&invocation).await.status, 200);
    }
    let mut entries = service.log.entries();
    entries.retain(|entry| entry.starts_with("a "));
    assert_eq!(entries, ["a begins", "a ends", "a begins", "a ends"]);
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn an_invocation_stays_on_the_deployment_that_it_started_on() {
    #[derive(Clone)]
    struct Versioned {
        version: u64,
        attempts: Attempts,
        gate: Gate,
    }

    #[service]
    impl Versioned {
        #[handler]
        async fn run(&self, ctx: Context<'_>) -> HandlerResult<u64> {
            let attempt = self.attempts.next();
            ctx.run(|| async { Ok(()) }).await?;
            self.gate.pass().await;
            // The second attempt is on the same deployment as well.
            if attempt == 1 { Err(retryable()) } else { Ok(self.version) }
        }
    }

    let version =
        |version| Versioned { version, attempts: Attempts::default(), gate: Gate::closed() };
    let (old, new) = (version(1), version(2));
    let fixture = Fixture::start(old.clone()).await;
    let invocation = fixture.send("Versioned/run").await;
    support::wait_until("the old one runs", LIMIT, async || old.attempts.count() == 1).await;
    let new_worker = Worker::start(endpoint(new.clone()));
    support::register(&fixture.server.admin_url(), &new_worker.url()).await;
    old.gate.open();
    new.gate.open();
    assert_eq!(fixture.attach(&invocation).await, success(json!(1)));
    assert_eq!(fixture.call("Versioned/run").await, success(json!(2)));
}

// ---- Clusters

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn a_cluster_of_three_completes_its_invocations_after_a_node_was_killed() {
    let service = TwoSteps::new();
    let mut cluster = RestateCluster::start(3).await;
    let worker = Worker::start(endpoint(service.clone()));
    cluster.register(&worker.url()).await;
    let mut invocations = Vec::new();
    for _ in 0..6 {
        let ingress = cluster.ingress_url(0);
        invocations.push(support::send(&ingress, "TwoSteps/run", &Value::Null).await);
    }
    service.log.wait_for_count("first step begins", invocations.len()).await;
    cluster.kill(0);
    service.gate.open();
    for invocation in &invocations {
        let reply = support::attach(&cluster.ingress_url(1), invocation).await;
        assert_eq!(reply.status, 200, "{reply:?}");
    }
    // The killed node rejoins the cluster.
    cluster.restart(0).await;
    let reply = support::call(&cluster.ingress_url(0), "TwoSteps/run", &Value::Null).await;
    assert_eq!(reply.status, 200, "{reply:?}");
}
