//! Implements the JSON Lines store's operations, which run on the store's thread.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use super::crc32::Crc32;
use super::file_format::{self, ParsedFile};
use super::forks::Forks;
use super::locked_file::{FileStamp, LockedFile, OpenMode};
use super::salvage::{self, SalvagedFile};
use super::session_folder::{parent_folder, session_files_in};
use crate::env::Clock;
use crate::error::{Error, ErrorKind};
use crate::session::backend::{
    BlockingStore, LockFile, LockRemoval, SESSION_FILE_SUFFIX, corrupt_data_error,
    ensure_expected_version, ensure_fork_point_exists, ensure_id_not_empty, ensure_session_absent,
    file_name_from_id, id_from_file_name, prunable_ids, remove_unused_lock, resolve_links,
    sync_parent_dir,
};
use crate::session::{Conflict, Entry, ForkOrigin, Lease, LeaseLost, SalvageReport, SessionInfo};

/// The maximum number of files whose state is cached.
const MAX_CACHED_FILES: usize = 1024;

/// The maximum number of files that pruning locks at the same time. The number is limited because
/// each locked file is kept open.
const MAX_FILES_PER_PRUNE_PASS: usize = 64;

/// Manages a store's files.
pub(super) struct SessionFiles {
    pub(super) location: Location,
    pub(super) clock: Arc<dyn Clock>,
    /// The cached state of each file. A cached state is valid as long as the file's metadata has
    /// not changed.
    cached_files: HashMap<PathBuf, CachedFile>,
}

/// The location of a store's sessions.
pub(super) enum Location {
    /// All session files in a folder.
    Folder(PathBuf),
    /// A single session, in a file with any name.
    File { path: PathBuf, id: String },
}

#[derive(Clone)]
struct CachedFile {
    stamp: FileStamp,
    /// The session's version. `None` if the file does not contain a session.
    version: Option<u64>,
    fork_origin: Option<ForkOrigin>,
    /// Whether the file contains a header.
    has_header: bool,
    /// The length of the file's intact part, in bytes. `is_terminated` specifies whether the intact
    /// part ends with an LF, and `crc` is the checksum of the intact part.
    valid_len: u64,
    is_terminated: bool,
    crc: Crc32,
}

impl BlockingStore for SessionFiles {
    fn append(
        &mut self,
        lease: Option<&Lease>,
        id: &str,
        expected: u64,
        entries: Vec<Entry>,
    ) -> Result<u64, Error> {
        let path = self.location.path_for_write(id)?;
        let text = file_format::encode_entries(&entries)?;
        let what_for = match expected == 0 && !entries.is_empty() {
            true => OpenMode::CreateAndWrite,
            false => OpenMode::Write,
        };
        let Some(mut file) = LockedFile::open(&path, what_for)? else {
            lease.map_or(Ok(()), |lease| ensure_lease_held(lease, &path, id))?;
            return ensure_expected_version(id, expected, 0).map(|()| 0);
        };
        // While this file is locked, another process cannot finish taking a new lease.
        lease.map_or(Ok(()), |lease| ensure_lease_held(lease, &path, id))?;
        let there = self.load_cached(&mut file, &path, id)?;
        let found = there.version.unwrap_or(0);
        ensure_expected_version(id, expected, found)?;
        if entries.is_empty() {
            return Ok(found);
        }
        let version = found.saturating_add(entries.len() as u64);
        let begin = match (there.has_header, there.is_terminated) {
            (true, true) => Vec::new(),
            (true, false) => b"\n".to_vec(),
            (false, _) => file_format::encode_header(id, None)?,
        };
        let crc = there.crc.update(&begin);
        let first = file_format::encode_append_header(crc, entries.len(), &text)?;
        let then = CachedFile { version: Some(version), ..there };
        self.write(&mut file, &path, then, &[&[begin, first].concat(), &text])?;
        // If the file is not at its path, the entries were written to a file that has been removed
        // from its folder.
        match file.is_at_path() {
            true => Ok(version),
            false => Err(Conflict { id: id.to_owned(), expected, found: self.version(id)? }.into()),
        }
    }

