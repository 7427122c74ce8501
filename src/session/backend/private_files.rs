//! File operations shared by all stores on disk.

use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::session::backend::checks::store_error;

/// Identifies a file independently of its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::session) struct FileId(u64, u64);

impl FileId {
    /// Returns the id and the metadata of an open file.
    #[cfg(unix)]
    pub(in crate::session) fn of_file(file: &File) -> io::Result<(Self, Metadata)> {
        file.metadata().map(|metadata| (Self::from_metadata(&metadata), metadata))
    }

    /// Returns the id of the file at a path.
    #[cfg(unix)]
    pub(in crate::session) fn at_path(path: &Path) -> io::Result<Self> {
        path.metadata().map(|metadata| Self::from_metadata(&metadata))
    }

    #[cfg(unix)]
    fn from_metadata(file: &Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;

        Self(file.dev(), file.ino())
    }

    #[cfg(windows)]
    pub(in crate::session) fn of_file(file: &File) -> io::Result<(Self, Metadata)> {
        let ids = winapi_util::file::information(file)?;
        Ok((Self(ids.volume_serial_number(), ids.file_index()), file.metadata()?))
    }

    #[cfg(windows)]
    pub(in crate::session) fn at_path(path: &Path) -> io::Result<Self> {
        use std::os::windows::fs::OpenOptionsExt;

        // Reading the id needs no permission to read the file.
        let file = OpenOptions::new().access_mode(0).open(path)?;
        Self::of_file(&file).map(|(id, _)| id)
    }

    /// Returns the same id for all files, because their ids are unknown on other systems.
    #[cfg(not(any(unix, windows)))]
    pub(in crate::session) fn of_file(file: &File) -> io::Result<(Self, Metadata)> {
        file.metadata().map(|metadata| (Self(0, 0), metadata))
    }

    #[cfg(not(any(unix, windows)))]
    pub(in crate::session) fn at_path(path: &Path) -> io::Result<Self> {
        path.metadata().map(|_| Self(0, 0))
    }
}

/// Resolves the symbolic links in a path, even if the target file does not exist yet.
pub fn resolve_links(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    // The operating system has the same limit for resolving links.
    for _ in 0..40 {
        if let Ok(path) = path.canonicalize() {
            return path;
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new(".")).to_owned();
        match path.read_link() {
            Ok(target) => path = folder.join(target),
            Err(_) => {
                let name = path.file_name().unwrap_or_default();
                return folder.canonicalize().unwrap_or(folder).join(name);
            }
        }
    }
    path
}

/// Returns options for creating files that only the owner can access. Existing files keep their
/// permissions.
pub(in crate::session) fn private_file_options() -> OpenOptions {
    #[allow(unused_mut, reason = "elsewhere the permissions of the folder apply")]
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Creates a folder and its parents, accessible only to the owner. Existing folders keep their
/// permissions.
pub(in crate::session) fn create_private_dir(folder: &Path) -> Result<(), Error> {
    let missing = folder.ancestors().take_while(|folder| !folder.as_os_str().is_empty());
    let missing: Vec<&Path> = missing.take_while(|folder| !folder.exists()).collect();
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    let made = builder.create(folder);
    made.map_err(|error| store_error(format!("cannot create `{}`", folder.display()), error))?;
    missing.into_iter().try_for_each(sync_parent_dir)
}

/// Syncs the folder that contains a file to disk, so that the file's name is durable.
pub(in crate::session) fn sync_parent_dir(path: &Path) -> Result<(), Error> {
    // On systems other than Unix, a folder cannot be opened and need not be synced.
    if !cfg!(unix) {
        return Ok(());
    }
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|error| store_error(format!("cannot write `{}`", folder.display()), error))
}

#[cfg(test)]
mod tests {
    use std::{env, fs, process};

    use super::*;

    #[test]
    fn a_renamed_file_keeps_its_id_and_another_file_has_another() {
        let folder = env::temp_dir().join(format!("turnstream-ids-{}", process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (one, other) = (folder.join("one"), folder.join("other"));
        fs::write(&one, "text").unwrap();
        fs::write(&other, "text").unwrap();
        let file = File::open(&one).unwrap();
        let (id, _) = FileId::of_file(&file).unwrap();
        drop(file);
        assert_eq!(FileId::at_path(&one).unwrap(), id);
        assert_ne!(FileId::at_path(&other).unwrap(), id);
        fs::rename(&one, &other).unwrap();
        assert_eq!(FileId::at_path(&other).unwrap(), id);
        assert_eq!(FileId::at_path(&one).unwrap_err().kind(), io::ErrorKind::NotFound);
        fs::remove_dir_all(&folder).unwrap();
    }
}
