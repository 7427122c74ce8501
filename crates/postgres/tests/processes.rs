//! Several processes with leases. The test binary starts itself again.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use turnstream::session::{AlreadyLeased, LeaseLost, Store};
use turnstream_postgres::{PostgresOptions, PostgresStore};
use turnstream_testing::session_suite::{numbered_entries, text_entry};

use crate::support::{connect, options, shared_server, text_of, unique_name, until};

const ROLE_ENV: &str = "TURNSTREAM_POSTGRES_ROLE";
const URL_ENV: &str = "TURNSTREAM_POSTGRES_TEST_URL";
const SCHEMA_ENV: &str = "TURNSTREAM_POSTGRES_TEST_SCHEMA";
const LEASE_TIME: Duration = Duration::from_secs(2);

/// Starts a test of this module in a separate process, with a role.
fn start(test: &str, role: &str, schema: &str) -> (Child, BufReader<ChildStdout>) {
    let mut child = Command::new(env::current_exe().unwrap())
        .args([&*format!("processes::{test}"), "--exact", "--nocapture", "--include-ignored"])
        .env(ROLE_ENV, role)
        .env(URL_ENV, shared_server().url())
        .env(SCHEMA_ENV, schema)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    (child, output)
}

/// The role and the store, in such a process.
async fn role() -> Option<(String, PostgresStore)> {
    let (role, url, schema) =
        (env::var(ROLE_ENV).ok()?, env::var(URL_ENV).ok()?, env::var(SCHEMA_ENV).ok()?);
    let options = PostgresOptions::new(url).with_schema(schema).with_lease_time(LEASE_TIME);
    Some((role, connect(&options).await))
}

/// Reads until a line that starts with a text, and returns its rest.
fn read_line(output: &mut impl BufRead, start: &str) -> String {
    loop {
        let mut line = String::new();
        assert!(output.read_line(&mut line).unwrap() > 0, "it ended without `{start}`");
        // The test runner prints the test's name on the same line first.
        if let Some((_, rest)) = line.trim_end().split_once(start) {
            return rest.to_owned();
        }
    }
}

fn signal(child: &Child, name: &str) {
    let pid = child.id().to_string();
    assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
}

/// Takes a lease, appends once, and prints that; then appends again after a line of input, and
/// prints the result.
async fn hold_lease(store: &PostgresStore) {
    let lease = store.lease("s").await.unwrap();
    store.append_leased(&lease, "s", 0, numbered_entries(0..1)).await.unwrap();
    println!("TAKEN {}", lease.epoch());
    let line = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()));
    line.await.unwrap().unwrap();
    match store.append_leased(&lease, "s", 1, numbered_entries(8..9)).await {
        Ok(version) => println!("APPENDED {version}"),
        Err(error) => match error.find_source::<LeaseLost>() {
            Some(lost) => println!("LOST {}", lost.epoch),
            None => panic!("{error}"),
        },
    }
}

async fn take_soon(store: &PostgresStore) -> turnstream::session::Lease {
    let taken = std::cell::RefCell::new(None);
    until("the lease is free", || async {
        match store.lease("s").await {
            Ok(lease) => *taken.borrow_mut() = Some(lease),
            Err(error) => assert!(error.find_source::<AlreadyLeased>().is_some(), "{error}"),
        }
        taken.borrow().is_some()
    })
    .await;
    taken.into_inner().unwrap()
}

#[tokio::test]
#[ignore = "needs PostgreSQL: crates/postgres/tests/run.sh"]
async fn a_stopped_process_loses_its_lease_and_writes_nothing_afterwards() {
    if let Some((_, store)) = role().await {
        return hold_lease(&store).await;
    }
    for others_write in [true, false] {
        let schema = unique_name();
        let store = connect(&options().with_schema(&*schema)).await;
        let test = "a_stopped_process_loses_its_lease_and_writes_nothing_afterwards";
        let (mut child, mut output) = start(test, "holder", &schema);
        let epoch = read_line(&mut output, "TAKEN ");
        let error = store.lease("s").await.unwrap_err();
        assert!(error.find_source::<AlreadyLeased>().is_some());
        // The kernel keeps the connection of a stopped process alive.
        signal(&child, "-STOP");
        let lease = take_soon(&store).await;
        let mut expected = numbered_entries(0..1);
        if others_write {
            store.append_leased(&lease, "s", 1, numbered_entries(1..2)).await.unwrap();
            expected = numbered_entries(0..2);
        }
        child.stdin.take().unwrap().write_all(b"go on\n").unwrap();
        signal(&child, "-CONT");
        assert_eq!(read_line(&mut output, "LOST "), epoch);
        assert!(child.wait().unwrap().success());
        assert_eq!(store.load("s", 0).await.unwrap(), Some(expected));
    }
}

