//! A response body whose chunks are created while the body is being sent.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};

use crate::lock::lock_ignoring_poison;

/// A stream of chunks that [`BodyPart::Stream`] sends.
///
/// The connection polls the stream whenever it can write to the client. When the client closes the
/// connection, the stream is dropped, which cancels any future inside it. An `Err` item closes the
/// connection without sending the final chunk.
///
/// All clones share one stream, which can be sent only once. If a second response contains the same
/// stream, the stream is empty in that response.
///
/// [`BodyPart::Stream`]: crate::http::BodyPart::Stream
#[derive(Clone)]
pub struct BodyStream(Arc<Mutex<Option<Pieces>>>);

type Pieces = BoxStream<'static, io::Result<Bytes>>;

impl BodyStream {
    /// Creates a body from a stream of chunks. An empty chunk sends nothing.
    pub fn new(pieces: impl Stream<Item = io::Result<Bytes>> + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(Some(pieces.boxed()))))
    }

    /// Takes the stream of chunks, or returns an empty stream if the chunks have already been
    /// taken.
    pub(super) fn take(&self) -> Pieces {
        lock_ignoring_poison(&self.0).take().unwrap_or_else(|| stream::empty().boxed())
    }
}

impl fmt::Debug for BodyStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BodyStream").finish_non_exhaustive()
    }
}

/// Two `BodyStream`s are equal if they are clones of each other, and thus share one stream.
impl PartialEq for BodyStream {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for BodyStream {}
