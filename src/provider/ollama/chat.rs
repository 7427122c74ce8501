//! The settings that only this wire has.

use std::time::Duration;

use serde::{Serialize, Serializer};

/// The wire of Ollama's `/api/chat`, <https://docs.ollama.com/api/chat>, with the settings that
/// only this wire has. Unset options default to the values of the server and the model's
/// `Modelfile`.
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

/// How long the server keeps the model in memory after a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeepAlive {
    /// For this duration. Zero unloads the model immediately, and more than 292 years mean forever.
    Duration(Duration),
    /// Until the server exits.
    Forever,
    /// The model is unloaded immediately.
    Unload,
}

/// How an [effort](crate::request::Effort) of reasoning is encoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Think {
    /// As `low`, `medium` or `high`. A model that can only turn reasoning on or off treats each of
    /// them as on.
    #[default]
    Levels,
    /// As `true`. Servers of late 2025 refuse levels for all models except gpt-oss.
    Boolean,
}

impl Chat {
    /// Sets the size of the context window, in tokens, with which the model is loaded. If the model
    /// is loaded with another size, the server loads it again.
    ///
    /// By default the server chooses the size, often a few thousand tokens. It truncates a longer
    /// prompt at the start without reporting it; with `"truncate": false` in
    /// [`extra`](crate::request::Options::extra) it returns an error instead.
    pub fn with_num_ctx(mut self, tokens: u32) -> Self {
        self.num_ctx = Some(tokens);
        self
    }

    /// Sets how long the server keeps the model in memory after a response. The server's default is
    /// five minutes, unless it is configured otherwise.
    pub fn with_keep_alive(mut self, keep_alive: impl Into<KeepAlive>) -> Self {
        self.keep_alive = Some(keep_alive.into());
        self
    }

    /// Sets how an effort of reasoning is encoded.
    pub fn with_think(mut self, think: Think) -> Self {
        self.think = think;
        self
    }

    /// Returns the size of the context window in tokens, if it is set.
    pub fn num_ctx(&self) -> Option<u32> {
        self.num_ctx
    }

    /// Returns how long the server keeps the model in memory, if it is set.
    pub fn keep_alive(&self) -> Option<KeepAlive> {
        self.keep_alive
    }

    /// Returns how an effort of reasoning is encoded.
    pub fn think(&self) -> Think {
        self.think
    }
}

impl From<Duration> for KeepAlive {
    fn from(time: Duration) -> Self {
        Self::Duration(time)
    }
}

/// Serializes as "A number in seconds", where a negative number means forever, or as a duration in
/// Go's format. Older servers accept only integers as numbers.
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
