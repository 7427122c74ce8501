//! A memory in a folder.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use futures::future::{BoxFuture, FutureExt};
use serde_json::json;

use crate::context::memory::memory::check_name;
use crate::context::{Memory, MemoryNote};
use crate::error::{Error, ErrorKind};
use crate::item::truncate_middle;
use crate::request::ToolSpec;
use crate::store_thread::StoreThread;
use crate::tool::RankedTools;

/// The extension of a note's file.
const EXTENSION: &str = "md";
/// The extension of a file that is being written.
const TEMPORARY_EXTENSION: &str = "tmp";
/// The number of the next write of this process, which is part of the name of its temporary file.
static NEXT_WRITE: AtomicU64 = AtomicU64::new(0);
/// The maximum number of notes that a search reads.
const MAX_SEARCHED: usize = 1_000;
/// The maximum number of bytes that are read from a file, which people may have edited.
const MAX_FILE_BYTES: u64 = 1024 * 1024;
/// The time within which two changes of a file may have the same modification time. Some file
/// systems store it in units of two seconds.
const TIME_RESOLUTION: Duration = Duration::from_secs(2);
/// The maximum number of bytes of a note that a search compares with the query.
const MAX_COMPARED_BYTES: usize = 4 * 1024;

/// A [`Memory`] that keeps each note in a file of a folder: the note `team` is the file `team.md`.
/// Clones share the folder.
///
/// People may read, edit and delete the files at any time. A file is replaced in one step, so that
/// another process never reads half of a note, and a crash never leaves one. If two processes write
/// the same note, the last one wins. A search compares the words of the query with the names and
/// texts of the first 1,000 notes in alphabetical order. It lists the folder, and reads only the
/// notes that have changed since the last search: those whose modification time or length differs,
/// and those that were modified less than two seconds before they were read.
///
/// The files are read and written on a thread of their own. Dropping a future does not interrupt an
/// operation that has started. Dropping the last clone blocks the thread for up to 5 seconds, until
/// the operations are complete.
///
/// ```
/// use turnstream::context::{FileMemory, Memory, MemoryNote};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), turnstream::Error> {
/// # let folder = std::env::temp_dir().join(format!("turnstream-memory-doc-{}", std::process::id()));
/// let memory = FileMemory::new(&folder);
/// memory.write(&MemoryNote::new("deploys", "The team deploys on Tuesdays.")).await?;
/// memory.write(&MemoryNote::new("style", "Answer in British English.")).await?;
///
/// let found = memory.search("When does the team deploy?", 1).await?;
/// assert_eq!(found[0].name, "deploys");
/// # std::fs::remove_dir_all(folder).unwrap();
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct FileMemory(StoreThread<Folder>);

/// The folder that contains the notes.
struct Folder {
    path: PathBuf,
    /// The notes that the last search has read, by their names.
    known: HashMap<String, KnownNote>,
}

/// A note that was read, and the version of its file.
struct KnownNote {
    version: FileVersion,
    note: MemoryNote,
}

/// The attributes of a file that change when the file changes.
#[derive(Clone, Copy, PartialEq, Eq)]
struct FileVersion {
    modified: SystemTime,
    len: u64,
}

impl FileMemory {
    /// Opens the memory in a folder. The folder is created when the first note is written; until
    /// then, the memory is empty.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self(StoreThread::new("memory", Folder { path: folder.into(), known: HashMap::new() }))
    }
}

impl_debug!(FileMemory);

impl Memory for FileMemory {
    fn read<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<String>, Error>> {
        let name = name.to_owned();
        self.0.run(move |folder| folder.read(&name)).boxed()
    }

    fn write<'a>(&'a self, note: &'a MemoryNote) -> BoxFuture<'a, Result<(), Error>> {
        let note = note.clone();
        self.0.run(move |folder| folder.write(&note)).boxed()
    }

    fn search<'a>(
        &'a self,
        query: &'a str,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<MemoryNote>, Error>> {
        let query = query.to_owned();
        self.0.run(move |folder| folder.search(&query, limit)).boxed()
    }
}

