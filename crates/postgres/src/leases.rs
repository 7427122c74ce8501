//! The connection that holds a process's leases.
use std::collections::HashSet;
use std::convert::Infallible;
use std::future::poll_fn;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::Poll;
use std::time::Duration;

use futures::channel::{mpsc, oneshot};
use futures::future::{BoxFuture, Either, Shared, select};
use futures::{FutureExt, StreamExt};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};
use tokio_postgres::Client;
use turnstream::Error;
use turnstream::session::{AlreadyLeased, Lease, LeaseLost};

use crate::connector::Connector;
use crate::database::{Database, ensure_writable};
use crate::error::{PostgresError, PostgresErrorKind};
use crate::lock::lock_ignoring_poison;
use crate::session_tables::AppendLease;
use crate::statements::Statements;

/// The maximum time to wait for the connection to open, even if the lease time is longer.
const LONGEST_CONNECT: Duration = Duration::from_secs(30);

/// Manages a store's leases. A lease is an advisory lock on the server, which is released when the
/// connection that holds the lock ends. A single connection holds the locks for all sessions that
/// this process runs. A connection can acquire an advisory lock that it already holds, so an
/// in-memory table prevents two runs of a session within the process.
pub(crate) struct Leases {
    connector: Connector,
    lease_time: Duration,
    statements: Arc<LeaseStatements>,
    connection: tokio::sync::Mutex<Option<Arc<LeaseConnection>>>,
    taken: Arc<Mutex<HashSet<String>>>,
}

struct LeaseStatements {
    take: String,
    give_back: String,
    unlock: String,
}

/// The connection that holds the locks on the server. All leases that use the connection share one
/// `LeaseConnection`.
struct LeaseConnection {
    commands: mpsc::UnboundedSender<Command>,
    health: Arc<Health>,
    /// A future that completes when the connection is lost.
    gone: Shared<BoxFuture<'static, ()>>,
}

/// Tracks whether a connection still holds its locks.
struct Health {
    lease_time: Duration,
    is_gone: AtomicBool,
    /// The time at which the last confirmed statement was sent. The server's timeout starts after
    /// this time.
    confirmed_at: Mutex<Instant>,
}

enum Command {
    Take { id: String, answer: oneshot::Sender<Taken> },
    GiveBack { id: String, epoch: u64 },
}

/// The result of trying to acquire a lease. `None` if another process holds the lease.
type Taken = Result<Option<ServerLock>, PostgresError>;

/// A session's entry in the table of leases that this process holds. Dropping this value removes
/// the entry.
struct TakenSlot {
    taken: Arc<Mutex<HashSet<String>>>,
    id: String,
}

/// The value that a [`Lease`] keeps until it is dropped. Fields are dropped in declaration order.
/// Therefore, the unlock command is queued before `slot` is freed, and the command for the
/// session's next lock is queued after the unlock command.
struct LeaseHold {
    lock: ServerLock,
    slot: TakenSlot,
}

/// The lease under which entries are appended.
pub(crate) struct LeaseOwner<'a> {
    leases: &'a Leases,
    lease: &'a Lease,
}

/// A lock on the server, which is released when this value is dropped.
struct ServerLock {
    connection: Arc<LeaseConnection>,
    id: String,
    epoch: u64,
}

impl Leases {
    pub(crate) fn new(connector: Connector, lease_time: Duration, statements: &Statements) -> Self {
        let settings = format!(
            // The first setting ends the connection of a suspended process, even though the
            // process's kernel still responds to keepalives. The second setting ends statements
            // that are waiting for a row lock, long before the leases end.
            "SET idle_session_timeout = {millis};
             SET lock_timeout = {quarter}; SET statement_timeout = {third_millis};
             SET tcp_keepalives_idle = {third}; SET tcp_keepalives_interval = {third};
             SET tcp_keepalives_count = 2; SET tcp_user_timeout = {millis}",
            millis = lease_time.as_millis(),
            quarter = (lease_time / 4).as_millis(),
            third_millis = (lease_time / 3).as_millis(),
            // On Linux, the maximum value of these settings is 32,767.
            third = (lease_time / 3).as_secs().clamp(1, 32_767),
        );
        let statements = LeaseStatements {
            take: statements.take_lease.clone(),
            give_back: statements.give_lease_back.clone(),
            unlock: statements.unlock.clone(),
        };
        Self {
            connector: connector.with_settings(&settings),
            lease_time,
            statements: Arc::new(statements),
            connection: tokio::sync::Mutex::default(),
            taken: Arc::default(),
        }
    }

    pub(crate) fn owner<'a>(&'a self, lease: &'a Lease) -> LeaseOwner<'a> {
        LeaseOwner { leases: self, lease }
    }

