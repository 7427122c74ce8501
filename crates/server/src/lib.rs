//! Serves [turnstream]'s agents over HTTP: as a chat back end for pages and apps ([`ChatServer`]),
//! and as models that any client of OpenAI, Anthropic, Gemini or Ollama can call
//! ([`AgentServer`]).
//!
//! ```no_run
//! use std::time::Duration;
//! use turnstream::Agent;
//! use turnstream::provider::Scripted;
//! use turnstream_server::{
//!     AgentServer, ChatServer, ConnectionLimits, listen, serve, stop_signal,
//! };
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> std::io::Result<()> {
//!     let agent = Agent::new(Scripted::new(["Hello!"]));
//!     let models = AgentServer::new().with_model("assistant", agent.clone());
//!     let chat = ChatServer::new(agent);
//!     let router = chat.router().nest("/models", models.router());
//!     let listener = listen(([127, 0, 0, 1], 8080).into())?;
//!     let stop = async {
//!         stop_signal().await;
//!         chat.shut_down(Duration::from_secs(10)).await;
//!     };
//!     serve(listener, router, ConnectionLimits::default(), stop).await;
//!     Ok(())
//! }
//! ```
//!
//! [`ChatServer::serve`] is shorter for a chat server alone. It also resumes lost runs, and ends at
//! a second signal. In this program, the wait of [`ChatServer::shut_down`] is for the chats only:
//! the models accept requests meanwhile, and their answers are cut off
//! [`close_timeout`](ConnectionLimits::close_timeout) after it.
//!
//! # Chats
//!
//! [`ChatServer`] lists its routes. A session is stored in any
//! [`Store`](turnstream::session::Store), and its runs are performed by a
//! [`Hub`](turnstream::hub::Hub), so that they outlive their readers, and can be resumed in other
//! processes. The server limits [what each principal does](ChatLimits).
//!
//! - **Who may call.** [`Authorize`] is asked for every route, also for those of the
//!   [app](ChatServer::with_routes). A session belongs to the principal that has started it. Its
//!   id, presented by another principal, names a new, empty session of that principal: a command
//!   is refused with the status 404, as for any unknown id.
//! - **Beyond a limit** of the principal, such as its [number of runs](Principal::with_max_runs),
//!   the status is 429, in the form of the route's protocol.
//! - **The list of sessions** is read for one request of each principal at a time, and for at most
//!   eight principals. Other requests wait. After 30 seconds, the status is 503.
//! - **Verdicts** answer one request for approval each. One that is sent again, or for a call with
//!   other arguments, is refused with the status 409.
//! - **Bodies** must have the content type `application/json`, which no form of another site
//!   sends, and at most [`max_bytes`](turnstream::ui::ClientLimits::max_bytes). A server of either
//!   kind holds at most 64 MiB of the bodies of each principal at the same time, beyond which the
//!   status is 429, and at most 512 MiB of all bodies, beyond which it is 503.
//! - **Messages of errors** of models, tools and the store are hidden in all responses, unless they
//!   are [shown](ChatServer::with_error_texts).
//! - **A repeated request** with the same `idempotency-key` starts no second run. The process that
//!   has received the first one refuses the key with another message; another process does not
//!   compare the messages.
//! - **A fork** reads the entries of its origin, which may be a fork itself. After 100 forks in a
//!   row, the next one is refused with the status 409. The
//!   [rate](ChatLimits::max_starts_per_minute) of forks is limited.
//! - **At the end**, [`ChatServer::shut_down`] interrupts the runs, stores the parts of their
//!   turns, and sends each reader an event that says so.
//!
//! # Models
//!
//! A client uses `http://127.0.0.1:8080/models/v1` of the program above as its base address and
//! `assistant` as its model. The routes of all wires are listed at [`AgentServer`].
//!
//! ## What a client sees
//!
//! - **One turn.** All turns of the agent's run are one answer. The texts of several turns are
//!   separated by an empty line. If the client asks for a format, such as a JSON schema, it
//!   receives only the text of the last turn, at the end.
//! - **Text that is taken back.** If a turn is retracted, or a validation or a stop hook rejects
//!   it, the part that a stream has already sent stays, and the new turn follows it. A response
//!   that is not streamed never contains such text. Do not stream an agent whose validations must
//!   keep text from its clients.
//! - **The agent's own calls are hidden**, or shown as reasoning
//!   ([`with_shown_work`](AgentServer::with_shown_work)). They are never calls of the client.
//! - **Calls that need approval are denied**, because no one can approve them here.
//! - **Errors** have the form of the wire. Their texts name the kind of the error, but do not
//!   contain the messages of models and tools. If a tool has started before the agent failed, the
//!   response has the header `x-should-retry: false`, because the vendors' clients repeat failed
//!   requests.
//! - A client that closes its connection drops the run, unless runs are
//!   [detached](AgentServer::with_detached_runs).
//!
//! ## What a client can send
//!
//! - **Messages.** The client's messages are the history. Nothing is kept between two requests,
//!   and the field `user` does not select a session. With Responses, `previous_response_id`
//!   continues a kept response. The server keeps the last 200 responses of each
//!   [principal](Principal) in memory, up to 64 MiB, and at most 10,000 and 512 MiB in all. It
//!   gives each only to the principal and the model for which it was made. References to items of
//!   kept responses are replaced by the items.
//! - **System and developer messages** follow the agent's own instructions.
//! - **Tools** of the client are [external](turnstream::Tool::external): when the model calls one,
//!   the answer ends with the call, and the next request contains the result. A name that a tool of
//!   the agent has is refused with the status 400.
//! - **Calls of other tools** in the client's messages, and their results, become plain text. A
//!   client therefore cannot pretend that a tool of the agent has run. In stateless requests, the
//!   agent does not remember its own calls; with `previous_response_id`, it does.
//! - **Options** such as the temperature, the maximum number of tokens, the format of the answer
//!   and the tool choice replace the agent's own, for each turn. If the agent's model does not
//!   support one, the request fails with the status 400. The smaller maximum of tokens holds, and
//!   an answer that reaches the client's is not continued. A tool choice concerns the client's
//!   tools only. The agent decides how it reasons, so the client's settings for reasoning, caching
//!   and service tiers have no effect. All other fields that would change the answer, such as `n`
//!   or `logprobs`, are refused with the status 400.
//! - **Counts of tokens** are estimates: a quarter of the request's bytes.
//!
//! ## Who may call
//!
//! The server never decides who a user is. [`with_authorize`](AgentServer::with_authorize) sets the
//! function that is asked for every request, and returns a [`Principal`] with its limits. Without
//! one, the server accepts only requests to the host names of this machine, and none from pages of
//! other sites.
//!
//! The same function decides whether a run continues the client's
//! [trace](Principal::with_trace_parent).
//!
//! # Features
//!
//! | feature | default | what it adds |
//! |---|---|---|
//! | `serve` | yes | [`serve`], [`listen`], [`stop_signal`]: an HTTP server with limits on connections |

#![cfg_attr(docsrs, feature(doc_cfg))]

mod access;
mod agent_server;
mod answer;
mod answer_body;
mod authorize;
mod body;
mod call_ids;
mod chat;
mod conversation;
mod failure;
mod fields;
mod model_request;
#[cfg(feature = "serve")]
mod serve;
mod slots;
mod static_files;
mod stored_responses;
mod token_login;
mod wires;
#[cfg(feature = "serve")]
mod write_timeout;

pub use access::AllowedSites;
pub use agent_server::AgentServer;
pub use authorize::{Authorize, Principal, presented_key, presented_trace};
#[cfg(feature = "serve")]
pub use chat::ServeEnd;
pub use chat::{Busy, ChatLimits, ChatServer};
#[cfg(feature = "serve")]
pub use serve::{ConnectionLimits, listen, serve, stop_signal};
pub use static_files::static_files;
pub use token_login::TokenLogin;

/// The README's examples, compiled as tests.
#[cfg(all(doctest, feature = "serve"))]
#[doc = include_str!("../README.md")]
struct Readme;
