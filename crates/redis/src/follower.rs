//! Follows a run's log as it grows.

use std::sync::Arc;

use redis::streams::StreamRangeReply;
use turnstream::Error;
use turnstream::hub::{EventNumber, LogEntry};

use crate::mirror::{Mirror, parse_id};
use crate::shared_state::SharedState;
use crate::stream_entry::{StreamEntry, decode};

/// The maximum number of entries in one response.
const PAGE: usize = 256;

/// Reads new entries from a log as they appear. `number` identifies this follower among all
/// followers of the log.
pub(crate) fn follow(
    mirror: Arc<Mirror>,
    shared: Arc<SharedState>,
    number: u64,
) -> impl Future<Output = ()> + Send + 'static {
    // `end` is dropped even if the future is never polled.
    let end = FollowerEnd { mirror, number };
    async move { follow_for_ever(&end.mirror, &shared).await }
}

struct FollowerEnd {
    mirror: Arc<Mirror>,
    number: u64,
}

impl Drop for FollowerEnd {
    fn drop(&mut self) {
        self.mirror.end_follower(self.number);
    }
}

async fn follow_for_ever(mirror: &Mirror, shared: &SharedState) {
    let mut listener = shared.wakeups.listen(shared.keys.log(&mirror.run));
    loop {
        match fetch(mirror, shared).await {
            Ok(()) => mirror.log.set_outage(None),
            Err(error) => mirror.set_outage(error),
        }
        // If a message announces only entries that are already in the mirror, nothing is read.
        while let Some(news) = listener.wait(shared.settings.beat()).await {
            let last = mirror.log.last_position();
            let announced = news.message.as_deref().and_then(parse_id);
            if announced.is_none_or(|announced| last.is_none_or(|last| announced > last)) {
                break;
            }
        }
    }
}

async fn fetch(mirror: &Mirror, shared: &SharedState) -> Result<(), Error> {
    let last = mirror.log.last_position();
    let mut from = last.map_or("-".to_owned(), |(epoch, number)| format!("({epoch}-{number}"));
    loop {
        let mut pipeline = redis::pipe();
        // The heartbeat is read before the entries. If it were read afterwards, a run that ends
        // between the two reads would appear to be lost.
        pipeline.get(shared.keys.alive(&mirror.run));
        pipeline.xrange_count(shared.keys.log(&mirror.run), &from, "+", PAGE);
        let (alive, page): (Option<String>, StreamRangeReply) =
            shared.connection.pipeline(&pipeline).await?;
        let count = page.ids.len();
        if let Some(last) = page.ids.last() {
            from = format!("({}", last.id);
        }
        let is_dropped = feed_page(mirror, shared, page);
        if count < PAGE {
            mirror.judge(alive.is_some(), is_dropped);
            return Ok(());
        }
    }
}

/// Adds a page of entries to the mirror, skipping entries written by other programs. Returns
/// whether the last entry that was not skipped reports that the run was dropped.
fn feed_page(mirror: &Mirror, shared: &SharedState, page: StreamRangeReply) -> bool {
    let to_number =
        |(epoch, number): (u64, u64)| EventNumber::new(Arc::clone(&mirror.run), epoch, number);
    let (mut entries, mut trim_before, mut is_dropped) = (Vec::new(), None, false);
    for id in page.ids {
        let Some(position) = parse_id(&id.id) else { continue };
        let json: Vec<u8> = id.get("entry").unwrap_or_default();
        match decode(&json) {
            Some(StreamEntry::Content(content)) => {
                let trim =
                    id.get::<String>("trim_before").as_deref().and_then(parse_id).map(to_number);
                if trim.is_some() {
                    let before = std::mem::take(&mut entries);
                    shared.count_cut_readers(mirror.log.append_new(before, trim_before.as_ref()));
                    trim_before = trim;
                }
                is_dropped = false;
                entries.push(LogEntry { number: to_number(position), content });
            }
            Some(StreamEntry::Dropped) => is_dropped = true,
            None => {}
        }
    }
    shared.count_cut_readers(mirror.log.append_new(entries, trim_before.as_ref()));
    is_dropped
}