    /// Acquires the lease on a session. Opens the connection first if necessary.
    pub(crate) async fn take(&self, database: &Database, id: &str) -> Result<Lease, Error> {
        let already_leased = || Err(AlreadyLeased { id: id.to_owned() }.into());
        let cannot = |error: PostgresError| error.into_store_error("cannot take the lease");
        let mut attempts = database.attempts();
        loop {
            if !lock_ignoring_poison(&self.taken).insert(id.to_owned()) {
                return already_leased();
            }
            let slot = TakenSlot { taken: Arc::clone(&self.taken), id: id.to_owned() };
            match self.lock(id).await {
                Ok(Some(lock)) => {
                    let (epoch, lost) = (lock.epoch, lock.connection.lost());
                    return Ok(Lease::new(epoch, LeaseHold { lock, slot }).with_loss(lost));
                }
                Ok(None) => return already_leased(),
                Err(error) => {
                    drop(slot);
                    attempts.after_error(error).await.map_err(cannot)?;
                }
            }
        }
    }

    /// Locks a session. If the future is dropped, the connection's task releases the lock.
    async fn lock(&self, id: &str) -> Taken {
        let connection = self.connection().await?;
        let (answer, answered) = oneshot::channel();
        // If the task has ended, the response channel is closed, too.
        let _ = connection.commands.unbounded_send(Command::Take { id: id.to_owned(), answer });
        answered.await.unwrap_or_else(|_| Err(PostgresError::no_answer(self.lease_time)))
    }

    async fn connection(&self) -> Result<Arc<LeaseConnection>, PostgresError> {
        let mut current = self.connection.lock().await;
        if let Some(connection) = current.as_ref().filter(|connection| connection.health.is_good())
        {
            return Ok(Arc::clone(connection));
        }
        *current = None;
        let connection = self.connect().await?;
        Ok(Arc::clone(current.insert(connection)))
    }

    async fn connect(&self) -> Result<Arc<LeaseConnection>, PostgresError> {
        let (commands, received) = mpsc::unbounded();
        let sent_at = Instant::now();
        let (client, task) =
            self.connector.connect(drop, self.lease_time.min(LONGEST_CONNECT)).await?;
        let health = Arc::new(Health {
            lease_time: self.lease_time,
            is_gone: AtomicBool::new(false),
            confirmed_at: Mutex::new(sent_at),
        });
        let (alive, gone) = oneshot::channel::<Infallible>();
        let connection = Arc::new(LeaseConnection {
            commands,
            health: Arc::clone(&health),
            gone: gone.map(drop).boxed().shared(),
        });
        let server = LeaseTask {
            client,
            connection: Arc::downgrade(&connection),
            statements: Arc::clone(&self.statements),
            end: EndOfConnection { health, task, _alive: alive },
        };
        tokio::spawn(server.run(received));
        Ok(connection)
    }
}

impl AppendLease for LeaseOwner<'_> {
    fn ensure_held(&self, id: &str) -> Result<u64, LeaseLost> {
        let hold = self.lease.hold::<LeaseHold>();
        // A lease from another store may have the same epoch.
        let own = hold.filter(|hold| Arc::ptr_eq(&hold.slot.taken, &self.leases.taken));
        let lock = own.map(|hold| &hold.lock);
        match lock.filter(|lock| lock.id == id && lock.connection.health.is_good()) {
            Some(lock) => Ok(lock.epoch),
            None => Err(LeaseLost { id: id.to_owned(), epoch: self.lease.epoch() }),
        }
    }
}

impl Drop for ServerLock {
    fn drop(&mut self) {
        let command = Command::GiveBack { id: mem::take(&mut self.id), epoch: self.epoch };
        // If the task has ended, the server has released the lock.
        let _ = self.connection.commands.unbounded_send(command);
    }
}

impl Drop for TakenSlot {
    fn drop(&mut self) {
        lock_ignoring_poison(&self.taken).remove(&self.id);
    }
}

impl LeaseConnection {
    /// Returns a future that completes when the connection's leases are lost. Each poll checks the
    /// clock, because the future may be polled before the connection's task if the process was
    /// suspended.
    fn lost(&self) -> impl Future<Output = ()> + Send + 'static {
        let (health, mut gone) = (Arc::clone(&self.health), self.gone.clone());
        poll_fn(move |cx| match health.is_good() {
            true => gone.poll_unpin(cx),
            false => Poll::Ready(()),
        })
    }
}

impl Health {
    fn is_good(&self) -> bool {
        !self.is_gone.load(Ordering::Acquire) && Instant::now() < self.ends_at()
    }

    /// Returns the time at which the server may end the connection, unless another statement is
    /// confirmed before then.
    fn ends_at(&self) -> Instant {
        *lock_ignoring_poison(&self.confirmed_at) + self.lease_time
    }
}

