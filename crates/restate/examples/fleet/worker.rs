//! A worker. It performs the runs that Restate assigns to it.

use std::sync::Arc;
use std::time::Duration;

use turnstream::item::Part;
use turnstream::provider::Provider;
use turnstream::stream::TurnStream;
use turnstream::{Error, Request};
use turnstream_postgres::PostgresOptions;
use turnstream_restate::Worker;

use crate::events::open_hub;
use crate::flags::Flags;
use crate::guard::end_with_input;
use crate::settings::{NAME, POSTGRES, listen, variable};
use crate::{AGENT, agent};

/// How long a starting worker waits for PostgreSQL.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);

pub(crate) async fn run(flags: &Flags) -> Result<(), Error> {
    end_with_input();
    let (model, _) = agent::choose_model(flags)?;
    let name = variable(NAME).unwrap_or_else(|| "A worker".to_owned());
    let agent = agent::build(Arc::new(AnnouncedProvider { model, name }))?;
    let mut worker = Worker::new().with_agent(AGENT, agent);
    if let Some(hub) = open_hub().await? {
        worker = worker.with_hub(&hub);
    }
    if let Some(url) = variable(POSTGRES) {
        // A worker that waited longer for PostgreSQL would perform no runs in the meantime.
        match PostgresOptions::new(url).with_retry_limit(CONNECT_LIMIT).connect().await {
            Ok(store) => worker = worker.with_copy(store),
            Err(error) => {
                eprintln!("Sessions are not copied until this worker is restarted: {error}");
            }
        }
    }
    let (listener, _) = listen()?;
    worker.serve(listener, std::future::pending::<()>()).await;
    Ok(())
}

/// A provider that prints which process sends a request, so that the user knows which process to
/// kill. A turn that Restate has recorded is not requested again, and prints nothing.
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

    fn check_parts(&self, parts: &[Part]) -> Result<(), Error> {
        self.model.check_parts(parts)
    }

    fn has_tool_search(&self) -> bool {
        self.model.has_tool_search()
    }
}
