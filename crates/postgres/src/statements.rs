//! The SQL text of all statements.

use crate::fnv::fnv1a_64;

/// The SQL statements that a store uses, with its table names filled in.
pub(crate) struct Statements {
    pub(crate) append: AppendStatements,
    pub(crate) append_leased: AppendStatements,
    pub(crate) state_for_append: String,
    pub(crate) segments: String,
    pub(crate) entries: String,
    pub(crate) session_key: String,
    pub(crate) list: String,
    pub(crate) first_page: String,
    pub(crate) next_page: String,
    pub(crate) fork: String,
    pub(crate) state_for_fork: String,
    pub(crate) lock_session: String,
    pub(crate) lock_key: String,
    pub(crate) fork_of: String,
    pub(crate) delete_entries: String,
    pub(crate) delete_session: String,
    pub(crate) reserve_if_leased: String,
    pub(crate) notify: Option<String>,
    pub(crate) delete_abandoned: String,
    pub(crate) raise_epoch: String,
    pub(crate) take_lease: String,
    pub(crate) give_lease_back: String,
    pub(crate) unlock: String,
    pub(crate) listen: String,
    pub(crate) followed: String,
}

/// The statements that append entries.
pub(crate) struct AppendStatements {
    /// The statement that appends a single entry to a session that already contains entries.
    pub(crate) one_entry: String,
    pub(crate) entries: String,
    /// The statement that appends entries to a session that is empty or does not exist yet.
    pub(crate) first_entries: String,
}

/// Whether followers are notified of each write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notify {
    Off,
    Each,
}

impl Statements {
    /// Creates the statements. `s` is the schema's quoted name, and `name` is its unquoted name.
    #[expect(clippy::too_many_lines, reason = "a list of statements")]
    pub(crate) fn new(s: &str, name: &str, notify: Notify) -> Self {
        let channel = channel_name(name);
        // Returns the SQL expression for the key of a session id's advisory lock. Advisory locks
        // are shared by all users of the database, so the lock key is derived from a hash.
        let lock_of = |id: &str| {
            let schema = format!("convert_to('{}', 'UTF8')", name.replace('\'', "''"));
            let digest = format!("encode(sha256(sha256({schema}) || {id}), 'hex')");
            format!("('x' || left({digest}, 16))::bit(64)::bigint")
        };
        let is_locked = |id: &str| {
            format!(
                "EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted
                 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
                 AND (classid::bigint << 32) | objid::bigint = {})",
                lock_of(id)
            )
        };
        let lock = lock_of("$1");
        let next_epoch = format!("nextval('{}')", format!("{s}.lease_epoch").replace('\'', "''"));
        let listed = format!(
            "SELECT session.id, session.version, session.inherited, session.updated, parent.id
             FROM {s}.session LEFT JOIN {s}.session AS parent ON parent.key = session.parent
             WHERE NOT session.reserved"
        );
        let in_order = "ORDER BY session.updated DESC, session.id";
        let insert_fork = format!(
            "INSERT INTO {s}.session (id, parent, inherited, version, updated, forked_by)
             SELECT $3, key, $2, $2, clock_timestamp(), $4 FROM {s}.session
             WHERE sha256(id) = sha256($1) AND NOT reserved AND version >= $2
             ON CONFLICT (sha256(id)) DO UPDATE
             SET parent = excluded.parent, inherited = excluded.inherited, version = excluded.version,
                 updated = excluded.updated, forked_by = excluded.forked_by, reserved = false
             WHERE session.reserved"
        );
        Self {
            append: AppendStatements::new(s, &channel, notify, ""),
            append_leased: AppendStatements::new(s, &channel, notify, "AND session.lease = $5"),
            state_for_append: format!(
                "SELECT version, lease, reserved,
                        (SELECT append FROM {s}.entry WHERE session = key AND number = $2)
                 FROM {s}.session WHERE sha256(id) = sha256($1)"
            ),
            segments: format!(
                "WITH RECURSIVE segment (key, parent, inherited, until, depth) AS (
                    SELECT key, parent, inherited, version, 0 FROM {s}.session
                    WHERE sha256(id) = sha256($1) AND NOT reserved
                    UNION ALL
                    SELECT session.key, session.parent, session.inherited,
                           least(segment.until, segment.inherited), depth + 1
                    FROM segment JOIN {s}.session ON session.key = segment.parent
                    WHERE $2 < segment.inherited)
                 SELECT key, inherited, until FROM segment ORDER BY depth DESC"
            ),
            entries: format!(
                "SELECT number, json FROM {s}.entry
                 WHERE session = $1 AND number >= $2 AND number < $3 ORDER BY number"
            ),
            session_key: format!(
                "SELECT key FROM {s}.session WHERE sha256(id) = sha256($1) AND NOT reserved"
            ),
            list: format!("{listed} {in_order}"),
            first_page: format!("{listed} {in_order} LIMIT $1"),
            next_page: format!(
                "{listed} AND session.updated <= $2 AND (session.updated < $2 OR session.id > $3)
                 {in_order} LIMIT $1"
            ),
            fork: match notify {
                Notify::Off => insert_fork,
                Notify::Each => format!(
                    "WITH forked AS ({insert_fork} RETURNING key)
                     SELECT pg_notify('{channel}', key || ' ' || $2::bigint) FROM forked"
                ),
            },
            state_for_fork: format!(
                "SELECT version, forked_by FROM {s}.session
                 WHERE sha256(id) = sha256($1) AND NOT reserved"
            ),
            lock_session: format!(
                "SELECT key, lease, updated FROM {s}.session
                 WHERE sha256(id) = sha256($1) AND NOT reserved FOR UPDATE"
            ),
            lock_key: format!(
                "SELECT key, lease, updated FROM {s}.session WHERE key = $1 FOR UPDATE"
            ),
            fork_of: format!("SELECT id FROM {s}.session WHERE parent = $1 LIMIT 1"),
            delete_entries: format!("DELETE FROM {s}.entry WHERE session = $1"),
            delete_session: format!("DELETE FROM {s}.session WHERE key = $1"),
            reserve_if_leased: format!(
                "INSERT INTO {s}.session (id, inherited, version, updated, lease, reserved)
                 SELECT $1, 0, 0, clock_timestamp(), $2, true WHERE {}",
                is_locked("$1")
            ),
            notify: (notify == Notify::Each)
                .then(|| format!("SELECT pg_notify('{channel}', $1::bigint || ' ' || $2::bigint)")),
            delete_abandoned: format!(
                "DELETE FROM {s}.session WHERE reserved AND NOT {}",
                is_locked("session.id")
            ),
            raise_epoch: format!(
                "UPDATE {s}.session SET lease = {next_epoch}
                 WHERE sha256(id) = sha256($1) AND lease = $2"
            ),
            take_lease: format!(
                "WITH tried AS MATERIALIZED (SELECT pg_try_advisory_lock({lock}) AS taken),
                 raised AS (
                    INSERT INTO {s}.session (id, inherited, version, updated, lease, reserved)
                    SELECT $1, 0, 0, clock_timestamp(), {next_epoch}, true FROM tried WHERE taken
                    ON CONFLICT (sha256(id)) DO UPDATE SET lease = excluded.lease
                    RETURNING lease)
                 SELECT lease FROM raised"
            ),
            give_lease_back: format!(
                "WITH removed AS (
                    DELETE FROM {s}.session
                    WHERE sha256(id) = sha256($1) AND reserved AND lease = $2)
                 SELECT pg_advisory_unlock({lock})"
            ),
            unlock: format!("SELECT pg_advisory_unlock({lock})"),
            listen: format!("LISTEN {channel}"),
            followed: format!(
                "SELECT id, key, version FROM {s}.session
                 WHERE sha256(id) IN (SELECT sha256(id) FROM unnest($1::bytea[]) AS given(id))
                 AND NOT reserved"
            ),
        }
    }
}

