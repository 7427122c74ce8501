//! How much the model is to write, and when to give that up.

/// A number of output tokens that the model is to spend before the run ends.
///
/// When the model stops by itself below the target it is told so and goes on, until nine tenths of
/// the target are used or it no longer gets further. A target never stops the model while it is at
/// work; a limit ([`Budget::new`](crate::agent::Budget::new)) does.
///
/// ```
/// use turnstream::agent::{TargetDecision, Target, TargetProgress};
///
/// let target = Target::new(10_000);
/// match target.decide(TargetProgress::default(), 2_500) {
///     TargetDecision::Continue { text, progress } => {
///         assert!(text.contains("25%"));
///         assert_eq!(progress.continuations, 1);
///     }
///     TargetDecision::Stop { .. } => unreachable!(),
/// }
/// let done = TargetDecision::Stop { diminishing_returns: false };
/// assert_eq!(target.decide(TargetProgress::default(), 9_000), done);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Target {
    tokens: u64,
    threshold_fraction: f64,
    min_delta_tokens: u64,
    min_nudges: u32,
}

/// How far a run has got towards its target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TargetProgress {
    /// How often the model was nudged on.
    pub continuations: u32,
    /// The output tokens between the last nudge and the one before.
    pub last_delta_tokens: u64,
    /// The output tokens of the run at the last nudge.
    pub last_total_tokens: u64,
}

/// What comes when a model with a target has stopped by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetDecision {
    /// It is asked to go on.
    Continue {
        /// What it is told.
        text: String,
        /// The run's tracker from here on.
        progress: TargetProgress,
    },
    /// The run may end.
    Stop {
        /// The target was not reached: the model no longer got further.
        diminishing_returns: bool,
    },
}

impl Target {
    /// Makes a target of so many output tokens.
    pub fn new(tokens: u64) -> Self {
        Self { tokens, threshold_fraction: 0.9, min_delta_tokens: 500, min_nudges: 3 }
    }

    /// Sets which part of the target is enough; 0.9 unless set. More than 1 is 1; what is not a
    /// number is 0, with which nothing is nudged.
    pub fn with_threshold(mut self, part: f64) -> Self {
        self.threshold_fraction = part;
        self
    }

    /// Sets below how many output tokens between two nudges the model does not get further; 500
    /// unless set. Without a single token it never does.
    pub fn with_min_delta(mut self, tokens: u64) -> Self {
        self.min_delta_tokens = tokens;
        self
    }

    /// Sets after how many nudges it is looked at whether the model gets further; 3 unless set.
    pub fn with_min_nudges(mut self, nudges: u32) -> Self {
        self.min_nudges = nudges;
        self
    }

    /// How many output tokens the model is to spend.
    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    /// Decides whether a model that has stopped by itself goes on. `output_tokens` are those of
    /// the whole run.
    ///
    /// It goes on below the threshold, unless returns diminish: it was nudged often enough, and
    /// neither since the last nudge nor between the last two did it get further.
    pub fn decide(&self, tracker: TargetProgress, output_tokens: u64) -> TargetDecision {
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
        // A comparison with what is not a number is false.
        (used as f64) < self.threshold_fraction.clamp(0.0, 1.0) * self.tokens as f64
    }

    fn nudge_message(&self, used: u64) -> String {
        // Law: it is below the target, and so the target is not 0 and the quotient below 100.
        let percent = u128::from(used) * 100 / u128::from(self.tokens.max(1));
        format!(
            "You stopped at {percent}% of the work that was planned ({used} of {} output tokens). \
             Go on working; do not sum up yet.",
            self.tokens
        )
    }
}
