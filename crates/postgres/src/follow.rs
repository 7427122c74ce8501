//! The connection that receives notifications for followers of sessions.
use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures::channel::mpsc;
use futures::future::{Either, select};
use futures::stream::{BoxStream, StreamExt, once, unfold};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_postgres::{AsyncMessage, Client};

use crate::connector::Connector;
use crate::database::ensure_writable;
use crate::error::{PostgresError, PostgresErrorKind};
use crate::lock::lock_ignoring_poison;
use crate::statements::Statements;

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How long a connection may go without a notification before the server is checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// The maximum time to wait for a response from the server.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Notifies the followers of a store's sessions. As long as there are followers, a single
/// connection listens on behalf of all of them.
pub(crate) struct Followers {
    connector: Connector,
    listen: String,
    followed: String,
    state: Mutex<FollowerState>,
    /// Signals that a listener has ended. This sender is not stored in `state`, because a listener
    /// may end while `state` is locked.
    listener_ends: watch::Sender<()>,
}

#[derive(Default)]
struct FollowerState {
    by_id: HashMap<String, Followed>,
    /// The ids of the followed sessions that exist, by row key.
    ids_by_key: HashMap<i64, String>,
    listener: Option<Listener>,
}

/// A session that has followers.
struct Followed {
    /// The key of the session's row. `None` while the session does not exist.
    key: Option<i64>,
    /// The session's version. `None` before the first read, and 0 if the session does not exist.
    version: watch::Sender<Option<u64>>,
}

/// The task that drives the listening connection.
struct Listener {
    /// Notifies the listener that another session has a follower.
    added: mpsc::UnboundedSender<()>,
    task: JoinHandle<()>,
}

/// Receives a message for each newly followed session. The receiver is dropped when the listener
/// ends or when the listener's runtime is dropped.
struct Added {
    // Fields are dropped in declaration order, so the channel is already closed when a follower is
    // woken.
    received: mpsc::UnboundedReceiver<()>,
    _end: ListenerEnd,
}

/// A guard that the listener's task owns. When the task ends and drops the guard, all followers are
/// woken.
struct ListenerEnd(watch::Sender<()>);

/// Follows a single session.
struct Follower {
    followers: Arc<Followers>,
    id: String,
    versions: watch::Receiver<Option<u64>>,
    listener_ends: watch::Receiver<()>,
    last: Option<u64>,
}

/// The content of a notification about a write to a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct WriteNotification {
    key: i64,
    version: u64,
}

impl Followers {
    pub(crate) fn new(connector: Connector, statements: &Statements) -> Self {
        Self {
            connector,
            listen: statements.listen.clone(),
            followed: statements.followed.clone(),
            state: Mutex::default(),
            listener_ends: watch::Sender::new(()),
        }
    }

    /// Returns a stream of a session's versions. The session is followed once the stream is first
    /// polled.
    pub(crate) fn follow(self: &Arc<Self>, id: String) -> BoxStream<'static, u64> {
        let followers = Arc::clone(self);
        once(async move { followers.add(id) })
            .flat_map(|follower| {
                unfold(follower, async |mut follower| Some((follower.next().await?, follower)))
            })
            .boxed()
    }

    fn add(self: Arc<Self>, id: String) -> Follower {
        let mut state = self.lock_state();
        let followed = state.by_id.entry(id.clone());
        let followed =
            followed.or_insert_with(|| Followed { key: None, version: watch::Sender::new(None) });
        let versions = followed.version.subscribe();
        self.ensure_listener(&mut state);
        drop(state);
        let listener_ends = self.listener_ends.subscribe();
        Follower { followers: self, id, versions, listener_ends, last: None }
    }

    /// Notifies the listener that another session has a follower, or starts a new listener on the
    /// caller's runtime if none is running.
    fn ensure_listener(self: &Arc<Self>, state: &mut FollowerState) {
        if let Some(listener) = &state.listener
            && listener.added.unbounded_send(()).is_ok()
        {
            return;
        }
        let (added, received) = mpsc::unbounded();
        let added_to = Added { received, _end: ListenerEnd(self.listener_ends.clone()) };
        let task = tokio::spawn(listen(Arc::clone(self), added_to));
        state.listener = Some(Listener { added, task });
    }

    /// Starts a new listener if the runtime of the previous listener has ended.
    fn restart_listener(self: &Arc<Self>) {
        let mut state = self.lock_state();
        if state.listener.as_ref().is_none_or(|listener| listener.added.is_closed()) {
            self.ensure_listener(&mut state);
        }
    }

    fn lock_state(&self) -> MutexGuard<'_, FollowerState> {
        lock_ignoring_poison(&self.state)
    }

    /// Checks that the server still accepts writes. A server that does not accept writes also sends
    /// no notifications, even while the connection stays open.
    async fn check(&self, client: &Client) -> Result<(), PostgresError> {
        let checked = timeout(ANSWER_TIMEOUT, ensure_writable(client)).await;
        match checked.unwrap_or_else(|_| Err(PostgresError::no_answer(ANSWER_TIMEOUT))) {
            Err(error) if error.kind() == PostgresErrorKind::ReadOnly => {
                match self.connector.wants_writable() {
                    true => Err(error),
                    false => Ok(()),
                }
            }
            checked => checked,
        }
    }

    /// Reads the versions of the followed sessions whose keys are unknown.
    async fn read_unknown(&self, client: &Client) -> Result<(), PostgresError> {
        let ids: Vec<String> = {
            let state = self.lock_state();
            let unknown = state.by_id.iter().filter(|(_, followed)| followed.key.is_none());
            unknown.map(|(id, _)| id.clone()).collect()
        };
        if ids.is_empty() {
            return Ok(());
        }
        let id_bytes: Vec<&[u8]> = ids.iter().map(String::as_bytes).collect();
        let reading = async { client.query(&self.followed, &[&id_bytes]).await };
        let rows = timeout(ANSWER_TIMEOUT, reading).await;
        let rows = rows.map_err(|_| PostgresError::no_answer(ANSWER_TIMEOUT))??;
        let mut found = HashMap::new();
        for row in rows {
            let (id, key, version): (Vec<u8>, i64, i64) =
                (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
            found.insert(
                id,
                WriteNotification { key, version: u64::try_from(version).unwrap_or(0) },
            );
        }
        let mut state = self.lock_state();
        for id in ids {
            let FollowerState { by_id, ids_by_key, .. } = &mut *state;
            let Some(followed) = by_id.get_mut(&id) else { continue };
            let written = found.get(id.as_bytes());
            followed.key = written.map(|written| written.key);
            followed.set_version(written.map_or(0, |written| written.version));
            ids_by_key.extend(followed.key.map(|key| (key, id)));
        }
        Ok(())
    }
}

