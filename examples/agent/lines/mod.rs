//! What a person enters on a terminal.

#[cfg(not(unix))]
#[path = "other.rs"]
mod source;
#[cfg(unix)]
#[path = "unix.rs"]
mod source;

use std::io;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use source::Source;

/// A line that comes so soon after another one was pasted with it: no person types as fast.
const PASTE: Duration = Duration::from_millis(50);

/// Reads the standard input. It reads nothing before the first call of a method.
pub(crate) struct Lines {
    source: Source,
    /// What was read and is not given out yet.
    entered: Vec<u8>,
    /// When some of it was read last.
    last: Instant,
    ended: bool,
}

impl Lines {
    pub(crate) fn new() -> Self {
        Self::from(Source::stdin())
    }

    fn from(source: Source) -> Self {
        Self { source, entered: Vec::new(), last: Instant::now(), ended: false }
    }

    /// What is entered next: a line, or several that were pasted together, the last one without its
    /// line break; `None` at the end of the input. A pasted text whose last line is not ended yet is
    /// complete when it is. Dropping the future loses nothing.
    pub(crate) async fn next(&mut self) -> io::Result<Option<String>> {
        loop {
            self.read()?;
            if std::mem::take(&mut self.ended) {
                return Ok((!self.entered.is_empty()).then(|| self.take()));
            }
            if !self.entered.ends_with(b"\n") {
                self.source.ready().await?;
                continue;
            }
            tokio::select! {
                biased;
                ready = self.source.ready() => ready?,
                () = sleep_until(self.last + PASTE) => {
                    self.source.read_unfinished(&mut self.entered)?;
                    if self.entered.ends_with(b"\n") {
                        return Ok(Some(self.take()));
                    }
                }
            }
        }
    }

    /// Takes all that was typed so far, also of a line that is not ended. What is typed later is not
    /// among it.
    pub(crate) fn take_typed(&mut self) -> io::Result<String> {
        self.read()?;
        self.source.read_unfinished(&mut self.entered)?;
        self.source.discard()?;
        self.ended = false;
        Ok(self.take())
    }

    /// Waits until nothing was entered for this time.
    pub(crate) async fn quiet(&mut self, time: Duration) -> io::Result<()> {
        let mut since = Instant::now();
        loop {
            tokio::select! {
                biased;
                ready = self.source.ready() => ready?,
                () = sleep_until(since + time) => return Ok(()),
            }
            self.read()?;
            if self.ended {
                return Ok(());
            }
            since = Instant::now();
        }
    }

    fn read(&mut self) -> io::Result<()> {
        let before = self.entered.len();
        self.ended |= !self.source.read(&mut self.entered)?;
        if self.entered.len() > before {
            self.last = Instant::now();
        }
        Ok(())
    }

    fn take(&mut self) -> String {
        let entered = std::mem::take(&mut self.entered);
        let text = String::from_utf8_lossy(&entered);
        text.strip_suffix('\n').unwrap_or(&text).to_owned()
    }
}

#[cfg(all(test, unix))]
mod tests;
