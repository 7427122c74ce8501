//! The subscription to changes of the tool list.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::SubscriptionFilter;
use rmcp::service::{Peer, RoleClient};
use serde_json::json;

use crate::connection_state::ConnectionState;

/// The initial and the maximum delay before subscribing again to changes of the tool list.
const RESUBSCRIBE_BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));

/// Listens for changes to the tool list until the connection is closed. The connection owns the
/// task that runs this future, and aborts it when the connection closes.
pub(super) async fn subscribe_to_tool_changes(peer: Peer<RoleClient>, state: Arc<ConnectionState>) {
    let filter: Result<SubscriptionFilter, _> =
        serde_json::from_value(json!({ "toolsListChanged": true }));
    let Ok(filter) = filter else { return };
    let (mut wait, longest) = RESUBSCRIBE_BACKOFF;
    while !peer.is_transport_closed() {
        if let Ok(mut subscription) = peer.listen(filter.clone()).await {
            // The tool list may have changed before the first subscription, or between two
            // subscriptions.
            state.on_tools_changed();
            wait = RESUBSCRIBE_BACKOFF.0;
            while let Ok(Some(_)) = subscription.next().await {
                state.on_tools_changed();
            }
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(longest);
    }
}
