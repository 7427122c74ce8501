//! The names of keys and channels.

/// The names of keys and channels, which begin with a prefix.
///
/// The run, or the key, is the hash tag: what belongs to one is in one slot.
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

    /// The attempt that may append.
    pub(super) fn owner(&self, run: &str) -> String {
        self.of(run, "owner")
    }

    /// The process that runs it.
    pub(super) fn alive(&self, run: &str) -> String {
        self.of(run, "alive")
    }

    /// The commands that wait. The channel of the same name tells of them.
    pub(super) fn inbox(&self, run: &str) -> String {
        self.of(run, "inbox")
    }

    /// Who takes the commands.
    pub(super) fn open(&self, run: &str) -> String {
        self.of(run, "open")
    }

    /// The answer to a command.
    pub(super) fn answer(&self, run: &str, id: &str) -> String {
        self.of(run, &format!("answer:{id}"))
    }

    /// The channel that tells of answers.
    pub(super) fn answers(&self, run: &str) -> String {
        self.of(run, "answers")
    }

    pub(super) fn claim(&self, run: &str) -> String {
        self.of(run, "claim")
    }

    /// The last run of a key. The channel of the same name tells of changes.
    pub(super) fn runs(&self, key: &str) -> String {
        self.of(key, "runs")
    }

    /// All runs that have not ended.
    pub(super) fn active(&self) -> String {
        format!("{}:active", self.prefix)
    }
}
