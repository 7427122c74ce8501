//! The state shared by the server and its connections.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::{Map, Value};
use tokio::sync::watch;

use crate::lock::lock_ignoring_poison;
use crate::mcp::era::McpEra;
use crate::mcp::fault::McpFault;
use crate::mcp::log::Log;
use crate::mcp::peer::Peer;
use crate::mcp::resource::{Prompt, Resource};
use crate::mcp::tool::McpTool;

/// The state shared by the server and its connections. No lock is held across an await point or
/// while a handler is called.
#[derive(Debug, Default)]
pub(super) struct State {
    settings: Mutex<Settings>,
    pub(super) log: Log,
    /// The number of times that the tool list has changed.
    tools_version: watch::Sender<u64>,
    listing_count: AtomicU64,
    /// The number of messages received over HTTP so far.
    http_message_count: AtomicU64,
    /// The questions that have been sent as results, keyed by `requestState`.
    questions: Mutex<HashMap<String, Question>>,
    /// The sessions of legacy-era clients over HTTP, keyed by session id.
    sessions: Mutex<HashMap<String, Arc<Peer>>>,
    session_count: AtomicU64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Settings {
    pub(super) era: McpEra,
    pub(super) instructions: Option<String>,
    pub(super) tools: Vec<McpTool>,
    pub(super) resources: Vec<Resource>,
    pub(super) prompts: Vec<Prompt>,
    pub(super) page_size: Option<usize>,
    pub(super) faults: Vec<McpFault>,
    pub(super) required_headers: Vec<(String, String)>,
}

/// A question that the client must answer, and the call that it belongs to.
#[derive(Clone, Debug)]
pub(super) struct Question {
    pub(super) tool: String,
    pub(super) arguments: Value,
    pub(super) key: String,
    /// The client's answers to the call's earlier questions.
    pub(super) answered: Map<String, Value>,
}

impl State {
    pub(super) fn settings(&self) -> MutexGuard<'_, Settings> {
        lock_ignoring_poison(&self.settings)
    }

    pub(super) fn era(&self) -> McpEra {
        self.settings().era
    }

    pub(super) fn faults(&self) -> Vec<McpFault> {
        self.settings().faults.clone()
    }

    pub(super) fn has_fault(&self, fault: McpFault) -> bool {
        self.settings().faults.contains(&fault)
    }

    /// Returns the first tool with this name.
    pub(super) fn tool(&self, name: &str) -> Option<McpTool> {
        self.settings().tools.iter().find(|tool| tool.name() == name).cloned()
    }

    pub(super) fn set_tools(&self, tools: Vec<McpTool>) {
        self.settings().tools = tools;
        self.tools_version.send_modify(|version| *version += 1);
    }

    pub(super) fn tools_version(&self) -> watch::Receiver<u64> {
        self.tools_version.subscribe()
    }

    /// Counts a tool listing and returns the number of earlier listings.
    pub(super) fn next_listing(&self) -> u64 {
        self.listing_count.fetch_add(1, Ordering::SeqCst)
    }

    /// Counts a message received over HTTP and returns its number, starting at 1.
    pub(super) fn next_http_message(&self) -> u64 {
        self.http_message_count.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Stores a question and returns the `requestState` to send with it.
    pub(super) fn add_question(&self, question: Question) -> String {
        let mut questions = lock_ignoring_poison(&self.questions);
        // The `requestState` contains characters that a client might trim, escape or re-encode by
        // mistake.
        let state = format!(" state {}/+=\"é\\ ", questions.len());
        questions.insert(state.clone(), question);
        state
    }

    pub(super) fn question(&self, request_state: &str) -> Option<Question> {
        lock_ignoring_poison(&self.questions).get(request_state).cloned()
    }

    /// Opens a session and returns its id and its peer.
    pub(super) fn open_session(&self) -> (String, Arc<Peer>) {
        let id = format!("session-{}", self.session_count.fetch_add(1, Ordering::SeqCst));
        let peer = Arc::<Peer>::default();
        lock_ignoring_poison(&self.sessions).insert(id.clone(), Arc::clone(&peer));
        (id, peer)
    }

    pub(super) fn session(&self, id: &str) -> Option<Arc<Peer>> {
        lock_ignoring_poison(&self.sessions).get(id).cloned()
    }

    /// Ends a session and its calls. Returns `false` if the id is unknown.
    pub(super) fn close_session(&self, id: &str) -> bool {
        let closed = lock_ignoring_poison(&self.sessions).remove(id);
        closed.inspect(|peer| peer.close()).is_some()
    }

    pub(super) fn close_all_sessions(&self) {
        let sessions: Vec<_> = lock_ignoring_poison(&self.sessions).drain().collect();
        for (_, peer) in sessions {
            peer.close();
        }
    }
}
