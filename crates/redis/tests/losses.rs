//! Redis is killed, loses its data, or has data of another program.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::{StreamExt, stream};
use serde_json::json;
use tokio::sync::{Notify, Semaphore};
use turnstream::event::Transition;
use turnstream::hub::{
    Command, CommandInbox, EventLog, EventNumber, Hub, HubEvent, LogContent, LogEntry,
    LogUnavailable, NotRunning, RunDirectory, SessionReader, Snapshot, StaleEpoch,
};
use turnstream::provider::{Piece, Reply, Scripted, from_stream};
use turnstream::session::{MemoryStore, Session};
use turnstream::tool::{Tool, ToolSpec};
use turnstream::turn::StopReason;
use turnstream::{Agent, Event, Item, Journal};
use turnstream_redis::{RedisEvents, RedisOptions};
use turnstream_test_support::redis::Server;

const LEASE: Duration = Duration::from_millis(900);

fn options(server: &Server) -> RedisOptions {
    RedisOptions::new(server.url()).with_lease(LEASE)
}

async fn connect(server: &Server) -> RedisEvents {
    options(server).connect().await.unwrap()
}

async fn hub(server: &Server) -> Hub {
    hub_of(connect(server).await)
}

fn hub_of(events: RedisEvents) -> Hub {
    Hub::builder().with_backend(events.clone(), events).build()
}

fn entry(epoch: u64, number: u64) -> LogEntry {
    let event = Arc::new(Event::Continued { reason: Transition::NextTurn });
    LogEntry { number: EventNumber::new("r", epoch, number), content: LogContent::Event(event) }
}

async fn first_snapshot(log: &RedisEvents) -> LogEntry {
    let session = Session::open(MemoryStore::new(), "s").await.unwrap();
    let content = LogContent::Snapshot(Arc::new(Snapshot::of_session(&session)));
    let epoch = log.begin("r").await.unwrap();
    LogEntry { number: EventNumber::new("r", epoch, 0), content }
}

/// The numbers that a reader in another process receives within a moment.
async fn numbers(server: &Server) -> Vec<(u64, u64)> {
    let mut read = connect(server).await.read("r", None);
    let mut numbers = Vec::new();
    while let Ok(Some(Ok(entry))) =
        tokio::time::timeout(Duration::from_millis(500), read.next()).await
    {
        numbers.push((entry.number.epoch(), entry.number.number()));
    }
    numbers
}

async fn lost_log_entries_are_written_again() {
    let server = Server::start();
    let log = connect(&server).await;
    let first = first_snapshot(&log).await;
    log.append(vec![first, entry(1, 1), entry(1, 2)], None).await.unwrap();
    // The data is lost before the next entries are written.
    server.command(&["FLUSHALL"]);
    log.append(vec![entry(1, 3)], None).await.unwrap();
    assert_eq!(numbers(&server).await, [(1, 0), (1, 1), (1, 2), (1, 3)]);
    // A part of the data is lost.
    server.command(&["DEL", "turnstream:{r}:log"]);
    tokio::time::sleep(LEASE).await;
    assert_eq!(numbers(&server).await, [(1, 0), (1, 1), (1, 2), (1, 3)]);
    server.command(&["XTRIM", "turnstream:{r}:log", "MAXLEN", "0"]);
    log.append(vec![entry(1, 4)], None).await.unwrap();
    assert_eq!(numbers(&server).await.len(), 5);
    // The next attempt has a higher epoch, whatever is left of this one.
    server.command(&["DEL", "turnstream:{r}:owner"]);
    let there = connect(&server).await;
    assert_eq!(there.begin("r").await.unwrap(), 2);
    let refused = log.append(vec![entry(1, 5)], None).await.unwrap_err();
    assert_eq!(refused.find_source::<StaleEpoch>().unwrap().found, 2);
}

