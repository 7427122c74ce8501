//! Implements the store's operations as SQL statements on its tables.
use std::ops::Range;
use std::pin::pin;
use std::time::{Duration, SystemTime};

use deadpool_postgres::{ClientWrapper, GenericClient};
use futures::TryStreamExt;
use tokio_postgres::Row;
use tokio_postgres::types::{FromSqlOwned, ToSql};
use turnstream::Error;
use turnstream::session::backend::{
    corrupt_data_error, ensure_expected_version, ensure_fork_point_exists, ensure_has_no_forks,
    ensure_session_absent, outcome_unknown_error, prunable_ids, store_error,
};
use turnstream::session::{Entry, ForkOrigin, LeaseLost, SessionInfo};

use crate::append_id::AppendId;
use crate::database::Database;
use crate::error::PostgresError;
use crate::statements::Statements;

/// The database, and the SQL statements for the tables of a store.
pub(crate) struct SessionTables {
    pub(crate) database: Database,
    pub(crate) statements: Statements,
}

/// Entries to append, as JSON.
pub(crate) struct NewEntries<'a> {
    pub(crate) id: &'a str,
    pub(crate) expected: u64,
    pub(crate) lines: Vec<String>,
}

/// The state of an append after an attempt, which determines whether to try again.
enum AppendState {
    /// The entries were written by this attempt or an earlier attempt.
    Written,
    /// The entries have not been written, but the session has the expected version and lease, so
    /// another attempt can succeed.
    Ready,
    Refused(Error),
}

/// The maximum number of entries that one statement reads.
const ENTRIES_PER_STATEMENT: u64 = 1000;

impl SessionTables {
    /// Appends entries, under the given lease, if any.
    pub(crate) async fn append(
        &self,
        new: &NewEntries<'_>,
        lease: Option<&dyn AppendLease>,
    ) -> Result<u64, Error> {
        let random_id = AppendId::random();
        let mut attempts = self.database.attempts();
        loop {
            let is_outcome_open = attempts.is_outcome_open();
            // A lost lease stays lost, regardless of what the database reports.
            let held = lease.map(|lease| lease.ensure_held(new.id)).transpose();
            let (epoch, lost) = match held {
                Ok(epoch) => (epoch, None),
                Err(lost) if is_outcome_open => (Some(lost.epoch), Some(lost)),
                Err(lost) => return Err(lost.into()),
            };
            let append = Append { tables: self, new, epoch, random_id };
            let tried = match attempts.client().await {
                Ok(client) => {
                    let answer = async {
                        match lost {
                            None => append.run_once(client, is_outcome_open).await,
                            Some(lost) => append.settle_lost(client, lost).await,
                        }
                    };
                    self.database.answer(answer).await
                }
                Err(error) => return Err(change_error(error, is_outcome_open)),
            };
            let paused = match tried {
                Ok(AppendState::Written) => return Ok(append.version()),
                Ok(AppendState::Ready) if new.lines.is_empty() => return Ok(append.version()),
                Ok(AppendState::Ready) => attempts.after_race().await,
                Ok(AppendState::Refused(error)) => return Err(error),
                Err(error) => attempts.after_error(error).await,
            };
            paused.map_err(|error| change_error(error, attempts.is_outcome_open()))?;
        }
    }

    /// Loads a session's entries, starting with entry number `from`.
    pub(crate) async fn load(&self, id: &str, from: u64) -> Result<Option<Vec<Entry>>, Error> {
        let mut attempts = self.database.attempts();
        let mut loading = Loading { tables: self, id, from, entries: Vec::new(), segments: None };
        loop {
            let client = attempts.client().await.map_err(read_error)?;
            match loading.read_rest(client).await {
                Ok(Loaded::All) => return Ok(Some(loading.entries)),
                Ok(Loaded::NoSession) => return Ok(None),
                Err(LoadError::Store(error)) => return Err(error),
                Err(LoadError::Postgres(error)) => {
                    attempts.after_error(error).await.map_err(read_error)?;
                }
            }
        }
    }

