//! A writer whose content can be read.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use serde_json::Value;

/// Bytes in memory, shared by its clones.
#[derive(Clone)]
pub struct SharedBuffer {
    bytes: Arc<Mutex<Vec<u8>>>,
    capacity: usize,
}

impl Default for SharedBuffer {
    fn default() -> Self {
        Self::new()
    }
}

impl SharedBuffer {
    pub fn new() -> Self {
        Self::with_capacity(usize::MAX)
    }

    /// A buffer that reports a full disk after `capacity` bytes.
    pub fn with_capacity(capacity: usize) -> Self {
        Self { bytes: Arc::default(), capacity }
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.bytes.lock().unwrap().clone()).unwrap()
    }

    /// Parses each line as JSON.
    pub fn json_lines(&self) -> Vec<Value> {
        self.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl Write for SharedBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut written = self.bytes.lock().unwrap();
        let taken = bytes.len().min(self.capacity - written.len());
        if taken == 0 {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "no space left"));
        }
        written.extend(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
