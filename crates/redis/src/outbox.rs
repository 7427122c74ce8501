//! Sends requests without waiting for their responses.

use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures::future::BoxFuture;
use futures::stream::StreamExt;
use tokio::runtime::Handle;

/// Sends requests in order, without waiting for their responses. For example, a request may report
/// the end of a run or the answer to a command.
///
/// The queue contains at most a few requests for each run, and one for each waiting command.
#[derive(Clone)]
pub(crate) struct Outbox(UnboundedSender<BoxFuture<'static, ()>>);

impl Outbox {
    /// Creates an outbox and spawns its task on the given runtime. The task ends once the outbox's
    /// last clone has been dropped and all queued requests have been sent.
    pub(crate) fn spawn_on(runtime: &Handle) -> Self {
        let (sender, sends) = unbounded();
        runtime.spawn(send_all(sends));
        Self(sender)
    }

    pub(crate) fn put(&self, send: impl Future<Output = ()> + Send + 'static) {
        // If the runtime has ended, the request is not sent.
        let _ = self.0.unbounded_send(Box::pin(send));
    }
}

async fn send_all(mut sends: UnboundedReceiver<BoxFuture<'static, ()>>) {
    while let Some(send) = sends.next().await {
        send.await;
    }
}