    /// Lists all sessions.
    pub(crate) async fn list(&self) -> Result<Vec<SessionInfo>, Error> {
        self.read_list(&self.statements.list, &[]).await
    }

    /// Lists at most `limit` sessions, starting after the given session.
    pub(crate) async fn list_page(
        &self,
        after: Option<&SessionInfo>,
        limit: usize,
    ) -> Result<Vec<SessionInfo>, Error> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let Some(after) = after else {
            return self.read_list(&self.statements.first_page, &[&limit]).await;
        };
        let (updated, id) = (to_sql_time(after.updated_at), after.id.as_bytes());
        self.read_list(&self.statements.next_page, &[&limit, &updated, &id]).await
    }

    async fn read_list(
        &self,
        statement: &str,
        arguments: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<SessionInfo>, Error> {
        let mut attempts = self.database.attempts();
        loop {
            let client = attempts.client().await.map_err(read_error)?;
            let read = async {
                let statement = client.prepare_cached(statement).await?;
                Ok(client.query(&statement, arguments).await?)
            };
            match self.database.answer(read).await {
                Ok(rows) => return Ok(rows.iter().map(read_session_info).collect()),
                Err(error) => attempts.after_error(error).await.map_err(read_error)?,
            }
        }
    }

    /// Creates a fork of a session.
    pub(crate) async fn fork(&self, id: &str, at: u64, new: &str) -> Result<(), Error> {
        let fork_id = AppendId::random();
        let (id_bytes, new_bytes) = (id.as_bytes(), new.as_bytes());
        let mut attempts = self.database.attempts();
        loop {
            let is_outcome_open = attempts.is_outcome_open();
            let client = attempts.client().await;
            let client = client.map_err(|error| change_error(error, is_outcome_open))?;
            let tried = self.database.answer(async {
                let statement = client.prepare_cached(&self.statements.fork).await?;
                let arguments: [&(dyn ToSql + Sync); 4] =
                    [&id_bytes, &to_sql_integer(at), &new_bytes, &fork_id];
                if client.execute(&statement, &arguments).await? > 0 {
                    return Ok(None);
                }
                let statement = client.prepare_cached(&self.statements.state_for_fork).await?;
                let origin = client.query_opt(&statement, &[&id_bytes]).await?;
                let there = client.query_opt(&statement, &[&new_bytes]).await?;
                Ok(Some((origin, there)))
            });
            let paused = match tried.await {
                Ok(None) => return Ok(()),
                Ok(Some((origin, there))) => {
                    let forked_by = there.as_ref().map(|row| get::<Option<AppendId>>(row, 1));
                    if forked_by.transpose()?.flatten() == Some(fork_id) {
                        // An earlier attempt that received no response has created the fork.
                        return Ok(());
                    }
                    let version = |row: Option<Row>| row.map(|row| get_number(&row, 0)).transpose();
                    ensure_fork_point_exists(id, at, version(origin)?)?;
                    ensure_session_absent(new, version(there)?)?;
                    attempts.after_race().await
                }
                // The original session was deleted during this attempt. The next attempt detects
                // the deletion.
                Err(error) if error.sqlstate() == Some("23503") => attempts.after_race().await,
                Err(error) => attempts.after_error(error).await,
            };
            paused.map_err(|error| change_error(error, attempts.is_outcome_open()))?;
        }
    }

    /// Removes a session, unless another session was forked from it.
    pub(crate) async fn delete(&self, id: &str) -> Result<bool, Error> {
        match self.remove(id, None).await? {
            Removal::Done => Ok(true),
            Removal::NotThere => Ok(false),
            Removal::HasFork(fork) => ensure_has_no_forks(id, Some(fork)).map(|()| false),
        }
    }

    /// Removes the sessions that were last written to before the given time.
    pub(crate) async fn prune(&self, before: SystemTime) -> Result<Vec<String>, Error> {
        self.delete_abandoned().await?;
        let listed = self.list().await?;
        let mut removed = Vec::new();
        for id in prunable_ids(&listed, before) {
            // If another process has written to the session or forked it in the meantime, the
            // session is kept.
            match self.remove(id, Some(before)).await? {
                Removal::Done => removed.push(id.to_owned()),
                Removal::NotThere | Removal::HasFork(_) => {}
            }
        }
        Ok(removed)
    }

    /// Removes the rows left by processes that acquired the lease on a session but never wrote to
    /// the session.
    async fn delete_abandoned(&self) -> Result<(), Error> {
        let mut attempts = self.database.attempts();
        loop {
            let client = attempts.client().await.map_err(write_error)?;
            let delete = async {
                client.execute(&self.statements.delete_abandoned, &[]).await?;
                Ok(())
            };
            match self.database.answer(delete).await {
                Ok(()) => return Ok(()),
                Err(error) => attempts.after_error(error).await.map_err(write_error)?,
            }
        }
    }

    /// Removes a session. If `before` is given, the session is removed only if it was last written
    /// to before that time.
    async fn remove(&self, id: &str, before: Option<SystemTime>) -> Result<Removal, Error> {
        let mut attempts = self.database.attempts();
        // `open_key` is the key of the row that an earlier attempt may have removed. The id may now
        // belong to another session, which the caller did not intend to remove.
        let mut open_key = None;
        loop {
            let client = attempts.client().await;
            let client = client.map_err(|error| change_error(error, open_key.is_some()))?;
            let mut removing = Removing { id, before, open_key, committed_key: None };
            let tried = self.database.answer(self.remove_once(client, &mut removing)).await;
            let paused = match tried {
                Ok(removal) => return Ok(removal),
                Err(error) if error.sqlstate() == Some("23503") => attempts.after_race().await,
                Err(error) => {
                    if error.leaves_outcome_open() {
                        open_key = open_key.or(removing.committed_key);
                    }
                    attempts.after_error(error).await
                }
            };
            paused.map_err(|error| change_error(error, open_key.is_some()))?;
        }
    }

    async fn remove_once(
        &self,
        client: &mut ClientWrapper,
        removing: &mut Removing<'_>,
    ) -> Result<Removal, PostgresError> {
        let id = removing.id.as_bytes();
        let statements = &self.statements;
        // The transaction uses separate statements, because the statement that locks the row may
        // wait for an append whose entries are visible only to a later statement.
        let transaction = client.transaction().await?;
        let row = match removing.open_key {
            // This statement waits for an attempt that is still in progress on the server.
            Some(key) => query_opt(&transaction, &statements.lock_key, &[&key]).await?,
            None => query_opt(&transaction, &statements.lock_session, &[&id]).await?,
        };
        let Some(row) = row else {
            return Ok(match removing.open_key {
                Some(_) => Removal::Done,
                None => Removal::NotThere,
            });
        };
        let (key, lease): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
        let updated: SystemTime = row.try_get(2)?;
        if removing.before.is_some_and(|before| updated >= before) {
            return Ok(Removal::NotThere);
        }
        if let Some(row) = query_opt(&transaction, &statements.fork_of, &[&key]).await? {
            let fork: Vec<u8> = row.try_get(0)?;
            return Ok(Removal::HasFork(String::from_utf8_lossy(&fork).into_owned()));
        }
        execute(&transaction, &statements.delete_entries, &[&key]).await?;
        execute(&transaction, &statements.delete_session, &[&key]).await?;
        // The lease outlives the session: a new row with the same epoch is inserted, because the
        // old row could still be forked.
        execute(&transaction, &statements.reserve_if_leased, &[&id, &lease]).await?;
        if let Some(notify) = &statements.notify {
            execute(&transaction, notify, &[&key, &0_i64]).await?;
        }
        removing.committed_key = Some(key);
        transaction.commit().await?;
        Ok(Removal::Done)
    }
}

