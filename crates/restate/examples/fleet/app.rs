//! The front end. It serves the page and performs no runs.

use std::collections::HashMap;
use std::future::IntoFuture;
use std::sync::{Arc, Mutex};

use turnstream::Error;
use turnstream::hub::Hub;
use turnstream::session::{MemoryStore, Store};
use turnstream_postgres::PostgresStore;
use turnstream_restate::Client;

use crate::access::Access;
use crate::agent::{self, AboutModel};
use crate::events::open_hub;
use crate::flags::Flags;
use crate::guard::end_with_input;
use crate::routes;
use crate::session_copy::SessionCopy;
use crate::settings::{POSTGRES, RESTATE, io_error, listen, required, variable};
use crate::views::KnownTitle;

/// The state that all requests share.
pub(crate) struct App {
    pub(crate) access: Access,
    pub(crate) about: AboutModel,
    pub(crate) client: Client,
    /// `None` without Redis.
    pub(crate) hub: Option<Hub>,
    pub(crate) copy: SessionCopy,
    /// The first words of the sessions in the list, by session id.
    pub(crate) titles: Mutex<HashMap<String, KnownTitle>>,
}

pub(crate) async fn run(flags: &Flags) -> Result<(), Error> {
    end_with_input();
    let (listener, address) = listen()?;
    let mut client = Client::new(&required(RESTATE)?)?;
    let hub = open_hub().await?;
    if let Some(hub) = &hub {
        client = client.with_hub(hub);
    }
    let store: Arc<dyn Store> = match variable(POSTGRES) {
        Some(url) => Arc::new(PostgresStore::connect(url).await?),
        None => Arc::new(MemoryStore::new()),
    };
    // Only the name of the model is needed here: the workers send the requests.
    let (_, about) = agent::choose_model(flags)?;
    let app = Arc::new(App {
        access: Access::new(address)?,
        about,
        copy: SessionCopy::new(client.clone(), store),
        client,
        hub,
        titles: Mutex::default(),
    });
    println!("The page is at {}", app.access.greeting());
    let copied = Arc::clone(&app);
    tokio::spawn(async move { copied.copy.copy_forever().await });
    let served = axum::serve(listener, routes::router(app)).into_future().await;
    served.map_err(|error| io_error("the front end failed", error))
}
