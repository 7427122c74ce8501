//! A worker: it performs the runs that Restate sends it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket};
use turnstream::hub::Hub;
use turnstream::hub::redis::RedisEvents;
use turnstream::provider::Provider;
use turnstream::session::PostgresOptions;
use turnstream::stream::TurnStream;
use turnstream::{Error, Request};
use turnstream_restate::Worker;

use crate::flags::Flags;
use crate::guard::end_with_input;
use crate::settings::{NAME, POSTGRES, REDIS, io_error, listen_address, variable};
use crate::{AGENT, agent};

/// How long a worker that starts waits for PostgreSQL.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);

pub(crate) async fn run(flags: &Flags) -> Result<(), Error> {
    end_with_input();
    let (model, about) = agent::choose_model(flags).await?;
    let name = variable(NAME).unwrap_or_else(|| "A worker".to_owned());
    let agent = agent::build(flags, Arc::new(AnnouncedProvider { model, name }), &about)?;
    let mut worker = Worker::new().with_agent(AGENT, agent);
    if let Some(url) = variable(REDIS) {
        worker = worker.with_hub(&Hub::with_redis(RedisEvents::connect(&url).await?));
    }
    if let Some(url) = variable(POSTGRES) {
        // A worker that waited for PostgreSQL would perform no runs.
        match PostgresOptions::new(url).with_retry_limit(CONNECT_LIMIT).connect().await {
            Ok(store) => worker = worker.with_copy(store),
            Err(error) => {
                eprintln!("Sessions are not copied until this worker is restarted: {error}");
            }
        }
    }
    let address = listen_address()?;
    let listener = listen(address)
        .map_err(|error| io_error(&format!("{address} cannot be listened on"), error))?;
    worker.serve(listener, std::future::pending::<()>()).await;
    Ok(())
}

/// Listens beside the other workers of this machine: Restate knows one URL for all of them, and the system gives each
/// connection to one that lives. On several machines a load balancer does this.
fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(true)?;
    // As `Worker::listen` does.
    socket.set_nodelay(true)?;
    socket.bind(address)?;
    socket.listen(1_024)
}

/// A provider that prints which process asks, so that one knows which to kill. A turn that Restate has is not asked for
/// again, and prints nothing.
struct AnnouncedProvider {
    model: Arc<dyn Provider>,
    name: String,
}

impl Provider for AnnouncedProvider {
    fn stream_turn(&self, request: Request) -> TurnStream {
        let (name, process, session) = (&self.name, std::process::id(), request.history.id());
        println!("{name} (process {process}) asks the model for session {session}.");
        self.model.stream_turn(request)
    }

    fn model(&self) -> &str {
        self.model.model()
    }

    fn has_tool_search(&self) -> bool {
        self.model.has_tool_search()
    }
}
