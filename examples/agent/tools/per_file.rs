//! Work on many files: in parts, with a report of progress between two parts.

use std::fs::File;
use std::io;

use async_stream::stream;
use futures::Stream;
use serde_json::json;
use turnstream::tool::{ToolContext, ToolOutput, ToolUpdate};

use crate::tools::blocking;
use crate::tools::root::{Files, Place};

/// So many files are looked at before the first report of progress. Each part is twice as long as
/// the one before it, up to the longest.
const FIRST_PART: usize = 50;
const LONGEST_PART: usize = 1_000;

/// At most so many files are looked at.
const MOST: usize = 50_000;

/// What is done with each file.
pub(crate) trait PerFile: Send + 'static {
    /// The file as it was opened, and its path.
    fn look_at(&mut self, file: io::Result<File>, path: &str, cx: &ToolContext);

    /// How far it is, in a few words.
    fn so_far(&self) -> String;

    fn report(self, place: &Place, walk: &Walk) -> Result<ToolOutput, turnstream::Error>;
}

/// What is known of the way through the files.
pub(crate) struct Walk {
    files: Files,
    seen: usize,
}

impl Walk {
    /// How many files were looked at.
    pub(crate) fn seen(&self) -> usize {
        self.seen
    }

    pub(crate) fn extension(&self) -> Option<&str> {
        self.files.extension()
    }

    /// What the report does not cover, for the model.
    pub(crate) fn gaps(&self) -> Option<String> {
        let unreadable = self.files.unreadable();
        match (self.seen >= MOST, unreadable) {
            (false, 0) => None,
            (false, _) => Some(format!("{unreadable} directories could not be read")),
            (true, _) => Some(format!(
                "stopped after {MOST} files: the figures are not complete; give a smaller directory"
            )),
        }
    }
}

/// Looks at the files one after the other. Nothing is read before the first poll, and a drop ends
/// the work within the file that is being read.
pub(crate) fn stream_updates<W: PerFile>(
    start: impl FnOnce() -> Result<(W, Place, Files), String> + Send + 'static,
    cx: ToolContext,
) -> impl Stream<Item = ToolUpdate> + Send + 'static {
    stream! {
        let begun = blocking(start).await.map(|(work, place, files)| {
            (work, place, Walk { files, seen: 0 })
        });
        let (mut work, mut place, mut walk) = match begun {
            Ok(begun) => begun,
            Err(why) => {
                yield ToolUpdate::output(Err::<String, _>(why));
                return;
            }
        };
        let mut size = FIRST_PART;
        loop {
            let cx = cx.clone();
            let part = blocking(move || {
                let before = walk.seen;
                for (file, path) in walk.files.by_ref().take(size.min(MOST - before)) {
                    if cx.is_cancelled() {
                        break;
                    }
                    work.look_at(file, &path, &cx);
                    walk.seen += 1;
                }
                let more = walk.seen == before + size && walk.seen < MOST;
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
            yield ToolUpdate::progress(&json!({ "files": walk.seen, "so_far": work.so_far() }));
            size = LONGEST_PART.min(size * 2);
        }
        yield ToolUpdate::output(work.report(&place, &walk));
    }
}
