//! The state of a session's object, as its handlers read it.

use serde::de::DeserializeOwned;
use turnstream::Error;
use turnstream::durable::storage::{SessionSegments, SessionStatus};
use turnstream::session::Entry;

use crate::context::ReadState;
use crate::errors::unreadable;

/// The key of the session's status.
pub(crate) const STATUS: &str = "status";

/// Reads a session's entries from its object's state.
pub(crate) async fn read_session(
    ctx: &impl ReadState,
) -> Result<(SessionSegments, Vec<Entry>), Error> {
    let mut segments = open_segments(ctx).await?;
    let mut values = Vec::new();
    for key in segments.keys() {
        values.extend(ctx.read(&key).await?);
    }
    let entries = segments.read(values).map_err(|error| unreadable("the session", error))?;
    Ok((segments, entries))
}

/// Reads the entries of a session that another handler may be changing. Unlike [`read_session`], it
/// also reads sessions that are larger than a message.
pub(crate) async fn read_changing_session(ctx: &impl ReadState) -> Result<Vec<Entry>, Error> {
    loop {
        let mut segments = open_segments(ctx).await?;
        let keys = segments.keys();
        let mut values = Vec::new();
        for key in &keys {
            values.extend(ctx.read(key).await?);
        }
        let read = segments.read(values);
        let current = open_segments(ctx).await?;
        match read {
            // Each value is written only once, so entries that have been appended since then change
            // nothing.
            Ok(entries) if current.keys().starts_with(&keys) => return Ok(entries),
            Err(error) if current.keys() == keys && current.version() == segments.version() => {
                return Err(unreadable("the session", error));
            }
            // Values were merged, or the session was removed, while it was read.
            _ => {}
        }
    }
}

/// Returns the number of values that contain a session's entries.
pub(crate) async fn count_values(ctx: &impl ReadState) -> Result<usize, Error> {
    Ok(open_segments(ctx).await?.keys().len())
}

async fn open_segments(ctx: &impl ReadState) -> Result<SessionSegments, Error> {
    let head = ctx.read(SessionSegments::head_key()).await?;
    SessionSegments::open(head.as_deref()).map_err(|error| unreadable("the session", error))
}

/// Reads the status that was last written.
pub(crate) async fn stored_status(ctx: &impl ReadState) -> Result<SessionStatus, Error> {
    Ok(state(ctx, STATUS).await?.unwrap_or_default())
}

/// Reads the session's status.
pub(crate) async fn status(ctx: &impl ReadState) -> Result<SessionStatus, Error> {
    let mut status = stored_status(ctx).await?;
    if status.run.is_some() {
        // The active run may have appended entries since it wrote the status.
        let head = ctx.read(SessionSegments::head_key()).await?;
        status.version = SessionSegments::open(head.as_deref())?.version();
    }
    Ok(status)
}

/// Reads a value of the state, if it is set.
pub(crate) async fn state<T: DeserializeOwned>(
    ctx: &impl ReadState,
    key: &str,
) -> Result<Option<T>, Error> {
    let Some(json) = ctx.read(key).await? else { return Ok(None) };
    serde_json::from_str(&json).map(Some).map_err(|error| unreadable(key, error))
}
