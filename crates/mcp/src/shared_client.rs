//! The state shared by a client's clones and tools: the connection, the most recent listing, and
//! the accepted definitions.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared};
use serde_json::Value;
use tokio::runtime::Handle;
use turnstream::error::{Error, ErrorKind};

use crate::Era;
use crate::content::MediaParts;
use crate::endpoint::Endpoint;
use crate::fnv::fnv1a_128;
use crate::limits::Limits;
use crate::listing::{ListedTool, Listing};
use crate::lock::lock_ignoring_poison;
use crate::questions::Answerers;
use crate::sdk::connection::Connection;
use crate::sdk::connection_settings::ConnectionSettings;
use crate::sdk::error_context::SessionEnd;

/// The state shared by a client's clones and tools.
pub(crate) struct SharedClient {
    pub(crate) settings: Settings,
    state: Mutex<State>,
    /// The fingerprint of each tool's accepted definition.
    accepted: Mutex<AcceptedDefinitions>,
}

#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) name: String,
    pub(crate) endpoint: Endpoint,
    pub(crate) limits: Limits,
    pub(crate) answerers: Answerers,
    pub(crate) media: MediaParts,
}

/// The maximum number of times that a request is repeated because the server has ended the session.
pub(crate) const MAX_SESSION_RENEWALS: u32 = 1;

/// How much longer a caller waits after a connection attempt has reached its own time limit.
const CONNECTING_GRACE: Duration = Duration::from_secs(1);

type Connecting = BoxFuture<'static, Result<Arc<Connection>, Error>>;

#[derive(Default)]
struct State {
    connection: Option<Arc<Connection>>,
    /// The connection attempt that callers are waiting for. The callers own the attempt: once all
    /// of the callers are dropped, the attempt is dropped too.
    connecting: Option<WeakShared<Connecting>>,
    listing: Option<CurrentListing>,
    /// The number of times that the client has been closed.
    closed_count: u64,
    /// The most recently closed connection, while a caller waits for it to end.
    closing: Option<Weak<Connection>>,
    prepared: PreparedCalls,
    /// The notes about the most recent listings other than that of tools, by the listed kind.
    end_notes: BTreeMap<&'static str, String>,
}

/// For each call that has not run yet, records the tool definition with which the model made the
/// call. Without such a record, a call could run with a different definition that was later
/// approved for another call.
#[derive(Default)]
struct PreparedCalls(VecDeque<PreparedRecord>);

/// The tool's name, a hash of the arguments, and the fingerprint of the tool definition.
type PreparedRecord = (String, u128, u128);

/// The maximum number of calls whose records are kept.
const MAX_PREPARED_CALLS: usize = 256;

impl PreparedCalls {
    fn add(&mut self, tool: &ListedTool, arguments: &str) {
        let hash = fnv1a_128(arguments.bytes());
        let is_known =
            |(name, known, _): &PreparedRecord| *name == tool.original_name && *known == hash;
        if self.0.iter().any(is_known) {
            return;
        }
        if self.0.len() == MAX_PREPARED_CALLS {
            self.0.pop_front();
        }
        self.0.push_back((tool.original_name.clone(), hash, tool.fingerprint));
    }

    /// Removes the record for a call to this tool with these arguments, and returns the fingerprint
    /// of the recorded tool definition.
    fn take(&mut self, tool: &ListedTool, arguments: &str) -> Option<u128> {
        let hash = fnv1a_128(arguments.bytes());
        let is_it =
            |(name, known, _): &PreparedRecord| *name == tool.original_name && *known == hash;
        let (.., fingerprint) = self.0.remove(self.0.iter().position(is_it)?)?;
        Some(fingerprint)
    }
}

/// The most recent listing, and the connection over which it was fetched.
struct CurrentListing {
    listing: Arc<Listing>,
    connection: Weak<Connection>,
    /// The revision of the tool list just before the tools were requested.
    revision: u64,
}

/// The accepted tool definitions, represented by their fingerprints.
#[derive(Clone, Default)]
pub(crate) struct AcceptedDefinitions {
    pub(crate) by_name: HashMap<String, u128>,
    /// Whether a newly listed tool requires approval if it has no accepted definition.
    is_complete: bool,
    /// The revision of the accepted definitions, which increases with each change.
    pub(crate) revision: u64,
}

impl AcceptedDefinitions {
    /// Creates a set that contains only the definitions in `by_name`. Any other definition is
    /// accepted only when a call with that definition is approved.
    pub(crate) fn complete(by_name: HashMap<String, u128>) -> Self {
        Self { by_name, is_complete: true, revision: 0 }
    }
}

impl SharedClient {
    pub(crate) fn new(settings: Settings, accepted: AcceptedDefinitions) -> Self {
        Self { settings, state: Mutex::default(), accepted: Mutex::new(accepted) }
    }

