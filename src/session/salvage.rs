//! The readable part of a damaged session.

use crate::session::Entry;

/// The readable part of a damaged session, and a list of the damaged parts.
///
/// Salvaging a session does not change it. The salvaged entries can be appended to a new session:
///
/// ```
/// use turnstream::Item;
/// use turnstream::session::{JsonLinesStore, Store};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), turnstream::Error> {
/// # let folder = std::env::temp_dir().join(format!("turnstream-doc-salvage-{}", std::process::id()));
/// let store = JsonLinesStore::open(&folder)?;
/// store.append("talk", 0, vec![Item::user("Hi").into()]).await?;
/// store.append("talk", 1, vec![Item::text("Hello!").into()]).await?;
///
/// // Simulate a changed byte on the disk.
/// let path = folder.join("talk.jsonl");
/// let text = std::fs::read_to_string(&path).unwrap();
/// std::fs::write(&path, text.replace("Hello!", "Hullo!")).unwrap();
/// let error = store.load("talk", 0).await.unwrap_err();
/// assert!(error.message().ends_with("line 5 of the session is broken: the checksum is wrong"));
///
/// let salvaged = store.salvage("talk").await?.unwrap();
/// assert_eq!(salvaged.entries, [Item::user("Hi").into()]);
/// assert_eq!(salvaged.damage[0].lost_entries, Some(1));
/// assert_eq!(salvaged.damage[0].suspect_entries, [Item::text("Hullo!").into()]);
/// store.append("talk, salvaged", 0, salvaged.entries).await?;
/// # std::fs::remove_dir_all(&folder).unwrap();
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct SalvageReport {
    /// The readable entries, in order, including inherited entries.
    pub entries: Vec<Entry>,
    /// The damaged parts, in order. The list is empty if the session is undamaged.
    pub damage: Vec<Damage>,
}

/// Describes a part of a session that differs from the data that was originally written.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Damage {
    /// The number of readable entries before the damaged part.
    pub entries_before: usize,
    /// A human-readable location of the damage, such as a file and line numbers, or an entry and
    /// its session.
    pub location: String,
    /// A description of the damage.
    pub reason: String,
    /// The number of entries that were lost in the damaged part. `None` if this number is unknown.
    pub lost_entries: Option<u64>,
    /// The parseable entries in the damaged part. These entries may differ from the entries that
    /// were originally written.
    pub suspect_entries: Vec<Entry>,
}

impl SalvageReport {
    /// Adds a damaged part without suspect entries, which follows the entries added so far. The
    /// arguments are the fields of [`Damage`] with these names.
    pub fn push_damage(&mut self, location: String, reason: String, lost_entries: Option<u64>) {
        let (entries_before, suspect_entries) = (self.entries.len(), Vec::new());
        let damage = Damage { entries_before, location, reason, lost_entries, suspect_entries };
        self.damage.push(damage);
    }

    /// Keeps the first `at` entries of the original session, including lost entries in the count.
    /// If the number of entries lost in a damaged part is unknown, everything after that part is
    /// removed.
    pub(super) fn truncated(mut self, at: u64) -> Self {
        let mut damage: Vec<Damage> = Vec::new();
        let mut lost: u64 = 0;
        for found in self.damage {
            if lost.saturating_add(found.entries_before as u64) >= at {
                break;
            }
            let (after, count) = (found.entries_before, found.lost_entries);
            damage.push(found);
            match count {
                Some(count) => lost = lost.saturating_add(count),
                None => {
                    self.entries.truncate(after);
                    break;
                }
            }
        }
        let before = damage.last().map_or(0, |damage| damage.entries_before);
        let left = usize::try_from(at.saturating_sub(lost)).unwrap_or(usize::MAX);
        self.entries.truncate(left.max(before));
        Self { entries: self.entries, damage }
    }

    /// Appends the entries and the damage of another report.
    pub(super) fn chain(mut self, next: Self) -> Self {
        let before = self.entries.len();
        self.entries.extend(next.entries);
        let moved = next.damage.into_iter();
        self.damage.extend(
            moved.map(|damage| Damage { entries_before: damage.entries_before + before, ..damage }),
        );
        self
    }
}
