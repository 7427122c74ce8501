//! Encrypted connections, with certificates of an authority that openssl creates.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, process};

use turnstream::session::Store;
use turnstream_postgres::{PostgresErrorKind, PostgresOptions};

use crate::support::{admin, connect, expect_postgres_error, unique_name};
use turnstream_test_support::postgres::{OWNER, PASSWORD, Server, give_to_server};

/// A temporary folder, removed on drop.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn openssl(folder: &Path, arguments: &str) {
    let mut command = Command::new("openssl");
    let ran = command.args(arguments.split(' ')).current_dir(folder).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
}

/// Two authorities, and a certificate of the first one for `localhost`.
fn make_certificates() -> Folder {
    let folder = env::temp_dir().join(format!("turnstream-tls-{}", process::id()));
    fs::create_dir(&folder).unwrap();
    let new = "req -x509 -newkey rsa:2048 -nodes -days 2";
    openssl(&folder, &format!("{new} -keyout ca.key -out ca.pem -subj /CN=right"));
    openssl(&folder, &format!("{new} -keyout other.key -out other.pem -subj /CN=wrong"));
    openssl(&folder, "req -newkey rsa:2048 -nodes -keyout server.key -out server.csr -subj /CN=db");
    fs::write(folder.join("names"), "subjectAltName = DNS:localhost\n").unwrap();
    openssl(
        &folder,
        "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -out server.pem -extfile names",
    );
    fs::write(folder.join("empty.pem"), "").unwrap();
    give_to_server(&folder.join("server.key"));
    Folder(folder)
}

#[tokio::test]
#[ignore = "needs PostgreSQL: crates/postgres/tests/run.sh"]
async fn sslmode_behaves_as_in_libpq() {
    let certificates = make_certificates();
    let path = |name: &str| certificates.0.join(name).display().to_string();
    let files = [
        format!("ssl_cert_file = '{}'", path("server.pem")),
        format!("ssl_key_file = '{}'", path("server.key")),
    ];
    let server = Server::start(&["fsync = off", "ssl = on", &files[0], &files[1]]);
    let (schema, admin) = (unique_name(), admin(&server).await);
    let options = |host: &str, query: &str| {
        let address = format!("{host}:{}", server.port());
        let url = format!(
            "postgres://{OWNER}:{PASSWORD}@{address}/postgres?application_name=tls&{query}"
        );
        PostgresOptions::new(url).with_schema(&*schema)
    };
    let (right, wrong) = (path("ca.pem"), path("other.pem"));
    for (host, query, is_encrypted) in [
        ("localhost", "sslmode=disable".to_owned(), false),
        ("localhost", String::new(), true),
        ("127.0.0.1", "sslmode=prefer".to_owned(), true),
        ("127.0.0.1", "sslmode=require".to_owned(), true),
        ("127.0.0.1", format!("sslmode=require&sslrootcert={right}"), true),
        ("127.0.0.1", format!("sslmode=verify-ca&sslrootcert={right}"), true),
        ("localhost", format!("sslmode=verify-full&sslrootcert={right}"), true),
        (
            "localhost",
            format!("sslmode=verify-full&sslrootcert={right}&channel_binding=require"),
            true,
        ),
    ] {
        let store = connect(&options(host, &query)).await;
        let lease = store.lease("s").await.unwrap();
        let sql = "SELECT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
                   WHERE application_name = 'tls'";
        let seen = admin.query(sql, &[]).await.unwrap();
        assert!(seen.len() >= 2);
        assert!(seen.iter().all(|row| row.get::<_, bool>(0) == is_encrypted), "{query}");
        drop((store, lease));
        crate::support::until("its connections end", || async {
            admin.query(sql, &[]).await.unwrap().is_empty()
        })
        .await;
    }
    for (host, query) in [
        ("127.0.0.1", format!("sslmode=verify-full&sslrootcert={right}")),
        ("localhost", format!("sslmode=verify-full&sslrootcert={wrong}")),
        ("localhost", format!("sslmode=verify-ca&sslrootcert={wrong}")),
        ("localhost", format!("sslmode=require&sslrootcert={wrong}")),
        ("localhost", "sslmode=verify-full".to_owned()),
        ("localhost", "sslrootcert=system".to_owned()),
        ("localhost", format!("sslmode=verify-full&sslrootcert={}", path("empty.pem"))),
        ("localhost", format!("sslmode=verify-full&sslrootcert={}", path("missing.pem"))),
    ] {
        let error = options(host, &query).connect().await.expect_err(&query);
        expect_postgres_error(&error, PostgresErrorKind::Tls);
    }
}

#[tokio::test]
#[ignore = "needs PostgreSQL: crates/postgres/tests/run.sh"]
async fn a_server_without_tls_is_rejected_if_tls_is_required() {
    let server = crate::support::shared_server();
    let options = PostgresOptions::new(format!("{}?sslmode=require", server.url()));
    let error = options.connect().await.unwrap_err();
    expect_postgres_error(&error, PostgresErrorKind::Tls);
    let options = PostgresOptions::new(format!("{}?sslmode=prefer", server.url()));
    connect(&options.with_schema(unique_name())).await;
}
