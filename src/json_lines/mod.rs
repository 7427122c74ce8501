//! JSON lines: one object per line, each line terminated by LF. Sessions, traces and recordings use
//! this format.
//!
//! [`LineWriter`] writes lines until an error occurs; [`split_lines`], [`parse_values`] and
//! [`read_lines`] read lines. A last line without its LF may be torn, which means that it was
//! truncated by a crash.
//!
//! A session's file is read with these functions but not written by a [`LineWriter`]. An append to
//! the file is a single write, whose first line has the length and the checksum of the rest. The
//! append is acknowledged after its bytes have reached the disk, and undone if the write fails, so
//! that the next append works. Each append opens and locks the file for itself, because other
//! processes may have written to the file.

mod read;
mod write;

pub(crate) use read::{
    is_complete_object, is_truncated_object, parse_values, read_lines, split_lines,
};
pub(crate) use write::LineWriter;
