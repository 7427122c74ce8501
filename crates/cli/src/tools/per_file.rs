//! Work on many files: in parts, with a progress report between two parts.

use std::fs::File;
use std::io;

use async_stream::stream;
use futures::StreamExt;
use serde_json::json;
use turnstream::tool::{ToolContext, ToolOutput, ToolUpdate, UpdateStream};

use crate::tools::blocking::run_blocking;
use crate::tools::root::{FileIter, Location};

/// The number of files before the first progress report. Each part is twice as long as the previous
/// one, up to a maximum.
const FIRST_PART_FILES: usize = 50;
const MAX_PART_FILES: usize = 1_000;

/// The maximum number of files that are visited.
const MAX_FILES: usize = 50_000;

/// An operation on each file.
pub(crate) trait FileVisitor: Send + 'static {
    /// Visits a file: the result of opening it, and its path.
    fn visit_file(&mut self, file: io::Result<File>, path: &str, cx: &ToolContext);

    /// The progress in a few words.
    fn progress_text(&self) -> String;

    fn into_report(
        self,
        place: &Location,
        walk: &FileWalk,
    ) -> Result<ToolOutput, turnstream::Error>;
}

/// The state of a walk through the files.
pub(crate) struct FileWalk {
    files: FileIter,
    seen_count: usize,
}

impl FileWalk {
    /// The number of visited files.
    pub(crate) fn seen_count(&self) -> usize {
        self.seen_count
    }

    pub(crate) fn extension(&self) -> Option<&str> {
        self.files.extension()
    }

    /// A note for the model about files that the report does not cover.
    pub(crate) fn incomplete_note(&self) -> Option<String> {
        let unreadable = self.files.unreadable_count();
        match (self.seen_count >= MAX_FILES, unreadable) {
            (false, 0) => None,
            (false, _) => Some(format!("{unreadable} directories could not be read")),
            (true, _) => Some(format!(
                "stopped after {MAX_FILES} files: the figures are incomplete; use a smaller directory"
            )),
        }
    }
}

/// Visits the files one after the other. Nothing is read before the first poll; a drop stops the
/// work, even within a file.
pub(crate) fn stream_updates<W: FileVisitor>(
    start: impl FnOnce() -> Result<(W, Location, FileIter), String> + Send + 'static,
    cx: ToolContext,
) -> UpdateStream {
    let updates = stream! {
        let begun = run_blocking(start).await.map(|(work, place, files)| {
            (work, place, FileWalk { files, seen_count: 0 })
        });
        let (mut work, mut place, mut walk) = match begun {
            Ok(begun) => begun,
            Err(why) => {
                yield ToolUpdate::output(Err::<String, _>(why));
                return;
            }
        };
        let mut size = FIRST_PART_FILES;
        loop {
            let cx = cx.clone();
            let part = run_blocking(move || {
                let before = walk.seen_count;
                for (file, path) in walk.files.by_ref().take(size.min(MAX_FILES - before)) {
                    if cx.is_cancelled() {
                        break;
                    }
                    work.visit_file(file, &path, &cx);
                    walk.seen_count += 1;
                }
                let more = walk.seen_count == before + size && walk.seen_count < MAX_FILES;
                Ok((work, place, walk, more))
            });
            let more;
            (work, place, walk, more) = match part.await {
                Ok(part) => part,
                Err(why) => {
                    yield ToolUpdate::output(Err::<String, _>(why));
                    return;
                }
            };
            if !more {
                break;
            }
            yield ToolUpdate::progress(&json!({ "files": walk.seen_count, "so_far": work.progress_text() }));
            size = MAX_PART_FILES.min(size * 2);
        }
        yield ToolUpdate::output(work.into_report(&place, &walk));
    };
    updates.boxed()
}
