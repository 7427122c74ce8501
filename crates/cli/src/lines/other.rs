//! The standard input, read by a thread of its own. On this platform, an incomplete line can be
//! neither read nor discarded.

use std::io::{self, BufRead};
use std::thread;

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// A changed mode of the terminal, which does not exist on this platform.
pub(crate) enum ModeGuard {}

pub(super) struct StdinSource {
    /// `None` before the first use.
    line_receiver: Option<UnboundedReceiver<io::Result<Vec<u8>>>>,
    received_lines: Vec<io::Result<Vec<u8>>>,
}

impl StdinSource {
    pub(super) fn stdin() -> Self {
        Self { line_receiver: None, received_lines: Vec::new() }
    }

    fn line_receiver(&mut self) -> &mut UnboundedReceiver<io::Result<Vec<u8>>> {
        self.line_receiver.get_or_insert_with(|| {
            let (sender, lines) = unbounded_channel();
            thread::spawn(move || {
                let mut stdin = io::stdin().lock();
                loop {
                    let mut line = Vec::new();
                    let read = stdin.read_until(b'\n', &mut line).map(|_| line);
                    let is_last = !matches!(&read, Ok(line) if !line.is_empty());
                    if sender.send(read).is_err() || is_last {
                        return;
                    }
                }
            });
            lines
        })
    }

    /// Waits until there is input to read.
    pub(super) async fn readable(&mut self) -> io::Result<()> {
        if self.received_lines.is_empty() {
            let line = self.line_receiver().recv().await;
            self.received_lines.push(line.unwrap_or(Ok(Vec::new())));
        }
        Ok(())
    }

    /// Reads the available lines without blocking. Returns `false` at the end of the input.
    pub(super) fn read_available(&mut self, into: &mut Vec<u8>) -> io::Result<bool> {
        while let Ok(line) = self.line_receiver().try_recv() {
            self.received_lines.push(line);
        }
        let mut is_open = true;
        for line in self.received_lines.drain(..) {
            let mut line = line?;
            is_open &= !line.is_empty();
            if line.ends_with(b"\r\n") {
                line.truncate(line.len() - 2);
                line.push(b'\n');
            }
            into.append(&mut line);
        }
        Ok(is_open)
    }

    /// Does nothing: an incomplete line cannot be read here.
    #[expect(clippy::unnecessary_wraps, clippy::unused_self, reason = "elsewhere it can fail")]
    pub(super) fn read_unfinished_line(&mut self, _into: &mut Vec<u8>) -> io::Result<()> {
        Ok(())
    }

    /// Does nothing: the thread reads whole lines.
    #[expect(clippy::unnecessary_wraps, clippy::unused_self, reason = "elsewhere it can fail")]
    pub(super) fn read_single_keys(&mut self) -> io::Result<Option<ModeGuard>> {
        Ok(None)
    }

    /// Does nothing: the mode of the terminal is not changed here.
    #[expect(clippy::unnecessary_wraps, clippy::unused_self, reason = "elsewhere it can fail")]
    pub(super) fn keep_line_on_ctrl_c(&mut self) -> io::Result<Option<ModeGuard>> {
        Ok(None)
    }

    /// Does nothing: input that the thread has not read cannot be discarded.
    #[expect(clippy::unnecessary_wraps, clippy::unused_self, reason = "elsewhere it can fail")]
    pub(super) fn discard_unread(&mut self) -> io::Result<()> {
        Ok(())
    }
}
