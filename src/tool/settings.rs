//! How a tool wants to be run.

use std::time::Duration;

use crate::tool::Tool;

/// How long a call may take, unless its tool or its toolkit says otherwise.
///
/// A sub-agent has no limit by default, and neither have external calls and waits for an approval.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_mins(10);

/// What is known of a tool besides its handler.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Settings {
    pub(super) class: Class,
    pub(super) timeout: Option<Duration>,
    pub(super) needs_approval: bool,
    pub(super) knows_dry_runs: bool,
    pub(super) external: bool,
    pub(super) inside: Inside,
    pub(super) rerun: Rerun,
    pub(super) repeats: Repeats,
}

/// What a call runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Inside {
    /// Work of its own.
    #[default]
    Work,
    /// Agents, whose requests and calls count in its place.
    Agents,
}

/// What may run beside a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Class {
    /// Others of this class.
    #[default]
    Safe,
    /// Nothing.
    Exclusive,
}

/// Whether a call that was broken off may run again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Rerun {
    #[default]
    Never,
    Allowed,
}

/// Whether the same call with the same result, again and again, says that a run gets nowhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Repeats {
    #[default]
    Count,
    /// It is a poll.
    Expected,
}

impl Tool {
    /// Runs each call alone: nothing else of its turn runs beside it.
    ///
    /// Calls that stand before it in the turn end first, and those behind it begin when it has
    /// ended. Any other tool is safe beside others, up to
    /// [`Toolkit::at_once`](crate::Toolkit::at_once) of them.
    pub fn exclusive(mut self) -> Self {
        self.settings.class = Class::Exclusive;
        self
    }

    /// Drops a call that takes longer than `limit`; [`DEFAULT_TIMEOUT`], 10 minutes, unless this or
    /// [`Toolkit::with_timeout`](crate::Toolkit::with_timeout) is set. Its result is then of kind
    /// [`Timeout`](crate::item::ResultKind::Timeout); its siblings continue.
    /// [`Timeouts::NEVER`](crate::http::Timeouts::NEVER) lifts the limit.
    ///
    /// The time begins when the call is first polled. A tool is polled before its timer is looked
    /// at, so a result that is there counts. Tools advance only while the
    /// [`ToolRun`](crate::tool::ToolRun) is polled, so a consumer that pauses pauses them; the time
    /// from an event that was given out to the next poll is therefore not counted.
    ///
    /// A thread cannot be dropped: blocking work looks at
    /// [`is_cancelled`](crate::tool::ToolContext::is_cancelled) between two steps, and what it
    /// returns later is dropped.
    ///
    /// The timer is tokio's. Outside of a tokio runtime, or in one whose time is not enabled, the
    /// default does not hold, and a call of a tool with a limit of its own that is not done at its
    /// first poll ends with an error.
    pub fn with_timeout(mut self, limit: Duration) -> Self {
        self.settings.timeout = Some(limit);
        self
    }

    /// Lets no call run before somebody has approved it; see [`Gate`](crate::tool::Gate).
    pub fn needs_approval(mut self) -> Self {
        self.settings.needs_approval = true;
        self
    }

    /// Says that each call runs agents of its own. Such a call takes none of the slots that its tree
    /// of agents [shares](crate::agent::Pool::with_max_concurrency): what it runs takes them, and would
    /// wait for it for ever. The default time limit of tools does not hold for it. A tool that
    /// [`Agent::as_tool`](crate::Agent::as_tool) makes is one.
    pub fn running_agents(mut self) -> Self {
        self.settings.inside = Inside::Agents;
        self
    }

    /// Lets calls run in a [dry run](crate::Toolkit::dry_run), too: the tool looks at
    /// [`is_dry_run`](crate::tool::ToolContext::is_dry_run) itself, or changes nothing ever.
    pub fn knows_dry_runs(mut self) -> Self {
        self.settings.knows_dry_runs = true;
        self
    }

    /// Lets a call that was broken off by a crash run again: done twice with the same arguments and
    /// the same [idempotency key](crate::tool::ToolContext::idempotency_key), it has the effect of
    /// once.
    ///
    /// A tool that only reads is idempotent, and so is one that hands the key to a service that
    /// knows it again. Whatever else was begun and has no result when a
    /// [session](crate::session::Session) is opened is never run again: the model is told that it was
    /// interrupted. A call that runs again passes hooks and approvals again.
    ///
    /// ```
    /// use turnstream::tool::{Tool, ToolSpec};
    ///
    /// let spec = ToolSpec {
    ///     name: "pay".into(),
    ///     description: "Pays a bill".into(),
    ///     parameters: serde_json::json!({ "type": "object" }),
    /// };
    /// let pay = Tool::raw(spec, |_args, cx| async move {
    ///     // The bank does nothing for a key that it has seen.
    ///     format!("paid, under the key {}", cx.idempotency_key())
    /// })?
    /// .idempotent();
    /// assert!(pay.is_idempotent());
    /// # Ok::<(), turnstream::Error>(())
    /// ```
    pub fn idempotent(mut self) -> Self {
        self.settings.rerun = Rerun::Allowed;
        self
    }

    /// Says that the model is meant to call it again and again, and that its result may stay the same
    /// for a long time: it asks how far a job is.
    ///
    /// An agent leaves such calls out when it counts turns that [repeat](crate::agent::Repeats), whatever
    /// their results are: the model is not told to try something else, and the run does not end as
    /// [`Repeating`](crate::event::Reason::Repeating). A turn without other calls is not counted at all, and
    /// resets nothing: A, a poll, A is counted as A A. Polling is bounded by the cap on requests and by
    /// [budgets](crate::Agent::with_budget) alone; a poll that waits for a while inside the tool saves both.
    /// The detector of a [missing termination](crate::agent::detect::MissingTermination) counts such turns
    /// like any others.
    ///
    /// ```
    /// use turnstream::tool::{Tool, ToolSpec};
    ///
    /// let spec = ToolSpec {
    ///     name: "job_status".into(),
    ///     description: "Waits for up to a minute, and tells how far the job is".into(),
    ///     parameters: serde_json::json!({ "type": "object" }),
    /// };
    /// let status = Tool::raw(spec, |_args, _cx| async { "still running" })?.pollable();
    /// assert!(status.is_pollable());
    /// # Ok::<(), turnstream::Error>(())
    /// ```
    pub fn pollable(mut self) -> Self {
        self.settings.repeats = Repeats::Expected;
        self
    }

    /// Whether it may be called again and again.
    pub fn is_pollable(&self) -> bool {
        self.settings.repeats == Repeats::Expected
    }

    /// Whether a call that was broken off may run again.
    pub fn is_idempotent(&self) -> bool {
        self.settings.rerun == Rerun::Allowed
    }

    /// Whether each call runs agents of its own.
    pub fn runs_agents(&self) -> bool {
        self.settings.inside == Inside::Agents
    }

    /// Whether nothing else runs beside it.
    pub fn is_exclusive(&self) -> bool {
        self.settings.class == Class::Exclusive
    }

    /// The time limit of the tool's own, if it has one; see [`with_timeout`](Self::with_timeout).
    pub fn timeout(&self) -> Option<Duration> {
        self.settings.timeout
    }

    /// Whether somebody has to approve each call.
    pub fn wants_approval(&self) -> bool {
        self.settings.needs_approval
    }

    /// Whether it runs in a dry run.
    pub fn runs_dry(&self) -> bool {
        self.settings.knows_dry_runs
    }

    /// Whether somebody outside runs it.
    pub fn is_external(&self) -> bool {
        self.settings.external
    }
}
