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

use turnstream_test_support::clock;
use turnstream_test_support::providers::{error_of_kind, usage_with_output};
use turnstream_test_support::runs::{limits_without_retries, push_event};
use turnstream_test_support::tools::spec;

fn counting_tool(ran: &std::sync::Arc<std::sync::atomic::AtomicUsize>) -> Tool {
    let ran = ran.clone();
    Tool::raw(spec("t"), move |_, _| {
        ran.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        async { "ran" }
    })
    .unwrap()
}

#[derive(Clone, Debug)]
struct Attempt {
    word_count: u32,
    output_tokens: Option<u64>,
    end: AttemptEnd,
}

#[derive(Clone, Debug)]
enum AttemptEnd {
    Fails(ErrorKind),
    Cut,
    Completes,
    CallsTool,
}

fn any_attempts() -> impl Strategy<Value = Vec<Attempt>> {
    use proptest::prelude::{Just, prop_oneof};
    let end = prop_oneof![
        Just(AttemptEnd::Fails(ErrorKind::Overloaded)),
        Just(AttemptEnd::Fails(ErrorKind::Auth)),
        Just(AttemptEnd::Cut),
        Just(AttemptEnd::Completes),
        Just(AttemptEnd::CallsTool),
    ];
    let counted = proptest::option::of(1_u64..100);
    let one = (0_u32..3, counted, end).prop_map(|(words, counted, end)| Attempt {
        word_count: words,
        output_tokens: counted,
        end,
    });
    proptest::collection::vec(one, 0..7)
}

impl Attempt {
    fn text(&self, n: usize) -> String {
        let words: Vec<String> = (0..self.word_count).map(|word| format!("{n}.{word} ")).collect();
        words.concat()
    }

    fn reply(&self, n: usize) -> Reply {
        let reply = match self.output_tokens {
            Some(tokens) => Reply::new().usage(usage_with_output(tokens)),
            None => Reply::new(),
        };
        let reply = reply.say(self.text(n));
        match self.end {
            AttemptEnd::Fails(kind) => reply.fail(error_of_kind(kind)),
            AttemptEnd::Cut => reply.disconnect(),
            AttemptEnd::Completes => reply.say("done"),
            AttemptEnd::CallsTool => reply.call("t", json!({})),
        }
    }
}

#[derive(Debug, Default, PartialEq)]
struct RunSummary {
    request_count: usize,
    usage: Usage,
    text: String,
    tool_run_count: usize,
    is_completed: bool,
}

/// The expected result, computed a second time without any stream.
fn expected_summary(tries: &[Attempt], retracts: bool, attempts: u32) -> RunSummary {
    let mut told = RunSummary::default();
    let mut failed = 0;
    let last = Attempt { word_count: 0, output_tokens: None, end: AttemptEnd::Completes };
    loop {
        let one = tries.get(told.request_count).unwrap_or(&last);
        let text = one.text(told.request_count);
        told.request_count += 1;
        told.usage += one.output_tokens.map(usage_with_output).unwrap_or_default();
        match one.end {
            AttemptEnd::Completes => {
                return RunSummary { text: text + "done", is_completed: true, ..told };
            }
            AttemptEnd::CallsTool => {
                (told.tool_run_count, failed) = (told.tool_run_count + 1, 0);
                continue;
            }
            AttemptEnd::Fails(_) | AttemptEnd::Cut => failed += 1,
        }
        let passes = !matches!(one.end, AttemptEnd::Fails(ErrorKind::Auth));
        if !passes || failed >= attempts || (one.word_count > 0 && !retracts) {
            return RunSummary { text, ..told };
        }
    }
}

/// A run over a script of attempts, polled by hand.
struct RetryRun {
    model: Scripted,
    run: turnstream::Run,
    tool_runs: std::sync::Arc<std::sync::atomic::AtomicUsize>,
    events: Vec<turnstream::Event>,
}

impl RetryRun {
    fn new(tries: &[Attempt], retracts: bool, attempts: u32) -> Self {
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
        let agent = Agent::new(retry).with_limits(limits_without_retries());
        let agent = agent.with_tools([counting_tool(&ran)]);
        let run = agent.run_from(History::empty("h"), "go");
        Self { model, run, tool_runs: ran, events: Vec::new() }
    }

    /// Polls up to a number of times, or to the end; returns the number of polls.
    async fn poll_up_to(&mut self, most: usize) -> usize {
        for polls in 0..most {
            match self.run.next().now_or_never() {
                Some(Some(event)) => push_event(&mut self.events, event),
                Some(None) => return polls,
                None => tokio::time::advance(Duration::from_millis(400)).await,
            }
        }
        most
    }

    fn summary(&self) -> RunSummary {
        let outcome = self.events.last().unwrap().outcome().expect("finished is last");
        RunSummary {
            request_count: self.model.requests().len(),
            usage: outcome.usage,
            text: outcome.text.clone(),
            tool_run_count: self.tool_runs.load(std::sync::atomic::Ordering::Relaxed),
            is_completed: outcome.reason == EndReason::Completed,
        }
    }
}

proptest! {
    #![proptest_config(proptest::test_runner::Config::with_cases(64))]
    #[test]
    fn a_run_over_retries_ends_once_keeps_unretracted_text_and_counts_every_attempt(
        tries in any_attempts(),
        retracts in any::<bool>(),
        attempts in 1_u32..4,
    ) {
        let polls = clock::paused_runtime().block_on(async {
            let mut world = RetryRun::new(&tries, retracts, attempts);
            let polls = world.poll_up_to(10_000).await;
            let finished = world.events.iter().filter(|event| event.outcome().is_some()).count();
            prop_assert_eq!(finished, 1);
            prop_assert_eq!(world.summary(), expected_summary(&tries, retracts, attempts));
            // The fold of the reported events, after a round trip through JSON, is the run's own.
            let folded = turnstream::Journal::new(History::empty("h"));
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
            clock::paused_runtime().block_on(async {
                let mut world = RetryRun::new(&tries, retracts, attempts);
                world.poll_up_to(at).await;
                let handle = world.run.handle();
                let RetryRun { run, model, tool_runs, .. } = world;
                drop(run);
                let (sent, tools) = (model.requests().len(), tool_runs.load(std::sync::atomic::Ordering::Relaxed));
                prop_assert_eq!(model.in_flight(), 0);
                tokio::time::advance(Duration::from_hours(1)).await;
                prop_assert_eq!(model.requests().len(), sent, "a request after the drop");
                prop_assert_eq!(tool_runs.load(std::sync::atomic::Ordering::Relaxed), tools);
                prop_assert!(handle.history().settled().is_settled());
                Ok(())
            })?;
        }
    }
}
