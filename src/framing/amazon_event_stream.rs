//! Splits a body into binary messages, each of which starts with its length.

use bytes::{Buf, Bytes, BytesMut};

use super::{Framing, MAX_FRAME_BYTES};
use crate::error::{Error, ErrorKind};
use crate::sse::Frame;

/// Splits a body into frames in Amazon's event stream encoding,
/// `application/vnd.amazon.eventstream`: <https://smithy.io/2.0/aws/amazon-eventstream.html>.
///
/// A frame's event type is the value of the first of these headers that is present:
/// `:exception-type`, `:error-code`, `:event-type`; if none of these headers is present, the event
/// type is `message`. The frame's data is the payload, or the value of `:error-message` if the
/// payload is empty. Exception names end in `Exception`, so a decoder can distinguish exceptions
/// from events. Checksums are verified. The maximum size of a message is 64 MiB. An incomplete
/// message at the end of the body is dropped.
#[derive(Debug, Default)]
pub struct AmazonEventStream {
    bytes: BytesMut,
    has_failed: bool,
    /// The message's event type, from which the returned frame borrows.
    event: String,
    data: String,
}

/// The size of the prelude in bytes. The prelude contains the total length, the length of the
/// headers, and the checksum of both lengths, 4 bytes each.
const PRELUDE_BYTES: usize = 12;
/// The size in bytes of the checksum at the end of a message, which covers all preceding bytes.
const CHECKSUM_BYTES: usize = 4;

impl AmazonEventStream {
    /// Removes a complete message from the buffer and parses it.
    fn take_message(&mut self) -> Result<Option<()>, Error> {
        let Some(mut prelude) = self.bytes.get(..PRELUDE_BYTES) else { return Ok(None) };
        let sum = crc32fast::hash(&prelude[..PRELUDE_BYTES - CHECKSUM_BYTES]);
        let (total, headers) = (prelude.get_u32() as usize, prelude.get_u32() as usize);
        let smallest = PRELUDE_BYTES + CHECKSUM_BYTES;
        if prelude.get_u32() != sum || total < smallest || headers > total - smallest {
            return Err(invalid_message_error("its lengths are wrong"));
        }
        if total > MAX_FRAME_BYTES {
            let message = format!("a message is larger than {MAX_FRAME_BYTES} bytes");
            return Err(Error::new(ErrorKind::TooLarge, message));
        }
        if self.bytes.len() < total {
            return Ok(None);
        }
        let mut message = self.bytes.split_to(total).freeze();
        let mut sum = message.split_off(total - CHECKSUM_BYTES);
        if sum.get_u32() != crc32fast::hash(&message) {
            return Err(invalid_message_error("its checksum is wrong"));
        }
        message.advance(PRELUDE_BYTES);
        let payload = message.split_off(headers);
        self.data = String::from_utf8_lossy(&payload).into_owned();
        self.read_headers(message).map(Some)
    }

    fn read_headers(&mut self, mut headers: Bytes) -> Result<(), Error> {
        let mut types = [const { String::new() }; 3];
        while headers.has_remaining() {
            let (name, value) = read_header(&mut headers)
                .ok_or_else(|| invalid_message_error("a header is wrong"))?;
            match (name.as_str(), value) {
                (":exception-type", Some(value)) => types[0] = value,
                (":error-code", Some(value)) => types[1] = value,
                (":event-type", Some(value)) => types[2] = value,
                (":error-message", Some(value)) if self.data.is_empty() => self.data = value,
                _ => {}
            }
        }
        let named = types.into_iter().find(|name| !name.is_empty());
        self.event = named.unwrap_or_else(|| "message".to_owned());
        Ok(())
    }
}

/// Parses a header. Returns the header's name, and its value if the value is a string.
fn read_header(headers: &mut Bytes) -> Option<(String, Option<String>)> {
    let text = |bytes: Bytes| String::from_utf8_lossy(&bytes).into_owned();
    let len = headers.try_get_u8().ok()?;
    let name = text(take_bytes(headers, len.into())?);
    let value = match headers.try_get_u8().ok()? {
        // A boolean header has no value bytes.
        0 | 1 => return Some((name, None)),
        2 => take_bytes(headers, 1)?,
        3 => take_bytes(headers, 2)?,
        4 => take_bytes(headers, 4)?,
        5 | 8 => take_bytes(headers, 8)?,
        9 => take_bytes(headers, 16)?,
        kind @ (6 | 7) => {
            let len = headers.try_get_u16().ok()?;
            let value = take_bytes(headers, len.into())?;
            return Some((name, (kind == 7).then(|| text(value))));
        }
        _ => return None,
    };
    drop(value);
    Some((name, None))
}

fn take_bytes(bytes: &mut Bytes, len: usize) -> Option<Bytes> {
    (bytes.len() >= len).then(|| bytes.split_to(len))
}

fn invalid_message_error(what: &str) -> Error {
    Error::new(ErrorKind::Protocol, format!("a message of the event stream is broken: {what}"))
}

impl Framing for AmazonEventStream {
    const MEDIA_TYPE: &'static str = "application/vnd.amazon.eventstream";

