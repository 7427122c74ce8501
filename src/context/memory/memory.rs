//! The interface of a memory.

use std::sync::Arc;

use futures::future::BoxFuture;

use crate::error::{Error, ErrorKind};

/// The maximum length of a note's name, in bytes.
const MAX_NAME_BYTES: usize = 64;
/// The maximum length of a note, in bytes.
const MAX_NOTE_BYTES: usize = 64 * 1024;

/// A note in a [`Memory`]. Its name and its text have [limits](Self::check).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryNote {
    /// The name of the note, which identifies it.
    pub name: String,
    /// The text of the note.
    pub text: String,
}

/// Notes that outlive a session, each with a unique name.
///
/// [`memory_tools`](super::memory_tools) lets a model read, write and search the notes, and
/// [`Recall`](super::Recall) adds the notes that match the user's latest message to each request.
/// [`FileMemory`](super::FileMemory) keeps the notes in a folder. Implement this trait to keep them
/// elsewhere, for example in a database, or separately for each user.
///
/// Implementations should check names and texts with [`MemoryNote::check`], so that a note can be
/// kept by any of them. Dropping a returned future cancels the operation, or lets it complete: a
/// note is never changed in part.
pub trait Memory: Send + Sync {
    /// Returns the text of a note, or `None` if there is no such note.
    ///
    /// # Errors
    ///
    /// Returns an error if the memory cannot be read.
    fn read<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<String>, Error>>;

    /// Stores a note, and replaces an earlier note of the same name. An empty text removes the
    /// note.
    ///
    /// # Errors
    ///
    /// Returns an [`InvalidRequest`](ErrorKind::InvalidRequest) error if the note is not valid, and
    /// another error if it cannot be stored.
    fn write<'a>(&'a self, note: &'a MemoryNote) -> BoxFuture<'a, Result<(), Error>>;

    /// Returns at most `limit` notes that match the query, the best match first. How a note matches
    /// is up to the memory.
    ///
    /// # Errors
    ///
    /// Returns an error if the memory cannot be read.
    fn search<'a>(
        &'a self,
        query: &'a str,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<MemoryNote>, Error>>;
}

impl<M: Memory + ?Sized> Memory for Arc<M> {
    fn read<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<String>, Error>> {
        (**self).read(name)
    }

    fn write<'a>(&'a self, note: &'a MemoryNote) -> BoxFuture<'a, Result<(), Error>> {
        (**self).write(note)
    }

    fn search<'a>(
        &'a self,
        query: &'a str,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<MemoryNote>, Error>> {
        (**self).search(query, limit)
    }
}

impl MemoryNote {
    /// Creates a note without checking it; see [`check`](Self::check).
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self { name: name.into(), text: text.into() }
    }

    /// Checks that the name consists of 1 to 64 lowercase ASCII letters, digits, hyphens and
    /// underscores, and that the text has at most 64 KiB.
    ///
    /// # Errors
    ///
    /// Returns an [`InvalidRequest`](ErrorKind::InvalidRequest) error that states the problem.
    pub fn check(&self) -> Result<(), Error> {
        check_name(&self.name)?;
        match self.text.len() {
            0..=MAX_NOTE_BYTES => Ok(()),
            len => {
                let what = format!("a note may have {MAX_NOTE_BYTES} bytes, and this has {len}");
                Err(Error::new(ErrorKind::InvalidRequest, what))
            }
        }
    }
}

pub(super) fn check_name(name: &str) -> Result<(), Error> {
    let is_allowed = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_')
    };
    match (1..=MAX_NAME_BYTES).contains(&name.len()) && name.bytes().all(is_allowed) {
        true => Ok(()),
        false => Err(Error::new(
            ErrorKind::InvalidRequest,
            "the name of a note has 1 to 64 lowercase letters, digits, `-` and `_`",
        )),
    }
}
