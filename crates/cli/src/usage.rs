//! The tokens of a run, as far as the provider reports them.

use turnstream::turn::TurnEvent;
use turnstream::{Outcome, Usage};

/// Counts the turns of a run whose usage is known. A provider that does not report the usage of a
/// turn leaves it at zero.
#[derive(Default)]
pub(crate) struct UsageTally {
    reported_turns: u32,
}

impl UsageTally {
    pub(crate) fn observe(&mut self, event: &TurnEvent) {
        if let TurnEvent::TurnComplete { turn } = event
            && turn.usage().total() > 0
        {
            self.reported_turns += 1;
        }
    }

    /// Describes the tokens of a run that has ended; `None` if no model answered.
    pub(crate) fn describe(&self, outcome: &Outcome) -> Option<String> {
        let Usage { input_tokens, output_tokens, .. } = outcome.usage;
        let counted = match (input_tokens, output_tokens) {
            (0, 0) if outcome.turns == 0 || outcome.error.is_some() => return None,
            (0, 0) => return Some("number of tokens unknown".to_owned()),
            (input, 0) => format!("{input} tokens in"),
            (0, output) => format!("{output} tokens out"),
            (input, output) => format!("{input} tokens in, {output} out"),
        };
        // The usage of an interrupted turn is incomplete.
        let is_complete = self.reported_turns >= outcome.turns.max(1);
        let mut text = format!("{}{counted}", if is_complete { "" } else { "at least " });
        for (tokens, what) in [
            (outcome.usage.reasoning_tokens, "of them reasoning"),
            (outcome.usage.cache_read_input_tokens, "read from a cache"),
        ] {
            if tokens > 0 {
                text.extend([", ", &tokens.to_string(), " ", what]);
            }
        }
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;
    use serde_json::json;
    use turnstream::provider::{Reply, Scripted};
    use turnstream::{Agent, Event};

    use super::*;
    use crate::tools::{self, Root};

    /// The description of a run whose model sends these replies.
    async fn describe(replies: impl IntoIterator<Item = Reply>) -> Option<String> {
        let root = Root::new(std::env::temp_dir(), None);
        let agent = Agent::new(Scripted::new(replies)).with_toolkit(tools::toolkit(root));
        let mut run = agent.run("Hi");
        let mut tally = UsageTally::default();
        while let Some(Ok(event)) = run.next().await {
            if let Event::Turn(event) = &event {
                tally.observe(event);
            }
            if let Some(outcome) = event.outcome() {
                return tally.describe(outcome);
            }
        }
        panic!("a run has an outcome")
    }

    fn usage(input_tokens: u64, output_tokens: u64) -> Usage {
        Usage { input_tokens, output_tokens, ..Usage::default() }
    }

    #[tokio::test]
    async fn tokens_that_the_provider_does_not_report_are_not_described_as_zero() {
        let call = || Reply::new().call("calculate", json!({ "expression": "1 + 1" }));
        let cached = Usage { reasoning_tokens: 2, cache_read_input_tokens: 3, ..usage(9, 4) };
        for (replies, expected) in [
            (vec![Reply::text("Hi").usage(usage(9, 4))], "9 tokens in, 4 out"),
            (
                vec![Reply::text("Hi").usage(cached)],
                "9 tokens in, 4 out, 2 of them reasoning, 3 read from a cache",
            ),
            (vec![Reply::text("Hi")], "number of tokens unknown"),
            (vec![Reply::text("Hi").usage(usage(9, 0))], "9 tokens in"),
            (vec![Reply::text("Hi").usage(usage(0, 4))], "4 tokens out"),
            (
                vec![call().usage(usage(9, 4)), Reply::text("2").usage(usage(8, 1))],
                "17 tokens in, 5 out",
            ),
            (vec![call().usage(usage(9, 4)), Reply::text("2")], "at least 9 tokens in, 4 out"),
            (vec![Reply::text("H").usage(usage(9, 1)).disconnect()], "at least 9 tokens in, 1 out"),
        ] {
            assert_eq!(describe(replies).await.as_deref(), Some(expected));
        }
    }

    #[tokio::test]
    async fn a_failed_request_has_no_tokens_to_describe() {
        let refused = turnstream::Error::new(turnstream::ErrorKind::Auth, "no key");
        assert_eq!(describe([Reply::error(refused)]).await, None);
    }
}
