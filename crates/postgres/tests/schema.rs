//! How the tables of a database are created, and the privileges that they need.

use futures::future::join_all;
use turnstream::session::Store;
use turnstream_postgres::{PostgresErrorKind, PostgresOptions, PostgresStore};
use turnstream_testing::session_suite::numbered_entries;

use crate::support::{
    admin, connect, expect_postgres_error, options, options_for, quoted, shared_server, unique_name,
};
use turnstream_test_support::postgres::Server;

#[tokio::test]
#[ignore = "needs PostgreSQL: crates/postgres/tests/run.sh"]
async fn eight_stores_connecting_at_once_create_the_tables_once() {
    let options = options();
    let stores = join_all((0..8).map(|_| connect(&options))).await;
    for (n, store) in (0..).zip(&stores) {
        store.append("s", n, numbered_entries(n..n + 1)).await.unwrap();
    }
    assert_eq!(stores[0].load("s", 0).await.unwrap(), Some(numbered_entries(0..8)));
}

#[tokio::test]
#[ignore = "needs PostgreSQL: crates/postgres/tests/run.sh"]
async fn tables_of_a_later_version_are_rejected_and_unchanged() {
    let schema = unique_name();
    let options = options().with_schema(&*schema);
    connect(&options).await.append("s", 0, numbered_entries(0..1)).await.unwrap();
    let admin = admin(shared_server()).await;
    let version = format!("{}.schema_version", quoted(&schema));
    admin.execute(&format!("INSERT INTO {version} VALUES (7)"), &[]).await.unwrap();
    let error = options.clone().connect().await.unwrap_err();
    expect_postgres_error(&error, PostgresErrorKind::UnsupportedDatabase);
    assert!(error.message().contains("version 7; this crate knows up to 1"), "{error}");
    admin.execute(&format!("DELETE FROM {version} WHERE version = 7"), &[]).await.unwrap();
    let loaded = connect(&options).await.load("s", 0).await.unwrap();
    assert_eq!(loaded, Some(numbered_entries(0..1)));
}

#[tokio::test]
#[ignore = "needs PostgreSQL: crates/postgres/tests/run.sh"]
async fn a_database_with_another_encoding_is_refused() {
    let admin = admin(shared_server()).await;
    let name = unique_name().replace(['"', ' '], "_");
    let sql = format!("CREATE DATABASE {name} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0");
    admin.execute(&sql, &[]).await.unwrap();
    let error = PostgresStore::connect(shared_server().url_of(&name)).await.unwrap_err();
    expect_postgres_error(&error, PostgresErrorKind::UnsupportedDatabase);
    assert!(
        error.message().ends_with("the encoding of the database is LATIN1, not UTF8"),
        "{error}"
    );
}

/// The database may treat `\` in literals as an escape.
#[tokio::test]
#[ignore = "needs PostgreSQL: crates/postgres/tests/run.sh"]
async fn a_schema_name_may_contain_any_characters() {
    let url = shared_server().url();
    let url = format!("{url}?options=-c%20standard_conforming_strings%3Doff");
    for name in [r"\' || (1/0)::text || E\'", r"\", r#"'"$1\n"#] {
        let schema = format!("{name} {}", std::process::id());
        let options = PostgresOptions::new(url.clone()).with_schema(schema).with_notifications();
        let store = connect(&options).await;
        let lease = store.lease("s").await.unwrap();
        store.append_leased(&lease, "s", 0, numbered_entries(0..1)).await.unwrap();
        drop(lease);
        assert!(store.delete("s").await.unwrap());
    }
}

/// A role that can log in, with the privileges that the docs of `PostgresStore` name.
async fn restricted_role(server: &Server, schema: &str, grants: &[&str]) -> PostgresOptions {
    let admin = admin(server).await;
    let role = unique_name();
    let mut sql = format!("CREATE ROLE {} LOGIN PASSWORD 'app';", quoted(&role));
    for grant in grants {
        let grant = grant.replace("turnstream", &quoted(schema)).replace("app", &quoted(&role));
        sql = sql + &grant + ";";
    }
    admin.batch_execute(&sql).await.unwrap();
    let role = role.replace('"', "%22").replace(' ', "%20");
    PostgresOptions::new(server.url_as(&role, "app")).with_schema(schema)
}

