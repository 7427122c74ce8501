//! Reads and writes JSON lines, with one object per line and an LF at the end of each line.
//! Sessions, traces and recordings use this format.
//!
//! [`LineWriter`] writes lines until an error occurs; [`split_lines`], [`parse_values`] and
//! [`read_lines`] read lines. A last line without an LF may be torn, that is, truncated by a crash.
//!
//! A session's file is read with these functions but not written by a [`LineWriter`]. Each append
//! to the file is a single write, whose first line contains the length and the checksum of the
//! rest. An append is acknowledged once its bytes have reached the disk. If a write fails, its
//! effects on the file are undone, so that later appends can succeed. Each append opens and locks
//! the file separately, because other processes may have written to the file.

mod read;
mod write;

pub(crate) use read::{is_truncated_object, parse_values, read_lines, split_lines};
pub(crate) use write::LineWriter;
