//! What the store does, on its thread.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use super::super::files::sync_parent;
use super::super::prune::prunable;
use super::super::refusal::{broken, refuse_beyond, refuse_empty, refuse_other, refuse_there};
use super::crc::Crc;
use super::file::{For, Locked, Stamp};
use super::folder::{files_in, folder_of};
use super::lines::{self, Lines};
use super::name::{self, ENDING};
use super::origins::Origins;
use super::salvage::{self, Found};
use crate::env::Clock;
use crate::error::{Error, ErrorKind};
use crate::session::jobs;
use crate::session::{Conflict, Entry, Fork, Listed, Salvaged};

/// How many files are remembered.
const REMEMBERED: usize = 1024;

/// How many files are locked at once to be removed: each is open.
const PRUNED_AT_ONCE: usize = 64;

/// The files of a store.
pub(super) struct Sessions {
    pub(super) place: Place,
    pub(super) clock: Arc<dyn Clock>,
    /// What was found in a file, true as long as its stamp is.
    seen: HashMap<PathBuf, Seen>,
}

/// Where they are.
pub(super) enum Place {
    /// All that are in it.
    Folder(PathBuf),
    /// One, whatever its file is called.
    File { path: PathBuf, id: String },
}

#[derive(Clone)]
struct Seen {
    stamp: Stamp,
    /// `None` if there is no session.
    version: Option<u64>,
    fork: Option<Fork>,
    /// Whether there is a header.
    begun: bool,
    /// The bytes that are whole, whether they end with LF, and their checksum.
    end: u64,
    is_ended: bool,
    crc: Crc,
}

impl jobs::Sessions for Sessions {
    fn append(&mut self, id: &str, expected: u64, entries: Vec<Entry>) -> Result<u64, Error> {
        let path = self.place.writable(id)?;
        let text = lines::of_entries(&entries)?;
        let what_for = match expected == 0 && !entries.is_empty() {
            true => For::Making,
            false => For::Writing,
        };
        let Some(mut file) = Locked::open(&path, what_for)? else {
            return refuse_other(id, expected, 0).map(|()| 0);
        };
        let there = self.there(&mut file, &path, id)?;
        let found = there.version.unwrap_or(0);
        refuse_other(id, expected, found)?;
        if entries.is_empty() {
            return Ok(found);
        }
        let version = found.saturating_add(entries.len() as u64);
        let begin = match (there.begun, there.is_ended) {
            (true, true) => Vec::new(),
            (true, false) => b"\n".to_vec(),
            (false, _) => lines::header(id, None)?,
        };
        let append = lines::append(there.crc.then(&begin), entries.len(), &text)?;
        let then = Seen { version: Some(version), ..there };
        self.write(&mut file, &path, then, &[begin, append].concat())?;
        // Otherwise the entries are in a file that was removed from its folder.
        match file.is_there() {
            true => Ok(version),
            false => Err(Conflict { id: id.to_owned(), expected, found: self.version(id)? }.into()),
        }
    }

    fn load(&mut self, id: &str, from: u64) -> Result<Option<Vec<Entry>>, Error> {
        let Some(path) = self.place.path(id) else { return Ok(None) };
        let Some((lines, text)) = read(&path, id)? else { return Ok(None) };
        let Some(version) = lines.version() else { return Ok(None) };
        // From the newest part to the one that the others came from.
        let mut parts = vec![lines.entries(&text, from..version).map_err(within(&path))?];
        let mut ids = vec![id.to_owned()];
        let mut next = lines.head.and_then(|head| head.fork);
        let mut until = version;
        while let Some(fork) = next.filter(|fork| from < fork.at.min(until)) {
            until = until.min(fork.at);
            let path = self.place.parent(&fork.id);
            let gone = || {
                let (id, at) = (&fork.id, fork.at);
                broken(format!("the first {at} entries of `{id}`, a fork's origin, are not there"))
            };
            if ids.contains(&fork.id) {
                return Err(broken(format!("the session `{}` is a fork of itself", fork.id)));
            }
            let (lines, text) = read(&path, &fork.id)?.ok_or_else(gone)?;
            if lines.version() < Some(fork.at) {
                return Err(gone());
            }
            parts.push(lines.entries(&text, from..until).map_err(within(&path))?);
            ids.push(fork.id);
            next = lines.head.and_then(|head| head.fork);
        }
        Ok(Some(parts.into_iter().rev().flatten().collect()))
    }

