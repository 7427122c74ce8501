//! A server's standard output, with a limit on its lines.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

/// How much of a line that is not a message is kept.
const MAX_KEPT_NOISE: usize = 200;

/// The faults found in a server's output.
#[derive(Debug, Default)]
pub(super) struct OutputReport {
    /// A line was longer than the limit, in bytes; the stream ended there.
    pub(super) oversized_line: OnceLock<usize>,
    /// The beginning of the first line that is not a JSON object.
    pub(super) noise: OnceLock<String>,
}

/// Reads lines, and ends with an error at one that is longer than the limit, before it is in memory.
pub(super) struct BoundedLines<R> {
    inner: R,
    max_bytes: usize,
    /// Bytes of the line so far.
    line_bytes: usize,
    /// Its beginning, if it does not begin as a message does.
    noise: Option<Vec<u8>>,
    report: Arc<OutputReport>,
}

impl<R> BoundedLines<R> {
    pub(super) fn new(inner: R, max_bytes: usize, report: Arc<OutputReport>) -> Self {
        Self { inner, max_bytes, line_bytes: 0, noise: None, report }
    }

    /// Counts bytes that were read. Returns whether a line is too long.
    fn observe(&mut self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            let (line, rest, is_whole) = match memchr::memchr(b'\n', bytes) {
                Some(end) => (&bytes[..end], &bytes[end + 1..], true),
                None => (bytes, &[][..], false),
            };
            let begins_otherwise = line
                .iter()
                .find(|byte| !byte.is_ascii_whitespace())
                .is_some_and(|first| *first != b'{');
            if self.line_bytes == 0 && begins_otherwise && self.report.noise.get().is_none() {
                self.noise = Some(Vec::new());
            }
            if let Some(noise) = &mut self.noise {
                noise.extend(line.iter().take(MAX_KEPT_NOISE - noise.len()));
            }
            self.line_bytes = self.line_bytes.saturating_add(line.len());
            if self.line_bytes > self.max_bytes {
                let _ = self.report.oversized_line.set(self.max_bytes);
                return true;
            }
            if is_whole {
                self.line_bytes = 0;
                if let Some(noise) = self.noise.take() {
                    let _ = self.report.noise.set(String::from_utf8_lossy(&noise).into_owned());
                }
            }
            bytes = rest;
        }
        false
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for BoundedLines<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.report.oversized_line.get().is_some() {
            return Poll::Ready(Err(oversized()));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.inner).poll_read(cx, buf))?;
        if this.observe(&buf.filled()[before..]) {
            buf.set_filled(before);
            return Poll::Ready(Err(oversized()));
        }
        Poll::Ready(Ok(()))
    }
}

fn oversized() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a line is longer than the limit")
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    async fn read(output: &[u8], max_bytes: usize) -> (io::Result<usize>, Arc<OutputReport>) {
        let report = Arc::new(OutputReport::default());
        let mut lines = BoundedLines::new(output, max_bytes, Arc::clone(&report));
        (lines.read_to_end(&mut Vec::new()).await, report)
    }

    #[tokio::test]
    async fn lines_of_the_limit_pass_and_longer_ones_end_the_stream() {
        let (read_bytes, report) = read(b"{234}\n{234}\n", 5).await;
        assert_eq!(read_bytes.unwrap(), 12);
        assert!(report.oversized_line.get().is_none());
        for output in [&b"{234}\n{2345}\n"[..], b"{23456789"] {
            let (read_bytes, report) = read(output, 5).await;
            assert_eq!(read_bytes.unwrap_err().kind(), io::ErrorKind::InvalidData);
            assert_eq!(report.oversized_line.get(), Some(&5));
        }
    }

    #[tokio::test]
    async fn the_first_line_that_is_not_a_message_is_kept_for_errors() {
        let (_, report) = read(b"{\"a\":1}\n\nListening on 80\nmore\n", 100).await;
        assert_eq!(report.noise.get().map(String::as_str), Some("Listening on 80"));
        let (_, report) = read(b"{\"a\":1}\n  {}\n", 100).await;
        assert_eq!(report.noise.get(), None);
    }
}