/// NOTE: the docs of `PostgresStore` list the same privileges.
const GRANTS: [&str; 4] = [
    "GRANT USAGE ON SCHEMA turnstream TO app",
    "GRANT SELECT ON turnstream.schema_version TO app",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON turnstream.session, turnstream.entry TO app",
    "GRANT USAGE ON SEQUENCE turnstream.lease_epoch TO app",
];

#[tokio::test]
#[ignore = "needs PostgreSQL: crates/postgres/tests/run.sh"]
async fn a_role_with_the_documented_grants_can_do_everything_except_create_tables() {
    let schema = unique_name();
    let script = PostgresStore::migrations_sql(&schema).unwrap();
    let stored = include_str!("postgres.sql");
    assert_eq!(script, stored.replace("\"turnstream\"", &quoted(&schema)));
    admin(shared_server()).await.batch_execute(&script).await.unwrap();
    let store = connect(&restricted_role(shared_server(), &schema, &GRANTS).await).await;
    store.append("s", 0, numbered_entries(0..2)).await.unwrap();
    store.fork("s", 1, "f").await.unwrap();
    let lease = store.lease("s").await.unwrap();
    store.append_leased(&lease, "s", 2, numbered_entries(2..3)).await.unwrap();
    drop(lease);
    drop(store.lease("new").await.unwrap());
    assert_eq!(store.load("s", 0).await.unwrap(), Some(numbered_entries(0..3)));
    assert_eq!(store.list_page(None, 9).await.unwrap().len(), 2);
    assert!(store.delete("f").await.unwrap());
    let later = std::time::SystemTime::now() + std::time::Duration::from_mins(1);
    assert_eq!(store.prune(later).await.unwrap(), ["s"]);
}

#[tokio::test]
#[ignore = "needs PostgreSQL: crates/postgres/tests/run.sh"]
async fn a_role_without_rights_gets_a_typed_error() {
    let schema = unique_name();
    // The role must not create the schema.
    let options = restricted_role(shared_server(), &schema, &[]).await;
    let error = options.connect().await.unwrap_err();
    let found = expect_postgres_error(&error, PostgresErrorKind::PermissionDenied);
    assert_eq!(found.sqlstate(), Some("42501"));
    // It must not read existing sessions.
    let owner = connect(&options_for(shared_server()).with_schema(&*schema)).await;
    owner.append("s", 0, numbered_entries(0..1)).await.unwrap();
    let options = restricted_role(shared_server(), &schema, &[]).await;
    let error = options.connect().await.unwrap_err();
    expect_postgres_error(&error, PostgresErrorKind::PermissionDenied);
    // It must not write.
    let grants =
        [GRANTS[0], GRANTS[1], "GRANT SELECT ON turnstream.session, turnstream.entry TO app"];
    let store = connect(&restricted_role(shared_server(), &schema, &grants).await).await;
    assert_eq!(store.load("s", 0).await.unwrap(), Some(numbered_entries(0..1)));
    for error in [
        store.append("s", 1, numbered_entries(1..2)).await.unwrap_err(),
        store.fork("s", 1, "f").await.unwrap_err(),
        store.delete("s").await.unwrap_err(),
        store.lease("s").await.unwrap_err(),
    ] {
        expect_postgres_error(&error, PostgresErrorKind::PermissionDenied);
    }
    // It must not take a lease, and the lock that the statement acquired is released.
    let store = connect(&restricted_role(shared_server(), &schema, &GRANTS[..3]).await).await;
    let error = store.lease("s").await.unwrap_err();
    expect_postgres_error(&error, PostgresErrorKind::PermissionDenied);
    drop(owner.lease("s").await.unwrap());
}