/// A trait for leases that are checked before an append is written.
pub(crate) trait AppendLease: Sync {
    /// Returns the lease's epoch. Fails if the lease is lost or belongs to another session.
    fn ensure_held(&self, id: &str) -> Result<u64, LeaseLost>;
}

/// A single attempt to remove a session.
struct Removing<'a> {
    id: &'a str,
    before: Option<SystemTime>,
    /// The key of the row that an earlier attempt may have removed. If this key is set, no other
    /// row is removed.
    open_key: Option<i64>,
    /// The key of the removed row, which is set before the commit is sent.
    committed_key: Option<i64>,
}

enum Removal {
    Done,
    /// The session does not exist, or was last written to at or after the given time.
    NotThere,
    HasFork(String),
}

/// A single append. This value is the same for every attempt to perform the append.
struct Append<'a> {
    tables: &'a SessionTables,
    new: &'a NewEntries<'a>,
    epoch: Option<u64>,
    random_id: AppendId,
}

impl Append<'_> {
    /// Returns the version after the append.
    fn version(&self) -> u64 {
        self.new.expected.saturating_add(self.new.lines.len() as u64)
    }

    async fn run_once(
        &self,
        client: &ClientWrapper,
        is_outcome_open: bool,
    ) -> Result<AppendState, PostgresError> {
        if is_outcome_open {
            match self.state(client).await? {
                AppendState::Ready => {}
                other => return Ok(other),
            }
        }
        match !self.new.lines.is_empty() && self.write(client).await? {
            true => Ok(AppendState::Written),
            false => self.state(client).await,
        }
    }

    /// Determines whether an earlier attempt wrote the entries, for use after the lease has been
    /// lost.
    async fn settle_lost(
        &self,
        client: &ClientWrapper,
        lost: LeaseLost,
    ) -> Result<AppendState, PostgresError> {
        // This statement waits for any attempt that is still in progress on the server. An attempt
        // that reaches the server after this statement writes nothing.
        let id = self.new.id.as_bytes();
        let epoch = to_sql_integer(lost.epoch);
        client.execute(&self.tables.statements.raise_epoch, &[&id, &epoch]).await?;
        Ok(match self.state(client).await? {
            AppendState::Written => AppendState::Written,
            AppendState::Ready | AppendState::Refused(_) => AppendState::Refused(lost.into()),
        })
    }

    /// Writes the entries if the session has the expected version and lease. All entries are
    /// written in a single statement, so the write is atomic even if the future is dropped.
    async fn write(&self, client: &ClientWrapper) -> Result<bool, PostgresError> {
        let (new, statements) = (self.new, &self.tables.statements);
        let statements = match self.epoch {
            Some(_) => &statements.append_leased,
            None => &statements.append,
        };
        let lines = new.lines.as_slice();
        let (statement, entries): (&str, &(dyn ToSql + Sync)) = match (new.expected, lines) {
            (0, _) => (&statements.first_entries, &lines),
            (_, [line]) => (&statements.one_entry, line),
            _ => (&statements.entries, &lines),
        };
        let statement = client.prepare_cached(statement).await?;
        let (id, expected) = (new.id.as_bytes(), to_sql_integer(new.expected));
        let epoch = self.epoch.map(to_sql_integer);
        let mut arguments: Vec<&(dyn ToSql + Sync)> =
            vec![&id, &expected, &self.random_id, entries];
        arguments.extend(epoch.as_ref().map(|epoch| epoch as &(dyn ToSql + Sync)));
        Ok(client.execute(&statement, &arguments).await? > 0)
    }

    /// Determines whether the entries were written and, if not, why not.
    async fn state(&self, client: &ClientWrapper) -> Result<AppendState, PostgresError> {
        let NewEntries { id, expected, .. } = *self.new;
        let statement = client.prepare_cached(&self.tables.statements.state_for_append).await?;
        let arguments: [&(dyn ToSql + Sync); 2] = [&id.as_bytes(), &to_sql_integer(expected)];
        let row = client.query_opt(&statement, &arguments).await?;
        let (found, lease) = match &row {
            Some(row) => {
                let append: Option<AppendId> = row.try_get(3)?;
                if append == Some(self.random_id) {
                    return Ok(AppendState::Written);
                }
                (from_sql_integer(row.try_get(0)?), from_sql_integer(row.try_get(1)?))
            }
            None => (0, 0),
        };
        if let Some(epoch) = self.epoch.filter(|epoch| *epoch != lease) {
            return Ok(AppendState::Refused(LeaseLost { id: id.to_owned(), epoch }.into()));
        }
        Ok(match ensure_expected_version(id, expected, found) {
            Ok(()) => AppendState::Ready,
            Err(error) => AppendState::Refused(error),
        })
    }
}

