//! The names of keys and channels.

/// Makes the names of keys and channels, which begin with a prefix.
///
/// The run or the session key is the hash tag, so that all data of a run is in one slot.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    prefix: String,
}

impl Keys {
    pub(super) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    fn of(&self, tag: &str, what: &str) -> String {
        format!("{}:{{{tag}}}:{what}", self.prefix)
    }

    /// The log of a run. The channel of the same name has the number of the last entry.
    pub(super) fn log(&self, run: &str) -> String {
        self.of(run, "log")
    }

    /// The epoch and token of the attempt that may append.
    pub(super) fn owner(&self, run: &str) -> String {
        self.of(run, "owner")
    }

    /// The process that runs it; expires without heartbeats.
    pub(super) fn alive(&self, run: &str) -> String {
        self.of(run, "alive")
    }

    /// The commands that wait. The channel of the same name announces new ones.
    pub(super) fn inbox(&self, run: &str) -> String {
        self.of(run, "inbox")
    }

    /// The token of the process that takes the commands.
    pub(super) fn open(&self, run: &str) -> String {
        self.of(run, "open")
    }

    /// The answer to a command.
    pub(super) fn answer(&self, run: &str, id: &str) -> String {
        self.of(run, &format!("answer:{id}"))
    }

    /// The channel that announces answers.
    pub(super) fn answers(&self, run: &str) -> String {
        self.of(run, "answers")
    }

    pub(super) fn claim(&self, run: &str) -> String {
        self.of(run, "claim")
    }

    /// The last run of a key. The channel of the same name announces changes.
    pub(super) fn runs(&self, key: &str) -> String {
        self.of(key, "runs")
    }

    /// All runs that have not ended.
    pub(super) fn active(&self) -> String {
        format!("{}:active", self.prefix)
    }
}
