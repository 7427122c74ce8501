//! The original sessions of the forks in a folder.

use std::collections::{HashMap, HashSet};
use std::fs::{File, Metadata};
use std::io::ErrorKind::NotFound;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use super::super::checks::{ensure_has_no_forks, store_error};
use super::super::private_files::change_time;
use super::file_format::{self, Origin, starts_with_header};
use super::locked_file::FileStamp;
use super::session_folder::session_files_in;
use crate::error::{Error, ErrorKind};

/// The maximum number of bytes to search for the end of a header.
const MAX_HEADER_BYTES: u64 = 1 << 20;

/// Caches the original sessions of the forks in a folder. File headers are read without locks. If a
/// lock were needed to read a header, two concurrent deletions would wait for each other. Reading
/// without locks is safe, because a header is written only once, and a process that writes a fork
/// holds the lock on the original session. As a result, the cache is correct for every session that
/// was locked before the headers were read.
#[derive(Default)]
pub(super) struct OriginCache {
    /// The origin read from each file, which is valid as long as the file is unchanged.
    origins_by_path: HashMap<PathBuf, (FileVersion, Origin)>,
    forks_by_origin: HashMap<String, Vec<PathBuf>>,
    damaged_paths: Vec<PathBuf>,
}

type FileVersion = (FileStamp, (i64, i64));

impl OriginCache {
    /// Lists the files in the folder again, and reads the headers of files that have changed.
    pub(super) fn refresh(&mut self, folder: &Path) -> Result<(), Error> {
        let mut before = std::mem::take(self).origins_by_path;
        for (path, _) in session_files_in(folder)? {
            let read = before.remove(&path);
            let found = find_origin(&path, read);
            let found = found
                .map_err(|error| store_error(format!("cannot read `{}`", path.display()), error))?;
            let Some(found) = found else { continue };
            match &found.1 {
                Origin::None => {}
                Origin::Session(id) => {
                    self.forks_by_origin.entry(id.clone()).or_default().push(path.clone());
                }
                Origin::Damaged { .. } => self.damaged_paths.push(path.clone()),
            }
            self.origins_by_path.insert(path, found);
        }
        Ok(())
    }

    /// Returns an error if the session has a fork, or if another session with a damaged header may
    /// be a fork of the session. `is_there` determines whether a session is in the folder, and
    /// `gone` contains the files that were removed after the last refresh.
    pub(super) fn ensure_has_no_forks(
        &self,
        id: &str,
        path: &Path,
        is_there: impl Fn(&str) -> bool,
        gone: &HashSet<PathBuf>,
    ) -> Result<(), Error> {
        let is_other = |other: &&PathBuf| *other != path && !gone.contains(*other);
        let fork = self.forks_by_origin.get(id).into_iter().flatten().find(is_other);
        ensure_has_no_forks(id, fork.map(|fork| fork.display()))?;
        for other in self.damaged_paths.iter().filter(is_other) {
            let Some((_, Origin::Damaged { line })) = self.origins_by_path.get(other) else {
                continue;
            };
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

/// Reads the origin from a file. Returns `None` if the file does not exist.
fn find_origin(
    path: &Path,
    read: Option<(FileVersion, Origin)>,
) -> io::Result<Option<(FileVersion, Origin)>> {
    let version = |there: &Metadata| Ok((FileStamp::from_metadata(there)?, change_time(there)));
    let found = match read {
        Some(read) if path.metadata().and_then(|there| version(&there)).ok() == Some(read.0) => {
            Ok(read)
        }
        Some(_) | None => File::open(path).and_then(|file| {
            let version = version(&file.metadata()?)?;
            Ok((version, Origin::from_header_line(read_first_line(file)?)))
        }),
    };
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == NotFound => Ok(None),
        Err(error) => Err(error),
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
