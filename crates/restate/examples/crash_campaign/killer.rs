//! Kills processes at random moments, and records the times.

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::sleep;
use turnstream_test_support::seeded_random::Dice;

use crate::agents::random_millis;
use crate::log::{Log, now};
use crate::servers::Servers;
use crate::worker::{WORKERS, WorkerKill, WorkerProcesses};

/// The bounds of the time between two kills of workers, in milliseconds.
const MIN_PAUSE_MILLIS: u64 = 60;
const MAX_PAUSE_MILLIS: u64 = 450;
/// Before the next kill, the restarted workers must log something, so that a slow machine makes
/// progress between two kills. After this time the kill takes place anyway.
const MAX_PROGRESS_WAIT: Duration = Duration::from_secs(10);
const PROGRESS_POLL_INTERVAL: Duration = Duration::from_millis(10);
/// The maximum delay before a killed process is restarted.
const MAX_RESTART_DELAY_MILLIS: u64 = 150;
/// One in this number of kills hits all workers.
const ALL_WORKERS_ONE_IN: u64 = 4;

/// The kill of a process. Times are in microseconds since the Unix epoch.
pub(crate) struct Kill {
    pub(crate) target: KillTarget,
    pub(crate) from: u64,
    /// When the process was dead. For a server that is restarted: when it was started, since until
    /// then workers may start requests that the dead server had sent them.
    pub(crate) to: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KillTarget {
    /// The worker process with this id.
    Worker(u32),
    Server,
}

/// The processes that are killed, and the schedule.
#[derive(Clone, Copy)]
pub(crate) enum KillPlan {
    /// Workers all the time, and the server `server_kills` times. All are restarted.
    Repeatedly { server_kills: usize },
    /// One node and one worker when half of the runs have finished. They are not restarted.
    OneNodeAndWorker,
}

pub(crate) struct Killer<'a> {
    pub(crate) servers: &'a mut Servers,
    pub(crate) workers: WorkerProcesses,
    /// The folder that contains the log of steps.
    pub(crate) folder: PathBuf,
    pub(crate) dice: Arc<Dice>,
    pub(crate) kills: Vec<Kill>,
    pub(crate) violations: Vec<String>,
}

impl Killer<'_> {
    /// Kills until all runs have finished.
    pub(crate) async fn run(&mut self, plan: KillPlan, runs: usize, finished: &Cell<usize>) {
        match plan {
            KillPlan::Repeatedly { server_kills } => {
                let mut killed = 0;
                while finished.get() < runs {
                    // Spreads the server kills evenly over the runs.
                    if killed < server_kills && finished.get() * server_kills >= killed * runs {
                        killed += 1;
                        self.kill_server().await;
                    }
                    self.kill_workers().await;
                    self.wait_for_progress(runs, finished).await;
                }
            }
            KillPlan::OneNodeAndWorker => {
                while finished.get() * 2 < runs {
                    sleep(Duration::from_millis(5)).await;
                }
                sleep(random_millis(&self.dice, MAX_PAUSE_MILLIS)).await;
                let node = self.draw_index(self.servers.ingress_urls().len());
                self.note_server_kill(node);
                let worker = self.draw_index(WORKERS);
                self.kill_worker(worker);
            }
        }
    }

    async fn kill_server(&mut self) {
        sleep(random_millis(&self.dice, MAX_PAUSE_MILLIS)).await;
        self.note_server_kill(0);
        sleep(random_millis(&self.dice, MAX_RESTART_DELAY_MILLIS)).await;
        if let Some(kill) = self.kills.last_mut() {
            kill.to = now();
        }
        self.servers.restart(0).await;
    }

    fn note_server_kill(&mut self, node: usize) {
        let from = now();
        self.servers.kill(node);
        self.kills.push(Kill { target: KillTarget::Server, from, to: now() });
    }

    async fn kill_workers(&mut self) {
        let pause = random_millis(&self.dice, MAX_PAUSE_MILLIS - MIN_PAUSE_MILLIS);
        sleep(Duration::from_millis(MIN_PAUSE_MILLIS) + pause).await;
        let index = self.draw_index(WORKERS);
        let is_all = self.dice.roll(ALL_WORKERS_ONE_IN) == 0;
        let indexes: Vec<usize> = (0..WORKERS).filter(|other| is_all || *other == index).collect();
        for index in &indexes {
            self.kill_worker(*index);
        }
        sleep(random_millis(&self.dice, MAX_RESTART_DELAY_MILLIS)).await;
        for index in indexes {
            if let Err(error) = self.workers.restart(index) {
                self.violations.push(format!("a worker cannot be started: {error}"));
            }
        }
    }

    /// Waits until a step has begun or ended since the workers were restarted.
    async fn wait_for_progress(&self, runs: usize, finished: &Cell<usize>) {
        let (start, len) = (Instant::now(), Log::len(&self.folder));
        while Log::len(&self.folder) == len
            && finished.get() < runs
            && start.elapsed() < MAX_PROGRESS_WAIT
        {
            sleep(PROGRESS_POLL_INTERVAL).await;
        }
    }

    fn kill_worker(&mut self, index: usize) {
        let Some(WorkerKill { pid, from, to, ended }) = self.workers.kill(index) else { return };
        if let Some(status) = ended {
            self.violations
                .push(format!("the worker process {pid} has ended on its own: {status}"));
        }
        self.kills.push(Kill { target: KillTarget::Worker(pid), from, to });
    }

    fn draw_index(&self, len: usize) -> usize {
        usize::try_from(self.dice.roll(len as u64)).expect("an index")
    }
}
