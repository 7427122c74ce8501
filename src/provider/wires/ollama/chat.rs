//! Settings specific to Ollama's native API.

use std::time::Duration;

use serde::{Serialize, Serializer};

/// The wire format of Ollama's `/api/chat` endpoint, <https://docs.ollama.com/api/chat>, with the
/// settings specific to this API. For options that are not set, the defaults of the server and of
/// the model's `Modelfile` apply.
///
/// ```
/// use std::time::Duration;
/// use turnstream::provider::ollama::{Chat, KeepAlive, Think};
///
/// let keep_alive = Some(KeepAlive::Duration(Duration::from_secs(600)));
/// let wire = Chat { num_ctx: Some(32_768), keep_alive, ..Chat::default() };
/// assert_eq!(wire.think, Think::default());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Chat {
    /// The size, in tokens, of the context window with which the model is loaded. If the model is
    /// already loaded with a different size, the server reloads it.
    ///
    /// By default, the server chooses the size of the context window, often a few thousand tokens.
    /// If a prompt is longer than the context window, the server silently removes the start of the
    /// prompt. With `"truncate": false` in [`extra`](crate::request::Options::extra), the server
    /// returns an error instead of truncating the prompt.
    pub num_ctx: Option<u32>,
    /// How long the server keeps the model in memory after a response. The default is five minutes,
    /// unless the server is configured otherwise.
    pub keep_alive: Option<KeepAlive>,
    /// How a reasoning effort is encoded.
    pub think: Think,
}

/// Specifies how long the server keeps the model in memory after a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeepAlive {
    /// The model stays in memory for this duration. A duration of zero unloads the model
    /// immediately, and a duration of more than 292 years keeps the model in memory forever.
    Duration(Duration),
    /// The model stays in memory until the server exits.
    Forever,
    /// The model is unloaded immediately after the response.
    Unload,
}

/// Specifies how a reasoning [effort](crate::request::Effort) is encoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Think {
    /// The effort is encoded as `low`, `medium` or `high`. For a model whose reasoning can only be
    /// on or off, each of these levels turns the reasoning on.
    #[default]
    Levels,
    /// The effort is encoded as `true`. Server versions from late 2025 reject effort levels for all
    /// models except gpt-oss.
    Boolean,
}

impl From<Duration> for KeepAlive {
    fn from(time: Duration) -> Self {
        Self::Duration(time)
    }
}

/// Serializes the keep-alive time as "A number in seconds", where a negative number means forever,
/// or as a duration in Go's format. Older servers accept a number only if it is an integer.
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
