//! Events without Redis: snapshots of the session.

use std::convert::Infallible;
use std::time::Duration;

use async_stream::stream;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::Stream;
use serde_json::{Value, json};
use turnstream::Error;
use turnstream_restate::Client;

const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Responds with a snapshot whenever the session has changed, and with the ends of runs. It sends
/// no other events of a run: a turn appears when it is complete.
pub(crate) fn respond(client: Client, session: String) -> Response {
    Sse::new(snapshots(client, session)).keep_alive(KeepAlive::default()).into_response()
}

fn snapshots(client: Client, session: String) -> impl Stream<Item = Result<Event, Infallible>> {
    stream! {
        let mut last = Value::Null;
        loop {
            // While Restate cannot be reached, the page keeps its last snapshot.
            if let Ok(snapshot) = snapshot(&client, &session).await
                && snapshot != last
            {
                if !last["run"].is_null() && last["run"] != snapshot["run"] {
                    yield Ok(to_event(&json!({ "type": "ended", "error": null })));
                }
                yield Ok(to_event(&snapshot));
                last = snapshot;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

fn to_event(data: &Value) -> Event {
    Event::default().data(data.to_string())
}

/// A snapshot as the page expects it; see `turnstream::ui::sse::Sse::respond_to_reader`.
async fn snapshot(client: &Client, session: &str) -> Result<Value, Error> {
    let status = client.status(session).await?;
    Ok(json!({
        "type": "snapshot",
        "run": status.run,
        "starts_at": status.version,
        "events": [],
        "pending": status.pending_calls(),
    }))
}
