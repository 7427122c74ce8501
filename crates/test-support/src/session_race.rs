//! Processes that compete for the same sessions. Each runs an agent wherever it obtains the lease,
//! and some are killed.
//!
//! The test binary starts itself again; [`Race::check`] checks the sessions and the log that all
//! processes have left.

use std::collections::{HashMap, HashSet};
use std::env;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use futures::StreamExt;
use serde_json::json;
use turnstream::provider::{Reply, Scripted};
use turnstream::session::{
    AlreadyLeased, Entry, LeaseLost, Session, SessionState, Store, restore_history,
};
use turnstream::tool::{Tool, ToolSpec};
use turnstream::{Agent, Error};

const SEED_ENV: &str = "TURNSTREAM_RACE_SEED";
const FILE_ENV: &str = "TURNSTREAM_RACE_FILE";

/// The size of a race.
pub struct Race {
    /// The number of processes.
    pub processes: usize,
    /// The number of sessions for which they compete.
    pub sessions: u64,
    /// The number of runs that each process starts.
    pub runs: usize,
    /// The number of processes that are killed and restarted.
    pub kills: usize,
}

/// The settings of a process that [`Race::start`] started; `None` in the test itself.
pub struct Racer {
    seed: u64,
    file: PathBuf,
}

impl Racer {
    /// Reads the settings from the environment.
    pub fn from_env() -> Option<Self> {
        let seed = env::var(SEED_ENV).ok()?.parse().ok()?;
        Some(Self { seed, file: env::var_os(FILE_ENV)?.into() })
    }

    /// Runs sessions until it has started its number of runs.
    pub async fn race(self, store: impl Store + Clone + 'static, race: &Race) {
        let file = OpenOptions::new().create(true).append(true).open(&self.file).unwrap();
        let file = std::sync::Arc::new(file);
        let mut dice = self.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut roll = move |sides: u64| {
            dice ^= dice << 13;
            dice ^= dice >> 7;
            dice ^= dice << 17;
            (dice >> 11) % sides
        };
        let mut begun = 0;
        while begun < race.runs {
            let id = format!("s{}", roll(race.sessions));
            let session = Session::open(store.clone(), id).await.unwrap();
            let name = format!("{}.{begun}", std::process::id());
            let agent = agent(&file, &name);
            let run = match session.state() {
                SessionState::Unfinished { .. } => session.resume(&agent, []).await,
                _ => session.run(&agent, "Go on").await,
            };
            let mut run = match run {
                Ok(run) => run,
                Err(error) if is_someone_elses(&error) => {
                    tokio::task::yield_now().await;
                    continue;
                }
                Err(error) => panic!("{error}"),
            };
            begun += 1;
            // Half of the runs are dropped before they end.
            let mut left = if roll(2) == 0 { 8 + roll(8) } else { u64::MAX };
            while left > 0
                && let Some(event) = run.next().await
            {
                event.unwrap();
                left -= 1;
            }
            if left == 0 {
                write(&file, &format!("dropped {name}"));
            }
        }
    }
}

/// Whether another run has the lease, or has written since this session was opened and found
/// unfinished.
fn is_someone_elses(error: &Error) -> bool {
    error.find_source::<AlreadyLeased>().is_some()
        || error.find_source::<LeaseLost>().is_some()
        || error.message() == "there is nothing to resume"
}

/// Writes one line to the file, to which many processes write.
fn write(mut file: &fs::File, line: &str) {
    file.write_all(format!("{line}\n").as_bytes()).unwrap();
}

/// An agent that calls a tool twice in a turn; each call writes a line with the run that it belongs
/// to.
fn agent(file: &std::sync::Arc<fs::File>, name: &str) -> Agent {
    let model = Scripted::from_fn(|request, _| {
        let is_asked =
            request.history.newest_first().next().is_some_and(|item| item.as_user().is_some());
        let at = request.history.len();
        match is_asked {
            true => Reply::new().call_raw(&format!("c{at}"), "work", "{}").call_raw(
                &format!("d{at}"),
                "work",
                "{}",
            ),
            false => Reply::text("Done."),
        }
    });
    let (file, name) = (std::sync::Arc::clone(file), name.to_owned());
    let spec = ToolSpec::new("work", "Works", json!({ "type": "object" }));
    let tool = Tool::raw(spec, move |_, cx| {
        let (file, name) = (std::sync::Arc::clone(&file), name.clone());
        async move {
            write(&file, &format!("begun {name} {}", cx.idempotency_key()));
            // The second call is still running when the first one has finished.
            let steps = if cx.call_id().starts_with('c') { 5 } else { 40 };
            for _ in 0..steps {
                tokio::task::yield_now().await;
            }
            "worked"
        }
    });
    Agent::new(model).with_tools([tool.unwrap()])
}

