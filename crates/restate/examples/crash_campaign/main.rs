//! Kills workers and servers during runs, and checks that nothing was lost or done twice.
//!
//! ```text
//! cargo run -p turnstream-restate --example crash_campaign -- --seed 1
//! cargo run -p turnstream-restate --example crash_campaign -- --seed 1 --server-kills 20
//! cargo run -p turnstream-restate --example crash_campaign -- --seed 1 --nodes 3
//! ```
//!
//! It starts a Restate server and two worker processes that share a port, has clients perform runs
//! in sessions, and kills the processes with SIGKILL. The models are scripted. Models and tools
//! write each step to a log, which is compared with the sessions' histories and the times of the
//! kills at the end.
//!
//! | module | contents |
//! |---|---|
//! | `log` | the log of steps |
//! | `task` | the task of a run, and the model's script |
//! | `agents` | models, tools and a compactor that write to the log |
//! | `worker` | worker processes |
//! | `servers` | one server or a cluster |
//! | `connection` | requests that are sent again until a server answers |
//! | `session` | the client of one session |
//! | `killer` | the kills and their times |
//! | `steps` | the log by steps, and which steps ran twice |
//! | `report` | the checks and their counts |
//! | `campaign` | a whole campaign |

mod agents;
mod campaign;
mod connection;
mod killer;
mod log;
mod report;
mod servers;
mod session;
mod steps;
#[path = "../../tests/support/mod.rs"]
mod support;
mod task;
mod worker;

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};

use tokio::signal::unix::{SignalKind, signal};

use campaign::Campaign;
use killer::KillPlan;
use servers::Servers;
use support::RestateServer;
use worker::WorkerSettings;

const HELP: &str = "\
crash_campaign [--seed S] [--runs N] [--server-kills N] [--nodes N] [--keep]

    --seed S          the seed of the random numbers (1)
    --runs N          the number of runs (200)
    --server-kills N  how many times the server is killed (0)
    --nodes N         the number of nodes (1). With several nodes, each write is stored on two, and
                      only one node and one worker are killed, when half of the runs have finished
    --keep            keeps the logs and the entries; without it, they are kept only if there is a
                      violation

The server is the program that TURNSTREAM_RESTATE_SERVER names, or the one that
crates/restate/tests/install.sh installs. Exit code: 0 without violations, 1 with one, 2 for bad usage.
";

/// The hidden subcommand of worker processes.
const WORKER: &str = "worker";

struct Options {
    seed: u64,
    runs: usize,
    server_kills: usize,
    nodes: usize,
    keeps_files: bool,
}

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1).peekable();
    if words.next_if(|word| word == WORKER).is_some() {
        WorkerSettings::from_words(words).expect("the arguments of a worker").serve();
        return ExitCode::SUCCESS;
    }
    match parse_options(words) {
        Ok(Some(options)) => run(options),
        Ok(None) => {
            print!("{HELP}");
            ExitCode::SUCCESS
        }
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::from(2)
        }
    }
}

/// `None` if help is requested.
fn parse_options(mut words: impl Iterator<Item = String>) -> Result<Option<Options>, String> {
    let mut options = Options { seed: 1, runs: 200, server_kills: 0, nodes: 1, keeps_files: false };
    while let Some(word) = words.next() {
        let mut number = || {
            let value = words.next().and_then(|value| value.parse::<u32>().ok());
            value.ok_or_else(|| format!("`{word}` needs a number"))
        };
        match &*word {
            "--help" => return Ok(None),
            "--seed" => options.seed = number()?.into(),
            "--runs" => options.runs = number()? as usize,
            "--server-kills" => options.server_kills = number()? as usize,
            "--nodes" => options.nodes = number()? as usize,
            "--keep" => options.keeps_files = true,
            _ => return Err(format!("there is no flag `{word}`; see --help")),
        }
    }
    match (options.nodes, options.server_kills) {
        (0, _) => Err("`--nodes` needs at least 1".to_owned()),
        (2.., 1..) => Err("`--server-kills` needs a single node".to_owned()),
        _ => Ok(Some(options)),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn run(options: Options) -> ExitCode {
    if RestateServer::binary().is_none() {
        return install_and_run_again();
    }
    let mut terminated = signal(SignalKind::terminate()).expect("signals can be handled");
    // Dropping the campaign kills all processes.
    let campaign = Box::pin(perform(options));
    let report = tokio::select! {
        report = campaign => report,
        _ = tokio::signal::ctrl_c() => return ExitCode::from(130),
        _ = terminated.recv() => return ExitCode::from(143),
    };
    println!("{report}");
    ExitCode::from(u8::from(!report.violations.is_empty()))
}

async fn perform(options: Options) -> report::Report {
    let Options { seed, runs, server_kills, nodes, keeps_files } = options;
    let kills = match nodes {
        1 => KillPlan::Repeatedly { server_kills },
        _ => KillPlan::OneNodeAndWorker,
    };
    let mut servers = Servers::start(nodes).await;
    Campaign { seed, runs, kills, keeps_files, worker_command }.run(&mut servers).await
}

fn worker_command(settings: &WorkerSettings) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
    command.arg(WORKER).args(settings.to_words());
    command
}

/// Replaces this process by one that knows the installed server.
fn install_and_run_again() -> ExitCode {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/install.sh");
    let installed = Command::new(script).stderr(Stdio::inherit()).output();
    let output = match installed {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).into_owned()
        }
        _ => return ExitCode::FAILURE,
    };
    let server = output.lines().last().unwrap_or_default();
    let program = std::env::current_exe().expect("this program has a path");
    let error = Command::new(program)
        .args(std::env::args_os().skip(1))
        .env("TURNSTREAM_RESTATE_SERVER", server)
        .exec();
    eprintln!("error: {error}");
    ExitCode::FAILURE
}
