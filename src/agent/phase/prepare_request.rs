//! Defines a request that hooks may have changed.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::item::{History, Item};
use crate::request::{Options, Request, System, ToolSpec, restore_tokens};

/// A request that hooks may have changed, stored either as the changed request or as the recorded
/// changes. Only the changes are serialized.
#[derive(Clone, Debug)]
pub(in crate::agent) enum PreparedRequest {
    Computed { original: Box<Request>, prepared: Box<Request> },
    Recorded(Box<RequestChanges>),
}

/// The parts of a request that hooks have changed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(in crate::agent) struct RequestChanges {
    /// The new model, as a list with at most one entry. An empty list means that a hook has removed
    /// the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<System>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<Vec<ToolSpec>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    options: Option<Options>,
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<ContextChange>,
}

/// A changed context, stored as a diff against the history.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct ContextChange {
    id: String,
    /// The number of items at the beginning of the context that equal the first items of the
    /// history.
    unchanged_prefix: usize,
    items: Vec<Item>,
    /// The number of items at the end of the context that equal the last items of the history.
    unchanged_suffix: usize,
}

impl PreparedRequest {
    /// Returns the request with the hooks' changes. `plain` is the request before the hooks changed
    /// it.
    pub(in crate::agent) fn into_request(self, plain: Request) -> Request {
        match self {
            Self::Computed { prepared: request, .. } => *request,
            Self::Recorded(changes) => changes.apply_to(plain),
        }
    }
}

impl Default for PreparedRequest {
    fn default() -> Self {
        Self::Recorded(Box::default())
    }
}

impl Serialize for PreparedRequest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Computed { original: plain, prepared: request } => {
                RequestChanges::diff(plain, request).serialize(serializer)
            }
            Self::Recorded(changes) => changes.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for PreparedRequest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        RequestChanges::deserialize(deserializer).map(Box::new).map(Self::Recorded)
    }
}

impl RequestChanges {
    fn diff(plain: &Request, request: &Request) -> Self {
        Self {
            model: (request.model != plain.model).then(|| request.model.iter().cloned().collect()),
            system: (request.system != plain.system).then(|| request.system.clone()),
            tools: (request.tools != plain.tools).then(|| request.tools.to_vec()),
            options: (request.options != plain.options).then(|| request.options.clone()),
            context: (request.context != plain.context)
                .then(|| ContextChange::diff(&plain.context, &request.context)),
        }
    }

    fn apply_to(self, mut request: Request) -> Request {
        let Self { model, system, tools, options, context } = self;
        if let Some(model) = model {
            request.model = model.into_iter().next();
        }
        if let Some(system) = system {
            request.system = system;
        }
        if let Some(tools) = tools {
            request.tools = tools.into();
        }
        if let Some(options) = options {
            let plain = std::mem::replace(&mut request.options, options);
            restore_tokens(&mut request.options.server_tools, &plain.server_tools);
        }
        if let Some(ContextChange { id, unchanged_prefix, items, unchanged_suffix }) = context {
            let plain = request.context.clone();
            let first = plain.iter().take(unchanged_prefix).cloned();
            let last = plain.iter().skip(plain.len().saturating_sub(unchanged_suffix)).cloned();
            request.context = History::from_items(id, first.chain(items).chain(last));
        }
        request
    }
}

impl ContextChange {
    fn diff(plain: &History, context: &History) -> Self {
        let alike = |(a, b): &(&Item, &Item)| a == b;
        let prefix = plain.iter().zip(context.iter()).take_while(alike).count();
        let suffix = plain.newest_first().zip(context.newest_first()).take_while(alike).count();
        let suffix = suffix.min(plain.len().min(context.len()) - prefix);
        let items = context.iter().take(context.len() - suffix).skip(prefix).cloned().collect();
        let id = context.id().to_owned();
        Self { id, unchanged_prefix: prefix, items, unchanged_suffix: suffix }
    }
}
