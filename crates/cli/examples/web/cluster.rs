//! Support for several processes that share the store and the events, and that resume the runs of a
//! killed process.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use tokio::sync::mpsc::UnboundedReceiver;
use turnstream::hub::{AlreadyRunning, Hub, HubBuilder, LogUnavailable};
use turnstream::session::{AlreadyLeased, SessionState, Store};
use turnstream::{Error, ErrorKind};

use crate::app::App;
use crate::starts::Start;

/// The interval at which the server checks for runs whose process has died.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How long resuming a lost run's session is retried: the session's lease ends when the database
/// has noticed that the process is gone.
const RESUME_LIMIT: Duration = Duration::from_secs(25);

/// The delay before a request is retried on a session that another process is running.
pub(crate) const RETRY_DELAY: Duration = Duration::from_millis(200);

/// Configures a hub of its own, or one that is shared with all processes that use the same address
/// for events.
#[cfg_attr(not(feature = "redis"), expect(clippy::unused_async, reason = "a server is far"))]
pub(crate) async fn configure_hub(events: Option<&str>) -> Result<HubBuilder, Error> {
    let Some(url) = events else { return Ok(Hub::builder()) };
    #[cfg(feature = "redis")]
    return match turnstream_redis::RedisEvents::connect(url).await {
        Ok(events) => Ok(Hub::builder().with_backend(events.clone(), events)),
        Err(error) => Err(unusable_error("--events", error)),
    };
    #[cfg(not(feature = "redis"))]
    Err(missing_feature_error(url, "redis"))
}

/// Opens a database that several processes use.
#[cfg_attr(not(feature = "postgres"), expect(clippy::unused_async, reason = "a server is far"))]
pub(crate) async fn open_store(url: &str) -> Result<Arc<dyn Store>, Error> {
    #[cfg(feature = "postgres")]
    return {
        let connected = turnstream_postgres::PostgresStore::connect(url);
        let wait_for_interrupt = async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            eprintln!("The database of --store does not answer yet.");
            std::future::pending().await
        };
        let connected = tokio::select! {
            connected = connected => connected,
            never = wait_for_interrupt => never,
        };
        match connected {
            Ok(store) => Ok(Arc::new(store)),
            Err(error) => Err(unusable_error("--store", error)),
        }
    };
    #[cfg(not(feature = "postgres"))]
    Err(missing_feature_error(url, "postgres"))
}

#[cfg(any(feature = "postgres", feature = "redis"))]
fn unusable_error(flag: &str, error: Error) -> Error {
    let message = format!("the server of `{flag}` cannot be used: {}", error.message());
    Error::new(error.kind(), message).with_source(error)
}

#[cfg(not(all(feature = "postgres", feature = "redis")))]
fn missing_feature_error(url: &str, feature: &str) -> Error {
    let scheme = url.split(':').next().unwrap_or_default();
    let message = format!("`{scheme}:` needs the feature `{feature}` of this example");
    Error::new(ErrorKind::Unsupported, message)
}

/// Whether another process is running the session, so that the request may be retried later.
pub(crate) fn is_busy_elsewhere(error: &Error) -> bool {
    error.find_source::<AlreadyRunning>().is_some()
        || error.find_source::<AlreadyLeased>().is_some()
}

/// Whether a run with this id has started, in any process, and its log still exists.
pub(crate) async fn has_begun(hub: &Hub, run_id: &str) -> bool {
    matches!(hub.read_any_run(run_id, None).next().await, Some(Ok(_)))
}

/// Resumes the sessions whose process was killed, for as long as the server runs.
pub(crate) async fn resume_lost_runs(app: Arc<App>) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        // While the events are unavailable, the lost runs are unknown.
        for lost in app.hub.lost_runs().await.unwrap_or_default() {
            if app.hub.claim_lost_run(&lost).await.unwrap_or(false) {
                tokio::spawn(resume_in_time(Arc::clone(&app), lost.key));
            }
        }
    }
}

/// Resumes the sessions whose runs in this process have lost their lease, because the database was
/// restarted or this process was suspended.
pub(crate) async fn resume_lost_leases(app: Arc<App>, mut lost: UnboundedReceiver<String>) {
    while let Some(id) = lost.recv().await {
        tokio::spawn(resume_in_time(Arc::clone(&app), id));
    }
}

async fn resume_in_time(app: Arc<App>, id: String) {
    match tokio::time::timeout(RESUME_LIMIT, resume(&app, &id)).await {
        Ok(Ok(true)) => println!("The run of {id} continues here."),
        Ok(Ok(false)) => {}
        Ok(Err(error)) => eprintln!("{id} cannot be resumed: {error}"),
        Err(_) => eprintln!("{id} could not be resumed in time"),
    }
}

/// Resumes one session when its lease has ended. Returns `false` if there is nothing left to do.
async fn resume(app: &App, id: &str) -> Result<bool, Error> {
    loop {
        let open = app
            .session(id)
            .await
            .map_err(|failure| Error::new(ErrorKind::Other, failure.into_message()))?;
        let starting = open.starting.lock().await;
        open.session.reload().await?;
        // A session that waits for a verdict continues to wait.
        if !matches!(open.session.state(), SessionState::Unfinished { .. }) {
            return Ok(false);
        }
        match app.begin_now(&open, &app.agent, Start::Resume(Vec::new())).await {
            Ok(owner) => {
                owner.detach();
                return Ok(true);
            }
            Err(error)
                if is_busy_elsewhere(&error) || error.find_source::<LogUnavailable>().is_some() => {
            }
            Err(error) => return Err(error),
        }
        drop(starting);
        tokio::time::sleep(RETRY_DELAY).await;
    }
}
