//! Processes with agents that compete for sessions, and are killed.

use std::env;

use crate::support::{connect, options, shared_server, unique_name};
use turnstream_test_support::session_race::{Race, Racer};

const URL_ENV: &str = "TURNSTREAM_POSTGRES_RACE_URL";
const SCHEMA_ENV: &str = "TURNSTREAM_POSTGRES_RACE_SCHEMA";

const RACE: Race = Race { processes: 8, sessions: 50, runs: 60, kills: 16 };

#[tokio::test]
#[ignore = "needs PostgreSQL: crates/postgres/tests/run.sh"]
async fn eight_processes_never_settle_each_others_running_sessions() {
    let test = "eight_processes_never_settle_each_others_running_sessions";
    if let Some(racer) = Racer::from_env() {
        let options = turnstream_postgres::PostgresOptions::new(env::var(URL_ENV).unwrap());
        let store = connect(&options.with_schema(env::var(SCHEMA_ENV).unwrap())).await;
        return racer.race(store, &RACE).await;
    }
    let schema = unique_name();
    let store = connect(&options().with_schema(&*schema)).await;
    let effects = env::temp_dir().join(format!("turnstream-race-{}.txt", std::process::id()));
    let url = shared_server().url();
    let variables = [(URL_ENV, &*url), (SCHEMA_ENV, &*schema)];
    let killed = RACE.start(&format!("race::{test}"), &effects, &variables);
    RACE.check(&store, &effects, &killed).await;
    std::fs::remove_file(effects).unwrap();
}
