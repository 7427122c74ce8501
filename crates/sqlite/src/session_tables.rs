//! Implements the SQLite store's operations, which run on the store's thread.

use std::cmp::Reverse;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, Error as Sqlite, OptionalExtension, Row, Transaction, params};
use turnstream::Error;
use turnstream::env::Clock;
use turnstream::session::backend::{
    BlockingStore, LockFile, corrupt_data_error, ensure_expected_version, ensure_fork_point_exists,
    ensure_has_no_forks, ensure_id_not_empty, ensure_session_absent, entry_to_json_line,
    file_name_from_id, outcome_unknown_error, prunable_ids, store_error,
};
use turnstream::session::{
    Conflict, Entry, ForkOrigin, Lease, LeaseLost, SalvageReport, SessionInfo,
};

use crate::database::{Database, DatabaseError, IfMissing};

/// Manages a store's database tables.
pub(crate) struct SessionTables {
    pub(crate) database: Database,
    pub(crate) clock: Arc<dyn Clock>,
}

/// A session's row.
struct SessionRow {
    key: i64,
    version: u64,
    parent_key: Option<i64>,
    inherited_entry_count: u64,
}

const SELECT_SESSION: &str = "SELECT key, version, parent, inherited FROM session";

impl BlockingStore for SessionTables {
    fn append(
        &mut self,
        lease: Option<&Lease>,
        id: &str,
        expected: u64,
        entries: Vec<Entry>,
    ) -> Result<u64, Error> {
        ensure_id_not_empty(id)?;
        let lines =
            entries.iter().map(entry_to_json_line).collect::<Result<Vec<String>, Error>>()?;
        let clock = &self.clock;
        let lock = lock_path(&self.database.target_path(), id);
        drop(entries);
        let count = lines.len() as u64;
        let missing = match expected == 0 && count > 0 {
            true => IfMissing::Create,
            false => IfMissing::ReturnNone,
        };
        let version = self.database.write(missing, |transaction| {
            lease.map_or(Ok(()), |lease| ensure_lock_held(lease, &lock, id))?;
            let Some(transaction) = transaction else {
                return Ok(ensure_expected_version(id, expected, 0).map(|()| 0)?);
            };
            if let Some(lease) = lease {
                ensure_last_lease(&transaction, lease, id)?;
            }
            let stored = find_session(&transaction, id)?;
            let found = stored.as_ref().map_or(0, |stored| stored.version);
            ensure_expected_version(id, expected, found)?;
            if count == 0 {
                return Ok(found);
            }
            let version = found + count;
            let now = to_unix_micros(clock.now());
            let key = match stored {
                Some(stored) => stored.key,
                None => insert_session(&transaction, id, None, 0, now)?,
            };
            let mut insert = transaction.prepare_cached("INSERT INTO entry VALUES (?, ?, ?)")?;
            for (number, json) in (found..).zip(lines) {
                insert.raw_bind_parameter(1, key)?;
                insert.raw_bind_parameter(2, to_sql_integer(number))?;
                insert.raw_bind_parameter(3, json.as_str())?;
                // SQLite has copied the line, and copies it once more.
                drop(json);
                insert.raw_execute()?;
            }
            drop(insert);
            transaction
                .prepare_cached("UPDATE session SET version = ?, updated = ? WHERE key = ?")?
                .execute(params![to_sql_integer(version), now, key])?;
            commit(transaction)?;
            Ok(version)
        })?;
        if count == 0 || self.is_database_at_path()? {
            return Ok(version);
        }
        // The entries were written to a file that has been removed from its folder, or that has
        // lost its log.
        match self.version(id)? {
            found if found == version => {
                let replaced = io::Error::other("the database was replaced");
                Err(outcome_unknown_error("cannot write the session", replaced))
            }
            found => Err(Conflict { id: id.to_owned(), expected, found }.into()),
        }
    }

    fn lease(&mut self, id: &str) -> Result<Lease, Error> {
        ensure_id_not_empty(id)?;
        let path = self.database.target_path();
        let held = LockFile::lock(lock_path(&path, id), id, &path)?;
        // Higher than any epoch of an earlier lease, whose row was deleted with its session.
        let first = to_unix_micros(self.clock.now()).max(1);
        self.database.write(IfMissing::ReturnNone, |transaction| {
            // The database does not exist until the first entry is written.
            let Some(transaction) = transaction else {
                return Ok(Lease::new(from_sql_integer(first), held));
            };
            let epoch: i64 = transaction.query_row(
                "INSERT INTO lease VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET epoch = epoch + 1
                 RETURNING epoch",
                params![id, first],
                |row| row.get(0),
            )?;
            commit(transaction)?;
            Ok(Lease::new(from_sql_integer(epoch), held))
        })
    }

