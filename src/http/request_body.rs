//! The body of a request.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Frame, SizeHint};

use crate::chunked_bytes::ChunkedBytes;

/// The body of a request, in chunks that other requests may share. Cloning a body is cheap.
#[derive(Clone)]
pub(crate) enum RequestBody {
    Single(Bytes),
    Chunks(Arc<[Bytes]>),
}

impl RequestBody {
    /// Returns the whole body. Copies it if it consists of several chunks.
    pub(crate) fn to_bytes(&self) -> Bytes {
        match self {
            Self::Single(bytes) => bytes.clone(),
            Self::Chunks(chunks) => chunks.concat().into(),
        }
    }

    /// Returns whether reqwest itself sends the body again according to its retry policy. It cannot
    /// copy a body of several chunks.
    pub(super) fn is_resent_by_reqwest(&self) -> bool {
        matches!(self, Self::Single(_))
    }

    /// Converts the body to reqwest's type. The length of the body is known.
    pub(super) fn to_reqwest(&self) -> reqwest::Body {
        match self {
            Self::Single(bytes) => bytes.clone().into(),
            Self::Chunks(chunks) => reqwest::Body::wrap(ChunkReader::new(Arc::clone(chunks))),
        }
    }
}

impl From<ChunkedBytes> for RequestBody {
    fn from(bytes: ChunkedBytes) -> Self {
        let mut chunks = bytes.into_chunks();
        match chunks.len() {
            0 | 1 => Self::Single(chunks.pop().unwrap_or_default()),
            _ => Self::Chunks(chunks.into()),
        }
    }
}

/// Yields the chunks of a body.
struct ChunkReader {
    chunks: Arc<[Bytes]>,
    /// The index of the next chunk.
    next: usize,
    /// The number of bytes in the chunks that have not been yielded yet.
    remaining: usize,
}

impl ChunkReader {
    fn new(chunks: Arc<[Bytes]>) -> Self {
        let remaining = chunks.iter().map(Bytes::len).sum();
        Self { chunks, next: 0, remaining }
    }
}

impl hyper::body::Body for ChunkReader {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(chunk) = self.chunks.get(self.next).cloned() else { return Poll::Ready(None) };
        self.next += 1;
        self.remaining -= chunk.len();
        Poll::Ready(Some(Ok(Frame::data(chunk))))
    }

    fn is_end_stream(&self) -> bool {
        self.remaining == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.remaining as u64)
    }
}