    pub(crate) fn accepted(&self) -> AcceptedDefinitions {
        lock_ignoring_poison(&self.accepted).clone()
    }

    pub(crate) fn accepted_revision(&self) -> u64 {
        lock_ignoring_poison(&self.accepted).revision
    }

    /// Returns the current connection, even if it is broken.
    pub(crate) fn last_connection(&self) -> Option<Arc<Connection>> {
        lock_ignoring_poison(&self.state).connection.clone()
    }

    /// Returns the connection, connecting first if necessary. Concurrent callers share one
    /// connection attempt, which is dropped once all of the callers are dropped.
    pub(crate) async fn connection(&self) -> Result<Arc<Connection>, Error> {
        if Handle::try_current().is_err() {
            let message = "an MCP server needs a tokio runtime, and it was polled outside of any";
            return Err(Error::new(ErrorKind::Connect, message).with_retryable(false));
        }
        let (dead, connecting, closed_count) = {
            let mut state = lock_ignoring_poison(&self.state);
            match &state.connection {
                Some(connection) if connection.is_open() => return Ok(Arc::clone(connection)),
                _ => {}
            }
            let dead = state.connection.take();
            let running = state.connecting.as_ref().and_then(WeakShared::upgrade);
            // Only the older protocol has sessions.
            let first_era = match &dead {
                Some(dead) if dead.has_session_ended() => Era::Legacy,
                _ => Era::Modern,
            };
            let connecting =
                running.unwrap_or_else(|| self.begin_connecting(&mut state, first_era));
            (dead, connecting, state.closed_count)
        };
        drop(dead);
        // The attempt has its own time limit, but relies on the timers of the caller that started
        // it, and that caller's runtime may no longer be polled.
        let limit = self.settings.limits.start + CONNECTING_GRACE;
        let Ok(connected) = tokio::time::timeout(limit, connecting).await else {
            lock_ignoring_poison(&self.state).connecting = None;
            let message =
                format!("the MCP server `{}` was not ready after {limit:?}", self.settings.name);
            return Err(Error::new(ErrorKind::Timeout, message));
        };
        let connection = connected?;
        let mut state = lock_ignoring_poison(&self.state);
        if state.closed_count != closed_count {
            let message =
                format!("the client of the MCP server `{}` was closed", self.settings.name);
            return Err(Error::new(ErrorKind::Connect, message));
        }
        if state.connection.is_none() {
            state.connection = Some(Arc::clone(&connection));
        }
        Ok(connection)
    }

    fn begin_connecting(&self, state: &mut State, first_era: Era) -> Shared<Connecting> {
        let settings = self.settings.clone();
        let connecting = async move {
            if let Endpoint::Http(http) = &settings.endpoint {
                http.validate()?;
            }
            let settings = ConnectionSettings {
                capabilities: settings.answerers.capabilities(),
                roots: settings.answerers.roots_answer(),
                name: settings.name,
                endpoint: settings.endpoint,
                limits: settings.limits,
                first_era,
            };
            Ok(Arc::new(Connection::open(&settings).await?))
        };
        let connecting = connecting.boxed().shared();
        state.connecting = connecting.downgrade();
        connecting
    }

    /// Returns the current tools. The most recent listing is reused unless the server has reported
    /// a change or the connection has been replaced.
    pub(crate) async fn listing(&self) -> Result<Arc<Listing>, Error> {
        Ok(self.listing_over_connection().await?.1)
    }

    /// Returns the current tools, and the connection over which the tools were fetched.
    async fn listing_over_connection(&self) -> Result<(Arc<Connection>, Arc<Listing>), Error> {
        let list = |connection| async move {
            let listing = self.listing_over(&connection).await?;
            Ok((connection, listing))
        };
        self.over_current_session(list).await
    }

    async fn listing_over(&self, connection: &Arc<Connection>) -> Result<Arc<Listing>, Error> {
        let revision = connection.tools_revision();
        {
            let state = lock_ignoring_poison(&self.state);
            if let Some(current) = &state.listing
                && current.connection.as_ptr() == Arc::as_ptr(connection)
                && current.revision == revision
            {
                return Ok(Arc::clone(&current.listing));
            }
        }
        let Settings { name, limits, .. } = &self.settings;
        let fetched = Listing::fetch(connection, name, limits).await?;
        let mut accepted = lock_ignoring_poison(&self.accepted);
        if !accepted.is_complete {
            for tool in &fetched.tools {
                let name = tool.original_name.clone();
                accepted.by_name.entry(name).or_insert(tool.fingerprint);
            }
        }
        drop(accepted);
        let mut state = lock_ignoring_poison(&self.state);
        let earlier = state.listing.take().map(|current| current.listing);
        let listing = fetched.unified_with(earlier);
        let connection = Arc::downgrade(connection);
        let current = CurrentListing { listing: Arc::clone(&listing), connection, revision };
        state.listing = Some(current);
        Ok(listing)
    }