impl AppendStatements {
    /// Creates the append statements. Each statement takes the session id as `$1`, the expected
    /// version as `$2`, the append id as `$3` and the entries as `$4`. If the lease is checked, the
    /// lease's epoch is `$5`. If the session's version is not the expected version, the statement
    /// affects no rows.
    fn new(s: &str, channel: &str, notify: Notify, lease_check: &str) -> Self {
        let statement = |write: &str, insert: &str, count: &str| match notify {
            Notify::Off => format!("WITH written AS ({write} RETURNING key) {insert}"),
            Notify::Each => format!(
                "WITH written AS ({write} RETURNING key), inserted AS ({insert})
                 SELECT pg_notify('{channel}', key || ' ' || $2 + {count}) FROM written"
            ),
        };
        let update = |count: &str| {
            format!(
                "UPDATE {s}.session
                 SET version = session.version + {count}, reserved = false,
                     updated = greatest(clock_timestamp(), session.updated + interval '1 microsecond')
                 WHERE sha256(id) = sha256($1) AND session.version = $2 {lease_check}"
            )
        };
        let insert_all = format!(
            "INSERT INTO {s}.entry (session, number, append, json)
             SELECT key, $2::bigint + place - 1, CASE place WHEN 1 THEN $3::uuid END, json
             FROM written, unnest($4::text[]) WITH ORDINALITY AS given (json, place)"
        );
        let insert_one = format!(
            "INSERT INTO {s}.entry (session, number, append, json)
             SELECT key, $2::bigint, $3::uuid, $4::text FROM written"
        );
        let count = "cardinality($4::text[])";
        let first = match lease_check {
            // Acquiring a lease inserts a row, so a session without a row has no lease.
            "" => format!(
                "INSERT INTO {s}.session (id, inherited, version, updated)
                 VALUES ($1, 0, $2::bigint + {count}, clock_timestamp())
                 ON CONFLICT (sha256(id)) DO UPDATE
                 SET version = excluded.version, reserved = false,
                     updated = greatest(excluded.updated, session.updated + interval '1 microsecond')
                 WHERE session.version = 0"
            ),
            _ => update(count),
        };
        Self {
            one_entry: statement(&update("1"), &insert_one, "1"),
            entries: statement(&update(count), &insert_all, count),
            first_entries: statement(&first, &insert_all, count),
        }
    }
}

/// Returns the name of a schema's notification channel. The schema's name is hashed, because both
/// schema names and channel names are limited to 63 bytes.
fn channel_name(schema: &str) -> String {
    format!("turnstream_{:016x}", fnv1a_64(schema.bytes()))
}
