//! The ways in which the server misbehaves, as data.

use std::str::FromStr;
use std::time::Duration;

use crate::error::{Error, ErrorKind};

/// One way in which an [`McpServer`](crate::testing::mcp::McpServer) misbehaves. Several may be set.
///
/// Each can be read from a name, with a number where it has one:
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
    /// Every page of the list of tools has a tool and a next cursor (`endless-list`).
    EndlessList,
    /// The list has this number of tools more, on one page unless a page size is set
    /// (`many-tools:N`, 100,000 by default).
    ManyTools(usize),
    /// The list has a tool whose schema has at least this number of bytes (`large-schema:N`, 2 MiB
    /// by default).
    LargeSchema(usize),
    /// The list has tools with a schema that is a string, that is missing, that has a type other
    /// than `object`, and that refers to an address on the web (`bad-schemas`).
    BadSchemas,
    /// The list has tools whose names are empty, long, not plain, doubled, or equal once they are
    /// cleaned (`bad-names`).
    BadNames,
    /// The list of tools differs each time (`changing-list`).
    ChangingList,
    /// A call sends progress once a millisecond and never ends; its handler does not run
    /// (`endless-progress`).
    EndlessProgress,
    /// A call is answered by this number of bytes and never by the end of the line or event
    /// (`long-line:N`, 100 MiB by default). The bytes are not in memory at once.
    LongLine(u64),
    /// A call is answered by a lawful result with a text of this number of bytes (`large-result:N`,
    /// 50 MiB by default). The bytes are not in memory at once. A tool with an output schema would
    /// need `structuredContent` as well, which the result does not have.
    LargeResult(u64),
    /// Nothing is ever answered (`silent`).
    Silent,
    /// `server/discover` and `initialize` are answered, and nothing else (`silent-after-discover`).
    SilentAfterDiscover,
    /// Answers carry an id that no request had (`wrong-ids`).
    WrongIds,
    /// Every answer is sent twice (`answers-twice`).
    AnswersTwice,
    /// Lines that are not JSON come before each answer (`noise`).
    Noise,
    /// Bytes that are not text come before each answer (`binary-noise`).
    BinaryNoise,
    /// The connection closes when the message of this number arrives, counted from 1, and it is not
    /// answered (`dies-at:N`, 1 by default). Over HTTP, the server counts over all connections, and
    /// later messages are cut off too.
    DiesAt(u64),
    /// Nothing is ever read (`never-reads`). Over HTTP the same as [`Silent`](Self::Silent), since
    /// a request is read before it is known what it is.
    NeverReads,
    /// Every byte is sent on its own, with this wait before it, by tokio's clock (`slow-drip:N`, in
    /// milliseconds, 10 by default).
    SlowDrip(Duration),
    /// Requests to the client that nothing called for come before each answer
    /// (`unsolicited-requests`).
    UnsolicitedRequests,
}

impl McpFault {
    /// The names that [`FromStr`] reads, without numbers.
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

    /// Reads a name, with `:` and a number after it where the fault has one.
    fn from_str(text: &str) -> Result<Self, Error> {
        let invalid = |what: &str| Error::new(ErrorKind::InvalidRequest, format!("{what}: {text}"));
        let (name, number) = match text.split_once(':') {
            Some((name, digits)) => {
                let number = digits.parse::<u64>();
                (name, Some(number.map_err(|_| invalid("the fault's number is not one"))?))
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