/// Loads entries, and continues on another connection if the current connection breaks.
struct Loading<'a> {
    tables: &'a SessionTables,
    id: &'a str,
    from: u64,
    entries: Vec<Entry>,
    segments: Option<Vec<Segment>>,
}

/// The entries of a session that are stored under a single session row: the session's own row, or
/// the row of an ancestor.
struct Segment {
    key: i64,
    numbers: Range<u64>,
}

enum Loaded {
    All,
    NoSession,
}

enum LoadError {
    Postgres(PostgresError),
    Store(Error),
}

impl<E: Into<PostgresError>> From<E> for LoadError {
    fn from(error: E) -> Self {
        Self::Postgres(error.into())
    }
}

impl Loading<'_> {
    async fn read_rest(&mut self, client: &ClientWrapper) -> Result<Loaded, LoadError> {
        let database = &self.tables.database;
        if self.segments.is_none() {
            let segments = database.answer(self.read_segments(client)).await?;
            // Every existing session has at least one segment, namely its own.
            if segments.is_empty() {
                return Ok(Loaded::NoSession);
            }
            self.segments = Some(segments);
        }
        let mut segments = self.segments.iter().flatten();
        let mut next = self.from + self.entries.len() as u64;
        let mut segment = segments.next();
        while let Some(Segment { key, numbers }) = segment {
            if next >= numbers.end {
                segment = segments.next();
                continue;
            }
            let wanted = next..numbers.end.min(next + ENTRIES_PER_STATEMENT);
            let read = read_entries(client, self.tables, *key, self.id, wanted, &mut self.entries);
            read.await?;
            let read_to = self.from + self.entries.len() as u64;
            if read_to == next {
                return self.explain_gap(client, next).await;
            }
            next = read_to;
        }
        Ok(Loaded::All)
    }

    async fn read_segments(&self, client: &ClientWrapper) -> Result<Vec<Segment>, PostgresError> {
        let statement = client.prepare_cached(&self.tables.statements.segments).await?;
        let arguments: [&(dyn ToSql + Sync); 2] = [&self.id.as_bytes(), &to_sql_integer(self.from)];
        let rows = client.query(&statement, &arguments).await?;
        let segment = |row: &Row| {
            let numbers = from_sql_integer(row.try_get(1)?)..from_sql_integer(row.try_get(2)?);
            Ok(Segment { key: row.try_get(0)?, numbers })
        };
        rows.iter().map(segment).collect()
    }

    /// Determines why an entry is missing. Either the session was deleted in the meantime, or the
    /// tables are damaged.
    async fn explain_gap(&self, client: &ClientWrapper, number: u64) -> Result<Loaded, LoadError> {
        let statement = client.prepare_cached(&self.tables.statements.session_key).await?;
        let row = client.query_opt(&statement, &[&self.id.as_bytes()]).await?;
        let own = self.segments.iter().flatten().last().map(|segment| segment.key);
        match row.map(|row| row.try_get::<_, i64>(0)).transpose()? {
            Some(key) if Some(key) == own => {
                let message = format!("entry {number} of the session `{}` is missing", self.id);
                Err(LoadError::Store(corrupt_data_error(message)))
            }
            _ => Ok(Loaded::NoSession),
        }
    }
}