impl FollowerState {
    /// Forgets the keys of all sessions, because notifications may have been missed while no
    /// connection was listening.
    fn forget_keys(&mut self) {
        self.ids_by_key.clear();
        self.by_id.values_mut().for_each(|followed| followed.key = None);
    }

    /// Sends a session's new version to the session's followers. Returns whether the key in the
    /// notification is unknown, in which case the key may belong to a followed session whose key
    /// has not been read yet.
    fn on_written(&mut self, WriteNotification { key, version }: WriteNotification) -> bool {
        let Some(followed) = self.ids_by_key.get(&key).and_then(|id| self.by_id.get_mut(id)) else {
            return true;
        };
        if version == 0 {
            // The session was deleted. If the id is reused, the new session has a different key.
            followed.key = None;
            self.ids_by_key.remove(&key);
            followed.set_version(0);
        } else if followed.version.borrow().is_none_or(|last| version > last) {
            followed.set_version(version);
        }
        false
    }
}

impl Followed {
    fn set_version(&self, version: u64) {
        self.version.send_if_modified(|last| last.replace(version) != Some(version));
    }
}

impl Follower {
    async fn next(&mut self) -> Option<u64> {
        loop {
            let version = *self.versions.borrow_and_update();
            if version.is_some() && version != self.last {
                self.last = version;
                return version;
            }
            let ends = self.listener_ends.changed();
            match select(pin!(self.versions.changed()), pin!(ends)).await {
                Either::Left((changed, _)) => changed.ok()?,
                Either::Right(_) => self.followers.restart_listener(),
            }
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let mut state = self.followers.lock_state();
        let others = state.by_id.get(&self.id).map_or(0, |it| it.version.receiver_count());
        // The receiver count includes the receiver of this follower, which is being dropped.
        if others > 1 {
            return;
        }
        if let Some(key) = state.by_id.remove(&self.id).and_then(|followed| followed.key) {
            state.ids_by_key.remove(&key);
        }
        if state.by_id.is_empty() {
            state.listener = None;
        }
    }
}

impl Drop for ListenerEnd {
    fn drop(&mut self) {
        self.0.send_replace(());
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Listens until the task is aborted, and opens a new connection whenever a connection is lost.
async fn listen(followers: Arc<Followers>, mut added: Added) {
    let mut pause = FIRST_PAUSE;
    loop {
        // Connection errors are ignored, because followers cannot act on them.
        if let Ok((client, notifications)) = connect(&followers).await {
            pause = FIRST_PAUSE;
            let _ = pass_on(&followers, &client, notifications, &mut added.received).await;
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

async fn connect(
    followers: &Followers,
) -> Result<(Client, mpsc::UnboundedReceiver<WriteNotification>), PostgresError> {
    let (sender, notifications) = mpsc::unbounded();
    let on_message = move |message| {
        if let Some(written) = parse_message(&message) {
            let _ = sender.unbounded_send(written);
        }
    };
    let (client, _) = followers.connector.connect(on_message, ANSWER_TIMEOUT).await?;
    client.batch_execute(&followers.listen).await?;
    Ok((client, notifications))
}

/// Processes notifications until the connection ends.
async fn pass_on(
    followers: &Followers,
    client: &Client,
    mut notifications: mpsc::UnboundedReceiver<WriteNotification>,
    added: &mut mpsc::UnboundedReceiver<()>,
) -> Result<(), PostgresError> {
    // The versions are read after `LISTEN`, so that no intervening write is missed.
    followers.lock_state().forget_keys();
    followers.read_unknown(client).await?;
    loop {
        let next = select(notifications.next(), added.next());
        let mut reads = match timeout(CHECK_INTERVAL, next).await {
            Ok(Either::Left((Some(written), _))) => followers.lock_state().on_written(written),
            Ok(Either::Left((None, _)) | Either::Right((None, _))) => return Ok(()),
            Ok(Either::Right((Some(()), _))) => true,
            Err(_) => {
                followers.check(client).await?;
                continue;
            }
        };
        // Process the queued notifications first, so that at most one read is needed for all of the
        // notifications together.
        while let Ok(written) = notifications.try_recv() {
            reads |= followers.lock_state().on_written(written);
        }
        while added.try_recv().is_ok() {}
        if reads {
            followers.read_unknown(client).await?;
        }
    }
}

fn parse_message(message: &AsyncMessage) -> Option<WriteNotification> {
    let AsyncMessage::Notification(notification) = message else { return None };
    let (key, version) = notification.payload().split_once(' ')?;
    Some(WriteNotification { key: key.parse().ok()?, version: version.parse().ok()? })
}
