//! The forks in a folder.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::ErrorKind::NotFound;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::file_format::{self, Origin, starts_with_header};
use super::locked_file::{LOCK_RETRY_DELAY, LOCK_TIMEOUT, LockedFile};
use super::session_folder::session_files_in;
use crate::error::{Error, ErrorKind};
use crate::session::backend::{ensure_has_no_forks, store_error};

/// The maximum number of bytes to search for the end of a header.
const MAX_HEADER_BYTES: u64 = 1 << 20;

/// The number of the error on Windows for reading a file that another handle has locked.
const ERROR_LOCK_VIOLATION: i32 = 33;

#[cfg(test)]
thread_local! {
    /// Whether locked files cannot be read through other handles in this thread, as on Windows.
    static LOCKS_ARE_MANDATORY: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// The files that a call has locked. `None` if a file does not exist.
type LockedFiles<'a> = Vec<Option<LockedFile<'a>>>;

/// The forks in a folder, as read from the headers of its files. Headers are read without locks. If
/// a lock were needed to read a header, two concurrent deletions would wait for each other. Reading
/// without locks is safe, because a header is written only once, and a process that writes a fork
/// holds the lock on the original session. As a result, no fork is missing for a session that was
/// locked before the headers were read.
///
/// On Windows, a file that is locked for writing can be read only through the handle that holds the
/// lock.
#[derive(Default)]
pub(super) struct Forks {
    paths_by_origin: HashMap<String, Vec<PathBuf>>,
    /// The files with a damaged header, each with the damaged line.
    damaged: Vec<(PathBuf, Vec<u8>)>,
}

impl Forks {
    /// Locks files with `lock`, and then reads the header of each file in the folder. If none of
    /// the files to be locked exists, no header is read.
    pub(super) fn read_after_locking<'a>(
        folder: &Path,
        lock: impl Fn() -> Result<LockedFiles<'a>, Error>,
    ) -> Result<(LockedFiles<'a>, Self), Error> {
        Self::read_with_retries(folder, lock, &mut thread::sleep)
    }

    /// `sleep` is called after each attempt that failed because a file is locked.
    fn read_with_retries<'a>(
        folder: &Path,
        lock: impl Fn() -> Result<LockedFiles<'a>, Error>,
        sleep: &mut dyn FnMut(Duration),
    ) -> Result<(LockedFiles<'a>, Self), Error> {
        let since = Instant::now();
        loop {
            let mut locked = lock()?;
            match Self::read(folder, &mut locked) {
                Err(error) if is_lock_violation(&error) && since.elapsed() < LOCK_TIMEOUT => {
                    // The process that has locked the file may be waiting for one of these locks.
                    drop(locked);
                    sleep(LOCK_RETRY_DELAY);
                }
                forks => return Ok((locked, forks?)),
            }
        }
    }

    fn read(folder: &Path, locked: &mut [Option<LockedFile<'_>>]) -> Result<Self, Error> {
        let mut forks = Self::default();
        let locked = locked.iter_mut().flatten().map(|file| (file.path(), file));
        let mut locked: HashMap<&Path, &mut LockedFile<'_>> = locked.collect();
        if locked.is_empty() {
            return Ok(forks);
        }
        for (path, _) in session_files_in(folder)? {
            let line = match locked.get_mut(&*path) {
                Some(file) => file.rewind().and_then(read_first_line),
                None => open_unlocked(&path).and_then(read_first_line),
            };
            let line = match line {
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

/// Opens a file that this call has not locked.
fn open_unlocked(path: &Path) -> io::Result<File> {
    let file = File::open(path)?;
    #[cfg(test)]
    if LOCKS_ARE_MANDATORY.get() && file.try_lock_shared().is_err() {
        return Err(io::Error::from_raw_os_error(ERROR_LOCK_VIOLATION));
    }
    Ok(file)
}

/// Returns whether a file could not be read because another process has locked it.
fn is_lock_violation(error: &Error) -> bool {
    let error = error.find_source::<io::Error>().and_then(io::Error::raw_os_error);
    cfg!(any(windows, test)) && error == Some(ERROR_LOCK_VIOLATION)
}

/// Reads the first line of a file. If the first line is damaged, the next line is also read,
/// because the damaged byte may be the LF between the two lines. Session ids have no maximum
/// length.
fn read_first_line(file: impl Read) -> io::Result<Vec<u8>> {
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

#[cfg(test)]
mod tests {
    use std::{env, fs, process};

    use super::super::locked_file::OpenMode;
    use super::*;
    use crate::session::ForkOrigin;

    /// Creates a folder with a session `a` and its fork `b`.
    fn folder_with_a_fork(name: &str) -> PathBuf {
        let folder = env::temp_dir().join(format!("turnstream-forks-{name}-{}", process::id()));
        fs::create_dir_all(&folder).unwrap();
        let fork = ForkOrigin { id: "a".into(), at: 1 };
        fs::write(folder.join("a.jsonl"), file_format::encode_header("a", None).unwrap()).unwrap();
        let header = file_format::encode_header("b", Some(&fork)).unwrap();
        fs::write(folder.join("b.jsonl"), header).unwrap();
        folder
    }

    #[test]
    fn the_header_of_a_locked_file_is_read_through_its_own_handle() {
        LOCKS_ARE_MANDATORY.set(true);
        let folder = folder_with_a_fork("own");
        let (a, b) = (folder.join("a.jsonl"), folder.join("b.jsonl"));
        let open = |path| LockedFile::open(path, OpenMode::Write);
        let lock = || Ok(vec![open(&a)?, open(&b)?]);
        let sleep = &mut |_| panic!("no other process has locked a file");
        let (locked, forks) = Forks::read_with_retries(&folder, lock, sleep).unwrap();
        assert_eq!(forks.paths_by_origin["a"], std::slice::from_ref(&b));
        drop(locked);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn the_locks_are_released_while_another_process_has_locked_a_file() {
        LOCKS_ARE_MANDATORY.set(true);
        let folder = folder_with_a_fork("other");
        let (a, b) = (folder.join("a.jsonl"), folder.join("b.jsonl"));
        let lock = || Ok(vec![LockedFile::open(&a, OpenMode::Write)?]);
        let mut other = LockedFile::open(&b, OpenMode::Write).unwrap();
        let sleep = &mut |_| {
            assert!(LockedFile::try_open(&a, OpenMode::Write).is_ok(), "the lock is released");
            assert!(other.take().is_some(), "there is one retry");
        };
        let (locked, forks) = Forks::read_with_retries(&folder, lock, sleep).unwrap();
        assert_eq!(forks.paths_by_origin["a"], std::slice::from_ref(&b));
        drop(locked);
        fs::remove_dir_all(&folder).unwrap();
    }
}