    fn load(&mut self, id: &str, from: u64) -> Result<Option<Vec<Entry>>, Error> {
        let loaded = self.database.read(|database| {
            let Some(stored) = find_session(database, id)? else { return Ok(None) };
            let mut entries = Vec::new();
            for (key, numbers) in fork_segments(database, id, &stored, from)?.into_iter().rev() {
                read_entries(database, id, key, numbers, &mut entries)?;
            }
            Ok(Some(entries))
        });
        loaded.map(Option::flatten)
    }

    fn list(&mut self) -> Result<Vec<SessionInfo>, Error> {
        self.database.read(|database| Ok(list_sessions(database)?)).map(Option::unwrap_or_default)
    }

    fn fork(&mut self, id: &str, at: u64, new: &str) -> Result<(), Error> {
        ensure_id_not_empty(new)?;
        let clock = &self.clock;
        self.database.write(IfMissing::ReturnNone, |transaction| {
            let Some(transaction) = transaction else {
                return Ok(ensure_fork_point_exists(id, at, None)?);
            };
            let origin = find_session(&transaction, id)?;
            ensure_fork_point_exists(id, at, origin.as_ref().map(|stored| stored.version))?;
            ensure_session_absent(
                new,
                find_session(&transaction, new)?.map(|stored| stored.version),
            )?;
            let now = to_unix_micros(clock.now());
            insert_session(&transaction, new, origin.map(|stored| stored.key), at, now)?;
            commit(transaction)
        })?;
        match self.is_database_at_path()? {
            true => Ok(()),
            false => Err(corrupt_data_error("the database was replaced while it was written")),
        }
    }

    fn delete(&mut self, id: &str) -> Result<bool, Error> {
        self.database.write(IfMissing::ReturnNone, |transaction| {
            let Some(transaction) = transaction else { return Ok(false) };
            let Some(stored) = find_session(&transaction, id)? else { return Ok(false) };
            let fork: Option<String> = transaction
                .query_row("SELECT id FROM session WHERE parent = ?", [stored.key], |row| {
                    row.get(0)
                })
                .optional()?;
            ensure_has_no_forks(id, fork)?;
            delete_session(&transaction, id)?;
            commit(transaction)?;
            Ok(true)
        })
    }

    fn prune(&mut self, before: SystemTime) -> Result<Vec<String>, Error> {
        self.database.write(IfMissing::ReturnNone, |transaction| {
            let Some(transaction) = transaction else { return Ok(Vec::new()) };
            let listed = list_sessions(&transaction)?;
            let removed = prunable_ids(&listed, before);
            removed.iter().try_for_each(|id| delete_session(&transaction, id))?;
            // Delete the leases of sessions that were never written to.
            transaction
                .execute("DELETE FROM lease WHERE id NOT IN (SELECT id FROM session)", ())?;
            commit(transaction)?;
            Ok(removed.into_iter().map(String::from).collect())
        })
    }
}

impl SessionTables {
    /// Returns whether the database that was written to is the database at its path.
    fn is_database_at_path(&self) -> Result<bool, Error> {
        let is_at_path = self.database.is_at_path();
        is_at_path.map_err(|error| outcome_unknown_error("cannot find the written file", error))
    }

    /// Returns a session's version, or 0 if the session does not exist.
    fn version(&mut self, id: &str) -> Result<u64, Error> {
        let stored = self.database.read(|database| Ok(find_session(database, id)?))?.flatten();
        Ok(stored.map_or(0, |stored| stored.version))
    }

    pub(crate) fn salvage(&mut self, id: &str) -> Result<Option<SalvageReport>, Error> {
        let salvaged = self.database.read(|database| {
            let Some(stored) = find_session(database, id)? else { return Ok(None) };
            let mut salvaged = SalvageReport::default();
            for (key, numbers) in fork_segments(database, id, &stored, 0)?.into_iter().rev() {
                let there = next_entry_number(database, key).unwrap_or(numbers.end);
                let there = there.clamp(numbers.start, numbers.end);
                for number in numbers.start..there {
                    // Entries are read one at a time, because a damaged page affects only some of
                    // them.
                    let entry =
                        read_entries(database, id, key, number..number + 1, &mut salvaged.entries);
                    if let Err(failed) = entry {
                        let place = format!("entry {number} of the session `{id}`");
                        let reason = failed.into_read_error().message().to_owned();
                        salvaged.push_damage(place, reason, Some(1));
                    }
                }
                if there < numbers.end {
                    let lost = there..numbers.end;
                    let place =
                        format!("entries {there} to {} of the session `{id}`", lost.end - 1);
                    let count = Some(lost.end - lost.start);
                    salvaged.push_damage(place, "they are missing".to_owned(), count);
                }
            }
            Ok(Some(salvaged))
        });
        salvaged.map(Option::flatten)
    }
}