impl Folder {
    fn file(&self, name: &str, extension: &str) -> PathBuf {
        self.path.join(name).with_extension(extension)
    }

    fn read(&self, name: &str) -> Result<Option<String>, Error> {
        check_name(name)?;
        let path = self.file(name, EXTENSION);
        match read_file(&path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(file_error("read", &path, error)),
        }
    }

    fn write(&mut self, note: &MemoryNote) -> Result<(), Error> {
        note.check()?;
        self.known.remove(&note.name);
        let path = self.file(&note.name, EXTENSION);
        if note.text.is_empty() {
            return match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    Err(file_error("removed", &path, error))
                }
                Ok(()) | Err(_) => Ok(()),
            };
        }
        // Each writer has a file of its own.
        let (process, write) = (process::id(), NEXT_WRITE.fetch_add(1, Ordering::Relaxed));
        let new = self.path.join(format!("{}.{process}-{write}.{TEMPORARY_EXTENSION}", note.name));
        let store = || {
            fs::create_dir_all(&self.path)?;
            let mut file = fs::File::create_new(&new)?;
            file.write_all(note.text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&new, &path)
        };
        store().map_err(|error| {
            let _ = fs::remove_file(&new);
            file_error("written", &path, error)
        })
    }

    fn search(&mut self, query: &str, limit: usize) -> Result<Vec<MemoryNote>, Error> {
        let notes = self.notes()?;
        let specs: Vec<ToolSpec> = notes
            .iter()
            .map(|note| {
                let text = truncate_middle(note.text.clone(), MAX_COMPARED_BYTES);
                ToolSpec::new(&*note.name, &*text, json!({ "type": "object" }))
            })
            .collect();
        let best = RankedTools::new(&specs).best_matches(query, limit);
        Ok(best.into_iter().filter_map(|at| notes.get(at).cloned()).collect())
    }

    /// Returns the notes in alphabetical order. Files with other names are ignored, and so are
    /// files that cannot be read, since another process may have removed them. Files that have not
    /// changed since the last call are not read again.
    fn notes(&mut self) -> Result<Vec<MemoryNote>, Error> {
        let mut known = std::mem::take(&mut self.known);
        let files = match fs::read_dir(&self.path) {
            Ok(files) => files,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => {
                let what = format!("the folder of notes {} could not be read", self.path.display());
                return Err(Error::new(ErrorKind::Store, what).with_source(error));
            }
        };
        let mut names: Vec<String> = files
            .filter_map(|file| {
                let name = file.ok()?.file_name().into_string().ok()?;
                let name = name.strip_suffix(EXTENSION)?.strip_suffix('.')?;
                check_name(name).ok()?;
                Some(name.to_owned())
            })
            .collect();
        names.sort();
        names.truncate(MAX_SEARCHED);
        let mut notes = Vec::with_capacity(names.len());
        for name in names {
            let path = self.file(&name, EXTENSION);
            let version = FileVersion::of(&path);
            let unchanged = known.remove(&name).filter(|known| Some(known.version) == version);
            let note = match unchanged {
                Some(known) => known.note,
                None => match read_file(&path) {
                    Ok(text) => MemoryNote { name, text },
                    Err(_) => continue,
                },
            };
            notes.push(note.clone());
            if let Some(version) = version.filter(FileVersion::is_final) {
                self.known.insert(note.name.clone(), KnownNote { version, note });
            }
        }
        Ok(notes)
    }
}

impl FileVersion {
    fn of(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        Some(Self { modified: metadata.modified().ok()?, len: metadata.len() })
    }

    /// Returns whether a later version of the file has another modification time. Two changes
    /// within a short time may have the same one.
    fn is_final(&self) -> bool {
        self.modified.elapsed().is_ok_and(|age| age >= TIME_RESOLUTION)
    }
}

/// Reads the beginning of a file. Bytes that are not UTF-8 are replaced.
fn read_file(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(MAX_FILE_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn file_error(verb: &str, path: &Path, error: io::Error) -> Error {
    let what = format!("the note {} could not be {verb}", path.display());
    Error::new(ErrorKind::Store, what).with_source(error)
}
