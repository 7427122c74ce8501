//! The client through which a program uses its sessions.

use std::fmt;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use http::{StatusCode, Uri};
use restate_sdk::ingress::{CallResponse, ClientError, Output, ReqwestClient, SendResponse};
use restate_sdk::prelude::Json;
use turnstream::agent::{Input, InputReceipt};
use turnstream::durable::StoredCommand;
use turnstream::durable::storage::{CommandQueue, SessionStatus};
use turnstream::env::{Ids, SystemIds};
use turnstream::hub::{Command, Hub};
use turnstream::item::PendingCall;
use turnstream::session::{Entry, SessionInfo, Store};
use turnstream::tool::Verdict;
use turnstream::{Error, ErrorKind, Outcome};

use crate::errors::from_terminal;
use crate::inbox::InboxIngressClient;
use crate::messages::{MAX_ID_BYTES, message, take_page};
use crate::session::{ImportRequest, ResumeRequest, RunRequest, SessionIngressClient};

/// The time limit for opening a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// The time limit for a request, from the connection to the end of the answer.
const REQUEST_LIMIT: Duration = Duration::from_mins(1);

/// Starts runs and manages sessions through Restate's ingress. Clones share the same connections.
///
/// Each request has a time limit of one minute, and connecting takes at most ten seconds. Methods
/// that wait for a run, such as [`outcome`](Self::outcome), wait as long as the server answers that
/// the run has not ended. While no worker can be reached, Restate keeps the requests.
/// [`history`](Self::history), [`status`](Self::status) and [`queued`](Self::queued) also fail
/// after eight attempts.
///
/// All methods that send a request return a [`Connect`](ErrorKind::Connect) error if Restate cannot
/// be reached, and a [`Timeout`](ErrorKind::Timeout) error if a request exceeds its time limit.
/// After such an error, a request that starts a run or changes a session may or may not have taken
/// effect. All methods return an [`InvalidRequest`](ErrorKind::InvalidRequest) error if the given
/// id of a session or run is empty, and a [`TooLarge`](ErrorKind::TooLarge) error, without sending
/// anything, if an id or an agent's name is longer than 1 KiB, or if a run's input, a command, a
/// verdict or an entry exceeds 24 MiB. The docs of the methods list further errors.
///
/// Dropping the future of a method does not cancel a request that was already sent: Restate
/// executes the request, and a run that has started continues. Whether the request was sent is then
/// unknown, as after a `Connect` error, and an [`import`](Self::import) may be incomplete.
#[derive(Clone)]
pub struct Client {
    ingress: ReqwestClient,
    url: String,
    hub: Option<Hub>,
}

impl Client {
    /// Creates a client for the ingress at this URL, for example `http://127.0.0.1:8080`.
    ///
    /// # Errors
    ///
    /// Returns an [`InvalidRequest`](ErrorKind::InvalidRequest) error if `url` is not a URL.
    pub fn new(url: &str) -> Result<Self, Error> {
        let invalid = |error: String| {
            Error::new(
                ErrorKind::InvalidRequest,
                format!("`{url}` is not a valid URL for Restate: {error}"),
            )
        };
        let uri: Uri =
            url.parse().map_err(|error: http::uri::InvalidUri| invalid(error.to_string()))?;
        let http = reqwest::Client::builder().connect_timeout(CONNECT_LIMIT).timeout(REQUEST_LIMIT);
        let http = http.build().map_err(|error| invalid(error.to_string()))?;
        let ingress = ReqwestClient::new(uri, http).map_err(|error| invalid(error.to_string()))?;
        Ok(Self { ingress, url: url.to_owned(), hub: None })
    }

    /// Also sends interrupts through this hub, so that an interrupt ends the current step
    /// immediately.
    pub fn with_hub(mut self, hub: &Hub) -> Self {
        self.hub = Some(hub.clone());
        self
    }

