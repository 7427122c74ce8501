//! A worker: performs the jobs of a folder, several at a time, and ends cleanly on SIGTERM or
//! Ctrl-C.
//!
//! ```text
//! cargo run --example worker
//! ANTHROPIC_API_KEY=… cargo run --example worker -- --folder jobs --at-once 8 --grace 20
//! ```
//!
//! Each file `jobs/NAME.txt` in the folder is a job, and `sessions` has one session per job. The
//! state of its session is the state of the job: a job without a session has not been started, and
//! an unfinished session is continued. After the first signal, no job and no further turn is
//! started. Runs that are still in a turn at the end of the grace period are dropped. The next
//! start continues them. A second signal ends the program immediately, which loses nothing either.

use std::future::ready;
use std::path::PathBuf;
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use futures::{FutureExt, StreamExt, stream};
use serde_json::json;
use tokio::sync::watch;
use turnstream::event::EndReason;
use turnstream::provider::{self, Provider, Reply, Scripted};
use turnstream::session::{JsonLinesStore, Session, SessionState};
use turnstream::{Agent, Error, ErrorKind, Item, Tool};

/// The phases of the worker, in their order.
#[derive(Clone, Copy, PartialEq)]
enum Phase {
    Working,
    /// Started turns are completed, with their tools.
    Draining,
    /// Runs are dropped.
    Stopping,
}

struct Job {
    name: String,
    prompt: String,
}

enum JobEnd {
    Done(String),
    /// The next start of the worker continues the job.
    Left,
}

async fn perform(
    job: &Job,
    agent: &Agent,
    store: &JsonLinesStore,
    mut phase: watch::Receiver<Phase>,
) -> Result<JobEnd, Error> {
    let session = Session::open(store.clone(), &*job.name).await?;
    let run = match session.state() {
        SessionState::Idle if session.version() == 0 => session.run(agent, &*job.prompt).await?,
        SessionState::Idle => return Ok(JobEnd::Done("done by an earlier start".to_owned())),
        SessionState::Unfinished { .. } => session.resume(agent, []).await?,
        SessionState::Pending { .. } => return Ok(JobEnd::Left), // A call waits for an approval.
    };
    let handle = run.handle();
    let mut outcome = pin!(run.outcome());
    loop {
        tokio::select! {
            outcome = &mut outcome => {
                let outcome = outcome?;
                return match outcome.reason {
                    EndReason::Stopped | EndReason::Pending => Ok(JobEnd::Left),
                    _ => outcome.into_result().map(|outcome| JobEnd::Done(outcome.text)),
                };
            }
            Ok(()) = phase.changed() => match *phase.borrow_and_update() {
                Phase::Working => {}
                Phase::Draining => handle.stop_after_turn(),
                Phase::Stopping => return Ok(JobEnd::Left), // Dropping the run stops its work.
            },
        }
    }
}

