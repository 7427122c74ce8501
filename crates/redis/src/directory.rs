//! The directory of the runs in all processes.

use std::collections::HashMap;
use std::time::Duration;

use redis::streams::StreamRangeReply;
use turnstream::Error;
use turnstream::hub::{AnnouncedRun, LogContent, LogUnavailable, LostRun};

use crate::shared_state::{AnnouncedHere, SharedState};
use crate::stream_entry::{StreamEntry, decode};

/// The time after which a claim expires, in milliseconds.
const CLAIM_MS: u64 = 30_000;

pub(crate) async fn announce(shared: &SharedState, key: &str, run: &str) -> Result<u64, Error> {
    let mut script = shared.scripts.announce.prepare_invoke();
    script.key(shared.keys.runs(key)).key(shared.keys.active());
    script.arg(run).arg(key).arg(shared.settings.expiry_ms());
    let order: u64 = shared.connection.script(&script).await?;
    shared.state().announced.insert(run.to_owned(), AnnouncedHere { key: key.to_owned(), order });
    Ok(order)
}

pub(crate) async fn announce_ended(
    shared: &SharedState,
    key: &str,
    run: &str,
    age: Duration,
) -> Result<(), Error> {
    let mut script = shared.scripts.announce_ended.prepare_invoke();
    script.key(shared.keys.runs(key));
    let age = u64::try_from(age.as_micros()).unwrap_or(1 << 52).min(1 << 52);
    script.arg(run).arg(age).arg(shared.settings.expiry_ms());
    shared.connection.script::<i64>(&script).await.map(drop)
}

/// The maximum number of reports about ended runs that can be queued for the server. Even if a
/// run's end is never reported, other processes do not treat the run as active, because it has no
/// heartbeat.
const MAX_WAITING_ENDS: usize = 10_000;

/// Marks a run as ended. If the request fails, it is retried at the next heartbeat.
pub(crate) async fn end(shared: &SharedState, key: &str, run: &str, order: u64) {
    let mut script = shared.scripts.end.prepare_invoke();
    script.key(shared.keys.runs(key)).key(shared.keys.active());
    script.arg(run).arg(order).arg(shared.settings.expiry_ms());
    let ended: Result<i64, Error> = shared.connection.script(&script).await;
    let mut state = shared.state();
    if ended.is_err() && state.waiting_ends.len() < MAX_WAITING_ENDS {
        let here = AnnouncedHere { key: key.to_owned(), order };
        state.waiting_ends.insert(run.to_owned(), here);
    }
}

/// Retries the failed requests to mark runs as ended.
pub(crate) async fn end_again(shared: &SharedState) {
    let waiting = std::mem::take(&mut shared.state().waiting_ends);
    for (run, here) in waiting {
        end(shared, &here.key, &run, here.order).await;
    }
}

pub(crate) async fn last(shared: &SharedState, key: &str) -> Result<Option<AnnouncedRun>, Error> {
    let record: HashMap<String, String> =
        shared.connection.query(redis::cmd("HGETALL").arg(shared.keys.runs(key))).await?;
    let number = |field: &str| record.get(field).and_then(|text| text.parse().ok());
    let (Some(run), Some(order)) = (record.get("run"), number("order")) else { return Ok(None) };
    let is_active =
        record.get("ended").is_none_or(|ended| ended != "1") && is_alive(shared, run).await?;
    Ok(Some(AnnouncedRun {
        run: run.clone(),
        order,
        previous: number("previous").unwrap_or(0),
        is_active,
    }))
}

/// Returns whether a run has a heartbeat. If the run is in this process, the server is not queried.
async fn is_alive(shared: &SharedState, run: &str) -> Result<bool, Error> {
    let process: Option<String> =
        shared.connection.query(redis::cmd("GET").arg(shared.keys.alive(run))).await?;
    Ok(match process {
        Some(process) if process == shared.process => {
            shared.state().mirrors.get(run).is_some_and(|mirror| mirror.own_attempt().is_some())
        }
        process => process.is_some(),
    })
}