    fn lease(&mut self, id: &str) -> Result<Lease, Error> {
        let path = self.location.path_for_write(id)?;
        let path = resolve_links(&path);
        let removal = LockRemoval::WithoutSession(path.clone());
        let lock = LockFile::lock_with_removal(lock_path(&path), id, &path, removal)?;
        let epoch = lock.raise_epoch(self.clock.now())?;
        // If a concurrent append has already checked the previous epoch, this call waits until the
        // append is written.
        drop(LockedFile::open(&path, OpenMode::Read)?);
        Ok(Lease::new(epoch, lock))
    }

    fn load(&mut self, id: &str, from: u64) -> Result<Option<Vec<Entry>>, Error> {
        let Some(path) = self.location.session_path(id) else { return Ok(None) };
        // While this file is locked, another process can remove neither this session nor the
        // sessions from which it was forked.
        let Some(mut file) = LockedFile::open(&path, OpenMode::Read)? else { return Ok(None) };
        let (lines, text) = self.read_file(&mut file, &path, id)?;
        let Some(version) = lines.version() else { return Ok(None) };
        // Collects the session's own entries first, and then the own entries of each ancestor,
        // ending with the earliest.
        let mut parts =
            vec![lines.parse_entries(&text, from..version).map_err(add_path_context(&path))?];
        let mut ids = vec![id.to_owned()];
        let mut next = lines.header.and_then(|head| head.fork_origin);
        let mut until = version;
        while let Some(fork) = next.filter(|fork| from < fork.at.min(until)) {
            until = until.min(fork.at);
            let path = self.location.origin_path(&fork.id);
            let gone = || {
                let (id, at) = (&fork.id, fork.at);
                corrupt_data_error(format!(
                    "the first {at} entries of `{id}`, a fork's origin, are missing"
                ))
            };
            if ids.contains(&fork.id) {
                return Err(corrupt_data_error(format!(
                    "the session `{}` is a fork of itself",
                    fork.id
                )));
            }
            let mut file = LockedFile::open(&path, OpenMode::Read)?.ok_or_else(gone)?;
            let (lines, text) = self.read_file(&mut file, &path, &fork.id)?;
            if lines.version() < Some(fork.at) {
                return Err(gone());
            }
            parts.push(lines.parse_entries(&text, from..until).map_err(add_path_context(&path))?);
            ids.push(fork.id);
            next = lines.header.and_then(|head| head.fork_origin);
        }
        Ok(Some(parts.into_iter().rev().flatten().collect()))
    }

    fn list(&mut self) -> Result<Vec<SessionInfo>, Error> {
        self.session_infos()
    }

    fn fork(&mut self, id: &str, at: u64, new: &str) -> Result<(), Error> {
        let path = self.location.path_for_write(new)?;
        let origin = self.location.session_path(id);
        // The lock prevents concurrent deletion. A session cannot be forked from itself.
        let mut origin_file = match &origin {
            Some(origin) => LockedFile::open(origin, OpenMode::Read)?,
            None => None,
        };
        let version = match (&origin, &mut origin_file) {
            (Some(origin), Some(file)) => self.load_cached(file, origin, id)?.version,
            _ => None,
        };
        if origin.as_ref() == Some(&path) {
            drop(origin_file.take());
        }
        ensure_fork_point_exists(id, at, version)?;
        let Some(mut file) = LockedFile::open(&path, OpenMode::CreateAndWrite)? else {
            return Err(corrupt_data_error(format!("`{}` is gone", path.display())));
        };
        let there = self.load_cached(&mut file, &path, new)?;
        ensure_session_absent(new, there.version)?;
        let fork = ForkOrigin { id: id.to_owned(), at };
        let text = file_format::encode_header(new, Some(&fork))?;
        let (version, fork) = (Some(at), Some(fork));
        let then =
            CachedFile { version, fork_origin: fork, valid_len: 0, crc: Crc32::default(), ..there };
        self.write(&mut file, &path, then, &[&text])?;
        match file.is_at_path() {
            true => Ok(()),
            false => Err(corrupt_data_error(format!("`{}` is gone", path.display()))),
        }
    }

