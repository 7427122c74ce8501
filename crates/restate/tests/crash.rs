//! Runs whose workers and servers are killed with SIGKILL: a few campaigns of
//! `examples/crash_campaign`.

#[path = "../examples/crash_campaign/agents.rs"]
mod agents;
#[path = "../examples/crash_campaign/campaign.rs"]
mod campaign;
#[path = "../examples/crash_campaign/connection.rs"]
mod connection;
#[path = "../examples/crash_campaign/killer.rs"]
mod killer;
#[path = "../examples/crash_campaign/log.rs"]
mod log;
#[path = "../examples/crash_campaign/report.rs"]
mod report;
#[path = "../examples/crash_campaign/servers.rs"]
mod servers;
#[path = "../examples/crash_campaign/session.rs"]
mod session;
#[path = "../examples/crash_campaign/steps.rs"]
mod steps;
mod support;
#[path = "../examples/crash_campaign/task.rs"]
mod task;
#[path = "../examples/crash_campaign/worker.rs"]
mod worker;

use std::process::Command;

use tokio::sync::Mutex;
use turnstream_test_support::cases;

use campaign::Campaign;
use killer::KillPlan;
use servers::Servers;
use worker::WorkerSettings;

/// The variable that makes this program a worker process: a worker's arguments, one per line.
const WORKER_VARIABLE: &str = "TURNSTREAM_CRASH_WORKER";

/// Locked by the running test, since each test keeps a machine with two cores busy.
static BUSY: Mutex<()> = Mutex::const_new(());

async fn check(seed: u64, runs: usize, kills: KillPlan, servers: &mut Servers) {
    let campaign = Campaign { seed, runs, kills, keeps_files: false, worker_command };
    let report = campaign.run(servers).await;
    assert!(report.violations.is_empty(), "seed {seed}:\n{report}");
}

/// The command of a worker process: this program, which runs [`a_worker_process`].
fn worker_command(settings: &WorkerSettings) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
    command.args(["--exact", "a_worker_process", "--nocapture"]);
    command.env(WORKER_VARIABLE, settings.to_words().join("\n"));
    command
}

/// The process that [`worker_command`] starts. Without its variable, it does nothing.
#[test]
fn a_worker_process() {
    let Ok(words) = std::env::var(WORKER_VARIABLE) else { return };
    let settings = WorkerSettings::from_words(words.lines().map(str::to_owned));
    settings.expect("the arguments of a worker").serve();
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn runs_with_killed_workers_lose_nothing_and_repeat_nothing() {
    let _busy = BUSY.lock().await;
    let mut servers = Servers::start(1).await;
    for seed in (1..=20).step_by(cases::sample_step(5)) {
        check(seed, 16, KillPlan::Repeatedly { server_kills: 0 }, &mut servers).await;
    }
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn runs_with_killed_workers_and_servers_lose_nothing_and_repeat_nothing() {
    let _busy = BUSY.lock().await;
    let mut servers = Servers::start(1).await;
    check(1, 40, KillPlan::Repeatedly { server_kills: 3 }, &mut servers).await;
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn runs_finish_without_one_of_three_nodes_and_one_of_two_workers() {
    let _busy = BUSY.lock().await;
    let mut servers = Servers::start(3).await;
    check(1, 60, KillPlan::OneNodeAndWorker, &mut servers).await;
}
