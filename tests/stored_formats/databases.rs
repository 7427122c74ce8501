//! The tables in SQLite.

#[cfg(feature = "sqlite")]
mod sqlite {
    use std::fmt::Write;
    use std::{env, fs, process};

    use futures::executor::block_on;
    use rusqlite::Connection;
    use turnstream::session::suite::numbered_entries;
    use turnstream::session::{SqliteStore, Store};

    use crate::{assert_written, stored};

    /// The statements that create the tables of a database, and its version.
    fn schema(database: &Connection) -> String {
        let mut query = database
            .prepare("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY rowid")
            .unwrap();
        let rows = query.query_map((), |row| row.get::<_, String>(0)).unwrap();
        let mut text = String::new();
        for sql in rows {
            writeln!(text, "{};", sql.unwrap()).unwrap();
        }
        for name in ["application_id", "user_version"] {
            let value: i64 = database.pragma_query_value(None, name, |row| row.get(0)).unwrap();
            writeln!(text, "PRAGMA {name} = {value};").unwrap();
        }
        text
    }

    #[test]
    fn the_sqlite_tables_have_their_stored_schema() {
        let path = env::temp_dir().join(format!("turnstream-written-{}.db", process::id()));
        drop(SqliteStore::open(&path).unwrap());
        let schema = schema(&Connection::open(&path).unwrap());
        fs::remove_file(&path).unwrap();
        assert_written("sqlite.sql", &schema);
    }

    #[test]
    fn sqlite_tables_with_the_stored_schema_are_used() {
        let path = env::temp_dir().join(format!("turnstream-read-{}.db", process::id()));
        let database = Connection::open(&path).unwrap();
        database.execute_batch(&stored("sqlite.sql")).unwrap();
        drop(database);
        let store = SqliteStore::open(&path).unwrap();
        block_on(store.append("s", 0, numbered_entries(0..2))).unwrap();
        block_on(store.fork("s", 1, "f")).unwrap();
        assert_eq!(block_on(store.load("f", 0)).unwrap(), Some(numbered_entries(0..1)));
        drop(store);
        assert_eq!(schema(&Connection::open(&path).unwrap()), stored("sqlite.sql"));
        fs::remove_file(&path).unwrap();
    }
}
