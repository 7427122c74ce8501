//! Several processes on one session, and a full disk. The test binary starts itself again.

use std::env;
#[cfg(unix)]
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use futures::executor::block_on;
#[cfg(unix)]
use turnstream::ErrorKind;
use turnstream::Item;
use turnstream::item::ItemKind;
use turnstream::session::{AlreadyLeased, Conflict, Entry, Store};
use turnstream_testing::session_suite::{numbered_entries, text_entry};

use super::temp_store::OpenStore;
use crate::session_race::{Race, Racer};
use crate::temp_folder::TempFolder;

const ROLE_ENV: &str = "TURNSTREAM_STORES_ROLE";
const FOLDER_ENV: &str = "TURNSTREAM_STORES_PLACE";
const WRITER_COUNT: usize = 3;
const APPENDS_PER_WRITER: usize = 40;

/// The command that starts a test of this binary again, in a separate process with a role.
pub fn test_process_command(test: &str, role: &str, folder: &Path) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture"]).env(ROLE_ENV, role).env(FOLDER_ENV, folder);
    command.stdout(Stdio::null());
    command
}

/// The role and the folder of a process that [`test_process_command`] has started; `None` in the
/// test itself.
pub fn role_and_folder() -> Option<(String, PathBuf)> {
    Some((env::var(ROLE_ENV).ok()?, env::var_os(FOLDER_ENV)?.into()))
}

/// Appends, with two entries in every third append, and retries after each conflict.
fn append_with_retries(store: &dyn Store, role: &str) {
    let mut version = 0;
    for n in 0..APPENDS_PER_WRITER {
        let own: Vec<Entry> =
            (0..=n % 3 / 2).map(|k| text_entry(&format!("{role} {n} {k}"))).collect();
        version = loop {
            match block_on(store.append("s", version, own.clone())) {
                Ok(version) => break version,
                Err(error) => match error.find_source::<Conflict>() {
                    Some(conflict) => version = conflict.found,
                    None => panic!("{error}"),
                },
            }
        };
    }
}

fn user_text(entry: &Entry) -> String {
    match entry {
        Entry::Item(Item { kind: ItemKind::User { content }, .. }) => content.text(),
        other => panic!("{other:?}"),
    }
}

pub fn concurrent_processes_lose_nothing_in_a_session(test: &str, open: OpenStore) {
    if let Some((role, folder)) = role_and_folder() {
        return append_with_retries(&*open(&folder).unwrap(), &role);
    }
    let folder = TempFolder::new();
    let start =
        |n: usize| test_process_command(test, &format!("w{n}"), folder.path()).spawn().unwrap();
    let children: Vec<_> = (0..WRITER_COUNT).map(start).collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let store = open(folder.path()).unwrap();
    let entries: Vec<String> =
        block_on(store.load("s", 0)).unwrap().unwrap().iter().map(user_text).collect();
    // Each acknowledged append is stored once, in the order of its writer, and nothing else is.
    for n in 0..WRITER_COUNT {
        let own: Vec<_> = (0..APPENDS_PER_WRITER)
            .flat_map(|i| (0..=i % 3 / 2).map(move |k| format!("w{n} {i} {k}")))
            .collect();
        let found = entries.iter().filter(|text| text.starts_with(&format!("w{n} ")));
        assert!(found.eq(own.iter()), "of writer {n}");
    }
    let own: usize = (0..APPENDS_PER_WRITER).map(|n| 1 + n % 3 / 2).sum();
    assert_eq!(entries.len(), WRITER_COUNT * own);
    // The entries of one append are adjacent.
    for (at, text) in entries.iter().enumerate().filter(|(_, text)| text.ends_with(" 1")) {
        assert_eq!(entries[at - 1][..text.len() - 2], text[..text.len() - 2]);
    }
}

