//! Limits on the data that a server may send and on its response times.

use std::time::Duration;

/// Sets how much data a server may send and how long it may take to respond.
///
/// | limit | default | if it is exceeded |
/// |---|---|---|
/// | [`message_bytes`](Self::message_bytes) | 16 MiB | the connection is closed; calls in progress fail |
/// | JSON values in a message | 200,000 | the request fails with [`TooLarge`](turnstream::ErrorKind::TooLarge) |
/// | [`tools`](Self::tools) | 1,000 | listing fails with [`TooLarge`](turnstream::ErrorKind::TooLarge) |
/// | [`pages`](Self::pages) | 100 | listing fails with `TooLarge` |
/// | [`schema_bytes`](Self::schema_bytes) | 1 MiB | listing fails with `TooLarge` |
/// | [`media_bytes`](Self::media_bytes) | 5 MiB | the image or file is replaced by its type and size |
/// | [`stderr_bytes`](Self::stderr_bytes) | 64 KiB | the oldest bytes are dropped |
/// | [`start`](Self::start) | 30 s | connecting fails with [`Timeout`](turnstream::ErrorKind::Timeout); the process ends |
/// | [`request`](Self::request) | 60 s | the request, such as a page of a list, fails with `Timeout` |
/// | [`call`](Self::call) | 60 s | the call is cancelled, and its result is an error |
/// | [`call_total`](Self::call_total) | 10 min | the call is cancelled, and its result reports a timeout |
/// | [`input`](Self::input) | 5 min | the server is informed that the user cancelled |
/// | [`input_rounds`](Self::input_rounds) | 10 | the call's result is an error (older protocol: the question is refused) |
/// | [`close`](Self::close) | 3 s | the process group gets `SIGTERM`, and is killed after another second |
///
/// Requests that the server sends to the client are limited too: nothing more is read while 64 of
/// them, or requests of twice `message_bytes`, are unanswered.
///
/// Text in results is shortened in the same way as for other tools; see
/// [`Toolkit::with_max_result_bytes`](turnstream::Toolkit::with_max_result_bytes).
///
/// ```
/// use std::time::Duration;
/// use turnstream_mcp::Limits;
///
/// let limits = Limits { call: Duration::from_secs(5), ..Limits::default() };
/// assert_eq!(limits.tools, 1_000);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The maximum size of a message, in bytes. A message is a line from standard output or, over
    /// HTTP, an event or a response body.
    pub message_bytes: usize,
    /// The maximum number of tools that a server may list. This limit also applies to each list of
    /// resources, resource templates or prompts.
    pub tools: usize,
    /// The maximum number of pages in a list.
    pub pages: usize,
    /// The maximum total size of all tools' names, descriptions and schemas, in bytes. Notes about
    /// tools that were left out also count toward this limit.
    pub schema_bytes: usize,
    /// The maximum size of each image or file in a result, in bytes.
    pub media_bytes: usize,
    /// The maximum number of bytes to keep from the server's standard error output. Only the newest
    /// bytes are kept.
    pub stderr_bytes: usize,
    /// The maximum time from starting a process, or sending a first request, until the connection
    /// is ready. This limit covers the attempt to use the newer version of the protocol and, if
    /// that attempt fails, the attempt to use the older version. For a slow server, also raise the
    /// agent's own time limit for listing tools; see
    /// [`Limits::tool_source_timeout`](turnstream::agent::Limits::tool_source_timeout).
    pub start: Duration,
    /// The maximum time to wait for the response to a request other than a tool call.
    pub request: Duration,
    /// The maximum time that a call may go without an answer or progress, excluding any time that
    /// the server spends waiting for the answer to a question.
    pub call: Duration,
    /// The maximum total duration of a call, including the time spent on its questions.
    pub call_total: Duration,
    /// The maximum time that the user may take to answer a server's question.
    pub input: Duration,
    /// The maximum number of questions that a server may ask during a call.
    pub input_rounds: u32,
    /// How long a process may take to exit after its standard input is closed.
    pub close: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            message_bytes: 16 << 20,
            tools: 1_000,
            pages: 100,
            schema_bytes: 1 << 20,
            media_bytes: 5 << 20,
            stderr_bytes: 64 << 10,
            start: Duration::from_secs(30),
            request: Duration::from_mins(1),
            call: Duration::from_mins(1),
            call_total: Duration::from_mins(10),
            input: Duration::from_mins(5),
            input_rounds: 10,
            close: Duration::from_secs(3),
        }
    }
}
