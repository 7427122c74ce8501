//! Sends and receives messages as lines over a pair of streams. Received lines are limited in
//! length, and lines are sent in the order in which they were queued.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use futures::task::AtomicWaker;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::lock::lock_ignoring_poison;
use crate::server_requests::UnsentAnswer;

/// The maximum number of bytes to keep from a received line that is not a message.
const MAX_KEPT_NOISE: usize = 200;

/// The maximum number of bytes that a server may write before its first message. Servers and the
/// programs that build them often write a banner or a log.
const MAX_NOISE_BEFORE_MESSAGE: usize = 256 << 10;

/// The beginnings of lines in protocols whose messages are not lines.
const OTHER_PROTOCOLS: [&[u8]; 2] = [b"Content-Length:", b"HTTP/1."];

/// The byte order mark, which some programs write before their output.
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// The maximum number of bytes to read at once.
const READ_CHUNK: usize = 16 << 10;

/// The maximum time for reading the last lines after the process has ended. A limit is necessary
/// because a child process may keep the output open.
const LAST_LINES_TIMEOUT: Duration = Duration::from_millis(100);

/// The violations found in a server's output.
#[derive(Debug, Default)]
pub(crate) struct OutputReport {
    /// The line size limit in bytes, if the stream ended because a line exceeded it.
    pub(crate) oversized_line: OnceLock<usize>,
    /// The beginning of the first line that was not a message.
    pub(crate) noise: OnceLock<String>,
    /// Why the program is not an MCP server, if the stream ended because of its output.
    pub(crate) mismatch: OnceLock<Mismatch>,
    /// The number of bytes that the server left unread, if the stream ended because this number
    /// exceeded its limit.
    pub(crate) unread_bytes: OnceLock<usize>,
}

/// The reason why a program's output cannot be the output of an MCP server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Mismatch {
    /// The program sends back what it receives, like `cat` or a terminal.
    #[error("it sends back what it receives")]
    RepeatsInput,
    /// The output is that of another protocol, such as HTTP or the Language Server Protocol.
    #[error("it uses another protocol")]
    OtherProtocol,
    /// The output is longer than a log, and contains no message.
    #[error("its output contains no messages")]
    NoMessages,
}

/// Whether the server has sent a message.
#[derive(Clone, Copy, Debug)]
enum OutputStage {
    /// All output so far, of this number of bytes, is noise.
    BeforeFirstMessage {
        noise_bytes: usize,
    },
    AfterFirstMessage,
}

/// A queue of lines that have not been sent yet. Cloning the queue is cheap.
#[derive(Clone, Debug, Default)]
pub(crate) struct SendQueue(Arc<SendState>);

#[derive(Debug, Default)]
struct SendState {
    lines: Mutex<QueuedLines>,
    waker: AtomicWaker,
}

#[derive(Debug, Default)]
struct QueuedLines {
    lines: VecDeque<QueuedLine>,
    bytes: usize,
}

/// A line that has not been sent completely.
#[derive(Debug)]
struct QueuedLine {
    text: Vec<u8>,
    /// The answer that the line contains, if any, which is dropped once the line has been sent.
    _answer: Option<UnsentAnswer>,
}

impl SendQueue {
    /// Adds a line to the queue. `line` must not end with a line feed. The queued lines are written
    /// when the channel is polled. `answer` is dropped once the line has been written.
    pub(crate) fn push(&self, mut text: Vec<u8>, answer: Option<UnsentAnswer>) {
        text.push(b'\n');
        let mut queued = lock_ignoring_poison(&self.0.lines);
        queued.bytes += text.len();
        queued.lines.push_back(QueuedLine { text, _answer: answer });
        drop(queued);
        self.0.waker.wake();
    }

    fn take_first(&self) -> Option<QueuedLine> {
        let mut queued = lock_ignoring_poison(&self.0.lines);
        let line = queued.lines.pop_front()?;
        queued.bytes -= line.text.len();
        Some(line)
    }

    /// Removes all lines, none of which will be sent.
    pub(crate) fn clear(&self) {
        let lines = std::mem::take(&mut *lock_ignoring_poison(&self.0.lines));
        drop(lines);
    }

    fn bytes(&self) -> usize {
        lock_ignoring_poison(&self.0.lines).bytes
    }
}

