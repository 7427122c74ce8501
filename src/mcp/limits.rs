//! The limits on a server: bytes, pages and time.

use std::time::Duration;

/// Limits on a server: the bytes and pages that it may send, and the time that it may take.
///
/// | limit | unless set | what happens beyond it |
/// |---|---|---|
/// | [`message_bytes`](Self::message_bytes) | 16 MiB | the connection is closed; calls in progress fail |
/// | [`tools`](Self::tools) | 1,000 | listing fails with [`TooLarge`](crate::ErrorKind::TooLarge) |
/// | [`pages`](Self::pages) | 100 | listing fails with `TooLarge` |
/// | [`schema_bytes`](Self::schema_bytes) | 1 MiB | listing fails with `TooLarge` |
/// | [`media_bytes`](Self::media_bytes) | 5 MiB | the image or file is named in the result, with its size |
/// | [`stderr_bytes`](Self::stderr_bytes) | 64 KiB | the oldest bytes are dropped |
/// | [`start`](Self::start) | 30 s | connecting fails with [`Timeout`](crate::ErrorKind::Timeout), and the process is ended |
/// | [`request`](Self::request) | 60 s | the request, such as a page of a list, fails with `Timeout` |
/// | [`call`](Self::call) | 60 s | a call without an answer or progress for this long is cancelled, and has an error as its result |
/// | [`call_total`](Self::call_total) | 10 min | a call is cancelled, and has a time-out as its result |
/// | [`input`](Self::input) | 5 min | a question to the user is answered as cancelled |
/// | [`input_rounds`](Self::input_rounds) | 10 | a call with more questions has an error as its result |
/// | [`close`](Self::close) | 3 s | processes that still run are killed |
///
/// The text of a result is clipped as that of every tool; see
/// [`Toolkit::with_max_result_bytes`](crate::Toolkit::with_max_result_bytes).
///
/// ```
/// use std::time::Duration;
/// use turnstream::mcp::Limits;
///
/// let limits = Limits { call: Duration::from_secs(5), ..Limits::default() };
/// assert_eq!(limits.tools, 1_000);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one message: a line on standard output, an event or a body over HTTP.
    pub message_bytes: usize,
    /// Tools that a server may list.
    pub tools: usize,
    /// Pages that a list may have.
    pub pages: usize,
    /// Bytes of the schemas and descriptions of all tools together.
    pub schema_bytes: usize,
    /// Bytes of one image or file of a result.
    pub media_bytes: usize,
    /// Bytes of the server's standard error that are kept, the newest.
    pub stderr_bytes: usize,
    /// Time from starting a process, or sending a first request, to a connection that is ready. It
    /// includes the attempt to use the newer protocol and, if that fails, the older one. An agent
    /// limits the listing of its sources as well, with
    /// [`with_tool_source_timeout`](crate::Agent::with_tool_source_timeout): raise both for a slow
    /// server.
    pub start: Duration,
    /// Time for the answer to a request that is not a call.
    pub request: Duration,
    /// Time without an answer or progress of a call. It stands still while the server waits for an
    /// answer to its question.
    pub call: Duration,
    /// Time that a call may take in all, including its questions.
    pub call_total: Duration,
    /// Time that the user has to answer a question of the server.
    pub input: Duration,
    /// How many questions a call may have.
    pub input_rounds: u32,
    /// Time that a process has to end after its standard input was closed.
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
