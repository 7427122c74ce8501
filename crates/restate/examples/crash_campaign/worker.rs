//! The worker processes that perform runs and are killed.

use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};

use std::fs::File;

use tokio::net::{TcpListener, TcpSocket};
use turnstream_restate::Worker;

use crate::agents::Agents;
use crate::log::{Log, now};

/// The number of processes that share the port.
pub(crate) const WORKERS: usize = 2;

/// The settings of a worker process.
#[derive(Clone)]
pub(crate) struct WorkerSettings {
    pub(crate) port: u16,
    /// The folder of the log.
    pub(crate) folder: PathBuf,
    pub(crate) seed: u64,
}

impl WorkerSettings {
    /// The settings as command line arguments.
    pub(crate) fn to_words(&self) -> [String; 3] {
        let folder = self.folder.to_str().expect("the path is UTF-8").to_owned();
        [self.port.to_string(), self.seed.to_string(), folder]
    }

    pub(crate) fn from_words(mut words: impl Iterator<Item = String>) -> Option<Self> {
        let port = words.next()?.parse().ok()?;
        let seed = words.next()?.parse().ok()?;
        Some(Self { port, seed, folder: words.next()?.into() })
    }

    /// Serves until the process is killed, or its parent has ended.
    pub(crate) fn serve(self) {
        std::thread::spawn(|| {
            // The parent holds the other end and never writes.
            let _ = io::stdin().read(&mut [0]);
            std::process::exit(0);
        });
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime can be built");
        runtime.block_on(async move {
            let log = Log::open(&self.folder).expect("the log can be opened");
            let agents = Agents { log, seed: self.seed }.build().expect("the agents are valid");
            let worker = agents
                .into_iter()
                .fold(Worker::new(), |worker, (name, agent)| worker.with_agent(name, agent));
            let listener = listen(self.port).expect("the worker can listen");
            worker.serve(listener, std::future::pending::<()>()).await;
        });
    }
}

/// Binds a socket that shares its port with other processes.
fn bind(port: u16) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(true)?;
    socket.set_nodelay(true)?;
    socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
    Ok(socket)
}

fn listen(port: u16) -> io::Result<TcpListener> {
    bind(port)?.listen(1_024)
}

/// The worker processes, which share one port. Dropping this value kills them.
pub(crate) struct WorkerProcesses {
    command: fn(&WorkerSettings) -> Command,
    settings: WorkerSettings,
    processes: [Option<Process>; WORKERS],
    /// Bound and not listening: it reserves the port while all workers are killed.
    _port: TcpSocket,
}

impl WorkerProcesses {
    /// Starts the processes. `command` builds the command that [serves](WorkerSettings::serve).
    pub(crate) fn start(
        command: fn(&WorkerSettings) -> Command,
        folder: PathBuf,
        seed: u64,
    ) -> io::Result<Self> {
        let port = bind(0)?;
        let settings = WorkerSettings { port: port.local_addr()?.port(), folder, seed };
        let processes = [const { None }; WORKERS];
        let mut workers = Self { command, settings, processes, _port: port };
        for index in 0..WORKERS {
            workers.restart(index)?;
        }
        Ok(workers)
    }

    /// The URL to register.
    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.settings.port)
    }

    /// Kills a process with SIGKILL.
    pub(crate) fn kill(&mut self, index: usize) -> Option<WorkerKill> {
        let mut process = self.processes[index].take()?;
        let pid = process.0.id();
        let ended = process.0.try_wait().ok().flatten();
        let from = now();
        drop(process);
        Some(WorkerKill { pid, from, to: now(), ended })
    }

    pub(crate) fn restart(&mut self, index: usize) -> io::Result<()> {
        let stderr = self.settings.folder.join("workers.log");
        let stderr = File::options().create(true).append(true).open(stderr)?;
        let mut command = (self.command)(&self.settings);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(stderr);
        self.processes[index] = Some(Process(command.spawn()?));
        Ok(())
    }
}

/// A process was killed between these two times.
pub(crate) struct WorkerKill {
    pub(crate) pid: u32,
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// The exit status if the process had ended before the kill.
    pub(crate) ended: Option<ExitStatus>,
}

/// A process that is killed on drop.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // Fails only if the process has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
