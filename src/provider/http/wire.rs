//! A protocol of model providers, as far as one differs from another.

use std::borrow::Cow;
use std::fmt;
use std::time::SystemTime;

use crate::error::Error;
use crate::framing::Framing;
use crate::http::KeyHeader;
use crate::provider::decode::Decode;
use crate::provider::failure;
use crate::request::Request;

/// A protocol that models are asked in over HTTP.
///
/// A wire says how a request is written, where it goes, and how the answer is read;
/// [`HttpProvider`](crate::provider::HttpProvider) does the rest: it sends the request, waits within
/// its time limits, retries, and hides keys. The value of a wire holds the settings that only this
/// wire has.
///
/// The example `own_wire` writes one for a vendor that does not exist.
pub trait Wire: Clone + fmt::Debug + Send + Sync + 'static {
    /// How the bytes of an answer are cut into frames.
    type Framing: Framing + Default + Send + Unpin + 'static;

    /// Reads the frames of one answer.
    type Decoder: Decode + Send + Unpin + 'static;

    /// The name of the wire in messages, and in the provider data of the items that it reads.
    fn name(&self) -> &str;

    /// Where requests go unless told otherwise; empty if there is no usual address. A host that is
    /// reached by https is the vendor's own, which does not answer without a key.
    fn base_url(&self) -> &str;

    /// What follows the base URL in the address of a request, for example `/v1/messages`.
    /// `{model}` stands for the name of the model, and a query may follow:
    /// `/models/{model}:streamGenerateContent?alt=sse`.
    fn path(&self, model: &str) -> &str;

    /// The headers that are sent with each request, their names in lower case; none by default.
    fn headers(&self) -> &[(&'static str, &'static str)] {
        &[]
    }

    /// The header that a key is sent in: `authorization: Bearer …` by default.
    fn key_header(&self) -> KeyHeader {
        KeyHeader::Bearer
    }

    /// Writes the body of a request. It is called once for a turn, however often that is attempted.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest) or
    /// [`Unsupported`](crate::ErrorKind::Unsupported) for what the wire cannot express; nothing is
    /// sent then.
    fn encode(&self, request: &Request, to: Destination<'_>) -> Result<Encoded, Error>;

    /// Makes the decoder of one answer.
    fn decoder(&self, request: &Request, to: Destination<'_>) -> Self::Decoder;

    /// Reads an answer that is an error by its status. By default this finds messages, codes and
    /// waits in all the shapes that servers are known to give them.
    fn refused(&self, refusal: &Refusal<'_>) -> Error {
        refusal.to_error()
    }
}

/// Whom a request asks.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Destination<'a> {
    /// The model that is asked.
    pub model: &'a str,
    /// Whether the request goes to the vendor of the wire itself and not to a server that copies
    /// it.
    pub is_vendor: bool,
}

/// A request as it is sent.
#[derive(Clone, Debug, Default)]
pub struct Encoded {
    pub(super) body: Vec<u8>,
    pub(super) headers: Vec<(Cow<'static, str>, String)>,
}

impl Encoded {
    /// Adds a header that goes with this body. If one of the same name is set already, for example by
    /// the user, the value is added to its values behind a comma.
    pub fn with_header(mut self, name: impl Into<Cow<'static, str>>, value: &str) -> Self {
        self.headers.push((name.into(), value.to_owned()));
        self
    }
}

/// A body of JSON.
impl From<Vec<u8>> for Encoded {
    fn from(body: Vec<u8>) -> Self {
        Self { body, headers: Vec::new() }
    }
}

/// An answer that is an error by its status.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Refusal<'a> {
    /// The HTTP status.
    pub status: u16,
    /// The beginning of the body, at most 64 KiB; empty where it cannot be read.
    pub body: &'a str,
    /// When the answer came, for dates in it.
    pub received: SystemTime,
}

impl Refusal<'_> {
    /// The error that status and body tell of.
    ///
    /// What the headers say, such as `retry-after` and a request id, is added after
    /// [`Wire::refused`].
    pub fn to_error(&self) -> Error {
        failure::of_status(self.status, self.body, self.received)
    }
}
