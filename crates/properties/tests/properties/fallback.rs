//! A run over a fallback ends once, reports the text that remains and counts every attempt.

use futures::{FutureExt, StreamExt};
use proptest::prelude::{Strategy, prop_assert, prop_assert_eq, proptest};
use turnstream::event::EndReason;
use turnstream::provider::{Fallback, Reply, Scripted};
use turnstream::{Agent, ErrorKind, History, Usage};

use turnstream_test_support::providers::{error_of_kind, usage_with_output};
use turnstream_test_support::runs::{limits_without_retries, push_event};

#[derive(Clone, Debug)]
struct Attempt {
    word_count: u32,
    output_tokens: Option<u64>,
    error_kind: Option<ErrorKind>,
}

impl Attempt {
    fn text(&self, who: usize) -> String {
        let words: Vec<String> =
            (0..self.word_count).map(|word| format!("{who}.{word} ")).collect();
        words.concat()
    }

    fn reply(&self, who: usize) -> Reply {
        let reply = self
            .output_tokens
            .map_or_else(Reply::new, |n| Reply::new().usage(usage_with_output(n)));
        let reply = reply.say(self.text(who));
        match self.error_kind {
            Some(ErrorKind::IncompleteTurn) => reply.disconnect(),
            Some(kind) => reply.fail(error_of_kind(kind)),
            None => reply.say("done"),
        }
    }
}

fn any_attempts() -> impl Strategy<Value = Vec<Attempt>> {
    let kinds = [ErrorKind::Overloaded, ErrorKind::InvalidRequest, ErrorKind::IncompleteTurn];
    let fails = proptest::option::weighted(0.8, proptest::sample::select(kinds.to_vec()));
    let one =
        (0_u32..3, proptest::option::of(1_u64..100), fails).prop_map(|(words, counted, fails)| {
            Attempt { word_count: words, output_tokens: counted, error_kind: fails }
        });
    proptest::collection::vec(one, 1..5)
}

/// The text, the usage, the number of providers that are called, and whether the last one
/// completes.
fn expected_result(tries: &[Attempt]) -> (String, Usage, usize, bool) {
    let mut usage = Usage::default();
    for (who, one) in tries.iter().enumerate() {
        usage += one.output_tokens.map(usage_with_output).unwrap_or_default();
        match one.error_kind {
            None => return (one.text(who) + "done", usage, who + 1, true),
            Some(ErrorKind::InvalidRequest) => return (one.text(who), usage, who + 1, false),
            Some(_) if who + 1 == tries.len() => return (one.text(who), usage, who + 1, false),
            Some(_) => {}
        }
    }
    unreachable!("there is at least one")
}

proptest! {
    #![proptest_config(proptest::test_runner::Config::with_cases(64))]
    #[test]
    fn a_run_over_a_fallback_ends_once_keeps_unretracted_text_and_counts_every_attempt(tries in any_attempts()) {
        let world = || {
            let models: Vec<Scripted> = tries
                .iter()
                .enumerate()
                .map(|(who, one)| Scripted::new([one.reply(who)]))
                .collect();
            let first = Fallback::new(models[0].clone());
            let fallback = models[1..].iter().cloned().fold(first, Fallback::or);
            let agent = Agent::new(fallback).with_limits(limits_without_retries());
            (agent.run_from(History::empty("h"), "go"), models)
        };
        let asked = |models: &[Scripted]| models.iter().map(|model| model.requests().len()).sum::<usize>();
        let (mut run, models) = world();
        let mut events = Vec::new();
        while let Some(Some(event)) = run.next().now_or_never() {
            push_event(&mut events, event);
        }
        prop_assert_eq!(events.iter().filter(|event| event.outcome().is_some()).count(), 1);
        let outcome = events.last().unwrap().outcome().unwrap();
        let completed = outcome.reason == EndReason::Completed;
        let told = (outcome.text.clone(), outcome.usage, asked(&models), completed);
        prop_assert_eq!(told, expected_result(&tries));
        for at in 0..events.len() {
            let (mut run, models) = world();
            for _ in 0..at {
                run.next().now_or_never();
            }
            drop(run);
            let sent = asked(&models);
            prop_assert!(models.iter().all(|model| model.in_flight() == 0));
            prop_assert!(sent <= expected_result(&tries).2);
        }
    }
}
