//! The lines of stdin, one at a time.

use std::io;

use tokio::io::{AsyncBufReadExt, BufReader, Stdin};

pub(crate) struct Lines {
    stdin: BufReader<Stdin>,
    /// The part of a line that was read before somebody lost interest.
    begun: Vec<u8>,
}

impl Lines {
    pub(crate) fn new() -> Self {
        Self { stdin: BufReader::new(tokio::io::stdin()), begun: Vec::new() }
    }

    /// The next line; `None` at the end. Dropping the future loses nothing of it.
    pub(crate) async fn next(&mut self) -> io::Result<Option<String>> {
        self.stdin.read_until(b'\n', &mut self.begun).await?;
        let line = std::mem::take(&mut self.begun);
        Ok((!line.is_empty()).then(|| String::from_utf8_lossy(&line).into_owned()))
    }
}
