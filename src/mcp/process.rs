//! A server's process, from its start to the end of its whole group.

use std::collections::VecDeque;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::sync::{oneshot, watch};

use crate::error::{Error, ErrorKind};
use crate::lock::lock_ignoring_poison;
use crate::mcp::ServerCommand;
use crate::mcp::limits::Limits;

/// After this a process group that was asked to end is killed.
const TERMINATE_TIMEOUT: Duration = Duration::from_secs(1);

/// A group that was killed is gone after this, or waits for its parent.
const KILL_TIMEOUT: Duration = Duration::from_secs(1);

/// How often, and how many times, it is checked whether a group that was killed is gone.
#[cfg(unix)]
const EMPTY_CHECK_INTERVAL: Duration = Duration::from_millis(2);
#[cfg(unix)]
const MAX_EMPTY_CHECKS: u32 = 100;

/// How much of the standard error a message shows.
const MAX_SHOWN_STDERR: usize = 400;

/// A server's process. A task of the runtime it was started in watches over it: dropping this lets
/// the process end, and kills its group if it does not. If the runtime ends first, the group is
/// killed then.
#[derive(Debug)]
pub(super) struct ServerProcess {
    pub(super) report: Arc<ProcessReport>,
    /// Dropped to let the process end.
    stop: Mutex<Option<oneshot::Sender<()>>>,
    /// Closed when the process has ended.
    exited: watch::Receiver<()>,
    /// Closed when the process and its group are gone.
    ended: watch::Receiver<()>,
    /// Its group, to be killed where no task does.
    group: ProcessGroup,
    /// How long closing may take in all.
    closing_limit: Duration,
}

/// Facts about a process for errors: its exit status, and the end of its standard error.
#[derive(Debug, Default)]
pub(super) struct ProcessReport {
    stderr: Mutex<VecDeque<u8>>,
    exit_status: Mutex<Option<ExitStatus>>,
}

impl ServerProcess {
    /// Starts a process. Must be called in a tokio runtime.
    pub(super) fn start(
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
        let (closing, kept) = (limits.close, Arc::clone(&report));
        let guard = GroupGuard(group);
        tokio::spawn(async move {
            watch_over(child, guard, stopped, exiting, closing, &kept).await;
            drop(ending);
        });
        let stop = Mutex::new(Some(stop));
        let closing_limit = limits.close + TERMINATE_TIMEOUT + KILL_TIMEOUT;
        let process = Self { report, stop, exited, ended, group, closing_limit };
        Ok((process, stdout, stdin))
    }

    /// Lets the process end: its standard input is closed by now, or soon is.
    pub(super) fn stop(&self) {
        drop(lock_ignoring_poison(&self.stop).take());
    }

    /// Waits until the process has ended. Processes that it has started may run on.
    pub(super) fn wait_exited(&self) -> impl Future<Output = ()> + Send + use<> {
        wait_until_closed(self.exited.clone())
    }

    /// Whether the process has ended.
    pub(super) fn has_exited(&self) -> bool {
        self.exited.has_changed().is_err()
    }

    /// Waits until the process and its group are gone, and kills them itself if the task that does
    /// so is not run: that of a runtime that is not polled.
    pub(super) async fn wait_ended(&self) {
        let ended = wait_until_closed(self.ended.clone());
        if tokio::time::timeout(self.closing_limit, ended).await.is_err() {
            self.group.kill();
        }
    }
}

impl ProcessReport {
    /// The end of what the process wrote to its standard error.
    pub(super) fn stderr(&self) -> String {
        let mut kept = lock_ignoring_poison(&self.stderr);
        String::from_utf8_lossy(kept.make_contiguous()).into_owned()
    }

    /// How the process ended, and its last words, for a message; empty if nothing is known.
    pub(super) fn describe(&self) -> String {
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

/// Waits until the process ends or is to end, and leaves nothing of its group.
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
    // Also if the process has ended: what it started, as `npx` and `uvx` do, may run on.
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
        let mut kept = lock_ignoring_poison(&report.stderr);
        kept.extend(&chunk[..len]);
        let surplus = kept.len().saturating_sub(max_bytes);
        kept.drain(..surplus);
    }
}

/// Kills the group of a server's processes when it is dropped, as it is with the runtime that ends.
struct GroupGuard(ProcessGroup);

impl Drop for GroupGuard {
    fn drop(&mut self) {
        self.0.kill();
    }
}

/// The group of a server's processes.
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

    /// Asks all of them to end.
    fn terminate(self) {
        self.send(rustix::process::Signal::TERM);
    }

    /// Kills all that are left.
    fn kill(self) {
        self.send(rustix::process::Signal::KILL);
    }

    /// Waits until none is left. One that has ended and that its new parent does not collect
    /// counts, so the wait has a limit.
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
            // It fails if none is left.
            let _ = rustix::process::kill_process_group(leader, signal);
        }
    }
}

/// Elsewhere only the process itself is ended.
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
