//! The tools that a request offers.

use std::any::Any;
use std::ops::Deref;
use std::sync::{Arc, LazyLock, Mutex, OnceLock};
use std::{fmt, slice};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{Error, ErrorKind};
use crate::item::{EncodingKey, RawJson};
use crate::lock::lock_ignoring_poison;
use crate::request::client_tools::ClientTool;
use crate::request::tool_names::{RULE_COUNT, ToolNameRule, ToolNames};

/// The maximum number of encodings that are cached for a list. Agents with different models can
/// share a list, so the number is larger than the number of wire formats.
const MAX_CACHED_ENCODINGS: usize = 8;

/// A tool's declaration as sent to the model: the name, the description and the schema of the
/// arguments, but not the code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// The name of the tool, for example 1 to 64 letters, digits, `_` and `-`. A provider whose
    /// vendor does not accept the name, such as a name that begins with a digit, sends another name
    /// and converts the name back in the model's calls.
    pub name: String,
    /// A description of the tool, for the model.
    pub description: String,
    /// The JSON Schema for the arguments. The schema's type must be `object`. The schema is
    /// serialized once, and all clones of the spec share the serialized text.
    pub parameters: RawJson,
    /// Whether the model sees the tool only after searching for it, if the provider offers [tool
    /// search](crate::Provider::has_tool_search). With other providers, this field has no effect.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deferred: bool,
    /// Whether the provider guarantees that the arguments of each call match the schema. The schema
    /// is rewritten for the vendor's strict mode, in which, for example, a map with arbitrary keys
    /// cannot be described. If the schema cannot be rewritten, or if the wire has no strict mode
    /// for tools, the request fails with an [`Unsupported`](ErrorKind::Unsupported) error. Its
    /// [`parameter`](Error::parameter) is the location of the problem in the schema, or `strict`.
    ///
    /// The Messages wire, OpenAI's and Azure's dialects of the Chat wire, and the Responses wire
    /// have a strict mode for tools. In OpenAI's strict mode, the model writes all properties, and
    /// `null` for an optional property that it would otherwise omit.
    /// <https://platform.claude.com/docs/en/agents-and-tools/tool-use/strict-tool-use>,
    /// <https://developers.openai.com/api/docs/guides/function-calling#strict-mode>
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub strict: bool,
    /// The vendor's definition of the tool, if a vendor defines it; see [`ClientTool::spec`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_tool: Option<ClientTool>,
}

impl ToolSpec {
    /// Creates a tool spec. The schema can be a `serde_json::Value` or serialized JSON.
    ///
    /// ```
    /// use serde_json::json;
    /// use turnstream::tool::ToolSpec;
    ///
    /// let parameters = json!({
    ///     "type": "object",
    ///     "properties": { "city": { "type": "string" } },
    ///     "required": ["city"],
    /// });
    /// let spec = ToolSpec::new("temperature", "The temperature in a city", parameters);
    /// assert_eq!(spec.parameters.to_value()["required"], json!(["city"]));
    /// ```
    pub fn new(
        name: impl Into<String>,
        description: impl Into<String>,
        parameters: impl Into<RawJson>,
    ) -> Self {
        let (name, description) = (name.into(), description.into());
        Self {
            name,
            description,
            parameters: parameters.into(),
            deferred: false,
            strict: false,
            client_tool: None,
        }
    }

    /// Sets whether the model sees the tool only after searching for it; see
    /// [`deferred`](Self::deferred).
    pub fn with_deferred(mut self, deferred: bool) -> Self {
        self.deferred = deferred;
        self
    }

    /// Sets whether the provider guarantees that the arguments match the schema; see
    /// [`strict`](Self::strict).
    pub fn with_strict(mut self, strict: bool) -> Self {
        self.strict = strict;
        self
    }

    /// Returns the MCP server whose calls this tool approves, if any. Such a tool is not declared:
    /// the provider calls it when the model calls the server's tools.
    pub(crate) fn approved_server(&self) -> Option<&str> {
        match &self.client_tool {
            Some(ClientTool::McpApproval { server }) => Some(server),
            Some(ClientTool::Shell | ClientTool::ApplyPatch | ClientTool::Computer) | None => None,
        }
    }
}

