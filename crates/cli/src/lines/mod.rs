//! Text that the user enters on a terminal.

mod edit;
#[cfg(not(unix))]
#[path = "other.rs"]
mod source;
#[cfg(unix)]
#[path = "unix.rs"]
mod source;

use std::io::{self, Write};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use edit::{EditedLine, Key, take_key};
pub(crate) use source::ModeGuard;
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
            if !self.is_followed_by_more().await? {
                self.source.read_unfinished_line(&mut self.buffer)?;
                if self.buffer.ends_with(b"\n") {
                    return Ok(Some(self.take_buffer()));
                }
            }
        }
    }

    /// Prints the prompt and `text` to the screen, and returns the next entry like
    /// [`next_entry`](Self::next_entry), after the user has edited `text`. `columns` is the width
    /// of the terminal. Dropping the future discards the line.
    pub(crate) async fn edit_entry(
        &mut self,
        prompt: &str,
        text: String,
        columns: Option<usize>,
        screen: &mut impl Write,
    ) -> io::Result<Option<String>> {
        let mut line = EditedLine::new(prompt, text, columns);
        // While it exists, the terminal neither prints nor collects what the user types. The mode
        // is changed before the prompt invites the user to type.
        let guard = self.source.read_single_keys()?;
        print(screen, &line.printed())?;
        let Some(_guard) = guard else {
            // The text can be sent or extended.
            let entered = self.next_entry().await?;
            return Ok(entered.map(|more| line.into_text() + &more));
        };
        loop {
            self.read_available()?;
            while let Some(key) = take_key(&mut self.buffer) {
                match key {
                    Key::EndOfInput if line.is_empty() => return Ok(None),
                    // More lines may have been pasted.
                    Key::Enter if self.buffer.is_empty() && !self.is_followed_by_more().await? => {
                        print(screen, "\n")?;
                        return Ok(Some(line.into_text()));
                    }
                    key => print(screen, &line.apply(key))?,
                }
            }
            if std::mem::take(&mut self.is_ended) {
                return Ok((!line.is_empty()).then(|| line.into_text()));
            }
            self.source.readable().await?;
        }
    }

    /// Whether there is more input within the time between pasted lines.
    async fn is_followed_by_more(&mut self) -> io::Result<bool> {
        tokio::select! {
            biased;
            ready = self.source.readable() => ready.map(|()| true),
            () = sleep_until(self.last_read_at + MAX_PASTE_GAP) => Ok(false),
        }
    }

    /// While the returned guard exists, Ctrl-C does not discard the line that the user is typing.
    pub(crate) fn keep_line_on_ctrl_c(&mut self) -> io::Result<Option<ModeGuard>> {
        self.source.keep_line_on_ctrl_c()
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

fn print(screen: &mut impl Write, text: &str) -> io::Result<()> {
    screen.write_all(text.as_bytes())?;
    screen.flush()
}

#[cfg(all(test, unix))]
mod tests;
