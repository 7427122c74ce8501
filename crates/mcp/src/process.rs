//! Runs a server's process, from its start until its entire process group has ended.

use std::collections::VecDeque;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::sync::{oneshot, watch};
use turnstream::error::{Error, ErrorKind};

use crate::ServerCommand;
use crate::limits::Limits;
use crate::lock::lock_ignoring_poison;

/// The time to wait after sending `SIGTERM` to a process group before killing the group.
const TERMINATE_TIMEOUT: Duration = Duration::from_secs(1);

/// The maximum time to wait until a killed group is gone. Processes whose parent has not reaped
/// them yet are still part of the group.
const KILL_TIMEOUT: Duration = Duration::from_secs(1);

/// The time between two checks of whether a killed group is gone. `MAX_EMPTY_CHECKS` limits the
/// number of checks.
#[cfg(unix)]
const EMPTY_CHECK_INTERVAL: Duration = Duration::from_millis(2);
#[cfg(unix)]
const MAX_EMPTY_CHECKS: u32 = 100;

/// The maximum number of bytes of standard error output to show in a message.
const MAX_SHOWN_STDERR: usize = 400;

/// A server's process, which a task supervises on the runtime in which the process was started.
/// Dropping this value gives the process time to exit, and then kills the remaining processes in
/// its group. If the runtime shuts down first, the group is killed immediately.
#[derive(Debug)]
pub(crate) struct ServerProcess {
    pub(crate) report: Arc<ProcessReport>,
    /// Dropping this sender tells the supervising task to end the process.
    stop: Mutex<Option<oneshot::Sender<()>>>,
    /// A channel that is closed once the process has ended.
    exited: watch::Receiver<()>,
    /// A channel that is closed once the process and its group are gone.
    ended: watch::Receiver<()>,
    /// The process group, which is killed directly if the supervising task makes no progress.
    group: ProcessGroup,
    /// The maximum total time that ending the process and its group may take.
    closing_limit: Duration,
}

/// Details about a process for error messages: its exit status and the end of its standard error
/// output.
#[derive(Debug, Default)]
pub(crate) struct ProcessReport {
    stderr: Mutex<VecDeque<u8>>,
    exit_status: Mutex<Option<ExitStatus>>,
}

impl ServerProcess {
    /// Starts a process. Must be called within a tokio runtime.
    pub(crate) fn start(
        command: &ServerCommand,
        limits: &Limits,
    ) -> Result<(Self, ChildStdout, ChildStdin), Error> {
        let failed = |error: std::io::Error| {
            let message =
                format!("the server `{}` could not be started: {error}", command.program());
            Error::new(ErrorKind::Connect, message).with_source(error).with_retryable(false)
        };
        let mut child = command.to_tokio().spawn().map_err(failed)?;
        let group = ProcessGroup::new(child.id());
        let pipes = (child.stdout.take(), child.stdin.take(), child.stderr.take());
        let (Some(stdout), Some(stdin), Some(stderr)) = pipes else {
            return Err(failed(std::io::Error::other("it has no pipes")));
        };
        let report = Arc::new(ProcessReport::default());
        tokio::spawn(keep_newest_bytes(stderr, Arc::clone(&report), limits.stderr_bytes));
        let (stop, stopped) = oneshot::channel();
        let (exiting, exited) = watch::channel(());
        let (ending, ended) = watch::channel(());
        let (closing, stderr) = (limits.close, Arc::clone(&report));
        let guard = GroupGuard(group);
        tokio::spawn(async move {
            watch_over(child, guard, stopped, exiting, closing, &stderr).await;
            drop(ending);
        });
        let stop = Mutex::new(Some(stop));
        let closing_limit = limits.close + TERMINATE_TIMEOUT + KILL_TIMEOUT;
        let process = Self { report, stop, exited, ended, group, closing_limit };
        Ok((process, stdout, stdin))
    }

    /// Tells the supervising task to end the process. The process is given time to exit on its own,
    /// so the caller must have closed the process's standard input, or be about to close it.
    pub(crate) fn stop(&self) {
        drop(lock_ignoring_poison(&self.stop).take());
    }

    /// Waits until the process has ended. The process's child processes may still be running.
    pub(crate) fn wait_exited(&self) -> impl Future<Output = ()> + Send + use<> {
        wait_until_closed(self.exited.clone())
    }

    /// Returns whether the process has ended.
    pub(crate) fn has_exited(&self) -> bool {
        self.exited.has_changed().is_err()
    }

    /// Waits until the process and its group are gone. If the supervising task makes no progress
    /// because its runtime is not polled, kills the process and its group directly.
    pub(crate) async fn wait_ended(&self) {
        let ended = wait_until_closed(self.ended.clone());
        if tokio::time::timeout(self.closing_limit, ended).await.is_err() {
            self.group.kill();
        }
    }
}

