//! The example `fleet` of the package `turnstream-restate`, as a tree of processes.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use turnstream_test_support::ports::unassigned_port;

use crate::model::Model;
use crate::server::{create_folder, request};

/// How long a test waits for the fleet.
const LIMIT: Duration = Duration::from_mins(1);

/// The worker processes, by their names.
pub(crate) const WORKERS: [&str; 2] = ["Worker 1", "Worker 2"];
pub(crate) const RESTATE: &str = "Restate";
pub(crate) const REDIS: &str = "Redis";
pub(crate) const FRONT_END: &str = "The front end";

/// A supervisor with all processes that it has started. Dropping it ends them.
pub(crate) struct Fleet {
    supervisor: Child,
    pub(crate) folder: PathBuf,
    pub(crate) port: u16,
    /// The lines that were printed.
    lines: Arc<Mutex<Vec<String>>>,
}

impl Fleet {
    /// Starts a fleet with a model that the test controls, and further flags.
    pub(crate) async fn start(model: &Model, flags: &[&str]) -> Self {
        let variables = [("OPENAI_BASE_URL", model.url()), ("OPENAI_API_KEY", "key".to_owned())];
        let flags = [&["--model", "openai:m"], flags].concat();
        Self::start_in(create_folder("fleet"), &flags, variables).await
    }

    /// Starts a fleet with these flags and variables, in a folder.
    pub(crate) async fn start_in(
        folder: PathBuf,
        flags: &[&str],
        variables: impl IntoIterator<Item = (&'static str, String)>,
    ) -> Self {
        let port = unassigned_port();
        let program = std::env::var_os("TURNSTREAM_FLEET").expect("run.sh sets TURNSTREAM_FLEET");
        let mut supervisor = Command::new(program)
            .args(["--port", &port.to_string()])
            .args(flags)
            .current_dir(&folder)
            .env_remove("TURNSTREAM_WEB_TOKEN")
            .envs(variables)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut printed = BufReader::new(supervisor.stdout.take().unwrap()).lines();
        let lines: Arc<Mutex<Vec<String>>> = Arc::default();
        let kept = Arc::clone(&lines);
        tokio::spawn(async move {
            while let Ok(Some(line)) = printed.next_line().await {
                kept.lock().unwrap().push(line);
            }
        });
        let fleet = Self { supervisor, folder, port, lines };
        fleet
            .wait_for("the fleet is there", |lines| lines.iter().any(|it| it.contains("Ctrl-C")))
            .await;
        fleet
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Value {
        request(self.port, "POST", path, &body.to_string()).await
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        request(self.port, "GET", path, "").await
    }

    /// The name and the process id of the worker that sent the last model request for a session.
    pub(crate) fn worker_of(&self, session: &str) -> (String, u32) {
        let end = format!(") asks the model for session {session}.");
        let lines = self.lines.lock().unwrap();
        let line = lines.iter().rev().find_map(|line| line.strip_suffix(&end));
        let (name, process) = line.expect("a worker has asked").split_once(" (process ").unwrap();
        (name.to_owned(), process.parse().unwrap())
    }

    /// Kills processes with SIGKILL, and returns without waiting for their replacements.
    pub(crate) fn kill(&self, names: &[&str]) {
        for name in names {
            let process = i32::try_from(self.process(name)).unwrap();
            kill_process(Pid::from_raw(process).unwrap(), Signal::KILL).unwrap();
        }
    }

    /// Kills processes with SIGKILL, and waits for their replacements.
    pub(crate) async fn kill_and_wait(&self, names: &[&str]) {
        let killed: Vec<(&str, u32)> =
            names.iter().map(|name| (*name, self.process(name))).collect();
        self.kill(names);
        self.wait_for("all processes are there again", |lines| {
            killed.iter().all(|(name, process)| find_process(lines, name) != Some(*process))
        })
        .await;
        // The front end listens first, and answers once it has connected to the other processes.
        let answers = async {
            while tokio::net::TcpStream::connect(("127.0.0.1", self.port)).await.is_err() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            self.get("/health").await
        };
        tokio::time::timeout(LIMIT, answers).await.expect("the front end answers");
    }

    fn process(&self, name: &str) -> u32 {
        find_process(&self.lines.lock().unwrap(), name).unwrap_or_else(|| panic!("no {name}"))
    }

    async fn wait_for(&self, what: &str, is_so: impl Fn(&[String]) -> bool) {
        let waited = async {
            while !is_so(&self.lines.lock().unwrap()) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let is_in_time = tokio::time::timeout(LIMIT, waited).await.is_ok();
        assert!(is_in_time, "not so: {what}\n{}", self.lines.lock().unwrap().join("\n"));
    }
}

/// The last process with this name.
fn find_process(lines: &[String], name: &str) -> Option<u32> {
    let start = format!("{name} is process ");
    let line = lines.iter().rev().find_map(|line| line.strip_prefix(&start))?;
    line.trim_end_matches('.').parse().ok()
}

impl Drop for Fleet {
    fn drop(&mut self) {
        // Sends the signal of Ctrl-C, on which the supervisor ends the other processes first.
        if let Some(pid) =
            self.supervisor.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?))
        {
            let _ = kill_process(pid, Signal::INT);
        }
        for _ in 0..400 {
            if !matches!(self.supervisor.try_wait(), Ok(None)) {
                break;
            }
            std::thread::sleep(Duration::from_millis(25));
        }
        if std::thread::panicking() {
            eprintln!("---- the fleet ----\n{}", self.lines.lock().unwrap().join("\n"));
        }
        if self.folder.starts_with(env!("CARGO_TARGET_TMPDIR")) {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}
