//! The test suite for engines, on a real server. With `TURNSTREAM_CASES=all`, each
//! operation is lost at every moment, which takes some minutes.

mod support;

use futures::FutureExt;
use futures::future::BoxFuture;
use support::{RestateServer, Worker as Process, register};
use turnstream::durable::StoredCommand;
use turnstream::durable::storage::SessionStatus;
use turnstream::session::Entry;
use turnstream::{Error, Outcome};
use turnstream_restate::{Client, Worker};
use turnstream_test_support::cases;
use turnstream_testing::durable_suite::{EngineHost, SuiteRun, SuiteRuns};

/// A server and a worker.
struct RestateHost {
    client: Client,
    runs: SuiteRuns,
    _worker: Process,
    _server: RestateServer,
}

impl RestateHost {
    async fn start() -> Self {
        let server = RestateServer::start().await;
        let runs = SuiteRuns::default();
        let worker = Process::start(Worker::new().with_suite(&runs).endpoint());
        register(&server.admin_url(), &worker.url()).await;
        let client = Client::new(&server.ingress_url()).expect("the server has a URL");
        Self { client, runs, _worker: worker, _server: server }
    }
}

impl EngineHost for RestateHost {
    fn run(&self, run: SuiteRun) -> BoxFuture<'_, Result<Outcome, Error>> {
        let session = run.session.clone();
        self.runs.insert(run);
        // The attempt drives the run that the test inserted, whatever the request says.
        async move { self.client.run(&session, &session, ()).await }.boxed()
    }

    fn send(&self, session: &str, command: StoredCommand) -> BoxFuture<'static, Result<(), Error>> {
        let (client, session) = (self.client.clone(), session.to_owned());
        async move { client.send(&session, &command.id, command.command).await.map(drop) }.boxed()
    }

    fn is_thorough(&self) -> bool {
        cases::all_are_run()
    }

    fn entries<'a>(&'a self, session: &'a str) -> BoxFuture<'a, Result<Vec<Entry>, Error>> {
        self.client.history(session, 0).boxed()
    }

    fn status<'a>(&'a self, session: &'a str) -> BoxFuture<'a, Result<SessionStatus, Error>> {
        self.client.status(session).boxed()
    }
}

turnstream_testing::durable_suite!(
    on_restate,
    ignore = "needs a Restate server: crates/restate/tests/run.sh",
    super::RestateHost::start
);
