//! Serves a connection: reads a request, calls the handler, sends the response, and repeats.

use std::future::pending;
use std::io;
use std::time::Duration;

use bytes::BytesMut;
use futures::StreamExt;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::ReadHalf;
use tokio::time::{sleep, timeout};

use crate::http::decode::{BadRequest, Decoded, Decoder, MAX_HEAD_BYTES};
use crate::http::request::HttpRequest;
use crate::http::request_log::RequestLog;
use crate::http::response::{
    AfterResponse, BodyFraming, BodyPart, Framing, HttpResponse, LAST_CHUNK, encode_chunk,
    encode_head,
};
use crate::lock::lock_ignoring_poison;
use crate::panic::catch_panic;

/// The function that a test provides to answer requests.
pub(super) type Handler = dyn Fn(HttpRequest) -> HttpResponse + Send + Sync;

/// The number of bytes to read from the socket at once.
const READ_BUFFER_BYTES: usize = 8 * 1024;

/// The maximum time to wait for a client to notice that its connection is being closed.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Serves a connection until either side closes it.
pub(super) async fn serve(
    mut stream: TcpStream,
    number: usize,
    handler: &Handler,
    log: &RequestLog,
) {
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let mut decoder = Decoder::new(number);
    loop {
        let request = match receive_request(&mut stream, &mut decoder).await {
            Ok(ReceiveOutcome::Request(request)) => request,
            Ok(ReceiveOutcome::BadRequest(BadRequest(reason))) => {
                let framing =
                    Framing { body: BodyFraming::Chunked, after_response: AfterResponse::Close };
                let refusal = HttpResponse::text(400, reason);
                let _ = write_response(&mut stream, refusal, framing).await;
                return close_connection(stream).await;
            }
            Ok(ReceiveOutcome::ConnectionClosed) | Err(_) => return,
        };
        lock_ignoring_poison(&log.requests).push(request.clone());
        let response = call_handler(handler, request.clone());
        let framing = Framing::for_response(&request, &response);
        match respond(&mut stream, &mut decoder.buffer, response, framing).await {
            WriteOutcome::Complete => match framing.after_response {
                AfterResponse::KeepAlive => {}
                AfterResponse::Close => return close_connection(stream).await,
            },
            WriteOutcome::Cut => return,
            WriteOutcome::Reset => {
                // If setting the linger time fails, the best alternative is to drop the socket.
                let _ = stream.set_zero_linger();
                return;
            }
            WriteOutcome::ClientClosed => {
                return log.closed_early_count.send_modify(|count| *count += 1);
            }
        }
    }
}

enum ReceiveOutcome {
    Request(HttpRequest),
    BadRequest(BadRequest),
    /// The client closed the connection after a complete request, or before any request.
    ConnectionClosed,
}

async fn receive_request(
    stream: &mut TcpStream,
    decoder: &mut Decoder,
) -> io::Result<ReceiveOutcome> {
    loop {
        match decoder.decode() {
            Ok(Decoded::Request(request)) => return Ok(ReceiveOutcome::Request(request)),
            Ok(Decoded::NeedsContinue) => {
                stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
            }
            Ok(Decoded::NeedsBytes) => {
                decoder.buffer.reserve(READ_BUFFER_BYTES);
                if stream.read_buf(&mut decoder.buffer).await? == 0 {
                    return Ok(if decoder.is_between_requests() {
                        ReceiveOutcome::ConnectionClosed
                    } else {
                        ReceiveOutcome::BadRequest(BadRequest("the request ends too early"))
                    });
                }
            }
            Err(bad) => return Ok(ReceiveOutcome::BadRequest(bad)),
        }
    }
}

/// Calls the handler. If the handler panics, returns a response that contains the panic message.
fn call_handler(handler: &Handler, request: HttpRequest) -> HttpResponse {
    // A panic can leave only the handler's own state inconsistent, since the handler has no access
    // to the connection.
    catch_panic(|| handler(request)).unwrap_or_else(|message| {
        HttpResponse::text(500, format!("the handler panicked: {message}"))
    })
}

/// The outcome of sending a response.
enum WriteOutcome {
    Complete,
    Cut,
    Reset,
    ClientClosed,
}

/// Sends a response, and stops if the client closes the connection.
async fn respond(
    stream: &mut TcpStream,
    received: &mut BytesMut,
    response: HttpResponse,
    framing: Framing,
) -> WriteOutcome {
    let (mut reader, mut writer) = stream.split();
    tokio::select! {
        // Writes have priority, so a client that closes its sending side but still reads receives
        // at least everything that can be sent without waiting.
        biased;
        sent = write_response(&mut writer, response, framing) => sent.unwrap_or(WriteOutcome::ClientClosed),
        () = wait_for_client_close(&mut reader, received) => WriteOutcome::ClientClosed,
    }
}

/// Sends a response, one part after another. Returns an error if writing to the client fails.
async fn write_response(
    writer: &mut (impl AsyncWrite + Unpin),
    response: HttpResponse,
    framing: Framing,
) -> io::Result<WriteOutcome> {
    if let Some(BodyPart::Silence) = response.body.first() {
        return pending().await;
    }
    writer.write_all(&encode_head(&response, framing)).await?;
    for part in response.body {
        match part {
            BodyPart::Bytes(data) => write_bytes(writer, &data, framing.body).await?,
            BodyPart::Delay(duration) => sleep(duration).await,
            BodyPart::Stream(body) => {
                let mut stream = body.take();
                while let Some(piece) = stream.next().await {
                    match piece {
                        Ok(data) => write_bytes(writer, &data, framing.body).await?,
                        Err(_) => return Ok(WriteOutcome::Cut),
                    }
                }
            }
            BodyPart::Hang | BodyPart::Silence => pending().await,
            BodyPart::Cut => return Ok(WriteOutcome::Cut),
            BodyPart::Reset => return Ok(WriteOutcome::Reset),
        }
    }
    match framing.body {
        BodyFraming::Chunked => writer.write_all(LAST_CHUNK).await?,
        BodyFraming::Absent => {}
    }
    Ok(WriteOutcome::Complete)
}

async fn write_bytes(
    writer: &mut (impl AsyncWrite + Unpin),
    data: &[u8],
    framing: BodyFraming,
) -> io::Result<()> {
    match framing {
        // An empty chunk would be interpreted as the last chunk.
        BodyFraming::Chunked if data.is_empty() => Ok(()),
        BodyFraming::Chunked => writer.write_all(&encode_chunk(data)).await,
        BodyFraming::Absent => Ok(()),
    }
}

/// Waits until the client closes the connection. Bytes that arrive in the meantime belong to the
/// next request.
async fn wait_for_client_close(reader: &mut ReadHalf<'_>, received: &mut BytesMut) {
    while received.len() < MAX_HEAD_BYTES {
        received.reserve(READ_BUFFER_BYTES);
        match reader.read_buf(received).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
    }
    // Any further bytes stay in the socket. While unread bytes remain in the socket, the server
    // cannot detect that the client has closed the connection.
    pending::<()>().await;
}

/// Closes a connection so that the client can still read everything that was sent.
///
/// Dropping a socket that has unread bytes resets the connection, and a reset may arrive before the
/// response. To avoid a reset, this function first reads any remaining bytes, with a time limit.
async fn close_connection(mut stream: TcpStream) {
    let farewell = async {
        stream.shutdown().await?;
        tokio::io::copy(&mut stream, &mut tokio::io::sink()).await
    };
    let _ = timeout(CLOSE_TIMEOUT, farewell).await;
}
