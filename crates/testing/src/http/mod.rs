//! A loopback HTTP/1.1 server that can inject network faults.
//!
//! A [`LoopbackServer`] passes each request to a closure and sends the [`HttpResponse`] that the
//! closure returns. A response consists of bytes, possibly with network faults between them. Each
//! [`BodyPart::Bytes`] is sent as one HTTP chunk. The server listens only on 127.0.0.1, so it needs
//! no network other than the loopback device. TLS and HTTP/2 are not supported.
//!
//! ```
//! use bytes::Bytes;
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//! use tokio::net::TcpStream;
//! use turnstream_testing::http::{HttpResponse, LoopbackServer, BodyPart};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! let server = LoopbackServer::start(|request| HttpResponse {
//!     status: 200,
//!     headers: vec![("content-type".into(), "text/event-stream".into())],
//!     body: vec![
//!         BodyPart::Bytes(Bytes::from(format!("data: {}\n\n", request.path))),
//!         BodyPart::Cut,
//!     ],
//! })
//! .await?;
//!
//! // Any HTTP client works; this one is minimal.
//! let mut client = TcpStream::connect(server.url().trim_start_matches("http://")).await?;
//! client.write_all(b"GET /hello HTTP/1.1\r\n\r\n").await?;
//! let mut answer = String::new();
//! client.read_to_string(&mut answer).await?;
//!
//! assert!(answer.ends_with("data: /hello\n\n\r\n"), "the final chunk never comes");
//! assert_eq!(server.requests()[0].path, "/hello");
//! # Ok(())
//! # }
//! ```

mod body_stream;
mod request;
mod response;

mod decode;
mod request_log;

mod connection;
mod server;

#[cfg(test)]
mod tests;

pub use body_stream::BodyStream;
pub use request::HttpRequest;
pub use response::{BodyPart, HttpResponse};
pub use server::LoopbackServer;