/// Commits a transaction. If this fails, the caller must return the error, so that the commit is
/// undone.
fn commit(transaction: Transaction<'_>) -> Result<(), DatabaseError> {
    transaction.commit().map_err(DatabaseError::Commit)
}

/// A row of the list: the session's id, version, number of inherited entries and time of the last
/// write, and the id of its original session.
const SELECT_LISTED: &str = "
    SELECT session.id, session.version, session.inherited, session.updated, parent.id
    FROM session LEFT JOIN session AS parent ON parent.key = session.parent";

fn list_sessions(database: &Connection) -> Result<Vec<SessionInfo>, Sqlite> {
    let list = || -> Result<Vec<SessionInfo>, Sqlite> {
        let order = "ORDER BY session.updated DESC, session.id";
        let mut select = database.prepare(&format!("{SELECT_LISTED} {order}"))?;
        select.query_map((), session_info)?.collect()
    };
    list().or_else(|error| list_readable_sessions(database).map_err(|_| error))
}

/// Lists the sessions one by one. A damaged page of the table affects only some of them, and the
/// index of the ids contains all of them.
fn list_readable_sessions(database: &Connection) -> Result<Vec<SessionInfo>, Sqlite> {
    let mut select = database.prepare("SELECT key, id FROM session ORDER BY id")?;
    let mut keys = select.query(())?;
    let mut select_one = database.prepare(&format!("{SELECT_LISTED} WHERE session.key = ?"))?;
    let mut listed = Vec::new();
    while let Some(row) = keys.next()? {
        let (key, id): (i64, String) = (row.get(0)?, text_lossy(row, 1)?);
        listed.push(
            select_one
                .query_row([key], session_info)
                .unwrap_or_else(|error| unreadable_session_info(id, UNIX_EPOCH, &error)),
        );
    }
    // The sort is stable: sessions with the same time stay in the order of their ids.
    listed.sort_by_key(|info| Reverse(info.updated_at));
    Ok(listed)
}

/// Reads a row of the list. A row with an id that is not text does not hide the other rows.
fn session_info(row: &Row<'_>) -> Result<SessionInfo, Sqlite> {
    let at = from_sql_integer(row.get(2)?);
    let updated_at = UNIX_EPOCH + Duration::from_micros(from_sql_integer(row.get(3)?));
    let origin = || {
        let parent: Option<String> = row.get(4)?;
        Ok(parent.map(|id| ForkOrigin { id, at }))
    };
    match (row.get(0), origin()) {
        (Ok(id), Ok(origin)) => {
            let version = from_sql_integer(row.get(1)?);
            Ok(SessionInfo { id, version, origin, updated_at, read_error: None })
        }
        (Err(error), _) | (_, Err(error)) => {
            Ok(unreadable_session_info(text_lossy(row, 0)?, updated_at, &error))
        }
    }
}

fn unreadable_session_info(id: String, updated_at: SystemTime, error: &Sqlite) -> SessionInfo {
    SessionInfo { id, version: 0, origin: None, updated_at, read_error: Some(error.to_string()) }
}

fn text_lossy(row: &Row<'_>, column: usize) -> Result<String, Sqlite> {
    let bytes = row.get_ref(column)?.as_bytes()?;
    Ok(String::from_utf8_lossy(bytes).into_owned())
}

/// Returns the path to a session's lock file.
fn lock_path(database: &Path, id: &str) -> PathBuf {
    let mut folder = database.as_os_str().to_owned();
    folder.push(".locks");
    Path::new(&folder).join(format!("{}.lock", file_name_from_id(id)))
}

/// Checks that the lease belongs to the session `id`, and that the lease's lock file has not been
/// removed.
fn ensure_lock_held(lease: &Lease, path: &Path, id: &str) -> Result<(), Error> {
    match lease.hold::<LockFile>().is_some_and(|held| held.is_at(path)) {
        true => Ok(()),
        false => Err(lease_lost_error(lease, id)),
    }
}

/// Checks that the lease is the session's latest lease. The check also succeeds if the session was
/// deleted in the meantime.
fn ensure_last_lease(database: &Connection, lease: &Lease, id: &str) -> Result<(), DatabaseError> {
    let epoch: Option<i64> = database
        .prepare_cached("SELECT epoch FROM lease WHERE id = ?")?
        .query_row([id], |row| row.get(0))
        .optional()?;
    match epoch.is_none_or(|epoch| from_sql_integer(epoch) == lease.epoch()) {
        true => Ok(()),
        false => Err(lease_lost_error(lease, id).into()),
    }
}

fn lease_lost_error(lease: &Lease, id: &str) -> Error {
    LeaseLost { id: id.to_owned(), epoch: lease.epoch() }.into()
}

