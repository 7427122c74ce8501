//! A body whose chunks are produced while it is sent.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};

use crate::lock::lock_ignoring_poison;

/// A stream of bytes that [`BodyPart::Stream`] sends chunk by chunk.
///
/// The connection polls it while it can write, and drops it when the client closes the connection,
/// which cancels a future inside the stream. An `Err` cuts the connection.
///
/// It can be sent once. Clones share the stream; in a second response, the part is empty.
///
/// [`BodyPart::Stream`]: crate::testing::http::BodyPart::Stream
#[derive(Clone)]
pub struct BodyStream(Arc<Mutex<Option<Pieces>>>);

type Pieces = BoxStream<'static, io::Result<Bytes>>;

impl BodyStream {
    /// Wraps a stream of chunks.
    pub fn new(pieces: impl Stream<Item = io::Result<Bytes>> + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(Some(pieces.boxed()))))
    }

    /// Takes the chunks; the stream is empty if they were taken before.
    pub(super) fn take(&self) -> Pieces {
        lock_ignoring_poison(&self.0).take().unwrap_or_else(|| stream::empty().boxed())
    }
}

impl fmt::Debug for BodyStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BodyStream").finish_non_exhaustive()
    }
}

/// Two body streams are equal if one is a clone of the other.
impl PartialEq for BodyStream {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for BodyStream {}
