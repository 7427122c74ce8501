//! The forks in a folder.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::ErrorKind::NotFound;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use super::file_format::{self, Origin, starts_with_header};
use super::session_folder::session_files_in;
use crate::error::{Error, ErrorKind};
use crate::session::backend::{ensure_has_no_forks, store_error};

/// The maximum number of bytes to search for the end of a header.
const MAX_HEADER_BYTES: u64 = 1 << 20;

/// The forks in a folder, as read from the headers of its files. Headers are read without locks. If
/// a lock were needed to read a header, two concurrent deletions would wait for each other. Reading
/// without locks is safe, because a header is written only once, and a process that writes a fork
/// holds the lock on the original session. As a result, no fork is missing for a session that was
/// locked before the headers were read.
#[derive(Default)]
pub(super) struct Forks {
    paths_by_origin: HashMap<String, Vec<PathBuf>>,
    /// The files with a damaged header, each with the damaged line.
    damaged: Vec<(PathBuf, Vec<u8>)>,
}

impl Forks {
    /// Reads the header of each file in the folder.
    pub(super) fn read(folder: &Path) -> Result<Self, Error> {
        let mut forks = Self::default();
        for (path, _) in session_files_in(folder)? {
            let line = match File::open(&path).and_then(read_first_line) {
                Ok(line) => line,
                Err(error) if error.kind() == NotFound => continue,
                Err(error) => {
                    return Err(store_error(format!("cannot read `{}`", path.display()), error));
                }
            };
            match Origin::from_header_line(line) {
                Origin::None => {}
                Origin::Session(id) => forks.paths_by_origin.entry(id).or_default().push(path),
                Origin::Damaged { line } => forks.damaged.push((path, line)),
            }
        }
        Ok(forks)
    }

    /// Returns an error if the session has a fork, or if another session with a damaged header may
    /// be a fork of the session. `is_there` determines whether a session is in the folder, and
    /// `gone` contains the files that were removed after the headers were read.
    pub(super) fn ensure_has_no_forks(
        &self,
        id: &str,
        path: &Path,
        is_there: impl Fn(&str) -> bool,
        gone: &HashSet<PathBuf>,
    ) -> Result<(), Error> {
        let is_other = |other: &&PathBuf| *other != path && !gone.contains(*other);
        let fork = self.paths_by_origin.get(id).into_iter().flatten().find(is_other);
        ensure_has_no_forks(id, fork.map(|fork| fork.display()))?;
        for (other, line) in self.damaged.iter().filter(|(other, _)| is_other(&other)) {
            let other = other.display();
            match Origin::suspect_origin_id(line) {
                Some(origin) if origin == id => ensure_has_no_forks(id, Some(other))?,
                Some(origin) if is_there(&origin) => {}
                Some(_) | None if Origin::may_reference(line, id) => {
                    let message = format!(
                        "the header of `{other}` is damaged, and it may be of a fork of the session `{id}`"
                    );
                    return Err(Error::new(ErrorKind::InvalidRequest, message));
                }
                Some(_) | None => {}
            }
        }
        Ok(())
    }
}

/// Reads the first line of a file. If the first line is damaged, the next line is also read,
/// because the damaged byte may be the LF between the two lines. Session ids have no maximum
/// length.
fn read_first_line(file: File) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    let mut file = BufReader::new(file);
    file.by_ref().take(MAX_HEADER_BYTES).read_until(b'\n', &mut line)?;
    if !line.ends_with(b"\n") && starts_with_header(&line) {
        file.read_until(b'\n', &mut line)?;
    }
    if file_format::parse_file(&line).is_err() {
        file.take(MAX_HEADER_BYTES).read_until(b'\n', &mut line)?;
    }
    Ok(line)
}