    fn list(&mut self) -> Result<Vec<Listed>, Error> {
        self.listed(Err)
    }

    fn fork(&mut self, id: &str, at: u64, new: &str) -> Result<(), Error> {
        let path = self.place.writable(new)?;
        let origin = self.place.path(id);
        // The lock keeps it from being removed meanwhile. A session cannot be forked from itself.
        let mut origin_file = match &origin {
            Some(origin) => Locked::open(origin, For::Reading)?,
            None => None,
        };
        let version = match (&origin, &mut origin_file) {
            (Some(origin), Some(file)) => self.there(file, origin, id)?.version,
            _ => None,
        };
        if origin.as_ref() == Some(&path) {
            drop(origin_file.take());
        }
        refuse_beyond(id, at, version)?;
        let Some(mut file) = Locked::open(&path, For::Making)? else {
            return Err(broken(format!("`{}` is gone", path.display())));
        };
        let there = self.there(&mut file, &path, new)?;
        refuse_there(new, there.version)?;
        let fork = Fork { id: id.to_owned(), at };
        let text = lines::header(new, Some(&fork))?;
        let (version, fork) = (Some(at), Some(fork));
        let then = Seen { version, fork, end: 0, crc: Crc::default(), ..there };
        self.write(&mut file, &path, then, &text)?;
        match file.is_there() {
            true => Ok(()),
            false => Err(broken(format!("`{}` is gone", path.display()))),
        }
    }

    fn delete(&mut self, id: &str) -> Result<bool, Error> {
        let Some(path) = self.place.path(id) else { return Ok(false) };
        // The lock keeps others from writing or forking it meanwhile.
        let Some(file) = Locked::open(&path, For::Writing)? else { return Ok(false) };
        let mut origins = Origins::default();
        origins.find(folder_of(&path))?;
        self.remove(file, &path, id, (&origins, &HashSet::new()), |_| true)
    }

    fn prune(&mut self, before: SystemTime) -> Result<Vec<String>, Error> {
        let listed = self.listed(|_| Ok(()))?;
        let with_path = |id| Some((id, self.place.path(id)?));
        let files: Vec<_> = prunable(&listed, before).into_iter().filter_map(with_path).collect();
        let mut origins = Origins::default();
        let mut removed = Vec::new();
        let mut left = &files[..];
        while let Some((_, first)) = left.first() {
            let mut locked = vec![Locked::open(first, For::Writing)?];
            for (_, path) in left.iter().take(PRUNED_AT_ONCE).skip(1) {
                // A store that waits must not hold a lock that another one waits for: a file that is
                // locked elsewhere is the first of the next ones.
                let Ok(file) = Locked::open_now(path, For::Writing) else { break };
                locked.push(file);
            }
            // What is forked from them from here on is refused.
            origins.find(folder_of(first))?;
            let (these, rest) = left.split_at(locked.len());
            let mut gone = HashSet::new();
            for ((id, path), file) in these.iter().zip(locked) {
                let Some(file) = file else { continue };
                let may_go = |modified| modified < before;
                match self.remove(file, path, id, (&origins, &gone), may_go) {
                    Ok(true) => {
                        removed.push((*id).to_owned());
                        gone.insert(path.clone());
                    }
                    Ok(false) => {}
                    // Of a fork that was made meanwhile, or cannot be read.
                    Err(error) if error.kind() == ErrorKind::InvalidRequest => {}
                    Err(error) => return Err(error),
                }
            }
            left = rest;
        }
        Ok(removed)
    }
}

impl Sessions {
    pub(super) fn new(place: Place, clock: Arc<dyn Clock>) -> Self {
        Self { place, clock, seen: HashMap::new() }
    }

    /// The version of a session, 0 if it is not there.
    fn version(&mut self, id: &str) -> Result<u64, Error> {
        let path = self.place.writable(id)?;
        let Some(mut file) = Locked::open(&path, For::Reading)? else { return Ok(0) };
        Ok(self.there(&mut file, &path, id)?.version.unwrap_or(0))
    }