/// A writer prints the acknowledged versions, and is killed after a number of them; the next writer
/// continues.
pub fn a_killed_writer_loses_no_acknowledged_append(test: &str, open: OpenStore) {
    if let Some((_, folder)) = role_and_folder() {
        let store = open(&folder).unwrap();
        let mut version = block_on(store.load("s", 0)).unwrap().map_or(0, |e| e.len() as u64);
        loop {
            // Some appends of one entry, some of several, some large.
            let len = version % 4 + 1;
            let mut entries = numbered_entries(version..version + len);
            entries[0] = text_entry(&format!("{version}{}", " ".repeat(1 << (version % 16))));
            version = block_on(store.append("s", version, entries)).unwrap();
            eprintln!("{version}");
        }
    }
    let folder = TempFolder::new();
    let mut least = 0;
    for acknowledged in [0, 1, 2, 3, 5, 8, 13, 21] {
        let mut child = test_process_command(test, "killed", folder.path())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        for _ in 0..acknowledged {
            least = lines.next().unwrap().unwrap().parse().unwrap();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        // Versions that it printed before it was killed count as well.
        least = lines.map_while(Result::ok).filter_map(|n| n.parse().ok()).last().unwrap_or(least);

        let store = open(folder.path()).unwrap();
        let entries = block_on(store.load("s", 0)).unwrap().unwrap_or_default();
        assert!(entries.len() >= least, "{} of {least}", entries.len());
        for (n, entry) in entries.iter().enumerate() {
            assert_eq!(user_text(entry).trim_end(), n.to_string());
        }
    }
    assert!(least >= 53, "only {least} were written");
}

/// The total size of JSON Lines files in bytes.
#[cfg(unix)]
fn json_lines_bytes(folder: &Path) -> u64 {
    let files = fs::read_dir(folder).unwrap().map(Result::unwrap);
    let lines = files.filter(|file| file.path().extension().is_some_and(|end| end == "jsonl"));
    lines.map(|file| file.metadata().unwrap().len()).sum()
}

/// Runs in a process that may write no file beyond 512 KiB (1 MiB in some shells). A write then
/// fails as on a full disk: a part is written, and then no more.
#[cfg(unix)]
pub fn a_full_disk_loses_nothing_of_a_session(test: &str, open: OpenStore) {
    if let Some((_, folder)) = role_and_folder() {
        let store = open(&folder).unwrap();
        let version =
            block_on(store.append("s", 0, vec![text_entry("one"), text_entry("two")])).unwrap();
        let before = json_lines_bytes(&folder);
        for _ in 0..2 {
            let huge =
                vec![text_entry("three"), text_entry(&"x".repeat(2_000_000)), text_entry("four")];
            let error = block_on(store.append("s", version, huge.clone())).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Store, "{error}");
            assert!(format!("{error:#?}").contains("source: "), "{error:#?}");
            let loaded = block_on(store.load("s", 0)).unwrap().unwrap();
            assert_eq!(loaded, [text_entry("one"), text_entry("two")]);
            let error = block_on(store.append("new", 0, huge)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Store, "{error}");
            assert_eq!(block_on(store.load("new", 0)).unwrap(), None);
            // The incomplete append is removed.
            assert_eq!(json_lines_bytes(&folder), before);
        }
        // A small append fits.
        assert_eq!(block_on(store.append("s", version, vec![text_entry("three")])).unwrap(), 3);
        assert_eq!(block_on(store.append("new", 0, vec![text_entry("one")])).unwrap(), 1);
        return;
    }
    let folder = TempFolder::new();
    let child = test_process_command(test, "full", folder.path());
    let mut limited = Command::new("sh");
    limited.args(["-c", "trap '' XFSZ; ulimit -f 1024; exec \"$0\" \"$@\""]);
    limited.arg(child.get_program()).args(child.get_args());
    limited.envs(child.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let ran = limited.output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let store = open(folder.path()).unwrap();
    let expected = ["one", "two", "three"].map(text_entry);
    assert_eq!(block_on(store.load("s", 0)).unwrap().unwrap(), expected);
    assert_eq!(block_on(store.load("new", 0)).unwrap().unwrap(), [text_entry("one")]);
    for file in fs::read_dir(folder.path()).unwrap() {
        assert!(file.unwrap().metadata().unwrap().len() <= 1_048_576);
    }
}

/// A process takes a lease and is killed. Before that, no other process gets the lease, and
/// afterwards one gets it immediately.
pub fn the_lease_of_a_session_ends_with_its_process(test: &str, open: OpenStore) {
    if let Some((_, folder)) = role_and_folder() {
        let store = open(&folder).unwrap();
        let _lease = block_on(store.lease("s")).unwrap();
        eprintln!("taken");
        loop {
            std::thread::park();
        }
    }
    let folder = TempFolder::new();
    let store = open(folder.path()).unwrap();
    let mut last = 0;
    for version in 0..3 {
        let mut child = test_process_command(test, "holder", folder.path())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "taken");
        let error = block_on(store.lease("s")).unwrap_err();
        assert_eq!(error.find_source::<AlreadyLeased>().unwrap().id, "s");
        drop(block_on(store.lease("t")).unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
        let lease = block_on(store.lease("s")).unwrap();
        assert!(lease.epoch() > last + 1 || last == 0, "the child had one of its own");
        last = lease.epoch();
        // The file with the epoch exists for as long as the session does.
        block_on(store.append_leased(&lease, "s", version, vec![text_entry("one")])).unwrap();
    }
}

const SMALL_RACE: Race = Race { processes: 4, sessions: 6, runs: 40, kills: 4 };

/// Processes compete for sessions, and some are killed: no call starts twice, and none is settled
/// while it runs.
pub fn racing_processes_never_settle_a_running_session(test: &str, open: OpenStore) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let runtime = runtime.unwrap();
    if let Some(racer) = Racer::from_env() {
        let folder = env::var_os(FOLDER_ENV).unwrap();
        let store = open(Path::new(&folder)).unwrap();
        return runtime.block_on(racer.race(store, &SMALL_RACE));
    }
    let folder = TempFolder::new();
    let effects = folder.join("effects.txt");
    let variables = [(FOLDER_ENV, folder.path().to_str().unwrap())];
    let killed = SMALL_RACE.start(test, &effects, &variables);
    runtime.block_on(SMALL_RACE.check(&*open(folder.path()).unwrap(), &effects, &killed));
}
