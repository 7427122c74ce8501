//! JSON lines: an object a line, each ended by LF. Sessions, traces and recordings are written so.
//!
//! [`LineWriter`] writes lines until something fails, and [`lines`], [`values`] and [`read_lines`] read
//! them. A last line without its LF may be torn: a crash has left its beginning.

mod read;
mod write;

pub(crate) use read::{is_cut, is_whole, lines, read_lines, values};
pub(crate) use write::LineWriter;
