//! The connection over which notifications are received.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use futures::future::poll_fn;
use futures::stream::StreamExt;
use redis::aio::{PubSubSink, PubSubStream};
use redis::{Client, RedisError};
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use crate::connection::RESPONSE_LIMIT;
use crate::lock::lock_ignoring_poison;

/// The time between two connection attempts.
const RECONNECT_WAIT: Duration = Duration::from_millis(100);

/// How long a connection may receive no messages before it is tested with a ping.
const PING_AFTER: Duration = Duration::from_secs(2);

/// A single connection for all of a process's channels. A message only wakes a listener, which then
/// reads the new entries.
#[derive(Default)]
pub(crate) struct Wakeups {
    channels: Mutex<HashMap<String, Channel>>,
    has_changed: Notify,
}

struct Channel {
    listeners: usize,
    news: watch::Sender<News>,
}

/// The last message on a channel, and the number of messages received so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct News {
    count: u64,
    /// The last message; `None` if messages may have been missed.
    pub(crate) message: Option<String>,
}

/// Listens on a channel until the listener is dropped.
pub(crate) struct Listener {
    wakeups: Arc<Wakeups>,
    channel: String,
    news: watch::Receiver<News>,
}

impl Wakeups {
    /// Creates a listener on a channel. After creating the listener and before waiting on it, the
    /// caller must read the existing state. The listener is also notified when the subscription to
    /// the channel has started, and when the connection is lost or re-established.
    pub(crate) fn listen(self: &Arc<Self>, channel: String) -> Listener {
        let mut channels = lock_ignoring_poison(&self.channels);
        let entry = channels.entry(channel.clone()).or_insert_with(|| {
            self.has_changed.notify_one();
            Channel { listeners: 0, news: watch::Sender::new(News::default()) }
        });
        entry.listeners += 1;
        let news = entry.news.subscribe();
        Listener { wakeups: Arc::clone(self), channel, news }
    }

    /// Keeps the connection open until the returned future is dropped.
    pub(crate) async fn drive(self: Arc<Self>, client: Client) {
        loop {
            if let Ok(Ok(pubsub)) = timeout(RESPONSE_LIMIT, client.get_async_pubsub()).await {
                let (mut sink, mut messages) = pubsub.split();
                // `follow` returns when the connection is lost.
                let _ = self.follow(&mut sink, &mut messages).await;
                self.tell_all();
            }
            sleep(RECONNECT_WAIT).await;
        }
    }

    async fn follow(
        &self,
        sink: &mut PubSubSink,
        messages: &mut PubSubStream,
    ) -> Result<(), RedisError> {
        let mut subscribed: HashSet<String> = HashSet::new();
        loop {
            let (new, old) = self.changes(&subscribed);
            for channel in new {
                within_limit(sink.subscribe(&channel)).await?;
                self.tell(&channel, None);
                subscribed.insert(channel);
            }
            for channel in old {
                within_limit(sink.unsubscribe(&channel)).await?;
                subscribed.remove(&channel);
            }
            let mut has_changed = std::pin::pin!(self.has_changed.notified());
            let mut ping = std::pin::pin!(sleep(PING_AFTER));
            loop {
                let message = poll_fn(|cx| match messages.poll_next_unpin(cx) {
                    Poll::Ready(Some(message)) => Poll::Ready(Notice::Message(message)),
                    Poll::Ready(None) => Poll::Ready(Notice::End),
                    Poll::Pending if has_changed.as_mut().poll(cx).is_ready() => {
                        Poll::Ready(Notice::Change)
                    }
                    Poll::Pending => ping.as_mut().poll(cx).map(|()| Notice::Silence),
                });
                match message.await {
                    Notice::Message(message) => {
                        let text = message.get_payload().ok();
                        self.tell(message.get_channel_name(), text);
                    }
                    Notice::End => return Ok(()),
                    Notice::Change => break,
                    Notice::Silence => {
                        within_limit(sink.ping::<redis::Value>()).await?;
                        break;
                    }
                }
            }
        }
    }

    /// Returns the channels to subscribe to and the channels to unsubscribe from, in this order.
    fn changes(&self, subscribed: &HashSet<String>) -> (Vec<String>, Vec<String>) {
        let channels = lock_ignoring_poison(&self.channels);
        let new = channels.keys().filter(|channel| !subscribed.contains(*channel));
        let old = subscribed.iter().filter(|channel| !channels.contains_key(*channel));
        (new.cloned().collect(), old.cloned().collect())
    }

    fn tell(&self, channel: &str, message: Option<String>) {
        if let Some(channel) = lock_ignoring_poison(&self.channels).get(channel) {
            channel.news.send_modify(|news| {
                *news = News { count: news.count + 1, message };
            });
        }
    }

    fn tell_all(&self) {
        for channel in lock_ignoring_poison(&self.channels).values() {
            channel.news.send_modify(|news| *news = News { count: news.count + 1, message: None });
        }
    }
}

/// An event from a connection.
enum Notice {
    Message(redis::Msg),
    Change,
    Silence,
    End,
}

async fn within_limit<T>(
    answer: impl Future<Output = Result<T, RedisError>>,
) -> Result<T, RedisError> {
    match timeout(RESPONSE_LIMIT, answer).await {
        Ok(answer) => answer,
        Err(_) => Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()),
    }
}

impl Listener {
    /// Waits for a notification, for at most `limit`.
    pub(crate) async fn wait(&mut self, limit: Duration) -> Option<News> {
        match timeout(limit, self.news.changed()).await {
            Ok(Ok(())) => Some(self.news.borrow_and_update().clone()),
            Ok(Err(_)) | Err(_) => None,
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut channels = lock_ignoring_poison(&self.wakeups.channels);
        if let Some(channel) = channels.get_mut(&self.channel) {
            channel.listeners -= 1;
            if channel.listeners == 0 {
                channels.remove(&self.channel);
                self.wakeups.has_changed.notify_one();
            }
        }
    }
}
