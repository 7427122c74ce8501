//! Tools that record their calls, and sessions that are opened in a store.

use std::sync::{Arc, Mutex};

use serde_json::json;
use turnstream::session::{Session, Store};
use turnstream::tool::{Tool, ToolSpec};

/// Opens the session `s`.
pub async fn open_session(store: &(impl Store + Clone + 'static)) -> Session {
    Session::open(store.clone(), "s").await.unwrap()
}

/// The keys under which calls ran.
pub type IdempotencyKeys = Arc<Mutex<Vec<String>>>;

/// A tool that records its key, and never ends if `hangs` is set.
pub fn key_recording_tool(name: &str, keys: &IdempotencyKeys, hangs: bool) -> Tool {
    let keys = Arc::clone(keys);
    let tool = Tool::raw(spec(name), move |_args, cx| {
        keys.lock().unwrap().push(cx.idempotency_key().to_owned());
        async move {
            if hangs {
                futures::future::pending::<()>().await;
            }
            "done"
        }
    });
    tool.unwrap()
}

/// The spec of a tool that accepts any object.
pub(super) fn spec(name: &str) -> ToolSpec {
    ToolSpec::new(name, "", json!({ "type": "object" }))
}
