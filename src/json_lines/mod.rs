//! JSON lines: one object per line, each terminated by LF. Sessions, traces and recordings use this
//! format.
//!
//! [`LineWriter`] writes lines until an error occurs; [`split_lines`], [`parse_values`] and
//! [`read_lines`] read them. A last line without its LF may be torn: truncated by a crash.
//!
//! A session's file is read with these functions but not written by a [`LineWriter`]. An append is
//! a single write, whose first line has the length and the checksum of the rest. It is acknowledged
//! after it has reached the disk, and undone if it fails, so that the next append works. Each
//! append opens and locks the file for itself, because other processes may have written to it.

mod read;
mod write;

pub(crate) use read::{
    is_complete_object, is_truncated_object, parse_values, read_lines, split_lines,
};
pub(crate) use write::LineWriter;
