//! JSON lines: an object a line, each ended by LF. Sessions, traces and recordings are written so.
//!
//! [`LineWriter`] writes lines until something fails, and [`lines`], [`parse_values`] and [`read_lines`] read
//! them. A last line without its LF may be torn: a crash has left its beginning.
//!
//! The file of a session is read by these and not written by a [`LineWriter`]. An append is one write,
//! whose first line has the length and the checksum of what follows; it is acknowledged when it is on the
//! disk, and taken back where it fails, so that the next one works. It goes to a file that is opened and
//! locked for it alone, as others may have written since.

mod read;
mod write;

pub(crate) use read::{
    is_complete_object, is_truncated_object, parse_values, read_lines, split_lines,
};
pub(crate) use write::LineWriter;
