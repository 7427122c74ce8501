//! The server of the page.

use std::env;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use axum::routing::get;
use axum::{Json, Router};
use serde_json::json;
use tokio::net::TcpListener;
use turnstream::hub::Hub;
use turnstream::ui::ErrorTexts;
use turnstream::{Error, ErrorKind};
use turnstream_server::{
    AllowedSites, ChatServer, ConnectionLimits, TokenLogin, listen, serve, stop_signal,
};

use crate::flags::Flags;
use crate::session::open_store;
use crate::{agent, page_files};

const USUAL_PORT: u16 = 8600;

/// How long runs may continue after the server is stopped, before they are interrupted.
const SHUT_DOWN_LIMIT: Duration = Duration::from_secs(2);

/// Serves the page until the program is stopped.
pub(crate) async fn run(flags: &Flags) -> Result<(), Error> {
    let listener = bind(flags)?;
    let server = build(flags, &listener).await?;
    let resumed = server.clone();
    // This task runs until the program ends.
    tokio::spawn(async move { resumed.resume_lost_runs().await });
    let stop = async {
        stop_signal().await;
        println!("Stopping the active runs. Press Ctrl-C again to end the program immediately.");
        tokio::select! {
            () = server.shut_down(SHUT_DOWN_LIMIT) => {}
            () = stop_signal() => std::process::exit(130),
        }
    };
    serve(listener, server.router(), ConnectionLimits::default(), stop).await;
    Ok(())
}

/// Binds the requested port, else the usual one, else any free port.
fn bind(flags: &Flags) -> Result<TcpListener, Error> {
    let usual = flags.port.unwrap_or(USUAL_PORT);
    let bound = match listen((flags.host, usual).into()) {
        Err(error) if flags.port.is_none() && error.kind() == io::ErrorKind::AddrInUse => {
            listen((flags.host, 0).into())
        }
        bound => bound,
    };
    bound.map_err(|error| {
        let message = format!("cannot listen on {}:{usual}: {error}", flags.host);
        Error::new(ErrorKind::Other, message).with_source(error)
    })
}

/// Builds the server, and prints the address of its page.
async fn build(flags: &Flags, listener: &TcpListener) -> Result<ChatServer, Error> {
    let (agent, about) = agent::build(flags).await?;
    let model = about.describe();
    let price = flags.price.map(|price| json!({ "input": price.input, "output": price.output }));
    let about = move || {
        let about = json!({ "model": about, "price": price, "can_regenerate": true,
            "has_traces": true, "now": page_files::now_ms() });
        std::future::ready(Json(about))
    };
    let sites = AllowedSites::of_hosts(flags.allowed_hosts.clone());
    let sites = flags.allowed_origins.iter().fold(sites, AllowedSites::with_origin);
    let mut server = ChatServer::new(agent)
        .with_hub(build_hub(flags).await?)
        .with_shared_sessions()
        .with_sites(sites)
        .with_busy(flags.busy)
        .with_error_texts(ErrorTexts::shown())
        .with_error_log(|error| eprintln!("error: {error}"))
        .with_routes(page_files::routes().merge(Router::new().route("/about", get(about))));
    server = add_store(server, flags).await?;
    let address = listener.local_addr().map_err(|error| {
        Error::new(ErrorKind::Other, "the address is not known").with_source(error)
    })?;
    let host = match address.ip() {
        ip if ip.is_unspecified() => IpAddr::from([127, 0, 0, 1]),
        ip => ip,
    };
    let page = format!("http://{}", SocketAddr::new(host, address.port()));
    let token = env::var("TURNSTREAM_WEB_TOKEN").ok().filter(|token| !token.is_empty());
    if address.ip().is_loopback() && token.is_none() {
        println!("{page}");
    } else {
        let login = TokenLogin::new(token)?;
        println!("{page}{}   (valid once; then the server prints a new one)", login.path());
        let next = move |path: &str| println!("For another browser, open {page}{path}");
        server = server.with_routes(login.routes(next)).with_authorize(login);
    }
    println!("Model: {model}.");
    Ok(server)
}

/// Builds a hub of its own, or one that is shared with all processes that use the same address for
/// events.
#[cfg_attr(not(feature = "redis"), expect(clippy::unused_async, reason = "a server is far"))]
async fn build_hub(flags: &Flags) -> Result<Hub, Error> {
    let hub = Hub::builder().with_ended_kept_for(flags.keep_events);
    #[cfg(feature = "redis")]
    if let Some(url) = &flags.events {
        let events = turnstream_redis::RedisEvents::connect(url).await;
        let events = events.map_err(|error| unusable_error("--events", error))?;
        return Ok(hub.with_backend(events.clone(), events).build());
    }
    Ok(hub.build())
}

/// Adds a store: a database that several processes use, or one of this process.
#[cfg_attr(not(feature = "postgres"), expect(clippy::unused_async, reason = "a server is far"))]
async fn add_store(server: ChatServer, flags: &Flags) -> Result<ChatServer, Error> {
    #[cfg(feature = "postgres")]
    if let Some(url) = &flags.store {
        let store = turnstream_postgres::PostgresStore::connect(url).await;
        let store = store.map_err(|error| unusable_error("--store", error))?;
        return Ok(server.with_store(store).with_shared_store());
    }
    Ok(server.with_store(open_store(flags.session_path.as_deref())?))
}

#[cfg(any(feature = "postgres", feature = "redis"))]
fn unusable_error(flag: &str, error: Error) -> Error {
    let message = format!("the server of `{flag}` cannot be used: {}", error.message());
    Error::new(error.kind(), message).with_source(error)
}