    /// Performs an operation over the connection. If the server does not know the session any more,
    /// repeats the operation over a new connection.
    pub(crate) async fn over_current_session<T, F>(
        &self,
        operation: impl Fn(Arc<Connection>) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let mut renewals_left = MAX_SESSION_RENEWALS;
        loop {
            let connection = self.connection().await?;
            match operation(connection).await {
                Err(error) if renewals_left > 0 && error.find_source::<SessionEnd>().is_some() => {
                    renewals_left -= 1;
                }
                result => return result,
            }
        }
    }

    /// Records the note about a listing of resources, templates or prompts.
    pub(crate) fn set_end_note(&self, field: &'static str, note: Option<String>) {
        let notes = &mut lock_ignoring_poison(&self.state).end_notes;
        match note {
            Some(note) => drop(notes.insert(field, note)),
            None => drop(notes.remove(field)),
        }
    }

    /// Returns the notes about the most recent listings of resources, templates and prompts.
    pub(crate) fn end_notes(&self) -> Vec<String> {
        lock_ignoring_poison(&self.state).end_notes.values().cloned().collect()
    }

    /// Returns the connection for calling a tool, or an error if the tool's definition has changed
    /// since it was sent to the model.
    ///
    /// The tool's definition is compared with the listing that was fetched over the returned
    /// connection. The connection may have broken since the listing was fetched.
    pub(crate) async fn connection_for_call(
        &self,
        tool: &ListedTool,
        call: CallOrigin<'_>,
    ) -> Result<Arc<Connection>, Error> {
        let (connection, listing) = self.listing_over_connection().await?;
        let was_made_with = match call {
            CallOrigin::Model { arguments } => {
                lock_ignoring_poison(&self.state).prepared.take(tool, arguments)
            }
            CallOrigin::Program => None,
        };
        let is_as_it_was = was_made_with.is_none_or(|fingerprint| fingerprint == tool.fingerprint);
        let name = &tool.original_name;
        let known = listing.tools.iter().find(|known| known.original_name == *name);
        let message = match known {
            Some(known) if known.fingerprint == tool.fingerprint && is_as_it_was => {
                if let CallOrigin::Model { .. } = call {
                    self.accept(tool);
                }
                return Ok(connection);
            }
            Some(_) => "has changed since it was called, and the call did not run",
            None => "is gone from the server, and the call did not run",
        };
        Err(Error::new(ErrorKind::Conflict, format!("the tool `{}` {message}", tool.spec.name)))
    }

    /// Records the tool definition that a model's call was prepared with.
    pub(crate) fn remember_prepared(&self, tool: &ListedTool, arguments: &str) {
        lock_ignoring_poison(&self.state).prepared.add(tool, &normalized(arguments));
    }

    /// Closes the connection and waits until it has ended.
    pub(crate) async fn close(&self) {
        let connection = {
            let mut state = lock_ignoring_poison(&self.state);
            (state.listing, state.connecting) = (None, None);
            state.closed_count += 1;
            let connection = state.connection.take();
            if let Some(connection) = &connection {
                state.closing = Some(Arc::downgrade(connection));
            }
            // Another caller may already be closing the connection.
            connection.or_else(|| state.closing.as_ref()?.upgrade())
        };
        if let Some(connection) = connection {
            connection.close().await;
        }
    }

    /// Accepts the tool definition of a call that is about to run because the tool is allowed or
    /// the call was approved.
    fn accept(&self, tool: &ListedTool) {
        let mut accepted = lock_ignoring_poison(&self.accepted);
        if accepted.by_name.insert(tool.original_name.clone(), tool.fingerprint)
            != Some(tool.fingerprint)
        {
            accepted.revision += 1;
        }
    }
}

/// The origin of a call.
#[derive(Clone, Copy)]
pub(crate) enum CallOrigin<'a> {
    /// A model made the call with these arguments. Such a call may require approval.
    Model { arguments: &'a str },
    /// The program itself made the call. Such a call requires no approval.
    Program,
}

/// Returns a call's arguments as normalized JSON.
fn normalized(arguments: &str) -> String {
    serde_json::from_str::<Value>(arguments)
        .map_or_else(|_| arguments.to_owned(), |it| it.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use turnstream::request::ToolSpec;

    #[test]
    fn the_tool_definitions_of_256_calls_are_remembered() {
        let tool = ListedTool {
            original_name: "t".to_owned(),
            spec: ToolSpec::new("t", "", json!({ "type": "object" })),
            is_read_only: false,
            fingerprint: 7,
        };
        let mut prepared = PreparedCalls::default();
        for n in 0..=256 {
            prepared.add(&tool, &n.to_string());
        }
        assert_eq!(prepared.take(&tool, "0"), None);
        for n in 1..=256 {
            assert_eq!(prepared.take(&tool, &n.to_string()), Some(7), "{n}");
        }
    }
}
