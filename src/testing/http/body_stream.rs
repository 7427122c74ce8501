//! A body whose pieces are made while it is sent.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};

use crate::lock::lock_ignoring_poison;

/// A stream of bytes that [`BodyPart::Stream`] sends, piece by piece.
///
/// The connection polls it while it can write, and drops it when the client closes the connection:
/// a future inside the stream is cancelled then. An `Err` cuts the connection.
///
/// It is sent once. Clones share the stream; a second response with it has an empty part.
///
/// [`BodyPart::Stream`]: crate::testing::http::BodyPart::Stream
#[derive(Clone)]
pub struct BodyStream(Arc<Mutex<Option<Pieces>>>);

type Pieces = BoxStream<'static, io::Result<Bytes>>;

impl BodyStream {
    /// Wraps a stream of pieces.
    pub fn new(pieces: impl Stream<Item = io::Result<Bytes>> + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(Some(pieces.boxed()))))
    }

    /// Takes the pieces out. An empty stream if they were taken before.
    pub(super) fn take(&self) -> Pieces {
        lock_ignoring_poison(&self.0).take().unwrap_or_else(|| stream::empty().boxed())
    }
}

impl fmt::Debug for BodyStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BodyStream").finish_non_exhaustive()
    }
}

/// Two are equal if they are clones of one.
impl PartialEq for BodyStream {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for BodyStream {}
