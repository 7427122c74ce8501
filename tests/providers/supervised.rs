//! The connections of supervised runs.

use std::time::Duration;

use futures::StreamExt;
use tokio::time::timeout;
use turnstream::provider::Reply;
use turnstream::supervise::{Supervised, Supervisor};
use turnstream::{Agent, Event};
use turnstream_testing::{ModelServer, Wire};

use crate::over_http::{TransportSettings, http_provider};

#[tokio::test]
async fn dropping_a_supervisor_closes_the_connections_of_all_its_runs() {
    const RUNS: usize = 100;
    let server = ModelServer::openai_chat(|_, _| Reply::text("One").hang()).await.unwrap();
    let model = http_provider(Wire::OpenAiChat, &server.url(), 1, TransportSettings::default());
    let agent = Agent::new(model);
    let mut supervisor = Supervisor::new();
    for key in 0..RUNS {
        let agent = agent.clone();
        supervisor.insert(key, move |_| agent.run("Go")).unwrap();
    }
    let mut answering = 0;
    while answering < RUNS {
        let (_, report) = supervisor.next().await.unwrap();
        let Supervised::Event(event) = report else { panic!("{report:?}") };
        answering += usize::from(Event::text_delta(&event).is_some());
    }
    let server = server.http_server();
    assert_eq!((server.connection_count(), server.closed_early_count()), (RUNS, 0));
    drop(supervisor);
    let closed = async {
        while server.closed_early_count() < RUNS {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_mins(1), closed).await.expect("every connection is closed");
}