fn delete_session(database: &Connection, id: &str) -> Result<(), Sqlite> {
    let entries = "DELETE FROM entry WHERE session = (SELECT key FROM session WHERE id = ?)";
    database.execute(entries, [id])?;
    database.execute("DELETE FROM session WHERE id = ?", [id])?;
    database.execute("DELETE FROM lease WHERE id = ?", [id])?;
    Ok(())
}

/// Converts a time to microseconds since 1970, the unit that the database uses.
fn to_unix_micros(time: SystemTime) -> i64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    i64::try_from(since.unwrap_or_default().as_micros()).unwrap_or(i64::MAX)
}

fn find_session(database: &Connection, id: &str) -> Result<Option<SessionRow>, Sqlite> {
    database
        .prepare_cached(&format!("{SELECT_SESSION} WHERE id = ?"))?
        .query_row([id], SessionRow::from_row)
        .optional()
}

fn find_session_by_key(database: &Connection, key: i64) -> Result<SessionRow, Sqlite> {
    database.query_row(&format!("{SELECT_SESSION} WHERE key = ?"), [key], SessionRow::from_row)
}

impl SessionRow {
    fn from_row(row: &Row<'_>) -> Result<Self, Sqlite> {
        Ok(Self {
            key: row.get(0)?,
            version: from_sql_integer(row.get(1)?),
            parent_key: row.get(2)?,
            inherited_entry_count: from_sql_integer(row.get(3)?),
        })
    }
}

/// Inserts a session with its inherited entries, and returns its key.
fn insert_session(
    database: &Connection,
    id: &str,
    parent: Option<i64>,
    inherited: u64,
    now: i64,
) -> Result<i64, Sqlite> {
    database.execute(
        "INSERT INTO session (id, parent, inherited, version, updated) VALUES (?1, ?2, ?3, ?3, ?4)",
        params![id, parent, to_sql_integer(inherited), now],
    )?;
    Ok(database.last_insert_rowid())
}

/// Returns one more than the number of the session's last own entry, or 0 if the session has no own
/// entries.
fn next_entry_number(database: &Connection, key: i64) -> Result<u64, Sqlite> {
    let last: Option<i64> =
        database.query_row("SELECT max(number) FROM entry WHERE session = ?", [key], |row| {
            row.get(0)
        })?;
    Ok(last.map_or(0, |last| from_sql_integer(last).saturating_add(1)))
}

/// Returns where a session's entries are stored, as a list of session keys, each with a range of
/// entry numbers. The list starts with the session itself, and each ancestor follows the session
/// that was forked from it.
fn fork_segments(
    database: &Connection,
    id: &str,
    stored: &SessionRow,
    from: u64,
) -> Result<Vec<(i64, Range<u64>)>, DatabaseError> {
    let mut until = stored.version;
    let mut parts = vec![(stored.key, stored.inherited_entry_count.max(from)..until)];
    let mut next = stored.parent_key.filter(|_| from < stored.inherited_entry_count);
    until = until.min(stored.inherited_entry_count);
    while let Some(key) = next {
        let parent = find_session_by_key(database, key)?;
        parts.push((parent.key, parent.inherited_entry_count.max(from)..until));
        next = parent.parent_key.filter(|_| from < parent.inherited_entry_count);
        until = until.min(parent.inherited_entry_count);
        if next.is_some_and(|next| next >= key) {
            return Err(corrupt_data_error(format!(
                "the session `{id}` is a fork of a younger one"
            ))
            .into());
        }
    }
    Ok(parts)
}

/// Reads a range of a session's entries. All of these entries must exist.
fn read_entries(
    database: &Connection,
    id: &str,
    key: i64,
    numbers: Range<u64>,
    entries: &mut Vec<Entry>,
) -> Result<(), DatabaseError> {
    let mut select = database.prepare(
        "SELECT number, json FROM entry
         WHERE session = ? AND number >= ? AND number < ? ORDER BY number",
    )?;
    let mut rows =
        select.query(params![key, to_sql_integer(numbers.start), to_sql_integer(numbers.end)])?;
    for expected in numbers {
        let gone =
            || corrupt_data_error(format!("entry {expected} of the session `{id}` is missing"));
        let row = rows.next()?.ok_or_else(gone)?;
        if from_sql_integer(row.get(0)?) != expected {
            return Err(gone().into());
        }
        let json = row.get_ref(1)?.as_bytes().map_err(Sqlite::from)?;
        let entry = serde_json::from_slice(json);
        let what = || format!("entry {expected} of the session `{id}` cannot be read");
        entries.push(entry.map_err(|error| store_error(what(), error))?);
    }
    Ok(())
}

/// Converts a version to an SQLite integer. Versions beyond the integer's range are clamped, but
/// are never reached, because no session has that many entries.
fn to_sql_integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Converts an SQLite integer back to a version; see [`to_sql_integer`].
fn from_sql_integer(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
