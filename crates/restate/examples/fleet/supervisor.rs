//! Starts all processes, and restarts those that have ended.

use std::env;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpSocket;
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use turnstream::{Error, ErrorKind};
use turnstream_test_support::postgres;

use crate::agent;
use crate::flags::Flags;
use crate::servers::{Redis, Restate, start_postgres, wait_until_ok};
use crate::settings::{ENDS_WITH_INPUT, LISTEN, NAME, POSTGRES, REDIS, RESTATE, io_error};
use crate::support::{TempDir, register};

const USUAL_PORT: u16 = 8600;

/// The delay before a process that has ended is restarted.
const RESTART_DELAY: Duration = Duration::from_secs(2);

/// How long a process may take to end.
const END_LIMIT: Duration = Duration::from_secs(5);

/// Runs the fleet until Ctrl-C or SIGTERM.
pub(crate) async fn run(flags: &Flags) -> Result<(), Error> {
    let cannot = |error| io_error("signals cannot be received", error);
    let mut interrupt = signal(SignalKind::interrupt()).map_err(cannot)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(cannot)?;
    let mut fleet = Fleet::new();
    let ended = tokio::select! {
        started = fleet.start(flags) => match started {
            Ok(()) => {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                Ok(())
            }
            failed => failed,
        },
        _ = interrupt.recv() => Ok(()),
        _ = terminate.recv() => Ok(()),
    };
    println!("Stopping all processes.");
    fleet.end().await;
    ended
}

struct Fleet {
    processes: JoinSet<()>,
    /// Set to `true` when all processes have to end.
    stop: watch::Sender<bool>,
    postgres: Option<postgres::Server>,
    /// The reserved ports of the page and of the workers.
    reserved: Vec<TcpSocket>,
    folder: TempDir,
}

impl Fleet {
    fn new() -> Self {
        let stop = watch::Sender::new(false);
        let folder = TempDir::new();
        Self { processes: JoinSet::new(), stop, postgres: None, reserved: Vec::new(), folder }
    }

    async fn start(&mut self, flags: &Flags) -> Result<(), Error> {
        // Reports a wrong model setting before anything is started.
        let (_, about) = agent::choose_model(flags)?;
        // Sockets that do not listen reserve the ports, so that no other program takes them while
        // the front end or all workers are not running.
        let reserve = |port| reserve_port(port).map_err(|error| io_error("no port is free", error));
        let (reserved, page_address) = reserve(choose_page_port(flags.port)?)?;
        self.reserved.push(reserved);
        let restate = Restate::prepare(self.folder.path()).await?;
        println!("The files and logs of the servers are in {}.", self.folder.path().display());
        self.keep_server("Restate", restate.words())?;
        let redis = match flags.without_redis {
            true => None,
            false => Redis::find(self.folder.path()),
        };
        if let Some(redis) = &redis {
            self.keep_server("Redis", redis.words())?;
            redis.wait_until_it_answers().await;
        }
        if !flags.without_postgres {
            self.postgres = start_postgres().await;
        }
        if let Some(postgres) = &self.postgres {
            println!("The files and the log of PostgreSQL are in {}.", postgres.folder().display());
        }
        restate.wait_until_healthy().await;

        let mut addresses = vec![(RESTATE, restate.ingress_url())];
        addresses.extend(redis.as_ref().map(|redis| (REDIS, redis.url())));
        addresses.extend(self.postgres.as_ref().map(|postgres| (POSTGRES, postgres.url())));
        let (reserved, worker_address) = reserve(0)?;
        self.reserved.push(reserved);
        for name in ["Worker 1", "Worker 2"] {
            self.keep_role("worker", name, worker_address, &addresses)?;
        }
        register(&restate.admin_url(), &format!("http://{worker_address}")).await;
        self.keep_role("front-end", "The front end", page_address, &addresses)?;
        wait_until_ok(&format!("http://{page_address}/health")).await;
        println!("{}", describe(&about.describe(), redis.is_some(), self.postgres.is_some()));
        Ok(())
    }

    /// Keeps a server of another program running, with a guard that ends it when this process ends.
    fn keep_server(&mut self, name: &str, words: Vec<String>) -> Result<(), Error> {
        let (program, log) = (this_program()?, self.folder.path().join(format!("{name}.log")));
        self.keep(name, move || {
            let mut command = Command::new(&program);
            command.arg("guard").arg(&log).args(&words).stdout(Stdio::piped());
            command
        });
        Ok(())
    }