impl Race {
    /// Starts the processes, each of which runs this test again, and waits for all of them.
    pub fn start(&self, test: &str, file: &Path, variables: &[(&str, &str)]) -> Vec<u32> {
        let start = |seed: usize| -> Child {
            let mut command = Command::new(env::current_exe().unwrap());
            command.args([test, "--exact", "--nocapture", "--include-ignored"]);
            command.env(SEED_ENV, seed.to_string()).env(FILE_ENV, file);
            command.envs(variables.iter().copied()).stdout(Stdio::null());
            command.spawn().unwrap()
        };
        let mut killed = Vec::new();
        let mut children: Vec<Child> = (1..=self.processes).map(start).collect();
        while killed.len() < self.kills {
            // Waits until more work was done since the last kill.
            let lines = || fs::read_to_string(file).unwrap_or_default().lines().count();
            let wanted = (killed.len() + 1) * self.processes * self.runs / (self.kills + 1);
            while lines() < wanted {
                let ended = children.iter_mut().filter_map(|child| child.try_wait().unwrap());
                ended.for_each(|status| assert!(status.success(), "{status}"));
                std::thread::yield_now();
            }
            let at = killed.len() % self.processes;
            children[at].kill().unwrap();
            children[at].wait().unwrap();
            killed.push(children[at].id());
            children[at] = start(self.processes + killed.len());
        }
        for child in &mut children {
            assert!(child.wait().unwrap().success());
        }
        killed
    }

    /// Checks all sessions: no call ran twice, and no call was settled while a process was running
    /// it.
    pub async fn check(&self, store: &dyn Store, file: &Path, killed: &[u32]) {
        let text = fs::read_to_string(file).unwrap();
        let (mut runs, mut dropped) = (HashMap::new(), HashSet::new());
        for line in text.lines() {
            let parts: Vec<&str> = line.split(' ').collect();
            match parts[..] {
                ["begun", run, key] => {
                    assert!(runs.insert(key, run).is_none(), "{key} began twice");
                }
                ["dropped", run] => drop(dropped.insert(run)),
                _ => panic!("{line}"),
            }
        }
        assert!(runs.len() > self.processes * self.runs, "{} calls", runs.len());
        let is_over = |run: &str| {
            let process = run.split('.').next().unwrap();
            dropped.contains(run) || killed.iter().any(|pid| pid.to_string() == process)
        };
        let (mut finished, mut settled) = (0, 0);
        for session in 0..self.sessions {
            let id = format!("s{session}");
            let entries = store.load(&id, 0).await.unwrap().unwrap_or_default();
            assert!(restore_history(&*id, entries.clone()).settled().is_settled());
            let mut results = HashSet::new();
            for entry in &entries {
                let Entry::Item(item) = entry else { continue };
                let Some(result) = item.as_tool_result() else { continue };
                let key = format!("{id}/{}", result.call_id);
                assert!(results.insert(key.clone()), "two results for {key}");
                let Some(run) = runs.get(&*key) else { continue };
                if result.content.text() == "worked" {
                    finished += 1;
                } else {
                    settled += 1;
                    assert!(is_over(run), "{key} of {run} was settled while it ran: {item:?}");
                }
            }
            let calls = entries.iter().filter_map(|entry| match entry {
                Entry::Item(item) => item.as_tool_call(),
                _ => None,
            });
            let mut ids = HashSet::new();
            calls.for_each(|call| assert!(ids.insert(call.call_id.clone()), "{call:?} twice"));
        }
        println!(
            "race: {} processes, {} sessions, {} kills: {} calls began, {finished} finished, {settled} settled after their run",
            self.processes,
            self.sessions,
            killed.len(),
            runs.len()
        );
        assert!(finished > 0 && settled > 0);
    }
}