async fn two_attempts_with_the_same_epoch_do_not_mix() {
    let server = Server::start();
    let (here, there) = (connect(&server).await, connect(&server).await);
    let first = first_snapshot(&here).await;
    here.append(vec![first.clone()], None).await.unwrap();
    server.command(&["FLUSHALL"]);
    // The epoch of the first attempt is lost.
    assert_eq!(there.begin("r").await.unwrap(), 1);
    let refused = here.append(vec![entry(1, 1)], None).await.unwrap_err();
    assert!(refused.find_source::<StaleEpoch>().is_some(), "{refused}");
    there.append(vec![first, entry(1, 1)], None).await.unwrap();
}

async fn data_of_other_programs_is_ignored() {
    let server = Server::start();
    let log = connect(&server).await;
    let first = first_snapshot(&log).await;
    log.append(vec![first, entry(1, 1)], None).await.unwrap();
    // Entries after which the log cannot continue.
    for fields in [["entry", "{"], ["x", "y"], ["entry", r#"{"v":9,"type":"event"}"#]] {
        server.command(&["XADD", "turnstream:{r}:log", "*", fields[0], fields[1]]);
    }
    assert_eq!(numbers(&server).await, [(1, 0), (1, 1)]);
    log.append(vec![entry(1, 2)], None).await.unwrap();
    assert_eq!(numbers(&server).await, [(1, 0), (1, 1), (1, 2)]);
    // A value of the wrong type.
    server.command(&["SET", "turnstream:{r}:log", "text"]);
    let read = connect(&server).await.read("r", None).next().await;
    assert!(read.unwrap().is_err());
    log.append(vec![entry(1, 3)], None).await.unwrap();
    assert_eq!(numbers(&server).await, [(1, 0), (1, 1), (1, 2), (1, 3)]);
    // ---- Inboxes
    let mut commands = log.open("q").await.unwrap();
    server.command(&["XADD", "turnstream:{q}:inbox", "*", "command", "garbage"]);
    server.command(&["XADD", "turnstream:{q}:inbox", "*", "x", "y"]);
    let send = log.send("q", "id".to_owned(), Command::Interrupt);
    let take = async {
        let command = commands.next().await.unwrap();
        assert_eq!(format!("{command:?}").matches("Interrupt").count(), 1);
        drop(command);
        drop(commands);
    };
    let (answer, ()) = futures::join!(send, take);
    // The inbox was dropped with its run.
    assert!(answer.unwrap_err().find_source::<NotRunning>().is_some());
    let length = server.command(&["XLEN", "turnstream:{q}:inbox"]);
    assert_eq!(length, ":0\r\n");
    server.command(&["HSET", "turnstream:{k}:runs", "order", "many", "run", "r"]);
    assert_eq!(log.last("k").await.unwrap(), None);
}

async fn a_call_that_is_no_longer_polled_does_not_block_others() {
    let mut server = Server::start();
    let log = connect(&server).await;
    for _ in 0..20 {
        // Each needs a new connection, and stops at another step.
        tokio::task::block_in_place(|| {
            server.kill();
            server.restart();
        });
        let mut stopped: Vec<_> = (0..10).map(|_| log.last("k")).collect();
        for (polls, call) in stopped.iter_mut().enumerate() {
            for _ in 0..polls {
                if futures::poll!(&mut *call).is_ready() {
                    break;
                }
                tokio::time::sleep(Duration::from_micros(300)).await;
            }
        }
        let mut left = 20;
        let answer = tokio::time::timeout(Duration::from_secs(10), async {
            while log.last("k").await.is_err() && left > 0 {
                left -= 1;
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
        answer.await.expect("it does not wait for those");
        assert!(left > 0);
    }
}

async fn the_command_queue_is_bounded() {
    let server = Server::start();
    let options = options(&server).with_max_waiting_commands(3);
    let log = options.with_answer_limit(Duration::from_millis(100)).connect().await.unwrap();
    let _commands = log.open("r").await.unwrap();
    let send = |n: u32, command| log.send("r", n.to_string(), command);
    for n in 0..3 {
        let waited = send(n, Command::StopAfterTurn).await.unwrap_err();
        assert_eq!(waited.kind(), turnstream::ErrorKind::Timeout);
    }
    let refused = send(3, Command::StopAfterTurn).await.unwrap_err();
    assert_eq!(refused.kind(), turnstream::ErrorKind::Overloaded);
    let interrupt = send(4, Command::Interrupt).await.unwrap_err();
    assert_eq!(interrupt.kind(), turnstream::ErrorKind::Timeout, "it is queued");
}

async fn the_size_of_the_queued_commands_is_bounded() {
    let server = Server::start();
    let options = options(&server).with_answer_limit(Duration::from_millis(100));
    let log = options.connect().await.unwrap();
    let _commands = log.open("r").await.unwrap();
    let send = async |n: u32, megabytes: usize| {
        let command = Command::Steer(vec![Item::user("x".repeat(megabytes << 20))]);
        log.send("r", n.to_string(), command).await.unwrap_err().kind()
    };
    assert_eq!(send(1, 17).await, turnstream::ErrorKind::Timeout, "a single command is queued");
    assert_eq!(send(2, 0).await, turnstream::ErrorKind::Overloaded);
    let _commands = log.open("r").await.unwrap();
    assert_eq!(send(3, 10).await, turnstream::ErrorKind::Timeout);
    assert_eq!(send(4, 10).await, turnstream::ErrorKind::Overloaded);
    assert_eq!(send(5, 2).await, turnstream::ErrorKind::Timeout);
}

async fn a_run_continues_after_another_program_has_changed_the_types_of_its_keys() {
    let server = Server::start();
    let hub = hub(&server).await;
    let (started, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let gates = (Arc::clone(&started), Arc::clone(&go_on));
    let spec = ToolSpec::new("wait", "Waits", json!({ "type": "object" }));
    let wait = Tool::raw(spec, move |_, _| {
        let (started, go_on) = gates.clone();
        async move {
            started.notify_one();
            go_on.notified().await;
            "done"
        }
    });
    let model = Scripted::new([Reply::new().call("wait", json!({})), Reply::text("Fine.")]);
    let agent = Agent::new(model).with_tools([wait.unwrap()]);
    let session = Session::open(MemoryStore::new(), "s").await.unwrap();
    let run = session.run(&agent, "Go").await.unwrap();
    let run = hub.start("s", run).await.unwrap().detach();
    started.notified().await;
    let keys = server.command(&["KEYS", "turnstream*"]);
    let keys: Vec<&str> = keys.split("\r\n").filter(|key| key.starts_with("turnstream")).collect();
    assert_eq!(keys.len(), 6, "{keys:?}");
    for key in &keys {
        server.command(&["DEL", key]);
        server.command(&["SADD", key, "another program"]);
    }
    go_on.notify_one();
    drop(hub.reserve_when_free("s").await.unwrap());
    assert_eq!(session.history().iter().next_back().unwrap().as_text(), Some("Fine."));
    // Readers in other processes receive the whole log.
    let log = connect(&server).await;
    let entries: Vec<LogEntry> = log.read(&run, None).map(Result::unwrap).collect().await;
    assert!(matches!(entries.last().unwrap().content, LogContent::End(None)), "{entries:?}");
}

async fn keys_of_a_killed_run_expire() {
    let server = Server::start();
    let log = connect(&server).await;
    let _commands = log.open("r").await.unwrap();
    let first = first_snapshot(&log).await;
    log.append(vec![first], None).await.unwrap();
    log.announce("k", "r").await.unwrap();
    let keys = server.command(&["KEYS", "*"]);
    let keys: Vec<&str> =
        keys.split("\r\n").filter(|line| line.starts_with("turnstream")).collect();
    assert_eq!(keys.len(), 6, "{keys:?}");
    // The hash of all active runs has one field for each, which the next run with its key removes.
    for key in keys.iter().filter(|key| **key != "turnstream:active") {
        assert_ne!(server.command(&["PTTL", key]), ":-1\r\n", "{key}");
    }
}

/// A text with one more number than the text before it.
fn words(count: usize) -> String {
    (0..count).fold(String::new(), |text, n| text + &n.to_string() + " ")
}

/// The page's view of one session.
struct Page {
    journal: Option<Journal>,
    runs_ended: usize,
    text: String,
}

impl Page {
    fn show(&mut self, event: &HubEvent) {
        match event {
            HubEvent::Snapshot { snapshot, .. } => self.journal = Some(snapshot.to_journal()),
            HubEvent::Event { event, .. } => {
                if let Some(journal) = &self.journal {
                    journal.observe(event);
                }
            }
            HubEvent::Ended { .. } => self.runs_ended += 1,
            _ => {}
        }
        let items = self.journal.as_ref().map(Journal::history);
        let items = items.iter().flat_map(|history| history.iter());
        self.text = items.filter_map(Item::as_text).collect();
    }
}

/// Reads until the page shows the expected text.
async fn read_until(mut reader: SessionReader, expected: String) -> Result<(), String> {
    let mut page = Page { journal: None, runs_ended: 0, text: String::new() };
    let read = async {
        while page.text != expected {
            match reader.next().await {
                Some(Ok(event)) => {
                    page.show(&event);
                    if !expected.starts_with(&page.text) {
                        return Err("words are missing, or there twice".to_owned());
                    }
                }
                other => return Err(format!("{other:?}")),
            }
        }
        Ok(())
    };
    let read = tokio::time::timeout(Duration::from_mins(1), read).await;
    let shown = |why: String| format!("{why}: {:?}", page.text);
    match read {
        Ok(read) => read.map_err(shown),
        Err(_) => Err(shown("it takes too long".to_owned())),
    }
}

async fn readers_of_a_hundred_runs_lose_nothing_when_the_server_is_killed_repeatedly() {
    const RUNS: usize = 100;
    const WORDS: usize = 120;
    let mut server = Server::start();
    let (here, there) = (hub(&server).await, hub(&server).await);
    let stores: Vec<MemoryStore> = (0..RUNS).map(|_| MemoryStore::new()).collect();
    let agent = Agent::new(Scripted::from_fn(|_, _| {
        (0..WORDS).fold(Reply::new(), |reply, n| {
            reply.delay(Duration::from_millis(100)).say(format!("{n} "))
        })
    }));
    let mut readers = Vec::new();
    for (n, store) in stores.iter().enumerate() {
        let key = format!("s{n}");
        let session = Session::open(store.clone(), &key).await.unwrap();
        here.start(&key, session.run(&agent, "Go").await.unwrap()).await.unwrap().detach();
        for hub in [&here, &there] {
            let session = Session::open(store.clone(), &key).await.unwrap();
            let reader = hub.read_session(&session, None);
            readers.push(tokio::spawn(read_until(reader, words(WORDS))));
        }
    }
    let kills = AtomicUsize::new(0);
    while here.stats().runs > 0 && kills.load(Ordering::Relaxed) < 20 {
        tokio::time::sleep(Duration::from_millis(350)).await;
        tokio::task::block_in_place(|| {
            server.kill();
            server.restart();
        });
        kills.fetch_add(1, Ordering::Relaxed);
    }
    assert_eq!(kills.load(Ordering::Relaxed), 20);
    let mut failed = Vec::new();
    for (n, reader) in readers.into_iter().enumerate() {
        if let Err(error) = reader.await.unwrap() {
            failed.push(format!("reader {n}: {error}"));
        }
    }
    assert!(
        failed.is_empty(),
        "{} of {}: {:#?}",
        failed.len(),
        2 * RUNS,
        &failed[..failed.len().min(5)]
    );
    for (n, store) in stores.iter().enumerate() {
        let session = Session::open(store.clone(), format!("s{n}")).await.unwrap();
        let last = session.history().iter().next_back().unwrap().as_text().unwrap().to_owned();
        assert_eq!(last, words(WORDS));
    }
}

async fn readers_receive_the_stored_session_while_the_server_is_down() {
    let mut server = Server::start();
    let (here, there) = (hub(&server).await, hub(&server).await);
    let agent = Agent::new(Scripted::from_fn(|_, n| match n {
        0 => Reply::text("One. "),
        _ => Reply::new().delay(Duration::from_secs(2)).say("Two."),
    }));
    let store = MemoryStore::new();
    let session = Session::open(store.clone(), "s").await.unwrap();
    let owner = here.start("s", session.run(&agent, "Go").await.unwrap()).await.unwrap();
    owner.read().map(drop).collect::<Vec<()>>().await;
    let reader = |session: &Session| {
        tokio::spawn(read_until(there.read_session(session, None), "One. ".to_owned()))
    };
    let place = here.reserve_when_free("s").await.unwrap();
    place.start(session.run(&agent, "Go").await.unwrap()).await.unwrap().detach();
    tokio::task::block_in_place(|| server.kill());
    // A new reader, immediately.
    let elsewhere = Session::open(store.clone(), "s").await.unwrap();
    let begin = std::time::Instant::now();
    reader(&elsewhere).await.unwrap().unwrap();
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
    // The run has ended meanwhile; the reader learns of the end from the store.
    let reader = there.read_session(&elsewhere, None);
    read_until(reader, "One. Two.".to_owned()).await.unwrap();
    tokio::task::block_in_place(|| server.restart());
    let reader = there.read_session(&elsewhere, None);
    read_until(reader, "One. Two.".to_owned()).await.unwrap();
}

async fn a_run_started_while_the_server_is_down_can_be_read_later_and_stopped_locally() {
    let mut server = Server::start();
    let (here, there) = (hub(&server).await, hub(&server).await);
    tokio::task::block_in_place(|| server.kill());
    let endless = Reply::new().say("One. ").delay(Duration::from_hours(1)).say("never");
    let agent = Agent::new(Scripted::new([endless]));
    let store = MemoryStore::new();
    let session = Session::open(store.clone(), "s").await.unwrap();
    let run = here.start("s", session.run(&agent, "Go").await.unwrap()).await.unwrap().detach();
    assert_eq!(here.find_run("s").await.unwrap(), Some(run.clone()));
    tokio::task::block_in_place(|| server.restart());
    // The log starts when the server is back.
    let mut shown = Journal::new(turnstream::History::empty("h"));
    let wait = async {
        loop {
            let mut reader = there.read_any_run(&run, None);
            while let Some(Ok(event)) = reader.next().await {
                match event {
                    HubEvent::Snapshot { snapshot, .. } => shown = snapshot.to_journal(),
                    HubEvent::Event { event, .. } => shown.observe(&event),
                    _ => return,
                }
                if text_of(&shown) == "One. " {
                    return;
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), wait).await.unwrap();
    // The run can be stopped on its own machine, whether or not the server is available.
    tokio::task::block_in_place(|| server.kill());
    here.send(&run, Command::Interrupt).await.unwrap();
    drop(here.reserve_when_free("s").await.unwrap());
    let kept = Session::open(store, "s").await.unwrap();
    assert_eq!(kept.history().iter().next_back().unwrap().as_text(), Some("One. "));
}

/// The previous run has ended while the server was down, so that its end is announced later.
async fn a_run_that_ended_during_an_outage_does_not_hide_the_next_run_of_its_session() {
    let mut server = Server::start();
    let (here, there) = (hub(&server).await, hub(&server).await);
    tokio::task::block_in_place(|| server.kill());
    let store = MemoryStore::new();
    let session = Session::open(store.clone(), "s").await.unwrap();
    // The second run lasts until the end of the first one has been announced.
    let announced = Arc::new(Semaphore::new(0));
    let (gate, turns) = (Arc::clone(&announced), AtomicUsize::new(0));
    let agent = Agent::new(from_stream("gated", move |_| {
        let (gate, is_first) = (Arc::clone(&gate), turns.fetch_add(1, Ordering::SeqCst) == 0);
        stream::once(async move {
            if is_first {
                return vec!["First. ".into(), StopReason::Stop.into()];
            }
            gate.acquire().await.unwrap().forget();
            let pieces = (0..12).map(|n| Piece::Text(format!("{n} ")));
            pieces.chain([StopReason::Stop.into()]).collect::<Vec<Piece>>()
        })
        .flat_map(|pieces| stream::iter(pieces.into_iter().map(Ok)))
    }));
    let first = here.start("s", session.run(&agent, "Go").await.unwrap()).await.unwrap().detach();
    drop(here.reserve_when_free("s").await.unwrap());
    tokio::task::block_in_place(|| server.restart());
    let elsewhere = Session::open(store.clone(), "s").await.unwrap();
    let expected = format!("First. {}", words(12));
    let reader = tokio::spawn(read_until(there.read_session(&elsewhere, None), expected.clone()));
    let second = here.start("s", session.run(&agent, "Go").await.unwrap()).await.unwrap().detach();
    // The log of the first run exists by then, without an inbox.
    while let Some(Err(_)) = there.read_any_run(&first, None).next().await {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // The second run is announced again after the outage.
    let found = async {
        loop {
            match there.find_run("s").await.unwrap() {
                Some(found) => break found,
                None => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    };
    let found = tokio::time::timeout(Duration::from_secs(30), found).await.unwrap();
    assert_eq!(found, second);
    let refused = there.send(&first, Command::Interrupt).await.unwrap_err();
    assert!(refused.find_source::<NotRunning>().is_some(), "{refused}");
    announced.add_permits(1);
    reader.await.unwrap().unwrap();
    let late = Session::open(store, "s").await.unwrap();
    read_until(there.read_session(&late, None), expected).await.unwrap();
}

/// Heartbeats and appends interleave all the time.
async fn heartbeats_do_not_rewrite_complete_logs() {
    let server = Server::start();
    let connect =
        async || options(&server).with_lease(Duration::from_millis(300)).connect().await.unwrap();
    let (here, there) = (connect().await, connect().await);
    let runs = (0..40).map(|n| {
        let (here, there, run) = (here.clone(), there.clone(), format!("r{n}"));
        tokio::spawn(async move {
            let epoch = here.begin(&run).await.unwrap();
            let number = |number| EventNumber::new(run.as_str(), epoch, number);
            let session = Session::open(MemoryStore::new(), "s").await.unwrap();
            let content = LogContent::Snapshot(Arc::new(Snapshot::of_session(&session)));
            here.append(vec![LogEntry { number: number(0), content }], None).await.unwrap();
            for n in 1..200 {
                let event = Arc::new(Event::Continued { reason: Transition::NextTurn });
                let entry = LogEntry { number: number(n), content: LogContent::Event(event) };
                here.append(vec![entry], None).await.unwrap();
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let entry = LogEntry { number: number(200), content: LogContent::End(None) };
            here.append(vec![entry], None).await.unwrap();
            let read: Vec<_> = there.read(&run, None).collect().await;
            assert!(read.iter().all(Result::is_ok), "{run}: {:?}", read.last());
            assert_eq!(read.last().unwrap().as_ref().unwrap().number, number(200));
        })
    });
    for run in runs.collect::<Vec<_>>() {
        run.await.unwrap();
    }
    // The end of each run deletes its heartbeat.
    let stats = server.command(&["INFO", "commandstats"]);
    let deletes = stats.lines().find(|line| line.starts_with("cmdstat_del:")).unwrap_or_default();
    assert!(deletes.contains("calls=40,"), "{deletes}");
}

/// Simulates a failover to a server with a slower clock.
async fn an_inbox_accepts_commands_after_the_server_clock_moved_backwards() {
    let server = Server::start();
    let (here, there) = (hub(&server).await, hub(&server).await);
    let endless = Reply::new().say("One. ").delay(Duration::from_hours(1)).say("never");
    let agent = Agent::new(Scripted::new([endless]));
    let run = here.start("k", agent.run("Go")).await.unwrap().detach();
    let inbox = format!("turnstream:{{{run}}}:inbox");
    server.command(&["XADD", &inbox, "9999999999999-0", "command", "not a command"]);
    while server.command(&["XLEN", &inbox]).trim() != ":0" {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    server.command(&["FLUSHALL"]);
    // Until the next heartbeat, the run appears not to be running.
    let wait = async {
        while let Err(error) = there.send(&run, Command::Interrupt).await {
            assert!(error.find_source::<NotRunning>().is_some(), "{error}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), wait).await.unwrap();
}

async fn a_run_that_ended_while_the_server_was_down_is_not_reported_as_lost() {
    let mut server = Server::start_with(true);
    let (here, there) = (connect(&server).await, connect(&server).await);
    let hub = hub_of(here);
    let endless = Reply::new().say("One. ").delay(Duration::from_hours(1)).say("never");
    let agent = Agent::new(Scripted::new([endless]));
    let owner = hub.start("k", agent.run("Go")).await.unwrap();
    tokio::task::block_in_place(|| server.kill());
    drop(owner);
    tokio::task::block_in_place(|| server.restart());
    // Its heartbeat expires after a lease, and its end is announced again before that.
    tokio::time::sleep(2 * LEASE).await;
    let lost = loop {
        match there.lost().await {
            Ok(lost) => break lost,
            Err(error) => assert!(error.find_source::<LogUnavailable>().is_some(), "{error}"),
        }
    };
    assert_eq!(lost, []);
}

async fn a_run_with_an_unreadable_log_does_not_hide_the_other_lost_runs() {
    let server = Server::start();
    server.command(&["HSET", "turnstream:active", "r1", "one", "r2", "two"]);
    server.command(&["SET", "turnstream:{r1}:log", "not a log"]);
    // Not a heartbeat.
    server.command(&["SADD", "turnstream:{r2}:alive", "another program"]);
    let lost = connect(&server).await.lost().await.unwrap();
    let lost: Vec<_> = lost.into_iter().map(|lost| (lost.run, lost.key)).collect();
    assert_eq!(lost, [("r1", "one"), ("r2", "two")].map(|(run, key)| (run.into(), key.into())));
}

fn text_of(journal: &Journal) -> String {
    journal.history().iter().filter_map(|item| item.as_text().map(str::to_owned)).collect()
}

on_backend! {
    a_run_that_ended_during_an_outage_does_not_hide_the_next_run_of_its_session,
    heartbeats_do_not_rewrite_complete_logs,
    a_run_that_ended_while_the_server_was_down_is_not_reported_as_lost,
    a_run_with_an_unreadable_log_does_not_hide_the_other_lost_runs,
    an_inbox_accepts_commands_after_the_server_clock_moved_backwards,
    a_run_started_while_the_server_is_down_can_be_read_later_and_stopped_locally,
    lost_log_entries_are_written_again,
    two_attempts_with_the_same_epoch_do_not_mix,
    data_of_other_programs_is_ignored,
    a_call_that_is_no_longer_polled_does_not_block_others,
    the_command_queue_is_bounded,
    the_size_of_the_queued_commands_is_bounded,
    a_run_continues_after_another_program_has_changed_the_types_of_its_keys,
    keys_of_a_killed_run_expire,
    readers_of_a_hundred_runs_lose_nothing_when_the_server_is_killed_repeatedly,
    readers_receive_the_stored_session_while_the_server_is_down,
}
