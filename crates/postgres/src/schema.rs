//! The tables and their migrations.
use tokio_postgres::{Client, GenericClient};
use turnstream::{Error, ErrorKind};

use crate::error::{PostgresError, PostgresErrorKind};

/// The migrations from each schema version to the next. In each migration, `{s}` stands for the
/// schema's name. A database's version is the number of migrations that have been applied to it.
/// New migrations are appended to the list; existing migrations are never changed.
const MIGRATIONS: &[&str] = &["
    CREATE TABLE {s}.schema_version (
        version integer PRIMARY KEY,
        applied timestamptz NOT NULL DEFAULT now()
    );
    -- Shared by all sessions, so that a session that was deleted and recreated gets a higher lease.
    CREATE SEQUENCE {s}.lease_epoch AS bigint;
    CREATE TABLE {s}.session (
        key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        -- UTF-8. Not `text`, which cannot contain NUL, and whose order depends on the database.
        id bytea NOT NULL,
        -- The session that it was forked from, and the number of entries inherited from it.
        parent bigint REFERENCES {s}.session (key),
        inherited bigint NOT NULL,
        -- The number of entries, including inherited ones.
        version bigint NOT NULL,
        updated timestamptz NOT NULL,
        -- The epoch of the last lease that was taken.
        lease bigint NOT NULL DEFAULT 0,
        -- The row exists only for its lease: the session does not exist yet.
        reserved boolean NOT NULL DEFAULT false,
        -- Identifies the fork operation that created the session.
        forked_by uuid
    -- Each append writes a new row. With free space on its page, no index needs an update.
    ) WITH (fillfactor = 60);
    -- An index entry has at most 2,700 bytes, and an id may be longer.
    CREATE UNIQUE INDEX session_id ON {s}.session (sha256(id));
    CREATE INDEX session_parent ON {s}.session (parent) WHERE parent IS NOT NULL;
    CREATE TABLE {s}.entry (
        -- Without a foreign key, whose check would cost each append a query: entries are only written and
        -- removed by statements that have locked the row of its session.
        session bigint NOT NULL,
        number bigint NOT NULL,
        -- Identifies the append; only set for its first entry.
        append uuid,
        json text NOT NULL,
        PRIMARY KEY (session, number)
    );
"];

/// The key of the advisory lock for migrations (`turn` in ASCII). A migration waits for this lock
/// while another migration holds it.
const MIGRATION_LOCK: i64 = 0x7475_726e;

/// Migrates a database's tables to the latest version. Runs no DDL if the tables are up to date.
pub(crate) async fn migrate(
    client: &mut Client,
    schema: &str,
    name: &str,
) -> Result<(), PostgresError> {
    ensure_supported_server(client).await?;
    if ensure_known_version(schema_version(client, schema, name).await?)? == MIGRATIONS.len() {
        return Ok(());
    }
    loop {
        let transaction = client.transaction().await?;
        transaction.query("SELECT pg_advisory_xact_lock($1)", &[&MIGRATION_LOCK]).await?;
        // Another process may have migrated the tables while this call waited for the lock.
        let found = schema_version(&transaction, schema, name).await?;
        let found = ensure_known_version(found)?;
        let Some(migration) = MIGRATIONS.get(found) else { return Ok(()) };
        let sql = "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)";
        let has_schema: bool = transaction.query_one(sql, &[&name]).await?.try_get(0)?;
        if !has_schema {
            transaction.batch_execute(&format!("CREATE SCHEMA {schema}")).await.map_err(
                |error| {
                    let mut error = PostgresError::from(error);
                    error.add_context(&format!("the schema `{name}` does not exist"));
                    error
                },
            )?;
        }
        transaction.batch_execute(&migration_sql(schema, migration, found + 1)).await?;
        transaction.commit().await?;
    }
}

/// Returns all migrations as a single script, for a database that does not contain the schema.
pub(crate) fn migrations_sql(schema: &str) -> String {
    let mut script = format!("BEGIN;\nCREATE SCHEMA IF NOT EXISTS {schema};\n");
    for (number, migration) in (1..).zip(MIGRATIONS) {
        script += &migration_sql(schema, migration, number);
    }
    script + "COMMIT;\n"
}

fn migration_sql(schema: &str, migration: &str, number: usize) -> String {
    let sql = migration.replace("{s}", schema);
    format!("{sql}\nINSERT INTO {schema}.schema_version (version) VALUES ({number});\n")
}

/// Quotes a schema's name for use in a statement.
pub(crate) fn quote_identifier(name: &str) -> Result<String, Error> {
    // The server truncates names that are longer than 63 bytes.
    match name.is_empty() || name.len() > 63 || name.contains('\0') {
        true => {
            let message = "the name of a schema has 1 to 63 bytes, and no NUL";
            Err(Error::new(ErrorKind::InvalidRequest, message))
        }
        false => Ok(format!("\"{}\"", name.replace('"', "\"\""))),
    }
}

async fn ensure_supported_server(client: &Client) -> Result<(), PostgresError> {
    let sql =
        "SELECT current_setting('server_version_num')::int, current_setting('server_version'),
                      current_setting('server_encoding')";
    let row = client.query_one(sql, &[]).await?;
    let (number, version, encoding): (i32, &str, &str) =
        (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    let problem = match (number, encoding) {
        (..140_000, _) => format!("the server is PostgreSQL {version}; 14 or later is needed"),
        (_, "UTF8") => return Ok(()),
        _ => format!("the encoding of the database is {encoding}, not UTF8"),
    };
    Err(PostgresError::new(PostgresErrorKind::UnsupportedDatabase, problem))
}

/// Returns the number of migrations that have been applied to a database.
async fn schema_version(
    client: &impl GenericClient,
    schema: &str,
    name: &str,
) -> Result<i32, PostgresError> {
    // `to_regclass` does not find a table that another connection created after the start of this
    // transaction.
    let sql =
        "SELECT EXISTS (SELECT FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
                              WHERE relname = 'schema_version' AND nspname = $1)";
    let has_table: bool = client.query_one(sql, &[&name]).await?.try_get(0)?;
    if !has_table {
        return Ok(0);
    }
    let sql = format!("SELECT coalesce(max(version), 0) FROM {schema}.schema_version");
    Ok(client.query_one(&sql, &[]).await?.try_get(0)?)
}

fn ensure_known_version(found: i32) -> Result<usize, PostgresError> {
    let known = MIGRATIONS.len();
    match usize::try_from(found) {
        Ok(found) if found <= known => Ok(found),
        _ => {
            let message =
                format!("its tables have version {found}; this crate knows up to {known}");
            Err(PostgresError::new(PostgresErrorKind::UnsupportedDatabase, message))
        }
    }
}
