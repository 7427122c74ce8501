//! The server of the page.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use std::{env, io};

use axum::routing::get;
use axum::{Json, Router};
use serde_json::json;
use turnstream::hub::Hub;
use turnstream::ui::ErrorTexts;
use turnstream_server::{ChatServer, ServeEnd, TokenLogin, listen, static_files, stop_signal};

use crate::flags::Flags;
use crate::session::open_store;
use crate::{agent, page_files};

const USUAL_PORT: u16 = 8600;

/// How long runs may continue after the server is stopped, before they are interrupted.
const SHUT_DOWN_LIMIT: Duration = Duration::from_secs(2);

/// Serves the page until the program is stopped. Returns the exit code.
pub(crate) async fn run(flags: &Flags) -> Result<i32, Box<dyn Error>> {
    let host = flags.host.unwrap_or(Ipv4Addr::LOCALHOST.into());
    let listener = match listen((host, flags.port.unwrap_or(USUAL_PORT)).into()) {
        Err(error) if flags.port.is_none() && error.kind() == io::ErrorKind::AddrInUse => {
            listen((host, 0).into())?
        }
        listener => listener?,
    };
    let (agent, model, about) = agent::build(flags).await?;
    let price = flags.price.map(|price| json!({ "input": price.input, "output": price.output }));
    let about =
        json!({ "model": about, "price": price, "can_regenerate": true, "has_traces": true });
    let server = ChatServer::new(agent)
        .with_shared_sessions()
        .with_sites(flags.sites.clone())
        .with_busy(flags.busy)
        .with_error_texts(ErrorTexts::shown())
        .with_error_log(|error| eprintln!("error: {error}"))
        .with_routes(static_files(&page_files::FILES))
        .with_routes(Router::new().route("/about", get(Json(about))));
    let server = with_login(with_storage(server, flags).await?, listener.local_addr()?)?;
    println!("Model: {model}. Ctrl-C stops the server.");
    tokio::spawn(async {
        stop_signal().await;
        println!("Stopping the active runs. Press Ctrl-C again to end the program immediately.");
    });
    match server.serve(listener, SHUT_DOWN_LIMIT).await {
        ServeEnd::Complete => Ok(0),
        ServeEnd::SecondSignal => Ok(130),
    }
}

/// Adds the hub and the store: those that several processes share, or those of this process.
async fn with_storage(server: ChatServer, flags: &Flags) -> Result<ChatServer, Box<dyn Error>> {
    let kept_for = Duration::from_secs(flags.keep_secs.unwrap_or(60));
    let hub = Hub::builder().with_ended_kept_for(kept_for);
    #[cfg(feature = "redis")]
    let hub = match &flags.events {
        Some(url) => {
            let events = turnstream_redis::RedisEvents::connect(url).await;
            let events = events.map_err(|error| format!("`--events`: {error}"))?;
            hub.with_backend(events.clone(), events)
        }
        None => hub,
    };
    let server = server.with_hub(hub.build());
    #[cfg(feature = "postgres")]
    if let Some(url) = &flags.store {
        let store = turnstream_postgres::PostgresStore::connect(url).await;
        let store = store.map_err(|error| format!("`--store`: {error}"))?;
        return Ok(server.with_store(store).with_shared_store());
    }
    Ok(server.with_store(open_store(flags.agent.session_file.as_deref())?))
}

/// Prints the address of the page. If other machines can reach it, users have to log in.
fn with_login(server: ChatServer, mut address: SocketAddr) -> Result<ChatServer, Box<dyn Error>> {
    let token = env::var("TURNSTREAM_WEB_TOKEN").ok().filter(|token| !token.is_empty());
    if address.ip().is_loopback() && token.is_none() {
        println!("http://{address}");
        return Ok(server.with_shown_load());
    }
    if address.ip().is_unspecified() {
        address.set_ip(Ipv4Addr::LOCALHOST.into());
    }
    let login = TokenLogin::new(token)?;
    let print = move |path: &str| println!("http://{address}{path}   (for one browser, once)");
    Ok(server.with_routes(login.routes(print)).with_authorize(login))
}
