//! The names of Redis keys and channels.

/// Creates the names of Redis keys and channels, all of which start with the same prefix.
///
/// The run's id or the session key serves as the hash tag, so that all of a run's data is in the
/// same Redis hash slot.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    prefix: String,
}

impl Keys {
    pub(crate) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    fn of(&self, tag: &str, what: &str) -> String {
        format!("{}:{{{tag}}}:{what}", self.prefix)
    }

    /// Returns the key for a run's log. The channel of the same name carries the number of the last
    /// entry.
    pub(crate) fn log(&self, run: &str) -> String {
        self.of(run, "log")
    }

    /// Returns the key for the epoch and token of the attempt that may append entries.
    pub(crate) fn owner(&self, run: &str) -> String {
        self.of(run, "owner")
    }

    /// Returns the key under which the name of the run's process is stored. The key expires unless
    /// the process sends heartbeats.
    pub(crate) fn alive(&self, run: &str) -> String {
        self.of(run, "alive")
    }

    /// Returns the key under which the run's pending commands are stored. The channel of the same
    /// name announces new commands.
    pub(crate) fn inbox(&self, run: &str) -> String {
        self.of(run, "inbox")
    }

    /// Returns the key under which the token of the process that receives the run's commands is
    /// stored.
    pub(crate) fn open(&self, run: &str) -> String {
        self.of(run, "open")
    }

    /// Returns the key for the answer to a command.
    pub(crate) fn answer(&self, run: &str, id: &str) -> String {
        self.of(run, &format!("answer:{id}"))
    }

    /// Returns the name of the channel that announces answers to the run's commands.
    pub(crate) fn answers(&self, run: &str) -> String {
        self.of(run, "answers")
    }

    pub(crate) fn claim(&self, run: &str) -> String {
        self.of(run, "claim")
    }

    /// Returns the key for the last run under a session key. The channel of the same name announces
    /// changes.
    pub(crate) fn runs(&self, key: &str) -> String {
        self.of(key, "runs")
    }

    /// Returns the key for the list of runs that have not ended yet.
    pub(crate) fn active(&self) -> String {
        format!("{}:active", self.prefix)
    }
}