impl ProcessReport {
    /// Returns the end of the process's standard error output.
    pub(crate) fn stderr(&self) -> String {
        let mut stderr = lock_ignoring_poison(&self.stderr);
        String::from_utf8_lossy(stderr.make_contiguous()).into_owned()
    }

    /// Returns the process's exit status and last output, for use in a message. Returns an empty
    /// string if the process has neither an exit status nor any output.
    pub(crate) fn describe(&self) -> String {
        let status = *lock_ignoring_poison(&self.exit_status);
        let status = status.map(|status| format!("; the process ended ({status})"));
        let stderr = self.stderr();
        let stderr = stderr.trim();
        let start = stderr.len().saturating_sub(MAX_SHOWN_STDERR);
        let start = (start..=stderr.len()).find(|at| stderr.is_char_boundary(*at)).unwrap_or(0);
        let shown = stderr[start..].split_whitespace().collect::<Vec<_>>().join(" ");
        let shown = match shown.is_empty() {
            true => String::new(),
            false => format!("; the end of its standard error: {shown}"),
        };
        status.unwrap_or_default() + &shown
    }
}

async fn wait_until_closed(mut channel: watch::Receiver<()>) {
    while channel.changed().await.is_ok() {}
}

/// Waits until the process ends or is asked to stop, and then kills the remaining processes in its
/// group.
async fn watch_over(
    mut child: Child,
    group: GroupGuard,
    stopped: oneshot::Receiver<()>,
    exiting: watch::Sender<()>,
    closing: Duration,
    report: &ProcessReport,
) {
    let mut status = tokio::select! {
        status = child.wait() => status.ok(),
        _ = stopped => None,
    };
    if status.is_none() {
        status = tokio::time::timeout(closing, child.wait()).await.ok().and_then(Result::ok);
    }
    if status.is_none() {
        group.0.terminate();
        status =
            tokio::time::timeout(TERMINATE_TIMEOUT, child.wait()).await.ok().and_then(Result::ok);
    }
    // The group is killed even if the process has ended, because its children may keep running, as
    // with `npx` and `uvx`.
    group.0.kill();
    if status.is_none() {
        let _ = child.start_kill();
        status = child.wait().await.ok();
    }
    *lock_ignoring_poison(&report.exit_status) = status;
    drop(exiting);
    group.0.wait_empty().await;
}

async fn keep_newest_bytes(
    mut stderr: impl AsyncRead + Unpin,
    report: Arc<ProcessReport>,
    max_bytes: usize,
) {
    let mut chunk = vec![0; 4096];
    while let Ok(len @ 1..) = stderr.read(&mut chunk).await {
        let mut stderr = lock_ignoring_poison(&report.stderr);
        stderr.extend(&chunk[..len]);
        let surplus = stderr.len().saturating_sub(max_bytes);
        stderr.drain(..surplus);
    }
}

/// Kills a server's process group when dropped, including when the runtime shuts down.
struct GroupGuard(ProcessGroup);

impl Drop for GroupGuard {
    fn drop(&mut self) {
        self.0.kill();
    }
}

/// A server's process group.
#[derive(Clone, Copy, Debug)]
struct ProcessGroup {
    #[cfg(unix)]
    leader: Option<rustix::process::Pid>,
}

#[cfg(unix)]
impl ProcessGroup {
    fn new(leader: Option<u32>) -> Self {
        let pid = leader.and_then(|id| i32::try_from(id).ok());
        Self { leader: pid.and_then(rustix::process::Pid::from_raw) }
    }

    /// Asks all processes in the group to exit.
    fn terminate(self) {
        self.send(rustix::process::Signal::TERM);
    }

    /// Kills all remaining processes in the group.
    fn kill(self) {
        self.send(rustix::process::Signal::KILL);
    }

    /// Waits until the group is empty. The wait has a time limit, because a process that has ended
    /// stays in the group until its new parent reaps it.
    async fn wait_empty(self) {
        let Some(leader) = self.leader else { return };
        let mut checks = 0;
        while rustix::process::test_kill_process_group(leader).is_ok() && checks < MAX_EMPTY_CHECKS
        {
            tokio::time::sleep(EMPTY_CHECK_INTERVAL).await;
            checks += 1;
        }
    }

    fn send(self, signal: rustix::process::Signal) {
        if let Some(leader) = self.leader {
            // Sending the signal fails if the group is empty.
            let _ = rustix::process::kill_process_group(leader, signal);
        }
    }
}

/// On systems other than Unix, only the process itself is killed.
#[cfg(not(unix))]
impl ProcessGroup {
    fn new(_leader: Option<u32>) -> Self {
        Self {}
    }

    fn terminate(self) {
        let Self {} = self;
    }

    fn kill(self) {
        let Self {} = self;
    }

    async fn wait_empty(self) {
        let Self {} = self;
    }
}
