//! Hubs of several processes on one Redis. The test binary starts itself again.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command as Process, Stdio};
use std::time::Duration;

use futures::StreamExt;
use serde_json::json;
use turnstream::hub::{
    AlreadyRunning, Command, Hub, HubBuilder, HubEvent, LogOutage, LogUnavailable, NotRunning,
    RunLost, SessionReader,
};
use turnstream::item::PendingCall;
use turnstream::provider::{Reply, Scripted};
use turnstream::session::{JsonLinesStore, Session};
use turnstream::tool::{Tool, ToolSpec, Verdict};
use turnstream::{Agent, ErrorKind, Item};
use turnstream_redis::{RedisEvents, RedisOptions};
use turnstream_test_support::redis::Server;

const ROLE_ENV: &str = "TURNSTREAM_REDIS_ROLE";
const URL_ENV: &str = "TURNSTREAM_REDIS_URL";
const FOLDER_ENV: &str = "TURNSTREAM_REDIS_FOLDER";

/// The Redis and the store that the test shares with a process that runs a session.
struct World {
    server: Server,
    folder: std::path::PathBuf,
}

impl World {
    fn new() -> Self {
        let server = Server::start();
        let folder = std::env::temp_dir().join(format!("turnstream-hubs-{}", std::process::id()));
        let folder = folder.with_extension(server.url().replace(['/', ':'], ""));
        std::fs::create_dir_all(&folder).unwrap();
        Self { server, folder }
    }

    /// Starts a test of this module in a separate process, with a role.
    fn spawn(&self, test: &str, role: &str) -> (Child, BufReader<ChildStdout>) {
        let (_, module) = module_path!().split_once("::").expect("a module of the binary");
        let mut process = Process::new(std::env::current_exe().unwrap());
        process.args([&*format!("{module}::{test}"), "--exact", "--nocapture", "--ignored"]);
        process.env(ROLE_ENV, role).env(URL_ENV, self.server.url()).env(FOLDER_ENV, &self.folder);
        let mut child = process.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        (child, lines)
    }

    async fn hub(&self) -> Hub {
        hub(&self.server.url()).await
    }