/// Marks the leases as lost when this value is dropped, which happens when the connection's task or
/// its runtime ends.
struct EndOfConnection {
    health: Arc<Health>,
    task: JoinHandle<()>,
    _alive: oneshot::Sender<Infallible>,
}

impl Drop for EndOfConnection {
    fn drop(&mut self) {
        self.health.is_gone.store(true, Ordering::Release);
        // Aborting the task ends the connection. The server detects the end and releases the locks.
        self.task.abort();
    }
}

/// Executes commands on the connection one at a time, so that a session's unlock is complete before
/// its next lock.
struct LeaseTask {
    client: Client,
    connection: Weak<LeaseConnection>,
    statements: Arc<LeaseStatements>,
    end: EndOfConnection,
}

impl LeaseTask {
    /// Runs until the connection ends, until no response arrives within the lease time, or until
    /// the last lease and the store have been dropped.
    async fn run(mut self, mut commands: mpsc::UnboundedReceiver<Command>) {
        let health = Arc::clone(&self.end.health);
        loop {
            let ends_at = health.ends_at();
            let ping_at = ends_at - health.lease_time * 2 / 3;
            let next = select(commands.next(), &mut self.end.task);
            let command = match timeout_at(ping_at, next).await {
                // The caller no longer waits. Such commands must not delay those that follow.
                Ok(Either::Left((Some(Command::Take { answer, .. }), _)))
                    if answer.is_canceled() =>
                {
                    continue;
                }
                Ok(Either::Left((Some(command), _))) => Some(command),
                Ok(Either::Left((None, _)) | Either::Right(_)) => return,
                Err(_) => None,
            };
            let sent_at = Instant::now();
            match timeout_at(ends_at, self.do_command(command)).await {
                // A confirmation that arrives too late must not revive the leases.
                Ok(Ok(())) if Instant::now() < ends_at => {
                    *lock_ignoring_poison(&health.confirmed_at) = sent_at;
                }
                Ok(_) | Err(_) => return,
            }
        }
    }

    /// Executes a command, or sends a ping if the command is `None`. An error means that the
    /// connection is lost.
    async fn do_command(&self, command: Option<Command>) -> Result<(), PostgresError> {
        match command {
            Some(Command::Take { id, answer }) => {
                let taken = self.take(&id).await;
                let is_broken = taken.as_ref().err().is_some_and(ends_leases);
                let lock = |epoch| {
                    let connection = self.connection.upgrade()?;
                    Some(ServerLock { connection, id, epoch })
                };
                if is_broken {
                    // The flag is set before the response is sent, so that a retry opens another
                    // connection.
                    self.end.health.is_gone.store(true, Ordering::Release);
                }
                // If the caller has stopped waiting for the response, the lock is dropped and
                // thereby released.
                let _ = answer.send(taken.map(|epoch| epoch.and_then(lock)));
                match is_broken {
                    true => Err(PostgresError::no_answer(Duration::ZERO)),
                    false => Ok(()),
                }
            }
            Some(Command::GiveBack { id, epoch }) => {
                let id = id.as_bytes();
                let epoch = i64::try_from(epoch).unwrap_or(i64::MAX);
                match self.client.execute(&self.statements.give_back, &[&id, &epoch]).await {
                    Ok(_) => Ok(()),
                    Err(error) => match PostgresError::from(error) {
                        error if ends_leases(&error) => Err(error),
                        // The reserved row of a session that was never written to could not be
                        // removed, so the session is only unlocked.
                        _ => self.unlock(id).await,
                    },
                }
            }
            None => match ensure_writable(&self.client).await {
                Err(error) if ends_leases(&error) => Err(error),
                // Any other error is also a response.
                Ok(()) | Err(_) => Ok(()),
            },
        }
    }

    async fn take(&self, id: &str) -> Result<Option<u64>, PostgresError> {
        let id = id.as_bytes();
        match self.client.query_opt(&self.statements.take, &[&id]).await {
            Ok(row) => {
                let epoch: Option<i64> = row.map(|row| row.try_get(0)).transpose()?;
                Ok(epoch.map(|epoch| u64::try_from(epoch).unwrap_or(0)))
            }
            Err(error) => {
                // The lock is not released at the end of the transaction that acquired it.
                self.unlock(id).await?;
                Err(error.into())
            }
        }
    }

    async fn unlock(&self, id: &[u8]) -> Result<(), PostgresError> {
        self.client.execute(&self.statements.unlock, &[&id]).await?;
        Ok(())
    }
}

/// Returns whether an error means that the connection has lost its leases. A server that has
/// stopped accepting writes still holds the locks for as long as the connection lasts. However,
/// other processes acquire their leases from the server that has replaced the read-only server.
fn ends_leases(error: &PostgresError) -> bool {
    error.leaves_outcome_open() || error.kind() == PostgresErrorKind::ReadOnly
}