/// Reads entries up to the first missing entry. If reading fails, the entries that have already
/// been read are kept.
async fn read_entries(
    client: &ClientWrapper,
    tables: &SessionTables,
    key: i64,
    id: &str,
    numbers: Range<u64>,
    entries: &mut Vec<Entry>,
) -> Result<(), LoadError> {
    let statement = client.prepare_cached(&tables.statements.entries).await?;
    let bounds = [key, to_sql_integer(numbers.start), to_sql_integer(numbers.end)];
    let rows = tables.database.answer(async { Ok(client.query_raw(&statement, bounds).await?) });
    let mut rows = pin!(rows.await?);
    for expected in numbers {
        let row = tables.database.answer(async { Ok(rows.try_next().await?) }).await?;
        let Some(row) = row else { return Ok(()) };
        if from_sql_integer(row.try_get(0)?) != expected {
            return Ok(());
        }
        let entry = serde_json::from_str(row.try_get(1)?).map_err(|error| {
            let what = format!("entry {expected} of the session `{id}` cannot be read");
            LoadError::Store(store_error(what, error))
        });
        entries.push(entry?);
    }
    Ok(())
}

async fn query_opt(
    client: &impl GenericClient,
    statement: &str,
    arguments: &[&(dyn ToSql + Sync)],
) -> Result<Option<Row>, PostgresError> {
    let statement = client.prepare_cached(statement).await?;
    Ok(client.query_opt(&statement, arguments).await?)
}