    /// Runs one of the workers' agents on new input, and waits until the run has ended. If another
    /// run of the session is active, the new run starts after it.
    ///
    /// If the returned future is dropped, the workers continue the run. To end the run, call
    /// [`interrupt`](Self::interrupt).
    ///
    /// # Errors
    ///
    /// Returns the errors from [`Attempt::drive`](turnstream::durable::Attempt::drive), and an
    /// [`Unsupported`](ErrorKind::Unsupported) error if the worker does not have the agent. Returns
    /// a [`TooLarge`](ErrorKind::TooLarge) error if the outcome exceeds 24 MiB; the session
    /// contains the run's items.
    pub async fn run(
        &self,
        session: &str,
        agent: &str,
        input: impl Into<Input>,
    ) -> Result<Outcome, Error> {
        let run = self.start(session, agent, input, &SystemIds.next_id()).await?;
        self.outcome(&run).await
    }

    /// Starts a run, and returns its id without waiting for the run to end. If a request for the
    /// session is sent again with the same `request_id` within a day, no other run starts, and the
    /// first run's id is returned.
    ///
    /// # Errors
    ///
    /// Returns the [common errors](Self). After a [`Connect`](ErrorKind::Connect) or
    /// [`Timeout`](ErrorKind::Timeout) error, the run may or may not have started; send the request
    /// again with the same `request_id`.
    pub async fn start(
        &self,
        session: &str,
        agent: &str,
        input: impl Into<Input>,
        request_id: &str,
    ) -> Result<String, Error> {
        ensure_short("the id of a request", request_id)?;
        ensure_short("the name of an agent", agent)?;
        let request = RunRequest { agent: agent.to_owned(), input: input.into().0 };
        let (session, request) = (self.session(session)?, message("the input", request)?);
        run_id(session.run(request).idempotency_key(header(request_id)).send().await)
    }

    /// Starts a run that continues the session's pending calls or its unfinished run. Each pending
    /// call needs a verdict. Returns the new run's id.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`start`](Self::start). If a verdict does not answer the request
    /// of a pending call, the run ends with a [`Conflict`](ErrorKind::Conflict) error without
    /// running anything; see [`Session::resume`](turnstream::session::Session::resume).
    pub async fn resume(
        &self,
        session: &str,
        agent: &str,
        verdicts: impl IntoIterator<Item = (PendingCall, Verdict)>,
        request_id: &str,
    ) -> Result<String, Error> {
        ensure_short("the id of a request", request_id)?;
        ensure_short("the name of an agent", agent)?;
        let verdicts = verdicts.into_iter().collect();
        let request = ResumeRequest { agent: agent.to_owned(), verdicts };
        let (session, request) = (self.session(session)?, message("the verdicts", request)?);
        run_id(session.resume(request).idempotency_key(header(request_id)).send().await)
    }

    /// Waits until a run has ended, and returns its outcome.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`run`](Self::run). Also returns an
    /// [`InvalidRequest`](ErrorKind::InvalidRequest) error if Restate does not know the run.
    /// Restate keeps outcomes for a day.
    pub async fn outcome(&self, run: &str) -> Result<Outcome, Error> {
        ensure_id("a run", run)?;
        let unknown = |error: &ClientError| {
            error.response().is_some_and(|response| response.status() == StatusCode::NOT_FOUND)
        };
        let outcome =
            self.wait::<Json<Outcome>>(run).await.map_err(|error| match unknown(&error) {
                true => Error::new(ErrorKind::InvalidRequest, format!("no run `{run}` is known")),
                false => from_client(error),
            });
        Ok(outcome?.into_inner())
    }

    /// Waits until an invocation has ended, and returns its output. A request that waits for the
    /// invocation is repeated after its time limit, provided that the server still answers.
    async fn wait<T: restate_sdk::serde::Deserialize>(
        &self,
        invocation: &str,
    ) -> Result<T, ClientError> {
        let handle = self.ingress.invocation_handle::<T>(invocation);
        loop {
            match handle.attach().await {
                Err(error) if has_timed_out(&error) => match handle.output().await?.into_body() {
                    Output::Ready(output) => return Ok(output),
                    Output::NotReady => {}
                },
                attached => return Ok(attached?.into_body()),
            }
        }
    }

    /// Waits for the output of an invocation that has been sent.
    async fn output<T: restate_sdk::serde::Deserialize>(
        &self,
        sent: Result<SendResponse<reqwest::Client, T>, ClientError>,
    ) -> Result<T, Error> {
        let handle = sent.map_err(from_client)?.invocation_handle();
        self.wait(handle.invocation_id()).await.map_err(from_client)
    }