pub(crate) async fn next(
    shared: &SharedState,
    key: &str,
    seen: u64,
) -> Result<AnnouncedRun, Error> {
    let mut listener = shared.wakeups.listen(shared.keys.runs(key));
    loop {
        if let Some(last) = last(shared, key).await?
            && (last.order != seen || last.is_active)
        {
            return Ok(last);
        }
        listener.wait(shared.settings.lease).await;
    }
}

pub(crate) async fn lost(shared: &SharedState) -> Result<Vec<LostRun>, Error> {
    let active: HashMap<Vec<u8>, Vec<u8>> =
        shared.connection.query(redis::cmd("HGETALL").arg(shared.keys.active())).await?;
    let mut lost: Vec<LostRun> = Vec::new();
    for (run, key) in active {
        // Another program may have written an entry that is not a run.
        let (Ok(run), Ok(key)) = (String::from_utf8(run), String::from_utf8(key)) else { continue };
        if shared.state().announced.contains_key(&run) || has_heartbeat(shared, &run).await? {
            continue;
        }
        match is_over(shared, &key, &run).await {
            Ok(true) => {
                let remove = redis::cmd("HDEL").arg(shared.keys.active()).arg(&run).to_owned();
                shared.connection.query::<i64>(&remove).await?;
            }
            Err(error) if error.find_source::<LogUnavailable>().is_some() => return Err(error),
            // A run whose log cannot be read does not hide the other runs.
            Ok(false) | Err(_) => lost.push(LostRun::new(key, run)),
        }
    }
    lost.sort_by(|a, b| (&a.key, &a.run).cmp(&(&b.key, &b.run)));
    Ok(lost)
}

/// Returns whether the process that performs the run is alive.
async fn has_heartbeat(shared: &SharedState, run: &str) -> Result<bool, Error> {
    // A key of another type is not a heartbeat.
    let kind = redis::cmd("TYPE").arg(shared.keys.alive(run)).to_owned();
    Ok(shared.connection.query::<String>(&kind).await? == "string")
}

/// Returns whether a run whose process has died has ended or has been replaced by another run. The
/// process may have died before it could remove the run's entry.
async fn is_over(shared: &SharedState, key: &str, run: &str) -> Result<bool, Error> {
    let mut last = redis::cmd("XREVRANGE");
    last.arg(shared.keys.log(run)).arg("+").arg("-").arg("COUNT").arg(1);
    let entries: StreamRangeReply = shared.connection.query(&last).await?;
    Ok(has_end(&entries) || is_replaced(shared, key, run).await?)
}

/// Returns whether the newest run that the directory lists for the key is not `run`.
async fn is_replaced(shared: &SharedState, key: &str, run: &str) -> Result<bool, Error> {
    let last = redis::cmd("HGET").arg(shared.keys.runs(key)).arg("run").to_owned();
    let last: Option<String> = shared.connection.query(&last).await?;
    Ok(last.is_some_and(|last| last != run))
}

fn has_end(entries: &StreamRangeReply) -> bool {
    let Some(id) = entries.ids.first() else { return false };
    let json: Vec<u8> = id.get("entry").unwrap_or_default();
    match decode(&json) {
        Some(StreamEntry::Content(content)) => matches!(content, LogContent::End(_)),
        Some(StreamEntry::Dropped) => true,
        None => false,
    }
}

pub(crate) async fn claim(shared: &SharedState, lost: &LostRun) -> Result<bool, Error> {
    let mut claim = redis::cmd("SET");
    claim.arg(shared.keys.claim(&lost.run)).arg(&shared.process);
    claim.arg("NX").arg("PX").arg(CLAIM_MS);
    let set: Option<String> = shared.connection.query(&claim).await?;
    Ok(set.is_some())
}
