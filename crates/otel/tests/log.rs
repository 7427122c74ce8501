//! The log that the feature `tracing` of turnstream writes.

use std::io;
use std::sync::{Arc, Mutex};

use futures::StreamExt;
use tracing::Level;
use turnstream::{EventStreamExt, History};

use crate::recorder::Recorder;
use crate::scenarios::{SECRET, agent, answer, model, scenarios};
use crate::trees::recorded_telemetry;

/// The lines of a log.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Runs all scenarios, and returns the log at a level.
fn log(level: Level) -> String {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    tracing::subscriber::with_default(subscriber, || {
        for scenario in scenarios() {
            let runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = { runtime }.enable_time().start_paused(true).build().unwrap();
            runtime.block_on(async {
                let telemetry = recorded_telemetry(&Recorder::default());
                (scenario.start)(&telemetry).with_tracing().collect::<Vec<_>>().await;
            });
        }
    });
    let bytes = lines.0.lock().unwrap().clone();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn the_span_of_a_run_has_the_names_of_its_agent_and_its_conversation() {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(Level::INFO)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    tracing::subscriber::with_default(subscriber, || {
        let agent = agent(model([answer("Hello."), answer("Hello.")])).with_label("greeter");
        let run = agent.run_from(History::empty("chat-1"), "Hi");
        futures::executor::block_on(run.with_tracing().collect::<Vec<_>>());
        futures::executor::block_on(
            agent.run("Hi").map(|it| it).with_tracing().collect::<Vec<_>>(),
        );
    });
    let log = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    let ends: Vec<_> = log.lines().filter(|line| line.contains("the run has ended")).collect();
    assert_eq!(ends.len(), 2, "{log}");
    for name in ["gen_ai.agent.name=\"greeter\"", "gen_ai.conversation.id=\"chat-1\""] {
        assert!(ends[0].contains(name), "{}", ends[0]);
    }
    // A stream of events does not contain them.
    assert!(!ends[1].contains("gen_ai.agent.name"), "{}", ends[1]);
}

#[test]
fn the_log_of_all_scenarios_has_no_content_below_the_level_trace() {
    let (info, debug) = (log(Level::INFO), log(Level::DEBUG));
    for line in info.lines().chain(debug.lines()) {
        assert!(!line.contains(SECRET) && !line.contains("the prompt was"), "{line}");
    }
    let (infos, debugs) = (info.lines().count(), debug.lines().count());
    println!("{infos} lines at the level info, {debugs} at the level debug");
    assert!(infos > 150 && debugs > infos);
    assert!(log(Level::TRACE).contains(SECRET));
}