    /// Adds a verdict on a pending call. `call` must be one of the calls in the run's
    /// [outcome](Outcome::pending) or in the session's [status](SessionStatus::pending_calls). An
    /// approval holds only for this request for a verdict, these arguments and this definition of
    /// the tool. A denial or a result may leave the [approval id](PendingCall::approval_id) empty.
    /// Once all pending calls have a verdict, a run resumes the calls, and this method returns the
    /// run's id. The same verdict may be sent more than once, until other calls are pending.
    ///
    /// If a run is active, this method waits until the run has ended. If an active
    /// [interactive](turnstream::Agent::interactive) run is waiting for the verdict,
    /// [`send`](Self::send) a [`Command::Verdict`] rather than calling this method.
    ///
    /// # Errors
    ///
    /// Returns a [`Conflict`](ErrorKind::Conflict) error if the verdict does not answer the request
    /// of a pending call, or if the call already has a different verdict. Returns an
    /// [`Unsupported`](ErrorKind::Unsupported) error if the worker does not have the agent. If the
    /// worker's tool has changed since the request, the run that resumes the calls ends with a
    /// `Conflict` error without running anything, and the calls stay pending.
    pub async fn judge(
        &self,
        session: &str,
        agent: &str,
        call: PendingCall,
        verdict: Verdict,
    ) -> Result<Option<String>, Error> {
        ensure_short("the name of an agent", agent)?;
        let verdicts = [(call, verdict)].into_iter().collect();
        let request = ResumeRequest { agent: agent.to_owned(), verdicts };
        let judge = self.session(session)?.judge(message("the verdict", request)?);
        let sent = judge.idempotency_key(SystemIds.next_id()).send().await;
        self.output(sent).await.map(Json::into_inner)
    }

    /// Sends a command to the active run. If no run is active, input and the revocation of a grant
    /// are stored for the next run.
    /// The receipt confirms that the command has been stored. The
    /// [`Appended`](turnstream::Event::Appended) event with the receipt's id reports that the input
    /// has been delivered. If a command with the same `id` is sent to the session again within a
    /// day, it is stored only once.
    ///
    /// A [`Command::Verdict`] is used only by an [interactive](turnstream::Agent::interactive) run,
    /// and only if it answers the request of a call that the run
    /// [awaits](SessionStatus::awaited_calls). The run discards any other verdict, although its
    /// receipt confirms that it was stored.
    ///
    /// # Errors
    ///
    /// Returns an [`InvalidRequest`](ErrorKind::InvalidRequest) error, with
    /// [`NotRunning`](turnstream::hub::NotRunning) as its source, if no run is active and the
    /// command is neither input nor the revocation of a grant. Returns a
    /// [`TooLarge`](ErrorKind::TooLarge) error if the JSON of all commands that wait for a run, or
    /// that the active run has not delivered to the model yet, would exceed 8 MiB. Such a command
    /// is not stored; it can be sent again later.
    pub async fn send(
        &self,
        session: &str,
        id: &str,
        command: Command,
    ) -> Result<InputReceipt, Error> {
        ensure_short("the id of a command", id)?;
        let interrupt = match &command {
            Command::Interrupt
            | Command::InterruptWithReason(_)
            | Command::InterruptTurn
            | Command::InterruptTurnFor { .. } => Some(command.clone()),
            _ => None,
        };
        let stored = StoredCommand { id: id.to_owned(), command };
        let inbox = self.inbox(session)?;
        // Restate scopes idempotency keys to a single object, so equal ids in two sessions do not
        // collide.
        let pushed =
            inbox.push(message("the command", stored)?).idempotency_key(header(id)).call().await;
        body(pushed)?;
        if let (Some(interrupt), Some(hub)) = (interrupt, &self.hub)
            && let Ok(Some(run)) = hub.find_run(session).await
        {
            // The command has already been stored. Sending it through the hub as well only avoids
            // waiting for the current step to end.
            let _ = hub.send_with_id(&run, id.to_owned(), interrupt).await;
        }
        Ok(InputReceipt { id: id.to_owned() })
    }