impl ClientTool {
    /// Returns the tool's name, description and schema.
    pub fn spec(self) -> ToolSpec {
        let spec = ToolSpec::new(self.name(), self.description(), self.parameters());
        ToolSpec { client_tool: Some(self), ..spec }
    }
}

/// The specs of the tools that a request offers, in order. Cloning is cheap, and clones share the
/// list.
///
/// A list never changes. Encoders cache their output together with the list, so a list that is used
/// for many requests is encoded only once for each wire format. To offer other tools, create
/// another list.
///
/// ```
/// use serde_json::json;
/// use turnstream::request::ToolSpecs;
/// use turnstream::tool::ToolSpec;
///
/// let schema = json!({ "type": "object", "properties": {} });
/// let spec = |name: &str| ToolSpec::new(name, "A tool", schema.clone());
/// let all = ToolSpecs::from([spec("read"), spec("write")]);
/// let safe: ToolSpecs = all.iter().filter(|spec| spec.name == "read").cloned().collect();
/// assert_eq!((all.len(), safe.len()), (2, 1));
/// ```
#[derive(Clone)]
pub struct ToolSpecs(Arc<SharedSpecs>);

struct SharedSpecs {
    specs: Box<[ToolSpec]>,
    /// The index of the names, which is built when it is first used.
    names: OnceLock<NameIndex>,
    /// The names under which vendors see the tools, by rule. They are chosen when they are first
    /// used.
    vendor_names: [OnceLock<ToolNames>; RULE_COUNT],
    /// The cached output of encoders. The most recently used encoding is last.
    encodings: Mutex<Vec<(EncodingKey, Arc<[u8]>)>>,
}

/// The maximum number of tools that a message names.
const MAX_NAMED_TOOLS: usize = 100;

struct NameIndex {
    /// The positions of the specs, sorted by name.
    by_name: Box<[usize]>,
    /// The position of the first spec whose name an earlier spec has, if any.
    first_repeated: Option<usize>,
}

impl ToolSpecs {
    /// Returns whether `other` is a clone of this list.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns the tools that are declared to the model, each with its index in the list. Tools
    /// that approve the calls of an MCP server are not declared.
    pub(crate) fn declared(&self) -> impl DoubleEndedIterator<Item = (usize, &ToolSpec)> {
        self.iter().enumerate().filter(|(_, tool)| tool.approved_server().is_none())
    }

    /// Returns whether any tool is declared to the model.
    pub(crate) fn has_declared(&self) -> bool {
        self.declared().next().is_some()
    }

    /// Returns whether the list contains a tool named `name`.
    pub(crate) fn contains_name(&self, name: &str) -> bool {
        let by_name = &self.name_index().by_name;
        by_name.binary_search_by(|at| self[*at].name.as_str().cmp(name)).is_ok()
    }

    /// Returns a message that names the tools, for a model that has called a tool in a wrong way.
    /// Of a long list, only the first tools are named.
    pub(crate) fn names_message(&self) -> String {
        let names: Vec<String> =
            self.iter().take(MAX_NAMED_TOOLS).map(|spec| format!("`{}`", spec.name)).collect();
        match self.len() - names.len() {
            0 if names.is_empty() => "There are no tools.".to_owned(),
            0 => format!("The tools are: {}.", names.join(", ")),
            more => format!("The tools are: {}, and {more} more.", names.join(", ")),
        }
    }

    /// Returns an error if two tools have the same name.
    pub(crate) fn ensure_distinct_names(&self) -> Result<(), Error> {
        let Some(repeated) = self.name_index().first_repeated else { return Ok(()) };
        Err(repeated_name_error(&self[repeated].name))
    }

    /// Returns the names under which a vendor with the given rule sees the tools.
    pub(crate) fn names_for(&self, rule: ToolNameRule) -> ToolNames {
        let names = || self.iter().map(|spec| spec.name.as_str());
        self.0.vendor_names[rule as usize].get_or_init(|| ToolNames::new(names(), rule)).clone()
    }

