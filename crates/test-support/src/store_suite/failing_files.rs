//! Stores whose file operations fail, one after the other. The test binary starts itself again,
//! with a library that makes file operations fail; see `failing_files.c`.

use std::path::Path;
use std::process::Command;
use std::{env, fs, iter};

use futures::executor::block_on;
use turnstream::session::{Conflict, Entry, Lease, Store};
use turnstream::{Error, ErrorKind};
use turnstream_testing::session_suite::{numbered_entries, text_entry};

use super::temp_store::OpenStore;
use crate::cases::sample_step;
use crate::temp_folder::TempFolder;

const CHILD_ENV: &str = "TURNSTREAM_FAILING_FILES";

/// Runs a test again, in a process whose file operations can fail. Returns whether this is that
/// process. `test` is the name of the test with its modules.
pub fn is_in_failing_process(test: &str) -> bool {
    if env::var_os(CHILD_ENV).is_some() {
        return true;
    }
    let folder = TempFolder::new();
    let library = folder.join("failing_files.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store_suite/failing_files.c");
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"])
        .args([&library, &source])
        .arg("-ldl")
        .status();
    assert!(compiled.expect("a C compiler").success());
    let output = Command::new(env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(CHILD_ENV, "1")
        .env("LD_PRELOAD", &library)
        .output()
        .unwrap();
    let report = String::from_utf8_lossy(&output.stdout);
    println!("{report}{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success());
    assert!(report.contains("1 passed"), "the test has another name");
    false
}

/// Sends a command to the library, and returns its answer.
fn control(command: &str) -> u64 {
    let answer = fs::read_link(Path::new("/failing-files").join(command)).expect("the library");
    answer.to_str().unwrap().parse().unwrap()
}

/// Which file operations fail.
#[derive(Clone, Copy, Debug)]
struct Plan {
    mode: &'static str,
    kinds: &'static str,
    /// The number of the first operation that fails.
    first: u64,
}

impl Plan {
    fn arm(self, folder: &Path) {
        let Self { mode, kinds, first } = self;
        control(&format!("arm/{mode}/{kinds}/{first}{}", folder.display()));
    }
}

/// The contents of a session. `None` if the session does not exist.
type Content = Option<Vec<Entry>>;

/// The contents that a session may have, according to the results of all operations.
struct Expected {
    id: &'static str,
    possible: Vec<Content>,
    /// The number of operations after which the content was unknown.
    unknown_outcomes: usize,
}

impl Expected {
    fn new(id: &'static str, content: Content) -> Self {
        Self { id, possible: vec![content], unknown_outcomes: 0 }
    }

    fn version(&self) -> u64 {
        self.possible[0].as_ref().map_or(0, |entries| entries.len() as u64)
    }

    /// Applies a change, or the claim of its error.
    fn apply<T>(
        &mut self,
        result: Result<T, Error>,
        change: impl Fn(&Content) -> Option<Content>,
    ) -> Option<T> {
        let changed: Vec<Content> = self.possible.iter().filter_map(change).collect();
        match result {
            Ok(value) => {
                assert!(!changed.is_empty(), "`{}` was changed in an impossible state", self.id);
                self.possible = changed;
                Some(value)
            }
            Err(error) if error.kind() == ErrorKind::OutcomeUnknown => {
                self.unknown_outcomes += 1;
                self.possible.extend(changed);
                None
            }
            // Nothing was written.
            Err(error) => {
                if let Some(Conflict { found, id, .. }) = error.find_source::<Conflict>()
                    && id == self.id
                {
                    let len = |content: &Content| content.as_ref().map_or(0, Vec::len) as u64;
                    self.possible.retain(|content| len(content) == *found);
                    assert!(!self.possible.is_empty(), "`{id}` never had version {found}");
                }
                None
            }
        }
    }

    fn append(&mut self, store: &dyn Store, lease: Option<&Lease>, entries: &[Entry]) -> bool {
        let version = self.version();
        let appended = block_on(match lease {
            Some(lease) => store.append_leased(lease, self.id, version, entries.to_vec()),
            None => store.append(self.id, version, entries.to_vec()),
        });
        let append = |content: &Content| {
            let old = content.clone().unwrap_or_default();
            (old.len() as u64 == version).then(|| Some([&old, entries].concat()))
        };
        self.apply(appended, append).is_some()
    }

    fn fork(&mut self, store: &dyn Store, origin: &str, entries: &[Entry]) {
        let forked = block_on(store.fork(origin, entries.len() as u64, self.id));
        self.apply(forked, |content| content.is_none().then(|| Some(entries.to_vec())));
    }

    fn delete(&mut self, store: &dyn Store) {
        let deleted = block_on(store.delete(self.id));
        self.apply(deleted, |_| Some(None));
    }

    /// Checks the entries that were loaded. From then on, the content is known.
    fn check_loaded(&mut self, loaded: &Content) {
        let content = self.possible.iter().position(|content| content == loaded);
        let Some(content) = content else {
            let lens = |content: &Content| content.as_ref().map(Vec::len);
            let possible: Vec<_> = self.possible.iter().map(lens).collect();
            panic!("`{}` has {:?} entries, not {possible:?}", self.id, lens(loaded));
        };
        self.possible = vec![self.possible.swap_remove(content)];
    }

    fn check(&mut self, store: &dyn Store) {
        self.check_loaded(&block_on(store.load(self.id, 0)).unwrap());
    }
}

fn check_list(store: &dyn Store, sessions: &[Expected]) {
    let listed = block_on(store.list()).unwrap();
    let mut listed: Vec<_> = listed
        .iter()
        .map(|info| {
            assert_eq!(info.read_error, None, "of `{}`", info.id);
            (info.id.as_str(), info.version)
        })
        .collect();
    listed.sort_unstable();
    let mut expected: Vec<_> = sessions
        .iter()
        .filter(|session| session.possible[0].is_some())
        .map(|session| (session.id, session.version()))
        .collect();
    expected.sort_unstable();
    assert_eq!(listed, expected);
}

/// Copies the files as they would be after the process was killed. SQLite's index of the log is in
/// memory only.
pub fn copy_files(from: &Path, to: &Path) {
    for file in fs::read_dir(from).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_file() && !name.ends_with("-shm") && path.extension() != Some("lock".as_ref()) {
            fs::copy(&path, to.join(name)).unwrap();
        }
    }
}

/// Performs operations on a store while file operations fail according to the plan. Then checks
/// each claim about the store's content: by this store, after a restart, and after a kill. Returns
/// the number of file operations, and how many operations on the store had an unknown outcome.
fn run_case(open: OpenStore, plan: Plan) -> (u64, usize) {
    let folder = TempFolder::new();
    let large = text_entry(&"large ".repeat(3000));
    let before = numbered_entries(0..2);
    {
        let store = open(folder.path()).unwrap();
        block_on(store.append("s", 0, before.clone())).unwrap();
        block_on(store.append("t", 0, before.clone())).unwrap();
        drop(block_on(store.lease("t")).unwrap());
    }
    let mut sessions = [
        Expected::new("s", Some(before.clone())),
        Expected::new("t", Some(before.clone())),
        Expected::new("n", None),
        Expected::new("f", None),
    ];
    plan.arm(folder.path());
    let mut opened = open(folder.path());
    if let Ok(store) = &opened {
        let store = &**store;
        let [s, t, n, f] = &mut sessions;
        let lease = block_on(store.lease("s")).ok();
        drop(block_on(store.lease("t")));
        s.append(store, lease.as_ref(), &[text_entry("a"), large.clone(), text_entry("b")]);
        n.append(store, None, &[text_entry("c"), text_entry("d")]);
        f.fork(store, "t", &before);
        f.append(store, None, &[text_entry("e")]);
        f.delete(store);
        t.delete(store);
        for session in [&mut *s, t, n, f] {
            if let Ok(loaded) = block_on(store.load(session.id, 0)) {
                session.check_loaded(&loaded);
            }
        }
        s.append(store, lease.as_ref(), &[text_entry("g"), text_entry("h")]);
        n.append(store, None, &[large]);
        drop(lease);
    }
    let count = control("count");
    end_failures();

    let killed = TempFolder::new();
    copy_files(folder.path(), killed.path());
    let store = open(killed.path()).unwrap();
    for session in &sessions {
        let mut session = Expected { possible: session.possible.clone(), ..*session };
        session.check(&*store);
    }
    drop(store);

    if opened.is_err() {
        opened = open(folder.path());
    }
    let store = opened.unwrap();
    for session in &mut sessions {
        session.check(&*store);
        assert!(
            session.append(&*store, None, &[text_entry("later")]),
            "`{}` is broken",
            session.id
        );
        session.check(&*store);
    }
    check_list(&*store, &sessions);
    for session in &sessions {
        drop(block_on(store.lease(session.id)).expect("the lease is free"));
    }
    drop(store);

    let store = open(folder.path()).unwrap();
    for session in &mut sessions {
        session.check(&*store);
    }
    check_list(&*store, &sessions);
    (count, sessions.iter().map(|session| session.unknown_outcomes).sum())
}

/// Fails each file operation in turn. `step` is the step of the sample: see [`sample_step`].
pub fn no_failing_file_operation_loses_or_splits_an_append_or_is_misreported(
    test: &str,
    open: OpenStore,
    step: usize,
) {
    if !is_in_failing_process(test) {
        return;
    }
    let modes = [
        ("once", "a"),
        ("from", "a"),
        // The disk is full.
        ("short", "w"),
        // A write that fails, or whose sync fails, cannot be undone.
        ("short", "wt"),
        ("short", "ws"),
        ("from", "st"),
        ("from", "t"),
        ("from", "s"),
        ("once", "s"),
    ];
    let (mut cases, mut unknown_outcomes) = (0, 0);
    for (at, (mode, kinds)) in modes.into_iter().enumerate() {
        // Few operations have one of these kinds.
        let step = if kinds == "a" { step } else { step.div_ceil(4) };
        let step = sample_step(step);
        for first in iter::successors(Some(at % step), |first| Some(first + step)) {
            let plan = Plan { mode, kinds, first: first as u64 };
            let (count, unknown) = std::panic::catch_unwind(|| run_case(open, plan))
                .unwrap_or_else(|_| panic!("with {plan:?}"));
            cases += 1;
            unknown_outcomes += unknown;
            if plan.first >= count {
                break;
            }
        }
    }
    println!("{cases} cases, {unknown_outcomes} operations with an unknown outcome");
    assert!(unknown_outcomes > 0, "no failure leaves the outcome unknown");
}

/// From now on, the files in a folder cannot be written to, until [`end_failures`].
pub fn make_read_only(folder: &Path) {
    Plan { mode: "readonly", kinds: "a", first: 0 }.arm(folder);
}

/// From now on, file operations succeed.
pub fn end_failures() {
    control("disarm");
}

/// Checks that a store whose file system has become read-only can be read, and that a write is
/// refused with the reason. Then checks that a write succeeds once the file system is writable.
pub fn a_store_on_a_read_only_file_system_is_read_and_writes_state_the_reason(
    test: &str,
    open: OpenStore,
) {
    if !is_in_failing_process(test) {
        return;
    }
    let folder = TempFolder::new();
    let entries = numbered_entries(0..3);
    block_on(open(folder.path()).unwrap().append("s", 0, entries.clone())).unwrap();
    make_read_only(folder.path());
    let store = open(folder.path()).unwrap();
    assert_eq!(block_on(store.load("s", 0)).unwrap(), Some(entries.clone()));
    assert_eq!(block_on(store.list()).unwrap().len(), 1);
    let refused = [
        block_on(store.append("s", 3, entries.clone())).unwrap_err(),
        block_on(store.append("new", 0, entries.clone())).unwrap_err(),
        block_on(store.lease("s")).unwrap_err(),
        block_on(store.fork("s", 1, "fork")).unwrap_err(),
        block_on(store.delete("s")).unwrap_err(),
    ];
    for error in refused {
        assert_eq!(error.kind(), ErrorKind::Store, "{error}");
        let message = error.message().to_ascii_lowercase();
        assert!(message.contains("read-only") || message.contains("readonly"), "{error}");
    }
    end_failures();
    assert_eq!(block_on(store.load("s", 0)).unwrap(), Some(entries.clone()));
    assert_eq!(block_on(store.append("s", 3, entries)).unwrap(), 6);
}
