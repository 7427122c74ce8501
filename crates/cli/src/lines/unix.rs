//! The standard input of a terminal, without a thread: it reads input only on request, and can read
//! or discard the terminal's buffer synchronously.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionread, read};
use rustix::process::getpgrp;
use rustix::termios::{
    LocalModes, OptionalActions, QueueSelector, SpecialCodeIndex, Termios, tcflush, tcgetattr,
    tcgetpgrp, tcsetattr,
};
use tokio::io::unix::AsyncFd;

/// How often a background process checks whether it is in the foreground again.
const BACKGROUND_POLL_INTERVAL: Duration = Duration::from_millis(250);

pub(super) struct StdinSource {
    /// `None` until the standard input is first read.
    fd: Option<AsyncFd<OwnedFd>>,
}

impl StdinSource {
    pub(super) fn stdin() -> Self {
        Self { fd: None }
    }

    #[cfg(test)]
    pub(super) fn from_fd(terminal: OwnedFd) -> io::Result<Self> {
        Ok(Self { fd: Some(register_fd(terminal)?) })
    }

    fn fd(&mut self) -> io::Result<&AsyncFd<OwnedFd>> {
        if self.fd.is_none() {
            let stdin = io::stdin().as_fd().try_clone_to_owned()?;
            self.fd = Some(register_fd(stdin)?);
        }
        // Invariant: it was set above.
        Ok(self.fd.as_ref().expect("a descriptor"))
    }

    /// Waits until there is input to read.
    pub(super) async fn readable(&mut self) -> io::Result<()> {
        let fd = self.fd()?;
        loop {
            let mut guard = fd.readable().await?;
            if !is_readable(fd)? {
                guard.clear_ready();
                continue;
            }
            if is_in_foreground(fd) {
                return Ok(());
            }
            // The typed text is for another program, and reading it would stop this process.
            tokio::time::sleep(BACKGROUND_POLL_INTERVAL).await;
        }
    }

    /// Reads the available lines without blocking. Returns `false` at the end of the input.
    pub(super) fn read_available(&mut self, into: &mut Vec<u8>) -> io::Result<bool> {
        let fd = self.fd()?;
        while is_readable(fd)? && is_in_foreground(fd) {
            let mut buffer = [0; 4096];
            match read(fd, &mut buffer) {
                Ok(0) => return Ok(false),
                Ok(bytes) => into.extend_from_slice(&buffer[..bytes]),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    /// Reads the incomplete line, which a terminal normally returns only when the line is complete:
    /// it briefly switches the terminal to unbuffered input. The user can no longer delete what was
    /// read.
    pub(super) fn read_unfinished_line(&mut self, into: &mut Vec<u8>) -> io::Result<()> {
        let at_once = |mode: &mut Termios| {
            mode.local_modes.remove(LocalModes::ICANON);
            mode.special_codes[SpecialCodeIndex::VMIN] = 0;
            mode.special_codes[SpecialCodeIndex::VTIME] = 0;
        };
        let Some(_guard) = self.change_mode(at_once)? else { return Ok(()) };
        let fd = self.fd()?;
        let mut buffer = vec![0; usize::try_from(ioctl_fionread(fd).unwrap_or(0)).unwrap_or(0)];
        let taken = match buffer.is_empty() {
            true => 0,
            false => read(fd, &mut buffer)?,
        };
        into.extend_from_slice(&buffer[..taken]);
        Ok(())
    }

    /// While the returned guard exists, each key is read on its own, and the terminal prints
    /// nothing. `None` if the terminal cannot do this now.
    pub(super) fn read_single_keys(&mut self) -> io::Result<Option<ModeGuard>> {
        self.change_mode(|mode| {
            mode.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
            mode.special_codes[SpecialCodeIndex::VMIN] = 1;
            mode.special_codes[SpecialCodeIndex::VTIME] = 0;
        })
    }

    /// While the returned guard exists, Ctrl-C does not discard the line that the user is typing.
    /// `None` if the terminal cannot do this now.
    pub(super) fn keep_line_on_ctrl_c(&mut self) -> io::Result<Option<ModeGuard>> {
        self.change_mode(|mode| mode.local_modes.insert(LocalModes::NOFLSH))
    }

    /// Changes the mode of a terminal that collects lines. `None` if the input is not one, or if
    /// this process is in the background, where a change would stop it.
    fn change_mode(&mut self, change: impl FnOnce(&mut Termios)) -> io::Result<Option<ModeGuard>> {
        let fd = self.fd()?;
        if !is_in_foreground(fd) {
            return Ok(None);
        }
        let Ok(before) = tcgetattr(fd) else { return Ok(None) };
        if !before.local_modes.contains(LocalModes::ICANON) {
            return Ok(None);
        }
        let terminal = fd.get_ref().try_clone()?;
        let mut mode = before.clone();
        change(&mut mode);
        tcsetattr(fd, OptionalActions::Now, &mode)?;
        Ok(Some(ModeGuard { terminal, before }))
    }

    /// Discards the text that was typed but not read.
    pub(super) fn discard_unread(&mut self) -> io::Result<()> {
        match tcflush(self.fd()?, QueueSelector::IFlush) {
            // `NOTTY`: it is not a terminal.
            Ok(()) | Err(Errno::NOTTY) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// A changed mode of the terminal. Dropping it restores the mode before.
pub(crate) struct ModeGuard {
    terminal: OwnedFd,
    before: Termios,
}

impl Drop for ModeGuard {
    fn drop(&mut self) {
        // A shell that moved this process to the background has set the mode that it wants.
        if is_in_foreground(&self.terminal) {
            let _ = tcsetattr(&self.terminal, OptionalActions::Now, &self.before);
        }
    }
}

// Only some versions of tokio deprecate it.
#[allow(
    deprecated,
    reason = "what replaces it is `unsafe`; an `OwnedFd` stays open while it is used"
)]
fn register_fd(terminal: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::new(terminal)
}

fn is_readable(fd: impl AsFd) -> io::Result<bool> {
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    match poll(&mut fds, Some(&Timespec::default())) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Whether this process receives the terminal's input: a shell may have moved it to the background.
fn is_in_foreground(fd: impl AsFd) -> bool {
    // A descriptor that is not this session's terminal has no foreground group.
    tcgetpgrp(fd).map_or(true, |group| group == getpgrp())
}
