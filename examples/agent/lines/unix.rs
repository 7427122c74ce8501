//! The standard input of a terminal, without a thread: nothing is read before it is asked for, and what
//! the terminal holds can be read or dropped at once.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionread, read};
use rustix::process::getpgrp;
use rustix::termios::{
    LocalModes, OptionalActions, QueueSelector, SpecialCodeIndex, tcflush, tcgetattr, tcgetpgrp,
    tcsetattr,
};
use tokio::io::unix::AsyncFd;

/// How often it is looked whether a program in the background is in the foreground again.
const BACKGROUND_POLL_INTERVAL: Duration = Duration::from_millis(250);

pub(super) struct StdinSource {
    /// `None` for the standard input that was not read yet.
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

    /// Waits until something can be read.
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
            // What is typed is for another program, and reading it would stop this one.
            tokio::time::sleep(BACKGROUND_POLL_INTERVAL).await;
        }
    }

    /// Reads the lines that are there already, and does not wait. `false` at the end of the input.
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

    /// Reads the line that is being typed, which a terminal returns only when it is ended: for an
    /// instant it is set not to wait for that. The user can no longer delete what was read.
    pub(super) fn read_unfinished_line(&mut self, into: &mut Vec<u8>) -> io::Result<()> {
        let fd = self.fd()?;
        if !is_in_foreground(fd) {
            return Ok(());
        }
        let Ok(before) = tcgetattr(fd) else { return Ok(()) };
        if !before.local_modes.contains(LocalModes::ICANON) {
            return Ok(());
        }
        let mut at_once = before.clone();
        at_once.local_modes.remove(LocalModes::ICANON);
        at_once.special_codes[SpecialCodeIndex::VMIN] = 0;
        at_once.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(fd, OptionalActions::Now, &at_once)?;
        let mut buffer = vec![0; usize::try_from(ioctl_fionread(fd).unwrap_or(0)).unwrap_or(0)];
        let taken = match buffer.is_empty() {
            true => Ok(0),
            false => read(fd, &mut buffer),
        };
        tcsetattr(fd, OptionalActions::Now, &before)?;
        into.extend_from_slice(&buffer[..taken?]);
        Ok(())
    }

    /// Drops what was typed and not read.
    pub(super) fn discard_unread(&mut self) -> io::Result<()> {
        match tcflush(self.fd()?, QueueSelector::IFlush) {
            // It is not a terminal.
            Ok(()) | Err(Errno::NOTTY) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

// Not every version of tokio has it deprecated.
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

/// Whether the terminal's input is for this program: a shell may have put it into the background.
fn is_in_foreground(fd: impl AsFd) -> bool {
    // What is not the terminal of this session has no foreground.
    tcgetpgrp(fd).map_or(true, |group| group == getpgrp())
}