async fn execute(
    client: &impl GenericClient,
    statement: &str,
    arguments: &[&(dyn ToSql + Sync)],
) -> Result<u64, PostgresError> {
    let statement = client.prepare_cached(statement).await?;
    Ok(client.execute(&statement, arguments).await?)
}

/// Reads a row of the list. A row that cannot be read does not hide the other rows.
fn read_session_info(row: &Row) -> SessionInfo {
    let read = || {
        let (parent, at): (Option<Vec<u8>>, _) = (get(row, 4)?, get_number(row, 2)?);
        Ok(SessionInfo {
            id: to_id(get(row, 0)?)?,
            version: get_number(row, 1)?,
            origin: parent
                .map(|id| Ok::<_, Error>(ForkOrigin { id: to_id(id)?, at }))
                .transpose()?,
            updated_at: get(row, 3)?,
            read_error: None,
        })
    };
    read().unwrap_or_else(|error: Error| SessionInfo {
        id: String::from_utf8_lossy(row.try_get(0).unwrap_or_default()).into_owned(),
        version: 0,
        origin: None,
        updated_at: row.try_get(3).unwrap_or(SystemTime::UNIX_EPOCH),
        read_error: Some(error.to_string()),
    })
}

fn to_id(bytes: Vec<u8>) -> Result<String, Error> {
    String::from_utf8(bytes).map_err(|error| store_error("the id of a session is not text", error))
}

fn get<T: FromSqlOwned>(row: &Row, column: usize) -> Result<T, Error> {
    row.try_get(column).map_err(|error| read_error(error.into()))
}

fn get_number(row: &Row, column: usize) -> Result<u64, Error> {
    get(row, column).map(from_sql_integer)
}

fn read_error(error: PostgresError) -> Error {
    error.into_store_error("cannot read the session")
}

fn write_error(error: PostgresError) -> Error {
    error.into_store_error("cannot write the session")
}

/// Creates the error for an append, a fork or a deletion.
fn change_error(error: PostgresError, is_outcome_open: bool) -> Error {
    match is_outcome_open {
        true => outcome_unknown_error("cannot write the session", error),
        false => write_error(error),
    }
}

/// Converts a version to a PostgreSQL integer. Versions beyond the integer's range are clamped, but
/// no session has that many entries.
fn to_sql_integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Clamps a time to 3,000 years before or after 1970, because PostgreSQL's range is limited. No
/// session is written at a time outside this range.
fn to_sql_time(time: SystemTime) -> SystemTime {
    const MOST: Duration = Duration::from_hours(24 * 365 * 3000);
    time.clamp(SystemTime::UNIX_EPOCH - MOST, SystemTime::UNIX_EPOCH + MOST)
}

/// Converts a number that was written by [`to_sql_integer`] back to a version.
fn from_sql_integer(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
