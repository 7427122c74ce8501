//! The tasks of runs, and the model's script for each.

use turnstream::History;
use turnstream::provider::Reply;
use turnstream_test_support::seeded_random::Dice;

/// The task of a run. The model reads it from the input: `Task 3 parallel`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskKind {
    /// Several calls in one turn, which run as invocations of their own.
    Parallel,
    /// One call in a turn, or exclusive calls, which run in the run's own step.
    InPlace,
    /// The run ends with pending calls, including one of a sub-agent.
    Approval,
    /// The run waits for a verdict.
    Interactive,
    SubAgent,
    /// The input is long, and earlier tasks are compacted.
    Compaction,
    /// Tasks of sub-agents.
    Hire,
    Research,
    Clerk,
}

/// The position of a model in its task.
pub(crate) struct Position<'a> {
    history: &'a History,
    task: u32,
    kind: TaskKind,
    /// The number of turns of this task so far.
    turn: usize,
}

impl TaskKind {
    const ALL: [Self; 9] = [
        Self::Parallel,
        Self::InPlace,
        Self::Approval,
        Self::Interactive,
        Self::SubAgent,
        Self::Compaction,
        Self::Hire,
        Self::Research,
        Self::Clerk,
    ];

    /// Draws a task that a run can start with.
    pub(crate) fn draw(dice: &Dice) -> Self {
        match dice.roll(9) {
            0..3 => Self::Parallel,
            3 => Self::InPlace,
            4 => Self::Approval,
            5 => Self::Interactive,
            6..8 => Self::SubAgent,
            _ => Self::Compaction,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Parallel => "parallel",
            Self::InPlace => "in-place",
            Self::Approval => "approval",
            Self::Interactive => "interactive",
            Self::SubAgent => "sub-agent",
            Self::Compaction => "compaction",
            Self::Hire => "hire",
            Self::Research => "research",
            Self::Clerk => "clerk",
        }
    }

    /// The text that starts a run.
    pub(crate) fn input(self, task: u32) -> String {
        let padding = match self {
            Self::Compaction => " word".repeat(1_200),
            _ => String::new(),
        };
        format!("Task {task} {}{padding}", self.name())
    }

    /// The tools that the model calls in a turn of this task; empty if the model only answers.
    fn calls(self, turn: usize) -> &'static [&'static str] {
        match (self, turn) {
            (Self::Parallel, 0) => &["pay", "look", "pay", "look"],
            (Self::Parallel | Self::Compaction, 1) => &["look", "pay"],
            (Self::InPlace, 0) | (Self::Hire, 1) => &["pay"],
            (Self::InPlace, 1) | (Self::Interactive | Self::Compaction, 0) => &["look"],
            (Self::InPlace, 2) => &["alone", "look", "alone"],
            (Self::Approval, 0) => &["look", "ask", "clerk", "ask"],
            (Self::Interactive, 1) => &["ask", "pay"],
            (Self::SubAgent, 0) => &["hire", "research", "pay"],
            (Self::Hire | Self::Research, 0) => &["look", "look"],
            (Self::Clerk, 0) => &["ask"],
            _ => &[],
        }
    }
}

impl<'a> Position<'a> {
    /// Reads the position from the history: the turns after the newest task.
    pub(crate) fn find(history: &'a History) -> Option<Self> {
        let mut turn = 0;
        for item in history.newest_first() {
            turn += usize::from(item.as_text().is_some_and(|text| text.starts_with("Turn-")));
            if let Some((task, kind)) =
                item.as_user().and_then(|content| parse_task(&content.text()))
            {
                return Some(Self { history, task, kind, turn });
            }
        }
        None
    }

    /// The same key for each attempt at a request: `{history id}@{task}.{turn}`.
    pub(crate) fn key(&self) -> String {
        format!("{}@{}.{}", self.history.id(), self.task, self.turn)
    }

    /// The model's reply, with random delays of a few milliseconds between its words.
    pub(crate) fn reply(&self, dice: &Dice) -> Reply {
        let Self { task, turn, .. } = self;
        let mut reply = Reply::text(format!("Turn-{task}.{turn}"));
        for _ in 0..2 + dice.roll(5) {
            reply = reply.delay(super::agents::random_millis(dice, 12)).say(" word");
        }
        for (index, name) in self.kind.calls(*turn).iter().enumerate() {
            let arguments = format!(r#"{{"prompt":"Task {task} {name}"}}"#);
            reply = reply.call_raw(&format!("call-{task}-{turn}-{index}"), name, &arguments);
        }
        reply
    }
}

/// The task of a call of a session's own run: `call-{task}-{turn}-{index}`.
pub(crate) fn task_of_call(call_id: &str) -> Option<u32> {
    call_id.strip_prefix("call-")?.split('-').next()?.parse().ok()
}

fn parse_task(text: &str) -> Option<(u32, TaskKind)> {
    let mut words = text.strip_prefix("Task ")?.split(' ');
    let (task, name) = (words.next()?.parse().ok()?, words.next()?);
    let kind = TaskKind::ALL.into_iter().find(|kind| kind.name() == name)?;
    Some((task, kind))
}