    /// Adds input before the next model request in the active run, or, if no run is active, in the
    /// next run; see [`send`](Self::send).
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`send`](Self::send).
    pub async fn steer(
        &self,
        session: &str,
        input: impl Into<Input>,
    ) -> Result<InputReceipt, Error> {
        self.send(session, &SystemIds.next_id(), Command::Steer(input.into().0)).await
    }

    /// Interrupts the active run. The part of the current turn that has already arrived is kept. To
    /// state a reason, [send](Self::send) [`Command::InterruptWithReason`].
    ///
    /// If the client and the worker share a [hub](Self::with_hub), the current step ends
    /// immediately. Otherwise, the run ends after the current step. Calls that are executed
    /// separately from the run are cancelled: their workers drop the tools, the calls get
    /// interrupted results, and the run ends once no call is running anymore. A tool that has been
    /// running for more than 14 minutes is dropped only if its worker has a hub.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`send`](Self::send).
    pub async fn interrupt(&self, session: &str) -> Result<(), Error> {
        self.send(session, &SystemIds.next_id(), Command::Interrupt).await.map(drop)
    }

    /// Returns a session's entries, starting with the entry at index `from`.
    ///
    /// # Errors
    ///
    /// Returns an error if the workers fail to read the session in eight attempts.
    pub async fn history(&self, session: &str, from: u64) -> Result<Vec<Entry>, Error> {
        let mut entries = Vec::new();
        loop {
            let next = from.saturating_add(entries.len() as u64);
            let page = body(self.session(session)?.history(Json(next)).call().await)?.into_inner();
            entries.extend(page.entries);
            if page.is_last {
                return Ok(entries);
            }
        }
    }

    /// Returns a session's status, including the calls that need a verdict. If a run is active,
    /// [`send`](Self::send) it the verdicts. Otherwise, pass them to [`judge`](Self::judge).
    ///
    /// If an operator has killed a run, the status still lists the run and the calls that it
    /// awaited until the next run or verdict.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`history`](Self::history).
    pub async fn status(&self, session: &str) -> Result<SessionStatus, Error> {
        body(self.session(session)?.status().call().await).map(Json::into_inner)
    }

    /// Returns the commands that are waiting for one of a session's runs.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`history`](Self::history).
    pub async fn queued(&self, session: &str) -> Result<CommandQueue, Error> {
        body(self.inbox(session)?.queued().call().await).map(Json::into_inner)
    }

    /// Imports entries into an empty session, for example the entries of a session in a store.
    /// Entries of more than 8 MiB are sent in several requests. If one of these requests fails,
    /// [remove](Self::remove) the session before you repeat the import.
    ///
    /// Pending calls keep their approval ids, so a verdict on a call of the original session also
    /// holds for the imported one. To copy a session rather than move it, import the entries of a
    /// [fork](turnstream::session::Session::fork_at), whose pending calls have other ids.
    ///
    /// # Errors
    ///
    /// Returns a [`Conflict`](ErrorKind::Conflict) error if the session already has entries, or if
    /// it is changed between two of the requests.
    pub async fn import(&self, session: &str, mut entries: Vec<Entry>) -> Result<(), Error> {
        let (session, mut requests, mut at) = (self.session(session)?, Vec::new(), 0);
        loop {
            let page = take_page(&mut entries);
            let next = at + page.len() as u64;
            requests.push(message("an entry", ImportRequest { at, entries: page })?);
            if entries.is_empty() {
                break;
            }
            at = next;
        }
        for request in requests {
            let import = session.import(request).idempotency_key(SystemIds.next_id());
            self.output(import.send().await).await?;
        }
        Ok(())
    }

    /// Removes a session and the commands that are waiting for its next run, including input. If a
    /// run is active, this method first waits until the run has ended.
    ///
    /// # Errors
    ///
    /// Returns the [common errors](Self).
    pub async fn remove(&self, session: &str) -> Result<(), Error> {
        let delete = self.session(session)?.delete().idempotency_key(SystemIds.next_id());
        self.output(delete.send().await).await
    }

    fn session(&self, id: &str) -> Result<SessionIngressClient<reqwest::Client>, Error> {
        ensure_id("a session", id)?;
        Ok(SessionIngressClient::from_client(self.ingress.clone(), id))
    }

    fn inbox(&self, id: &str) -> Result<InboxIngressClient<reqwest::Client>, Error> {
        ensure_id("a session", id)?;
        Ok(InboxIngressClient::from_client(self.ingress.clone(), id))
    }
}

