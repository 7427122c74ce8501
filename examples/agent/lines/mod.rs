//! Text that the user enters on a terminal.

#[cfg(not(unix))]
#[path = "other.rs"]
mod source;
#[cfg(unix)]
#[path = "unix.rs"]
mod source;

use std::io;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use source::StdinSource;

/// A line that follows another one within this time was pasted with it: no user types that fast.
const MAX_PASTE_GAP: Duration = Duration::from_millis(50);

/// Reads the standard input, starting with the first call of a method.
pub(crate) struct InputReader {
    source: StdinSource,
    /// Bytes that were read and not yet returned.
    buffer: Vec<u8>,
    /// The time of the last read into the buffer.
    last_read_at: Instant,
    is_ended: bool,
}

impl InputReader {
    pub(crate) fn new() -> Self {
        Self::from_source(StdinSource::stdin())
    }

    fn from_source(source: StdinSource) -> Self {
        Self { source, buffer: Vec::new(), last_read_at: Instant::now(), is_ended: false }
    }

    /// Returns the next entry: one line, or several lines that were pasted together, without the
    /// last line break; `None` at the end of the input. A pasted text whose last line is incomplete
    /// is returned when that line is complete. Dropping the future loses nothing.
    pub(crate) async fn next_entry(&mut self) -> io::Result<Option<String>> {
        loop {
            self.read_available()?;
            if std::mem::take(&mut self.is_ended) {
                return Ok((!self.buffer.is_empty()).then(|| self.take_buffer()));
            }
            if !self.buffer.ends_with(b"\n") {
                self.source.readable().await?;
                continue;
            }
            tokio::select! {
                biased;
                ready = self.source.readable() => ready?,
                () = sleep_until(self.last_read_at + MAX_PASTE_GAP) => {
                    self.source.read_unfinished_line(&mut self.buffer)?;
                    if self.buffer.ends_with(b"\n") {
                        return Ok(Some(self.take_buffer()));
                    }
                }
            }
        }
    }

    /// Takes all text that was typed so far, including an incomplete line. Text typed later is not
    /// included.
    pub(crate) fn take_typed(&mut self) -> io::Result<String> {
        self.read_available()?;
        self.source.read_unfinished_line(&mut self.buffer)?;
        self.source.discard_unread()?;
        self.is_ended = false;
        Ok(self.take_buffer())
    }

    /// Waits until there has been no input for this time.
    pub(crate) async fn wait_for_quiet(&mut self, time: Duration) -> io::Result<()> {
        let mut since = Instant::now();
        loop {
            tokio::select! {
                biased;
                ready = self.source.readable() => ready?,
                () = sleep_until(since + time) => return Ok(()),
            }
            self.read_available()?;
            if self.is_ended {
                return Ok(());
            }
            since = Instant::now();
        }
    }

    fn read_available(&mut self) -> io::Result<()> {
        let before = self.buffer.len();
        self.is_ended |= !self.source.read_available(&mut self.buffer)?;
        if self.buffer.len() > before {
            self.last_read_at = Instant::now();
        }
        Ok(())
    }

    fn take_buffer(&mut self) -> String {
        let entered = std::mem::take(&mut self.buffer);
        let text = String::from_utf8_lossy(&entered);
        text.strip_suffix('\n').unwrap_or(&text).to_owned()
    }
}

#[cfg(all(test, unix))]
mod tests;
