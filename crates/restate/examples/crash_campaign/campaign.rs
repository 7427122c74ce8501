//! A campaign: many runs, while their servers and workers are killed.

use std::cell::Cell;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use futures::StreamExt;
use futures::future::join;
use futures::stream;
use turnstream_test_support::seeded_random::Dice;

use crate::connection::Connection;
use crate::killer::{Kill, KillPlan, Killer};
use crate::log::Log;
use crate::report::{Report, StepLosses};
use crate::servers::Servers;
use crate::session::{SessionClient, SessionTraces};
use crate::steps::StepLog;
use crate::support::TempDir;
use crate::worker::{WorkerProcesses, WorkerSettings};

/// The number of runs in a session.
const RUNS_PER_SESSION: usize = 5;
/// The number of concurrent sessions.
const CONCURRENT_SESSIONS: usize = 8;

pub(crate) struct Campaign {
    pub(crate) seed: u64,
    pub(crate) runs: usize,
    pub(crate) kills: KillPlan,
    /// Keep the logs and the entries even without a violation.
    pub(crate) keeps_files: bool,
    /// Builds the command of a worker process.
    pub(crate) worker_command: fn(&WorkerSettings) -> Command,
}

impl Campaign {
    pub(crate) async fn run(&self, servers: &mut Servers) -> Report {
        let folder = TempDir::new();
        let path = folder.path().to_owned();
        let workers = WorkerProcesses::start(self.worker_command, path.clone(), self.seed)
            .expect("workers can be started");
        servers.register(&workers.url()).await;
        let urls = servers.ingress_urls();
        let mut killer = Killer {
            servers,
            workers,
            folder: path.clone(),
            dice: Dice::new(self.seed.wrapping_add(1)),
            kills: Vec::new(),
            violations: Vec::new(),
        };
        let finished = Cell::new(0);
        let sessions = self.perform_runs(&urls, &finished);
        let (sessions, ()) = join(sessions, killer.run(self.kills, self.runs, &finished)).await;
        let Killer { kills, violations, servers, workers, .. } = killer;
        drop(workers);

        let steps = StepLog::new(Log::read(&path).expect("the log can be read"));
        let losses = match self.kills {
            KillPlan::Repeatedly { .. } => StepLosses::ByKills,
            KillPlan::OneNodeAndWorker => StepLosses::ByElections,
        };
        let mut report = Report::new(self.seed, self.runs, &sessions, &steps, &kills, losses);
        let of_seed = |what: String| format!("seed {}: {what}", self.seed);
        report.violations.extend(violations.into_iter().map(of_seed));
        if self.keeps_files || !report.violations.is_empty() {
            let copied = self.keep_files(&path, &sessions, &kills, &servers.logs());
            println!("files {}", copied.expect("files can be copied").display());
        }
        report
    }

    async fn perform_runs(&self, urls: &[String], finished: &Cell<usize>) -> Vec<SessionTraces> {
        let on_finished = || finished.set(finished.get() + 1);
        let sessions = self.runs.div_ceil(RUNS_PER_SESSION);
        let runs_of = |index: usize| RUNS_PER_SESSION.min(self.runs - index * RUNS_PER_SESSION);
        stream::iter(0..sessions)
            .map(|index| {
                let connection = Connection::new(urls, index).expect("a server has a URL");
                let id = format!("seed-{}-session-{index}", self.seed);
                let dice = Dice::new((self.seed ^ (index as u64 + 1) << 32).wrapping_add(1));
                SessionClient::new(id, connection, dice, &on_finished).perform(runs_of(index))
            })
            .buffer_unordered(CONCURRENT_SESSIONS)
            .collect()
            .await
    }

    /// Copies the files that explain a violation into a folder that is not removed.
    fn keep_files(
        &self,
        from: &Path,
        sessions: &[SessionTraces],
        kills: &[Kill],
        server_log: &str,
    ) -> io::Result<PathBuf> {
        let name = format!("turnstream-crash-{}-{}", std::process::id(), self.seed);
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder)?;
        for file in fs::read_dir(from)? {
            let file = file?;
            fs::copy(file.path(), folder.join(file.file_name()))?;
        }
        for session in sessions {
            let lines =
                session.entries.iter().filter_map(|entry| serde_json::to_string(entry).ok());
            let lines: Vec<String> = lines.collect();
            fs::write(folder.join(format!("{}.jsonl", session.id)), lines.join("\n"))?;
        }
        let mut text = String::new();
        for Kill { target, from, to } in kills {
            let _ = writeln!(text, "{from} {to} {target:?}");
        }
        fs::write(folder.join("kills.log"), text)?;
        fs::write(folder.join("servers.log"), server_log)?;
        Ok(folder)
    }
}
