//! Sessions that are removed.

use std::time::{Duration, SystemTime};

use turnstream::session::Store;
use turnstream_testing::session_suite::numbered_entries;

use super::temp_store::ReopenableStore;

/// Checks that the suite for all stores does not skip the store as one that cannot remove sessions.
pub async fn sessions_are_removed_even_through_a_shared_store(empty: fn() -> ReopenableStore) {
    let reopenable = empty();
    let store = reopenable.open();
    store.append("s", 0, numbered_entries(0..1)).await.unwrap();
    assert!(store.delete("s").await.unwrap());
    store.append("s", 0, numbered_entries(0..1)).await.unwrap();
    let later = SystemTime::now() + Duration::from_mins(1);
    assert_eq!(store.prune(later).await.unwrap(), ["s"]);
}
