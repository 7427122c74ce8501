//! The settings that only this wire has.

use std::time::Duration;

use serde::{Serialize, Serializer};

/// The wire of Ollama's `/api/chat`, <https://docs.ollama.com/api/chat>, with the settings that only
/// this wire has. What is not set is left to the server and to the model's own file.
///
/// ```
/// use std::time::Duration;
/// use turnstream::provider::ollama::{Chat, KeepAlive};
///
/// let wire = Chat::default().with_num_ctx(32_768).with_keep_alive(Duration::from_secs(600));
/// assert_eq!(wire.num_ctx(), Some(32_768));
/// assert_eq!(wire.keep_alive(), Some(KeepAlive::Duration(Duration::from_secs(600))));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Chat {
    num_ctx: Option<u32>,
    keep_alive: Option<KeepAlive>,
    think: Think,
}

/// How long the server keeps the model in memory after an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeepAlive {
    /// For this time. Zero unloads the model at once, and more than 292 years are for ever.
    Duration(Duration),
    /// Until the server ends.
    Forever,
    /// It is unloaded at once.
    Unload,
}

/// How an [effort](crate::request::Effort) of reasoning is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Think {
    /// As `low`, `medium` or `high`. A model that knows only on and off takes each for on.
    #[default]
    Levels,
    /// As `true`. Servers of late 2025 refuse the words for all models but gpt-oss.
    Boolean,
}

impl Chat {
    /// Sets the size of the context window, in tokens, that the model is loaded with. Another size
    /// than before makes the server load the model again.
    ///
    /// Unless it is set the server has a size of its own, often a few thousand tokens. A prompt that
    /// is longer is cut off at its beginning, and nothing tells of it; with
    /// `"truncate": false` in [`extra`](crate::request::Options::extra) it is an error.
    pub fn with_num_ctx(mut self, tokens: u32) -> Self {
        self.num_ctx = Some(tokens);
        self
    }

    /// Sets how long the server keeps the model in memory after an answer; five minutes unless the
    /// server says otherwise.
    pub fn with_keep_alive(mut self, keep_alive: impl Into<KeepAlive>) -> Self {
        self.keep_alive = Some(keep_alive.into());
        self
    }

    /// Sets how an effort of reasoning is written.
    pub fn with_think(mut self, think: Think) -> Self {
        self.think = think;
        self
    }

    /// The size of the context window, if it is set.
    pub fn num_ctx(&self) -> Option<u32> {
        self.num_ctx
    }

    /// How long the model is kept in memory, if that is set.
    pub fn keep_alive(&self) -> Option<KeepAlive> {
        self.keep_alive
    }

    /// How an effort of reasoning is written.
    pub fn think(&self) -> Think {
        self.think
    }
}

impl From<Duration> for KeepAlive {
    fn from(time: Duration) -> Self {
        Self::Duration(time)
    }
}

/// "A number in seconds", of which a negative one is for ever, or a duration as Go writes it; older
/// servers take whole seconds only as a number.
impl Serialize for KeepAlive {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Forever => serializer.serialize_i32(-1),
            Self::Unload => serializer.serialize_i32(0),
            Self::Duration(time) => match i64::try_from(time.as_nanos()) {
                Err(_) => Self::Forever.serialize(serializer),
                Ok(_) if time.subsec_nanos() == 0 => {
                    serializer.collect_str(&format_args!("{}s", time.as_secs()))
                }
                Ok(nanos) => serializer.collect_str(&format_args!("{nanos}ns")),
            },
        }
    }
}
