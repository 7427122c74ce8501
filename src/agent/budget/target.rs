//! A target for output tokens, and the rules for when a run gives up on the target.

/// The number of output tokens that the model should use before the run ends.
///
/// If the model stops on its own after using less than 90% of the target, a message tells it to
/// continue, as long as it is making progress. A target never makes a model stop; to stop a model,
/// use the limits in a [`Budget`](crate::agent::Budget).
///
/// ```
/// use turnstream::agent::{Budget, Target};
///
/// // The model may stop at 80% of the target.
/// let target = Target { threshold_fraction: 0.8, ..Target::new(10_000) };
/// let budget = Budget::new().with_target(target);
/// # drop(budget);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Target {
    /// The target, in output tokens.
    pub tokens: u64,
    /// The fraction of the target that must be reached before the model may stop; 0.9 by default.
    /// Values above 1 are treated as 1. NaN is treated as 0, so the model is never prompted to
    /// continue.
    pub threshold_fraction: f64,
    /// The minimum number of output tokens between two prompts that counts as progress; 500 by
    /// default. Producing no output never counts as progress, even if the minimum is 0.
    pub min_delta_tokens: u64,
    /// How many times the model must be prompted to continue before a lack of progress ends the
    /// run; 3 by default.
    pub min_nudges: u32,
}

/// A run's progress towards its token target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct TargetProgress {
    /// The number of times that the model was prompted to continue.
    pub continuations: u32,
    /// The number of output tokens used between the last two prompts to continue.
    pub last_delta_tokens: u64,
    /// The total number of output tokens that the run had used at the last prompt to continue.
    pub last_total_tokens: u64,
}

/// The decision on whether to prompt a model with a token target to continue after the model has
/// stopped on its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TargetDecision {
    /// The model is prompted to continue.
    Continue {
        /// The message for the model.
        text: String,
        /// The updated progress, to be passed to the next call to [`Target::decide`].
        progress: TargetProgress,
    },
    /// The run may end.
    Stop {
        /// Whether the run gives up on the target because the model made too little progress.
        diminishing_returns: bool,
    },
}

impl Target {
    /// Creates a target of `tokens` output tokens, with default values for all other fields.
    pub fn new(tokens: u64) -> Self {
        Self { tokens, threshold_fraction: 0.9, min_delta_tokens: 500, min_nudges: 3 }
    }

    /// Decides whether to prompt a model that has stopped on its own to continue. `output_tokens`
    /// is the total number of output tokens that the run has used.
    ///
    /// Below the threshold, the model is prompted to continue unless it has stopped making
    /// progress. A model has stopped making progress if the minimum number of prompts has been
    /// sent, and it made progress neither after the last prompt nor between the last two prompts.
    pub(crate) fn decide(&self, tracker: TargetProgress, output_tokens: u64) -> TargetDecision {
        let delta = output_tokens.saturating_sub(tracker.last_total_tokens);
        let little = self.min_delta_tokens.max(1);
        let diminishing = tracker.continuations >= self.min_nudges
            && delta < little
            && tracker.last_delta_tokens < little;
        if !self.is_below_threshold(output_tokens) {
            return TargetDecision::Stop { diminishing_returns: false };
        }
        if diminishing {
            return TargetDecision::Stop { diminishing_returns: true };
        }
        let tracker = TargetProgress {
            continuations: tracker.continuations.saturating_add(1),
            last_delta_tokens: delta,
            last_total_tokens: output_tokens,
        };
        TargetDecision::Continue { text: self.nudge_message(output_tokens), progress: tracker }
    }

    #[expect(clippy::cast_precision_loss, reason = "counts of tokens stay far below 2^53")]
    fn is_below_threshold(&self, used: u64) -> bool {
        // A comparison with NaN is false.
        (used as f64) < self.threshold_fraction.clamp(0.0, 1.0) * self.tokens as f64
    }

    fn nudge_message(&self, used: u64) -> String {
        // Invariant: `used` is below the target, so the target is not 0 and the quotient is below
        // 100.
        let percent = u128::from(used) * 100 / u128::from(self.tokens.max(1));
        format!(
            "You stopped at {percent}% of the planned work ({used} of {} output tokens). Keep \
             working; do not summarize yet.",
            self.tokens
        )
    }
}