    fn delete(&mut self, id: &str) -> Result<bool, Error> {
        let Some(path) = self.location.session_path(id) else { return Ok(false) };
        // The lock prevents concurrent writes and forks.
        let lock = || Ok(vec![LockedFile::open(&path, OpenMode::Write)?]);
        let (mut locked, forks) = Forks::read_after_locking(parent_folder(&path), lock)?;
        let Some(file) = locked.pop().flatten() else { return Ok(false) };
        self.remove(file, &path, id, (&forks, &HashSet::new()), |_| true)
    }

    fn prune(&mut self, before: SystemTime) -> Result<Vec<String>, Error> {
        let listed = self.session_infos()?;
        let with_path = |id| Some((id, self.location.session_path(id)?));
        let files: Vec<_> =
            prunable_ids(&listed, before).into_iter().filter_map(with_path).collect();
        let mut removed = Vec::new();
        let mut left = &files[..];
        while let Some((_, first)) = left.first() {
            let lock = || {
                let mut locked = vec![LockedFile::open(first, OpenMode::Write)?];
                for (_, path) in left.iter().take(MAX_FILES_PER_PRUNE_PASS).skip(1) {
                    // A store that is waiting for a lock must not hold a lock that another store is
                    // waiting for. A file that is locked by another process becomes the first file
                    // of the next pass.
                    let Ok(file) = LockedFile::try_open(path, OpenMode::Write) else { break };
                    locked.push(file);
                }
                Ok(locked)
            };
            // While the files are locked, attempts to fork these sessions fail.
            let (locked, forks) = Forks::read_after_locking(parent_folder(first), lock)?;
            let (these, rest) = left.split_at(locked.len());
            let mut gone = HashSet::new();
            for ((id, path), file) in these.iter().zip(locked) {
                let Some(file) = file else { continue };
                let may_go = |modified| modified < before;
                match self.remove(file, path, id, (&forks, &gone), may_go) {
                    Ok(true) => {
                        removed.push((*id).to_owned());
                        gone.insert(path.clone());
                    }
                    Ok(false) => {}
                    // The session has a new fork, or cannot be read.
                    Err(error) if error.kind() == ErrorKind::InvalidRequest => {}
                    Err(error) => return Err(error),
                }
            }
            left = rest;
        }
        Ok(removed)
    }
}

impl SessionFiles {
    pub(super) fn new(place: Location, clock: Arc<dyn Clock>) -> Self {
        Self { location: place, clock, cached_files: HashMap::new() }
    }

    /// Returns a session's version, or 0 if the session does not exist.
    fn version(&mut self, id: &str) -> Result<u64, Error> {
        let path = self.location.path_for_write(id)?;
        let Some(mut file) = LockedFile::open(&path, OpenMode::Read)? else { return Ok(0) };
        Ok(self.load_cached(&mut file, &path, id)?.version.unwrap_or(0))
    }

    pub(super) fn salvage(&mut self, id: &str) -> Result<Option<SalvageReport>, Error> {
        let Some(path) = self.location.session_path(id) else { return Ok(None) };
        // While this file is locked, another process cannot remove the sessions from which it was
        // forked.
        let _file = LockedFile::open(&path, OpenMode::Read)?;
        let Some(mut found) = salvage_session_file(&path)? else { return Ok(None) };
        // Collects the session's own entries first, and then the own entries of each ancestor,
        // ending with the earliest.
        let mut all = found.own_report;
        let mut ids = vec![id.to_owned()];
        let mut until = u64::MAX;
        while let Some(fork) = found.fork_origin {
            until = until.min(fork.at);
            let path = self.location.origin_path(&fork.id);
            let origin = match ids.contains(&fork.id) {
                true => None,
                false => salvage_session_file(&path)?,
            };
            let Some(origin) = origin else {
                let mut gone = SalvageReport::default();
                let reason = format!("`{}`, from which it was forked, is missing", fork.id);
                gone.push_damage(format!("`{}`", path.display()), reason, Some(until));
                all = gone.chain(all);
                break;
            };
            let inherited = origin.fork_origin.as_ref().map_or(0, |fork| fork.at);
            all = origin.own_report.truncated(until.saturating_sub(inherited)).chain(all);
            ids.push(fork.id);
            found = SalvagedFile {
                fork_origin: origin.fork_origin,
                own_report: SalvageReport::default(),
            };
        }
        Ok(Some(all))
    }