    async fn session(&self) -> Session {
        Session::open(JsonLinesStore::open(&self.folder).unwrap(), "s").await.unwrap()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

async fn builder(url: &str) -> HubBuilder {
    let options = RedisOptions::new(url).with_lease(Duration::from_millis(900));
    let events = options.connect().await.unwrap();
    Hub::builder().with_backend(events.clone(), events)
}

async fn hub(url: &str) -> Hub {
    builder(url).await.build()
}

/// A model that makes a call, and streams text for a long time after its result.
fn agent() -> Agent {
    let spec = ToolSpec::new("delete", "Deletes a file", json!({ "type": "object" }));
    let delete = Tool::raw(spec, |_, _| async { "deleted" }).unwrap().requires_approval();
    let model = Scripted::from_fn(|_, n| match n {
        0 => Reply::new().say("May I? ").call("delete", json!({ "file": "notes" })),
        1 => Reply::text("Done."),
        _ => (0..3_000).fold(Reply::new(), |reply, n| {
            reply.delay(Duration::from_millis(10)).say(format!("{n} "))
        }),
    });
    Agent::new(model).with_tools([delete]).interactive()
}

/// The other process: runs the session, and prints a line when the run has started.
async fn run_in_child() {
    let env = |name| std::env::var(name).unwrap();
    let hub = hub(&env(URL_ENV)).await;
    let session = Session::open(JsonLinesStore::open(env(FOLDER_ENV)).unwrap(), "s").await.unwrap();
    let run = session.run(&agent(), "Go").await.unwrap();
    let run = hub.start("s", run).await.unwrap().detach();
    println!("\nbegun: {run}");
    while hub.run_id("s").is_some() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    println!("\nover");
    // Gives the hub the time to send the end of the run.
    tokio::time::sleep(Duration::from_millis(300)).await;
}

fn is_child() -> bool {
    std::env::var(ROLE_ENV).is_ok()
}

/// The id of the run that the other process has started.
fn run_of(lines: &mut BufReader<ChildStdout>) -> String {
    loop {
        let mut line = String::new();
        assert_ne!(lines.read_line(&mut line).unwrap(), 0, "the process has ended");
        if let Some(run) = line.strip_prefix("begun: ") {
            return run.trim().to_owned();
        }
    }
}

/// Reads until `find` returns a value.
async fn find<T>(reader: &mut SessionReader, find: impl Fn(&HubEvent) -> Option<T>) -> T {
    let found = async {
        loop {
            if let Some(found) = find(&reader.next().await.unwrap().unwrap()) {
                return found;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), found).await.expect("it comes")
}

fn has_text(event: &HubEvent, text: &str) -> Option<()> {
    match event {
        HubEvent::Event { event, .. } => event.text_delta().is_some_and(|delta| delta == text),
        _ => false,
    }
    .then_some(())
}

async fn a_run_in_another_process_can_be_read_approved_steered_and_stopped() {
    if is_child() {
        return run_in_child().await;
    }
    let world = World::new();
    let (hub, session) = (world.hub().await, world.session().await);
    let mut reader = hub.read_session(&session, None);
    let HubEvent::Snapshot { number: None, .. } = reader.next().await.unwrap().unwrap() else {
        panic!("no run is there");
    };
    let (mut child, mut lines) = world
        .spawn("tests::a_run_in_another_process_can_be_read_approved_steered_and_stopped", "runs");
    let run = run_of(&mut lines);
    assert_eq!(hub.find_run("s").await.unwrap().as_deref(), Some(&*run));
    assert_eq!((hub.run_id("s"), hub.find_run("t").await.unwrap()), (None, None));
    let second = hub.start("s", Agent::new(Scripted::new(["Two."])).run("Go")).await.unwrap_err();
    assert!(second.find_source::<AlreadyRunning>().is_some(), "{second}");
    // ---- Read
    let call = find(&mut reader, |event| match event {
        HubEvent::Event { event, .. } => event.approval_request(),
        HubEvent::Snapshot { snapshot, .. } => snapshot.pending_calls().pop(),
        _ => None,
    })
    .await;
    // ---- Approve. The run itself refuses a verdict on another call than the one that was shown.
    let arguments = r#"{"file":"everything"}"#.to_owned();
    let forged = PendingCall { arguments, ..call.clone() };
    let verdict = |call| Command::Verdict { call, verdict: Verdict::Approve };
    let refused = hub.send(&run, verdict(forged)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict);
    // ---- Steer: the input is in the history under the id of its receipt.
    let steer = Command::FollowUp(vec![Item::user("Count.")]);
    let receipt = hub.send(&run, steer).await.unwrap();
    hub.send(&run, verdict(call)).await.unwrap();
    find(&mut reader, |event| match event {
        HubEvent::Event { event, .. } => match &**event {
            turnstream::Event::Appended { id, .. } => (*id == receipt.id).then_some(()),
            _ => None,
        },
        _ => None,
    })
    .await;
    find(&mut reader, |event| has_text(event, "20 ")).await;
    // ---- Stop
    let by_id = hub.read_any_run(&run, None);
    hub.send(&run, Command::Interrupt).await.unwrap();
    let error = find(&mut reader, |event| match event {
        HubEvent::Ended { error, .. } => Some(error.clone()),
        _ => None,
    })
    .await;
    assert_eq!(error, None);
    let all: Vec<_> = by_id.collect().await;
    assert!(matches!(all.last(), Some(Ok(HubEvent::Ended { .. }))), "{:?}", all.last());
    assert!(child.wait().unwrap().success());
    let over = hub.send(&run, Command::Interrupt).await.unwrap_err();
    assert!(over.find_source::<NotRunning>().is_some(), "{over}");
    assert_eq!(hub.find_run("s").await.unwrap(), None);
    assert!(hub.lost_runs().await.unwrap().is_empty());
}

async fn a_run_of_a_killed_process_is_lost_once_and_can_be_read_after_it_is_resumed() {
    if is_child() {
        return run_in_child().await;
    }
    let world = World::new();
    let (hub, other) = (world.hub().await, world.hub().await);
    let session = world.session().await;
    let (mut child, mut lines) = world.spawn(
        "tests::a_run_of_a_killed_process_is_lost_once_and_can_be_read_after_it_is_resumed",
        "runs",
    );
    let run = run_of(&mut lines);
    let mut reader = hub.read_session(&session, None);
    let call = find(&mut reader, |event| match event {
        HubEvent::Event { event, .. } => event.approval_request(),
        HubEvent::Snapshot { snapshot, .. } => snapshot.pending_calls().pop(),
        _ => None,
    })
    .await;
    hub.send(&run, Command::FollowUp(vec![Item::user("Count.")])).await.unwrap();
    hub.send(&run, Command::Verdict { call, verdict: Verdict::Approve }).await.unwrap();
    find(&mut reader, |event| has_text(event, "20 ")).await;
    assert!(hub.lost_runs().await.unwrap().is_empty());
    let by_id = hub.read_any_run(&run, None);
    child.kill().unwrap();
    child.wait().unwrap();
    let killed = std::time::Instant::now();
    // The finished part comes from the store.
    let snapshot = find(&mut reader, |event| match event {
        HubEvent::Snapshot { number: None, snapshot } => Some(snapshot.clone()),
        _ => None,
    })
    .await;
    assert!(killed.elapsed() < Duration::from_secs(5), "{:?}", killed.elapsed());
    let texts: Vec<String> = snapshot
        .to_journal()
        .history()
        .iter()
        .filter_map(|item| item.as_text().map(str::to_owned))
        .collect();
    assert!(texts.contains(&"Done.".to_owned()), "{texts:?}");
    let ended = by_id.collect::<Vec<_>>().await.pop().unwrap().unwrap_err();
    assert!(ended.find_source::<RunLost>().is_some(), "{ended}");
    let begin = std::time::Instant::now();
    let refused = hub.send(&run, Command::Interrupt).await.unwrap_err();
    assert!(refused.find_source::<NotRunning>().is_some(), "{refused}");
    assert!(begin.elapsed() < Duration::from_secs(2));
    // The run is lost, and one hub may resume it.
    let lost = hub.lost_runs().await.unwrap();
    assert_eq!((lost.len(), &*lost[0].key, &*lost[0].run), (1, "s", &*run));
    assert!(other.claim_lost_run(&lost[0]).await.unwrap());
    assert!(!hub.claim_lost_run(&lost[0]).await.unwrap());
    let there = world.session().await;
    let resumed = there.resume(&Agent::new(Scripted::new(["On."])), Vec::new()).await.unwrap();
    other.start("s", resumed).await.unwrap().detach();
    find(&mut reader, |event| has_text(event, "On.")).await;
    assert!(hub.lost_runs().await.unwrap().is_empty());
}

async fn a_silent_run_is_not_considered_lost() {
    let world = World::new();
    let (here, there) = (world.hub().await, world.hub().await);
    let agent = Agent::new(Scripted::from_fn(|_, _| Reply::new().say("One").hang()));
    let session = world.session().await;
    let run = session.run(&agent, "Go").await.unwrap();
    let run = here.start("s", run).await.unwrap().detach();
    let reader = there.read_any_run(&run, None);
    // Much longer than a heartbeat is valid.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(there.find_run("s").await.unwrap().as_deref(), Some(&*run));
    assert!(there.lost_runs().await.unwrap().is_empty());
    there.send(&run, Command::Interrupt).await.unwrap();
    let all: Vec<_> = reader.collect().await;
    assert!(matches!(all.last(), Some(Ok(HubEvent::Ended { .. }))), "{:?}", all.last());
}

async fn connecting_without_a_server_is_an_error() {
    let mut server = Server::start();
    let here = builder(&server.url()).await.with_log_outage(LogOutage::Pause).build();
    let there = hub(&server.url()).await;
    let run = here.start("k", agent().run("Go")).await.unwrap().detach();
    server.kill();
    let begin = std::time::Instant::now();
    let errors = [
        RedisEvents::connect(&server.url()).await.map(drop).unwrap_err(),
        there.send(&run, Command::Interrupt).await.map(drop).unwrap_err(),
        here.find_run("other").await.map(drop).unwrap_err(),
        here.lost_runs().await.map(drop).unwrap_err(),
        here.start("l", agent().run("Go")).await.map(drop).unwrap_err(),
    ];
    for error in errors {
        assert!(error.find_source::<LogUnavailable>().is_some(), "{error:#?}");
        assert_eq!(error.kind(), ErrorKind::Store);
    }
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
    let wrong = RedisEvents::connect("http://localhost").await.unwrap_err();
    assert_eq!(wrong.kind(), ErrorKind::InvalidRequest);
}

async fn connecting_to_an_unresponsive_server_fails_within_three_seconds() {
    // It accepts connections and never answers.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}/", listener.local_addr().unwrap());
    let begin = std::time::Instant::now();
    let error = RedisEvents::connect(&url).await.unwrap_err();
    assert!(error.find_source::<LogUnavailable>().is_some(), "{error:#?}");
    assert!(begin.elapsed() < Duration::from_secs(3), "{:?}", begin.elapsed());
}

on_backend! {
    a_run_in_another_process_can_be_read_approved_steered_and_stopped,
    a_run_of_a_killed_process_is_lost_once_and_can_be_read_after_it_is_resumed,
    a_silent_run_is_not_considered_lost,
    connecting_without_a_server_is_an_error,
    connecting_to_an_unresponsive_server_fails_within_three_seconds,
}