/// Transports lines over a pair of streams. Dropping the channel closes both streams.
pub(crate) struct LineChannel<R, W> {
    reader: R,
    writer: W,
    queue: SendQueue,
    /// The line that is being written, and the number of bytes written so far.
    writing: Option<(QueuedLine, usize)>,
    is_flushed: bool,
    /// The bytes that have been read but not returned yet.
    buffer: Vec<u8>,
    /// The number of bytes in `buffer` that are known to contain no line feed.
    scanned: usize,
    max_bytes: usize,
    stage: OutputStage,
    report: Arc<OutputReport>,
    /// A future that completes once the server's process has ended.
    process_end: Option<BoxFuture<'static, ()>>,
    /// Whether the server has stopped reading.
    is_broken: bool,
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> LineChannel<R, W> {
    /// Creates a channel that limits each received line to `max_bytes` bytes.
    pub(crate) fn new(reader: R, writer: W, max_bytes: usize, report: Arc<OutputReport>) -> Self {
        Self {
            reader,
            writer,
            queue: SendQueue::default(),
            writing: None,
            is_flushed: true,
            buffer: Vec::new(),
            scanned: 0,
            max_bytes,
            stage: OutputStage::BeforeFirstMessage { noise_bytes: 0 },
            report,
            process_end: None,
            is_broken: false,
        }
    }

    /// Makes the channel end once the server's process has ended, even if another process keeps the
    /// output open.
    pub(crate) fn ending_with(
        mut self,
        process: impl Future<Output = ()> + Send + 'static,
    ) -> Self {
        let end = async move {
            process.await;
            tokio::time::sleep(LAST_LINES_TIMEOUT).await;
        };
        self.process_end = Some(end.boxed());
        self
    }

    /// Returns the queue of lines to be sent.
    pub(crate) fn queue(&self) -> SendQueue {
        self.queue.clone()
    }

    /// Sends queued lines, and returns the next line that looks like a message. Returns `None` when
    /// the server has closed its output, exceeded a limit or stopped reading, or if its output
    /// cannot be that of an MCP server. The caller must report whether the line is a message, with
    /// [`on_message`](Self::on_message), [`on_noise`](Self::on_noise) or
    /// [`on_repeated_input`](Self::on_repeated_input).
    ///
    /// While `poll_capacity` is pending, lines are sent but not read. It is polled after lines have
    /// been sent.
    pub(crate) fn poll_line(
        &mut self,
        cx: &mut Context<'_>,
        poll_capacity: impl Fn(&mut Context<'_>) -> Poll<()>,
    ) -> Poll<Option<Vec<u8>>> {
        self.queue.0.waker.register(cx.waker());
        self.is_broken |= self.poll_send(cx).is_err();
        if self.is_broken {
            self.writing = None;
            self.queue.clear();
        }
        let unread = self.queue.bytes();
        if unread > self.max_bytes.saturating_mul(2) {
            let _ = self.report.unread_bytes.set(unread);
            return Poll::Ready(None);
        }
        if poll_capacity(cx).is_pending() {
            return self.poll_end(cx);
        }
        loop {
            while self.report.mismatch.get().is_none()
                && let Some(line) = self.next_buffered_line()
            {
                match line.trim_ascii_start() {
                    [] => {}
                    [b'{', ..] => return Poll::Ready(Some(line)),
                    _ => self.on_noise(&line),
                }
            }
            self.check_unfinished_line();
            if self.report.mismatch.get().is_some() {
                return Poll::Ready(None);
            }
            if self.buffer.len() > self.max_bytes {
                let _ = self.report.oversized_line.set(self.max_bytes);
                return Poll::Ready(None);
            }
            match self.poll_read(cx) {
                Poll::Ready(Ok(1..)) => {}
                Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(None),
                Poll::Pending => return self.poll_end(cx),
            }
        }
    }

    /// Becomes ready, with `None`, if the server has stopped reading or its process has ended.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<Option<Vec<u8>>> {
        let has_ended = self.process_end.as_mut().is_some_and(|end| end.poll_unpin(cx).is_ready());
        match self.is_broken || has_ended {
            true => Poll::Ready(None),
            false => Poll::Pending,
        }
    }

    fn next_buffered_line(&mut self) -> Option<Vec<u8>> {
        let end = memchr::memchr(b'\n', &self.buffer[self.scanned..]).map(|at| self.scanned + at);
        let Some(end) = end else {
            self.scanned = self.buffer.len();
            return None;
        };
        let rest = self.buffer.split_off(end + 1);
        let mut line = std::mem::replace(&mut self.buffer, rest);
        self.scanned = 0;
        if line.len() > self.max_bytes.saturating_add(1) {
            // A single read returned the whole line, including its line feed.
            let _ = self.report.oversized_line.set(self.max_bytes);
            self.is_broken = true;
            return None;
        }
        line.pop();
        if line.starts_with(BYTE_ORDER_MARK) {
            line.drain(..BYTE_ORDER_MARK.len());
        }
        Some(line)
    }

    /// Records that the last line is a message, which proves that the program is a server.
    pub(crate) fn on_message(&mut self) {
        self.stage = OutputStage::AfterFirstMessage;
    }

    /// Records that the last line is a message that only a client sends.
    pub(crate) fn on_repeated_input(&mut self, line: &[u8]) {
        self.keep_noise(line);
        let _ = self.report.mismatch.set(Mismatch::RepeatsInput);
    }

    /// Records that a line is not a message. Servers may write such lines at any time, but other
    /// programs write nothing else.
    pub(crate) fn on_noise(&mut self, line: &[u8]) {
        self.keep_noise(line);
        let OutputStage::BeforeFirstMessage { noise_bytes } = &mut self.stage else { return };
        *noise_bytes += line.len() + 1;
        if OTHER_PROTOCOLS.iter().any(|beginning| line.starts_with(beginning)) {
            let _ = self.report.mismatch.set(Mismatch::OtherProtocol);
        } else if *noise_bytes > MAX_NOISE_BEFORE_MESSAGE {
            let _ = self.report.mismatch.set(Mismatch::NoMessages);
        }
    }

    /// Checks the beginning of a line whose end has not been received.
    fn check_unfinished_line(&self) {
        let OutputStage::BeforeFirstMessage { noise_bytes } = self.stage else { return };
        let unfinished = self.buffer.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&self.buffer);
        let begins_like_message = unfinished.trim_ascii_start().starts_with(b"{");
        if !begins_like_message && noise_bytes + unfinished.len() > MAX_NOISE_BEFORE_MESSAGE {
            self.keep_noise(unfinished);
            let _ = self.report.mismatch.set(Mismatch::NoMessages);
        }
    }

