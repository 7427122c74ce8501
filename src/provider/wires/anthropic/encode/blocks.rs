//! Messages and content blocks in their serialized form.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::item::{ProviderData, ToolCall};
use crate::provider::codec::cache_control::CacheControl;
use crate::provider::codec::lenient::{Lenient, LenientList, LenientStr};
use crate::provider::codec::ordered_fields::OrderedFields;
use crate::provider::codec::portable_values::arguments_as_object;
use crate::provider::wires::anthropic::dialect::Dialect;
use crate::request::Options;

#[derive(Serialize)]
pub(super) struct Message<'a> {
    pub(super) role: &'static str,
    pub(super) content: Vec<Block<'a>>,
}

/// A content block in a message.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Block<'a> {
    Text {
        text: Cow<'a, str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        citations: Option<Box<RawValue>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
    Thinking {
        thinking: &'a str,
        signature: String,
    },
    ToolUse {
        id: Cow<'a, str>,
        name: Cow<'a, str>,
        input: RawJson<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        caller: Option<Box<RawValue>>,
    },
    ToolResult {
        tool_use_id: Cow<'a, str>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        content: Vec<Block<'a>>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
    Image {
        source: Source<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
    Document {
        source: Source<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        title: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        citations: Option<CitationsConfig>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
    #[serde(untagged)]
    Redacted(Box<RawValue>),
    #[serde(untagged)]
    Verbatim(Box<RawValue>),
}

/// Lets the model cite a document. "Citations must be enabled on all or none of the documents
/// within a request", <https://platform.claude.com/docs/en/build-with-claude/citations>.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct CitationsConfig {
    enabled: bool,
}

impl CitationsConfig {
    /// Returns the setting for a request, or `None` if citations are off.
    pub(super) fn from_options(options: &Options) -> Option<Self> {
        options.citations.then_some(Self { enabled: true })
    }
}

/// The source of an image or a document.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Source<'a> {
    Base64 {
        media_type: &'static str,
        data: &'a str,
    },
    Text {
        media_type: &'static str,
        data: String,
    },
    Url {
        url: &'a str,
    },
    /// A file that was uploaded to Anthropic,
    /// <https://platform.claude.com/docs/en/build-with-claude/files>.
    File {
        file_id: &'a str,
    },
}

impl Block<'_> {
    /// Returns whether this block is a thinking block or a redacted thinking block.
    pub(super) fn is_thinking(&self) -> bool {
        match self {
            Self::Thinking { .. } | Self::Redacted(_) => true,
            Self::Text { .. }
            | Self::ToolUse { .. }
            | Self::ToolResult { .. }
            | Self::Image { .. }
            | Self::Document { .. }
            | Self::Verbatim(_) => false,
        }
    }

    /// Returns the names of the tools that were found, if this block contains the result of a tool
    /// search.
    pub(super) fn found_tool_names(&self) -> Vec<String> {
        match self {
            // This cheap check limits the number of blocks that have to be parsed.
            Self::Verbatim(raw) if raw.get().contains("\"tool_search_tool_result\"") => {
                let read = serde_json::from_str::<SearchResult<'_>>(raw.get()).unwrap_or_default();
                let found = read.content.0.map(|content| content.tool_references.0);
                let names = found.into_iter().flatten();
                names.map(|found| found.tool_name.or_empty().to_owned()).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Removes a tool call's `caller` field if `is_gone` returns true for the id of the code
    /// execution that the field names.
    pub(super) fn remove_caller_if(&mut self, is_gone: impl Fn(&str) -> bool) {
        let Self::ToolUse { caller, .. } = self else { return };
        *caller = caller.take().filter(|caller| {
            let read: Caller<'_> = serde_json::from_str(caller.get()).unwrap_or_default();
            !read.tool_id.get().is_some_and(&is_gone)
        });
    }

    /// Adds a cache marker to a block in a user message. Other blocks do not accept a cache marker:
    /// for a thinking block, the API reports "extra inputs are not permitted".
    pub(super) fn mark_cache(&mut self, mark: CacheControl) {
        match self {
            Self::Text { cache_control, .. }
            | Self::ToolResult { cache_control, .. }
            | Self::Image { cache_control, .. }
            | Self::Document { cache_control, .. } => *cache_control = Some(mark),
            Self::Thinking { .. }
            | Self::Redacted(_)
            | Self::ToolUse { .. }
            | Self::Verbatim(_) => {}
        }
    }
}

/// The fields that the encoder reads from the result of a tool search.
#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct SearchResult<'a> {
    content: Lenient<FoundTools<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct FoundTools<'a> {
    tool_references: LenientList<ToolReference<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct ToolReference<'a> {
    tool_name: LenientStr<'a>,
}

/// The fields that the encoder reads from the `caller` field, which identifies the code execution
/// that made a call.
#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Caller<'a> {
    tool_id: LenientStr<'a>,
}

/// JSON text that is serialized unchanged.
pub(super) struct RawJson<'a>(Cow<'a, str>);

impl Serialize for RawJson<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::Error as _;
        let raw: &RawValue = serde_json::from_str(&self.0).map_err(S::Error::custom)?;
        raw.serialize(serializer)
    }
}

/// Encodes reasoning as a block. Returns `None` if the provider data contains neither a signature
/// nor the original redacted block, or if the signature is empty and the dialect requires one.
pub(super) fn reasoning_block<'a>(
    text: &'a str,
    data: &ProviderData,
    dialect: Dialect,
) -> Option<Block<'a>> {
    if let Some(signature) = OrderedFields::provider_data_field(data, "signature") {
        let signature: String = serde_json::from_str(signature.get()).ok()?;
        let is_sent = match dialect {
            Dialect::Signed => !signature.is_empty(),
            Dialect::Unsigned => !signature.is_empty() || !text.is_empty(),
        };
        return is_sent.then_some(Block::Thinking { thinking: text, signature });
    }
    let text = data.value.as_str().starts_with('"');
    (text || OrderedFields::provider_data_field(data, "type").is_some())
        .then(|| verbatim_block(data))
        .flatten()
        .map(Block::Redacted)
}

/// Encodes a call, under the id and the tool name to send.
pub(super) fn tool_use_block<'a>(
    id: Cow<'a, str>,
    name: Cow<'a, str>,
    call: &'a ToolCall,
    data: Option<&ProviderData>,
) -> Block<'a> {
    Block::ToolUse {
        id,
        name,
        input: RawJson(arguments_as_object(call)),
        caller: data.and_then(|data| OrderedFields::provider_data_field(data, "caller")),
    }
}

/// Returns a provider-specific item as complete JSON. If the item is stored as a string, the JSON
/// is read from that string.
pub(super) fn verbatim_block(data: &ProviderData) -> Option<Box<RawValue>> {
    let text =
        data.value.deserialize_as::<String>().unwrap_or_else(|_| data.value.as_str().to_owned());
    RawValue::from_string(text).ok()
}