    fn name_index(&self) -> &NameIndex {
        self.0.names.get_or_init(|| {
            let name = |at: usize| self[at].name.as_str();
            let mut by_name: Box<[usize]> = (0..self.len()).collect();
            // The sort is stable, so specs with the same name stay in order.
            by_name.sort_by_key(|at| name(*at));
            let repeated = by_name.windows(2).filter(|pair| name(pair[0]) == name(pair[1]));
            let first_repeated = repeated.map(|pair| pair[1]).min();
            NameIndex { by_name, first_repeated }
        })
    }

    /// Returns the output of `encode`, which is called only if no output is cached for `key`. The
    /// key must contain everything that determines the output, except for the list itself.
    ///
    /// # Errors
    ///
    /// Returns the error that `encode` returns. Errors are not cached.
    pub(crate) fn encoding<K: PartialEq + Any + Send + Sync>(
        &self,
        key: K,
        encode: impl FnOnce() -> Result<Vec<u8>, Error>,
    ) -> Result<Arc<[u8]>, Error> {
        if let Some(bytes) = self.cached_encoding(&key) {
            return Ok(bytes);
        }
        let bytes: Arc<[u8]> = encode()?.into();
        let entry = (EncodingKey::new(key), Arc::clone(&bytes));
        // No user code runs while the lock is held.
        let mut encodings = lock_ignoring_poison(&self.0.encodings);
        encodings.push(entry);
        let many = encodings.len().saturating_sub(MAX_CACHED_ENCODINGS);
        encodings.drain(..many);
        drop(encodings);
        Ok(bytes)
    }

    fn cached_encoding<K: PartialEq + Any>(&self, key: &K) -> Option<Arc<[u8]>> {
        let mut encodings = lock_ignoring_poison(&self.0.encodings);
        let at = encodings.iter().rposition(|(other, _)| other.is(key))?;
        encodings[at..].rotate_left(1);
        encodings.last().map(|(_, bytes)| Arc::clone(bytes))
    }
}

/// Creates the error for two tools with the same name.
pub(crate) fn repeated_name_error(name: &str) -> Error {
    let message = format!("two tools have the name `{name}`");
    Error::new(ErrorKind::InvalidRequest, message).with_parameter("tools")
}

impl Deref for ToolSpecs {
    type Target = [ToolSpec];

    fn deref(&self) -> &[ToolSpec] {
        &self.0.specs
    }
}

impl<'a> IntoIterator for &'a ToolSpecs {
    type Item = &'a ToolSpec;
    type IntoIter = slice::Iter<'a, ToolSpec>;

    fn into_iter(self) -> slice::Iter<'a, ToolSpec> {
        self.iter()
    }
}

impl FromIterator<ToolSpec> for ToolSpecs {
    fn from_iter<T: IntoIterator<Item = ToolSpec>>(specs: T) -> Self {
        let specs = specs.into_iter().collect();
        Self(Arc::new(SharedSpecs {
            specs,
            names: OnceLock::new(),
            vendor_names: Default::default(),
            encodings: Mutex::default(),
        }))
    }
}

impl From<Vec<ToolSpec>> for ToolSpecs {
    fn from(specs: Vec<ToolSpec>) -> Self {
        specs.into_iter().collect()
    }
}

impl<const N: usize> From<[ToolSpec; N]> for ToolSpecs {
    fn from(specs: [ToolSpec; N]) -> Self {
        specs.into_iter().collect()
    }
}

/// Creates an empty list.
impl Default for ToolSpecs {
    fn default() -> Self {
        static EMPTY: LazyLock<ToolSpecs> = LazyLock::new(|| [].into());
        EMPTY.clone()
    }
}

impl PartialEq for ToolSpecs {
    fn eq(&self, other: &Self) -> bool {
        self.is_same(other) || **self == **other
    }
}

impl Eq for ToolSpecs {}

impl fmt::Debug for ToolSpecs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self).finish()
    }
}

impl Serialize for ToolSpecs {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (**self).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ToolSpecs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::deserialize(deserializer).map(Self::from)
    }
}