    /// Stores the beginning of the first line that is not a message in the report.
    fn keep_noise(&self, line: &[u8]) {
        let line = line.trim_ascii_start();
        let noise = String::from_utf8_lossy(&line[..line.len().min(MAX_KEPT_NOISE)]);
        let _ = self.report.noise.set(noise.trim_end().to_owned());
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let before = self.buffer.len();
        self.buffer.resize(before + READ_CHUNK, 0);
        let mut buf = ReadBuf::new(&mut self.buffer[before..]);
        let polled = Pin::new(&mut self.reader).poll_read(cx, &mut buf);
        let len = buf.filled().len();
        self.buffer.truncate(before + len);
        polled.map_ok(|()| len)
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        loop {
            let Some((line, written)) = &mut self.writing else {
                self.writing = self.queue.take_first().map(|line| (line, 0));
                if self.writing.is_some() {
                    self.is_flushed = false;
                    continue;
                }
                if !self.is_flushed {
                    ready!(Pin::new(&mut self.writer).poll_flush(cx))?;
                    self.is_flushed = true;
                }
                return Poll::Ready(Ok(()));
            };
            let len = ready!(Pin::new(&mut self.writer).poll_write(cx, &line.text[*written..]))?;
            if len == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            *written += len;
            if *written == line.text.len() {
                self.writing = None;
            }
        }
    }
}

/// A trait for checking whether a poll returned an error.
trait IsErr {
    fn is_err(&self) -> bool;
}

