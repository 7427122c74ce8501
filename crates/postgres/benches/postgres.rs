//! The cost of an append to a PostgreSQL database, compared with a plain `INSERT` of the same text
//! through the same kind of pool; the cost of notifications; and the cost of a page in a list of
//! many sessions.
//!
//! ```text
//! cargo bench -p turnstream-postgres
//! ```
//!
//! It starts a server of its own, which writes to the disk as it does by default, unless
//! `TURNSTREAM_POSTGRES_URL` names one. Sequential measurements are reported as their median.

use std::env;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod};
use tokio_postgres::NoTls;
use turnstream::Item;
use turnstream::session::{Entry, Store};
use turnstream_postgres::{PostgresOptions, PostgresStore};
use turnstream_test_support::postgres;

const SECONDS: Duration = Duration::from_secs(2);
const ROUNDS: usize = 3;
const POOL_SIZE: usize = 10;
const LISTED: i64 = 100_000;

fn main() {
    // `cargo test --benches` only checks that the bench starts.
    if !env::args().any(|argument| argument == "--bench") {
        return;
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let given = env::var("TURNSTREAM_POSTGRES_URL").ok();
    let own = given.is_none().then(|| postgres::Server::start(&[]));
    let url = given.or_else(|| own.as_ref().map(postgres::Server::url)).unwrap();
    runtime.block_on(measure(&url));
}

async fn measure(url: &str) {
    let raw = raw_pool(url).await;
    let options = PostgresOptions::new(url).with_pool_size(POOL_SIZE);
    let store = options.clone().with_schema("bench").connect().await.unwrap();
    let notifying = options.with_schema("bench_notify").with_notifications();
    let notifying = notifying.connect().await.unwrap();
    println!(
        "appends per second of one entry of {} bytes; pool of {POOL_SIZE}",
        entry_json().len()
    );
    // During the warm-up the server creates its first log files.
    append_rate(&store, 8, "warm up").await;
    insert_rate(&raw, 8, ROUNDS).await;
    println!("sessions   INSERT    store  ratio  notifying  ratio to store");
    for sessions in [1, 8, 64] {
        let mut rates = [(); 3].map(|()| Vec::new());
        for round in 0..ROUNDS {
            let prefix = format!("{sessions}-{round}");
            rates[0].push(insert_rate(&raw, sessions, round).await);
            rates[1].push(append_rate(&store, sessions, &prefix).await);
            rates[2].push(append_rate(&notifying, sessions, &prefix).await);
        }
        let [raw, store, notifying] = rates.map(median);
        println!(
            "{sessions:8} {raw:8.0} {store:8.0} {:6.2} {notifying:10.0} {:15.2}",
            store / raw,
            notifying / store,
        );
    }
    measure_list(&raw, &store).await;
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

fn entry() -> Entry {
    Item::user("I read the module, to see what it exports. ".repeat(6)).into()
}

fn entry_json() -> String {
    serde_json::to_string(&entry()).unwrap()
}

async fn raw_pool(url: &str) -> Pool {
    let config = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    let manager = Manager::from_config(url.parse().unwrap(), NoTls, config);
    let pool = Pool::builder(manager).max_size(POOL_SIZE).build().unwrap();
    let tables = "
        DROP SCHEMA IF EXISTS bench CASCADE;
        DROP SCHEMA IF EXISTS bench_notify CASCADE;
        DROP TABLE IF EXISTS bench_raw;
        CREATE TABLE bench_raw (session bigint, number bigint, json text NOT NULL, PRIMARY KEY (session, number))";
    pool.get().await.unwrap().batch_execute(tables).await.unwrap();
    pool
}

/// Runs one task per session, each of which counts its operations.
async fn rate<F: Future<Output = ()> + Send + 'static>(
    sessions: usize,
    task: impl Fn(usize, Arc<AtomicBool>, Arc<AtomicU64>) -> F,
) -> f64 {
    let (ends, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let tasks = (0..sessions)
        .map(|session| tokio::spawn(task(session, Arc::clone(&ends), Arc::clone(&done))));
    let tasks: Vec<_> = tasks.collect();
    // Waits until connections and prepared statements exist.
    tokio::time::sleep(SECONDS / 4).await;
    let (before, since) = (done.load(Ordering::Relaxed), Instant::now());
    tokio::time::sleep(SECONDS).await;
    #[expect(clippy::cast_precision_loss, reason = "it is a small number")]
    let count = (done.load(Ordering::Relaxed) - before) as f64;
    let rate = count / since.elapsed().as_secs_f64();
    ends.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.unwrap();
    }
    rate
}

async fn insert_rate(pool: &Pool, sessions: usize, round: usize) -> f64 {
    rate(sessions, |session, ends, done| {
        let (pool, json) = (pool.clone(), entry_json());
        let key = i64::try_from((sessions * 10 + round) * 1000 + session).unwrap();
        async move {
            let mut number = 0_i64;
            while !ends.load(Ordering::Relaxed) {
                let client = pool.get().await.unwrap();
                let sql = "INSERT INTO bench_raw (session, number, json) VALUES ($1, $2, $3)";
                let statement = client.prepare_cached(sql).await.unwrap();
                client.execute(&statement, &[&key, &number, &json]).await.unwrap();
                number += 1;
                done.fetch_add(1, Ordering::Relaxed);
            }
        }
    })
    .await
}

async fn append_rate(store: &PostgresStore, sessions: usize, prefix: &str) -> f64 {
    rate(sessions, |session, ends, done| {
        let (store, id) = (store.clone(), format!("{prefix}-{session}"));
        async move {
            let mut version = 0;
            while !ends.load(Ordering::Relaxed) {
                version = store.append(&id, version, vec![entry()]).await.unwrap();
                done.fetch_add(1, Ordering::Relaxed);
            }
        }
    })
    .await
}

async fn measure_list(pool: &Pool, store: &PostgresStore) {
    let client = pool.get().await.unwrap();
    let fill = "INSERT INTO bench.session (id, inherited, version, updated)
                SELECT convert_to('listed ' || n, 'UTF8'), 0, 1, now() - n * interval '1 second'
                FROM generate_series(1, $1::bigint) AS n";
    client.execute(fill, &[&LISTED]).await.unwrap();
    client.batch_execute("VACUUM ANALYZE bench.session").await.unwrap();
    let mut times = [(); 3].map(|()| Vec::new());
    for _ in 0..9 {
        let since = Instant::now();
        let first = store.list_page(None, 50).await.unwrap();
        times[0].push(since.elapsed().as_secs_f64() * 1000.0);
        let since = Instant::now();
        store.list_page(first.last(), 50).await.unwrap();
        times[1].push(since.elapsed().as_secs_f64() * 1000.0);
    }
    let since = Instant::now();
    let count = store.list().await.unwrap().len();
    times[2].push(since.elapsed().as_secs_f64() * 1000.0);
    let [first, next, all] = times.map(median);
    println!(
        "of {count} sessions: first page of 50 {first:.1} ms, next {next:.1} ms, all {all:.0} ms"
    );
}
