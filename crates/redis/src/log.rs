//! Writes logs to Redis.

use std::sync::Arc;

use turnstream::env::{Ids, SystemIds};
use turnstream::hub::{EventNumber, LogContent, LogEntry, NotRunning, StaleEpoch};
use turnstream::{Error, ErrorKind};

use crate::mirror::{Mirror, OwnAttempt, parse_id};
use crate::shared_state::SharedState;
use crate::stream_entry::DROPPED;

/// Starts an attempt at a run.
pub(crate) async fn begin(shared: &SharedState, run: &str) -> Result<u64, Error> {
    let (keys, settings) = (&shared.keys, &shared.settings);
    let token = SystemIds.next_id();
    let mut script = shared.scripts.begin.prepare_invoke();
    script.key(keys.owner(run)).key(keys.log(run)).key(keys.alive(run));
    script.arg(&token).arg(settings.expiry_ms()).arg(&shared.process).arg(settings.lease_ms());
    let epoch: u64 = shared.connection.script(&script).await?;
    let own = OwnAttempt { epoch, owner: format!("{epoch}:{token}") };
    let mut state = shared.state();
    let mirror = state.mirrors.entry(run.to_owned()).or_insert_with(|| Arc::new(Mirror::new(run)));
    mirror.own(own);
    Ok(epoch)
}

/// Appends entries from an attempt in this process.
pub(crate) async fn append(
    shared: &SharedState,
    entries: Vec<LogEntry>,
    trim_before: Option<EventNumber>,
) -> Result<(), Error> {
    let Some(first) = entries.first().map(|entry| entry.number.clone()) else { return Ok(()) };
    let mirror = shared.state().mirrors.get(first.run()).cloned();
    let own = mirror.and_then(|mirror| Some((mirror.own_attempt()?, mirror)));
    let Some((own, mirror)) = own else {
        return Err(NotRunning { run: first.run().to_owned() }.into());
    };
    if own.epoch != first.epoch() {
        let (run, epoch) = (first.run().to_owned(), first.epoch());
        return Err(StaleEpoch { run, epoch, found: own.epoch }.into());
    }
    let mut lost = append_once(shared, &mirror, &own, &entries, trim_before.as_ref()).await?;
    let mut tries = 0;
    while let Some(last) = lost {
        tries += 1;
        if tries > 3 {
            let message = "another program writes into the log of the run";
            return Err(Error::new(ErrorKind::Store, message));
        }
        // If the server has lost entries, this process still has them.
        let mut all = mirror.log.entries_after(last);
        let known = all.last().map(|entry| entry.number.position());
        let is_new = |entry: &&LogEntry| known.is_none_or(|known| entry.number.position() > known);
        all.extend(entries.iter().filter(is_new).cloned());
        lost = write(shared, &own, &all, None, String::new()).await?;
    }
    shared.count_cut_readers(mirror.log.append_new(entries, trim_before.as_ref()));
    Ok(())
}

/// Restores the entries that are missing from the server's copy of the log `mirror`, if the last
/// entry on the server is still `last`. If the last entry has changed, another append has already
/// restored the missing entries.
pub(crate) async fn restore(
    shared: &SharedState,
    mirror: &Mirror,
    own: &OwnAttempt,
    last: (u64, u64),
) -> Result<(), Error> {
    let missing = mirror.log.entries_after(last);
    if !missing.is_empty() {
        write(shared, own, &missing, None, format!("{}-{}", last.0, last.1)).await?;
    }
    Ok(())
}

async fn append_once(
    shared: &SharedState,
    mirror: &Mirror,
    own: &OwnAttempt,
    entries: &[LogEntry],
    trim_before: Option<&EventNumber>,
) -> Result<Option<(u64, u64)>, Error> {
    let before = match entries.first() {
        Some(LogEntry { content: LogContent::Snapshot(_), .. }) | None => None,
        Some(LogEntry { number, .. }) => number.number().checked_sub(1),
    };
    // `before` is `None` for the first entries that this process writes to a log.
    let before = before.filter(|_| mirror.log.last_position().is_some());
    let before = before.map_or_else(String::new, |number| format!("{}-{number}", own.epoch));
    write(shared, own, entries, trim_before, before).await
}

/// Appends entries with a single script. If the last entry in the log does not have the expected
/// id, returns that entry's actual id.
async fn write(
    shared: &SharedState,
    own: &OwnAttempt,
    entries: &[LogEntry],
    trim_before: Option<&EventNumber>,
    before: String,
) -> Result<Option<(u64, u64)>, Error> {
    let Some(last) = entries.last() else { return Ok(None) };
    let (keys, run) = (&shared.keys, last.number.run());
    let has_end = matches!(last.content, LogContent::End(_));
    let mut script = shared.scripts.append.prepare_invoke();
    script.key(keys.owner(run)).key(keys.log(run)).key(keys.alive(run));
    script.arg(&own.owner).arg(before).arg(shared.settings.expiry_ms());
    script.arg(u8::from(has_end)).arg(trim_before.map_or_else(String::new, id));
    for entry in entries {
        let json = serde_json::to_string(&entry.content).map_err(|error| {
            Error::new(ErrorKind::Store, "an entry of a log is not JSON").with_source(error)
        })?;
        script.arg(id(&entry.number)).arg(json);
    }
    let (status, found): (String, String) = shared.connection.script(&script).await?;
    match status.as_str() {
        "ok" => Ok(None),
        "lost" => Ok(Some(parse_id(&found).unwrap_or_default())),
        _ => {
            let found = found.split_once(':').and_then(|(epoch, _)| epoch.parse().ok());
            let (run, epoch) = (run.to_owned(), own.epoch);
            Err(StaleEpoch { run, epoch, found: found.unwrap_or_default() }.into())
        }
    }
}

/// Removes the log of one of this process's attempts from the server. This process has already
/// removed its own copy of the log.
pub(crate) async fn remove(shared: &SharedState, run: &str, own: &OwnAttempt, has_ended: bool) {
    let keys = &shared.keys;
    let mut script = shared.scripts.remove.prepare_invoke();
    script.key(keys.owner(run)).key(keys.log(run)).key(keys.alive(run));
    script.arg(&own.owner).arg(u8::from(has_ended));
    script.arg(format!("{}-{}", own.epoch, u64::MAX)).arg(DROPPED).arg(shared.settings.expiry_ms());
    // If the script fails, the keys expire.
    let _: Result<i64, Error> = shared.connection.script(&script).await;
}

fn id(number: &EventNumber) -> String {
    format!("{}-{}", number.epoch(), number.number())
}