    /// Keeps a process of this program running, with the flags of this process.
    fn keep_role(
        &mut self,
        role: &'static str,
        name: &'static str,
        address: SocketAddr,
        addresses: &[(&'static str, String)],
    ) -> Result<(), Error> {
        let (program, addresses) = (this_program()?, addresses.to_vec());
        self.keep(name, move || {
            let mut command = Command::new(&program);
            command.arg(role).args(env::args_os().skip(1)).envs(addresses.clone());
            command.env(LISTEN, address.to_string()).env(NAME, name).env(ENDS_WITH_INPUT, "1");
            command
        });
        Ok(())
    }

    fn keep(&mut self, name: &str, command: impl Fn() -> Command + Send + 'static) {
        self.processes.spawn(keep_running(name.to_owned(), command, self.stop.subscribe()));
    }

    /// Ends all processes, and waits for them.
    async fn end(mut self) {
        // All receivers are gone if no process was started.
        let _ = self.stop.send(true);
        while self.processes.join_next().await.is_some() {}
    }
}

/// Starts a process again and again, until `stop` is `true`.
async fn keep_running(
    name: String,
    command: impl Fn() -> Command,
    mut stop: watch::Receiver<bool>,
) {
    loop {
        let mut child = match start(command()) {
            Ok(child) => child,
            Err(error) => return eprintln!("{name} cannot be started: {error}"),
        };
        // Waiting for a child would close its standard input.
        let input = child.stdin.take();
        let process = process_id(&mut child).await;
        println!("{name} is process {process}.");
        let has_ended = tokio::select! {
            _ = child.wait() => true,
            () = stopped(&mut stop) => false,
        };
        drop(input);
        if !has_ended {
            return end(child).await;
        }
        println!("{name} (process {process}) has ended, and will be restarted.");
        tokio::select! {
            () = tokio::time::sleep(RESTART_DELAY) => {}
            () = stopped(&mut stop) => return,
        }
    }
}

async fn stopped(stop: &mut watch::Receiver<bool>) {
    // If the sender is dropped, the process has to end as well.
    let _ = stop.wait_for(|stop| *stop).await;
}

fn start(mut command: Command) -> io::Result<Child> {
    // In a process group of its own, the child does not receive the Ctrl-C that is meant for this
    // process. It ends when its input is closed.
    command.process_group(0).stdin(Stdio::piped()).spawn()
}

/// The id of a process, or of the server that it guards.
async fn process_id(child: &mut Child) -> String {
    if let Some(stdout) = child.stdout.take() {
        let mut line = String::new();
        // Without a line, the guard has ended.
        let _ = BufReader::new(stdout).read_line(&mut line).await;
        return line.trim().to_owned();
    }
    child.id().map_or_else(String::new, |id| id.to_string())
}

/// Waits for the end of a process whose input was closed.
async fn end(mut child: Child) {
    if tokio::time::timeout(END_LIMIT, child.wait()).await.is_err() {
        // Fails only if the process has ended.
        let _ = child.kill().await;
    }
}

fn this_program() -> Result<std::path::PathBuf, Error> {
    env::current_exe().map_err(|error| io_error("the path of this program is unknown", error))
}

/// Returns the requested port, else the default one, else any free port.
fn choose_page_port(port: Option<u16>) -> Result<u16, Error> {
    let bind = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port))?.local_addr();
    let bound = match port {
        Some(port) => bind(port),
        None => bind(USUAL_PORT).or_else(|_| bind(0)),
    };
    let bound = bound.map_err(|error| {
        let message = format!("cannot listen on the port of the page: {error}");
        Error::new(ErrorKind::InvalidRequest, message)
    });
    bound.map(|address| address.port())
}

/// Binds a port, or any free one if it is 0, without listening on it. Sockets with the same option
/// can listen on it.
fn reserve_port(port: u16) -> io::Result<(TcpSocket, SocketAddr)> {
    let socket = TcpSocket::new_v4()?;
    // With `SO_REUSEADDR` as well, Linux would let any other program listen on the port.
    socket.set_reuseport(true)?;
    socket.bind((Ipv4Addr::LOCALHOST, port).into())?;
    let address = socket.local_addr()?;
    Ok((socket, address))
}

/// Describes the fleet for the user, with commands to try.
fn describe(model: &str, has_redis: bool, has_postgres: bool) -> String {
    let mut lines = vec![String::new(), format!("Model: {model}.")];
    if !has_redis {
        lines.push(
            "Redis is not running: the page shows each turn when it is complete, not word by word, and Stop ends a\n\
             run after its current step."
                .to_owned(),
        );
    }
    if !has_postgres {
        lines.push(
            "PostgreSQL is not running: the list of sessions is in the memory of the front end. The sessions\n\
             themselves are stored in Restate."
                .to_owned(),
        );
    }
    lines.push(
        "\nOn the page, ask how many lines of Rust are in src. A line here shows which worker asks the model. Try\n\
         \n    kill -9 …   with the process id of that worker while it streams the answer: the other worker\
         \n                continues, and each word appears on the page once;\
         \n    kill -9 …   with both workers, the front end, or Restate: they are restarted after two seconds,\
         \n                and the run continues. A call that waits for your approval remains pending.\n\
         \nCtrl-C stops all processes."
            .to_owned(),
    );
    lines.join("\n")
}