    pub(super) fn salvage(&mut self, id: &str) -> Result<Option<Salvaged>, Error> {
        let Some(path) = self.place.path(id) else { return Ok(None) };
        let Some(mut found) = salvaged(&path)? else { return Ok(None) };
        // From the newest part to the one that the others came from.
        let mut all = found.own;
        let mut ids = vec![id.to_owned()];
        let mut until = u64::MAX;
        while let Some(fork) = found.fork {
            until = until.min(fork.at);
            let path = self.place.parent(&fork.id);
            let origin = match ids.contains(&fork.id) {
                true => None,
                false => salvaged(&path)?,
            };
            let Some(origin) = origin else {
                let mut gone = Salvaged::default();
                let reason = format!("`{}`, from which it was forked, is not there", fork.id);
                gone.note(format!("`{}`", path.display()), reason, Some(until));
                all = gone.then(all);
                break;
            };
            let inherited = origin.fork.as_ref().map_or(0, |fork| fork.at);
            all = origin.own.first(until.saturating_sub(inherited)).then(all);
            ids.push(fork.id);
            found = Found { fork: origin.fork, own: Salvaged::default() };
        }
        Ok(Some(all))
    }

    /// All sessions; `damaged` decides about those that cannot be read.
    fn listed(
        &mut self,
        damaged: impl Fn(Error) -> Result<(), Error>,
    ) -> Result<Vec<Listed>, Error> {
        let mut listed = Vec::new();
        for (path, id) in self.place.files()? {
            match self.listed_file(&path, id) {
                Ok(found) => listed.extend(found),
                Err(error) => damaged(error)?,
            }
        }
        listed.sort_by(|a, b| b.updated.cmp(&a.updated).then_with(|| a.id.cmp(&b.id)));
        Ok(listed)
    }

    /// The session in a file; `None` if there is none.
    fn listed_file(&mut self, path: &Path, id: Option<String>) -> Result<Option<Listed>, Error> {
        let Some(mut file) = Locked::open(path, For::Reading)? else { return Ok(None) };
        let id = match id {
            Some(id) => id,
            None => match self.long_id(&mut file, path)? {
                Some(id) => id,
                None => return Ok(None),
            },
        };
        let there = match self.there(&mut file, path, &id) {
            Ok(there) => there,
            // Something else that is kept in the folder.
            Err(_) if !lines::begin_with_header(&file.read()?) => return Ok(None),
            Err(error) => return Err(error),
        };
        let listed =
            |version| Listed { id, version, fork: there.fork, updated: there.stamp.modified };
        Ok(there.version.map(listed))
    }

    /// Removes the file of a session if it is one, was modified when it may, and no other session was
    /// forked from it. The origins were found while it was locked; the files that are gone since do not
    /// count.
    fn remove(
        &mut self,
        mut file: Locked<'_>,
        path: &Path,
        id: &str,
        (origins, gone): (&Origins, &HashSet<PathBuf>),
        may_go: impl FnOnce(SystemTime) -> bool,
    ) -> Result<bool, Error> {
        let text = file.read()?;
        match lines::read(&text) {
            Ok(lines) if lines.version().is_none() => return Ok(false),
            // A damaged session is one, too.
            Err(error) if !lines::begin_with_header(&text) => return Err(within(path)(error)),
            Ok(_) | Err(_) => {}
        }
        if !may_go(file.stamp()?.modified) {
            return Ok(false);
        }
        // A fork would look for no other name.
        if self.place.parent(id) == path {
            let is_there = |id: &str| self.place.parent(id).is_file();
            origins.refuse_forked(id, path, is_there, gone)?;
        }
        file.remove()?;
        self.seen.remove(path);
        Ok(true)
    }

    /// The id of a session whose file has a shortened name.
    fn long_id(&self, file: &mut Locked<'_>, path: &Path) -> Result<Option<String>, Error> {
        let text = file.read()?;
        if !lines::begin_with_header(&text) {
            return Ok(None);
        }
        let lines = lines::read(&text).map_err(within(path))?;
        let id = lines.head.map(|head| head.id);
        Ok(id.filter(|id| self.place.path(id).as_deref() == Some(path)))
    }