    /// Lists all sessions, including those that cannot be read.
    fn session_infos(&mut self) -> Result<Vec<SessionInfo>, Error> {
        let mut listed = Vec::new();
        for (path, mut id) in self.location.session_files()? {
            listed.extend(match self.session_info(&path, &mut id) {
                Ok(found) => found,
                Err(error) => Some(unreadable_session_info(&path, id, &error)),
            });
        }
        listed.sort_by(SessionInfo::list_order);
        Ok(listed)
    }

    /// Reads the [`SessionInfo`] of the session in a file. Returns `None` if the file contains no
    /// session. If `id` is not known from the file name, it is set as soon as it has been read.
    fn session_info(
        &mut self,
        path: &Path,
        id: &mut Option<String>,
    ) -> Result<Option<SessionInfo>, Error> {
        let Some(mut file) = LockedFile::open(path, OpenMode::Read)? else { return Ok(None) };
        if id.is_none() {
            *id = self.id_from_header(&mut file, path)?;
        }
        let Some(id) = id else { return Ok(None) };
        let there = match self.load_cached(&mut file, path, id) {
            Ok(there) => there,
            // This file in the folder is not a session.
            Err(_) if !file_format::may_be_session(&file.read()?) => return Ok(None),
            Err(error) => return Err(error),
        };
        let listed = |version| SessionInfo {
            id: id.clone(),
            version,
            origin: there.fork_origin,
            updated_at: there.stamp.modified,
            read_error: None,
        };
        Ok(there.version.map(listed))
    }

    /// Removes a file if it contains a session, if `may_go` accepts the file's modification time,
    /// and if no other session was forked from the file's session. `forks` must have been read
    /// while the file was locked. `gone` contains the files that were removed after `forks` was
    /// read; these files do not count as forks.
    fn remove(
        &mut self,
        mut file: LockedFile<'_>,
        path: &Path,
        id: &str,
        (forks, gone): (&Forks, &HashSet<PathBuf>),
        may_go: impl FnOnce(SystemTime) -> bool,
    ) -> Result<bool, Error> {
        let text = file.read()?;
        match file_format::parse_file(&text) {
            Ok(lines) if lines.version().is_none() => return Ok(false),
            // A damaged session can also be removed.
            Err(error) if !file_format::starts_with_header(&text) => {
                return Err(add_path_context(path)(error));
            }
            Ok(_) | Err(_) => {}
        }
        if !may_go(file.stamp()?.modified) {
            return Ok(false);
        }
        // Forks look for their original session only at this path.
        if self.location.origin_path(id) == path {
            let is_there = |id: &str| self.location.origin_path(id).is_file();
            forks.ensure_has_no_forks(id, path, is_there, gone)?;
        }
        let lock = lock_path(&resolve_links(path));
        file.remove()?;
        self.cached_files.remove(path);
        remove_unused_lock(&lock, id);
        Ok(true)
    }

    /// Reads the session id from a file with a shortened name.
    fn id_from_header(
        &self,
        file: &mut LockedFile<'_>,
        path: &Path,
    ) -> Result<Option<String>, Error> {
        let text = file.read()?;
        if !file_format::may_be_session(&text) {
            return Ok(None);
        }
        let Some(first) = file_format::next_line(&text, 0, 1) else { return Ok(None) };
        let header = file_format::parse_header(&text[first.byte_range]);
        let id = Some(header.map_err(add_path_context(path))?.id);
        Ok(id.filter(|id| self.location.session_path(id).as_deref() == Some(path)))
    }

    /// Returns a file's state. The file is read again only if another process has written to it.
    fn load_cached(
        &mut self,
        file: &mut LockedFile<'_>,
        path: &Path,
        id: &str,
    ) -> Result<CachedFile, Error> {
        let stamp = file.stamp()?;
        if let Some(seen) = self.cached_files.get(path).filter(|seen| seen.stamp == stamp) {
            return Ok(seen.clone());
        }
        let (lines, _) = self.read_file(file, path, id)?;
        Ok(CachedFile::new(stamp, &lines))
    }

