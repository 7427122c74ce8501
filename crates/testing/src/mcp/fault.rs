//! Describes the faults that can be injected into a server.

use std::str::FromStr;
use std::time::Duration;

use turnstream::error::{Error, ErrorKind};

/// A way in which an [`McpServer`](crate::mcp::McpServer) can misbehave. A server can have
/// several faults.
///
/// A fault can be parsed from its name. If a fault takes a number, its name may be followed by `:`
/// and the number:
///
/// ```
/// use turnstream_testing::mcp::McpFault;
///
/// assert_eq!("dies-at:3".parse::<McpFault>()?, McpFault::DiesAt(3));
/// assert_eq!("many-tools".parse::<McpFault>()?, McpFault::ManyTools(100_000));
/// # Ok::<(), turnstream::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum McpFault {
    /// Returns a tool list that never ends: every page contains one tool and a cursor for the next
    /// page (`endless-list`).
    EndlessList,
    /// Adds this number of tools to the list, all on one page unless a page size is set
    /// (`many-tools:N`, 100,000 by default).
    ManyTools(usize),
    /// Lists a tool with a schema of at least this number of bytes (`large-schema:N`, 2 MiB by
    /// default).
    LargeSchema(usize),
    /// Lists tools with invalid schemas: a string, a missing schema, a schema whose type is not
    /// `object`, and a schema that refers to a URL (`bad-schemas`).
    BadSchemas,
    /// Lists tools with invalid names: empty, long and duplicate names, names with special
    /// characters, and names that become equal when special characters are replaced (`bad-names`).
    BadNames,
    /// Returns a different list each time a client lists the tools (`changing-list`).
    ChangingList,
    /// Sends progress for a call every millisecond, without ever ending the call or running its
    /// handler (`endless-progress`).
    EndlessProgress,
    /// Answers a call with this number of bytes, without ending the line or event (`long-line:N`,
    /// 100 MiB by default). The server never holds all of the bytes in memory.
    LongLine(u64),
    /// Answers a call with a valid result that contains this many bytes of text (`large-result:N`,
    /// 50 MiB by default). The server never holds all of the bytes in memory. The result contains
    /// no `structuredContent`, so it is not valid for a tool that has an output schema.
    LargeResult(u64),
    /// Never answers any message (`silent`).
    Silent,
    /// Answers only `server/discover` and `initialize` (`silent-after-discover`).
    SilentAfterDiscover,
    /// Sends answers whose ids do not match any request (`wrong-ids`).
    WrongIds,
    /// Sends every answer twice (`answers-twice`).
    AnswersTwice,
    /// Sends lines that are not JSON before each answer (`noise`).
    Noise,
    /// Sends bytes that are not valid UTF-8 before each answer (`binary-noise`).
    BinaryNoise,
    /// Closes the connection without an answer when the message with this number arrives, counting
    /// from 1 (`dies-at:N`, 1 by default). Over HTTP, messages are counted across all connections,
    /// and any connection on which a later message arrives is also closed.
    DiesAt(u64),
    /// Never reads any input (`never-reads`). Over HTTP, this fault has the same effect as
    /// [`Silent`](Self::Silent), because the server has to read a request to determine its type.
    NeverReads,
    /// Sends each byte separately, after this delay (`slow-drip:N`, in milliseconds, 10 by
    /// default). The delay is measured by tokio's clock.
    SlowDrip(Duration),
    /// Before each answer, sends requests to the client that are not part of any call
    /// (`unsolicited-requests`).
    UnsolicitedRequests,
}

impl McpFault {
    /// The fault names that [`FromStr`] accepts, excluding the number that some names are followed
    /// by.
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

    /// Parses a fault from its name. If a fault takes a number, its name may be followed by `:` and
    /// the number.
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
