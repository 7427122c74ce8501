//! The working directory, and the law that nothing outside of it is read or written.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::text::one_line;

/// The directory that tools may look at. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Root(Arc<Path>);

/// A path that was found to be inside, symbolic links resolved.
pub(crate) struct Place {
    root: PathBuf,
    path: PathBuf,
}

impl Root {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self(path.into())
    }

    /// Finds what a model named; nothing means the working directory itself.
    pub(crate) fn find(&self, given: Option<&str>) -> Result<Place, String> {
        let given = given.filter(|given| !given.trim().is_empty()).unwrap_or(".");
        let named = one_line(given, 100);
        let root = self
            .0
            .canonicalize()
            .map_err(|error| format!("the working directory cannot be read: {error}"))?;
        let wanted = root.join(given);
        // The nearest thing that exists, so that nothing outside can be found out by guessing.
        let nearest = wanted.ancestors().find_map(|path| path.canonicalize().ok());
        if !nearest.is_some_and(|path| path.starts_with(&root)) {
            return Err(format!(
                "`{named}` is outside the working directory and cannot be read. Give a path \
                 inside it, relative to it, for example `.` or `src`."
            ));
        }
        match wanted.canonicalize() {
            Ok(path) => Ok(Place { root, path }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(format!(
                "there is no `{named}` in the working directory. Call `list_directory` to see \
                 what there is."
            )),
            Err(error) => Err(format!("`{named}` cannot be read: {error}")),
        }
    }

    /// Where a file goes that a model wants to write, and what it is called: an entry, there or
    /// not, of a directory that is there.
    pub(crate) fn place_for(&self, given: &str) -> Result<(PathBuf, String), String> {
        let path = Path::new(given);
        let named = one_line(given, 100);
        let Some(file) = path.file_name().filter(|_| !given.ends_with(['/', '\\'])) else {
            return Err(format!("`{named}` does not name a file"));
        };
        let parent = path.parent().map(Path::to_string_lossy);
        let directory = self.find(parent.as_deref())?;
        if !directory.path.is_dir() {
            return Err(format!("`{}` is not a directory", directory.name()));
        }
        let path = directory.path.join(file);
        let name = directory.name_of(&path);
        Ok((path, one_line(&name, 200)))
    }
}

impl Place {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The path as the model names it.
    pub(crate) fn name(&self) -> String {
        self.name_of(&self.path)
    }

    /// The name of a path below it.
    pub(crate) fn name_of(&self, path: &Path) -> String {
        match path.strip_prefix(&self.root) {
            Ok(inside) if inside.as_os_str().is_empty() => ".".to_owned(),
            Ok(inside) => inside.to_string_lossy().replace('\\', "/"),
            Err(_) => path.to_string_lossy().into_owned(),
        }
    }

    /// Its files, sorted, without those in hidden and in build directories, and without following
    /// symbolic links. A file is its own and only file.
    pub(crate) fn files(&self, extension: Option<&str>) -> Result<Files, String> {
        let unreadable = |error| format!("`{}` cannot be read: {error}", self.name());
        let mut files = Files {
            root: self.root.clone(),
            extension: extension.and_then(plain_extension),
            waiting: Vec::new(),
            unreadable: 0,
        };
        let meta = fs::metadata(&self.path).map_err(unreadable)?;
        if meta.is_file() {
            files.extension = None;
            files.waiting.push((self.path.clone(), Kind::File));
        } else if meta.is_dir() {
            files.waiting = sorted(&self.path).map_err(unreadable)?;
        } else {
            return Err(format!("`{}` is neither a file nor a directory", self.name()));
        }
        Ok(files)
    }
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    File,
    Directory,
    /// A symbolic link, or something that is no file to read, such as a pipe.
    Other,
}

/// The entries of a directory, the last one first.
pub(crate) fn sorted(directory: &Path) -> io::Result<Vec<(PathBuf, Kind)>> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let kind = match entry.file_type() {
            Ok(kind) if kind.is_file() => Kind::File,
            Ok(kind) if kind.is_dir() => Kind::Directory,
            _ => Kind::Other,
        };
        entries.push((entry.path(), kind));
    }
    entries.sort_by(|(a, _), (b, _)| b.cmp(a));
    Ok(entries)
}

/// The files below a directory, one after the other; each directory is read when it is reached.
pub(crate) struct Files {
    root: PathBuf,
    extension: Option<String>,
    /// The next one last.
    waiting: Vec<(PathBuf, Kind)>,
    unreadable: usize,
}

impl Files {
    pub(crate) fn extension(&self) -> Option<&str> {
        self.extension.as_deref()
    }

    /// How many directories could not be read so far.
    pub(crate) fn unreadable(&self) -> usize {
        self.unreadable
    }

    fn fits(&self, path: &Path) -> bool {
        let Some(wanted) = &self.extension else { return true };
        path.extension().is_some_and(|has| has.eq_ignore_ascii_case(wanted))
    }

    fn is_left_out(&self, directory: &Path) -> bool {
        let name = directory.file_name().unwrap_or_default();
        if name.as_encoded_bytes().starts_with(b".") {
            return true;
        }
        // A folder of sources may be called `target` as well.
        name == OsStr::new("target")
            && (directory.join("CACHEDIR.TAG").exists()
                || directory.parent().is_some_and(|parent| {
                    parent == self.root || parent.join("Cargo.toml").exists()
                }))
    }
}

impl Iterator for Files {
    type Item = PathBuf;

    fn next(&mut self) -> Option<PathBuf> {
        while let Some((path, kind)) = self.waiting.pop() {
            match kind {
                Kind::File if self.fits(&path) => return Some(path),
                Kind::Directory if !self.is_left_out(&path) => match sorted(&path) {
                    Ok(entries) => self.waiting.extend(entries),
                    Err(_) => self.unreadable += 1,
                },
                Kind::File | Kind::Directory | Kind::Other => {}
            }
        }
        None
    }
}

/// `rs` for `rs`, `.rs` and `*.rs`.
fn plain_extension(given: &str) -> Option<String> {
    let plain = given.trim().trim_start_matches('*').trim_start_matches('.');
    (!plain.is_empty()).then(|| plain.to_owned())
}

/// Whether these are the first bytes of something that is not text.
pub(crate) fn is_binary(bytes: &[u8]) -> bool {
    bytes.iter().take(8_000).any(|byte| *byte == 0)
}