    /// Reads and parses a session's file, and caches its state. The next append does not read the
    /// file again.
    fn read_file(
        &mut self,
        file: &mut LockedFile<'_>,
        path: &Path,
        id: &str,
    ) -> Result<(ParsedFile, Vec<u8>), Error> {
        // If the file changes while it is read, its state is not that of the cached stamp, and the
        // file is read again.
        let stamp = file.stamp()?;
        let text = file.read()?;
        let lines = file_format::parse_file(&text).map_err(add_path_context(path))?;
        ensure_same_id(&lines, path, id)?;
        self.cache_file(path, CachedFile::new(stamp, &lines));
        Ok((lines, text))
    }

    /// Writes the parts of a text, one after another, after the file's intact part.
    fn write(
        &mut self,
        file: &mut LockedFile<'_>,
        path: &Path,
        then: CachedFile,
        text: &[&[u8]],
    ) -> Result<(), Error> {
        self.cached_files.remove(path);
        if then.valid_len == 0 {
            sync_parent_dir(path)?;
        }
        file.write(then.valid_len, text, self.clock.now())?;
        // The text has been written, even if reading the file's metadata fails.
        if let Ok(stamp) = file.stamp() {
            let end = then.valid_len + text.iter().map(|part| part.len() as u64).sum::<u64>();
            let crc = text.iter().fold(then.crc, |crc, part| crc.update(part));
            self.cache_file(
                path,
                CachedFile {
                    stamp,
                    has_header: true,
                    valid_len: end,
                    is_terminated: true,
                    crc,
                    ..then
                },
            );
        }
        Ok(())
    }

    fn cache_file(&mut self, path: &Path, seen: CachedFile) {
        if self.cached_files.len() >= MAX_CACHED_FILES {
            self.cached_files.clear();
        }
        self.cached_files.insert(path.to_owned(), seen);
    }
}

impl CachedFile {
    fn new(stamp: FileStamp, lines: &ParsedFile) -> Self {
        Self {
            stamp,
            version: lines.version(),
            has_header: lines.header.is_some(),
            valid_len: lines.valid_len as u64,
            is_terminated: lines.is_terminated,
            crc: lines.crc,
            fork_origin: lines.header.as_ref().and_then(|head| head.fork_origin.clone()),
        }
    }
}

/// Creates the [`SessionInfo`] of a session that cannot be read. If the file name does not
/// determine the session's id, the file name itself is listed.
fn unreadable_session_info(path: &Path, id: Option<String>, error: &Error) -> SessionInfo {
    let file_name = || path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let modified = path.metadata().and_then(|there| there.modified());
    SessionInfo {
        id: id.unwrap_or_else(file_name),
        version: 0,
        origin: None,
        updated_at: modified.unwrap_or(SystemTime::UNIX_EPOCH),
        read_error: Some(error.to_string()),
    }
}

/// Salvages a file. Returns `None` if the file does not exist or is empty.
fn salvage_session_file(path: &Path) -> Result<Option<SalvagedFile>, Error> {
    let Some(mut file) = LockedFile::open(path, OpenMode::Read)? else { return Ok(None) };
    let text = file.read()?;
    if text.is_empty() {
        // Another process is creating the session.
        return Ok(None);
    }
    let found = salvage::salvage_file(&text, path);
    let is_nothing = found.own_report.entries.is_empty()
        && found.own_report.damage.iter().all(|damage| damage.suspect_entries.is_empty());
    match file_format::parse_file(&text) {
        Err(error) if is_nothing && !file_format::starts_with_header(&text) => {
            Err(add_path_context(path)(error))
        }
        Ok(_) | Err(_) => Ok(Some(found)),
    }
}