#[tokio::test]
#[ignore = "needs PostgreSQL: crates/postgres/tests/run.sh"]
async fn the_lease_of_a_killed_process_can_be_taken() {
    if let Some((_, store)) = role().await {
        return hold_lease(&store).await;
    }
    let schema = unique_name();
    let store = connect(&options().with_schema(&*schema)).await;
    let (mut child, mut output) =
        start("the_lease_of_a_killed_process_can_be_taken", "holder", &schema);
    let epoch: u64 = read_line(&mut output, "TAKEN ").parse().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let lease = take_soon(&store).await;
    assert!(lease.epoch() > epoch);
    store.append_leased(&lease, "s", 1, numbered_entries(1..2)).await.unwrap();
}

const SESSIONS: usize = 50;
const RACERS: usize = 8;
const ROUNDS: usize = 60;

/// Runs each session whose lease it gets. Appends of other processes must not interleave.
async fn race(store: &PostgresStore, role: &str) {
    let mut written = 0;
    let mut state = role.bytes().map(usize::from).sum::<usize>();
    for _ in 0..ROUNDS {
        state = state.wrapping_mul(25_214_903_917).wrapping_add(11) % (1 << 48);
        let id = format!("s{}", (state >> 16) % SESSIONS);
        let lease = match store.lease(&id).await {
            Ok(lease) => lease,
            Err(error) => {
                assert!(error.find_source::<AlreadyLeased>().is_some(), "{error}");
                continue;
            }
        };
        let mut version = store.load(&id, 0).await.unwrap().unwrap_or_default().len() as u64;
        for n in 0..3 {
            let entry = text_entry(&format!("{role} {} {n}", lease.epoch()));
            version = store.append_leased(&lease, &id, version, vec![entry]).await.unwrap();
            written += 1;
        }
    }
    println!("WRITTEN {written}");
}

#[tokio::test]
#[ignore = "needs PostgreSQL: crates/postgres/tests/run.sh"]
async fn each_of_fifty_sessions_is_run_by_one_of_eight_racing_processes() {
    if let Some((role, store)) = role().await {
        return race(&store, &role).await;
    }
    let schema = unique_name();
    let store = connect(&options().with_schema(&*schema)).await;
    let test = "each_of_fifty_sessions_is_run_by_one_of_eight_racing_processes";
    let racers: Vec<_> = (0..RACERS).map(|n| start(test, &format!("racer{n}"), &schema)).collect();
    let mut acknowledged = 0;
    for (mut child, mut output) in racers {
        acknowledged += read_line(&mut output, "WRITTEN ").parse::<usize>().unwrap();
        assert!(child.wait().unwrap().success());
    }
    let mut found = 0;
    for session in store.list().await.unwrap() {
        let entries = store.load(&session.id, 0).await.unwrap().unwrap();
        let texts: Vec<String> = entries.iter().map(text_of).collect();
        let mut last_epoch = 0;
        for run in texts.chunks(3) {
            let (owner, _) = run[0].rsplit_once(' ').unwrap();
            assert_eq!(run, [0, 1, 2].map(|n| format!("{owner} {n}")), "{}", session.id);
            let epoch: u64 = owner.split_once(' ').unwrap().1.parse().unwrap();
            assert!(epoch > last_epoch, "{}", session.id);
            last_epoch = epoch;
        }
        found += texts.len();
    }
    assert_eq!(found, acknowledged);
    assert!(found > RACERS * ROUNDS, "only {found} entries were written");
}
