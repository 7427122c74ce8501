//! A chat in the browser. A run continues when its page is closed, and a page that returns
//! continues to read it.
//!
//! ```text
//! cargo run --example web
//! ```
//!
//! Without an API key it uses the offline model, whose replies are scripted. `--help` lists all
//! flags. Besides the page, the server supports AI SDK clients (`/api/chat`) and AG-UI clients
//! (`/ag-ui`).

mod access;
mod ag_ui;
mod agent;
mod app;
mod chat;
mod cluster;
mod ended_runs;
mod failure;
mod flags;
mod page;
mod page_files;
mod requests;
mod response;
mod run_observer;
mod sessions;
mod starts;
mod traces;
mod views;

use std::env;
use std::future::{Future, pending};
use std::io::{self, Write};
use std::net::IpAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::mpsc::unbounded_channel;
use turnstream::Error;
use turnstream_cli::{args, provider, session, tools};

use app::App;
use flags::{Command, Flags};

/// The offline model's pause after each word, so that a user can watch it stream.
const PAUSE_BETWEEN_WORDS: Duration = Duration::from_millis(25);

/// How long runs may continue after the server is stopped, before they are interrupted.
const SHUT_DOWN_LIMIT: Duration = Duration::from_secs(2);

/// How long connections may stay open afterwards.
const CLOSE_LIMIT: Duration = Duration::from_secs(3);

/// The size of the kernel's send buffer for a page that does not read.
const SEND_BUFFER_BYTES: u32 = 64 * 1024;

#[tokio::main]
async fn main() -> ExitCode {
    let flags = match flags::parse(env::args_os().skip(1)) {
        Ok(Command::Serve(flags)) => flags,
        Ok(Command::Help) => {
            let printed = io::stdout().write_all(flags::HELP.as_bytes());
            return printed.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS);
        }
        Err(message) => {
            eprintln!("error: {message}");
            return ExitCode::from(2);
        }
    };
    match serve(*flags).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", error.message());
            ExitCode::FAILURE
        }
    }
}

async fn serve(flags: Flags) -> Result<(), Error> {
    let listener = bind(&flags)?;
    let address =
        listener.local_addr().map_err(|error| io_error("the address is not known", error))?;
    let (lost, lost_leases) = unbounded_channel();
    let app = App::open(&flags, address, lost).await?;
    println!("{}", app.access.greeting());
    println!("Model: {}.", app.about.describe());
    // These tasks run until the program ends.
    tokio::spawn(cluster::resume_lost_leases(Arc::clone(&app), lost_leases));
    if flags.events.is_some() {
        tokio::spawn(cluster::resume_lost_runs(Arc::clone(&app)));
    }
    let stopped = stop(Arc::clone(&app));
    let served = axum::serve(listener, page::router(Arc::clone(&app)))
        .with_graceful_shutdown(stopped)
        .into_future();
    let limit = async {
        app.stopped.notified().await;
        tokio::time::sleep(CLOSE_LIMIT).await;
    };
    tokio::select! {
        served = served => served.map_err(|error| io_error("the server failed", error)),
        // A client that does not read cannot keep the server running.
        () = limit => Ok(()),
    }
}

/// Binds the requested port, else the default one, else any free port.
fn bind(flags: &Flags) -> Result<TcpListener, Error> {
    let usual = flags.port.unwrap_or(flags::USUAL_PORT);
    match listen(flags.host, usual) {
        Ok(listener) => Ok(listener),
        Err(error) if flags.port.is_none() && error.kind() == io::ErrorKind::AddrInUse => {
            listen(flags.host, 0).map_err(|error| io_error("no port is free", error))
        }
        Err(error) => {
            let what = format!("cannot listen on {}:{usual}", flags.host);
            Err(io_error(&what, error))
        }
    }
}

fn listen(host: IpAddr, port: u16) -> io::Result<TcpListener> {
    let socket = if host.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // Allows the server to restart immediately after it was stopped.
    socket.set_reuseaddr(cfg!(unix))?;
    // With a small buffer, a page that does not read is detected soon and uses little memory.
    socket.set_send_buffer_size(SEND_BUFFER_BYTES)?;
    socket.bind((host, port).into())?;
    socket.listen(1024)
}

fn io_error(what: &str, error: io::Error) -> Error {
    Error::new(turnstream::ErrorKind::Other, format!("{what}: {error}")).with_source(error)
}

/// Waits for Ctrl-C, and then for the runs to end.
async fn stop(app: Arc<App>) {
    signal().await;
    println!("Stopping the active runs. Press Ctrl-C again to end the program immediately.");
    tokio::select! {
        () = app.hub.shut_down(SHUT_DOWN_LIMIT) => {}
        () = signal() => std::process::exit(130),
    }
    app.stopped.notify_one();
}

async fn signal() {
    let ctrl_c = async {
        if tokio::signal::ctrl_c().await.is_err() {
            pending::<()>().await;
        }
    };
    tokio::select! {
        () = ctrl_c => {}
        () = terminated() => {}
    }
}

#[cfg(unix)]
fn terminated() -> impl Future<Output = ()> {
    use tokio::signal::unix::{SignalKind, signal};

    async {
        match signal(SignalKind::terminate()) {
            Ok(mut signals) => drop(signals.recv().await),
            Err(_) => pending().await,
        }
    }
}

#[cfg(not(unix))]
fn terminated() -> impl Future<Output = ()> {
    pending()
}