/// If the file name is shortened, checks that the header contains the session's id. A file name
/// that is not shortened already determines the id.
fn ensure_same_id(lines: &ParsedFile, path: &Path, id: &str) -> Result<(), Error> {
    let shortened = path.file_stem().is_some_and(|name| *name == *file_name_from_id(id))
        && id_from_file_name(&file_name_from_id(id)).is_none();
    match &lines.header {
        Some(head) if shortened && head.id != id => {
            let message = format!("`{}` holds another session, `{}`", path.display(), head.id);
            Err(corrupt_data_error(message))
        }
        Some(_) | None => Ok(()),
    }
}

/// Returns the path to the lock file for a session file.
fn lock_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}

/// Checks that `lease` is the latest lease on the session `id`.
fn ensure_lease_held(lease: &Lease, path: &Path, id: &str) -> Result<(), Error> {
    let epoch = lease.epoch();
    let path = lock_path(&resolve_links(path));
    let is_held = |lock: &LockFile| lock.is_at(&path) && lock.epoch() == Some(epoch);
    match lease.hold::<LockFile>().is_some_and(is_held) {
        true => Ok(()),
        false => Err(LeaseLost { id: id.to_owned(), epoch }.into()),
    }
}

/// Adds the file's path to an error.
fn add_path_context(path: &Path) -> impl Fn(Error) -> Error {
    move |error| {
        let message = format!("`{}`: {error}", path.display());
        Error::new(error.kind(), message).with_source(error)
    }
}

impl Location {
    /// Returns the path to a session's file, or `None` if this location cannot contain the session.
    fn session_path(&self, id: &str) -> Option<PathBuf> {
        match self {
            Self::Folder(_) => Some(self.origin_path(id)),
            Self::File { path, id: only } => (only == id).then(|| path.clone()),
        }
    }

    fn path_for_write(&self, id: &str) -> Result<PathBuf, Error> {
        ensure_id_not_empty(id)?;
        self.session_path(id).ok_or_else(|| {
            let message = format!("this store is one file, and `{id}` is not its session");
            Error::new(ErrorKind::InvalidRequest, message)
        })
    }

    /// Returns the path to the file that contains a fork's original session, in the same folder as
    /// the fork's file.
    fn origin_path(&self, id: &str) -> PathBuf {
        let name = format!("{}{SESSION_FILE_SUFFIX}", file_name_from_id(id));
        match self {
            Self::Folder(folder) => folder.join(name),
            Self::File { path, .. } => path.with_file_name(name),
        }
    }

    /// Returns the paths of all files that may be sessions, each with the session id if the file
    /// name determines the id.
    fn session_files(&self) -> Result<Vec<(PathBuf, Option<String>)>, Error> {
        match self {
            Self::Folder(folder) => session_files_in(folder),
            Self::File { path, id } => Ok(vec![(path.clone(), Some(id.clone()))]),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{env, fs, process};

    use super::super::locked_file::READS;
    use super::*;
    use crate::env::SystemClock;
    use crate::item::Item;

    #[test]
    fn the_first_append_after_a_session_was_loaded_does_not_read_its_file_again() {
        let folder = env::temp_dir().join(format!("turnstream-reads-{}", process::id()));
        fs::create_dir_all(&folder).unwrap();
        let open = || SessionFiles::new(Location::Folder(folder.clone()), Arc::new(SystemClock));
        let entry = |text| vec![Entry::from(Item::user(text))];
        assert_eq!(open().append(None, "chat", 0, entry("one")).unwrap(), 1);

        let mut files = open();
        let reads = READS.get();
        assert_eq!(files.load("chat", 0).unwrap().map(|entries| entries.len()), Some(1));
        assert_eq!(files.append(None, "chat", 1, entry("two")).unwrap(), 2);
        assert_eq!(READS.get() - reads, 1);

        // The file is read again after another store has written to it.
        assert_eq!(open().append(None, "chat", 2, entry("three")).unwrap(), 3);
        let reads = READS.get();
        assert_eq!(files.append(None, "chat", 3, entry("four")).unwrap(), 4);
        assert_eq!(READS.get() - reads, 1);
        assert_eq!(open().load("chat", 0).unwrap().map(|entries| entries.len()), Some(4));
        fs::remove_dir_all(&folder).unwrap();
    }
}
