//! Several processes share the store, the events, and the runs of one that was killed.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use turnstream::hub::{AlreadyRunning, Hub, LogUnavailable, LostRun};
use turnstream::session::{AlreadyLeased, SessionState, Store};
use turnstream::{Error, ErrorKind};

use crate::app::App;
use crate::starts::Start;

/// How often it is looked for runs whose process has died.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// For so long it is tried to resume the session of a lost run: its lease ends when the database has noticed that the
/// process is gone.
const RESUME_LIMIT: Duration = Duration::from_secs(25);

/// After this time another process may be done with a session that it runs.
pub(crate) const RETRY_DELAY: Duration = Duration::from_millis(200);

/// A hub of its own, or one with all processes that have the same address for their events.
pub(crate) async fn open_hub(events: Option<&str>) -> Result<Hub, Error> {
    let Some(url) = events else { return Ok(Hub::new()) };
    #[cfg(feature = "redis")]
    return Ok(Hub::with_redis(turnstream::hub::redis::RedisEvents::connect(url).await?));
    #[cfg(not(feature = "redis"))]
    Err(missing_feature_error(url, "redis"))
}

/// A database that several processes use.
pub(crate) async fn open_store(url: &str) -> Result<Arc<dyn Store>, Error> {
    #[cfg(feature = "postgres")]
    return Ok(Arc::new(turnstream::session::PostgresStore::connect(url).await?));
    #[cfg(not(feature = "postgres"))]
    Err(missing_feature_error(url, "postgres"))
}

#[cfg(not(all(feature = "postgres", feature = "redis")))]
fn missing_feature_error(url: &str, feature: &str) -> Error {
    let scheme = url.split(':').next().unwrap_or_default();
    let message = format!("`{scheme}:` needs the feature `{feature}` of this example");
    Error::new(ErrorKind::Unsupported, message)
}

/// Whether another process works on the session: it may be tried again later.
pub(crate) fn is_busy_elsewhere(error: &Error) -> bool {
    AlreadyRunning::from_error(error).is_some() || AlreadyLeased::from_error(error).is_some()
}

/// Whether a run with this id has begun, in any process, and its log is still there.
pub(crate) async fn has_begun(hub: &Hub, run_id: &str) -> bool {
    matches!(hub.read_any_run(run_id, None).next().await, Some(Ok(_)))
}

/// Resumes the sessions whose process was killed, for as long as the server runs.
pub(crate) async fn resume_lost_runs(app: Arc<App>) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        // While the events are unavailable, nobody knows what is lost.
        for lost in app.hub.lost_runs().await.unwrap_or_default() {
            if app.hub.claim_lost_run(&lost).await.unwrap_or(false) {
                let app = Arc::clone(&app);
                tokio::spawn(async move {
                    let resumed = tokio::time::timeout(RESUME_LIMIT, resume(&app, &lost));
                    match resumed.await {
                        Ok(Ok(true)) => println!("The run of {} goes on here.", lost.key),
                        Ok(Ok(false)) => {}
                        Ok(Err(error)) => eprintln!("{} cannot be resumed: {error}", lost.key),
                        Err(_) => eprintln!("{} is still leased", lost.key),
                    }
                });
            }
        }
    }
}

/// Resumes one session, when its lease has ended. `false` if nothing is left to do.
async fn resume(app: &App, lost: &LostRun) -> Result<bool, Error> {
    loop {
        let open = app
            .session(&lost.key)
            .await
            .map_err(|failure| Error::new(ErrorKind::Other, failure.into_message()))?;
        let starting = open.starting.lock().await;
        open.session.reload().await?;
        // Who waits for a verdict goes on waiting.
        if !matches!(open.session.state(), SessionState::Unfinished { .. }) {
            return Ok(false);
        }
        match app.begin_now(&open, &app.agent, Start::Resume(Vec::new())).await {
            Ok(owner) => {
                owner.detach();
                return Ok(true);
            }
            Err(error)
                if is_busy_elsewhere(&error) || LogUnavailable::from_error(&error).is_some() => {}
            Err(error) => return Err(error),
        }
        drop(starting);
        tokio::time::sleep(RETRY_DELAY).await;
    }
}
