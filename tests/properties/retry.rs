//! A run over retries ends once, reports the text that remains and counts every attempt.

use std::time::Duration;

use futures::{FutureExt, StreamExt};
use proptest::prelude::{Strategy, any, prop_assert, prop_assert_eq, proptest};
use serde_json::json;
use turnstream::env::SeededRandom;
use turnstream::event::EndReason;
use turnstream::provider::{Backoff, Reply, Retry, Scripted};
use turnstream::tool::Tool;
use turnstream::{Agent, ErrorKind, History, Usage};

use crate::support::clock;
use crate::support::providers::{error, spent};
use crate::support::runs::{keep, without_retries};
use crate::support::tools::spec;

fn counting_tool(ran: &std::sync::Arc<std::sync::atomic::AtomicUsize>) -> Tool {
    let ran = ran.clone();
    Tool::raw(spec("t"), move |_, _| {
        ran.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        async { "ran" }
    })
    .unwrap()
}

#[derive(Clone, Debug)]
struct Try {
    words: u32,
    counted: Option<u64>,
    end: End,
}

#[derive(Clone, Debug)]
enum End {
    Fails(ErrorKind),
    Cut,
    Completes,
    Calls,
}

fn tries() -> impl Strategy<Value = Vec<Try>> {
    use proptest::prelude::{Just, prop_oneof};
    let end = prop_oneof![
        Just(End::Fails(ErrorKind::Overloaded)),
        Just(End::Fails(ErrorKind::Auth)),
        Just(End::Cut),
        Just(End::Completes),
        Just(End::Calls),
    ];
    let counted = proptest::option::of(1_u64..100);
    let one =
        (0_u32..3, counted, end).prop_map(|(words, counted, end)| Try { words, counted, end });
    proptest::collection::vec(one, 0..7)
}

impl Try {
    fn text(&self, n: usize) -> String {
        let words: Vec<String> = (0..self.words).map(|word| format!("{n}.{word} ")).collect();
        words.concat()
    }

    fn reply(&self, n: usize) -> Reply {
        let reply = match self.counted {
            Some(tokens) => Reply::new().usage(spent(tokens)),
            None => Reply::new(),
        };
        let reply = reply.say(&self.text(n));
        match self.end {
            End::Fails(kind) => reply.fail(error(kind)),
            End::Cut => reply.cut(),
            End::Completes => reply.say("done"),
            End::Calls => reply.call("t", json!({})),
        }
    }
}

#[derive(Debug, Default, PartialEq)]
struct Told {
    requests: usize,
    usage: Usage,
    text: String,
    tools: usize,
    completed: bool,
}

/// The whole of what should happen, told again without any stream.
fn expected(tries: &[Try], retracts: bool, attempts: u32) -> Told {
    let mut told = Told::default();
    let mut failed = 0;
    let last = Try { words: 0, counted: None, end: End::Completes };
    loop {
        let one = tries.get(told.requests).unwrap_or(&last);
        let text = one.text(told.requests);
        told.requests += 1;
        told.usage += one.counted.map(spent).unwrap_or_default();
        match one.end {
            End::Completes => return Told { text: text + "done", completed: true, ..told },
            End::Calls => {
                (told.tools, failed) = (told.tools + 1, 0);
                continue;
            }
            End::Fails(_) | End::Cut => failed += 1,
        }
        let passes = !matches!(one.end, End::Fails(ErrorKind::Auth));
        if !passes || failed >= attempts || (one.words > 0 && !retracts) {
            return Told { text, ..told };
        }
    }
}

/// A run over a script of tries, pulled by hand.
struct World {
    model: Scripted,
    run: turnstream::Run,
    ran: std::sync::Arc<std::sync::atomic::AtomicUsize>,
    events: Vec<turnstream::Event>,
}

impl World {
    fn new(tries: &[Try], retracts: bool, attempts: u32) -> Self {
        let script = tries.to_vec();
        let model = Scripted::from_fn(move |_, n| match script.get(n) {
            Some(one) => one.reply(n),
            None => Reply::text("done"),
        });
        let backoff = Backoff { max_attempts: attempts, ..Backoff::default() };
        let retry = Retry::new(model.clone()).with_backoff(backoff);
        let retry = retry.with_random(SeededRandom::new(7));
        let retry = if retracts { retry.with_retraction() } else { retry };
        let ran = std::sync::Arc::default();
        let agent = Agent::new(retry).with_limits(without_retries());
        let agent = agent.with_tools([counting_tool(&ran)]);
        let run = agent.run_from(History::from_id("h"), "go");
        Self { model, run, ran, events: Vec::new() }
    }

    /// Polls so often, or to the end; gives how often.
    async fn poll(&mut self, most: usize) -> usize {
        for polls in 0..most {
            match self.run.next().now_or_never() {
                Some(Some(event)) => keep(&mut self.events, event),
                Some(None) => return polls,
                None => tokio::time::advance(Duration::from_millis(400)).await,
            }
        }
        most
    }

    fn told(&self) -> Told {
        let outcome = self.events.last().unwrap().outcome().expect("finished is last");
        Told {
            requests: self.model.requests().len(),
            usage: outcome.usage,
            text: outcome.text.clone(),
            tools: self.ran.load(std::sync::atomic::Ordering::Relaxed),
            completed: outcome.reason == EndReason::Completed,
        }
    }
}

proptest! {
    #![proptest_config(proptest::test_runner::Config::with_cases(64))]
    #[test]
    fn a_run_over_retries_ends_once_keeps_unretracted_text_and_counts_every_attempt(
        tries in tries(),
        retracts in any::<bool>(),
        attempts in 1_u32..4,
    ) {
        let polls = clock::paused().block_on(async {
            let mut world = World::new(&tries, retracts, attempts);
            let polls = world.poll(10_000).await;
            let finished = world.events.iter().filter(|event| event.outcome().is_some()).count();
            prop_assert_eq!(finished, 1);
            prop_assert_eq!(world.told(), expected(&tries, retracts, attempts));
            // The fold of what was seen, through JSON, is the run's own.
            let folded = turnstream::Journal::new(History::from_id("h"));
            for event in &world.events {
                let line = serde_json::to_string(event).unwrap();
                folded.observe(&serde_json::from_str(&line).unwrap());
            }
            prop_assert_eq!(folded.history(), world.run.history());
            prop_assert_eq!(folded.usage(), world.run.usage());
            prop_assert!(world.run.history().is_settled());
            Ok(polls)
        })?;
        for at in 0..polls {
            clock::paused().block_on(async {
                let mut world = World::new(&tries, retracts, attempts);
                world.poll(at).await;
                let handle = world.run.handle();
                let World { run, model, ran, .. } = world;
                drop(run);
                let (sent, tools) = (model.requests().len(), ran.load(std::sync::atomic::Ordering::Relaxed));
                prop_assert_eq!(model.in_flight(), 0);
                tokio::time::advance(Duration::from_hours(1)).await;
                prop_assert_eq!(model.requests().len(), sent, "a request after the drop");
                prop_assert_eq!(ran.load(std::sync::atomic::Ordering::Relaxed), tools);
                prop_assert!(handle.history().settled().is_settled());
                Ok(())
            })?;
        }
    }
}