    /// What is in a file, read again only if somebody else has written.
    fn there(&mut self, file: &mut Locked<'_>, path: &Path, id: &str) -> Result<Seen, Error> {
        let stamp = file.stamp()?;
        if let Some(seen) = self.seen.get(path).filter(|seen| seen.stamp == stamp) {
            return Ok(seen.clone());
        }
        let lines = lines::read(&file.read()?).map_err(within(path))?;
        refuse_another(&lines, path, id)?;
        let seen = Seen {
            stamp,
            version: lines.version(),
            begun: lines.head.is_some(),
            end: lines.end as u64,
            is_ended: lines.is_ended,
            crc: lines.crc,
            fork: lines.head.and_then(|head| head.fork),
        };
        self.remember(path, seen.clone());
        Ok(seen)
    }

    /// Writes `text` after what is whole.
    fn write(
        &mut self,
        file: &mut Locked<'_>,
        path: &Path,
        then: Seen,
        text: &[u8],
    ) -> Result<(), Error> {
        self.seen.remove(path);
        if then.end == 0 {
            sync_parent(path)?;
        }
        file.write(then.end, text, self.clock.now())?;
        // It is written, whatever comes of this.
        if let Ok(stamp) = file.stamp() {
            let end = then.end + text.len() as u64;
            let crc = then.crc.then(text);
            self.remember(path, Seen { stamp, begun: true, end, is_ended: true, crc, ..then });
        }
        Ok(())
    }

    fn remember(&mut self, path: &Path, seen: Seen) {
        if self.seen.len() >= REMEMBERED {
            self.seen.clear();
        }
        self.seen.insert(path.to_owned(), seen);
    }
}

/// Reads the file of a session with its lines; `None` if there is none.
fn read(path: &Path, id: &str) -> Result<Option<(Lines, Vec<u8>)>, Error> {
    let Some(mut file) = Locked::open(path, For::Reading)? else { return Ok(None) };
    let text = file.read()?;
    let lines = lines::read(&text).map_err(within(path))?;
    refuse_another(&lines, path, id)?;
    Ok(Some((lines, text)))
}

/// Reads what is whole in a file; `None` if there is none.
fn salvaged(path: &Path) -> Result<Option<Found>, Error> {
    let Some(mut file) = Locked::open(path, For::Reading)? else { return Ok(None) };
    let text = file.read()?;
    let found = salvage::read(&text, path);
    let is_nothing = found.own.entries.is_empty()
        && found.own.damage.iter().all(|damage| damage.doubtful.is_empty());
    match lines::read(&text) {
        Err(error) if is_nothing && !lines::begin_with_header(&text) => Err(within(path)(error)),
        Ok(_) | Err(_) => Ok(Some(found)),
    }
}

/// The name of a file tells which session it is, unless it was shortened.
fn refuse_another(lines: &Lines, path: &Path, id: &str) -> Result<(), Error> {
    let shortened = path.file_stem().is_some_and(|name| *name == *name::encode(id))
        && name::decode(&name::encode(id)).is_none();
    match &lines.head {
        Some(head) if shortened && head.id != id => {
            let message = format!("`{}` holds another session, `{}`", path.display(), head.id);
            Err(broken(message))
        }
        Some(_) | None => Ok(()),
    }
}

/// Says in which file it was.
fn within(path: &Path) -> impl Fn(Error) -> Error {
    move |error| {
        let message = format!("`{}`: {error}", path.display());
        Error::new(error.kind(), message).with_source(error)
    }
}

impl Place {
    /// The file of a session; `None` if this place has no such session.
    fn path(&self, id: &str) -> Option<PathBuf> {
        match self {
            Self::Folder(_) => Some(self.parent(id)),
            Self::File { path, id: only } => (only == id).then(|| path.clone()),
        }
    }

    fn writable(&self, id: &str) -> Result<PathBuf, Error> {
        refuse_empty(id)?;
        self.path(id).ok_or_else(|| {
            let message = format!("this store is one file, and `{id}` is not its session");
            Error::new(ErrorKind::InvalidRequest, message)
        })
    }

    /// The file of a session that another one was forked from. It stands beside it.
    fn parent(&self, id: &str) -> PathBuf {
        let name = format!("{}{ENDING}", name::encode(id));
        match self {
            Self::Folder(folder) => folder.join(name),
            Self::File { path, .. } => path.with_file_name(name),
        }
    }

    /// Every file that may hold a session, with its id where the name tells it.
    fn files(&self) -> Result<Vec<(PathBuf, Option<String>)>, Error> {
        match self {
            Self::Folder(folder) => files_in(folder),
            Self::File { path, id } => Ok(vec![(path.clone(), Some(id.clone()))]),
        }
    }
}