impl IsErr for Poll<Result<(), io::Error>> {
    fn is_err(&self) -> bool {
        matches!(self, Poll::Ready(Err(_)))
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::AsyncReadExt;

    use super::*;

    async fn lines_of(output: &[u8], max_bytes: usize) -> (Vec<String>, Arc<OutputReport>) {
        let report = Arc::new(OutputReport::default());
        let mut channel =
            LineChannel::new(output, tokio::io::sink(), max_bytes, Arc::clone(&report));
        let mut lines = Vec::new();
        while let Some(line) = poll_fn(|cx| channel.poll_line(cx, |_| Poll::Ready(()))).await {
            lines.push(String::from_utf8(line).unwrap());
        }
        (lines, report)
    }

    #[tokio::test]
    async fn a_line_longer_than_the_limit_ends_the_stream() {
        let (lines, report) = lines_of(b"{234}\n{234}\n", 5).await;
        assert_eq!(lines, ["{234}", "{234}"]);
        assert_eq!(report.oversized_line.get(), None);
        for output in [&b"{234}\n{2345}\n{}\n"[..], b"{234}\n{23456789"] {
            let (lines, report) = lines_of(output, 5).await;
            assert_eq!(lines, ["{234}"]);
            assert_eq!(report.oversized_line.get(), Some(&5));
        }
    }

    #[tokio::test]
    async fn the_first_line_that_is_not_a_message_is_kept_for_errors() {
        let (lines, report) = lines_of(b"{\"a\":1}\n\nListening on 80\nmore\n  {}\n", 100).await;
        assert_eq!(lines, ["{\"a\":1}", "  {}"]);
        assert_eq!(report.noise.get().map(String::as_str), Some("Listening on 80"));
    }

    #[tokio::test]
    async fn a_byte_order_mark_before_a_line_is_skipped() {
        let (lines, report) = lines_of(b"\xEF\xBB\xBF{\"a\":1}\n\xEF\xBB\xBF{}\n", 100).await;
        assert_eq!(lines, ["{\"a\":1}", "{}"]);
        assert_eq!(report.noise.get(), None);
    }

    #[tokio::test]
    async fn output_that_cannot_be_that_of_a_server_ends_the_channel() {
        let (flood, log) = ("Downloading\n".repeat(30_000), "Building\n".repeat(1_000) + "{}\n");
        for (output, messages, mismatch) in [
            (flood.as_str(), 0, Some(Mismatch::NoMessages)),
            (&"y".repeat(300 << 10), 0, Some(Mismatch::NoMessages)),
            ("Content-Length: 20\r\n\r\n{}\n", 0, Some(Mismatch::OtherProtocol)),
            ("HTTP/1.1 400 Bad Request\r\n\r\n{}\n", 0, Some(Mismatch::OtherProtocol)),
            ("Starting\n\nListening\n{}\n", 1, None),
            (&log, 1, None),
        ] {
            let (lines, report) = lines_of(output.as_bytes(), 1 << 20).await;
            let result = (lines.len(), report.mismatch.get().copied());
            assert_eq!(result, (messages, mismatch), "{:?}", report.noise.get());
        }
    }

    #[tokio::test]
    async fn a_server_may_write_any_amount_of_noise_after_its_first_message() {
        let output = format!("{{}}\n{}{{}}\n", "log\n".repeat(100_000));
        let report = Arc::new(OutputReport::default());
        let mut channel =
            LineChannel::new(output.as_bytes(), tokio::io::sink(), 1 << 20, Arc::clone(&report));
        let mut messages = 0;
        while poll_fn(|cx| channel.poll_line(cx, |_| Poll::Ready(()))).await.is_some() {
            channel.on_message();
            messages += 1;
        }
        assert_eq!((messages, report.mismatch.get()), (2, None));
    }

    #[tokio::test]
    async fn lines_are_sent_in_their_order_while_the_channel_is_polled() {
        let (here, mut there) = tokio::io::duplex(3);
        let (reader, writer) = tokio::io::split(here);
        let mut channel = LineChannel::new(reader, writer, 100, Arc::default());
        let queue = channel.queue();
        queue.push(b"first".to_vec(), None);
        queue.push(b"second".to_vec(), None);
        let mut sent = [0; 13];
        tokio::select! {
            _ = poll_fn(|cx| channel.poll_line(cx, |_| Poll::Ready(()))) => panic!("nothing was sent back"),
            read = there.read_exact(&mut sent) => drop(read.unwrap()),
        }
        assert_eq!(&sent, b"first\nsecond\n");
    }

    #[tokio::test]
    async fn an_unread_backlog_of_twice_the_limit_ends_the_channel() {
        let (here, _there) = tokio::io::duplex(4);
        let (reader, writer) = tokio::io::split(here);
        let report = Arc::new(OutputReport::default());
        let mut channel = LineChannel::new(reader, writer, 10, Arc::clone(&report));
        for _ in 0..4 {
            channel.queue().push(vec![b'x'; 9], None);
        }
        assert_eq!(poll_fn(|cx| channel.poll_line(cx, |_| Poll::Ready(()))).await, None);
        assert!(report.unread_bytes.get().is_some());
    }

    #[tokio::test]
    async fn only_the_beginning_of_a_long_line_is_kept_for_errors() {
        let output = format!("{}\n{{}}\n", "y".repeat(10_000));
        let (_, report) = lines_of(output.as_bytes(), 1 << 20).await;
        assert_eq!(report.noise.get().map(String::len), Some(200));
    }
}