/// Lets code that takes a [`Store`], such as a hub's reader, read the sessions on Restate. This
/// store cannot write or list sessions. To start runs, use the methods of [`Client`]. To list
/// sessions, keep copies in another store with [`Worker::with_copy`](crate::Worker::with_copy).
impl Store for Client {
    fn append<'a>(
        &'a self,
        _id: &'a str,
        _expected: u64,
        _entries: Vec<Entry>,
    ) -> BoxFuture<'a, Result<u64, Error>> {
        read_only()
    }

    fn load<'a>(
        &'a self,
        id: &'a str,
        from: u64,
    ) -> BoxFuture<'a, Result<Option<Vec<Entry>>, Error>> {
        async move {
            let entries = self.history(id, from).await?;
            // Restate does not distinguish between an object without state and an object that does
            // not exist.
            let is_there = !entries.is_empty() || self.status(id).await?.version > 0;
            Ok(is_there.then_some(entries))
        }
        .boxed()
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<SessionInfo>, Error>> {
        read_only()
    }

    fn fork<'a>(
        &'a self,
        _id: &'a str,
        _at: u64,
        _new: &'a str,
    ) -> BoxFuture<'a, Result<(), Error>> {
        read_only()
    }
}

fn read_only<'a, T: Send + 'a>() -> BoxFuture<'a, Result<T, Error>> {
    let message = "sessions in Restate cannot be written or listed through this store";
    ready(Err(Error::new(ErrorKind::Unsupported, message))).boxed()
}

fn ensure_id(what: &str, id: &str) -> Result<(), Error> {
    match id.is_empty() {
        false => ensure_short(&format!("the id of {what}"), id),
        true => Err(Error::new(ErrorKind::InvalidRequest, format!("the id of {what} is empty"))),
    }
}

fn ensure_short(what: &str, id: &str) -> Result<(), Error> {
    if id.len() <= MAX_ID_BYTES {
        return Ok(());
    }
    let message = format!("{what} has {} bytes, at most {MAX_ID_BYTES} are allowed", id.len());
    Err(Error::new(ErrorKind::TooLarge, message))
}

/// Encodes an id in ASCII, for use as a header value.
fn header(id: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b'%';
    let encoded = id.bytes().map(|byte| match is_plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    });
    encoded.collect()
}

type SentRun = SendResponse<reqwest::Client, Json<Outcome>>;

/// Returns the id of a run that was sent to Restate.
fn run_id(sent: Result<SentRun, ClientError>) -> Result<String, Error> {
    Ok(sent.map_err(from_client)?.invocation_handle().invocation_id().clone())
}

fn body<T>(answer: Result<CallResponse<reqwest::Client, T>, ClientError>) -> Result<T, Error>
where
    T: restate_sdk::serde::Deserialize,
{
    answer.and_then(CallResponse::into_body).map_err(from_client)
}

/// The body of an error response from the ingress.
#[derive(serde::Deserialize)]
struct ErrorAnswer {
    message: String,
}

/// Returns whether the server was reached, but has not answered within [`REQUEST_LIMIT`].
fn has_timed_out(error: &ClientError) -> bool {
    let ClientError::Transport { source } = error else { return false };
    let error = source.downcast_ref::<reqwest::Error>();
    error.is_some_and(|error| error.is_timeout() && !error.is_connect())
}

fn from_client(error: ClientError) -> Error {
    let Some(response) = error.response() else {
        let (kind, what) = match &error {
            error if has_timed_out(error) => (ErrorKind::Timeout, "Restate does not answer"),
            ClientError::Transport { .. } => (ErrorKind::Connect, "Restate cannot be reached"),
            _ => (ErrorKind::InvalidRequest, "the request cannot be sent"),
        };
        return Error::new(kind, format!("{what}: {error}")).with_source(error);
    };
    let message = match serde_json::from_slice::<ErrorAnswer>(response.body()) {
        Ok(answer) => answer.message,
        Err(_) => String::from_utf8_lossy(response.body()).into_owned(),
    };
    from_terminal(response.status().as_u16(), &message)
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("url", &self.url).finish_non_exhaustive()
    }
}
