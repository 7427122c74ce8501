//! Damaged sessions.

use turnstream::session::{Damage, Entry};

/// Checks the location and the extent of a damage.
#[track_caller]
pub fn assert_damage(
    damage: &Damage,
    after: usize,
    (place, reason): (&str, &str),
    lost: Option<u64>,
    doubtful: &[Entry],
) {
    assert!(damage.location.ends_with(place), "{damage:?}");
    assert!(damage.reason.contains(reason), "{damage:?}");
    assert_eq!((damage.entries_before, damage.lost_entries), (after, lost), "{damage:?}");
    assert_eq!(damage.suspect_entries, doubtful);
}
