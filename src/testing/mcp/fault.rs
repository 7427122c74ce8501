//! Faults of the server, as data.

use std::str::FromStr;
use std::time::Duration;

use crate::error::{Error, ErrorKind};

/// A fault of an [`McpServer`](crate::testing::mcp::McpServer). Several faults can be set.
///
/// Each fault can be parsed from a name, followed by a number if the fault has a number:
///
/// ```
/// use turnstream::testing::mcp::McpFault;
///
/// assert_eq!("dies-at:3".parse::<McpFault>()?, McpFault::DiesAt(3));
/// assert_eq!("many-tools".parse::<McpFault>()?, McpFault::ManyTools(100_000));
/// # Ok::<(), turnstream::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum McpFault {
    /// Every page of the tool list has one tool and a next cursor (`endless-list`).
    EndlessList,
    /// The list has this number of additional tools, on one page unless a page size is set
    /// (`many-tools:N`, 100,000 by default).
    ManyTools(usize),
    /// The list has a tool whose schema has at least this number of bytes (`large-schema:N`, 2 MiB
    /// by default).
    LargeSchema(usize),
    /// The list has tools with these schemas: a string, a missing schema, a schema with a type
    /// other than `object`, and a schema that refers to a URL (`bad-schemas`).
    BadSchemas,
    /// The list has tools with these names: empty, long, with special characters, duplicate, or
    /// equal after special characters are replaced (`bad-names`).
    BadNames,
    /// The tool list is different in each listing (`changing-list`).
    ChangingList,
    /// A call sends progress every millisecond and never ends. The handler of the call does not run
    /// (`endless-progress`).
    EndlessProgress,
    /// A call is answered with this number of bytes, without the end of the line or event
    /// (`long-line:N`, 100 MiB by default). The bytes are never all in memory.
    LongLine(u64),
    /// A call is answered with a valid result that has a text of this number of bytes
    /// (`large-result:N`, 50 MiB by default). The bytes are never all in memory. The result has no
    /// `structuredContent`, which a tool with an output schema would need.
    LargeResult(u64),
    /// No message is ever answered (`silent`).
    Silent,
    /// Only `server/discover` and `initialize` are answered (`silent-after-discover`).
    SilentAfterDiscover,
    /// Answers have an id that no request had (`wrong-ids`).
    WrongIds,
    /// Every answer is sent twice (`answers-twice`).
    AnswersTwice,
    /// Lines that are not JSON are sent before each answer (`noise`).
    Noise,
    /// Bytes that are not text are sent before each answer (`binary-noise`).
    BinaryNoise,
    /// The connection closes when the message with this number, starting at 1, arrives. The message
    /// is not answered (`dies-at:N`, 1 by default). Over HTTP, messages are counted over all
    /// connections, and later messages are cut off too.
    DiesAt(u64),
    /// The server never reads any input (`never-reads`). Over HTTP this fault is the same as
    /// [`Silent`](Self::Silent), since a request must be read before its type is known.
    NeverReads,
    /// Every byte is sent separately, after this delay by tokio's clock (`slow-drip:N`, in
    /// milliseconds, 10 by default).
    SlowDrip(Duration),
    /// Before each answer, the server sends requests to the client that are not part of any call
    /// (`unsolicited-requests`).
    UnsolicitedRequests,
}

impl McpFault {
    /// The fault names that [`FromStr`] accepts, without numbers.
    pub const NAMES: &[&str] = &[
        "endless-list",
        "many-tools",
        "large-schema",
        "bad-schemas",
        "bad-names",
        "changing-list",
        "endless-progress",
        "long-line",
        "large-result",
        "silent",
        "silent-after-discover",
        "wrong-ids",
        "answers-twice",
        "noise",
        "binary-noise",
        "dies-at",
        "never-reads",
        "slow-drip",
        "unsolicited-requests",
    ];
}

impl FromStr for McpFault {
    type Err = Error;

    /// Parses a fault name, followed by `:` and a number if the fault has a number.
    fn from_str(text: &str) -> Result<Self, Error> {
        let invalid = |what: &str| Error::new(ErrorKind::InvalidRequest, format!("{what}: {text}"));
        let (name, number) = match text.split_once(':') {
            Some((name, digits)) => {
                let number = digits.parse::<u64>();
                (name, Some(number.map_err(|_| invalid("the fault's number is invalid"))?))
            }
            None => (text, None),
        };
        let count = |default: usize| match number {
            Some(number) => {
                usize::try_from(number).map_err(|_| invalid("the fault's number is too large"))
            }
            None => Ok(default),
        };
        let fault = match name {
            "many-tools" => Self::ManyTools(count(100_000)?),
            "large-schema" => Self::LargeSchema(count(2 << 20)?),
            "long-line" => Self::LongLine(number.unwrap_or(100 << 20)),
            "large-result" => Self::LargeResult(number.unwrap_or(50 << 20)),
            "dies-at" => Self::DiesAt(number.unwrap_or(1)),
            "slow-drip" => Self::SlowDrip(Duration::from_millis(number.unwrap_or(10))),
            _ if number.is_some() => return Err(invalid("the fault has no number, or is unknown")),
            "endless-list" => Self::EndlessList,
            "bad-schemas" => Self::BadSchemas,
            "bad-names" => Self::BadNames,
            "changing-list" => Self::ChangingList,
            "endless-progress" => Self::EndlessProgress,
            "silent" => Self::Silent,
            "silent-after-discover" => Self::SilentAfterDiscover,
            "wrong-ids" => Self::WrongIds,
            "answers-twice" => Self::AnswersTwice,
            "noise" => Self::Noise,
            "binary-noise" => Self::BinaryNoise,
            "never-reads" => Self::NeverReads,
            "unsolicited-requests" => Self::UnsolicitedRequests,
            _ => return Err(invalid("an unknown fault")),
        };
        Ok(fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_name_is_a_fault() {
        for name in McpFault::NAMES {
            assert!(name.parse::<McpFault>().is_ok(), "{name}");
        }
    }

    #[test]
    fn a_number_is_read_where_the_fault_has_one() {
        assert_eq!("dies-at:7".parse::<McpFault>().unwrap(), McpFault::DiesAt(7));
        for bad in ["silent:1", "dies-at:x", "dies-at:", "unknown", ""] {
            assert!(bad.parse::<McpFault>().is_err(), "{bad}");
        }
    }
}
