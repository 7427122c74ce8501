//! File operations shared by all stores on disk.

use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::session::backend::checks::store_error;

/// Identifies a file independently of its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::session) struct FileId(u64, u64);

impl FileId {
    #[cfg(unix)]
    pub(in crate::session) fn from_metadata(file: &Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;

        Self(file.dev(), file.ino())
    }

    /// Returns the same id for all files, because on systems other than Unix, a file cannot be
    /// replaced while it is open.
    #[cfg(not(unix))]
    pub(in crate::session) fn from_metadata(_file: &Metadata) -> Self {
        Self(0, 0)
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