/// Moves the worker to its next phase after a signal, and at the end of the grace period.
async fn change_phase(mut signals: Signals, phase: watch::Sender<Phase>, grace: Duration) {
    signals.next().await;
    println!(
        "Stopping: runs have {grace:?} to complete their turns. A second signal ends them now."
    );
    phase.send_replace(Phase::Draining);
    tokio::select! {
        () = tokio::time::sleep(grace) => {}
        () = signals.next() => std::process::exit(130),
    }
    phase.send_replace(Phase::Stopping);
    signals.next().await;
    std::process::exit(130)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match work().await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

async fn work() -> Result<ExitCode, Box<dyn std::error::Error>> {
    // From here on, a signal no longer ends the process.
    let signals = Signals::new()?;
    let Settings { folder, at_once, grace } = Settings::from_args(std::env::args().skip(1))?;
    let jobs = read_jobs(&folder)?;
    let store = JsonLinesStore::open(folder.join("sessions"))?;
    let agent = Agent::new(model()?).with_tool(report_tool(folder.join("reports.txt")));

    let (phase, receiver) = watch::channel(Phase::Working);
    let mut until = receiver.clone();
    let (total, mut done, mut failed) = (jobs.len(), 0, 0);
    let ends = stream::iter(&jobs)
        .take_until(async move { drop(until.wait_for(|phase| *phase != Phase::Working).await) })
        .map(|job| perform(job, &agent, &store, receiver.clone()).map(move |end| (job, end)))
        .buffer_unordered(at_once);
    let all_ends = ends.for_each(|(job, end)| {
        match end {
            Ok(JobEnd::Done(text)) => {
                done += 1;
                println!("{}: {text}", job.name);
            }
            Ok(JobEnd::Left) => println!("{}: left for the next start", job.name),
            Err(error) => {
                failed += 1;
                eprintln!("{}: {error}", job.name);
            }
        }
        std::future::ready(())
    });
    tokio::select! {
        () = all_ends => {}
        () = change_phase(signals, phase, grace) => {}
    }
    println!("{done} done, {failed} failed, {} left", total - done - failed);
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The tool of the jobs. It is not idempotent, so a session never starts one of its calls twice.
fn report_tool(file: PathBuf) -> Tool {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Report {
        text: String,
    }

    let write = move |report: Report| {
        let mut reports = fs::OpenOptions::new().create(true).append(true).open(&file)?;
        io::Write::write_all(&mut reports, format!("{}\n", report.text).as_bytes())?;
        Ok::<_, io::Error>("filed")
    };
    Tool::new("report", "Files a report", move |report: Report, _cx| ready(write(report)))
}

/// The model of the first key that is set, or a scripted model that takes half a second per turn.
fn model() -> Result<Arc<dyn Provider>, Error> {
    match provider::from_env() {
        Err(error) if error.kind() == ErrorKind::Auth => {}
        model => return model,
    }
    println!("The model is scripted. To use a real one, set a key such as ANTHROPIC_API_KEY.");
    Ok(Arc::new(Scripted::from_fn(|request, _| {
        let turn = Reply::new().delay(Duration::from_millis(500));
        match request.history.last().and_then(Item::as_user) {
            Some(prompt) => turn.call("report", json!({ "text": prompt.text() })),
            None => turn.say("The report is filed."),
        }
    })))
}

/// Reads the jobs, in the order of their names. A new folder gets six jobs.
fn read_jobs(folder: &std::path::Path) -> io::Result<Vec<Job>> {
    let folder = folder.join("jobs");
    if !folder.exists() {
        fs::create_dir_all(&folder)?;
        for n in 1..=6 {
            let prompt = format!("File a report about shop {n}.");
            fs::write(folder.join(format!("shop-{n}.txt")), prompt)?;
        }
    }
    println!("The jobs are in {}", folder.display());
    let mut jobs = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "txt") {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            jobs.push(Job { name, prompt: fs::read_to_string(&path)? });
        }
    }
    jobs.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(jobs)
}

struct Settings {
    folder: PathBuf,
    at_once: usize,
    grace: Duration,
}

impl Settings {
    fn from_args(mut args: impl Iterator<Item = String>) -> Result<Self, String> {
        let folder = std::env::temp_dir().join("turnstream-worker");
        let mut settings = Self { folder, at_once: 2, grace: Duration::from_secs(10) };
        while let Some(flag) = args.next() {
            let value = args.next().ok_or_else(|| format!("`{flag}` needs a value"))?;
            let number = || value.parse::<u16>().map_err(|_| format!("`{flag}` needs a number"));
            match flag.as_str() {
                "--folder" => settings.folder = value.into(),
                "--at-once" => settings.at_once = number()?.max(1).into(),
                "--grace" => settings.grace = Duration::from_secs(number()?.into()),
                _ => return Err(format!("there is no flag `{flag}`")),
            }
        }
        Ok(settings)
    }
}

#[cfg(unix)]
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn new() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let (interrupt, terminate) = (SignalKind::interrupt(), SignalKind::terminate());
        Ok(Self { interrupt: signal(interrupt)?, terminate: signal(terminate)? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