    fn feed(&mut self, chunk: Bytes) {
        if !self.has_failed {
            self.bytes.extend_from_slice(&chunk);
        }
    }

    fn next_frame(&mut self) -> Option<Result<Frame<'_>, Error>> {
        match self.take_message() {
            Ok(message) => message.map(|()| Ok(Frame::new(&self.event, &self.data))),
            Err(error) => {
                *self = Self { has_failed: true, ..Self::default() };
                Some(Err(error))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::BufMut;

    use super::*;

    /// Encodes a message whose headers are strings.
    fn message(headers: &[(&str, &str)], payload: &str) -> Vec<u8> {
        let mut named = Vec::new();
        for (name, value) in headers {
            named.put_u8(name.len().try_into().unwrap());
            named.put_slice(name.as_bytes());
            named.put_u8(7);
            named.put_u16(value.len().try_into().unwrap());
            named.put_slice(value.as_bytes());
        }
        of_parts(&named, payload.as_bytes())
    }

    fn of_parts(headers: &[u8], payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_u32((headers.len() + payload.len() + 16).try_into().unwrap());
        out.put_u32(headers.len().try_into().unwrap());
        out.put_u32(crc32fast::hash(&out));
        out.put_slice(headers);
        out.put_slice(payload);
        out.put_u32(crc32fast::hash(&out));
        out
    }

    fn read(bytes: &[u8], step: usize) -> Vec<Result<(String, String), ErrorKind>> {
        let mut reader = AmazonEventStream::default();
        let mut frames = Vec::new();
        for chunk in bytes.chunks(step) {
            reader.feed(Bytes::copy_from_slice(chunk));
            while let Some(frame) = reader.next_frame() {
                let own = |frame: Frame<'_>| (frame.event.to_owned(), frame.data.to_owned());
                frames.push(frame.map(own).map_err(|error| error.kind()));
            }
        }
        assert!(reader.finish().is_none());
        frames
    }

    #[test]
    fn messages_are_decoded_for_any_split_of_the_bytes() {
        let mut bytes = message(
            &[(":message-type", "event"), (":event-type", "contentBlockDelta")],
            r#"{"delta":{"text":"hé"}}"#,
        );
        bytes.extend(message(
            &[(":message-type", "exception"), (":exception-type", "throttlingException")],
            r#"{"message":"slow down"}"#,
        ));
        bytes.extend(message(&[(":error-code", "InternalError"), (":error-message", "oh")], ""));
        let expected = [
            ("contentBlockDelta", r#"{"delta":{"text":"hé"}}"#),
            ("throttlingException", r#"{"message":"slow down"}"#),
            ("InternalError", "oh"),
        ];
        for step in 1..=bytes.len() {
            let frames: Vec<_> = read(&bytes, step).into_iter().map(Result::unwrap).collect();
            let frames: Vec<_> = frames.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
            assert_eq!(frames, expected, "in chunks of {step}");
        }
    }

    /// Messages from the vendor's own test suite, `empty_message` and `payload_no_headers`.
    #[test]
    fn checksums_equal_the_vendors_examples() {
        let empty = [0, 0, 0, 0x10, 0, 0, 0, 0, 5, 0xc2, 0x48, 0xeb, 0x7d, 0x98, 0xc8, 0xff];
        assert_eq!(of_parts(&[], &[]), empty);
        let payload = of_parts(&[], b"{'foo':'bar'}");
        assert_eq!(payload[8..12], [0xfd, 0x52, 0x8c, 0x5a]);
        assert_eq!(payload[payload.len() - 4..], [0xc3, 0x65, 0x39, 0x36]);
    }

    #[test]
    fn headers_of_every_type_are_skipped() {
        let mut headers = Vec::new();
        for (kind, len) in [(0, 0), (1, 0), (2, 1), (3, 2), (4, 4), (5, 8), (8, 8), (9, 16)] {
            headers.extend([1, b'x', kind]);
            headers.extend(std::iter::repeat_n(0xff, len));
        }
        headers.extend([1, b'x', 6, 0, 2, 0xff, 0xff]);
        headers.extend([11]);
        headers.extend(b":event-type");
        headers.extend([7, 0, 1, b'e']);
        assert_eq!(read(&of_parts(&headers, b"1"), 7), [Ok(("e".to_owned(), "1".to_owned()))]);
    }

    #[test]
    fn broken_messages_are_an_error_and_nothing_follows() {
        let whole = message(&[(":event-type", "e")], "12");
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x40;
            bytes.extend(&whole);
            assert_eq!(read(&bytes, 5), [Err(ErrorKind::Protocol)], "byte {at}");
        }
        assert_eq!(read(&of_parts(&[9, b'x'], b""), 5), [Err(ErrorKind::Protocol)]);
        assert_eq!(read(&of_parts(&[1, b'x', 10], b""), 5), [Err(ErrorKind::Protocol)]);
        assert_eq!(read(&whole[..whole.len() - 1], 5), []);
        let mut huge = Vec::new();
        huge.put_u32(u32::MAX);
        huge.put_u32(0);
        huge.put_u32(crc32fast::hash(&huge));
        assert_eq!(read(&huge, 5), [Err(ErrorKind::TooLarge)]);
    }
}
